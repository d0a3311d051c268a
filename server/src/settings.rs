//! What a user may write: one flat list of optional keys, from flags, the environment (`VEDETTE_*`) and
//! a TOML file, in this order of precedence.

mod values;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
};

use figment::{
    Figment,
    providers::{Env, Format, Serialized, Toml},
};
use serde::{Deserialize, Serialize};

pub use values::{BackendKind, InputShape, InputSize, LogFormat, PixelCount};

use crate::{
    decode::{JpegDecode, one_line},
    limits::{
        CONNECTION_AGE, CONNECTION_AGE_JITTER, CONNECTION_GRACE, CORES_PER_IO_THREAD, FRAME_BYTES,
        FRAME_MEMORY_DIVISOR, HANDSHAKE, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, MAX_CONNECTIONS,
        MESSAGE_TIME, MIN_IO_THREADS, STREAM_WINDOW_BYTES, STREAMS_PER_CONNECTION, STUCK,
        STUCK_EXIT, connection_window_bytes, message_bytes,
    },
    memory,
    postprocess::{layout::FamilyName, nms::NmsMode},
};

/// Prefix of the environment's keys.
pub const ENV_PREFIX: &str = "VEDETTE_";
/// The key that names the TOML file; only a flag or the environment can.
pub const CONFIG_KEY: &str = "config";

/// Everything a user may set: the flags, and with `_` for `-` the keys of the TOML file and, in upper
/// case behind `VEDETTE_`, of the environment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Network")]
#[expect(clippy::doc_markdown, reason = "the flags' help texts are printed as they stand")]
pub struct Settings {
    /// Address for cameras (gRPC over HTTP/2); port 0 takes a free one [default: 0.0.0.0:50051]
    #[arg(long, value_name = "IP:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addr: Option<SocketAddr>,

    /// Address for the live page, /metrics, /healthz and /readyz (HTTP), for operators only
    /// [default: 127.0.0.1:9464]
    #[arg(long, value_name = "IP:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_addr: Option<SocketAddr>,

