//! The operators' port: metrics and probes over HTTP.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    admit::Admission,
    limits::{ACCEPT_PAUSE, ADMIN_CONNECTIONS, ADMIN_IDLE},
    telemetry::metrics::Metrics,
};

/// Content type of Prometheus' text format, version 0.0.4.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone)]
struct Admin {
    admission: Arc<Admission>,
    metrics: Arc<Metrics>,
    drain: CancellationToken,
    stuck: Arc<AtomicBool>,
}

/// Serves `/metrics`, `/healthz` (the process runs) and `/readyz` (503 while shutting down, or while a
/// worker is stuck) until dropped.
pub async fn serve(
    listener: TcpListener,
    admission: Arc<Admission>,
    metrics: Arc<Metrics>,
    drain: CancellationToken,
    stuck: Arc<AtomicBool>,
) {
    let router = Router::new()
        .route("/", get(index))
        .route("/metrics", get(render))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .with_state(Admin { admission, metrics, drain, stuck });
    // Bounded in number and in time, unlike with axum's own loop: whoever may connect here must not take the
    // descriptors that cameras need. All of them end when this does.
    let places = Arc::new(Semaphore::new(ADMIN_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        let Some(socket) = accept(&listener).await else { continue };
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(ADMIN_IDLE)
            .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router.clone()));
        connections.spawn(async move {
            if let Err(error) = serving.await {
                tracing::debug!(%error, "a connection to the admin port ended");
            }
            drop(place);
        });
    }
}

/// The next connection; none when there was an error, after a moment's rest.
async fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept().await {
        Ok((socket, _)) => Some(socket),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection to the admin port");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn index() -> &'static str {
    "vedette-server\n\n/metrics  Prometheus metrics\n/healthz  the process runs\n\
     /readyz   the server takes cameras: it is not shutting down, and no worker is stuck\n"
}

async fn render(State(admin): State<Admin>) -> Result<impl IntoResponse, StatusCode> {
    admin.admission.sample();
    // Apart from the threads that move frames: rendering all histograms takes milliseconds.
    let text = tokio::task::spawn_blocking(move || admin.metrics.render())
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], text))
}

async fn ready(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    if admin.drain.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n")
    } else if admin.stuck.load(Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "a worker is stuck\n")
    } else {
        (StatusCode::OK, "ready\n")
    }
}
