//! Clients that break the rules on purpose, to see what that does to the cameras beside them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{sync::watch, task::JoinSet};
use tonic::transport::Endpoint;
use vedette_proto::camera_ai::{DetectRequest, Outcome};

use crate::{
    camera::{Fleet, request},
    clock,
    config::{Behaviour, Rogue, RunConfig},
    connect::{connect, endpoint},
    error::SimError,
    random,
    report::schema::RogueFigures,
    source::PictureSet,
    stream,
    token::Token,
};

/// Time between two frames of clients that keep to a rate.
const PERIOD: Duration = Duration::from_millis(100);

/// Bytes of a frame that is no picture.
const GARBAGE_BYTES: u64 = 60_000;

/// Pause after a connection that broke or was broken, so that a refusing server is not flooded with
/// connections, which is another test.
const PAUSE: Duration = Duration::from_millis(50);

/// The rogues of a run at work.
#[derive(Debug)]
pub struct Rogues {
    clients: JoinSet<()>,
    groups: Vec<(Rogue, Arc<Counts>)>,
}

#[derive(Debug, Default)]
struct Counts {
    streams: AtomicU64,
    sent: AtomicU64,
    answered: AtomicU64,
    ok: AtomicU64,
}

/// Starts the scenario's rogues. They leave when their time is over or when `stop` turns true.
pub fn start(
    config: &RunConfig,
    fleet: &Arc<Fleet>,
    stop: &watch::Receiver<bool>,
) -> Result<Rogues, SimError> {
    let mut rogues = Rogues { clients: JoinSet::new(), groups: Vec::new() };
    let begin = fleet.start + fleet.schedule.warmup();
    let end = begin + fleet.schedule.measured();
    if config.scenario.rogues.is_empty() {
        return Ok(rogues);
    }
    let endpoint = endpoint(&config.target)?;
    for rogue in &config.scenario.rogues {
        let counts = Arc::new(Counts::default());
        for _ in 0..rogue.clients {
            let client = Client {
                behaviour: rogue.behaviour,
                endpoint: endpoint.clone(),
                token: fleet.token.clone(),
                config: config.clone(),
                number: rogues.clients.len() as u64,
                pictures: fleet.loads[0].pictures.clone(),
                counts: counts.clone(),
            };
            let from = begin + rogue.arrive;
            let until = rogue.leave.map_or(end, |leave| begin + leave);
            rogues.clients.spawn(client.run(from, until, stop.clone()));
        }
        rogues.groups.push((rogue.clone(), counts));
    }
    Ok(rogues)
}

impl Rogues {
    /// What they did; ends those that are still at it.
    pub async fn figures(mut self) -> Vec<RogueFigures> {
        self.clients.shutdown().await;
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
    behaviour: Behaviour,
    endpoint: Endpoint,
    token: Option<Token>,
    config: RunConfig,
    number: u64,
    pictures: PictureSet,
    counts: Arc<Counts>,
}

impl Client {
    async fn run(self, from: Instant, until: Instant, mut stop: watch::Receiver<bool>) {
        clock::sleep_until(from).await;
        let misbehave = async {
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
        let (sender, mut answers) = stream::open(channel, &name, self.token.as_ref());
        let send = async {
            for k in 0.. {
                if sender.send(self.frame(k)).await.is_err() {
                    return;
                }
                self.counts.sent.fetch_add(1, Relaxed);
                match self.behaviour {
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
                if self.behaviour == Behaviour::NeverReads {
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
        let picture = match self.behaviour {
            Behaviour::Garbage => garbage(k),
            _ => self.pictures.frame(self.number as u32, k),
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
