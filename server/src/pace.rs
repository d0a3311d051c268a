//! How fast a stream is read whose frames are of no use: they replace each other, or are no pictures.

use std::time::{Duration, Instant};

use crate::limits::{
    LONGEST_SHED_PAUSE, READ_BYTES_PER_SECOND, READ_COST, READ_SHARE, SHORTEST_PAUSE,
};

/// Adds up what reading useless frames has cost and says when to pause, so that it takes no more than
/// [`READ_SHARE`] of a core. A backlog of a few frames, as after a stall of the network, passes freely.
#[derive(Debug, Default)]
pub struct Pace {
    owed: Duration,
}

impl Pace {
    /// Takes note of a useless frame of so many bytes. Returns how long to pause before the next one.
    pub fn pause_after(&mut self, bytes: usize) -> Option<Duration> {
        let cost = READ_COST + Duration::from_secs_f64(bytes as f64 / READ_BYTES_PER_SECOND);
        self.owed += cost.mul_f64(1.0 / READ_SHARE - 1.0);
        (self.owed >= SHORTEST_PAUSE).then(|| std::mem::take(&mut self.owed))
    }
}

/// The same for what is read side by side: the single calls of a connection, and frames of all streams together
/// that are dropped for want of memory. Dropping helps nobody, and a hundred streams that may each take a tenth
/// of a core for it leave none for the frames that have room.
#[derive(Debug, Default)]
pub struct SharedPace {
    /// When all that was dropped so far has been waited for.
    free: Option<Instant>,
}

impl SharedPace {
    /// Takes note of a useless frame of so many bytes. Returns how long its stream is not read, or its call not
    /// answered, from `now` on.
    pub fn pause_after(&mut self, bytes: u64, now: Instant) -> Duration {
        let cost = READ_COST + Duration::from_secs_f64(bytes as f64 / READ_BYTES_PER_SECOND);
        let begins = self.free.map_or(now, |free| free.max(now));
        let free = begins + cost.mul_f64(1.0 / READ_SHARE - 1.0);
        // One stream after the other, but none for so long that its camera seems dead.
        let free = free.min(now + LONGEST_SHED_PAUSE);
        self.free = Some(free);
        free.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pauses of a flood of so many frames.
    fn paused(frames: u32, bytes: usize) -> Duration {
        let mut pace = Pace::default();
        (0..frames).filter_map(|_| pace.pause_after(bytes)).sum()
    }

    #[test]
    fn a_flood_takes_a_tenth_of_a_core() {
        for bytes in [0, 2_000, 60_000, 1_000_000] {
            let reading = (READ_COST + Duration::from_secs_f64(bytes as f64 / 2e9)) * 1000;
            let share = reading.as_secs_f64() / (reading + paused(1000, bytes)).as_secs_f64();
            assert!((share - 0.1).abs() < 0.01, "{bytes} bytes: {share}");
        }
    }

    #[test]
    fn a_backlog_of_a_second_is_read_within_a_few_frames_time() {
        assert!(paused(2, 60_000) < SHORTEST_PAUSE);
        assert!(paused(10, 60_000) < 5 * SHORTEST_PAUSE);
    }

    /// What lies in a stream's window when it is not read grows old by no more than this.
    #[test]
    fn a_full_window_is_read_within_a_tenth_of_a_second() {
        for bytes in [2_000, 10_000, 60_000] {
            let frames = crate::limits::STREAM_WINDOW_BYTES / bytes;
            assert!(paused(frames, bytes as usize) < Duration::from_millis(100), "{bytes} bytes");
        }
    }

    #[test]
    fn dropped_frames_of_all_streams_share_one_pace() {
        let mut pace = SharedPace::default();
        let start = crate::clock::now();
        let pauses: Vec<_> = (0..10).map(|_| pace.pause_after(4_000_000, start)).collect();
        // 2 ms of reading each, ten times as long with the pause.
        for (number, pause) in pauses.iter().enumerate() {
            let expected = Duration::from_millis(18) * (number as u32 + 1);
            assert!(pause.abs_diff(expected) < Duration::from_millis(2), "{pauses:?}");
        }
        let later = start + Duration::from_mins(1);
        assert!(pace.pause_after(4_000_000, later) < Duration::from_millis(20), "nothing is left");
        let longest = (0..1000).map(|_| pace.pause_after(4_000_000, later)).max();
        assert_eq!(longest, Some(LONGEST_SHED_PAUSE));
    }
}
