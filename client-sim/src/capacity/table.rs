//! The result of a search as text for a terminal.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use super::cost::SHIPPED_NOTE;
use crate::{
    report::{
        capacity::{CapacityReport, CostFigures, StepFigures, StepRun},
        schema::Verdict,
    },
    verdict::counted,
};

/// The whole result; the last line of a single search without prices is what limits it.
pub(super) fn render(reports: &[CapacityReport], sweep: bool, shipped_prices: bool) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut text, reports, sweep, shipped_prices);
    text
}

fn write_all(
    text: &mut String,
    reports: &[CapacityReport],
    sweep: bool,
    shipped_prices: bool,
) -> fmt::Result {
    if let Some(first) = reports.first() {
        head(text, first)?;
    }
    for report in reports {
        writeln!(text, "\nphase     {}\n", phase(report))?;
        steps(text, report)?;
        result(text, report)?;
    }
    if let Some(test) = reports.last().and_then(|report| report.self_test.as_ref()) {
        writeln!(
            text,
            "self-test {} against a server that answers at once: p99 {:.1}, max {:.1} ms, {:.2} cores",
            counted(u64::from(test.cameras), "camera"),
            test.p99_ms.unwrap_or(f64::NAN),
            test.max_ms.unwrap_or(f64::NAN),
            test.cpu_cores,
        )?;
    }
    if sweep {
        phases(text, reports)?;
    }
    // The cost follows from the number of cameras; of several, only the smallest is safe to build on.
    let least = reports.iter().filter(|report| !report.cost.is_empty()).min_by_key(|r| r.found);
    if let Some(report) = least {
        if sweep {
            writeln!(text, "\ncost of the smallest result, {}", phase(report))?;
        }
        for cost in &report.cost {
            costs(text, cost)?;
        }
        sources(text, &report.cost)?;
        if shipped_prices {
            writeln!(text, "note      {SHIPPED_NOTE}")?;
        }
    }
    Ok(())
}

fn head(text: &mut String, report: &CapacityReport) -> fmt::Result {
    write!(text, "server    {}", report.addr)?;
    if let Some(server) = &report.server {
        write!(text, ", version {}, {} ({})", server.version, server.model, server.backend)?;
        write!(text, ", {}", counted(u64::from(server.workers), "worker"))?;
    }
    let where_ = if report.same_machine { "the server's too" } else { "the simulator's" };
    let machine = &report.machine;
    let cores = counted(machine.cores as u64, "core");
    writeln!(text, "\nmachine   {cores}, {}; {where_}", machine.cpu)?;
    let pictures = &report.pictures;
    let kind = pictures.size.clone().unwrap_or_else(|| format!("from {}", pictures.source));
    write!(
        text,
        "load      {} fps a camera for {} s after {} s of warm-up; pictures {kind}, mean {} KB",
        report.fps,
        report.seconds,
        report.warmup_seconds,
        pictures.mean_bytes / 1000,
    )?;
    if let Some(connections) = report.connections {
        write!(text, "; {} for all", counted(u64::from(connections), "connection"))?;
    }
    writeln!(text, "\nlimits    {}", limits(report))
}

fn limits(report: &CapacityReport) -> String {
    let percentiles: Vec<String> = report
        .slo_percentiles
        .iter()
        .map(|limit| format!(", p{} within {} ms", limit.percentile, limit.limit_ms))
        .collect();
    let share = if report.min_answered_ratio < 1.0 {
        format!("{} of the frames", report.min_answered_ratio)
    } else {
        "every frame".to_owned()
    };
    let percentiles = percentiles.concat();
    format!("every answer within {} ms{percentiles}, {share} answered OK", report.slo_max_ms)
}

/// How the cameras' start times lie to each other, in words.
fn phase(report: &CapacityReport) -> String {
    match (report.phases.as_str(), report.ramp_cameras, report.ramp_every_ms) {
        (_, Some(cameras), Some(ms)) => {
            format!("ramp, starting {cameras} at a time, {ms} ms apart")
        }
        ("aligned", ..) => "aligned, all at the same instant".to_owned(),
        ("random", ..) => "random within a frame period".to_owned(),
        _ => "even, start times spread over a frame period".to_owned(),
    }
}

fn steps(text: &mut String, report: &CapacityReport) -> fmt::Result {
    writeln!(
        text,
        "{:>8}  {:<8}{:<8}{:>10}{:>10}{:>8}{:>14}{:>7}{:>12}",
        "cameras", "step", "runs", "p99 ms", "max ms", "ok %", "server cores", "busy", "sim cores"
    )?;
    for step in &report.steps {
        row(text, step)?;
    }
    writeln!(text)
}

