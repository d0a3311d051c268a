//! Flags that several jobs share: the server, the fleet, the limits.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum as _};

use super::values::{
    connections, fps, millis, percentile_limit, positive_millis, positive_seconds, ratio,
};
use crate::{
    config::{
        self, Balancing, Connections, Credentials, PictureSource, Policy, RAMP_CAMERAS, RAMP_EVERY,
        Reconnect, Scenario, ServerAddr, ServerName, Size, Slo, Target,
    },
    schedule::Phases,
};

/// As clap takes it.
pub(super) const MAX_CAMERAS: i64 = config::MAX_CAMERAS as i64;

/// Most threads of the simulator's runtime.
pub(super) const MAX_THREADS: i64 = 256;

/// How the cameras' start times lie to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Phase {
    /// Spread evenly over a period
    Even,
    /// Anywhere in a period, decided by the seed
    Random,
    /// All at the same instant, every period: the hardest on the server
    Aligned,
    /// Group after group, as a fleet that is switched on
    Ramp,
}

#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// The server, as HOST:PORT, http://HOST:PORT or https://HOST:PORT
    #[arg(long, default_value = "127.0.0.1:50051")]
    pub(super) addr: ServerAddr,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Servers that share the cameras.
#[derive(Debug, Args)]
pub(super) struct ServersArgs {
    /// The server, as HOST:PORT, http://HOST:PORT or https://HOST:PORT; or several that share the
    /// cameras, with a comma between two or each with its own --addr; `dns:///HOST:PORT` (with TLS
    /// `dns+https:///HOST:PORT`) is every address that the name has [default: 127.0.0.1:50051, or the
    /// scenario's]
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',')]
    addr: Vec<ServerName>,
    /// How cameras choose among several servers [default: round-robin, or the scenario's]
    #[arg(long, value_enum, value_name = "POLICY")]
    balance: Option<Policy>,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// How to get through to a server.
#[derive(Debug, Args)]
struct ConnectArgs {
    /// Keep trying to connect, and wait for the server's description, for this long, in seconds
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = positive_seconds)]
    connect_seconds: Duration,
    #[command(flatten)]
    credentials: CredentialArgs,
}

/// How to prove this client to the server and to check the server.
#[derive(Debug, Clone, Args)]
pub(super) struct CredentialArgs {
    /// Trust the certificate authorities in this PEM file, with an https:// address; without it,
    /// those that the system trusts
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Name in the server's certificate, when it differs from the address
    #[arg(long, value_name = "NAME")]
    tls_domain: Option<String>,
    /// Show the server this client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Send the token in this file with every call, as `authorization: Bearer ...`; read again for
    /// each new stream
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// What cameras send and when, for fleets of cameras that are all alike.
#[derive(Debug, Args)]
pub(super) struct FleetArgs {
    /// Frames per second of each camera
    #[arg(long, default_value = "10", value_parser = fps)]
    pub(super) fps: f64,
    /// Let each frame leave up to this much after its even place, in milliseconds
    #[arg(long, default_value = "0", value_name = "MS", value_parser = millis)]
    pub(super) jitter_ms: Duration,
    /// How the cameras' start times lie to each other; connections are open before the first
    #[arg(long, value_enum, default_value = "even")]
    phase: Phase,
    /// Cameras that start together, with --phase ramp [default: 10]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=MAX_CAMERAS))]
    ramp_cameras: Option<u32>,
    /// Time from one group's start to the next one's, with --phase ramp, in milliseconds
    /// [default: 50]
    #[arg(long, value_name = "MS", value_parser = positive_millis)]
    ramp_every_ms: Option<Duration>,
    /// Send the pictures of this folder (JPEG, PNG, WebP, BMP by content) instead of drawn ones
    #[arg(long, value_name = "DIR", conflicts_with_all = ["size", "video"])]
    images: Option<PathBuf>,
    /// Send the pictures of this video as JPEG files (needs ffmpeg), scaled to --size if given
    #[arg(long, value_name = "FILE")]
    video: Option<PathBuf>,
    /// Size of the drawn pictures, in pixels [default: 640x480]
    #[arg(long, value_name = "WxH")]
    size: Option<Size>,
    /// Ask the server to answer each frame within this many milliseconds; 0 = the server's default
    #[arg(long, default_value_t = 0, value_name = "MS")]
    pub(super) budget_ms: u32,
}

/// How cameras connect, for every job that simulates fleets.
#[derive(Debug, Args)]
pub(super) struct LinkArgs {
    /// One connection per camera, or this many for all cameras together
    #[arg(long, default_value = "per-camera", value_name = "per-camera|N",
          value_parser = connections)]
    pub(super) connections: Connections,
    /// Let a camera whose stream ends early stay away, instead of opening another one
    #[arg(long)]
    no_reconnect: bool,
    /// Do not fail for frames missed while a camera reconnects, when that takes at most this long,
    /// in milliseconds
    #[arg(long, default_value = "0", value_name = "MS", value_parser = millis,
          conflicts_with = "no_reconnect")]
    max_gap_ms: Duration,
    /// Threads of the simulator; more take CPU from a server on the same machine
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    pub(super) threads: u16,
}

