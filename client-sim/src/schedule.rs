//! When each frame should leave: pure arithmetic, no clock.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

/// Slack when a duration is turned into a number of frames, in frames: 0.1 s x 30 fps is
/// 3.0000000000000004 in floating point and means 3 frames.
const FRAME_COUNT_SLACK: f64 = 1e-6;

/// How the cameras' first frames lie to each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phases {
    /// Camera `i` of `n` starts at `i / n` of a frame period: the fleet's frames are spread evenly.
    #[default]
    Even,
    /// All cameras send at the same instant, every period: the worst case for a queue.
    Aligned,
    /// Cameras start in groups, as a fleet does that is switched on.
    Ramp {
        /// Cameras of a group, at least 1.
        cameras: u32,
        /// Time from one group to the next.
        every: Duration,
    },
}

/// The intended send instants of a run, as offsets from its start.
///
/// The first frame of a camera is due at its phase, see [`Phases`]. Frame `k` of a camera is due
/// `k / fps` seconds after the camera's first one, computed from `k` each time, so that rounding
/// never adds up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    cameras: u32,
    fps: f64,
    phases: Phases,
    warmup_frames: u64,
    measured_frames: u64,
}

impl Schedule {
    /// A fleet of `cameras` (at least 1), each sending `fps` (above 0) frames per second for
    /// `warmup` and then for `measured`, spread evenly. At least one frame per camera is measured.
    #[must_use]
    pub fn new(cameras: u32, fps: f64, warmup: Duration, measured: Duration) -> Self {
        Self {
            cameras: cameras.max(1),
            fps,
            phases: Phases::Even,
            warmup_frames: frames_in(warmup, fps),
            measured_frames: frames_in(measured, fps).max(1),
        }
    }

    /// The same with other start times.
    #[must_use]
    pub fn with_phases(self, phases: Phases) -> Self {
        Self { phases, ..self }
    }

    /// Number of cameras.
    #[must_use]
    pub fn cameras(&self) -> u32 {
        self.cameras
    }

    /// Frames of each camera, warm-up included.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.warmup_frames + self.measured_frames
    }

    /// Warm-up frames of each camera: the first ones.
    #[must_use]
    pub fn warmup_frames(&self) -> u64 {
        self.warmup_frames
    }

    /// Whether frame `k` belongs to the warm-up.
    #[must_use]
    pub fn is_warmup(&self, k: u64) -> bool {
        k < self.warmup_frames
    }

    /// Time from one frame of a camera to its next.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_secs_f64(1.0 / self.fps)
    }

    /// Offset of camera `camera`'s first frame.
    #[must_use]
    pub fn phase(&self, camera: u32) -> Duration {
        match self.phases {
            Phases::Even => {
                Duration::from_secs_f64(f64::from(camera) / f64::from(self.cameras) / self.fps)
            }
            Phases::Aligned => Duration::ZERO,
            Phases::Ramp { cameras, every } => every * (camera / cameras.max(1)),
        }
    }

    /// Offset at which frame `k` of camera `camera` should leave.
    #[must_use]
    pub fn intended(&self, camera: u32, k: u64) -> Duration {
        self.phase(camera) + Duration::from_secs_f64(k as f64 / self.fps)
    }

    /// How many frames of camera `camera` are due at `offset` (those with `intended <= offset`).
    #[must_use]
    pub fn due(&self, camera: u32, offset: Duration) -> u64 {
        let Some(since_first) = offset.checked_sub(self.phase(camera)) else {
            return 0;
        };
        let guess = (since_first.as_secs_f64() * self.fps) as u64;
        // The guess is off by at most one because of rounding.
        let due = if self.intended(camera, guess + 1) <= offset {
            guess + 2
        } else if self.intended(camera, guess) <= offset {
            guess + 1
        } else {
            guess
        };
        due.min(self.frames())
    }

    /// Length of the run: every camera's frames, each followed by a period. A ramp adds the time
    /// until its last camera starts; otherwise all start within the first period.
    #[must_use]
    pub fn length(&self) -> Duration {
        let ramp = match self.phases {
            Phases::Even | Phases::Aligned => Duration::ZERO,
            Phases::Ramp { .. } => self.phase(self.cameras - 1),
        };
        ramp + Duration::from_secs_f64(self.frames() as f64 / self.fps)
    }

    /// All frames of the fleet as camera and frame number, in the order in which they are due; those
    /// due at the same instant by camera.
    ///
    /// Going through the cameras round by round would not do: on a ramp that is longer than a period
    /// the first cameras' second frames come before the last cameras' first ones.
    pub fn in_order(self) -> impl Iterator<Item = (u32, u64)> {
        let next = move |camera, k| Reverse((self.intended(camera, k), camera, k));
        // Each camera's next frame; every camera has at least one.
        let mut ahead: BinaryHeap<_> = (0..self.cameras).map(|camera| next(camera, 0)).collect();
        std::iter::from_fn(move || {
            let Reverse((_, camera, k)) = ahead.pop()?;
            if k + 1 < self.frames() {
                ahead.push(next(camera, k + 1));
            }
            Some((camera, k))
        })
    }
}

