//! The latency charts of a run.

use super::{
    chart::{
        Bar, Layout, Margins, Plot, Series, Spec, from_zero, latency_axis, latency_name,
        marks::Shape,
        scale::{Kind, Scale},
    },
    parts::{Swatch, figure, legend},
    text::{count, counted, ms, ms_unit, number, plain},
};
use crate::report::schema::{PercentilePoint, Report, Timeline};

/// Height of the charts, in pixels.
const HEIGHT: f64 = 320.0;

/// Height of the strip with the missed frames.
const STRIP_HEIGHT: f64 = 118.0;

/// Rarest percentile that the axis ends at least at: with fewer answers the curve ends earlier.
const LEAST_END: f64 = 99.0;

/// The percentile axis up to a little beyond the rarest point below 100 %.
pub(super) fn nines(curves: &[&[PercentilePoint]]) -> Scale {
    let rarest = curves
        .iter()
        .flat_map(|points| points.iter())
        .map(|point| point.percentile)
        .filter(|percentile| *percentile < 100.0)
        .fold(LEAST_END, f64::max);
    // Where 100 % lies: twice as rare as the rarest point below it.
    Scale::new(Kind::Nines, (0.0, 100.0 - (100.0 - rarest) / 2.0))
}

/// Values of the percentile axis, with their signs.
pub(super) fn nines_ticks(scale: &Scale) -> Vec<(f64, String)> {
    scale.ticks(0).into_iter().map(|tick| (tick, format!("{} %", number(tick, 4)))).collect()
}

/// The curve from the fastest answer to the slowest.
pub(super) fn percentiles(report: &Report) -> String {
    let points = &report.percentiles;
    if points.is_empty() {
        return "<p class=\"none\">No frame was answered OK, so there is no latency.</p>"
            .to_owned();
    }
    let x: Vec<f64> = points.iter().map(|point| point.percentile).collect();
    let y: Vec<Option<f64>> = points.iter().map(|point| Some(point.ms)).collect();
    let axis = nines(&[points]);
    let figures = &report.figures;
    let description = format!(
        "Median {}, 99 % within {}, slowest {}; the limit is {} ms.",
        ms_unit(figures.p50_ms),
        ms_unit(figures.p99_ms),
        ms_unit(figures.max_ms),
        plain(report.slo_max_ms)
    );
    let (value_axis, log) =
        latency_axis(y.iter().copied().chain([figures.max_ms]), report.slo_max_ms);
    let note = format!(
        "{} answered OK. The right end is the slowest one, exact; the values before it are right \
         to 0.1 %.",
        counted(report.tally.ok, "frame")
    );
    let limits = Swatch::Mark(Shape::Diamond.strokes(5.0));
    let key = if report.slo_percentiles.is_empty() {
        String::new()
    } else {
        legend(&[
            (Swatch::Line, "s1", "latency"),
            (limits, "limit-mark", "limit of a percentile: the line must pass below it"),
        ])
    };
    figure(&key, &note, |layout| {
        let spec = Spec {
            name: "percentiles",
            label: "Latency by percentile",
            description: &description,
            hover: "x",
            x_text: "{} % of the answers took at most",
            bin: None,
        };
        let mut plot = Plot::new(spec, layout, HEIGHT, Margins::usual(layout), (axis, value_axis));
        plot.y_axis(latency_name(log), 7);
        plot.x_axis_with("share of the answers that took at most this long", &nines_ticks(&axis));
        let floor = vec![Some(value_axis.domain.0); x.len()];
        plot.band("area a1", &x, &floor, &y);
        plot.limit(&limit_name(report), report.slo_max_ms);
        for limit in &report.slo_percentiles {
            percentile_limit(&mut plot, limit.percentile, limit.limit_ms);
        }
        plot.line(&Series { name: "latency", unit: "ms", class: "s1", x: &x, y: &y });
        let last = figures.max_ms;
        let end = Series { name: "slowest", unit: "ms", class: "s1", x: &[100.0], y: &[last] };
        plot.marks(&end, Shape::Dot, 4.0);
        plot.label("s1", &format!("max {}", ms(last)), last);
        plot.finish()
    })
}

