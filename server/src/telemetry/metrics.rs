//! Every metric of the server: names, meanings and handles. No other file names one.
//!
//! Times are in seconds, sizes in bytes, as Prometheus recommends. The number of series does not depend on
//! that of cameras, unless `camera-metrics` allows some to have their own.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder as _, Unit};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use super::{
    fleet::{Fleet, SeriesNames},
    traces::Traces,
};
use crate::{clock, decode::DecodeError, frame::Outcome, infer::ModelInfo};

const FRAMES_RECEIVED: &str = "vedette_frames_received_total";
const FRAMES: &str = "vedette_frames_total";
const BAD_FRAMES: &str = "vedette_bad_frames_total";
const STAGE_SECONDS: &str = "vedette_stage_seconds";
const FRAME_SECONDS: &str = "vedette_frame_seconds";
const CAPTURE_AGE_SECONDS: &str = "vedette_capture_age_seconds";
const STREAMS: &str = "vedette_streams";
const STREAMS_OPENED: &str = "vedette_streams_opened_total";
const STREAMS_AGED: &str = "vedette_streams_aged_total";
const STREAMS_REVOKED: &str = "vedette_streams_revoked_total";
const TOKEN_CAMERAS: &str = "vedette_token_cameras";
const CONNECTIONS_CUT: &str = "vedette_connections_cut_total";
const CONNECTIONS: &str = "vedette_connections";
const CONNECTIONS_REFUSED: &str = "vedette_connections_refused_total";
const TLS_RELOADS: &str = "vedette_tls_reloads_total";
const TLS_EXPIRY_SECONDS: &str = "vedette_tls_certificate_expiry_seconds";
const TOKEN_RELOADS: &str = "vedette_token_reloads_total";
const STREAMS_REFUSED: &str = "vedette_streams_refused_total";
const DECODE_BYTES: &str = "vedette_decode_bytes_total";
const DAMAGED_FRAMES: &str = "vedette_damaged_frames_total";
const DETECTIONS: &str = "vedette_detections_total";
const BATCH_FRAMES: &str = "vedette_batch_frames";
const WAITING_FRAMES: &str = "vedette_waiting_frames";
const COMPUTING_FRAMES: &str = "vedette_computing_frames";
const FRAME_MEMORY_BYTES: &str = "vedette_frame_memory_bytes";
const WORKERS: &str = "vedette_workers";
const WORKER_PANICS: &str = "vedette_worker_panics_total";
const WORKERS_STUCK: &str = "vedette_workers_stuck_total";
const MODEL_RELOADS: &str = "vedette_model_reloads_total";
const MAX_CAMERAS: &str = "vedette_max_cameras";
const READY: &str = "vedette_ready";
const MODEL_INFO: &str = "vedette_model_info";
const BUILD_INFO: &str = "vedette_build_info";
const BUSY_RATIO: &str = "vedette_busy_ratio";
const HEADROOM_CAMERAS: &str = "vedette_headroom_cameras";
const SLOWEST_FRAME_SECONDS: &str = "vedette_slowest_frame_seconds";
const LIVE_CAMERAS: &str = "vedette_live_cameras";
const STALE_CAMERAS: &str = "vedette_stale_cameras";
/// Series that [`Fleet`] writes itself: they come and go with cameras, or are no whole numbers.
const FLEET_SERIES: SeriesNames = SeriesNames {
    busy: "vedette_worker_busy_seconds_total",
    frames: "vedette_camera_frames_total",
    slowest: "vedette_camera_slowest_frame_seconds",
    last: "vedette_camera_last_frame_timestamp_seconds",
    skipped: "vedette_camera_series_skipped",
};

/// Bucket bounds of all times, in seconds: from a stage's fraction of a millisecond to a stall, dense
/// around the 0.1 s within which an answer must arrive.
const SECONDS_BUCKETS: [f64; 29] = [
    0.000_25, 0.000_5, 0.001, 0.001_5, 0.002, 0.003, 0.004, 0.005, 0.007_5, 0.01, 0.015, 0.02,
    0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.095, 0.1, 0.105, 0.11, 0.125, 0.15, 0.2, 0.5, 1.0,
    5.0,
];

/// Bucket bounds of frames per inference.
const BATCH_BUCKETS: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

/// The stages of a frame, as the label of [`STAGE_SECONDS`].
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the stages are named")]
pub struct StageHistograms {
    pub queue: Histogram,
    pub decode: Histogram,
    pub preprocess: Histogram,
    pub inference: Histogram,
    pub postprocess: Histogram,
}

