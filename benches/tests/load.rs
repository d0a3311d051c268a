//! The clients against a real server in this process, with a busy loop for a network. No test asserts
//! how long something took.

use std::{net::SocketAddr, path::Path, time::Duration};

use client_sim::{
    proxy::{Line, Proxy},
    source::PictureSet,
};
use tokio::sync::oneshot;
use vedette_bench::{
    load::{ClosedLoop, Connections, Flood, OpenLoop, Silence},
    pictures::Source,
};
use vedette_proto::camera_ai::Outcome;
use vedette_server::{
    serve,
    settings::{BackendKind, Settings},
};

const SECOND: Duration = Duration::from_secs(1);

struct TestServer {
    addr: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<(u64, u64)>,
}

impl TestServer {
    async fn start(spin_ms: f64) -> Self {
        let settings = Settings {
            addr: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            admin_addr: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            backend: Some(BackendKind::Spin),
            spin_ms: Some(spin_ms),
            workers: Some(2),
            budget_ms: Some(60_000),
            ..Settings::default()
        };
        let running = serve::start(settings.check().expect("valid")).await.expect("starts");
        let (addr, metrics) = (running.addr, running.metrics.clone());
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(async move {
            let until = async {
                let _ = stopped.await;
            };
            running.run_until(until).await.expect("stops");
            metrics.frame_accounts()
        });
        Self { addr, stop, ended }
    }

    /// Stops it. Returns the frames it has received.
    async fn stop(self) -> u64 {
        let _ = self.stop.send(());
        let (received, ended) = self.ended.await.expect("no panic");
        assert_eq!(received, ended, "every frame had an outcome");
        received
    }
}

fn pictures() -> PictureSet {
    Source { folder: None, quick: true }.load((64, 48)).expect("draws")
}

#[tokio::test]
async fn a_closed_loop_counts_its_answers() {
    let server = TestServer::start(0.1).await;
    for connections in [Connections::OneEach, Connections::OneForAll] {
        let plan = ClosedLoop {
            addr: server.addr,
            streams: 3,
            connections,
            pictures: pictures(),
            warmup: SECOND / 10,
            length: SECOND / 2,
        };
        let mut marks = 0;
        let result = plan.run_marked(|| marks += 1).await.expect("runs");
        assert!(result.ok > 0 && result.other == 0, "{result:?}");
        assert!(result.fps > 0.0 && result.span >= SECOND / 2);
        assert_eq!(marks, 2);
    }
    assert!(server.stop().await > 0);
}

#[tokio::test]
async fn a_closed_loop_says_when_the_server_is_not_there() {
    let plan = ClosedLoop {
        addr: SocketAddr::from(([127, 0, 0, 1], 1)),
        streams: 1,
        connections: Connections::OneEach,
        pictures: pictures(),
        warmup: Duration::ZERO,
        length: SECOND,
    };
    let error = plan.run().await.expect_err("nobody there").to_string();
    assert!(error.starts_with("cannot connect to the server"), "{error}");
}

#[tokio::test]
async fn an_open_loop_records_every_frame_between_warm_up_and_cooldown() {
    let server = TestServer::start(0.1).await;
    let plan = OpenLoop {
        addr: server.addr,
        cameras: 4,
        fps: 10.0,
        connections: Connections::OneForAll,
        pictures: pictures(),
        warmup: SECOND / 5,
        length: SECOND / 2,
        cooldown: SECOND / 5,
    };
    let result = plan.run().await.expect("runs");
    assert_eq!(result.due, 20);
    assert_eq!(result.answers.len(), 20);
    let per_camera = |camera| result.answers.iter().filter(|a| a.camera == camera).count();
    assert_eq!([0, 1, 2, 3].map(per_camera), [5; 4]);
    assert!(result.answers.iter().all(|a| a.latency_ms > 0.0 && a.due < SECOND / 2));
    assert_eq!(result.count(Outcome::Ok) + result.count(Outcome::Superseded), 20);
    assert_eq!(result.unanswered, 0);
    assert_eq!(server.stop().await, 36, "what does not count went out too");
}

#[tokio::test]
async fn a_flood_is_superseded_and_accounted_for() {
    let server = TestServer::start(20.0).await;
    let flood = Flood { addr: server.addr, pictures: pictures(), length: SECOND / 2 };
    let result = flood.run().await.expect("runs");
    assert!(result.ok > 0 && result.superseded > result.ok, "{result:?}");
    assert_eq!((result.other, result.unanswered()), (0, 0), "{result:?}");
    assert_eq!(server.stop().await, result.sent);
}

#[tokio::test]
async fn silence_holds_its_streams_open() {
    let server = TestServer::start(0.1).await;
    let silence = Silence::connect(server.addr, 5).await.expect("connects");
    drop(silence);
    assert_eq!(server.stop().await, 0);
}

#[tokio::test]
async fn a_server_behind_a_long_line_answers_everything() {
    let server = TestServer::start(0.1).await;
    let proxy = Proxy::start(server.addr, Line::with_rtt(SECOND / 50)).expect("starts");
    let plan = OpenLoop {
        addr: proxy.addr,
        cameras: 2,
        fps: 10.0,
        connections: Connections::OneForAll,
        pictures: pictures(),
        warmup: Duration::ZERO,
        length: SECOND / 2,
        cooldown: Duration::ZERO,
    };
    let result = plan.run().await.expect("runs");
    assert_eq!(result.count(Outcome::Ok), 10);
    assert!(result.ok_ms().iter().all(|&ms| ms >= 20.0), "the round trip counts");
    drop(proxy);
    server.stop().await;
}

/// The programs themselves, where they are built: a bench ends with its table, its JSON and code 0.
#[test]
fn a_smoke_run_of_the_program() {
    let bench = Path::new(env!("CARGO_BIN_EXE_vedette-bench"));
    let server = bench.with_file_name("vedette-server");
    if !server.is_file() {
        eprintln!("skipped: {} is not built", server.display());
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let output = std::process::Command::new(bench)
        .args(["idle", "--quick", "--backend", "spin", "--out-dir"])
        .arg(folder.path())
        .output()
        .expect("starts");
    let (said, failed) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{failed}");
    assert!(said.contains("spin"), "{said}");
    let stored = std::fs::read_to_string(folder.path().join("quick/idle.json")).expect("stored");
    assert!(stored.contains("\"bench\": \"idle\""), "{stored}");
}