/// A limit on one percentile: a mark at its place.
fn percentile_limit(plot: &mut Plot<'_>, percentile: f64, limit_ms: f64) {
    let name = format!("limit of p{}", plain(percentile));
    let at = Series {
        name: &name,
        unit: "ms",
        class: "limit-mark",
        x: &[percentile],
        y: &[Some(limit_ms)],
    };
    plot.marks(&at, Shape::Diamond, 6.0);
}

fn limit_name(report: &Report) -> String {
    format!("limit {} ms", plain(report.slo_max_ms))
}

/// Middles of the bins in seconds.
pub(super) fn middles(timeline: &Timeline) -> Vec<f64> {
    (0..timeline.ok.len()).map(|i| (i as f64 + 0.5) * timeline.bin_seconds).collect()
}

/// The axis of the measured part.
pub(super) fn seconds(bins: usize, bin_seconds: f64) -> Scale {
    Scale::new(Kind::Linear, (0.0, bins as f64 * bin_seconds))
}

/// Frames of a bin that were not answered OK.
fn missed(timeline: &Timeline) -> Vec<u64> {
    let unanswered = timeline.unanswered.iter().chain(std::iter::repeat(&0));
    timeline.not_ok.iter().zip(unanswered).map(|(a, b)| a + b).collect()
}

/// Slowest, 99 % and median of each bin, and what was missed below.
pub(super) fn over_time(report: &Report) -> String {
    let timeline = &report.timeline;
    if timeline.ok.is_empty() {
        return "<p class=\"none\">The report has no timeline.</p>".to_owned();
    }
    let total: u64 = missed(timeline).iter().sum();
    let flag = (Swatch::Mark(Shape::Flag.strokes(5.0)), "miss", "frames missed");
    let mut entries = vec![
        (Swatch::Line, "s3", "slowest answer"),
        (Swatch::Line, "s1", "99 % within"),
        (Swatch::Line, "s2", "median"),
    ];
    if total > 0 {
        entries.extend([
            flag,
            (Swatch::Fill, "drop", "answered, not OK"),
            (Swatch::Fill, "lost", "not answered"),
        ]);
    }
    let note = if total == 0 {
        "Every frame was answered OK, so nothing stands below the chart.".to_owned()
    } else {
        let bins = missed(timeline).iter().filter(|n| **n > 0).count() as u64;
        format!("{} missed in {}.", counted(total, "frame"), counted(bins, "bin"))
    };
    figure(&legend(&entries), &note, |layout| {
        let mut pictures = latency_over_time(report, layout);
        if total > 0 {
            pictures += &drops_over_time(timeline, layout);
        }
        pictures
    })
}

fn latency_over_time(report: &Report, layout: Layout) -> String {
    let timeline = &report.timeline;
    let x = middles(timeline);
    let values = timeline.max_ms.iter().chain(&timeline.p50_ms).copied();
    let description = format!(
        "{} of {} s; slowest answer {}, limit {} ms.",
        counted(timeline.ok.len() as u64, "bin"),
        plain(timeline.bin_seconds),
        ms_unit(report.figures.max_ms),
        plain(report.slo_max_ms)
    );
    let spec = Spec {
        name: "latency-time",
        label: "Latency over time",
        description: &description,
        hover: "x",
        x_text: "{} s",
        bin: Some(timeline.bin_seconds),
    };
    let (value_axis, log) = latency_axis(values, report.slo_max_ms);
    let axes = (seconds(x.len(), timeline.bin_seconds), value_axis);
    let mut plot = Plot::new(spec, layout, HEIGHT, Margins::usual(layout), axes);
    plot.y_axis(latency_name(log), 7);
    plot.x_axis("seconds since the measured part began", layout.pick(12, 5));
    let top = plot.y.domain.1;
    let flags: Vec<Option<f64>> =
        missed(timeline).iter().map(|n| (*n > 0).then_some(top)).collect();
    let bars: Vec<Bar> = bins_where(timeline, &flags, (0.0, top));
    shade(&mut plot, &bars);
    plot.band("area a1", &x, &timeline.p50_ms, &timeline.p99_ms);
    plot.limit(&limit_name(report), report.slo_max_ms);
    for (name, class, label, values) in [
        ("median", "s2", "p50", &timeline.p50_ms),
        ("99 %", "s1", "p99", &timeline.p99_ms),
        ("slowest", "s3", "max", &timeline.max_ms),
    ] {
        plot.line(&Series { name, unit: "ms", class, x: &x, y: values });
        plot.label(class, label, values.iter().rev().copied().flatten().next());
    }
    let counts: Vec<Option<f64>> =
        missed(timeline).iter().map(|n| (*n > 0).then_some(*n as f64)).collect();
    miss_flags(&mut plot, &x, &counts);
    plot.finish()
}

