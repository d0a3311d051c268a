//! What a run is made of, and how a seed draws it.
//!
//! A seed switches each kind of trouble on or off for its whole run, instead of mixing a little of
//! everything into every run: what one kind brings about is not drowned by the others (Groce et al.,
//! "Swarm testing", ISSTA 2012).

use std::{ops::RangeInclusive, time::Duration};

use vedette_server::connection::AgeLimit;

use crate::{executor::Order, random::Random};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Frames that a drawn run is to send, about: enough for every camera to be picked several times, few
/// enough for a thousand runs in some seconds.
const FRAMES: RangeInclusive<u64> = 500..=3500;

/// Frames a second of one camera that are read at most, about; the pace of reading sees to that.
const MOST_READ: f64 = 2500.0;

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) order: Order,
    pub(crate) workers: usize,
    pub(crate) batch: usize,
    pub(crate) max_cameras: usize,
    pub(crate) cameras: Vec<Camera>,
    pub(crate) costs: Costs,
    pub(crate) mishaps: Mishaps,
    /// From a wake-up to the worker's next step.
    pub(crate) wake_delay: RangeInclusive<Duration>,
    pub(crate) age: Option<AgeLimit>,
    pub(crate) shutdown: Duration,
    pub(crate) grace: Duration,
    /// How long connections stay open whose streams have ended; `None`: until they are cut.
    pub(crate) lingers: Option<Duration>,
}

/// How a camera talks to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Stream,
    /// A call for each frame.
    Calls,
}

/// A client.
#[derive(Debug, Clone)]
pub(crate) struct Camera {
    pub(crate) manner: Manner,
    pub(crate) opens: Duration,
    /// Sends nothing from then on.
    pub(crate) until: Duration,
    pub(crate) period: Duration,
    pub(crate) jitter: Duration,
    /// Frames at once.
    pub(crate) burst: u32,
    pub(crate) budget: Duration,
    pub(crate) bytes: usize,
    /// Pictures of different shapes are not run in one batch.
    pub(crate) shape: u8,
    pub(crate) reads: Reads,
    pub(crate) leaves: Option<Leaves>,
    /// Opens a new stream after the last one has ended, this much later.
    pub(crate) returns: Option<Duration>,
    /// Ends its stream in order after the last frame, instead of leaving it open.
    pub(crate) finishes: bool,
}

/// How a client reads its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    AtOnce,
    /// With a pause after each.
    Slowly(Duration),
    /// And none any more from an instant on.
    Until(Duration),
}

/// When a client leaves without a word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaves {
    /// Since its stream was opened.
    pub(crate) after: Duration,
    /// Not before a worker takes a frame of it.
    pub(crate) on_pick: bool,
}

/// What computing takes.
#[derive(Debug, Clone)]
pub(crate) struct Costs {
    pub(crate) decode: RangeInclusive<Duration>,
    /// Of a network's run, and of each further picture in it.
    pub(crate) network: RangeInclusive<Duration>,
    pub(crate) stalls: f64,
    pub(crate) stall: RangeInclusive<Duration>,
}

/// How often something is wrong with a frame.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mishaps {
    pub(crate) junk: f64,
    pub(crate) broken: f64,
    pub(crate) panics: f64,
    pub(crate) fails: f64,
}

/// What is wrong with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Good,
    /// No picture at first sight.
    Junk,
    /// Cannot be decoded.
    Broken,
    /// The worker panics over it, at once or in the network.
    PanicsEarly,
    PanicsLate,
    /// The network fails on its batch.
    Fails,
}

