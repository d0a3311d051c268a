//! What the tasks of a run share: the server's core, the clock, the seed, the books and the trace.
//!
//! What tasks do to the core is done by methods of [`World`] in the files of its parts, so that books
//! and trace follow it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crossbeam_channel::Receiver;
use tokio_util::sync::CancellationToken;
use vedette_server::{
    admit::Admission,
    clock,
    frame::{FrameId, Outcome},
    telemetry::metrics::Metrics,
};

use crate::{
    executor::{First, Side, Sleep, Spawner, Timers, race},
    ledger::Ledger,
    plan::Plan,
    random::Random,
    rules::{Breach, Checked},
    situations::{Seen, Situation},
    streams::Watched,
    trace::{Event, Trace},
    workers::Staff,
};

/// Everything of a run.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) timers: Rc<Timers>,
    pub(crate) random: RefCell<Random>,
    pub(crate) ledger: RefCell<Ledger>,
    pub(crate) trace: RefCell<Trace>,
    pub(crate) seen: RefCell<Seen>,
    pub(crate) breach: RefCell<Option<Breach>>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) woken: Receiver<()>,
    pub(crate) staff: Staff,
    /// By stream.
    pub(crate) watched: RefCell<Vec<Watched>>,
    /// Cancelled, streams are read no further.
    pub(crate) drain: CancellationToken,
    pub(crate) drain_began: Cell<Option<Duration>>,
    pub(crate) stopped: Cell<Option<Duration>>,
    pub(crate) dropped: Dropped,
    spawner: Spawner,
    /// The instant from which simulated time counts. The clock is read here and nowhere else.
    start: Instant,
}

impl World {
    pub(crate) fn new(plan: Plan, spawner: Spawner) -> Rc<Self> {
        let metrics = Arc::new(Metrics::new());
        let (admission, woken) = Admission::new(plan.max_cameras, Arc::clone(&metrics));
        Rc::new(Self {
            timers: Rc::default(),
            // Another sequence than the one that drew the plan.
            random: RefCell::new(Random::new(!plan.seed)),
            ledger: RefCell::default(),
            trace: RefCell::default(),
            seen: RefCell::default(),
            breach: RefCell::default(),
            admission,
            metrics,
            woken,
            staff: Staff::new(plan.workers),
            watched: RefCell::default(),
            drain: CancellationToken::new(),
            drain_began: Cell::default(),
            stopped: Cell::default(),
            dropped: Dropped::default(),
            spawner,
            start: clock::now(),
            plan,
        })
    }

    /// Since the run's start.
    pub(crate) fn now(&self) -> Duration {
        self.timers.now()
    }

    /// As the server sees it.
    pub(crate) fn instant(&self) -> Instant {
        self.start + self.now()
    }

    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now().saturating_add(duration))
    }

    pub(crate) fn sleep_until(&self, at: Duration) -> Sleep {
        self.timers.sleep_until(at)
    }

    pub(crate) fn chance(&self, probability: f64) -> bool {
        self.random.borrow_mut().chance(probability)
    }

    pub(crate) async fn race<A: Future, B: Future>(
        &self,
        this: A,
        that: B,
    ) -> First<A::Output, B::Output> {
        race(&self.random, this, that).await
    }

    pub(crate) fn spawn(&self, side: Side, work: impl Future<Output = ()> + 'static) {
        self.spawner.spawn(side, work);
    }

    pub(crate) fn note(&self, event: Event) {
        if let Some(situation) = Situation::of(&event) {
            self.saw(situation);
        }
        self.trace.borrow_mut().note(self.now(), event);
    }

    pub(crate) fn saw(&self, situation: Situation) {
        self.seen.borrow_mut().note(situation);
    }

    /// Takes down the first breach; what follows from it is of no interest.
    pub(crate) fn check<T>(&self, checked: Checked<T>) -> Option<T> {
        match checked {
            Ok(value) => Some(value),
            Err(breach) => {
                self.breach.borrow_mut().get_or_insert(breach);
                None
            }
        }
    }

    /// Enters what became of a frame.
    pub(crate) fn settle(&self, frame: u64, asked: Outcome) {
        let settled = self.ledger.borrow_mut().settle(frame, asked, self.now());
        if let Some((outcome, held_back)) = self.check(settled) {
            self.note(Event::Settled { frame, outcome });
            if held_back {
                self.saw(Situation::AnswerHeldBack);
            }
        }
    }
}

/// Frames whose pictures were dropped, in that order: shows which frames were refused as others were
/// taken. A lock because bytes must be `Send`; there is one thread.
#[derive(Clone, Default)]
pub(crate) struct Dropped(Arc<Mutex<Vec<u64>>>);

impl Dropped {
    /// Those since the last time.
    pub(crate) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The bytes of a picture.
pub(crate) struct Probe {
    pub(crate) data: &'static [u8],
    pub(crate) frame: FrameId,
    pub(crate) dropped: Dropped,
}

impl AsRef<[u8]> for Probe {
    fn as_ref(&self) -> &[u8] {
        self.data
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.dropped.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.frame.0);
    }
}
