//! Cameras that send seldom, and what stands between them and the server.

use std::time::Duration;

use crate::{
    fake::{Act, Fake, IDLE, fake},
    run::{OK, run_against},
    samples,
};
use client_sim::{
    config::{Reconnect, RunConfig},
    report::{
        html::{Document, render},
        schema::{HeartbeatFigures, Report},
    },
};
use vedette_proto::camera_ai::Outcome;

/// Of a quiet camera: two seconds from frame to frame.
const QUIET_FPS: f64 = 0.5;

/// Long before a busy machine could miss a proxy's limit.
const EVERY: Duration = Duration::from_millis(100);

/// Between the two, with a second of room on both sides.
const IDLE_LIMIT: Duration = Duration::from_secs(1);

/// Two cameras of two frames each, in 4 s.
fn quiet(every: Option<Duration>) -> impl FnOnce(&mut RunConfig) {
    move |config| {
        config.scenario.groups[0].cameras = 2;
        config.scenario.groups[0].fps = QUIET_FPS;
        config.scenario.measured = Duration::from_secs(4);
        config.scenario.heartbeat = every;
    }
}

fn figures(report: &Report) -> HeartbeatFigures {
    report.heartbeats.unwrap()
}

#[tokio::test]
async fn a_quiet_stream_is_cut_without_heartbeats_and_kept_with_them() {
    let server = || fake(|_, _| OK).cutting_after(IDLE_LIMIT);
    let (without, with) = (server(), server());
    let (cut, kept) =
        tokio::join!(run_against(&without, quiet(None)), run_against(&with, quiet(Some(EVERY))));
    assert!(!cut.passed() && cut.heartbeats.is_none());
    assert_eq!(cut.stream_ends[0].reason, format!("UNAVAILABLE: {IDLE}"));
    assert_eq!((cut.stream_ends[0].streams, cut.tally.sent + cut.tally.not_sent), (2, 4));
    assert!(kept.passed(), "{:?}", kept.reasons);
    assert_eq!((kept.tally.sent, kept.tally.ok, kept.protocol_errors), (4, 4, 0));
    let beats = figures(&kept);
    assert!(beats.sent >= 4 && beats.answered <= beats.sent, "{beats:?}");
    assert_eq!(beats.taken_for_frames, 0);
    assert!(with.peers.lock().unwrap().values().all(|streams| streams.len() == 1));
}

#[tokio::test]
async fn heartbeats_are_told_from_frames_on_the_wire() {
    let server = fake(|_, _| OK);
    let report = run_against(&server, quiet(Some(EVERY))).await;
    assert!(report.passed(), "{:?}", report.reasons);
    let mut beats = 0;
    for requests in server.seen.lock().unwrap().values() {
        let (hearts, frames): (Vec<_>, Vec<_>) = requests.iter().partition(|one| one.heartbeat);
        assert!(frames.iter().map(|frame| frame.frame_id).eq(0..2));
        assert!(
            hearts
                .iter()
                .map(|heart| heart.frame_id)
                .eq((0..hearts.len() as u64).map(|n| (1 << 63) + n))
        );
        assert!(hearts.iter().all(|heart| heart.image_data.is_empty()));
        beats += hearts.len() as u64;
    }
    // One may have been under way when the last frame was answered.
    assert!((figures(&report).sent - 2..=figures(&report).sent).contains(&beats));
}

#[tokio::test]
async fn an_older_server_takes_them_for_bad_frames_and_the_run_does_not() {
    let bad = |_: &str, id: u64| if id >> 63 == 1 { Act::Answer(Outcome::BadImage) } else { OK };
    let report = run_against(&fake(bad).without_heartbeats(), quiet(Some(EVERY))).await;
    assert!(report.passed(), "{:?}", report.reasons);
    assert_eq!((report.tally.sent, report.tally.ok, report.tally.bad_image), (4, 4, 0));
    let beats = figures(&report);
    assert!(beats.answered == 0 && beats.taken_for_frames > 0, "{beats:?}");
    let taken = format!(", taken for frames {}\n", beats.taken_for_frames);
    assert!(report.table(false).contains(&taken), "{}", report.table(false));
}

#[tokio::test]
async fn cameras_that_send_often_send_none() {
    let server = fake(|_, _| OK);
    let often = |config: &mut RunConfig| config.scenario.heartbeat = Some(Duration::from_mins(1));
    let report = run_against(&server, often).await;
    assert!(report.passed(), "{:?}", report.reasons);
    let none = HeartbeatFigures { every_seconds: 60.0, sent: 0, answered: 0, taken_for_frames: 0 };
    assert_eq!(report.heartbeats, Some(none));
    assert!(!report.table(false).contains("heartbeat"));
    assert!(!render(&Document::Run(&report)).contains("<dt>Heartbeats"));
}

#[tokio::test]
async fn a_camera_between_two_streams_waits_for_the_next_one() {
    let server = once_then_well();
    let report = run_against(&server, |config| {
        quiet(Some(EVERY))(config);
        config.reconnect = Reconnect { enabled: true, max_gap: Duration::from_mins(1) };
    })
    .await;
    assert!(report.passed(), "{:?}", report.reasons);
    assert_eq!((report.reconnects.count, report.protocol_errors), (2, 0));
    assert!(figures(&report).answered > 0, "{:?}", figures(&report));
}

/// Ends each camera's first stream at its first frame.
fn once_then_well() -> Fake {
    fake(|_, k| if k == 0 { Act::Break(tonic::Code::Unavailable, "moving house") } else { OK })
}

#[test]
fn reports_show_them_only_when_there_were_any() {
    let mut report = samples::passing();
    assert_eq!(serde_json::to_value(&report).unwrap()["heartbeats"], serde_json::Value::Null);
    assert!(!render(&Document::Run(&report)).contains("Heartbeats"));
    let beats = HeartbeatFigures { every_seconds: 2.5, sent: 7, answered: 6, taken_for_frames: 0 };
    report.heartbeats = Some(beats);
    let line = "\nheartbeat after 2.5 s without a frame: sent 7, answered 6\n";
    assert!(report.table(false).contains(line), "{}", report.table(false));
    let page = render(&Document::Run(&report));
    assert!(page.contains("after 2.5 s without a frame: 7 sent, 6 answered<"));
    // A report of a version that did not know them.
    let mut json = serde_json::to_value(samples::passing()).unwrap();
    json.as_object_mut().unwrap().remove("heartbeats");
    assert_eq!(serde_json::from_value::<Report>(json).unwrap().heartbeats, None);
}
