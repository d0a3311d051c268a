//! When each frame should leave: pure arithmetic, no clock.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use crate::{
    config::{Group, Scenario},
    random,
};

/// Slack when a duration is turned into a number of frames, in frames: 0.1 s x 30 fps is
/// 3.0000000000000004 in floating point and means 3 frames.
const FRAME_COUNT_SLACK: f64 = 1e-6;

/// How the cameras' first frames lie to each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phases {
    /// Camera `i` of a group of `n` starts at `i / n` of a frame period: frames are spread evenly.
    #[default]
    Even,
    /// Each camera starts anywhere in a frame period, as the seed decides.
    Random,
    /// All cameras send at the same instant, every period: the worst case for a queue.
    Aligned,
    /// Cameras start in groups, as a fleet does that is switched on.
    Ramp {
        /// Cameras that start together, at least 1.
        cameras: u32,
        /// Time from one such group to the next.
        every: Duration,
    },
}

/// The intended send instants of a run, as offsets from its start; a lane for each camera.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    lanes: Vec<Lane>,
    warmup: Duration,
    measured: Duration,
}

/// One camera's frames.
///
/// Frame `k` of a lane is due at its first frame's instant plus `k / fps`, computed from `k` each
/// time, so that rounding never adds up. A burst starts another count at its own rate. Jitter moves a
/// frame towards the next one and never past it, so frames are due in the order of their numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    group: usize,
    phase: Duration,
    spans: Vec<Span>,
    frames: u64,
    warmup_frames: u64,
    jitter: Duration,
    seed: u64,
}

/// Frames at one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Span {
    start: Duration,
    fps: f64,
    first_frame: u64,
}

impl Schedule {
    /// The schedule of a scenario. Each camera sends at least one measured frame.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Self {
        let mut lanes = Vec::with_capacity(scenario.cameras() as usize);
        for (index, group) in scenario.groups.iter().enumerate() {
            for member in 0..group.cameras {
                let camera = lanes.len() as u64;
                let mut lane = Lane::new(scenario, index, group, member);
                lane.seed = random::hash(scenario.seed, camera, 0);
                lane.phase = phase(scenario.phases, group, member, camera, lane.seed);
                lanes.push(lane);
            }
        }
        Self { lanes, warmup: scenario.warmup, measured: scenario.measured }
    }

    /// Number of cameras.
    #[must_use]
    pub fn cameras(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// The frames of camera `camera`.
    #[must_use]
    pub fn lane(&self, camera: u32) -> &Lane {
        &self.lanes[camera as usize]
    }

    /// Length of the part whose frames do not count.
    #[must_use]
    pub fn warmup(&self) -> Duration {
        self.warmup
    }

    /// Length of the part whose frames count.
    #[must_use]
    pub fn measured(&self) -> Duration {
        self.measured
    }

    /// Length of the run: every camera's frames, each followed by a period. A ramp adds the time
    /// until its last camera starts; otherwise all start within the first period.
    #[must_use]
    pub fn length(&self) -> Duration {
        let end = |lane: &Lane| {
            lane.spans.last().map_or(Duration::ZERO, |span| {
                let frames = (lane.frames - span.first_frame) as f64;
                span.start + Duration::from_secs_f64(frames / span.fps)
            })
        };
        let late = |lane: &Lane| {
            // A phase within a period is part of the run's length already.
            if lane.phase < lane.period() { Duration::ZERO } else { lane.phase }
        };
        self.lanes.iter().map(|lane| end(lane) + late(lane)).max().unwrap_or_default()
    }

    /// All frames of the fleet as camera and frame number, in the order in which they are due; those
    /// due at the same instant by camera.
    ///
    /// Going through the cameras round by round would not do: on a ramp that is longer than a period
    /// the first cameras' second frames come before the last cameras' first ones.
    pub fn in_order(&self) -> impl Iterator<Item = (u32, u64)> {
        let next = |camera: u32, k| Reverse((self.lane(camera).intended(k), camera, k));
        // Each camera's next frame; every camera has at least one.
        let mut ahead: BinaryHeap<_> = (0..self.cameras()).map(|camera| next(camera, 0)).collect();
        std::iter::from_fn(move || {
            let Reverse((_, camera, k)) = ahead.pop()?;
            if k + 1 < self.lane(camera).frames() {
                ahead.push(next(camera, k + 1));
            }
            Some((camera, k))
        })
    }
}

