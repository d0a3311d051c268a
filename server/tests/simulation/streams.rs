//! The server's side of a stream: `ingress.rs` in simulated time.
//!
//! [`Reader`] and [`detect`] are models of the code of the same names there, statement by statement,
//! with simulated time, transport and `select!` in place of tokio's and tonic's, which cannot be driven
//! from a seed. They must follow a change there. All that they call is the server's own: admission,
//! tickets, the reply queue's places, the pace of reading, the farewell and its status.

use std::{pin::Pin, rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use vedette_proto::camera_ai::DetectResponse;
use vedette_server::{
    admit::{Frame, Registration},
    decode::FrameLimits,
    error::{Farewell, unreadable_request},
    frame::{Layout, Outcome, Picture, Timing},
    limits::{DRAIN_READ, REPLY_QUEUE_FRAMES},
    pace::Pace,
    response::{Progress, Reply, StreamState, Ticket},
    schedule::CameraKey,
    worker::refuse,
};

use crate::{
    executor::First,
    ledger::{self, Offered},
    plan::{Fate, Plan},
    reading::Doing,
    rules::{Rule, broken},
    situations::Situation,
    trace::Event,
    world::{Probe, World},
};

/// Limits on frames; the simulated ones have a few bytes.
const LIMITS: FrameLimits = FrameLimits { max_bytes: 16, max_pixels: 1 };

/// What a JPEG begins with, and what no picture does.
const JPEG: &[u8] = &[0xFF, 0xD8, 0xFF];
const JUNK: &[u8] = b"junk";

/// A frame on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) at: Duration,
    pub(crate) fate: Fate,
}

/// What is watched of a stream from outside of it.
#[derive(Default)]
pub(crate) struct Watched {
    /// Notified when a frame is picked.
    pub(crate) picked: Rc<Notify>,
    /// Its reply queue, while it is read.
    replies: Option<mpsc::WeakSender<Reply>>,
}

impl Watched {
    /// Free places of the reply queue.
    pub(crate) fn free_places(&self) -> Option<usize> {
        Some(self.replies.as_ref()?.upgrade()?.capacity())
    }
}

/// Places of a stream's reply queue, as ingress sizes it.
pub(crate) fn reply_places(plan: &Plan) -> usize {
    REPLY_QUEUE_FRAMES.max(plan.workers * plan.batch + 2)
}

/// A stream's number, and what its frames need.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) stream: usize,
    key: CameraKey,
    state: Arc<StreamState>,
}

impl World {
    /// Registers a stream: not while draining, not beyond the places.
    pub(crate) fn register(&self, camera: usize, places: usize) -> Option<(Way, Registration)> {
        if self.drain.is_cancelled() {
            self.note(Event::NotTaken { camera, full: false });
            return None;
        }
        let full = self.ledger.borrow().registered().len() >= self.plan.max_cameras;
        let registered = self.admission.register(None);
        if registered.is_err() != full {
            let text = format!("all places taken: {full}, but {registered:?}");
            self.check(broken::<()>(Rule::Bounds, text));
        }
        let Ok(registration) = registered else {
            self.note(Event::NotTaken { camera, full: true });
            return None;
        };
        let reads = self.plan.cameras[camera].reads;
        let stream = self.ledger.borrow_mut().open(camera, reads, places);
        self.watched.borrow_mut().push(Watched::default());
        self.note(Event::Opened { camera, stream });
        let (key, state) = (registration.key(), Arc::clone(&registration.stream));
        Some((Way { stream, key, state }, registration))
    }

    /// As `Shared::frame` and `Shared::admit`: a frame is read into its reserved place and offered,
    /// unless it is no picture at first sight. Tells whether it was of no use to have read it so early.
    fn accept(&self, way: &Way, sent: Sent, place: mpsc::OwnedPermit<Reply>) -> bool {
        let camera = &self.plan.cameras[self.ledger.borrow().streams[way.stream].camera];
        let id = self.ledger.borrow_mut().read(ledger::Frame {
            stream: way.stream,
            sent: sent.at,
            read: self.now(),
            budget: camera.budget,
            fate: sent.fate,
            shape: camera.shape,
            pick: None,
            outcome: None,
            delivered: None,
        });
        self.note(Event::Read { stream: way.stream, frame: id.0 });
        if self.drain.is_cancelled() {
            self.saw(Situation::ReadWhileDraining);
        }
        let timing = Timing { received: self.instant(), budget: camera.budget, captured_us: None };
        let (state, metrics) = (Arc::clone(&way.state), Arc::clone(&self.metrics));
        let ticket = Ticket::new(id, timing, place, state, metrics);
        let data = if sent.fate == Fate::Junk { JUNK } else { JPEG };
        let probe = Probe { data, frame: id, dropped: self.dropped.clone() };
        let picture = Picture { data: Bytes::from_owner(probe), layout: Layout::Encoded };
        let frame = Frame { picture, ticket };
        match LIMITS.check(&frame.picture) {
            Ok(()) => self.offer(way.key, frame, id.0),
            Err(error) => {
                refuse(frame.ticket, &error, &Progress::default(), &self.metrics);
                self.settle(id.0, error.outcome());
                true
            }
        }
    }

