//! Which number of cameras to try next: a pure function of what was tried so far.
//!
//! The pass of a fleet is a noisy answer. A machine stalls for 200 ms now and then and fails a fleet
//! that it holds; a fleet one camera too large gets lucky. Both are answered here:
//!
//! - a step takes the majority of its runs, and the steps at the limit are taken again: a limit counts
//!   only when the number found held two steps in a row and one camera more failed two in a row, or three
//!   where a run disagreed;
//! - a step that contradicts an earlier one replaces it, and the search goes on from what is still
//!   believed: upwards in strides that double when the upper bound fell, by bisection when the lower did;
//! - when the same numbers keep contradicting themselves, the limit lies where the fleet holds about
//!   every other time. Then all runs are weighed together, and the spread tells.
//!
//! The log of steps is the whole state: written to a file and read back it continues as if nothing had
//! happened.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::{
    capacity::{StepFigures, StepRun},
    schema::Verdict,
};

#[cfg(test)]
mod tests;

/// Runs of a step that may be repeated because they said nothing about the server.
pub const MOST_INVALID: u32 = 2;

/// How often steps may contradict earlier ones of the same number before all runs are weighed together.
/// A limit that is not exactly at a whole camera causes one or two; more of them add time, not knowledge.
pub const MOST_REVERSALS: u32 = 5;

/// Steps that a reversal can cost on the way back to a confirmed limit: a few strides or bisections and
/// a few confirmations. Together with the others it bounds the search.
const STEPS_PER_REVERSAL: u32 = 5;

/// Steps in a row that must agree on the number found, and on one camera more; one more where a run
/// disagreed. Simulated with 15 % of the runs failing for no reason, that step makes three searches agree in
/// 97 instead of 91 of 100 cases, for a tenth more time.
const CONFIRMED: u32 = 2;

/// What to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The first fleet tried, at least 1.
    pub from: u32,
    /// The largest fleet tried, at least `from`.
    pub max_cameras: u32,
    /// Most runs of a step, at least 1; the majority of them decides.
    pub repeats: u32,
}

/// Why a number of cameras is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Looking for a fleet that is too large.
    Grow,
    /// Between one that held and one that did not.
    Bisect,
    /// Once more, to be sure.
    Confirm,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A run.
    Run {
        /// With so many cameras.
        cameras: u32,
        /// For this reason.
        stage: Stage,
        /// Of the step, from 1.
        run: u32,
    },
    /// Nothing: the search is over.
    Done(Ended),
}

/// Why there is no larger number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The server did not hold one camera more.
    Slo,
    /// The largest fleet to be tried held.
    MaxCameras,
    /// With one camera more the simulator was the bottleneck.
    Simulator,
}

/// What the search knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knowledge {
    /// The largest number that held; `None` while none was tried, 0 when not even one camera did.
    pub found: Option<u32>,
    /// The largest number up to `found` that held in every run.
    pub sure: Option<u32>,
    /// The smallest number above `found` that failed in every run.
    pub refuted: Option<u32>,
}

/// A search: its rules and the log of what was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// What to search.
    pub rules: Rules,
    /// The steps so far, in order; only the last one may be unfinished.
    pub steps: Vec<StepFigures>,
}

impl Rules {
    /// Most steps of a search, whatever the server does.
    #[must_use]
    pub fn most_steps(&self) -> u32 {
        let halvings = |n: u32| n.max(1).next_power_of_two().ilog2();
        let growth = halvings(self.max_cameras.div_ceil(self.from)) + 2;
        let bisection = halvings(self.max_cameras);
        growth + bisection + 2 * CONFIRMED + MOST_REVERSALS * STEPS_PER_REVERSAL
    }

    /// Most runs of a search, whatever the server does, when none has to be repeated because it said
    /// nothing about the server.
    #[must_use]
    pub fn most_runs(&self) -> u32 {
        self.most_steps() * self.repeats
    }

    /// Runs that must pass.
    fn majority(&self) -> u32 {
        self.repeats / 2 + 1
    }

    /// What a step comes to; `None` while that is open.
    fn decision(&self, step: &StepFigures) -> Option<Decision> {
        let count = |verdict| step.runs.iter().filter(|run| run.verdict == verdict).count() as u32;
        if count(Verdict::Pass) >= self.majority() {
            Some(Decision::Held)
        } else if count(Verdict::Fail) > self.repeats - self.majority() {
            Some(Decision::Failed)
        } else if count(Verdict::Invalid) > MOST_INVALID {
            Some(Decision::Unknowable)
        } else {
            None
        }
    }
}

