//! What may come in: the memory of all frames in hand, and the time that a message may take.
//!
//! A message is metered from its first five bytes on (gRPC's length prefix), and takes room as it arrives: to
//! announce much costs a sender as much as to send it. If the memory for frames has no room for more of it,
//! what is here is dropped, the rest is read and dropped too, and a message with nothing but its frame id is
//! handed on in its place, which is then answered `OVERLOADED`. So a burst of large frames costs answers and
//! no memory, and streams live on. A message is not looked at before its reader asks for it.

mod framing;

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body::Frame;
use metrics::Gauge;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Sleep,
};
use tonic::{Status, body::Body, server::NamedService};
use tower_service::Service;

pub use framing::{Framing, Meter, Seen};

use crate::{
    clock,
    limits::{RESERVED_AT_ONCE, UNMETERED_BYTES},
};

/// The memory of all frames in hand.
#[derive(Debug)]
pub struct FrameMemory {
    used: AtomicU64,
    limit: u64,
    gauge: Gauge,
}

impl FrameMemory {
    /// So many bytes, shown in this gauge.
    #[must_use]
    pub fn new(limit: u64, gauge: Gauge) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), limit, gauge })
    }

    /// Bytes that there are in all.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes room for a message of so many bytes; `None` when there is not enough.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        self.take(bytes).then(|| Reservation { bytes, memory: Arc::clone(self) })
    }

    fn take(&self, bytes: u64) -> bool {
        let room = |used: u64| used.checked_add(bytes).filter(|&used| used <= self.limit);
        let taken = self.used.fetch_update(Relaxed, Relaxed, room).is_ok();
        if taken {
            self.gauge.increment(bytes as f64);
        }
        taken
    }
}

/// Room for one message, until dropped.
#[derive(Debug)]
pub struct Reservation {
    bytes: u64,
    memory: Arc<FrameMemory>,
}

impl Reservation {
    /// Makes it room for so many bytes in all; false when there is not enough.
    fn grow_to(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let taken = self.memory.take(more);
        if taken {
            self.bytes += more;
        }
        taken
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Relaxed);
        self.memory.gauge.decrement(self.bytes as f64);
    }
}

/// How a message came in.
#[derive(Debug)]
pub enum Arrival {
    /// Whole. The room that it takes; none for one too small to count.
    Whole(Option<Reservation>),
    /// There was no room for its so many bytes: only its frame id is left of it.
    Shed(u64),
}

/// What the reader of a stream knows of its messages beyond their contents.
#[derive(Debug, Default)]
pub struct Intake {
    // A lock because the body and the reader of a stream hold it from different places of one task; never
    // contended. One place, because the next message is looked at only when its reader asks for it.
    arrival: Mutex<Option<Arrival>>,
    waiting: AtomicBool,
}

impl Intake {
    /// How the message came in that the reader has just got.
    #[must_use]
    pub fn arrived(&self) -> Arrival {
        let mut arrival = self.arrival.lock().unwrap_or_else(PoisonError::into_inner);
        arrival.take().unwrap_or(Arrival::Whole(None))
    }

    /// The reader begins to wait for a message. The time for one whose beginning is here already counts
    /// from now: until now it was the server that did not read.
    pub fn wait(&self) {
        self.waiting.store(true, Relaxed);
    }

    fn note(&self, arrival: Arrival) {
        *self.arrival.lock().unwrap_or_else(PoisonError::into_inner) = Some(arrival);
    }
}

/// Meters the messages of a service's calls. Each request gets an [`Intake`] among its extensions.
#[derive(Debug, Clone)]
pub struct Metered<S> {
    inner: S,
    memory: Arc<FrameMemory>,
    limits: MessageLimits,
    /// For single calls, which have no place among the cameras while their message arrives.
    calls: Arc<Semaphore>,
}

/// Limits of a service's messages.
#[derive(Debug, Clone, Copy)]
pub struct MessageLimits {
    /// Largest one that is read, in bytes.
    pub bytes: usize,
    /// Longest time from its first byte to its last.
    pub time: Duration,
    /// Single calls whose message may be arriving at the same time.
    pub calls: usize,
}

impl<S> Metered<S> {
    /// Meters this service.
    #[must_use]
    pub fn new(inner: S, memory: Arc<FrameMemory>, limits: MessageLimits) -> Self {
        let calls = Arc::new(Semaphore::new(limits.calls.min(Semaphore::MAX_PERMITS)));
        Self { inner, memory, limits, calls }
    }