/// What a run is held against.
#[derive(Debug, Args)]
pub(super) struct SloArgs {
    /// Fail when any OK answer took longer than this, in milliseconds
    #[arg(long, default_value = "100", value_name = "MS", value_parser = positive_millis)]
    slo_max_ms: Duration,
    /// Fail when this percentile of the OK answers took longer, as in p99=50; may be repeated
    #[arg(long, value_name = "pNN=MS", value_parser = percentile_limit)]
    slo_percentile: Vec<(f64, Duration)>,
    /// Fail when a smaller share of the frames than this was answered OK, in total or of one
    /// camera, 0 to 1
    #[arg(long, default_value = "1.0", value_name = "RATIO", value_parser = ratio)]
    min_answered_ratio: f64,
}

impl FleetArgs {
    /// The flags' scenario for `cameras` cameras that start as `phases` say.
    pub(super) fn scenario(
        &self,
        cameras: u32,
        phases: Phases,
        warmup: Duration,
        measured: Duration,
    ) -> Result<Scenario, String> {
        let mut scenario = Scenario::uniform(cameras, self.fps, warmup, measured);
        scenario.phases = phases;
        for group in &mut scenario.groups {
            (group.jitter, group.pictures) = (self.jitter()?, self.pictures());
            group.budget_ms = self.budget_ms;
        }
        Ok(scenario)
    }

    pub(super) fn phases(&self) -> Result<Phases, String> {
        if self.phase != Phase::Ramp && self.ramp_is_set() {
            return Err("--ramp-cameras and --ramp-every-ms need --phase ramp".to_owned());
        }
        Ok(self.phases_of(self.phase))
    }

    /// Several kinds of phases, each once, with the same ramp.
    pub(super) fn sweep(&self, kinds: &[Phase]) -> Result<Vec<Phases>, String> {
        if !kinds.contains(&Phase::Ramp) && self.ramp_is_set() {
            return Err("--ramp-cameras and --ramp-every-ms need --phases with ramp".to_owned());
        }
        let again = kinds.iter().enumerate().find(|(at, kind)| kinds[..*at].contains(kind));
        if let Some((_, kind)) = again {
            let name =
                kind.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
            return Err(format!("--phases: {name} is there twice"));
        }
        Ok(kinds.iter().map(|kind| self.phases_of(*kind)).collect())
    }

    fn ramp_is_set(&self) -> bool {
        self.ramp_cameras.is_some() || self.ramp_every_ms.is_some()
    }

    fn phases_of(&self, kind: Phase) -> Phases {
        match kind {
            Phase::Even => Phases::Even,
            Phase::Random => Phases::Random,
            Phase::Aligned => Phases::Aligned,
            Phase::Ramp => Phases::Ramp {
                cameras: self.ramp_cameras.unwrap_or(RAMP_CAMERAS),
                every: self.ramp_every_ms.unwrap_or(RAMP_EVERY),
            },
        }
    }

    fn jitter(&self) -> Result<Duration, String> {
        let period = Duration::from_secs_f64(1.0 / self.fps);
        if self.jitter_ms < period {
            return Ok(self.jitter_ms);
        }
        Err(format!("--jitter-ms: must be less than a frame period, {:.1} ms", 1e3 / self.fps))
    }

    fn pictures(&self) -> PictureSource {
        match (&self.images, &self.video) {
            (Some(dir), _) => PictureSource::Folder(dir.clone()),
            (None, Some(path)) => PictureSource::Video { path: path.clone(), size: self.size },
            (None, None) => PictureSource::Drawn(self.size.unwrap_or_default()),
        }
    }
}

impl LinkArgs {
    pub(super) fn reconnect(&self) -> Reconnect {
        Reconnect { enabled: !self.no_reconnect, max_gap: self.max_gap_ms }
    }
}

impl From<ServerArgs> for Target {
    fn from(args: ServerArgs) -> Self {
        args.connect.target(args.addr)
    }
}

impl ConnectArgs {
    fn target(self, addr: ServerAddr) -> Target {
        Target { addr, connect: self.connect_seconds, credentials: self.credentials.into() }
    }
}

impl ServersArgs {
    /// The first server and all of them: the flags', or else those of the scenario.
    pub(super) fn targets(self, scenario: &Scenario) -> Result<(Target, Balancing), String> {
        let names = if self.addr.is_empty() { scenario.servers.clone() } else { self.addr };
        let first = names.first().map_or_else(ServerAddr::default, |name| name.addr().clone());
        let policy = self.balance.or(scenario.balance);
        let balancing = Balancing::of(names, policy).map_err(|why| format!("--addr: {why}"))?;
        if self.balance.is_some() && !balancing.several() {
            return Err("--balance: needs several servers in --addr".to_owned());
        }
        Ok((self.connect.target(first), balancing))
    }
}

impl From<CredentialArgs> for Credentials {
    fn from(args: CredentialArgs) -> Self {
        Self {
            ca: args.tls_ca,
            domain: args.tls_domain,
            cert: args.tls_cert,
            key: args.tls_key,
            token_file: args.token_file,
        }
    }
}

impl From<SloArgs> for Slo {
    fn from(args: SloArgs) -> Self {
        Self {
            max: args.slo_max_ms,
            percentiles: args.slo_percentile,
            min_answered_ratio: args.min_answered_ratio,
        }
    }
}
