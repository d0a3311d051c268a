//! The report of a run: figures, verdict, and how both are shown.

pub mod capacity;
pub mod compare;
mod csv;
pub mod files;
pub mod hdr;
pub mod html;
pub mod jobs;
pub mod merge;
pub mod ping;
pub mod schema;
pub mod selftest;
mod servers;
mod table;

use std::{fs, time::Duration};

use vedette_proto::camera_ai::ServerInfo;

use self::schema::{
    CameraFigures, GroupFigures, HeartbeatFigures, KIND_RUN, LatenessFigures, PictureFigures,
    ReconnectFigures, Report, RogueFigures, SCHEMA_VERSION, SelfTestFigures, SimulatorFigures,
    StreamEndFigures, Timeline, Verdict, WarmupFigures,
};
use crate::{
    camera::Load,
    clock::millis,
    config::{Connections, JsonTarget, PictureSource, RunConfig},
    error::SimError,
    heartbeat, machine,
    meter::Usage,
    record::CameraResult,
    schedule::Phases,
    source::PictureSet,
    stats::{Distribution, StageSums, Tally},
    timeline::{CameraBin, ServerTimes},
    validity,
    verdict::{Limits, counted, judge, stream_ends},
};

/// Largest fleet whose cameras are reported bin by bin; beyond it the report would be mostly that.
const MOST_CAMERAS_WITH_BINS: usize = 1000;

/// What a report is made from.
#[derive(Debug)]
pub struct RunFacts<'a> {
    /// What was asked for.
    pub config: &'a RunConfig,
    /// What was sent, by group.
    pub loads: &'a [Load],
    /// What the server said about itself; of several the first that did.
    pub server: Option<ServerInfo>,
    /// Every server, by its place.
    pub servers: Vec<ServerFacts>,
    /// Start of the measured part, in milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// When the run was stopped by hand, as offset from its start.
    pub interrupted_after: Option<Duration>,
    /// Every camera's closed books, in order.
    pub cameras: Vec<CameraResult>,
    /// All cameras together, bin by bin.
    pub timeline: Timeline,
    /// Clients that broke the rules.
    pub rogues: Vec<RogueFigures>,
    /// What this tool took from the machine.
    pub usage: Usage,
    /// The same load against a server that answers at once.
    pub self_test: Option<SelfTestFigures>,
}

/// What is known of one server.
#[derive(Debug)]
pub struct ServerFacts {
    /// Its address.
    pub addr: String,
    /// What it said about itself.
    pub info: Option<ServerInfo>,
    /// Its answers.
    pub times: ServerTimes,
}

/// Adds up the cameras' figures and judges them.
#[must_use]
pub fn make(facts: &RunFacts<'_>) -> Report {
    let config = facts.config;
    let scenario = &config.scenario;
    let sums = Sums::of(facts.cameras.iter());
    let per_camera = cameras(facts);
    let figures = sums.latency.figures();
    let limits = Limits::of(&config.slo, |percentile| sums.latency.at_percentile(percentile));
    let stopped = facts.interrupted_after.map(|after| after.as_secs_f64());
    let judgement = judge(&per_camera, &limits, stopped);
    let over_slo = per_camera.iter().map(|camera| camera.over_slo).sum();
    let simulator = simulator(facts, &sums);
    let (verdict, reasons) = validity::settle(&judgement, &simulator, &limits, over_slo);
    let start = start(scenario.phases);
    Report {
        schema_version: SCHEMA_VERSION,
        kind: KIND_RUN.to_owned(),
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        arguments: std::env::args().skip(1).collect(),
        started_unix_ms: facts.started_unix_ms,
        machine: machine::figures(),
        addr: addr(facts),
        tls: config.target.addr.tls(),
        server: facts.server.clone().map(Into::into),
        scenario: scenario.name.clone(),
        seed: scenario.seed,
        cameras: scenario.cameras(),
        fps: scenario.offered_fps() / f64::from(scenario.cameras()),
        seconds: scenario.measured.as_secs_f64(),
        phases: start.name.to_owned(),
        ramp_cameras: start.ramp_cameras,
        ramp_every_ms: start.ramp_every_ms,
        connections: shared_connections(config.connections),
        groups: groups(facts),
        rogues: facts.rogues.clone(),
        tally: sums.measured,
        figures,
        all_answers_max_ms: largest(per_camera.iter().map(|camera| camera.all_answers_max_ms)),
        over_slo,
        slo_max_ms: limits.slo_max_ms,
        slo_percentiles: limits.percentiles,
        min_answered_ratio: limits.min_answered_ratio,
        verdict,
        reasons,
        interrupted: facts.interrupted_after.is_some(),
        protocol_errors: per_camera.iter().map(|camera| camera.protocol_errors).sum(),
        stream_ends: stream_ends(&per_camera)
            .into_iter()
            .map(|(reason, streams)| StreamEndFigures { reason, streams })
            .collect(),
        reconnects: reconnects(facts),
        balance: balance(config),
        servers: servers::figures(facts),
        heartbeats: heartbeats(facts),
        stages_mean_us: sums.stages.means(),
        send_lateness_ms: lateness(&sums.lateness),
        simulator,
        percentiles: sums.latency.curve(),
        histogram_us: sums.latency.to_base64(),
        timeline: facts.timeline.clone(),
        warmup: WarmupFigures {
            seconds: scenario.warmup.as_secs_f64(),
            tally: sums.warmup,
            max_ms: largest(per_camera.iter().map(|camera| camera.warmup_max_ms)),
        },
        per_camera,
    }
}

