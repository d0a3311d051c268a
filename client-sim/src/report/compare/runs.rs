//! Runs side by side.

use super::{
    Comparison, EntryFigures, RowFigures, RunSide,
    noise::{Better, Value, median, middle_half, range, row},
    settings,
};
use crate::{
    report::schema::{KIND_RUN, Report},
    stats::{Distribution, StageMeans},
};

/// A figure of a run.
type Of = fn(&Report) -> Option<f64>;

/// A figure of each of its bins.
type OfBins = fn(&Report) -> Vec<Option<f64>>;

struct Metric {
    name: &'static str,
    unit: &'static str,
    better: Better,
    of: Of,
    noise: Noise,
}

/// What tells the noise of a figure of a single run.
#[derive(Clone, Copy)]
enum Noise {
    /// The same figure of each bin.
    Bins(OfBins),
    /// It counts rare events.
    Count,
    /// Nothing does.
    Unknown,
}

const METRICS: [Metric; 15] = [
    latency("slowest answer", |r| r.figures.max_ms, Noise::Bins(|r| r.timeline.max_ms.clone())),
    latency("99 % within", |r| r.figures.p99_ms, Noise::Bins(|r| r.timeline.p99_ms.clone())),
    latency("95 % within", |r| r.figures.p95_ms, Noise::Unknown),
    latency("median", |r| r.figures.p50_ms, Noise::Bins(|r| r.timeline.p50_ms.clone())),
    latency("mean", |r| r.figures.mean_ms, Noise::Unknown),
    latency("queue (mean)", |r| stage(r, |s| s.queue), Noise::Bins(|r| stages(r, |s| s.queue))),
    latency("decode (mean)", |r| stage(r, |s| s.decode), Noise::Bins(|r| stages(r, |s| s.decode))),
    latency(
        "inference (mean)",
        |r| stage(r, |s| s.inference),
        Noise::Bins(|r| stages(r, |s| s.inference)),
    ),
    latency(
        "in the server (mean)",
        |r| stage(r, |s| s.total),
        Noise::Bins(|r| stages(r, |s| s.total)),
    ),
    Metric {
        unit: "%",
        better: Better::More,
        ..latency("answered OK", answered_percent, Noise::Unknown)
    },
    count("answered, not OK", |r| Some(r.tally.answered.saturating_sub(r.tally.ok) as f64)),
    count("without an answer", |r| {
        Some((r.tally.lost + r.tally.unaccepted + r.tally.not_sent) as f64)
    }),
    count("answers over the limit", |r| Some(r.over_slo as f64)),
    Metric { better: Better::Neither, ..count("reconnects", |r| Some(r.reconnects.count as f64)) },
    Metric {
        unit: "cores",
        better: Better::Neither,
        ..latency("simulator's processor time", |r| Some(r.simulator.cpu_cores), Noise::Unknown)
    },
];

const fn latency(name: &'static str, of: Of, noise: Noise) -> Metric {
    Metric { name, unit: "ms", better: Better::Less, of, noise }
}

const fn count(name: &'static str, of: Of) -> Metric {
    Metric { name, unit: "", better: Better::Less, of, noise: Noise::Count }
}

fn answered_percent(report: &Report) -> Option<f64> {
    let due = report.tally.sent + report.tally.not_sent;
    (due > 0).then(|| 100.0 * report.tally.ok as f64 / due as f64)
}

fn stage(report: &Report, of: fn(&StageMeans) -> f64) -> Option<f64> {
    report.stages_mean_us.as_ref().map(|means| of(means) / 1e3)
}

fn stages(report: &Report, of: fn(&StageMeans) -> f64) -> Vec<Option<f64>> {
    let means = report.timeline.stages_mean_us.iter();
    means.map(|means| means.as_ref().map(|means| of(means) / 1e3)).collect()
}

