//! The flags of `client-sim run`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{
    files::FileArgs,
    fleet::{FleetArgs, LinkArgs, MAX_CAMERAS, ServersArgs, SloArgs},
    values::{heartbeat, positive_seconds, seconds},
};
use crate::config::{JsonTarget, Outputs, RunConfig, Scenario, SelfTest, read_scenario};

/// Length of the measured part unless given.
const MEASURED: Duration = Duration::from_secs(10);

/// Length of the part before it unless given.
const WARMUP: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Number of cameras
    #[arg(long, default_value_t = 10, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=MAX_CAMERAS))]
    cameras: u32,
    /// Play the fleet of this TOML file: groups of cameras, arrivals, bursts, misbehaving clients
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cameras", "fps", "jitter_ms", "phase",
          "ramp_cameras", "ramp_every_ms", "images", "video", "size", "budget_ms"])]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    fleet: FleetArgs,
    /// Length of the measured part, in seconds [default: 10, or the scenario's]
    #[arg(long, value_parser = positive_seconds)]
    seconds: Option<Duration>,
    /// Send for this many seconds first, without counting those frames [default: 2, or the
    /// scenario's]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    warmup: Option<Duration>,
    /// Decides every random number of the run: phases, jitter, pauses before reconnecting
    /// [default: 1, or the scenario's]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Let a camera that has sent nothing for so many seconds send a heartbeat, for proxies that cut
    /// quiet streams; 0 = never [default: 0, or the scenario's]
    #[arg(long, value_name = "SECONDS", value_parser = heartbeat)]
    heartbeat_seconds: Option<Duration>,
    #[command(flatten)]
    servers: ServersArgs,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    slo: SloArgs,
    /// Wait this long after a camera's last frame for answers, in seconds; later ones are lost
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds)]
    drain_seconds: Duration,
    /// When to play the same load against a server that answers at once, to see whether this
    /// simulator could have kept the limits itself
    #[arg(long, value_enum, default_value = "on-fail", value_name = "WHEN")]
    self_test: SelfTest,
    /// Write the report as JSON to this file; "-" = standard output
    #[arg(long, value_name = "FILE")]
    json: Option<JsonTarget>,
    #[command(flatten)]
    files: FileArgs,
    /// List every camera in the table, not only the five slowest
    #[arg(long)]
    per_camera: bool,
    /// Print no progress
    #[arg(long)]
    quiet: bool,
}

impl RunArgs {
    fn scenario(&self) -> Result<Scenario, String> {
        let mut scenario = match &self.scenario {
            Some(path) => read_scenario(path)?,
            None => self.fleet.scenario(self.cameras, self.fleet.phases()?, WARMUP, MEASURED)?,
        };
        scenario.measured = self.seconds.unwrap_or(scenario.measured);
        scenario.warmup = self.warmup.unwrap_or(scenario.warmup);
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        if let Some(every) = self.heartbeat_seconds {
            scenario.heartbeat = (!every.is_zero()).then_some(every);
        }
        Ok(scenario)
    }
}

impl TryFrom<RunArgs> for (RunConfig, Outputs) {
    type Error = String;

    fn try_from(args: RunArgs) -> Result<Self, String> {
        let scenario = args.scenario()?;
        let (target, balancing) = args.servers.targets(&scenario)?;
        let config = RunConfig {
            target,
            balancing,
            scenario,
            connections: args.link.connections,
            reconnect: args.link.reconnect(),
            drain: args.drain_seconds,
            slo: args.slo.into(),
            self_test: args.self_test,
            quiet: args.quiet,
            threads: usize::from(args.link.threads),
        };
        let outputs =
            Outputs { json: args.json, files: args.files.into(), per_camera: args.per_camera };
        Ok((config, outputs))
    }
}
