//! The command line: flags, their help, and one helpful line for each mistake.

mod capacity;
mod files;
mod fleet;
mod ping;
mod run;
mod selftest;
mod values;

use std::{path::PathBuf, time::Duration};

use clap::CommandFactory as _;
use clap::{Args, Parser, Subcommand, error::ContextKind, error::ContextValue, error::ErrorKind};

use self::{
    capacity::CapacityArgs,
    files::{CompareArgs, MergeArgs, ReportArgs},
    fleet::ServerArgs,
    ping::PingArgs,
    run::RunArgs,
    selftest::SelfTestArgs,
    values::positive_seconds,
};
use crate::config::{Command, DetectConfig, DrawConfig, Size};
use crate::scene;

/// Most pictures that `draw` writes.
const MAX_DRAWN: i64 = 10_000;

/// Simulates fleets of cameras against a `camera_ai` gRPC server and judges the answers.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    job: Job,
}

#[derive(Debug, Subcommand)]
enum Job {
    /// Simulate a fleet of cameras, measure every answer and print PASS, FAIL or INVALID.
    ///
    /// Open loop: each camera sends on its own clock, whether or not earlier frames were answered.
    /// Latency runs from the moment a frame SHOULD have left to the arrival of its answer, so a
    /// stalled server cannot hide by slowing the cameras down. INVALID means that the simulator
    /// itself was the bottleneck, so that nothing is known about the server.
    /// Exit code: 0 pass, 1 fail, 2 invalid or could not run, 130 interrupted.
    Run(Box<RunArgs>),
    /// Find the largest number of cameras that the server holds within the limits.
    ///
    /// Doubles the number of cameras until the limits are not held, halves the gap, and confirms the
    /// result and that one camera more is too many with fresh runs. Every number of cameras is tried
    /// up to --repeats times and the majority decides; runs that cannot pass any more are cut short.
    /// Exit code: 0 found, 1 not one camera is held or fewer than --expect, 2 could not run or
    /// nothing is known about the server, 130 interrupted.
    Capacity(Box<CapacityArgs>),
    /// Play a fleet against a server in this process that answers at once.
    ///
    /// What is slow then is the simulator itself: on this machine it cannot judge any server by a
    /// stricter limit.
    /// Exit code: 0 when it holds --slo-max-ms, 2 when not or when it could not run.
    Selftest(Box<SelfTestArgs>),
    /// Measure calls that follow each other, on one shared connection and on one for each worker.
    ///
    /// Closed loop: each worker sends its next frame when the last one is answered. It shows what the
    /// client's side of gRPC makes of calls that share a connection; for how a server serves cameras,
    /// use run.
    Ping(Box<PingArgs>),
    /// Send pictures and print what the server sees in them.
    ///
    /// Exit code: 0 when every picture was answered OK, 1 when one was not, 2 when a picture could
    /// not be read or sent or its copy not be saved.
    Detect(DetectArgs),
    /// Write the built-in pictures as JPEG files to a folder.
    Draw(DrawArgs),
    /// Show a report again, from its JSON or its page.
    ///
    /// Exit code: 0, or 2 when it could not be read or written.
    Report(ReportArgs),
    /// Hold reports of runs, or of capacity searches, against the first of them.
    ///
    /// Differences are called noise when repeats, or the bins of single runs, differ as much.
    /// Exit code: 0, or 2 when something could not be read, compared or written.
    Compare(CompareArgs),
    /// Make one report of those of several processes or machines that ran at the same time.
    ///
    /// Counts are added, latency distributions merged, and the whole is judged anew.
    /// Exit code: 0 pass, 1 fail, 2 invalid or not to be merged.
    Merge(MergeArgs),
}

#[derive(Debug, Args)]
struct DetectArgs {
    /// Picture files (JPEG, PNG, WebP, BMP)
    #[arg(required = true, value_name = "PICTURE")]
    pictures: Vec<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
    /// Write each picture with its boxes and labels drawn on it to this folder
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Wait this long for each answer, in seconds
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = positive_seconds)]
    timeout_seconds: Duration,
}

#[derive(Debug, Args)]
struct DrawArgs {
    /// Folder to write to; made when missing
    dir: PathBuf,
    /// Size in pixels
    #[arg(long, default_value = "640x480", value_name = "WxH")]
    size: Size,
    /// Number of pictures; beyond the built-in scenes they repeat with other noise
    #[arg(long, default_value_t = scene::COUNT as u32, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=MAX_DRAWN))]
    count: u32,
}

