//! A server of the contract that behaves as a test tells it to.

use std::{
    collections::HashMap,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{net::TcpListener, sync::mpsc};
use tokio_stream::{
    Stream, StreamExt as _,
    wrappers::{ReceiverStream, TcpListenerStream},
};
use tonic::{
    Request, Response, Status, Streaming,
    metadata::MetadataValue,
    transport::{Server, ServerTlsConfig},
};
use vedette_proto::{
    ACCEPTED_FRAMES_KEY, CAMERA_ID_KEY,
    camera_ai::{
        BoundingBox, DetectRequest, DetectResponse, Object, Outcome, ServerInfo, ServerInfoRequest,
        StageTimes,
        object_detection_server::{ObjectDetection, ObjectDetectionServer},
    },
};

/// Answers in flight from the fake server to one client; plenty for these tests.
const REPLIES: usize = 64;

/// What it says of a stream that was quiet for too long, as proxies do.
pub(crate) const IDLE: &str = "stream idle timeout";

/// What the server does with a frame.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Answers at once with this outcome.
    Answer(Outcome),
    /// Answers twice.
    AnswerTwice,
    /// Answers to another frame.
    AnswerAs(u64),
    /// Says nothing.
    Drop,
    /// Answers OK after this time; the frames behind it wait.
    Stall(Duration),
    /// Ends the stream with this status code and message.
    Break(tonic::Code, &'static str),
    /// Ends the stream as a server that shuts down does, having read this many frames.
    ShutDown(u64),
    /// Ends the stream in order with these words; all frames before this one were read.
    EndInOrder(&'static str),
    /// Ends the stream without an error.
    Close,
}

/// Decides by camera name and frame.
type Script = Arc<dyn Fn(&str, u64) -> Act + Send + Sync>;

/// The fake server and what it has seen.
#[derive(Clone)]
pub(crate) struct Fake {
    script: Script,
    knows_info: bool,
    /// The token that it wants, if any.
    wants: Option<&'static str>,
    /// Whether it describes itself without one.
    open_info: bool,
    /// Whether it answers heartbeats as such, and not as frames.
    knows_heartbeats: bool,
    /// It ends a stream on which no message came for so long.
    idle_limit: Option<Duration>,
    /// What calls and streams gave as authorization, in order.
    pub(crate) tokens: Arc<Mutex<Vec<String>>>,
    /// Pictures received, by camera.
    pub(crate) seen: Arc<Mutex<HashMap<String, Vec<DetectRequest>>>>,
    /// Connections accepted.
    pub(crate) accepted: Arc<AtomicUsize>,
    /// The client's end of the connection of each stream, by camera.
    pub(crate) peers: Arc<Mutex<HashMap<String, Vec<SocketAddr>>>>,
}

type Answers = Pin<Box<dyn Stream<Item = Result<DetectResponse, Status>> + Send>>;

#[tonic::async_trait]
impl ObjectDetection for Fake {
    type DetectStreamStream = Answers;

    async fn detect_stream(
        &self,
        request: Request<Streaming<DetectRequest>>,
    ) -> Result<Response<Answers>, Status> {
        self.admit(&request, false)?;
        let camera = request
            .metadata()
            .get(CAMERA_ID_KEY)
            .and_then(|id| id.to_str().ok())
            .unwrap_or("unnamed")
            .to_owned();
        let peer = request.remote_addr().unwrap();
        self.peers.lock().unwrap().entry(camera.clone()).or_default().push(peer);
        let (replies, answers) = mpsc::channel(REPLIES);
        tokio::spawn(serve(self.clone(), camera, request.into_inner(), replies));
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn detect(
        &self,
        request: Request<DetectRequest>,
    ) -> Result<Response<DetectResponse>, Status> {
        Ok(Response::new(answer(request.get_ref().frame_id, Outcome::Ok)))
    }

    async fn get_server_info(
        &self,
        request: Request<ServerInfoRequest>,
    ) -> Result<Response<ServerInfo>, Status> {
        self.admit(&request, self.open_info)?;
        if !self.knows_info {
            return Err(Status::unimplemented("an older server"));
        }
        Ok(Response::new(ServerInfo {
            version: "9.9.9".into(),
            model: "fake".into(),
            workers: 3,
            ..ServerInfo::default()
        }))
    }
}

async fn serve(
    fake: Fake,
    camera: String,
    mut frames: Streaming<DetectRequest>,
    replies: mpsc::Sender<Result<DetectResponse, Status>>,
) {
    // Whoever has no limit waits for an hour, which is longer than any test.
    let mut taken = 0;
    let patience = fake.idle_limit.unwrap_or(Duration::from_hours(1));
    loop {
        let Ok(message) = tokio::time::timeout(patience, frames.message()).await else {
            let _ = replies.send(Err(Status::unavailable(IDLE))).await;
            return;
        };
        let Ok(Some(frame)) = message else { return };
        let (id, heartbeat) = (frame.frame_id, frame.heartbeat);
        let read = taken;
        taken += 1;
        fake.seen.lock().unwrap().entry(camera.clone()).or_default().push(frame);
        if heartbeat && fake.knows_heartbeats {
            if replies.send(Ok(answer(id, Outcome::Heartbeat))).await.is_err() {
                return;
            }
            continue;
        }
        let mut send = vec![Ok(answer(id, Outcome::Ok))];
        match (fake.script)(&camera, id) {
            Act::Answer(outcome) => send = vec![Ok(answer(id, outcome))],
            Act::AnswerTwice => send.push(Ok(answer(id, Outcome::Ok))),
            Act::AnswerAs(other) => send = vec![Ok(answer(other, Outcome::Ok))],
            Act::Drop => send.clear(),
            Act::Stall(time) => tokio::time::sleep(time).await,
            Act::Break(code, message) => send = vec![Err(Status::new(code, message))],
            Act::ShutDown(accepted) => send = vec![Err(in_order("shutting down", accepted))],
            Act::EndInOrder(words) => send = vec![Err(in_order(words, read))],
            Act::Close => return,
        }
        for answer in send {
            let last = answer.is_err();
            if replies.send(answer).await.is_err() || last {
                return;
            }
        }
    }
}

/// The end of a stream of which this many frames were read.
fn in_order(words: &str, accepted: u64) -> Status {
    let mut status = Status::unavailable(words);
    status.metadata_mut().insert(ACCEPTED_FRAMES_KEY, MetadataValue::from(accepted));
    status
}

fn answer(frame_id: u64, outcome: Outcome) -> DetectResponse {
    let ok = outcome == Outcome::Ok;
    DetectResponse {
        frame_id,
        outcome: outcome as i32,
        detail: if ok { String::new() } else { format!("{}: told so", outcome.as_str_name()) },
        objects: if ok { vec![object()] } else { Vec::new() },
        image_width: if ok { 640 } else { 0 },
        image_height: if ok { 480 } else { 0 },
        times: Some(StageTimes { queue_us: 100, inference_us: 2000, ..StageTimes::default() }),
        model: "fake".into(),
    }
}

fn object() -> Object {
    Object {
        label: "stop sign".into(),
        confidence: 0.91,
        bbox: Some(BoundingBox { x: 298, y: 88, width: 196, height: 203 }),
        class_id: 11,
    }
}

/// A fake server that follows `script`.
pub(crate) fn fake(script: impl Fn(&str, u64) -> Act + Send + Sync + 'static) -> Fake {
    Fake {
        script: Arc::new(script),
        knows_info: true,
        wants: None,
        open_info: false,
        knows_heartbeats: true,
        idle_limit: None,
        tokens: Arc::default(),
        seen: Arc::default(),
        accepted: Arc::default(),
        peers: Arc::default(),
    }
}

impl Fake {
    /// The same server, but of a version that does not know `GetServerInfo`.
    pub(crate) fn without_info(mut self) -> Self {
        self.knows_info = false;
        self
    }

    /// The same server, but every call and stream must bring this token.
    pub(crate) fn wanting(mut self, token: &'static str) -> Self {
        self.wants = Some(token);
        self
    }

    /// The same server, but it describes itself without a token.
    pub(crate) fn with_open_info(mut self) -> Self {
        self.open_info = true;
        self
    }

    /// The same server, but of a version that takes heartbeats for frames.
    pub(crate) fn without_heartbeats(mut self) -> Self {
        self.knows_heartbeats = false;
        self
    }

    /// The same server behind a proxy that ends streams on which no message came for so long.
    pub(crate) fn cutting_after(mut self, idle: Duration) -> Self {
        self.idle_limit = Some(idle);
        self
    }

    fn admit<T>(&self, request: &Request<T>, open: bool) -> Result<(), Status> {
        let given = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let given = given.unwrap_or_default().to_owned();
        let wanted = self.wants.map(|token| format!("Bearer {token}"));
        self.tokens.lock().unwrap().push(given.clone());
        if open || wanted.is_none_or(|wanted| given == wanted) {
            return Ok(());
        }
        Err(Status::unauthenticated("a token, please"))
    }

    /// Serves on a free port of the current runtime until that ends.
    pub(crate) async fn start(&self) -> SocketAddr {
        self.start_on(Server::builder()).await
    }

    /// The same, encrypted.
    pub(crate) async fn start_tls(&self, tls: ServerTlsConfig) -> SocketAddr {
        self.start_on(Server::builder().tls_config(tls).unwrap()).await
    }

    /// Serves, and asks the clients of connections that are older than `age` to leave them.
    pub(crate) async fn start_ageing(&self, age: Duration) -> SocketAddr {
        self.start_on(Server::builder().max_connection_age(age)).await
    }

    /// Serves on `addr`, which a server before it had.
    pub(crate) async fn start_again(&self, addr: SocketAddr) {
        self.listen(Server::builder(), addr).await;
    }

    async fn start_on(&self, server: Server) -> SocketAddr {
        self.listen(server, "127.0.0.1:0".parse().unwrap()).await
    }

    async fn listen(&self, mut server: Server, addr: SocketAddr) -> SocketAddr {
        // A port that was in use may be a connection's for a moment.
        let listener = loop {
            match TcpListener::bind(addr).await {
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                bound => break bound.unwrap(),
            }
        };
        let addr = listener.local_addr().unwrap();
        let service = ObjectDetectionServer::new(self.clone());
        let accepted = self.accepted.clone();
        let incoming = TcpListenerStream::new(listener).map(move |connection| {
            accepted.fetch_add(1, Relaxed);
            connection
        });
        tokio::spawn(server.add_service(service).serve_with_incoming(incoming));
        addr
    }
}
