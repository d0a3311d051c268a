//! The end of a server's life: `Running::run_until` of `serve.rs` in simulated time, statement by
//! statement. It must follow a change there.

use std::{rc::Rc, time::Duration};

use vedette_server::limits::{DRAIN_READ, GRACE_RESERVE};

use crate::{
    executor::First,
    plan::MS,
    rules::{Rule, broken},
    situations::Situation,
    trace::Event,
    world::World,
};

/// As there.
const DRAIN_POLL: Duration = Duration::from_millis(10);

/// What may pass between the last answer of a stream and its end, at the most: reading what has arrived,
/// and a poll.
const PATIENCE: Duration = DRAIN_READ.saturating_add(DRAIN_POLL.saturating_mul(2));

/// Serves until the plan's shutdown, then drains and stops.
pub(crate) async fn run_until(world: Rc<World>) {
    world.sleep_until(world.plan.shutdown).await;
    let began = world.now();
    world.note(Event::Drain);
    world.drain_began.set(Some(began));
    world.drain.cancel();

    let deadline = world.sleep(world.plan.grace.saturating_sub(GRACE_RESERVE));
    let drained = async {
        while world.admission.cameras() > 0 {
            world.sleep(DRAIN_POLL).await;
        }
        // Connections close once their streams have ended, unless their peers hold them open.
        match world.plan.lingers {
            Some(lingers) => world.sleep(lingers).await,
            None => std::future::pending().await,
        }
    };
    let in_time = matches!(world.race(drained, deadline).await, First::This(()));
    world.note(Event::Drained { in_time });
    if !in_time {
        let checked = world.ledger.borrow().not_drained(PATIENCE, world.now());
        world.check(checked);
    }

    // `Pipeline::stop`.
    world.staff.stop();
    let ended = async {
        while world.staff.left.get() > 0 {
            world.staff.ended.notified().await;
        }
    };
    world.race(ended, world.sleep(GRACE_RESERVE / 2)).await;

    if world.staff.left.get() > 0 {
        world.saw(Situation::StoppedBusy);
    }
    world.note(Event::Stopped);
    world.stopped.set(Some(world.now()));
    let took = world.now().saturating_sub(began);
    if took > world.plan.grace {
        let text = format!("it took {took:?}, the grace time is {:?}", world.plan.grace);
        world.check(broken::<()>(Rule::Drain, text));
    }
}

/// Longest that a reader may read after the drain has begun: what has arrived, and what the timer's
/// resolution adds.
pub(crate) const LAST_READ: Duration = DRAIN_READ.saturating_add(MS);
