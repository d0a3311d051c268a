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
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use arc_swap::ArcSwap;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select};

use crate::{
    admit::Admission,
    clock,
    config::{BackendConfig, Config},
    infer::{InferError, ModelInfo, onnx::OnnxModel},
    reload::Reload,
    supervision::Watch,
    telemetry::metrics::Metrics,
    worker::Engine,
};

/// Why the pipeline cannot start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PipelineError {
    #[error(transparent)]
    Infer(#[from] InferError),
    #[error("workers: cannot start {workers} threads: {reason}")]
    Threads { workers: usize, reason: String },
}

/// The running workers and their way in.
pub struct Pipeline {
    /// Where streams register and offer frames.
    pub admission: Arc<Admission>,
    /// What is served.
    pub model: Arc<ArcSwap<ModelInfo>>,
    /// Since when the workers have been on their frames.
    pub watch: Arc<Watch>,
    next: Arc<NextEngines>,
    /// Dropped, it ends the workers' loops.
    stop: Sender<Infallible>,
    /// Disconnected once the last worker has let go of its engine.
    ended: Receiver<Infallible>,
    pool: rayon::ThreadPool,
}

impl Pipeline {
    /// Loads the model, if any, and starts the workers.
    ///
    /// # Errors
    /// With one line that names the setting to change.
    pub fn start(config: &Config, metrics: &Arc<Metrics>) -> Result<Self, PipelineError> {
        let (model, engines) = engines(config, metrics, config.frames.workers)?;
        metrics.describe_model(&model);
        Self::with_engines(config.net.max_cameras, model, engines, metrics)
    }

    /// What replaces the model while the workers run.
    #[must_use]
    pub fn reloader(&self, config: Config, metrics: Arc<Metrics>) -> ModelReloader {
        let (model, next) = (Arc::clone(&self.model), Arc::clone(&self.next));
        ModelReloader { config, metrics, model, next }
    }

    fn with_engines(
        max_cameras: usize,
        model: Arc<ModelInfo>,
        engines: Vec<Engine>,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, PipelineError> {
        let workers = engines.len();
        metrics.set_workers(workers);
        let (admission, woken) = Admission::new(max_cameras, Arc::clone(metrics));
        // These two carry nothing: the other side only watches for their end.
        let (stop, stopped) = bounded(0);
        let (alive, ended) = bounded(0);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(workers)
            .thread_name(|index| format!("worker-{index}"))
            // Frames are computed under catch_unwind; this is for what that does not cover.
            .panic_handler(|_| tracing::error!("a worker ended by a panic"))
            .build()
            .map_err(|error| threads(workers, &error))?;
        let watch = Arc::new(Watch::new(workers, clock::now()));
        let next = Arc::new(NextEngines::default());
        // Locked once by each thread, at its start.
        let engines = Mutex::new(engines);
        let context = Context {
            admission: Arc::clone(&admission),
            woken,
            stopped,
            workers,
            watch: Arc::clone(&watch),
            next: Arc::clone(&next),
            metrics: Arc::clone(metrics),
            _alive: alive,
        };
        pool.spawn_broadcast(move |broadcast| {
            let engine = engines.lock().unwrap_or_else(PoisonError::into_inner).pop();
            if let Some(engine) = engine {
                context.work(engine, broadcast.index());
            }
        });
        let model = Arc::new(ArcSwap::new(model));
        Ok(Self { admission, model, watch, next, stop, ended, pool })
    }

    /// Ends the workers once they have finished what they hold, and waits for that as long as `most`.
    pub fn stop(self, most: Duration) {
        drop(self.stop);
        if self.ended.recv_timeout(most) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("a worker is still computing; leaving it");
        }
        drop(self.pool);
    }
}

/// Engines with another model, for workers to change to between two frames.
#[derive(Default)]
struct NextEngines {
    /// Grows with each change. Written under the lock, so that it tells which engines are there; read
    /// without, before each frame.
    change: AtomicU64,
    // A lock because engines are made on one thread and fetched by others: once per worker and change.
    engines: Mutex<Vec<Engine>>,
}

impl NextEngines {
    fn put(&self, new: Vec<Engine>) {
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        *engines = new;
        self.change.fetch_add(1, Ordering::Release);
    }

    /// The engine to change to, if there was a change since the one that the worker has seen.
    fn fetch(&self, seen: &mut u64) -> Option<Engine> {
        if self.change.load(Ordering::Acquire) == *seen {
            return None;
        }
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = self.change.load(Ordering::Acquire);
        engines.pop()
    }
}

/// Loads the model anew, and lets the workers change to it.
pub struct ModelReloader {
    config: Config,
    metrics: Arc<Metrics>,
    model: Arc<ArcSwap<ModelInfo>>,
    next: Arc<NextEngines>,
}

impl ModelReloader {
    /// Reads and tries out the model as at the start. Each worker changes to it before its next frame; if
    /// it is of no use, all go on with the one they have. Takes seconds; not for a thread that moves frames.
    ///
    /// # Errors
    /// As [`Pipeline::start`].
    pub fn reload(&self) -> Result<Arc<ModelInfo>, PipelineError> {
        // On this thread alone: the workers need the other cores.
        let result = engines(&self.config, &self.metrics, 1);
        let counters = &self.metrics.model_reloads;
        if result.is_ok() { &counters.ok } else { &counters.failed }.increment(1);
        let (model, engines) = result?;
        self.metrics.describe_model(&model);
        self.model.store(Arc::clone(&model));
        self.next.put(engines);
        Ok(model)
    }
}

impl Reload for ModelReloader {
    /// Changes are not looked for: a model that is half-written is worse than an old one, and being told costs
    /// whoever replaces it a signal.
    fn look(&self) {}

