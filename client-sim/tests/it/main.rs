//! The tool against servers of all kinds, in process and as the real binary.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod balancing;
mod capacity;
mod cli;
mod connections;
mod fake;
mod files;
mod heartbeat;
mod merging;
mod pages;
mod ping;
mod reconnect;
mod rogue;
mod run;
mod samples;
mod schema;
mod self_test;
mod tls;
mod video;
