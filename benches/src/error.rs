//! Why a bench could not run. One line each, saying what to do.

use std::{io, path::PathBuf};

/// Why a bench could not run; a missed mark is not an error.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BenchError {
    #[error("interrupted")]
    Interrupted,
    #[error("{} does not exist; build it with `cargo build --release`, or name it with {flag}", path.display())]
    NoBinary { path: PathBuf, flag: &'static str },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{what}: {why}")]
    Failed { what: &'static str, why: String },
    #[error("{0}")]
    Setup(String),
}

/// For `map_err` on input and output: names what was being done.
pub fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> BenchError {
    let what = what.into();
    move |source| BenchError::Io { what, source }
}

/// For `map_err` on everything else.
pub fn failed<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> BenchError {
    move |error| BenchError::Failed { what, why: error.to_string() }
}