/// What parsing the command line led to.
#[derive(Debug)]
pub enum Parsed {
    /// Something to do.
    Command(Box<Command>),
    /// Text for standard output (help, version); nothing to do.
    Text(String),
    /// A mistake, as one line.
    Mistake(String),
}

/// Reads the command line; the first of `args` is the program's name.
pub fn parse<I, T>(args: I) -> Parsed
where
    I: IntoIterator<Item = T>,
    T: Into<std::ffi::OsString> + Clone,
{
    let args: Vec<std::ffi::OsString> = args.into_iter().map(Into::into).collect();
    let job = args
        .get(1)
        .and_then(|arg| arg.to_str())
        .filter(|word| Cli::command().find_subcommand(word).is_some());
    match Cli::try_parse_from(&args) {
        Ok(cli) => match cli.job.try_into() {
            Ok(command) => Parsed::Command(Box::new(command)),
            Err(line) => Parsed::Mistake(format!("{line}; {}", see(job))),
        },
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            Parsed::Text(error.to_string())
        }
        Err(error) => Parsed::Mistake(one_line(&error, job)),
    }
}

/// clap's message and suggestion on one line, and where to read on.
fn one_line(error: &clap::Error, job: Option<&str>) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let command = Cli::command();
        let jobs: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        return format!("name a job: {}; see client-sim --help", jobs.join(", "));
    }
    let text = error.to_string();
    // The message proper ends at the first empty line; missing arguments are listed below it.
    let message = text
        .lines()
        .take_while(|line| !line.is_empty())
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let suggestion =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
            .into_iter()
            .find_map(|kind| match error.get(kind) {
                Some(ContextValue::String(one)) => Some(one.clone()),
                Some(ContextValue::Strings(many)) => many.first().cloned(),
                _ => None,
            })
            .map_or_else(String::new, |name| format!("; did you mean {name}?"));
    format!("{message}{suggestion}; {}", see(job))
}

/// Where to read on.
fn see(job: Option<&str>) -> String {
    let job = job.map_or_else(String::new, |job| format!(" {job}"));
    format!("see client-sim{job} --help")
}

impl TryFrom<Job> for Command {
    type Error = String;

