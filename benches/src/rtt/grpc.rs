//! Frames per second when a frame costs nothing to compute.

use std::time::Duration;

use crate::{
    apart,
    child::Server,
    cli::Backend,
    context::{Context, Findings},
    error::{BenchError, failed},
    load::{ClosedLoop, Connections},
    machine,
    pictures::noise_of,
    report::{Cell, Mark, Table},
};

/// Bytes of a frame: a camera's JPEG at 640x480.
const FRAME_BYTES: usize = 60_000;

/// Streams on the one connection, with the frames per second that an asynchronous C++ server reaches
/// on this class of machine.
const STREAMS: [(u32, f64); 2] = [(1, 7300.0), (64, 19_500.0)];

/// Most CPU time of the server per frame, in microseconds.
const MOST_US: f64 = 60.0;

/// Length of a trial, in seconds.
const SECONDS: f64 = 5.0;

/// How long the streams run before they count.
const WARMUP: Duration = Duration::from_millis(500);

/// Runs the part.
///
/// # Errors
/// When it cannot run.
pub(super) async fn run(ctx: &Context) -> Result<Findings, BenchError> {
    let pictures = noise_of(FRAME_BYTES)?;
    let more = ["--spin-ms".to_owned(), "0".to_owned()];
    let server = Server::start(ctx, Backend::Spin, &more).await?;
    let mut table = Table::new(
        format!("gRPC and scheduling: frames of {} bytes on one connection", pictures.sizes().1),
        &["streams", "frames/s", "/ C++ server's", "server's CPU per frame, us"],
    );
    let mut marks = Vec::new();
    for (streams, usual) in STREAMS {
        let (mut rates, mut cpu) = (Vec::new(), Vec::new());
        for trial in 1..=ctx.trials() {
            ctx.say(format_args!("gRPC, {streams} streams, trial {trial} of {}", ctx.trials()));
            let plan = ClosedLoop {
                addr: server.addr,
                streams,
                connections: Connections::OneForAll,
                pictures: pictures.clone(),
                warmup: WARMUP,
                length: ctx.length(SECONDS),
            };
            let (fps, us) = measured(plan, server.pid()).await?;
            rates.push(fps);
            cpu.push(us);
        }
        marks.push(Mark::at_least(&format!("{streams} streams: frames/s"), usual, &rates, 0));
        let what = format!("{streams} streams: server's CPU per frame, us");
        marks.push(Mark::at_most(&what, MOST_US, &cpu, 1));
        let ratios: Vec<f64> = rates.iter().map(|fps| fps / usual).collect();
        table.rows.push(vec![
            streams.to_string().into(),
            Cell::trials(rates, 0),
            Cell::trials(ratios, 2),
            Cell::trials(cpu, 1),
        ]);
    }
    let reading = "gRPC and scheduling: `--backend spin --spin-ms 0` reads a JPEG's header and answers, \
                   so what is left is transport, admission and the worker's wake-up. One frame of each \
                   stream is under way. The client runs on one thread of the same machine and costs \
                   about as much as the server. CPU is user and system time of all of the server's \
                   threads over the frames answered. The figures of the C++ server are of another day."
        .to_owned();
    Ok(Findings { reading: vec![reading], tables: vec![table], marks })
}

/// Frames per second, and the server's CPU time per frame in microseconds.
async fn measured(plan: ClosedLoop, pid: u32) -> Result<(f64, f64), BenchError> {
    apart::run_async("streams", move || async move {
        let mut marks = Vec::new();
        let result = plan.run_marked(|| marks.push(machine::cpu_time(pid))).await?;
        let times: Vec<Duration> = marks.into_iter().collect::<Result<_, _>>()?;
        let (Some(before), Some(after)) = (times.first(), times.last()) else {
            return Err(failed("CPU time of the server")("it was not read"));
        };
        let used = after.saturating_sub(*before).as_secs_f64();
        Ok((result.fps, used * 1e6 / result.ok as f64))
    })
    .await
}
