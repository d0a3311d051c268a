//! Who is computed when, in simulated time: the server's own admission and scheduler between simulated
//! cameras and workers that take exactly as long as they should. No thread, no sleep; the clock is read
//! once, for an instant to count from.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use crossbeam_channel::Receiver;
use proptest::prelude::*;
use tokio::sync::mpsc;
use vedette_proto::camera_ai::Outcome as Wire;
use vedette_server::{
    admit::{Admission, Frame, Registration, Taken, worth_computing},
    clock,
    frame::{FrameId, Layout, Outcome, Picture, Timing},
    response::{Answer, Reply, Ticket},
    telemetry::metrics::Metrics,
};

const MS: Duration = Duration::from_millis(1);

/// Answers that may wait for a simulated client: more than any scenario leaves unread.
const REPLIES: usize = 10_000;

/// A simulated camera's plan.
#[derive(Debug, Clone, Copy)]
struct Plan {
    first: Duration,
    period: Duration,
    /// Leaves without waiting for its answers.
    leaves: Option<Duration>,
    budget: Duration,
}

impl Plan {
    fn ten_fps(first: Duration) -> Self {
        Self { first, period: 100 * MS, leaves: None, budget: 1000 * MS }
    }
}

/// What happens at an instant, earliest first; at the same instant, a worker becomes free before a
/// frame arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Done(usize),
    Leave(usize),
    Send(usize),
}

#[derive(Debug, PartialEq, Eq)]
struct Due(Duration, Event);

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        // Reversed: the heap's top is the earliest.
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

struct Camera {
    plan: Plan,
    /// Taken away when it leaves.
    place: Option<Registration>,
    stream: Arc<vedette_server::response::StreamState>,
    replies: mpsc::Sender<Reply>,
    answers: mpsc::Receiver<Reply>,
    sent: Vec<Duration>,
    /// Outcome and latency of each answer, in the order of arrival.
    answered: Vec<(u64, Wire, Duration)>,
}

impl Camera {
    fn latencies(&self) -> impl Iterator<Item = Duration> {
        self.answered.iter().filter(|(_, outcome, _)| *outcome == Wire::Ok).map(|answer| answer.2)
    }

    fn worst(&self) -> Duration {
        self.latencies().max().unwrap_or_default()
    }

    fn ok(&self) -> usize {
        self.latencies().count()
    }

    fn count(&self, outcome: Wire) -> usize {
        self.answered.iter().filter(|answer| answer.1 == outcome).count()
    }
}

struct Simulation {
    start: Instant,
    now: Duration,
    events: BinaryHeap<Due>,
    admission: Arc<Admission>,
    metrics: Arc<Metrics>,
    /// Wake-ups under way, as the workers' channel holds them.
    woken: Receiver<()>,
    workers: Vec<Option<Taken>>,
    cost: Duration,
    cameras: Vec<Camera>,
    end: Duration,
    /// Instants at which a worker stood idle although a frame waited.
    idle_while_waiting: usize,
}

impl Simulation {
    fn new(workers: usize, cost: Duration, plans: &[Plan], end: Duration) -> Self {
        let metrics = Arc::new(Metrics::new());
        let (admission, woken) = Admission::new(plans.len(), Arc::clone(&metrics));
        let cameras: Vec<_> = plans
            .iter()
            .map(|&plan| {
                let place = admission.register(None).expect("a place");
                let stream = Arc::clone(&place.stream);
                let (replies, answers) = mpsc::channel(REPLIES);
                let place = Some(place);
                let (sent, answered) = (Vec::new(), Vec::new());
                Camera { plan, place, stream, replies, answers, sent, answered }
            })
            .collect();
        let mut events = BinaryHeap::new();
        for (index, plan) in plans.iter().enumerate() {
            events.push(Due(plan.first, Event::Send(index)));
            events.extend(plan.leaves.map(|at| Due(at, Event::Leave(index))));
        }
        let workers = (0..workers).map(|_| None).collect();
        let start = clock::now();
        let idle_while_waiting = 0;
        let now = Duration::ZERO;
        Self {
            start,
            now,
            events,
            admission,
            metrics,
            woken,
            workers,
            cost,
            cameras,
            end,
            idle_while_waiting,
        }
    }

    /// Runs until every frame sent before the end is answered.
    fn run(mut self) -> Self {
        while let Some(Due(at, event)) = self.events.pop() {
            self.now = at;
            match event {
                Event::Send(camera) => self.send(camera),
                Event::Leave(camera) => self.cameras[camera].place = None,
                Event::Done(worker) => self.finish(worker),
            }
            self.start_idle_workers();
            self.read_answers();
        }
        let (received, accounted) = self.metrics.frame_accounts();
        let sent: usize = self.cameras.iter().map(|camera| camera.sent.len()).sum();
        assert_eq!((received, accounted), (sent as u64, sent as u64), "one outcome per frame");
        self
    }

