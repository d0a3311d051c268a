//! What the server knows of its cameras: who is there, what became of their frames in the last minutes, and
//! what somebody who looks is shown of them.
//!
//! A frame is noted once, when its answer is handed over: three short locks (all cameras together, its own camera,
//! the workers' time), and no thread that ticks.
//! Everything else is computed for whoever asks. Figures are over full seconds, so that the page, `/metrics` and
//! whoever asks twice within a second say the same.

mod camera;
mod history;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

pub use camera::{Attendance, Camera, Portrait, Shown, State};
pub use history::{History, STAGES, Second};

use crate::{
    frame::{CameraId, Outcome},
    limits::{GONE, GONE_CAMERAS, HEADROOM_BUSY},
    response::Progress,
};

/// Seconds over which rates, load and the shorter of the two slowest answers are taken.
pub const SHORT_SECONDS: u32 = 10;
/// Seconds over which the longer slowest answer is taken.
pub const LONG_SECONDS: u32 = 60;
/// Seconds over which a camera's cost is taken.
const COST_SECONDS: u32 = 30;
/// Seconds of cameras at work without which their cost is not known.
const LEAST_COST_SECONDS: u32 = 3;

/// A frame that has come to its end.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// What became of it.
    pub outcome: Outcome,
    /// When it had been read.
    pub received: Instant,
    /// From then until its answer was handed over.
    pub total: Duration,
    /// How far it came.
    pub progress: &'a Progress,
    /// What its client was told besides.
    pub detail: &'a str,
}

/// All cameras of a server.
#[derive(Debug)]
pub struct Fleet {
    base: Instant,
    workers: AtomicUsize,
    max_cameras: AtomicUsize,
    /// Cameras that may have series of their own.
    most_series: AtomicUsize,
    received: AtomicU64,
    outcomes: [AtomicU64; Outcome::ALL.len()],
    busy_us: AtomicU64,
    // A lock because frames end on every worker. Held for a few additions.
    all: Mutex<History>,
    // A lock because streams begin and end on several threads. Held for a look into a map.
    cameras: Mutex<BTreeMap<CameraId, Arc<Camera>>>,
    /// What one camera takes of the workers, in cores, as it was last known.
    // A lock because whoever asks brings it up to date.
    cost: Mutex<Option<f64>>,
}

