//! A stand-in for a network: keeps the thread's CPU busy for a fixed time.

use std::time::Duration;

use crate::clock::thread_cpu_time;

/// Occupies the calling thread's CPU for `duration`.
///
/// Counted in the thread's own CPU time: a loop bounded by the wall clock would overlap with the loops
/// of other threads on the same core and make the machine look larger than it is.
pub fn spin(duration: Duration) {
    let end = thread_cpu_time() + duration;
    while thread_cpu_time() < end {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burns_cpu_time_of_this_thread() {
        let before = thread_cpu_time();
        spin(Duration::from_millis(20));
        assert!(thread_cpu_time() >= before + Duration::from_millis(20));
    }
}
