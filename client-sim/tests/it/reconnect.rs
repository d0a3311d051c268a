//! Streams that end early: whether cameras come back, and what the books say about it.

use std::{
    collections::HashSet,
    future,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::runtime::Runtime;
use tonic::Code;

use crate::{
    fake::{Act, Fake, fake},
    run::{OK, check_books, config, run_against},
};
use client_sim::{
    config::{Connections, Reconnect, RunConfig},
    report::schema::Report,
    run,
};
use vedette_proto::camera_ai::Outcome;

/// Longer than any gap here.
const ANY_GAP: Duration = Duration::from_mins(1);

/// 4 cameras of 25 fps for 2 s that come back: long enough for that on a busy machine.
fn coming_back(max_gap: Duration) -> impl FnOnce(&mut RunConfig) {
    move |config| {
        config.scenario.measured = Duration::from_secs(2);
        config.reconnect = Reconnect { enabled: true, max_gap };
    }
}

/// What holds after every camera's first stream ended and its second one lasted.
fn check_back(report: &Report) {
    assert_eq!(report.reconnects.count, 4, "{:?}", report.stream_ends);
    assert!(report.reconnects.gap_max_ms >= report.reconnects.gap_mean_ms);
    assert!(report.reconnects.gap_mean_ms.unwrap() > 0.0);
    assert!(report.stream_ends.is_empty(), "{:?}", report.stream_ends);
    for camera in &report.per_camera {
        assert_eq!(camera.reconnects, 1);
        assert_eq!(camera.tally.sent + camera.tally.not_sent, 50);
        assert!(camera.gap_max_ms.is_some());
    }
}

/// Each camera does `act` at its frame 5, once.
fn once(act: Act) -> Fake {
    let done = Mutex::new(HashSet::new());
    fake(move |camera, k| {
        let first = k >= 5 && done.lock().unwrap().insert(camera.to_owned());
        if first { act.clone() } else { OK }
    })
}

#[tokio::test]
async fn streams_that_break_are_opened_again_and_a_short_gap_is_excused() {
    // How a stream looks whose connection closes is any of the first three; one for each camera.
    let codes = [Code::Cancelled, Code::Unknown, Code::Unavailable, Code::Internal];
    let done = Mutex::new(HashSet::new());
    let server = fake(move |camera, k| {
        let first = k >= 5 && done.lock().unwrap().insert(camera.to_owned());
        let number = usize::from(camera.as_bytes().last().unwrap() - b'1');
        if first { Act::Break(codes[number], "moving house") } else { OK }
    });
    let report = run_against(&server, coming_back(ANY_GAP)).await;
    check_back(&report);
    assert!(report.passed(), "{:?}", report.reasons);
    // The frame that the stream broke at, and whatever else was missed.
    let tally = &report.tally;
    assert!(tally.lost >= 4, "{tally:?}");
    assert_eq!(report.reconnects.excused_frames, tally.lost + tally.not_sent);
    assert!(report.table(false).contains("\ngaps      4 reconnections: mean "));
}

#[tokio::test]
async fn a_stream_that_the_server_ends_without_an_error_is_opened_again() {
    let report = run_against(&once(Act::Close), coming_back(ANY_GAP)).await;
    check_back(&report);
    assert!(report.passed(), "{:?}", report.reasons);
}

#[tokio::test]
async fn a_gap_longer_than_allowed_fails_the_run() {
    let server = once(Act::Break(Code::Unavailable, "moving house"));
    let report = run_against(&server, coming_back(Duration::ZERO)).await;
    check_back(&report);
    assert_eq!(report.reconnects.excused_frames, 0);
    assert!(report.reasons[0].contains(" frames lost (worst: sim-"), "{:?}", report.reasons);
}

#[tokio::test]
async fn a_server_that_shuts_down_owes_answers_only_to_what_it_had_read() {
    // Frames 0 to 4 are answered; it had read 5 or 6 of them.
    for (accepted, lost, passed) in [(5, 0, true), (6, 4, false)] {
        let report = run_against(&once(Act::ShutDown(accepted)), coming_back(ANY_GAP)).await;
        check_back(&report);
        assert_eq!((report.tally.lost, report.passed()), (lost, passed), "{:?}", report.reasons);
        let tally = &report.tally;
        assert!(tally.lost + tally.unaccepted >= 4, "{tally:?}");
        let excused = tally.unaccepted + tally.not_sent;
        assert_eq!(report.reconnects.excused_frames, excused);
    }
}

#[tokio::test]
async fn some_refusals_are_for_good() {
    for code in [Code::PermissionDenied, Code::Unauthenticated, Code::InvalidArgument] {
        let report = run_against(&once(Act::Break(code, "no")), coming_back(ANY_GAP)).await;
        assert_eq!((report.reconnects.count, report.stream_ends[0].streams), (0, 4), "{code:?}");
        assert!(!report.passed());
    }
}

#[tokio::test]
async fn nobody_comes_back_when_that_is_switched_off() {
    let server = once(Act::Break(Code::Unavailable, "moving house"));
    let report = run_against(&server, |_| ()).await;
    assert_eq!((report.reconnects.count, report.stream_ends[0].streams), (0, 4));
    assert!(server.peers.lock().unwrap().values().all(|streams| streams.len() == 1));
}

#[tokio::test]
async fn a_server_that_always_breaks_fails_whatever_gap_is_allowed() {
    let server = fake(|_, _| Act::Break(Code::Unavailable, "never"));
    let report = run_against(&server, |config| {
        coming_back(ANY_GAP)(config);
        config.scenario.measured = Duration::from_secs(1);
    })
    .await;
    assert_eq!((report.tally.ok, report.reconnects.count), (0, 0));
    assert!(!report.passed());
    let line = report.reasons.join("; ");
    assert!(line.contains("lost") && line.contains("no frame was answered OK"), "{line}");
    let attempts = server.peers.lock().unwrap().values().map(Vec::len).sum::<usize>();
    assert!(attempts > 4, "{attempts}");
}

/// A server in a runtime of its own, so that its end closes its connections as a process' end does.
pub(crate) struct Process(Runtime);

impl Process {
    pub(crate) fn start(server: &Fake, addr: Option<SocketAddr>) -> (Self, SocketAddr) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let server = server.clone();
        let started = runtime.spawn(async move {
            match addr {
                Some(addr) => {
                    server.start_again(addr).await;
                    addr
                }
                None => server.start().await,
            }
        });
        let addr = std::thread::scope(|scope| {
            scope.spawn(|| runtime.block_on(started).unwrap()).join().unwrap()
        });
        (Self(runtime), addr)
    }

    pub(crate) fn end(self) {
        self.0.shutdown_background();
    }
}