/// Frames due within `duration`, the first one at its beginning.
fn frames_in(duration: Duration, fps: f64) -> u64 {
    (duration.as_secs_f64() * fps - FRAME_COUNT_SLACK).ceil().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NANOSECOND: Duration = Duration::from_nanos(1);

    #[test]
    fn thirty_cameras_at_ten_fps_leave_every_3333_microseconds() {
        let schedule = Schedule::new(30, 10.0, Duration::from_secs(2), Duration::from_secs(10));
        assert_eq!(schedule.warmup_frames(), 20);
        assert_eq!(schedule.frames(), 120);
        assert_eq!(schedule.phase(0), Duration::ZERO);
        assert_eq!(schedule.phase(15), Duration::from_millis(50));
        assert_eq!(schedule.intended(15, 7), Duration::from_millis(750));
        assert_eq!(schedule.length(), Duration::from_secs(12));
        assert!(schedule.is_warmup(19) && !schedule.is_warmup(20));
    }

    #[test]
    fn odd_rates_give_the_frames_that_fit() {
        let frames =
            |fps, ms| Schedule::new(1, fps, Duration::ZERO, Duration::from_millis(ms)).frames();
        assert_eq!(frames(30.0, 100), 3);
        assert_eq!(frames(29.97, 10_000), 300);
        assert_eq!(frames(0.5, 1_000), 1);
        assert_eq!(frames(3.0, 1_000), 3);
    }

    #[test]
    fn aligned_cameras_send_at_the_same_instant_every_period() {
        let schedule = Schedule::new(3, 10.0, Duration::ZERO, Duration::from_secs(1))
            .with_phases(Phases::Aligned);
        for camera in 0..3 {
            assert_eq!(schedule.intended(camera, 7), Duration::from_millis(700));
            assert_eq!(schedule.due(camera, Duration::ZERO), 1);
        }
        assert_eq!(schedule.length(), Duration::from_secs(1));
        let first: Vec<_> = schedule.in_order().take(4).collect();
        assert_eq!(first, [(0, 0), (1, 0), (2, 0), (0, 1)]);
    }

    #[test]
    fn a_ramp_starts_group_after_group_and_may_be_longer_than_a_period() {
        let ramp = Phases::Ramp { cameras: 10, every: Duration::from_millis(50) };
        let schedule =
            Schedule::new(100, 10.0, Duration::ZERO, Duration::from_secs(1)).with_phases(ramp);
        assert_eq!(schedule.phase(9), Duration::ZERO);
        assert_eq!(schedule.phase(10), Duration::from_millis(50));
        assert_eq!(schedule.phase(99), Duration::from_millis(450));
        assert_eq!(schedule.intended(99, 2), Duration::from_millis(650));
        assert_eq!(schedule.due(99, Duration::from_millis(449)), 0);
        assert_eq!(schedule.due(99, Duration::from_millis(550)), 2);
        assert_eq!(schedule.length(), Duration::from_millis(1450));
        let order: Vec<_> = schedule.in_order().collect();
        let place = |frame| order.iter().position(|&other| other == frame);
        assert!(place((0, 4)) < place((99, 0)) && place((99, 0)) < place((0, 5)), "{order:?}");
    }

    fn any_phases() -> impl Strategy<Value = Phases> {
        prop_oneof![
            Just(Phases::Even),
            Just(Phases::Aligned),
            (1u32..30, 0u64..2000).prop_map(|(cameras, ms)| Phases::Ramp {
                cameras,
                every: Duration::from_millis(ms)
            }),
        ]
    }

    proptest! {
        #[test]
        fn the_order_holds_every_frame_once_and_never_goes_back(
            cameras in 1u32..40, fps in 0.5f64..60.0, phases in any_phases()
        ) {
            let schedule = Schedule::new(cameras, fps, Duration::ZERO, Duration::from_secs(2))
                .with_phases(phases);
            let order: Vec<_> = schedule.in_order().collect();
            prop_assert!(order.is_sorted_by_key(|&(camera, k)| schedule.intended(camera, k)));
            let mut next = vec![0; cameras as usize];
            for (camera, k) in order {
                prop_assert_eq!(k, next[camera as usize], "a camera's frames in turn");
                next[camera as usize] += 1;
            }
            prop_assert!(next.iter().all(|&sent| sent == schedule.frames()));
        }

        #[test]
        fn every_frame_leaves_within_the_run(
            cameras in 1u32..40, fps in 0.5f64..60.0, phases in any_phases()
        ) {
            let schedule = Schedule::new(cameras, fps, Duration::ZERO, Duration::from_secs(2))
                .with_phases(phases);
            for camera in 0..cameras {
                let last = schedule.intended(camera, schedule.frames() - 1);
                prop_assert!(last < schedule.length());
                prop_assert_eq!(schedule.due(camera, schedule.length()), schedule.frames());
            }
        }

        #[test]
        fn phases_fill_one_period_evenly(cameras in 1u32..500, fps in 0.1f64..240.0) {
            let schedule = Schedule::new(cameras, fps, Duration::ZERO, Duration::from_secs(1));
            let gap = schedule.period() / cameras;
            for camera in 1..cameras {
                let expected = schedule.phase(camera - 1) + gap;
                prop_assert!(schedule.phase(camera).abs_diff(expected) <= 2 * NANOSECOND);
            }
            prop_assert!(schedule.phase(cameras - 1) < schedule.period());
        }

        #[test]
        fn a_round_of_the_fleet_comes_before_the_next_one(
            cameras in 1u32..50, fps in 0.1f64..240.0, k in 0u64..100_000
        ) {
            let schedule = Schedule::new(cameras, fps, Duration::ZERO, Duration::from_secs(1));
            let last_of_round = schedule.intended(cameras - 1, k);
            prop_assert!(last_of_round < schedule.intended(0, k + 1));
        }

        #[test]
        fn the_kth_frame_does_not_drift(fps in 0.1f64..240.0, k in 0u64..10_000_000) {
            let schedule = Schedule::new(1, fps, Duration::ZERO, Duration::from_secs(1));
            let exact = k as f64 / fps;
            let off = (schedule.intended(0, k).as_secs_f64() - exact).abs();
            prop_assert!(off <= 1e-9 + exact * f64::EPSILON, "off by {off} s");
        }

        #[test]
        fn due_counts_the_frames_whose_time_has_come(
            cameras in 1u32..20, fps in 0.1f64..240.0, camera in 0u32..20,
            millis in 0u64..20_000, phases in any_phases()
        ) {
            let camera = camera % cameras;
            let schedule = Schedule::new(cameras, fps, Duration::ZERO, Duration::from_secs(3))
                .with_phases(phases);
            let offset = Duration::from_millis(millis);
            let counted = (0..schedule.frames())
                .filter(|&k| schedule.intended(camera, k) <= offset)
                .count() as u64;
            prop_assert_eq!(schedule.due(camera, offset), counted);
        }
    }
}
