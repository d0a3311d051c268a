//! What the live page is told, once a second, as server-sent events (HTML standard, section 9.2).
//!
//! Everything is computed when somebody is connected, and only then.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
    routing::get,
};
use serde::{Serialize, Serializer, ser::SerializeMap};
use tokio::sync::OwnedSemaphorePermit;
use tokio_stream::{Stream, wrappers::ReceiverStream};

use super::Admin;
use crate::{
    clock,
    frame::Outcome,
    limits::{HISTORY_SECONDS, PROMISE},
    memory,
    telemetry::fleet::{Camera, LONG_SECONDS, Portrait, SHORT_SECONDS, STAGES, Second},
};

/// After the end of a second, so that what ended with it has been noted.
const SETTLE: Duration = Duration::from_millis(20);

/// Events that wait for a viewer who reads slowly; beyond, seconds are left out.
const WAITING_EVENTS: usize = 1;

/// What a viewer is told who came when there was no more room.
const TOO_MANY: &str = "too many live pages are open on this server; close some, or use /metrics\n";

pub(super) fn routes() -> Router<Admin> {
    Router::new().route("/live/fleet", get(fleet)).route("/live/cameras/{name}", get(camera))
}

/// Fractions of a unit that nobody needs cost bytes in every event.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn ms(seconds: Option<f64>) -> Option<f64> {
    seconds.map(|seconds| rounded(seconds * 1e3))
}

/// Frames by what became of them.
struct Outcomes([u64; Outcome::ALL.len()]);

impl Serialize for Outcomes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (outcome, count) in Outcome::ALL.iter().zip(self.0) {
            map.serialize_entry(outcome.label(), &count)?;
        }
        map.end()
    }
}

/// A value for each stage; `skip` of them are left out at the start.
struct ByStage<'a> {
    skip: usize,
    values: &'a [f64],
}

impl Serialize for ByStage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            STAGES.iter().skip(self.skip).zip(self.values.iter().map(|&value| rounded(value))),
        )
    }
}

#[derive(Serialize)]
struct FleetEvent<'a> {
    now_ms: i64,
    uptime_seconds: u32,
    version: &'static str,
    model: Model<'a>,
    ready: bool,
    not_ready_reason: Option<&'static str>,
    workers: usize,
    max_cameras: usize,
    preview: bool,
    limit_ms: u64,
    cameras: Cameras,
    frames: Frames,
    rates: Rates,
    slowest_ms: Slowest,
    busy: f64,
    headroom: Option<i64>,
    stage_cores: ByStage<'a>,
    memory_bytes: Option<u64>,
    #[serde(flatten)]
    past: Past<FleetSecond>,
    list: Vec<CameraLine>,
}

#[derive(Serialize)]
struct Model<'a> {
    name: &'a str,
    backend: &'a str,
    input: [u32; 2],
}

#[derive(Serialize)]
struct Cameras {
    connected: usize,
    live: usize,
    stale: usize,
}

#[derive(Serialize)]
struct Frames {
    received: u64,
    outcomes: Outcomes,
}

#[derive(Serialize)]
struct Rates {
    received: f64,
    answered: f64,
    dropped: f64,
    failed: f64,
}

#[derive(Serialize)]
struct Slowest {
    #[serde(rename = "10s")]
    short: Option<f64>,
    #[serde(rename = "60s")]
    long: Option<f64>,
}

#[derive(Serialize)]
struct FleetSecond {
    t: i64,
    answered: u32,
    dropped: u32,
    failed: u32,
    slowest_ms: Option<f64>,
    busy: f64,
}

#[derive(Serialize)]
struct CameraLine {
    name: String,
    state: &'static str,
    fps: f64,
    slowest_ms: Option<f64>,
    mean_ms: Option<f64>,
    outcome: Option<&'static str>,
    silent_seconds: f64,
    spark: Vec<Option<f64>>,
}

#[derive(Serialize)]
struct CameraEvent<'a> {
    now_ms: i64,
    preview: bool,
    limit_ms: u64,
    camera: CameraPage<'a>,
    #[serde(flatten)]
    past: Past<CameraSecond>,
}

#[derive(Serialize)]
struct CameraPage<'a> {
    #[serde(flatten)]
    line: CameraLine,
    streams: u32,
    connected_seconds: u64,
    size: Option<(u32, u32)>,
    received: u64,
    outcomes: Outcomes,
    detail: &'a str,
    detail_outcome: Option<&'static str>,
    stages_ms: Option<ByStage<'a>>,
}

#[derive(Serialize)]
struct CameraSecond {
    t: i64,
    answered: u32,
    dropped: u32,
    failed: u32,
    slowest_ms: Option<f64>,
    mean_ms: Option<f64>,
}

