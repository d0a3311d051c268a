//! A server of the contract that answers every frame at once: what is slow against it is the client.

use std::{io, net::SocketAddr, pin::Pin, thread};

use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    sync::oneshot,
};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Server, server::TcpIncoming},
};
use vedette_proto::camera_ai::{
    DetectRequest, DetectResponse, Outcome, ServerInfo, ServerInfoRequest,
    object_detection_server::{ObjectDetection, ObjectDetectionServer},
};

use crate::meter::NULL_SERVER_THREAD;

/// Bytes of a stream that may be under way unread: more pictures than a camera sends in a second, so
/// that flow control never holds one up.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;

/// The same of a connection, which may carry every camera.
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;

/// Model that it names in its description of itself.
const MODEL: &str = "null";

/// A running null server, on threads of its own named [`NULL_SERVER_THREAD`]. It ends with its handle,
/// and so do its connections.
#[derive(Debug)]
pub struct NullServer {
    /// Where it listens, on the loopback interface.
    pub addr: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl NullServer {
    /// Starts it on a free port, with `threads` threads, at least 1.
    ///
    /// # Errors
    /// When there is no port or no thread to be had.
    pub fn start(threads: usize) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let mut builder =
            if threads <= 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
        let builder = builder.worker_threads(threads.max(1)).thread_name(NULL_SERVER_THREAD);
        let runtime = builder.enable_all().build()?;
        // Nothing is ever sent: the channel's end is the signal.
        let (stop, stopped) = oneshot::channel();
        thread::Builder::new()
            .name(NULL_SERVER_THREAD.to_owned())
            .spawn(move || serve(&runtime, listener, stopped))?;
        Ok(Self { addr, _stop: stop })
    }
}

fn serve(runtime: &Runtime, listener: std::net::TcpListener, stopped: oneshot::Receiver<()>) {
    runtime.block_on(async {
        // Whoever connects sees a server that is not there, which says enough.
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        let serving = Server::builder()
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            // The usual 200 would make cameras that share a connection wait for each other.
            .max_concurrent_streams(u32::MAX)
            .add_service(ObjectDetectionServer::new(Null).max_decoding_message_size(usize::MAX))
            .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)));
        tokio::select! {
            _ = serving => {}
            _ = stopped => {}
        }
    });
}

/// The service.
#[derive(Debug)]
struct Null;

type Answers = Pin<Box<dyn Stream<Item = Result<DetectResponse, Status>> + Send>>;

#[tonic::async_trait]
impl ObjectDetection for Null {
    type DetectStreamStream = Answers;

    async fn detect_stream(
        &self,
        request: Request<Streaming<DetectRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let answers = request.into_inner().map(|frame| frame.map(|frame| answer(&frame)));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn detect(
        &self,
        request: Request<DetectRequest>,
    ) -> Result<Response<DetectResponse>, Status> {
        Ok(Response::new(answer(request.get_ref())))
    }

    async fn get_server_info(
        &self,
        _: Request<ServerInfoRequest>,
    ) -> Result<Response<ServerInfo>, Status> {
        Ok(Response::new(ServerInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model: MODEL.to_owned(),
            ..ServerInfo::default()
        }))
    }
}

fn answer(frame: &DetectRequest) -> DetectResponse {
    DetectResponse {
        frame_id: frame.frame_id,
        outcome: if frame.heartbeat { Outcome::Heartbeat } else { Outcome::Ok } as i32,
        ..DetectResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpStream, time::Duration};

    #[test]
    fn it_ends_with_its_handle() {
        for threads in [1, 3] {
            let server = NullServer::start(threads).unwrap();
            let addr = server.addr;
            TcpStream::connect(addr).unwrap();
            drop(server);
            while TcpStream::connect(addr).is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
