//! What to do, checked: the command line's meaning, with units and limits.

use std::{fmt, io, path::PathBuf, str::FromStr, time::Duration};

use crate::{error::SimError, schedule::Phases};

/// Port of a server whose address names none.
pub const DEFAULT_PORT: u16 = 50_051;

/// Largest width or height of a drawn picture, in pixels: 8K television.
pub const MAX_DRAWN_SIDE: u32 = 8192;

/// Smallest width or height of a drawn picture, in pixels; below it nothing is recognisable.
pub const MIN_DRAWN_SIDE: u32 = 16;

/// One of the tool's jobs.
#[derive(Debug, Clone)]
pub enum Command {
    /// Simulate a fleet and judge the answers.
    Run(RunConfig),
    /// Show what the server sees in pictures.
    Detect(DetectConfig),
    /// Write the built-in pictures to a folder.
    Draw(DrawConfig),
}

/// A load run.
#[derive(Debug, Clone)]
pub struct RunConfig {
    /// Where the server listens.
    pub addr: ServerAddr,
    /// Number of cameras, at least 1.
    pub cameras: u32,
    /// Frames per second of each camera.
    pub fps: f64,
    /// How the cameras' start times lie to each other.
    pub phases: Phases,
    /// Length of the measured part.
    pub measured: Duration,
    /// Length of the part before it, whose frames do not count.
    pub warmup: Duration,
    /// How long after a camera's last frame its answers are waited for.
    pub drain: Duration,
    /// How long the server may take to accept a connection, and to describe itself.
    pub connect: Duration,
    /// Folder of pictures; drawn ones when absent.
    pub images: Option<PathBuf>,
    /// Size of drawn pictures.
    pub size: Size,
    /// Budget sent with each frame, in milliseconds; 0 = the server's default.
    pub budget_ms: u32,
    /// The largest acceptable latency of an OK answer.
    pub slo_max: Duration,
    /// Share of the sent frames, in total and of each camera, that must be answered OK, 0.0 to 1.0.
    pub min_answered_ratio: f64,
    /// Where the report goes as JSON.
    pub json: Option<JsonTarget>,
    /// List every camera in the table, not the slowest ones only.
    pub per_camera: bool,
    /// No progress on the terminal.
    pub quiet: bool,
    /// Threads of the runtime, at least 1.
    pub threads: usize,
}

/// A look at pictures.
#[derive(Debug, Clone)]
pub struct DetectConfig {
    /// Where the server listens.
    pub addr: ServerAddr,
    /// Picture files, at least one.
    pub pictures: Vec<PathBuf>,
    /// Folder for the pictures with boxes drawn on them.
    pub save: Option<PathBuf>,
    /// Print JSON instead of text.
    pub json: bool,
    /// How long the server may take to accept the connection, and to describe itself.
    pub connect: Duration,
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

impl JsonTarget {
    /// Finds the most common mistake, a missing folder, before a long run instead of after it.
    pub fn check(&self) -> Result<(), SimError> {
        let Self::File(path) = self else {
            return Ok(());
        };
        match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
                let source = io::ErrorKind::NotFound.into();
                Err(SimError::Write { path: path.clone(), source })
            }
            _ => Ok(()),
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Pixels from left to right.
    pub width: u32,
    /// Pixels from top to bottom.
    pub height: u32,
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

/// Host and port of a gRPC server without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddr {
    authority: String,
}

impl ServerAddr {
    /// The address as a URI.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("http://{}", self.authority)
    }
}

impl fmt::Display for ServerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)
    }
}

impl FromStr for ServerAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("https://") {
            return Err("TLS is not supported; use http:// or HOST:PORT".into());
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let wrong = || format!("write HOST:PORT, such as 127.0.0.1:{DEFAULT_PORT}");
        if rest.is_empty() || rest.contains(['/', ' ', '@', '?', '#']) {
            return Err(wrong());
        }
        // A bare IPv6 address holds colons but no port.
        let authority = if rest.parse::<std::net::Ipv6Addr>().is_ok() {
            format!("[{rest}]:{DEFAULT_PORT}")
        } else if rest.ends_with(']') || !rest.contains(':') {
            format!("{rest}:{DEFAULT_PORT}")
        } else {
            rest.to_owned()
        };
        let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none_or(|port| port == 0) {
            return Err(wrong());
        }
        Ok(Self { authority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_written_in_several_ways() {
        for (text, authority) in [
            ("127.0.0.1:50051", "127.0.0.1:50051"),
            ("http://127.0.0.1:50051", "127.0.0.1:50051"),
            ("http://camera-host:9000/", "camera-host:9000"),
            ("localhost", "localhost:50051"),
            ("[::1]:7000", "[::1]:7000"),
            ("::1", "[::1]:50051"),
        ] {
            assert_eq!(text.parse::<ServerAddr>().unwrap().to_string(), authority, "{text}");
        }
        for wrong in ["", "http://", "a:b", "host:99999", "host:0", "http://a/b", "https://a:1"] {
            assert!(wrong.parse::<ServerAddr>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_two_sides_within_limits() {
        assert_eq!("640x480".parse(), Ok(Size { width: 640, height: 480 }));
        assert_eq!("1920X1080".parse(), Ok(Size { width: 1920, height: 1080 }));
        for wrong in ["640", "640x", "0x480", "640x-1", "99999x16", "640x480x3", "8x8"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }
}
