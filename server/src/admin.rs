//! The operators' port: metrics, probes and the live page over HTTP. There is nothing to change on it.

mod live;
mod page;
mod preview;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use arc_swap::ArcSwap;
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

pub use preview::Preview;

use crate::{
    admit::Admission,
    infer::ModelInfo,
    limits::{ACCEPT_PAUSE, ADMIN_CONNECTIONS, ADMIN_IDLE},
    telemetry::metrics::Metrics,
};

/// Content type of Prometheus' text format, version 0.0.4.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What operators get to see.
#[derive(Clone)]
#[expect(missing_docs, reason = "the parts are documented")]
pub struct Admin {
    pub admission: Arc<Admission>,
    pub model: Arc<ArcSwap<ModelInfo>>,
    pub metrics: Arc<Metrics>,
    /// Cancelled while shutting down.
    pub drain: CancellationToken,
    /// Set while a worker is stuck.
    pub stuck: Arc<AtomicBool>,
    /// `None`: nobody sees pictures.
    pub preview: Option<Preview>,
    /// Connections of open pages.
    pub viewers: Arc<Semaphore>,
    pub workers: usize,
    pub max_cameras: usize,
}

impl Admin {
    /// Why no cameras are taken; `None` while they are.
    fn not_ready(&self) -> Option<&'static str> {
        if self.drain.is_cancelled() {
            Some("shutting down")
        } else {
            self.stuck.load(Relaxed).then_some("a worker is stuck")
        }
    }
}

/// Serves the live page, `/metrics`, `/healthz` (the process runs) and `/readyz` (503 while shutting down, or
/// while a worker is stuck) until dropped.
pub async fn serve(listener: TcpListener, admin: Admin) {
    let router = Router::new()
        .route("/metrics", get(render))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .merge(page::routes())
        .merge(live::routes())
        .merge(preview::routes())
        .with_state(admin);
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

async fn render(State(admin): State<Admin>) -> Result<impl IntoResponse, StatusCode> {
    admin.admission.sample();
    // Apart from the threads that move frames: rendering all histograms takes milliseconds.
    let text = tokio::task::spawn_blocking(move || admin.metrics.render())
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], text))
}

async fn ready(State(admin): State<Admin>) -> (StatusCode, String) {
    match admin.not_ready() {
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        None => (StatusCode::OK, "ready\n".to_owned()),
    }
}