/// A tint behind the bins with missed frames.
fn shade(plot: &mut Plot<'_>, bars: &[Bar]) {
    let paths: Vec<String> = bars
        .iter()
        .map(|bar| {
            let (left, right) = (plot.x.place(bar.x.0), plot.x.place(bar.x.1));
            let (bottom, top) = plot.y.range;
            let [left, right] = [left, right].map(|x| number(x, 1));
            format!("M{left} {top}H{right}V{bottom}H{left}z")
        })
        .collect();
    plot.draw(&format!("<path class=\"shade\" d=\"{}\"/>", paths.concat()));
}

/// A flag at the upper edge over each bin with missed frames; read-outs give their number.
fn miss_flags(plot: &mut Plot<'_>, x: &[f64], counts: &[Option<f64>]) {
    let strokes = Shape::Flag.strokes(5.0);
    let y = number(plot.y.range.1 - 2.0, 1);
    let path: Vec<String> = x
        .iter()
        .zip(counts)
        .filter(|(_, count)| count.is_some())
        .map(|(x, _)| format!("M{} {y}{strokes}", number(plot.x.place(*x), 2)))
        .collect();
    let path = path.concat();
    if !path.is_empty() {
        let series = Series { name: "missed", unit: "", class: "miss", x, y: counts };
        plot.path("mark miss", &series, &path);
    }
}

fn bins_where(timeline: &Timeline, there: &[Option<f64>], y: (f64, f64)) -> Vec<Bar> {
    let bin = timeline.bin_seconds;
    (0..timeline.ok.len())
        .filter(|i| there.get(*i).copied().flatten().is_some())
        .map(|i| Bar { x: (i as f64 * bin, (i + 1) as f64 * bin), y })
        .collect()
}

/// Frames that were not answered OK, as bars.
fn drops_over_time(timeline: &Timeline, layout: Layout) -> String {
    let x = middles(timeline);
    let totals = missed(timeline);
    let worst = totals.iter().copied().max().unwrap_or(0);
    let description = format!("At most {} missed in one bin.", counted(worst, "frame"));
    let spec = Spec {
        name: "drops-time",
        label: "Frames not answered OK over time",
        description: &description,
        hover: "x",
        x_text: "{} s",
        bin: Some(timeline.bin_seconds),
    };
    let margins = Margins { top: 24.0, bottom: 12.0, ..Margins::usual(layout) };
    let axes = (seconds(x.len(), timeline.bin_seconds), from_zero([Some(worst as f64)]));
    let mut plot = Plot::new(spec, layout, STRIP_HEIGHT, margins, axes);
    plot.y_axis("frames missed", 2);
    plot.x_axis_with("", &[]);
    let values =
        |list: &[u64]| -> Vec<Option<f64>> { list.iter().map(|n| Some(*n as f64)).collect() };
    let mut below = vec![0.0; x.len()];
    for (name, class, list) in [
        ("answered, not OK", "drop", &timeline.not_ok),
        ("not answered", "lost", &timeline.unanswered),
    ] {
        let mut bars = Vec::new();
        for (i, n) in list.iter().enumerate().filter(|(i, n)| **n > 0 && *i < x.len()) {
            let bin = timeline.bin_seconds;
            let (from, to) = (below[i], below[i] + *n as f64);
            bars.push(Bar { x: (i as f64 * bin, (i + 1) as f64 * bin), y: (from, to) });
            below[i] = to;
        }
        plot.bars(&Series { name, unit: "", class, x: &x, y: &values(list) }, &bars);
    }
    plot.label("drop", &format!("max {}", count(worst)), Some(worst as f64));
    plot.finish()
}
