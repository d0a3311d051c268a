//! Simulates fleets of cameras against a `camera_ai` gRPC server and judges the answers.
//!
//! A run reads from left to right: pictures ([`source`]) go out when the [`schedule`] says, one
//! [`camera`] task per camera, woken by the [`pacer`], with signs of life in between
//! ([`heartbeat`]), to the [`servers`] that the [`balance`] gives them; answers are matched in its [`record`]; afterwards [`stats`] are added
//! up, [`verdict`] judges them and [`report`] prints them. [`run`] wires these; only [`clock`] reads
//! the time.

pub mod attempts;
pub mod balance;
pub mod boxes;
pub mod camera;
pub mod capacity;
pub mod cli;
pub mod clock;
pub mod config;
pub mod connect;
pub mod detect;
pub mod draw;
pub mod error;
pub mod heartbeat;
pub mod machine;
pub mod meter;
pub mod null_server;
pub mod pacer;
pub mod ping;
pub mod progress;
pub mod proxy;
pub mod random;
pub mod record;
pub mod report;
pub mod rogue;
pub mod run;
pub mod scene;
pub mod schedule;
pub mod self_test;
pub mod servers;
pub mod source;
pub mod stats;
pub mod stream;
pub mod timeline;
pub mod tls;
pub mod token;
pub mod validity;
pub mod verdict;

use std::io::{ErrorKind, Write as _};

use crate::error::SimError;

/// Prints a line for people on standard error. A closed terminal is no reason to fail.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Prints a result on standard output, without a line end of its own. Whoever closed the pipe does
/// not want it, so that is no reason to fail either; a full disk behind it is one.
pub fn print(text: &str) -> Result<(), SimError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(SimError::Stdout(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
