//! What the scenarios share: a server in this process, a client, and the check that no frame is lost.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming, transport::Channel};
use vedette_proto::{
    CAMERA_ID_KEY,
    camera_ai::{
        DetectRequest, DetectResponse, Object, Outcome,
        object_detection_client::ObjectDetectionClient,
    },
};
use vedette_server::{
    config::Config,
    error::ServeError,
    faults::Faults,
    reload::Reloader,
    serve,
    settings::{BackendKind, Settings},
    telemetry::metrics::Metrics,
};

/// Longest a scenario waits for anything; not a performance bound.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Largest message a test client takes or sends.
const MESSAGE_BYTES: usize = 64 << 20;

/// HTTP/2 receive window of a client that takes few answers, in bytes.
const NARROW_WINDOW: u32 = 1024;

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

pub(crate) fn bytes(name: &str) -> Vec<u8> {
    let path = fixture(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All Rust source below a folder, one file after the other.
pub(crate) fn source(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all += &source(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all += &std::fs::read_to_string(&path).expect("reads");
        }
    }
    all
}

/// A file that the set-up fetches.
pub(crate) fn fetched(name: &str) -> PathBuf {
    let path = repository().join("models/cache").join(name);
    assert!(path.exists(), "{} is missing; run `python3 models/setup.py`", path.display());
    path
}

/// Settings for a test's server: free ports, two workers, patience with slow machines.
pub(crate) fn settings() -> Settings {
    Settings {
        addr: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        admin_addr: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        workers: Some(2),
        budget_ms: Some(60_000),
        ..Settings::default()
    }
}

/// Settings with a busy loop for a network.
pub(crate) fn spin(ms: f64) -> Settings {
    Settings { backend: Some(BackendKind::Spin), spin_ms: Some(ms), ..settings() }
}

/// Settings with one of the test detectors, which report coloured squares with known boxes.
pub(crate) fn cells(model: &str) -> Settings {
    Settings {
        model: Some(fixture("models").join(model)),
        runtime_lib: Some(fetched("onnxruntime/libonnxruntime.so")),
        confidence: Some(0.5),
        ..settings()
    }
}

/// A server in this process.
pub(crate) struct TestServer {
    pub(crate) addr: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) reloader: Reloader,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<Result<(), ServeError>>,
}

impl TestServer {
    pub(crate) async fn start(settings: Settings) -> Self {
        Self::start_faulty(settings, Faults::None).await
    }

    /// A server in which something goes wrong on purpose.
    pub(crate) async fn start_faulty(settings: Settings, faults: Faults) -> Self {
        let config = Config { faults, ..settings.check().expect("valid settings") };
        let running = serve::start(config).await.unwrap_or_else(|error| panic!("{error}"));
        let (addr, admin) = (running.addr, running.admin_addr);
        let metrics = Arc::clone(&running.metrics);
        let reloader = running.reloader.clone();
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            running.run_until(stopped).await
        });
        Self { addr, admin, metrics, reloader, stop, ended }
    }

    pub(crate) async fn client(&self) -> ObjectDetectionClient<Channel> {
        connect(self.addr).await
    }

    /// Opens a camera's stream.
    pub(crate) async fn camera(&self, name: &str) -> Camera {
        Camera::open(&mut self.client().await, name).await.expect("the stream is accepted")
    }

    /// Value of a metric's series, written as in the text format without the value.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let text = self.metrics.render();
        text.lines()
            .filter_map(|line| line.rsplit_once(' '))
            .find(|(name, _)| *name == series)
            .unwrap_or_else(|| panic!("no series {series} in\n{text}"))
            .1
            .parse()
            .expect("a number")
    }

    /// Waits until a series has this value.
    pub(crate) async fn wait_for(&self, series: &str, value: f64) {
        let reached = async {
            while (self.metric(series) - value).abs() > f64::EPSILON {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, reached).await.is_ok();
        assert!(in_time, "{series} is {}, not {value}", self.metric(series));
    }

    /// Frames received, and the sum over all outcomes.
    pub(crate) fn frames(&self) -> (u64, u64) {
        self.metrics.frame_accounts()
    }

    /// Waits until the server ends by itself, and says why it did.
    pub(crate) async fn ends(self) -> Result<(), ServeError> {
        let _running = self.stop;
        tokio::time::timeout(PATIENCE, self.ended).await.expect("ends").expect("no panic")
    }

    /// Stops the server, and checks that every frame it received ended in an outcome.
    pub(crate) async fn stop(self) {
        let metrics = Arc::clone(&self.metrics);
        let _ = self.stop.send(());
        let ended = tokio::time::timeout(PATIENCE, self.ended).await.expect("stops");
        ended.expect("no panic").unwrap_or_else(|error| panic!("{error}"));
        let (received, ended) = metrics.frame_accounts();
        assert!(received > 0, "the scenario sent nothing");
        assert_eq!(received, ended, "received = sum of outcomes\n{}", metrics.render());
    }
}

/// Status line and body of a GET.
pub(crate) fn get(addr: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(addr).expect("connects");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sends");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("reads");
    let (head, body) = text.split_once("\r\n\r\n").expect("a response");
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

/// Waits until this holds.
pub(crate) async fn wait_until(mut holds: impl FnMut() -> bool) {
    let reached = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.expect("in time");
}

/// A connection of its own.
pub(crate) async fn channel(addr: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{addr}"))
        .expect("an address")
        .tcp_nodelay(true)
        .connect()
        .await
        .expect("the server listens")
}

pub(crate) async fn connect(addr: SocketAddr) -> ObjectDetectionClient<Channel> {
    ObjectDetectionClient::new(channel(addr).await)
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES)
}

