//! The JSON report: what each field is called, its unit and its meaning. `docs/report-schema.md`
//! says the same for readers without the source.

use serde::{Deserialize, Serialize};

use crate::{
    config::Behaviour,
    stats::{Figures, StageMeans, Tally},
};

/// Version of the JSON report; raised when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 2;

/// What `kind` says in a run's report, merged ones too.
pub const KIND_RUN: &str = "run";

/// A run's figures and verdict: the JSON report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// [`KIND_RUN`].
    pub kind: String,
    /// Version of this tool.
    pub client_version: String,
    /// Arguments of the tool, as typed.
    pub arguments: Vec<String>,
    /// Start of the measured part, in milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// The machine on which this tool ran.
    pub machine: MachineFigures,
    /// Host and port of the server; with `https://` in front when encrypted.
    pub addr: String,
    /// Whether the connections were encrypted.
    pub tls: bool,
    /// What the server said about itself; `null` when it does not know the question.
    pub server: Option<ServerFigures>,
    /// Name of the scenario; `null` for a run without one.
    pub scenario: Option<String>,
    /// What decided every random number.
    pub seed: u64,
    /// Number of cameras.
    pub cameras: u32,
    /// Frames per second of each camera; the mean where groups differ.
    pub fps: f64,
    /// Length of the measured part.
    pub seconds: f64,
    /// How the cameras' start times lie to each other: `even` over a period, `random` in it,
    /// `aligned` at the same instant, `ramp` group after group.
    pub phases: String,
    /// Cameras that start together on a ramp; `null` otherwise.
    pub ramp_cameras: Option<u32>,
    /// Time from one group of a ramp to the next; `null` otherwise.
    pub ramp_every_ms: Option<f64>,
    /// Connections shared by all cameras; `null` = one for each.
    pub connections: Option<u32>,
    /// The groups of cameras.
    pub groups: Vec<GroupFigures>,
    /// Clients that broke the rules on purpose; nothing of theirs is in any other figure.
    pub rogues: Vec<RogueFigures>,
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
    /// Other limits on latency.
    pub slo_percentiles: Vec<PercentileLimit>,
    /// Share of the frames that must be answered OK.
    pub min_answered_ratio: f64,
    /// `PASS`, `FAIL`, or `INVALID` when the simulator itself was the bottleneck.
    pub verdict: Verdict,
    /// Why it is not `PASS`.
    pub reasons: Vec<String>,
    /// Whether the run was stopped by hand.
    pub interrupted: bool,
    /// Answers that fit no waiting frame.
    pub protocol_errors: u64,
    /// How streams ended that did not end by being complete.
    pub stream_ends: Vec<StreamEndFigures>,
    /// Streams that were opened again.
    pub reconnects: ReconnectFigures,
    /// How cameras chose among several servers: `round-robin`, `least-cameras`, `failover`; `null`
    /// with one server.
    #[serde(default)]
    pub balance: Option<String>,
    /// Each server by itself.
    #[serde(default)]
    pub servers: Vec<PerServerFigures>,
    /// Signs of life of quiet cameras; `null` when none were asked for. They are no frames and in no
    /// other figure.
    #[serde(default)]
    pub heartbeats: Option<HeartbeatFigures>,
    /// Mean stage times that the server reported; `null` when it reports none.
    pub stages_mean_us: Option<StageMeans>,
    /// How late this tool handed measured frames to their connections, whoever was to blame.
    pub send_lateness_ms: LatenessFigures,
    /// What this tool knows about its own part.
    pub simulator: SimulatorFigures,
    /// The latency distribution as a curve, from the fastest answer to the slowest.
    pub percentiles: Vec<PercentilePoint>,
    /// The latency distribution in microseconds: an `HdrHistogram`, V2 format, deflated, in base64.
    pub histogram_us: String,
    /// The run second by second.
    pub timeline: Timeline,
    /// Frames before the measured part.
    pub warmup: WarmupFigures,
    /// Each camera by itself.
    pub per_camera: Vec<CameraFigures>,
}

/// What a run comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Everything within the limits.
    Pass,
    /// The server did not keep the limits.
    Fail,
    /// The simulator was the bottleneck, so nothing is known about the server.
    Invalid,
}

impl Verdict {
    /// As reports write it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Invalid => "INVALID",
        }
    }
}

/// The machine on which this tool ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineFigures {
    /// Cores that this process may use.
    pub cores: usize,
    /// The processor, as the operating system names it; empty when unknown.
    pub cpu: String,
    /// Main memory in bytes; 0 when unknown.
    pub memory_bytes: u64,
    /// Operating system and its release, as in `Linux 6.18.5`.
    pub system: String,
}

