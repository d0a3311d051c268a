//! A row for each camera and a cell for each bin of the run.

use std::{cmp::Reverse, fmt::Write as _};

use super::{
    chart::{
        Layout, Margins, Plot, Spec, list,
        marks::Shape,
        scale::{Kind, Scale},
    },
    parts::{Swatch, figure, legend},
    run_charts::seconds,
    text::{counted, escape, number, plain},
};
use crate::report::schema::{CameraFigures, Report};

/// Most rows: more cannot be told apart at a glance. Of larger fleets the worst are shown.
const MAX_ROWS: usize = 40;

/// Upper ends of the colour levels, as shares of the limit; the last has none.
const LEVELS: [f64; 5] = [0.25, 0.5, 0.75, 1.0, 2.0];

/// Names of the colour levels.
const LEVEL_NAMES: [&str; 6] =
    ["up to 25 % of the limit", "50 %", "75 %", "100 %", "over the limit", "over twice the limit"];

/// Least radius of a mark with a halo, in pixels.
const HALO_RADIUS: f64 = 3.0;

/// Longest name shown beside a row, in characters.
const NAME_CHARS: usize = 12;

/// The colour level of a latency.
pub(super) fn level(ms: f64, slo_ms: f64) -> usize {
    LEVELS.iter().position(|share| ms <= share * slo_ms).unwrap_or(LEVELS.len())
}

fn missed(camera: &CameraFigures) -> u64 {
    let tally = &camera.tally;
    tally.answered.saturating_sub(tally.ok) + tally.lost + tally.unaccepted + tally.not_sent
}

