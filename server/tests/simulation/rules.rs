//! What must hold in every run, whatever its seed.

use std::fmt;

/// A rule of the server's core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Every frame read ends in one outcome, and its client gets one answer.
    OneOutcome,
    /// The metrics say the same: received is the sum of outcomes, each as the books have it.
    Accounts,
    /// Cameras, waiting frames, wake-ups and frames in hand are what they must be, and no more than may
    /// be.
    Bounds,
    /// No answer has a place that was not reserved, and none is lost.
    ReplyPlaces,
    /// A frame that waits while a worker does nothing has lost its wake-up.
    NoIdleWorker,
    /// What is taken is the camera's newest; what is replaced is older than what replaces it.
    NewestWins,
    /// Computed answers of a stream come in the order sent, each as soon as those before it are out.
    AnswerOrder,
    /// The picks that may pass a waiting camera over are bounded.
    NoStarvation,
    /// No camera gets one more worker while one with fewer waits.
    FairShare,
    /// Nothing is computed past its budget or for a client that has left, and nothing else refused.
    WorthComputing,
    /// Useless frames are read at a bounded pace, and a camera whose frame was taken up at once.
    ReadingPace,
    /// The time that a frame has waited is what it is told.
    Times,
    /// Draining ends within the grace time; nothing is read after its beginning, in hand after its end.
    Drain,
    /// A run comes to an end.
    Ends,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneOutcome => "one outcome per frame",
            Self::Accounts => "metrics account for every frame",
            Self::Bounds => "bounds hold",
            Self::ReplyPlaces => "reply places",
            Self::NoIdleWorker => "no worker idles while a frame waits",
            Self::NewestWins => "newest wins",
            Self::AnswerOrder => "answers in order",
            Self::NoStarvation => "no starvation",
            Self::FairShare => "fair share",
            Self::WorthComputing => "nothing useless is computed",
            Self::ReadingPace => "reading pace",
            Self::Times => "times",
            Self::Drain => "drain",
            Self::Ends => "every run ends",
        })
    }
}

/// A rule that does not hold, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" does not hold: {}", self.rule, self.text)
    }
}

pub(crate) type Checked<T = ()> = Result<T, Breach>;

pub(crate) fn broken<T>(rule: Rule, text: impl Into<String>) -> Checked<T> {
    Err(Breach { rule, text: text.into() })
}
