//! Axes: which values they show, and how they are drawn.

use std::fmt::Write as _;

use super::{
    Layout, PLACES, Plot,
    scale::{Kind, Scale, nice_top},
};
use crate::report::html::text::{count, escape, number};

/// About the width of a character of the axes' values, with room to the next value, in pixels.
const CHAR_WIDTH: f64 = 7.5;

impl Plot<'_> {
    /// Grid lines and values of the y axis, its name with the unit above it.
    pub fn y_axis(&mut self, name: &str, at_most: usize) {
        let (left, right) = self.x.range;
        for tick in self.y.ticks(at_most) {
            let y = number(self.y.place(tick), PLACES);
            let (text, left, right) = (tick_text(tick), number(left, 1), number(right, 1));
            let beside = number(self.x.range.0 - 8.0, 1);
            let _ = write!(
                self.under,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y}\" y2=\"{y}\"/>\
                 <text class=\"tick\" x=\"{beside}\" y=\"{y}\" dy=\".32em\" \
                 text-anchor=\"end\">{text}</text>"
            );
        }
        let top = number(self.y.range.1 - 12.0, 1);
        let _ = write!(
            self.under,
            "<text class=\"axis\" x=\"{}\" y=\"{top}\">{}</text>",
            if self.layout == Layout::Wide { 8 } else { 2 },
            escape(name)
        );
    }

    /// Values of the x axis and its name below.
    pub fn x_axis(&mut self, name: &str, at_most: usize) {
        let ticks: Vec<_> =
            self.x.ticks(at_most).into_iter().map(|tick| (tick, tick_text(tick))).collect();
        self.x_axis_with(name, &ticks);
    }

    /// The same with ticks of one's own.
    pub fn x_axis_with(&mut self, name: &str, ticks: &[(f64, String)]) {
        let base = self.y.range.0;
        let mut taken = f64::NEG_INFINITY;
        for (tick, text) in ticks {
            let place = self.x.place(*tick);
            let half = text.chars().count() as f64 * CHAR_WIDTH / 2.0;
            let x = number(place, PLACES);
            let _ = write!(
                self.under,
                "<line class=\"notch\" x1=\"{x}\" x2=\"{x}\" y1=\"{}\" y2=\"{}\"/>",
                number(base, 1),
                number(base + 5.0, 1),
            );
            // A value that would lie on the one before it keeps its notch only.
            if place - half > taken {
                taken = place + half;
                let _ = write!(
                    self.under,
                    "<text class=\"tick\" x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    number(base + 18.0, 1),
                    escape(text)
                );
            }
        }
        let (left, right) = self.x.range;
        let _ = write!(
            self.under,
            "<line class=\"base\" x1=\"{}\" x2=\"{}\" y1=\"{base}\" y2=\"{base}\"/>\
             <text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            number(left, 1),
            number(right, 1),
            number(f64::midpoint(left, right), 1),
            number(base + 37.0, 1),
            escape(name),
        );
    }
}

/// The upper end of an axis from 0 that holds all of these.
fn top_of(values: impl IntoIterator<Item = Option<f64>>) -> f64 {
    nice_top(values.into_iter().flatten().fold(0.0, f64::max))
}

/// How many times the limit a latency must be for an axis to go over to equal factors: below, equal
/// steps show what lies under the limit well enough.
const LOG_FROM: f64 = 4.0;

/// An axis of latencies that shows the values and the limit, and whether it is in equal factors.
#[must_use]
pub fn latency_axis(values: impl IntoIterator<Item = Option<f64>>, limit_ms: f64) -> (Scale, bool) {
    let values: Vec<f64> = values.into_iter().flatten().filter(|ms| *ms > 0.0).collect();
    let max = values.iter().copied().fold(limit_ms, f64::max);
    if max < LOG_FROM * limit_ms {
        return (from_zero([Some(max)]), false);
    }
    let min = values.iter().copied().fold(limit_ms, f64::min);
    (Scale::new(Kind::Log, (min * 0.8, max * 1.15)), true)
}

/// The name of an axis of latencies.
#[must_use]
pub fn latency_name(log: bool) -> &'static str {
    if log { "latency, ms (equal steps = equal factors)" } else { "latency, ms" }
}

/// An axis from 0 to a round value above all of these.
#[must_use]
pub fn from_zero(values: impl IntoIterator<Item = Option<f64>>) -> Scale {
    Scale::new(Kind::Linear, (0.0, top_of(values)))
}

fn tick_text(tick: f64) -> String {
    if tick.abs() >= 1e4 { count(tick.round() as u64) } else { number(tick, 4) }
}