impl Plan {
    /// A run without any trouble: cameras that behave, and costs that do not vary.
    pub(crate) fn plain(workers: usize, cost: Duration, cameras: Vec<Camera>) -> Self {
        let until = cameras.iter().map(|camera| camera.until).max().unwrap_or_default();
        Self {
            seed: 0,
            order: Order::AsReady,
            workers,
            batch: 1,
            max_cameras: cameras.len(),
            cameras,
            // Decoded in no time after that, so that what is late is noticed at the end.
            costs: Costs {
                decode: cost..=cost,
                network: Duration::ZERO..=Duration::ZERO,
                stalls: 0.0,
                stall: Duration::ZERO..=Duration::ZERO,
            },
            mishaps: Mishaps::default(),
            wake_delay: Duration::ZERO..=Duration::ZERO,
            age: None,
            shutdown: until,
            grace: Duration::from_mins(1),
            lingers: Some(Duration::ZERO),
        }
    }

    /// The run of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let r = &mut random;
        let costs = draw_costs(r);
        let workers = r.within(1..=8) as usize;
        let batch = if r.chance(0.3) { r.within(2..=8) as usize } else { 1 };
        // Small fleets as often as large ones.
        let most = r.one_of(&[3, 10, 25, 60]);
        let fleet = r.within(1..=most) as usize;
        let mut cameras = draw_cameras(r, fleet);
        let rate: f64 = cameras.iter().map(Camera::rate).sum();
        let span = Duration::from_secs_f64((r.within(FRAMES) as f64 / rate).clamp(0.1, 5.0));
        place(r, &mut cameras, span);
        let mut mishaps = Mishaps::default();
        for rate in
            [&mut mishaps.junk, &mut mishaps.broken, &mut mishaps.panics, &mut mishaps.fails]
        {
            *rate = r.one_of(&[0.0, 0.0, 0.01, 0.1]);
        }
        let age = r.chance(0.2).then(|| AgeLimit {
            age: r.time(span / 8..=span),
            jitter: r.unit(),
            grace: Duration::from_secs(10),
        });
        let wake_delay = Duration::ZERO..=r.one_of(&[Duration::ZERO, MS / 5, 5 * MS]);
        let lingers = (!r.chance(0.05)).then(|| r.time(Duration::ZERO..=50 * MS));
        Self {
            seed,
            order: Order::Drawn,
            workers,
            batch,
            max_cameras: if r.chance(0.2) { r.within(1..=fleet as u64) as usize } else { fleet },
            cameras,
            costs,
            mishaps,
            wake_delay,
            age,
            shutdown: r.time(span / 4..=span + span / 4),
            grace: Duration::from_secs(r.one_of(&[1, 1, 1, 3])),
            lingers,
        }
    }
}

impl Camera {
    /// Frames a second that are read from it, at most and about.
    fn rate(&self) -> f64 {
        (f64::from(self.burst) / self.period.as_secs_f64()).min(MOST_READ)
    }

    /// Ten frames a second, the first at once, without end.
    pub(crate) fn ten_fps() -> Self {
        Self {
            manner: Manner::Stream,
            opens: Duration::ZERO,
            until: Duration::MAX,
            period: 100 * MS,
            jitter: Duration::ZERO,
            burst: 1,
            budget: 1000 * MS,
            bytes: 60_000,
            shape: 0,
            reads: Reads::AtOnce,
            leaves: None,
            returns: None,
            finishes: true,
        }
    }
}

/// From a tenth of a machine's load to far more than it can do, as the fleet has it.
fn draw_costs(r: &mut Random) -> Costs {
    let decode = r.time(MS / 10..=5 * MS);
    let network = r.time(MS / 2..=30 * MS);
    let spread = r.one_of(&[1, 1, 2, 5]);
    Costs {
        decode: decode / spread..=decode,
        network: network / spread..=network,
        stalls: r.one_of(&[0.0, 0.0, 0.01, 0.05]),
        stall: 100 * MS..=r.one_of(&[200, 1000, 4000]) * MS,
    }
}

