//! Connections: what the settings put on the wire, probes, and how an aged connection ends.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tonic::{Code, Status, transport::Channel};
use vedette_proto::{
    ACCEPTED_FRAMES_KEY,
    camera_ai::{Outcome, object_detection_client::ObjectDetectionClient},
};
use vedette_server::settings::Settings;

use crate::common::{Camera, PATIENCE, TestServer, connect_narrow, small_jpeg, spin};

/// An HTTP/2 client that shows each frame of the server as it stands on the wire (RFC 9113, section 4.1)
/// and answers none by itself.
pub(crate) struct Wire(pub(crate) TcpStream);

/// Type, flags, stream and payload of a frame.
pub(crate) struct WireFrame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

// Frame types and a flag (RFC 9113, section 6), and identifiers of settings (section 6.5.2).
const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;

/// Receive window that every connection begins with (RFC 9113, section 6.9.2).
const FIRST_WINDOW: u32 = 65_535;

impl Wire {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        let mut tcp = TcpStream::connect(addr).await.expect("connects");
        // The preface (section 3.4) and an empty SETTINGS frame.
        tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sends");
        tcp.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await.expect("sends");
        Self(tcp)
    }

    /// The next frame; `None` once the server has closed the connection.
    pub(crate) async fn next(&mut self) -> Option<WireFrame> {
        let reading = async {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let [l2, l1, l0, kind, flags, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, l2, l1, l0]) as usize];
            self.0.read_exact(&mut payload).await.ok()?;
            let stream = u32::from_be_bytes([stream[0], stream[1], stream[2], stream[3]]);
            Some(WireFrame { kind, flags, stream, payload })
        };
        timeout(PATIENCE, reading).await.expect("a frame or the end in time")
    }

    /// The next frame of a kind that is no acknowledgement; others are passed over.
    async fn expect(&mut self, kind: u8) -> WireFrame {
        loop {
            let frame = self.next().await.expect("the connection is open");
            if frame.kind == kind && (frame.flags & ACK == 0 || kind == WINDOW_UPDATE) {
                return frame;
            }
        }
    }
}

/// A setting of a SETTINGS frame's payload.
fn setting(payload: &[u8], wanted: u16) -> Option<u32> {
    payload.chunks_exact(6).find_map(|entry| {
        let id = u16::from_be_bytes([entry[0], entry[1]]);
        let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
        (id == wanted).then_some(value)
    })
}

