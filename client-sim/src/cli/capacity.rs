//! The flags of `client-sim capacity`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{
    fleet::{FleetArgs, LinkArgs, MAX_CAMERAS, Phase, ServerArgs, SloArgs},
    values::{admin, currency, positive_minutes, positive_seconds, price, seconds},
};
use crate::{
    capacity::search::Rules,
    config::{Balancing, CapacityConfig, Command, JsonTarget, Pricing, RunConfig, SelfTest},
};

/// How long answers are waited for after a camera's last frame; longer when the limit is.
const DRAIN: Duration = Duration::from_secs(2);

/// Most runs of a step.
const MAX_REPEATS: i64 = 99;

/// Most instances of a fleet that is priced.
const MAX_INSTANCES: i64 = 1000;

#[derive(Debug, Args)]
pub(super) struct CapacityArgs {
    /// Number of cameras to begin with; it doubles until the limits are not held
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=MAX_CAMERAS))]
    from: u32,
    /// Try no more cameras than this, nor more than the server takes
    #[arg(long, default_value_t = 1000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=MAX_CAMERAS))]
    max_cameras: u32,
    /// Runs of each number of cameras at most; the majority decides
    #[arg(long, default_value_t = 3, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=MAX_REPEATS))]
    repeats: u32,
    /// Length of each run's measured part, in seconds
    #[arg(long, default_value = "5", value_parser = positive_seconds)]
    seconds: Duration,
    /// Send for this many seconds before it, without counting those frames
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    warmup: Duration,
    #[command(flatten)]
    fleet: FleetArgs,
    /// Search once for each of these and compare: any of even,random,aligned,ramp
    #[arg(
        long,
        value_enum,
        value_name = "PHASE,...",
        value_delimiter = ',',
        conflicts_with = "phase"
    )]
    phases: Vec<Phase>,
    /// Decides every random number: phases, jitter, pauses before reconnecting
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    slo: SloArgs,
    /// The server's metrics, to tell what ran out [default: port 9464 of the server's host]
    #[arg(long, value_name = "HOST:PORT", value_parser = admin)]
    admin: Option<String>,
    /// Keep the search in this file after every run; started again it goes on from there
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Stop after this many minutes with what is known then
    #[arg(long, value_name = "MINUTES", value_parser = positive_minutes)]
    max_minutes: Option<Duration>,
    /// Exit with 1 when fewer cameras than this are held
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_CAMERAS))]
    expect: Option<u32>,
    /// Price of an hour of the server's machine
    #[arg(long, value_name = "PRICE", value_parser = price)]
    price_per_hour: Option<f64>,
    /// Currency of --price-per-hour [default: USD]
    #[arg(long, value_name = "CODE", requires = "price_per_hour", value_parser = currency)]
    currency: Option<String>,
    /// Kinds of instances and their prices (TOML) [default with --instance: those that come with
    /// this tool, from memory; --print-instances shows them]
    #[arg(long, value_name = "FILE")]
    instances: Option<PathBuf>,
    /// The kind of instance on which the server runs; others are scaled by their cores
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Price fleets of up to this many instances
    #[arg(long, default_value_t = 4, value_name = "K",
          value_parser = clap::value_parser!(u32).range(1..=MAX_INSTANCES))]
    max_instances: u32,
    /// Print the list of instances that comes with this tool, for a file to edit, and do nothing else
    #[arg(long)]
    print_instances: bool,
    /// Write the report as JSON to this file, a list of reports with --phases; "-" = standard output
    #[arg(long, value_name = "FILE")]
    json: Option<JsonTarget>,
    /// Write the report as a page to this file; with --phases one for each, as in FILE.ramp.html
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print neither plan nor progress
    #[arg(long)]
    quiet: bool,
}

impl TryFrom<CapacityArgs> for Command {
    type Error = String;

    fn try_from(args: CapacityArgs) -> Result<Self, String> {
        if args.print_instances {
            return Ok(Self::PrintInstances);
        }
        let config = CapacityConfig::try_from(args)?;
        Ok(Self::Capacity(Box::new(config)))
    }
}

impl TryFrom<CapacityArgs> for CapacityConfig {
    type Error = String;