    fn send(&mut self, index: usize) {
        let camera = &mut self.cameras[index];
        let Some(place) = &camera.place else { return };
        let id = FrameId(camera.sent.len() as u64);
        let received = self.start + self.now;
        let timing = Timing { received, budget: camera.plan.budget, captured_us: None };
        let reply = camera.replies.clone().try_reserve_owned().expect("room for an answer");
        let metrics = Arc::clone(&self.metrics);
        let ticket = Ticket::new(id, timing, reply, Arc::clone(&camera.stream), metrics);
        let picture = Picture { data: Bytes::from_static(b"x"), layout: Layout::Encoded };
        camera.sent.push(self.now);
        self.admission.offer(place.key(), Frame { picture, ticket });
        let next = self.now + camera.plan.period;
        if next < self.end {
            self.events.push(Due(next, Event::Send(index)));
        }
    }

    fn start_idle_workers(&mut self) {
        for worker in 0..self.workers.len() {
            if self.workers[worker].is_some() {
                continue;
            }
            // As the pipeline does: a worker looks for a frame once for each wake-up.
            while self.workers[worker].is_none() && self.woken.try_recv().is_ok() {
                let mut taken = Vec::new();
                self.admission.take(1, self.start + self.now, &mut taken);
                if let Some(frame) = taken.pop() {
                    self.workers[worker] = Some(frame);
                    self.events.push(Due(self.now + self.cost, Event::Done(worker)));
                }
            }
        }
        let idle = self.workers.iter().any(Option::is_none);
        self.idle_while_waiting += usize::from(idle && self.admission.waiting() > 0);
    }

    fn finish(&mut self, worker: usize) {
        let Some(Taken { ticket, place, progress, .. }) = self.workers[worker].take() else {
            return;
        };
        // As before inference: what nobody waits for any more is not answered OK.
        if let Some(ticket) = worth_computing(ticket, self.start + self.now, &progress) {
            ticket.answer(Outcome::Ok, Answer { progress, ..Answer::default() });
        }
        drop(place);
    }

    fn read_answers(&mut self) {
        for camera in &mut self.cameras {
            while let Ok(reply) = camera.answers.try_recv() {
                let reply = reply.expect("a response");
                let sent = camera.sent[reply.frame_id as usize];
                let latency = self.now.saturating_sub(sent);
                camera.answered.push((reply.frame_id, reply.outcome(), latency));
            }
        }
    }
}

/// `cameras` cameras of 10 FPS, spread evenly over a period.
fn spread(cameras: u32) -> Vec<Plan> {
    (0..cameras).map(|i| Plan::ten_fps(100 * MS * i / cameras)).collect()
}

/// Far more frames than can be computed.
fn flood() -> Plan {
    Plan { period: MS / 4, ..Plan::ten_fps(Duration::ZERO) }
}

#[test]
fn a_lone_fast_camera_may_use_every_worker() {
    let sim = Simulation::new(4, 8 * MS, &[flood()], 2000 * MS).run();
    let capacity = 2000 / 8 * 4;
    assert!(sim.cameras[0].ok() >= capacity, "{} of {capacity}", sim.cameras[0].ok());
    assert_eq!(sim.idle_while_waiting, 0);
}

#[test]
fn a_flood_leaves_its_neighbours_their_latency_and_takes_only_what_is_left() {
    for workers in [1, 2, 4] {
        let mut plans = vec![flood()];
        plans.extend(spread(3));
        let sim = Simulation::new(workers, 10 * MS, &plans, 3000 * MS).run();
        for camera in &sim.cameras[1..] {
            assert_eq!(camera.ok(), camera.sent.len(), "every frame of the slow camera");
            // A worker becomes free within one frame's time; the other slow cameras may be before it.
            assert!(camera.worst() <= 40 * MS, "{workers} workers: {:?}", camera.worst());
        }
        let all: usize = sim.cameras.iter().map(Camera::ok).sum();
        assert!(all >= workers * 300 - workers, "{workers} workers computed only {all} frames");
        assert_eq!(sim.idle_while_waiting, 0);
    }
}