/// Why a stream was not accepted, as the label of [`STREAMS_REFUSED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// `max-cameras` was reached.
    MaxCameras,
    /// The `camera-id` breaks the rule.
    BadCameraId,
    /// The server was shutting down.
    Draining,
    /// A message was too large to be read, which ended its stream.
    TooLarge,
    /// Without a valid token.
    Unauthenticated,
    /// The camera was not among those of its token.
    PermissionDenied,
    /// The token's `max_cameras` was reached.
    TokenMaxCameras,
}

impl Refusal {
    const ALL: [Self; 7] = [
        Self::MaxCameras,
        Self::BadCameraId,
        Self::Draining,
        Self::TooLarge,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::TokenMaxCameras,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::MaxCameras => "max_cameras",
            Self::BadCameraId => "bad_camera_id",
            Self::Draining => "draining",
            Self::TooLarge => "too_large",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::TokenMaxCameras => "token_max_cameras",
        }
    }
}

/// Why a connection was closed before it was of use, as the label of [`CONNECTIONS_REFUSED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// `max-connections` were open.
    MaxConnections,
    /// `max-connections-per-ip` were open from its address.
    MaxConnectionsPerIp,
    /// It had not spoken in time, or was the slowest of too many.
    Handshake,
    /// TLS failed.
    Tls,
}

impl ConnectionRefusal {
    const ALL: [Self; 4] =
        [Self::MaxConnections, Self::MaxConnectionsPerIp, Self::Handshake, Self::Tls];

    fn label(self) -> &'static str {
        match self {
            Self::MaxConnections => "max_connections",
            Self::MaxConnectionsPerIp => "max_connections_per_ip",
            Self::Handshake => "handshake",
            Self::Tls => "tls",
        }
    }
}

/// How often files were read again while the server ran.
#[derive(Clone)]
#[expect(missing_docs, reason = "the label's values")]
pub struct ReloadCounters {
    pub ok: Counter,
    pub failed: Counter,
}

