//! Clients: a closed loop, an open loop with every answer on record, a flood, and silence.

mod closed;
mod flood;
mod open;

use std::{net::SocketAddr, time::Duration};

use client_sim::source::PictureSet;
use tokio_stream::Stream;
use tonic::{
    Request, Status, Streaming,
    transport::{Channel, Endpoint},
};
use vedette_proto::{
    CAMERA_ID_KEY,
    camera_ai::{DetectRequest, DetectResponse, object_detection_client::ObjectDetectionClient},
};

pub use self::{
    closed::{ClosedLoop, ClosedResult},
    flood::{Flood, FloodResult, Silence},
    open::{Answered, OpenLoop, OpenResult},
};

use crate::error::{BenchError, failed};

/// How long a connection may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// How long answers are waited for once nothing more is sent.
const DRAIN: Duration = Duration::from_secs(2);

/// How streams share connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named")]
pub enum Connections {
    OneEach,
    OneForAll,
}

/// Connects as every client here does: tonic's own settings (64 KiB windows for answers), Nagle's
/// algorithm off.
///
/// # Errors
/// When nobody listens.
pub async fn connect(addr: SocketAddr) -> Result<Channel, BenchError> {
    let endpoint = Endpoint::from_shared(format!("http://{addr}")).map_err(failed("address"))?;
    let endpoint = endpoint.tcp_nodelay(true).connect_timeout(CONNECT_PATIENCE);
    endpoint.connect().await.map_err(failed("cannot connect to the server"))
}

async fn channels(
    addr: SocketAddr,
    count: u32,
    connections: Connections,
) -> Result<Vec<Channel>, BenchError> {
    if connections == Connections::OneForAll {
        return Ok(vec![connect(addr).await?; count as usize]);
    }
    let mut channels = Vec::new();
    for _ in 0..count {
        channels.push(connect(addr).await?);
    }
    Ok(channels)
}

/// Opens a camera's stream.
async fn open(
    channel: Channel,
    camera: &str,
    frames: impl Stream<Item = DetectRequest> + Send + 'static,
) -> Result<Streaming<DetectResponse>, BenchError> {
    let mut request = Request::new(frames);
    let name = camera.parse().map_err(failed("camera id"))?;
    request.metadata_mut().insert(CAMERA_ID_KEY, name);
    let opened = ObjectDetectionClient::new(channel).detect_stream(request).await;
    opened.map(tonic::Response::into_inner).map_err(broken)
}

fn broken(status: Status) -> BenchError {
    failed("a stream broke")(status)
}

fn request(frame_id: u64, pictures: &PictureSet, camera: u32) -> DetectRequest {
    let image_data = pictures.frame(camera, frame_id);
    DetectRequest { frame_id, image_data, ..DetectRequest::default() }
}
