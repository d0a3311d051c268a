//! Latency: cameras that send on their own clock, with every answer on record.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use client_sim::source::PictureSet;
use tokio::{sync::mpsc, task::JoinSet, time::timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use vedette_proto::camera_ai::{DetectRequest, DetectResponse, Outcome};
use vedette_server::clock;

use super::{Connections, DRAIN, broken, channels, open, request};
use crate::{
    error::{BenchError, failed, io_error},
    stats,
};

/// Time between connecting and the first frame, for every task to be waiting by then.
const START_LEAD: Duration = Duration::from_millis(50);

/// Cameras that send on their own clock, whatever becomes of the answers.
#[derive(Debug, Clone)]
pub struct OpenLoop {
    /// Where to.
    pub addr: SocketAddr,
    /// Cameras, their frames spread evenly over a period.
    pub cameras: u32,
    /// Frames per second of each.
    pub fps: f64,
    /// How they connect.
    pub connections: Connections,
    /// What they send.
    pub pictures: PictureSet,
    /// How long they send before it counts.
    pub warmup: Duration,
    /// How long it counts.
    pub length: Duration,
    /// How long they go on sending afterwards: under overload the last frames of all are replaced by
    /// none, wait for their turn, and get older than any before.
    pub cooldown: Duration,
}

/// An answer of the counted part.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// Which camera's.
    pub camera: u32,
    /// When its frame should have left, from the beginning of the counted part.
    pub due: Duration,
    /// From then until the answer was here, in milliseconds.
    pub latency_ms: f64,
    /// What became of it.
    pub outcome: Outcome,
}

/// What an open loop gave.
#[derive(Debug, Clone, Default)]
pub struct OpenResult {
    /// Frames of the counted part.
    pub due: u64,
    /// Its answers.
    pub answers: Vec<Answered>,
    /// Frames of all parts that were not answered.
    pub unanswered: u64,
}

impl OpenResult {
    /// Answers with this outcome.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> usize {
        self.answers.iter().filter(|answer| answer.outcome == outcome).count()
    }

    /// Latencies of OK answers in milliseconds.
    #[must_use]
    pub fn ok_ms(&self) -> Vec<f64> {
        let ok = self.answers.iter().filter(|answer| answer.outcome == Outcome::Ok);
        ok.map(|answer| answer.latency_ms).collect()
    }

    /// The latency that this share (0.0 to 1.0) of the OK answers do not exceed, in milliseconds; NaN
    /// without any.
    #[must_use]
    pub fn ok_percentile(&self, share: f64) -> f64 {
        stats::percentile(&self.ok_ms(), share).unwrap_or(f64::NAN)
    }
}

impl OpenLoop {
    /// When a frame of a camera is due, from the first frame of all.
    fn due(&self, camera: u32, frame: u64) -> Duration {
        let phase = f64::from(camera) / f64::from(self.cameras);
        Duration::from_secs_f64((frame as f64 + phase) / self.fps)
    }

    /// Frames of each camera in this much time.
    fn frames(&self, time: Duration) -> u64 {
        (time.as_secs_f64() * self.fps).round() as u64
    }

    /// Runs it.
    ///
    /// # Errors
    /// When a stream cannot be opened or breaks.
    pub async fn run(self) -> Result<OpenResult, BenchError> {
        let plan = Arc::new(self);
        let frames =
            plan.frames(plan.warmup) + plan.frames(plan.length) + plan.frames(plan.cooldown);
        let channels = channels(plan.addr, plan.cameras, plan.connections).await?;
        let (mut senders, mut streams) = (Vec::new(), Vec::new());
        for (camera, channel) in (0..).zip(channels) {
            // Room for the whole run, so that a connection that takes no more holds up no clock.
            let (sender, queue) = mpsc::channel(frames.max(1) as usize);
            let name = format!("open-{camera}");
            streams.push(open(channel, &name, ReceiverStream::new(queue)).await?);
            senders.push(sender);
        }
        let start = clock::now() + START_LEAD;
        let end = start + plan.due(0, frames) + DRAIN;
        let mut cameras = JoinSet::new();
        for (camera, answers) in (0..).zip(streams) {
            cameras.spawn(answers_of(Arc::clone(&plan), camera, answers, start, end));
        }
        let pacing = Arc::clone(&plan);
        std::thread::Builder::new()
            .name("pacer".to_owned())
            .spawn(move || pace(&pacing, &senders, frames, start))
            .map_err(io_error("the pacer"))?;
        let due = plan.frames(plan.length) * u64::from(plan.cameras);
        let unanswered = frames * u64::from(plan.cameras);
        let mut result = OpenResult { due, answers: Vec::new(), unanswered };
        while let Some(camera) = cameras.join_next().await {
            let (counted, answers) = camera.map_err(failed("a camera's task"))??;
            result.answers.extend(counted);
            result.unanswered -= answers;
        }
        Ok(result)
    }
}

/// Hands each frame to its camera's stream when it is due. A thread, because the runtime's timers are
/// up to a millisecond late. The streams end with its return.
fn pace(plan: &OpenLoop, senders: &[mpsc::Sender<DetectRequest>], frames: u64, start: Instant) {
    for frame in 0..frames {
        for (camera, sender) in (0..).zip(senders) {
            let due = start + plan.due(camera, frame);
            std::thread::sleep(due.saturating_duration_since(clock::now()));
            // A stream that broke shows in its answers.
            let _ = sender.try_send(request(frame, &plan.pictures, camera));
        }
    }
}

/// Reads a camera's answers until its stream ends or `end` has come. Returns those of the counted part,
/// and how many there were in all.
async fn answers_of(
    plan: Arc<OpenLoop>,
    camera: u32,
    mut stream: Streaming<DetectResponse>,
    start: Instant,
    end: Instant,
) -> Result<(Vec<Answered>, u64), BenchError> {
    let warmup = plan.frames(plan.warmup);
    let counted = warmup..warmup + plan.frames(plan.length);
    let (mut answers, mut all) = (Vec::new(), 0);
    while let Ok(answer) = timeout_at(end.into(), stream.message()).await {
        let Some(answer) = answer.map_err(broken)? else { break };
        all += 1;
        let due = plan.due(camera, answer.frame_id);
        let latency = clock::now().saturating_duration_since(start + due);
        if counted.contains(&answer.frame_id) {
            answers.push(Answered {
                camera,
                due: due.saturating_sub(plan.due(0, warmup)),
                latency_ms: latency.as_secs_f64() * 1e3,
                outcome: answer.outcome(),
            });
        }
    }
    Ok((answers, all))
}