    /// What a call to this path is held to.
    fn kind(&self, path: &str) -> Kind {
        if path.ends_with(STREAM_METHOD) {
            return Kind::Stream;
        }
        match Arc::clone(&self.calls).try_acquire_owned() {
            Ok(place) => Kind::Single { _place: place },
            Err(_) => Kind::Refused,
        }
    }
}

/// The method with a stream of requests.
const STREAM_METHOD: &str = "/DetectStream";

/// What a call is held to.
enum Kind {
    /// Any number of messages.
    Stream,
    /// One.
    Single { _place: OwnedSemaphorePermit },
    /// None: too many others are under way.
    Refused,
}

impl<S: NamedService> NamedService for Metered<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Metered<S>
where
    S: Service<http::Request<Body>, Error = Infallible>,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> S::Future {
        let intake = Arc::new(Intake::default());
        let kind = self.kind(request.uri().path());
        let mut request = request.map(|body| {
            Body::new(MeteredBody {
                body,
                kind,
                framing: Framing::default(),
                chunk: Bytes::new(),
                ready: VecDeque::new(),
                room: Room { memory: Arc::clone(&self.memory), length: 0, taken: None },
                intake: Arc::clone(&intake),
                limits: self.limits,
                deadline: None,
                alarm: None,
            })
        });
        request.extensions_mut().insert(intake);
        self.inner.call(request)
    }
}

/// The room of the message that is arriving.
struct Room {
    memory: Arc<FrameMemory>,
    /// Bytes that the message will have.
    length: u32,
    /// None for a message too small to count.
    taken: Option<Reservation>,
}

impl Room {
    fn meter(&mut self, seen: Seen, max_message: usize) -> Meter {
        match seen {
            // Such a message ends its call, and is not read.
            Seen::Prefix { flag, length } if flag != 0 || length as usize > max_message => {
                self.taken = None;
                Meter::Pass
            }
            Seen::Prefix { length, .. } => {
                self.length = length;
                self.taken = None;
                if length <= UNMETERED_BYTES {
                    return Meter::Keep;
                }
                self.taken = self.memory.reserve(step(0, length));
                if self.taken.is_some() { Meter::Keep } else { Meter::Shed }
            }
            Seen::Bytes(bytes) => {
                let Some(taken) = &mut self.taken else { return Meter::Keep };
                if u64::from(bytes) <= taken.bytes || taken.grow_to(step(bytes, self.length)) {
                    return Meter::Keep;
                }
                self.taken = None;
                Meter::Shed
            }
        }
    }
}

/// Room that is taken for a message of this length of which so many bytes are here.
fn step(bytes: u32, length: u32) -> u64 {
    let ahead = u64::from(bytes / RESERVED_AT_ONCE + 1) * u64::from(RESERVED_AT_ONCE);
    ahead.min(length.into())
}

/// A request's body, metered.
struct MeteredBody {
    body: Body,
    kind: Kind,
    framing: Framing,
    /// What has arrived and was not looked at so far.
    chunk: Bytes,
    /// Pieces to hand on.
    ready: VecDeque<Bytes>,
    room: Room,
    intake: Arc<Intake>,
    limits: MessageLimits,
    /// While a message is waited for that has begun: when it must have ended.
    deadline: Option<Instant>,
    /// Goes off at a deadline, or earlier and is set again: not to be touched for every message.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl MeteredBody {
    /// Looks at what has arrived, up to the end of a message.
    ///
    /// # Errors
    /// When there are more messages than the call may have.
    fn take(&mut self) -> Result<(), Status> {
        let messages = self.framing.messages();
        let (room, max_message) = (&mut self.room, self.limits.bytes);
        let meter = |seen| room.meter(seen, max_message);
        match self.framing.feed(&mut self.chunk, &mut self.ready, meter) {
            Some(Meter::Keep) => self.intake.note(Arrival::Whole(self.room.taken.take())),
            Some(Meter::Shed) => self.intake.note(Arrival::Shed(self.room.length.into())),
            Some(Meter::Pass) | None => {}
        }
        // A new message has a time of its own.
        if self.framing.messages() != messages || !self.framing.amid() {
            self.deadline = None;
        }
        if matches!(self.kind, Kind::Single { .. }) && self.framing.messages() > 1 {
            return Err(Status::invalid_argument("the call takes one message, more have come"));
        }
        Ok(())
    }

