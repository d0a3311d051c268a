//! What a camera does between the end of a stream and the next answer: which servers it has tried, and
//! how long it waits before it tries them again. A decision without clock or network.

use std::time::Duration;

use crate::{balance::Parting, random, stream::StreamEnd};

/// Pause before a camera that has tried all servers tries them again: anything up to this, doubled with
/// each round in vain ("full jitter"), so that a fleet that a server has lost does not come back all at
/// once.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Most of that.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A camera's streams since it was last answered.
#[derive(Debug, Default)]
pub struct Attempts {
    /// The server of the present stream.
    server: usize,
    /// Whether that stream has been answered.
    heard: bool,
    /// Servers that failed since the last answer or pause.
    tried: Vec<usize>,
    /// Pauses since the last answer.
    rounds: u32,
    /// Whether a stream since the last answer was on a connection that was closing.
    stale: bool,
}

impl Attempts {
    /// The next stream is on `server`.
    pub fn opens_at(&mut self, server: usize) {
        (self.server, self.heard) = (server, false);
    }

    /// The server of the present stream.
    #[must_use]
    pub fn server(&self) -> usize {
        self.server
    }

    /// An answer came. Whether it is the first one of its stream, which is over with the search.
    pub fn answered(&mut self) -> bool {
        if std::mem::replace(&mut self.heard, true) {
            return false;
        }
        (self.rounds, self.stale) = (0, false);
        self.tried.clear();
        true
    }

    /// The stream ended in the way of `end`, and there are `several` servers. Returns what that says
    /// about this one.
    ///
    /// A connection that cameras share is left by the library only after it has failed to open a
    /// stream on it: the server is as good as before, unless that happens again.
    pub fn ended(&mut self, end: &StreamEnd, several: bool) -> Parting {
        let closing = end.never_began() || end.parting() == Parting::Aged;
        let how = match end.parting() {
            _ if several && closing && !self.heard && !self.stale => Parting::Stale,
            Parting::Aged if !self.heard => Parting::Failed,
            how => how,
        };
        self.stale |= how == Parting::Stale;
        // With one server there is no other to go to.
        if how == Parting::Failed || !several {
            self.tried.push(self.server);
        }
        how
    }

    /// Servers to which the next stream does not go.
    #[must_use]
    pub fn tried(&self) -> &[usize] {
        &self.tried
    }

    /// The pause of camera `camera`, whose next frame would be `next`, now that it has tried all
    /// servers. It tries them again after it.
    pub fn pause(&mut self, seed: u64, camera: u32, next: u64) -> Duration {
        self.tried.clear();
        self.rounds = self.rounds.saturating_add(1);
        pause(seed, camera, next, self.rounds)
    }
}

/// The pause number `round`, from 1.
fn pause(seed: u64, camera: u32, next: u64, round: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(round.saturating_sub(1)));
    let place = random::hash(seed, u64::from(camera), next);
    let share = random::unit(random::hash(place, u64::from(round), 2));
    doubled.min(LONGEST_PAUSE).mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn broken(code: &str, message: &str, accepted: Option<u64>) -> StreamEnd {
        StreamEnd::Broken { code: code.to_owned(), message: message.to_owned(), accepted }
    }

    fn gone() -> StreamEnd {
        broken("UNAVAILABLE", "connection reset by peer", None)
    }

    fn aged() -> StreamEnd {
        broken("UNAVAILABLE", "its age (max-connection-age-seconds)", Some(3))
    }

    fn cancelled() -> StreamEnd {
        broken("CANCELLED", "operation was canceled", None)
    }

    #[test]
    fn servers_that_failed_are_not_tried_again_before_a_pause_or_an_answer() {
        let mut attempts = Attempts::default();
        for server in [1, 2] {
            attempts.opens_at(server);
            assert_eq!(attempts.ended(&gone(), true), Parting::Failed);
        }
        assert_eq!(attempts.tried(), [1, 2]);
        let first = attempts.pause(1, 7, 5);
        assert_eq!((first, attempts.tried().len()), (pause(1, 7, 5, 1), 0));
        attempts.opens_at(2);
        attempts.ended(&gone(), true);
        assert_eq!(attempts.pause(1, 7, 5), pause(1, 7, 5, 2));
        attempts.opens_at(0);
        assert!(attempts.answered() && !attempts.answered());
        // Going away in order is failing too: the server takes no more streams.
        attempts.ended(&broken("UNAVAILABLE", "shutting down", Some(3)), true);
        assert_eq!(attempts.tried(), [0]);
        assert_eq!(attempts.pause(1, 7, 5), pause(1, 7, 5, 1));
    }

    #[test]
    fn a_server_that_only_asks_to_choose_again_is_as_good_as_any() {
        let mut attempts = Attempts::default();
        attempts.answered();
        assert_eq!(attempts.ended(&aged(), true), Parting::Aged);
        assert!(attempts.tried().is_empty());
        // There is no other, so that the camera pauses before it comes back.
        assert_eq!(attempts.ended(&aged(), false), Parting::Aged);
        assert_eq!(attempts.tried(), [0]);
    }

    #[test]
    fn one_stream_on_a_connection_that_was_closing_is_forgiven() {
        for end in [cancelled(), aged()] {
            let mut attempts = Attempts::default();
            attempts.opens_at(4);
            assert_eq!(attempts.ended(&end, true), Parting::Stale);
            assert!(attempts.tried().is_empty());
            attempts.opens_at(4);
            assert_eq!(attempts.ended(&end, true), Parting::Failed);
            assert_eq!(attempts.tried(), [4]);
            attempts.opens_at(4);
            attempts.answered();
            attempts.opens_at(4);
            assert_eq!(attempts.ended(&end, true), Parting::Stale);
            assert_eq!(Attempts::default().ended(&end, false), Parting::Failed);
        }
        // A stream that was answered has begun.
        let mut attempts = Attempts::default();
        attempts.answered();
        assert_eq!(attempts.ended(&cancelled(), true), Parting::Failed);
    }

    #[test]
    fn cameras_that_lose_their_server_together_come_back_apart() {
        let pauses: Vec<_> = (0..100).map(|camera| pause(1, camera, 5, 1)).collect();
        assert_eq!(pauses.iter().collect::<HashSet<_>>().len(), 100);
        // Over the whole of what is allowed, not in a corner of it.
        let tenths: HashSet<_> =
            pauses.iter().map(|pause| pause.as_millis() * 10 / FIRST_PAUSE.as_millis()).collect();
        assert_eq!(tenths, (0..10).collect());
        assert_eq!(pause(1, 7, 5, 1), pauses[7], "the seed decides");
        assert_ne!(pause(2, 7, 5, 1), pauses[7]);
    }

    #[test]
    fn pauses_grow_with_rounds_in_vain_up_to_the_longest() {
        let longest = |round| (0..1000).map(|camera| pause(1, camera, 5, round)).max().unwrap();
        for (round, most) in [(1, FIRST_PAUSE), (2, 2 * FIRST_PAUSE), (4, 8 * FIRST_PAUSE)] {
            assert!(longest(round) <= most && longest(round) > most.mul_f64(0.9));
        }
        for round in [9, 33, u32::MAX] {
            assert!(longest(round) <= LONGEST_PAUSE);
            assert!(longest(round) > LONGEST_PAUSE.mul_f64(0.9));
        }
    }
}
