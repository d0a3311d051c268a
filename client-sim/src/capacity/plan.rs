//! What a search is going to do and how long that takes, before it begins and while it goes on.

use std::time::Duration;

use super::{
    book::phases_text,
    search::{Rules, Search},
};
use crate::{clock::millis, config::CapacityConfig, schedule::Schedule, verdict::counted};

/// Time of a run beside its frames and the wait for its last answers: connecting, the lead, the pause before
/// the next run.
const OVERHEAD: Duration = Duration::from_secs(1);

/// How long a failing run goes on after its warm-up, as far as one can know before: until the first slow
/// answers come, a short grace, and the answers still under way.
const FAILING: Duration = Duration::from_secs(2);

/// Fleets between which the result lies that typical times are told for.
const TYPICAL: (u32, u32) = (10, 100);

/// What is planned.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    rules: Rules,
    searches: u32,
    /// Length of a run that passes.
    passing: Duration,
    /// Length of one that fails, most often.
    failing: Duration,
    /// Longest run.
    longest: Duration,
    text: Vec<String>,
}

impl Plan {
    pub(super) fn of(config: &CapacityConfig, rules: Rules) -> Self {
        let longest_of = |cameras: u32| {
            let length = |&phases| {
                let mut scenario = config.run.scenario.clone();
                (scenario.groups[0].cameras, scenario.phases) = (cameras, phases);
                Schedule::of(&scenario).length()
            };
            config.phases.iter().map(length).max().unwrap_or_default()
        };
        let usual = longest_of(TYPICAL.1.min(rules.max_cameras)) + OVERHEAD;
        let scenario = &config.run.scenario;
        let mut plan = Self {
            rules,
            searches: config.phases.len() as u32,
            passing: usual,
            failing: usual.min(scenario.warmup + FAILING + OVERHEAD),
            longest: longest_of(rules.max_cameras) + config.run.drain + OVERHEAD,
            text: Vec::new(),
        };
        plan.text = plan.lines(config);
        plan
    }

    /// The plan for people, line by line.
    pub(super) fn text(&self) -> &[String] {
        &self.text
    }

    /// Longest run.
    pub(super) fn longest_run(&self) -> Duration {
        self.longest
    }

    /// Longest time of all searches.
    pub(super) fn most(&self) -> Duration {
        self.longest * self.rules.most_runs() * self.searches
    }

    /// Time that `search` still takes, with `whole` more ones after it, when so much is known already.
    pub(super) fn left(&self, search: &Search, whole: u32) -> Duration {
        let capacity = match search.bracket() {
            (held, Some(failed)) => held + (failed - held) / 2,
            // Somewhere beyond; twice as many as held are as good a guess as any.
            (held, None) => held.max(self.rules.from).saturating_mul(2),
        };
        let after = self.duration(&Search::new(self.rules), capacity);
        self.duration(search, capacity) + after * whole
    }

    fn duration(&self, search: &Search, capacity: u32) -> Duration {
        let (passing, failing) = search.forecast(capacity);
        self.passing * passing + self.failing * failing
    }

    fn typical(&self) -> String {
        let cap = |n: u32| n.clamp(self.rules.from, self.rules.max_cameras);
        let (low, high) = (cap(TYPICAL.0), cap(TYPICAL.1));
        let of = |capacity| self.duration(&Search::new(self.rules), capacity) * self.searches;
        let (short, long) = (of(low).min(of(high)), of(low).max(of(high)));
        if low == high {
            format!(
                "about {} when {} are held",
                clock_text(long),
                counted(u64::from(low), "camera")
            )
        } else {
            format!(
                "{} to {} when {low} to {high} cameras are held and nothing disturbs",
                clock_text(short),
                clock_text(long)
            )
        }
    }

    fn lines(&self, config: &CapacityConfig) -> Vec<String> {
        let (rules, scenario, slo) = (self.rules, &config.run.scenario, &config.run.slo);
        let phases: Vec<String> = config.phases.iter().map(|&phases| phases_text(phases)).collect();
        let percentile =
            |&(p, limit): &(f64, Duration)| format!(", p{p} within {} ms", millis(limit));
        let percentiles: String = slo.percentiles.iter().map(percentile).collect();
        let limits = format!("every answer within {} ms{percentiles}", millis(slo.max));
        let share = if slo.min_answered_ratio < 1.0 {
            format!("at least {} of the frames", slo.min_answered_ratio)
        } else {
            "every frame".to_owned()
        };
        let seconds = |duration: Duration| duration.as_secs_f64();
        let mut lines = vec![
            format!(
                "plan: from {} to at most {}, doubling, then bisection and confirmation; arrival \
                 phase {}",
                counted(u64::from(rules.from), "camera"),
                rules.max_cameras,
                phases.join(", then "),
            ),
            format!("limits: {limits}, {share} answered OK"),
            format!(
                "runs: {} s after {} s of warm-up, up to {} of each number of cameras, the majority \
                 decides; failing ones are cut short",
                seconds(scenario.measured),
                seconds(scenario.warmup),
                rules.repeats,
            ),
            format!(
                "time: {}; at most {} runs and {}",
                self.typical(),
                rules.most_runs() * self.searches,
                clock_text(self.most()),
            ),
        ];
        if let Some(most) = config.most_time.filter(|most| *most < self.most()) {
            lines.push(format!("time: --max-minutes ends it after {}", clock_text(most)));
        }
        if let Some(state) = &config.state {
            lines.push(format!("state: kept in {}", state.display()));
        }
        lines
    }
}

/// As in `4:05 min` or `1:02:03 h`.
pub(super) fn clock_text(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02} h")
    } else {
        format!("{minutes}:{seconds:02} min")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_a_clock_does() {
        for (seconds, text) in [(0, "0:00 min"), (65, "1:05 min"), (3723, "1:02:03 h")] {
            assert_eq!(clock_text(Duration::from_secs(seconds)), text);
        }
    }
}
