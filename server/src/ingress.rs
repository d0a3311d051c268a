//! The gRPC service: reads frames off streams, gives each its place in the reply queue, and hands it
//! to admission. Tokio tasks only; nothing here computes.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming, metadata::MetadataMap};
use vedette_proto::{
    CAMERA_ID_KEY,
    camera_ai::{
        DetectRequest, DetectResponse, ServerInfo, ServerInfoRequest,
        object_detection_server::ObjectDetection,
    },
};

use crate::{
    admit::{Admission, Frame, Registration},
    auth::{Bearer, Seat, Standing},
    clock,
    config::Config,
    connection::ConnectionInfo,
    error::{Farewell, RefusedStream, unreadable_request},
    frame::{CameraId, FrameId, Outcome, Picture, Timing},
    infer::ModelInfo,
    intake::{Arrival, FrameMemory, Intake},
    limits::{DRAIN_READ, REPLY_QUEUE_FRAMES},
    pace::{Pace, SharedPace},
    rate::{Limiter, Quota},
    response::{Answer, Progress, Reply, StreamState, Ticket},
    schedule::CameraKey,
    telemetry::{
        fleet::Attendance,
        metrics::{Metrics, Refusal},
        traces,
    },
    worker::refuse,
};

/// The `camera_ai.ObjectDetection` service.
pub struct Ingress {
    shared: Arc<Shared>,
}

struct Shared {
    admission: Arc<Admission>,
    model: Arc<ArcSwap<ModelInfo>>,
    config: Config,
    drain: CancellationToken,
    memory: Arc<FrameMemory>,
    // A lock because the readers of all streams share it; held for an addition.
    shedding: Mutex<SharedPace>,
    metrics: Arc<Metrics>,
    reply_queue: usize,
}

impl Ingress {
    /// The service in front of these workers. Once `drain` is cancelled it takes nothing new.
    #[must_use]
    pub fn new(
        admission: Arc<Admission>,
        model: Arc<ArcSwap<ModelInfo>>,
        config: Config,
        drain: CancellationToken,
        memory: Arc<FrameMemory>,
        metrics: Arc<Metrics>,
    ) -> Self {
        // A lone camera can have a frame or batch with every worker, one waiting, and one in reading.
        let in_hand = config.frames.workers * config.model.batch + 2;
        let reply_queue = REPLY_QUEUE_FRAMES.max(in_hand);
        let shedding = Mutex::default();
        let shared =
            Shared { admission, model, config, drain, memory, shedding, metrics, reply_queue };
        Self { shared: Arc::new(shared) }
    }
}

impl Shared {
    /// Takes in the camera of a stream or call. With tokens, it also has a seat among those of its holder.
    fn register(&self, call: &Call<'_>) -> Result<(Registration, Option<Seat>), RefusedStream> {
        let named = call.metadata.get(CAMERA_ID_KEY);
        let name = named.and_then(|value| value.to_str().ok()).and_then(CameraId::parse);
        let registering = || {
            if self.drain.is_cancelled() {
                return Err(RefusedStream::Draining);
            }
            if named.is_some() && name.is_none() {
                return Err(RefusedStream::BadCameraId);
            }
            let seat = call.bearer.map(|bearer| bearer.seat(name.as_ref())).transpose()?;
            Ok((self.admission.register(name.clone())?, seat))
        };
        let registered = registering().inspect_err(|error: &RefusedStream| {
            error.note(&self.metrics, call.connection, Some(&named));
        })?;
        if self.metrics.traces.get().is_some()
            && let Some(parent) = traces::parent(call.metadata.as_ref())
        {
            registered.0.stream.continue_trace(parent);
        }
        Ok(registered)
    }

    /// Lets operators see the camera of a stream, or of a single call.
    fn attend(&self, registration: &Registration, call: bool) -> Attendance {
        let stream = &registration.stream;
        let attendance = self.metrics.fleet.join(&stream.camera, call, clock::now());
        stream.show_to_operators(attendance.camera());
        attendance
    }

    /// What frames are counted against that come by a stream of its own (`calls` is `None`), or by single
    /// calls, which are limited together.
    fn quota(&self, call: &Call<'_>, calls: Option<&OnceLock<Arc<Limiter>>>) -> Quota {
        let limiter = |max_fps| Arc::new(Limiter::new("max-fps", Some(max_fps)));
        let own = self.config.net.security.max_fps.map(|max_fps| match calls {
            Some(calls) => Arc::clone(calls.get_or_init(|| limiter(max_fps))),
            None => limiter(max_fps),
        });
        Quota::new(own.into_iter().chain(call.bearer.map(Bearer::rate)))
    }