/// What a step comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Held,
    Failed,
    /// The simulator was the bottleneck again and again.
    Unknowable,
}

impl Stage {
    /// As reports write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Grow => "grow",
            Self::Bisect => "bisect",
            Self::Confirm => "confirm",
        }
    }
}

impl Ended {
    /// As reports write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Slo => "slo",
            Self::MaxCameras => "max-cameras",
            Self::Simulator => "simulator",
        }
    }
}

impl Search {
    /// A search that has tried nothing yet.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, steps: Vec::new() }
    }

    /// What to do next.
    #[must_use]
    pub fn next(&self) -> Next {
        if let Some(open) = self.open() {
            let stage = [Stage::Grow, Stage::Bisect, Stage::Confirm]
                .into_iter()
                .find(|stage| stage.name() == open.phase)
                .unwrap_or(Stage::Confirm);
            return Next::Run { cameras: open.cameras, stage, run: open.runs.len() as u32 + 1 };
        }
        let beliefs = self.beliefs();
        let too_long = self.steps.len() as u32 >= self.rules.most_steps();
        if too_long || beliefs.reversals > MOST_REVERSALS {
            return Next::Done(self.ended(&beliefs));
        }
        match self.candidate(&beliefs) {
            Some((cameras, stage)) => Next::Run { cameras, stage, run: 1 },
            None => Next::Done(self.ended(&beliefs)),
        }
    }

    /// Takes the result of the run that [`Search::next`] asked for; ignored when it asked for none.
    pub fn record(&mut self, run: StepRun) {
        let Next::Run { cameras, stage, .. } = self.next() else { return };
        if self.open().is_none() {
            let phase = stage.name().to_owned();
            self.steps.push(StepFigures { cameras, phase, passed: false, runs: Vec::new() });
        }
        let rules = self.rules;
        if let Some(step) = self.steps.last_mut() {
            step.runs.push(run);
            step.passed = rules.decision(step) == Some(Decision::Held);
        }
    }

    /// The numbers between which the limit is believed to be: the largest that held, 0 for none, and the
    /// smallest that did not.
    #[must_use]
    pub fn bracket(&self) -> (u32, Option<u32>) {
        let beliefs = self.beliefs();
        (beliefs.held(), beliefs.failed())
    }

    /// The largest fleet tried, 0 for none.
    #[must_use]
    pub fn largest_tried(&self) -> u32 {
        self.steps.iter().map(|step| step.cameras).max().unwrap_or(0)
    }

    /// What is known so far.
    #[must_use]
    pub fn knowledge(&self) -> Knowledge {
        let beliefs = self.beliefs();
        let contested = beliefs.reversals > MOST_REVERSALS
            || self.steps.len() as u32 >= self.rules.most_steps();
        let found = match (beliefs.held(), beliefs.failed()) {
            (held, _) if contested => Some(self.weighed().unwrap_or(held)),
            (0, Some(1)) => Some(0),
            (0, _) => None,
            (held, _) => Some(held),
        };
        let all = |cameras: u32, verdict: Verdict| {
            let mut runs = self.runs().filter(|&(n, _)| n == cameras).peekable();
            runs.peek().is_some() && runs.all(|(_, run)| run.verdict == verdict)
        };
        let tried = || self.steps.iter().map(|step| step.cameras);
        let sure = |found| tried().filter(|&n| n <= found && all(n, Verdict::Pass)).max();
        let refuted = |found| tried().filter(|&n| n > found && all(n, Verdict::Fail)).min();
        Knowledge { found, sure: found.and_then(sure), refuted: refuted(found.unwrap_or(0)) }
    }

    /// Runs that are still to come if fleets of up to `capacity` cameras held from now on: how many of
    /// them pass and how many fail.
    #[must_use]
    pub fn forecast(&self, capacity: u32) -> (u32, u32) {
        let mut copy = self.clone();
        let (mut passing, mut failing) = (0, 0);
        while let Next::Run { cameras, .. } = copy.next() {
            let pass = cameras <= capacity;
            *(if pass { &mut passing } else { &mut failing }) += 1;
            copy.record(StepRun::of(if pass { Verdict::Pass } else { Verdict::Fail }));
        }
        (passing, failing)
    }

    /// The step that needs more runs.
    fn open(&self) -> Option<&StepFigures> {
        self.steps.last().filter(|step| self.rules.decision(step).is_none())
    }

    fn runs(&self) -> impl Iterator<Item = (u32, &StepRun)> {
        self.steps.iter().flat_map(|step| step.runs.iter().map(|run| (step.cameras, run)))
    }

    fn beliefs(&self) -> Beliefs {
        let mut beliefs = Beliefs::default();
        for step in &self.steps {
            if let Some(decision) = self.rules.decision(step) {
                beliefs.learn(step, decision);
            }
        }
        beliefs
    }

    /// The number of cameras to try next; `None` when the limit is confirmed on both sides.
    fn candidate(&self, beliefs: &Beliefs) -> Option<(u32, Stage)> {
        let Rules { from, max_cameras, .. } = self.rules;
        let held = beliefs.held();
        match beliefs.failed() {
            None if held == 0 => Some((from, Stage::Grow)),
            None if held < max_cameras => {
                let stride = beliefs.stride.unwrap_or(held);
                Some((held.saturating_add(stride).min(max_cameras), Stage::Grow))
            }
            Some(failed) if failed - held > 1 => {
                // A first fleet that failed says nothing about its half; bisection starts from 0.
                Some((held + (failed - held) / 2, Stage::Bisect))
            }
            failed => {
                let sure = |n: u32| beliefs.steps.get(&n).copied().is_some_and(Belief::confirmed);
                let doubtful = |n: &u32| !sure(*n);
                let lower = Some(held).filter(|&n| n > 0).filter(doubtful);
                lower.or(failed.filter(doubtful)).map(|n| (n, Stage::Confirm))
            }
        }
    }

    fn ended(&self, beliefs: &Beliefs) -> Ended {
        let last_of = |n| self.steps.iter().rev().find(|step| step.cameras == n);
        match beliefs.failed() {
            None => Ended::MaxCameras,
            Some(failed) => {
                let decision = last_of(failed).and_then(|step| self.rules.decision(step));
                if decision == Some(Decision::Unknowable) { Ended::Simulator } else { Ended::Slo }
            }
        }
    }

    /// The limit that agrees with most runs, passes up to it and failures beyond; the lower one of equals.
    /// `None` when nothing was tried.
    fn weighed(&self) -> Option<u32> {
        let mut tried: Vec<u32> = self.steps.iter().map(|step| step.cameras).collect();
        tried.push(0);
        let agreeing = |limit: u32| {
            let agrees = |&(n, run): &(u32, &StepRun)| match run.verdict {
                Verdict::Pass => n <= limit,
                Verdict::Fail => n > limit,
                Verdict::Invalid => false,
            };
            self.runs().filter(agrees).count()
        };
        tried.into_iter().max_by_key(|&limit| (agreeing(limit), std::cmp::Reverse(limit)))
    }
}