    /// Show a camera's latest picture with its boxes on the operators' page, to those who give the token of
    /// --admin-token-file; kept only while somebody looks [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true",
          help_heading = "Operators")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<bool>,

    /// The token that operators need to see pictures: a file with one line of 16 to 512 characters. Read
    /// again when it changes
    #[arg(long, value_name = "FILE", help_heading = "Operators")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_token_file: Option<PathBuf>,

    /// Cameras that have series of their own in /metrics, at most; they end five minutes after the camera
    /// has left [default: 0]
    #[arg(long, value_name = "N", help_heading = "Operators")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub camera_metrics: Option<usize>,

    /// Send traces of frames there, in OTLP over gRPC: a collector on this machine or network, such as
    /// http://127.0.0.1:4317. A frame's trace goes on the one that its call names in `traceparent`
    #[arg(long, value_name = "URL", help_heading = "Operators")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_endpoint: Option<String>,

    /// Share of frames that are traced, 0 to 1 [default: 0.01]
    #[arg(long, value_name = "RATIO", help_heading = "Operators")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_ratio: Option<f64>,

    /// Cameras served at the same time; one more is refused with RESOURCE_EXHAUSTED [default: 256]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cameras: Option<usize>,

    /// Connections open at the same time; one more is closed at once [default: 4096]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<usize>,

    /// The same for each IP address; 0 = no limit, as behind a proxy all cameras share its address
    /// [default: 0]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections_per_ip: Option<usize>,

    /// Offer gRPC server reflection, which tells strangers what runs here [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reflection: Option<bool>,

    /// Seconds to finish frames in hand after SIGTERM before the process ends anyway [default: 10]
    #[arg(long, value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u64>,

    /// Threads for sockets, which only move bytes
    /// [default: 1, beyond 15 cores an eighth of the cores this process may use]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads: Option<usize>,

    /// Bytes that a camera may have under way on its stream before the server has read them (HTTP/2
    /// stream window) [default: 1048576]
    #[arg(long, value_name = "BYTES", help_heading = "Connections (docs/connections.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub h2_stream_window_bytes: Option<u32>,

    /// The same for all streams of a connection together (HTTP/2 connection window)
    /// [default: h2-stream-window-bytes x h2-max-streams]
    #[arg(long, value_name = "BYTES", help_heading = "Connections (docs/connections.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub h2_connection_window_bytes: Option<u32>,

    /// Largest HTTP/2 frame taken, in bytes; a picture comes in so many pieces [default: 65536]
    #[arg(long, value_name = "BYTES", help_heading = "Connections (docs/connections.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub h2_frame_bytes: Option<u32>,

    /// Streams and calls that one connection may have open [default: 1024]
    #[arg(long, value_name = "N", help_heading = "Connections (docs/connections.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub h2_max_streams: Option<u32>,

    /// Seconds of silence after which a connection's peer is probed (HTTP/2 PING); 0 = never
    /// [default: 10]
    #[arg(long, value_name = "SECONDS", help_heading = "Connections (docs/connections.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive_seconds: Option<u64>,

    /// Seconds that the answer to a probe may take before the connection is closed [default: 5]
    #[arg(long, value_name = "SECONDS", help_heading = "Connections (docs/connections.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive_timeout_seconds: Option<u64>,

    /// Send each answer at once instead of waiting for more to fill a packet (TCP_NODELAY)
    /// [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true",
          help_heading = "Connections (docs/connections.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_nodelay: Option<bool>,

    /// Seconds after which a connection takes no new streams and its streams are ended in order, for
    /// cameras to spread over servers that were added; 0 = never [default: 0]
    #[arg(long, value_name = "SECONDS", help_heading = "Connections (docs/connections.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connection_age_seconds: Option<u64>,

    /// Streams end at the age x (1 to 1 + this), 0 to 1, so that cameras that came together do not all
    /// return together [default: 0.1]
    #[arg(long, value_name = "RATIO", help_heading = "Connections (docs/connections.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_age_jitter: Option<f64>,

    /// Seconds that the last answers on a connection may take to be read after that before it is cut
    /// [default: 10]
    #[arg(long, value_name = "SECONDS", help_heading = "Connections (docs/connections.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_grace_seconds: Option<u64>,

    /// Seconds in which a new connection must have spoken TLS, where it is on, and HTTP/2 [default: 10]
    #[arg(long, value_name = "SECONDS", help_heading = "Connections (docs/connections.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_seconds: Option<u64>,

    /// Seconds that one message may take from its first byte to its last before its stream is ended
    /// [default: 30]
    #[arg(long, value_name = "SECONDS", help_heading = "Connections (docs/connections.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_seconds: Option<u64>,

    /// The server's certificate chain (PEM); turns TLS on, needs --tls-key. Read again when it changes
    #[arg(long, value_name = "FILE", help_heading = "Security (SECURITY.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,

    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Security (SECURITY.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,

    /// Take only clients whose certificate one of these authorities has signed (PEM, mutual TLS)
    #[arg(long, value_name = "FILE", help_heading = "Security (SECURITY.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_client_ca: Option<PathBuf>,

    /// Take only calls that carry a token of this file (TOML), `authorization: Bearer ...`. Read again
    /// when it changes
    #[arg(long, value_name = "FILE", help_heading = "Security (SECURITY.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,

    /// Frames per second of one stream; those above are answered OVERLOADED; 0 = no limit [default: 0]
    #[arg(long, value_name = "FPS", help_heading = "Security (SECURITY.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_fps: Option<f64>,

    /// The network: a model file, or a busy loop that measures everything around it [default: onnx]
    #[arg(long, value_name = "KIND", help_heading = "Model")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendKind>,

    /// ONNX model [default: models/cache/yolox_nano.onnx]
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<PathBuf>,

    /// Class names, one per line, as many as the model has classes [default: the model's own]
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<PathBuf>,

    /// How the model's output is laid out [default: from the model]
    #[arg(long, value_name = "FAMILY", help_heading = "Model")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<FamilyName>,

    /// Network input in pixels, 416 or 416x256 (width x height, multiples of 32), for models that take
    /// any size. Larger finds smaller objects; time grows with the area [default: from the model]
    #[arg(long, value_name = "SIZE", help_heading = "Model")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_size: Option<InputSize>,

    /// Whether a picture is padded only to the next multiple of 32 or to the whole of input-size; the
    /// former saves a quarter of the time at 4:3 and a third at 16:9 [default: adaptive]
    #[arg(long, value_name = "SHAPE", help_heading = "Model")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_shape: Option<InputShape>,

    /// ONNX Runtime's shared library [default: models/cache/onnxruntime/libonnxruntime.so]
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_lib: Option<PathBuf>,

    /// CPU time per frame of the spin backend, in milliseconds [default: 5]
    #[arg(long, value_name = "MS", help_heading = "Model")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin_ms: Option<f64>,

    /// Report objects that score at least this, 0 to 1 [default: 0.25]
    #[arg(long, value_name = "SCORE", help_heading = "Detection")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,

    /// Of two boxes that overlap by more than this (IoU, 0 to 1) report the stronger [default: 0.45]
    #[arg(long, value_name = "IOU", help_heading = "Detection")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iou: Option<f64>,

    /// Whether overlapping boxes of different classes are both reported [default: class-aware]
    #[arg(long, value_name = "MODE", help_heading = "Detection")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nms: Option<NmsMode>,

    /// Objects reported per frame at most, strongest first [default: 300]
    #[arg(long, value_name = "N", help_heading = "Detection")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_detections: Option<usize>,

    /// Threads that decode and infer [default: the cores this process may use]
    #[arg(long, value_name = "N", help_heading = "Frames")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,

    /// Waiting frames run through the network at once, at most; rarely pays on a CPU [default: 1]
    #[arg(long, value_name = "N", help_heading = "Frames")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,

    /// Largest frame in bytes; a larger one is answered BAD_IMAGE [default: 16777216]
    #[arg(long, value_name = "BYTES", help_heading = "Frames")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_frame_bytes: Option<usize>,

    /// Largest picture, as a number of pixels or 1920x1080, checked before decoding
    /// [default: 4096x4096]
    #[arg(long, value_name = "PIXELS", help_heading = "Frames")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pixels: Option<PixelCount>,

    /// Whether a JPEG is decoded only at the scale that the network needs, or pixel for pixel; full
    /// takes twice as long at 1920x1080 and finds the same objects [default: scaled]
    #[arg(long, value_name = "HOW", help_heading = "Frames")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jpeg_decode: Option<JpegDecode>,

    /// Milliseconds from receipt after which a frame that names no budget_ms is not computed any more
    /// but answered EXPIRED [default: 1000]
    #[arg(long, value_name = "MS", help_heading = "Frames")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_ms: Option<u32>,

    /// Bytes that all frames in hand may take together, from the first byte of a message until its
    /// answer; frames beyond are answered OVERLOADED
    /// [default: a quarter of the memory that this process may use]
    #[arg(long, value_name = "BYTES", help_heading = "Frames")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame_memory_bytes: Option<u64>,

    /// Seconds on one frame after which a worker counts as stuck: the server is not ready, and feeds no
    /// watchdog, until it has gone on [default: 5]
    #[arg(long, value_name = "SECONDS", help_heading = "Supervision (docs/operations.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_seconds: Option<u64>,

    /// Seconds on one frame after which the process ends with code 70, for its supervisor to start it
    /// again; 0 = never [default: 30]
    #[arg(long, value_name = "SECONDS", help_heading = "Supervision (docs/operations.md)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_exit_seconds: Option<u64>,

    /// Log level: off, error, warn, info, debug, trace; or by module, such as
    /// info,vedette_server=debug [default: info]
    #[arg(long, value_name = "FILTER", help_heading = "Logs (stderr)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,

    /// Log lines for people or for machines [default: text]
    #[arg(long, value_name = "FORMAT", help_heading = "Logs (stderr)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<LogFormat>,

    /// Let something go wrong on purpose, for tests: panic-decode:N, panic-inference:N or
    /// panic-postprocess:N (every Nth frame), hang-inference:SECONDS (the 20th frame)
    #[cfg(feature = "faults")]
    #[arg(long, value_name = "FAULT", help_heading = "Faults")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<crate::faults::Faults>,
}

