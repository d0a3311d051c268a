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

    #[test]
    fn a_busy_thread_shows_and_the_null_server_s_does_not() {
        let before = Reading::now();
        let busy = |name: &str| {
            let spin = || {
                let end = clock::process_cpu_time() + Duration::from_millis(60);
                while clock::process_cpu_time() < end {
                    std::hint::spin_loop();
                }
                Reading::now()
            };
            std::thread::Builder::new().name(name.to_owned()).spawn(spin).unwrap().join().unwrap()
        };
        let ours = busy("ours");
        assert!(ours.since(&before).cores > 0.0);
        assert!(ours.since(&before).busiest_thread.is_none_or(|share| share > 0.0));
        let theirs = busy(NULL_SERVER_THREAD);
        if let Some(thread) = theirs.threads.values().find(|t| t.name == NULL_SERVER_THREAD) {
            assert!(thread.time >= Duration::from_millis(10), "{thread:?}");
        }
    }
}
