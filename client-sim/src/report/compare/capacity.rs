//! Capacity searches side by side.

use std::collections::BTreeMap;

use super::{
    CapacityPoint, CapacitySide, Comparison, EntryFigures, RowFigures, Spread,
    noise::{Better, Value, median, range, row},
    settings,
};
use crate::report::capacity::{CapacityReport, KIND_CAPACITY, StepRun};

/// A figure of a search.
type Of = fn(&CapacityReport) -> Option<f64>;

/// All figures of all sides.
pub(super) fn compare(sides: &[CapacitySide<'_>]) -> Result<Comparison, String> {
    let mut comparison = Comparison::new(KIND_CAPACITY);
    comparison.differences = settings::of_searches(sides)?;
    comparison.rule = vec![
        "A difference in cameras is noise when the ranges touch: from the cameras that held in \
         every run to those that failed in every run, or over the repeats of a search. Other \
         figures are judged when there are repeats."
            .to_owned(),
    ];
    comparison.entries = sides.iter().map(entry).collect();
    comparison.rows = rows(sides);
    Ok(comparison)
}

fn rows(sides: &[CapacitySide<'_>]) -> Vec<RowFigures> {
    let figure = |name: &str, unit: &str, better, of: Of| {
        let values: Vec<Value> = sides.iter().map(|side| value(side, of)).collect();
        row(name, unit, better, &values)
    };
    let mut rows = vec![found(sides)];
    rows.push(figure("frames per second held", "", Better::More, |report| {
        Some(f64::from(report.found?) * report.fps)
    }));
    rows.push(figure("slowest answer there", "ms", Better::Less, |report| {
        at_found(report, |run| run.max_ms)
    }));
    rows.push(figure("99 % within there", "ms", Better::Less, |report| {
        at_found(report, |run| run.p99_ms)
    }));
    rows.push(figure("server's processor time there", "cores", Better::Neither, |report| {
        at_found(report, |run| run.server_cpu_cores)
    }));
    rows.push(figure("cameras per core of the server", "", Better::More, |report| {
        let cores = at_found(report, |run| run.server_cpu_cores).filter(|cores| *cores > 0.0)?;
        Some(f64::from(report.found?) / cores)
    }));
    rows.extend(costs(sides));
    rows.retain(|row| row.values.iter().any(Option::is_some));
    rows
}

/// The cameras held, with the spread of the search itself where there are no repeats.
fn found(sides: &[CapacitySide<'_>]) -> RowFigures {
    let of = |side: &CapacitySide<'_>| {
        let plain = value(side, |report| report.found.map(f64::from));
        if plain.repeated {
            return plain;
        }
        let search = side.searches[0];
        let spread = search.sure.zip(search.refuted).map(|(sure, refuted)| {
            let refuted = f64::from(refuted.saturating_sub(1));
            Spread { low: f64::from(sure), high: refuted.max(f64::from(sure)) }
        });
        // Ranges that touch are noise, however far the values in them lie apart.
        Value { spread, reach: Some(f64::INFINITY), ..plain }
    };
    let values: Vec<Value> = sides.iter().map(of).collect();
    row("cameras held", "", Better::More, &values)
}

fn value(side: &CapacitySide<'_>, of: Of) -> Value {
    let known: Vec<f64> = side.searches.iter().filter_map(|search| of(search)).collect();
    let repeated = known.len() > 1;
    let spread = if repeated { range(&known) } else { None };
    Value { middle: median(&known), spread, repeated, reach: None, of: None }
}

fn at_found(report: &CapacityReport, of: fn(&StepRun) -> Option<f64>) -> Option<f64> {
    let found = report.found?;
    let steps = report.steps.iter().filter(|step| step.cameras == found);
    let values: Vec<f64> = steps.flat_map(|step| &step.runs).filter_map(of).collect();
    median(&values)
}

/// A row for each kind of instance that an entry has a price of.
fn costs(sides: &[CapacitySide<'_>]) -> Vec<RowFigures> {
    let mut instances: Vec<(&str, &str)> = Vec::new();
    for cost in sides.iter().flat_map(|side| &side.searches).flat_map(|search| &search.cost) {
        let kind = (cost.instance.as_str(), cost.currency.as_str());
        if !instances.contains(&kind) {
            instances.push(kind);
        }
    }
    let row_of = |(instance, currency): (&str, &str)| {
        let values: Vec<Value> = sides
            .iter()
            .map(|side| {
                let of_search = |search: &&CapacityReport| {
                    let mut costs = search.cost.iter();
                    let cost = costs.find(|c| c.instance == instance && c.currency == currency)?;
                    Some(cost.per_camera_month)
                };
                let known: Vec<f64> = side.searches.iter().filter_map(of_search).collect();
                let repeated = known.len() > 1;
                let spread = if repeated { range(&known) } else { None };
                Value { middle: median(&known), spread, repeated, reach: None, of: None }
            })
            .collect();
        let name = format!("a camera and month on {instance}");
        row(&name, currency, Better::Less, &values)
    };
    instances.into_iter().map(row_of).collect()
}

fn entry(side: &CapacitySide<'_>) -> EntryFigures {
    let first = side.searches[0];
    let found: Vec<f64> =
        side.searches.iter().filter_map(|search| search.found.map(f64::from)).collect();
    EntryFigures {
        label: side.label.to_owned(),
        files: side.files.clone(),
        verdicts: Vec::new(),
        addr: first.addr.clone(),
        phases: first.phases.clone(),
        cameras: None,
        fps: first.fps,
        slo_max_ms: first.slo_max_ms,
        percentiles: Vec::new(),
        timeline: None,
        found: median(&found).map(|cameras| cameras.round() as u32),
        capacity: curve(&side.searches),
    }
}

/// The capacity curve of all searches together.
fn curve(searches: &[&CapacityReport]) -> Vec<CapacityPoint> {
    let mut by_cameras: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for step in searches.iter().flat_map(|search| &search.steps) {
        let known = step.runs.iter().filter_map(|run| run.max_ms);
        by_cameras.entry(step.cameras).or_default().extend(known);
    }
    let point =
        |(cameras, values): (u32, Vec<f64>)| CapacityPoint { cameras, max_ms: median(&values) };
    by_cameras.into_iter().map(point).collect()
}