    /// When a stream is ended because of its connection's age.
    fn retire_at(&self, connection: Option<&ConnectionInfo>, key: CameraKey) -> Option<Instant> {
        let limit = self.config.net.connections.age?;
        Some(connection?.accepted + limit.stream_end(key))
    }

    fn frame(
        &self,
        request: DetectRequest,
        place: mpsc::OwnedPermit<Reply>,
        stream: &Arc<StreamState>,
    ) -> Frame {
        let budget = match request.budget_ms {
            0 => self.config.frames.budget,
            ms => Duration::from_millis(ms.into()),
        };
        let captured_us = (request.capture_time_us > 0).then_some(request.capture_time_us);
        let timing = Timing { received: clock::now(), budget, captured_us };
        let id = FrameId(request.frame_id);
        let ticket = Ticket::new(id, timing, place, Arc::clone(stream), Arc::clone(&self.metrics));
        Frame { picture: Picture::from_request(request), ticket }
    }

    /// Takes in a request that came as `arrival` says: offers its frame, unless there is none to compute.
    /// Then it is answered here and does not take the place of a good frame that waits. Tells of what
    /// use it was to have read it so early.
    fn accept(
        &self,
        request: DetectRequest,
        arrival: Arrival,
        place: mpsc::OwnedPermit<Reply>,
        registration: (CameraKey, &Arc<StreamState>),
    ) -> Use {
        let (key, stream) = registration;
        let heartbeat = request.heartbeat;
        let mut frame = self.frame(request, place, stream);
        match arrival {
            _ if heartbeat => {
                frame.ticket.answer(Outcome::Heartbeat, Answer::default());
                Use::None(None)
            }
            Arrival::Whole(memory) => {
                frame.ticket.hold(memory);
                self.admit(key, frame)
            }
            Arrival::Shed(bytes) => {
                let mut shedding = self.shedding.lock().unwrap_or_else(PoisonError::into_inner);
                let pause = shedding.pause_after(bytes, clock::now());
                drop(shedding);
                let detail = format!(
                    "MEMORY: no room for {bytes} bytes beside the frames in hand \
                     (frame-memory-bytes, {})",
                    self.memory.limit()
                );
                let answer = Answer::refusal(detail, &Progress::default());
                frame.ticket.answer(Outcome::Overloaded, answer);
                Use::None(Some(pause))
            }
        }
    }

    /// Offers a frame, unless it came too soon or is no picture at first sight.
    fn admit(&self, key: CameraKey, frame: Frame) -> Use {
        if let Err(over) = frame.ticket.check_rate(clock::now()) {
            let answer = Answer::refusal(over.to_string(), &Progress::default());
            frame.ticket.answer(Outcome::Overloaded, answer);
            return Use::None(None);
        }
        if let Err(error) = self.config.frames.limits.check(&frame.picture) {
            refuse(frame.ticket, &error, &Progress::default(), &self.metrics);
            return Use::None(None);
        }
        let replaced = self.admission.offer(key, frame);
        if replaced { Use::None(None) } else { Use::Waits }
    }
}

#[tonic::async_trait]
impl ObjectDetection for Ingress {
    type DetectStreamStream = ReplyStream;

    async fn detect_stream(
        &self,
        request: Request<Streaming<DetectRequest>>,
    ) -> Result<Response<ReplyStream>, Status> {
        let call = Call::of(&request);
        let (registration, seat) = self.shared.register(&call)?;
        registration.stream.limit(self.shared.quota(&call, None));
        let attendance = self.shared.attend(&registration, false);
        call.log(&registration.stream.camera);
        let retire_at = self.shared.retire_at(call.connection, registration.key());
        // Bounded by places reserved before a frame is read: a client that does not read its answers
        // is not read from either, and holds up nobody else.
        let (replies, queue) = mpsc::channel(self.shared.reply_queue);
        let reader = Reader {
            shared: Arc::clone(&self.shared),
            intake: intake(request.extensions()),
            inbound: request.into_inner(),
            replies,
            key: registration.key(),
            stream: Arc::clone(&registration.stream),
            retire_at,
            standing: seat.as_ref().map(Seat::standing),
            accepted: 0,
        };
        tokio::spawn(reader.run());
        Ok(Response::new(ReplyStream {
            queue,
            _registration: registration,
            _seat: seat,
            _attendance: attendance,
        }))
    }