/// Seconds that are over: all that are known in a viewer's first event, the last one in those that follow.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Past<T> {
    History(Vec<T>),
    Last(Option<T>),
}

impl<T> Past<T> {
    /// `seconds` gives those of a range, `tell` what a viewer is told of each.
    fn of(
        viewer: Viewer,
        at: &Moment,
        seconds: impl FnOnce(u32, u32) -> Vec<Second>,
        tell: impl Fn(&Second) -> T,
    ) -> Self {
        if viewer.first {
            let all = seconds(at.back(HISTORY_SECONDS as u32), at.second);
            Self::History(all.iter().map(tell).collect())
        } else {
            Self::Last(seconds(at.back(1), at.second).last().map(tell))
        }
    }
}

/// The instant of an event, by both clocks.
#[derive(Clone, Copy)]
struct Moment {
    now: Instant,
    unix_ms: i64,
    /// Full seconds since the server's start.
    second: u32,
    /// When the server's first second began, in seconds since the Unix epoch.
    start: i64,
}

impl Moment {
    fn read(admin: &Admin, viewer: Viewer) -> Self {
        let now = clock::now();
        let unix_ms = clock::unix_micros() / 1000;
        Self { now, unix_ms, second: admin.metrics.fleet.second(now), start: viewer.start }
    }

    /// When a second of the server began, in seconds since the Unix epoch.
    fn unix(&self, second: u32) -> i64 {
        self.start + i64::from(second)
    }

    fn back(&self, seconds: u32) -> u32 {
        self.second.saturating_sub(seconds)
    }

    /// A camera's last ten seconds together.
    fn short(&self, camera: &Camera) -> Second {
        camera.sum(self.back(SHORT_SECONDS), self.second)
    }
}

/// An open page.
#[derive(Clone, Copy)]
struct Viewer {
    /// Whether it has been told nothing yet.
    first: bool,
    /// As in [`Moment`]; one value for all that a page is told, since the two clocks do not tick together.
    start: i64,
}

impl Viewer {
    fn new(admin: &Admin) -> Self {
        let up = clock::now().saturating_duration_since(admin.metrics.fleet.begin_of(0));
        let start = (clock::unix_micros() - up.as_micros() as i64).div_euclid(1_000_000);
        Self { first: true, start }
    }
}

fn line(camera: &Camera, portrait: &Portrait, sum: &Second, at: &Moment) -> CameraLine {
    let spark = camera.seconds(at.back(LONG_SECONDS), at.second);
    CameraLine {
        name: camera.name().to_string(),
        state: portrait.state.label(),
        fps: rounded(f64::from(sum.frames()) / f64::from(at.second.clamp(1, SHORT_SECONDS))),
        slowest_ms: ms(sum.slowest()),
        mean_ms: ms(sum.mean()),
        outcome: portrait.last.map(Outcome::label),
        silent_seconds: rounded(portrait.silence.as_secs_f64()),
        spark: spark.iter().map(|second| ms(second.slowest())).collect(),
    }
}

/// The next event of the whole fleet, with all that is known of the last minutes if it is the first.
fn fleet_event(admin: &Admin, viewer: Viewer) -> Result<Event, axum::Error> {
    let at = Moment::read(admin, viewer);
    let fleet = &admin.metrics.fleet;
    let figures = fleet.figures(at.now);
    let model = admin.model.load();
    let second = |second: &Second| FleetSecond {
        t: at.unix(second.at),
        answered: second.answered,
        dropped: second.dropped,
        failed: second.failed,
        slowest_ms: ms(second.slowest()),
        busy: rounded(fleet.share(second.busy_us, 1)),
    };
    let [answered, dropped, failed] = figures.rates.map(rounded);
    let not_ready_reason = admin.not_ready();
    let cameras = fleet.cameras();
    let event = FleetEvent {
        now_ms: at.unix_ms,
        uptime_seconds: at.second,
        version: env!("CARGO_PKG_VERSION"),
        model: Model {
            name: &model.name,
            backend: model.backend,
            input: [model.input.0, model.input.1],
        },
        ready: not_ready_reason.is_none(),
        not_ready_reason,
        workers: admin.workers,
        max_cameras: admin.max_cameras,
        preview: admin.preview.is_some(),
        limit_ms: PROMISE.as_millis() as u64,
        cameras: Cameras {
            connected: admin.admission.cameras(),
            live: figures.live,
            stale: figures.stale,
        },
        frames: Frames { received: figures.received, outcomes: Outcomes(figures.outcomes) },
        rates: Rates { received: rounded(answered + dropped + failed), answered, dropped, failed },
        slowest_ms: Slowest { short: ms(figures.slowest[0]), long: ms(figures.slowest[1]) },
        busy: rounded(figures.busy),
        headroom: figures.headroom,
        stage_cores: ByStage { skip: 1, values: &figures.stage_cores },
        memory_bytes: memory::resident_bytes(),
        past: Past::of(viewer, &at, |from, to| fleet.seconds(from, to), second),
        list: cameras
            .iter()
            .map(|camera| line(camera, &camera.portrait(at.now), &at.short(camera), &at))
            .collect(),
    };
    Event::default().event("fleet").json_data(event)
}

