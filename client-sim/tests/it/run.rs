//! Load runs against a server that behaves, and against servers that do not.

use std::{future, net::SocketAddr, time::Duration};

use crate::fake::{Act, Fake, fake};
use client_sim::{
    config::{
        Balancing, Connections, Credentials, PictureSource, Reconnect, RunConfig, Scenario,
        SelfTest, Size, Slo, Target,
    },
    report::schema::Report,
    run,
    schedule::Phases,
};
use vedette_proto::camera_ai::Outcome;

pub(crate) const OK: Act = Act::Answer(Outcome::Ok);

/// 4 cameras of 25 fps for 1 s. The limit on latency is far above what a busy machine can cause:
/// these tests are about counting.
pub(crate) fn config(addr: SocketAddr) -> RunConfig {
    let mut scenario = Scenario::uniform(4, 25.0, Duration::ZERO, Duration::from_secs(1));
    scenario.groups[0].pictures = PictureSource::Drawn(Size { width: 64, height: 48 });
    let addr = addr.to_string().parse().unwrap();
    RunConfig {
        target: Target {
            addr,
            connect: Duration::from_mins(1),
            credentials: Credentials::default(),
        },
        balancing: Balancing::default(),
        scenario,
        connections: Connections::PerCamera,
        reconnect: Reconnect { enabled: false, max_gap: Duration::ZERO },
        drain: Duration::from_secs(20),
        slo: Slo { max: Duration::from_mins(1), percentiles: Vec::new(), min_answered_ratio: 1.0 },
        self_test: SelfTest::Never,
        quiet: true,
        threads: 1,
    }
}

pub(crate) async fn run_against(server: &Fake, change: impl FnOnce(&mut RunConfig)) -> Report {
    let mut config = config(server.start().await);
    change(&mut config);
    let report = run::run(&config, future::pending()).await.unwrap();
    check_books(&report);
    report
}

/// What holds for every report, whatever happened.
pub(crate) fn check_books(report: &Report) {
    let tallies = report.per_camera.iter().flat_map(|camera| [camera.tally, camera.warmup]);
    for tally in tallies.chain([report.tally, report.warmup.tally]) {
        assert_eq!(tally.sent, tally.answered + tally.lost + tally.unaccepted);
        let outcomes: u64 = tally.outcomes().iter().map(|(_, count)| count).sum();
        assert_eq!(tally.answered, outcomes);
    }
    let line = report.table(false).lines().last().unwrap().to_owned();
    assert!(line.starts_with(report.verdict.word()), "{line}");
    assert_eq!(report.passed(), line.starts_with("PASS"));
}

#[tokio::test]
async fn a_good_server_passes() {
    let server = fake(|_, _| OK);
    let report = run_against(&server, |_| ()).await;
    assert!(report.passed(), "{:?}", report.reasons);
    assert_eq!((report.tally.sent, report.tally.ok, report.tally.lost), (100, 100, 0));
    assert_eq!(report.server.as_ref().unwrap().workers, 3);
    assert!((report.stages_mean_us.unwrap().inference - 2000.0).abs() < 1e-9);
    assert!(report.figures.p99_ms.unwrap() <= report.figures.max_ms.unwrap());
    assert!(report.send_lateness_ms.max.is_some());
}

#[tokio::test]
async fn every_start_of_a_fleet_sends_all_frames_and_is_told_in_the_report() {
    // The last camera starts when the first has sent for five periods.
    let ramp = Phases::Ramp { cameras: 2, every: Duration::from_millis(200) };
    for (phases, name, words) in [
        (Phases::Even, "even", "start times spread over 40.0 ms"),
        (Phases::Aligned, "aligned", "all at the same instant"),
        (ramp, "ramp", "starting 2 at a time, 200 ms apart"),
    ] {
        let report = run_against(&fake(|_, _| OK), |config| config.scenario.phases = phases).await;
        assert!(report.passed(), "{:?}", report.reasons);
        assert_eq!((report.tally.sent, report.tally.ok), (100, 100));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["phases"], name);
        assert_eq!(json["ramp_cameras"].as_u64(), (name == "ramp").then_some(2));
        assert_eq!(json["ramp_every_ms"].as_f64(), (name == "ramp").then_some(200.0));
        assert!(report.table(false).contains(words), "{}", report.table(false));
    }
}

#[tokio::test]
async fn each_camera_names_itself_and_sends_its_pictures_in_turn() {
    let server = fake(|_, _| OK).without_info();
    let report = run_against(&server, |config| config.scenario.groups[0].budget_ms = 80).await;
    assert!(report.server.is_none());
    let seen = server.seen.lock().unwrap();
    let mut cameras: Vec<_> = seen.keys().cloned().collect();
    cameras.sort();
    assert_eq!(cameras, ["sim-0001", "sim-0002", "sim-0003", "sim-0004"]);
    for frames in seen.values() {
        assert!(frames.iter().map(|frame| frame.frame_id).eq(0..25));
        assert!(frames.iter().all(|frame| frame.budget_ms == 80 && frame.capture_time_us > 0));
        assert_ne!(frames[0].image_data, frames[1].image_data);
    }
    assert_eq!(seen["sim-0001"][1].image_data, seen["sim-0002"][0].image_data);
}

