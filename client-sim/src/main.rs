//! `client-sim`: arguments -> configuration -> runtime -> job -> exit code.

use std::process::ExitCode;

use client_sim::{
    capacity::{self, Answer, Stopped, instances},
    cli::{self, Parsed},
    config::{CapacityConfig, Command, JsonTarget, Outputs, PingConfig, RunConfig},
    detect,
    error::SimError,
    ping, print,
    report::{files, jobs, schema::Verdict, selftest::SelfTestReport, write_json},
    run, say, self_test, source,
};
use tokio::runtime::{Builder, Runtime};

/// The run or every picture was fine.
const EXIT_PASS: u8 = 0;
/// The run failed, or a picture was not answered OK.
const EXIT_FAIL: u8 = 1;
/// Nothing is known about the server: nothing could be run, or not all of it, or the simulator itself
/// was the bottleneck.
const EXIT_NO_VERDICT: u8 = 2;
/// Stopped by Ctrl-C, as shells report it.
const EXIT_INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let command = match cli::parse(std::env::args_os()) {
        Parsed::Command(command) => command,
        Parsed::Text(text) => return exit(print(&text).map(|()| EXIT_PASS)),
        Parsed::Mistake(line) => {
            say(&format!("client-sim: {line}"));
            return ExitCode::from(EXIT_NO_VERDICT);
        }
    };
    exit(match *command {
        Command::Run(config, outputs) => run_fleet(&config, &outputs),
        Command::Capacity(config) => find_capacity(&config),
        Command::PrintInstances => print(instances::SHIPPED).map(|()| EXIT_PASS),
        Command::SelfTest(config, json) => test_itself(&config, json.as_ref()),
        Command::Ping(config) => ping_server(&config),
        Command::Detect(config) => runtime(1).and_then(|runtime| {
            let fine = runtime.block_on(detect::detect(&config))?;
            Ok(if fine { EXIT_PASS } else { EXIT_FAIL })
        }),
        Command::Draw(config) => source::write_drawn(&config).map(|()| EXIT_PASS),
        Command::Report(config) => jobs::show(&config).map(|()| EXIT_PASS),
        Command::Compare(config) => jobs::hold_against(&config).map(|()| EXIT_PASS),
        Command::Merge(config) => {
            jobs::merge_files(&config).map(|verdict| verdict.map_or(EXIT_PASS, exit_code))
        }
    })
}

fn exit(done: Result<u8, SimError>) -> ExitCode {
    ExitCode::from(done.unwrap_or_else(|error| {
        say(&format!("client-sim: {error}"));
        EXIT_NO_VERDICT
    }))
}

fn run_fleet(config: &RunConfig, outputs: &Outputs) -> Result<u8, SimError> {
    outputs.check()?;
    let report = runtime(config.threads)?.block_on(run::run(config, interrupted()))?;
    let printed = print_table(&report.table(outputs.per_camera), outputs.json.as_ref());
    if let Some(target) = &outputs.json {
        write_json(&report, target)?;
    }
    files::write_all(&report, &outputs.files)?;
    printed?;
    Ok(if report.interrupted { EXIT_INTERRUPTED } else { exit_code(report.verdict) })
}

/// Prints a table, beside a report that goes to standard output as JSON on standard error. Callers
/// write their files before they return the error: the figures are not lost with the terminal.
fn print_table(table: &str, json: Option<&JsonTarget>) -> Result<(), SimError> {
    if json != Some(&JsonTarget::Stdout) {
        return print(table);
    }
    say(table.trim_end());
    Ok(())
}

fn test_itself(config: &RunConfig, json: Option<&JsonTarget>) -> Result<u8, SimError> {
    json.map_or(Ok(()), JsonTarget::check)?;
    let report = runtime(config.threads)?.block_on(async {
        let prepared = run::Prepared::without_server(config).await?;
        self_test::play(config, &prepared).await
    })?;
    let report = SelfTestReport::of(&report);
    show(&report.table(), &report, json)?;
    Ok(if report.holds { EXIT_PASS } else { EXIT_NO_VERDICT })
}

fn ping_server(config: &PingConfig) -> Result<u8, SimError> {
    let json = config.json.as_ref();
    json.map_or(Ok(()), JsonTarget::check)?;
    let report = runtime(config.threads)?.block_on(ping::ping(config))?;
    show(&report.table(), &report, json)?;
    Ok(EXIT_PASS)
}

/// Prints a table, and the report that it shows as JSON where that is wanted.
fn show(
    table: &str,
    report: &impl serde::Serialize,
    json: Option<&JsonTarget>,
) -> Result<(), SimError> {
    let printed = print_table(table, json);
    json.map_or(Ok(()), |target| write_json(report, target))?;
    printed
}

fn find_capacity(config: &CapacityConfig) -> Result<u8, SimError> {
    config.check()?;
    let runtime = runtime(config.run.threads)?;
    let findings = runtime.block_on(capacity::find(config, interrupted()))?;
    let printed = print_table(&findings.table(), config.json.as_ref());
    if let Some(target) = &config.json {
        findings.write_json(target)?;
    }
    if let Some(path) = &config.html {
        findings.write_html(path)?;
    }
    printed?;
    findings.close()?;
    if let Some(Stopped::Failed(error)) = &findings.stopped {
        say(&format!("client-sim: {error}"));
    }
    Ok(match findings.answer(config.expect) {
        Answer::Held => EXIT_PASS,
        Answer::NotHeld => EXIT_FAIL,
        Answer::Unknown => EXIT_NO_VERDICT,
        Answer::Interrupted => EXIT_INTERRUPTED,
    })
}

fn exit_code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Pass => EXIT_PASS,
        Verdict::Fail => EXIT_FAIL,
        Verdict::Invalid => EXIT_NO_VERDICT,
    }
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
