//! The workers: `pipeline.rs` and `worker.rs` in simulated time. Waiting for a wake-up, taking and the
//! two checks are the server's own; decoding and the network are time that passes.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::sync::Notify;
use vedette_server::{
    admit::{Place, Taken, worth_computing},
    decode::DecodeError,
    frame::Outcome,
    response::{Answer, Progress, Ticket},
    worker::refuse,
};

use crate::{
    executor::yield_now,
    plan::Fate,
    rules::{Checked, Rule, broken},
    situations::Situation,
    trace::Event,
    world::World,
};

/// Part of a batch's time that each further picture adds to the first one's.
const FURTHER_PICTURE: f64 = 0.7;

/// Who works, who sleeps.
pub(crate) struct Staff {
    /// Workers that wait for a wake-up.
    idle: RefCell<Vec<Waker>>,
    /// Of those woken, the ones that have not looked yet.
    waking: Cell<usize>,
    /// Wake-ups that workers have received and not yet acted on.
    wakes_in_hand: Cell<usize>,
    /// Workers whose loop has not ended.
    pub(crate) left: Cell<usize>,
    pub(crate) ended: Notify,
    stopping: Cell<bool>,
}

impl Staff {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            idle: RefCell::default(),
            waking: Cell::default(),
            wakes_in_hand: Cell::default(),
            left: Cell::new(workers),
            ended: Notify::new(),
            stopping: Cell::default(),
        }
    }

    /// Ends the workers' loops, as dropping the pipeline's `stop` does.
    pub(crate) fn stop(&self) {
        self.stopping.set(true);
        for waker in self.idle.take() {
            self.waking.set(self.waking.get() + 1);
            waker.wake();
        }
    }
}

impl World {
    /// Wakes a sleeping worker for each wake-up in the channel, as crossbeam does.
    pub(crate) fn wake_workers(&self) {
        let staff = &self.staff;
        while self.woken.len() > staff.waking.get() && !staff.idle.borrow().is_empty() {
            let sleeping = staff.idle.borrow().len();
            let next = self.random.borrow_mut().below(sleeping);
            let waker = staff.idle.borrow_mut().swap_remove(next);
            staff.waking.set(staff.waking.get() + 1);
            waker.wake();
        }
    }

    /// Once nothing more happens at an instant: a worker sleeps only if every waiting frame has one
    /// that was woken for it.
    pub(crate) fn nobody_idles(&self) -> Checked {
        let (waiting, woken) = (self.ledger.borrow().waiting(), self.staff.wakes_in_hand.get());
        let idle = self.staff.idle.borrow().len();
        if idle > 0 && waiting > woken {
            let text = format!("{waiting} frames wait, {woken} workers were woken, {idle} sleep");
            return broken(Rule::NoIdleWorker, text);
        }
        Ok(())
    }

    /// As `Admission::take`, and enters in the books what was picked and what was refused.
    fn take(&self, worker: usize, most: usize) -> Vec<Taken> {
        self.dropped.take();
        let mut taken = Vec::new();
        self.admission.take(most, self.instant(), &mut taken);
        let refused = self.dropped.take();
        let picked = taken.iter().map(|frame| (frame.ticket.name().1.0, Some(frame.progress)));
        self.enter_picks(worker, picked.collect(), refused.into());
        if taken.len() > most {
            let text = format!("worker {worker} took {} frames, {most} allowed", taken.len());
            self.check(broken::<()>(Rule::Bounds, text));
        }
        let waiting = self.ledger.borrow().waiting();
        if taken.len() < most && waiting > 0 {
            let text = format!("worker {worker} took {} of {most}, {waiting} wait", taken.len());
            self.check(broken::<()>(Rule::NoIdleWorker, text));
        }
        if taken.len() > 1 {
            self.saw(Situation::TookSeveral);
        }
        if taken.is_empty() {
            self.note(Event::NothingWaits { worker });
        }
        taken
    }