/// The fleet in figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Seconds since the server's start: the figures are of the time before.
    pub second: u32,
    /// Cameras that are connected and send.
    pub live: usize,
    /// Cameras that are connected and have gone silent.
    pub stale: usize,
    /// Frames read since the start.
    pub received: u64,
    /// Frames by what became of them, in the order of [`Outcome::ALL`].
    pub outcomes: [u64; Outcome::ALL.len()],
    /// Frames per second answered OK, dropped and failed, over the last [`SHORT_SECONDS`].
    pub rates: [f64; 3],
    /// Slowest answer in seconds of the last [`SHORT_SECONDS`] and [`LONG_SECONDS`]; `None` without any.
    pub slowest: [Option<f64>; 2],
    /// Share of the workers' time, 0 to 1.
    pub busy: f64,
    /// Cores that each stage keeps busy: decode, preprocess, inference, postprocess.
    pub stage_cores: [f64; STAGES.len() - 1],
    /// Cameras like those of now that could be added; negative when there are too many, `None` until a camera
    /// has sent for some seconds.
    pub headroom: Option<i64>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    /// A fleet without cameras. Seconds count from `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            base: now,
            workers: AtomicUsize::new(1),
            max_cameras: AtomicUsize::new(usize::MAX),
            most_series: AtomicUsize::new(0),
            received: AtomicU64::new(0),
            outcomes: Default::default(),
            busy_us: AtomicU64::new(0),
            all: Mutex::default(),
            cameras: Mutex::default(),
            cost: Mutex::default(),
        }
    }

    /// Says how many workers there are.
    pub fn set_workers(&self, workers: usize) {
        self.workers.store(workers.max(1), Relaxed);
    }

    /// Says how many cameras are taken at most.
    pub fn set_max_cameras(&self, most: usize) {
        self.max_cameras.store(most, Relaxed);
    }

    /// Lets so many cameras have series of their own in `/metrics`.
    pub fn set_most_series(&self, most: usize) {
        self.most_series.store(most, Relaxed);
    }

    /// Seconds since the start.
    #[must_use]
    pub fn second(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.base).as_secs() as u32
    }

    /// When the second `at` begins.
    #[must_use]
    pub fn begin_of(&self, at: u32) -> Instant {
        self.base + Duration::from_secs(at.into())
    }

    /// A frame was read.
    pub fn received(&self) {
        self.received.fetch_add(1, Relaxed);
    }

    /// Decides what becomes of a frame, which is noted with [`Self::note`] once it is answered.
    pub fn decided(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
    }

    /// A frame of a camera, if it is one that is looked after, has been answered.
    pub fn note(&self, frame: &Ended<'_>, camera: Option<&Camera>) {
        let at = self.second(frame.received + frame.total);
        locked(&self.all).at(at).count(frame.outcome, frame.total, frame.progress);
        if let Some(camera) = camera {
            camera.note(frame, at);
        }
    }

    /// A worker has been on frames for so long, until `now`.
    pub fn busy(&self, time: Duration, now: Instant) {
        let us = time.as_micros() as u64;
        self.busy_us.fetch_add(us, Relaxed);
        let mut all = locked(&self.all);
        let second = all.at(self.second(now));
        second.busy_us = second.busy_us.saturating_add(us as u32);
    }

    /// Time of all workers on frames since the start.
    #[must_use]
    pub fn busy_time(&self) -> Duration {
        Duration::from_micros(self.busy_us.load(Relaxed))
    }

    /// A camera's stream begins, or one of its single calls; it ends with what is returned.
    #[must_use]
    pub fn join(&self, name: &CameraId, call: bool, now: Instant) -> Attendance {
        let mut cameras = locked(&self.cameras);
        if let Some(camera) = cameras.get(name) {
            return Attendance::new(Arc::clone(camera), call, now);
        }
        let camera = Arc::new(Camera::new(name.clone(), now));
        // Before tidying: a camera that nobody attends counts as one that left.
        let attendance = Attendance::new(Arc::clone(&camera), call, now);
        cameras.insert(name.clone(), camera);
        self.tidy(&mut cameras, now);
        attendance
    }

    /// Forgets cameras that left long ago.
    pub fn forget(&self, now: Instant) {
        self.tidy(&mut locked(&self.cameras), now);
    }

    fn tidy(&self, cameras: &mut BTreeMap<CameraId, Arc<Camera>>, now: Instant) {
        forget_some(cameras, now);
        self.share_series(cameras);
    }

    /// Gives the series that are free to cameras without. Who has them keeps them: series that come and go
    /// would be as many as there were cameras ever.
    fn share_series(&self, cameras: &BTreeMap<CameraId, Arc<Camera>>) {
        let taken = cameras.values().filter(|camera| camera.has_series()).count();
        let free = self.most_series.load(Relaxed).saturating_sub(taken);
        let without = cameras.values().filter(|camera| !camera.has_series());
        without.take(free).for_each(|camera| camera.give_series());
    }

    /// The camera of this name, if it is there or was a while ago.
    #[must_use]
    pub fn camera(&self, name: &str) -> Option<Arc<Camera>> {
        locked(&self.cameras).get(&CameraId::parse(name)?).cloned()
    }

    /// All cameras by name, also those that left a while ago.
    #[must_use]
    pub fn cameras(&self) -> Vec<Arc<Camera>> {
        locked(&self.cameras).values().cloned().collect()
    }

    /// Every second of `from..to`, of all cameras together.
    #[must_use]
    pub fn seconds(&self, from: u32, to: u32) -> Vec<Second> {
        locked(&self.all).each(from, to).collect()
    }

    /// Share of the workers' time that they were busy in one second.
    #[must_use]
    pub fn share(&self, busy_us: u32, seconds: u32) -> f64 {
        let time = self.workers.load(Relaxed) as f64 * f64::from(seconds.max(1)) * 1e6;
        (f64::from(busy_us) / time).min(1.0)
    }

    /// The figures of now.
    #[must_use]
    pub fn figures(&self, now: Instant) -> Figures {
        let to = self.second(now);
        let (short, long, costly) = {
            let all = locked(&self.all);
            let last = |seconds: u32| all.sum(to.saturating_sub(seconds), to);
            (last(SHORT_SECONDS), last(LONG_SECONDS), last(COST_SECONDS))
        };
        let span = to.clamp(1, SHORT_SECONDS);
        let mut states = [0; 3];
        for camera in self.cameras() {
            states[camera.state(now) as usize] += 1;
        }
        let [live, stale, _] = states;
        let rate = |frames: u32| f64::from(frames) / f64::from(span);
        let cores = |stage: usize| f64::from(short.stages_us[stage + 1]) / 1e6 / f64::from(span);
        Figures {
            second: to,
            live,
            stale,
            received: self.received.load(Relaxed),
            outcomes: std::array::from_fn(|at| self.outcomes[at].load(Relaxed)),
            rates: [short.answered, short.dropped, short.failed].map(rate),
            slowest: [short.slowest(), long.slowest()],
            busy: self.share(short.busy_us, span),
            stage_cores: std::array::from_fn(cores),
            headroom: self.headroom(&costly, to.min(COST_SECONDS), live, live + stale),
        }
    }

    /// How many more cameras there could be, by what the last seconds have cost. Frames that were dropped would
    /// have cost as much as those that were not.
    fn headroom(&self, sum: &Second, seconds: u32, live: usize, connected: usize) -> Option<i64> {
        let mut known = locked(&self.cost);
        let computed = sum.answered + sum.failed;
        if live > 0 && computed > 0 && seconds >= LEAST_COST_SECONDS {
            let wanted = f64::from(sum.frames()) / f64::from(computed);
            let cores = f64::from(sum.busy_us) / 1e6 / f64::from(seconds);
            *known = Some(cores * wanted / live as f64).filter(|&cost| cost > 0.0);
        }
        let most = self.workers.load(Relaxed) as f64 * HEADROOM_BUSY / (*known)?;
        let most = most.min(self.max_cameras.load(Relaxed) as f64);
        Some(most.floor() as i64 - connected as i64)
    }

    /// Adds the series that come and go, or are no whole numbers, to those of Prometheus' text format.
    pub fn render(&self, names: &SeriesNames, text: &mut String, now: Instant) {
        // Writing to a string never fails.
        let _ = self.write(names, text, now);
    }

    fn write(&self, names: &SeriesNames, text: &mut String, now: Instant) -> std::fmt::Result {
        let busy = self.busy_time().as_secs_f64();
        head(text, names.busy, "counter", "Time of all workers on frames, in seconds")?;
        writeln!(text, "{} {busy}\n", names.busy)?;
        if self.most_series.load(Relaxed) == 0 {
            return Ok(());
        }
        let (shown, skipped): (Vec<_>, Vec<_>) =
            self.cameras().into_iter().partition(|camera| camera.has_series());
        let to = self.second(now);
        head(text, names.frames, "counter", "Frames of a camera by what became of them")?;
        for camera in &shown {
            for (outcome, count) in camera.outcomes() {
                let (name, label) = (camera.name(), outcome.label());
                writeln!(
                    text,
                    "{}{{camera=\"{name}\",outcome=\"{label}\"}} {count}",
                    names.frames
                )?;
            }
        }
        head(
            text,
            names.slowest,
            "gauge",
            "Slowest answer to a camera in the last minute, in seconds",
        )?;
        for camera in &shown {
            let slowest = camera.sum(to.saturating_sub(LONG_SECONDS), to).slowest().unwrap_or(0.0);
            writeln!(text, "{}{{camera=\"{}\"}} {slowest}", names.slowest, camera.name())?;
        }
        head(
            text,
            names.last,
            "gauge",
            "When a camera's last message came, in seconds since the Unix epoch",
        )?;
        let unix = crate::clock::unix_micros() as f64 / 1e6;
        for camera in &shown {
            let seen = unix - camera.silence(now).as_secs_f64();
            writeln!(text, "{}{{camera=\"{}\"}} {seen:.3}", names.last, camera.name())?;
        }
        head(text, names.skipped, "gauge", "Cameras without series of their own (camera-metrics)")?;
        writeln!(text, "{} {}\n", names.skipped, skipped.len())
    }
}

