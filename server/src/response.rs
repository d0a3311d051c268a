//! Answers: each frame's reserved place in its stream's reply queue, and the order of answers.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use opentelemetry::trace::SpanContext;
use tokio::sync::{Notify, mpsc::OwnedPermit};
use tonic::Status;
use vedette_proto::camera_ai::{DetectResponse, Object, StageTimes};

use crate::{
    clock::{self, micros_u32},
    frame::{CameraId, FrameId, Outcome, Picture, Timing},
    intake::Reservation,
    rate::{OverRate, Quota},
    telemetry::{
        fleet::{Camera, Ended},
        metrics::Metrics,
        traces::TracedFrame,
    },
};

/// What a stream's reply queue carries.
pub type Reply = Result<DetectResponse, Status>;

/// How far a frame has come: time in each stage, zero for one that it has not got through, and the
/// picture's upright size in pixels, zero until it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the stages are named")]
pub struct Progress {
    pub queue: Duration,
    pub decode: Duration,
    pub preprocess: Duration,
    pub inference: Duration,
    pub postprocess: Duration,
    pub size: (u32, u32),
}

/// What is said of a frame.
#[derive(Debug, Default)]
pub struct Answer {
    /// Detected objects; only with `Outcome::Ok`.
    pub objects: Vec<Object>,
    /// One line for people; empty for `Outcome::Ok`.
    pub detail: String,
    /// How far the frame came.
    pub progress: Progress,
    /// Model that answered; only with `Outcome::Ok`.
    pub model: String,
    /// The picture, for an operator who waits for one.
    pub picture: Option<Picture>,
}

impl Answer {
    /// An answer that says why there are no objects.
    #[must_use]
    pub fn refusal(detail: impl Into<String>, progress: &Progress) -> Self {
        Self { detail: detail.into(), progress: *progress, ..Self::default() }
    }
}

/// What the frames of one stream share.
#[derive(Debug)]
pub struct StreamState {
    /// Name of the camera, for logs.
    pub camera: CameraId,
    gone: AtomicBool,
    taken: Notify,
    /// What its frames are counted against; unset: nothing.
    quota: OnceLock<Quota>,
    /// The camera as operators see it; unset for one that has no name and comes by a single call.
    seen: OnceLock<Arc<Camera>>,
    /// The trace that its call named; unset: none.
    trace: OnceLock<SpanContext>,
    // A lock because workers on several threads finish frames of one stream; held for a few moves,
    // never across an await.
    order: Mutex<InOrder<Ready>>,
}

/// An answer whose turn may not have come.
#[derive(Debug)]
struct Ready {
    place: OwnedPermit<Reply>,
    response: DetectResponse,
    timing: Timing,
    outcome: Outcome,
    progress: Progress,
    picture: Option<(Picture, Option<Reservation>)>,
}

impl StreamState {
    /// State of a new stream.
    #[must_use]
    pub fn new(camera: CameraId) -> Self {
        let order = Mutex::new(InOrder::default());
        let (gone, taken) = (AtomicBool::new(false), Notify::new());
        let (quota, seen, trace) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self { camera, gone, taken, quota, seen, trace, order }
    }

    /// Says which trace those of the stream's frames go on, before its first one.
    pub fn continue_trace(&self, parent: SpanContext) {
        // As with the limit: once.
        let _ = self.trace.set(parent);
    }

    /// Lets operators see what becomes of the stream's frames, before its first one.
    pub fn show_to_operators(&self, camera: &Arc<Camera>) {
        // As with the limit: once.
        let _ = self.seen.set(Arc::clone(camera));
    }

    /// Sets what the stream's frames are counted against, before its first one.
    pub fn limit(&self, quota: Quota) {
        // A stream is limited once, where it is registered.
        let _ = self.quota.set(quota);
    }