#[test]
fn at_twice_the_capacity_everyone_gets_the_same_and_no_age_builds_up() {
    // 2 workers, 10 ms: 200 frames a second for 40 cameras that send 400.
    let sim = Simulation::new(2, 10 * MS, &spread(40), 60_000 * MS).run();
    let counts: Vec<_> = sim.cameras.iter().map(Camera::ok).collect();
    let (least, most) = (counts.iter().min().expect("some"), counts.iter().max().expect("some"));
    assert!(most - least <= 2, "{least} to {most} answers");
    // Without the end, when the last frames are not replaced any more but worked off.
    let worst_until = |end: Duration| {
        let early = |camera: &Camera| {
            let answers = camera.answered.iter().filter(|a| a.1 == Wire::Ok);
            let early = answers.filter(|a| camera.sent[a.0 as usize] < end);
            early.map(|a| a.2).max().unwrap_or_default()
        };
        sim.cameras.iter().map(early).max().expect("some")
    };
    assert_eq!(worst_until(59_000 * MS), worst_until(2000 * MS), "latency grows");
    // Newest wins: a frame is replaced by its successor before it can get old.
    assert!(worst_until(59_000 * MS) <= 110 * MS, "{:?}", worst_until(59_000 * MS));
}

#[test]
fn all_cameras_at_the_same_instant_take_what_arithmetic_allows() {
    let plans = vec![Plan::ten_fps(Duration::ZERO); 30];
    let sim = Simulation::new(2, 5 * MS, &plans, 5000 * MS).run();
    let worst = sim.cameras.iter().map(Camera::worst).max().expect("some");
    assert_eq!(worst, 75 * MS, "30 frames of 5 ms on 2 workers");
    assert!(sim.cameras.iter().all(|camera| camera.ok() == camera.sent.len()));
}

#[test]
fn frames_past_their_budget_are_expired_before_they_cost_anything() {
    let mut plans = vec![Plan::ten_fps(Duration::ZERO); 20];
    for plan in &mut plans {
        plan.budget = 30 * MS;
    }
    // 20 frames of 10 ms on one worker: the first three start and end in time.
    let sim = Simulation::new(1, 10 * MS, &plans, 100 * MS).run();
    assert_eq!(sim.cameras.iter().map(Camera::ok).sum::<usize>(), 3);
    let expired: usize = sim.cameras.iter().map(|camera| camera.count(Wire::Expired)).sum();
    assert_eq!(expired, 17);
    assert_eq!(sim.now, 40 * MS, "the one that had begun, and nothing after it");
}

#[test]
fn a_camera_that_leaves_takes_its_frames_along() {
    let mut plans = vec![Plan::ten_fps(Duration::ZERO); 2];
    plans[1].leaves = Some(5 * MS);
    let sim = Simulation::new(1, 10 * MS, &plans, 100 * MS).run();
    let text = sim.metrics.render();
    assert!(text.contains("vedette_frames_total{outcome=\"client_gone\"} 1"), "{text}");
    assert_eq!(sim.now, 10 * MS, "its frame is not computed");
}

fn plan() -> impl Strategy<Value = Plan> {
    let leaves = proptest::option::of((0..400_u32).prop_map(|ms| MS * ms));
    (0..100_u32, 1..200_u32, leaves, 20..1000_u32).prop_map(|(first, period, leaves, budget)| {
        Plan { first: MS * first, period: MS * period, leaves, budget: MS * budget }
    })
}

proptest! {
    /// Any fleet: one outcome per frame (checked at the end of every run), no worker idles while a frame
    /// waits, computed answers come in the order sent, nobody starves, nothing is answered too late.
    #[test]
    fn any_fleet(
        plans in proptest::collection::vec(plan(), 1..25),
        workers in 1..5_usize,
        cost in 1..40_u32,
    ) {
        let fleet = plans.len() as u32;
        let sim = Simulation::new(workers, MS * cost, &plans, 500 * MS).run();
        prop_assert_eq!(sim.idle_while_waiting, 0);
        for camera in &sim.cameras {
            let computed: Vec<_> =
                camera.answered.iter().filter(|a| a.1 == Wire::Ok).map(|a| a.0).collect();
            prop_assert!(computed.is_sorted(), "{computed:?}");
            let mut answers = BTreeMap::new();
            for (id, outcome, latency) in &camera.answered {
                prop_assert_eq!(answers.insert(*id, *outcome), None, "answered twice");
                if *outcome == Wire::Ok {
                    prop_assert!(*latency <= camera.plan.budget);
                }
            }
            if camera.plan.leaves.is_none() {
                prop_assert_eq!(answers.len(), camera.sent.len());
                // Its next frame comes within a period, and its turn within the time in which every
                // camera can be served once.
                let round = MS * cost * (fleet + workers as u32);
                let waited = camera.sent.last().copied().unwrap_or_default();
                let turns = waited.saturating_sub(camera.plan.first).as_millis()
                    / (round + camera.plan.period).as_millis();
                prop_assert!(camera.plan.budget < round || camera.ok() >= turns as usize);
            }
        }
    }
}