/// The server as the report shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the contract documents the fields of the same names")]
pub struct ServerFigures {
    pub version: String,
    pub model: String,
    pub backend: String,
    pub input_width: u32,
    pub input_height: u32,
    pub classes: usize,
    pub max_frame_bytes: u64,
    pub max_pixels: u64,
    pub max_cameras: u32,
    pub budget_ms: u32,
    pub confidence: f32,
    pub iou: f32,
    pub workers: u32,
}

/// Cameras that are alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupFigures {
    /// Its name; empty for the only group of a run without a scenario.
    pub name: String,
    /// Number of cameras.
    pub cameras: u32,
    /// Frames per second of each camera outside bursts.
    pub fps: f64,
    /// Most by which a frame leaves after its even place.
    pub jitter_ms: f64,
    /// Budget sent with each frame; 0 = the server's default.
    pub budget_ms: u32,
    /// What was sent.
    pub pictures: PictureFigures,
    /// Its measured frames.
    #[serde(flatten)]
    pub tally: Tally,
    /// Latency of its measured OK answers.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The pictures sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PictureFigures {
    /// `drawn`, the folder, or the video.
    pub source: String,
    /// Number of different pictures.
    pub count: usize,
    /// Size in pixels of drawn pictures, as in `640x480`; `null` for others.
    pub size: Option<String>,
    /// Smallest file.
    pub min_bytes: usize,
    /// Mean file size.
    pub mean_bytes: usize,
    /// Largest file.
    pub max_bytes: usize,
}

/// Clients that broke the rules in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RogueFigures {
    /// What they did.
    pub behaviour: Behaviour,
    /// How many they were.
    pub clients: u32,
    /// Streams that they opened.
    pub streams: u64,
    /// Frames sent.
    pub sent: u64,
    /// Answers read.
    pub answered: u64,
    /// Of those, OK.
    pub ok: u64,
}

/// A limit on a percentile of the latency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PercentileLimit {
    /// 0 to 100.
    pub percentile: f64,
    /// Largest acceptable value.
    pub limit_ms: f64,
    /// What it was; `null` when nothing was answered OK.
    pub ms: Option<f64>,
}

/// One way in which streams ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEndFigures {
    /// Status and message.
    pub reason: String,
    /// Streams that ended so.
    pub streams: u64,
}

/// Streams that were opened again after an early end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ReconnectFigures {
    /// How often, all cameras together.
    pub count: u64,
    /// Longest time from a stream's end to the first answer of the next one.
    pub gap_max_ms: Option<f64>,
    /// Mean of those times.
    pub gap_mean_ms: Option<f64>,
    /// Measured frames that were due or unanswered in gaps of acceptable length, and so excused.
    pub excused_frames: u64,
    /// How often a camera came back to another server than it was on.
    #[serde(default)]
    pub moves: u64,
    /// Longest time to come back: from a stream's end to the next OK answer.
    #[serde(default)]
    pub back_max_ms: Option<f64>,
    /// Half of those times were at most this long.
    #[serde(default)]
    pub back_p50_ms: Option<f64>,
    /// Cameras that had not come back when the run was over.
    #[serde(default)]
    pub away: u64,
}

/// What one of the servers did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PerServerFigures {
    /// Host and port; with `https://` in front when encrypted.
    pub addr: String,
    /// What it said about itself before the run; `null` when it was not there or did not say.
    pub server: Option<ServerFigures>,
    /// Cameras that it was the first to answer.
    pub cameras_first: u64,
    /// Cameras on it at the end: those that it was the last to answer and that were not away.
    pub cameras: u64,
    /// Streams that it answered.
    pub streams: u64,
    /// Streams that ended without an answer, because it was not reached or turned them away.
    pub refused: u64,
    /// Times that a camera came from another server.
    pub moved_in: u64,
    /// Times that a camera went to another server.
    pub moved_out: u64,
    /// Measured frames that were sent to it.
    #[serde(flatten)]
    pub tally: Tally,
    /// Latency of its measured OK answers.
    #[serde(flatten)]
    pub figures: Figures,
    /// Its OK answers in each bin of the timeline.
    pub bins_ok: Vec<u64>,
}

/// Signs of life of cameras that had nothing to send.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HeartbeatFigures {
    /// A camera that has sent nothing for this long sends one.
    pub every_seconds: f64,
    /// Handed to the connection, warm-up included.
    pub sent: u64,
    /// Answered as heartbeats.
    pub answered: u64,
    /// Answered otherwise, by a server that does not know heartbeats and took them for frames.
    pub taken_for_frames: u64,
}

/// How late something was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LatenessFigures {
    /// 99 % of the frames were at most this late.
    pub p99: Option<f64>,
    /// The latest frame.
    pub max: Option<f64>,
}

