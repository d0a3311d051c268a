//! In which settings entries differ: what must be known before any figure is read.

use super::{CapacitySide, Difference, RunSide};
use crate::{
    report::{
        capacity::CapacityReport,
        schema::{MachineFigures, PictureFigures, Report, ServerFigures},
    },
    verdict::counted,
};

/// A setting: name, whether figures of runs that differ in it may mean nothing, and its value.
type Setting<T> = (&'static str, bool, fn(&T) -> String);

const OF_RUNS: [Setting<Report>; 16] = [
    ("arrival", true, |r| arrival(&r.phases, r.ramp_cameras, r.ramp_every_ms)),
    ("cameras", true, |r| r.cameras.to_string()),
    ("frames per second", true, |r| r.fps.to_string()),
    ("groups", true, groups),
    ("servers", true, |r| r.servers.len().max(1).to_string()),
    ("balance", true, |r| r.balance.clone().unwrap_or_else(|| "none".to_owned())),
    ("connections", true, |r| connections(r.connections)),
    ("length", true, |r| format!("{} s", r.seconds)),
    ("limit", true, |r| format!("{} ms", r.slo_max_ms)),
    ("model", true, |r| of_server(r.server.as_ref(), |s| s.model.clone())),
    ("input", true, |r| of_server(r.server.as_ref(), input)),
    ("simulator's machine", true, |r| machine(&r.machine)),
    ("rule breakers", true, |r| format!("{}", r.rogues.iter().map(|x| x.clients).sum::<u32>())),
    ("backend", false, |r| of_server(r.server.as_ref(), |s| s.backend.clone())),
    ("workers", false, |r| of_server(r.server.as_ref(), |s| s.workers.to_string())),
    ("server version", false, |r| of_server(r.server.as_ref(), |s| s.version.clone())),
];

const OF_SEARCHES: [Setting<CapacityReport>; 14] = [
    ("arrival", true, |r| arrival(&r.phases, r.ramp_cameras, r.ramp_every_ms)),
    ("frames per second", true, |r| r.fps.to_string()),
    ("pictures", true, |r| pictures(&r.pictures)),
    ("connections", true, |r| connections(r.connections)),
    ("length of a run", true, |r| format!("{} s", r.seconds)),
    ("runs of a step", true, |r| r.repeats.to_string()),
    ("limit", true, |r| format!("{} ms", r.slo_max_ms)),
    ("model", true, |r| of_server(r.server.as_ref(), |s| s.model.clone())),
    ("input", true, |r| of_server(r.server.as_ref(), input)),
    ("simulator's machine", true, |r| machine(&r.machine)),
    ("server beside the simulator", true, |r| r.same_machine.to_string()),
    ("backend", false, |r| of_server(r.server.as_ref(), |s| s.backend.clone())),
    ("workers", false, |r| of_server(r.server.as_ref(), |s| s.workers.to_string())),
    ("server version", false, |r| of_server(r.server.as_ref(), |s| s.version.clone())),
];

fn arrival(phases: &str, ramp_cameras: Option<u32>, ramp_ms: Option<f64>) -> String {
    match (ramp_cameras, ramp_ms) {
        (Some(cameras), Some(ms)) => format!("{phases} ({cameras} every {ms} ms)"),
        _ => phases.to_owned(),
    }
}

fn groups(report: &Report) -> String {
    let group = |group: &crate::report::schema::GroupFigures| {
        let cameras = counted(u64::from(group.cameras), "camera");
        let pictures = pictures(&group.pictures);
        format!("{cameras} x {} fps, {} ms jitter, {pictures}", group.fps, group.jitter_ms)
    };
    report.groups.iter().map(group).collect::<Vec<_>>().join("; ")
}

fn pictures(pictures: &PictureFigures) -> String {
    let size = pictures.size.as_deref().unwrap_or(&pictures.source);
    format!("{size} of {} KB", pictures.mean_bytes / 1000)
}

fn connections(connections: Option<u32>) -> String {
    connections.map_or_else(|| "one for each camera".to_owned(), |n| n.to_string())
}

fn of_server(server: Option<&ServerFigures>, of: fn(&ServerFigures) -> String) -> String {
    server.map_or_else(|| "unknown".to_owned(), of)
}

fn input(server: &ServerFigures) -> String {
    format!("{}x{}", server.input_width, server.input_height)
}

fn machine(machine: &MachineFigures) -> String {
    format!("{} ({})", machine.cpu, counted(machine.cores as u64, "core"))
}

/// The settings in which the entries differ, what matters first. Repeats within an entry must not.
pub(super) fn of_runs(sides: &[RunSide<'_>]) -> Result<Vec<Difference>, String> {
    let sides: Vec<_> = sides.iter().map(|side| (side.label, &*side.files, &*side.runs)).collect();
    differences(&OF_RUNS, &sides)
}

/// The same of capacity searches.
pub(super) fn of_searches(sides: &[CapacitySide<'_>]) -> Result<Vec<Difference>, String> {
    let sides: Vec<_> =
        sides.iter().map(|side| (side.label, &*side.files, &*side.searches)).collect();
    differences(&OF_SEARCHES, &sides)
}

/// An entry's name, files and reports.
type Entry<'a, T> = (&'a str, &'a [String], &'a [&'a T]);

fn differences<T>(
    settings: &[Setting<T>],
    entries: &[Entry<'_, T>],
) -> Result<Vec<Difference>, String> {
    let mut differences = Vec::new();
    for (setting, matters, of) in settings {
        for (label, files, repeats) in entries {
            let first = of(repeats[0]);
            let other = repeats.iter().position(|repeat| of(repeat) != first);
            if let (true, Some(other)) = (*matters, other) {
                return Err(format!(
                    "{label}: {} and {} are no repeats of each other, they differ in {setting}: \
                     {first} and {}",
                    files[0],
                    files[other],
                    of(repeats[other])
                ));
            }
        }
        let values: Vec<String> = entries.iter().map(|(_, _, repeats)| of(repeats[0])).collect();
        if values.iter().any(|value| *value != values[0]) {
            let setting = (*setting).to_owned();
            differences.push(Difference { setting, values, matters: *matters });
        }
    }
    Ok(differences)
}
