//! What happened in each of the last seconds.

use std::{collections::VecDeque, time::Duration};

use crate::{clock::micros_u32, frame::Outcome, limits::HISTORY_SECONDS, response::Progress};

/// One second of a camera, or of all together. Frames count in the second in which they were answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Second {
    /// Seconds since the server's start.
    pub at: u32,
    /// Frames answered OK.
    pub answered: u32,
    /// Frames not computed: superseded, expired, overloaded.
    pub dropped: u32,
    /// Frames that could not be: bad image, unsupported, internal.
    pub failed: u32,
    /// Longest time from receipt to answer of those answered OK, in microseconds.
    pub slowest_us: u32,
    /// The sum of these times, in microseconds.
    pub total_us: u64,
    /// Time in each stage of those answered OK, in the order of [`stages`], in microseconds.
    pub stages_us: [u32; STAGES.len()],
    /// Time of all workers on frames, in microseconds; only for all cameras together.
    pub busy_us: u32,
}

/// The names of [`Second::stages_us`].
pub const STAGES: [&str; 5] = ["queue", "decode", "preprocess", "inference", "postprocess"];

/// The times of a frame in the order of [`STAGES`].
fn stages(progress: &Progress) -> [Duration; STAGES.len()] {
    let Progress { queue, decode, preprocess, inference, postprocess, .. } = *progress;
    [queue, decode, preprocess, inference, postprocess]
}

impl Second {
    /// Counts a frame that was answered `total` after its receipt.
    pub fn count(&mut self, outcome: Outcome, total: Duration, progress: &Progress) {
        match outcome {
            Outcome::Ok => {
                self.answered += 1;
                self.slowest_us = self.slowest_us.max(micros_u32(total));
                self.total_us += u64::from(micros_u32(total));
                for (sum, time) in self.stages_us.iter_mut().zip(stages(progress)) {
                    *sum = sum.saturating_add(micros_u32(time));
                }
            }
            Outcome::Superseded | Outcome::Expired | Outcome::Overloaded => self.dropped += 1,
            Outcome::BadImage | Outcome::Unsupported | Outcome::Internal => self.failed += 1,
            Outcome::Heartbeat | Outcome::ClientGone => {}
        }
    }

    /// Frames that came to an end here.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.answered + self.dropped + self.failed
    }

    /// The slowest answer in seconds; `None` without any.
    #[must_use]
    pub fn slowest(&self) -> Option<f64> {
        (self.answered > 0).then(|| f64::from(self.slowest_us) / 1e6)
    }

    /// The mean time to an answer in seconds; `None` without any.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.answered > 0).then(|| self.total_us as f64 / f64::from(self.answered) / 1e6)
    }

    fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.dropped += other.dropped;
        self.failed += other.failed;
        self.slowest_us = self.slowest_us.max(other.slowest_us);
        self.total_us += other.total_us;
        self.busy_us = self.busy_us.saturating_add(other.busy_us);
        for (sum, more) in self.stages_us.iter_mut().zip(other.stages_us) {
            *sum = sum.saturating_add(more);
        }
    }
}

/// The last [`HISTORY_SECONDS`] in which something happened. Takes no memory until something
/// does, and then all that it ever takes.
#[derive(Debug, Clone, Default)]
pub struct History {
    // The oldest first.
    seconds: VecDeque<Second>,
}

impl History {
    /// The entry of the second `at`. Two threads that note things at its end may come in the wrong order: what
    /// is late counts in the last second there is.
    pub fn at(&mut self, at: u32) -> &mut Second {
        let newer = self.seconds.back().is_none_or(|last| last.at < at);
        if newer {
            if self.seconds.capacity() == 0 {
                self.seconds.reserve_exact(HISTORY_SECONDS);
            }
            if self.seconds.len() == HISTORY_SECONDS {
                self.seconds.pop_front();
            }
            self.seconds.push_back(Second { at, ..Second::default() });
        }
        let last = self.seconds.len() - 1;
        &mut self.seconds[last]
    }

    /// Every second of `from..to`, also those in which nothing happened.
    pub fn each(&self, from: u32, to: u32) -> impl Iterator<Item = Second> + '_ {
        let first = self.seconds.partition_point(|second| second.at < from);
        let mut known = self.seconds.range(first..).peekable();
        (from..to).map(move |at| {
            known
                .next_if(|second| second.at == at)
                .copied()
                .unwrap_or(Second { at, ..Second::default() })
        })
    }

    /// The sum over the seconds of `from..to`.
    #[must_use]
    pub fn sum(&self, from: u32, to: u32) -> Second {
        let first = self.seconds.partition_point(|second| second.at < from);
        let mut sum = Second { at: from, ..Second::default() };
        for second in self.seconds.range(first..).take_while(|second| second.at < to) {
            sum.add(second);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn answered(history: &mut History, at: u32, total: Duration) {
        let progress = Progress { decode: total / 2, ..Progress::default() };
        history.at(at).count(Outcome::Ok, total, &progress);
    }

    #[test]
    fn every_outcome_counts_as_what_it_is() {
        let mut second = Second::default();
        for outcome in Outcome::ALL {
            second.count(outcome, 30 * MS, &Progress::default());
        }
        assert_eq!((second.answered, second.dropped, second.failed), (1, 3, 3));
        assert_eq!(second.frames(), 7, "signs of life and clients that left are no frames");
    }

    #[test]
    fn seconds_without_anything_are_there_and_empty() {
        let mut history = History::default();
        answered(&mut history, 3, 20 * MS);
        answered(&mut history, 5, 10 * MS);
        answered(&mut history, 5, 40 * MS);
        let seconds: Vec<_> = history.each(2, 6).map(|s| (s.at, s.answered, s.slowest())).collect();
        assert_eq!(seconds, [(2, 0, None), (3, 1, Some(0.02)), (4, 0, None), (5, 2, Some(0.04))]);
        let sum = history.sum(3, 6);
        assert_eq!((sum.answered, sum.slowest(), sum.stages_us[1]), (3, Some(0.04), 35_000));
        assert!((sum.mean().expect("answers") - 0.07 / 3.0).abs() < 1e-9);
        assert_eq!(history.sum(0, 3), Second::default());
    }

    #[test]
    fn it_takes_no_more_memory_than_at_first() {
        let mut history = History::default();
        assert_eq!(history.seconds.capacity(), 0);
        answered(&mut history, 0, MS);
        let capacity = history.seconds.capacity();
        for at in 1..2000 {
            answered(&mut history, at, MS);
        }
        assert_eq!(history.seconds.capacity(), capacity);
        assert_eq!(history.sum(0, 2000).answered as usize, HISTORY_SECONDS);
    }

    #[test]
    fn what_comes_late_counts_in_the_last_second() {
        let mut history = History::default();
        answered(&mut history, 8, MS);
        answered(&mut history, 7, MS);
        assert_eq!(history.sum(8, 9).answered, 2);
    }
}
