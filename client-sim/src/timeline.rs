//! A run second by second: what all cameras together were answered.

use vedette_proto::camera_ai::StageTimes;

use crate::{
    record::{Bins, CameraBin, Measured},
    report::schema::Timeline,
    stats::{Distribution, StageSums},
};

/// The answers of all cameras in each bin.
#[derive(Debug)]
pub struct FleetTimeline {
    bins: Bins,
    answers: Vec<FleetBin>,
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
        Self { bins, answers: std::iter::repeat_with(empty).take(bins.count()).collect() }
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
