//! The wiring: threads, channels and the order of the stages. Only this file knows the arrangement.
//!
//! ```text
//! stream tasks -> Admission (a waiting place per camera) -> wake-up tokens (crossbeam-channel)
//!     -> workers (a rayon pool, one frame or batch at a time from decode to answer each)
//!     -> the stream's reserved reply place
//! ```
//!
//! The stages of a frame run to completion on one worker. More CPU-bound threads than cores is what
//! makes the slowest answers slow; ARCHITECTURE.md has the measurements.

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use crossbeam_channel::{Receiver, Sender, bounded, select};

use crate::{
    admit::Admission,
    clock,
    config::{BackendConfig, Config},
    decode::DecodeError,
    infer::{InferError, ModelInfo, onnx::OnnxModel},
    telemetry::metrics::Metrics,
    worker::Engine,
};

/// Why the pipeline cannot start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PipelineError {
    #[error(transparent)]
    Infer(#[from] InferError),
    #[error("decoder: {0}")]
    Decoder(#[from] DecodeError),
    #[error("workers: cannot start {workers} threads: {reason}")]
    Threads { workers: usize, reason: String },
}

/// The running workers and their way in.
pub struct Pipeline {
    /// Where streams register and offer frames.
    pub admission: Arc<Admission>,
    /// What is served.
    pub model: Arc<ModelInfo>,
    /// Dropped, it ends the workers' loops.
    _stop: Sender<Infallible>,
    /// Dropped after `_stop`; its threads end once their loops have.
    _pool: rayon::ThreadPool,
}

impl Pipeline {
    /// Loads the model, if any, and starts the workers.
    ///
    /// # Errors
    /// With one line that names the setting to change.
    pub fn start(config: &Config, metrics: &Arc<Metrics>) -> Result<Self, PipelineError> {
        let (model, engines) = engines(config, metrics)?;
        metrics.describe_model(&model);
        let workers = engines.len();
        metrics.workers.set(workers as f64);
        let (admission, woken) = Admission::new(config.net.max_cameras, Arc::clone(metrics));
        // Carries nothing: workers only watch for its end.
        let (stop, stopped) = bounded(0);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(workers)
            .thread_name(|index| format!("worker-{index}"))
            // Frames are computed under catch_unwind; this is for what that does not cover.
            .panic_handler(|_| tracing::error!("a worker ended by a panic"))
            .build()
            .map_err(|error| PipelineError::Threads { workers, reason: error.to_string() })?;
        // Locked once by each thread, at its start.
        let engines = Mutex::new(engines);
        let context = Context {
            admission: Arc::clone(&admission),
            woken,
            stopped,
            metrics: Arc::clone(metrics),
        };
        pool.spawn_broadcast(move |_| {
            let engine = engines.lock().unwrap_or_else(PoisonError::into_inner).pop();
            if let Some(engine) = engine {
                context.work(engine);
            }
        });
        Ok(Self { admission, model, _stop: stop, _pool: pool })
    }
}

fn engines(
    config: &Config,
    metrics: &Arc<Metrics>,
) -> Result<(Arc<ModelInfo>, Vec<Engine>), PipelineError> {
    let limits = config.frames.limits;
    let workers = config.frames.workers;
    if let BackendConfig::Spin(duration) = config.backend {
        let info = Arc::new(ModelInfo {
            name: "spin".into(),
            backend: "spin",
            input: (0, 0),
            labels: Vec::new(),
        });
        let engines = (0..workers)
            .map(|_| Engine::spin(Arc::clone(&info), duration, limits, Arc::clone(metrics)))
            .collect::<Result<_, _>>()?;
        return Ok((info, engines));
    }
    let model = OnnxModel::load(&config.model)?;
    if model.labels_made_up {
        tracing::warn!(
            model = model.info.name,
            classes = model.info.labels.len(),
            "the model names no classes; they are called class_0 and so on (--labels names them)"
        );
    }
    let model = Arc::new(model);
    let engines = (0..workers)
        .map(|_| {
            let network = model.network()?;
            let model = Arc::clone(&model);
            Ok(Engine::onnx(model, network, config.detect, limits, Arc::clone(metrics))?)
        })
        .collect::<Result<_, PipelineError>>()?;
    Ok((Arc::new(model.info.clone()), engines))
}

/// What every worker shares.
struct Context {
    admission: Arc<Admission>,
    woken: Receiver<()>,
    stopped: Receiver<Infallible>,
    metrics: Arc<Metrics>,
}

impl Context {
    /// A worker's life: sleeps until a frame waits, takes it only when it can start it at once.
    fn work(&self, mut engine: Engine) {
        let mut taken = Vec::with_capacity(engine.batch());
        loop {
            select! {
                recv(self.woken) -> woken => if woken.is_err() { return },
                recv(self.stopped) -> _ => return,
            }
            self.admission.take(engine.batch(), clock::now(), &mut taken);
            if taken.is_empty() {
                continue;
            }
            let result = catch_unwind(AssertUnwindSafe(|| engine.process(&mut taken)));
            if result.is_err() {
                // The frames' tickets answered INTERNAL as they were dropped.
                self.metrics.worker_panics.increment(1);
                tracing::error!("a panic while computing a frame; the worker goes on");
                taken.clear();
                engine.recover();
            }
        }
    }
}