fn row(text: &mut String, step: &StepFigures) -> fmt::Result {
    let runs: String = step.runs.iter().map(|run| letter(run.verdict)).collect();
    let most = |of: fn(&StepRun) -> Option<f64>| step.runs.iter().filter_map(of).reduce(f64::max);
    let shown = |value: Option<f64>, decimals: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
    };
    let sum = |of: fn(&StepRun) -> u64| step.runs.iter().map(of).sum::<u64>();
    let (sent, ok) = (sum(|run| run.sent), sum(|run| run.ok));
    writeln!(
        text,
        "{:>8}  {:<8}{runs:<8}{:>10}{:>10}{:>8}{:>14}{:>7}{:>12}",
        step.cameras,
        step.phase,
        shown(most(|run| run.p99_ms), 1),
        shown(most(|run| run.max_ms), 1),
        shown((sent > 0).then(|| share(ok, sent)), 2),
        shown(most(|run| run.server_cpu_cores), 2),
        shown(most(|run| run.server_busy), 2),
        shown(most(|run| Some(run.simulator_cpu_cores)), 2),
    )
}

/// In percent; only all of them are 100.
fn share(ok: u64, sent: u64) -> f64 {
    let percent = ok as f64 / sent as f64 * 100.0;
    if ok < sent { percent.min(99.99) } else { percent }
}

/// P, F or I.
fn letter(verdict: Verdict) -> char {
    verdict.word().chars().next().unwrap_or('?')
}

fn result(text: &mut String, report: &CapacityReport) -> fmt::Result {
    let fps = report.fps;
    let limit = report.slo_max_ms;
    match report.found {
        None => write!(text, "capacity  not known")?,
        Some(0) => write!(text, "capacity  not even 1 camera at {fps} fps holds {limit} ms")?,
        Some(found) => write!(
            text,
            "capacity  {} at {fps} fps {} {limit} ms, arrival phase {}",
            counted(u64::from(found), "camera"),
            if found == 1 { "holds" } else { "hold" },
            report.phases,
        )?,
    }
    writeln!(text, "{}{}", spread(report), unfinished(report))?;
    writeln!(text, "limited   {}: {}", report.limiting.resource, report.limiting.why)
}

/// How sure the number is.
fn spread(report: &CapacityReport) -> String {
    let sure = report.sure.map(|sure| format!("{sure} held in every run"));
    let refuted = report.refuted.map(|refuted| format!("{refuted} in none"));
    let parts: Vec<String> = sure.into_iter().chain(refuted).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

fn unfinished(report: &CapacityReport) -> String {
    let above = report.refuted.map_or_else(String::new, |n| format!(" and below {n}"));
    let so_far = || format!("; not finished: {} or more{above}", report.found.unwrap_or(0));
    match (report.complete, report.ended_by.as_str()) {
        (true, _) => String::new(),
        (false, "time") => format!("{}, the time was up", so_far()),
        (false, _) => format!("{}, interrupted", so_far()),
    }
}

fn phases(text: &mut String, reports: &[CapacityReport]) -> fmt::Result {
    writeln!(text, "\ncameras by arrival phase")?;
    writeln!(text, "{:<10}{:>8}{:>8}{:>9}  limited by", "phase", "cameras", "sure", "refuted")?;
    let shown = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    for report in reports {
        writeln!(
            text,
            "{:<10}{:>8}{:>8}{:>9}  {}{}",
            report.phases,
            shown(report.found),
            shown(report.sure),
            shown(report.refuted),
            report.limiting.resource,
            if report.complete { "" } else { " (not finished)" },
        )?;
    }
    Ok(())
}

/// A measured instance with fleets of it, another one in a line.
fn costs(text: &mut String, cost: &CostFigures) -> fmt::Result {
    let how = if cost.measured { "measured" } else { "scaled, not measured" };
    let currency = &cost.currency;
    writeln!(
        text,
        "cost      {}: {} ({how}), {} {currency} an hour: {:.2} {currency} a camera and month",
        cost.instance,
        counted(u64::from(cost.cameras), "camera"),
        cost.price_per_hour,
        cost.per_camera_month,
    )?;
    for fleet in cost.fleets.iter().filter(|_| cost.measured) {
        write!(
            text,
            "{:>12} {:<10}{:>7} cameras {:>12.2} {currency} a month",
            fleet.instances,
            if fleet.instances == 1 { "instance" } else { "instances" },
            fleet.cameras,
            fleet.month,
        )?;
        if let Some(per_camera) = fleet.per_camera_month_n_plus_1 {
            let cameras = counted(u64::from(fleet.cameras_n_plus_1), "camera");
            write!(text, "; {cameras} when one may fail, {per_camera:.2} each")?;
        }
        writeln!(text)?;
    }
    Ok(())
}

/// Where the prices are from, each source once.
fn sources(text: &mut String, costs: &[CostFigures]) -> fmt::Result {
    let mut by_source: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for cost in costs.iter().filter(|cost| !cost.source.is_empty()) {
        by_source.entry(&cost.source).or_default().push(&cost.instance);
    }
    for (source, instances) in by_source {
        writeln!(text, "prices    {source}: {}", instances.join(", "))?;
    }
    Ok(())
}
