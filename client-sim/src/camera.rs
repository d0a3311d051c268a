//! One camera: sends on its own clock, whatever becomes of the answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, watch};
use tonic::{Status, transport::Channel};
use vedette_proto::camera_ai::{DetectRequest, DetectResponse, PixelFormat};

use crate::{
    clock,
    pacer::Pacer,
    record::{CameraRecord, StreamEnd, camera_id},
    schedule::Schedule,
    source::PictureSet,
    stream,
};

/// How long a stream whose frames are all answered may take to end. Reading on shows answers that
/// should not be there; a server that keeps the stream open does not hold the run up.
const END_PATIENCE: Duration = Duration::from_millis(250);

/// Counters that the progress display reads while cameras run.
#[derive(Debug, Default)]
pub struct Live {
    /// Frames sent, warm-up included.
    pub sent: AtomicU64,
    /// Frames answered, warm-up included.
    pub answered: AtomicU64,
    /// Slowest measured answer so far, in microseconds.
    pub worst_us: AtomicU64,
}

/// What all cameras of a run share.
#[derive(Debug)]
pub struct Fleet {
    /// Who sends when.
    pub schedule: Schedule,
    /// Who wakes them.
    pub pacer: Pacer,
    /// What they send.
    pub pictures: PictureSet,
    /// The schedule's zero.
    pub start: Instant,
    /// The same instant in microseconds since the Unix epoch.
    pub start_unix_us: i64,
    /// Budget of each frame in milliseconds; 0 = the server's default.
    pub budget_ms: u32,
    /// How long after the last frame answers are waited for.
    pub drain: Duration,
    /// Answers slower than this are counted.
    pub slo_max: Duration,
    /// For the progress display.
    pub live: Live,
}

/// Runs camera `index` on `channel` from start to end, or until `stop` turns true; then it sends
/// no more and waits for answers as after its last frame.
pub async fn run(
    fleet: Arc<Fleet>,
    index: u32,
    channel: Channel,
    mut stop: watch::Receiver<bool>,
) -> (CameraRecord, StreamEnd) {
    let (sender, mut answers) = stream::open(channel, &camera_id(index));
    let mut camera = Camera::new(&fleet, index, sender);
    let give_up = clock::sleep_until(camera.intended(fleet.schedule.frames() - 1) + fleet.drain);
    tokio::pin!(give_up);
    loop {
        let event = tokio::select! {
            biased;
            answer = answers.next() => Event::Answer(answer),
            () = fleet.pacer.tick(index), if camera.sending() && !camera.due => Event::Due,
            place = reserve(camera.sender.as_ref()), if camera.due => match place {
                Some(place) => {
                    place.send(fleet.request(index, camera.next));
                    Event::Sent
                }
                None => Event::Refused,
            },
            () = stopped(&mut stop), if camera.sending() => Event::Stop,
            () = &mut give_up => Event::GiveUp,
        };
        let now = clock::now();
        match event {
            Event::Answer(Ok(Some(answer))) => {
                camera.answered(&answer, now);
                if camera.complete() {
                    give_up.as_mut().reset((now + END_PATIENCE).into());
                }
            }
            Event::Answer(Ok(None)) => {
                let whole = camera.complete() && !camera.refused;
                return (camera.record, if whole { StreamEnd::Done } else { StreamEnd::Closed });
            }
            Event::Answer(Err(status)) => return (camera.record, stream::broken(&status)),
            // The tick may be of a frame that went out already, when the camera was late.
            Event::Due => camera.due = camera.intended(camera.next) <= now,
            Event::Sent => {
                camera.sent(now);
                if !camera.sending() {
                    give_up.as_mut().reset((now + fleet.drain).into());
                }
            }
            Event::Refused | Event::Stop => {
                camera.refused |= matches!(event, Event::Refused);
                camera.send_no_more();
                let patience = if camera.complete() { END_PATIENCE } else { fleet.drain };
                give_up.as_mut().reset((now + patience).into());
            }
            Event::GiveUp => {
                let blocked = camera.sending() || camera.refused;
                let end = if blocked { StreamEnd::Blocked } else { StreamEnd::Done };
                return (camera.record, end);
            }
        }
    }
}

/// What a camera can wake up for.
enum Event {
    /// The stream brought an answer or its end.
    Answer(Result<Option<DetectResponse>, Status>),
    /// The instant of a frame has come, most likely the next one's.
    Due,
    /// The next frame went out.
    Sent,
    /// The connection takes no more frames; the answers will say why.
    Refused,
    /// The run was stopped by hand.
    Stop,
    /// Nothing more is waited for.
    GiveUp,
}

/// A camera's state between two events.
struct Camera<'a> {
    fleet: &'a Fleet,
    index: u32,
    record: CameraRecord,
    /// `None` once nothing more will be sent; dropping it half-closes the stream.
    sender: Option<mpsc::Sender<DetectRequest>>,
    /// The next frame to send.
    next: u64,
    /// Whether its instant has come.
    due: bool,
    /// Whether the connection has refused a frame.
    refused: bool,
}

impl<'a> Camera<'a> {
    fn new(fleet: &'a Fleet, index: u32, sender: mpsc::Sender<DetectRequest>) -> Self {
        let record = CameraRecord::new(index, fleet.schedule, fleet.slo_max);
        Self { fleet, index, record, sender: Some(sender), next: 0, due: false, refused: false }
    }

    fn sending(&self) -> bool {
        self.sender.is_some()
    }

    /// Whether nothing is left to be sent or answered.
    fn complete(&self) -> bool {
        !self.sending() && self.record.open() == 0
    }

    fn intended(&self, k: u64) -> Instant {
        self.fleet.start + self.fleet.schedule.intended(self.index, k)
    }

    fn sent(&mut self, now: Instant) {
        let lateness = now.saturating_duration_since(self.intended(self.next));
        self.record.sent(self.next, lateness);
        self.fleet.live.sent.fetch_add(1, Relaxed);
        self.next += 1;
        if self.next == self.fleet.schedule.frames() {
            self.send_no_more();
        } else {
            self.due = self.intended(self.next) <= now;
        }
    }

    fn answered(&mut self, answer: &DetectResponse, now: Instant) {
        let (fleet, index) = (self.fleet, self.index);
        self.record.answered(answer, |k| {
            let intended = fleet.start + fleet.schedule.intended(index, k);
            let latency = now.saturating_duration_since(intended);
            fleet.live.answered.fetch_add(1, Relaxed);
            if !fleet.schedule.is_warmup(k) {
                fleet.live.worst_us.fetch_max(clock::micros(latency), Relaxed);
            }
            latency
        });
    }

    fn send_no_more(&mut self) {
        (self.sender, self.due) = (None, false);
    }
}

/// A place for the next request; `None` when the connection takes no more. Pending without sender.
async fn reserve(
    sender: Option<&mpsc::Sender<DetectRequest>>,
) -> Option<mpsc::Permit<'_, DetectRequest>> {
    match sender {
        Some(sender) => sender.reserve().await.ok(),
        None => std::future::pending().await,
    }
}

/// Ends when the run is to stop; never when nobody can stop it any more.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|&stop| stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Fleet {
    fn request(&self, camera: u32, k: u64) -> DetectRequest {
        let intended_us = clock::micros(self.schedule.intended(camera, k));
        DetectRequest {
            frame_id: k,
            image_data: self.pictures.frame(camera, k),
            format: PixelFormat::Encoded as i32,
            capture_time_us: self.start_unix_us.saturating_add_unsigned(intended_us),
            budget_ms: self.budget_ms,
            ..DetectRequest::default()
        }
    }
}
