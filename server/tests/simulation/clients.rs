//! Cameras, and the transport between them and the server.

use std::{rc::Rc, time::Duration};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use vedette_proto::ACCEPTED_FRAMES_KEY;
use vedette_server::{admit::Registration, limits::STREAM_WINDOW_BYTES};

use crate::{
    executor::{First, Side, yield_now},
    plan::{Camera, Fate, Leaves, MS, Manner, Reads},
    rules::{Rule, broken},
    streams::{Inbound, Reader, Replies, Sent, Way, detect, reply_places},
    trace::Event,
    world::World,
};

/// Most frames on the wire of one stream, however small: what arrives in one piece.
const MOST_ON_WIRE: usize = 64;

/// A camera's life: one stream, or calls, after the other.
pub(crate) async fn camera(world: Rc<World>, number: usize) {
    let plan = world.plan.cameras[number].clone();
    world.sleep_until(plan.opens).await;
    loop {
        match plan.manner {
            Manner::Stream => stream(&world, number, &plan).await,
            Manner::Calls => calls(&world, number, &plan).await,
        }
        let Some(pause) = plan.returns else { return };
        // Not at the same instant for ever.
        world.sleep(pause.max(MS)).await;
        if world.now() >= plan.until {
            return;
        }
    }
}

impl World {
    fn fate(&self) -> Fate {
        let mishaps = self.plan.mishaps;
        let mut random = self.random.borrow_mut();
        if random.chance(mishaps.junk) {
            Fate::Junk
        } else if random.chance(mishaps.broken) {
            Fate::Broken
        } else if random.chance(mishaps.panics) {
            random.one_of(&[Fate::PanicsEarly, Fate::PanicsLate])
        } else if random.chance(mishaps.fails) {
            Fate::Fails
        } else {
            Fate::Good
        }
    }

    /// When the camera's next frames are due.
    fn next_due(&self, plan: &Camera, due: Duration) -> Duration {
        due + plan.period + self.random.borrow_mut().time(Duration::ZERO..=plan.jitter)
    }
}

/// Opens a stream and sends frames until the camera's time is up or the stream is over.
async fn stream(world: &Rc<World>, number: usize, plan: &Camera) {
    let places = reply_places(&world.plan);
    let Some((way, registration)) = world.register(number, places) else { return };
    let (reset, over) = (CancellationToken::new(), CancellationToken::new());
    let frames = serve(world, plan, way, registration, &reset, &over);
    let mut due = world.now();
    while due < plan.until {
        if let First::That(()) = world.race(world.sleep_until(due), over.cancelled()).await {
            return;
        }
        for _ in 0..plan.burst {
            let sent = Sent { at: world.now(), fate: world.fate() };
            // A full wire holds the camera up, as HTTP/2's window does.
            match world.race(frames.send(sent), over.cancelled()).await {
                First::This(Ok(())) => {}
                First::This(Err(_)) | First::That(()) => return,
            }
        }
        // A camera that was held up goes on with the pictures of now.
        due = world.next_due(plan, due).max(world.now());
    }
    if plan.finishes {
        drop(frames);
    }
    over.cancelled().await;
}

/// As `Ingress::detect_stream`, and what carries the stream. Returns its wire.
fn serve(
    world: &Rc<World>,
    plan: &Camera,
    way: Way,
    registration: Registration,
    reset: &CancellationToken,
    over: &CancellationToken,
) -> mpsc::Sender<Sent> {
    let on_wire = (STREAM_WINDOW_BYTES as usize / plan.bytes.max(1)).clamp(1, MOST_ON_WIRE);
    let (wire, frames) = mpsc::channel(on_wire);
    let (replies, queue) = mpsc::channel(reply_places(&world.plan));
    let (age, stream) = (world.plan.age, way.stream);
    let reader = Reader {
        world: Rc::clone(world),
        inbound: Inbound { frames, reset: reset.clone() },
        replies,
        retire_at: age.map(|limit| world.now() + limit.stream_end(registration.key())),
        accepted: 0,
        way,
    };
    world.spawn(Side::Io, reader.run());
    let replies = Replies::new(world, stream, queue, registration);
    let left = CancellationToken::new();
    let delivery = deliver(Rc::clone(world), plan.reads, replies, left.clone(), over.clone());
    world.spawn(Side::Io, delivery);
    if let Some(leaves) = plan.leaves {
        world.spawn(Side::Io, leave(Rc::clone(world), stream, leaves, reset.clone(), left));
    }
    wire
}

