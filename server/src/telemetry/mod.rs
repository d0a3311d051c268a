//! Logs, metrics, traces, and what is known of the cameras.

pub mod fleet;
pub mod metrics;
pub mod traces;

use tracing_subscriber::{
    EnvFilter, filter::LevelFilter, layer::SubscriberExt, util::SubscriberInitExt,
};

use crate::{config::LogConfig, decode::one_line, settings::LogFormat};

/// Sends logs to stderr. Stdout carries only what scripts wait for.
///
/// # Errors
/// When the filter does not parse; the message names it.
pub fn init_logs(config: &LogConfig) -> Result<(), String> {
    let registry = tracing_subscriber::registry().with(log_filter(&config.level)?);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let installed = match config.format {
        LogFormat::Text => registry.with(layer.with_ansi(false)).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
    // A second server in one process (tests) keeps the first one's logs.
    drop(installed);
    Ok(())
}

/// What `log-level` says: a level, or levels by module.
///
/// # Errors
/// When it does not parse; the message is one line and names it.
pub fn log_filter(level: &str) -> Result<EnvFilter, String> {
    // A bare word that is no level would be taken for a module's name, and silence all others.
    let bare = level.split(',').map(str::trim).filter(|part| !part.contains('='));
    let unknown = bare.into_iter().find(|word| word.parse::<LevelFilter>().is_err());
    if let Some(word) = unknown {
        return Err(format!(
            "log-level: {word:?} is not one of off, error, warn, info, debug, trace (for one module: \
             vedette_server=debug)"
        ));
    }
    EnvFilter::try_new(level)
        .map_err(|error| format!("log-level: {level:?} is not a filter: {error}"))
}

/// Logs a panic as one line like any other, instead of the several that Rust prints.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let what = panic.payload_as_str().map(one_line).unwrap_or_default();
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or_default();
        tracing::error!(thread, place, "panic: {what}");
    }));
}
