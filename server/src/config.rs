//! What the server runs with: the user's settings with defaults filled in, checked, one part per
//! subsystem.

use std::{fmt, net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use crate::{
    connection::AgeLimit,
    decode::{FrameLimits, JpegDecode},
    faults::Faults,
    limits::{
        FPS, MAX_CONNECTION_AGE_SECONDS, MAX_FRAME_BYTES, MAX_IO_THREADS, MAX_KEEPALIVE_SECONDS,
        MAX_MAX_CONNECTIONS, MAX_STREAMS_PER_CONNECTION, MAX_STUCK_SECONDS, MAX_WINDOW_BYTES,
        MIN_FRAME_BYTES, MIN_WINDOW_BYTES, message_bytes,
    },
    postprocess::{DetectOptions, layout::FamilyName},
    settings::{BackendKind, ConfigError, InputShape, InputSize, LogFormat, Settings},
};

/// The server's settings, checked.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the parts are documented")]
pub struct Config {
    pub net: NetConfig,
    pub operators: OperatorConfig,
    pub backend: BackendConfig,
    pub model: ModelConfig,
    pub detect: DetectOptions,
    pub frames: FrameConfig,
    pub supervision: SupervisionConfig,
    pub log: LogConfig,
    /// What goes wrong on purpose: nothing, unless a test says so.
    pub faults: Faults,
}

/// Sockets, streams, shutdown.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "see the flag of the same name")]
pub struct NetConfig {
    pub addr: SocketAddr,
    pub admin_addr: SocketAddr,
    pub max_cameras: usize,
    pub reflection: bool,
    pub grace: Duration,
    pub io_threads: usize,
    pub connections: ConnectionConfig,
    pub security: SecurityConfig,
}

/// What operators get to see.
#[derive(Debug, Clone, Default)]
pub struct OperatorConfig {
    /// The file of the token that shows them pictures; `None`: nobody sees any.
    pub preview: Option<PathBuf>,
    /// Cameras that have series of their own.
    pub camera_series: usize,
    /// `None`: no frame is traced.
    pub traces: Option<TraceConfig>,
}

/// Traces of frames.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceConfig {
    /// The collector's address, an `http` URI.
    pub endpoint: String,
    /// Share of frames that are traced, 0 to 1.
    pub ratio: f64,
}

/// Who may connect, and how much they may send.
#[derive(Debug, Clone, Default)]
pub struct SecurityConfig {
    /// `None`: connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// `None`: calls need no token.
    pub token_file: Option<PathBuf>,
    /// Frames per second of one stream; `None`: no limit.
    pub max_fps: Option<f64>,
}

/// Where TLS keys are read from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "see the flag of the same name")]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// `None`: clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// How connections are kept: HTTP/2, TCP, age.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "see the flag of the same name")]
pub struct ConnectionConfig {
    pub stream_window_bytes: u32,
    pub connection_window_bytes: u32,
    pub frame_bytes: u32,
    pub max_streams: u32,
    /// `None`: peers are not probed.
    pub keepalive: Option<Duration>,
    pub keepalive_timeout: Duration,
    pub tcp_nodelay: bool,
    /// `None`: connections may live for ever.
    pub age: Option<AgeLimit>,
    pub max_connections: usize,
    /// `None`: no limit.
    pub max_connections_per_ip: Option<usize>,
    pub handshake: Duration,
}

/// What answers for the network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BackendConfig {
    /// The model of [`ModelConfig`].
    Onnx,
    /// A busy loop of this much CPU time per frame.
    Spin(Duration),
}

/// Where the model comes from and how it is run.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "see the flag of the same name")]
pub struct ModelConfig {
    pub runtime_lib: PathBuf,
    pub model: PathBuf,
    pub labels: Option<PathBuf>,
    pub layout: Option<FamilyName>,
    pub input_size: Option<InputSize>,
    pub input_shape: InputShape,
    pub batch: usize,
}

/// Limits on frames and the workers that compute them.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "see the flag of the same name")]
pub struct FrameConfig {
    pub limits: FrameLimits,
    pub jpeg: JpegDecode,
    pub workers: usize,
    pub budget: Duration,
    pub memory_bytes: u64,
    pub message_time: Duration,
}

/// When a worker counts as stuck.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "see the flag of the same name")]
pub struct SupervisionConfig {
    pub stuck: Duration,
    /// `None`: the process never gives itself up.
    pub exit: Option<Duration>,
}

/// Logs.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "see the flag of the same name")]
pub struct LogConfig {
    pub level: String,
    pub format: LogFormat,
}