#[tokio::test]
async fn a_server_that_goes_away_and_returns_gets_its_cameras_back() {
    check_outage(Connections::PerCamera).await;
}

#[tokio::test]
async fn a_connection_that_all_cameras_share_is_opened_again_too() {
    check_outage(Connections::Shared(1)).await;
}

async fn check_outage(connections: Connections) {
    let server = fake(|_, _| OK);
    let (process, addr) = Process::start(&server, None);
    let mut config = config(addr);
    coming_back(ANY_GAP)(&mut config);
    // Pauses have grown to 0.8 s when the server is back.
    config.scenario.measured = Duration::from_secs(4);
    config.connections = connections;
    let frames = || server.seen.lock().unwrap().values().map(Vec::len).sum::<usize>();
    let outage = async {
        while frames() < 40 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        process.end();
        tokio::time::sleep(Duration::from_millis(300)).await;
        Process::start(&server, Some(addr)).0
    };
    let (report, process) = tokio::join!(run::run(&config, future::pending()), outage);
    process.end();
    let report = report.unwrap();
    check_books(&report);
    assert!(report.passed(), "{:?}", report.reasons);
    assert_eq!(report.reconnects.count, 4);
    assert!(report.reconnects.excused_frames > 0);
    for camera in &report.per_camera {
        assert_eq!(camera.tally.sent + camera.tally.not_sent, 100);
    }
}

#[tokio::test]
async fn what_is_measured_goes_on_after_a_gap() {
    let answers = Arc::new(Mutex::new(0));
    let counting = answers.clone();
    let server = fake(move |_, k| {
        let mut answers = counting.lock().unwrap();
        *answers += 1;
        match *answers {
            10 => Act::Break(Code::Unavailable, "moving house"),
            _ if k == 49 => Act::Answer(Outcome::Expired),
            _ => OK,
        }
    });
    let report = run_against(&server, |config| {
        coming_back(ANY_GAP)(config);
        config.scenario.groups[0].cameras = 1;
    })
    .await;
    assert_eq!((report.tally.expired, report.reconnects.count), (1, 1));
    let timeline = &report.timeline;
    let missed: u64 = timeline.not_ok.iter().chain(&timeline.unanswered).sum();
    assert_eq!(timeline.ok.iter().sum::<u64>(), report.tally.ok);
    assert_eq!(missed, 50 - report.tally.ok);
    // Each frame was sent once, whichever stream it went on.
    let seen = server.seen.lock().unwrap();
    assert!(seen["sim-0001"].windows(2).all(|pair| pair[0].frame_id < pair[1].frame_id));
}
