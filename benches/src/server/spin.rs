//! The server with a busy loop for a network, so that its load is known exactly: the arrival phase of
//! cameras, and memory.

use std::{path::Path, time::Duration};

use super::untried;
use crate::{
    child::{EVEN, Fleet, FleetResult, Server, knows_flag, run_fleet},
    cli::Backend,
    context::{Context, Findings},
    error::BenchError,
    machine::Memory,
    report::{Cell, Mark, Table},
};

/// Picture size, width and height in pixels.
const SIZE: (u32, u32) = (640, 480);

/// Length of a trial, in seconds.
const SECONDS: f64 = 30.0;

/// Time between two looks at the memory.
const WATCH_EVERY: Duration = Duration::from_millis(250);

/// A number of cameras, their phase and what is promised of the slowest answer.
struct Phase {
    cameras: u32,
    name: &'static str,
    most_ms: f64,
    note: &'static str,
}

const PHASES: [Phase; 3] = [
    Phase { cameras: 35, name: EVEN, most_ms: 100.0, note: "spread over 100 ms" },
    Phase { cameras: 30, name: "ramp", most_ms: 61.0, note: "10 more every 50 ms" },
    Phase { cameras: 30, name: "aligned", most_ms: 95.0, note: "all at once; 75 ms at best" },
];

/// Cameras by arrival phase at 5 ms of CPU per frame.
///
/// # Errors
/// When it cannot run.
pub(super) async fn phases(ctx: &Context) -> Result<Findings, BenchError> {
    let images = ctx.store(&ctx.pictures(SIZE).await?)?;
    let knows_phase = knows_flag(&ctx.client_bin()?, &["run"], "--phase").await?;
    let mut table = Table::new(
        "Cameras at 10 FPS, 5 ms of CPU per frame",
        &["cameras", "phase", "p50, ms", "p99, ms", "max, ms", "superseded", "lost"],
    );
    let mut marks = Vec::new();
    for phase in &PHASES {
        let promise = format!(
            "spin, {} cameras, {}: every answer OK and under {} ms",
            phase.cameras, phase.name, phase.most_ms
        );
        if phase.name != EVEN && !knows_phase {
            marks.push(untried(&promise, "not tried, this client-sim has no --phase"));
            continue;
        }
        let mut runs = Vec::new();
        for trial in 1..=ctx.trials() {
            ctx.say(format_args!(
                "{} cameras, {}, trial {trial} of {}",
                phase.cameras,
                phase.name,
                ctx.trials()
            ));
            let server = spinning(ctx, 5.0).await?;
            runs.push(fleet(ctx, &server, phase.cameras, phase.name, &images).await?.0);
        }
        let held: Vec<bool> = runs.iter().map(|run| run.all_within(phase.most_ms)).collect();
        let column = |decimals, value: &dyn Fn(&FleetResult) -> f64| {
            Cell::trials(runs.iter().map(value), decimals)
        };
        let worst = column(1, &|run| run.max_ms);
        marks.push(Mark::majority(promise, &held, format!("slowest {} ms", worst.show())));
        table.rows.push(vec![
            phase.cameras.to_string().into(),
            format!("{} ({})", phase.name, phase.note).into(),
            column(1, &|run| run.p50_ms),
            column(1, &|run| run.p99_ms),
            worst,
            column(0, &|run| run.superseded as f64),
            column(0, &|run| run.lost as f64),
        ]);
    }
    let reading = "With `--backend spin --spin-ms 5` each frame costs 5 ms of a worker's CPU time, no \
                   decoding and no network, so 40 cameras are all that two cores can do. The slowest \
                   answer depends on how the cameras' frames lie to each other: when 30 arrive at the \
                   same instant, the last must wait for 30 x 5 ms / 2 cores = 75 ms. Judged by the \
                   majority of the trials; each has a server of its own."
        .to_owned();
    Ok(Findings { reading: vec![reading], tables: vec![table], marks })
}

/// Cameras, CPU per frame in milliseconds, and the memory promised, in MiB.
const MEMORIES: [(u32, f64, f64); 2] = [(30, 5.0, 25.5), (100, 0.1, 200.0)];

/// Memory of the server under cameras.
///
/// # Errors
/// When it cannot run.
pub(super) async fn memory(ctx: &Context) -> Result<Findings, BenchError> {
    let images = ctx.store(&ctx.pictures(SIZE).await?)?;
    let mut table = Table::new(
        "Memory of the server, MiB",
        &["cameras at 10 FPS", "CPU per frame, ms", "resident, largest seen", "peak (VmHWM)"],
    );
    let mut marks = Vec::new();
    for (cameras, spin_ms, most_mib) in MEMORIES {
        let mut seen = Vec::new();
        for trial in 1..=ctx.trials() {
            ctx.say(format_args!(
                "memory with {cameras} cameras, trial {trial} of {}",
                ctx.trials()
            ));
            let server = spinning(ctx, spin_ms).await?;
            seen.push(fleet(ctx, &server, cameras, EVEN, &images).await?.1);
        }
        let resident: Vec<f64> = seen.iter().map(|memory| memory.resident_mib).collect();
        let what = format!("spin, {cameras} cameras: resident memory, MiB");
        marks.push(Mark::at_most(&what, most_mib, &resident, 1));
        table.rows.push(vec![
            cameras.to_string().into(),
            spin_ms.to_string().into(),
            Cell::trials(resident, 1),
            Cell::trials(seen.iter().map(|memory| memory.peak_mib), 1),
        ]);
    }
    let reading = "Memory: `VmRSS` of the server's process, looked at four times a second while the \
                   cameras send, and the kernel's own record of the peak, `VmHWM`. Without a model: \
                   what connections, frames and threads cost."
        .to_owned();
    Ok(Findings { reading: vec![reading], tables: vec![table], marks })
}

async fn spinning(ctx: &Context, spin_ms: f64) -> Result<Server, BenchError> {
    Server::start(ctx, Backend::Spin, &["--spin-ms".into(), spin_ms.to_string()]).await
}

/// Runs cameras and watches the memory: the largest seen and the peak.
async fn fleet(
    ctx: &Context,
    server: &Server,
    cameras: u32,
    phase: &'static str,
    images: &Path,
) -> Result<(FleetResult, Memory), BenchError> {
    let fleet = Fleet {
        addr: server.addr,
        cameras: ctx.cameras(cameras),
        length: ctx.length(SECONDS),
        phase,
        images: images.to_path_buf(),
    };
    let mut largest = Memory { resident_mib: 0.0, peak_mib: 0.0 };
    let watching = server.watch_memory(WATCH_EVERY, |seen| {
        largest.resident_mib = largest.resident_mib.max(seen.resident_mib);
        largest.peak_mib = seen.peak_mib;
    });
    let result = tokio::select! {
        result = run_fleet(ctx, fleet) => result?,
        never = watching => match never {},
    };
    Ok((result, largest))
}
