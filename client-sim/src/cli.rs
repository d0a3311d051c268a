//! The command line: flags, their help, and one helpful line for each mistake.

use std::{path::PathBuf, time::Duration};

use clap::CommandFactory as _;
use clap::{Args, Parser, Subcommand, error::ContextKind, error::ContextValue, error::ErrorKind};

use crate::config::{Command, DetectConfig, DrawConfig, JsonTarget, RunConfig, ServerAddr, Size};
use crate::scene;
use crate::schedule::Phases;

/// Most cameras of one run; each is a TCP connection, and ports and file handles run out near it.
const MAX_CAMERAS: i64 = 20_000;

/// Fewest frames per second of one camera: one in 100 s.
const MIN_FPS: f64 = 0.01;

/// Most frames per second of one camera, far above any camera's.
const MAX_FPS: f64 = 1000.0;

/// Longest duration taken, in seconds: a week.
const MAX_SECONDS: f64 = 7.0 * 24.0 * 3600.0;

/// Cameras that start together on a ramp, and the time to the next group in milliseconds, unless
/// given: the start-up of the usual comparison of gRPC streaming servers.
const RAMP_CAMERAS: u32 = 10;
/// See [`RAMP_CAMERAS`].
const RAMP_EVERY: Duration = Duration::from_millis(50);

/// Most threads of the simulator's runtime.
const MAX_THREADS: i64 = 256;

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
    /// Simulate a fleet of cameras, measure every answer and print PASS or FAIL.
    ///
    /// Open loop: each camera sends on its own clock over its own connection, whether or not
    /// earlier frames were answered. Latency runs from the moment a frame SHOULD have left to the
    /// arrival of its answer, so a stalled server cannot hide by slowing the cameras down.
    /// Exit code: 0 pass, 1 fail, 2 could not run, 130 interrupted.
    Run(RunArgs),
    /// Send pictures and print what the server sees in them.
    ///
    /// Exit code: 0 when every picture was answered OK, 1 when one was not, 2 when a picture could
    /// not be read or sent or its copy not be saved.
    Detect(DetectArgs),
    /// Write the built-in pictures as JPEG files to a folder.
    Draw(DrawArgs),
}

/// How the cameras' start times lie to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Phase {
    /// Spread evenly over a period
    Even,
    /// All at the same instant, every period: the hardest on the server
    Aligned,
    /// Group after group, as a fleet that is switched on
    Ramp,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Number of cameras, each with its own connection and stream
    #[arg(long, default_value_t = 10, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=MAX_CAMERAS))]
    cameras: u32,
    /// Frames per second of each camera
    #[arg(long, default_value = "10", value_parser = fps)]
    fps: f64,
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
    /// Length of the measured part, in seconds
    #[arg(long, default_value = "10", value_parser = positive_seconds)]
    seconds: Duration,
    /// Send for this many seconds first, without counting those frames
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds)]
    warmup: Duration,
    /// Send the pictures of this folder (JPEG, PNG, WebP, BMP by content) instead of drawn ones
    #[arg(long, value_name = "DIR", conflicts_with = "size")]
    images: Option<PathBuf>,
    /// Size of the drawn pictures, in pixels
    #[arg(long, default_value = "640x480", value_name = "WxH")]
    size: Size,
    #[command(flatten)]
    server: ServerArgs,
    /// Fail when any OK answer took longer than this, in milliseconds
    #[arg(long, default_value = "100", value_name = "MS", value_parser = positive_millis)]
    slo_max_ms: Duration,
    /// Fail when a smaller share of the frames than this was answered OK, in total or of one
    /// camera, 0 to 1
    #[arg(long, default_value = "1.0", value_name = "RATIO", value_parser = ratio)]
    min_answered_ratio: f64,
    /// Ask the server to answer each frame within this many milliseconds; 0 = the server's default
    #[arg(long, default_value_t = 0, value_name = "MS")]
    budget_ms: u32,
    /// Wait this long after a camera's last frame for answers, in seconds; later ones are lost
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds)]
    drain_seconds: Duration,
    /// Write the report as JSON to this file; "-" = standard output
    #[arg(long, value_name = "FILE")]
    json: Option<JsonTarget>,
    /// List every camera in the table, not only the five slowest
    #[arg(long)]
    per_camera: bool,
    /// Print no progress
    #[arg(long)]
    quiet: bool,
    /// Threads of the simulator; more take CPU from a server on the same machine
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    threads: u16,
}

#[derive(Debug, Args)]
struct ServerArgs {
    /// The server, as HOST:PORT or http://HOST:PORT
    #[arg(long, default_value = "127.0.0.1:50051")]
    addr: ServerAddr,
    /// Keep trying to connect, and wait for the server's description, for this long, in seconds
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = positive_seconds)]
    connect_seconds: Duration,
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

fn number(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|number| number.is_finite())
        .ok_or_else(|| "not a number".to_owned())
}

fn fps(text: &str) -> Result<f64, String> {
    number(text).and_then(|fps| {
        if (MIN_FPS..=MAX_FPS).contains(&fps) {
            Ok(fps)
        } else {
            Err(format!("must be {MIN_FPS} to {MAX_FPS}"))
        }
    })
}

