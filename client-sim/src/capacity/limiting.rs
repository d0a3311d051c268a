//! What ran out first at the limit, told from figures and never guessed.

use std::fmt::Write as _;

use super::search::Ended;
use crate::report::{
    capacity::{Limiting, StepFigures, StepRun},
    schema::{SelfTestFigures, Verdict},
};

/// Share of the time from which a server's workers count as used up. A queue in front of them needs some
/// idle time to keep its waits short, so a limit on the slowest answer is reached below 1.
const WORKERS_BUSY: f64 = 0.9;

/// Processor time of the server per worker from which they count as used up.
const CORES_PER_WORKER: f64 = 0.9;

/// Share of a machine's cores from which the machine counts as used up.
const MACHINE_BUSY: f64 = 0.95;

/// Share of a machine's cores from which other programs count as a disturbance.
const DISTURBED: f64 = 0.05;

/// Share of a network link's speed from which pictures alone count as filling it: headers, the packets'
/// own overhead and uneven arrival take the rest.
const LINK_BUSY: f64 = 0.85;

/// What a limit is called that is the simulator's own.
pub const SIMULATOR: &str = "simulator-cpu";

/// What a decision is made from.
#[derive(Debug)]
pub struct Facts<'a> {
    /// How the search ended; `None` while it has not.
    pub ended: Option<Ended>,
    /// The largest number that held.
    pub found: u32,
    /// Everything that was tried.
    pub steps: &'a [StepFigures],
    /// Whether server and simulator share a machine.
    pub same_machine: bool,
    /// Cores of the simulator's machine.
    pub cores: usize,
    /// Threads of the server that compute, when it says so.
    pub workers: Option<u32>,
    /// Cameras that the server takes at most, when it says so.
    pub server_takes: Option<u32>,
    /// Speed of this machine's fastest network link in megabits per second, when known.
    pub link_mbit_per_s: Option<f64>,
    /// Why the server's metrics could not be had; `None` when they could.
    pub no_metrics: Option<&'a str>,
    /// The simulator against a server that answers at once, when even so it did not keep the limits.
    pub self_test: Option<&'a SelfTestFigures>,
}

/// Decides what ran out first.
#[must_use]
pub fn limiting(facts: &Facts<'_>) -> Limiting {
    let of = |resource: &str, why: String| Limiting { resource: resource.to_owned(), why };
    match facts.ended {
        Some(Ended::MaxCameras) => {
            let server = facts.server_takes.filter(|takes| *takes == facts.found);
            let why = server.map_or_else(
                || format!("no limit up to {} cameras, the most to be tried", facts.found),
                |takes| format!("no limit up to {takes} cameras, the most that the server takes"),
            );
            return of("unknown", why);
        }
        Some(Ended::Simulator) => return of(SIMULATOR, simulator(facts)),
        Some(Ended::Slo) | None => {}
    }
    if let Some(test) = facts.self_test {
        let why = format!(
            "against a server that answers at once the simulator itself did not keep the limits \
             with {} cameras: slowest answer {:.1} ms",
            test.cameras,
            test.max_ms.unwrap_or(f64::INFINITY)
        );
        return of(SIMULATOR, why);
    }
    let Some(load) = Load::at_the_limit(facts) else {
        return of("unknown", "nothing was measured at the limit".to_owned());
    };
    let (resource, why) = load.decide(facts);
    of(resource, why)
}

/// The reasons of the runs that said nothing about the server.
fn simulator(facts: &Facts<'_>) -> String {
    let runs = facts.steps.iter().rev().flat_map(|step| step.runs.iter().rev());
    let mut invalid = runs.filter(|run| run.verdict == Verdict::Invalid);
    let reason = invalid.next().and_then(|run| run.reasons.first().cloned());
    reason.unwrap_or_else(|| "the simulator was the bottleneck".to_owned())
}

/// Means over the runs at the limit.
#[derive(Debug)]
struct Load {
    cameras: u32,
    busy: Option<f64>,
    server_cores: Option<f64>,
    simulator_cores: f64,
    others: f64,
    mbit_per_s: f64,
}

