//! Where the server spends the time: its stages over time, and on average.

use std::fmt::Write as _;

use super::{
    chart::{
        Bar, Layout, Margins, Plot, Series, Spec, from_zero,
        scale::{Kind, Scale},
    },
    parts::{Swatch, figure, legend},
    run_charts::{middles, seconds},
    text::{ms, number},
};
use crate::{report::schema::Report, stats::StageMeans};

/// The stages in the order of the pipeline, with their classes. The rest is what the server's total
/// holds besides.
const STAGES: [(&str, &str); 6] = [
    ("queue", "st-queue"),
    ("decode", "st-decode"),
    ("preprocess", "st-preprocess"),
    ("inference", "st-inference"),
    ("postprocess", "st-postprocess"),
    ("rest", "st-rest"),
];

/// Height of the chart over time, in pixels.
const HEIGHT: f64 = 280.0;

/// Height of the bar with the means.
const BAR_HEIGHT: f64 = 96.0;

/// Narrowest piece of the bar that has its name in it, in pixels.
const NAMED_WIDTH: f64 = 74.0;

/// The stages' times in milliseconds, the rest last.
pub(super) fn times_ms(means: &StageMeans) -> [f64; 6] {
    let known = [means.queue, means.decode, means.preprocess, means.inference, means.postprocess];
    let rest = (means.total - known.iter().sum::<f64>()).max(0.0);
    let [queue, decode, preprocess, inference, postprocess] = known.map(|us| us / 1e3);
    [queue, decode, preprocess, inference, postprocess, rest / 1e3]
}

/// Both charts, or why there are none.
pub(super) fn charts(report: &Report) -> String {
    let Some(means) = &report.stages_mean_us else {
        return "<p class=\"none\">The server reported no stage times.</p>".to_owned();
    };
    let entries: Vec<_> =
        STAGES.into_iter().map(|(name, class)| (Swatch::Fill, class, name)).collect();
    let note = format!("Total on average: {} ms.", ms(Some(means.total / 1e3)));
    let timed = report.timeline.stages_mean_us.iter().any(Option::is_some);
    figure(&legend(&entries), &note, |layout| {
        let mut pictures = mean_bar(means, layout);
        if timed {
            pictures += &over_time(report, layout);
        }
        pictures
    })
}

fn mean_bar(means: &StageMeans, layout: Layout) -> String {
    let times = times_ms(means);
    let total: f64 = times.iter().sum();
    let texts: Vec<String> = STAGES
        .iter()
        .zip(times)
        .map(|((name, _), time)| format!("{name} {} ms", ms(Some(time))))
        .collect();
    let description = format!("Means: {}.", texts.join(", "));
    let spec = Spec {
        name: "stages-mean",
        label: "Mean stage times",
        description: &description,
        hover: "bar",
        x_text: "mean",
        bin: None,
    };
    let margins = Margins { top: 10.0, bottom: 44.0, ..Margins::usual(layout) };
    let axes = (
        Scale::new(Kind::Linear, (0.0, if total > 0.0 { total } else { 1.0 })),
        Scale::new(Kind::Linear, (0.0, 1.0)),
    );
    let mut plot = Plot::new(spec, layout, BAR_HEIGHT, margins, axes);
    plot.x_axis("mean over the run, ms", layout.pick(10, 5));
    let mut from = 0.0;
    for ((name, class), time) in STAGES.into_iter().zip(times) {
        let bar = Bar { x: (from, from + time), y: (0.05, 0.95) };
        let series = Series { name, unit: "ms", class, x: &[0.0], y: &[Some(time)] };
        plot.bars(&series, if time > 0.0 { std::slice::from_ref(&bar) } else { &[] });
        name_piece(&mut plot, name, class, bar, time);
        from += time;
    }
    plot.finish()
}

fn name_piece(plot: &mut Plot<'_>, name: &str, class: &str, bar: Bar, time: f64) {
    let (left, right) = (plot.x.place(bar.x.0), plot.x.place(bar.x.1));
    if right - left < NAMED_WIDTH {
        return;
    }
    let middle = number(f64::midpoint(left, right), 1);
    let (bottom, top) = plot.y.range;
    let y = f64::midpoint(bottom, top);
    let mut svg = String::new();
    for (dy, text) in [(-3.0, name.to_owned()), (11.0, ms(Some(time)))] {
        let _ = write!(
            svg,
            "<text class=\"in-bar {class}\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{text}\
             </text>",
            number(y + dy, 1)
        );
    }
    plot.draw(&svg);
}

fn over_time(report: &Report, layout: Layout) -> String {
    let timeline = &report.timeline;
    let x = middles(timeline);
    let bins: Vec<Option<[f64; 6]>> = (0..x.len())
        .map(|i| timeline.stages_mean_us.get(i).copied().flatten().map(|m| times_ms(&m)))
        .collect();
    let totals = bins.iter().map(|times| times.map(|times| times.iter().sum()));
    let spec = Spec {
        name: "stages-time",
        label: "Mean stage times over time",
        description: "The stages of each bin on top of each other, in the order of the legend.",
        hover: "x",
        x_text: "{} s",
        bin: Some(timeline.bin_seconds),
    };
    let axes = (seconds(x.len(), timeline.bin_seconds), from_zero(totals));
    let mut plot = Plot::new(spec, layout, HEIGHT, Margins::usual(layout), axes);
    plot.y_axis("mean time in the server, ms", 5);
    plot.x_axis("seconds since the measured part began", layout.pick(12, 5));
    for (stage, (name, class)) in STAGES.into_iter().enumerate() {
        let values: Vec<Option<f64>> =
            bins.iter().map(|times| times.map(|times| times[stage])).collect();
        let bars: Vec<Bar> = bins
            .iter()
            .enumerate()
            .filter_map(|(i, times)| {
                let times = (*times)?;
                let below: f64 = times[..stage].iter().sum();
                let bin = timeline.bin_seconds;
                let ends = (i as f64 * bin, (i + 1) as f64 * bin);
                (times[stage] > 0.0).then_some(Bar { x: ends, y: (below, below + times[stage]) })
            })
            .collect();
        plot.bars(&Series { name, unit: "ms", class, x: &x, y: &values }, &bars);
    }
    plot.finish()
}