/// A setting that cannot be used. One line that names the key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Settings {
    /// Puts flags over the environment over a TOML file.
    ///
    /// # Errors
    /// An unreadable file, an unknown key, a value of the wrong kind.
    pub fn layer(flags: &Self, file: Option<&Path>) -> Result<Self, ConfigError> {
        let mut layers = Figment::new();
        if let Some(file) = file {
            if !file.is_file() {
                return Err(ConfigError(format!("{CONFIG_KEY}: no file {}", file.display())));
            }
            layers = layers.merge(Toml::file_exact(file));
        }
        extract(&layers.merge(environment()).merge(Serialized::defaults(flags)), file)
    }

    /// A settings file's text, alone.
    ///
    /// # Errors
    /// As [`layer`](Self::layer), as far as the file is concerned.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        extract(&Figment::from(Toml::string(text)), None)
    }
}

fn extract(layers: &Figment, file: Option<&Path>) -> Result<Settings, ConfigError> {
    layers.extract().map_err(|errors| {
        let first = errors.into_iter().next();
        // Keys may be quoted in TOML and hold anything.
        ConfigError(first.map_or_else(String::new, |error| one_line(&describe(&error, file))))
    })
}

/// Keys of the environment. Kubernetes puts addresses of a service named `vedette` or `vedette-...`
/// under the same prefix (`VEDETTE_SERVICE_HOST`, `VEDETTE_PORT_50051_TCP` and so on); those are not ours.
fn environment() -> Env {
    Env::prefixed(ENV_PREFIX).filter(|key| {
        let key = key.as_str().to_ascii_lowercase();
        let service_link = key.ends_with("service_host")
            || key.contains("service_port")
            || key == "port"
            || key.ends_with("_port")
            || key.starts_with("port_")
            || key.contains("_port_");
        key != CONFIG_KEY && !service_link
    })
}

