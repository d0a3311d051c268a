//! One camera: sends on its own clock, whatever becomes of the answers.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tonic::{Status, transport::Channel};
use vedette_proto::camera_ai::{DetectRequest, DetectResponse, PixelFormat};

use crate::{
    attempts::Attempts,
    balance::Parting,
    clock,
    config::Reconnect,
    heartbeat::{self, QuietTimer},
    pacer::Pacer,
    record::{CameraRecord, camera_id},
    schedule::{Lane, Schedule},
    servers::{Place, Servers},
    source::PictureSet,
    stream::{self, StreamEnd},
    timeline::FleetTimeline,
    token::Token,
};

/// How long a stream whose frames are all answered may take to end. Reading on shows answers that
/// should not be there; a server that keeps the stream open does not hold the run up.
const END_PATIENCE: Duration = Duration::from_millis(250);

/// Counters that are read while cameras run.
#[derive(Debug, Default)]
pub struct Live {
    /// Frames sent, warm-up included.
    pub sent: AtomicU64,
    /// Frames answered, warm-up included.
    pub answered: AtomicU64,
    /// Measured frames answered otherwise than OK.
    pub not_ok: AtomicU64,
    /// Measured OK answers over the limit.
    pub over_slo: AtomicU64,
    /// Slowest measured answer so far, in microseconds.
    pub worst_us: AtomicU64,
    /// Streams that ended early.
    pub broken: AtomicU64,
}

/// What a group's cameras send.
#[derive(Debug)]
pub struct Load {
    /// Its pictures.
    pub pictures: PictureSet,
    /// Budget of each frame in milliseconds; 0 = the server's default.
    pub budget_ms: u32,
}

/// What all cameras of a run share.
#[derive(Debug)]
pub struct Fleet {
    /// Who sends when.
    pub schedule: Arc<Schedule>,
    /// Where they send it.
    pub servers: Arc<Servers>,
    /// What proves them to the server.
    pub token: Option<Token>,
    /// Who wakes them.
    pub pacer: Pacer,
    /// What they send, by group.
    pub loads: Vec<Load>,
    /// The schedule's zero.
    pub start: Instant,
    /// The same instant in microseconds since the Unix epoch.
    pub start_unix_us: i64,
    /// How long after the last frame answers are waited for.
    pub drain: Duration,
    /// Answers slower than this are counted.
    pub slo_max: Duration,
    /// What they do when a stream ends early.
    pub reconnect: Reconnect,
    /// Decides the pauses before that.
    pub seed: u64,
    /// A camera whose open stream has been quiet for this long sends a heartbeat; `None` = never.
    pub heartbeat: Option<Duration>,
    /// Read while they run.
    pub live: Arc<Live>,
    /// The answers by the second. Cameras of several threads write to it, each for less than a
    /// microsecond; a channel to a task of its own would cost more than the lock.
    pub timeline: Mutex<FleetTimeline>,
}