/// Forgets cameras that left long ago, and the earliest of too many.
fn forget_some(cameras: &mut BTreeMap<CameraId, Arc<Camera>>, now: Instant) {
    let left = |camera: &Camera| camera.left();
    cameras.retain(|_, camera| {
        left(camera).is_none_or(|since| now.saturating_duration_since(since) < GONE)
    });
    let mut gone: Vec<_> = cameras
        .values()
        .filter_map(|camera| Some((left(camera)?, camera.name().clone())))
        .collect();
    if gone.len() > GONE_CAMERAS {
        gone.sort();
        for (_, name) in &gone[..gone.len() - GONE_CAMERAS] {
            cameras.remove(name);
        }
    }
}

/// Names of the series that [`Fleet::render`] writes.
#[derive(Debug)]
#[expect(missing_docs, reason = "what they count stands where they are written")]
pub struct SeriesNames {
    pub busy: &'static str,
    pub frames: &'static str,
    pub slowest: &'static str,
    pub last: &'static str,
    pub skipped: &'static str,
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) -> std::fmt::Result {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock,
        limits::{HISTORY_SECONDS, STALE},
    };

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    fn name(text: &str) -> CameraId {
        CameraId::parse(text).expect("a name")
    }

    /// One frame, answered `total` after `received`.
    fn frame(fleet: &Fleet, camera: &Attendance, received: Instant, total: Duration) {
        end(fleet, camera, received, total, Outcome::Ok, "");
    }

    fn end(
        fleet: &Fleet,
        camera: &Attendance,
        received: Instant,
        total: Duration,
        outcome: Outcome,
        detail: &str,
    ) {
        fleet.received();
        fleet.decided(outcome);
        let progress = Progress { decode: total / 4, inference: total / 2, ..Progress::default() };
        let ended = Ended { outcome, received, total, progress: &progress, detail };
        fleet.note(&ended, Some(camera.camera()));
    }

    /// Ten frames a second of each camera for some seconds, of which each takes a worker's `cost`.
    fn play(fleet: &Fleet, cameras: &[Attendance], seconds: u32, cost: Duration) {
        for tick in 0..seconds * 10 {
            let at = fleet.base + tick * 100 * MS;
            for camera in cameras {
                frame(fleet, camera, at, 2 * cost);
                fleet.busy(cost, at + cost);
            }
        }
    }

    #[test]
    fn figures_are_of_full_seconds() {
        let start = clock::now();
        let fleet = Fleet::new(start);
        fleet.set_workers(2);
        let cameras = [fleet.join(&name("a"), false, start), fleet.join(&name("b"), false, start)];
        play(&fleet, &cameras, 20, 25 * MS);
        let now = start + 20 * SECOND;
        let figures = fleet.figures(now);
        assert_eq!((figures.live, figures.stale, figures.second), (2, 0, 20));
        assert_eq!((figures.received, figures.outcomes[0]), (400, 400));
        assert_eq!(figures.rates.map(|rate| rate.round() as i32), [20, 0, 0], "{figures:?}");
        assert_eq!(figures.slowest, [Some(0.05), Some(0.05)]);
        assert!((figures.busy - 0.25).abs() < 1e-9, "{figures:?}");
        assert!((figures.stage_cores[0] - 0.25).abs() < 1e-9, "decode: {figures:?}");
        // Two cores at 0.85 take 1.7 cores of 0.25 each: six cameras, four more.
        assert_eq!(figures.headroom, Some(4));
        // A second in which nothing has ended changes nothing before it is over.
        assert_eq!(fleet.figures(now + 900 * MS), figures);
    }

    #[test]
    fn frames_that_were_dropped_count_in_the_headroom() {
        let start = clock::now();
        let fleet = Fleet::new(start);
        let cameras = [fleet.join(&name("a"), false, start)];
        assert_eq!(fleet.figures(start).headroom, None, "not known yet");
        play(&fleet, &cameras, 10, 40 * MS);
        let now = start + 10 * SECOND;
        assert_eq!(fleet.figures(now).headroom, Some(1), "0.85 of a core, of which one takes 0.4");
        for tick in 0..100 {
            let at = start + tick * 100 * MS;
            end(&fleet, &cameras[0], at, MS, Outcome::Superseded, "newer");
        }
        assert_eq!(fleet.figures(now).headroom, Some(0), "it would take 0.8");
        fleet.set_max_cameras(0);
        assert_eq!(fleet.figures(now).headroom, Some(-1), "one more than are allowed");
    }

    #[test]
    fn a_camera_that_stops_is_stale_and_one_that_leaves_is_gone() {
        let start = clock::now();
        let fleet = Fleet::new(start);
        let camera = fleet.join(&name("a"), false, start);
        play(&fleet, std::slice::from_ref(&camera), 5, MS);
        let last = start + 4900 * MS;
        let state = |after| camera.camera().state(last + after);
        assert_eq!(state(STALE), State::Live);
        assert_eq!(state(STALE + MS), State::Stale);
        let figures = fleet.figures(last + 3 * SECOND);
        assert_eq!((figures.live, figures.stale), (0, 1));
        drop(camera);
        let gone = fleet.camera("a").expect("remembered");
        assert_eq!(gone.state(last), State::Gone);
        assert_eq!(fleet.figures(last + SECOND).live, 0);
    }

    #[test]
    fn a_slow_camera_is_not_stale_between_its_frames() {
        let start = clock::now();
        let fleet = Fleet::new(start);
        let camera = fleet.join(&name("slow"), false, start);
        for at in [0, 30, 60] {
            frame(&fleet, &camera, start + at * SECOND, MS);
        }
        assert_eq!(camera.camera().state(start + 149 * SECOND), State::Live);
        assert_eq!(camera.camera().state(start + 151 * SECOND), State::Stale);
        // A sign of life is one.
        end(&fleet, &camera, start + 151 * SECOND, MS, Outcome::Heartbeat, "");
        assert_eq!(camera.camera().state(start + 152 * SECOND), State::Live);
    }

    #[test]
    fn single_calls_of_a_camera_are_one_camera_that_stays() {
        let start = clock::now();
        let fleet = Fleet::new(start);
        for call in 0..3 {
            let attendance = fleet.join(&name("unary"), true, start);
            frame(&fleet, &attendance, start + call * SECOND, MS);
        }
        let camera = fleet.camera("unary").expect("there");
        assert_eq!(camera.state(start + 3 * SECOND), State::Live);
        assert_eq!(camera.state(start + 60 * SECOND), State::Gone);
    }

    #[test]
    fn a_name_that_comes_back_is_the_same_camera() {
        let start = clock::now();
        let fleet = Fleet::new(start);
        for _ in 0..2 {
            let camera = fleet.join(&name("a"), false, start);
            frame(&fleet, &camera, start, MS);
        }
        assert_eq!(fleet.cameras().len(), 1);
        let portrait = fleet.cameras()[0].portrait(start);
        assert_eq!((portrait.outcomes[0], portrait.streams), (2, 0));
    }

    #[test]
    fn those_that_left_are_forgotten_and_never_more_than_so_many_kept() {
        let start = clock::now();
        let fleet = Fleet::new(start);
        let stays = fleet.join(&name("stays"), false, start);
        for number in 0..3 * GONE_CAMERAS {
            drop(fleet.join(&name(&format!("n{number}")), false, start));
        }
        fleet.forget(start);
        assert_eq!(fleet.cameras().len(), GONE_CAMERAS + 1);
        assert!(fleet.camera("n0").is_none(), "the first to leave is the first to be forgotten");
        fleet.forget(clock::now() + GONE);
        assert_eq!(fleet.cameras().len(), 1);
        assert_eq!(stays.camera().name().as_str(), "stays");
    }

    #[test]
    fn the_same_refusal_is_told_once_and_the_last_one_stays() {
        let start = clock::now();
        let fleet = Fleet::new(start);
        let camera = fleet.join(&name("a"), false, start);
        end(&fleet, &camera, start, MS, Outcome::BadImage, "TRUNCATED: it is cut");
        frame(&fleet, &camera, start, MS);
        let portrait = camera.camera().portrait(start);
        assert_eq!(portrait.last, Some(Outcome::Ok));
        let refusal = Some((Outcome::BadImage, "TRUNCATED: it is cut".to_owned()));
        assert_eq!(portrait.refusal, refusal);
    }

    const NAMES: SeriesNames = SeriesNames {
        busy: "busy_seconds_total",
        frames: "camera_frames_total",
        slowest: "camera_slowest",
        last: "camera_last",
        skipped: "camera_skipped",
    };

    fn rendered(fleet: &Fleet, now: Instant) -> String {
        let mut text = String::new();
        fleet.render(&NAMES, &mut text, now);
        text
    }

    #[test]
    fn cameras_have_series_only_where_asked_for_and_no_more_than_so_many() {
        let start = clock::now();
        let fleet = Fleet::new(start);
        let first = fleet.join(&name("first"), false, start);
        frame(&fleet, &first, start, 30 * MS);
        assert!(!rendered(&fleet, start).contains("camera_"), "off unless asked for");
        fleet.set_most_series(2);
        let second = fleet.join(&name("a-second"), false, start);
        let third = fleet.join(&name("a-third"), false, start);
        for camera in [&second, &third] {
            end(&fleet, camera, start, MS, Outcome::BadImage, "EMPTY");
        }
        let now = start + SECOND;
        let text = rendered(&fleet, now);
        let with_series = |text: &str| text.matches("camera_slowest{").count();
        assert_eq!(with_series(&text), 2, "{text}");
        assert!(text.contains("camera_skipped 1\n"), "{text}");
        assert!(text.contains("camera=\"a-second\",outcome=\"bad_image\"} 1"), "{text}");
        let has =
            |text: &str, name: &str| text.contains(&format!("camera_last{{camera=\"{name}\"}}"));
        assert!(has(&text, "first") && has(&text, "a-second"), "who came first keeps them: {text}");
        // Places of cameras that are forgotten go to others.
        drop(second);
        fleet.forget(clock::now() + GONE);
        let text = rendered(&fleet, now);
        assert!(text.contains("camera=\"a-third\"") && !text.contains("a-second"), "{text}");
        drop(first);
    }

    #[test]
    fn nobody_looks_at_a_picture_until_somebody_does() {
        let start = clock::now();
        let fleet = Fleet::new(start);
        let attendance = fleet.join(&name("a"), false, start);
        let camera = attendance.camera();
        let later = clock::now() + SECOND;
        assert!(!camera.wants_picture(later));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let looking = camera.next_picture();
            tokio::pin!(looking);
            assert!(asked_once(&mut looking).await.is_none(), "waits");
            assert!(camera.wants_picture(later));
            assert!(!camera.wants_picture(later + MS), "not again at once");
            let picture = crate::frame::Picture {
                data: bytes::Bytes::from_static(b"p"),
                layout: crate::frame::Layout::Encoded,
            };
            camera.show(picture, &vedette_proto::camera_ai::DetectResponse::default(), None);
            let shown = looking.await.expect("a picture");
            assert_eq!((shown.number, &shown.picture.data[..]), (1, &b"p"[..]));
        });
        assert!(!camera.wants_picture(later + SECOND), "whoever looked has left");
    }

    /// What a future says when it is asked once.
    async fn asked_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        std::future::poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }

    #[test]
    fn it_holds_as_much_as_the_page_shows() {
        const { assert!(HISTORY_SECONDS > LONG_SECONDS as usize) };
        const { assert!(size_of::<Second>() <= 64) };
    }
}
