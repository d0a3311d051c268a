//! The charts of a capacity search: everything against the number of cameras.

use std::collections::BTreeMap;

use super::{
    chart::{
        At, Layout, Margins, Plot, Series, Spec, from_zero, latency_axis, latency_name,
        marks::Shape,
        scale::{Kind, Scale, nice_top},
    },
    parts::{Swatch, figure, legend, section},
    text::{counted, ms_unit, percent, plain},
};
use crate::report::{
    capacity::{CapacityReport, StepFigures, StepRun},
    schema::Verdict,
};

/// Height of the capacity curve, in pixels.
const CURVE_HEIGHT: f64 = 380.0;

/// Height of the other charts.
const HEIGHT: f64 = 230.0;

/// What read-outs say of the x axis.
const X_TEXT: &str = "{} cameras";

/// The kinds of dots: name, class and shape, so that none needs its colour.
const KINDS: [(Verdict, &str, &str, Shape); 3] = [
    (Verdict::Pass, "pass", "held the limits", Shape::Dot),
    (Verdict::Fail, "fail", "did not", Shape::Cross),
    (Verdict::Invalid, "invalid", "says nothing (simulator)", Shape::Diamond),
];

/// A step's runs.
pub(super) fn runs_of(step: &StepFigures) -> impl Iterator<Item = &StepRun> {
    step.runs.iter()
}

/// The middle of what is known.
pub(super) fn median(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut values: Vec<f64> = values.flatten().collect();
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(values[n / 2]),
        _ => Some(f64::midpoint(values[n / 2 - 1], values[n / 2])),
    }
}

/// All frames answered OK, of all sent in the search.
pub(super) fn answered_share(report: &CapacityReport) -> String {
    let runs = || report.steps.iter().flat_map(runs_of);
    percent(runs().map(|run| run.ok).sum(), runs().map(|run| run.sent).sum())
}

/// The medians of a value by number of cameras, in ascending order.
pub(super) fn medians(
    report: &CapacityReport,
    value: impl Fn(&StepRun) -> Option<f64>,
) -> (Vec<f64>, Vec<Option<f64>>) {
    let mut by_cameras: BTreeMap<u32, Vec<Option<f64>>> = BTreeMap::new();
    for step in &report.steps {
        by_cameras.entry(step.cameras).or_default().extend(step.runs.iter().map(&value));
    }
    by_cameras
        .into_iter()
        .map(|(cameras, values)| (f64::from(cameras), median(values.into_iter())))
        .unzip()
}

/// The axis of cameras, from 0.
pub(super) fn camera_axis(reports: &[&CapacityReport]) -> Scale {
    let steps = reports.iter().flat_map(|report| &report.steps);
    let most = steps.map(|step| step.cameras).max().unwrap_or(0);
    Scale::new(Kind::Linear, (0.0, nice_top(f64::from(most))))
}

/// All charts, as chapters.
pub(super) fn charts(report: &CapacityReport) -> String {
    if report.steps.is_empty() {
        return "<p class=\"none\">No step was tried.</p>".to_owned();
    }
    let mut html = section(
        "curve",
        "Latency against cameras",
        "The slowest answer of every run. The line joins the medians.",
        &curve(report),
    );
    html += &section(
        "answered",
        "Answered frames against cameras",
        "The share of the frames sent that was answered OK, median of the runs.",
        &answered(report),
    );
    html += &section(
        "cpu",
        "Processor time against cameras",
        "Of the server, as its metrics tell, and of the simulator; medians of the runs.",
        &cpu(report),
    );
    html
}

fn curve(report: &CapacityReport) -> String {
    let mut entries: Vec<_> = KINDS
        .into_iter()
        .map(|(_, class, name, shape)| (Swatch::Mark(shape.strokes(5.0)), class, name))
        .collect();
    entries.push((Swatch::Line, "s1", "median"));
    let (x, y) = medians(report, |run| run.max_ms);
    let description = format!(
        "{} of {} to {} cameras; slowest answers from {} to {}.",
        counted(report.steps.len() as u64, "step"),
        x.first().copied().unwrap_or(0.0),
        x.last().copied().unwrap_or(0.0),
        ms_unit(y.iter().copied().flatten().reduce(f64::min)),
        ms_unit(y.iter().copied().flatten().reduce(f64::max)),
    );
    let unknown = report.steps.iter().flat_map(runs_of).filter(|run| run.max_ms.is_none()).count();
    let note = if unknown == 0 {
        String::new()
    } else {
        format!("Without any OK answer, and so not drawn: {}.", counted(unknown as u64, "run"))
    };
    figure(&legend(&entries), &note, |layout| {
        let spec = Spec {
            name: "capacity",
            label: "Slowest answer against number of cameras",
            description: &description,
            hover: "point",
            x_text: X_TEXT,
            bin: None,
        };
        let values = report.steps.iter().flat_map(runs_of).map(|run| run.max_ms);
        let (values, log) = latency_axis(values, report.slo_max_ms);
        let axes = (camera_axis(&[report]), values);
        let mut plot = Plot::new(spec, layout, CURVE_HEIGHT, Margins::usual(layout), axes);
        plot.y_axis(latency_name(log), 7);
        plot.x_axis("cameras", layout.pick(10, 5));
        plot.limit(&format!("limit {} ms", plain(report.slo_max_ms)), report.slo_max_ms);
        if let Some(found) = report.found {
            plot.upright("found", &format!("{found} held"), f64::from(found), At::Top);
        }
        plot.line(&Series { name: "median", unit: "ms", class: "s1", x: &x, y: &y });
        for (verdict, class, _, shape) in KINDS {
            dots(&mut plot, report, verdict, class, shape);
        }
        plot.finish()
    })
}

