//! The one place that maps errors to exit codes, and refusals to gRPC status.

use std::{fmt, net::SocketAddr};

use tonic::{Code, Status};
use vedette_proto::ACCEPTED_FRAMES_KEY;

use crate::{
    admit::CamerasFull,
    connection::ConnectionInfo,
    frame::CameraId,
    infer::InferError,
    pipeline::PipelineError,
    reload::FileError,
    settings::ConfigError,
    telemetry::metrics::{Metrics, Refusal},
};

/// Why the server could not serve. Displays as one line that says what to change.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ServeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    #[error("{key}: cannot listen on {addr}: {reason}")]
    Bind { key: &'static str, addr: SocketAddr, reason: String },
    #[error("the gRPC server failed: {0}")]
    Transport(String),
    #[error("cannot start the I/O runtime: {0}")]
    Runtime(std::io::Error),
    #[error("cannot write to stdout: {0}")]
    Stdout(std::io::Error),
    #[error("the model could not be loaded: {0}")]
    Loading(String),
    #[error(
        "a worker has been stuck on a frame for {seconds} s (stuck-exit-seconds); to be started again \
         by a supervisor"
    )]
    Stuck { seconds: u64 },
    #[error("not ready: {0}")]
    NotReady(String),
}

impl ServeError {
    /// Exit code, after BSD's `sysexits.h`: 64 usage, 65 bad data, 66 no such input, 69 unavailable,
    /// 70 internal.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotReady(_) => 1,
            Self::File(error) if error.unreadable => 66,
            Self::Config(_) | Self::File(_) => 64,
            Self::Pipeline(PipelineError::Infer(error)) => match error {
                InferError::Unreadable { .. }
                | InferError::Runtime { .. }
                | InferError::NoLabels { .. } => 66,
                InferError::Broken { .. } | InferError::Layout(_) | InferError::Run(_) => 65,
                InferError::Labels(_) | InferError::InputSize(_) | InferError::Batch(_) => 64,
            },
            Self::Bind { .. } => 69,
            Self::Pipeline(_)
            | Self::Transport(_)
            | Self::Runtime(_)
            | Self::Stdout(_)
            | Self::Loading(_)
            | Self::Stuck { .. } => 70,
        }
    }

    /// A bind error with what to do about the usual ones.
    #[must_use]
    pub fn bind(key: &'static str, addr: SocketAddr, error: &std::io::Error) -> Self {
        let reason = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process listens there; stop it or choose another port".into()
            }
            std::io::ErrorKind::PermissionDenied => {
                "not permitted; ports below 1024 need CAP_NET_BIND_SERVICE".into()
            }
            std::io::ErrorKind::AddrNotAvailable => "this machine has no such address".into(),
            _ => error.to_string(),
        };
        Self::Bind { key, addr, reason }
    }
}

/// Why a stream or call is not accepted.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum RefusedStream {
    #[error(transparent)]
    Full(#[from] CamerasFull),
    #[error("camera-id must be 1 to 64 characters of A-Z a-z 0-9 . _ -")]
    BadCameraId,
    #[error("this server is shutting down; connect to another")]
    Draining,
    #[error(
        "this server serves only calls with a token that is valid here: send the metadata \
         `authorization: Bearer TOKEN`, with the one that its operator has given you"
    )]
    Unauthenticated,
    #[error("camera-id \"{camera}\" is not among the cameras of token \"{token}\"")]
    ForbiddenCamera { camera: CameraId, token: String },
    #[error("token \"{token}\" is for certain cameras; name yours in the metadata camera-id")]
    NoCameraId { token: String },
    #[error("all {limit} places for cameras of token \"{token}\" are taken (its max_cameras)")]
    TokenFull { token: String, limit: usize },
}

impl RefusedStream {
    /// The reason under which it is counted.
    #[must_use]
    pub fn reason(&self) -> Refusal {
        match self {
            Self::Full(_) => Refusal::MaxCameras,
            Self::BadCameraId => Refusal::BadCameraId,
            Self::Draining => Refusal::Draining,
            Self::Unauthenticated => Refusal::Unauthenticated,
            Self::ForbiddenCamera { .. } | Self::NoCameraId { .. } => Refusal::PermissionDenied,
            Self::TokenFull { .. } => Refusal::TokenMaxCameras,
        }
    }

    /// Counts the refusal and says so, ever more rarely. `camera` is what the call names as its camera, if
    /// that was looked at.
    pub fn note(
        &self,
        metrics: &Metrics,
        connection: Option<&ConnectionInfo>,
        camera: Option<&dyn fmt::Debug>,
    ) {
        let times = metrics.refused(self.reason());
        if times.is_power_of_two() {
            let peer = connection.map(|info| tracing::field::display(info.peer));
            let camera = camera.map(tracing::field::debug);
            tracing::warn!(camera, peer, times, "{self}");
        }
    }
}

impl From<RefusedStream> for Status {
    fn from(refused: RefusedStream) -> Self {
        let text = refused.to_string();
        match refused {
            RefusedStream::Full(_) | RefusedStream::TokenFull { .. } => {
                Self::resource_exhausted(text)
            }
            RefusedStream::Unauthenticated => Self::unauthenticated(text),
            RefusedStream::ForbiddenCamera { .. } | RefusedStream::NoCameraId { .. } => {
                Self::permission_denied(text)
            }
            RefusedStream::BadCameraId => Self::invalid_argument(text),
            RefusedStream::Draining => Self::unavailable(text),
        }
    }
}

/// Why the server ends a stream that its client would go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// The server is shutting down.
    Draining,
    /// The stream's connection has reached its age.
    Aged,
    /// The stream's token has expired or is not in the token file any more.
    Revoked,
    /// The stream's camera is not among those of its token any more.
    Forbidden,
}

impl Farewell {
    /// The status that ends a stream after the answers to the `accepted` frames.
    #[must_use]
    pub fn status(self, accepted: u64) -> Status {
        let (code, why) = match self {
            Self::Draining => (Code::Unavailable, "this server is shutting down"),
            Self::Aged => (
                Code::Unavailable,
                "this connection has reached its age (max-connection-age-seconds), open a new stream \
                 on a new connection",
            ),
            Self::Revoked => (
                Code::Unauthenticated,
                "this stream's token is not valid any more, open a new stream with another",
            ),
            Self::Forbidden => (
                Code::PermissionDenied,
                "this stream's camera is not among those of its token any more",
            ),
        };
        let text =
            format!("{why}; the server has accepted and answered {accepted} frames of this stream");
        let mut status = Status::new(code, text);
        if let Ok(accepted) = accepted.to_string().parse() {
            status.metadata_mut().insert(ACCEPTED_FRAMES_KEY, accepted);
        }
        status
    }
}

/// The status that ends a stream whose request could not be read.
#[must_use]
pub fn unreadable_request(status: Status) -> Status {
    match status.code() {
        // Tonic reports a message above the limit as OUT_OF_RANGE; the registry of status codes has
        // RESOURCE_EXHAUSTED for it, and every other implementation answers that.
        Code::OutOfRange => Status::resource_exhausted(status.message()),
        _ => status,
    }
}
