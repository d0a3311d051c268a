//! Logs and metrics.

pub mod metrics;

use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{config::LogConfig, settings::LogFormat};

/// Sends logs to stderr. Stdout carries only what scripts wait for.
///
/// # Errors
/// When the filter does not parse; the message names it.
pub fn init_logs(config: &LogConfig) -> Result<(), String> {
    let filter = EnvFilter::try_new(&config.level)
        .map_err(|error| format!("log-level: {:?} is not a filter: {error}", config.level))?;
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let installed = match config.format {
        LogFormat::Text => registry.with(layer.with_ansi(false)).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
    // A second server in one process (tests) keeps the first one's logs.
    drop(installed);
    Ok(())
}
