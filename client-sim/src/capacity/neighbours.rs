//! What everything else on the machine takes while a run goes on. A limit found beside a build or a browser
//! is lower than the server's, and the next search finds another one.

use std::{fs, time::Duration};

use crate::clock;

/// Processor time of the machine and of this tool at one instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    at: std::time::Instant,
    ours: Duration,
    /// Time of all cores in some unit: spent, and altogether.
    machine: Option<(u64, u64)>,
}

impl Reading {
    pub(super) fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { at: clock::now(), ours: clock::process_cpu_time(), machine: machine(&text, cores) }
    }

    /// Cores that others used since `earlier`, when the server, which is on this machine, used
    /// `server` of processor time.
    pub(super) fn others_since(&self, earlier: &Self, server: Duration) -> Option<f64> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let wall = self.at.saturating_duration_since(earlier.at).as_secs_f64();
        let ((spent, total), (spent_before, total_before)) = self.machine.zip(earlier.machine)?;
        let total = total.checked_sub(total_before).filter(|total| *total > 0)? as f64;
        let busy = spent.checked_sub(spent_before)? as f64 / total * cores;
        let known = self.ours.saturating_sub(earlier.ours) + server;
        (wall > 0.0).then(|| (busy - known.as_secs_f64() / wall).max(0.0))
    }
}

/// The first line of `/proc/stat`, added up: time spent, stolen by other machines of the host included,
/// and time altogether. `None` where this process may not use all `cores` that are counted there.
fn machine(text: &str, cores: usize) -> Option<(u64, u64)> {
    let counted = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    if text.lines().filter(counted).count() != cores {
        return None;
    }
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let times: Option<Vec<u64>> = line.split_whitespace().map(|time| time.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in the user's already.
    let times = times.filter(|times| times.len() >= 8)?;
    let total: u64 = times[..8].iter().sum();
    Some((total - times[3] - times[4], total))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 2 30 800 40 5 6 7 90 0\ncpu0 1 1\ncpu1 1 1\nintr 5\n";

    #[test]
    fn spent_time_is_all_but_idle_and_waiting() {
        assert_eq!(machine(STAT, 2), Some((150, 990)));
        assert_eq!(machine(STAT, 1), None, "a part of a larger machine");
        assert_eq!(machine("", 2), None);
    }

    #[test]
    fn others_are_what_is_not_ours_or_the_server_s() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let before = Reading::now();
        let before = Reading { machine: Some((0, 0)), ..before };
        let after = Reading {
            at: before.at + Duration::from_secs(10),
            ours: before.ours + Duration::from_secs(1),
            // One core was busy for the whole time.
            machine: Some((1000, 1000 * cores)),
        };
        let others = after.others_since(&before, Duration::from_secs(6)).unwrap();
        assert!((others - 0.3).abs() < 1e-9, "{others}");
        assert_eq!(after.others_since(&before, Duration::from_mins(1)), Some(0.0));
        assert_eq!(before.others_since(&before, Duration::ZERO), None);
    }
}
