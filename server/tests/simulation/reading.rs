//! The books on one stream's reader: its reply places, and how fast it may read.

use std::{mem::replace, time::Duration};

use vedette_server::limits::{READ_BYTES_PER_SECOND, READ_COST, READ_SHARE, SHORTEST_PAUSE};

/// What a reader does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Waits for a place for the next frame's answer.
    WantsPlace,
    /// Has one, and waits for the frame.
    HasPlace,
    /// Pauses, and no frame of its stream has been picked since.
    Pauses,
    /// Paused when a frame was picked, and should read on.
    Released,
    /// Waits for all places, to end the stream.
    Finishes,
}

/// What is known of a reader.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Places of the stream's reply queue.
    pub(crate) places: usize,
    pub(crate) doing: Doing,
    /// Time that must pass for useless frames that were read, at an instant.
    debt: Duration,
    since: Duration,
    /// One pause may be skipped.
    forgiven: bool,
}

impl Reading {
    pub(crate) fn new(places: usize) -> Self {
        Self {
            places,
            doing: Doing::WantsPlace,
            debt: Duration::ZERO,
            since: Duration::ZERO,
            forgiven: false,
        }
    }

    /// A useless frame was read. Reading such may take a share of a core and no more: after what it
    /// cost, so much longer must pass. A pause begins only when it is worth it, and one is skipped for
    /// frames that were picked since the last one. Returns what should have passed and has not.
    pub(crate) fn useless(&mut self, bytes: usize, now: Duration) -> Option<Duration> {
        let cost = READ_COST + Duration::from_secs_f64(bytes as f64 / READ_BYTES_PER_SECOND);
        let owed = cost.mul_f64(1.0 / READ_SHARE - 1.0);
        self.debt = self.debt.saturating_sub(now.saturating_sub(self.since)) + owed;
        self.since = now;
        let most = SHORTEST_PAUSE + owed;
        if self.debt > most && replace(&mut self.forgiven, false) {
            self.debt = owed;
        }
        self.debt.checked_sub(most).filter(|missing| !missing.is_zero())
    }

    /// A frame of the stream was picked: whoever pauses reads on, and who is about to does not.
    pub(crate) fn picked(&mut self) {
        if self.doing == Doing::Pauses {
            self.doing = Doing::Released;
        }
        self.debt = Duration::ZERO;
        self.forgiven = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Reads useless frames of 60 kB, each so long after the last; how many until one was too early.
    fn reads(reading: &mut Reading, apart: Duration) -> usize {
        let start = reading.since;
        (1..100)
            .find(|number| reading.useless(60_000, start + apart * *number).is_some())
            .map_or(100, |number| number as usize)
    }

    #[test]
    fn a_frame_of_40_us_needs_360_us_more() {
        assert_eq!(reads(&mut Reading::new(1), 360 * MS / 1000), 100);
        // 1 ms may be owed before it is worth a pause, and the last frame's 0.36 ms.
        assert_eq!(reads(&mut Reading::new(1), Duration::ZERO), 4);
        let mut picked = Reading::new(1);
        picked.picked();
        assert_eq!(reads(&mut picked, Duration::ZERO), 7, "one pause is skipped");
    }

    #[test]
    fn a_pick_releases_a_reader_that_pauses_then() {
        let mut reading = Reading::new(1);
        reading.picked();
        assert_eq!(reading.doing, Doing::WantsPlace);
        reading.doing = Doing::Pauses;
        reading.picked();
        assert_eq!(reading.doing, Doing::Released);
    }
}
