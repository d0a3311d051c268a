//! Tasks in simulated time, on one thread. Which of the tasks that can go on does so is drawn from the
//! seed; time stands still while any of them can, and then jumps to the next timer.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::poll_fn,
    mem::take,
    pin::{Pin, pin},
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use crate::random::Random;

/// Whose task it is: those of the server's I/O threads end with its runtime, workers and the world
/// outside do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Io,
    Worker,
    Outside,
}

/// In which order tasks go on that could do so at the same instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// As the seed draws it: what threads and networks may do.
    Drawn,
    /// As they became ready: for scenarios with exact figures.
    AsReady,
}

type Work = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    side: Side,
    work: Work,
    waker: Waker,
    flag: Arc<Flag>,
}

/// Puts its task among those that can go on, once. Atomics and a lock because wakers must be `Send`;
/// there is one thread.
struct Flag {
    task: usize,
    queued: AtomicBool,
    ready: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.lock().unwrap_or_else(PoisonError::into_inner).push(self.task);
        }
    }
}

/// Where tasks start others.
#[derive(Clone, Default)]
pub(crate) struct Spawner(Rc<RefCell<Vec<(Side, Work)>>>);

impl Spawner {
    pub(crate) fn spawn(&self, side: Side, work: impl Future<Output = ()> + 'static) {
        self.0.borrow_mut().push((side, Box::pin(work)));
    }
}

/// All tasks of a simulation.
pub(crate) struct Executor {
    tasks: Vec<Option<Task>>,
    ready: Arc<Mutex<Vec<usize>>>,
    spawner: Spawner,
    order: Order,
}

impl Executor {
    pub(crate) fn new(spawner: Spawner, order: Order) -> Self {
        Self { tasks: Vec::new(), ready: Arc::default(), spawner, order }
    }

    /// Lets one task go on. False when none can.
    pub(crate) fn step(&mut self, random: &RefCell<Random>) -> bool {
        self.adopt();
        let next = {
            let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            match (ready.len(), self.order) {
                (0, _) => return false,
                (_, Order::AsReady) => ready.remove(0),
                (many, Order::Drawn) => ready.swap_remove(random.borrow_mut().below(many)),
            }
        };
        // Woken after its end, or after it was dropped.
        let Some(task) = &mut self.tasks[next] else { return true };
        task.flag.queued.store(false, Ordering::Relaxed);
        if task.work.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready() {
            self.tasks[next] = None;
        }
        true
    }

    /// Takes in what was spawned.
    fn adopt(&mut self) {
        for (side, work) in take(&mut *self.spawner.0.borrow_mut()) {
            let task = self.tasks.len();
            let queued = AtomicBool::new(false);
            let flag = Arc::new(Flag { task, queued, ready: Arc::clone(&self.ready) });
            let waker = Waker::from(Arc::clone(&flag));
            waker.wake_by_ref();
            self.tasks.push(Some(Task { side, work, waker, flag }));
        }
    }

    /// Drops every task of this side, as a runtime that ends does, in an order of the seed.
    pub(crate) fn drop_all(&mut self, side: Side, random: &RefCell<Random>) {
        self.adopt();
        let of_side = |task: &Option<Task>| task.as_ref().is_some_and(|task| task.side == side);
        let mut left: Vec<_> =
            (0..self.tasks.len()).filter(|task| of_side(&self.tasks[*task])).collect();
        while !left.is_empty() {
            let next = left.swap_remove(random.borrow_mut().below(left.len()));
            self.tasks[next] = None;
        }
    }
}

/// The clock and what waits for it. Time counts from the simulation's start.
#[derive(Default)]
pub(crate) struct Timers {
    now: Cell<Duration>,
    waiting: RefCell<BTreeMap<(Duration, u64), Waker>>,
    next: Cell<u64>,
}

impl Timers {
    pub(crate) fn now(&self) -> Duration {
        self.now.get()
    }