fn dots(plot: &mut Plot<'_>, report: &CapacityReport, verdict: Verdict, class: &str, shape: Shape) {
    let (x, y): (Vec<f64>, Vec<Option<f64>>) = report
        .steps
        .iter()
        .flat_map(|step| step.runs.iter().map(|run| (f64::from(step.cameras), run)))
        .filter(|(_, run)| run.verdict == verdict)
        .map(|(cameras, run)| (cameras, run.max_ms))
        .unzip();
    let name = format!("slowest answer, {}", verdict.word());
    plot.marks(&Series { name: &name, unit: "ms", class, x: &x, y: &y }, shape, 5.0);
}

/// The share of the frames of a run that was answered OK, in per cent.
pub(super) fn ok_percent(run: &StepRun) -> Option<f64> {
    (run.sent > 0).then(|| 100.0 * run.ok as f64 / run.sent as f64)
}

fn answered(report: &CapacityReport) -> String {
    let (x, y) = medians(report, ok_percent);
    let least = y.iter().copied().flatten().fold(100.0, f64::min);
    // Even a share of 100 % throughout gets an axis.
    let low = (least - (100.0 - least) * 0.1 - 0.05).clamp(0.0, 99.0).floor();
    figure("", "", |layout| {
        let spec = Spec {
            name: "answered",
            label: "Share of the frames answered OK against number of cameras",
            description: "Median of each number of cameras.",
            hover: "x",
            x_text: X_TEXT,
            bin: None,
        };
        let axes = (camera_axis(&[report]), Scale::new(Kind::Linear, (low, 100.0)));
        let mut plot = Plot::new(spec, layout, HEIGHT, Margins::usual(layout), axes);
        plot.y_axis("answered OK, %", 5);
        plot.x_axis("cameras", layout.pick(10, 5));
        if let Some(found) = report.found {
            let name = format!("{found} held");
            plot.upright("found", &name, f64::from(found), At::Bottom);
        }
        let series = Series { name: "answered OK", unit: "%", class: "s1", x: &x, y: &y };
        plot.line(&series);
        plot.marks(&series, Shape::Dot, 3.0);
        plot.finish()
    })
}

fn upright(plot: &mut Plot<'_>, report: &CapacityReport) {
    if let Some(found) = report.found {
        plot.upright("found", &format!("{found} held"), f64::from(found), At::Top);
    }
}

fn cpu(report: &CapacityReport) -> String {
    let server = medians(report, |run| run.server_cpu_cores);
    let simulator = medians(report, |run| Some(run.simulator_cpu_cores));
    let others = medians(report, |run| run.others_cpu_cores);
    let cores = report.machine.cores as f64;
    let mut entries = vec![(Swatch::Line, "s3", "server"), (Swatch::Line, "s1", "simulator")];
    let mut lines = vec![("server", "s3", &server), ("simulator", "s1", &simulator)];
    if others.1.iter().any(Option::is_some) {
        entries.push((Swatch::Line, "s2", "everything else on the machine"));
        lines.push(("others", "s2", &others));
    }
    let note = if server.1.iter().all(Option::is_none) {
        "The server\u{2019}s metrics were not read, so its processor time is not known."
    } else {
        ""
    };
    figure(&legend(&entries), note, |layout: Layout| {
        let spec = Spec {
            name: "cpu",
            label: "Processor time against number of cameras",
            description: "Cores used by the server and by the simulator.",
            hover: "x",
            x_text: X_TEXT,
            bin: None,
        };
        let shared = report.same_machine.then_some(cores);
        let values = lines.iter().flat_map(|(_, _, (_, y))| y).copied().chain([shared]);
        let axes = (camera_axis(&[report]), from_zero(values));
        let mut plot = Plot::new(spec, layout, HEIGHT, Margins::usual(layout), axes);
        plot.y_axis("cores", 5);
        plot.x_axis("cameras", layout.pick(10, 5));
        if let Some(cores) = shared {
            plot.limit(&format!("the machine\u{2019}s {cores} cores"), cores);
        }
        upright(&mut plot, report);
        for &(name, class, (x, y)) in &lines {
            let series = Series { name, unit: "cores", class, x, y };
            plot.line(&series);
            plot.marks(&series, Shape::Dot, 3.0);
            plot.label(class, name, y.iter().rev().copied().flatten().next());
        }
        plot.finish()
    })
}
