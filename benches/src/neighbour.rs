//! A well-behaved camera beside a client that pushes as fast as it can.

use std::time::Duration;

use client_sim::source::PictureSet;
use vedette_proto::camera_ai::Outcome;

use crate::{
    apart,
    child::Server,
    cli::Backend,
    context::{Context, Findings},
    error::BenchError,
    load::{Connections, Flood, FloodResult, OpenLoop, OpenResult},
    report::{Cell, Mark, Table},
};

/// Picture size, width and height in pixels.
const SIZE: (u32, u32) = (640, 480);

/// Frames per second of the camera.
const FPS: f64 = 10.0;

/// Slowest acceptable answer, in milliseconds.
const MOST_MS: f64 = 100.0;

/// Length of a trial, in seconds: 200 frames.
const SECONDS: f64 = 20.0;

/// How long the camera sends before it counts.
const WARMUP: Duration = Duration::from_millis(500);

/// What the trials gave, one entry each.
#[derive(Default)]
struct Trials {
    alone: Vec<OpenResult>,
    beside: Vec<OpenResult>,
    flood: Vec<FloodResult>,
    share: Vec<f64>,
}

/// Runs the bench.
///
/// # Errors
/// When it cannot run.
pub async fn run(ctx: &Context) -> Result<Findings, BenchError> {
    ctx.say("loading the model");
    let capacity = ctx.capacity().await?;
    let pictures = ctx.pictures(SIZE).await?;
    let server = Server::start(ctx, Backend::Onnx, &[]).await?;
    let length = ctx.length(SECONDS);
    let camera = OpenLoop {
        addr: server.addr,
        cameras: 1,
        fps: FPS,
        connections: Connections::OneEach,
        pictures: pictures.clone(),
        warmup: WARMUP,
        length,
        cooldown: Duration::ZERO,
    };
    let mut trials = Trials::default();
    for trial in 1..=ctx.trials() {
        ctx.say(format_args!("trial {trial} of {}: alone", ctx.trials()));
        let plan = camera.clone();
        trials.alone.push(apart::run_async("camera", || plan.run()).await?);
        ctx.say(format_args!("trial {trial} of {}: beside the fast client", ctx.trials()));
        let together = async |_| beside(&camera, &pictures).await;
        let ((beside, flood), l) = capacity.around(&pictures, ctx.reference(), together).await?;
        let computed = flood.ok as f64 / flood.span.as_secs_f64()
            + beside.count(Outcome::Ok) as f64 / length.as_secs_f64();
        trials.share.push(computed / l.mean());
        trials.beside.push(beside);
        trials.flood.push(flood);
    }
    Ok(Findings {
        reading: reading(ctx),
        tables: vec![camera_table(&trials), flood_table(&trials)],
        marks: marks(&trials),
    })
}

/// Camera and flood at the same time, each on a thread of its own.
async fn beside(
    camera: &OpenLoop,
    pictures: &PictureSet,
) -> Result<(OpenResult, FloodResult), BenchError> {
    let plan = camera.clone();
    let flood = Flood {
        addr: camera.addr,
        pictures: pictures.clone(),
        // Until the camera's last answer is there.
        length: camera.warmup + camera.length + Duration::from_millis(200),
    };
    tokio::try_join!(
        apart::run_async("camera", || plan.run()),
        apart::run_async("flood", || flood.run()),
    )
}

fn camera_table(trials: &Trials) -> Table {
    let mut table = Table::new(
        "The camera's answers, milliseconds from the instant a frame should have left",
        &["camera", "p50", "p99", "max", "OK of sent"],
    );
    for (name, runs) in [("alone", &trials.alone), ("beside the fast client", &trials.beside)] {
        let latency = |share: f64| Cell::trials(runs.iter().map(|run| run.ok_percentile(share)), 1);
        let answered: Vec<_> =
            runs.iter().map(|run| format!("{} of {}", run.count(Outcome::Ok), run.due)).collect();
        table.rows.push(vec![
            name.into(),
            latency(0.5),
            latency(0.99),
            latency(1.0),
            answered.join(", ").into(),
        ]);
    }
    let ratio = |share: f64| {
        let of = |run: &OpenResult| run.ok_percentile(share);
        Cell::trials(trials.beside.iter().zip(&trials.alone).map(|(b, a)| of(b) / of(a)), 2)
    };
    table.rows.push(vec!["beside / alone".into(), ratio(0.5), ratio(0.99), ratio(1.0), "".into()]);
    table
}

fn flood_table(trials: &Trials) -> Table {
    let mut table =
        Table::new("The fast client, frames per second", &["", "per second, or share of L"]);
    let mut row = |name: &str, count: &dyn Fn(&FloodResult) -> u64| {
        let rates = trials.flood.iter().map(|run| count(run) as f64 / run.span.as_secs_f64());
        table.rows.push(vec![name.into(), Cell::trials(rates, 0)]);
    };
    row("sent", &|run| run.sent);
    row("answered OK", &|run| run.ok);
    row("answered SUPERSEDED", &|run| run.superseded);
    row("answered otherwise or not at all", &|run| run.other + run.unanswered());
    table.rows.push(vec!["OK of both / L".into(), Cell::trials(trials.share.iter().copied(), 2)]);
    table
}

fn marks(trials: &Trials) -> Vec<Mark> {
    let all_ok: Vec<bool> =
        trials.beside.iter().map(|run| run.count(Outcome::Ok) as u64 == run.due).collect();
    let max: Vec<f64> = trials.beside.iter().map(|run| run.ok_percentile(1.0)).collect();
    let in_time: Vec<bool> = max.iter().map(|&ms| ms < MOST_MS).collect();
    let worst = Cell::trials(max.iter().copied(), 1).show();
    vec![
        Mark::majority("beside the fast client every frame is answered OK", &all_ok, "all OK"),
        Mark::majority(format!("and in less than {MOST_MS} ms"), &in_time, format!("{worst} ms")),
    ]
}

fn reading(ctx: &Context) -> Vec<String> {
    vec![format!(
        "A camera of {FPS} frames per second, by itself and beside a client on another connection that \
         sends whenever flow control lets it and reads every answer. L is taken right before and after \
         the two run together; OK of both / L is the share of the machine's capacity that came out as \
         answers while both clients, the server's receiving and the superseding ran on the same cores. \
         Pictures: {}.",
        ctx.describe_pictures()
    )]
}
