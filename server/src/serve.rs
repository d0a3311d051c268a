//! A server's life: bind, start the workers, serve, drain, end.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use sd_notify::NotifyState;
use tokio::{net::TcpListener, sync::Semaphore, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tonic::{server::NamedService, service::interceptor::InterceptedService, transport::Server};
use tonic_health::{ServingStatus, server::HealthReporter};
use vedette_proto::{
    FILE_DESCRIPTOR_SET, camera_ai::object_detection_server::ObjectDetectionServer,
};

use crate::{
    admin::{self, Admin, Preview},
    admit::Admission,
    auth::{Gate, Holders, OperatorToken},
    config::{Config, ConnectionConfig, SecurityConfig},
    connection,
    error::ServeError,
    exposure,
    infer::ModelInfo,
    ingress::Ingress,
    intake::{FrameMemory, MessageLimits, Metered},
    limits::{
        GRACE_RESERVE, LIVE_VIEWERS, METADATA_BYTES, STRANGERS_MESSAGE_BYTES, UPKEEP, message_bytes,
    },
    memory,
    pipeline::Pipeline,
    reload::{Reload, Reloader},
    settings::ConfigError,
    supervision::{Supervisor, set_status, tell_supervisor},
    telemetry::{metrics::Metrics, traces::Traces},
    tls,
};

type Service = ObjectDetectionServer<Ingress>;

/// How often the drain looks whether the last stream has ended.
const DRAIN_POLL: Duration = Duration::from_millis(10);

/// A server that serves.
pub struct Running {
    /// Where cameras connect.
    pub addr: SocketAddr,
    /// Where operators connect.
    pub admin_addr: SocketAddr,
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    /// Reads again what may change while it serves.
    pub reloader: Reloader,
    admission: Arc<Admission>,
    pipeline: Pipeline,
    health: HealthReporter,
    /// Cancelled, streams are read no further and end once their frames are answered.
    drain: CancellationToken,
    /// Cancelled, connections close once their streams have ended.
    close: CancellationToken,
    grace: Duration,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
    /// Ends when a worker is lost, with the time for which it has been stuck.
    supervisor: JoinHandle<Duration>,
    helpers: Vec<JoinHandle<()>>,
}

/// What is read from the files that [`Config`] names, and again when they change.
struct Secrets {
    tls: Option<Arc<tls::Tls>>,
    tokens: Option<Arc<Holders>>,
    operators: Option<Arc<OperatorToken>>,
}

impl Secrets {
    fn load(config: &Config, metrics: &Arc<Metrics>) -> Result<Self, ServeError> {
        let SecurityConfig { tls, token_file, .. } = &config.net.security;
        let operators = config.operators.preview.as_deref();
        Ok(Self {
            tls: tls.as_ref().map(|files| tls::load(files, metrics)).transpose()?,
            tokens: token_file.as_deref().map(|path| Holders::load(path, metrics)).transpose()?,
            operators: operators.map(|path| OperatorToken::load(path, metrics)).transpose()?,
        })
    }
}

/// The metrics, and where they tell of single cameras and frames.
fn metrics(config: &Config) -> Result<Metrics, ServeError> {
    let metrics = Metrics::new();
    metrics.fleet.set_most_series(config.operators.camera_series);
    if let Some(traces) = &config.operators.traces {
        let traces = Traces::new(traces)
            .map_err(|reason| ConfigError(format!("otlp_endpoint: {reason}")))?;
        // These metrics are new.
        let _ = metrics.traces.set(traces);
    }
    Ok(metrics)
}

/// Binds both ports, loads the model, starts the workers and serves.
///
/// # Errors
/// With one line that says what to change.
pub async fn start(config: Config) -> Result<Running, ServeError> {
    let metrics = Arc::new(metrics(&config)?);
    let Secrets { tls, tokens, operators } = Secrets::load(&config, &metrics)?;
    // The ports first: a port that is taken is reported before seconds of loading.
    let listener = bind("addr", config.net.addr).await?;
    let admin_listener = bind("admin_addr", config.net.admin_addr).await?;
    let addr = local(&listener, config.net.addr);
    let admin_addr = local(&admin_listener, config.net.admin_addr);

    let pipeline = load(&config, &metrics).await?;
    let admission = Arc::clone(&pipeline.admission);
    let (drain, close) = (CancellationToken::new(), CancellationToken::new());
    let (health, health_service) = tonic_health::server::health_reporter();
    // Strangers may call it, so it must not hold much for them.
    let health_service = health_service.max_decoding_message_size(STRANGERS_MESSAGE_BYTES);
    set_status::<Service>(&health, ServingStatus::Serving).await;

    let exposures = exposure::of(&config.net, rustix::process::geteuid().is_root());
    let messages = MessageLimits {
        bytes: message_bytes(config.frames.limits.max_bytes),
        time: config.frames.message_time,
        calls: config.net.max_cameras,
    };
    let grace = config.net.grace;
    let model = Arc::new(pipeline.reloader(config.clone(), Arc::clone(&metrics)));
    let parts: [Option<Arc<dyn Reload>>; 4] = [
        tls.clone().map(|tls| tls as _),
        tokens.clone().map(|tokens| tokens as _),
        operators.clone().map(|token| token as _),
        Some(model),
    ];
    let reloader = Reloader::new(parts.into_iter().flatten().collect());
    let supervisor = Supervisor {
        watch: Arc::clone(&pipeline.watch),
        config: config.supervision,
        health: health.clone(),
        metrics: Arc::clone(&metrics),
        stuck: Arc::new(AtomicBool::new(false)),
    };
    let workers = config.frames.workers;
    let admin = Admin {
        admission: Arc::clone(&admission),
        model: Arc::clone(&pipeline.model),
        metrics: Arc::clone(&metrics),
        drain: drain.clone(),
        stuck: Arc::clone(&supervisor.stuck),
        preview: operators.map(|token| Preview::new(token, config.frames.limits)),
        viewers: Arc::new(Semaphore::new(LIVE_VIEWERS)),
        workers,
        max_cameras: config.net.max_cameras,
    };
    let connections = config.net.connections;
    let reflection = config.net.reflection.then(reflection_service);
    let memory = FrameMemory::new(config.frames.memory_bytes, metrics.frame_memory.clone());
    let ingress = Ingress::new(
        Arc::clone(&admission),
        Arc::clone(&pipeline.model),
        config,
        drain.clone(),
        Arc::clone(&memory),
        Arc::clone(&metrics),
    );
    let service = Service::new(ingress).max_decoding_message_size(messages.bytes);
    let service = Metered::new(service, memory, messages);
    let gate = Gate::new(tokens, Arc::clone(&metrics));
    let serving = {
        let close = close.clone();
        let router = http2(&connections)
            .add_service(InterceptedService::new(service, gate))
            .add_service(health_service)
            .add_optional_service(reflection);
        let incoming = connection::incoming(listener, tls, &connections, &metrics);
        tokio::spawn(async move {
            router.serve_with_incoming_shutdown(incoming, close.cancelled_owned()).await
        })
    };
    metrics.ready.set(1.0);
    let helpers = vec![
        tokio::spawn(admin::serve(admin_listener, admin)),
        tokio::spawn(upkeep(Arc::clone(&metrics))),
        tokio::spawn(reloader.clone().watch()),
    ];
    let supervisor = tokio::spawn(supervisor.run::<Service>());
    log_start(addr, admin_addr, &pipeline.model.load(), workers);
    for exposure in exposures {
        tracing::warn!("{exposure} (SECURITY.md)");
    }
    Ok(Running {
        addr,
        admin_addr,
        metrics,
        reloader,
        admission,
        pipeline,
        health,
        drain,
        close,
        grace,
        serving,
        supervisor,
        helpers,
    })
}

fn log_start(addr: SocketAddr, admin_addr: SocketAddr, model: &ModelInfo, workers: usize) {
    tracing::info!(
        %addr,
        %admin_addr,
        model = model.name,
        backend = model.backend,
        input = format_args!("{}x{}", model.input.0, model.input.1),
        workers,
        "serving"
    );
}

/// Loads the model and starts the workers, on a thread that may take its time.
async fn load(config: &Config, metrics: &Arc<Metrics>) -> Result<Pipeline, ServeError> {
    let (config, metrics) = (config.clone(), Arc::clone(metrics));
    tokio::task::spawn_blocking(move || Pipeline::start(&config, &metrics))
        .await
        .map_err(|error| ServeError::Loading(error.to_string()))?
        .map_err(ServeError::from)
}

impl Running {
    /// Serves until `stop` resolves, then drains: no new streams, every frame in hand answered, and
    /// back within the grace time whatever the peers do.
    ///
    /// # Errors
    /// When the gRPC server fails while serving, or, after a drain, when a worker is stuck for good.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        let lost = tokio::select! {
            ended = &mut self.serving => return transport_result(ended),
            stuck = &mut self.supervisor => Some(ServeError::Stuck {
                seconds: stuck.unwrap_or_default().as_secs(),
            }),
            () = stop => None,
        };
        self.supervisor.abort();
        tell_supervisor(NotifyState::Stopping);
        let cameras = self.admission.cameras();
        tracing::info!(cameras, grace = ?self.grace, "shutting down");
        self.metrics.ready.set(0.0);
        set_status::<Service>(&self.health, ServingStatus::NotServing).await;
        self.drain.cancel();

        let deadline = tokio::time::sleep(self.grace.saturating_sub(GRACE_RESERVE));
        tokio::pin!(deadline);
        let drained = async {
            while self.admission.cameras() > 0 {
                tokio::time::sleep(DRAIN_POLL).await;
            }
            // Watchers of the health service would keep their connections open for ever.
            self.health.clear_service_status("").await;
            self.health.clear_service_status(<Service as NamedService>::NAME).await;
            self.close.cancel();
            transport_result((&mut self.serving).await)
        };
        let ended = tokio::select! {
            ended = drained => ended,
            () = &mut deadline => {
                let cameras = self.admission.cameras();
                tracing::warn!(cameras, "the grace time is up; leaving peers that do not end");
                Ok(())
            }
        };
        self.serving.abort();
        self.helpers.iter().for_each(JoinHandle::abort);
        // A computation that was abandoned may still run; it is not waited for beyond the grace time.
        let pipeline = self.pipeline;
        let traces = self.metrics.traces.get().cloned();
        let stopping = tokio::task::spawn_blocking(move || {
            pipeline.stop(GRACE_RESERVE / 2);
            if let Some(traces) = traces {
                traces.end();
            }
        });
        let _ = stopping.await;
        let (received, accounted) = self.metrics.frame_accounts();
        tracing::info!(received, accounted, "stopped");
        lost.map_or(ended, Err)
    }
}