fn describe(error: &figment::Error, file: Option<&Path>) -> String {
    let of = |source: &str| {
        error.metadata.as_ref().is_some_and(|metadata| metadata.name.contains(source))
    };
    let from_environment = of("environment");
    let name = |key: &str| {
        if from_environment {
            format!("{ENV_PREFIX}{}", key.to_uppercase())
        } else {
            key.to_owned()
        }
    };
    let source = match file {
        Some(file) if of("TOML") => format!(" (in {})", file.display()),
        _ => String::new(),
    };
    match &error.kind {
        figment::error::Kind::UnknownField(field, known) => {
            let close = |key: &&&str| strsim::jaro_winkler(&field.replace('-', "_"), key);
            let best = known.iter().max_by(|a, b| close(a).total_cmp(&close(b)));
            let hint = match best.filter(|key| close(key) > CLOSE_ENOUGH) {
                Some(key) => format!("did you mean {}?", name(key)),
                None => format!("known are {}", known.join(", ")),
            };
            format!("{}: unknown key{source}; {hint}", name(field))
        }
        kind if error.path.is_empty() => {
            format!("{CONFIG_KEY}: {kind}{source}")
        }
        kind => format!("{}: {kind}{source}", name(&error.path.join("."))),
    }
}

/// How alike (Jaro-Winkler, 0 to 1) a misspelt key and a known one must be for a suggestion.
const CLOSE_ENOUGH: f64 = 0.85;

/// Default size of the largest picture: 4096 x 4096.
const DEFAULT_MAX_PIXELS: u64 = 4096 * 4096;
/// Default size of the largest frame: four times the 4 MiB at which gRPC libraries stop, so that 4K
/// JPEGs pass.
const DEFAULT_MAX_FRAME_BYTES: usize = 16 << 20;
/// Where `models/setup.py` puts the default model and ONNX Runtime.
const DEFAULT_MODEL: &str = "models/cache/yolox_nano.onnx";
const DEFAULT_RUNTIME_LIB: &str = "models/cache/onnxruntime/libonnxruntime.so";