fn ratio(text: &str) -> Result<f64, String> {
    number(text).and_then(|ratio| {
        if (0.0..=1.0).contains(&ratio) { Ok(ratio) } else { Err("must be 0 to 1".to_owned()) }
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    number(text).and_then(|seconds| {
        if (0.0..=MAX_SECONDS).contains(&seconds) {
            Ok(Duration::from_secs_f64(seconds))
        } else {
            Err(format!("must be 0 to {MAX_SECONDS} seconds"))
        }
    })
}

fn positive_seconds(text: &str) -> Result<Duration, String> {
    let duration = seconds(text)?;
    if duration.is_zero() { Err("must be more than 0 seconds".to_owned()) } else { Ok(duration) }
}

fn positive_millis(text: &str) -> Result<Duration, String> {
    number(text).and_then(|millis| {
        if millis > 0.0 && millis <= MAX_SECONDS * 1e3 {
            Ok(Duration::from_secs_f64(millis / 1e3))
        } else {
            Err("must be more than 0 milliseconds".to_owned())
        }
    })
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
        Ok(Cli { job: Job::Run(args) }) if args.ramp_without_its_phase() => Parsed::Mistake(
            "--ramp-cameras and --ramp-every-ms need --phase ramp; see client-sim run --help"
                .to_owned(),
        ),
        Ok(cli) => Parsed::Command(Box::new(cli.job.into())),
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
        return "name a job: run, detect or draw; see client-sim --help".to_owned();
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
    let job = job.map_or_else(String::new, |job| format!(" {job}"));
    format!("{message}{suggestion}; see client-sim{job} --help")
}

impl RunArgs {
    fn phases(&self) -> Phases {
        match self.phase {
            Phase::Even => Phases::Even,
            Phase::Aligned => Phases::Aligned,
            Phase::Ramp => Phases::Ramp {
                cameras: self.ramp_cameras.unwrap_or(RAMP_CAMERAS),
                every: self.ramp_every_ms.unwrap_or(RAMP_EVERY),
            },
        }
    }

    /// Settings that would be ignored in silence.
    fn ramp_without_its_phase(&self) -> bool {
        let ramp_is_set = self.ramp_cameras.is_some() || self.ramp_every_ms.is_some();
        self.phase != Phase::Ramp && ramp_is_set
    }
}

impl From<Job> for Command {
    fn from(job: Job) -> Self {
        match job {
            Job::Run(args) => Self::Run(RunConfig {
                phases: args.phases(),
                addr: args.server.addr,
                cameras: args.cameras,
                fps: args.fps,
                measured: args.seconds,
                warmup: args.warmup,
                drain: args.drain_seconds,
                connect: args.server.connect_seconds,
                images: args.images,
                size: args.size,
                budget_ms: args.budget_ms,
                slo_max: args.slo_max_ms,
                min_answered_ratio: args.min_answered_ratio,
                json: args.json,
                per_camera: args.per_camera,
                quiet: args.quiet,
                threads: usize::from(args.threads),
            }),
            Job::Detect(args) => Self::Detect(DetectConfig {
                addr: args.server.addr,
                pictures: args.pictures,
                save: args.save,
                json: args.json,
                connect: args.server.connect_seconds,
                patience: args.timeout_seconds,
            }),
            Job::Draw(args) => Self::Draw(DrawConfig {
                dir: args.dir,
                size: args.size,
                count: args.count as usize,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let Command::Run(config) = *command else { panic!() };
        assert_eq!(config.addr.to_string(), "127.0.0.1:50051");
        assert_eq!((config.cameras, config.threads, config.budget_ms), (10, 1, 0));
        assert_eq!(config.measured, Duration::from_secs(10));
        assert_eq!(config.slo_max, Duration::from_millis(100));
        assert_eq!(config.phases, Phases::Even);
        assert_eq!(config.size, Size { width: 640, height: 480 });
    }

    #[test]
    fn fleets_start_in_three_ways() {
        let phases = |more: &[&str]| {
            let args = ["client-sim", "run", "--phase"].iter().chain(more);
            let Parsed::Command(command) = parse(args) else { panic!("{more:?}") };
            let Command::Run(config) = *command else { panic!("{more:?}") };
            config.phases
        };
        let ramp = |cameras, ms| Phases::Ramp { cameras, every: Duration::from_millis(ms) };
        assert_eq!(phases(&["even"]), Phases::Even);
        assert_eq!(phases(&["aligned"]), Phases::Aligned);
        assert_eq!(phases(&["ramp"]), ramp(10, 50));
        assert_eq!(phases(&["ramp", "--ramp-cameras", "3"]), ramp(3, 50));
        assert_eq!(phases(&["ramp", "--ramp-every-ms", "20"]), ramp(10, 20));
    }

    #[test]
    fn milliseconds_are_shown_as_they_were_given() {
        for text in ["33.3", "100", "0.1", "16.667", "99.999999", "604800000"] {
            let shown = crate::clock::millis(positive_millis(text).unwrap()).to_string();
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
            (&["run", "--phase", "random"], "random"),
            (&["run", "--ramp-cameras", "3"], "need --phase ramp"),
            (&["run", "--phase", "even", "--ramp-every-ms", "9"], "need --phase ramp"),
            (&["run", "--phase", "ramp", "--ramp-every-ms", "0"], "more than 0 milliseconds"),
            (&["run", "--addr", "https://a"], "TLS is not supported"),
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