/// The HTTP/2 server. What it does not know of, [`connection::incoming`] does.
///
/// Floods of resets and of errors stay at h2's own limits, which are tight: a connection ends with the 21st
/// stream that is reset before it has been looked at, and with the 1025th that h2 itself had to refuse. A
/// gateway in order comes near neither.
fn http2(config: &ConnectionConfig) -> Server {
    let server = Server::builder()
        .initial_stream_window_size(config.stream_window_bytes)
        .initial_connection_window_size(config.connection_window_bytes)
        .max_frame_size(config.frame_bytes)
        .max_concurrent_streams(config.max_streams)
        .http2_max_header_list_size(METADATA_BYTES)
        .http2_keepalive_interval(config.keepalive)
        .http2_keepalive_timeout(Some(config.keepalive_timeout));
    match config.age {
        // Tonic's grace stays unset: with it, tonic 0.14 sends no GOAWAY at the age but cuts after the
        // grace. Ours is kept by the connection.
        Some(limit) => server.max_connection_age(limit.age),
        None => server,
    }
}

async fn bind(key: &'static str, addr: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(addr).await.map_err(|error| ServeError::bind(key, addr, &error))
}

fn local(listener: &TcpListener, asked: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(asked)
}

fn transport_result(
    ended: Result<Result<(), tonic::transport::Error>, tokio::task::JoinError>,
) -> Result<(), ServeError> {
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(ServeError::Transport(error.to_string())),
        Err(error) => Err(ServeError::Transport(error.to_string())),
    }
}

fn reflection_service() -> tonic_reflection::server::v1::ServerReflectionServer<
    impl tonic_reflection::server::v1::ServerReflection,
> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptor set was written by the compiler of this build")
        .max_decoding_message_size(STRANGERS_MESSAGE_BYTES)
}

async fn upkeep(metrics: Arc<Metrics>) {
    let mut tick = tokio::time::interval(UPKEEP);
    loop {
        tick.tick().await;
        let metrics = Arc::clone(&metrics);
        let jobs = move || {
            metrics.upkeep();
            memory::give_back();
        };
        let _ = tokio::task::spawn_blocking(jobs).await;
    }
}
