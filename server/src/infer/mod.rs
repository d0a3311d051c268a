//! Inference: the ONNX network, one session per worker, or a busy loop in its place.

mod declared;
pub mod model;
pub mod network;
pub mod onnx;
pub mod spin;

use std::path::PathBuf;

/// Why a model cannot be served or a run failed. One line each, naming what to change.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum InferError {
    #[error("runtime-lib: cannot load ONNX Runtime from {}: {reason}", path.display())]
    Runtime { path: PathBuf, reason: String },
    #[error("model: cannot read {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("model: {} is not a usable ONNX model: {reason}", path.display())]
    Broken { path: PathBuf, reason: String },
    #[error("labels: {0}")]
    Labels(String),
    #[error("labels: cannot read {}: {reason}", path.display())]
    NoLabels { path: PathBuf, reason: String },
    #[error("layout: {0}")]
    Layout(String),
    #[error("input-size: {0}")]
    InputSize(String),
    #[error("batch: {0}")]
    Batch(String),
    #[error("inference failed: {0}")]
    Run(String),
}

/// What is served: for answers, `GetServerInfo` and the model metric.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// File name without extension, or "spin".
    pub name: String,
    /// "onnx" or "spin".
    pub backend: &'static str,
    /// Network input, width and height in pixels; 0 where there is none.
    pub input: (u32, u32),
    /// Class names, in the order of class ids.
    pub labels: Vec<String>,
}
