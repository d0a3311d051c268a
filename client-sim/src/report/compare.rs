//! Reports side by side.

use serde::{Deserialize, Serialize};

/// What `kind` says in a comparison.
pub const KIND_COMPARISON: &str = "comparison";

/// Several reports, the others held against the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {}
