//! The only reader of the clock. Everything else takes time as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock in microseconds since the Unix epoch; 0 when it is set before that.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
#[must_use]
pub fn unix_micros() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(0))
}

/// A timer for `at`. The runtime's timers have a resolution of 1 ms and never fire early.
pub fn sleep_until(at: Instant) -> tokio::time::Sleep {
    tokio::time::sleep_until(at.into())
}

/// Milliseconds of `duration`: a number that was given with up to 6 decimals comes back as it was.
#[must_use]
pub fn millis(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e6
}

/// Microseconds of `duration`, saturating.
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Processor time that this process has used.
#[must_use]
pub fn process_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
