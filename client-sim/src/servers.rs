//! The servers of a run: finding them, and the connections that cameras have to them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use vedette_proto::camera_ai::ServerInfo;

use crate::{
    balance::{Balancer, Parting},
    clock,
    config::{Balancing, Connections, RunConfig, ServerName, Target},
    connect::{connect, connect_many, endpoint, root_cause, server_info},
    error::SimError,
    machine, say,
};

/// Longest attempt to connect to one of several servers. A host without power answers nothing, and
/// the next server waits meanwhile.
const ELSEWHERE: Duration = Duration::from_secs(2);

/// Least time between two look-ups of names. Cameras that lose a server together ask once.
const LOOK_UP_EVERY: Duration = Duration::from_secs(1);

/// A server as it was before the run.
#[derive(Debug, Clone)]
pub struct Found {
    /// Where it is.
    pub target: Target,
    /// What it said about itself.
    pub info: Option<ServerInfo>,
    /// Whether it took a connection.
    pub up: bool,
}

/// Looks for the servers of a run. One of several that cannot be reached is left for later.
pub async fn find(target: &Target, balancing: &Balancing) -> Result<Vec<Found>, SimError> {
    if !balancing.several() {
        let info = probe(target).await?;
        return Ok(vec![Found { target: target.clone(), info, up: true }]);
    }
    let (targets, unknown) = addresses(target, &balancing.servers).await;
    for target in &targets {
        endpoint(target)?;
    }
    let mut probes = JoinSet::new();
    for (place, target) in targets.iter().cloned().enumerate() {
        probes.spawn(async move { (place, probe(&target).await) });
    }
    let mut found: Vec<Found> =
        targets.into_iter().map(|target| Found { target, info: None, up: false }).collect();
    let mut missing = unknown;
    while let Some(joined) = probes.join_next().await {
        match joined? {
            (place, Ok(info)) => (found[place].info, found[place].up) = (info, true),
            // Whatever else is wrong would be wrong later too.
            (_, Err(error)) if matches!(error, SimError::Unreachable { .. }) => missing.push(error),
            (_, Err(error)) => return Err(error),
        }
    }
    if found.iter().all(|server| !server.up) {
        return Err(missing.remove(0));
    }
    for error in missing {
        say(&format!("going on without one of the servers: {error}"));
    }
    Ok(found)
}

/// Connects and asks a server what it is.
async fn probe(target: &Target) -> Result<Option<ServerInfo>, SimError> {
    let channel = connect(&endpoint(target)?, target).await?;
    server_info(channel, target).await
}

/// The servers behind names, each once, and why some names have none.
async fn addresses(target: &Target, names: &[ServerName]) -> (Vec<Target>, Vec<SimError>) {
    let (mut targets, mut unknown): (Vec<Target>, _) = (Vec::new(), Vec::new());
    for name in names {
        match resolve(target, name).await {
            Err(error) => unknown.push(error),
            Ok(found) => {
                for one in found {
                    if targets.iter().all(|other| other.addr != one.addr) {
                        targets.push(one);
                    }
                }
            }
        }
    }
    (targets, unknown)
}

async fn resolve(target: &Target, name: &ServerName) -> Result<Vec<Target>, SimError> {
    let unknown = |why| SimError::Address { addr: name.to_string(), why };
    let ServerName::Each(name) = name else {
        return Ok(vec![Target { addr: name.addr().clone(), ..target.clone() }]);
    };
    let found = tokio::net::lookup_host(name.authority());
    let mut found: Vec<_> = found.await.map_err(|error| unknown(root_cause(&error)))?.collect();
    // Name servers give them in any order; the same run is to be the same.
    found.sort_unstable();
    found.dedup();
    if found.is_empty() {
        return Err(unknown("the name has no address".to_owned()));
    }
    let mut credentials = target.credentials.clone();
    if name.tls() && credentials.domain.is_none() {
        // Certificates are for names.
        credentials.domain = Some(name.host().to_owned());
    }
    let at = |addr| Target {
        addr: name.resolved(addr),
        connect: target.connect,
        credentials: credentials.clone(),
    };
    Ok(found.into_iter().map(at).collect())
}

/// A server for a stream, and a connection to it.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its place in the list.
    pub server: usize,
    /// The connection; opened when it is used.
    pub channel: Channel,
}

/// The servers while cameras use them.
#[derive(Debug)]
pub struct Servers {
    target: Target,
    balancing: Balancing,
    connections: Connections,
    /// Cameras of several threads choose and leave; each holds it for microseconds, and only when a
    /// stream begins, is first answered, or ends.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    balancer: Balancer,
    servers: Vec<Server>,
    looked_up: Instant,
}

#[derive(Debug)]
struct Server {
    target: Target,
    endpoint: Endpoint,
    /// Connections that cameras share.
    pool: Vec<Channel>,
    /// Whose turn it is among them.
    turn: usize,
}