    /// Frames were picked in these two orders; how the two were mixed does not show, so the one whose
    /// turn it was first is entered first. If no order keeps the rules, this one does not either.
    fn enter_picks(
        &self,
        worker: usize,
        mut taken: VecDeque<(u64, Option<Progress>)>,
        mut refused: VecDeque<u64>,
    ) {
        while self.breach.borrow().is_none() {
            let (frame, progress) = match (taken.front(), refused.front()) {
                (None, None) => return,
                (Some(&(one, _)), Some(&other))
                    if self.ledger.borrow().comes_before(other, one) =>
                {
                    refused.pop_front();
                    (other, None)
                }
                (None, Some(&other)) => {
                    refused.pop_front();
                    (other, None)
                }
                (Some(&one), _) => {
                    taken.pop_front();
                    one
                }
            };
            self.enter_pick(worker, frame, progress);
        }
    }

    fn enter_pick(&self, worker: usize, frame: u64, progress: Option<Progress>) {
        let picked = self.ledger.borrow_mut().pick(frame);
        let Some(yielded) = self.check(picked) else { return };
        if yielded {
            self.saw(Situation::YieldedToOneWithLess);
        }
        let verdict = self.ledger.borrow().verdict(frame, self.now());
        let (stream, read) = {
            let ledger = self.ledger.borrow();
            (ledger.frame(frame).stream, ledger.frame(frame).read)
        };
        match (verdict, progress) {
            (None, Some(progress)) => {
                self.note(Event::Took { worker, frame });
                if progress.queue != self.now().saturating_sub(read) {
                    let text = format!("frame {frame} waited {:?}", progress.queue);
                    self.check(broken::<()>(Rule::Times, text));
                }
            }
            (Some(outcome), None) => {
                self.settle(frame, outcome);
                self.gave_back(frame);
            }
            (None, None) => self.refused_without_cause(frame),
            (Some(outcome), Some(_)) => {
                let text = format!("frame {frame} was taken, it should have ended {outcome:?}");
                self.check(broken::<()>(Rule::WorthComputing, text));
            }
        }
        self.watched.borrow()[stream].picked.notify_waiters();
    }

    fn refused_without_cause(&self, frame: u64) {
        let text = format!("frame {frame} was refused, it was worth computing");
        self.check(broken::<()>(Rule::WorthComputing, text));
    }

    fn gave_back(&self, frame: u64) {
        self.note(Event::GaveBack { frame });
        self.ledger.borrow_mut().given_back(frame);
    }

    /// As [`worth_computing`], entered in the books.
    fn still_worth(&self, ticket: Ticket, progress: &Progress) -> Option<Ticket> {
        let frame = ticket.name().1.0;
        let verdict = self.ledger.borrow().verdict(frame, self.now());
        let ticket = worth_computing(ticket, self.instant(), progress);
        match (verdict, ticket.is_some()) {
            (None, true) => {}
            (Some(outcome), false) => self.settle(frame, outcome),
            (None, false) => self.refused_without_cause(frame),
            (Some(outcome), true) => {
                let text = format!("frame {frame} is computed on, it should end {outcome:?}");
                self.check(broken::<()>(Rule::WorthComputing, text));
            }
        }
        ticket
    }

    /// How long this step takes.
    fn cost(&self, range: &std::ops::RangeInclusive<Duration>) -> Duration {
        let costs = &self.plan.costs;
        let mut random = self.random.borrow_mut();
        let stall = if random.chance(costs.stalls) {
            random.time(costs.stall.clone())
        } else {
            Duration::ZERO
        };
        random.time(range.clone()) + stall
    }
}

/// As crossbeam's `select!` in `Context::work`: a wake-up, or the end. If there are both, either.
struct Wakes<'a> {
    world: &'a World,
    parked: bool,
}

impl Future for Wakes<'_> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let staff = &self.world.staff;
        if self.parked {
            staff.waking.set(staff.waking.get() - 1);
        }
        if staff.stopping.get() && self.world.chance(0.5) {
            return Poll::Ready(false);
        }
        if self.world.woken.try_recv().is_ok() {
            staff.wakes_in_hand.set(staff.wakes_in_hand.get() + 1);
            return Poll::Ready(true);
        }
        if staff.stopping.get() {
            return Poll::Ready(false);
        }
        if self.parked {
            self.world.saw(Situation::WokenInVain);
        }
        staff.idle.borrow_mut().push(context.waker().clone());
        self.parked = true;
        Poll::Pending
    }
}