/// Handles to the metrics of one server, registered once.
#[expect(missing_docs, reason = "described where they are registered")]
pub struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    /// What happened in the last minutes, and to whom.
    pub fleet: Fleet,
    /// Where traces of frames go; unset: nowhere.
    pub traces: OnceLock<Arc<Traces>>,
    frames_received: Counter,
    frames: [Counter; Outcome::ALL.len()],
    bad_frames: [Counter; DecodeError::REASONS.len()],
    refused: [(Counter, AtomicU64); Refusal::ALL.len()],
    pub stages: StageHistograms,
    pub frame_seconds: Histogram,
    pub capture_age_seconds: Histogram,
    pub streams: Gauge,
    pub streams_opened: Counter,
    pub streams_aged: Counter,
    pub streams_revoked: Counter,
    pub connections_cut: Counter,
    pub connections: Gauge,
    connections_refused: [(Counter, AtomicU64); ConnectionRefusal::ALL.len()],
    pub tls_reloads: ReloadCounters,
    pub token_reloads: ReloadCounters,
    pub decode_bytes: Counter,
    pub damaged_frames: Counter,
    pub detections: Counter,
    pub batch_frames: Histogram,
    pub waiting_frames: Gauge,
    pub computing_frames: Gauge,
    pub frame_memory: Gauge,
    workers: Gauge,
    pub worker_panics: Counter,
    pub workers_stuck: Counter,
    pub model_reloads: ReloadCounters,
    /// The model described last.
    model_info: Mutex<Option<Gauge>>,
    max_cameras: Gauge,
    pub ready: Gauge,
    busy_ratio: Gauge,
    slowest_frame: [Gauge; 2],
    live_cameras: Gauge,
    stale_cameras: Gauge,
    process: metrics_process::Collector,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers every metric with a recorder of this server's own.
    ///
    /// # Panics
    /// Never: the bucket lists are not empty.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "a list: one entry for each metric")]
    pub fn new() -> Self {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS_BUCKETS)
            .and_then(|builder| {
                builder.set_buckets_for_metric(Matcher::Full(BATCH_FRAMES.into()), &BATCH_BUCKETS)
            })
            .expect("the bucket lists are not empty")
            .build_recorder();
        let to = Registrar(&recorder);
        let stage = |name| {
            let help = "Time of a frame in one stage; inference is that of its whole batch";
            to.histogram(STAGE_SECONDS, help, Unit::Seconds, &[("stage", name)])
        };
        let frames = "Frames by what became of them; their sum is the frames received";
        let bad = "Frames answered BAD_IMAGE or UNSUPPORTED, by reason";
        let refused = "Streams and calls that were not accepted or cut off, by reason";
        let closed = "Connections closed before they were of use, by reason";
        let slowest = |window| {
            let help = "Slowest answer of the last full seconds, outcome ok; 0 without any";
            to.gauge(SLOWEST_FRAME_SECONDS, help, &[("window", window)])
        };
        let reloads = |name, help| {
            let counter = |result| to.counter(name, help, &[("result", result)]);
            ReloadCounters { ok: counter("ok"), failed: counter("failed") }
        };
        Self {
            frames_received: to.counter(FRAMES_RECEIVED, "Frames read off the wire", &[]),
            frames: Outcome::ALL.map(|o| to.counter(FRAMES, frames, &[("outcome", o.label())])),
            bad_frames: DecodeError::REASONS
                .map(|reason| to.counter(BAD_FRAMES, bad, &[("reason", reason)])),
            refused: Refusal::ALL
                .map(|r| to.counter(STREAMS_REFUSED, refused, &[("reason", r.label())]))
                .map(|counter| (counter, AtomicU64::new(0))),
            stages: StageHistograms {
                queue: stage("queue"),
                decode: stage("decode"),
                preprocess: stage("preprocess"),
                inference: stage("inference"),
                postprocess: stage("postprocess"),
            },
            frame_seconds: to.histogram(
                FRAME_SECONDS,
                "Time from a frame's receipt to handing its answer to the connection, outcome ok",
                Unit::Seconds,
                &[],
            ),
            capture_age_seconds: to.histogram(
                CAPTURE_AGE_SECONDS,
                "Time from a picture's capture, by its camera's clock, to its answer, outcome ok; only \
                 frames that carry capture_time_us",
                Unit::Seconds,
                &[],
            ),
            streams: to.gauge(STREAMS, "Streams and calls served now", &[]),
            streams_opened: to.counter(STREAMS_OPENED, "Streams accepted since start", &[]),
            streams_aged: to.counter(
                STREAMS_AGED,
                "Streams ended in order because their connection had reached its age",
                &[],
            ),
            streams_revoked: to.counter(
                STREAMS_REVOKED,
                "Streams ended in order because their token had expired, was taken out of the token \
                 file, or does not allow their camera any more",
                &[],
            ),
            connections_cut: to.counter(
                CONNECTIONS_CUT,
                "Connections cut because their peer had not left within the grace time after their age",
                &[],
            ),
            connections: to.gauge(CONNECTIONS, "Connections open now", &[]),
            connections_refused: ConnectionRefusal::ALL
                .map(|r| to.counter(CONNECTIONS_REFUSED, closed, &[("reason", r.label())]))
                .map(|counter| (counter, AtomicU64::new(0))),
            tls_reloads: reloads(TLS_RELOADS, "Times that certificates were read again"),
            token_reloads: reloads(TOKEN_RELOADS, "Times that tokens were read again"),
            decode_bytes: to.counter(DECODE_BYTES, "Bytes of frames given to the decoder", &[]),
            damaged_frames: to.counter(
                DAMAGED_FRAMES,
                "Pictures decoded although part of their data was damaged",
                &[],
            ),
            detections: to.counter(DETECTIONS, "Objects reported", &[]),
            batch_frames: to.histogram(
                BATCH_FRAMES,
                "Frames per run of the network",
                Unit::Count,
                &[],
            ),
            waiting_frames: to.gauge(
                WAITING_FRAMES,
                "Frames that wait for a worker now; at most one per camera",
                &[],
            ),
            computing_frames: to.gauge(COMPUTING_FRAMES, "Frames being computed now", &[]),
            frame_memory: to.gauge(
                FRAME_MEMORY_BYTES,
                "Bytes that all frames in hand take now, from the first byte of a message to its answer",
                &[],
            ),
            workers: to.gauge(WORKERS, "Threads that decode and infer", &[]),
            worker_panics: to.counter(WORKER_PANICS, "Panics caught in workers", &[]),
            workers_stuck: to.counter(
                WORKERS_STUCK,
                "Times that the server was not ready because a worker was stuck on a frame",
                &[],
            ),
            model_reloads: reloads(MODEL_RELOADS, "Times that the model was read again"),
            model_info: Mutex::default(),
            max_cameras: to.gauge(MAX_CAMERAS, "Streams served at the same time at most", &[]),
            ready: to.gauge(READY, "1 while new streams are accepted", &[]),
            busy_ratio: to.gauge(
                BUSY_RATIO,
                "Share of the workers' time spent on frames in the last 10 s, 0 to 1",
                &[],
            ),
            slowest_frame: ["10s", "60s"].map(slowest),
            live_cameras: to.gauge(LIVE_CAMERAS, "Cameras that are connected and send", &[]),
            stale_cameras: to.gauge(
                STALE_CAMERAS,
                "Cameras that are connected and have been silent for longer than they are used to, and \
                 than 2 s",
                &[],
            ),
            fleet: Fleet::new(clock::now()),
            traces: OnceLock::new(),
            process: metrics_process::Collector::default(),
            handle: recorder.handle(),
            recorder,
        }
    }

    /// Counts a frame read off the wire.
    pub fn received(&self) {
        self.frames_received.increment(1);
        self.fleet.received();
    }

    /// Counts what became of a frame.
    pub fn outcome(&self, outcome: Outcome) {
        self.frames[outcome as usize].increment(1);
        self.fleet.decided(outcome);
    }

    /// Publishes how many threads decode and infer.
    pub fn set_workers(&self, workers: usize) {
        self.workers.set(workers as f64);
        self.fleet.set_workers(workers);
    }

    /// Publishes how many streams are served at most.
    pub fn set_max_cameras(&self, most: usize) {
        self.max_cameras.set(most as f64);
        self.fleet.set_max_cameras(most);
    }

    /// Counts a frame that could not be decoded.
    pub fn bad_frame(&self, error: &DecodeError) {
        let reason = error.reason();
        if let Some(at) = DecodeError::REASONS.iter().position(|known| *known == reason) {
            self.bad_frames[at].increment(1);
        }
    }

    /// Counts a stream or call that was not accepted, and returns how many there were for this reason.
    pub fn refused(&self, why: Refusal) -> u64 {
        let (counter, times) = &self.refused[why as usize];
        counter.increment(1);
        times.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a connection that was closed before it was of use, and returns how many there were for this
    /// reason.
    pub fn connection_refused(&self, why: ConnectionRefusal) -> u64 {
        let (counter, times) = &self.connections_refused[why as usize];
        counter.increment(1);
        times.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The gauge of the streams and calls of one token. One series for each of the names that the operator
    /// has given.
    pub fn token_cameras(&self, token: &str) -> Gauge {
        let help = "Streams and calls served now, by the name of their token";
        Registrar(&self.recorder).gauge(TOKEN_CAMERAS, help, &[("token", token)])
    }

    /// Publishes when the certificate in use expires, in seconds since the Unix epoch. The series exists only
    /// where there is one: zero would look like one that expired long ago.
    pub fn certificate_expiry(&self, unix_seconds: f64) {
        let help = "When the server's certificate expires, in seconds since the Unix epoch";
        Registrar(&self.recorder).gauge(TLS_EXPIRY_SECONDS, help, &[]).set(unix_seconds);
    }

    /// Publishes what is served, in place of what was before.
    pub fn describe_model(&self, model: &ModelInfo) {
        let to = Registrar(&self.recorder);
        let input = format!("{}x{}", model.input.0, model.input.1);
        let labels =
            [("model", model.name.as_str()), ("backend", model.backend), ("input", &input)];
        let gauge = to.gauge(MODEL_INFO, "1 for the model served, 0 for earlier ones", &labels);
        let mut current = self.model_info.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = current.replace(gauge.clone()) {
            earlier.set(0.0);
        }
        gauge.set(1.0);
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        to.gauge(BUILD_INFO, "The version running; always 1", &version).set(1.0);
    }

    /// Everything in Prometheus text format.
    #[must_use]
    pub fn render(&self) -> String {
        metrics::with_local_recorder(&self.recorder, || self.process.collect());
        let now = clock::now();
        let figures = self.fleet.figures(now);
        self.busy_ratio.set(figures.busy);
        self.live_cameras.set(figures.live as f64);
        self.stale_cameras.set(figures.stale as f64);
        for (gauge, slowest) in self.slowest_frame.iter().zip(figures.slowest) {
            gauge.set(slowest.unwrap_or(0.0));
        }
        if let Some(headroom) = figures.headroom {
            let help = "Cameras like those of now that could be added before the workers are busy 85 % of the \
                        time; negative when there are too many, absent until a camera has sent";
            Registrar(&self.recorder).gauge(HEADROOM_CAMERAS, help, &[]).set(headroom as f64);
        }
        let mut text = self.handle.render();
        self.fleet.render(&FLEET_SERIES, &mut text, now);
        text
    }

    /// Frames received, and the sum over all outcomes; equal once no frame is in hand. Read back from
    /// the rendered text, so that it is what operators see.
    #[must_use]
    pub fn frame_accounts(&self) -> (u64, u64) {
        let text = self.render();
        let sum = |prefix: &str| {
            text.lines()
                .filter(|line| line.starts_with(prefix))
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .sum()
        };
        (sum(&format!("{FRAMES_RECEIVED} ")), sum(&format!("{FRAMES}{{")))
    }

    /// Folds the histograms' samples, which otherwise pile up until the next scrape, and forgets cameras that
    /// left long ago.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
        self.fleet.forget(clock::now());
    }
}

