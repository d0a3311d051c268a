//! Vedette's server: frames in over gRPC, boxes out, each before the camera's next frame.
//!
//! The stages, in the order in which a frame passes them: [`ingress`] -> [`admit`] -> [`schedule`] ->
//! [`decode`] -> [`preprocess`] -> [`infer`] -> [`postprocess`] -> [`response`]. [`worker`] runs a frame
//! through them, [`pipeline`] wires threads and channels, [`serve`] is the server's life.

pub mod admin;
pub mod admit;
pub mod auth;
pub mod cli;
pub mod clock;
pub mod config;
pub mod connection;
pub mod decode;
pub mod error;
pub mod exposure;
pub mod faults;
pub mod frame;
pub mod infer;
pub mod ingress;
pub mod intake;
pub mod letterbox;
pub mod limits;
pub mod memory;
pub mod pace;
pub mod pipeline;
pub mod postprocess;
pub mod preprocess;
pub mod probe;
pub mod rate;
pub mod reload;
pub mod response;
pub mod schedule;
pub mod serve;
pub mod settings;
pub mod supervision;
pub mod telemetry;
pub mod tls;
pub mod worker;