    fn reload(&self) {
        match self.reload() {
            Ok(model) => tracing::info!(model = model.name, "the model was read again"),
            Err(error) => tracing::error!("{error}; going on with the model as it was"),
        }
    }
}

/// An engine for each worker, made on so many threads at a time.
fn engines(
    config: &Config,
    metrics: &Arc<Metrics>,
    at_once: usize,
) -> Result<(Arc<ModelInfo>, Vec<Engine>), PipelineError> {
    let limits = config.frames.limits;
    let workers = config.frames.workers;
    let faults = config.faults;
    if let BackendConfig::Spin(duration) = config.backend {
        let info = Arc::new(ModelInfo {
            name: "spin".into(),
            backend: "spin",
            input: (0, 0),
            labels: Vec::new(),
        });
        let engines = (0..workers)
            .map(|_| Engine::spin(Arc::clone(&info), duration, limits, faults, Arc::clone(metrics)))
            .collect();
        return Ok((info, engines));
    }
    let model = OnnxModel::load(&config.model)?;
    let model = Arc::new(model);
    let engine = || {
        let network = model.network()?;
        let (model, metrics) = (Arc::clone(&model), Arc::clone(metrics));
        let frames = (limits, config.frames.jpeg);
        Ok(Engine::onnx(model, network, config.detect, frames, faults, metrics))
    };
    // Several at the same time: each warms its network up, which one after the other would take long on
    // many cores.
    let mut engines = Vec::with_capacity(workers);
    while engines.len() < workers {
        let more = at_once.min(workers - engines.len());
        let made = thread::scope(|scope| {
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, engine);
            let loading = (0..more).map(spawn).collect::<Result<Vec<_>, _>>();
            let loading = loading.map_err(|error| threads(workers, &error))?;
            loading.into_iter().map(join).collect::<Result<Vec<_>, PipelineError>>()
        })?;
        engines.extend(made);
    }
    Ok((Arc::new(model.info.clone()), engines))
}

fn threads(workers: usize, error: &dyn std::error::Error) -> PipelineError {
    PipelineError::Threads { workers, reason: error.to_string() }
}

/// A scoped thread's result; its panic goes on here.
fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// What every worker shares.
struct Context {
    admission: Arc<Admission>,
    woken: Receiver<()>,
    stopped: Receiver<Infallible>,
    workers: usize,
    watch: Arc<Watch>,
    next: Arc<NextEngines>,
    metrics: Arc<Metrics>,
    _alive: Sender<Infallible>,
}

impl Context {
    /// A worker's life: sleeps until a frame waits, takes it only when it can start it at once.
    fn work(&self, mut engine: Engine, worker: usize) {
        let mut taken = Vec::with_capacity(engine.batch());
        let mut seen = 0;
        loop {
            select! {
                recv(self.woken) -> woken => if woken.is_err() { return },
                recv(self.stopped) -> _ => return,
            }
            if let Some(next) = self.next.fetch(&mut seen) {
                engine = next;
            }
            let mut begun = None;
            let result = catch_unwind(AssertUnwindSafe(|| {
                let now = clock::now();
                let most = self.share(engine.batch());
                self.admission.take(most, now, &mut taken);
                if !taken.is_empty() {
                    begun = Some(now);
                    self.watch.begin(worker, now);
                    engine.process(&mut taken);
                }
            }));
            self.watch.end(worker);
            if let Some(begun) = begun {
                let now = clock::now();
                self.metrics.fleet.busy(now.saturating_duration_since(begun), now);
            }
            if result.is_err() {
                // The frames' tickets answer INTERNAL as they are dropped.
                taken.clear();
                self.metrics.worker_panics.increment(1);
                tracing::error!("a panic while computing a frame; the worker goes on");
                engine.recover();
            }
        }
    }

    /// Frames to take at once: a batch, but not so many that other workers go without.
    fn share(&self, batch: usize) -> usize {
        if batch == 1 {
            return 1;
        }
        self.admission.waiting().div_ceil(self.workers).clamp(1, batch)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::sync::mpsc;
    use vedette_proto::camera_ai as pb;

    use super::*;
    use crate::{
        admit::Frame,
        frame::{FrameId, Layout, Picture, Timing},
        response::Ticket,
    };

    #[test]
    fn a_panic_costs_its_frame_and_nothing_else() {
        let metrics = Arc::new(Metrics::new());
        let info =
            ModelInfo { name: "test".into(), backend: "spin", input: (0, 0), labels: Vec::new() };
        let pipeline = Pipeline::with_engines(4, Arc::new(info), vec![Engine::Panics], &metrics)
            .expect("starts");
        let camera = pipeline.admission.register(None).expect("a place");
        let (replies, mut queue) = mpsc::channel(4);
        // The second frame is only answered if the worker has survived the first.
        for id in [1, 2] {
            let timing = Timing {
                received: clock::now(),
                budget: Duration::from_mins(1),
                captured_us: None,
            };
            let place = replies.clone().try_reserve_owned().expect("room");
            let stream = Arc::clone(&camera.stream);
            let ticket = Ticket::new(FrameId(id), timing, place, stream, Arc::clone(&metrics));
            let picture = Picture { data: Bytes::from_static(b"x"), layout: Layout::Encoded };
            pipeline.admission.offer(camera.key(), Frame { picture, ticket });
            let answer = queue.blocking_recv().expect("an answer").expect("no status");
            assert_eq!((answer.frame_id, answer.outcome()), (id, pb::Outcome::Internal));
        }
        drop(camera);
        pipeline.stop(Duration::from_mins(1));
        let text = metrics.render();
        assert!(text.contains("vedette_worker_panics_total 2"), "{text}");
        assert_eq!(metrics.frame_accounts(), (2, 2));
    }
}