    fn try_from(job: Job) -> Result<Self, String> {
        Ok(match job {
            Job::Run(args) => {
                let (config, outputs) = (*args).try_into()?;
                Self::Run(Box::new(config), outputs)
            }
            Job::Capacity(args) => (*args).try_into()?,
            Job::Selftest(args) => {
                let (config, json) = (*args).try_into()?;
                Self::SelfTest(Box::new(config), json)
            }
            Job::Ping(args) => Self::Ping(Box::new((*args).try_into()?)),
            Job::Detect(args) => Self::Detect(DetectConfig {
                target: args.server.into(),
                pictures: args.pictures,
                save: args.save,
                json: args.json,
                patience: args.timeout_seconds,
            }),
            Job::Draw(args) => Self::Draw(DrawConfig {
                dir: args.dir,
                size: args.size,
                count: args.count as usize,
            }),
            Job::Report(args) => Self::Report(args.into()),
            Job::Compare(args) => Self::Compare(args.into()),
            Job::Merge(args) => Self::Merge(args.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Connections, Scenario},
        schedule::Phases,
    };

    fn mistake(args: &[&str]) -> String {
        match parse(std::iter::once(&"client-sim").chain(args)) {
            Parsed::Mistake(line) => line,
            other => panic!("{args:?} gave {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let Parsed::Command(command) = parse(["client-sim", "run"]) else { panic!() };
        let Command::Run(config, outputs) = *command else { panic!() };
        assert_eq!(config.target.addr.to_string(), "127.0.0.1:50051");
        let seconds = Duration::from_secs;
        assert_eq!(config.scenario, Scenario::uniform(10, 10.0, seconds(2), seconds(10)));
        assert_eq!((config.threads, config.connections), (1, Connections::PerCamera));
        assert_eq!(config.slo.max, Duration::from_millis(100));
        assert!(config.reconnect.enabled && outputs.json.is_none());
    }

    #[test]
    fn servers_are_named_in_one_flag_or_in_several() {
        let config = |args: &[&str]| {
            let all = ["client-sim", "run"].iter().chain(args);
            let Parsed::Command(command) = parse(all) else { panic!("{args:?}") };
            let Command::Run(config, _) = *command else { panic!("{args:?}") };
            *config
        };
        assert!(!config(&["--addr", "a:1"]).balancing.several());
        let one = config(&["--addr", "a:1,b:2", "--addr", "dns:///c:3"]);
        let names: Vec<_> = one.balancing.servers.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a:1", "b:2", "dns:///c:3"]);
        assert_eq!(one.balancing.policy, crate::config::Policy::RoundRobin);
        assert_eq!(one.target.addr.to_string(), "a:1");
        let by_name = config(&["--addr", "dns+https:///c:3", "--balance", "least_request"]);
        assert_eq!(by_name.balancing.policy, crate::config::Policy::LeastCameras);
        assert!(by_name.balancing.several() && by_name.target.addr.tls());
    }

    #[test]
    fn fleets_start_in_three_ways() {
        let phases = |more: &[&str]| {
            let args = ["client-sim", "run", "--phase"].iter().chain(more);
            let Parsed::Command(command) = parse(args) else { panic!("{more:?}") };
            let Command::Run(config, _) = *command else { panic!("{more:?}") };
            config.scenario.phases
        };
        let ramp = |cameras, ms| Phases::Ramp { cameras, every: Duration::from_millis(ms) };
        assert_eq!(phases(&["even"]), Phases::Even);
        assert_eq!(phases(&["aligned"]), Phases::Aligned);
        assert_eq!(phases(&["random"]), Phases::Random);
        assert_eq!(phases(&["ramp"]), ramp(10, 50));
        assert_eq!(phases(&["ramp", "--ramp-cameras", "3"]), ramp(3, 50));
        assert_eq!(phases(&["ramp", "--ramp-every-ms", "20"]), ramp(10, 20));
    }

    #[test]
    fn milliseconds_are_shown_as_they_were_given() {
        for text in ["33.3", "100", "0.1", "16.667", "99.999999", "604800000"] {
            let shown = crate::clock::millis(values::positive_millis(text).unwrap()).to_string();
            assert_eq!(shown, text);
        }
    }

    #[test]
    fn mistakes_are_one_line_with_a_way_out() {
        for (args, part) in [
            (&["run", "--camera", "3"][..], "did you mean --cameras?"),
            (&["run", "--cameras", "0"], "0 is not in 1..=20000"),
            (&["run", "--fps", "NaN"], "not a number"),
            (&["run", "--seconds", "0"], "more than 0 seconds"),
            (&["run", "--size", "big"], "WIDTHxHEIGHT"),
            (&["run", "--phase", "sometimes"], "sometimes"),
            (&["run", "--jitter-ms", "100"], "less than a frame period, 100.0 ms"),
            (&["run", "--connections", "0"], "per-camera or a number"),
            (&["run", "--slo-percentile", "99=5"], "such as p99=50"),
            (&["run", "--no-reconnect", "--max-gap-ms", "5"], "cannot be used with"),
            (&["run", "--self-test", "on-fial"], "did you mean on-fail?"),
            (&["run", "--ramp-cameras", "3"], "need --phase ramp"),
            (&["run", "--phase", "even", "--ramp-every-ms", "9"], "need --phase ramp"),
            (&["run", "--phase", "ramp", "--ramp-every-ms", "0"], "more than 0 milliseconds"),
            (&["run", "--addr", "a:1,b:1,a:1"], "--addr: a:1 is there twice"),
            (&["run", "--addr", "a:1", "--addr", "https://b:1"], "to all servers or to none"),
            (&["run", "--addr", "a:1,,b:1"], "an address is empty"),
            (&["run", "--addr", ""], "an address is empty"),
            (&["run", "--addr", "a:0"], "write HOST:PORT"),
            (&["run", "--addr", "a:1", "--balance", "failover"], "needs several servers"),
            (&["run", "--addr", "a:1,b:1", "--balance", "fail-over"], "did you mean failover?"),
            (&["detect", "x.png", "--addr", "a:1,b:1"], "one server, not several"),
            (&["detect", "x.png", "--addr", "a:1", "--addr", "b:1"], "cannot be used multiple"),
            (&["run", "--images"], "--images <DIR>"),
            (&["run", "--images", ".", "--size", "64x48"], "cannot be used with '--size <WxH>'"),
            (&["rum"], "did you mean run?"),
            (&["detect"], "<PICTURE>"),
            (&[], "name a job"),
        ] {
            let line = mistake(args);
            assert!(line.contains(part), "{args:?}: {line}");
            let job = args.first().filter(|job| ["run", "detect"].contains(job));
            let page = job.map_or_else(String::new, |job| format!("{job} "));
            assert!(line.ends_with(&format!("see client-sim {page}--help")), "{line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }
}