impl Servers {
    /// Opens the connections with which `cameras` cameras begin, one place for each camera.
    pub async fn open(
        config: &RunConfig,
        found: &[Found],
        cameras: u32,
    ) -> Result<(Arc<Self>, Vec<Place>), SimError> {
        let (balancing, now) = (config.balancing.clone(), clock::now());
        let mut state = State {
            balancer: Balancer::new(balancing.policy),
            servers: Vec::new(),
            looked_up: now,
        };
        for server in found {
            let place = state.add(&server.target, balancing.several())?;
            if !server.up {
                state.balancer.failed(place, now);
            }
        }
        let chosen: Vec<usize> = (0..cameras)
            .map(|camera| state.balancer.choose(camera, None, &[], now).unwrap_or(0))
            .collect();
        machine::allow_open_files();
        let mut open = Vec::new();
        for (place, server) in state.servers.iter().enumerate() {
            let here = chosen.iter().filter(|&&chosen| chosen == place).count() as u32;
            let count = match config.connections {
                Connections::PerCamera => here,
                Connections::Shared(count) => count.min(here),
            };
            let channels = connect_many(&server.endpoint, &server.target, count).await;
            open.push(match channels {
                // It was there a moment ago. Its cameras will notice, and go elsewhere.
                Err(SimError::Unreachable { .. }) if found.len() > 1 => {
                    (0..count).map(|_| server.endpoint.connect_lazy()).collect()
                }
                channels => channels?,
            });
        }
        let mut turns = vec![0; open.len()];
        let place = |server: usize| {
            let turn = turns[server];
            turns[server] += 1;
            Place { server, channel: open[server][turn % open[server].len()].clone() }
        };
        let places = chosen.into_iter().map(place).collect();
        if matches!(config.connections, Connections::Shared(_)) {
            for (server, pool) in state.servers.iter_mut().zip(open) {
                server.pool = pool;
            }
        }
        let (target, connections) = (config.target.clone(), config.connections);
        let state = Mutex::new(state);
        Ok((Arc::new(Self { target, balancing, connections, state }), places))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a camera's next stream, after it left `last` in the way of `how`; `None` when it has
    /// tried all servers. A camera that stays keeps its connection.
    pub fn choose(
        self: &Arc<Self>,
        camera: u32,
        last: &Place,
        how: Parting,
        tried: &[usize],
        now: Instant,
    ) -> Option<Place> {
        if how == Parting::Stale {
            self.state().balancer.stay(last.server);
            return Some(last.clone());
        }
        self.look_up(now);
        let mut state = self.state();
        let server = state.balancer.choose(camera, Some(last.server), tried, now)?;
        if server == last.server {
            return Some(last.clone());
        }
        let channel = state.servers[server].channel(self.connections);
        Some(Place { server, channel })
    }

    /// A stream on a server is over.
    pub fn parted(&self, server: usize, how: Parting, now: Instant) {
        self.state().balancer.parted(server, how, now);
    }

    /// A stream on a server has its first answer.
    pub fn answered(&self, server: usize) {
        self.state().balancer.answered(server);
    }

    /// Whether a camera that was asked to choose again has a choice.
    pub fn several(&self) -> bool {
        self.state().servers.len() > 1
    }

    /// The servers' addresses.
    pub fn addrs(&self) -> Vec<String> {
        self.state().servers.iter().map(|server| server.target.addr.to_string()).collect()
    }

    /// Looks names up again, if there are any and it is time. Nobody waits for the answer: it is for
    /// the streams after this one.
    fn look_up(self: &Arc<Self>, now: Instant) {
        let names = &self.balancing.servers;
        if !names.iter().any(|name| matches!(name, ServerName::Each(_))) {
            return;
        }
        {
            let mut state = self.state();
            if now.saturating_duration_since(state.looked_up) < LOOK_UP_EVERY {
                return;
            }
            state.looked_up = now;
        }
        let servers = self.clone();
        tokio::spawn(async move {
            let (targets, unknown) = addresses(&servers.target, &servers.balancing.servers).await;
            // A name server that fails has not taken any server away.
            if unknown.is_empty() {
                servers.state().list(&targets);
            }
        });
    }
}

impl State {
    fn add(&mut self, target: &Target, several: bool) -> Result<usize, SimError> {
        let mut endpoint = endpoint(target)?;
        if several {
            endpoint = endpoint.connect_timeout(target.connect.min(ELSEWHERE));
        }
        let target = target.clone();
        self.servers.push(Server { target, endpoint, pool: Vec::new(), turn: 0 });
        Ok(self.balancer.add())
    }

    /// These are the servers now. Those that went are kept for the books.
    fn list(&mut self, targets: &[Target]) {
        for (place, server) in self.servers.iter().enumerate() {
            let listed = targets.iter().any(|target| target.addr == server.target.addr);
            self.balancer.list(place, listed);
        }
        for target in targets {
            let known = self.servers.iter().any(|server| server.target.addr == target.addr);
            // What the flags name was read when the run began; a file that is gone now keeps the new
            // server out.
            if !known && let Err(error) = self.add(target, true) {
                say(&format!("{error}"));
            }
        }
    }
}

impl Server {
    /// A connection for a camera that comes.
    fn channel(&mut self, connections: Connections) -> Channel {
        match connections {
            Connections::PerCamera => self.endpoint.connect_lazy(),
            Connections::Shared(count) if self.pool.len() < count as usize => {
                let channel = self.endpoint.connect_lazy();
                self.pool.push(channel.clone());
                channel
            }
            Connections::Shared(_) => {
                self.turn = (self.turn + 1) % self.pool.len();
                self.pool[self.turn].clone()
            }
        }
    }
}