    /// Whether the message that has begun should be here by now; a single call, which has a place of its own
    /// until its end, begins with its message. Otherwise the task is woken when it should.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        if matches!(self.kind, Kind::Stream) && !self.framing.amid() {
            return false;
        }
        if self.intake.waiting.swap(false, Relaxed) {
            self.deadline = None;
        }
        let now = clock::now();
        let deadline = *self.deadline.get_or_insert(now + self.limits.time);
        let alarm =
            self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline.into())));
        while alarm.as_mut().poll(cx).is_ready() {
            if now >= deadline {
                return true;
            }
            alarm.as_mut().reset(deadline.into());
        }
        false
    }
}

impl http_body::Body for MeteredBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Kind::Refused = self.kind {
            let why = format!("{} calls are arriving (max-cameras); try again", self.limits.calls);
            return Poll::Ready(Some(Err(Status::resource_exhausted(why))));
        }
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if !self.chunk.is_empty() {
                if let Err(status) = self.take() {
                    return Poll::Ready(Some(Err(status)));
                }
                continue;
            }
            let frame = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending if self.is_late(cx) => {
                    let why = format!(
                        "a message has not arrived within {} s (message-seconds)",
                        self.limits.time.as_secs()
                    );
                    return Poll::Ready(Some(Err(Status::deadline_exceeded(why))));
                }
                poll => ready!(poll),
            };
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(chunk))) => self.chunk = chunk,
                Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                // Who reads on is to notice that the last message was cut short.
                None => return Poll::Ready(self.framing.end().map(|rest| Ok(Frame::data(rest)))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let all_seen = self.ready.is_empty() && self.chunk.is_empty() && !self.framing.amid();
        all_seen && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_out_up_to_its_limit_and_given_back() {
        let memory = FrameMemory::new(100, Gauge::noop());
        let first = memory.reserve(60).expect("room");
        assert!(memory.reserve(41).is_none());
        let second = memory.reserve(40).expect("exactly");
        assert!(memory.reserve(1).is_none());
        drop(first);
        assert!(memory.reserve(u64::MAX).is_none());
        assert!(memory.reserve(60).is_some());
        drop(second);
        assert_eq!(memory.used.load(Relaxed), 0);
    }

    fn room(limit: u64) -> Room {
        Room { memory: FrameMemory::new(limit, Gauge::noop()), length: 0, taken: None }
    }

    #[test]
    fn a_message_takes_room_as_it_arrives() {
        let mut room = room(1 << 20);
        let used = |room: &Room| room.memory.used.load(Relaxed);
        let length = 300_000;
        assert_eq!(room.meter(Seen::Prefix { flag: 0, length }, 1 << 20), Meter::Keep);
        assert_eq!(used(&room), u64::from(RESERVED_AT_ONCE));
        for bytes in [1, RESERVED_AT_ONCE - 1, RESERVED_AT_ONCE, 200_000, length] {
            assert_eq!(room.meter(Seen::Bytes(bytes), 1 << 20), Meter::Keep);
            let (least, most) = (u64::from(bytes), u64::from(bytes + RESERVED_AT_ONCE));
            assert!((least..=most).contains(&used(&room)));
        }
        assert_eq!(used(&room), u64::from(length));
        room.taken = None;
        assert_eq!(used(&room), 0);
    }

    #[test]
    fn a_message_without_room_takes_none() {
        let begin = |length| Seen::Prefix { flag: 0, length };
        let mut room = room(100_000);
        assert_eq!(room.meter(begin(90_000), 1 << 20), Meter::Keep);
        assert_eq!(room.meter(Seen::Bytes(90_000), 1 << 20), Meter::Keep);
        let first = room.taken.take();
        assert_eq!(room.meter(begin(20_000), 1 << 20), Meter::Shed);
        assert_eq!(room.meter(begin(UNMETERED_BYTES), 1 << 20), Meter::Keep, "too small to count");
        assert_eq!(room.meter(Seen::Bytes(UNMETERED_BYTES), 1 << 20), Meter::Keep);
        drop(first);
        // Halfway.
        assert_eq!(room.meter(begin(200_000), 1 << 20), Meter::Keep);
        assert_eq!(room.meter(Seen::Bytes(90_000), 1 << 20), Meter::Shed);
        assert_eq!(room.memory.used.load(Relaxed), 0);
        // Whoever reads on refuses these.
        for part in [Seen::Prefix { flag: 1, length: 9 }, begin(1 << 21)] {
            assert_eq!(room.meter(part, 1 << 20), Meter::Pass);
        }
    }

    #[test]
    fn an_arrival_is_told_of_once() {
        let intake = Intake::default();
        intake.note(Arrival::Shed(5));
        assert!(matches!(intake.arrived(), Arrival::Shed(5)));
        assert!(matches!(intake.arrived(), Arrival::Whole(None)));
    }
}
