//! What to do, checked: the command line's meaning, with units and limits.

mod addr;
mod capacity;
mod credentials;
mod files;
mod ping;
mod scenario;
mod scenario_file;
mod servers;

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use crate::error::SimError;

pub use self::{
    addr::{DEFAULT_PORT, ServerAddr},
    capacity::{CapacityConfig, Pricing},
    credentials::Credentials,
    files::{CompareConfig, Entry, Files, MergeConfig, ReportConfig},
    ping::{Mode, Payload, PingConfig, PingServer, Sharing},
    scenario::{Behaviour, Burst, Group, PictureSource, Rogue, Scenario},
    scenario_file::{
        MAX_CAMERAS, MAX_FPS, MAX_SECONDS, MIN_FPS, RAMP_CAMERAS, RAMP_EVERY, heartbeat,
        read_scenario,
    },
    servers::{Balancing, Policy, ServerName},
};

/// Largest width or height of a drawn picture, in pixels: 8K television.
pub const MAX_DRAWN_SIDE: u32 = 8192;

/// Smallest width or height of a drawn picture, in pixels; below it nothing is recognisable.
pub const MIN_DRAWN_SIDE: u32 = 16;

/// One of the tool's jobs.
#[derive(Debug, Clone)]
pub enum Command {
    /// Simulate a fleet and judge the answers.
    Run(Box<RunConfig>, Outputs),
    /// Find the largest fleet that a server holds.
    Capacity(Box<CapacityConfig>),
    /// Print the list of instances that comes with this tool.
    PrintInstances,
    /// Play a fleet against a server that answers at once.
    SelfTest(Box<RunConfig>, Option<JsonTarget>),
    /// Measure calls one after the other, on one connection and on several.
    Ping(Box<PingConfig>),
    /// Show what the server sees in pictures.
    Detect(DetectConfig),
    /// Write the built-in pictures to a folder.
    Draw(DrawConfig),
    /// Show a report again.
    Report(ReportConfig),
    /// Hold reports against each other.
    Compare(CompareConfig),
    /// Make one report of several.
    Merge(MergeConfig),
}

/// The server, and how to get through to it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Where it listens.
    pub addr: ServerAddr,
    /// How long it may take to accept a connection, and to describe itself.
    pub connect: Duration,
    /// How to prove this client and to check the server.
    pub credentials: Credentials,
}

/// How cameras share connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// Each camera has its own.
    PerCamera,
    /// This many for all, at least 1; camera `i` uses connection `i mod n`.
    Shared(u32),
}

/// What a run is held against.
#[derive(Debug, Clone, PartialEq)]
pub struct Slo {
    /// The largest acceptable latency of an OK answer.
    pub max: Duration,
    /// More limits: this share of the OK answers, in percent, must be at most this slow.
    pub percentiles: Vec<(f64, Duration)>,
    /// Share of the sent frames, in total and of each camera, that must be answered OK, 0.0 to 1.0.
    pub min_answered_ratio: f64,
}

/// What cameras do when their stream ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reconnect {
    /// Whether they open another one, after a pause that grows and varies.
    pub enabled: bool,
    /// A gap of at most this length without answers does not fail the run.
    pub max_gap: Duration,
}

/// When a run plays its load against a server that answers at once, to see whether the simulator
/// itself could have kept the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SelfTest {
    /// After a run that failed for slow answers.
    OnFail,
    /// After every run.
    Always,
    /// Not at all.
    Never,
}

/// A load run.
#[derive(Debug, Clone)]
pub struct RunConfig {
    /// The server; of several the first.
    pub target: Target,
    /// All servers, when there may be several.
    pub balancing: Balancing,
    /// Who sends what when.
    pub scenario: Scenario,
    /// How cameras share connections.
    pub connections: Connections,
    /// What they do when a stream ends early.
    pub reconnect: Reconnect,
    /// How long after a camera's last frame its answers are waited for.
    pub drain: Duration,
    /// What the run is held against.
    pub slo: Slo,
    /// Whether the simulator tests itself.
    pub self_test: SelfTest,
    /// No progress on the terminal.
    pub quiet: bool,
    /// Threads of the runtime, at least 1.
    pub threads: usize,
}

/// Where a run's report goes, beside the terminal.
#[derive(Debug, Clone, Default)]
pub struct Outputs {
    /// The report as JSON.
    pub json: Option<JsonTarget>,
    /// The report as other files.
    pub files: Files,
    /// List every camera in the table, not the slowest ones only.
    pub per_camera: bool,
}

/// A look at pictures.
#[derive(Debug, Clone)]
pub struct DetectConfig {
    /// The server.
    pub target: Target,
    /// Picture files, at least one.
    pub pictures: Vec<PathBuf>,
    /// Folder for the pictures with boxes drawn on them.
    pub save: Option<PathBuf>,
    /// Print JSON instead of text.
    pub json: bool,
    /// How long to wait for one answer.
    pub patience: Duration,
}

/// The built-in pictures as files.
#[derive(Debug, Clone)]
pub struct DrawConfig {
    /// Folder to write to; made when missing.
    pub dir: PathBuf,
    /// Size of the pictures.
    pub size: Size,
    /// Number of pictures, at least 1.
    pub count: usize,
}

/// Where a JSON report goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonTarget {
    /// Standard output; the table then goes to standard error.
    Stdout,
    /// A file, replaced.
    File(PathBuf),
}

impl Outputs {
    /// Finds the most common mistake, a missing folder, before a long run instead of after it.
    pub fn check(&self) -> Result<(), SimError> {
        self.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
        self.files.check()
    }
}

impl JsonTarget {
    /// Finds the most common mistake, a missing folder, before a long run instead of after it.
    pub fn check(&self) -> Result<(), SimError> {
        match self {
            Self::Stdout => Ok(()),
            Self::File(path) => files::check_folder(path),
        }
    }
}

impl FromStr for JsonTarget {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "-" { Self::Stdout } else { Self::File(text.into()) })
    }
}

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    /// Pixels from left to right.
    pub width: u32,
    /// Pixels from top to bottom.
    pub height: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self { width: 640, height: 480 }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let side = |text: &str| {
            text.parse().ok().filter(|side| (MIN_DRAWN_SIDE..=MAX_DRAWN_SIDE).contains(side))
        };
        text.split_once(['x', 'X'])
            .and_then(|(width, height)| Some(Self { width: side(width)?, height: side(height)? }))
            .ok_or_else(|| {
                format!(
                    "write WIDTHxHEIGHT in pixels, each {MIN_DRAWN_SIDE} to {MAX_DRAWN_SIDE}, \
                     such as 640x480"
                )
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_sides_within_limits() {
        assert_eq!("640x480".parse(), Ok(Size { width: 640, height: 480 }));
        assert_eq!("1920X1080".parse(), Ok(Size { width: 1920, height: 1080 }));
        for wrong in ["640", "640x", "0x480", "640x-1", "99999x16", "640x480x3", "8x8"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }
}
