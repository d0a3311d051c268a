//! The page of a comparison.

use super::{
    chart::{
        At, Margins, Plot, Series, Spec, latency_axis, latency_name,
        marks::Shape,
        scale::{Kind, Scale, nice_top},
    },
    parts::{self, Row, Swatch, chip, figure, legend, section, table, verdict_chip},
    run_charts::{middles, nines, nines_ticks, seconds},
    text::{NONE, count, counted, escape, number, plain},
};
use crate::report::{
    compare::{Comparison, EntryFigures, Judged, RowFigures},
    schema::Timeline,
};

/// Height of the charts, in pixels.
const HEIGHT: f64 = 320.0;

/// The lines' classes, one for each entry.
const CLASSES: [&str; 6] = ["s1", "s3", "s2", "s4", "s5", "s6"];

/// The title of the page.
pub(super) fn title(comparison: &Comparison) -> String {
    let labels: Vec<&str> = comparison.entries.iter().map(|entry| entry.label.as_str()).collect();
    format!("Comparison: {}", labels.join(", "))
}

/// Everything between the page's head and its foot.
pub(super) fn body(comparison: &Comparison) -> String {
    let mut body = head(comparison);
    body += &banner(comparison);
    if !comparison.differences.is_empty() {
        body += &section(
            "differences",
            "What differs in the settings",
            "Look here first. Where a setting that matters differs, the figures below may compare \
             two different questions.",
            &differences(comparison),
        );
    }
    let rule: Vec<String> = comparison
        .rule
        .iter()
        .map(|rule| format!("<p class=\"note\">{}</p>", escape(rule)))
        .collect();
    body += &section(
        "figures",
        "The figures",
        "Each entry against the first. In brackets the range of the repeats, or else the middle \
         half of the run\u{2019}s bins.",
        &format!("{}{}", figures(comparison), rule.concat()),
    );
    if comparison.is_of_runs() {
        body += &runs(comparison);
    }
    if comparison.is_of_searches() {
        body += &section(
            "capacity",
            "Latency against cameras",
            "Medians of the slowest answers, and the number of cameras held.",
            &capacity(&comparison.entries),
        );
    }
    body + &section("entries", "What was compared", "", &entries(comparison))
}

fn head(comparison: &Comparison) -> String {
    let base = comparison.entries.first().map_or("", |entry| entry.label.as_str());
    let lines = [format!("Held against <b>{}</b>", escape(base))];
    let chips: Vec<String> = comparison
        .entries
        .iter()
        .map(|entry| chip("", &format!("{}: arrival {}", entry.label, entry.phases)))
        .collect();
    let labels: Vec<&str> = comparison.entries.iter().map(|entry| entry.label.as_str()).collect();
    parts::head("comparison", &labels.join(" \u{2194} "), &lines, &chips)
}

fn banner(comparison: &Comparison) -> String {
    let judged = |what: Judged| {
        comparison.rows.iter().flat_map(|row| &row.judgements).filter(|one| **one == what).count()
    };
    let (better, worse) = (judged(Judged::Better), judged(Judged::Worse));
    let matters: Vec<&str> = comparison
        .differences
        .iter()
        .filter(|difference| difference.matters)
        .map(|difference| difference.setting.as_str())
        .collect();
    let sentence = format!(
        "{} better, {worse} worse, {} no more than noise, {} not judged.",
        counted(better as u64, "figure"),
        judged(Judged::Noise),
        judged(Judged::Unknown)
    );
    if matters.is_empty() {
        let word = match (better, worse) {
            (0, 0) => "No difference beyond noise",
            (_, 0) => "Better",
            (0, _) => "Worse",
            _ => "Better and worse",
        };
        let sign = "<path d=\"M14 20h20m-6-6l6 6-6 6M34 30H14m6-6l-6 6 6 6\"/>";
        return parts::banner("plain", sign, word, &sentence, &[]);
    }
    let reason = format!("Differing settings that matter: {}.", matters.join(", "));
    let word = "The entries differ in more than the server";
    let sign = "<path d=\"M24 12v15m0 8v1\"/>";
    parts::banner("invalid", sign, word, &sentence, &[reason])
}

