//! Reports of processes or machines that ran at the same time against one server, as one report.
//!
//! Exact: all counts, extremes, and the latency distribution with everything taken from it. Not to be
//! had from parts, and so the largest of theirs, an upper bound: percentiles of single bins, of
//! lateness, and of groups that several parts share.

mod sums;
mod time;

use super::schema::{KIND_RUN, PercentileLimit, Report, SCHEMA_VERSION, StreamEndFigures, Verdict};
use crate::{
    stats::{Distribution, Tally},
    validity,
    verdict::{Judgement, Limits, judge, stream_ends},
};

/// A report to be merged, with the name by which messages call it.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// As in `a.json`.
    pub name: &'a str,
    /// The report.
    pub report: &'a Report,
}

/// What to say of the merging itself.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Take parts that did not run at the same time.
    pub allow_disjoint: bool,
    /// What the merged report says of the tool's arguments.
    pub arguments: Vec<String>,
}

/// The report of the whole, judged anew; or, in one line, why there cannot be one.
pub fn merge(parts: &[Part<'_>], options: &Options) -> Result<Report, String> {
    let first = parts.first().ok_or("there is nothing to merge")?;
    for (index, part) in parts.iter().enumerate() {
        same_kind(first, part)?;
        if let Some(twin) = parts[..index].iter().find(|other| other.report == part.report) {
            return Err(format!("{} and {} are the same report", twin.name, part.name));
        }
    }
    let places = time::Places::of(parts, options.allow_disjoint)?;
    let latency = latency(parts)?;
    parts.iter().try_for_each(adds_up)?;
    let mut report = Report {
        schema_version: SCHEMA_VERSION,
        kind: KIND_RUN.to_owned(),
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        arguments: options.arguments.clone(),
        started_unix_ms: places.started_unix_ms,
        seconds: places.seconds,
        machine: sums::machine(parts),
        addr: sums::joined(parts.iter().map(|part| part.report.addr.as_str())),
        server: parts.iter().find_map(|part| part.report.server.clone()),
        cameras: parts.iter().map(|part| part.report.cameras).sum(),
        fps: sums::mean_fps(parts),
        connections: parts.iter().map(|part| part.report.connections).sum(),
        groups: Vec::new(),
        rogues: sums::rogues(parts),
        tally: added(parts.iter().map(|part| &part.report.tally)),
        figures: latency.figures(),
        all_answers_max_ms: sums::max(parts, |report| report.all_answers_max_ms),
        over_slo: sums::sum(parts, |report| report.over_slo),
        slo_percentiles: percentile_limits(first.report, &latency),
        interrupted: parts.iter().any(|part| part.report.interrupted),
        protocol_errors: sums::sum(parts, |report| report.protocol_errors),
        reconnects: sums::reconnects(parts),
        balance: sums::balance(parts),
        servers: places.servers(parts),
        heartbeats: sums::heartbeats(parts),
        stages_mean_us: sums::stages(
            parts.iter().map(|part| (part.report.tally.ok, part.report.stages_mean_us)),
        ),
        send_lateness_ms: sums::lateness(parts, |report| report.send_lateness_ms),
        simulator: sums::simulator(parts),
        percentiles: latency.curve(),
        histogram_us: latency.to_base64(),
        timeline: places.timeline(parts),
        warmup: sums::warmup(parts),
        per_camera: Vec::new(),
        ..first.report.clone()
    };
    (report.phases, report.ramp_cameras, report.ramp_every_ms) = sums::phases(parts);
    report.scenario = sums::scenario(parts);
    let names = sums::group_names(parts);
    report.groups = sums::groups(parts, &names);
    if let [only] = &mut report.groups[..] {
        only.figures = report.figures;
    }
    report.per_camera = places.cameras(parts, &names);
    settle(&mut report, parts);
    Ok(report)
}

/// Whether a part's cameras, by which the whole is judged, are all there.
fn adds_up(part: &Part<'_>) -> Result<(), String> {
    let report = part.report;
    let tally = added(report.per_camera.iter().map(|camera| &camera.tally));
    let over_slo: u64 = report.per_camera.iter().map(|camera| camera.over_slo).sum();
    if tally == report.tally && over_slo == report.over_slo {
        return Ok(());
    }
    Err(format!("{}: its cameras do not add up to its totals", part.name))
}

/// Whether two parts were held against the same limits, and can be laid beside each other.
fn same_kind(first: &Part<'_>, part: &Part<'_>) -> Result<(), String> {
    let (a, b) = (first.report, part.report);
    let limits = |report: &Report| -> Vec<(f64, f64)> {
        report.slo_percentiles.iter().map(|limit| (limit.percentile, limit.limit_ms)).collect()
    };
    let differs = |what: &str, one: String, other: String| {
        Err(format!("{} and {} differ in their {what}: {one} and {other}", first.name, part.name))
    };
    if (a.slo_max_ms - b.slo_max_ms).abs() > 0.0 {
        return differs("slo_max_ms", a.slo_max_ms.to_string(), b.slo_max_ms.to_string());
    }
    if (a.min_answered_ratio - b.min_answered_ratio).abs() > 0.0 {
        let [a, b] = [a, b].map(|report| report.min_answered_ratio.to_string());
        return differs("min_answered_ratio", a, b);
    }
    if limits(a) != limits(b) {
        let [a, b] = [a, b].map(|report| format!("{:?}", limits(report)));
        return differs("limits on percentiles", a, b);
    }
    if (a.timeline.bin_seconds - b.timeline.bin_seconds).abs() > 0.0 {
        let [a, b] = [a, b].map(|report| format!("{} s", report.timeline.bin_seconds));
        return differs("length of bins", a, b);
    }
    match (&a.server, &b.server) {
        (Some(one), Some(other)) if one != other => {
            let [one, other] = [one, other].map(|s| format!("{} with {}", s.version, s.model));
            differs("server", one, other)
        }
        _ => Ok(()),
    }
}

/// The distribution of all answers, with exact extremes.
fn latency(parts: &[Part<'_>]) -> Result<Distribution, String> {
    let mut all = Distribution::latency();
    for Part { name, report } in parts {
        let part = Distribution::from_base64(&report.histogram_us)
            .map_err(|why| format!("{name}: histogram_us: {why}"))?;
        if part.count() != report.tally.ok {
            return Err(format!(
                "{name}: histogram_us holds {} answers and the report {}",
                part.count(),
                report.tally.ok
            ));
        }
        all.add(&part.with_figures(&report.figures));
    }
    Ok(all)
}

fn percentile_limits(report: &Report, latency: &Distribution) -> Vec<PercentileLimit> {
    let anew = |limit: &PercentileLimit| PercentileLimit {
        ms: latency.at_percentile(limit.percentile),
        ..*limit
    };
    report.slo_percentiles.iter().map(anew).collect()
}

/// Judges the whole like a run. A part that says nothing about the server makes the whole say
/// nothing either.
fn settle(report: &mut Report, parts: &[Part<'_>]) {
    let limits = Limits::of_report(report);
    let ends = stream_ends(&report.per_camera).into_iter();
    report.stream_ends =
        ends.map(|(reason, streams)| StreamEndFigures { reason, streams }).collect();
    let stopped = parts.iter().filter(|part| part.report.interrupted);
    let reached =
        stopped.map(|part| part.report.timeline.ok.len() as f64 * part.report.timeline.bin_seconds);
    let judgement: Judgement = judge(&report.per_camera, &limits, reached.reduce(f64::min));
    // One part's simulator explains nothing about another part's slow answers.
    let sound = |part: &Part<'_>| part.report.verdict == Verdict::Fail && part.report.over_slo > 0;
    let (verdict, mut reasons) = if parts.iter().any(sound) {
        (Verdict::Fail, judgement.reasons())
    } else {
        validity::settle(&judgement, &report.simulator, &limits, report.over_slo)
    };
    let invalid: Vec<String> = parts
        .iter()
        .filter(|part| part.report.verdict == Verdict::Invalid)
        .map(|part| {
            let why = part.report.reasons.first().map_or("for no reason given", String::as_str);
            format!("{} is INVALID: {why}", part.name)
        })
        .collect();
    report.verdict = if invalid.is_empty() { verdict } else { Verdict::Invalid };
    reasons.splice(0..0, invalid);
    report.reasons = reasons;
}

/// Counts that belong together, added up.
fn added<'a>(tallies: impl Iterator<Item = &'a Tally>) -> Tally {
    tallies.fold(Tally::default(), |mut sum, tally| {
        sum.add(tally);
        sum
    })
}