impl Load {
    /// Of the smallest fleet above the one found, where something ran out; else of the one found.
    fn at_the_limit(facts: &Facts<'_>) -> Option<Self> {
        let tried = || facts.steps.iter().filter(|step| !step.runs.is_empty()).map(|s| s.cameras);
        let above = tried().filter(|&n| n > facts.found).min();
        let cameras = above.or_else(|| tried().filter(|&n| n == facts.found).max())?;
        let steps = facts.steps.iter().filter(|step| step.cameras == cameras);
        let runs: Vec<&StepRun> = steps.flat_map(|step| &step.runs).collect();
        let mean = |of: fn(&StepRun) -> Option<f64>| {
            let values: Vec<f64> = runs.iter().filter_map(|run| of(run)).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        Some(Self {
            cameras,
            busy: mean(|run| run.server_busy),
            server_cores: mean(|run| run.server_cpu_cores),
            simulator_cores: mean(|run| Some(run.simulator_cpu_cores)).unwrap_or(0.0),
            others: mean(|run| run.others_cpu_cores).unwrap_or(0.0),
            mbit_per_s: mean(|run| Some(run.sent_mbit_per_s)).unwrap_or(0.0),
        })
    }

    fn decide(&self, facts: &Facts<'_>) -> (&'static str, String) {
        let cores = facts.cores as f64;
        let together = self.server_cores.map(|server| server + self.simulator_cores);
        let machine_full = together.is_some_and(|used| used + self.others >= MACHINE_BUSY * cores);
        let workers = facts.workers.filter(|workers| *workers > 0).map(f64::from);
        let workers_full = self.busy.is_some_and(|busy| busy >= WORKERS_BUSY)
            || self.server_cores.zip(workers).is_some_and(|(c, w)| c >= CORES_PER_WORKER * w);
        let link = facts.link_mbit_per_s.filter(|_| !facts.same_machine);
        let resource = if facts.same_machine && machine_full {
            "machine-cpu"
        } else if workers_full {
            "server-cpu"
        } else if link.is_some_and(|link| self.mbit_per_s >= LINK_BUSY * link) {
            "network"
        } else {
            "unknown"
        };
        (resource, self.figures(facts, together, link))
    }

    /// The figures, the same ones for every decision, so that the reader can decide otherwise.
    fn figures(&self, facts: &Facts<'_>, together: Option<f64>, link: Option<f64>) -> String {
        let mut text = format!("at {} cameras", self.cameras);
        // Writing to a String cannot fail.
        if let Some(busy) = self.busy {
            let _ =
                write!(text, " the server's workers were busy {:.0} % of the time", busy * 100.0);
        }
        if let Some(server) = self.server_cores {
            let joint = if self.busy.is_some() { " and" } else { " the server" };
            let _ = write!(text, "{joint} used {server:.2} cores");
        }
        if let Some(workers) = facts.workers.filter(|_| self.server_cores.is_some()) {
            let _ = write!(text, " for {workers} workers");
        }
        if let Some(together) = together.filter(|_| facts.same_machine) {
            let _ = write!(
                text,
                "; with the simulator's {:.2} that is {together:.2} of the {} cores that both share",
                self.simulator_cores, facts.cores
            );
        } else {
            let _ = write!(text, "; the simulator used {:.2} cores", self.simulator_cores);
        }
        if self.others >= DISTURBED * facts.cores as f64 {
            let _ = write!(
                text,
                "; other programs took {:.2} more, without which the server may hold more cameras",
                self.others
            );
        }
        let _ = write!(text, "; {:.0} Mbit/s of pictures", self.mbit_per_s);
        if let Some(link) = link {
            let _ = write!(text, " over a link of {link:.0}");
        }
        if let Some(why) = facts.no_metrics {
            let _ = write!(text, "; the server's own use is not known ({why})");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(busy: Option<f64>, server: Option<f64>, simulator: f64, mbit: f64) -> StepRun {
        StepRun {
            server_busy: busy,
            server_cpu_cores: server,
            simulator_cpu_cores: simulator,
            sent_mbit_per_s: mbit,
            ..StepRun::of(Verdict::Fail)
        }
    }

    fn decided(run: StepRun, change: impl FnOnce(&mut Facts<'_>)) -> Limiting {
        let step =
            |cameras, runs| StepFigures { cameras, phase: "grow".into(), passed: false, runs };
        let steps =
            [step(8, vec![StepRun::of(Verdict::Pass)]), step(16, Vec::new()), step(9, vec![run])];
        let mut facts = Facts {
            ended: Some(Ended::Slo),
            found: 8,
            steps: &steps,
            same_machine: false,
            cores: 2,
            workers: Some(2),
            server_takes: None,
            link_mbit_per_s: Some(100.0),
            no_metrics: None,
            self_test: None,
        };
        change(&mut facts);
        limiting(&facts)
    }

    /// A simulator that is too slow by itself.
    const ALONE: SelfTestFigures = SelfTestFigures {
        cameras: 40,
        seconds: 3.0,
        sent: 1200,
        ok: 1200,
        p99_ms: Some(90.0),
        max_ms: Some(150.0),
        cpu_cores: 1.0,
    };

    #[test]
    fn the_figures_decide() {
        let busy = || run(Some(0.96), Some(1.85), 0.2, 40.0);
        let resource = |run, change: fn(&mut Facts<'_>)| decided(run, change).resource;
        assert_eq!(resource(busy(), |_| ()), "server-cpu");
        assert_eq!(resource(busy(), |facts| facts.same_machine = true), "machine-cpu");
        assert_eq!(resource(run(None, Some(1.85), 0.0, 40.0), |_| ()), "server-cpu");
        assert_eq!(resource(run(Some(0.5), Some(1.0), 0.1, 86.0), |_| ()), "network");
        let idle = || run(Some(0.5), Some(1.0), 0.1, 40.0);
        assert_eq!(resource(idle(), |_| ()), "unknown");
        assert_eq!(resource(idle(), |facts| facts.same_machine = true), "unknown");
        assert_eq!(resource(run(None, None, 0.1, 500.0), |f| f.link_mbit_per_s = None), "unknown");
        assert_eq!(resource(busy(), |facts| facts.ended = Some(Ended::Simulator)), "simulator-cpu");
        assert_eq!(resource(busy(), |facts| facts.ended = Some(Ended::MaxCameras)), "unknown");
        assert_eq!(resource(busy(), |facts| facts.self_test = Some(&ALONE)), SIMULATOR);
    }

    #[test]
    fn the_reason_holds_the_figures() {
        let shared = decided(run(Some(0.96), Some(1.85), 0.2, 40.0), |f| f.same_machine = true);
        assert_eq!(
            shared.why,
            "at 9 cameras the server's workers were busy 96 % of the time and used 1.85 cores for 2 \
             workers; with the simulator's 0.20 that is 2.05 of the 2 cores that both share; 40 Mbit/s \
             of pictures"
        );
        let mut disturbed = run(Some(0.7), Some(1.1), 0.1, 40.0);
        disturbed.others_cpu_cores = Some(0.8);
        let disturbed = decided(disturbed, |facts| facts.same_machine = true);
        assert_eq!(disturbed.resource, "machine-cpu");
        assert!(disturbed.why.contains("other programs took 0.80 more"), "{}", disturbed.why);
        let blind = decided(run(None, None, 0.2, 40.0), |f| f.no_metrics = Some("no answer"));
        assert_eq!(
            blind.why,
            "at 9 cameras; the simulator used 0.20 cores; 40 Mbit/s of pictures over a link of 100; \
             the server's own use is not known (no answer)"
        );
        let capped = decided(run(None, None, 0.0, 0.0), |facts| {
            (facts.ended, facts.server_takes) = (Some(Ended::MaxCameras), Some(8));
        });
        assert!(capped.why.ends_with("the most that the server takes"), "{}", capped.why);
    }
}
