//! What the simulator itself takes from the machine.

use std::{collections::HashMap, fs, time::Duration};

use crate::clock;

/// Name of each thread of the built-in server that answers at once, whose time is not the simulator's.
pub const NULL_SERVER_THREAD: &str = "null-server";

/// Name of the thread of the delaying proxy, whose time is not the simulator's either.
pub const PROXY_THREAD: &str = "delay-proxy";

/// Name of the thread of clients that misbehave. Their time is the tool's, but no camera waits for it.
pub const ROGUES_THREAD: &str = "rogues";

/// Processor time at one instant.
#[derive(Debug, Clone)]
pub struct Reading {
    at: std::time::Instant,
    process: Duration,
    threads: HashMap<u64, Thread>,
}

#[derive(Debug, Clone)]
struct Thread {
    name: String,
    time: Duration,
}

/// Processor time between two readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// Of the whole tool, per second: 1.0 = one core.
    pub cores: f64,
    /// Of its busiest thread that serves cameras, 0.0 to 1.0; `None` where the operating system does not tell.
    pub busiest_thread: Option<f64>,
}

impl Reading {
    /// Reads the clocks.
    #[must_use]
    pub fn now() -> Self {
        Self { at: clock::now(), process: clock::process_cpu_time(), threads: threads() }
    }

    /// What was used since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Usage {
        let wall = self.at.saturating_duration_since(earlier.at).as_secs_f64().max(1e-9);
        let used = self.threads.iter().map(|(id, thread)| {
            let before = earlier.threads.get(id).map_or(Duration::ZERO, |thread| thread.time);
            (thread.name.as_str(), thread.time.saturating_sub(before))
        });
        let (not_ours, ours): (Vec<_>, Vec<_>) =
            used.partition(|&(name, _)| [NULL_SERVER_THREAD, PROXY_THREAD].contains(&name));
        let not_ours: Duration = not_ours.into_iter().map(|(_, time)| time).sum();
        let process = self.process.saturating_sub(earlier.process).saturating_sub(not_ours);
        Usage {
            cores: process.as_secs_f64() / wall,
            busiest_thread: ours
                .into_iter()
                .filter(|&(name, _)| name != ROGUES_THREAD)
                .map(|(_, time)| time.as_secs_f64() / wall)
                .reduce(f64::max),
        }
    }
}

/// The threads of this process; none where the operating system does not tell.
fn threads() -> HashMap<u64, Thread> {
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return HashMap::new() };
    let read = |entry: fs::DirEntry| {
        let time = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        let nanoseconds = time.split_whitespace().next()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let id = entry.file_name().to_str()?.parse().ok()?;
        let time = Duration::from_nanos(nanoseconds);
        Some((id, Thread { name: name.trim().to_owned(), time }))
    };
    entries.filter_map(Result::ok).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading of threads that each have used so many milliseconds, of a process that has used their sum.
    fn reading(at: std::time::Instant, threads: &[(&str, u64)]) -> Reading {
        let thread = |&(name, used): &(&str, u64)| Thread {
            name: name.to_owned(),
            time: Duration::from_millis(used),
        };
        let process = Duration::from_millis(threads.iter().map(|&(_, used)| used).sum());
        Reading { at, process, threads: (0..).zip(threads.iter().map(thread)).collect() }
    }

    #[test]
    fn who_is_not_the_simulator_is_left_out() {
        let begin = clock::now();
        let before =
            [("client", 100), (NULL_SERVER_THREAD, 50), (PROXY_THREAD, 0), (ROGUES_THREAD, 0)];
        let after =
            [("client", 300), (NULL_SERVER_THREAD, 950), (PROXY_THREAD, 800), (ROGUES_THREAD, 700)];
        let before = reading(begin, &before);
        let usage = reading(begin + Duration::from_secs(1), &after).since(&before);
        assert!((usage.cores - 0.9).abs() < 1e-9, "{usage:?}");
        assert!((usage.busiest_thread.unwrap() - 0.2).abs() < 1e-9, "{usage:?}");
    }

    #[test]
    fn a_thread_that_came_in_between_counts_whole() {
        let begin = clock::now();
        let before = reading(begin, &[("first", 900)]);
        let usage = reading(begin + Duration::from_secs(2), &[("first", 1000), ("second", 500)])
            .since(&before);
        assert!((usage.busiest_thread.unwrap() - 0.25).abs() < 1e-9, "{usage:?}");
        assert_eq!(reading(begin, &[]).since(&before).busiest_thread, None);
    }

    /// By its own clock and its own number: other tests keep the processor busy, under the same names too.
    #[test]
    fn a_busy_thread_shows() {
        use rustix::time::{ClockId, clock_gettime};

        let own_time = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let spin = move || {
            while own_time() < Duration::from_millis(60) {
                std::hint::spin_loop();
            }
            let own = fs::read_link("/proc/thread-self").ok()?;
            let own: u64 = own.file_name()?.to_str()?.parse().ok()?;
            Some(Reading::now().threads.remove(&own).unwrap())
        };
        let busy = std::thread::Builder::new().name("busy".to_owned()).spawn(spin).unwrap();
        let Some(busy) = busy.join().unwrap() else { return };
        assert_eq!(busy.name, "busy");
        // The kernel brings this figure up to date at its ticks.
        assert!(busy.time >= Duration::from_millis(10), "{busy:?}");
    }
}
