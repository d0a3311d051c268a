//! The command line.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum, error::ErrorKind};

/// Most trials of one measurement.
const MOST_TRIALS: u64 = 99;

/// Measures Vedette, always as ratios of things run in turn within the same run.
///
/// Machines drift by a third within an hour and stand still now and then. So each reference is taken
/// right before and right after each trial, there are three trials, and their median counts; every
/// trial's value is shown.
/// Exit code: 0 every mark held, 1 one did not, 2 could not run.
#[derive(Debug, Parser)]
#[command(name = "vedette-bench", version, max_term_width = 100)]
pub struct Cli {
    /// What to measure.
    #[command(subcommand)]
    pub job: Job,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Job {
    /// Picture file to boxes on all cores, in this process: L, the reference of the other benches,
    /// beside the pipeline one writes first
    Ceiling(CommonArgs),
    /// Decode, preprocess, infer, postprocess, one by one, beside the code one writes first
    Stages(CommonArgs),
    /// Whether inputs that fit and JPEGs decoded at scale find what the square and every pixel find
    Boxes(CommonArgs),
    /// The whole server against L: frames per second, most cameras in time, memory
    Server(ServerArgs),
    /// One camera beside a client that pushes as fast as it can
    Neighbour(CommonArgs),
    /// Twice as many cameras as the machine can serve
    Overload(CommonArgs),
    /// CPU time that silent cameras cost
    Idle(IdleArgs),
    /// Transport: gRPC by itself, and HTTP/2 windows over a line with a delay
    Rtt(RttArgs),
    /// Write the results page from the stored results of all benches
    Results(ResultsArgs),
}

/// What every bench takes.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Trials of each measurement; their median counts
    #[arg(long, default_value_t = 3, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=MOST_TRIALS))]
    pub trials: u64,
    /// Length of each measured part, in seconds [default: each bench's own]
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Length of each measurement of L, in seconds
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = seconds)]
    pub reference_seconds: f64,
    /// See whether it runs: one trial, a second each, few pictures; nothing is judged
    #[arg(long)]
    pub quick: bool,
    /// Use the pictures of this folder, cropped and scaled, instead of drawn ones
    #[arg(long, value_name = "DIR")]
    pub images: Option<PathBuf>,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Keep results and the server's logs in this folder; smoke runs in its subfolder quick
    #[arg(long, default_value = "target/bench", value_name = "DIR")]
    pub out_dir: PathBuf,
    /// The server [default: vedette-server beside this program]
    #[arg(long, value_name = "FILE", help_heading = "Programs")]
    pub server_bin: Option<PathBuf>,
    /// The camera simulator [default: client-sim beside this program]
    #[arg(long, value_name = "FILE", help_heading = "Programs")]
    pub client_bin: Option<PathBuf>,
    /// ONNX model [default: the server's]
    #[arg(long, value_name = "FILE", help_heading = "Programs")]
    pub model: Option<PathBuf>,
    /// ONNX Runtime's shared library [default: the server's]
    #[arg(long, value_name = "FILE", help_heading = "Programs")]
    pub runtime_lib: Option<PathBuf>,
}

/// Of `server`.
#[derive(Debug, Args)]
#[expect(missing_docs, reason = "the help texts say it")]
pub struct ServerArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Only these parts [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    pub parts: Vec<ServerPart>,
    /// Streams of the closed loop, each with its own connection
    #[arg(long, default_value_t = 8, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub streams: u32,
    /// Loads of the open loop, as shares of L
    #[arg(long, value_delimiter = ',', default_value = "0.80,0.85,0.90", value_name = "SHARES",
          value_parser = share)]
    pub load_ratios: Vec<f64>,
}

/// Part of the server bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServerPart {
    /// Frames per second with one frame of each stream under way
    Closed,
    /// Cameras at 10 FPS at shares of L
    Open,
    /// Cameras by arrival phase, a busy loop for a network
    Spin,
    /// Memory
    Memory,
}

/// Of `idle`.
#[derive(Debug, Args)]
#[expect(missing_docs, reason = "the help texts say it")]
pub struct IdleArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Silent cameras, each with its own connection and an open stream
    #[arg(long, default_value_t = 30, value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub cameras: u32,
    /// Only this backend [default: both]
    #[arg(long, value_enum, value_name = "KIND")]
    pub backend: Option<Backend>,
}