fn labels(comparison: &Comparison) -> Vec<String> {
    comparison.entries.iter().map(|entry| escape(&entry.label)).collect()
}

fn differences(comparison: &Comparison) -> String {
    let labels = labels(comparison);
    let head: Vec<&str> =
        ["setting", "matters"].into_iter().chain(labels.iter().map(String::as_str)).collect();
    let texts: Vec<usize> = (1..head.len()).collect();
    let rows: Vec<Row> = comparison
        .differences
        .iter()
        .map(|difference| {
            let mut cells = vec![escape(&difference.setting)];
            cells.push(if difference.matters { chip("invalid", "! yes") } else { "no".to_owned() });
            let value = |value: &String| format!("<span class=\"why\">{}</span>", escape(value));
            cells.extend(difference.values.iter().map(value));
            Row { class: "", cells }
        })
        .collect();
    table("Settings in which the entries differ", &head, &texts, &rows)
}

fn figures(comparison: &Comparison) -> String {
    let labels = labels(comparison);
    let mut head = vec!["figure"];
    for (index, label) in labels.iter().enumerate() {
        head.push(label);
        if index > 0 {
            head.extend(["difference", "judged"]);
        }
    }
    // Judgements are texts: every third column from the fourth on.
    let texts: Vec<usize> = (1..labels.len()).map(|entry| 1 + entry * 3).collect();
    let rows: Vec<Row> =
        comparison.rows.iter().map(|row| Row { class: "", cells: cells(row) }).collect();
    table("Figures of all entries", &head, &texts, &rows)
}

fn shown(value: f64) -> String {
    if value.abs() >= 1e4 {
        return count(value.round() as u64);
    }
    number(value, if value.abs() < 10.0 { 2 } else { 1 })
}

fn cells(row: &RowFigures) -> Vec<String> {
    let unit = if row.unit.is_empty() { String::new() } else { format!(", {}", escape(&row.unit)) };
    let mut cells = vec![format!("{}<span class=\"noise\">{unit}</span>", escape(&row.name))];
    for (index, value) in row.values.iter().enumerate() {
        let value = value.map_or_else(|| NONE.to_owned(), shown);
        let spread = row.spreads[index].filter(|spread| spread.high > spread.low).map(|spread| {
            format!(" <span class=\"noise\">[{}, {}]</span>", shown(spread.low), shown(spread.high))
        });
        cells.push(value + &spread.unwrap_or_default());
        if index == 0 {
            continue;
        }
        let delta = row.deltas[index].map_or_else(String::new, |delta| {
            let percent = row.delta_percents[index]
                .map_or_else(String::new, |percent| format!(" ({}\u{202f}%)", signed(percent)));
            format!("{}{percent}", signed(delta))
        });
        cells.push(delta);
        let (class, sign, word) = match row.judgements[index] {
            Judged::Base => ("noise", "", "base"),
            Judged::Better => ("better", "\u{25b2} ", "better"),
            Judged::Worse => ("worse", "\u{25bc} ", "worse"),
            Judged::Different => ("", "\u{2260} ", "different"),
            Judged::Noise => ("noise", "\u{2248} ", "noise"),
            Judged::Unknown => ("noise", "", "not judged"),
        };
        cells.push(format!("<span class=\"{class}\">{sign}{word}</span>"));
    }
    cells
}

fn signed(value: f64) -> String {
    let sign = if value > 0.0 {
        "+"
    } else if value < 0.0 {
        "\u{2212}"
    } else {
        "\u{b1}"
    };
    format!("{sign}{}", shown(value.abs()))
}

/// Each entry with its class.
fn with_class(entries: &[EntryFigures]) -> impl Iterator<Item = (&EntryFigures, &'static str)> {
    entries.iter().zip(CLASSES.into_iter().cycle())
}

