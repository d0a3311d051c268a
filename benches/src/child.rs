//! Child processes: the server under test and the camera simulator. Neither outlives its handle.

use std::{
    convert::Infallible,
    ffi::OsString,
    fs::{self, File},
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::oneshot;
use vedette_server::{clock, settings::ENV_PREFIX};

use crate::{
    cli::Backend,
    context::Context,
    error::{BenchError, failed, io_error},
    machine,
};

/// How long a server may take to load its model and say where it listens.
const START_PATIENCE: Duration = Duration::from_mins(1);

/// How long a process may take to end after SIGTERM before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// How often a process that is to end is looked at.
const STOP_POLL: Duration = Duration::from_millis(5);

/// What the server says before its address.
const LISTENING: &str = "listening on ";

/// A process that is stopped when its handle goes away: SIGTERM, and after some time SIGKILL.
#[derive(Debug)]
struct Process {
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = clock::now() + STOP_PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && clock::now() < deadline {
            std::thread::sleep(STOP_POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    process: Process,
    /// Where cameras connect.
    pub addr: SocketAddr,
}

impl Server {
    /// Starts a server on free ports and waits until it listens. It logs to a file beside the results.
    ///
    /// # Errors
    /// When it does not start; with what it said last.
    pub async fn start(
        ctx: &Context,
        backend: Backend,
        more: &[String],
    ) -> Result<Self, BenchError> {
        let (program, log) = (ctx.server_bin()?, ctx.file("-server.log"));
        let mut args = strings(&["--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"]);
        args.extend(strings(&["--grace-seconds", "1", "--log-level", "warn"]));
        match backend {
            Backend::Spin => args.extend(strings(&["--backend", "spin"])),
            Backend::Onnx => {
                let files = ctx.files();
                for (flag, file) in [("--model", files.model), ("--runtime-lib", files.runtime_lib)]
                {
                    args.extend(file.into_iter().flat_map(|file| [flag.into(), file.into()]));
                }
            }
        }
        args.extend(more.iter().map(OsString::from));
        start(&program, &args, &log).await
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// CPU time that it has used since it began.
    ///
    /// # Errors
    /// When it is gone.
    pub fn cpu_time(&self) -> Result<Duration, BenchError> {
        machine::cpu_time(self.pid())
    }

    /// Its memory.
    ///
    /// # Errors
    /// When it is gone.
    pub fn memory(&self) -> Result<machine::Memory, BenchError> {
        machine::memory(self.pid())
    }

    /// Looks at its memory every `every`, for ever: one value in MiB after the other goes to `seen`.
    pub async fn watch_memory(
        &self,
        every: Duration,
        mut seen: impl FnMut(machine::Memory),
    ) -> Infallible {
        let mut ticks = tokio::time::interval(every);
        loop {
            ticks.tick().await;
            // Its end shows elsewhere, and better.
            if let Ok(memory) = self.memory() {
                seen(memory);
            }
        }
    }
}

fn strings(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Starts a program and waits for the line with its address.
async fn start(program: &Path, args: &[OsString], log: &Path) -> Result<Server, BenchError> {
    let (process, heard) = spawn(program, args, log)?;
    if let Ok(Ok(addr)) = tokio::time::timeout(START_PATIENCE, heard).await {
        return Ok(Server { process, addr });
    }
    let text = fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().last().unwrap_or("it said nothing");
    Err(failed("the server did not start")(format!("{last} (see {})", log.display())))
}

/// Starts a program that logs to a file. The receiver hears where it listens; its end when it never
/// will.
fn spawn(
    program: &Path,
    args: &[OsString],
    log: &Path,
) -> Result<(Process, oneshot::Receiver<SocketAddr>), BenchError> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder).map_err(io_error(folder.display().to_string()))?;
    }
    let log_file = File::create(log).map_err(io_error(log.display().to_string()))?;
    let mut command = Command::new(program);
    // Settings of a server that somebody runs here are not those of the one that is measured.
    #[expect(clippy::disallowed_methods, reason = "to keep the environment's settings out")]
    for (key, _) in std::env::vars_os() {
        if key.as_encoded_bytes().starts_with(ENV_PREFIX.as_bytes()) {
            command.env_remove(key);
        }
    }
    let child = command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .map_err(io_error(format!("cannot start {}", program.display())))?;
    let mut process = Process { child };
    let stdout = process.child.stdout.take();
    let (said, heard) = oneshot::channel();
    std::thread::spawn(move || {
        let mut said = Some(said);
        let lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
        // Read to its end, so that the server can always write.
        for line in lines.map_while(Result::ok) {
            let addr = line.strip_prefix(LISTENING).and_then(|addr| addr.trim().parse().ok());
            if let Some((addr, said)) = addr.zip(said.take_if(|_| addr.is_some())) {
                let _ = said.send(addr);
            }
        }
    });
    Ok((process, heard))
}

/// What a run of the camera simulator is.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// Where to.
    pub addr: SocketAddr,
    /// Cameras, each at 10 frames per second over its own connection.
    pub cameras: u32,
    /// Length of the measured part.
    pub length: Duration,
    /// How the cameras' frames lie to each other in time: [`EVEN`], `aligned` or `ramp`.
    pub phase: &'static str,
    /// Folder with the pictures.
    pub images: PathBuf,
}

/// Cameras spread evenly over a period.
pub const EVEN: &str = "even";

/// What the camera simulator reports.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the simulator's report documents the fields of the same names")]
pub struct FleetResult {
    pub sent: u64,
    pub ok: u64,
    pub superseded: u64,
    /// Frames without an answer, or with one that is neither OK nor SUPERSEDED, or not even sent.
    pub lost: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl FleetResult {
    /// Whether every frame was answered OK and in less than `ms` milliseconds.
    #[must_use]
    pub fn all_within(&self, ms: f64) -> bool {
        self.ok == self.sent && self.lost == 0 && self.superseded == 0 && self.max_ms < ms
    }
}

/// Runs the camera simulator and reads its report.
///
/// # Errors
/// When it cannot run, as with a `phase` that it does not know.
pub async fn run_fleet(ctx: &Context, fleet: Fleet) -> Result<FleetResult, BenchError> {
    let (program, json) = (ctx.client_bin()?, ctx.file("-client-sim.json"));
    let mut command = tokio::process::Command::new(&program);
    let seconds = fleet.length.as_secs_f64().to_string();
    let warmup = if ctx.quick() { "0.2" } else { "2" };
    command.args(["run", "--quiet", "--fps", "10", "--warmup", warmup, "--seconds", &seconds]);
    command.args(["--addr", &fleet.addr.to_string(), "--cameras", &fleet.cameras.to_string()]);
    command.arg("--json").arg(&json).arg("--images").arg(&fleet.images);
    // What is measured here is the whole machine, simulator included.
    if knows_flag(&program, &["run"], "--self-test").await? {
        command.args(["--self-test", "never"]);
    }
    // Simulators without that flag spread their cameras evenly.
    if fleet.phase != EVEN {
        command.args(["--phase", fleet.phase]);
    }
    // An old report must not pass for this run's.
    let _ = fs::remove_file(&json);
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(io_error("cannot start client-sim"))?;
    // Its verdict on the server, also that there is none, is not ours; without a report it did not run.
    if !(matches!(output.status.code(), Some(0..=2)) && json.exists()) {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed("client-sim")(said.lines().last().unwrap_or("it ended by a signal")));
    }
    let text = fs::read_to_string(&json).map_err(io_error(json.display().to_string()))?;
    let report: Value = serde_json::from_str(&text).map_err(failed("client-sim's report"))?;
    read_report(&report).ok_or_else(|| failed("client-sim's report")("a figure is missing"))
}

fn read_report(report: &Value) -> Option<FleetResult> {
    let count = |name| report.get(name)?.as_u64();
    // Absent when no frame was answered OK.
    let ms = |name| report.get(name).map(|value| value.as_f64().unwrap_or(f64::NAN));
    let (sent, ok, superseded) = (count("sent")?, count("ok")?, count("superseded")?);
    Some(FleetResult {
        sent,
        ok,
        superseded,
        lost: sent - ok - superseded + count("not_sent")?,
        p50_ms: ms("p50_ms")?,
        p99_ms: ms("p99_ms")?,
        max_ms: ms("max_ms")?,
    })
}

/// Whether a program's help names this flag; `before` are the words in front of `--help`.
///
/// # Errors
/// When it cannot be started.
pub async fn knows_flag(program: &Path, before: &[&str], flag: &str) -> Result<bool, BenchError> {
    let output = tokio::process::Command::new(program)
        .args(before)
        .arg("--help")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(io_error(format!("cannot start {}", program.display())))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().any(|word| word == flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_the_simulator() {
        let report = serde_json::json!({
            "sent": 100, "ok": 90, "superseded": 4, "lost": 5, "not_sent": 2,
            "p50_ms": 12.5, "p99_ms": 40.0, "max_ms": null,
        });
        let result = read_report(&report).expect("complete");
        assert_eq!((result.ok, result.superseded, result.lost), (90, 4, 8));
        assert!(result.max_ms.is_nan() && !result.all_within(100.0));
        assert!(read_report(&serde_json::json!({"sent": 1})).is_none());
        let fine = FleetResult { ok: 100, superseded: 0, lost: 0, max_ms: 99.9, ..result };
        assert!(fine.all_within(100.0) && !fine.all_within(99.9));
    }

    #[tokio::test]
    async fn a_program_that_ends_or_does_not_exist_is_reported() {
        let folder = tempfile::tempdir().expect("folder");
        let log = folder.path().join("log");
        let error = start(Path::new("/nonexistent"), &[], &log).await.expect_err("no program");
        assert!(error.to_string().contains("cannot start /nonexistent"), "{error}");
        let script = strings(&["-c", "echo 'wrong flag' >&2; exit 64"]);
        let error = start(Path::new("/bin/sh"), &script, &log).await.expect_err("ends");
        assert!(error.to_string().contains("wrong flag"), "{error}");
    }

    #[tokio::test]
    async fn a_process_ends_with_its_handle() {
        let folder = tempfile::tempdir().expect("folder");
        let log = folder.path().join("log");
        let script = strings(&["-c", "echo listening on 127.0.0.1:7; exec sleep 600"]);
        let server = start(Path::new("/bin/sh"), &script, &log).await.expect("starts");
        assert_eq!(server.addr.port(), 7);
        let pid = server.pid();
        assert!(server.memory().is_ok());
        drop(server);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
