//! Connections to the server, and what it says about itself.

use std::{error::Error, sync::Arc, time::Duration};

use tokio::{sync::Semaphore, task::JoinSet};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use vedette_proto::camera_ai::{
    ServerInfo, ServerInfoRequest, object_detection_client::ObjectDetectionClient,
};

use crate::{
    clock, config::Target, error::SimError, report::schema::ServerFigures, tls, token::Token,
};

/// Pause between attempts to connect, so that a server that is still starting is waited for.
const CONNECT_RETRY: Duration = Duration::from_millis(200);

/// Largest answer taken, in bytes. Answers hold boxes, not pictures; 16 MiB is 100,000 of them.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Time between two HTTP/2 PINGs to a server from which nothing else comes.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

/// How long the answer to a PING may take before the connection counts as dead.
const KEEPALIVE_PATIENCE: Duration = Duration::from_secs(3);

/// Connections being opened at the same time; a fleet that knocks all at once overflows the
/// backlog of the server's listening socket, and refused SYNs cost a second each.
const CONNECTING_AT_ONCE: usize = 16;

/// How to reach the server.
pub fn endpoint(target: &Target) -> Result<Endpoint, SimError> {
    let addr = &target.addr;
    let endpoint = Endpoint::from_shared(addr.uri())
        .map_err(|error| SimError::Address { addr: addr.to_string(), why: root_cause(&error) })?;
    // A token that cannot be read is found before anything is connected.
    Token::of(target)?;
    let endpoint = match tls::config(target)? {
        Some(config) => endpoint.tls_config(config).map_err(|error| tls_refused(target, &error))?,
        None => endpoint,
    };
    Ok(endpoint
        .tcp_nodelay(true)
        .connect_timeout(target.connect)
        .http2_keep_alive_interval(KEEPALIVE_EVERY)
        .keep_alive_timeout(KEEPALIVE_PATIENCE))
}

/// Why what the flags name cannot be used for TLS.
fn tls_refused(target: &Target, error: &tonic::transport::Error) -> SimError {
    tls::explain(target, error).unwrap_or_else(|| {
        let why = format!("{}; check --tls-ca, --tls-cert and --tls-key", root_cause(error));
        SimError::Tls { addr: target.addr.to_string(), why }
    })
}

/// Opens one connection, trying again for as long as the target allows.
pub async fn connect(endpoint: &Endpoint, target: &Target) -> Result<Channel, SimError> {
    let deadline = clock::now() + target.connect;
    let unreachable = |why| SimError::Unreachable { addr: target.addr.to_string(), why };
    loop {
        let attempt = tokio::time::timeout_at(deadline.into(), endpoint.connect()).await;
        match attempt {
            Ok(Ok(channel)) => return Ok(channel),
            Ok(Err(error)) => {
                // Waiting does not mend a certificate.
                if let Some(error) = tls::explain(target, &error) {
                    return Err(error);
                }
                if clock::now() + CONNECT_RETRY >= deadline {
                    return Err(unreachable(root_cause(&error)));
                }
            }
            Err(_) => return Err(unreachable("timed out".to_owned())),
        }
        tokio::time::sleep(CONNECT_RETRY).await;
    }
}

/// Opens `count` connections.
pub async fn connect_many(
    endpoint: &Endpoint,
    target: &Target,
    count: u32,
) -> Result<Vec<Channel>, SimError> {
    let at_once = Arc::new(Semaphore::new(CONNECTING_AT_ONCE));
    let mut connecting = JoinSet::new();
    for _ in 0..count {
        let (at_once, endpoint, target) = (at_once.clone(), endpoint.clone(), target.clone());
        connecting.spawn(async move {
            // The semaphore is never closed, so a permit always comes.
            let _permit = at_once.acquire().await.ok();
            connect(&endpoint, &target).await
        });
    }
    let mut channels = Vec::with_capacity(connecting.len());
    while let Some(joined) = connecting.join_next().await {
        channels.push(joined??);
    }
    Ok(channels)
}

/// Asks the server what it runs. `None` when it does not say within the target's patience, as older servers of
/// the same contract do not; an error when whatever listens there is not a gRPC server.
pub async fn server_info(
    channel: Channel,
    target: &Target,
) -> Result<Option<ServerInfo>, SimError> {
    let mut client =
        ObjectDetectionClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
    let mut request = tonic::Request::new(ServerInfoRequest {});
    if let Some(token) = Token::of(target)? {
        token.authorize(&mut request);
    }
    let addr = || target.addr.to_string();
    match tokio::time::timeout(target.connect, client.get_server_info(request)).await {
        Ok(Ok(info)) => Ok(Some(info.into_inner())),
        Ok(Err(status)) if status.code() == Code::Unauthenticated => {
            Err(SimError::Unauthenticated { addr: addr(), why: status.message().trim().to_owned() })
        }
        Ok(Err(status)) if is_not_grpc(&status) => {
            let explained = tls::explain(target, &status);
            Err(explained.unwrap_or_else(|| {
                let why = format!("{}{}", status_cause(&status), tls_hint(target));
                SimError::NotGrpc { addr: addr(), why }
            }))
        }
        Ok(Err(_)) | Err(_) => Ok(None),
    }
}

/// A status that the transport made up because the peer's bytes or HTTP answers made no sense.
fn is_not_grpc(status: &Status) -> bool {
    status.source().is_some() && status.code() != Code::Unimplemented
}

/// What TLS may have to do with a peer that makes no sense.
fn tls_hint(target: &Target) -> String {
    if !target.addr.tls() {
        format!("; if it uses TLS, say --addr https://{}", target.addr)
    } else if target.credentials.cert.is_none() {
        "; if it wants a client certificate, give --tls-cert and --tls-key".to_owned()
    } else {
        String::new()
    }
}

fn status_cause(status: &Status) -> String {
    status.source().map_or_else(|| status.message().to_owned(), root_cause)
}

/// The innermost error's text: the part that people can act on.
#[must_use]
pub fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The name of a status code as the gRPC specification writes it.
#[must_use]
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

impl From<ServerInfo> for ServerFigures {
    fn from(info: ServerInfo) -> Self {
        Self {
            version: info.version,
            model: info.model,
            backend: info.backend,
            input_width: info.input_width,
            input_height: info.input_height,
            classes: info.labels.len(),
            max_frame_bytes: info.max_frame_bytes,
            max_pixels: info.max_pixels,
            max_cameras: info.max_cameras,
            budget_ms: info.budget_ms,
            confidence: info.confidence,
            iou: info.iou,
            workers: info.workers,
        }
    }
}