/// The servers' addresses.
fn addr(facts: &RunFacts<'_>) -> String {
    let addrs: Vec<&str> = facts.servers.iter().map(|server| &*server.addr).collect();
    addrs.join(", ")
}

/// How cameras chose among several servers.
fn balance(config: &RunConfig) -> Option<String> {
    config.balancing.several().then(|| config.balancing.policy.name().to_owned())
}

/// How the cameras' start times lie to each other, as reports write it.
pub(crate) struct Start {
    pub(crate) name: &'static str,
    pub(crate) ramp_cameras: Option<u32>,
    pub(crate) ramp_every_ms: Option<f64>,
}

pub(crate) fn start(phases: Phases) -> Start {
    let plain = |name| Start { name, ramp_cameras: None, ramp_every_ms: None };
    match phases {
        Phases::Even => plain("even"),
        Phases::Random => plain("random"),
        Phases::Aligned => plain("aligned"),
        Phases::Ramp { cameras, every } => {
            Start { name: "ramp", ramp_cameras: Some(cameras), ramp_every_ms: Some(millis(every)) }
        }
    }
}

/// The number of connections, when cameras share them.
pub(crate) fn shared_connections(connections: Connections) -> Option<u32> {
    match connections {
        Connections::PerCamera => None,
        Connections::Shared(count) => Some(count),
    }
}

fn cameras(facts: &RunFacts<'_>) -> Vec<CameraFigures> {
    let with_bins = facts.cameras.len() <= MOST_CAMERAS_WITH_BINS;
    let bins = facts.timeline.ok.len();
    let complete = |camera: &CameraResult| {
        let group = &facts.config.scenario.groups[camera.group];
        let mut figures = CameraFigures { group: group.name.clone(), ..camera.figures.clone() };
        servers::of_camera(facts, camera, &mut figures);
        if with_bins {
            let missed = |bin: &CameraBin| bin.not_ok + bin.unanswered;
            let used = &camera.bins[..bins];
            figures.bins_max_ms = used.iter().map(|bin| bin.max.map(millis)).collect();
            figures.bins_missed = used.iter().map(missed).collect();
        }
        figures
    };
    facts.cameras.iter().map(complete).collect()
}

fn groups(facts: &RunFacts<'_>) -> Vec<GroupFigures> {
    let groups = facts.config.scenario.groups.iter().zip(facts.loads).enumerate();
    let figures = |(index, (group, load)): (usize, (&crate::config::Group, &Load))| {
        let sums = Sums::of(facts.cameras.iter().filter(|camera| camera.group == index));
        GroupFigures {
            name: group.name.clone(),
            cameras: group.cameras,
            fps: group.fps,
            jitter_ms: millis(group.jitter),
            budget_ms: group.budget_ms,
            pictures: pictures(&group.pictures, &load.pictures),
            tally: sums.measured,
            figures: sums.latency.figures(),
        }
    };
    groups.map(figures).collect()
}

fn reconnects(facts: &RunFacts<'_>) -> ReconnectFigures {
    let gaps = || facts.cameras.iter().flat_map(|camera| camera.gaps.iter().copied());
    let count = gaps().count() as u64;
    let excused = |tally: &Tally| tally.lost + tally.unaccepted + tally.not_sent;
    ReconnectFigures {
        count,
        gap_max_ms: gaps().max().map(millis),
        gap_mean_ms: (count > 0).then(|| gaps().map(millis).sum::<f64>() / count as f64),
        excused_frames: facts.cameras.iter().map(|camera| excused(&camera.figures.excused)).sum(),
        ..servers::comings_back(facts.cameras.iter().map(|camera| &camera.figures))
    }
}