/// Offset of a camera's first frame from where its group begins.
fn phase(phases: Phases, group: &Group, member: u32, camera: u64, seed: u64) -> Duration {
    let period = 1.0 / group.fps;
    match phases {
        Phases::Even => {
            Duration::from_secs_f64(f64::from(member) / f64::from(group.cameras) * period)
        }
        Phases::Random => Duration::from_secs_f64(random::unit(seed) * period),
        Phases::Aligned => Duration::ZERO,
        Phases::Ramp { cameras, every } => every * (camera as u32 / cameras.max(1)),
    }
}

impl Lane {
    fn new(scenario: &Scenario, index: usize, group: &Group, member: u32) -> Self {
        let end = scenario.warmup + scenario.measured;
        let stagger = group.arrive_over.mul_f64(f64::from(member) / f64::from(group.cameras));
        let from = group.arrive.map_or(Duration::ZERO, |at| scenario.warmup + at + stagger);
        let until = group.leave.map_or(end, |at| (scenario.warmup + at).min(end)).max(from);
        let mut lane = Self {
            group: index,
            phase: Duration::ZERO,
            spans: Vec::new(),
            frames: 0,
            warmup_frames: 0,
            jitter: group.jitter,
            seed: 0,
        };
        let mut at = from;
        for burst in &group.bursts {
            let start = (scenario.warmup + burst.at).clamp(at, until.max(at));
            let stop = (scenario.warmup + burst.at + burst.length).clamp(start, until.max(start));
            lane.push(at, start, group.fps);
            lane.push(start, stop, burst.fps);
            at = stop;
        }
        lane.push(at, until, group.fps);
        lane.warmup_frames =
            frames_in(scenario.warmup.saturating_sub(from), group.fps).min(lane.frames);
        if lane.frames == lane.warmup_frames {
            // Shorter than a period: a camera that is there sends at least one frame.
            lane.push_frames(at, group.fps, 1);
        }
        lane
    }

    /// Frames from `from` until `until`, in step with those before when the rate is the same.
    fn push(&mut self, from: Duration, until: Duration, fps: f64) {
        let frames = frames_in(until.saturating_sub(from), fps);
        match self.spans.last() {
            Some(last) if last.fps.total_cmp(&fps).is_eq() => {
                let since_start = frames_in(until.saturating_sub(last.start), fps);
                self.frames = self.frames.max(last.first_frame + since_start);
            }
            Some(_) | None => self.push_frames(from, fps, frames),
        }
    }

    fn push_frames(&mut self, start: Duration, fps: f64, frames: u64) {
        if frames > 0 {
            self.spans.push(Span { start, fps, first_frame: self.frames });
            self.frames += frames;
        }
    }

    /// The group of cameras that it belongs to, by its place in the scenario.
    #[must_use]
    pub fn group(&self) -> usize {
        self.group
    }

    /// Number of frames, warm-up included.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Whether frame `k` belongs to the warm-up.
    #[must_use]
    pub fn is_warmup(&self, k: u64) -> bool {
        k < self.warmup_frames
    }

    /// Time from one frame to the next outside bursts, at the lane's beginning.
    fn period(&self) -> Duration {
        self.spans.first().map_or(Duration::ZERO, |span| Duration::from_secs_f64(1.0 / span.fps))
    }

    /// Where frame `k` stands without jitter.
    fn even(&self, k: u64) -> Duration {
        let after = self.spans.partition_point(|span| span.first_frame <= k);
        let span = &self.spans[after.saturating_sub(1)];
        self.phase + span.start + Duration::from_secs_f64((k - span.first_frame) as f64 / span.fps)
    }

    /// Offset at which frame `k` should leave.
    #[must_use]
    pub fn intended(&self, k: u64) -> Duration {
        let even = self.even(k);
        if self.jitter.is_zero() {
            return even;
        }
        let room = self.jitter.min(self.even(k + 1).saturating_sub(even));
        even + room.mul_f64(random::unit(random::hash(self.seed, k, 1)))
    }