    /// The client has left: nothing more can be answered.
    pub fn leave(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Waits until a frame of this stream is taken up, or comes back at once when that has happened
    /// since the last time.
    pub async fn taken(&self) {
        self.taken.notified().await;
    }

    /// Whether the client has left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// The right and the duty to answer one frame, exactly once. Dropped unanswered (a worker panicked),
/// it answers `INTERNAL`.
#[derive(Debug)]
pub struct Ticket {
    id: FrameId,
    /// When the frame came and how long it is worth computing.
    pub timing: Timing,
    place: Option<OwnedPermit<Reply>>,
    stream: Arc<StreamState>,
    metrics: Arc<Metrics>,
    turn: Option<u64>,
    memory: Option<Reservation>,
}

impl Ticket {
    /// A ticket for a frame just read, which is counted as received here and nowhere else.
    #[must_use]
    pub fn new(
        id: FrameId,
        timing: Timing,
        place: OwnedPermit<Reply>,
        stream: Arc<StreamState>,
        metrics: Arc<Metrics>,
    ) -> Self {
        metrics.received();
        Self { id, timing, place: Some(place), stream, metrics, turn: None, memory: None }
    }

    /// Holds the room that the frame takes until it is answered.
    pub fn hold(&mut self, memory: Option<Reservation>) {
        self.memory = memory;
    }

    /// The camera and the frame, for logs.
    #[must_use]
    pub fn name(&self) -> (&CameraId, FrameId) {
        (&self.stream.camera, self.id)
    }

    /// Counts the frame against its stream's limits at `now`.
    ///
    /// # Errors
    /// When it came too soon after others. The text is the answer's detail.
    pub fn check_rate(&self, now: Instant) -> Result<(), OverRate> {
        self.stream.quota.get().map_or(Ok(()), |quota| quota.take(now))
    }

    /// Whether an operator waits for this camera's next picture at `now`.
    #[must_use]
    pub fn wants_picture(&self, now: Instant) -> bool {
        self.stream.seen.get().is_some_and(|camera| camera.wants_picture(now))
    }

    /// Whether nobody waits for the answer any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.stream.is_gone()
    }

    /// Takes a turn in the order of computed answers. Called in the order in which the frames of one
    /// camera are picked.
    pub fn begin(&mut self) {
        let mut order = self.stream.order.lock().unwrap_or_else(PoisonError::into_inner);
        self.turn = Some(order.begin());
        drop(order);
        self.stream.taken.notify_one();
    }

    /// Answers the frame.
    pub fn answer(mut self, outcome: Outcome, answer: Answer) {
        self.send(outcome, answer);
    }

    fn send(&mut self, outcome: Outcome, answer: Answer) {
        let Some(place) = self.place.take() else {
            return;
        };
        let outcome = if self.stream.is_gone() { Outcome::ClientGone } else { outcome };
        self.metrics.outcome(outcome);
        let Progress { queue, decode, preprocess, inference, postprocess, size } = answer.progress;
        let response = DetectResponse {
            frame_id: self.id.0,
            objects: answer.objects,
            outcome: outcome.to_wire().into(),
            detail: answer.detail,
            image_width: size.0,
            image_height: size.1,
            times: Some(StageTimes {
                queue_us: micros_u32(queue),
                decode_us: micros_u32(decode),
                preprocess_us: micros_u32(preprocess),
                inference_us: micros_u32(inference),
                postprocess_us: micros_u32(postprocess),
                total_us: 0,
            }),
            model: answer.model,
        };
        let picture = answer.picture.map(|picture| (picture, self.memory.take()));
        let (timing, progress) = (self.timing, answer.progress);
        let ready = Ready { place, response, timing, outcome, progress, picture };
        let stream = &self.stream;
        match self.turn {
            None => hand_over(ready, stream, &self.metrics),
            Some(turn) => {
                let mut order = stream.order.lock().unwrap_or_else(PoisonError::into_inner);
                order.finish(turn, ready, |ready| hand_over(ready, stream, &self.metrics));
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.send(
            Outcome::Internal,
            Answer::refusal("the server failed on this frame", &Progress::default()),
        );
    }
}

/// Puts a response into its reserved place; this never waits.
fn hand_over(ready: Ready, stream: &StreamState, metrics: &Metrics) {
    let Ready { place, mut response, timing, outcome, progress, picture } = ready;
    let total = total(timing, clock::now());
    if let Some(times) = &mut response.times {
        times.total_us = micros_u32(total);
    }
    if outcome == Outcome::Ok {
        metrics.frame_seconds.record(total);
        if let Some(captured_us) = timing.captured_us {
            // A camera whose clock is ahead would be from the future.
            let age = clock::unix_micros().saturating_sub(captured_us).max(0);
            metrics.capture_age_seconds.record(age as f64 / 1e6);
        }
    }
    let (received, detail) = (timing.received, response.detail.as_str());
    let ended = Ended { outcome, received, total, progress: &progress, detail };
    let camera = stream.seen.get();
    metrics.fleet.note(&ended, camera.map(Arc::as_ref));
    if let Some(traces) = metrics.traces.get() {
        let (camera, id) = (&stream.camera, FrameId(response.frame_id));
        let (objects, progress) = (response.objects.len(), &progress);
        let frame = TracedFrame { camera, id, outcome, objects, detail, total, progress };
        traces.note(&frame, stream.trace.get());
    }
    if let (Some(camera), Some((picture, memory))) = (camera, picture) {
        camera.show(picture, &response, memory);
    }
    place.send(Ok(response));
}

fn total(timing: Timing, now: Instant) -> Duration {
    now.saturating_duration_since(timing.received)
}

/// Releases results in the order in which they were begun, however they finish. Holds no more entries
/// than frames are being computed at the same time.
#[derive(Debug)]
struct InOrder<T> {
    first: u64,
    pending: VecDeque<Option<T>>,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { first: 0, pending: VecDeque::new() }
    }
}

impl<T> InOrder<T> {
    fn begin(&mut self) -> u64 {
        self.pending.push_back(None);
        self.first + self.pending.len() as u64 - 1
    }

    fn finish(&mut self, turn: u64, result: T, mut release: impl FnMut(T)) {
        let place = usize::try_from(turn - self.first).unwrap_or(usize::MAX);
        if let Some(entry) = self.pending.get_mut(place) {
            *entry = Some(result);
        }
        while matches!(self.pending.front(), Some(Some(_))) {
            if let Some(result) = self.pending.pop_front().flatten() {
                self.first += 1;
                release(result);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::sync::mpsc;
    use vedette_proto::camera_ai as pb;

    use super::*;

    fn ticket(
        id: u64,
        stream: &Arc<StreamState>,
        tx: &mpsc::Sender<Reply>,
        metrics: &Arc<Metrics>,
    ) -> Ticket {
        let timing =
            Timing { received: clock::now(), budget: Duration::from_secs(1), captured_us: None };
        let place = tx.clone().try_reserve_owned().expect("room");
        Ticket::new(FrameId(id), timing, place, Arc::clone(stream), Arc::clone(metrics))
    }

    fn setup() -> (Arc<StreamState>, mpsc::Sender<Reply>, mpsc::Receiver<Reply>, Arc<Metrics>) {
        let (tx, rx) = mpsc::channel(8);
        let stream = Arc::new(StreamState::new(CameraId::unnamed(1)));
        (stream, tx, rx, Arc::new(Metrics::new()))
    }

    fn received(rx: &mut mpsc::Receiver<Reply>) -> Vec<(u64, pb::Outcome)> {
        std::iter::from_fn(|| rx.try_recv().ok())
            .map(|reply| reply.map(|r| (r.frame_id, r.outcome())).expect("a response"))
            .collect()
    }

    #[test]
    fn computed_answers_keep_their_order_and_refusals_overtake() {
        let (stream, tx, mut rx, metrics) = setup();
        let [mut first, mut second, third] = [1, 2, 3].map(|id| ticket(id, &stream, &tx, &metrics));
        first.begin();
        second.begin();
        second.answer(Outcome::Ok, Answer::default());
        third.answer(Outcome::Superseded, Answer::refusal("newer frame", &Progress::default()));
        assert_eq!(received(&mut rx), [(3, pb::Outcome::Superseded)]);
        first.answer(Outcome::Ok, Answer::default());
        assert_eq!(received(&mut rx), [(1, pb::Outcome::Ok), (2, pb::Outcome::Ok)]);
        assert_eq!(metrics.frame_accounts(), (3, 3));
    }

    #[test]
    fn a_dropped_ticket_still_answers() {
        let (stream, tx, mut rx, metrics) = setup();
        let mut lost = ticket(7, &stream, &tx, &metrics);
        lost.begin();
        drop(lost);
        assert_eq!(received(&mut rx), [(7, pb::Outcome::Internal)]);
        assert_eq!(metrics.frame_accounts(), (1, 1));
    }

    #[test]
    fn frames_of_a_client_that_left_are_counted_as_such() {
        let (stream, tx, rx, metrics) = setup();
        let frame = ticket(1, &stream, &tx, &metrics);
        drop(rx);
        stream.leave();
        frame.answer(Outcome::Ok, Answer::default());
        let text = metrics.render();
        assert!(text.contains("vedette_frames_total{outcome=\"client_gone\"} 1"), "{text}");
        assert!(text.contains("vedette_frames_total{outcome=\"ok\"} 0"), "{text}");
    }

    proptest! {
        #[test]
        fn any_order_of_finishing_releases_in_order_of_beginning(
            order in Just((0..12_u64).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut in_order = InOrder::default();
            for turn in 0..12 { prop_assert_eq!(in_order.begin(), turn); }
            let mut released = Vec::new();
            for turn in order { in_order.finish(turn, turn, |t| released.push(t)); }
            prop_assert_eq!(released, (0..12).collect::<Vec<_>>());
            prop_assert_eq!(in_order.begin(), 12);
        }
    }
}