impl Settings {
    /// Fills in the defaults.
    #[must_use]
    pub fn with_defaults(self) -> Self {
        // Not the machine's cores: std looks at the affinity mask and the cgroup's CPU quota. Workers
        // beyond those are throttled together, in the middle of frames.
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let stream_window = self.h2_stream_window_bytes.unwrap_or(STREAM_WINDOW_BYTES);
        let max_streams = self.h2_max_streams.unwrap_or(STREAMS_PER_CONNECTION);
        let connection_window = connection_window_bytes(stream_window, max_streams);
        let max_frame_bytes = self.max_frame_bytes.unwrap_or(DEFAULT_MAX_FRAME_BYTES);
        let frame_memory_bytes = self.frame_memory_bytes.unwrap_or_else(|| {
            let share = memory::usable_bytes().map_or(0, |bytes| bytes / FRAME_MEMORY_DIVISOR);
            share.max(message_bytes(max_frame_bytes) as u64)
        });
        Self {
            addr: self.addr.or(Some(SocketAddr::from(([0, 0, 0, 0], 50051)))),
            admin_addr: self.admin_addr.or(Some(SocketAddr::from(([127, 0, 0, 1], 9464)))),
            preview: self.preview.or(Some(false)),
            admin_token_file: self.admin_token_file,
            camera_metrics: self.camera_metrics.or(Some(0)),
            otlp_endpoint: self.otlp_endpoint,
            otlp_ratio: self.otlp_ratio.or(Some(0.01)),
            max_cameras: self.max_cameras.or(Some(256)),
            max_connections: self.max_connections.or(Some(MAX_CONNECTIONS)),
            max_connections_per_ip: self.max_connections_per_ip.or(Some(0)),
            reflection: self.reflection.or(Some(false)),
            grace_seconds: self.grace_seconds.or(Some(10)),
            io_threads: self.io_threads.or(Some(default_io_threads(cores))),
            h2_stream_window_bytes: Some(stream_window),
            h2_connection_window_bytes: self.h2_connection_window_bytes.or(Some(connection_window)),
            h2_frame_bytes: self.h2_frame_bytes.or(Some(FRAME_BYTES)),
            h2_max_streams: Some(max_streams),
            keepalive_seconds: self.keepalive_seconds.or(Some(KEEPALIVE_INTERVAL.as_secs())),
            keepalive_timeout_seconds: self
                .keepalive_timeout_seconds
                .or(Some(KEEPALIVE_TIMEOUT.as_secs())),
            tcp_nodelay: self.tcp_nodelay.or(Some(true)),
            max_connection_age_seconds: self
                .max_connection_age_seconds
                .or(Some(CONNECTION_AGE.as_secs())),
            connection_age_jitter: self.connection_age_jitter.or(Some(CONNECTION_AGE_JITTER)),
            connection_grace_seconds: self
                .connection_grace_seconds
                .or(Some(CONNECTION_GRACE.as_secs())),
            handshake_seconds: self.handshake_seconds.or(Some(HANDSHAKE.as_secs())),
            message_seconds: self.message_seconds.or(Some(MESSAGE_TIME.as_secs())),
            tls_cert: self.tls_cert,
            tls_key: self.tls_key,
            tls_client_ca: self.tls_client_ca,
            token_file: self.token_file,
            max_fps: self.max_fps.or(Some(0.0)),
            backend: self.backend.or(Some(BackendKind::Onnx)),
            model: self.model.or(Some(DEFAULT_MODEL.into())),
            labels: self.labels,
            layout: self.layout,
            input_size: self.input_size,
            input_shape: self.input_shape.or(Some(InputShape::Adaptive)),
            runtime_lib: self.runtime_lib.or(Some(DEFAULT_RUNTIME_LIB.into())),
            spin_ms: self.spin_ms.or(Some(5.0)),
            confidence: self.confidence.or(Some(0.25)),
            iou: self.iou.or(Some(0.45)),
            nms: self.nms.or(Some(NmsMode::ClassAware)),
            max_detections: self.max_detections.or(Some(300)),
            workers: self.workers.or(Some(cores)),
            batch: self.batch.or(Some(1)),
            max_frame_bytes: Some(max_frame_bytes),
            max_pixels: self.max_pixels.or(Some(PixelCount(DEFAULT_MAX_PIXELS))),
            jpeg_decode: self.jpeg_decode.or(Some(JpegDecode::Scaled)),
            budget_ms: self.budget_ms.or(Some(1000)),
            frame_memory_bytes: Some(frame_memory_bytes),
            stuck_seconds: self.stuck_seconds.or(Some(STUCK.as_secs())),
            stuck_exit_seconds: self.stuck_exit_seconds.or(Some(STUCK_EXIT.as_secs())),
            log_level: self.log_level.or_else(|| Some("info".into())),
            log_format: self.log_format.or(Some(LogFormat::Text)),
            #[cfg(feature = "faults")]
            fault: self.fault,
        }
    }

