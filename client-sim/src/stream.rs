//! One `DetectStream` from the client's side.

use std::{fmt, future::Future, pin::Pin};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Response, Status, Streaming, metadata::MetadataValue, transport::Channel};
use vedette_proto::{
    ACCEPTED_FRAMES_KEY, CAMERA_ID_KEY,
    camera_ai::{DetectRequest, DetectResponse, object_detection_client::ObjectDetectionClient},
};

use crate::{
    balance::Parting,
    connect::{MAX_ANSWER_BYTES, code_name},
    token::Token,
};

/// Requests between a camera and its HTTP/2 connection. One, so that a frame counts as sent only
/// when the connection has taken the one before it; a full place makes the next frame late, and
/// that shows as send lateness and in its latency.
pub const OUTBOUND_CAPACITY: usize = 1;

type Opening =
    Pin<Box<dyn Future<Output = Result<Response<Streaming<DetectResponse>>, Status>> + Send>>;

/// The answers of a stream.
///
/// A server may wait for the first frame before it opens its side, so opening is part of reading.
pub struct Answers {
    state: State,
}

enum State {
    Opening(Opening),
    Open(Box<Streaming<DetectResponse>>),
    Ended,
}

/// Starts a stream for the camera named `camera_id` on `channel`. Nothing is sent until the answers
/// are polled.
#[must_use]
pub fn open(
    channel: Channel,
    camera_id: &str,
    token: Option<&Token>,
) -> (mpsc::Sender<DetectRequest>, Answers) {
    let (sender, receiver) = mpsc::channel(OUTBOUND_CAPACITY);
    let mut request = tonic::Request::new(ReceiverStream::new(receiver));
    if let Ok(value) = MetadataValue::try_from(camera_id) {
        request.metadata_mut().insert(CAMERA_ID_KEY, value);
    }
    if let Some(token) = token {
        token.authorize(&mut request);
    }
    let opening = async move {
        ObjectDetectionClient::new(channel)
            .max_decoding_message_size(MAX_ANSWER_BYTES)
            .detect_stream(request)
            .await
    };
    (sender, Answers { state: State::Opening(Box::pin(opening)) })
}

impl Answers {
    /// The next answer; `Ok(None)` once the server has ended the stream. May be dropped and called
    /// again without losing an answer.
    pub async fn next(&mut self) -> Result<Option<DetectResponse>, Status> {
        loop {
            match &mut self.state {
                State::Opening(opening) => match opening.await {
                    Ok(response) => self.state = State::Open(Box::new(response.into_inner())),
                    Err(status) => {
                        self.state = State::Ended;
                        return Err(status);
                    }
                },
                State::Open(stream) => {
                    let message = stream.message().await;
                    if !matches!(message, Ok(Some(_))) {
                        self.state = State::Ended;
                    }
                    return message;
                }
                State::Ended => return Ok(None),
            }
        }
    }
}

/// The end of a stream that broke with `status`.
#[must_use]
pub fn broken(status: &Status) -> StreamEnd {
    let accepted = (status.code() == Code::Unavailable)
        .then(|| status.metadata().get(ACCEPTED_FRAMES_KEY)?.to_str().ok()?.parse().ok())
        .flatten();
    StreamEnd::Broken {
        code: code_name(status.code()).to_owned(),
        message: status.message().to_owned(),
        accepted,
    }
}

/// How a camera's stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEnd {
    /// Everything was sent and either answered or waited for in vain.
    Done,
    /// The server ended the stream without an error before everything was sent and answered.
    Closed,
    /// The transport took no more frames until the time was up.
    Blocked,
    /// The stream broke.
    Broken {
        /// gRPC status, as in `UNAVAILABLE`.
        code: String,
        /// The status message.
        message: String,
        /// Frames read by a server that announced its shutdown.
        accepted: Option<u64>,
    },
}

impl StreamEnd {
    /// How many of the stream's frames a server that shut down says it had read.
    pub(crate) fn accepted(&self) -> Option<u64> {
        match self {
            Self::Broken { accepted, .. } => *accepted,
            _ => None,
        }
    }
}

/// What a server of this project names when it ends a stream because of its connection's age
/// (docs/connections.md).
const AGED: &str = "max-connection-age-seconds";

/// Status codes after which another stream would end in the same way.
const FOR_GOOD: [&str; 5] =
    ["UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "INVALID_ARGUMENT", "NOT_FOUND"];

impl StreamEnd {
    /// Whether this tool's own side gave the stream up, as it does with one that it put on a connection
    /// after the server had said that it would close it.
    pub(crate) fn never_began(&self) -> bool {
        matches!(self, Self::Broken { code, .. } if code == code_name(Code::Cancelled))
    }

    /// What the end says about the server.
    #[must_use]
    pub fn parting(&self) -> Parting {
        match self {
            Self::Done | Self::Blocked => Parting::Done,
            Self::Broken { message, accepted: Some(_), .. } if message.contains(AGED) => {
                Parting::Aged
            }
            Self::Closed | Self::Broken { .. } => Parting::Failed,
        }
    }

    /// Whether another stream may do better.
    #[must_use]
    pub fn may_be_mended(&self) -> bool {
        match self {
            Self::Done | Self::Blocked => false,
            Self::Closed => true,
            Self::Broken { code, .. } => !FOR_GOOD.contains(&code.as_str()),
        }
    }
}

/// What [`StreamEnd::Done`] is called in reports.
pub const COMPLETE: &str = "complete";

impl fmt::Display for StreamEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str(COMPLETE),
            Self::Closed => f.write_str("the server ended the stream"),
            Self::Blocked => f.write_str("the connection took no more frames"),
            // The server's words hold each stream's own count; without them streams group together.
            Self::Broken { code, accepted: Some(_), .. } => write!(f, "{code}: server shut down"),
            Self::Broken { code, message, .. } => write!(f, "{code}: {}", message.trim()),
        }
    }
}