/// What steps have shown, as far as later ones have not shown otherwise: all numbers that held are below
/// all that did not.
#[derive(Debug, Default)]
struct Beliefs {
    steps: BTreeMap<u32, Belief>,
    /// Steps that contradicted an earlier one of the same number.
    reversals: u32,
    /// How far to go up next; `None` until an upper bound fell: then as far as one has come.
    stride: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Belief {
    held: bool,
    /// Steps in a row that said so.
    times: u32,
    /// Whether every run of those steps said so.
    unanimous: bool,
}

impl Belief {
    fn confirmed(self) -> bool {
        self.times >= CONFIRMED + u32::from(!self.unanimous)
    }
}

impl Beliefs {
    fn held(&self) -> u32 {
        self.steps.iter().rev().find(|(_, belief)| belief.held).map_or(0, |(&n, _)| n)
    }

    fn failed(&self) -> Option<u32> {
        self.steps.iter().find(|(_, belief)| !belief.held).map(|(&n, _)| n)
    }

    fn learn(&mut self, step: &StepFigures, decision: Decision) {
        let (cameras, held) = (step.cameras, decision == Decision::Held);
        let before = self.steps.get(&cameras).copied();
        let agrees = before.filter(|belief| belief.held == held);
        if before.is_some() && agrees.is_none() {
            self.reversals += 1;
            self.stride = Some(1);
        } else if let Some(stride) = self.stride.as_mut().filter(|_| held) {
            *stride = stride.saturating_mul(2);
        }
        // What holds with more cameras holds with fewer, and the other way round.
        self.steps.retain(|&n, belief| {
            if held { belief.held || n > cameras } else { !belief.held || n < cameras }
        });
        let against = if held { Verdict::Fail } else { Verdict::Pass };
        let belief = Belief {
            held,
            times: agrees.map_or(0, |belief| belief.times) + 1,
            unanimous: agrees.is_none_or(|belief| belief.unanimous)
                && step.runs.iter().all(|run| run.verdict != against),
        };
        self.steps.insert(cameras, belief);
    }
}
