//! `vedette-bench`: arguments -> bench -> table, JSON, exit code.

use std::{
    io::{Write as _, stderr, stdout},
    process::ExitCode,
};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};
use vedette_bench::{
    boxes, ceiling,
    cli::{self, Cli, Job, Stop},
    context::Context,
    error::{BenchError, io_error},
    idle, neighbour, overload,
    report::Report,
    results, rtt, server, stages, table,
};

/// Every mark held.
const EXIT_PASS: u8 = 0;
/// A mark did not hold.
const EXIT_FAIL: u8 = 1;
/// Nothing could be measured, or not all of it.
const EXIT_COULD_NOT_RUN: u8 = 2;

fn main() -> ExitCode {
    let code = match cli::parse(std::env::args_os()) {
        Ok(cli) => run(cli).unwrap_or_else(|error| mistake(&error.to_string())),
        Err(Stop::Text(text)) => {
            let _ = stdout().write_all(text.as_bytes());
            EXIT_PASS
        }
        Err(Stop::Mistake(line)) => mistake(&line),
    };
    ExitCode::from(code)
}

fn mistake(line: &str) -> u8 {
    let _ = writeln!(stderr(), "vedette-bench: {line}");
    EXIT_COULD_NOT_RUN
}

fn run(cli: Cli) -> Result<u8, BenchError> {
    let runtime =
        Builder::new_current_thread().enable_all().build().map_err(io_error("the runtime"))?;
    // An interrupt drops the bench, and with it stops the servers that it has started.
    let result = runtime.block_on(async {
        tokio::select! {
            result = bench(cli.job) => result,
            error = interrupted() => Err(error),
        }
    });
    runtime.shutdown_background();
    let Some(report) = result? else { return Ok(EXIT_PASS) };
    stdout().write_all(table::text(&report).as_bytes()).map_err(io_error("standard output"))?;
    Ok(if report.passed() { EXIT_PASS } else { EXIT_FAIL })
}

async fn bench(job: Job) -> Result<Option<Report>, BenchError> {
    let (name, common) = match &job {
        Job::Ceiling(args) => ("ceiling", args),
        Job::Stages(args) => ("stages", args),
        Job::Boxes(args) => ("boxes", args),
        Job::Server(args) => ("server", &args.common),
        Job::Neighbour(args) => ("neighbour", args),
        Job::Overload(args) => ("overload", args),
        Job::Idle(args) => ("idle", &args.common),
        Job::Rtt(args) => ("rtt", &args.common),
        Job::Results(args) => return results::run(args).map(|()| None),
    };
    let ctx = Context::new(name, common);
    let findings = match &job {
        Job::Ceiling(_) => ceiling::run(&ctx).await,
        Job::Stages(_) => stages::run(&ctx).await,
        Job::Boxes(_) => boxes::run(&ctx).await,
        Job::Server(args) => server::run(&ctx, args).await,
        Job::Neighbour(_) => neighbour::run(&ctx).await,
        Job::Overload(_) => overload::run(&ctx).await,
        Job::Idle(args) => idle::run(&ctx, args).await,
        Job::Rtt(args) => rtt::run(&ctx, args).await,
        Job::Results(_) => return Ok(None),
    }?;
    ctx.finish(command(), findings).map(Some)
}

/// The command line as it was given.
fn command() -> String {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once("vedette-bench".to_owned()).chain(args).collect::<Vec<_>>().join(" ")
}

/// Ends at the first SIGINT or SIGTERM.
async fn interrupted() -> BenchError {
    let heard = async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    };
    heard.await.map_or_else(io_error("signals"), |()| BenchError::Interrupted)
}
