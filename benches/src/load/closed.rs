//! Frames per second: streams that send their next frame when the last one is answered.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use client_sim::source::PictureSet;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use vedette_proto::camera_ai::Outcome;
use vedette_server::clock;

use super::{Connections, DRAIN, broken, channels, open, request};
use crate::error::{BenchError, failed};

/// Streams that send their next frame when the last one is answered.
#[derive(Debug, Clone)]
pub struct ClosedLoop {
    /// Where to.
    pub addr: SocketAddr,
    /// Streams, each with one frame under way.
    pub streams: u32,
    /// How they connect.
    pub connections: Connections,
    /// What they send.
    pub pictures: PictureSet,
    /// How long they send before it counts.
    pub warmup: Duration,
    /// How long it counts.
    pub length: Duration,
}

/// What a closed loop gave.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedResult {
    /// Frames answered OK per second of the counted part.
    pub fps: f64,
    /// Frames answered OK in it.
    pub ok: u64,
    /// Frames answered otherwise.
    pub other: u64,
    /// The counted part.
    pub span: Duration,
}

impl ClosedLoop {
    /// Runs it.
    ///
    /// # Errors
    /// When a stream breaks.
    pub async fn run(self) -> Result<ClosedResult, BenchError> {
        self.run_marked(|| {}).await
    }

    /// Runs it, and calls `mark` when the counted part begins and when it ends.
    ///
    /// # Errors
    /// When a stream breaks.
    pub async fn run_marked(self, mut mark: impl FnMut()) -> Result<ClosedResult, BenchError> {
        let channels = channels(self.addr, self.streams, self.connections).await?;
        let counts = Arc::new(Counts::default());
        let mut streams = JoinSet::new();
        for (camera, channel) in (0..).zip(channels) {
            streams.spawn(ping_pong(channel, camera, self.pictures.clone(), Arc::clone(&counts)));
        }
        let count = async {
            tokio::time::sleep(self.warmup).await;
            mark();
            let (start, before) = (clock::now(), counts.read());
            tokio::time::sleep(self.length).await;
            let (end, after) = (clock::now(), counts.read());
            mark();
            (end.saturating_duration_since(start), after.0 - before.0, after.1 - before.1)
        };
        let (span, ok, other) = tokio::select! {
            counted = count => counted,
            ended = streams.join_next() => return Err(ended_early(ended)),
        };
        counts.stop.store(true, Relaxed);
        // Each stream ends with its last answer; one that hangs has answered nothing for long.
        let _ = tokio::time::timeout(DRAIN, streams.join_all()).await;
        Ok(ClosedResult { fps: ok as f64 / span.as_secs_f64(), ok, other, span })
    }
}

type Ended = Option<Result<Result<(), BenchError>, tokio::task::JoinError>>;

fn ended_early(ended: Ended) -> BenchError {
    match ended {
        Some(Ok(Err(error))) => error,
        _ => failed("a stream broke")("the server ended it"),
    }
}

/// What all streams of a closed loop count together.
#[derive(Debug, Default)]
struct Counts {
    ok: AtomicU64,
    other: AtomicU64,
    stop: AtomicBool,
}

impl Counts {
    fn read(&self) -> (u64, u64) {
        (self.ok.load(Relaxed), self.other.load(Relaxed))
    }
}

async fn ping_pong(
    channel: Channel,
    camera: u32,
    pictures: PictureSet,
    counts: Arc<Counts>,
) -> Result<(), BenchError> {
    let (frames, queue) = mpsc::channel(1);
    let mut answers =
        open(channel, &format!("closed-{camera}"), ReceiverStream::new(queue)).await?;
    for frame_id in 0.. {
        if counts.stop.load(Relaxed)
            || frames.send(request(frame_id, &pictures, camera)).await.is_err()
        {
            break;
        }
        let Some(answer) = answers.message().await.map_err(broken)? else { break };
        let counter = if answer.outcome() == Outcome::Ok { &counts.ok } else { &counts.other };
        counter.fetch_add(1, Relaxed);
    }
    Ok(())
}
