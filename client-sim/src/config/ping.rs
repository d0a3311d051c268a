//! A measurement of calls.

use std::{num::NonZeroU32, str::FromStr, time::Duration};

use super::{JsonTarget, PictureSource, Target};

/// What is measured: every combination of modes, payloads, numbers in flight and sharings.
#[derive(Debug, Clone)]
pub struct PingConfig {
    /// Who answers.
    pub server: PingServer,
    /// Kinds of calls, at least one.
    pub modes: Vec<Mode>,
    /// What is sent.
    pub payload: Payload,
    /// Numbers of workers, at least one.
    pub in_flight: Vec<NonZeroU32>,
    /// How they share connections, at least one.
    pub sharings: Vec<Sharing>,
    /// Length of each measurement.
    pub seconds: Duration,
    /// Length of the part before it, which does not count.
    pub warmup: Duration,
    /// Round trip that a proxy in this process adds; `None` = no proxy.
    pub delay: Option<Duration>,
    /// Threads of the workers and their connections, at least 1.
    pub threads: usize,
    /// The report as JSON.
    pub json: Option<JsonTarget>,
    /// No progress on the terminal.
    pub quiet: bool,
}

/// Who answers.
#[derive(Debug, Clone)]
pub enum PingServer {
    /// A server in this process that answers at once, with this many threads.
    Null(usize),
    /// Any server.
    At(Target),
}

/// Kinds of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// A call for each frame
    Unary,
    /// A stream for each worker, on which frames follow each other
    Stream,
}

impl Mode {
    /// As reports write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::Stream => "stream",
        }
    }
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Bytes that are no picture, so that a server answers without decoding; a size each.
    Filler(Vec<usize>),
    /// Pictures.
    Pictures(PictureSource),
}

/// How workers share connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// All use one.
    One,
    /// Each has its own.
    PerWorker,
    /// This many for all.
    Several(NonZeroU32),
}

impl Sharing {
    /// Connections for `workers` workers: none is without one, and none is opened for nobody.
    #[must_use]
    pub fn connections(self, workers: NonZeroU32) -> u32 {
        match self {
            Self::One => 1,
            Self::PerWorker => workers.get(),
            Self::Several(count) => count.min(workers).get(),
        }
    }

    /// As flags and reports write it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::One => "one".to_owned(),
            Self::PerWorker => "per-worker".to_owned(),
            Self::Several(count) => count.to_string(),
        }
    }
}

impl FromStr for Sharing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "one" | "1" => Ok(Self::One),
            "per-worker" => Ok(Self::PerWorker),
            _ => text
                .parse()
                .map(Self::Several)
                .map_err(|_| "write one, per-worker or a number of connections".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_connection_is_opened_for_nobody() {
        let workers = |n| NonZeroU32::new(n).unwrap();
        for (text, name, of_1, of_8) in [
            ("one", "one", 1, 1),
            ("1", "one", 1, 1),
            ("per-worker", "per-worker", 1, 8),
            ("4", "4", 1, 4),
        ] {
            let sharing: Sharing = text.parse().unwrap();
            assert_eq!(sharing.name(), name);
            assert_eq!(sharing.connections(workers(1)), of_1, "{text}");
            assert_eq!(sharing.connections(workers(8)), of_8, "{text}");
        }
        assert!("0".parse::<Sharing>().is_err() && "each".parse::<Sharing>().is_err());
    }
}
