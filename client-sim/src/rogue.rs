//! Clients that break the rules on purpose, to see what that does to the cameras beside them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    runtime::Builder,
    sync::{oneshot, watch},
    task::JoinSet,
};
use tonic::transport::Endpoint;
use vedette_proto::camera_ai::{DetectRequest, Outcome};

use crate::{
    camera::{Fleet, request},
    clock,
    config::{Behaviour, Rogue, RunConfig},
    connect::{connect, endpoint},
    error::SimError,
    meter::ROGUES_THREAD,
    random,
    report::schema::RogueFigures,
    stream,
};

/// Time between two frames of clients that keep to a rate.
const PERIOD: Duration = Duration::from_millis(100);

/// Bytes of a frame that is no picture.
const GARBAGE_BYTES: u64 = 60_000;

/// Pause after a connection that broke or was broken, so that a refusing server is not flooded with
/// connections, which is another test.
const PAUSE: Duration = Duration::from_millis(50);

/// The rogues of a run at work, on a thread of their own: a flood must not keep the cameras beside it
/// from waking up in time, or it would look as if the server did.
#[derive(Debug)]
pub struct Rogues {
    groups: Vec<(Rogue, Arc<Counts>)>,
    /// Ends them when dropped; nothing is ever sent.
    leave: oneshot::Sender<()>,
    /// Its other end lives as long as the thread works.
    left: oneshot::Receiver<()>,
}

#[derive(Debug, Default)]
struct Counts {
    streams: AtomicU64,
    sent: AtomicU64,
    answered: AtomicU64,
    ok: AtomicU64,
}

/// Starts the scenario's rogues. They leave when their time is over or when `stop` turns true.
/// `None` when there are none.
pub fn start(
    config: &RunConfig,
    fleet: &Arc<Fleet>,
    stop: &watch::Receiver<bool>,
) -> Result<Option<Rogues>, SimError> {
    if config.scenario.rogues.is_empty() {
        return Ok(None);
    }
    let endpoint = endpoint(&config.target)?;
    let mut clients = Vec::new();
    let mut groups = Vec::new();
    for rogue in &config.scenario.rogues {
        let counts = Arc::new(Counts::default());
        for _ in 0..rogue.clients {
            clients.push(Client {
                rogue: rogue.clone(),
                endpoint: endpoint.clone(),
                config: config.clone(),
                fleet: fleet.clone(),
                number: clients.len() as u32,
                counts: counts.clone(),
            });
        }
        groups.push((rogue.clone(), counts));
    }
    let runtime = Builder::new_current_thread().enable_all().build().map_err(SimError::Runtime)?;
    let (leave, told) = oneshot::channel();
    let (working, left) = oneshot::channel();
    let stop = stop.clone();
    thread::Builder::new()
        .name(ROGUES_THREAD.to_owned())
        .spawn(move || {
            runtime.block_on(misbehave(clients, stop, told));
            drop::<oneshot::Sender<()>>(working);
        })
        .map_err(SimError::Runtime)?;
    Ok(Some(Rogues { groups, leave, left }))
}

async fn misbehave(clients: Vec<Client>, stop: watch::Receiver<bool>, told: oneshot::Receiver<()>) {
    let mut at_it = JoinSet::new();
    for client in clients {
        at_it.spawn(client.run(stop.clone()));
    }
    let all = async { while at_it.join_next().await.is_some() {} };
    tokio::select! {
        () = all => {}
        _ = told => {}
    }
}

impl Rogues {
    /// What they did; ends those that are still at it.
    pub async fn figures(self) -> Vec<RogueFigures> {
        drop(self.leave);
        // The thread's end closes the channel, which is what is waited for.
        let _ = self.left.await;
        let figures = |(rogue, counts): (Rogue, Arc<Counts>)| RogueFigures {
            behaviour: rogue.behaviour,
            clients: rogue.clients,
            streams: counts.streams.load(Relaxed),
            sent: counts.sent.load(Relaxed),
            answered: counts.answered.load(Relaxed),
            ok: counts.ok.load(Relaxed),
        };
        self.groups.into_iter().map(figures).collect()
    }
}

struct Client {
    rogue: Rogue,
    endpoint: Endpoint,
    config: RunConfig,
    fleet: Arc<Fleet>,
    number: u32,
    counts: Arc<Counts>,
}

impl Client {
    async fn run(self, mut stop: watch::Receiver<bool>) {
        let begin = self.fleet.start + self.fleet.schedule.warmup();
        let end = begin + self.fleet.schedule.measured();
        let until = self.rogue.leave.map_or(end, |leave| begin + leave);
        let misbehave = async {
            clock::sleep_until(begin + self.rogue.arrive).await;
            loop {
                self.one_stream().await;
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            () = misbehave => {}
            () = clock::sleep_until(until) => {}
            _ = stop.wait_for(|&stop| stop) => {}
        }
    }

    /// Opens a connection and a stream and uses them until they end.
    async fn one_stream(&self) {
        let Ok(channel) = connect(&self.endpoint, &self.config.target).await else { return };
        self.counts.streams.fetch_add(1, Relaxed);
        let name = format!("rogue-{}", self.number + 1);
        let (sender, mut answers) = stream::open(channel, &name, self.fleet.token.as_ref());
        let send = async {
            for k in 0.. {
                if sender.send(self.frame(k)).await.is_err() {
                    return;
                }
                self.counts.sent.fetch_add(1, Relaxed);
                match self.rogue.behaviour {
                    Behaviour::Flood => {}
                    Behaviour::Flapping => return tokio::time::sleep(PAUSE).await,
                    Behaviour::NeverReads | Behaviour::Garbage => tokio::time::sleep(PERIOD).await,
                }
            }
        };
        let read = async {
            while let Ok(Some(answer)) = answers.next().await {
                self.counts.answered.fetch_add(1, Relaxed);
                let ok = answer.outcome == Outcome::Ok as i32;
                self.counts.ok.fetch_add(u64::from(ok), Relaxed);
                if self.rogue.behaviour == Behaviour::NeverReads {
                    // The stream has to be read from to be open at all.
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = send => {}
            () = read => {}
        }
    }

    fn frame(&self, k: u64) -> DetectRequest {
        let picture = match self.rogue.behaviour {
            Behaviour::Garbage => garbage(k),
            _ => self.fleet.loads[0].pictures.frame(self.number, k),
        };
        request(k, picture)
    }
}

/// Bytes that are no picture; every other frame begins like a JPEG.
fn garbage(k: u64) -> Bytes {
    let mut bytes: Vec<u8> = if k.is_multiple_of(2) { vec![0xFF, 0xD8, 0xFF] } else { Vec::new() };
    bytes.extend((0..GARBAGE_BYTES / 8).flat_map(|place| random::hash(k, place, 3).to_le_bytes()));
    bytes.into()
}
