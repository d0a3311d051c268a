//! One camera as its operators see it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;
use vedette_proto::camera_ai::DetectResponse;

use super::{Ended, History, Second, locked};
use crate::{
    frame::{CameraId, Outcome, Picture},
    intake::Reservation,
    limits::{PICTURE_PAUSE, STALE, STALE_INTERVALS},
};

/// Weight of the newest interval between two messages in the usual one.
const INTERVAL_WEIGHT: f64 = 0.2;

/// Whether a camera is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It sends.
    Live,
    /// It is connected and silent.
    Stale,
    /// It has left.
    Gone,
}

impl State {
    /// The word for it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Stale => "stale",
            Self::Gone => "gone",
        }
    }
}

/// A camera that is there, or was a while ago.
#[derive(Debug)]
pub struct Camera {
    name: CameraId,
    born: Instant,
    series: AtomicBool,
    // A lock because its frames may end on several workers. Held for a few additions.
    diary: Mutex<Diary>,
    /// The newest picture that somebody waits for; the receivers are those who do.
    picture: watch::Sender<Option<Arc<Shown>>>,
    pictures: AtomicU64,
    /// When the next picture may be shown, in microseconds after `born`.
    next_picture_us: AtomicU64,
}

#[derive(Debug)]
struct Diary {
    streams: u32,
    /// Whether it comes by single calls.
    calls: bool,
    joined: Instant,
    left: Instant,
    seen: Instant,
    /// Usual time between two messages, in seconds; `None` before the second one.
    interval: Option<f64>,
    messages: u64,
    outcomes: [u64; Outcome::ALL.len()],
    last: Option<Outcome>,
    refusal: Option<(Outcome, String)>,
    size: (u32, u32),
    history: History,
}

/// A picture with what was found on it.
#[derive(Debug)]
pub struct Shown {
    /// Grows with each picture of its camera.
    pub number: u64,
    /// As the client sent it.
    pub picture: Picture,
    /// What the client was told.
    pub response: DetectResponse,
    /// Its room among the frames in hand: it is in memory still.
    pub memory: Option<Reservation>,
}

/// A camera in figures.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "the names say it; times are of the last seconds that were asked for"
)]
pub struct Portrait {
    pub state: State,
    pub streams: u32,
    pub connected: Duration,
    pub silence: Duration,
    pub outcomes: [u64; Outcome::ALL.len()],
    pub last: Option<Outcome>,
    /// What the client was told when a frame was last refused.
    pub refusal: Option<(Outcome, String)>,
    /// Width and height of the last picture that was decoded, upright.
    pub size: Option<(u32, u32)>,
}

impl Camera {
    pub(super) fn new(name: CameraId, now: Instant) -> Self {
        let diary = Diary {
            streams: 0,
            calls: false,
            joined: now,
            left: now,
            seen: now,
            interval: None,
            messages: 0,
            outcomes: [0; Outcome::ALL.len()],
            last: None,
            refusal: None,
            size: (0, 0),
            history: History::default(),
        };
        Self {
            name,
            born: now,
            series: AtomicBool::new(false),
            diary: Mutex::new(diary),
            picture: watch::Sender::new(None),
            pictures: AtomicU64::new(0),
            next_picture_us: AtomicU64::new(0),
        }
    }

    fn diary(&self) -> MutexGuard<'_, Diary> {
        locked(&self.diary)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &CameraId {
        &self.name
    }

    pub(super) fn has_series(&self) -> bool {
        self.series.load(Relaxed)
    }

    pub(super) fn give_series(&self) {
        self.series.store(true, Relaxed);
    }

    pub(super) fn note(&self, frame: &Ended<'_>, at: u32) {
        let mut diary = self.diary();
        if diary.messages > 0 {
            let interval = frame.received.saturating_duration_since(diary.seen).as_secs_f64();
            let usual = diary.interval.unwrap_or(interval);
            diary.interval = Some(usual + INTERVAL_WEIGHT * (interval - usual));
        }
        diary.messages += 1;
        diary.seen = diary.seen.max(frame.received);
        diary.outcomes[frame.outcome as usize] += 1;
        if frame.outcome != Outcome::Heartbeat {
            diary.last = Some(frame.outcome);
        }
        if frame.progress.size != (0, 0) {
            diary.size = frame.progress.size;
        }
        if !frame.detail.is_empty() {
            // The same words again and again take no memory each time.
            match &mut diary.refusal {
                Some((outcome, detail)) if detail == frame.detail => *outcome = frame.outcome,
                refusal => *refusal = Some((frame.outcome, frame.detail.to_owned())),
            }
        }
        diary.history.at(at).count(frame.outcome, frame.total, frame.progress);
    }

    /// When its last stream ended; `None` while it has one.
    pub(super) fn left(&self) -> Option<Instant> {
        let diary = self.diary();
        (diary.streams == 0).then_some(diary.left)
    }