/// A client leaves: the server sees it on the way in and on the way out, in either order.
async fn leave(
    world: Rc<World>,
    stream: usize,
    leaves: Leaves,
    reset: CancellationToken,
    left: CancellationToken,
) {
    leaving(&world, stream, leaves).await;
    let [first, second] = if world.chance(0.5) { [reset, left] } else { [left, reset] };
    first.cancel();
    let gap = world.random.borrow_mut().time(Duration::ZERO..=10 * MS);
    world.sleep(gap).await;
    second.cancel();
}

async fn leaving(world: &World, stream: usize, leaves: Leaves) {
    world.sleep(leaves.after).await;
    if leaves.on_pick {
        let picked = Rc::clone(&world.watched.borrow()[stream].picked);
        picked.notified().await;
        let moment = world.random.borrow_mut().time(Duration::ZERO..=5 * MS);
        world.sleep(moment).await;
    }
}

/// The way out: takes an answer from the stream whenever its client reads one, as HTTP/2's window has
/// it, until the stream ends or its client has left.
async fn deliver(
    world: Rc<World>,
    reads: Reads,
    mut replies: Replies,
    left: CancellationToken,
    over: CancellationToken,
) {
    let stream = replies.stream;
    let has_left = loop {
        let next = async {
            match reads {
                Reads::AtOnce => {}
                Reads::Slowly(pause) => world.sleep(pause).await,
                Reads::Until(end) if world.now() < end => {}
                Reads::Until(_) => std::future::pending().await,
            }
            replies.recv().await
        };
        match world.race(next, left.cancelled()).await {
            First::This(Some(Ok(reply))) => world.delivered(stream, &reply),
            First::This(Some(Err(status))) => {
                farewell(&world, stream, &status);
                break false;
            }
            First::This(None) => {
                ended(&world, stream, None);
                break false;
            }
            First::That(()) => break true,
        }
    };
    // Other threads may answer between the two.
    replies.queue = None;
    yield_now().await;
    drop(replies);
    if has_left {
        // What it has sent before that may still arrive.
        let on_its_way = world.random.borrow_mut().time(Duration::ZERO..=10 * MS);
        world.sleep(on_its_way).await;
    }
    over.cancel();
}

/// A status of the server's has reached its client: when it ends the stream of its own accord, with the
/// number of frames that it has accepted.
fn farewell(world: &World, stream: usize, status: &Status) {
    let accepted = status.metadata().get(ACCEPTED_FRAMES_KEY);
    let accepted = accepted.and_then(|value| value.to_str().ok()?.parse().ok());
    if status.code() == Code::Unavailable && accepted.is_none() {
        let text = format!("stream {stream} ended without the number of accepted frames");
        world.check(broken::<()>(Rule::Drain, text));
    }
    ended(world, stream, accepted);
}

/// A stream's end has reached its client.
fn ended(world: &World, stream: usize, accepted: Option<u64>) {
    world.note(Event::Ended { stream, accepted });
    let checked = world.ledger.borrow().ended(stream, accepted);
    world.check(checked);
}

/// A call for each frame, the next one not before the last one's answer.
async fn calls(world: &Rc<World>, number: usize, plan: &Camera) {
    let mut due = world.now();
    while due < plan.until {
        world.sleep_until(due).await;
        let Some((way, registration)) = world.register(number, 1) else { return };
        let sent = Sent { at: world.now(), fate: world.fate() };
        let over = CancellationToken::new();
        let call = call(Rc::clone(world), way, registration, sent, plan.leaves, over.clone());
        world.spawn(Side::Io, call);
        over.cancelled().await;
        due = world.next_due(plan, due).max(world.now());
    }
}

async fn call(
    world: Rc<World>,
    way: Way,
    registration: Registration,
    sent: Sent,
    leaves: Option<Leaves>,
    over: CancellationToken,
) {
    let stream = way.stream;
    let left = async {
        match leaves {
            Some(leaves) => leaving(&world, stream, leaves).await,
            None => std::future::pending().await,
        }
    };
    // The answer is delivered while the call still is: its registration ends after it.
    match world.race(detect(&world, way, registration, sent), left).await {
        First::This(Ok(reply)) => world.delivered(stream, &reply),
        First::This(Err(status)) => {
            let text = format!("the call of stream {stream} failed: {status}");
            world.check(broken::<()>(Rule::OneOutcome, text));
        }
        First::That(()) => {}
    }
    over.cancel();
}