    /// The effective settings as a TOML file, for `--print-config`.
    ///
    /// # Errors
    /// When a path is not Unicode.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|error| ConfigError(error.to_string()))
    }
}

/// Threads for sockets on so many cores.
fn default_io_threads(cores: usize) -> usize {
    (cores / CORES_PER_IO_THREAD).max(MIN_IO_THREADS)
}

#[cfg(test)]
mod tests {
    use std::{io::Write, time::Duration};

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("temporary file");
        file.write_all(text.as_bytes()).expect("write");
        file
    }

    #[test]
    fn flags_win_over_the_file_and_that_over_defaults() {
        let file =
            file("workers = 3\nbudget_ms = 70\ninput_size = 320\nmax_pixels = \"1920x1080\"");
        let flags = Settings { workers: Some(7), ..Settings::default() };
        let config = Settings::layer(&flags, Some(file.path())).and_then(Settings::check);
        let config = config.expect("valid");
        assert_eq!(config.frames.workers, 7);
        assert_eq!(config.frames.budget, Duration::from_millis(70));
        assert_eq!(config.model.input_size, Some(InputSize { width: 320, height: 320 }));
        assert_eq!(config.frames.limits.max_pixels, 1920 * 1080);
        assert_eq!(config.frames.limits.max_bytes, 16 << 20);
    }

    #[test]
    fn unknown_keys_and_wrong_kinds_name_the_key() {
        for (text, start) in [
            ("wrokers = 3", "wrokers: unknown key"),
            ("workers = \"many\"", "workers: "),
            ("input_size = \"huge\"", "input_size: "),
            ("backend = \"gpu\"", "backend: "),
            ("addr = \"localhost\"", "addr: "),
        ] {
            let file = file(text);
            let error = Settings::layer(&Settings::default(), Some(file.path())).expect_err(text);
            assert!(error.0.starts_with(start), "{error} for {text}");
            assert!(!error.0.contains('\n'), "{error}");
        }
    }

    #[test]
    fn whatever_a_key_or_value_holds_the_error_is_one_line() {
        for (text, expected) in [
            ("\"a\\nb\\u001b\" = 1", "a b\\u{1b}: unknown key"),
            ("workers = \"\\u0007\\n\"", "workers: "),
            ("workers =\u{1a}5", "config: TOML parse error"),
            ("[batch.\"x\\r\"]", "batch: "),
        ] {
            let error = Settings::from_toml(text).expect_err(text).0;
            assert!(error.starts_with(expected), "{error} for {text}");
            assert!(!error.contains(char::is_control), "{error:?}");
        }
    }

    #[test]
    fn printed_settings_read_back_the_same() {
        let settings = Settings {
            input_size: Some(InputSize { width: 416, height: 256 }),
            layout: Some(FamilyName::Yolox),
            ..Settings::default()
        }
        .with_defaults();
        let file = file(&settings.to_toml().expect("TOML"));
        let again = Settings::layer(&Settings::default(), Some(file.path())).expect("valid");
        assert_eq!(again, settings);
    }

    #[test]
    fn threads_for_sockets_grow_with_the_cores() {
        for (cores, threads) in [(1, 1), (2, 1), (15, 1), (16, 2), (24, 3), (64, 8), (128, 16)] {
            assert_eq!(default_io_threads(cores), threads, "{cores} cores");
        }
    }

    #[test]
    fn the_connection_window_follows_the_streams_unless_set() {
        let window = |stream, streams, connection| {
            Settings {
                h2_stream_window_bytes: stream,
                h2_max_streams: streams,
                h2_connection_window_bytes: connection,
                ..Settings::default()
            }
            .with_defaults()
            .h2_connection_window_bytes
        };
        assert_eq!(window(None, None, None), Some(1 << 30));
        assert_eq!(window(Some(1 << 17), None, None), Some(1 << 27));
        assert_eq!(window(Some(1 << 17), Some(10), None), Some(10 << 17));
        assert_eq!(window(Some(1 << 17), Some(10), Some(1 << 20)), Some(1 << 20));
        assert_eq!(window(Some(1 << 30), Some(1 << 16), None), Some((1 << 31) - 1));
    }
}