/// Largest `max-pixels`: what a square of 32768 holds, far beyond any camera; keeps buffer sizes
/// within their types.
const MAX_MAX_PIXELS: u64 = 1 << 30;
/// Largest `max-frame-bytes`: a gRPC message's length must leave room for the oversize factor.
const MAX_MAX_FRAME_BYTES: usize = 1 << 30;
/// Most workers: more than any machine's cores.
const MAX_WORKERS: usize = 1024;
/// Largest `batch`: each worker holds tensors for as many pictures.
const MAX_BATCH: usize = 64;
/// Most cameras: bounds the hand-off queue.
const MAX_MAX_CAMERAS: usize = 100_000;

impl Settings {
    /// Fills in the defaults and checks the ranges.
    ///
    /// # Errors
    /// With one line that names the key and its range.
    pub fn check(self) -> Result<Config, ConfigError> {
        let s = self.with_defaults();
        let spin_ms = within("spin_ms", s.spin_ms, 0.0..=10_000.0)?;
        let max_pixels = s.max_pixels.map(|pixels| pixels.0);
        Ok(Config {
            net: NetConfig {
                addr: given("addr", s.addr)?,
                admin_addr: given("admin_addr", s.admin_addr)?,
                max_cameras: within("max_cameras", s.max_cameras, 1..=MAX_MAX_CAMERAS)?,
                reflection: given("reflection", s.reflection)?,
                grace: Duration::from_secs(within("grace_seconds", s.grace_seconds, 0..=3600)?),
                io_threads: within("io_threads", s.io_threads, 1..=MAX_IO_THREADS)?,
                connections: connections(&s)?,
                security: security(&s)?,
            },
            operators: operators(&s)?,
            supervision: supervision(&s)?,
            faults: faults(&s),
            backend: match given("backend", s.backend)? {
                BackendKind::Spin => BackendConfig::Spin(Duration::from_secs_f64(spin_ms / 1e3)),
                BackendKind::Onnx => BackendConfig::Onnx,
            },
            model: ModelConfig {
                runtime_lib: given("runtime_lib", s.runtime_lib)?,
                model: given("model", s.model)?,
                labels: s.labels,
                layout: s.layout,
                input_size: s.input_size,
                input_shape: given("input_shape", s.input_shape)?,
                batch: within("batch", s.batch, 1..=MAX_BATCH)?,
            },
            detect: DetectOptions {
                confidence: within("confidence", s.confidence, 0.0..=1.0)? as f32,
                iou: within("iou", s.iou, 0.0..=1.0)? as f32,
                nms: given("nms", s.nms)?,
                max_detections: within("max_detections", s.max_detections, 1..=100_000)?,
            },
            frames: FrameConfig {
                limits: FrameLimits {
                    max_bytes: within(
                        "max_frame_bytes",
                        s.max_frame_bytes,
                        1..=MAX_MAX_FRAME_BYTES,
                    )?,
                    max_pixels: within("max_pixels", max_pixels, 1..=MAX_MAX_PIXELS)?,
                },
                jpeg: given("jpeg_decode", s.jpeg_decode)?,
                workers: within("workers", s.workers, 1..=MAX_WORKERS)?,
                budget: Duration::from_millis(
                    within("budget_ms", s.budget_ms, 1..=u32::MAX)?.into(),
                ),
                memory_bytes: within(
                    "frame_memory_bytes",
                    s.frame_memory_bytes,
                    // One message of the largest size, or it could never be read.
                    message_bytes(given("max_frame_bytes", s.max_frame_bytes)?) as u64..=u64::MAX,
                )?,
                message_time: Duration::from_secs(within(
                    "message_seconds",
                    s.message_seconds,
                    1..=3600,
                )?),
            },
            log: LogConfig {
                level: given("log_level", s.log_level)?,
                format: given("log_format", s.log_format)?,
            },
        })
    }
}

