//! Calls one after the other, from several workers, on one shared connection and on several: what the
//! client's side of gRPC makes of them. Closed loop, unlike [`crate::run`]: this measures how much goes
//! through, not how a fleet fares.

mod calls;

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use tonic::transport::Endpoint;

use self::calls::Point;
use crate::{
    clock,
    config::{Credentials, Payload, PingConfig, PingServer, Target},
    connect::{connect, endpoint, server_info},
    error::SimError,
    machine,
    null_server::NullServer,
    proxy::{Line, Proxy},
    random,
    report::{
        ping::{KIND_PING, NULL_ADDR, PingReport},
        schema::SCHEMA_VERSION,
    },
    run,
    source::{Picture, PictureSet},
    token::Token,
    verdict::counted,
};

/// How long the built-in server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(30);

/// What all points of a measurement share.
struct Setup {
    target: Target,
    endpoint: Endpoint,
    token: Option<Token>,
    warmup: Duration,
    seconds: Duration,
}

/// The servers and lines of this process, which end with it.
struct Helpers {
    _null: Option<NullServer>,
    _proxy: Option<Proxy>,
}

/// Measures every point of `config`.
///
/// # Errors
/// When the server cannot be reached, or a call fails; one that is answered otherwise than OK has not.
pub async fn ping(config: &PingConfig) -> Result<PingReport, SimError> {
    machine::allow_open_files();
    let payloads = payloads(&config.payload).await?;
    let (target, helpers) = reach(config).await?;
    let endpoint = endpoint(&target)?;
    let info = server_info(connect(&endpoint, &target).await?, &target).await?;
    let token = Token::of(&target)?;
    let setup = Setup { target, endpoint, token, warmup: config.warmup, seconds: config.seconds };
    let plan = plan(config, &payloads);
    let mut report = PingReport {
        schema_version: SCHEMA_VERSION,
        kind: KIND_PING.to_owned(),
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        arguments: std::env::args().skip(1).collect(),
        started_unix_ms: clock::unix_micros() / 1000,
        machine: machine::figures(),
        addr: match &config.server {
            PingServer::Null(_) => NULL_ADDR.to_owned(),
            PingServer::At(target) => target.addr.to_string(),
        },
        tls: setup.target.addr.tls(),
        server: info.map(Into::into),
        server_threads: match config.server {
            PingServer::Null(threads) => Some(threads),
            PingServer::At(_) => None,
        },
        threads: config.threads,
        seconds: config.seconds.as_secs_f64(),
        warmup_seconds: config.warmup.as_secs_f64(),
        delay_ms: config.delay.map(clock::millis),
        points: Vec::with_capacity(plan.len()),
    };
    announce(config, plan.len());
    for (index, point) in plan.iter().enumerate() {
        let measured = calls::measure(&setup, point).await?;
        if !config.quiet {
            crate::say(&format!(
                "[{}/{}] {}, {} bytes, {} in flight, {}: {:.0} calls/s",
                index + 1,
                plan.len(),
                measured.mode,
                measured.payload_bytes,
                measured.in_flight,
                counted(u64::from(measured.connections), "connection"),
                measured.calls_per_second,
            ));
        }
        report.points.push(measured);
    }
    report.compare();
    drop(helpers);
    Ok(report)
}

/// Says how long it will take.
fn announce(config: &PingConfig, points: usize) {
    if config.quiet {
        return;
    }
    let each = config.warmup + config.seconds;
    let total = each.as_secs_f64() * points as f64;
    let points = counted(points as u64, "point");
    crate::say(&format!("{points} of {:.1} s, about {total:.0} s together", each.as_secs_f64()));
}

/// What is sent: one set of pictures for each payload.
async fn payloads(payload: &Payload) -> Result<Vec<PictureSet>, SimError> {
    match payload {
        Payload::Filler(sizes) => Ok(sizes.iter().filter_map(|&bytes| filler(bytes)).collect()),
        Payload::Pictures(source) => Ok(vec![run::pictures_of(source, 1.0, true).await?]),
    }
}

/// Bytes that are no picture, nor anything that a network card could make smaller.
fn filler(bytes: usize) -> Option<PictureSet> {
    let numbers = (0..bytes.div_ceil(8) as u64)
        .flat_map(|place| random::hash(bytes as u64, place, 4).to_le_bytes());
    let bytes: Bytes = numbers.take(bytes).collect();
    PictureSet::new(vec![Picture { name: "filler".to_owned(), bytes }])
}

/// The address to call, and what has to run in this process behind it.
async fn reach(config: &PingConfig) -> Result<(Target, Helpers), SimError> {
    let (mut target, null) = match &config.server {
        PingServer::At(target) => (target.clone(), None),
        PingServer::Null(threads) => {
            let server = NullServer::start(*threads).map_err(SimError::Runtime)?;
            let credentials = Credentials::default();
            let addr = server.addr.into();
            (Target { addr, connect: CONNECT, credentials }, Some(server))
        }
    };
    let mut proxy = None;
    if let Some(rtt) = config.delay {
        let behind = match &null {
            Some(server) => server.addr,
            None => resolve(&target).await?,
        };
        let started = Proxy::start(behind, Line::with_rtt(rtt)).map_err(SimError::Runtime)?;
        target.addr = started.addr.into();
        proxy = Some(started);
    }
    Ok((target, Helpers { _null: null, _proxy: proxy }))
}

async fn resolve(target: &Target) -> Result<SocketAddr, SimError> {
    let unreachable = |why| SimError::Unreachable { addr: target.addr.to_string(), why };
    let mut found = tokio::net::lookup_host(target.addr.authority())
        .await
        .map_err(|error| unreachable(error.to_string()))?;
    found.next().ok_or_else(|| unreachable("the name has no address".to_owned()))
}

/// Every combination, those that are compared next to each other.
fn plan(config: &PingConfig, payloads: &[PictureSet]) -> Vec<Point> {
    let mut points = Vec::new();
    for &mode in &config.modes {
        for payload in payloads {
            for &in_flight in &config.in_flight {
                points.extend(config.sharings.iter().map(|&sharing| Point {
                    mode,
                    payload: payload.clone(),
                    in_flight,
                    sharing,
                }));
            }
        }
    }
    points
}