/// A client whose windows take a dozen answers: one that reads none soon holds the server's up.
pub(crate) async fn connect_narrow(addr: SocketAddr) -> ObjectDetectionClient<Channel> {
    let channel = Channel::from_shared(format!("http://{addr}"))
        .expect("an address")
        .initial_stream_window_size(NARROW_WINDOW)
        .connect()
        .await
        .expect("the server listens");
    ObjectDetectionClient::new(channel)
}

/// A client with one open stream.
pub(crate) struct Camera {
    frames: Option<mpsc::Sender<DetectRequest>>,
    answers: Streaming<DetectResponse>,
}

impl Camera {
    pub(crate) async fn open(
        client: &mut ObjectDetectionClient<Channel>,
        name: &str,
    ) -> Result<Self, Status> {
        Self::open_with(client, name, None).await
    }

    /// The same, with a token.
    pub(crate) async fn open_with(
        client: &mut ObjectDetectionClient<Channel>,
        name: &str,
        token: Option<&str>,
    ) -> Result<Self, Status> {
        let (frames, queue) = mpsc::channel(1024);
        let mut request = Request::new(ReceiverStream::new(queue));
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("ASCII");
            request.metadata_mut().insert("authorization", value);
        }
        if !name.is_empty() {
            request.metadata_mut().insert(CAMERA_ID_KEY, name.parse().expect("ASCII"));
        }
        let answers = client.detect_stream(request).await?.into_inner();
        Ok(Self { frames: Some(frames), answers })
    }

    /// The sending half, for a task of its own.
    pub(crate) fn sender(&self) -> mpsc::Sender<DetectRequest> {
        self.frames.clone().expect("not finished")
    }

    pub(crate) async fn send(&self, request: DetectRequest) {
        let frames = self.frames.as_ref().expect("not finished");
        frames.send(request).await.expect("the stream is open");
    }

    pub(crate) async fn send_picture(&self, frame_id: u64, data: &[u8]) {
        self.send(encoded(frame_id, data)).await;
    }

    /// The next answer; `None` when the server has ended the stream in order.
    pub(crate) async fn next(&mut self) -> Result<Option<DetectResponse>, Status> {
        tokio::time::timeout(PATIENCE, self.answers.message()).await.expect("an answer in time")
    }

    pub(crate) async fn answer(&mut self) -> DetectResponse {
        self.next().await.expect("no status").expect("an answer")
    }

    /// Sends a picture and waits for its answer.
    pub(crate) async fn detect(&mut self, frame_id: u64, data: &[u8]) -> DetectResponse {
        self.send_picture(frame_id, data).await;
        let answer = self.answer().await;
        assert_eq!(answer.frame_id, frame_id);
        answer
    }

    /// Says that no more frames come, as a camera that is switched off in order does.
    pub(crate) fn finish(&mut self) {
        self.frames = None;
    }

    /// Answers until the stream ends.
    pub(crate) async fn rest(&mut self) -> Vec<DetectResponse> {
        let mut answers = Vec::new();
        while let Some(answer) = self.next().await.expect("no status") {
            answers.push(answer);
        }
        answers
    }

    /// Answers until the stream ends, and the status it ends with.
    pub(crate) async fn rest_and_status(&mut self) -> (Vec<DetectResponse>, Option<Status>) {
        let mut answers = Vec::new();
        loop {
            match self.next().await {
                Ok(Some(answer)) => answers.push(answer),
                Ok(None) => return (answers, None),
                Err(status) => return (answers, Some(status)),
            }
        }
    }
}

pub(crate) fn encoded(frame_id: u64, data: &[u8]) -> DetectRequest {
    DetectRequest { frame_id, image_data: data.to_vec().into(), ..Default::default() }
}

/// A small picture that decodes.
pub(crate) fn small_jpeg() -> Vec<u8> {
    encode(&image::RgbImage::from_pixel(64, 48, image::Rgb([90; 3])), image::ImageFormat::Jpeg)
}

pub(crate) fn encode(picture: &image::RgbImage, format: image::ImageFormat) -> Vec<u8> {
    let mut out = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut out, format).expect("encodes");
    out.into_inner()
}

/// A label and its box: x, y, width, height.
pub(crate) type Square = (&'static str, [i32; 4]);

/// The squares of `base_640x360.jpg`.
pub(crate) const SQUARES: [Square; 3] =
    [("red", [80, 20, 20, 20]), ("green", [300, 180, 20, 20]), ("blue", [520, 320, 20, 20])];

/// The squares of the same scene at 1920x1080.
pub(crate) const SQUARES_1080P: [Square; 3] =
    [("red", [240, 60, 60, 60]), ("green", [900, 540, 60, 60]), ("blue", [1560, 960, 60, 60])];

/// Checks that exactly these squares were found, each edge within `tolerance` pixels and with a
/// confidence of at least 0.9.
pub(crate) fn assert_squares(answer: &DetectResponse, squares: &[Square], tolerance: i32) {
    assert_eq!(answer.outcome(), Outcome::Ok, "{}", answer.detail);
    let found: Vec<_> = answer.objects.iter().map(|o| (o.label.as_str(), edges(o))).collect();
    assert_eq!(found.len(), squares.len(), "{found:?}");
    for (label, want) in squares {
        let matches = |(name, got): &(&str, [i32; 4])| {
            name == label && got.iter().zip(want).all(|(g, w)| (g - w).abs() <= tolerance)
        };
        assert!(found.iter().any(matches), "no {label} at {want:?} in {found:?}");
    }
    for object in &answer.objects {
        assert!((0.9..=1.0).contains(&object.confidence), "{object:?}");
    }
}

pub(crate) fn edges(object: &Object) -> [i32; 4] {
    let b = object.bbox.as_ref().expect("a box");
    [b.x, b.y, b.width, b.height]
}