    /// How long nothing has come from it.
    #[must_use]
    pub fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.diary().seen)
    }

    /// Whether it is there.
    #[must_use]
    pub fn state(&self, now: Instant) -> State {
        self.diary().state(now)
    }

    /// What is known of it.
    #[must_use]
    pub fn portrait(&self, now: Instant) -> Portrait {
        let diary = self.diary();
        let until = if diary.streams == 0 { diary.left } else { now };
        Portrait {
            state: diary.state(now),
            streams: diary.streams,
            connected: until.saturating_duration_since(diary.joined),
            silence: now.saturating_duration_since(diary.seen),
            outcomes: diary.outcomes,
            last: diary.last,
            refusal: diary.refusal.clone(),
            size: Some(diary.size).filter(|&size| size != (0, 0)),
        }
    }

    /// The outcomes that its frames have had, with their numbers.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = (Outcome, u64)> {
        let counts = self.diary().outcomes;
        Outcome::ALL
            .into_iter()
            .zip(counts)
            .filter(|&(outcome, count)| count > 0 || outcome == Outcome::Ok)
    }

    /// The sum over the seconds of `from..to`.
    #[must_use]
    pub fn sum(&self, from: u32, to: u32) -> Second {
        self.diary().history.sum(from, to)
    }

    /// Every second of `from..to`.
    #[must_use]
    pub fn seconds(&self, from: u32, to: u32) -> Vec<Second> {
        self.diary().history.each(from, to).collect()
    }

    /// Whether somebody waits for a picture that is taken up at `now`. Says so once in a while only.
    #[must_use]
    pub fn wants_picture(&self, now: Instant) -> bool {
        // Nobody looks, nearly always.
        if self.picture.receiver_count() == 0 {
            return false;
        }
        let now = now.saturating_duration_since(self.born).as_micros() as u64;
        let due = self.next_picture_us.load(Relaxed) <= now;
        if due {
            self.next_picture_us.store(now + PICTURE_PAUSE.as_micros() as u64, Relaxed);
        }
        due
    }

    /// Shows a picture to those who wait for one.
    pub fn show(&self, picture: Picture, response: &DetectResponse, memory: Option<Reservation>) {
        let number = self.pictures.fetch_add(1, Relaxed) + 1;
        let shown = Shown { number, picture, response: response.clone(), memory };
        // Nobody left: it is dropped with the next line, and none is kept.
        self.picture.send_if_modified(|last| {
            *last = Some(Arc::new(shown));
            true
        });
        self.put_away();
    }

    /// Waits for the next picture. Whoever stops waiting leaves none behind.
    pub async fn next_picture(self: &Arc<Self>) -> Option<Arc<Shown>> {
        let mut looking =
            Looking { camera: Arc::clone(self), pictures: Some(self.picture.subscribe()) };
        let pictures = looking.pictures.as_mut()?;
        pictures.changed().await.ok()?;
        let shown = pictures.borrow_and_update().clone();
        drop(looking);
        shown
    }

    /// Lets go of the last picture when nobody looks.
    fn put_away(&self) {
        if self.picture.receiver_count() == 0 {
            self.picture.send_if_modified(|last| {
                *last = None;
                false
            });
        }
    }
}

/// Somebody who waits for a picture.
struct Looking {
    camera: Arc<Camera>,
    pictures: Option<watch::Receiver<Option<Arc<Shown>>>>,
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.pictures = None;
        self.camera.put_away();
    }
}

impl Diary {
    fn state(&self, now: Instant) -> State {
        let silence = now.saturating_duration_since(self.seen).as_secs_f64();
        let patience = self.interval.map_or(0.0, |usual| usual * STALE_INTERVALS);
        let silent = silence > patience.max(STALE.as_secs_f64());
        match (self.streams, silent) {
            // Single calls of a camera come one after the other: between two it has not left.
            (0, false) if self.calls => State::Live,
            (0, _) => State::Gone,
            (_, false) => State::Live,
            (_, true) => State::Stale,
        }
    }
}

/// Counts as a stream of its camera until dropped.
#[derive(Debug)]
pub struct Attendance {
    camera: Arc<Camera>,
}

impl Attendance {
    pub(super) fn new(camera: Arc<Camera>, calls: bool, now: Instant) -> Self {
        {
            let mut diary = camera.diary();
            diary.calls = calls;
            if diary.streams == 0 && !calls {
                diary.joined = now;
                diary.seen = diary.seen.max(now);
            }
            diary.streams += 1;
        }
        Self { camera }
    }

    /// Whose it is.
    #[must_use]
    pub fn camera(&self) -> &Arc<Camera> {
        &self.camera
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let mut diary = self.camera.diary();
        diary.streams = diary.streams.saturating_sub(1);
        diary.left = crate::clock::now();
    }
}