/// What answers in the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The model
    Onnx,
    /// A busy loop
    Spin,
}

/// Of `rtt`.
#[derive(Debug, Args)]
#[expect(missing_docs, reason = "the help texts say it")]
pub struct RttArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Only these parts [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    pub parts: Vec<RttPart>,
    /// Round trip that the delaying proxy adds, in milliseconds
    #[arg(long, default_value = "20", value_name = "MS", value_parser = millis)]
    pub rtt_ms: f64,
    /// Bandwidth of the proxy in each direction, in Mbit/s [default: unlimited]
    #[arg(long, value_name = "MBIT", value_parser = positive)]
    pub rate_mbit: Option<f64>,
    /// Cameras on the one connection through the proxy
    #[arg(long, default_value_t = 8, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub cameras: u32,
    /// Bytes of a frame through the proxy
    #[arg(long, default_value_t = 500_000, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    pub frame_bytes: u32,
    /// A further server set-up to compare, as "LABEL=--flag value --flag value"
    #[arg(long, value_name = "LABEL=FLAGS")]
    pub step: Vec<String>,
}

/// Part of the transport bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RttPart {
    /// gRPC and scheduling by themselves
    Grpc,
    /// HTTP/2 windows over a line with a delay
    Delay,
}

/// Of `results`.
#[derive(Debug, Args)]
pub struct ResultsArgs {
    /// Folder with the stored results
    #[arg(long, default_value = "target/bench", value_name = "DIR")]
    pub out_dir: PathBuf,
    /// Page to write
    #[arg(long, default_value = "benches/RESULTS.md", value_name = "FILE")]
    pub page: PathBuf,
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|&n: &f64| n > 0.0 && n < 1e6).ok_or_else(|| "must be above 0".into())
}

fn seconds(text: &str) -> Result<f64, String> {
    positive(text).ok().filter(|&s| s <= 3600.0).ok_or_else(|| "must be above 0, to 3600".into())
}

fn millis(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|ms: &f64| (0.0..=10_000.0).contains(ms))
        .ok_or_else(|| "must be 0 to 10000".into())
}

fn share(text: &str) -> Result<f64, String> {
    positive(text).ok().filter(|&r| r <= 10.0).ok_or_else(|| "must be above 0, to 10".into())
}

/// What parsing led to when there is nothing to run.
#[derive(Debug)]
pub enum Stop {
    /// Help or version, for standard output.
    Text(String),
    /// A mistake, as one line.
    Mistake(String),
}

/// Reads the command line; the first of `args` is the program's name.
///
/// # Errors
/// When there is nothing to run.
pub fn parse<T: Into<OsString> + Clone>(args: impl IntoIterator<Item = T>) -> Result<Cli, Stop> {
    Cli::try_parse_from(args).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Text(error.to_string()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Stop::Mistake("name a bench, such as ceiling; see vedette-bench --help".to_owned())
        }
        _ => {
            let text = error.to_string();
            let message: Vec<_> =
                text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let message = message.join(" ");
            let message = message.strip_prefix("error: ").unwrap_or(&message);
            Stop::Mistake(format!("{message}; see vedette-bench --help"))
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lists_and_defaults() {
        let cli = parse(["vedette-bench", "server", "--parts", "closed,spin"]).expect("parses");
        let Job::Server(args) = cli.job else { panic!() };
        assert_eq!(args.parts, [ServerPart::Closed, ServerPart::Spin]);
        assert_eq!(args.load_ratios, [0.80, 0.85, 0.90]);
        assert_eq!((args.common.trials, args.common.quick), (3, false));
    }

    #[test]
    fn mistakes_are_one_line() {
        for args in [
            &[][..],
            &["ceilings"],
            &["ceiling", "--trials", "0"],
            &["ceiling", "--seconds", "-1"],
            &["rtt", "--rtt-ms", "fast"],
            &["server", "--load-ratios", "0"],
        ] {
            let Err(Stop::Mistake(line)) = parse(std::iter::once(&"vedette-bench").chain(args))
            else {
                panic!("{args:?}")
            };
            assert_eq!(line.lines().count(), 1, "{line}");
            assert!(line.ends_with("--help"), "{line}");
        }
    }
}
