//! What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere.

use std::{
    fmt::Write as _,
    io::IsTerminal as _,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{
    camera::{Fleet, Live},
    clock,
};

/// How often the bar is redrawn.
const BAR_INTERVAL: Duration = Duration::from_millis(250);

/// How often a line is printed when standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Template of the bar; the message holds the figures.
const TEMPLATE: &str = "{bar:30} {msg}";

/// Shows the fleet's progress on standard error until dropped or aborted.
pub async fn show(fleet: Arc<Fleet>) {
    let terminal = std::io::stderr().is_terminal();
    let length = fleet.schedule.length();
    let bar = terminal.then(|| bar(length));
    let mut ticks = tokio::time::interval(if terminal { BAR_INTERVAL } else { LINE_INTERVAL });
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    if !terminal {
        ticks.tick().await;
    }
    loop {
        ticks.tick().await;
        let elapsed = clock::now().saturating_duration_since(fleet.start).min(length);
        let line = figures(&fleet, elapsed, length);
        if let Some(bar) = &bar {
            bar.0.set_message(line);
            bar.0.set_position(clock::micros(elapsed));
        } else {
            crate::say(&line);
        }
    }
}

fn figures(fleet: &Fleet, elapsed: Duration, length: Duration) -> String {
    let live = &fleet.live;
    format!(
        "{:.0}/{:.0} s, sent {}, answered {}, slowest {:.1} ms{}",
        elapsed.as_secs_f64(),
        length.as_secs_f64(),
        live.sent.load(Relaxed),
        live.answered.load(Relaxed),
        live.worst_us.load(Relaxed) as f64 / 1e3,
        troubles(live),
    )
}

/// What a fleet without trouble does not have.
fn troubles(live: &Live) -> String {
    let mut text = String::new();
    for (count, what) in [
        (&live.not_ok, "not ok"),
        (&live.over_slo, "over the limit"),
        (&live.broken, "streams broken"),
    ] {
        let count = count.load(Relaxed);
        if count > 0 {
            // Writing to a String cannot fail.
            let _ = write!(text, ", {count} {what}");
        }
    }
    text
}

/// A bar that clears itself, also when its task is aborted.
struct ClearedBar(ProgressBar);

impl Drop for ClearedBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn bar(length: Duration) -> ClearedBar {
    let bar =
        ProgressBar::with_draw_target(Some(clock::micros(length)), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    ClearedBar(bar)
}