    async fn detect(
        &self,
        request: Request<DetectRequest>,
    ) -> Result<Response<DetectResponse>, Status> {
        let call = Call::of(&request);
        let (registration, _seat) = self.shared.register(&call)?;
        // One that has no name would be another camera with each call.
        let named = call.metadata.contains_key(CAMERA_ID_KEY);
        let _attendance = named.then(|| self.shared.attend(&registration, true));
        let calls = call.connection.map(|connection| &*connection.calls);
        registration.stream.limit(self.shared.quota(&call, calls));
        let (replies, mut queue) = mpsc::channel(1);
        let place =
            replies.try_reserve_owned().map_err(|_| Status::internal("a new queue has no room"))?;
        let arrival = intake(request.extensions()).arrived();
        let camera = (registration.key(), &registration.stream);
        let useless = call.connection.map(|connection| Arc::clone(&connection.useless_calls));
        let request = request.into_inner();
        let bytes = request.image_data.len();
        if let Use::None(pause) = self.shared.accept(request, arrival, place, camera) {
            let pause = pause.or_else(|| {
                let useless = useless?;
                let mut useless = useless.lock().unwrap_or_else(PoisonError::into_inner);
                Some(useless.pause_after(bytes as u64, clock::now()))
            });
            tokio::time::sleep(pause.unwrap_or_default()).await;
        }
        let reply = queue.recv().await.ok_or_else(|| Status::internal("the frame was lost"))?;
        reply.map(Response::new)
    }

    async fn get_server_info(
        &self,
        _: Request<ServerInfoRequest>,
    ) -> Result<Response<ServerInfo>, Status> {
        let Shared { model, config, .. } = &*self.shared;
        let model = model.load();
        Ok(Response::new(ServerInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            model: model.name.clone(),
            backend: model.backend.into(),
            input_width: model.input.0,
            input_height: model.input.1,
            labels: model.labels.clone(),
            max_frame_bytes: config.frames.limits.max_bytes as u64,
            max_pixels: config.frames.limits.max_pixels,
            max_cameras: config.net.max_cameras as u32,
            budget_ms: config.frames.budget.as_millis() as u32,
            confidence: config.detect.confidence,
            iou: config.detect.iou,
            workers: config.frames.workers as u32,
        }))
    }
}

/// Of what use it was to read a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Its frame waits for a worker.
    Waits,
    /// None: it has replaced another frame, or is none; or there was no room for it, and its stream is not to
    /// be read for so long.
    None(Option<Duration>),
}

/// What is known of how a call's messages come in.
fn intake(call: &http::Extensions) -> Arc<Intake> {
    call.get().cloned().unwrap_or_default()
}

/// What is known of a stream or call before its first frame.
struct Call<'a> {
    metadata: &'a MetadataMap,
    connection: Option<&'a ConnectionInfo>,
    /// `None`: this server asks for no tokens.
    bearer: Option<&'a Bearer>,
}

impl<'a> Call<'a> {
    fn of<T>(request: &'a Request<T>) -> Self {
        let extensions = request.extensions();
        let (connection, bearer) = (extensions.get(), extensions.get());
        Self { metadata: request.metadata(), connection, bearer }
    }

    fn log(&self, camera: &CameraId) {
        let peer = self.connection.map(|info| tracing::field::display(info.peer));
        let certificate = self.connection.and_then(|connection| connection.subject.as_deref());
        let token = self.bearer.map(Bearer::name);
        tracing::debug!(%camera, peer, certificate, token, "stream opened");
    }
}

/// Reads one stream's frames.
struct Reader {
    shared: Arc<Shared>,
    intake: Arc<Intake>,
    inbound: Streaming<DetectRequest>,
    replies: mpsc::Sender<Reply>,
    key: CameraKey,
    stream: Arc<StreamState>,
    retire_at: Option<Instant>,
    /// `None`: this server asks for no tokens.
    standing: Option<Standing>,
    accepted: u64,
}

/// Why reading ended.
enum End {
    /// The client has sent its last frame, or has left.
    Client,
    /// The client sent what cannot be read.
    Unreadable(Status),
    /// The server does not want to read on.
    Server(Farewell),
}