fn camera_event(admin: &Admin, camera: &Camera, viewer: Viewer) -> Result<Event, axum::Error> {
    let at = Moment::read(admin, viewer);
    let portrait = camera.portrait(at.now);
    let sum = at.short(camera);
    let stages = sum.stages_us.map(|us| f64::from(us) / 1e3 / f64::from(sum.answered.max(1)));
    let second = |second: &Second| CameraSecond {
        t: at.unix(second.at),
        answered: second.answered,
        dropped: second.dropped,
        failed: second.failed,
        slowest_ms: ms(second.slowest()),
        mean_ms: ms(second.mean()),
    };
    let (detail_outcome, detail) = match &portrait.refusal {
        Some((outcome, detail)) => (Some(outcome.label()), detail.as_str()),
        None => (None, ""),
    };
    let event = CameraEvent {
        now_ms: at.unix_ms,
        preview: admin.preview.is_some(),
        limit_ms: PROMISE.as_millis() as u64,
        camera: CameraPage {
            line: line(camera, &portrait, &sum, &at),
            streams: portrait.streams,
            connected_seconds: portrait.connected.as_secs(),
            size: portrait.size,
            received: portrait.outcomes.iter().sum(),
            outcomes: Outcomes(portrait.outcomes),
            detail,
            detail_outcome,
            stages_ms: (sum.answered > 0).then_some(ByStage { skip: 0, values: &stages }),
        },
        past: Past::of(viewer, &at, |from, to| camera.seconds(from, to), second),
    };
    Event::default().event("camera").json_data(event)
}

async fn fleet(State(admin): State<Admin>) -> Response {
    events(admin, |admin, viewer| Some(fleet_event(admin, viewer)))
}

async fn camera(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    let Some(camera) = admin.metrics.fleet.camera(&name) else { return unknown() };
    events(admin, move |admin, viewer| {
        // One that was forgotten meanwhile is not told of any more.
        let known = admin.metrics.fleet.camera(camera.name().as_str())?;
        Some(camera_event(admin, &known, viewer))
    })
}

/// The answer about a camera that is not there.
pub(super) fn unknown() -> Response {
    (
        StatusCode::NOT_FOUND,
        "no camera of this name is connected, or was in the last five minutes\n",
    )
        .into_response()
}

/// Sends what `make` makes of each second until the viewer leaves, it makes nothing more, or the server ends.
fn events<M>(admin: Admin, make: M) -> Response
where
    M: Fn(&Admin, Viewer) -> Option<Result<Event, axum::Error>> + Send + Sync + 'static,
{
    let Ok(place) = Arc::clone(&admin.viewers).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, TOO_MANY).into_response();
    };
    // A viewer who does not read waits for nobody and holds one event.
    let (events, receiver) = tokio::sync::mpsc::channel(WAITING_EVENTS);
    tokio::spawn(tell(admin, Arc::new(make), events, place));
    Sse::new(told(receiver)).into_response()
}

fn told(
    events: tokio::sync::mpsc::Receiver<Event>,
) -> impl Stream<Item = Result<Event, Infallible>> {
    tokio_stream::StreamExt::map(ReceiverStream::new(events), Ok)
}

async fn tell<M>(
    admin: Admin,
    make: Arc<M>,
    events: tokio::sync::mpsc::Sender<Event>,
    place: OwnedSemaphorePermit,
) where
    M: Fn(&Admin, Viewer) -> Option<Result<Event, axum::Error>> + Send + Sync + 'static,
{
    let mut viewer = Viewer::new(&admin);
    loop {
        let Ok(room) = events.clone().reserve_owned().await else { break };
        let (maker, seen) = (Arc::clone(&make), admin.clone());
        // Apart from the threads that move frames, as rendering metrics is.
        let event = tokio::task::spawn_blocking(move || maker(&seen, viewer)).await;
        let Ok(Some(Ok(event))) = event else { break };
        room.send(event);
        viewer.first = false;
        let fleet = &admin.metrics.fleet;
        let next = fleet.begin_of(fleet.second(clock::now()) + 1) + SETTLE;
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            () = events.closed() => break,
        }
    }
    drop(place);
}
