//! Signs of life of a camera that has nothing to send: when they are due, and what became of them.
//!
//! A proxy that reads HTTP/2 ends a stream on which no message has moved for its idle limit. Probes of the
//! connection do not pass it, so only a message of the stream itself keeps the stream.

use std::{
    collections::HashSet,
    pin::Pin,
    time::{Duration, Instant},
};

use tokio::time::Sleep;
use vedette_proto::camera_ai::{DetectRequest, DetectResponse, Outcome};

use crate::clock;

/// Shortest pause after which one may be asked for. Proxies wait for seconds; below this the heartbeats
/// would be a load of their own.
pub const SHORTEST: Duration = Duration::from_millis(10);

/// Ids from here on are heartbeats'. Frames are numbered from 0 and never get that far, so that an answer
/// tells which of the two it belongs to, also that of a server which takes heartbeats for frames.
const FIRST_ID: u64 = 1 << 63;

/// Whether a request or an answer with this id belongs to a heartbeat.
#[must_use]
pub fn is_heartbeat(id: u64) -> bool {
    id >= FIRST_ID
}

/// The heartbeat with this id.
#[must_use]
pub fn request(id: u64) -> DetectRequest {
    DetectRequest { frame_id: id, heartbeat: true, ..DetectRequest::default() }
}

/// Wakes a camera whose stream has been quiet for too long.
///
/// A timer that each frame sets back would cost every frame something. This one is set when it goes off:
/// to the instant at which the stream will have been quiet for long enough, as far as is known then.
#[derive(Debug)]
pub struct QuietTimer {
    every: Duration,
    last: Instant,
    alarm: Pin<Box<Sleep>>,
}

impl QuietTimer {
    /// For a stream that was opened at `now` and must not be quiet for longer than `every`.
    #[must_use]
    pub fn new(every: Duration, now: Instant) -> Self {
        Self { every, last: now, alarm: Box::pin(clock::sleep_until(now + every)) }
    }

    /// Something was sent at `now`.
    pub fn sent(&mut self, now: Instant) {
        self.last = now;
    }

    /// Ends when nothing has been sent for too long. May be dropped and called again.
    pub async fn quiet(&mut self) {
        loop {
            self.alarm.as_mut().await;
            let due = self.last + self.every;
            if due <= clock::now() {
                return;
            }
            self.alarm.as_mut().reset(due.into());
        }
    }
}

/// What became of heartbeats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Handed to the connection.
    pub sent: u64,
    /// Answered as such.
    pub answered: u64,
    /// Answered by a server that took them for frames.
    pub taken_for_frames: u64,
}

impl Counts {
    /// Adds another camera's.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.taken_for_frames += other.taken_for_frames;
    }
}

/// The heartbeats of one camera.
#[derive(Debug, Default)]
pub struct Heartbeats {
    counts: Counts,
    /// Those of the present stream that are not answered.
    open: HashSet<u64>,
}

impl Heartbeats {
    /// The id of the next one.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        FIRST_ID + self.counts.sent
    }

    /// The next one was handed to the connection.
    pub fn sent(&mut self) {
        self.open.insert(self.next_id());
        self.counts.sent += 1;
    }

    /// An answer came in; the error says why there should not be one.
    pub fn answered(&mut self, answer: &DetectResponse) -> Result<(), String> {
        if !self.open.remove(&answer.frame_id) {
            return Err(format!("answer to heartbeat {}, which awaits none", answer.frame_id));
        }
        *if answer.outcome == Outcome::Heartbeat as i32 {
            &mut self.counts.answered
        } else {
            &mut self.counts.taken_for_frames
        } += 1;
        Ok(())
    }

    /// The stream has ended, and with it the wait for answers.
    pub fn stream_ended(&mut self) {
        self.open.clear();
    }

    /// What became of all of them.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(frame_id: u64, outcome: Outcome) -> DetectResponse {
        DetectResponse { frame_id, outcome: outcome as i32, ..DetectResponse::default() }
    }

    #[test]
    fn ids_are_told_from_frames() {
        let mut heartbeats = Heartbeats::default();
        for n in 0..3 {
            assert_eq!(heartbeats.next_id(), (1 << 63) + n);
            assert!(is_heartbeat(heartbeats.next_id()));
            heartbeats.sent();
        }
        // A week at the highest rate that a camera may have.
        assert!(!is_heartbeat(7 * 24 * 3600 * 1000) && !is_heartbeat(FIRST_ID - 1));
        assert!(request(FIRST_ID).heartbeat && request(FIRST_ID).image_data.is_empty());
    }

    #[test]
    fn each_is_answered_once_and_by_its_outcome() {
        let mut heartbeats = Heartbeats::default();
        (0..4).for_each(|_| heartbeats.sent());
        assert_eq!(heartbeats.answered(&answer(FIRST_ID, Outcome::Heartbeat)), Ok(()));
        assert_eq!(heartbeats.answered(&answer(FIRST_ID + 1, Outcome::BadImage)), Ok(()));
        for wrong in [FIRST_ID, FIRST_ID + 4, u64::MAX] {
            let why = heartbeats.answered(&answer(wrong, Outcome::Heartbeat)).unwrap_err();
            assert_eq!(why, format!("answer to heartbeat {wrong}, which awaits none"));
        }
        heartbeats.stream_ended();
        assert!(heartbeats.answered(&answer(FIRST_ID + 2, Outcome::Heartbeat)).is_err());
        assert_eq!(heartbeats.counts(), Counts { sent: 4, answered: 1, taken_for_frames: 1 });
        assert_eq!(heartbeats.next_id(), FIRST_ID + 4, "ids are not used again");
    }

    #[tokio::test]
    async fn what_is_sent_meanwhile_puts_the_alarm_off() {
        let every = Duration::from_millis(20);
        let start = clock::now();
        let mut timer = QuietTimer::new(every, start);
        timer.sent(start + every);
        timer.quiet().await;
        assert!(clock::now() >= start + 2 * every);
        // Nothing was sent since, so it is due at once.
        timer.quiet().await;
        let again = clock::now();
        timer.sent(again);
        timer.quiet().await;
        assert!(clock::now() >= again + every);
    }
}
