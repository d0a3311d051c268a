//! Twice as many cameras as the machine can serve: does anything grow, does anyone starve?

use std::time::Duration;

use vedette_proto::camera_ai::Outcome;
use vedette_server::clock;

use crate::{
    apart,
    capacity::Bracket,
    child::Server,
    cli::Backend,
    context::{Context, Findings},
    error::BenchError,
    load::{Connections, OpenLoop, OpenResult},
    report::{Cell, Mark, Table},
    stats,
};

/// Picture size, width and height in pixels.
const SIZE: (u32, u32) = (640, 480);

/// Frames per second of each camera.
const FPS: f64 = 10.0;

/// Load as a share of L.
const LOAD: f64 = 2.0;

/// Length of a trial, in seconds.
const SECONDS: f64 = 60.0;

/// Steepest trend of the latency, in milliseconds per 10 s.
const MOST_MS_TREND: f64 = 1.0;

/// Steepest trend of the memory, in MiB per 10 s.
const MOST_MIB_TREND: f64 = 1.0;

/// Largest distance of a camera's number of OK answers from the mean, as a share of it.
const MOST_DEVIATION: f64 = 0.2;

/// Time between two looks at the memory.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Time that counts for nothing before and after a trial, in seconds: queues fill, and at the end they
/// are worked off.
const SETTLING_SECONDS: f64 = 2.0;

/// Share of a trial until when the memory's buffers have grown to their size; it is not judged.
const MEMORY_SETTLE_SHARE: f64 = 1.0 / 6.0;

/// Trends are given per this many seconds.
const TREND_SECONDS: f64 = 10.0;

/// What one trial gave.
struct Trial {
    cameras: u32,
    l: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    ms_trend: f64,
    deviation: f64,
    ok_share: f64,
    unanswered: u64,
    resident_mib: f64,
    mib_trend: f64,
}

/// Runs the bench.
///
/// # Errors
/// When it cannot run.
pub async fn run(ctx: &Context) -> Result<Findings, BenchError> {
    ctx.say("loading the model");
    let capacity = ctx.capacity().await?;
    let pictures = ctx.pictures(SIZE).await?;
    let length = ctx.length(SECONDS);
    let mut trials = Vec::new();
    for trial in 1..=ctx.trials() {
        let server = Server::start(ctx, Backend::Onnx, &["--max-cameras=4096".into()]).await?;
        let load = async |l: f64| {
            let cameras = (LOAD * l / FPS).ceil().max(1.0) as u32;
            ctx.say(format_args!("trial {trial} of {}: {cameras} cameras", ctx.trials()));
            let plan = OpenLoop {
                addr: server.addr,
                cameras,
                fps: FPS,
                connections: Connections::OneEach,
                pictures: pictures.clone(),
                warmup: Duration::from_secs_f64(SETTLING_SECONDS),
                length,
                cooldown: Duration::from_secs_f64(SETTLING_SECONDS),
            };
            let (start, mut memory) = (clock::now(), Vec::new());
            let watching = server.watch_memory(WATCH_EVERY, |seen| {
                let at = clock::now().saturating_duration_since(start).as_secs_f64();
                memory.push((at, seen.resident_mib));
            });
            let result = tokio::select! {
                result = apart::run_async("cameras", || plan.run()) => result?,
                never = watching => match never {},
            };
            Ok((cameras, result, memory))
        };
        let ((cameras, result, memory), l) =
            capacity.around(&pictures, ctx.reference(), load).await?;
        trials.push(Trial::new(cameras, l, &result, &memory, length));
    }
    Ok(Findings {
        reading: vec![reading(ctx)],
        tables: vec![table(&trials)],
        marks: marks(&trials),
    })
}

