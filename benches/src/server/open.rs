//! Cameras at 10 FPS at shares of L: is every answer in time?

use crate::{
    capacity::Capacity,
    child::{EVEN, Fleet, Server, run_fleet},
    cli::Backend,
    context::{Context, Findings},
    error::BenchError,
    report::{Cell, Mark, Table},
};

/// Picture size, width and height in pixels.
const SIZE: (u32, u32) = (640, 480);

/// Frames per second of each camera.
const FPS: f64 = 10.0;

/// The load at which every answer is promised to be in time, as a share of L.
const PROMISED: f64 = 0.80;

/// Slowest acceptable answer, in milliseconds.
const MOST_MS: f64 = 100.0;

/// Length of a trial, in seconds.
const SECONDS: f64 = 30.0;

/// Runs the part.
///
/// # Errors
/// When it cannot run.
pub(super) async fn run(
    ctx: &Context,
    capacity: &Capacity,
    ratios: &[f64],
) -> Result<Findings, BenchError> {
    let pictures = ctx.pictures(SIZE).await?;
    let images = ctx.store(&pictures)?;
    let server = Server::start(ctx, Backend::Onnx, &["--max-cameras=4096".into()]).await?;
    let mut table = Table::new(
        format!("Open loop: cameras at {FPS} FPS, {}x{}", SIZE.0, SIZE.1),
        &["asked / L", "cameras", "sent / L", "p99, ms", "max, ms", "superseded", "lost", "passed"],
    );
    let mut marks = Vec::new();
    for &ratio in ratios {
        let (mut runs, mut cameras, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for trial in 1..=ctx.trials() {
            let load = async |l: f64| {
                let cameras = ((ratio * l / FPS).ceil() as u32).max(1);
                ctx.say(format_args!(
                    "open loop at {ratio} x L, {cameras} cameras, trial {trial} of {}",
                    ctx.trials()
                ));
                let fleet = Fleet {
                    addr: server.addr,
                    cameras,
                    length: ctx.length(SECONDS),
                    phase: EVEN,
                    images: images.clone(),
                };
                Ok((cameras, run_fleet(ctx, fleet).await?))
            };
            let ((count, run), l) = capacity.around(&pictures, ctx.reference(), load).await?;
            cameras.push(f64::from(count));
            shares.push(f64::from(count) * FPS / l.mean());
            runs.push(run);
        }
        let held: Vec<bool> = runs.iter().map(|run| run.all_within(MOST_MS)).collect();
        let worst = Cell::trials(runs.iter().map(|run| run.max_ms), 1);
        let mark = Mark::majority(
            format!("open loop at {ratio} x L: every answer OK and under {MOST_MS} ms"),
            &held,
            format!("slowest {} ms", worst.show()),
        );
        marks.push(if ratio <= PROMISED { mark } else { mark.for_information() });
        table.rows.push(vec![
            format!("{ratio:.2}").into(),
            Cell::trials(cameras, 0),
            Cell::trials(shares, 3),
            Cell::trials(runs.iter().map(|run| run.p99_ms), 1),
            worst,
            Cell::trials(runs.iter().map(|run| run.superseded as f64), 0),
            Cell::trials(runs.iter().map(|run| run.lost as f64), 0),
            format!("{} of {}", held.iter().filter(|&&held| held).count(), held.len()).into(),
        ]);
    }
    let reading = format!(
        "Open loop: `client-sim` sends on its own clock, as many cameras as bring at least the share \
         asked for of the L right before; \"sent / L\" is against the mean of L before and after. Latency runs from \
         the instant a frame should have left. Passed: nothing lost, nothing superseded, every answer \
         under {MOST_MS} ms. Judged up to {PROMISED} x L, by the majority of the trials; the rest shows \
         where it ends."
    );
    Ok(Findings { reading: vec![reading], tables: vec![table], marks })
}
