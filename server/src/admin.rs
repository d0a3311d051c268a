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
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{admit::Admission, telemetry::metrics::Metrics};

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
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the admin port failed");
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