    fn offer(&self, key: CameraKey, frame: Frame, id: u64) -> bool {
        let replaced = self.admission.offer(key, frame);
        let offered = self.ledger.borrow_mut().offered(id, replaced);
        match self.check(offered) {
            Some(Offered::Waits) => {
                self.note(Event::Waits { frame: id });
                if self.woken.is_full() {
                    self.saw(Situation::WakeUpsFull);
                }
            }
            Some(Offered::Replaced(older)) => {
                self.note(Event::Replaced { by: id, older });
                self.settle(older, Outcome::Superseded);
            }
            Some(Offered::NoCamera) => {
                self.note(Event::NoCamera { frame: id });
                self.settle(id, Outcome::ClientGone);
            }
            None => {}
        }
        replaced
    }

    /// An answer has reached its client.
    pub(crate) fn delivered(&self, stream: usize, reply: &DetectResponse) {
        let (frame, said) = (reply.frame_id, reply.outcome());
        let delivered = self.ledger.borrow_mut().deliver(stream, frame, said, self.now());
        if let Some(outcome) = self.check(delivered) {
            self.note(Event::Delivered { stream, frame, outcome });
        }
    }
}

/// A stream's answers, as tonic gets them (`ReplyStream`). Dropped, its queue goes first and then the
/// camera's registration.
pub(crate) struct Replies {
    world: Rc<World>,
    pub(crate) stream: usize,
    /// Taken away when the client leaves.
    pub(crate) queue: Option<mpsc::Receiver<Reply>>,
    registration: Option<Registration>,
}

impl Replies {
    pub(crate) fn new(
        world: &Rc<World>,
        stream: usize,
        queue: mpsc::Receiver<Reply>,
        registration: Registration,
    ) -> Self {
        let (queue, registration) = (Some(queue), Some(registration));
        Self { world: Rc::clone(world), stream, queue, registration }
    }

    pub(crate) async fn recv(&mut self) -> Option<Reply> {
        self.queue.as_mut()?.recv().await
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.queue = None;
        self.registration = None;
        self.world.note(Event::Left { stream: self.stream });
        let (waited, in_hand) = self.world.ledger.borrow_mut().leave(self.stream);
        if in_hand > 0 {
            self.world.saw(Situation::LeftInHand);
        }
        if let Some(frame) = waited {
            self.world.saw(Situation::LeftWaiting);
            self.world.settle(frame, Outcome::ClientGone);
        }
    }
}

/// A stream's frames as they arrive, in place of tonic's `Streaming`. As many wait as the stream's
/// HTTP/2 window holds.
pub(crate) struct Inbound {
    pub(crate) frames: mpsc::Receiver<Sent>,
    /// The client has left: what has arrived is of no interest, and reading fails.
    pub(crate) reset: CancellationToken,
}

impl Inbound {
    async fn message(&mut self, world: &World) -> Result<Option<Sent>, Status> {
        if self.reset.is_cancelled() {
            return Err(Status::cancelled("the client has left"));
        }
        match world.race(self.frames.recv(), self.reset.cancelled()).await {
            First::This(sent) => Ok(sent),
            First::That(()) => Err(Status::cancelled("the client has left")),
        }
    }
}

/// As `Ingress::detect`, from the registration on. The answer, unless the future is dropped because the
/// client has left.
pub(crate) async fn detect(
    world: &Rc<World>,
    way: Way,
    registration: Registration,
    sent: Sent,
) -> Result<DetectResponse, Status> {
    let (replies, queue) = mpsc::channel(1);
    let place = replies.try_reserve_owned().map_err(|_| Status::internal("no room"))?;
    let mut queue = Replies::new(world, way.stream, queue, registration);
    world.ledger.borrow_mut().reader(way.stream, Doing::HasPlace);
    world.accept(&way, sent, place);
    queue.recv().await.ok_or_else(|| Status::internal("the frame was lost"))?
}