fn key(entries: &[EntryFigures]) -> String {
    let key: Vec<_> = with_class(entries)
        .map(|(entry, class)| (Swatch::Line, class, entry.label.as_str()))
        .collect();
    legend(&key)
}

/// The largest limit, so that the charts show all; usually there is one.
fn limit(entries: &[EntryFigures]) -> f64 {
    entries.iter().map(|entry| entry.slo_max_ms).fold(0.0, f64::max)
}

fn limits(plot: &mut Plot<'_>, entries: &[EntryFigures]) {
    let mut drawn: Vec<f64> = Vec::new();
    for entry in entries {
        if !drawn.iter().any(|limit| (limit - entry.slo_max_ms).abs() <= 0.0) {
            plot.limit(&format!("limit {} ms", plain(entry.slo_max_ms)), entry.slo_max_ms);
            drawn.push(entry.slo_max_ms);
        }
    }
}

fn runs(comparison: &Comparison) -> String {
    let entries = &comparison.entries;
    let mut html = section(
        "percentiles",
        "Latency by percentile",
        "All repeats of an entry together. To the right, answers get rarer and slower.",
        &percentiles(entries),
    );
    html += &section(
        "max-time",
        "Slowest answer over time",
        "Of each bin; of several repeats the one with the middle slowest answer.",
        &over_time(entries, "max-time", "slowest answer, ms", |timeline| &timeline.max_ms),
    );
    html += &section(
        "p99-time",
        "99 % within, over time",
        "The same of the 99th percentile.",
        &over_time(entries, "p99-time", "p99, ms", |timeline| &timeline.p99_ms),
    );
    html
}

fn percentiles(entries: &[EntryFigures]) -> String {
    let curves: Vec<_> = entries.iter().map(|entry| &*entry.percentiles).collect();
    let axis = nines(&curves);
    let values = curves.iter().flat_map(|curve| curve.iter()).map(|point| Some(point.ms));
    let (value_axis, log) = latency_axis(values, limit(entries));
    figure(&key(entries), "", |layout| {
        let spec = Spec {
            name: "percentiles",
            label: "Latency by percentile of all entries",
            description: "A curve for each entry, from its fastest answer to its slowest.",
            hover: "x",
            x_text: "{} % of the answers took at most",
            bin: None,
        };
        let mut plot = Plot::new(spec, layout, HEIGHT, Margins::usual(layout), (axis, value_axis));
        plot.y_axis(latency_name(log), 7);
        plot.x_axis_with("share of the answers that took at most this long", &nines_ticks(&axis));
        limits(&mut plot, entries);
        for (entry, class) in with_class(entries) {
            let x: Vec<f64> = entry.percentiles.iter().map(|point| point.percentile).collect();
            let y: Vec<_> = entry.percentiles.iter().map(|point| Some(point.ms)).collect();
            plot.line(&Series { name: &entry.label, unit: "ms", class, x: &x, y: &y });
            plot.label(class, &short(&entry.label), y.last().copied().flatten());
        }
        plot.finish()
    })
}

/// A label that fits beside a chart.
fn short(label: &str) -> String {
    if label.chars().count() <= 12 {
        return label.to_owned();
    }
    label.chars().take(11).chain(['\u{2026}']).collect()
}

