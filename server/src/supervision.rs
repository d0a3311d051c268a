//! Whether the workers go on, and who is told when one does not.
//!
//! A worker that has been on one frame for too long is stuck: a network that hangs, a machine that swaps.
//! Then the server is not ready, so that balancers send cameras elsewhere, and feeds no watchdog. It
//! recovers by itself when the worker goes on. If it does not, the process ends for its supervisor to start
//! it again: a thread cannot be stopped from outside.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sd_notify::NotifyState;
use tonic::server::NamedService;
use tonic_health::server::HealthReporter;

use crate::{
    clock, config::SupervisionConfig, limits::SUPERVISION_TICK, telemetry::metrics::Metrics,
};

/// Since when each worker has been on its frame.
#[derive(Debug)]
pub struct Watch {
    base: Instant,
    /// Microseconds after `base`, by worker; [`IDLE`] without a frame.
    begun: Box<[AtomicU64]>,
}

/// Stands for no frame.
const IDLE: u64 = u64::MAX;

impl Watch {
    /// A watch over so many workers, none of which has a frame.
    #[must_use]
    pub fn new(workers: usize, now: Instant) -> Self {
        Self { base: now, begun: (0..workers).map(|_| AtomicU64::new(IDLE)).collect() }
    }

    /// A worker takes frames up.
    pub fn begin(&self, worker: usize, now: Instant) {
        self.set(worker, now.saturating_duration_since(self.base).as_micros() as u64);
    }

    /// It has answered them.
    pub fn end(&self, worker: usize) {
        self.set(worker, IDLE);
    }

    fn set(&self, worker: usize, value: u64) {
        if let Some(begun) = self.begun.get(worker) {
            begun.store(value, Relaxed);
        }
    }

    /// How long the slowest worker has been on its frames; zero when none has any.
    #[must_use]
    pub fn longest(&self, now: Instant) -> Duration {
        let now = now.saturating_duration_since(self.base).as_micros() as u64;
        let begun = self.begun.iter().map(|begun| begun.load(Relaxed)).filter(|&at| at != IDLE);
        Duration::from_micros(begun.map(|at| now.saturating_sub(at)).max().unwrap_or(0))
    }
}

/// What is to be thought of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// They go on.
    Sound,
    /// One does not.
    Stuck,
    /// One will not any more.
    Lost,
}

/// Judges by the longest time that a worker has been on its frames, and by whether one was stuck before: if
/// not, the whole process stood still, and the worker deserves a tick to go on.
#[must_use]
pub fn judge(longest: Duration, was_stuck: bool, config: &SupervisionConfig) -> Condition {
    match config.exit {
        Some(exit) if longest >= exit && was_stuck => Condition::Lost,
        _ if longest >= config.stuck => Condition::Stuck,
        _ => Condition::Sound,
    }
}

/// Watches over the workers and tells everyone concerned.
pub struct Supervisor {
    /// Of the workers.
    pub watch: Arc<Watch>,
    /// When they count as stuck.
    pub config: SupervisionConfig,
    /// Who is asked by balancers.
    pub health: HealthReporter,
    /// Who is asked by operators.
    pub metrics: Arc<Metrics>,
    /// Set while a worker is stuck.
    pub stuck: Arc<AtomicBool>,
}

impl Supervisor {
    /// Watches until a worker is lost, and returns for how long it has been.
    pub async fn run<S: NamedService>(self) -> Duration {
        let watchdog = sd_notify::watchdog_enabled();
        // Three times within the watchdog's time, so that one late tick does not end the process.
        let every = watchdog.map_or(SUPERVISION_TICK, |time| SUPERVISION_TICK.min(time / 3));
        let mut tick = tokio::time::interval(every);
        let mut was_stuck = false;
        loop {
            tick.tick().await;
            let longest = self.watch.longest(clock::now());
            let condition = judge(longest, was_stuck, &self.config);
            let stuck = condition != Condition::Sound;
            if stuck != was_stuck {
                was_stuck = stuck;
                self.tell::<S>(stuck, longest).await;
            }
            match condition {
                Condition::Sound if watchdog.is_some() => tell_supervisor(NotifyState::Watchdog),
                Condition::Sound | Condition::Stuck => {}
                Condition::Lost => return longest,
            }
        }
    }

    async fn tell<S: NamedService>(&self, stuck: bool, longest: Duration) {
        self.stuck.store(stuck, Relaxed);
        self.metrics.ready.set(if stuck { 0.0 } else { 1.0 });
        if stuck {
            self.metrics.workers_stuck.increment(1);
            tracing::error!(
                seconds = longest.as_secs(),
                "a worker is stuck on a frame (stuck-seconds); not ready until it goes on"
            );
            set_status::<S>(&self.health, tonic_health::ServingStatus::NotServing).await;
        } else {
            tracing::warn!("the worker that was stuck has gone on; ready again");
            set_status::<S>(&self.health, tonic_health::ServingStatus::Serving).await;
        }
    }
}

/// Sets what the health service says of the whole server and of its service.
pub async fn set_status<S: NamedService>(
    health: &HealthReporter,
    status: tonic_health::ServingStatus,
) {
    health.set_service_status("", status).await;
    health.set_service_status(S::NAME, status).await;
}

/// Tells systemd, or whoever speaks its protocol (`sd_notify(3)`), where there is one.
pub fn tell_supervisor(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the supervisor cannot be told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_slowest_worker_counts_and_idle_ones_do_not() {
        let start = clock::now();
        let watch = Watch::new(3, start);
        assert_eq!(watch.longest(start + 60 * SECOND), Duration::ZERO);
        watch.begin(0, start + SECOND);
        watch.begin(2, start + 3 * SECOND);
        assert_eq!(watch.longest(start + 10 * SECOND), 9 * SECOND);
        watch.end(0);
        assert_eq!(watch.longest(start + 10 * SECOND), 7 * SECOND);
        watch.end(2);
        assert_eq!(watch.longest(start + 10 * SECOND), Duration::ZERO);
    }

    #[test]
    fn stuck_first_and_lost_only_if_so_set() {
        let config = SupervisionConfig { stuck: 5 * SECOND, exit: Some(30 * SECOND) };
        for (longest, condition) in [
            (Duration::ZERO, Condition::Sound),
            (4 * SECOND, Condition::Sound),
            (5 * SECOND, Condition::Stuck),
            (29 * SECOND, Condition::Stuck),
            (30 * SECOND, Condition::Lost),
        ] {
            assert_eq!(judge(longest, true, &config), condition, "{longest:?}");
        }
        assert_eq!(judge(40 * SECOND, false, &config), Condition::Stuck, "after standing still");
        let never = SupervisionConfig { exit: None, ..config };
        assert_eq!(judge(3600 * SECOND, true, &never), Condition::Stuck);
    }
}
