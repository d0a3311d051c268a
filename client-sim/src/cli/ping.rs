//! The flags of `client-sim ping`.

use std::{num::NonZeroU32, path::PathBuf, thread, time::Duration};

use clap::Args;

use super::{
    fleet::{CredentialArgs, MAX_THREADS},
    values::{positive_millis, positive_seconds, seconds},
};
use crate::config::{
    Credentials, JsonTarget, Mode, Payload, PictureSource, PingConfig, PingServer, ServerAddr,
    Sharing, Size, Target,
};

/// What `--addr` calls the built-in server.
const NULL: &str = "null";

/// Most workers of a point; each may be a TCP connection.
const MAX_IN_FLIGHT: u32 = 10_000;

/// Largest filler in bytes: more than any camera's picture, and a copy for each worker fits.
const MAX_PAYLOAD_BYTES: usize = 64 << 20;

#[derive(Debug, Args)]
pub(super) struct PingArgs {
    /// The server, as HOST:PORT, http://HOST:PORT or https://HOST:PORT; "null" = one in this
    /// process that answers at once
    #[arg(long, default_value = NULL)]
    addr: String,
    /// Keep trying to connect for this long, in seconds
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = positive_seconds)]
    connect_seconds: Duration,
    #[command(flatten)]
    credentials: CredentialArgs,
    /// Kinds of calls: one for each frame, or frames on a stream for each worker
    #[arg(long, value_enum, value_delimiter = ',', default_value = "unary")]
    mode: Vec<Mode>,
    /// Calls under way at the same time, one for each worker
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64", value_name = "N,...",
          value_parser = in_flight)]
    in_flight: Vec<NonZeroU32>,
    /// How workers share connections: one for all, one for each, or a number for all
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "one,per-worker",
        value_name = "one|per-worker|N,..."
    )]
    connections: Vec<Sharing>,
    /// Bytes of each frame, which are no picture, so that a server answers without decoding; one may
    /// read a stream of such frames more slowly, so see --size too
    #[arg(long, value_delimiter = ',', default_value = "60000", value_name = "BYTES,...",
          value_parser = payload_bytes)]
    payload_bytes: Vec<usize>,
    /// Send the pictures of this folder instead
    #[arg(long, value_name = "DIR", conflicts_with_all = ["payload_bytes", "size"])]
    images: Option<PathBuf>,
    /// Send drawn pictures of this size instead, in pixels
    #[arg(long, value_name = "WxH", conflicts_with = "payload_bytes")]
    size: Option<Size>,
    /// Length of each measurement, in seconds
    #[arg(long, default_value = "2", value_parser = positive_seconds)]
    seconds: Duration,
    /// Call for this many seconds first, without counting
    #[arg(long, default_value = "0.5", value_name = "SECONDS", value_parser = seconds)]
    warmup: Duration,
    /// Send everything through a proxy in this process that makes the round trip this much longer,
    /// in milliseconds
    #[arg(long, value_name = "MS", value_parser = positive_millis)]
    delay_ms: Option<Duration>,
    /// Threads of the workers and their connections [default: cores]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    threads: Option<u16>,
    /// Threads of the built-in server [default: cores]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    server_threads: Option<u16>,
    /// Write the report as JSON to this file; "-" = standard output
    #[arg(long, value_name = "FILE")]
    json: Option<JsonTarget>,
    /// Print no progress
    #[arg(long)]
    quiet: bool,
}

fn in_flight(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse::<NonZeroU32>().ok().filter(|n| n.get() <= MAX_IN_FLIGHT);
    number.ok_or_else(|| format!("write numbers from 1 to {MAX_IN_FLIGHT}, such as 1,8,64"))
}

fn payload_bytes(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|bytes| *bytes <= MAX_PAYLOAD_BYTES);
    number.ok_or_else(|| format!("write numbers from 0 to {MAX_PAYLOAD_BYTES}, such as 1000,60000"))
}

impl PingArgs {
    fn server(&self) -> Result<PingServer, String> {
        let credentials: Credentials = self.credentials.clone().into();
        if self.addr == NULL {
            if credentials != Credentials::default() {
                return Err("--tls-... and --token-file: the built-in server, --addr null, takes \
                            none"
                    .to_owned());
            }
            return Ok(PingServer::Null(threads(self.server_threads)));
        }
        if self.server_threads.is_some() {
            return Err("--server-threads: is of the built-in server, --addr null".to_owned());
        }
        let addr: ServerAddr =
            self.addr.parse().map_err(|why| format!("--addr {}: {why}", self.addr))?;
        if addr.tls() && self.delay_ms.is_some() {
            return Err("--delay-ms: its proxy has no certificate; use http:// with it".to_owned());
        }
        Ok(PingServer::At(Target { addr, connect: self.connect_seconds, credentials }))
    }
}

fn threads(given: Option<u16>) -> usize {
    given.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from)
}

impl TryFrom<PingArgs> for PingConfig {
    type Error = String;

    fn try_from(args: PingArgs) -> Result<Self, String> {
        let server = args.server()?;
        let payload = match (args.images, args.size) {
            (Some(dir), _) => Payload::Pictures(PictureSource::Folder(dir)),
            (None, Some(size)) => Payload::Pictures(PictureSource::Drawn(size)),
            (None, None) => Payload::Filler(args.payload_bytes),
        };
        Ok(Self {
            server,
            modes: args.mode,
            payload,
            in_flight: args.in_flight,
            sharings: args.connections,
            seconds: args.seconds,
            warmup: args.warmup,
            delay: args.delay_ms,
            threads: threads(args.threads),
            json: args.json,
            quiet: args.quiet,
        })
    }
}
