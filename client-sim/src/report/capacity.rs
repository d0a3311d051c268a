//! The JSON report of a capacity search.

use serde::{Deserialize, Serialize};

use super::schema::{
    MachineFigures, PercentileLimit, PictureFigures, SelfTestFigures, ServerFigures, Verdict,
};

/// What `kind` says in a capacity search's report.
pub const KIND_CAPACITY: &str = "capacity";

/// The largest fleet that a server holds within limits, how it was found, and what it costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CapacityReport {
    /// As in a run's report.
    pub schema_version: u32,
    /// [`KIND_CAPACITY`].
    pub kind: String,
    /// Version of this tool.
    pub client_version: String,
    /// Arguments of the tool, as typed.
    pub arguments: Vec<String>,
    /// Start of the search, in milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// Its length so far, over all sittings.
    pub elapsed_seconds: f64,
    /// The machine on which this tool ran.
    pub machine: MachineFigures,
    /// Host and port of the server.
    pub addr: String,
    /// Whether server and simulator shared a machine.
    pub same_machine: bool,
    /// What the server said about itself; `null` when it does not know the question.
    pub server: Option<ServerFigures>,
    /// Frames per second of each camera.
    pub fps: f64,
    /// As in a run's report.
    pub phases: String,
    /// As in a run's report.
    pub ramp_cameras: Option<u32>,
    /// As in a run's report.
    pub ramp_every_ms: Option<f64>,
    /// Connections shared by all cameras; `null` = one for each.
    pub connections: Option<u32>,
    /// What was sent.
    pub pictures: PictureFigures,
    /// Length of each run's measured part.
    pub seconds: f64,
    /// Length of the part before it.
    pub warmup_seconds: f64,
    /// Runs of a step, of which most must pass.
    pub repeats: u32,
    /// Largest acceptable latency.
    pub slo_max_ms: f64,
    /// Other limits on latency; `ms` is `null` here.
    pub slo_percentiles: Vec<PercentileLimit>,
    /// Share of the frames that must be answered OK.
    pub min_answered_ratio: f64,
    /// Largest number of cameras that held the limits; `null` while unknown, 0 when not even one
    /// camera did.
    pub found: Option<u32>,
    /// Cameras that held the limits in every run tried, at most `found`: the lower end of the spread.
    pub sure: Option<u32>,
    /// Fewest cameras that failed every run tried: the upper end of the spread.
    pub refuted: Option<u32>,
    /// Whether the search is over.
    pub complete: bool,
    /// Why there is no larger number: `slo`, `max-cameras`, `simulator`, `interrupted` or `time`.
    pub ended_by: String,
    /// What ran out first.
    pub limiting: Limiting,
    /// Every step in the order tried.
    pub steps: Vec<StepFigures>,
    /// The simulator against a server that answers at once, with one camera more than was found.
    pub self_test: Option<SelfTestFigures>,
    /// What the result costs; empty when no price was given.
    pub cost: Vec<CostFigures>,
}

/// What ran out first at the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limiting {
    /// `server-cpu`, `simulator-cpu`, `network`, `machine-cpu` (shared by both), or `unknown`.
    pub resource: String,
    /// The figures behind it, as one line.
    pub why: String,
}

/// One number of cameras.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepFigures {
    /// How many.
    pub cameras: u32,
    /// `grow` (exponential), `bisect` or `confirm`.
    pub phase: String,
    /// Whether most of its runs passed.
    pub passed: bool,
    /// Its runs.
    pub runs: Vec<StepRun>,
}

/// One run of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRun {
    /// What it came to.
    pub verdict: Verdict,
    /// Why it did not pass.
    pub reasons: Vec<String>,
    /// Measured frames sent.
    pub sent: u64,
    /// Of those, answered OK.
    pub ok: u64,
    /// Median latency.
    pub p50_ms: Option<f64>,
    /// 99 % of the answers took at most this long.
    pub p99_ms: Option<f64>,
    /// The slowest answer.
    pub max_ms: Option<f64>,
    /// Whether it was ended early because it could not pass any more.
    pub cut_short: bool,
    /// Processor time of the server per second, from its metrics: 1.0 = one core.
    pub server_cpu_cores: Option<f64>,
    /// Share of the time in which the server's workers were busy, 0.0 to 1.0, from its metrics.
    pub server_busy: Option<f64>,
    /// Processor time that everything else took from the machine that server and simulator share, per
    /// second; what other machines of the same host took is in it. `null` where that cannot be known.
    #[serde(default)]
    pub others_cpu_cores: Option<f64>,
    /// Processor time of this tool per second.
    pub simulator_cpu_cores: f64,
    /// Pictures sent, in megabits per second.
    pub sent_mbit_per_s: f64,
    /// How late cameras woke up, 99 % of them: the tool's own part.
    pub wake_lateness_p99_ms: Option<f64>,
}

/// What a number of cameras costs on one kind of instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostFigures {
    /// Its name.
    pub instance: String,
    /// Price of an hour, in the currency below.
    pub price_per_hour: f64,
    /// As in `USD`.
    pub currency: String,
    /// Where the price is from and of what day; empty when it was given on the command line.
    pub source: String,
    /// Whether its cameras were measured, or scaled by the number of cores.
    pub measured: bool,
    /// Cameras of one instance.
    pub cameras: u32,
    /// Price of one camera for a month of 730 hours, on full instances.
    pub per_camera_month: f64,
    /// For 1, 2, ... instances.
    pub fleets: Vec<FleetCost>,
}

/// Several instances of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetCost {
    /// How many.
    pub instances: u32,
    /// Cameras while all of them run.
    pub cameras: u32,
    /// Cameras that still hold the limits when one instance fails; 0 for a single one.
    pub cameras_n_plus_1: u32,
    /// Price of a month of 730 hours.
    pub month: f64,
    /// Price of one camera and month with that headroom; `null` for a single instance.
    pub per_camera_month_n_plus_1: Option<f64>,
}

impl StepRun {
    /// A run of which nothing but its verdict is known.
    #[must_use]
    pub fn of(verdict: Verdict) -> Self {
        Self {
            verdict,
            reasons: Vec::new(),
            sent: 0,
            ok: 0,
            p50_ms: None,
            p99_ms: None,
            max_ms: None,
            cut_short: false,
            server_cpu_cores: None,
            server_busy: None,
            others_cpu_cores: None,
            simulator_cpu_cores: 0.0,
            sent_mbit_per_s: 0.0,
            wake_lateness_p99_ms: None,
        }
    }
}