fn draw_cameras(r: &mut Random, fleet: usize) -> Vec<Camera> {
    let share = |r: &mut Random| r.one_of(&[0.0, 0.0, 0.1, 0.5]);
    let (floods, bursts, calls) = (share(r), share(r), share(r));
    let (leave, deaf, slow, hurried) = (share(r), share(r), share(r), share(r));
    // With so many workers and cameras, all frames of a size that reading takes time for, or of none.
    let sizes: &[usize] = r.one_of(&[&[60_000][..], &[0, 2_000, 60_000, 1_000_000]]);
    let shapes = r.one_of(&[1, 1, 3]);
    let camera = |_| {
        let period =
            if r.chance(floods) { r.time(MS / 5..=2 * MS) } else { r.time(33 * MS..=200 * MS) };
        let burst = if r.chance(bursts) { r.within(2..=12) as u32 } else { 1 };
        let reads = if r.chance(deaf) {
            Reads::Until(r.time(Duration::ZERO..=1000 * MS))
        } else if r.chance(slow) {
            Reads::Slowly(r.time(MS..=60 * MS))
        } else {
            Reads::AtOnce
        };
        Camera {
            manner: if r.chance(calls) { Manner::Calls } else { Manner::Stream },
            period: period * burst,
            jitter: period.mul_f64(r.one_of(&[0.0, 0.1, 2.0])),
            burst,
            budget: if r.chance(hurried) { r.time(MS..=100 * MS) } else { 1000 * MS },
            bytes: r.one_of(sizes),
            shape: r.below(shapes) as u8,
            reads,
            leaves: r.chance(leave).then(|| Leaves {
                after: r.time(Duration::ZERO..=500 * MS),
                on_pick: r.chance(0.5),
            }),
            returns: r.chance(0.7).then(|| r.time(Duration::ZERO..=300 * MS)),
            finishes: r.chance(0.5),
            ..Camera::ten_fps()
        }
    };
    (0..fleet).map(camera).collect()
}

/// When cameras come and stop: most from the start to the end, or at the same instant.
fn place(r: &mut Random, cameras: &mut [Camera], span: Duration) {
    let together = r.chance(0.2);
    for camera in cameras {
        let first = if r.chance(0.8) { camera.period.min(span) } else { span };
        camera.opens = if together { Duration::ZERO } else { r.time(Duration::ZERO..=first) };
        let short = r.chance(0.2);
        camera.until = if short { r.time(camera.opens..=span) } else { span };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_draw_fleets_from_one_to_sixty_cameras_with_every_kind_of_trouble() {
        let plans: Vec<_> = (0..300).map(Plan::draw).collect();
        let cameras = || plans.iter().flat_map(|plan| &plan.cameras);
        let count =
            |test: &dyn Fn(&Camera) -> bool| cameras().filter(|camera| test(camera)).count();
        assert!(plans.iter().any(|plan| plan.cameras.len() == 1));
        assert!(plans.iter().any(|plan| plan.cameras.len() > 50));
        assert!((1..=8).all(|workers| plans.iter().any(|plan| plan.workers == workers)));
        assert!(plans.iter().any(|plan| plan.batch > 1));
        assert!(plans.iter().any(|plan| plan.max_cameras < plan.cameras.len()));
        assert!(plans.iter().any(|plan| plan.age.is_some()));
        assert!(plans.iter().any(|plan| plan.lingers.is_none()));
        for (what, found) in [
            ("floods", count(&|c| c.burst == 1 && c.period < 3 * MS)),
            ("bursts", count(&|c| c.burst > 1)),
            ("calls", count(&|c| c.manner == Manner::Calls)),
            ("those that leave", count(&|c| c.leaves.is_some_and(|leaves| !leaves.on_pick))),
            ("those that leave on a pick", count(&|c| c.leaves.is_some_and(|l| l.on_pick))),
            ("deaf ones", count(&|c| matches!(c.reads, Reads::Until(_)))),
            ("slow ones", count(&|c| matches!(c.reads, Reads::Slowly(_)))),
            ("hurried ones", count(&|c| c.budget < 100 * MS)),
        ] {
            assert!(found > 100, "only {found} {what}");
        }
    }
}
