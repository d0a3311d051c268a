//! What may come in: the memory of all frames in hand, and the time that a message may take.
//!
//! A message is metered as its first five bytes arrive (gRPC's length prefix), before anything is kept of
//! it. If the memory for frames has no room for it, its bytes are read and dropped, and a message with
//! nothing but its frame id is handed on in its place, which is then answered `OVERLOADED`. So a burst of
//! large frames costs answers and no memory, and streams live on.

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
use tokio::time::Sleep;
use tonic::{Status, body::Body, server::NamedService};
use tower_service::Service;

pub use framing::{Framing, Meter};

use crate::{clock, limits::UNMETERED_BYTES};

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
        let room = |used: u64| used.checked_add(bytes).filter(|&used| used <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, room).ok()?;
        self.gauge.increment(bytes as f64);
        Some(Reservation { bytes, memory: Arc::clone(self) })
    }
}

/// Room for one message, until dropped.
#[derive(Debug)]
pub struct Reservation {
    bytes: u64,
    memory: Arc<FrameMemory>,
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
    // contended. Holds no more entries than messages fit into one HTTP/2 frame, because the body is polled
    // only when its reader lacks a whole message.
    arrivals: Mutex<VecDeque<Arrival>>,
    waiting: AtomicBool,
}

impl Intake {
    /// How the message came in that the reader has just got.
    #[must_use]
    pub fn arrived(&self) -> Arrival {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.pop_front().unwrap_or(Arrival::Whole(None))
    }

    /// The reader begins to wait for a message. The time for one whose beginning is here already counts
    /// from now: until now it was the server that did not read.
    pub fn wait(&self) {
        self.waiting.store(true, Relaxed);
    }

    fn push(&self, arrival: Arrival) {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push_back(arrival);
    }
}

/// Meters the messages of a service's calls. Each request gets an [`Intake`] among its extensions.
#[derive(Debug, Clone)]
pub struct Metered<S> {
    inner: S,
    memory: Arc<FrameMemory>,
    /// Largest message that the service reads, in bytes.
    max_message: usize,
    message_time: Duration,
}

impl<S> Metered<S> {
    /// Meters this service.
    #[must_use]
    pub fn new(
        inner: S,
        memory: Arc<FrameMemory>,
        max_message: usize,
        message_time: Duration,
    ) -> Self {
        Self { inner, memory, max_message, message_time }
    }
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
        let mut request = request.map(|body| {
            Body::new(MeteredBody {
                body,
                framing: Framing::default(),
                ready: VecDeque::new(),
                intake: Arc::clone(&intake),
                memory: Arc::clone(&self.memory),
                max_message: self.max_message,
                message_time: self.message_time,
                deadline: None,
                alarm: None,
            })
        });
        request.extensions_mut().insert(intake);
        self.inner.call(request)
    }
}

/// A request's body, metered.
struct MeteredBody {
    body: Body,
    framing: Framing,
    /// Pieces to hand on.
    ready: VecDeque<Bytes>,
    intake: Arc<Intake>,
    memory: Arc<FrameMemory>,
    max_message: usize,
    message_time: Duration,
    /// While a message is waited for that has begun: when it must have ended.
    deadline: Option<Instant>,
    /// Goes off at a deadline, or earlier and is set again: not to be touched for every message.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl MeteredBody {
    fn take(&mut self, chunk: &Bytes) {
        let messages = self.framing.messages();
        let (intake, memory, max_message) = (&self.intake, &self.memory, self.max_message);
        self.framing.feed(chunk, &mut self.ready, |flag, bytes| {
            // Such a message ends its stream, and is not read.
            if flag != 0 || bytes as usize > max_message {
                return Meter::Keep;
            }
            if bytes <= UNMETERED_BYTES {
                intake.push(Arrival::Whole(None));
                return Meter::Keep;
            }
            let reservation = memory.reserve(bytes.into());
            if reservation.is_none() {
                intake.push(Arrival::Shed(bytes.into()));
                return Meter::Shed;
            }
            intake.push(Arrival::Whole(reservation));
            Meter::Keep
        });
        // A new message has a time of its own.
        if self.framing.messages() != messages || !self.framing.amid() {
            self.deadline = None;
        }
    }

    /// Whether the message that has begun should be here by now. Otherwise the task is woken when it should.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.framing.amid() {
            return false;
        }
        if self.intake.waiting.swap(false, Relaxed) {
            self.deadline = None;
        }
        let now = clock::now();
        let deadline = *self.deadline.get_or_insert(now + self.message_time);
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
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let frame = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending if self.is_late(cx) => {
                    let why = format!(
                        "a message has not arrived within {} s (message-seconds)",
                        self.message_time.as_secs()
                    );
                    return Poll::Ready(Some(Err(Status::deadline_exceeded(why))));
                }
                poll => ready!(poll),
            };
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(chunk))) => self.take(&chunk),
                Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                // Who reads on is to notice that the last message was cut short.
                None => return Poll::Ready(self.framing.end().map(|rest| Ok(Frame::data(rest)))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_empty() && !self.framing.amid() && self.body.is_end_stream()
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

    #[test]
    fn arrivals_come_in_order() {
        let intake = Intake::default();
        intake.push(Arrival::Shed(5));
        intake.push(Arrival::Whole(None));
        assert!(matches!(intake.arrived(), Arrival::Shed(5)));
        assert!(matches!(intake.arrived(), Arrival::Whole(None)));
    }
}
