//! Situations that runs must get into: rules that hold because nothing ever happens say nothing.

use vedette_server::frame::Outcome;

use crate::trace::Event;

/// What a run may get into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Situation {
    RefusedForWantOfPlaces,
    RefusedWhileDraining,
    Replaced,
    FrameAfterItsCamera,
    Paused,
    WorkerFoundNothing,
    WorkerPanicked,
    EndedByItsClient,
    EndedByTheServer,
    DrainedInTime,
    GraceTimeUp,
    Ok,
    Expired,
    BadImage,
    Internal,
    ClientGone,
    TookSeveral,
    /// A computed answer waits for an earlier one of its stream.
    AnswerHeldBack,
    /// All places of a reply queue are in use.
    RepliesFull,
    /// As many wake-ups are under way as there can be cameras.
    WakeUpsFull,
    /// A frame that had arrived was read after the drain had begun.
    ReadWhileDraining,
    /// A client has left while a frame of it was computed.
    LeftInHand,
    /// A client has left while a frame of it waited.
    LeftWaiting,
    /// A worker was still busy when the server had stopped.
    StoppedBusy,
    /// An idle worker was woken in vain: another had been faster.
    WokenInVain,
    /// A camera waits with a frame in hand, and one without is picked.
    YieldedToOneWithLess,
}

impl Situation {
    pub(crate) const ALL: [Self; 26] = [
        Self::RefusedForWantOfPlaces,
        Self::RefusedWhileDraining,
        Self::Replaced,
        Self::FrameAfterItsCamera,
        Self::Paused,
        Self::WorkerFoundNothing,
        Self::WorkerPanicked,
        Self::EndedByItsClient,
        Self::EndedByTheServer,
        Self::DrainedInTime,
        Self::GraceTimeUp,
        Self::Ok,
        Self::Expired,
        Self::BadImage,
        Self::Internal,
        Self::ClientGone,
        Self::TookSeveral,
        Self::AnswerHeldBack,
        Self::RepliesFull,
        Self::WakeUpsFull,
        Self::ReadWhileDraining,
        Self::LeftInHand,
        Self::LeftWaiting,
        Self::StoppedBusy,
        Self::WokenInVain,
        Self::YieldedToOneWithLess,
    ];

    /// The situation that an event is, if it is one.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        Some(match event {
            Event::NotTaken { full: true, .. } => Self::RefusedForWantOfPlaces,
            Event::NotTaken { full: false, .. } => Self::RefusedWhileDraining,
            Event::Replaced { .. } => Self::Replaced,
            Event::NoCamera { .. } => Self::FrameAfterItsCamera,
            Event::Paused { .. } => Self::Paused,
            Event::NothingWaits { .. } => Self::WorkerFoundNothing,
            Event::Crashed { .. } => Self::WorkerPanicked,
            Event::Ended { accepted: None, .. } => Self::EndedByItsClient,
            Event::Ended { accepted: Some(_), .. } => Self::EndedByTheServer,
            Event::Drained { in_time: true } => Self::DrainedInTime,
            Event::Drained { in_time: false } => Self::GraceTimeUp,
            Event::Settled { outcome, .. } => match outcome {
                Outcome::Ok => Self::Ok,
                Outcome::Expired => Self::Expired,
                Outcome::BadImage => Self::BadImage,
                Outcome::Internal => Self::Internal,
                Outcome::ClientGone => Self::ClientGone,
                _ => return None,
            },
            _ => return None,
        })
    }
}

/// How often each was met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen([u64; Situation::ALL.len()]);

impl Seen {
    pub(crate) fn note(&mut self, situation: Situation) {
        self.0[situation as usize] += 1;
    }

    pub(crate) fn count(&self, situation: Situation) -> u64 {
        self.0[situation as usize]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn situations_are_indexed_in_their_order() {
        assert!(Situation::ALL.iter().enumerate().all(|(at, one)| *one as usize == at));
    }
}
