//! A run second by second: what all cameras together were answered.

use std::time::Duration;

use vedette_proto::camera_ai::StageTimes;

use crate::{
    report::schema::Timeline,
    schedule::Schedule,
    stats::{Distribution, StageSums},
};

/// Cuts the measured part into bins of equal length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bins {
    start: Duration,
    width: Duration,
    count: usize,
}

/// Most bins; runs beyond as many seconds get longer ones.
const MAX_BINS: u32 = 600;

impl Bins {
    /// Bins of whole seconds for the measured part of `schedule`.
    #[must_use]
    pub fn of(schedule: &Schedule) -> Self {
        let start = schedule.warmup();
        let span = schedule.length().max(start + schedule.measured()).saturating_sub(start);
        let width = Duration::from_secs((span.as_secs_f64() / f64::from(MAX_BINS)).ceil() as u64);
        let width = width.max(Duration::from_secs(1));
        let count = (span.as_secs_f64() / width.as_secs_f64()).ceil().max(1.0) as usize;
        Self { start, width, count }
    }

    /// How many there are, at least 1.
    #[must_use]
    pub fn count(self) -> usize {
        self.count
    }

    /// Length of each.
    #[must_use]
    pub fn width(self) -> Duration {
        self.width
    }

    /// The bin of a measured frame that is due at `offset`.
    #[must_use]
    pub fn index(self, offset: Duration) -> usize {
        let since = offset.saturating_sub(self.start);
        ((since.as_nanos() / self.width.as_nanos()) as usize).min(self.count - 1)
    }
}

/// One camera's frames of one bin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CameraBin {
    /// Slowest OK answer.
    pub max: Option<Duration>,
    /// Frames answered otherwise.
    pub not_ok: u64,
    /// Frames without an answer.
    pub unanswered: u64,
}

/// A measured answer, for the fleet's timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// The bin of its frame.
    pub bin: usize,
    /// From the intended instant of its frame.
    pub latency: Duration,
    /// Whether the outcome was OK.
    pub ok: bool,
    /// The server that answered.
    pub server: usize,
}

/// The answers of all cameras in each bin.
#[derive(Debug)]
pub struct FleetTimeline {
    bins: Bins,
    answers: Vec<FleetBin>,
    /// Up to the last server that answered anything.
    servers: Vec<ServerTimes>,
}

/// A server's OK answers.
#[derive(Debug, Clone)]
pub struct ServerTimes {
    /// Their latency.
    pub latency: Distribution,
    /// Their number in each bin.
    pub ok: Vec<u64>,
}

#[derive(Debug)]
struct FleetBin {
    latency: Distribution,
    ok: u64,
    not_ok: u64,
    stages: StageSums,
}

impl FleetTimeline {
    /// Without any answer yet.
    #[must_use]
    pub fn new(bins: Bins) -> Self {
        let empty = || FleetBin {
            latency: Distribution::lateness(),
            ok: 0,
            not_ok: 0,
            stages: StageSums::default(),
        };
        Self {
            bins,
            answers: std::iter::repeat_with(empty).take(bins.count()).collect(),
            servers: Vec::new(),
        }
    }

    /// Adds an answer.
    pub fn add(&mut self, measured: Measured, times: Option<&StageTimes>) {
        let bin = &mut self.answers[measured.bin];
        if !measured.ok {
            bin.not_ok += 1;
            return;
        }
        bin.ok += 1;
        bin.latency.record(measured.latency);
        if let Some(times) = times {
            bin.stages.record(times);
        }
        if self.servers.len() <= measured.server {
            self.servers.resize(measured.server + 1, self.none());
        }
        let server = &mut self.servers[measured.server];
        server.latency.record(measured.latency);
        server.ok[measured.bin] += 1;
    }

    /// The answers of each of `count` servers.
    #[must_use]
    pub fn servers(&self, count: usize) -> Vec<ServerTimes> {
        let mut servers = self.servers.clone();
        servers.resize(count, self.none());
        servers
    }

    /// A server that answered nothing.
    fn none(&self) -> ServerTimes {
        ServerTimes { latency: Distribution::latency(), ok: vec![0; self.bins.count()] }
    }

    /// As reported, with the frames that were not answered from the cameras' books. Bins at the end
    /// in which nothing was due are left out.
    #[must_use]
    pub fn finish<'a>(&self, cameras: impl Iterator<Item = &'a [CameraBin]>) -> Timeline {
        let mut unanswered = vec![0; self.answers.len()];
        for camera in cameras {
            for (sum, bin) in unanswered.iter_mut().zip(camera) {
                *sum += bin.unanswered;
            }
        }
        let mut timeline =
            Timeline { bin_seconds: self.bins.width().as_secs_f64(), ..Timeline::default() };
        let used = |(bin, &unanswered): (&FleetBin, &u64)| bin.ok + bin.not_ok + unanswered > 0;
        let count = self.answers.iter().zip(&unanswered).rposition(used).map_or(0, |last| last + 1);
        for (bin, unanswered) in self.answers.iter().zip(unanswered).take(count) {
            let figures = bin.latency.figures();
            timeline.ok.push(bin.ok);
            timeline.not_ok.push(bin.not_ok);
            timeline.unanswered.push(unanswered);
            timeline.p50_ms.push(figures.p50_ms);
            timeline.p99_ms.push(figures.p99_ms);
            timeline.max_ms.push(figures.max_ms);
            timeline.stages_mean_us.push(bin.stages.means());
        }
        timeline
    }
}
