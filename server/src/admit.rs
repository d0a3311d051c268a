//! Admission: which streams are served, each camera's waiting place, and the hand-off to workers.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::{
    frame::{CameraId, Outcome, Picture},
    response::{Answer, Progress, StreamState, Ticket},
    schedule::{CameraKey, Offer, Scheduler},
    telemetry::metrics::Metrics,
};

/// A frame on its way to an answer.
#[derive(Debug)]
pub struct Frame {
    /// What to detect on.
    pub picture: Picture,
    /// Whom to answer.
    pub ticket: Ticket,
}

/// No more cameras are taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("all {limit} places for cameras are taken (max-cameras); connect to another server")]
pub struct CamerasFull {
    /// The limit that was met.
    pub limit: usize,
}

/// Cameras, their waiting frames, and the workers' wake-ups.
#[derive(Debug)]
pub struct Admission {
    // A lock because streams offer and workers pick from different threads. Held for a map look-up or
    // a scan over the cameras, never across an await or a frame's work.
    scheduler: Mutex<Scheduler<Frame>>,
    /// One token per frame that began to wait. Capacity `max_cameras`: when it is full there are as
    /// many wake-ups under way as frames can wait, so one more is not needed and is dropped.
    wake: Sender<()>,
    next_key: AtomicU64,
    max_cameras: usize,
    metrics: Arc<Metrics>,
}

impl Admission {
    /// An admission for at most this many cameras, and the receiver of its wake-ups for the workers.
    #[must_use]
    pub fn new(max_cameras: usize, metrics: Arc<Metrics>) -> (Arc<Self>, Receiver<()>) {
        let (wake, woken) = bounded(max_cameras);
        metrics.set_max_cameras(max_cameras);
        let admission = Self {
            scheduler: Mutex::default(),
            wake,
            next_key: AtomicU64::new(1),
            max_cameras,
            metrics,
        };
        (Arc::new(admission), woken)
    }

    fn scheduler(&self) -> MutexGuard<'_, Scheduler<Frame>> {
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a camera until the returned registration is dropped. Without a name it gets one.
    ///
    /// # Errors
    /// When all places are taken.
    pub fn register(self: &Arc<Self>, name: Option<CameraId>) -> Result<Registration, CamerasFull> {
        let number = self.next_key.fetch_add(1, Ordering::Relaxed);
        let key = CameraKey(number);
        {
            let mut scheduler = self.scheduler();
            if scheduler.cameras() >= self.max_cameras {
                return Err(CamerasFull { limit: self.max_cameras });
            }
            scheduler.add(key);
        }
        self.metrics.streams.increment(1);
        self.metrics.streams_opened.increment(1);
        let stream = Arc::new(StreamState::new(name.unwrap_or_else(|| CameraId::unnamed(number))));
        Ok(Registration { key, stream, admission: Arc::clone(self) })
    }

    /// Puts a camera's newest frame into its waiting place and answers the one it replaces. Tells whether
    /// there was one.
    pub fn offer(&self, key: CameraKey, frame: Frame) -> bool {
        let offer = self.scheduler().offer(key, frame);
        let replaced = matches!(offer, Offer::Replaced(_));
        match offer {
            Offer::Waiting => match self.wake.try_send(()) {
                Ok(()) | Err(TrySendError::Full(())) => {}
                // The receiver lives as long as the workers, and they as long as streams are served.
                Err(TrySendError::Disconnected(())) => tracing::error!("no worker is left"),
            },
            Offer::Replaced(older) => older.ticket.answer(
                Outcome::Superseded,
                Answer::refusal("a newer frame of this camera arrived first", &Progress::default()),
            ),
            Offer::NoCamera(frame) => frame.ticket.answer(Outcome::ClientGone, Answer::default()),
        }
        replaced
    }

    /// Takes up to `most` frames that are still worth computing at `now`, answering those that are
    /// not: their time is up, or their client has left.
    pub fn take(self: &Arc<Self>, most: usize, now: Instant, taken: &mut Vec<Taken>) {
        while taken.len() < most {
            let picked = {
                let mut scheduler = self.scheduler();
                scheduler.pick().map(|(key, mut frame)| {
                    // Within the lock, so that a camera's turns follow the order of its picks.
                    frame.ticket.begin();
                    (key, frame)
                })
            };
            let Some((key, Frame { picture, ticket })) = picked else { return };
            let place = Place { key, admission: Arc::clone(self) };
            let queue = now.saturating_duration_since(ticket.timing.received);
            self.metrics.stages.queue.record(queue);
            let progress = Progress { queue, ..Progress::default() };
            if let Some(ticket) = worth_computing(ticket, now, &progress) {
                taken.push(Taken { picture, ticket, place, progress });
            }
        }
    }

    /// Frames that wait now, at most one per camera.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.scheduler().waiting()
    }

    /// Cameras connected now.
    #[must_use]
    pub fn cameras(&self) -> usize {
        self.scheduler().cameras()
    }

    /// Brings the gauges that are not kept up to date in passing up to date.
    pub fn sample(&self) {
        let (waiting, computing) = {
            let scheduler = self.scheduler();
            (scheduler.waiting(), scheduler.computing())
        };
        self.metrics.waiting_frames.set(waiting as f64);
        self.metrics.computing_frames.set(computing as f64);
    }
}

/// Hands the ticket back if its frame is still worth CPU at `now`; answers it otherwise.
#[must_use]
pub fn worth_computing(ticket: Ticket, now: Instant, progress: &Progress) -> Option<Ticket> {
    if ticket.is_abandoned() {
        ticket.answer(Outcome::ClientGone, Answer::default());
        return None;
    }
    if let Some(late) = ticket.timing.overrun(now) {
        let detail = format!(
            "{:.1} ms over its budget of {} ms",
            late.as_secs_f64() * 1e3,
            ticket.timing.budget.as_millis()
        );
        ticket.answer(Outcome::Expired, Answer::refusal(detail, progress));
        return None;
    }
    Some(ticket)
}

/// A camera's membership: while it lives, the camera has a waiting place.
#[derive(Debug)]
pub struct Registration {
    key: CameraKey,
    /// What its frames share.
    pub stream: Arc<StreamState>,
    admission: Arc<Admission>,
}

impl Registration {
    /// Where to offer frames.
    #[must_use]
    pub fn key(&self) -> CameraKey {
        self.key
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.stream.leave();
        let waiting = self.admission.scheduler().remove(self.key);
        self.admission.metrics.streams.decrement(1);
        if let Some(frame) = waiting {
            frame.ticket.answer(Outcome::ClientGone, Answer::default());
        }
    }
}

/// A frame in a worker's hands.
#[derive(Debug)]
pub struct Taken {
    /// What to detect on.
    pub picture: Picture,
    /// Whom to answer.
    pub ticket: Ticket,
    /// Its place among the frames being computed.
    pub place: Place,
    /// What has been done for it.
    pub progress: Progress,
}

/// Counts as one frame of its camera being computed, until dropped.
#[derive(Debug)]
pub struct Place {
    key: CameraKey,
    admission: Arc<Admission>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.admission.scheduler().done(self.key);
    }
}