/// What the simulator knows about its own part in a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SimulatorFigures {
    /// Threads that send and receive.
    pub threads: usize,
    /// Processor time of the whole tool per second of the run: 1.0 = one core.
    pub cpu_cores: f64,
    /// The same of its busiest thread that serves cameras, 0.0 to 1.0; `null` where it cannot be known.
    pub busiest_thread_share: Option<f64>,
    /// How late cameras woke up for measured frames: the tool's own part of the send lateness.
    pub wake_lateness_ms: LatenessFigures,
    /// Measured OK answers over the limit that had been within it without that lateness.
    pub over_slo_by_itself: u64,
    /// The same load against a server that answers at once; `null` when that was not tried.
    pub self_test: Option<SelfTestFigures>,
}

/// A fleet against a server that answers at once: what the simulator itself costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelfTestFigures {
    /// Cameras of the test.
    pub cameras: u32,
    /// Its length.
    pub seconds: f64,
    /// Frames sent.
    pub sent: u64,
    /// Frames answered.
    pub ok: u64,
    /// 99 % of the answers took at most this long.
    pub p99_ms: Option<f64>,
    /// The slowest answer.
    pub max_ms: Option<f64>,
    /// Processor time of the whole tool per second, without the server's: 1.0 = one core.
    pub cpu_cores: f64,
}

/// A point of the latency curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PercentilePoint {
    /// 0 to 100.
    pub percentile: f64,
    /// That share of the answers took at most this long.
    pub ms: f64,
}

/// The measured part, bin by bin. A frame belongs to the bin in which it should have left. All
/// lists are equally long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Length of a bin; 1 unless the run was very long.
    pub bin_seconds: f64,
    /// Frames answered OK.
    pub ok: Vec<u64>,
    /// Frames answered otherwise.
    pub not_ok: Vec<u64>,
    /// Frames that were lost, not accepted or not sent.
    pub unanswered: Vec<u64>,
    /// Median latency of the OK answers.
    pub p50_ms: Vec<Option<f64>>,
    /// 99 % of them took at most this long.
    pub p99_ms: Vec<Option<f64>>,
    /// The slowest of them.
    pub max_ms: Vec<Option<f64>>,
    /// Mean stage times; `null` where the server reported none.
    pub stages_mean_us: Vec<Option<StageMeans>>,
}

/// The part of the run that does not count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WarmupFigures {
    /// Its length.
    pub seconds: f64,
    /// Its frames.
    #[serde(flatten)]
    pub tally: Tally,
    /// Its slowest answer.
    pub max_ms: Option<f64>,
}

/// One camera.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CameraFigures {
    /// As sent in the stream's metadata.
    pub camera_id: String,
    /// Name of its group.
    pub group: String,
    /// Measured frames.
    #[serde(flatten)]
    pub tally: Tally,
    /// Latency of the measured OK answers.
    #[serde(flatten)]
    pub figures: Figures,
    /// Slowest measured answer of any outcome.
    pub all_answers_max_ms: Option<f64>,
    /// Measured OK answers slower than the limit.
    pub over_slo: u64,
    /// Answers that fit no waiting frame, and unknown outcomes.
    pub protocol_errors: u64,
    /// The first of them.
    pub first_protocol_error: Option<String>,
    /// Warm-up frames.
    pub warmup: Tally,
    /// Slowest warm-up answer.
    pub warmup_max_ms: Option<f64>,
    /// How the last stream ended.
    pub end: String,
    /// How often it opened its stream again.
    pub reconnects: u64,
    /// Its longest gap, from a stream's end to the first answer of the next one.
    pub gap_max_ms: Option<f64>,
    /// How often it came back to another server than it was on.
    #[serde(default)]
    pub moves: u64,
    /// Its longest time to come back: from a stream's end to the next OK answer.
    #[serde(default)]
    pub back_max_ms: Option<f64>,
    /// All of those times, in order.
    #[serde(default)]
    pub back_ms: Vec<f64>,
    /// How long it had been away at the end of the run; `null` when it was not.
    #[serde(default)]
    pub away_ms: Option<f64>,
    /// The server that answered it last; `null` when none did.
    #[serde(default)]
    pub addr: Option<String>,
    /// The servers that it had to do with.
    #[serde(default)]
    pub servers: Vec<CameraServerFigures>,
    /// Measured frames that were missed in gaps of acceptable length: a part of `lost`, `unaccepted`
    /// and `not_sent` above.
    pub excused: Tally,
    /// The same of the warm-up.
    pub warmup_excused: Tally,
    /// The slowest OK answer in each bin of the timeline; empty in very large fleets.
    pub bins_max_ms: Vec<Option<f64>>,
    /// Frames in each bin that were not answered OK; empty in very large fleets.
    pub bins_missed: Vec<u64>,
}

/// What one of the servers did for a camera.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CameraServerFigures {
    /// Host and port; with `https://` in front when encrypted.
    pub addr: String,
    /// The camera's streams that it answered.
    pub streams: u64,
    /// Those that ended without an answer.
    pub refused: u64,
    /// The camera's measured frames that it answered OK.
    pub ok: u64,
}