/// Describes and registers metrics with one recorder. The macros of `metrics` would use the process's
/// global one.
struct Registrar<'a>(&'a PrometheusRecorder);

type Labels<'a> = [(&'static str, &'a str)];

impl Registrar<'_> {
    const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

    fn key(name: &'static str, labels: &Labels<'_>) -> Key {
        let labels: Vec<_> =
            labels.iter().map(|(key, value)| Label::new(*key, (*value).to_owned())).collect();
        Key::from_parts(name, labels)
    }

    fn counter(&self, name: &'static str, help: &'static str, labels: &Labels<'_>) -> Counter {
        self.0.describe_counter(name.into(), None, help.into());
        let counter = self.0.register_counter(&Self::key(name, labels), &Self::METADATA);
        // A series that exists from the start can be alerted on before its first event.
        counter.increment(0);
        counter
    }

    fn gauge(&self, name: &'static str, help: &'static str, labels: &Labels<'_>) -> Gauge {
        self.0.describe_gauge(name.into(), None, help.into());
        self.0.register_gauge(&Self::key(name, labels), &Self::METADATA)
    }

    fn histogram(
        &self,
        name: &'static str,
        help: &'static str,
        unit: Unit,
        labels: &Labels<'_>,
    ) -> Histogram {
        self.0.describe_histogram(name.into(), Some(unit), help.into());
        self.0.register_histogram(&Self::key(name, labels), &Self::METADATA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_and_refusals_are_indexed_in_their_order() {
        assert!(Outcome::ALL.iter().enumerate().all(|(at, o)| *o as usize == at));
        assert!(Refusal::ALL.iter().enumerate().all(|(at, r)| *r as usize == at));
        assert!(ConnectionRefusal::ALL.iter().enumerate().all(|(at, r)| *r as usize == at));
    }

    #[test]
    fn every_series_exists_before_its_first_event() {
        let metrics = Metrics::new();
        let text = metrics.render();
        for outcome in Outcome::ALL {
            let series = format!("vedette_frames_total{{outcome=\"{}\"}} 0", outcome.label());
            assert!(text.contains(&series), "{series} in {text}");
        }
        for reason in DecodeError::REASONS {
            let series = format!("vedette_bad_frames_total{{reason=\"{reason}\"}} 0");
            assert!(text.contains(&series), "{series} in {text}");
        }
    }

    #[test]
    fn times_are_histograms_with_a_bound_at_the_promise() {
        let metrics = Metrics::new();
        metrics.stages.decode.record(0.002);
        metrics.frame_seconds.record(0.1);
        let text = metrics.render();
        let bucket = "vedette_stage_seconds_bucket{stage=\"decode\",le=\"0.002\"} 1";
        assert!(text.contains(bucket), "{text}");
        assert!(text.contains("vedette_frame_seconds_bucket{le=\"0.095\"} 0"), "{text}");
        assert!(text.contains("vedette_frame_seconds_bucket{le=\"0.1\"} 1"), "{text}");
    }

    #[test]
    fn two_servers_in_one_process_count_apart() {
        let (one, other) = (Metrics::new(), Metrics::new());
        one.frames_received.increment(3);
        assert_eq!((one.frame_accounts().0, other.frame_accounts().0), (3, 0));
    }
}
