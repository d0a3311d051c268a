//! A client that pushes as fast as flow control lets it, and clients that send nothing.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use client_sim::source::PictureSet;
use tokio::{sync::mpsc, time::timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use vedette_proto::camera_ai::{DetectRequest, DetectResponse, Outcome};
use vedette_server::clock;

use super::{Connections, DRAIN, broken, channels, open, request};
use crate::error::BenchError;

/// One stream on its own connection that always has another frame to send.
#[derive(Debug, Clone)]
pub struct Flood {
    /// Where to.
    pub addr: SocketAddr,
    /// What it sends.
    pub pictures: PictureSet,
    /// How long it sends.
    pub length: Duration,
}

/// What a flood gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FloodResult {
    /// Frames that the connection took.
    pub sent: u64,
    /// Frames answered OK.
    pub ok: u64,
    /// Frames answered SUPERSEDED.
    pub superseded: u64,
    /// Frames answered otherwise.
    pub other: u64,
    /// From the first frame to the last one's answer.
    pub span: Duration,
}

impl FloodResult {
    /// Frames without an answer.
    #[must_use]
    pub fn unanswered(&self) -> u64 {
        self.sent - self.ok - self.superseded - self.other
    }
}

impl Flood {
    /// Runs it, reading every answer.
    ///
    /// # Errors
    /// When the stream cannot be opened or breaks.
    pub async fn run(self) -> Result<FloodResult, BenchError> {
        let (sent, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let frames = {
            let (sent, stop, pictures) = (Arc::clone(&sent), Arc::clone(&stop), self.pictures);
            std::iter::from_fn(move || {
                let more = !stop.load(Relaxed);
                more.then(|| request(sent.fetch_add(1, Relaxed), &pictures, 0))
            })
        };
        let start = clock::now();
        let (stop_at, give_up) = (start + self.length, start + self.length + DRAIN);
        let channel = super::connect(self.addr).await?;
        let mut answers = open(channel, "flood", tokio_stream::iter(frames)).await?;
        let mut result = FloodResult::default();
        while let Ok(answer) = timeout_at(give_up.into(), answers.message()).await {
            let now = clock::now();
            if now >= stop_at {
                stop.store(true, Relaxed);
            }
            let Some(answer) = answer.map_err(broken)? else { break };
            result.span = now.saturating_duration_since(start);
            *match answer.outcome() {
                Outcome::Ok => &mut result.ok,
                Outcome::Superseded => &mut result.superseded,
                _ => &mut result.other,
            } += 1;
        }
        result.sent = sent.load(Relaxed);
        Ok(result)
    }
}

/// Cameras with an open stream each that send nothing. They leave when it is dropped.
#[derive(Debug)]
pub struct Silence {
    _streams: Vec<(mpsc::Sender<DetectRequest>, Streaming<DetectResponse>)>,
}

impl Silence {
    /// Connects them, each over its own connection.
    ///
    /// # Errors
    /// When a stream cannot be opened.
    pub async fn connect(addr: SocketAddr, cameras: u32) -> Result<Self, BenchError> {
        let mut streams = Vec::new();
        for (camera, channel) in (0..).zip(channels(addr, cameras, Connections::OneEach).await?) {
            let (sender, queue) = mpsc::channel(1);
            let name = format!("silent-{camera}");
            streams.push((sender, open(channel, &name, ReceiverStream::new(queue)).await?));
        }
        Ok(Self { _streams: streams })
    }
}