/// Streams, stream window, frame size and connection window, as the server says them.
async fn announced(settings: Settings) -> [u32; 4] {
    let server = TestServer::start(settings).await;
    let mut wire = Wire::connect(server.addr).await;
    let said = wire.expect(SETTINGS).await.payload;
    let update = wire.expect(WINDOW_UPDATE).await;
    assert_eq!(update.stream, 0, "the connection's window");
    let more = u32::from_be_bytes(update.payload.try_into().expect("four bytes"));
    drop(wire);
    server.camera("x").await.detect(1, &small_jpeg()).await;
    server.stop().await;
    let setting = |id| setting(&said, id).expect("the server says it");
    [
        setting(MAX_CONCURRENT_STREAMS),
        setting(INITIAL_WINDOW_SIZE),
        setting(MAX_FRAME_SIZE),
        FIRST_WINDOW + more,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn flow_control_is_announced_as_set() {
    assert_eq!(announced(spin(0.0)).await, [1024, 1 << 20, 1 << 16, 1 << 30]);
    let settings = Settings {
        h2_max_streams: Some(10),
        h2_stream_window_bytes: Some(100_000),
        h2_frame_bytes: Some(16_384),
        ..spin(0.0)
    };
    assert_eq!(announced(settings.clone()).await, [10, 100_000, 16_384, 1_000_000]);
    let settings = Settings { h2_connection_window_bytes: Some(200_000), ..settings };
    assert_eq!(announced(settings).await, [10, 100_000, 16_384, 200_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_peer_is_probed_and_let_go() {
    let server = TestServer::start(Settings {
        keepalive_seconds: Some(1),
        keepalive_timeout_seconds: Some(4),
        ..spin(0.0)
    })
    .await;
    let mut wire = Wire::connect(server.addr).await;
    let probe = wire.expect(PING).await;
    assert_eq!((probe.stream, probe.payload.len()), (0, 8));
    // A gRPC client's library answers by itself; this one's answer never comes.
    let mut camera = server.camera("quiet").await;
    let closed = async { while wire.next().await.is_some() {} };
    tokio::join!(closed, tokio::time::sleep(Duration::from_secs(8)));
    assert_eq!(camera.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.stop().await;
}

fn aged(seconds: u64, jitter: f64, grace_seconds: u64) -> Settings {
    Settings {
        max_connection_age_seconds: Some(seconds),
        connection_age_jitter: Some(jitter),
        connection_grace_seconds: Some(grace_seconds),
        ..spin(1.0)
    }
}

fn assert_aged(status: &Status, accepted: usize) {
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("max-connection-age-seconds"), "{status}");
    assert!(status.message().contains("new stream"), "{status}");
    let said = status.metadata().get(ACCEPTED_FRAMES_KEY).expect("the number accepted");
    assert_eq!(said.to_str().expect("ASCII"), accepted.to_string());
}

/// Opens a stream as a camera does that comes back: the first try may meet the old connection while it
/// closes, which the client's library reports as CANCELLED or UNAVAILABLE.
async fn open_again(client: &mut ObjectDetectionClient<Channel>, name: &str) -> Camera {
    let trying = async {
        loop {
            match Camera::open(client, name).await {
                Ok(camera) => return camera,
                Err(status) => {
                    let retry = matches!(status.code(), Code::Cancelled | Code::Unavailable);
                    assert!(retry, "{status}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    };
    timeout(PATIENCE, trying).await.expect("the server is there")
}

/// Cameras that send all the time and come back whenever their stream is ended: each accepted frame is
/// answered, and the library's channel takes them to a new connection.
#[tokio::test(flavor = "multi_thread")]
async fn an_aged_stream_ends_in_order_and_its_camera_returns() {
    const CAMERAS: usize = 5;
    const STREAMS: usize = 3;
    let server = TestServer::start(aged(1, 0.5, 30)).await;
    // As large as a camera's: what is still on its way when a stream ends must not cost answers.
    let mut picture = small_jpeg();
    picture.resize(70_000, 0);
    let mut runs = Vec::new();
    for number in 0..CAMERAS {
        let (mut client, picture) = (server.client().await, picture.clone());
        runs.push(tokio::spawn(async move {
            for _ in 0..STREAMS {
                let name = format!("cam-{number}");
                let mut camera = open_again(&mut client, &name).await;
                let (frames, picture) = (camera.sender(), picture.clone());
                let sending = tokio::spawn(async move {
                    let mut tick = tokio::time::interval(Duration::from_millis(20));
                    for id in 0.. {
                        tick.tick().await;
                        if frames.send(crate::common::encoded(id, &picture)).await.is_err() {
                            return;
                        }
                    }
                });
                let (answers, status) = camera.rest_and_status().await;
                sending.abort();
                assert!(answers.iter().all(|answer| {
                    matches!(answer.outcome(), Outcome::Ok | Outcome::Superseded)
                }));
                assert_aged(&status.expect("a status"), answers.len());
            }
        }));
    }
    for run in runs {
        run.await.expect("no panic");
    }
    let streams = (CAMERAS * STREAMS) as f64;
    server.wait_for("vedette_streams", 0.0).await;
    server.wait_for("vedette_streams_aged_total", streams).await;
    assert!(server.metric("vedette_connections_cut_total") < 0.5, "all left in order");
    assert!(server.metric("vedette_frames_total{outcome=\"client_gone\"}") < 0.5);
    server.stop().await;
}

/// Two streams on the same connection: the golden ratio's first multiples put the first one's end at
/// 1.6 and the second one's at 1.2 times the age.
#[tokio::test(flavor = "multi_thread")]
async fn jitter_ends_streams_opened_together_one_by_one() {
    let server = TestServer::start(aged(5, 1.0, 30)).await;
    let mut client = server.client().await;
    let mut first = Camera::open(&mut client, "first").await.expect("accepted");
    let mut second = Camera::open(&mut client, "second").await.expect("accepted");
    for camera in [&mut first, &mut second] {
        camera.detect(1, &small_jpeg()).await;
    }
    tokio::select! {
        biased;
        _ = first.next() => panic!("the second one's end comes first"),
        ended = second.next() => assert_aged(&ended.expect_err("a status"), 1),
    }
    assert_aged(&first.next().await.expect_err("a status"), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_reads_nothing_is_cut_and_its_place_is_free() {
    let server = TestServer::start(Settings { max_cameras: Some(1), ..aged(1, 0.0, 1) }).await;
    let deaf = Camera::open(&mut connect_narrow(server.addr).await, "deaf").await;
    let deaf = deaf.expect("accepted");
    let (frames, picture) = (deaf.sender(), small_jpeg());
    let feeding = tokio::spawn(async move {
        for id in 0.. {
            if frames.send(crate::common::encoded(id, &picture)).await.is_err() {
                return;
            }
        }
    });
    server.wait_for("vedette_connections_cut_total", 1.0).await;
    server.wait_for("vedette_streams", 0.0).await;
    assert!(server.metric("vedette_frames_received_total") > 32.0, "it sent more than it read");
    let (received, ended) = server.frames();
    assert_eq!(received, ended);
    assert_eq!(server.camera("next").await.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    feeding.await.expect("no panic");
    drop(deaf);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_told_to_leave_and_then_cut() {
    let server = TestServer::start(aged(1, 0.0, 1)).await;
    let mut wire = Wire::connect(server.addr).await;
    let goaway = wire.expect(GOAWAY).await;
    // NO_ERROR, after the last stream's number.
    assert_eq!(goaway.payload[4..8], [0; 4]);
    while wire.next().await.is_some() {}
    server.wait_for("vedette_connections_cut_total", 1.0).await;
    server.camera("x").await.detect(1, &small_jpeg()).await;
    server.stop().await;
}
