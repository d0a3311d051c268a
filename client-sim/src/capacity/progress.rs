//! What a person sees of a search while it goes on: a bar on a terminal, a line per run elsewhere.

use std::{cell::Cell, io::IsTerminal as _, sync::atomic::Ordering::Relaxed, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{
    plan::{Plan, clock_text},
    search::{Next, Search},
};
use crate::{camera::Live, report::capacity::StepRun, verdict::counted};

/// Template of the bar; the message holds the figures.
const TEMPLATE: &str = "{bar:20} {msg}";

/// The bar counts seconds of estimated time.
const NO_LENGTH: u64 = 1;

/// Shows how far a search is.
pub(super) struct Progress {
    plan: Plan,
    show: Show,
    /// Estimated time left when the present run began.
    left: Cell<Duration>,
}

enum Show {
    Nothing,
    Lines,
    Bar(ProgressBar),
}

/// Where a search is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) search: &'a Search,
    /// The arrival phase, when several are searched.
    pub(super) phases: Option<&'a str>,
    /// Searches after this one.
    pub(super) later: u32,
    /// Time spent.
    pub(super) elapsed: Duration,
}

impl Progress {
    /// Tells the plan unless `quiet`.
    pub(super) fn start(quiet: bool, plan: Plan) -> Self {
        let show = if quiet {
            Show::Nothing
        } else if std::io::stderr().is_terminal() {
            Show::Bar(bar())
        } else {
            Show::Lines
        };
        let progress = Self { show, left: Cell::new(Duration::ZERO), plan };
        for line in progress.plan.text() {
            progress.note(line);
        }
        progress
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Says a line that stays.
    pub(super) fn note(&self, line: &str) {
        match &self.show {
            Show::Nothing => {}
            Show::Lines => crate::say(line),
            Show::Bar(bar) => bar.suspend(|| crate::say(line)),
        }
    }

    /// A run begins.
    pub(super) fn begin(&self, place: &Place<'_>) {
        self.left.set(self.plan.left(place.search, place.later));
        self.update(place, "");
    }

    /// A run goes on.
    pub(super) fn look(&self, place: &Place<'_>, live: &Live) {
        let worst = live.worst_us.load(Relaxed) as f64 / 1e3;
        let answered = live.answered.load(Relaxed);
        self.update(place, &format!(", answered {answered}, slowest {worst:.1} ms"));
    }

    /// A run has ended; `place` is where the search is after it.
    pub(super) fn finished(&self, cameras: u32, run: &StepRun, place: &Place<'_>) {
        if matches!(self.show, Show::Lines) {
            let left = self.plan.left(place.search, place.later);
            crate::say(&format!(
                "{}{}: {}; {}; {} elapsed, about {} left",
                of_phase(place),
                counted(u64::from(cameras), "camera"),
                result(run),
                bracket(place.search),
                clock_text(place.elapsed),
                clock_text(left),
            ));
        }
    }

    fn update(&self, place: &Place<'_>, more: &str) {
        let Show::Bar(bar) = &self.show else { return };
        let left = self.left.get();
        bar.set_length((place.elapsed + left).as_secs().max(NO_LENGTH));
        bar.set_position(place.elapsed.as_secs());
        let step = match place.search.next() {
            Next::Run { cameras, stage, run } => {
                let repeats = place.search.rules.repeats;
                let cameras = counted(u64::from(cameras), "camera");
                format!("{cameras} ({}, run {run} of up to {repeats})", stage.name())
            }
            Next::Done(_) => "done".to_owned(),
        };
        bar.set_message(format!(
            "{}{step}{more}; {}; {} elapsed, about {} left",
            of_phase(place),
            bracket(place.search),
            clock_text(place.elapsed),
            clock_text(left),
        ));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Show::Bar(bar) = &self.show {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(NO_LENGTH), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    bar
}

fn of_phase(place: &Place<'_>) -> String {
    place.phases.map_or_else(String::new, |phases| format!("{phases}: "))
}

/// Between what numbers the limit is.
fn bracket(search: &Search) -> String {
    match search.bracket() {
        (held, Some(failed)) => format!("limit between {held} and {failed}"),
        (0, None) => "limit unknown".to_owned(),
        (held, None) => format!("limit at {held} or above"),
    }
}

fn result(run: &StepRun) -> String {
    let ms = run.max_ms.map_or_else(String::new, |ms| format!(", slowest answer {ms:.1} ms"));
    let short = if run.cut_short { ", cut short" } else { "" };
    let ok = if run.ok < run.sent {
        format!(", {} of {} frames ok", run.ok, run.sent)
    } else {
        String::new()
    };
    format!("{}{ms}{ok}{short}", run.verdict.word())
}
