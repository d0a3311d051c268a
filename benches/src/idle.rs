//! What silent cameras cost: CPU time of a server whose streams are open and bring nothing.

use std::time::Duration;

use crate::{
    child::Server,
    cli::{Backend, IdleArgs},
    context::{Context, Findings},
    error::BenchError,
    load::Silence,
    report::{Cell, Mark, Table},
};

/// Most CPU that they may cost, in percent of one core.
const MOST_PERCENT: f64 = 1.0;

/// Length of a trial, in seconds. CPU time is counted in ticks of 10 ms: 0.05 % of 20 s.
const SECONDS: f64 = 20.0;

/// Time between the last camera's connecting and the first reading.
const SETTLE: Duration = Duration::from_millis(500);

/// Runs the bench.
///
/// # Errors
/// When it cannot run.
pub async fn run(ctx: &Context, args: &IdleArgs) -> Result<Findings, BenchError> {
    let length = ctx.length(SECONDS);
    let backends: &[Backend] = match &args.backend {
        Some(backend) => std::slice::from_ref(backend),
        None => &[Backend::Onnx, Backend::Spin],
    };
    let mut table = Table::new(
        format!("{} silent cameras over {} s", args.cameras, length.as_secs_f64()),
        &["backend", "CPU, % of one core", "resident, MiB"],
    );
    let mut marks = Vec::new();
    for &backend in backends {
        let name = match backend {
            Backend::Onnx => "onnx",
            Backend::Spin => "spin",
        };
        ctx.say(format_args!("{name}: starting the server"));
        let server = Server::start(ctx, backend, &[]).await?;
        let silence = Silence::connect(server.addr, args.cameras).await?;
        tokio::time::sleep(SETTLE).await;
        let (mut percent, mut resident) = (Vec::new(), Vec::new());
        for trial in 1..=ctx.trials() {
            ctx.say(format_args!("{name}, trial {trial} of {}", ctx.trials()));
            let before = server.cpu_time()?;
            tokio::time::sleep(length).await;
            let used = server.cpu_time()?.saturating_sub(before);
            percent.push(used.as_secs_f64() / length.as_secs_f64() * 100.0);
            resident.push(server.memory()?.resident_mib);
        }
        drop(silence);
        marks.push(Mark::at_most(
            &format!("{name}: CPU of silent cameras, % of one core"),
            MOST_PERCENT,
            &percent,
            2,
        ));
        table.rows.push(vec![name.into(), Cell::trials(percent, 2), Cell::trials(resident, 1)]);
    }
    let reading = vec![
        "Cameras that are connected with an open stream and send nothing, as at night. CPU is user and \
         system time of all threads of the server, from `/proc/PID/stat`."
            .to_owned(),
    ];
    Ok(Findings { reading, tables: vec![table], marks })
}