impl Metric {
    fn row(&self, sides: &[RunSide<'_>]) -> RowFigures {
        let values: Vec<Value> = sides.iter().map(|side| self.value(&side.runs)).collect();
        row(self.name, self.unit, self.better, &values)
    }

    fn value(&self, runs: &[&Report]) -> Value {
        let known: Vec<f64> = runs.iter().filter_map(|run| (self.of)(run)).collect();
        let repeated = known.len() > 1;
        let bins: Vec<f64> = match self.noise {
            Noise::Bins(of) => of(runs[0]).into_iter().flatten().collect(),
            Noise::Count | Noise::Unknown => Vec::new(),
        };
        let spread = if repeated { range(&known) } else { middle_half(&bins) };
        let reach = range(&bins).map(|bins| bins.high - bins.low);
        let counted = matches!(self.noise, Noise::Count) && !repeated;
        let of = counted.then(|| runs[0].tally.sent + runs[0].tally.not_sent);
        Value { middle: median(&known), spread, repeated, reach, of }
    }
}

/// All figures of all sides.
pub(super) fn compare(sides: &[RunSide<'_>]) -> Result<Comparison, String> {
    let mut comparison = Comparison::new(KIND_RUN);
    comparison.differences = settings::of_runs(sides)?;
    comparison.rule = rule(sides);
    comparison.entries = sides.iter().map(entry).collect::<Result<_, _>>()?;
    let rows = METRICS.iter().map(|metric| metric.row(sides));
    comparison.rows = rows.filter(|row| row.values.iter().any(Option::is_some)).collect();
    Ok(comparison)
}

/// How noise is told, for those who read the result.
fn rule(sides: &[RunSide<'_>]) -> Vec<String> {
    let mut rule = Vec::new();
    if sides.iter().any(|side| side.runs.len() > 1) {
        rule.push(
            "With repeats, figures are medians, and a difference is noise when the ranges of the \
             repeats touch. Chance alone separates 3 and 3 repeats in 1 of 10 figures, 5 and 5 in \
             1 of 126."
                .to_owned(),
        );
    }
    if sides.iter().filter(|side| side.runs.len() == 1).count() > 1 {
        rule.push(
            "Of two single runs, a difference in latency is noise when the middle halves of the \
             same figure of their bins overlap and the values lie no further apart than all bins of \
             the steadier run, and one in counts when chance explains it (twice \
             the root of the counts added up). Runs differ from each other by more than the bins \
             of one run do: repeat them (LABEL=A.json,B.json,C.json) before you rely on it."
                .to_owned(),
        );
    }
    rule
}

fn entry(side: &RunSide<'_>) -> Result<EntryFigures, String> {
    let first = side.runs[0];
    Ok(EntryFigures {
        label: side.label.to_owned(),
        files: side.files.clone(),
        verdicts: side.runs.iter().map(|run| run.verdict).collect(),
        addr: first.addr.clone(),
        phases: first.phases.clone(),
        cameras: Some(first.cameras),
        fps: first.fps,
        slo_max_ms: first.slo_max_ms,
        percentiles: together(side)?.curve(),
        timeline: Some(middle_run(&side.runs).timeline.clone()),
        found: None,
        capacity: Vec::new(),
    })
}

/// The answers of all repeats.
fn together(side: &RunSide<'_>) -> Result<Distribution, String> {
    let mut all = Distribution::latency();
    for (run, file) in side.runs.iter().zip(&side.files) {
        let one = Distribution::from_base64(&run.histogram_us)
            .map_err(|why| format!("{file}: histogram_us: {why}"))?;
        all.add(&one.with_figures(&run.figures));
    }
    Ok(all)
}

/// The repeat whose slowest answer is the middle one.
fn middle_run<'a>(runs: &[&'a Report]) -> &'a Report {
    let mut sorted = runs.to_vec();
    let slowest = |run: &Report| run.figures.max_ms.unwrap_or(f64::INFINITY);
    sorted.sort_by(|a, b| slowest(a).total_cmp(&slowest(b)));
    sorted[(sorted.len() - 1) / 2]
}
