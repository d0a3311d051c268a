//! A run from its plan to its end, and what is checked at every step of it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use vedette_server::frame::Outcome;

use crate::{
    clients::camera,
    drain::{LAST_READ, run_until},
    executor::{Executor, Side, Spawner},
    plan::Plan,
    rules::{Checked, Rule, broken},
    situations::Situation,
    trace::Event,
    workers::work,
    world::World,
};

/// Steps of tasks after which a run is taken to have no end. Drawn runs have some thousands.
const MOST_STEPS: u64 = 3_000_000;

/// How often, of all instants, the metrics are rendered and compared with the books. Rendering costs as
/// much as hundreds of steps.
const ACCOUNTS: f64 = 0.001;

/// A run that is over.
pub(crate) struct Run {
    pub(crate) world: Rc<World>,
    pub(crate) failure: Option<String>,
}

/// Runs a plan. A panic of the server's is a failure like a rule that does not hold.
pub(crate) fn run(plan: Plan) -> Run {
    let spawner = Spawner::default();
    let world = World::new(plan, spawner.clone());
    let mut executor = Executor::new(spawner, world.plan.order);
    let running = catch_unwind(AssertUnwindSafe(|| whole(&world, &mut executor)));
    let failure = match running {
        Ok(Ok(())) => None,
        Ok(Err(breach)) => Some(breach.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Some(format!("\"nothing panics\" does not hold: {}", text.unwrap_or_default()))
        }
    };
    if failure.is_some() {
        // What a broken core does when its tasks are dropped is of no interest, and may panic.
        std::mem::forget(executor);
    }
    Run { world, failure }
}

fn whole(world: &Rc<World>, executor: &mut Executor) -> Checked {
    for worker in 0..world.plan.workers {
        world.spawn(Side::Worker, work(Rc::clone(world), worker));
    }
    for number in 0..world.plan.cameras.len() {
        world.spawn(Side::Outside, camera(Rc::clone(world), number));
    }
    world.spawn(Side::Outside, run_until(Rc::clone(world)));
    until(world, executor, |world| world.stopped.get().is_some())?;
    // The process ends: the runtime drops what is left. What workers still hold they finish here, though
    // they would not get the time to, so that the books can be closed.
    executor.drop_all(Side::Outside, &world.random);
    executor.drop_all(Side::Io, &world.random);
    breach(world)?;
    until(world, executor, |world| world.staff.left.get() == 0)?;
    world.note(Event::Over);
    at_end(world)
}

/// Lets tasks go on until this is so.
fn until(world: &World, executor: &mut Executor, over: impl Fn(&World) -> bool) -> Checked {
    for _ in 0..MOST_STEPS {
        if over(world) {
            return Ok(());
        }
        if executor.step(&world.random) {
            breach(world)?;
            bounds(world)?;
            world.wake_workers();
            continue;
        }
        at_rest(world)?;
        if !world.timers.advance() {
            return broken(Rule::Ends, "no task can go on, and the server has not stopped");
        }
    }
    broken(Rule::Ends, format!("still going on after {MOST_STEPS} steps"))
}

fn breach(world: &World) -> Checked {
    match world.breach.borrow().clone() {
        Some(breach) => Err(breach),
        None => Ok(()),
    }
}

/// After every step.
fn bounds(world: &World) -> Checked {
    let ledger = world.ledger.borrow();
    let plan = &world.plan;
    let counts = (world.admission.cameras(), world.admission.waiting());
    let booked = (ledger.registered().len(), ledger.waiting());
    if counts != booked {
        let text = format!("cameras and waiting frames: {counts:?}, by the books {booked:?}");
        return broken(Rule::Bounds, text);
    }
    let bounded = [
        ("cameras", counts.0, plan.max_cameras),
        ("waiting frames", counts.1, counts.0),
        ("wake-ups", world.woken.len(), plan.max_cameras),
        ("frames in hand", ledger.in_hand(), plan.workers * plan.batch),
    ];
    for (what, found, bound) in bounded {
        if found > bound {
            return broken(Rule::Bounds, format!("{found} {what}, at most {bound} are allowed"));
        }
    }
    Ok(())
}

/// Once nothing more can happen at an instant.
fn at_rest(world: &World) -> Checked {
    world.nobody_idles()?;
    {
        let ledger = world.ledger.borrow();
        for stream in ledger.registered() {
            let free = world.watched.borrow()[*stream].free_places();
            if free == Some(0) {
                world.saw(Situation::RepliesFull);
            }
            ledger.at_rest(*stream, free)?;
        }
    }
    if world.chance(ACCOUNTS) { accounts(world) } else { Ok(()) }
}

/// The metrics, as operators see them, against the books.
fn accounts(world: &World) -> Checked {
    world.admission.sample();
    let text = world.metrics.render();
    let ledger = world.ledger.borrow();
    let outcomes = Outcome::ALL.map(|outcome| {
        let series = format!("vedette_frames_total{{outcome=\"{}\"}}", outcome.label());
        (series, ledger.outcomes(outcome))
    });
    let others = [
        ("vedette_frames_received_total", ledger.frames.len()),
        ("vedette_streams_opened_total", ledger.streams.len()),
        ("vedette_streams", ledger.registered().len()),
        ("vedette_waiting_frames", ledger.waiting()),
        ("vedette_computing_frames", ledger.in_hand_of_registered()),
    ];
    let others = others.map(|(series, booked)| (series.to_owned(), booked as u64));
    for (series, booked) in outcomes.into_iter().chain(others) {
        let value = |line: &str| line.strip_prefix(&series)?.strip_prefix(' ')?.parse().ok();
        let shown: Option<u64> = text.lines().find_map(value);
        if shown != Some(booked) {
            let text = format!("{series} is {shown:?}, by the books {booked}");
            return broken(Rule::Accounts, text);
        }
    }
    Ok(())
}

/// After the end.
fn at_end(world: &World) -> Checked {
    {
        let ledger = world.ledger.borrow();
        if let Some(frame) = ledger.unsettled().next() {
            return broken(Rule::OneOutcome, format!("frame {frame} has no outcome at the end"));
        }
        let in_hand = (ledger.registered().len(), ledger.waiting(), ledger.in_hand());
        if in_hand != (0, 0, 0) {
            let text = format!("cameras, waiting frames, frames in hand at the end: {in_hand:?}");
            return broken(Rule::Drain, text);
        }
        let last = world.drain_began.get().map(|began| began + LAST_READ);
        let late = |frame: &&crate::ledger::Frame| last.is_some_and(|last| frame.read > last);
        if let Some(frame) = ledger.frames.iter().find(late) {
            let text = format!("a frame of stream {} was read while draining", frame.stream);
            return broken(Rule::Drain, text);
        }
    }
    bounds(world)?;
    accounts(world)
}