/// As `Context::work`: a worker's life.
pub(crate) async fn work(world: Rc<World>, worker: usize) {
    while (Wakes { world: &world, parked: false }).await {
        world.note(Event::Woken { worker });
        // A thread that is woken runs when it gets a core.
        let delay = world.random.borrow_mut().time(world.plan.wake_delay.clone());
        world.sleep(delay).await;
        let most = share(&world);
        // Others may take what was counted.
        yield_now().await;
        let in_hand = &world.staff.wakes_in_hand;
        in_hand.set(in_hand.get() - 1);
        let taken = world.take(worker, most);
        if !taken.is_empty() {
            process(&world, worker, taken).await;
        }
    }
    world.staff.left.set(world.staff.left.get() - 1);
    world.staff.ended.notify_one();
}

/// As `Context::share`.
fn share(world: &World) -> usize {
    let batch = world.plan.batch;
    if batch == 1 {
        return 1;
    }
    world.admission.waiting().div_ceil(world.plan.workers).clamp(1, batch)
}

/// A frame in a worker's hands whose tensor is filled.
struct Prepared {
    frame: u64,
    fate: Fate,
    shape: u8,
    ticket: Ticket,
    place: Place,
    progress: Progress,
}

/// As `Engine::process`: decodes every frame, then runs the network on them. Pictures of another shape
/// are not run with those collected so far.
async fn process(world: &World, worker: usize, taken: Vec<Taken>) {
    let mut taken = VecDeque::from(taken);
    let mut prepared: Vec<Prepared> = Vec::new();
    while let Some(Taken { picture, ticket, place, progress }) = taken.pop_front() {
        let frame = ticket.name().1.0;
        let (fate, shape) = {
            let ledger = world.ledger.borrow();
            (ledger.frame(frame).fate, ledger.frame(frame).shape)
        };
        world.sleep(world.cost(&world.plan.costs.decode)).await;
        if fate == Fate::PanicsEarly {
            drop_one(world, frame, ticket, place);
            for Taken { ticket, place, .. } in taken {
                drop_one(world, ticket.name().1.0, ticket, place);
            }
            crash(world, worker, prepared);
            return;
        }
        drop(picture);
        if fate == Fate::Broken {
            let error = DecodeError::Malformed("as planned".into());
            refuse(ticket, &error, &progress, &world.metrics);
            world.settle(frame, error.outcome());
            give_back(world, frame, place).await;
            continue;
        }
        if prepared.first().is_some_and(|first| first.shape != shape) {
            run(world, worker, std::mem::take(&mut prepared)).await;
        }
        match world.still_worth(ticket, &progress) {
            Some(ticket) => {
                prepared.push(Prepared { frame, fate, shape, ticket, place, progress });
            }
            None => give_back(world, frame, place).await,
        }
    }
    run(world, worker, prepared).await;
}

/// As `Runner::run`: the network, then an answer for each.
async fn run(world: &World, worker: usize, prepared: Vec<Prepared>) {
    if prepared.is_empty() {
        return;
    }
    let further = (prepared.len() - 1) as f64 * FURTHER_PICTURE;
    let cost = world.cost(&world.plan.costs.network).mul_f64(1.0 + further);
    world.sleep(cost).await;
    if prepared.iter().any(|frame| frame.fate == Fate::PanicsLate) {
        return crash(world, worker, prepared);
    }
    let failed = prepared.iter().any(|frame| frame.fate == Fate::Fails);
    let outcome = if failed { Outcome::Internal } else { Outcome::Ok };
    for Prepared { frame, ticket, place, progress, .. } in prepared {
        ticket.answer(outcome, Answer { progress, ..Answer::default() });
        world.settle(frame, outcome);
        give_back(world, frame, place).await;
    }
}

/// The answer is out; others may act on it before the place is given back.
async fn give_back(world: &World, frame: u64, place: Place) {
    if world.chance(0.3) {
        yield_now().await;
    }
    drop(place);
    world.gave_back(frame);
}

/// What a panic does to the frames that were collected: nobody answers them, they are dropped.
fn crash(world: &World, worker: usize, prepared: Vec<Prepared>) {
    world.note(Event::Crashed { worker });
    for Prepared { frame, ticket, place, .. } in prepared {
        drop_one(world, frame, ticket, place);
    }
}

fn drop_one(world: &World, frame: u64, ticket: Ticket, place: Place) {
    drop(ticket);
    world.settle(frame, Outcome::Internal);
    drop(place);
    world.gave_back(frame);
}