    /// When the next timer is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.waiting.borrow().keys().next().map(|(at, _)| *at)
    }

    /// Jumps to the next timer and wakes all that are due then. False when there is none.
    pub(crate) fn advance(&self) -> bool {
        let Some(at) = self.next_due() else { return false };
        self.now.set(at);
        while self.next_due() == Some(at) {
            let due = self.waiting.borrow_mut().pop_first();
            if let Some((_, waker)) = due {
                waker.wake();
            }
        }
        true
    }

    pub(crate) fn sleep_until(self: &Rc<Self>, at: Duration) -> Sleep {
        Sleep { timers: Rc::clone(self), at, number: None }
    }
}

/// Ends at its instant.
pub(crate) struct Sleep {
    timers: Rc<Timers>,
    at: Duration,
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.timers.now() >= self.at {
            return Poll::Ready(());
        }
        let fresh = self.timers.next.get();
        let number = *self.number.get_or_insert(fresh);
        self.timers.next.set(fresh.max(number + 1));
        self.timers.waiting.borrow_mut().insert((self.at, number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.timers.waiting.borrow_mut().remove(&(self.at, number));
        }
    }
}

/// Which of two came first.
pub(crate) enum First<A, B> {
    This(A),
    That(B),
}

/// Waits for either, as `tokio::select!` does; which is looked at first is drawn at each look, there by
/// tokio and here from the seed.
pub(crate) async fn race<A: Future, B: Future>(
    random: &RefCell<Random>,
    this: A,
    that: B,
) -> First<A::Output, B::Output> {
    let (mut this, mut that) = (pin!(this), pin!(that));
    poll_fn(|context| {
        let this_first = random.borrow_mut().chance(0.5);
        for turn in [this_first, !this_first] {
            let looked = if turn {
                this.as_mut().poll(context).map(First::This)
            } else {
                that.as_mut().poll(context).map(First::That)
            };
            if looked.is_ready() {
                return looked;
            }
        }
        Poll::Pending
    })
    .await
}

/// Lets others go on that can do so at this instant.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(order: Order, seed: u64) -> (Vec<u32>, Duration) {
        let (spawner, timers) = (Spawner::default(), Rc::new(Timers::default()));
        let mut executor = Executor::new(spawner.clone(), order);
        let (random, log) = (RefCell::new(Random::new(seed)), Rc::new(RefCell::new(Vec::new())));
        for task in 0..6_u32 {
            let (timers, log) = (Rc::clone(&timers), Rc::clone(&log));
            spawner.spawn(Side::Io, async move {
                timers.sleep_until(Duration::from_millis(u64::from(task / 3))).await;
                yield_now().await;
                log.borrow_mut().push(task);
            });
        }
        while executor.step(&random) || timers.advance() {}
        (log.take(), timers.now())
    }

    #[test]
    fn time_jumps_and_order_is_the_seeds_or_that_of_becoming_ready() {
        assert_eq!(log_of(Order::AsReady, 1), (vec![0, 1, 2, 3, 4, 5], Duration::from_millis(1)));
        let logs: std::collections::HashSet<_> =
            (0..50).map(|seed| log_of(Order::Drawn, seed).0).collect();
        assert!(logs.len() > 10, "{logs:?}");
        for mut log in logs {
            assert!(log[..3].iter().all(|task| *task < 3), "time comes first: {log:?}");
            log.sort_unstable();
            assert_eq!(log, [0, 1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn a_sleep_that_lost_its_race_leaves_no_timer() {
        let (spawner, timers) = (Spawner::default(), Rc::new(Timers::default()));
        let mut executor = Executor::new(spawner.clone(), Order::Drawn);
        let random = Rc::new(RefCell::new(Random::new(1)));
        let (mine, drawn) = (Rc::clone(&timers), Rc::clone(&random));
        spawner.spawn(Side::Io, async move {
            let (short, long) = (Duration::from_millis(1), Duration::from_secs(1));
            let won = race(&drawn, mine.sleep_until(long), mine.sleep_until(short)).await;
            assert!(matches!(won, First::That(())));
        });
        while executor.step(&random) || timers.advance() {}
        assert_eq!((timers.now(), timers.next_due()), (Duration::from_millis(1), None));
    }
}
