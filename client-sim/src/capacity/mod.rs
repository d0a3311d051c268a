//! The largest number of cameras that a server holds within limits.

pub mod search;