#[tokio::test]
async fn warm_up_frames_are_matched_but_not_counted() {
    let server = fake(|_, k| if k < 5 { Act::Answer(Outcome::Expired) } else { OK });
    let report =
        run_against(&server, |config| config.scenario.warmup = Duration::from_millis(200)).await;
    assert!(report.passed(), "{:?}", report.reasons);
    assert_eq!((report.tally.sent, report.tally.ok), (100, 100));
    assert_eq!((report.warmup.tally.sent, report.warmup.tally.expired), (20, 20));
}

#[tokio::test]
async fn lost_warm_up_frames_fail_the_run() {
    let server = fake(|camera, k| if camera == "sim-0002" && k == 1 { Act::Drop } else { OK });
    let report =
        run_against(&server, |config| config.scenario.warmup = Duration::from_millis(200)).await;
    assert_eq!((report.tally.ok, report.warmup.tally.lost), (100, 1));
    assert_eq!(report.reasons[0], "1 warm-up frame lost (worst: sim-0002 with 1)");
}

#[tokio::test]
async fn a_camera_that_is_left_out_fails_the_run() {
    let server =
        fake(|camera, _| if camera == "sim-0004" { Act::Answer(Outcome::Overloaded) } else { OK });
    let report = run_against(&server, |config| config.slo.min_answered_ratio = 0.0).await;
    let reason = "1 camera without any OK answer (first: sim-0004)";
    assert_eq!(report.reasons, [reason]);
}

#[tokio::test]
async fn dropped_frames_are_lost() {
    let server = fake(|camera, k| if camera == "sim-0003" && k % 5 == 4 { Act::Drop } else { OK });
    let report = run_against(&server, |_| ()).await;
    assert_eq!((report.tally.lost, report.tally.ok), (5, 95));
    // The last of them was still open when the server ended the stream.
    assert_eq!(
        report.reasons,
        [
            "5 frames lost (worst: sim-0003 with 5)",
            "1 stream ended early: the server ended the stream"
        ]
    );
}

#[tokio::test]
async fn superseded_frames_fail_the_run_unless_a_share_is_allowed() {
    let superseding = |_: &str, k| {
        if k % 25 == 3 { Act::Answer(Outcome::Superseded) } else { OK }
    };
    let report = run_against(&fake(superseding), |_| ()).await;
    assert_eq!(report.reasons, ["4 frames superseded (worst: sim-0001 with 1)"]);
    let allowed = |config: &mut RunConfig| config.slo.min_answered_ratio = 0.9;
    let report = run_against(&fake(superseding), allowed).await;
    assert!(report.passed(), "{:?}", report.reasons);
}

#[tokio::test]
async fn every_outcome_is_counted_under_its_name() {
    let server = fake(|_, k| Act::Answer(Outcome::try_from((k % 7) as i32).unwrap()));
    let tally = run_against(&server, |config| config.scenario.groups[0].fps = 7.0).await.tally;
    assert!(tally.outcomes().iter().all(|&(_, count)| count == 4), "{tally:?}");
}

/// Coordinated omission: a client that sends its next frame when the last one is answered sees one
/// slow answer in a stall. Cameras do not wait, so every frame that was due in it shows its part.
#[tokio::test]
async fn a_stall_of_300_ms_once_shows_in_every_frame_that_was_due_in_it() {
    const STALL_MS: f64 = 300.0;
    // Where the n-th slowest of 25 frames stands, in percent; a fleet has n from each camera.
    let place = |n: u32| 100.0 - 4.0 * f64::from(n) + 1.0;
    // A single camera of 40 ms has one frame under way at a time, until the stall.
    for cameras in [1, 4] {
        let server = fake(|_, k| if k == 5 { Act::Stall(Duration::from_millis(300)) } else { OK });
        let report = run_against(&server, |config| {
            config.scenario.groups[0].cameras = cameras;
            config.slo.percentiles = (1..=8).map(|n| (place(n), Duration::from_mins(1))).collect();
        })
        .await;
        assert_eq!(report.tally.ok, 25 * u64::from(cameras));
        assert!(report.figures.max_ms.unwrap() >= STALL_MS, "{:?}", report.figures);
        for (frames_behind, slow) in report.slo_percentiles.iter().enumerate() {
            let rest = STALL_MS - 40.0 * frames_behind as f64;
            assert!(slow.ms.unwrap() >= rest, "{cameras} cameras, {frames_behind}: {slow:?}");
        }
    }
}

#[tokio::test]
async fn a_second_answer_is_a_protocol_error() {
    let server =
        fake(|camera, k| if camera == "sim-0002" && k == 24 { Act::AnswerTwice } else { OK });
    let report = run_against(&server, |_| ()).await;
    assert_eq!((report.tally.ok, report.protocol_errors), (100, 1));
    assert_eq!(report.reasons, ["1 protocol error (first: sim-0002, second answer to frame 24)"]);
}

