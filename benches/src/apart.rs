//! Work on a thread of its own, awaited. The main task stays free to hear Ctrl-C, and a load's client
//! does not share its loop with anything else.

use std::thread;

use tokio::{runtime::Builder, sync::oneshot};

use crate::error::{BenchError, failed, io_error};

/// Runs blocking work on a new thread.
///
/// # Errors
/// When the thread cannot be started or panics.
pub async fn run<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BenchError> {
    let (done, result) = oneshot::channel();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // Nobody waits any more when the bench was interrupted.
            let _ = done.send(work());
        })
        .map_err(io_error(name))?;
    result.await.map_err(|_| failed(name)("its thread panicked"))
}

/// Runs a future on a new thread with a runtime of its own.
///
/// # Errors
/// When thread or runtime cannot be started, or the future panics.
pub async fn run_async<T: Send + 'static, F: Future<Output = Result<T, BenchError>>>(
    name: &'static str,
    make: impl FnOnce() -> F + Send + 'static,
) -> Result<T, BenchError> {
    run(name, move || {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(io_error(name))?;
        runtime.block_on(make())
    })
    .await?
}
