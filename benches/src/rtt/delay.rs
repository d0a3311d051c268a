//! HTTP/2 windows one after the other over a line with a delay.

use std::time::Duration;

use client_sim::{
    proxy::{Line, Proxy},
    source::PictureSet,
};
use vedette_proto::camera_ai::Outcome;

use crate::{
    apart,
    child::{Server, knows_flag},
    cli::{Backend, RttArgs},
    context::{Context, Findings},
    error::{BenchError, io_error},
    load::{ClosedLoop, Connections, OpenLoop},
    pictures::noise_of,
    report::{Cell, Table},
};

/// Frames per second of each camera.
const FPS: f64 = 10.0;

/// Length of each half of a trial, in seconds.
const SECONDS: f64 = 5.0;

/// How long a load runs before it counts.
const WARMUP: Duration = Duration::from_millis(500);

/// The flag whose presence says that a server has them all.
const WINDOW_FLAG: &str = "--h2-stream-window-bytes";

/// A server's set-up: what it is called, and its flags.
struct Step {
    label: String,
    flags: Vec<String>,
}

/// Set-ups, each with one thing more than the one before.
const STEPS: [(&str, &str); 7] = [
    (
        "HTTP/2's defaults (64 KiB windows, 16 KiB frames)",
        "--h2-stream-window-bytes 65535 --h2-connection-window-bytes 65535 --h2-frame-bytes 16384",
    ),
    (
        "+ stream window 1 MiB",
        "--h2-stream-window-bytes 1048576 --h2-connection-window-bytes 65535 --h2-frame-bytes 16384",
    ),
    (
        "+ connection window 1 MiB (hyper's and tonic's defaults)",
        "--h2-stream-window-bytes 1048576 --h2-connection-window-bytes 1048576 \
         --h2-frame-bytes 16384",
    ),
    (
        "+ connection window 8 MiB",
        "--h2-stream-window-bytes 1048576 --h2-connection-window-bytes 8388608 \
         --h2-frame-bytes 16384",
    ),
    (
        "+ frames of 64 KiB",
        "--h2-stream-window-bytes 1048576 --h2-connection-window-bytes 8388608 \
         --h2-frame-bytes 65536",
    ),
    (
        "  or frames of 1 MiB",
        "--h2-stream-window-bytes 1048576 --h2-connection-window-bytes 8388608 \
         --h2-frame-bytes 1048576",
    ),
    (DEFAULTS, ""),
];

/// The last step: no flags.
const DEFAULTS: &str = "the server's own defaults";

/// One set-up's figures over one line, an entry per trial.
#[derive(Default)]
struct Figures {
    p50: Vec<f64>,
    p99: Vec<f64>,
    max: Vec<f64>,
    missing: Vec<f64>,
    fps: Vec<f64>,
}

/// Runs the part.
///
/// # Errors
/// When it cannot run.
pub(super) async fn run(ctx: &Context, args: &RttArgs) -> Result<Findings, BenchError> {
    let pictures = noise_of(args.frame_bytes as usize)?;
    let knows = knows_flag(&ctx.server_bin()?, &[], WINDOW_FLAG).await?;
    let steps = steps(args, knows)?;
    let rtt = Duration::from_secs_f64(args.rtt_ms / 1e3);
    let mut tables = Vec::new();
    for rtt in [rtt, Duration::ZERO] {
        let rate = args.rate_mbit.map(|mbit| mbit * 1e6 / 8.0);
        let line = Line { rate, ..Line::with_rtt(rtt) };
        let mut figures: Vec<Figures> = steps.iter().map(|_| Figures::default()).collect();
        for trial in 1..=ctx.trials() {
            // Every step in every trial, so that drift reaches them all.
            for (step, figures) in steps.iter().zip(&mut figures) {
                ctx.say(format_args!(
                    "round trip {} ms, {}, trial {trial} of {}",
                    rtt.as_secs_f64() * 1e3,
                    step.label.trim(),
                    ctx.trials()
                ));
                measure(ctx, args.cameras, step, line, &pictures, figures).await?;
            }
        }
        tables.push(table(args, rtt, pictures.sizes().1, &steps, figures));
    }
    let mut reading = vec![reading(args)];
    if !knows {
        reading.push(format!("This server has no {WINDOW_FLAG}: only its own defaults ran."));
    }
    Ok(Findings { reading, tables, marks: Vec::new() })
}

fn steps(args: &RttArgs, knows_windows: bool) -> Result<Vec<Step>, BenchError> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let built_in = STEPS
        .iter()
        .filter(|(label, _)| knows_windows || *label == DEFAULTS)
        .map(|&(label, flags)| Step { label: label.to_owned(), flags: words(flags) });
    let mut steps: Vec<Step> = built_in.collect();
    for text in &args.step {
        let (label, flags) = text.split_once('=').ok_or_else(|| {
            BenchError::Setup(format!(
                "--step: {text:?} has no \"=\"; write \"LABEL=--flag value\""
            ))
        })?;
        steps.push(Step { label: label.to_owned(), flags: words(flags) });
    }
    Ok(steps)
}

