//! The report of a run: figures, verdict, and how both are shown.

mod table;

use std::{fs, time::Duration};

use serde::Serialize;
use vedette_proto::camera_ai::ServerInfo;

use crate::{
    clock::millis,
    config::{JsonTarget, RunConfig},
    connect::ServerFigures,
    error::SimError,
    record::CameraResult,
    schedule::{Phases, Schedule},
    source::PictureSet,
    stats::{Distribution, Figures, StageMeans, StageSums, Tally},
    verdict::{Limits, Verdict, judge, stream_ends},
};

/// Version of the JSON report; raised when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// What a report is made from.
#[derive(Debug)]
pub struct RunFacts<'a> {
    /// What was asked for.
    pub config: &'a RunConfig,
    /// Who sent when.
    pub schedule: Schedule,
    /// What was sent.
    pub pictures: &'a PictureSet,
    /// What the server said about itself.
    pub server: Option<ServerInfo>,
    /// When the run was stopped by hand, as offset from its start.
    pub interrupted_after: Option<Duration>,
    /// Every camera's closed books, in order.
    pub cameras: Vec<CameraResult>,
}

/// A run's figures and verdict. Serialises to the JSON report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of this tool.
    pub client_version: &'static str,
    /// Host and port of the server.
    pub addr: String,
    /// What the server said about itself; `null` when it does not know the question.
    pub server: Option<ServerFigures>,
    /// Number of cameras.
    pub cameras: u32,
    /// Frames per second of each camera.
    pub fps: f64,
    /// Length of the measured part.
    pub seconds: f64,
    /// How the cameras' start times lie to each other: `spread` = evenly over a period, `aligned` =
    /// all at the same instant, `ramp` = group after group.
    pub phases: &'static str,
    /// Cameras that start together on a ramp; `null` otherwise.
    pub ramp_cameras: Option<u32>,
    /// Time from one group of a ramp to the next; `null` otherwise.
    pub ramp_every_ms: Option<f64>,
    /// What was sent.
    pub pictures: PictureFigures,
    /// Budget sent with each frame; 0 = the server's default.
    pub budget_ms: u32,
    /// Measured frames of all cameras.
    #[serde(flatten)]
    pub tally: Tally,
    /// Latency of the measured OK answers, from the intended send instant.
    #[serde(flatten)]
    pub figures: Figures,
    /// Slowest measured answer of any outcome.
    pub all_answers_max_ms: Option<f64>,
    /// Measured OK answers slower than the limit.
    pub over_slo: u64,
    /// Largest acceptable latency.
    pub slo_max_ms: f64,
    /// Share of the frames that must be answered OK.
    pub min_answered_ratio: f64,
    /// `verdict` (`PASS` or `FAIL`) and `reasons`.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Whether the run was stopped by hand.
    pub interrupted: bool,
    /// Answers that fit no waiting frame.
    pub protocol_errors: u64,
    /// How streams ended that did not end by being complete.
    pub stream_ends: Vec<StreamEndFigures>,
    /// Mean stage times that the server reported; `null` when it reports none.
    pub stages_mean_us: Option<StageMeans>,
    /// How late this tool handed measured frames to their connections.
    pub send_lateness_ms: LatenessFigures,
    /// Frames before the measured part.
    pub warmup: WarmupFigures,
    /// Each camera by itself.
    pub per_camera: Vec<CameraResult>,
    #[serde(skip)]
    per_camera_table: bool,
}

/// The pictures sent.
#[derive(Debug, Serialize)]
pub struct PictureFigures {
    /// `drawn` or the folder.
    pub source: String,
    /// Number of different pictures.
    pub count: usize,
    /// Size in pixels of drawn pictures, as in `640x480`; `null` for a folder's.
    pub size: Option<String>,
    /// Smallest file.
    pub min_bytes: usize,
    /// Mean file size.
    pub mean_bytes: usize,
    /// Largest file.
    pub max_bytes: usize,
}

/// One way in which streams ended.
#[derive(Debug, Serialize)]
pub struct StreamEndFigures {
    /// Status and message.
    pub reason: String,
    /// Streams that ended so.
    pub streams: u64,
}

/// This tool's own lateness.
#[derive(Debug, Serialize)]
pub struct LatenessFigures {
    /// 99 % of the frames were at most this late.
    pub p99: Option<f64>,
    /// The latest frame.
    pub max: Option<f64>,
}

/// The part of the run that does not count.
#[derive(Debug, Serialize)]
pub struct WarmupFigures {
    /// Its length.
    pub seconds: f64,
    /// Its frames.
    #[serde(flatten)]
    pub tally: Tally,
    /// Its slowest answer.
    pub max_ms: Option<f64>,
}