    fn try_from(args: CapacityArgs) -> Result<Self, String> {
        if args.from > args.max_cameras {
            return Err("--from: must be at most --max-cameras".to_owned());
        }
        let (fleet, sweep) = (args.fleet, !args.phases.is_empty());
        let phases = if sweep { fleet.sweep(&args.phases)? } else { vec![fleet.phases()?] };
        let mut scenario = fleet.scenario(args.from, phases[0], args.warmup, args.seconds)?;
        scenario.seed = args.seed;
        let slo = crate::config::Slo::from(args.slo);
        let run = RunConfig {
            target: args.server.into(),
            balancing: Balancing::default(),
            scenario,
            connections: args.link.connections,
            reconnect: args.link.reconnect(),
            drain: DRAIN.max(slo.max),
            slo,
            self_test: SelfTest::Never,
            quiet: args.quiet,
            threads: usize::from(args.link.threads),
        };
        let currency = args.currency.unwrap_or_else(|| "USD".to_owned());
        Ok(Self {
            run,
            phases,
            sweep,
            rules: Rules { from: args.from, max_cameras: args.max_cameras, repeats: args.repeats },
            admin: args.admin,
            state: args.state,
            most_time: args.max_minutes,
            expect: args.expect,
            pricing: Pricing {
                per_hour: args.price_per_hour.map(|price| (price, currency)),
                instances: args.instances,
                instance: args.instance,
                most_instances: args.max_instances,
            },
            json: args.json,
            html: args.html,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Parsed, parse};
    use super::*;
    use crate::config::Scenario;
    use crate::schedule::Phases;

    fn config(more: &[&str]) -> CapacityConfig {
        let Parsed::Command(command) = parse(["client-sim", "capacity"].iter().chain(more)) else {
            panic!("{more:?}")
        };
        let Command::Capacity(config) = *command else { panic!("{more:?}") };
        *config
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let config = config(&[]);
        assert_eq!(config.rules, Rules { from: 1, max_cameras: 1000, repeats: 3 });
        let scenario = Scenario::uniform(1, 10.0, Duration::from_secs(1), Duration::from_secs(5));
        assert_eq!(config.run.scenario, scenario);
        assert_eq!((config.phases, config.sweep), (vec![Phases::Even], false));
        assert_eq!(config.run.drain, Duration::from_secs(2));
        assert_eq!(config.pricing, Pricing { most_instances: 4, ..Pricing::default() });
        assert!(config.most_time.is_none() && config.admin.is_none() && config.expect.is_none());
    }

    #[test]
    fn a_sweep_is_a_search_for_each_phase() {
        let sweep = config(&["--phases", "even,ramp,aligned", "--ramp-cameras", "3"]);
        let ramp = Phases::Ramp { cameras: 3, every: Duration::from_millis(50) };
        assert_eq!(sweep.phases, [Phases::Even, ramp, Phases::Aligned]);
        assert!(sweep.sweep);
        let one = config(&["--phase", "aligned", "--slo-max-ms", "5000"]);
        assert_eq!((one.phases, one.sweep), (vec![Phases::Aligned], false));
        assert_eq!(
            one.run.drain,
            Duration::from_secs(5),
            "answers within the limit are waited for"
        );
    }

    #[test]
    fn mistakes_are_one_line() {
        for (args, part) in [
            (&["--from", "9", "--max-cameras", "8"][..], "--from: must be at most --max-cameras"),
            (&["--from", "0"], "0 is not in 1..=20000"),
            (&["--repeats", "0"], "0 is not in 1..=99"),
            (&["--phases", "even,often"], "often"),
            (&["--phases", "even,even"], "--phases: even is there twice"),
            (&["--phases", "even", "--phase", "ramp"], "cannot be used with"),
            (&["--phases", "even", "--ramp-cameras", "2"], "need --phases with ramp"),
            (&["--ramp-cameras", "2"], "need --phase ramp"),
            (&["--admin", "localhost"], "write HOST:PORT, such as 127.0.0.1:9464"),
            (&["--max-minutes", "0"], "more than 0 minutes"),
            (&["--price-per-hour", "0"], "above 0"),
            (&["--price-per-hour", "free"], "not a number"),
            (&["--currency", "EUR"], "--price-per-hour"),
            (&["--price-per-hour", "1", "--currency", "a b"], "such as USD"),
            (&["--expected", "3"], "did you mean --expect?"),
        ] {
            let Parsed::Mistake(line) = parse(["client-sim", "capacity"].iter().chain(args)) else {
                panic!("{args:?}")
            };
            assert!(line.contains(part) && line.lines().count() == 1, "{args:?}: {line}");
            assert!(line.ends_with("see client-sim capacity --help"), "{line}");
        }
    }

    #[test]
    fn the_shipped_list_can_be_printed() {
        let Parsed::Command(command) = parse(["client-sim", "capacity", "--print-instances"])
        else {
            panic!()
        };
        assert!(matches!(*command, Command::PrintInstances));
    }
}