async fn measure(
    ctx: &Context,
    cameras: u32,
    step: &Step,
    line: Line,
    pictures: &PictureSet,
    figures: &mut Figures,
) -> Result<(), BenchError> {
    let mut flags = vec!["--spin-ms".to_owned(), "0".to_owned()];
    flags.extend(step.flags.iter().cloned());
    let server = Server::start(ctx, Backend::Spin, &flags).await?;
    let proxy = Proxy::start(server.addr, line).map_err(io_error("the proxy"))?;
    let open = OpenLoop {
        addr: proxy.addr,
        cameras,
        fps: FPS,
        connections: Connections::OneForAll,
        pictures: pictures.clone(),
        warmup: WARMUP,
        length: ctx.length(SECONDS),
        cooldown: Duration::ZERO,
    };
    let result = apart::run_async("cameras", || open.run()).await?;
    let ms = |share| result.ok_percentile(share);
    figures.p50.push(ms(0.5));
    figures.p99.push(ms(0.99));
    figures.max.push(ms(1.0));
    figures.missing.push((result.due - result.count(Outcome::Ok) as u64) as f64);
    let closed = ClosedLoop {
        addr: proxy.addr,
        streams: cameras,
        connections: Connections::OneForAll,
        pictures: pictures.clone(),
        warmup: WARMUP,
        length: ctx.length(SECONDS),
    };
    figures.fps.push(apart::run_async("streams", || closed.run()).await?.fps);
    Ok(())
}

fn table(
    args: &RttArgs,
    rtt: Duration,
    bytes: usize,
    steps: &[Step],
    figures: Vec<Figures>,
) -> Table {
    let mut table = Table::new(
        format!(
            "Round trip {} ms: {} cameras x {} KB on one connection",
            rtt.as_secs_f64() * 1e3,
            args.cameras,
            bytes / 1000
        ),
        &[
            "server",
            "p50, ms",
            "p99, ms",
            "max, ms",
            "p50 / own defaults'",
            "not OK",
            "closed loop, frames/s",
            "/ own defaults'",
        ],
    );
    let own = steps.iter().position(|step| step.label == DEFAULTS).unwrap_or(0);
    let (own_p50, own_fps) = (figures[own].p50.clone(), figures[own].fps.clone());
    for (step, figures) in steps.iter().zip(figures) {
        table.rows.push(vec![
            step.label.as_str().into(),
            Cell::trials(figures.p50.iter().copied(), 1),
            Cell::trials(figures.p99, 1),
            Cell::trials(figures.max, 1),
            Cell::trials(ratios(&figures.p50, &own_p50), 2),
            Cell::trials(figures.missing, 0),
            Cell::trials(figures.fps.iter().copied(), 1),
            Cell::trials(ratios(&figures.fps, &own_fps), 2),
        ]);
    }
    table
}

/// Trial by trial.
fn ratios(values: &[f64], of: &[f64]) -> impl Iterator<Item = f64> {
    values.iter().zip(of).map(|(value, of)| value / of)
}

fn reading(args: &RttArgs) -> String {
    let rate =
        args.rate_mbit.map_or_else(|| "no limit".to_owned(), |mbit| format!("{mbit} Mbit/s"));
    format!(
        "Round trip: a proxy between client and server holds every byte for half the round trip in each \
         direction, in order, at {rate} of bandwidth. It takes bytes from both ends at once, so TCP's \
         own windows and kernel buffers see no delay: only HTTP/2's flow control does. Over a real line \
         the kernels' socket buffers must hold bandwidth x round trip as well (`net.ipv4.tcp_rmem` at \
         the server, `tcp_wmem` at the camera). Latency is that of cameras at {FPS} FPS from the instant \
         a frame should have left, and \
         missing where a set-up is so slow that nothing measured came back; the closed loop has one frame of each camera under way. All server \
         set-ups answer without computing (`--spin-ms 0`). The client is the same for all of them: \
         tonic's own settings (windows of 64 KiB for answers, which are small; at most 1 MiB of each \
         stream buffered for sending) and TCP_NODELAY."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Job, parse};

    fn args(words: &[&str]) -> RttArgs {
        let all = ["vedette-bench", "rtt"].iter().chain(words);
        let Ok(cli) = parse(all) else { panic!("{words:?}") };
        let Job::Rtt(args) = cli.job else { panic!() };
        args
    }

    #[test]
    fn steps_need_a_server_that_knows_their_flags() {
        let labels = |args: &RttArgs, knows| {
            let steps = steps(args, knows).expect("steps");
            steps.into_iter().map(|step| step.label).collect::<Vec<_>>()
        };
        assert_eq!(labels(&args(&[]), false), [DEFAULTS]);
        assert_eq!(labels(&args(&[]), true).len(), STEPS.len());
        let own = args(&["--step", "small=--h2-frame-bytes 20000"]);
        assert_eq!(labels(&own, false), [DEFAULTS, "small"]);
        let last = steps(&own, false).expect("steps").pop().expect("one");
        assert_eq!(last.flags, ["--h2-frame-bytes", "20000"]);
        assert!(steps(&args(&["--step", "small"]), true).is_err());
    }
}
