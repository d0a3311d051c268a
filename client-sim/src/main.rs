//! `client-sim`: arguments -> configuration -> runtime -> job -> exit code.

use std::process::ExitCode;

use client_sim::{
    cli::{self, Parsed},
    config::{Command, JsonTarget, RunConfig},
    detect,
    error::SimError,
    print, run, say, source,
};
use tokio::runtime::{Builder, Runtime};

/// The run or every picture was fine.
const EXIT_PASS: u8 = 0;
/// The run failed, or a picture was not answered OK.
const EXIT_FAIL: u8 = 1;
/// Nothing could be run, or not all of it.
const EXIT_COULD_NOT_RUN: u8 = 2;
/// Stopped by Ctrl-C, as shells report it.
const EXIT_INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let command = match cli::parse(std::env::args_os()) {
        Parsed::Command(command) => command,
        Parsed::Text(text) => return exit(print(&text).map(|()| EXIT_PASS)),
        Parsed::Mistake(line) => {
            say(&format!("client-sim: {line}"));
            return ExitCode::from(EXIT_COULD_NOT_RUN);
        }
    };
    exit(match *command {
        Command::Run(config) => run_fleet(&config),
        Command::Detect(config) => runtime(1).and_then(|runtime| {
            let fine = runtime.block_on(detect::detect(&config))?;
            Ok(if fine { EXIT_PASS } else { EXIT_FAIL })
        }),
        Command::Draw(config) => source::write_drawn(&config).map(|()| EXIT_PASS),
    })
}

fn exit(done: Result<u8, SimError>) -> ExitCode {
    ExitCode::from(done.unwrap_or_else(|error| {
        say(&format!("client-sim: {error}"));
        EXIT_COULD_NOT_RUN
    }))
}

fn run_fleet(config: &RunConfig) -> Result<u8, SimError> {
    if let Some(target) = &config.json {
        target.check()?;
    }
    let report = runtime(config.threads)?.block_on(run::run(config, interrupted()))?;
    let printed = if config.json == Some(JsonTarget::Stdout) {
        say(report.table().trim_end());
        Ok(())
    } else {
        print(&report.table())
    };
    // One of the two not being writable does not lose the figures with the other.
    if let Some(target) = &config.json {
        report.write_json(target)?;
    }
    printed?;
    Ok(match (report.interrupted, report.passed()) {
        (true, _) => EXIT_INTERRUPTED,
        (false, true) => EXIT_PASS,
        (false, false) => EXIT_FAIL,
    })
}

/// Ends at the first Ctrl-C; a second one ends the process at once.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
    tokio::spawn(async {
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(i32::from(EXIT_INTERRUPTED));
        }
    });
}

fn runtime(threads: usize) -> Result<Runtime, SimError> {
    let mut builder =
        if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(threads).enable_all().build().map_err(SimError::Runtime)
}
