//! What is added up, or of which the largest is taken.

use super::{Part, added};
use crate::{
    report::schema::{
        GroupFigures, HeartbeatFigures, LatenessFigures, MachineFigures, PerServerFigures,
        ReconnectFigures, Report, RogueFigures, SelfTestFigures, SimulatorFigures, WarmupFigures,
    },
    report::servers,
    stats::{Figures, StageMeans},
};

/// What stands for the arrival of parts that do not share one.
pub(super) const MIXED: &str = "mixed";

pub(super) fn sum(parts: &[Part<'_>], of: impl Fn(&Report) -> u64) -> u64 {
    parts.iter().map(|part| of(part.report)).sum()
}

pub(super) fn max(parts: &[Part<'_>], of: impl Fn(&Report) -> Option<f64>) -> Option<f64> {
    parts.iter().filter_map(|part| of(part.report)).reduce(f64::max)
}

/// Different texts, in order.
pub(super) fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut different: Vec<&str> = Vec::new();
    for text in texts {
        if !text.is_empty() && !different.contains(&text) {
            different.push(text);
        }
    }
    different.join(", ")
}

/// Machines that look alike are taken for one.
pub(super) fn machine(parts: &[Part<'_>]) -> MachineFigures {
    let mut machines: Vec<&MachineFigures> = Vec::new();
    for part in parts {
        if !machines.contains(&&part.report.machine) {
            machines.push(&part.report.machine);
        }
    }
    MachineFigures {
        cores: machines.iter().map(|machine| machine.cores).sum(),
        cpu: joined(machines.iter().map(|machine| machine.cpu.as_str())),
        memory_bytes: machines.iter().map(|machine| machine.memory_bytes).sum(),
        system: joined(machines.iter().map(|machine| machine.system.as_str())),
    }
}

pub(super) fn mean_fps(parts: &[Part<'_>]) -> f64 {
    let cameras: f64 = parts.iter().map(|part| f64::from(part.report.cameras)).sum();
    let frames: f64 =
        parts.iter().map(|part| part.report.fps * f64::from(part.report.cameras)).sum();
    if cameras > 0.0 { frames / cameras } else { 0.0 }
}

/// How the cameras started, if all parts agree.
pub(super) fn phases(parts: &[Part<'_>]) -> (String, Option<u32>, Option<f64>) {
    let of = |report: &Report| (report.phases.clone(), report.ramp_cameras, report.ramp_every_ms);
    let first = parts.first().map(|part| of(part.report));
    match first {
        Some(first) if parts.iter().all(|part| of(part.report) == first) => first,
        _ => (MIXED.to_owned(), None, None),
    }
}

pub(super) fn scenario(parts: &[Part<'_>]) -> Option<String> {
    let names = joined(parts.iter().filter_map(|part| part.report.scenario.as_deref()));
    (!names.is_empty()).then_some(names)
}

pub(super) fn rogues(parts: &[Part<'_>]) -> Vec<RogueFigures> {
    let mut all: Vec<RogueFigures> = Vec::new();
    for rogue in parts.iter().flat_map(|part| &part.report.rogues) {
        match all.iter_mut().find(|other| other.behaviour == rogue.behaviour) {
            None => all.push(rogue.clone()),
            Some(other) => {
                other.clients += rogue.clients;
                other.streams += rogue.streams;
                other.sent += rogue.sent;
                other.answered += rogue.answered;
                other.ok += rogue.ok;
            }
        }
    }
    all
}

pub(super) fn reconnects(parts: &[Part<'_>]) -> ReconnectFigures {
    let count = sum(parts, |report| report.reconnects.count);
    let gaps: f64 = parts
        .iter()
        .map(|part| part.report.reconnects)
        .map(|gaps| gaps.gap_mean_ms.unwrap_or(0.0) * gaps.count as f64)
        .sum();
    ReconnectFigures {
        count,
        gap_max_ms: max(parts, |report| report.reconnects.gap_max_ms),
        gap_mean_ms: (count > 0).then(|| gaps / count as f64),
        excused_frames: sum(parts, |report| report.reconnects.excused_frames),
        ..servers::comings_back(parts.iter().flat_map(|part| &part.report.per_camera))
    }
}

/// How cameras chose among servers, if all parts agree.
pub(super) fn balance(parts: &[Part<'_>]) -> Option<String> {
    let first = parts.first()?.report.balance.clone();
    let alike = parts.iter().all(|part| part.report.balance == first);
    if alike { first } else { Some(MIXED.to_owned()) }
}

/// Adds what another part had from a server.
pub(super) fn add_server(sum: &mut PerServerFigures, other: &PerServerFigures) {
    sum.figures = larger((&sum.figures, sum.tally.ok), (&other.figures, other.tally.ok));
    sum.tally.add(&other.tally);
    sum.server = sum.server.take().or_else(|| other.server.clone());
    for (sum, other) in [
        (&mut sum.cameras_first, other.cameras_first),
        (&mut sum.cameras, other.cameras),
        (&mut sum.streams, other.streams),
        (&mut sum.refused, other.refused),
        (&mut sum.moved_in, other.moved_in),
        (&mut sum.moved_out, other.moved_out),
    ] {
        *sum += other;
    }
    for (sum, other) in sum.bins_ok.iter_mut().zip(&other.bins_ok) {
        *sum += other;
    }
}

/// Of parts that waited differently long, the longest time.
pub(super) fn heartbeats(parts: &[Part<'_>]) -> Option<HeartbeatFigures> {
    parts.iter().filter_map(|part| part.report.heartbeats).reduce(|a, b| HeartbeatFigures {
        every_seconds: a.every_seconds.max(b.every_seconds),
        sent: a.sent + b.sent,
        answered: a.answered + b.answered,
        taken_for_frames: a.taken_for_frames + b.taken_for_frames,
    })
}

pub(super) fn lateness(parts: &[Part<'_>], of: fn(&Report) -> LatenessFigures) -> LatenessFigures {
    LatenessFigures {
        p99: max(parts, |report| of(report).p99),
        max: max(parts, |report| of(report).max),
    }
}

pub(super) fn simulator(parts: &[Part<'_>]) -> SimulatorFigures {
    let own = || parts.iter().map(|part| &part.report.simulator);
    let tests: Vec<&SelfTestFigures> = own().filter_map(|own| own.self_test.as_ref()).collect();
    let most = |of: fn(&SelfTestFigures) -> Option<f64>| {
        tests.iter().filter_map(|test| of(test)).reduce(f64::max)
    };
    SimulatorFigures {
        threads: own().map(|own| own.threads).sum(),
        cpu_cores: own().map(|own| own.cpu_cores).sum(),
        busiest_thread_share: max(parts, |report| report.simulator.busiest_thread_share),
        wake_lateness_ms: lateness(parts, |report| report.simulator.wake_lateness_ms),
        over_slo_by_itself: own().map(|own| own.over_slo_by_itself).sum(),
        self_test: (!tests.is_empty()).then(|| SelfTestFigures {
            cameras: tests.iter().map(|test| test.cameras).sum(),
            seconds: most(|test| Some(test.seconds)).unwrap_or(0.0),
            sent: tests.iter().map(|test| test.sent).sum(),
            ok: tests.iter().map(|test| test.ok).sum(),
            p99_ms: most(|test| test.p99_ms),
            max_ms: most(|test| test.max_ms),
            cpu_cores: tests.iter().map(|test| test.cpu_cores).sum(),
        }),
    }
}

pub(super) fn warmup(parts: &[Part<'_>]) -> WarmupFigures {
    WarmupFigures {
        seconds: max(parts, |report| Some(report.warmup.seconds)).unwrap_or(0.0),
        tally: added(parts.iter().map(|part| &part.report.warmup.tally)),
        max_ms: max(parts, |report| report.warmup.max_ms),
    }
}

/// Means of stage times, each weighed by its number of frames.
pub(super) fn stages(means: impl Iterator<Item = (u64, Option<StageMeans>)>) -> Option<StageMeans> {
    let known: Vec<(f64, StageMeans)> =
        means.filter_map(|(ok, means)| Some((ok as f64, means?))).collect();
    let frames: f64 = known.iter().map(|(ok, _)| ok).sum();
    let mean = |of: fn(&StageMeans) -> f64| {
        (known.iter().map(|(ok, means)| ok * of(means)).sum::<f64>() / frames).round()
    };
    (frames > 0.0).then(|| StageMeans {
        queue: mean(|means| means.queue),
        decode: mean(|means| means.decode),
        preprocess: mean(|means| means.preprocess),
        inference: mean(|means| means.inference),
        postprocess: mean(|means| means.postprocess),
        total: mean(|means| means.total),
    })
}

/// What makes two groups the same one, played by two parts.
fn same_group(a: &GroupFigures, b: &GroupFigures) -> bool {
    a.name == b.name
        && (a.fps - b.fps).abs() <= 0.0
        && (a.jitter_ms - b.jitter_ms).abs() <= 0.0
        && a.budget_ms == b.budget_ms
        && a.pictures == b.pictures
}

/// The names of the parts' groups in the whole: those that share a name and nothing else are told
/// apart by the number of their part.
pub(super) fn group_names(parts: &[Part<'_>]) -> Vec<Vec<String>> {
    let mut seen: Vec<&GroupFigures> = Vec::new();
    let mut names = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let mut of_part = Vec::new();
        for group in &part.report.groups {
            let known = seen.iter().any(|other| same_group(other, group));
            let taken = seen.iter().any(|other| other.name == group.name);
            of_part.push(if taken && !known {
                format!("{}@{}", group.name, index + 1)
            } else {
                group.name.clone()
            });
            seen.push(group);
        }
        names.push(of_part);
    }
    names
}

pub(super) fn groups(parts: &[Part<'_>], names: &[Vec<String>]) -> Vec<GroupFigures> {
    let mut all: Vec<GroupFigures> = Vec::new();
    for (part, names) in parts.iter().zip(names) {
        for (group, name) in part.report.groups.iter().zip(names) {
            if let Some(other) = all.iter_mut().find(|other| other.name == *name) {
                other.cameras += group.cameras;
                other.figures =
                    larger((&other.figures, other.tally.ok), (&group.figures, group.tally.ok));
                other.tally.add(&group.tally);
            } else {
                all.push(GroupFigures { name: name.clone(), ..group.clone() });
            }
        }
    }
    all
}

/// Figures of two groups of answers: exact extremes and mean, and the larger percentiles.
fn larger(a: (&Figures, u64), b: (&Figures, u64)) -> Figures {
    let most =
        |of: fn(&Figures) -> Option<f64>| of(a.0).into_iter().chain(of(b.0)).reduce(f64::max);
    let sum: f64 = [a, b].iter().filter_map(|(f, n)| Some(f.mean_ms? * *n as f64)).sum();
    let count = a.1 + b.1;
    Figures {
        p50_ms: most(|figures| figures.p50_ms),
        p95_ms: most(|figures| figures.p95_ms),
        p99_ms: most(|figures| figures.p99_ms),
        max_ms: most(|figures| figures.max_ms),
        mean_ms: (count > 0).then(|| (sum / count as f64 * 1e3).round() / 1e3),
        min_ms: a.0.min_ms.into_iter().chain(b.0.min_ms).reduce(f64::min),
    }
}
