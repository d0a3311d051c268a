//! The server's core in simulated time: admission, scheduler, tickets and the order of answers, the pace
//! of reading and the drain, between simulated cameras and workers. A seed decides everything, so that
//! whatever goes wrong in a run goes wrong again:
//!
//! ```text
//! VEDETTE_SIM_SEED=123 cargo test -p vedette-server --test simulation seeds::seeds
//! VEDETTE_SIM_FIRST=1000 VEDETTE_SIM_SEEDS=100000 \
//!     cargo test -p vedette-server --test simulation seeds::seeds
//! ```
//!
//! - `plan.rs` draws a run: fleet, costs, troubles, shutdown
//! - `executor.rs` runs tasks in simulated time, in an order that the seed draws
//! - `streams.rs`, `workers.rs`, `drain.rs` are the server around its core, `clients.rs` is the world
//!   outside
//! - `ledger.rs` and `reading.rs` keep books beside the server and hold every entry against the rules of
//!   `rules.rs`
//! - `seeds.rs` runs a thousand seeds, which must get into all of `situations.rs`; `scenarios.rs` runs
//!   plans with exact figures
//!
//! What it does not show: tasks go on one at a time, and what they do between two awaits or two calls of
//! the core is not taken apart. So the insides of a call, such as the moment between a frame's waiting
//! and its wake-up, do not meet those of another.

mod clients;
mod drain;
mod executor;
mod ledger;
mod plan;
mod random;
mod reading;
mod rules;
mod run;
mod scenarios;
mod seeds;
mod situations;
mod streams;
mod trace;
mod workers;
mod world;