fn connections(s: &Settings) -> Result<ConnectionConfig, ConfigError> {
    let windows = MIN_WINDOW_BYTES..=MAX_WINDOW_BYTES;
    let seconds = |key, value, range| within(key, value, range).map(Duration::from_secs);
    let keepalive = seconds("keepalive_seconds", s.keepalive_seconds, 0..=MAX_KEEPALIVE_SECONDS)?;
    let age = AgeLimit {
        age: seconds(
            "max_connection_age_seconds",
            s.max_connection_age_seconds,
            0..=MAX_CONNECTION_AGE_SECONDS,
        )?,
        jitter: within("connection_age_jitter", s.connection_age_jitter, 0.0..=1.0)?,
        grace: seconds("connection_grace_seconds", s.connection_grace_seconds, 0..=3600)?,
    };
    Ok(ConnectionConfig {
        stream_window_bytes: within(
            "h2_stream_window_bytes",
            s.h2_stream_window_bytes,
            windows.clone(),
        )?,
        connection_window_bytes: within(
            "h2_connection_window_bytes",
            s.h2_connection_window_bytes,
            windows,
        )?,
        frame_bytes: within("h2_frame_bytes", s.h2_frame_bytes, MIN_FRAME_BYTES..=MAX_FRAME_BYTES)?,
        max_streams: within("h2_max_streams", s.h2_max_streams, 1..=MAX_STREAMS_PER_CONNECTION)?,
        keepalive: (!keepalive.is_zero()).then_some(keepalive),
        keepalive_timeout: seconds(
            "keepalive_timeout_seconds",
            s.keepalive_timeout_seconds,
            1..=MAX_KEEPALIVE_SECONDS,
        )?,
        tcp_nodelay: given("tcp_nodelay", s.tcp_nodelay)?,
        max_connections: within("max_connections", s.max_connections, 1..=MAX_MAX_CONNECTIONS)?,
        max_connections_per_ip: Some(within(
            "max_connections_per_ip",
            s.max_connections_per_ip,
            0..=MAX_MAX_CONNECTIONS,
        )?)
        .filter(|&most| most > 0),
        handshake: seconds("handshake_seconds", s.handshake_seconds, 1..=3600)?,
        age: (!age.age.is_zero()).then_some(age),
    })
}

fn operators(s: &Settings) -> Result<OperatorConfig, ConfigError> {
    let preview = match (given("preview", s.preview)?, &s.admin_token_file) {
        (true, None) => {
            return Err(ConfigError(
                "admin_token_file: preview needs it; pictures are shown only to those who give its token"
                    .into(),
            ));
        }
        (true, Some(file)) => Some(file.clone()),
        (false, _) => None,
    };
    let camera_series = within("camera_metrics", s.camera_metrics, 0..=MAX_MAX_CAMERAS)?;
    let ratio = within("otlp_ratio", s.otlp_ratio, 0.0..=1.0)?;
    let traces = match &s.otlp_endpoint {
        None => None,
        Some(endpoint) => {
            let uri = endpoint.parse::<http::Uri>().ok();
            if uri.is_none_or(|uri| uri.scheme_str() != Some("http") || uri.port_u16().is_none()) {
                return Err(ConfigError(format!(
                    "otlp_endpoint: {endpoint:?} is not http://HOST:PORT; let a collector nearby encrypt \
                     what goes further"
                )));
            }
            Some(TraceConfig { endpoint: endpoint.clone(), ratio })
        }
    };
    Ok(OperatorConfig { preview, camera_series, traces })
}

fn security(s: &Settings) -> Result<SecurityConfig, ConfigError> {
    let tls = match (&s.tls_cert, &s.tls_key) {
        (Some(cert), Some(key)) => {
            let client_ca = s.tls_client_ca.clone();
            Some(TlsFiles { cert: cert.clone(), key: key.clone(), client_ca })
        }
        (Some(_), None) => return Err(ConfigError("tls_key: tls_cert needs its key".into())),
        (None, Some(_)) => {
            return Err(ConfigError("tls_cert: tls_key needs its certificate".into()));
        }
        (None, None) if s.tls_client_ca.is_some() => {
            return Err(ConfigError(
                "tls_client_ca: needs tls_cert and tls_key, without which there is no TLS".into(),
            ));
        }
        (None, None) => None,
    };
    let max_fps = match given("max_fps", s.max_fps)? {
        0.0 => None,
        some => Some(within("max_fps", Some(some), FPS)?),
    };
    Ok(SecurityConfig { tls, token_file: s.token_file.clone(), max_fps })
}

#[cfg(feature = "faults")]
fn faults(s: &Settings) -> Faults {
    s.fault.unwrap_or_default()
}

#[cfg(not(feature = "faults"))]
fn faults(_: &Settings) -> Faults {
    Faults::default()
}

fn supervision(s: &Settings) -> Result<SupervisionConfig, ConfigError> {
    let stuck = within("stuck_seconds", s.stuck_seconds, 1..=MAX_STUCK_SECONDS)?;
    let exit = within("stuck_exit_seconds", s.stuck_exit_seconds, 0..=MAX_STUCK_SECONDS)?;
    if exit > 0 && exit < stuck {
        return Err(ConfigError(format!(
            "stuck_exit_seconds: {exit} is less than stuck_seconds, {stuck}"
        )));
    }
    Ok(SupervisionConfig {
        stuck: Duration::from_secs(stuck),
        exit: (exit > 0).then(|| Duration::from_secs(exit)),
    })
}

/// A setting that has a default.
fn given<T>(key: &str, value: Option<T>) -> Result<T, ConfigError> {
    value.ok_or_else(|| ConfigError(format!("{key}: no value")))
}

