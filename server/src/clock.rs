//! The one place that reads clocks. Everything else takes `now` as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock.
#[must_use]
pub fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "the one reader of the monotonic clock")]
    Instant::now()
}

/// The wall clock, in microseconds since the Unix epoch. Only for comparing with a camera's clock.
#[must_use]
pub fn unix_micros() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the one reader of the wall clock")]
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// CPU time spent by the calling thread (`CLOCK_THREAD_CPUTIME_ID`, see `clock_gettime(2)`).
///
/// Unlike the wall clock it stands still while the thread is not running, so a busy loop bounded by
/// it costs what it says however many threads share the core.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Microseconds of a duration, saturating at the field's width.
#[must_use]
pub fn micros_u32(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_cpu_time_advances_only_with_work() {
        let before = thread_cpu_time();
        std::thread::sleep(Duration::from_millis(50));
        let asleep = thread_cpu_time().saturating_sub(before);
        let mut sum = 0_u64;
        while thread_cpu_time().saturating_sub(before) < Duration::from_millis(60) {
            sum = sum.wrapping_add(1);
        }
        assert!(asleep < Duration::from_millis(50), "sleeping cost {asleep:?} of CPU");
        assert!(sum > 0);
    }

    #[test]
    fn micros_saturate() {
        assert_eq!(micros_u32(Duration::from_micros(7)), 7);
        assert_eq!(micros_u32(Duration::from_secs(1 << 40)), u32::MAX);
    }
}
