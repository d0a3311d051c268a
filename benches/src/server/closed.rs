//! Frames per second through the whole server, as a share of L.

use std::time::Duration;

use crate::{
    apart,
    capacity::Capacity,
    child::Server,
    cli::Backend,
    context::{Context, Findings},
    error::{BenchError, failed},
    load::{ClosedLoop, Connections},
    report::{Cell, Mark, Table},
};

/// Picture sizes (width, height in pixels) with the share of L that is promised at each.
const SIZES: [((u32, u32), f64); 2] = [((640, 480), 0.95), ((1920, 1080), 0.90)];

/// Length of a trial, in seconds.
const SECONDS: f64 = 10.0;

/// How long the streams run before they count.
const WARMUP: Duration = Duration::from_millis(500);

/// Runs the part.
///
/// # Errors
/// When it cannot run.
pub(super) async fn run(
    ctx: &Context,
    capacity: &Capacity,
    streams: u32,
) -> Result<Findings, BenchError> {
    let length = ctx.length(SECONDS);
    let mut table = Table::new(
        format!("Closed loop: {streams} streams, one frame of each under way"),
        &["picture", "L before", "L after", "server, frames/s", "server / L"],
    );
    let mut marks = Vec::new();
    for (size, promised) in SIZES {
        let name = format!("{}x{}", size.0, size.1);
        let pictures = ctx.pictures(size).await?;
        let server = Server::start(ctx, Backend::Onnx, &[]).await?;
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let (mut rates, mut shares) = (Vec::new(), Vec::new());
        for trial in 1..=ctx.trials() {
            ctx.say(format_args!("closed loop {name}, trial {trial} of {}", ctx.trials()));
            let plan = ClosedLoop {
                addr: server.addr,
                streams,
                connections: Connections::OneEach,
                pictures: pictures.clone(),
                warmup: WARMUP,
                length,
            };
            let load = async |_| apart::run_async("streams", || plan.run()).await;
            let (result, l) = capacity.around(&pictures, ctx.reference(), load).await?;
            if result.other > 0 {
                let why = format!("{} frames were not answered OK", result.other);
                return Err(failed("closed loop")(why));
            }
            before.push(l.before);
            after.push(l.after);
            rates.push(result.fps);
            shares.push(result.fps / l.mean());
        }
        marks.push(Mark::at_least(
            &format!("closed loop {name}: server / L"),
            promised,
            &shares,
            3,
        ));
        table.rows.push(vec![
            name.into(),
            Cell::trials(before, 1),
            Cell::trials(after, 1),
            Cell::trials(rates, 1),
            Cell::trials(shares, 3),
        ]);
    }
    let reading = format!(
        "Closed loop: {streams} connections, a stream each, that send their next JPEG when the last one \
         is answered. L is the loop of `ceiling`, right before and right after each trial; what is \
         missing to 1 went to gRPC, to scheduling and to the client, which shares the cores. Pictures: \
         {}.",
        ctx.describe_pictures()
    );
    Ok(Findings { reading: vec![reading], tables: vec![table], marks })
}