/// A setting that has a default and a range. A NaN is in no range.
fn within<T: PartialOrd + fmt::Display>(
    key: &str,
    value: Option<T>,
    range: RangeInclusive<T>,
) -> Result<T, ConfigError> {
    let value = given(key, value)?;
    if range.contains(&value) {
        return Ok(value);
    }
    let (low, high) = range.into_inner();
    Err(ConfigError(format!("{key}: {value} is out of range; {low} to {high} is allowed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Settings {
        Settings::default()
    }

    #[test]
    fn ranges_are_checked() {
        for (settings, key) in vec![
            (Settings { workers: Some(0), ..none() }, "workers"),
            (Settings { max_connections: Some(0), ..none() }, "max_connections"),
            (
                Settings { max_connections_per_ip: Some(1 << 21), ..none() },
                "max_connections_per_ip",
            ),
            (Settings { handshake_seconds: Some(0), ..none() }, "handshake_seconds"),
            (Settings { message_seconds: Some(0), ..none() }, "message_seconds"),
            (Settings { frame_memory_bytes: Some(1 << 20), ..none() }, "frame_memory_bytes"),
            (Settings { max_fps: Some(-1.0), ..none() }, "max_fps"),
            (Settings { max_fps: Some(1e-20), ..none() }, "max_fps"),
            (Settings { max_fps: Some(f64::NAN), ..none() }, "max_fps"),
            (Settings { tls_cert: Some("cert.pem".into()), ..none() }, "tls_key"),
            (Settings { tls_key: Some("key.pem".into()), ..none() }, "tls_cert"),
            (Settings { tls_client_ca: Some("ca.pem".into()), ..none() }, "tls_client_ca"),
            (Settings { stuck_seconds: Some(0), ..none() }, "stuck_seconds"),
            (
                Settings { stuck_seconds: Some(9), stuck_exit_seconds: Some(8), ..none() },
                "stuck_exit_seconds",
            ),
            (Settings { confidence: Some(1.5), ..none() }, "confidence"),
            (Settings { iou: Some(f64::NAN), ..none() }, "iou"),
            (Settings { batch: Some(0), ..none() }, "batch"),
            (Settings { max_cameras: Some(0), ..none() }, "max_cameras"),
            (Settings { budget_ms: Some(0), ..none() }, "budget_ms"),
            (Settings { h2_stream_window_bytes: Some(0), ..none() }, "h2_stream_window_bytes"),
            (
                Settings { h2_stream_window_bytes: Some(1 << 31), ..none() },
                "h2_stream_window_bytes",
            ),
            (
                Settings { h2_connection_window_bytes: Some(65_534), ..none() },
                "h2_connection_window_bytes",
            ),
            (Settings { h2_frame_bytes: Some(16_383), ..none() }, "h2_frame_bytes"),
            (Settings { h2_frame_bytes: Some(1 << 24), ..none() }, "h2_frame_bytes"),
            (Settings { io_threads: Some(0), ..none() }, "io_threads"),
            (Settings { h2_max_streams: Some(0), ..none() }, "h2_max_streams"),
            (Settings { keepalive_seconds: Some(3601), ..none() }, "keepalive_seconds"),
            (
                Settings { keepalive_timeout_seconds: Some(0), ..none() },
                "keepalive_timeout_seconds",
            ),
            (
                Settings { max_connection_age_seconds: Some(u64::MAX), ..none() },
                "max_connection_age_seconds",
            ),
            (Settings { connection_age_jitter: Some(1.1), ..none() }, "connection_age_jitter"),
            (Settings { connection_age_jitter: Some(f64::NAN), ..none() }, "connection_age_jitter"),
            (
                Settings { connection_grace_seconds: Some(3601), ..none() },
                "connection_grace_seconds",
            ),
        ] {
            let error = settings.check().expect_err(key);
            assert!(error.0.starts_with(&format!("{key}: ")), "{error}");
            assert!(!error.0.contains('\n'), "{error}");
        }
    }

    #[test]
    fn zero_turns_probes_and_ageing_off() {
        let connections = none().check().expect("valid").net.connections;
        assert_eq!(connections.keepalive, Some(Duration::from_secs(10)));
        assert_eq!(connections.age, None);
        let settings = Settings {
            keepalive_seconds: Some(0),
            max_connection_age_seconds: Some(60),
            ..Settings::default()
        };
        let connections = settings.check().expect("valid").net.connections;
        assert_eq!(connections.keepalive, None);
        let age = connections.age.expect("set");
        assert_eq!((age.age, age.grace), (Duration::from_mins(1), Duration::from_secs(10)));
    }
}