/// Reads one stream's frames.
pub(crate) struct Reader {
    pub(crate) world: Rc<World>,
    pub(crate) way: Way,
    pub(crate) inbound: Inbound,
    pub(crate) replies: mpsc::Sender<Reply>,
    pub(crate) retire_at: Option<Duration>,
    pub(crate) accepted: u64,
}

/// Why reading ended.
enum End {
    Client,
    Unreadable(Status),
    Server(Farewell),
}

type Goodbye = Pin<Box<dyn Future<Output = Farewell>>>;

impl Reader {
    pub(crate) async fn run(mut self) {
        let number = self.way.stream;
        let queue = self.replies.downgrade();
        self.world.watched.borrow_mut()[number].replies = Some(queue);
        let end = self.read().await;
        self.does(Doing::WantsPlace);
        match end {
            End::Client => {}
            End::Unreadable(status) => self.finish(unreadable_request(status)).await,
            End::Server(why) => {
                self.read_what_has_arrived().await;
                self.finish(why.status(self.accepted)).await;
            }
        }
    }

    fn does(&self, doing: Doing) {
        self.world.ledger.borrow_mut().reader(self.way.stream, doing);
    }

    async fn read(&mut self) -> End {
        let world = Rc::clone(&self.world);
        let mut farewell = farewell(&world, self.retire_at);
        let mut useless = Pace::default();
        loop {
            let place = world.race(self.replies.clone().reserve_owned(), &mut farewell).await;
            let place = match place {
                First::This(place) => place,
                First::That(why) => return End::Server(why),
            };
            let Ok(place) = place else { return End::Client };
            self.does(Doing::HasPlace);
            let message = match world.race(self.inbound.message(&world), &mut farewell).await {
                First::This(message) => message,
                First::That(why) => return End::Server(why),
            };
            match message {
                Ok(Some(sent)) => {
                    if let Some(pause) = self.pause(sent, place, &mut useless) {
                        let (stream, micros) = (self.way.stream, pause.as_micros() as u64);
                        world.note(Event::Paused { stream, micros });
                        self.does(Doing::Pauses);
                        let taken = self.way.state.taken();
                        let over = world.race(world.sleep(pause), taken);
                        let over = world.race(over, &mut farewell).await;
                        self.does(Doing::WantsPlace);
                        if let First::That(why) = over {
                            return End::Server(why);
                        }
                    }
                }
                Ok(None) => return End::Client,
                Err(status) => return End::Unreadable(status),
            }
        }
    }

    /// Accepts a frame. Returns how long to pause, if it was of no use.
    fn pause(
        &mut self,
        sent: Sent,
        place: mpsc::OwnedPermit<Reply>,
        useless: &mut Pace,
    ) -> Option<Duration> {
        self.accepted += 1;
        let number = self.way.stream;
        if !self.world.accept(&self.way, sent, place) {
            return None;
        }
        let bytes = {
            let ledger = self.world.ledger.borrow();
            self.world.plan.cameras[ledger.streams[number].camera].bytes
        };
        let now = self.world.now();
        let checked = self.world.ledger.borrow_mut().useless(number, bytes, now);
        self.world.check(checked);
        useless.pause_after(bytes)
    }

    async fn read_what_has_arrived(&mut self) {
        let world = Rc::clone(&self.world);
        let reading = async {
            while let Ok(place) = self.replies.clone().try_reserve_owned() {
                self.does(Doing::HasPlace);
                let Ok(Some(sent)) = self.inbound.message(&world).await else {
                    return;
                };
                self.accepted += 1;
                world.accept(&self.way, sent, place);
            }
        };
        // The cut-off is an event of tokio's timer: what it ends was cancelled at an await.
        world.race(reading, world.sleep(DRAIN_READ)).await;
        self.does(Doing::WantsPlace);
    }

    async fn finish(&self, status: Status) {
        self.does(Doing::Finishes);
        if let Ok(mut places) = self.replies.reserve_many(reply_places(&self.world.plan)).await
            && let Some(place) = places.next()
        {
            place.send(Err(status));
        }
    }
}

fn farewell(world: &Rc<World>, retire_at: Option<Duration>) -> Goodbye {
    let world = Rc::clone(world);
    Box::pin(async move {
        let aged = async {
            match retire_at {
                Some(at) => world.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        match world.race(world.drain.cancelled(), aged).await {
            First::This(()) => Farewell::Draining,
            First::That(()) => Farewell::Aged,
        }
    })
}