impl Report {
    /// Adds up the cameras' figures and judges them.
    #[must_use]
    pub fn new(facts: RunFacts<'_>) -> Self {
        let RunFacts { config, schedule, pictures, server, interrupted_after, cameras } = facts;
        let slo_max_ms = millis(config.slo_max);
        let limits = Limits { slo_max_ms, min_answered_ratio: config.min_answered_ratio };
        let stopped = interrupted_after.map(|after| after.as_secs_f64());
        let verdict = judge(&cameras, limits, stopped);
        let sums = Sums::of(&cameras);
        let lateness = sums.lateness.figures();
        let (phases, ramp_cameras, ramp_every_ms) = match config.phases {
            Phases::Even => ("spread", None, None),
            Phases::Aligned => ("aligned", None, None),
            Phases::Ramp { cameras, every } => ("ramp", Some(cameras), Some(millis(every))),
        };
        Self {
            schema_version: SCHEMA_VERSION,
            client_version: env!("CARGO_PKG_VERSION"),
            addr: config.addr.to_string(),
            server: server.map(ServerFigures::from),
            cameras: schedule.cameras(),
            fps: config.fps,
            seconds: config.measured.as_secs_f64(),
            phases,
            ramp_cameras,
            ramp_every_ms,
            pictures: PictureFigures::new(config, pictures),
            budget_ms: config.budget_ms,
            tally: sums.measured,
            figures: sums.latency.figures(),
            all_answers_max_ms: largest(cameras.iter().map(|camera| camera.all_answers_max_ms)),
            over_slo: cameras.iter().map(|camera| camera.over_slo).sum(),
            slo_max_ms,
            min_answered_ratio: config.min_answered_ratio,
            verdict,
            interrupted: interrupted_after.is_some(),
            protocol_errors: cameras.iter().map(|camera| camera.protocol_errors).sum(),
            stream_ends: stream_ends(&cameras)
                .into_iter()
                .map(|(reason, streams)| StreamEndFigures { reason, streams })
                .collect(),
            stages_mean_us: sums.stages.means(),
            send_lateness_ms: LatenessFigures { p99: lateness.p99_ms, max: lateness.max_ms },
            warmup: WarmupFigures {
                seconds: config.warmup.as_secs_f64(),
                tally: sums.warmup,
                max_ms: largest(cameras.iter().map(|camera| camera.warmup_max_ms)),
            },
            per_camera: cameras,
            per_camera_table: config.per_camera,
        }
    }

    /// Whether the run passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.verdict.passed()
    }

    /// The verdict as its last line says it: `PASS: ...` or `FAIL (...)`.
    #[must_use]
    pub fn verdict_line(&self) -> String {
        if self.passed() {
            format!(
                "PASS: slowest answer {:.1} ms <= {} ms, {} of {} frames answered OK, {} lost",
                self.figures.max_ms.unwrap_or_default(),
                self.slo_max_ms,
                self.tally.ok,
                self.tally.sent,
                self.tally.lost,
            )
        } else {
            self.verdict.to_string()
        }
    }

    /// The report for people: a table, the verdict on its last line.
    #[must_use]
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// Writes the JSON report to its target.
    pub fn write_json(&self, target: &JsonTarget) -> Result<(), SimError> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        match target {
            JsonTarget::Stdout => crate::print(&text),
            JsonTarget::File(path) => fs::write(path, text)
                .map_err(|source| SimError::Write { path: path.clone(), source }),
        }
    }
}

impl PictureFigures {
    fn new(config: &RunConfig, pictures: &PictureSet) -> Self {
        let (min_bytes, mean_bytes, max_bytes) = pictures.sizes();
        let folder = config.images.as_ref().map(|dir| dir.display().to_string());
        Self {
            size: folder.is_none().then(|| config.size.to_string()),
            source: folder.unwrap_or_else(|| "drawn".to_owned()),
            count: pictures.pictures().len(),
            min_bytes,
            mean_bytes,
            max_bytes,
        }
    }
}

/// The cameras added up.
struct Sums {
    measured: Tally,
    warmup: Tally,
    latency: Distribution,
    lateness: Distribution,
    stages: StageSums,
}

impl Sums {
    fn of(cameras: &[CameraResult]) -> Self {
        let mut sums = Self {
            measured: Tally::default(),
            warmup: Tally::default(),
            latency: Distribution::latency(),
            lateness: Distribution::lateness(),
            stages: StageSums::default(),
        };
        for camera in cameras {
            sums.measured.add(&camera.tally);
            sums.warmup.add(&camera.warmup);
            sums.latency.add(&camera.latency);
            sums.lateness.add(&camera.lateness);
            sums.stages.add(&camera.stages);
        }
        sums
    }
}

fn largest(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().max_by(f64::total_cmp)
}
