//! Wakes cameras when their frames are due, from a thread of its own.
//!
//! The runtime's timers have a resolution of 1 ms and fire late by it; the operating system's sleep
//! is about 20 times finer, and what is late here would show as the server's latency.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Instant,
};

use tokio::sync::Notify;

use crate::{clock, schedule::Schedule};

/// The thread's ticks, one signal per camera. Dropping it ends the thread.
#[derive(Debug)]
pub struct Pacer {
    ticks: Arc<[Notify]>,
    _stop: SyncSender<()>,
}

impl Pacer {
    /// Starts the thread for a run whose schedule's zero is `start`.
    pub fn start(schedule: Arc<Schedule>, start: Instant) -> io::Result<Self> {
        let ticks: Arc<[Notify]> = (0..schedule.cameras()).map(|_| Notify::new()).collect();
        // Nothing is ever sent: the channel's end is the signal.
        let (stop, stopped) = sync_channel(0);
        let waking = ticks.clone();
        thread::Builder::new()
            .name("pacer".to_owned())
            .spawn(move || pace(&schedule, start, &waking, &stopped))?;
        Ok(Self { ticks, _stop: stop })
    }

    /// Waits until a frame of camera `camera` has come due since the last call. Ticks that nobody
    /// waited for merge into one, so look at the clock for how many there were.
    pub async fn tick(&self, camera: u32) {
        self.ticks[camera as usize].notified().await;
    }
}

/// Goes through the schedule's frames as they come due.
fn pace(schedule: &Schedule, start: Instant, ticks: &[Notify], stopped: &Receiver<()>) {
    for (camera, k) in schedule.in_order() {
        let due = start + schedule.lane(camera).intended(k);
        let wait = due.saturating_duration_since(clock::now());
        if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        ticks[camera as usize].notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Scenario, schedule::Phases};
    use std::time::Duration;

    /// Wakes in the order of the instants, whatever the phases are.
    async fn check_wakes(phases: Phases) {
        let scenario = Scenario::uniform(3, 50.0, Duration::ZERO, Duration::from_millis(200));
        let schedule = Arc::new(Schedule::of(&Scenario { phases, ..scenario }));
        let start = clock::now();
        let pacer = Pacer::start(schedule.clone(), start).unwrap();
        for camera in 0..3 {
            pacer.tick(camera).await;
            assert!(clock::now() >= start + schedule.lane(camera).intended(0));
        }
        let mut seen = 1;
        while seen < schedule.lane(2).frames() {
            pacer.tick(2).await;
            let due = schedule.lane(2).due(clock::now() - start);
            assert!(due >= seen, "woken for a frame that is not due");
            seen = due;
        }
    }

    #[tokio::test]
    async fn each_camera_is_woken_for_each_frame_and_never_early() {
        check_wakes(Phases::Even).await;
        check_wakes(Phases::Aligned).await;
        // A camera starts when others have sent for several periods.
        check_wakes(Phases::Ramp { cameras: 1, every: Duration::from_millis(70) }).await;
    }

    #[tokio::test]
    async fn dropping_it_ends_its_thread() {
        let scenario = Scenario::uniform(1, 0.01, Duration::ZERO, Duration::from_hours(1));
        let pacer = Pacer::start(Arc::new(Schedule::of(&scenario)), clock::now()).unwrap();
        let ticks = Arc::downgrade(&pacer.ticks);
        pacer.tick(0).await;
        drop(pacer);
        while ticks.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
