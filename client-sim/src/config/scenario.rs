//! A fleet: groups of cameras, when they come and go, and what they send.

use std::{path::PathBuf, time::Duration};

use super::{Policy, ServerName, Size};
use crate::schedule::Phases;

/// What a run plays.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name, when it came from a file.
    pub name: Option<String>,
    /// The cameras, at least one group.
    pub groups: Vec<Group>,
    /// Clients that break the rules, beside the cameras.
    pub rogues: Vec<Rogue>,
    /// Length of the part before the measured one, whose frames do not count.
    pub warmup: Duration,
    /// Length of the measured part.
    pub measured: Duration,
    /// How the cameras' start times lie to each other.
    pub phases: Phases,
    /// A camera that has sent nothing on its open stream for this long sends a heartbeat, at least
    /// [`heartbeat::SHORTEST`](crate::heartbeat::SHORTEST); `None` = never.
    pub heartbeat: Option<Duration>,
    /// Decides every random number of the run.
    pub seed: u64,
    /// The servers that its file names, none or different ones; the command line may name others.
    pub servers: Vec<ServerName>,
    /// How its file spreads cameras over them.
    pub balance: Option<Policy>,
}

/// Cameras that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Its name; empty for the only group of a run without a file.
    pub name: String,
    /// Number of cameras, at least 1.
    pub cameras: u32,
    /// Frames per second of each camera.
    pub fps: f64,
    /// Each frame leaves up to this much later than its even place; less than a frame period.
    pub jitter: Duration,
    /// What the cameras send.
    pub pictures: PictureSource,
    /// Budget sent with each frame, in milliseconds; 0 = the server's default.
    pub budget_ms: u32,
    /// When the first camera comes, from the start of the measured part; `None` = from the start.
    pub arrive: Option<Duration>,
    /// The others come evenly over this time after the first.
    pub arrive_over: Duration,
    /// When the cameras leave, from the start of the measured part; `None` = they stay.
    pub leave: Option<Duration>,
    /// Spans in which each camera sends at another rate, in order, without overlap.
    pub bursts: Vec<Burst>,
}

/// A span of another rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// Its beginning, from the start of the measured part.
    pub at: Duration,
    /// Its length.
    pub length: Duration,
    /// Frames per second of each camera in it.
    pub fps: f64,
}

/// Where pictures come from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PictureSource {
    /// The built-in scenes.
    Drawn(Size),
    /// The picture files of a folder, as they are.
    Folder(PathBuf),
    /// The pictures of a video, as JPEG files made by ffmpeg.
    Video {
        /// The file.
        path: PathBuf,
        /// Scaled to this size; `None` = as they are.
        size: Option<Size>,
    },
}

/// A client that breaks the rules. Nothing that it does is judged; what it does to others is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rogue {
    /// What it does.
    pub behaviour: Behaviour,
    /// Number of such clients, each with a connection of its own.
    pub clients: u32,
    /// When they come, from the start of the measured part.
    pub arrive: Duration,
    /// When they leave; `None` = at the end.
    pub leave: Option<Duration>,
}

/// How a client breaks the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Behaviour {
    /// Sends its next frame as soon as the connection takes it.
    Flood,
    /// Sends at 10 frames per second and never reads an answer.
    NeverReads,
    /// Sends bytes that are no picture, at 10 frames per second.
    Garbage,
    /// Opens a stream, sends one frame and breaks the connection, again and again.
    Flapping,
}

impl Behaviour {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Flood, Self::NeverReads, Self::Garbage, Self::Flapping];

    /// As scenarios write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Flood => "flood",
            Self::NeverReads => "never-reads",
            Self::Garbage => "garbage",
            Self::Flapping => "flapping",
        }
    }
}

/// Seed unless one is given; any number will do.
const DEFAULT_SEED: u64 = 1;

impl Scenario {
    /// A single group of `cameras` (at least 1) that send drawn pictures of the default size at `fps`
    /// (above 0), spread evenly, for `warmup` and then for `measured`.
    #[must_use]
    pub fn uniform(cameras: u32, fps: f64, warmup: Duration, measured: Duration) -> Self {
        let group = Group {
            name: String::new(),
            cameras: cameras.max(1),
            fps,
            jitter: Duration::ZERO,
            pictures: PictureSource::Drawn(Size::default()),
            budget_ms: 0,
            arrive: None,
            arrive_over: Duration::ZERO,
            leave: None,
            bursts: Vec::new(),
        };
        Self {
            name: None,
            groups: vec![group],
            rogues: Vec::new(),
            warmup,
            measured,
            phases: Phases::Even,
            heartbeat: None,
            seed: DEFAULT_SEED,
            servers: Vec::new(),
            balance: None,
        }
    }

    /// Cameras of all groups.
    #[must_use]
    pub fn cameras(&self) -> u32 {
        self.groups.iter().map(|group| group.cameras).sum()
    }

    /// Frames per second of all cameras together outside bursts, while all are there.
    #[must_use]
    pub fn offered_fps(&self) -> f64 {
        self.groups.iter().map(|group| f64::from(group.cameras) * group.fps).sum()
    }
}
