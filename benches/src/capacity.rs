//! L: what the machine can do at this moment. Frames per second from picture file to boxes on all
//! cores, in this process, without any network in between: the reference of every other bench.

use std::{
    sync::{
        Arc, Barrier, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use client_sim::source::PictureSet;
use vedette_server::clock;

use crate::{
    apart,
    error::{BenchError, failed},
    machine,
    obvious::Obvious,
    ours::{Model, ModelFiles, Net, Ours, Pipeline},
};

/// Share of a measurement that runs before it counts: caches and clock rates settle.
const WARMUP_SHARE: f64 = 0.15;

/// A session per core, kept over a whole bench.
#[derive(Clone)]
pub struct Capacity {
    nets: Arc<Mutex<Vec<Net>>>,
}

/// Which pipeline runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the modules of the same names say it")]
pub enum Kind {
    Ours,
    Obvious,
}

/// What a measurement gave.
#[derive(Debug, Clone, Copy)]
pub struct Throughput {
    /// Frames per second of all threads together.
    pub fps: f64,
    /// Boxes per frame, which show that two pipelines saw the same.
    pub boxes: f64,
}

/// L right before and right after something.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "named")]
pub struct Bracket {
    pub before: f64,
    pub after: f64,
}

impl Bracket {
    /// The reference of what lay between.
    #[must_use]
    pub fn mean(self) -> f64 {
        f64::midpoint(self.before, self.after)
    }
}

impl Capacity {
    /// Loads the model, a session per core.
    ///
    /// # Errors
    /// When a file is missing or unusable.
    pub async fn load(files: ModelFiles) -> Result<Self, BenchError> {
        apart::run("loading", move || {
            let model = Model::load(files)?;
            let nets = (0..machine::cores()).map(|_| model.net()).collect::<Result<_, _>>()?;
            Ok(Self { nets: Arc::new(Mutex::new(nets)) })
        })
        .await?
    }

    /// Runs a pipeline over the pictures on every core for `length`.
    ///
    /// # Errors
    /// When a picture does not decode or the network does not run.
    pub async fn throughput(
        &self,
        kind: Kind,
        pictures: &PictureSet,
        length: Duration,
    ) -> Result<Throughput, BenchError> {
        let frames: Vec<Bytes> = pictures.pictures().iter().map(|p| p.bytes.clone()).collect();
        let nets = Arc::clone(&self.nets);
        apart::run("capacity", move || {
            let mut nets = nets.lock().unwrap_or_else(PoisonError::into_inner);
            match kind {
                Kind::Ours => on_all_cores::<Ours>(&mut nets, &frames, length),
                Kind::Obvious => on_all_cores::<Obvious>(&mut nets, &frames, length),
            }
        })
        .await?
    }

    /// L, in frames per second.
    ///
    /// # Errors
    /// As [`throughput`](Self::throughput).
    pub async fn fps(&self, pictures: &PictureSet, length: Duration) -> Result<f64, BenchError> {
        self.throughput(Kind::Ours, pictures, length).await.map(|measured| measured.fps)
    }

    /// Takes L, does `work`, which is told L, and takes L again.
    ///
    /// # Errors
    /// Those of the parts.
    pub async fn around<T>(
        &self,
        pictures: &PictureSet,
        length: Duration,
        work: impl AsyncFnOnce(f64) -> Result<T, BenchError>,
    ) -> Result<(T, Bracket), BenchError> {
        let before = self.fps(pictures, length).await?;
        let result = work(before).await?;
        let after = self.fps(pictures, length).await?;
        Ok((result, Bracket { before, after }))
    }

    /// Lends the first core's network, for measurements on one thread.
    pub fn with_net<T>(&self, work: impl FnOnce(&mut Net) -> T) -> Option<T> {
        self.nets.lock().unwrap_or_else(PoisonError::into_inner).first_mut().map(work)
    }
}

/// What one thread has done within the counted part.
struct Done {
    frames: usize,
    boxes: usize,
    busy: Duration,
}

fn on_all_cores<P: Pipeline>(
    nets: &mut [Net],
    frames: &[Bytes],
    length: Duration,
) -> Result<Throughput, BenchError> {
    let (gate, turn) = (Barrier::new(nets.len()), AtomicUsize::new(0));
    let done: Vec<Done> = std::thread::scope(|scope| {
        let threads: Vec<_> = nets
            .iter_mut()
            .map(|net| scope.spawn(|| one_core::<P>(net, frames, length, &gate, &turn)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread.join().map_err(|_| failed("capacity")("a thread panicked")).flatten()
            })
            .collect::<Result<_, _>>()
    })?;
    // Each thread's rate over its own time: the last frame of one does not idle the others.
    let fps = done.iter().map(|done| done.frames as f64 / done.busy.as_secs_f64()).sum();
    let frames: usize = done.iter().map(|done| done.frames).sum();
    let boxes: usize = done.iter().map(|done| done.boxes).sum();
    Ok(Throughput { fps, boxes: boxes as f64 / frames as f64 })
}

fn one_core<P: Pipeline>(
    net: &mut Net,
    frames: &[Bytes],
    length: Duration,
    gate: &Barrier,
    turn: &AtomicUsize,
) -> Result<Done, BenchError> {
    let mut pipeline = P::default();
    let mut frame = || {
        let data = &frames[turn.fetch_add(1, Relaxed) % frames.len()];
        pipeline.detect(net, data)
    };
    gate.wait();
    let begin = clock::now();
    let warm = begin + length.mul_f64(WARMUP_SHARE);
    while clock::now() < warm {
        frame()?;
    }
    let start = clock::now();
    let end = begin + length;
    let mut done = Done { frames: 0, boxes: 0, busy: Duration::ZERO };
    loop {
        done.boxes += frame()?;
        done.frames += 1;
        let now = clock::now();
        if now >= end {
            done.busy = now.saturating_duration_since(start);
            return Ok(done);
        }
    }
}