#[tokio::test]
async fn a_broken_stream_loses_its_frames_and_says_why() {
    let server = fake(|camera, k| match (camera, k) {
        ("sim-0001", 8) => Act::Drop,
        ("sim-0001", 9) => Act::Break(tonic::Code::ResourceExhausted, "too many cameras"),
        _ => OK,
    });
    let report = run_against(&server, |_| ()).await;
    let broken = &report.per_camera[0];
    assert_eq!(broken.tally.ok, 8);
    assert!(broken.tally.lost >= 2, "{:?}", broken.tally);
    assert_eq!(broken.tally.sent + broken.tally.not_sent, 25);
    assert_eq!(report.stream_ends.len(), 1);
    assert_eq!(report.stream_ends[0].reason, "RESOURCE_EXHAUSTED: too many cameras");
    let last = report.reasons.last().unwrap();
    assert_eq!(last, "1 stream ended early: RESOURCE_EXHAUSTED: too many cameras");
}

#[tokio::test]
async fn frames_that_a_stopping_server_had_not_read_are_not_lost() {
    // Frame 6 is read and unanswered; the server says that it had read 7 frames, so 7 to 9, which
    // were sent meanwhile, are for another server.
    let server = fake(|_, k| match k {
        6..=8 => Act::Drop,
        9 => Act::ShutDown(7),
        _ => OK,
    });
    let report = run_against(&server, |config| config.scenario.groups[0].cameras = 1).await;
    let tally = &report.tally;
    assert_eq!((tally.ok, tally.lost), (6, 1));
    assert_eq!(report.stream_ends[0].reason, "UNAVAILABLE: server shut down");
    assert!(tally.unaccepted >= 3, "{tally:?}");
    assert_eq!(tally.sent + tally.not_sent, 25);
}

#[tokio::test]
async fn a_server_that_closes_the_stream_early_fails_the_run() {
    let server = fake(|_, k| if k == 3 { Act::Close } else { OK });
    let report = run_against(&server, |config| config.scenario.groups[0].cameras = 2).await;
    assert_eq!(report.stream_ends[0].streams, 2);
    assert_eq!(report.stream_ends[0].reason, "the server ended the stream");
    assert!(report.tally.not_sent > 0 && !report.passed());
}

/// 100 pictures of 60 KB do not fit into the windows of a stream that nobody reads.
#[tokio::test]
async fn frames_that_the_connection_does_not_take_are_not_sent() {
    const FOREVER: Duration = Duration::from_hours(1);
    let server = fake(|_, _| Act::Stall(FOREVER));
    let report = run_against(&server, |config| {
        let group = &mut config.scenario.groups[0];
        (group.cameras, group.fps) = (1, 100.0);
        group.pictures = PictureSource::Drawn(Size { width: 640, height: 480 });
        config.drain = Duration::from_millis(500);
    })
    .await;
    let tally = &report.tally;
    assert!(tally.not_sent > 0 && tally.lost > 0, "{tally:?}");
    assert_eq!(tally.sent + tally.not_sent, 100);
    assert_eq!(report.stream_ends[0].reason, "the connection took no more frames");
}

#[tokio::test]
async fn an_interrupted_run_reports_what_it_has() {
    let server = fake(|_, _| OK);
    let mut config = config(server.start().await);
    config.scenario.measured = Duration::from_hours(1);
    let stop = async {
        while server.seen.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let report = run::run(&config, stop).await.unwrap();
    check_books(&report);
    assert!(report.interrupted && report.tally.sent > 0);
    assert_eq!(report.tally.lost, 0);
    assert!(report.reasons[0].starts_with("interrupted after "), "{:?}", report.reasons);
}

#[tokio::test]
async fn the_json_report_has_its_fields() {
    let server = fake(|_, _| Act::Drop);
    let report = run_against(&server, |config| config.scenario.groups[0].cameras = 1).await;
    let json = serde_json::to_value(&report).unwrap();
    for (name, value) in [
        ("schema_version", 2.into()),
        ("cameras", 1.into()),
        ("fps", 25.0.into()),
        ("seconds", 1.0.into()),
        ("sent", 25.into()),
        ("lost", 25.into()),
        ("max_ms", serde_json::Value::Null),
        ("stages_mean_us", serde_json::Value::Null),
        ("slo_max_ms", 60_000.0.into()),
        ("verdict", "FAIL".into()),
    ] {
        assert_eq!(json[name], value, "{name}");
    }
    for name in [
        "answered",
        "ok",
        "superseded",
        "expired",
        "overloaded",
        "bad_image",
        "unsupported",
        "internal",
        "not_sent",
        "unaccepted",
        "p50_ms",
        "p95_ms",
        "p99_ms",
        "mean_ms",
        "min_ms",
        "reasons",
        "per_camera",
        "send_lateness_ms",
        "server",
        "warmup",
    ] {
        assert!(json.get(name).is_some(), "{name} is missing");
    }
    assert!(json["reasons"][0].is_string());
    assert_eq!(json["per_camera"][0]["camera_id"], "sim-0001");
    assert_eq!(json["warmup"]["sent"], 0);
}