/// The cameras shown: all, or those with the most missed frames and then the slowest answers.
pub(super) fn rows(report: &Report) -> Vec<&CameraFigures> {
    let mut cameras: Vec<_> =
        report.per_camera.iter().filter(|camera| !camera.bins_max_ms.is_empty()).collect();
    if cameras.len() > MAX_ROWS {
        let slowest = |camera: &CameraFigures| camera.figures.max_ms.unwrap_or(f64::INFINITY);
        cameras.sort_by(|a, b| {
            (Reverse(missed(a)), slowest(b))
                .partial_cmp(&(Reverse(missed(b)), slowest(a)))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        cameras.truncate(MAX_ROWS);
    }
    cameras
}

/// The strip, or why there is none.
pub(super) fn strip(report: &Report) -> String {
    let rows = rows(report);
    if rows.is_empty() || report.timeline.ok.is_empty() {
        return "<p class=\"none\">The report holds no bins of single cameras; in very large fleets \
                they are left out.</p>"
            .to_owned();
    }
    let all = report.per_camera.len();
    let note = if rows.len() < all {
        format!(
            "The worst {} of {}: those with the most missed frames, then those with the slowest \
             answers.",
            rows.len(),
            counted(all as u64, "camera")
        )
    } else {
        "All cameras, in the report\u{2019}s order.".to_owned()
    };
    let classes = ["h0", "h1", "h2", "h3", "h4", "h5"];
    let mut entries: Vec<_> = classes
        .into_iter()
        .zip(LEVEL_NAMES)
        .map(|(class, name)| (Swatch::Fill, class, name))
        .collect();
    entries.push((Swatch::Mark(Shape::Cross.strokes(4.0)), "heat-miss", "frames missed"));
    figure(&legend(&entries), &note, |layout| draw(report, &rows, layout))
}

/// A name that fits beside its row.
fn short(name: &str, layout: Layout) -> String {
    let most = layout.pick(NAME_CHARS, 6);
    let length = name.chars().count();
    if length <= most {
        return name.to_owned();
    }
    // Cameras' names differ at their ends.
    let end: String = name.chars().skip(length - (most - 1)).collect();
    format!("\u{2026}{end}")
}

fn draw(report: &Report, rows: &[&CameraFigures], layout: Layout) -> String {
    let row_height = if rows.len() <= 12 { 20.0 } else { 14.0 };
    let margins = Margins {
        left: layout.pick(92.0, 46.0),
        right: layout.pick(20.0, 12.0),
        top: 4.0,
        bottom: 44.0,
    };
    let height = margins.top + margins.bottom + row_height * rows.len() as f64;
    let bins = report.timeline.ok.len();
    let bin_seconds = report.timeline.bin_seconds;
    let description =
        format!("{} and {}.", counted(rows.len() as u64, "camera"), counted(bins as u64, "bin"));
    let spec = Spec {
        name: "heat",
        label: "Slowest answer of each camera over time",
        description: &description,
        hover: "heat",
        x_text: "{} s",
        bin: Some(bin_seconds),
    };
    // Rows are counted from above.
    let row_axis = Scale::new(Kind::Linear, (-(rows.len() as f64), 0.0));
    let axes = (seconds(bins, bin_seconds), row_axis);
    let mut plot = Plot::new(spec, layout, height, margins, axes);
    plot.x_axis("seconds since the measured part began", layout.pick(12, 5));
    let mut svg = String::new();
    for (index, camera) in rows.iter().enumerate() {
        let y = margins.top + index as f64 * row_height;
        let cells = Cells { report, camera, plot: &plot, y, height: row_height };
        let _ = write!(
            svg,
            "<g data-row=\"{}\" data-max=\"{}\" data-missed=\"{}\"><text class=\"tick\" \
             x=\"{}\" y=\"{}\" dy=\".32em\" text-anchor=\"end\">{}</text>{}</g>",
            escape(&camera.camera_id),
            list(camera.bins_max_ms.iter().copied()),
            list(camera.bins_missed.iter().map(|n| Some(*n as f64))),
            number(margins.left - 8.0, 1),
            number(y + row_height / 2.0, 1),
            escape(&short(&camera.camera_id, layout)),
            cells.svg(bins, bin_seconds),
        );
    }
    plot.draw(&format!(
        "<g data-slo=\"{}\" data-row-height=\"{row_height}\">{svg}</g>",
        plain(report.slo_max_ms)
    ));
    plot.finish()
}

struct Cells<'a> {
    report: &'a Report,
    camera: &'a CameraFigures,
    plot: &'a Plot<'a>,
    y: f64,
    height: f64,
}

impl Cells<'_> {
    /// One path for each level, in which neighbours of the same level are one rectangle.
    fn svg(&self, bins: usize, bin_seconds: f64) -> String {
        let slo = self.report.slo_max_ms;
        let level_of =
            |i: usize| self.camera.bins_max_ms.get(i).copied().flatten().map(|ms| level(ms, slo));
        let place = |i: usize| number(self.plot.x.place(i as f64 * bin_seconds), 2);
        let (top, height) = (number(self.y + 1.0, 1), number(self.height - 2.0, 1));
        let mut paths: [String; 6] = Default::default();
        let mut from = 0;
        while from < bins {
            let level = level_of(from);
            let to = (from + 1..bins).find(|i| level_of(*i) != level).unwrap_or(bins);
            if let Some(level) = level {
                let (left, right) = (place(from), place(to));
                let _ = write!(paths[level], "M{left} {top}H{right}v{height}H{left}z");
            }
            from = to;
        }
        let mut svg = String::new();
        for (level, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            let _ = write!(svg, "<path class=\"bar h{level}\" d=\"{path}\"/>");
        }
        svg + &self.misses(bins, bin_seconds)
    }

    fn misses(&self, bins: usize, bin_seconds: f64) -> String {
        let width = self.plot.x.place(bin_seconds) - self.plot.x.place(0.0);
        let radius = (self.height / 2.0 - 3.0).min(width / 2.0).clamp(1.0, 4.0);
        let strokes = Shape::Cross.strokes(radius);
        let y = number(self.y + self.height / 2.0, 1);
        let path: Vec<String> = self
            .camera
            .bins_missed
            .iter()
            .take(bins)
            .enumerate()
            .filter(|(_, n)| **n > 0)
            .map(|(i, _)| {
                let x = self.plot.x.place((i as f64 + 0.5) * bin_seconds);
                format!("M{} {y}{strokes}", number(x, 2))
            })
            .collect();
        let path = path.concat();
        if path.is_empty() {
            path
        } else {
            // A halo first, where there is room: the mark must stand out on dark cells too.
            let halo = if radius < HALO_RADIUS {
                String::new()
            } else {
                format!("<path class=\"mark halo\" d=\"{path}\"/>")
            };
            format!("{halo}<path class=\"mark heat-miss\" d=\"{path}\"/>")
        }
    }
}
