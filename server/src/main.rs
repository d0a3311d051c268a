//! Command line -> settings -> runtime -> serve -> drain -> exit code.

use std::{
    io::{Write, stdout},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
};
use vedette_server::{
    cli::{self, Command},
    config::Config,
    error::ServeError,
    memory, probe, reload, serve,
    settings::ConfigError,
    supervision, telemetry,
};

/// How long abandoned tasks may take to end.
const RUNTIME_SHUTDOWN: Duration = Duration::from_millis(100);

/// How long a helper thread (metrics are rendered on one, networks loaded) waits for more to do. The runtime
/// wakes those that wait in turn, so that with its 10 s the regular jobs kept as many threads for good as had
/// ever been busy at once.
const HELPER_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// Further signals within this time of the first are its echo.
const SIGNAL_ECHO: Duration = Duration::from_secs(1);

/// Exit code of a shutdown cut short by a second signal: 128 + SIGTERM.
const EXIT_CUT_SHORT: u8 = 143;

fn main() {
    let code = run().map_or_else(
        |error| {
            eprintln!("vedette-server: {error}");
            error.exit_code()
        },
        |()| 0,
    );
    end_without_waiting(code)
}

/// Ends the process although threads may hang, in a network or while one is loaded: an orderly end runs the
/// destructors of libraries that they are in the middle of, and may wait for them.
fn end_without_waiting(code: u8) -> ! {
    // SAFETY: takes a number and does not return; nothing is left to be flushed, since stderr is not
    // buffered and stdout was flushed after its only line.
    unsafe { libc::_exit(code.into()) }
}

fn run() -> Result<(), ServeError> {
    let config = match cli::parse(std::env::args_os())? {
        Command::Print(text) => {
            // Nobody reads on: `--help | head`.
            let mut stdout = stdout().lock();
            let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
            return Ok(());
        }
        Command::CheckHealth(admin) => return probe::ready(admin).map_err(ServeError::NotReady),
        Command::Serve(settings) => settings.check()?,
    };
    telemetry::init_logs(&config.log).map_err(ConfigError)?;
    telemetry::log_panics();
    if !memory::keep_for_the_next_frame() {
        tracing::debug!("the C library's allocator refuses to be tuned");
    }
    let runtime = io_runtime(config.net.io_threads)?;
    let result = runtime.block_on(serve_until_signal(config));
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN);
    result
}

fn io_runtime(threads: usize) -> Result<Runtime, ServeError> {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("io")
        .thread_keep_alive(HELPER_KEEP_ALIVE)
        .enable_all()
        .build()
        .map_err(ServeError::Runtime)
}

async fn serve_until_signal(config: Config) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Runtime)?;
    let mut next_signal = async move || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let running = tokio::select! {
        running = serve::start(config) => running?,
        () = next_signal() => return Ok(()),
    };
    // Before anybody knows that the server is there: a signal that is not waited for ends the process.
    tokio::spawn(reload_on_signal(running.reloader.clone())?);
    announce(&running)?;
    supervision::tell_supervisor(sd_notify::NotifyState::Ready);
    let (stop, stopped) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        next_signal().await;
        let _ = stop.send(());
        // Supervisors signal the process and its group: the same request, twice.
        let echo = async {
            loop {
                next_signal().await;
            }
        };
        let _ = tokio::time::timeout(SIGNAL_ECHO, echo).await;
        next_signal().await;
        end_without_waiting(EXIT_CUT_SHORT);
    });
    running
        .run_until(async {
            let _ = stopped.await;
        })
        .await
}

/// Reads anew what can be whenever SIGHUP comes.
fn reload_on_signal(reloader: reload::Reloader) -> Result<impl Future<Output = ()>, ServeError> {
    let mut hangup = signal(SignalKind::hangup()).map_err(ServeError::Runtime)?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            reloader.reload().await;
        }
    })
}

/// The line that scripts wait for.
fn announce(running: &serve::Running) -> Result<(), ServeError> {
    let mut stdout = stdout().lock();
    writeln!(stdout, "listening on {}", running.addr)
        .and_then(|()| stdout.flush())
        .map_err(ServeError::Stdout)
}
