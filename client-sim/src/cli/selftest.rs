//! The flags of `client-sim selftest`.

use std::time::Duration;

use clap::Args;

use super::{
    fleet::{FleetArgs, MAX_CAMERAS, MAX_THREADS},
    values::{connections, positive_millis, positive_seconds, seconds},
};
use crate::config::{
    Balancing, Connections, Credentials, JsonTarget, Reconnect, RunConfig, SelfTest, ServerAddr,
    Slo, Target,
};

/// How long the built-in server may take to answer before its frames count as lost.
const DRAIN: Duration = Duration::from_secs(5);

/// How long it may take to accept connections; it is there, but thousands of them take a while.
const CONNECT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(super) struct SelfTestArgs {
    /// Number of cameras
    #[arg(long, default_value_t = 10, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=MAX_CAMERAS))]
    cameras: u32,
    #[command(flatten)]
    fleet: FleetArgs,
    /// Length of the measured part, in seconds
    #[arg(long, default_value = "3", value_parser = positive_seconds)]
    seconds: Duration,
    /// Send for this many seconds first, without counting those frames
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    warmup: Duration,
    /// One connection per camera, or this many for all cameras together
    #[arg(long, default_value = "per-camera", value_name = "per-camera|N",
          value_parser = connections)]
    connections: Connections,
    /// Threads of the simulator
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    threads: u16,
    /// Decides every random number: phases and jitter
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// The limit that the simulator alone must hold: its slowest answer, in milliseconds
    #[arg(long, default_value = "100", value_name = "MS", value_parser = positive_millis)]
    slo_max_ms: Duration,
    /// Write the report as JSON to this file; "-" = standard output
    #[arg(long, value_name = "FILE")]
    json: Option<JsonTarget>,
}

impl TryFrom<SelfTestArgs> for (RunConfig, Option<JsonTarget>) {
    type Error = String;

    fn try_from(args: SelfTestArgs) -> Result<Self, String> {
        let fleet = &args.fleet;
        let mut scenario =
            fleet.scenario(args.cameras, fleet.phases()?, args.warmup, args.seconds)?;
        scenario.seed = args.seed;
        // The test puts its own server's address here.
        let addr = ServerAddr::default();
        let config = RunConfig {
            target: Target { addr, connect: CONNECT, credentials: Credentials::default() },
            balancing: Balancing::default(),
            scenario,
            connections: args.connections,
            reconnect: Reconnect { enabled: false, max_gap: Duration::ZERO },
            drain: DRAIN,
            slo: Slo { max: args.slo_max_ms, percentiles: Vec::new(), min_answered_ratio: 1.0 },
            self_test: SelfTest::Never,
            quiet: false,
            threads: usize::from(args.threads),
        };
        Ok((config, args.json))
    }
}