fn heartbeats(facts: &RunFacts<'_>) -> Option<HeartbeatFigures> {
    let every = facts.config.scenario.heartbeat?;
    let mut all = heartbeat::Counts::default();
    facts.cameras.iter().for_each(|camera| all.add(&camera.heartbeats));
    let heartbeat::Counts { sent, answered, taken_for_frames } = all;
    Some(HeartbeatFigures { every_seconds: every.as_secs_f64(), sent, answered, taken_for_frames })
}

fn simulator(facts: &RunFacts<'_>, sums: &Sums) -> SimulatorFigures {
    SimulatorFigures {
        threads: facts.config.threads,
        cpu_cores: facts.usage.cores,
        busiest_thread_share: facts.usage.busiest_thread,
        wake_lateness_ms: lateness(&sums.wake_lateness),
        over_slo_by_itself: facts.cameras.iter().map(|camera| camera.over_slo_by_itself).sum(),
        self_test: facts.self_test.clone(),
    }
}

fn lateness(distribution: &Distribution) -> LatenessFigures {
    let figures = distribution.figures();
    LatenessFigures { p99: figures.p99_ms, max: figures.max_ms }
}

/// What was sent from a source.
pub(crate) fn pictures(source: &PictureSource, pictures: &PictureSet) -> PictureFigures {
    let (min_bytes, mean_bytes, max_bytes) = pictures.sizes();
    let (source, size) = match source {
        PictureSource::Drawn(size) => ("drawn".to_owned(), Some(size.to_string())),
        PictureSource::Folder(dir) => (dir.display().to_string(), None),
        PictureSource::Video { path, .. } => (path.display().to_string(), None),
    };
    let count = pictures.pictures().len();
    PictureFigures { source, count, size, min_bytes, mean_bytes, max_bytes }
}

impl Report {
    /// Whether the run passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.verdict == Verdict::Pass
    }

    /// Whether it failed by slow answers, so that the simulator itself may have been the reason.
    #[must_use]
    pub fn failed_in_time(&self) -> bool {
        let slow = self.slo_percentiles.iter().any(|limit| limit.ms > Some(limit.limit_ms));
        self.verdict == Verdict::Fail && (self.over_slo > 0 || slow)
    }

    /// The verdict as its last line says it: `PASS: ...`, `FAIL (...)` or `INVALID (...)`.
    #[must_use]
    pub fn verdict_line(&self) -> String {
        if self.passed() {
            let excused = match self.reconnects.excused_frames {
                0 => String::new(),
                frames => format!(", {} excused in gaps", counted(frames, "frame")),
            };
            format!(
                "PASS: slowest answer {:.1} ms <= {} ms, {} of {} frames answered OK, {} lost{excused}",
                self.figures.max_ms.unwrap_or_default(),
                self.slo_max_ms,
                self.tally.ok,
                self.tally.sent,
                self.tally.lost,
            )
        } else {
            format!("{} ({})", self.verdict.word(), self.reasons.join("; "))
        }
    }

    /// The report for people: a table, the verdict on its last line. With `every_camera` it lists
    /// all cameras, otherwise the slowest.
    #[must_use]
    pub fn table(&self, every_camera: bool) -> String {
        table::render(self, every_camera)
    }
}

/// Writes something as JSON to its target.
pub fn write_json(value: &impl serde::Serialize, target: &JsonTarget) -> Result<(), SimError> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    match target {
        JsonTarget::Stdout => crate::print(&text),
        JsonTarget::File(path) => {
            fs::write(path, text).map_err(|source| SimError::Write { path: path.clone(), source })
        }
    }
}

/// The cameras added up.
struct Sums {
    measured: Tally,
    warmup: Tally,
    latency: Distribution,
    lateness: Distribution,
    wake_lateness: Distribution,
    stages: StageSums,
}

impl Sums {
    fn of<'a>(cameras: impl Iterator<Item = &'a CameraResult>) -> Self {
        let mut sums = Self {
            measured: Tally::default(),
            warmup: Tally::default(),
            latency: Distribution::latency(),
            lateness: Distribution::lateness(),
            wake_lateness: Distribution::lateness(),
            stages: StageSums::default(),
        };
        for camera in cameras {
            sums.measured.add(&camera.figures.tally);
            sums.warmup.add(&camera.figures.warmup);
            sums.latency.add(&camera.latency);
            sums.lateness.add(&camera.lateness);
            sums.wake_lateness.add(&camera.wake_lateness);
            sums.stages.add(&camera.stages);
        }
        sums
    }
}

fn largest(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().max_by(f64::total_cmp)
}