/// Runs camera `index`, which begins at `place`, from start to end, or until `stop` turns true; then it
/// sends no more and waits for answers as after its last frame.
pub async fn run(
    fleet: Arc<Fleet>,
    index: u32,
    mut place: Place,
    mut stop: watch::Receiver<bool>,
) -> (CameraRecord, StreamEnd) {
    let mut camera = Camera::new(&fleet, index);
    loop {
        camera.opens_at(place.server);
        let end = camera.stream(place.channel.clone(), &mut stop).await;
        let how = camera.attempts.ended(&end, fleet.servers.several());
        fleet.servers.parted(place.server, how, clock::now());
        if end != StreamEnd::Done {
            fleet.live.broken.fetch_add(1, Relaxed);
        }
        let back = fleet.reconnect.enabled && end.may_be_mended() && !*stop.borrow();
        if !back || camera.next == camera.lane().frames() {
            return (camera.record, end);
        }
        camera.ended(&end);
        match camera.elsewhere(&place, how, &mut stop).await {
            Some(next) => place = next,
            None => return (camera.record, end),
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
    /// Nothing has been sent for so long that a proxy might take the stream for dead.
    Quiet,
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
    /// How late that was noticed.
    woken_late: Duration,
    /// Whether the connection has refused a frame.
    refused: bool,
    /// Its way back to a server that answers.
    attempts: Attempts,
}

impl<'a> Camera<'a> {
    fn new(fleet: &'a Fleet, index: u32) -> Self {
        let max_gap = fleet.reconnect.max_gap;
        let record = CameraRecord::new(index, fleet.schedule.clone(), fleet.slo_max, max_gap);
        Self {
            fleet,
            index,
            record,
            sender: None,
            next: 0,
            due: false,
            woken_late: Duration::ZERO,
            refused: false,
            attempts: Attempts::default(),
        }
    }

    /// Sends and reads on one stream until it ends or nothing more is waited for.
    async fn stream(&mut self, channel: Channel, stop: &mut watch::Receiver<bool>) -> StreamEnd {
        let fleet = self.fleet;
        let (sender, mut answers) =
            stream::open(channel, &camera_id(self.index), fleet.token.as_ref());
        (self.sender, self.refused) = (Some(sender), false);
        let opened = clock::now();
        self.look(opened);
        let mut quiet = fleet.heartbeat.map(|every| QuietTimer::new(every, opened));
        let last = self.intended(self.lane().frames() - 1);
        let give_up = clock::sleep_until(last + fleet.drain);
        tokio::pin!(give_up);
        loop {
            let event = tokio::select! {
                biased;
                answer = answers.next() => Event::Answer(answer),
                () = fleet.pacer.tick(self.index), if self.sending() && !self.due => Event::Due,
                place = reserve(self.sender.as_ref()), if self.due => match place {
                    Some(place) => {
                        place.send(fleet.request(self.index, self.next));
                        Event::Sent
                    }
                    None => Event::Refused,
                },
                () = silence(quiet.as_mut()), if self.sending() && !self.due => Event::Quiet,
                () = stopped(stop), if self.sending() => Event::Stop,
                () = &mut give_up => Event::GiveUp,
            };
            let now = clock::now();
            match event {
                Event::Answer(Ok(Some(answer))) => {
                    self.answered(&answer, now);
                    if self.complete() {
                        give_up.as_mut().reset((now + END_PATIENCE).into());
                    }
                }
                Event::Answer(Ok(None)) => {
                    let whole = self.complete() && !self.refused;
                    return if whole { StreamEnd::Done } else { StreamEnd::Closed };
                }
                Event::Answer(Err(status)) => return stream::broken(&status),
                // The tick may be of a frame that went out already, when the camera was late.
                Event::Due => self.look(now),
                Event::Sent => {
                    self.sent(now);
                    if let Some(timer) = &mut quiet {
                        timer.sent(now);
                    }
                    if !self.sending() {
                        give_up.as_mut().reset((now + fleet.drain).into());
                    }
                }
                Event::Quiet => {
                    self.heartbeat();
                    if let Some(timer) = &mut quiet {
                        timer.sent(now);
                    }
                }
                Event::Refused | Event::Stop => {
                    self.refused |= matches!(event, Event::Refused);
                    self.send_no_more();
                    let patience = if self.complete() { END_PATIENCE } else { fleet.drain };
                    give_up.as_mut().reset((now + patience).into());
                }
                Event::GiveUp => {
                    let blocked = self.sending() || self.refused;
                    return if blocked { StreamEnd::Blocked } else { StreamEnd::Done };
                }
            }
        }
    }

    /// The next stream is on `server`.
    fn opens_at(&mut self, server: usize) {
        self.attempts.opens_at(server);
        self.record.stream_opens(server);
    }

    /// The stream ended early, and another one will be opened.
    fn ended(&mut self, end: &StreamEnd) {
        self.record.stream_ended(end, self.offset(clock::now()), self.next);
        self.send_no_more();
    }

    /// Where the next stream goes, after a pause if all servers have been tried. `None` when there is
    /// nothing left to send, or the run was stopped.
    async fn elsewhere(
        &mut self,
        last: &Place,
        how: Parting,
        stop: &mut watch::Receiver<bool>,
    ) -> Option<Place> {
        loop {
            // A camera shows what is now; what came due meanwhile is gone.
            let now = clock::now();
            self.next = self.lane().due(self.offset(now));
            if self.next == self.lane().frames() {
                return None;
            }
            let servers = &self.fleet.servers;
            let place = servers.choose(self.index, last, how, self.attempts.tried(), now);
            if place.is_some() {
                return place;
            }
            let pause = self.attempts.pause(self.fleet.seed, self.index, self.next);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stopped(stop) => return None,
            }
        }
    }

    fn lane(&self) -> &'a Lane {
        self.fleet.schedule.lane(self.index)
    }

    fn sending(&self) -> bool {
        self.sender.is_some()
    }

    /// Whether nothing is left to be sent or answered.
    fn complete(&self) -> bool {
        !self.sending() && self.record.open() == 0
    }

    fn intended(&self, k: u64) -> Instant {
        self.fleet.start + self.lane().intended(k)
    }

    fn offset(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.fleet.start)
    }

    /// Looks whether the next frame is due.
    fn look(&mut self, now: Instant) {
        let intended = self.intended(self.next);
        self.due = intended <= now;
        self.woken_late = now.saturating_duration_since(intended);
    }

    fn sent(&mut self, now: Instant) {
        let (offset, woken_late) = (self.offset(now), self.woken_late);
        self.record.sent(self.next, offset, woken_late);
        self.fleet.live.sent.fetch_add(1, Relaxed);
        self.next += 1;
        if self.next == self.lane().frames() {
            self.send_no_more();
        } else {
            self.look(now);
            // Late because the connection was full, or because the camera was late already.
            self.woken_late = self.woken_late.min(woken_late);
        }
    }

    /// Sends a heartbeat if the connection takes one at once. Otherwise it still has the last frame,
    /// and a heartbeat behind that would only be in the next frame's way.
    fn heartbeat(&mut self) {
        let Some(Ok(place)) = self.sender.as_ref().map(mpsc::Sender::try_reserve) else { return };
        place.send(heartbeat::request(self.record.heartbeat_sent()));
    }

    fn answered(&mut self, answer: &DetectResponse, now: Instant) {
        if self.attempts.answered() {
            self.fleet.servers.answered(self.attempts.server());
        }
        if heartbeat::is_heartbeat(answer.frame_id) {
            self.record.heartbeat_answered(answer);
            return;
        }
        let offset = self.offset(now);
        let live = &self.fleet.live;
        live.answered.fetch_add(1, Relaxed);
        let Some(measured) = self.record.answered(answer, offset) else { return };
        live.worst_us.fetch_max(clock::micros(measured.latency), Relaxed);
        live.not_ok.fetch_add(u64::from(!measured.ok), Relaxed);
        let over = measured.ok && measured.latency > self.fleet.slo_max;
        live.over_slo.fetch_add(u64::from(over), Relaxed);
        let timeline = self.fleet.timeline.lock();
        timeline.unwrap_or_else(PoisonError::into_inner).add(measured, answer.times.as_ref());
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

/// Ends when a heartbeat is due. Pending without timer.
async fn silence(timer: Option<&mut QuietTimer>) {
    match timer {
        Some(timer) => timer.quiet().await,
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
        let lane = self.schedule.lane(camera);
        let load = &self.loads[lane.group()];
        let intended_us = clock::micros(lane.intended(k));
        DetectRequest {
            capture_time_us: self.start_unix_us.saturating_add_unsigned(intended_us),
            budget_ms: load.budget_ms,
            ..request(k, load.pictures.frame(camera, k))
        }
    }
}

/// A picture file as frame `k`.
pub(crate) fn request(k: u64, image_data: Bytes) -> DetectRequest {
    DetectRequest {
        frame_id: k,
        image_data,
        format: PixelFormat::Encoded as i32,
        ..DetectRequest::default()
    }
}
