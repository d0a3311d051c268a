//! Who is computed when: plans whose figures can be worked out by hand. The rules of `rules.rs` are
//! checked in these runs too.

use std::time::Duration;

use vedette_server::frame::Outcome;

use crate::{
    ledger::Frame,
    plan::{Camera, Leaves, MS, Plan},
    run::run,
};

/// What became of the frames of a fleet.
struct Played(Vec<Vec<Frame>>);

/// Runs these cameras until `end`; what has arrived by then is answered.
fn play(workers: usize, cost: Duration, mut cameras: Vec<Camera>, end: Duration) -> Played {
    for camera in &mut cameras {
        camera.until = end;
    }
    let fleet = cameras.len();
    let run = run(Plan::plain(workers, cost, cameras));
    assert_eq!(run.failure, None, "{}", run.world.trace.borrow().end());
    let ledger = run.world.ledger.borrow();
    let mut played = vec![Vec::new(); fleet];
    for frame in &ledger.frames {
        played[ledger.streams[frame.stream].camera].push(frame.clone());
    }
    Played(played)
}

fn ended(frame: &Frame, outcome: Outcome) -> bool {
    frame.outcome.is_some_and(|(ended, _)| ended == outcome)
}

/// From the sending of a frame to its boxes.
fn latency(frame: &Frame) -> Option<Duration> {
    ended(frame, Outcome::Ok).then_some(frame.delivered?.saturating_sub(frame.sent))
}

fn ok(frames: &[Frame]) -> usize {
    frames.iter().filter(|frame| ended(frame, Outcome::Ok)).count()
}

fn worst(frames: &[Frame]) -> Duration {
    frames.iter().filter_map(latency).max().unwrap_or_default()
}

impl Played {
    fn count(&self, outcome: Outcome) -> usize {
        self.0.iter().flatten().filter(|frame| ended(frame, outcome)).count()
    }

    /// When the last frame ended.
    fn last(&self) -> Duration {
        self.0
            .iter()
            .flatten()
            .filter_map(|frame| frame.outcome)
            .map(|(_, at)| at)
            .max()
            .expect("one")
    }
}

/// `cameras` cameras of 10 FPS, spread evenly over a period.
fn spread(cameras: u32) -> Vec<Camera> {
    (0..cameras).map(|i| Camera { opens: 100 * MS * i / cameras, ..Camera::ten_fps() }).collect()
}

/// Far more frames than can be computed.
fn flood() -> Camera {
    Camera { period: MS / 4, ..Camera::ten_fps() }
}

#[test]
fn a_lone_fast_camera_may_use_every_worker() {
    let played = play(4, 8 * MS, vec![flood()], 2000 * MS);
    let capacity = 2000 / 8 * 4;
    assert!(ok(&played.0[0]) >= capacity, "{} of {capacity}", ok(&played.0[0]));
}

#[test]
fn a_flood_leaves_its_neighbours_their_latency_and_takes_only_what_is_left() {
    for workers in [1, 2, 4] {
        let mut cameras = vec![flood()];
        cameras.extend(spread(3));
        let played = play(workers, 10 * MS, cameras, 3000 * MS);
        for frames in &played.0[1..] {
            assert_eq!(ok(frames), frames.len(), "every frame of the slow camera");
            // A worker becomes free within one frame's time; the other slow cameras may be before it.
            assert!(worst(frames) <= 40 * MS, "{workers} workers: {:?}", worst(frames));
        }
        let all = played.count(Outcome::Ok);
        assert!(all >= workers * 300 - workers, "{workers} workers computed only {all} frames");
    }
}

#[test]
fn at_twice_the_capacity_everyone_gets_the_same_and_no_age_builds_up() {
    // 2 workers, 10 ms: 200 frames a second for 40 cameras that send 400.
    let played = play(2, 10 * MS, spread(40), 60_000 * MS);
    let counts: Vec<_> = played.0.iter().map(|frames| ok(frames)).collect();
    let (least, most) = (counts.iter().min().expect("some"), counts.iter().max().expect("some"));
    assert!(most - least <= 2, "{least} to {most} answers");
    // Without the end, when the last frames are not replaced any more but worked off.
    let worst_until = |end: Duration| {
        let early = played.0.iter().flatten().filter(|frame| frame.sent < end);
        early.filter_map(latency).max().expect("some")
    };
    assert_eq!(worst_until(59_000 * MS), worst_until(2000 * MS), "latency grows");
    // Newest wins: a frame is replaced by its successor before it can get old.
    assert!(worst_until(59_000 * MS) <= 110 * MS, "{:?}", worst_until(59_000 * MS));
}

#[test]
fn all_cameras_at_the_same_instant_take_what_arithmetic_allows() {
    let played = play(2, 5 * MS, vec![Camera::ten_fps(); 30], 5000 * MS);
    let slowest = played.0.iter().map(|frames| worst(frames)).max();
    assert_eq!(slowest, Some(75 * MS), "30 frames of 5 ms on 2 workers");
    assert!(played.0.iter().all(|frames| ok(frames) == frames.len()));
}

#[test]
fn frames_past_their_budget_are_expired_before_they_cost_anything() {
    let camera = Camera { budget: 30 * MS, ..Camera::ten_fps() };
    // 20 frames of 10 ms on one worker: the first three start and end in time.
    let played = play(1, 10 * MS, vec![camera; 20], 100 * MS);
    assert_eq!((played.count(Outcome::Ok), played.count(Outcome::Expired)), (3, 17));
    assert_eq!(played.last(), 40 * MS, "the one that had begun, and nothing after it");
}

#[test]
fn a_camera_that_leaves_takes_its_frames_along() {
    let mut cameras = vec![Camera::ten_fps(); 2];
    cameras[1].leaves = Some(Leaves { after: 5 * MS, on_pick: false });
    let played = play(1, 10 * MS, cameras, 100 * MS);
    assert_eq!(played.count(Outcome::Ok), 1);
    let gone = &played.0[1][0];
    assert!(ended(gone, Outcome::ClientGone) && gone.pick.is_none(), "not computed: {gone:?}");
    assert_eq!(played.last(), 10 * MS);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from_and_holds_up_nobody() {
    let deaf = Camera { reads: crate::plan::Reads::Until(Duration::ZERO), ..flood() };
    let played = play(1, 10 * MS, vec![deaf, Camera::ten_fps()], 2000 * MS);
    assert_eq!(played.0[0].len(), vedette_server::limits::REPLY_QUEUE_FRAMES);
    assert_eq!(ok(&played.0[1]), 20);
}