    /// How many frames are due at `offset` (those with `intended <= offset`).
    #[must_use]
    pub fn due(&self, offset: Duration) -> u64 {
        let (mut low, mut high) = (0, self.frames);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.intended(middle) <= offset { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// Frames due within `duration`, the first one at its beginning.
fn frames_in(duration: Duration, fps: f64) -> u64 {
    (duration.as_secs_f64() * fps - FRAME_COUNT_SLACK).ceil().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Burst;
    use proptest::prelude::*;

    const NANOSECOND: Duration = Duration::from_nanos(1);

    fn schedule(cameras: u32, fps: f64, warmup: Duration, measured: Duration) -> Schedule {
        with_phases(cameras, fps, warmup, measured, Phases::Even)
    }

    fn with_phases(
        cameras: u32,
        fps: f64,
        warmup: Duration,
        measured: Duration,
        phases: Phases,
    ) -> Schedule {
        let scenario = Scenario::uniform(cameras, fps, warmup, measured);
        Schedule::of(&Scenario { phases, ..scenario })
    }

    #[test]
    fn thirty_cameras_at_ten_fps_leave_every_3333_microseconds() {
        let schedule = schedule(30, 10.0, Duration::from_secs(2), Duration::from_secs(10));
        assert_eq!(schedule.lane(0).frames(), 120);
        assert_eq!(schedule.lane(0).intended(0), Duration::ZERO);
        assert_eq!(schedule.lane(15).intended(0), Duration::from_millis(50));
        assert_eq!(schedule.lane(15).intended(7), Duration::from_millis(750));
        assert_eq!(schedule.length(), Duration::from_secs(12));
        assert!(schedule.lane(3).is_warmup(19) && !schedule.lane(3).is_warmup(20));
    }

    #[test]
    fn odd_rates_give_the_frames_that_fit() {
        let frames =
            |fps, ms| schedule(1, fps, Duration::ZERO, Duration::from_millis(ms)).lane(0).frames();
        assert_eq!(frames(30.0, 100), 3);
        assert_eq!(frames(29.97, 10_000), 300);
        assert_eq!(frames(0.5, 1_000), 1);
        assert_eq!(frames(3.0, 1_000), 3);
    }

    #[test]
    fn aligned_cameras_send_at_the_same_instant_every_period() {
        let schedule =
            with_phases(3, 10.0, Duration::ZERO, Duration::from_secs(1), Phases::Aligned);
        for camera in 0..3 {
            assert_eq!(schedule.lane(camera).intended(7), Duration::from_millis(700));
            assert_eq!(schedule.lane(camera).due(Duration::ZERO), 1);
        }
        assert_eq!(schedule.length(), Duration::from_secs(1));
        let first: Vec<_> = schedule.in_order().take(4).collect();
        assert_eq!(first, [(0, 0), (1, 0), (2, 0), (0, 1)]);
    }

    #[test]
    fn a_ramp_starts_group_after_group_and_may_be_longer_than_a_period() {
        let ramp = Phases::Ramp { cameras: 10, every: Duration::from_millis(50) };
        let schedule = with_phases(100, 10.0, Duration::ZERO, Duration::from_secs(1), ramp);
        assert_eq!(schedule.lane(9).intended(0), Duration::ZERO);
        assert_eq!(schedule.lane(10).intended(0), Duration::from_millis(50));
        assert_eq!(schedule.lane(99).intended(0), Duration::from_millis(450));
        assert_eq!(schedule.lane(99).intended(2), Duration::from_millis(650));
        assert_eq!(schedule.lane(99).due(Duration::from_millis(449)), 0);
        assert_eq!(schedule.lane(99).due(Duration::from_millis(550)), 2);
        assert_eq!(schedule.length(), Duration::from_millis(1450));
        let order: Vec<_> = schedule.in_order().collect();
        let place = |frame| order.iter().position(|&other| other == frame);
        assert!(place((0, 4)) < place((99, 0)) && place((99, 0)) < place((0, 5)), "{order:?}");
    }

    fn any_phases() -> impl Strategy<Value = Phases> {
        prop_oneof![
            Just(Phases::Even),
            Just(Phases::Aligned),
            Just(Phases::Random),
            (1u32..30, 0u64..2000).prop_map(|(cameras, ms)| Phases::Ramp {
                cameras,
                every: Duration::from_millis(ms)
            }),
        ]
    }

    #[test]
    fn a_group_comes_bursts_and_leaves() {
        let mut scenario =
            Scenario::uniform(2, 10.0, Duration::from_secs(1), Duration::from_secs(10));
        let group = &mut scenario.groups[0];
        group.arrive = Some(Duration::from_secs(2));
        group.arrive_over = Duration::from_secs(2);
        group.leave = Some(Duration::from_secs(8));
        group.bursts =
            vec![Burst { at: Duration::from_secs(4), length: Duration::from_secs(1), fps: 50.0 }];
        let schedule = Schedule::of(&Scenario { phases: Phases::Aligned, ..scenario });
        let (first, second) = (schedule.lane(0), schedule.lane(1));
        assert_eq!((first.frames(), second.frames()), (20 + 50 + 30, 10 + 50 + 30));
        assert_eq!(first.intended(0), Duration::from_secs(3));
        assert_eq!(second.intended(0), Duration::from_secs(4));
        assert_eq!(first.intended(21), first.intended(20) + Duration::from_millis(20));
        assert_eq!(first.intended(99), Duration::from_millis(8900));
        assert!(!first.is_warmup(0));
        assert_eq!(schedule.length(), Duration::from_secs(9));
    }

    #[test]
    fn jitter_moves_frames_apart_and_never_past_each_other() {
        let mut scenario = Scenario::uniform(3, 10.0, Duration::ZERO, Duration::from_secs(50));
        scenario.groups[0].jitter = Duration::from_millis(99);
        let schedule = Schedule::of(&scenario);
        let offs: Vec<Duration> = (0..500)
            .map(|k| schedule.lane(1).intended(k).saturating_sub(schedule.lane(1).even(k)))
            .collect();
        assert!(offs.iter().all(|&off| off < Duration::from_millis(99)));
        assert!(offs.iter().any(|&off| off > Duration::from_millis(90)));
        assert!((1..500).all(|k| schedule.lane(1).intended(k - 1) < schedule.lane(1).intended(k)));
        assert_eq!(schedule, Schedule::of(&scenario));
        let other = Schedule::of(&Scenario { seed: 2, ..scenario });
        assert_ne!(schedule.lane(1).intended(7), other.lane(1).intended(7));
    }

    proptest! {
        #[test]
        fn the_order_holds_every_frame_once_and_never_goes_back(
            cameras in 1u32..40, fps in 0.5f64..60.0, phases in any_phases()
        ) {
            let schedule = with_phases(cameras, fps, Duration::ZERO, Duration::from_secs(2), phases);
            let order: Vec<_> = schedule.in_order().collect();
            prop_assert!(order.is_sorted_by_key(|&(camera, k)| schedule.lane(camera).intended(k)));
            let mut next = vec![0; cameras as usize];
            for (camera, k) in order {
                prop_assert_eq!(k, next[camera as usize], "a camera's frames in turn");
                next[camera as usize] += 1;
            }
            prop_assert!(next.iter().all(|&sent| sent == schedule.lane(0).frames()));
        }

        #[test]
        fn every_frame_leaves_within_the_run(
            cameras in 1u32..40, fps in 0.5f64..60.0, phases in any_phases()
        ) {
            let schedule = with_phases(cameras, fps, Duration::ZERO, Duration::from_secs(2), phases);
            for camera in 0..cameras {
                let last = schedule.lane(camera).intended(schedule.lane(0).frames() - 1);
                prop_assert!(last < schedule.length());
                prop_assert_eq!(schedule.lane(camera).due(schedule.length()), schedule.lane(0).frames());
            }
        }

        #[test]
        fn phases_fill_one_period_evenly(cameras in 1u32..500, fps in 0.1f64..240.0) {
            let schedule = schedule(cameras, fps, Duration::ZERO, Duration::from_secs(1));
            let gap = Duration::from_secs_f64(1.0 / fps) / cameras;
            for camera in 1..cameras {
                let expected = schedule.lane(camera - 1).intended(0) + gap;
                prop_assert!(schedule.lane(camera).intended(0).abs_diff(expected) <= 2 * NANOSECOND);
            }
            prop_assert!(schedule.lane(cameras - 1).intended(0) < Duration::from_secs_f64(1.0 / fps));
        }

        #[test]
        fn a_round_of_the_fleet_comes_before_the_next_one(
            cameras in 1u32..50, fps in 0.1f64..240.0, k in 0u64..100_000
        ) {
            let schedule = schedule(cameras, fps, Duration::ZERO, Duration::from_secs(1));
            let last_of_round = schedule.lane(cameras - 1).intended(k);
            prop_assert!(last_of_round < schedule.lane(0).intended(k + 1));
        }

        #[test]
        fn the_kth_frame_does_not_drift(fps in 0.1f64..240.0, k in 0u64..10_000_000) {
            let schedule = schedule(1, fps, Duration::ZERO, Duration::from_secs(1));
            let exact = k as f64 / fps;
            let off = (schedule.lane(0).intended(k).as_secs_f64() - exact).abs();
            prop_assert!(off <= 1e-9 + exact * f64::EPSILON, "off by {off} s");
        }

        #[test]
        fn due_counts_the_frames_whose_time_has_come(
            cameras in 1u32..20, fps in 0.1f64..240.0, camera in 0u32..20,
            millis in 0u64..20_000, phases in any_phases()
        ) {
            let camera = camera % cameras;
            let schedule = with_phases(cameras, fps, Duration::ZERO, Duration::from_secs(3), phases);
            let offset = Duration::from_millis(millis);
            let counted = (0..schedule.lane(0).frames())
                .filter(|&k| schedule.lane(camera).intended(k) <= offset)
                .count() as u64;
            prop_assert_eq!(schedule.lane(camera).due(offset), counted);
        }
    }
}
