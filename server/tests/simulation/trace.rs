//! What happened in a run: counted, hashed, and the end of it kept.

use std::{
    collections::VecDeque,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use vedette_server::frame::Outcome;

/// Events of the trace that a failure shows.
pub(crate) const SHOWN: usize = 40;

/// Something that happened. Streams, frames and workers by their numbers, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    Opened { camera: usize, stream: usize },
    NotTaken { camera: usize, full: bool },
    Read { stream: usize, frame: u64 },
    Waits { frame: u64 },
    Replaced { by: u64, older: u64 },
    NoCamera { frame: u64 },
    Paused { stream: usize, micros: u64 },
    Woken { worker: usize },
    NothingWaits { worker: usize },
    Took { worker: usize, frame: u64 },
    Settled { frame: u64, outcome: Outcome },
    GaveBack { frame: u64 },
    Crashed { worker: usize },
    Delivered { stream: usize, frame: u64, outcome: Outcome },
    Left { stream: usize },
    Ended { stream: usize, accepted: Option<u64> },
    Drain,
    Drained { in_time: bool },
    Stopped,
    Over,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { camera, stream } => write!(f, "camera {camera} opens stream {stream}"),
            Self::NotTaken { camera, full: true } => {
                write!(f, "camera {camera} is refused: all places are taken")
            }
            Self::NotTaken { camera, full: false } => {
                write!(f, "camera {camera} is refused: shutting down")
            }
            Self::Read { stream, frame } => write!(f, "frame {frame} is read from stream {stream}"),
            Self::Waits { frame } => write!(f, "frame {frame} waits"),
            Self::Replaced { by, older } => write!(f, "frame {by} waits in place of {older}"),
            Self::NoCamera { frame } => write!(f, "frame {frame} comes after its camera has left"),
            Self::Paused { stream, micros } => {
                write!(f, "stream {stream} is not read for {micros} us")
            }
            Self::Woken { worker } => write!(f, "worker {worker} is woken"),
            Self::NothingWaits { worker } => write!(f, "worker {worker} finds nothing"),
            Self::Took { worker, frame } => write!(f, "worker {worker} takes frame {frame}"),
            Self::Settled { frame, outcome } => write!(f, "frame {frame} ends: {outcome:?}"),
            Self::GaveBack { frame } => write!(f, "frame {frame} is no longer computed"),
            Self::Crashed { worker } => write!(f, "worker {worker} panics"),
            Self::Delivered { stream, frame, outcome } => {
                write!(f, "stream {stream} delivers {outcome:?} for frame {frame}")
            }
            Self::Left { stream } => write!(f, "the client of stream {stream} has left"),
            Self::Ended { stream, accepted: None } => write!(f, "stream {stream} ends"),
            Self::Ended { stream, accepted: Some(accepted) } => {
                write!(f, "stream {stream} is ended by the server after {accepted} frames")
            }
            Self::Drain => f.write_str("shutdown: draining begins"),
            Self::Drained { in_time: true } => f.write_str("every stream has ended"),
            Self::Drained { in_time: false } => f.write_str("the grace time is up"),
            Self::Stopped => f.write_str("the server has stopped"),
            Self::Over => f.write_str("nothing can happen any more"),
        }
    }
}

/// A run's events.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    last: VecDeque<(Duration, Event)>,
    hasher: DefaultHasher,
    count: u64,
}

impl Trace {
    pub(crate) fn note(&mut self, at: Duration, event: Event) {
        (at, event).hash(&mut self.hasher);
        self.count += 1;
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back((at, event));
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The same for two runs in which the same happened at the same instants.
    pub(crate) fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// The last events, a line each.
    pub(crate) fn end(&self) -> String {
        let line = |(at, event): &(Duration, Event)| {
            format!("  {:>12.3} ms  {event}\n", at.as_secs_f64() * 1e3)
        };
        self.last.iter().map(line).collect()
    }
}