impl Trial {
    fn new(
        cameras: u32,
        l: Bracket,
        result: &OpenResult,
        memory: &[(f64, f64)],
        length: Duration,
    ) -> Self {
        let ok_ms = result.ok_ms();
        let over_time: Vec<(f64, f64)> = result
            .answers
            .iter()
            .filter(|answer| answer.outcome == Outcome::Ok)
            .map(|answer| (answer.due.as_secs_f64(), answer.latency_ms))
            .collect();
        let mut per_camera = vec![0.0; cameras as usize];
        for answer in result.answers.iter().filter(|answer| answer.outcome == Outcome::Ok) {
            per_camera[answer.camera as usize] += 1.0;
        }
        let settled = length.as_secs_f64() * MEMORY_SETTLE_SHARE;
        let memory: Vec<_> = memory.iter().copied().filter(|&(at, _)| at >= settled).collect();
        let resident: Vec<f64> = memory.iter().map(|&(_, mib)| mib).collect();
        let ms = |share| result.ok_percentile(share);
        Self {
            cameras,
            l: l.mean(),
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            max_ms: ms(1.0),
            ms_trend: stats::slope(&over_time) * TREND_SECONDS,
            deviation: stats::largest_deviation(&per_camera),
            ok_share: ok_ms.len() as f64 / length.as_secs_f64() / l.mean(),
            unanswered: result.unanswered,
            resident_mib: stats::max(&resident).unwrap_or(f64::NAN),
            mib_trend: stats::slope(&memory) * TREND_SECONDS,
        }
    }
}

fn table(trials: &[Trial]) -> Table {
    let mut table =
        Table::new(format!("Cameras at {FPS} FPS for {LOAD} x L"), &["", "median (each trial)"]);
    let mut row = |name: &str, decimals: usize, value: &dyn Fn(&Trial) -> f64| {
        table.rows.push(vec![name.into(), Cell::trials(trials.iter().map(value), decimals)]);
    };
    row("L, frames/s", 1, &|trial| trial.l);
    row("cameras", 0, &|trial| f64::from(trial.cameras));
    row("OK answers per second / L", 2, &|trial| trial.ok_share);
    row("OK answers: p50, ms", 1, &|trial| trial.p50_ms);
    row("OK answers: p99, ms", 1, &|trial| trial.p99_ms);
    row("OK answers: max, ms", 1, &|trial| trial.max_ms);
    row("trend of their latency, ms per 10 s", 2, &|trial| trial.ms_trend);
    row("a camera's OK answers: farthest from the mean, %", 1, &|trial| trial.deviation * 100.0);
    row("frames without an answer", 0, &|trial| trial.unanswered as f64);
    row("resident memory: largest, MiB", 1, &|trial| trial.resident_mib);
    row("trend of the memory, MiB per 10 s", 2, &|trial| trial.mib_trend);
    table
}

fn marks(trials: &[Trial]) -> Vec<Mark> {
    let each = |value: &dyn Fn(&Trial) -> f64| trials.iter().map(value).collect::<Vec<_>>();
    vec![
        Mark::at_most(
            "trend of OK answers' latency, ms per 10 s",
            MOST_MS_TREND,
            &each(&|trial| trial.ms_trend),
            2,
        ),
        Mark::at_most(
            "a camera's OK answers: farthest from the mean, share of it",
            MOST_DEVIATION,
            &each(&|trial| trial.deviation),
            3,
        ),
        Mark::at_most("frames without an answer", 0.0, &each(&|trial| trial.unanswered as f64), 0),
        Mark::at_most(
            "trend of resident memory, MiB per 10 s",
            MOST_MIB_TREND,
            &each(&|trial| trial.mib_trend),
            2,
        ),
    ]
}

fn reading(ctx: &Context) -> String {
    format!(
        "As many cameras as bring twice L, taken right before each trial. Latency is that of OK answers \
         from the instant a frame should have left, without the first and the last two seconds; its trend is the slope of the least-squares line \
         over the trial, the memory's is the same after the first sixth. Each trial has a server of its \
         own. Pictures: {}.",
        ctx.describe_pictures()
    )
}