impl Reader {
    async fn run(mut self) {
        let end = self.read().await;
        let camera = self.stream.camera.clone();
        let accepted = self.accepted;
        match end {
            End::Client => tracing::debug!(%camera, accepted, "stream read to its end"),
            End::Unreadable(status) => {
                // A client that left shows as an error too; only one that sent too much is told of.
                if status.code() == Code::OutOfRange {
                    self.shared.metrics.refused(Refusal::TooLarge);
                    tracing::warn!(%camera, accepted, %status, "a frame is too large to be read");
                } else {
                    tracing::debug!(%camera, accepted, %status, "stream broken off");
                }
                self.finish(unreadable_request(status)).await;
            }
            End::Server(why) => {
                match why {
                    Farewell::Draining => self.read_what_has_arrived().await,
                    Farewell::Aged => {
                        self.read_what_has_arrived().await;
                        self.shared.metrics.streams_aged.increment(1);
                    }
                    // Nothing more is taken of one who may not send.
                    Farewell::Revoked | Farewell::Forbidden => {
                        self.shared.metrics.streams_revoked.increment(1);
                    }
                }
                tracing::debug!(%camera, accepted = self.accepted, ?why, "ending the stream");
                self.finish(why.status(self.accepted)).await;
            }
        }
    }

    async fn read(&mut self) -> End {
        let standing = self.standing.clone();
        let farewell = farewell(self.shared.drain.clone(), self.retire_at, standing);
        tokio::pin!(farewell);
        let mut useless = Pace::default();
        loop {
            // The answer's place first, then the frame.
            let place = tokio::select! {
                place = self.replies.clone().reserve_owned() => place,
                why = &mut farewell => return End::Server(why),
            };
            // No receiver: the client has left.
            let Ok(place) = place else { return End::Client };
            self.intake.wait();
            let message = tokio::select! {
                message = self.inbound.message() => message,
                why = &mut farewell => return End::Server(why),
            };
            match message {
                Ok(Some(request)) => {
                    let bytes = request.image_data.len();
                    let pause = match self.accept(request, place) {
                        Use::Waits => None,
                        Use::None(None) => useless.pause_after(bytes),
                        Use::None(pause) => pause,
                    };
                    if let Some(pause) = pause {
                        // A frame that was taken up leaves its place to the next one at once.
                        tokio::select! {
                            () = tokio::time::sleep(pause) => {}
                            () = self.stream.taken() => {}
                            why = &mut farewell => return End::Server(why),
                        }
                    }
                }
                Ok(None) => return End::Client,
                Err(status) => return End::Unreadable(status),
            }
        }
    }

    /// As [`Shared::accept`].
    fn accept(&mut self, request: DetectRequest, place: mpsc::OwnedPermit<Reply>) -> Use {
        self.accepted += 1;
        self.shared.accept(request, self.intake.arrived(), place, (self.key, &self.stream))
    }

    /// When the server ends the stream: accepts the frames that are already here, for a moment and not
    /// beyond the room for their answers.
    async fn read_what_has_arrived(&mut self) {
        let reading = async {
            while let Ok(place) = self.replies.clone().try_reserve_owned() {
                let Ok(Some(request)) = self.inbound.message().await else {
                    return;
                };
                self.accept(request, place);
            }
        };
        // Running out of time is the usual end: a camera that is still there sends on.
        let _ = tokio::time::timeout(DRAIN_READ, reading).await;
    }

    /// Ends the stream with a status, after the answers to all accepted frames: all places of the
    /// queue are free only once those have been handed over.
    async fn finish(&self, status: Status) {
        if let Ok(mut places) = self.replies.reserve_many(self.shared.reply_queue).await
            && let Some(place) = places.next()
        {
            place.send(Err(status));
        }
    }
}

/// Waits until the server wants to end a stream, and says why.
async fn farewell(
    drain: CancellationToken,
    retire_at: Option<Instant>,
    standing: Option<Standing>,
) -> Farewell {
    let aged = async {
        match retire_at {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    };
    let lost = async {
        match standing {
            Some(standing) => standing.lost().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = drain.cancelled() => Farewell::Draining,
        () = aged => Farewell::Aged,
        why = lost => why,
    }
}

/// A stream's answers, in the order of the reply queue. Dropped when the client leaves, and with it
/// the camera's registration.
pub struct ReplyStream {
    queue: mpsc::Receiver<Reply>,
    _registration: Registration,
    _seat: Option<Seat>,
    _attendance: Attendance,
}

impl Stream for ReplyStream {
    type Item = Reply;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Reply>> {
        self.queue.poll_recv(cx)
    }
}