fn over_time(
    entries: &[EntryFigures],
    name: &str,
    axis_name: &str,
    of: impl Fn(&Timeline) -> &Vec<Option<f64>>,
) -> String {
    let timelines: Vec<(&EntryFigures, &Timeline, &str)> = with_class(entries)
        .filter_map(|(entry, class)| Some((entry, entry.timeline.as_ref()?, class)))
        .collect();
    let longest = timelines
        .iter()
        .map(|(_, timeline, _)| timeline.ok.len() as f64 * timeline.bin_seconds)
        .fold(0.0, f64::max);
    let values = timelines.iter().flat_map(|(_, timeline, _)| of(timeline)).copied();
    let (value_axis, log) = latency_axis(values, limit(entries));
    let axis_name = if log {
        format!("{axis_name} (equal steps = equal factors)")
    } else {
        axis_name.to_owned()
    };
    figure(&key(entries), "", |layout| {
        let spec = Spec {
            name,
            label: "Latency over time of all entries",
            description: "A line for each entry.",
            hover: "x",
            x_text: "{} s",
            bin: timelines.first().map(|(_, timeline, _)| timeline.bin_seconds),
        };
        let axes = (seconds(1, longest), value_axis);
        let mut plot = Plot::new(spec, layout, HEIGHT, Margins::usual(layout), axes);
        plot.y_axis(&axis_name, 7);
        plot.x_axis("seconds since the measured part began", layout.pick(12, 5));
        limits(&mut plot, entries);
        for (entry, timeline, class) in &timelines {
            let (x, y) = (middles(timeline), of(timeline));
            plot.line(&Series { name: &entry.label, unit: "ms", class, x: &x, y });
            plot.label(class, &short(&entry.label), y.iter().rev().copied().flatten().next());
        }
        plot.finish()
    })
}

fn capacity(entries: &[EntryFigures]) -> String {
    let points = || entries.iter().flat_map(|entry| &entry.capacity);
    let most = points().map(|point| point.cameras).max().unwrap_or(0);
    let (value_axis, log) = latency_axis(points().map(|point| point.max_ms), limit(entries));
    figure(&key(entries), "", |layout| {
        let spec = Spec {
            name: "capacity",
            label: "Slowest answer against number of cameras of all entries",
            description: "A line for each entry, and an upright one at the cameras it held.",
            hover: "point",
            x_text: "{} cameras",
            bin: None,
        };
        let axes = (Scale::new(Kind::Linear, (0.0, nice_top(f64::from(most)))), value_axis);
        let mut plot = Plot::new(spec, layout, HEIGHT, Margins::usual(layout), axes);
        plot.y_axis(latency_name(log), 7);
        plot.x_axis("cameras", layout.pick(10, 5));
        limits(&mut plot, entries);
        for (index, (entry, class)) in with_class(entries).enumerate() {
            let x: Vec<f64> = entry.capacity.iter().map(|point| f64::from(point.cameras)).collect();
            let y: Vec<_> = entry.capacity.iter().map(|point| point.max_ms).collect();
            let series = Series { name: &entry.label, unit: "ms", class, x: &x, y: &y };
            plot.line(&series);
            plot.marks(&series, Shape::Dot, 3.5);
            plot.label(class, &short(&entry.label), y.iter().rev().copied().flatten().next());
            if let Some(found) = entry.found {
                let at = if index % 2 == 0 { At::Top } else { At::Bottom };
                plot.upright(
                    class,
                    &format!("{}: {found}", short(&entry.label)),
                    f64::from(found),
                    at,
                );
            }
        }
        plot.finish()
    })
}

fn entries(comparison: &Comparison) -> String {
    let rows: Vec<Row> = comparison
        .entries
        .iter()
        .map(|entry| {
            let verdicts: Vec<String> =
                entry.verdicts.iter().copied().map(|v| verdict_chip(v, 1)).collect();
            let files = entry.files.join(", ");
            let cells = vec![
                escape(&entry.label),
                format!("<span class=\"why\">{}</span>", escape(&files)),
                verdicts.join(" "),
                escape(&entry.addr),
                escape(&entry.phases),
                entry
                    .cameras
                    .or(entry.found)
                    .map_or_else(|| NONE.to_owned(), |n| count(u64::from(n))),
                number(entry.fps, 2),
                plain(entry.slo_max_ms),
            ];
            Row { class: "", cells }
        })
        .collect();
    let cameras = if comparison.is_of_runs() { "cameras" } else { "cameras held" };
    let head = ["entry", "files", "verdicts", "server", "arrival", cameras, "fps", "limit ms"];
    table("Entries", &head, &[1, 2, 3, 4], &rows)
}
