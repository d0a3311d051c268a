//! Benches of Vedette. Each prints ratios of things run in turn within the same run, with every trial's
//! value, and stores its result as JSON, from which the results page is written.
//!
//! [`capacity`] measures L, what the machine can do in this process at this moment; [`ours`] and
//! [`obvious`] are the pipelines compared. [`child`] runs the server, [`load`] its clients.
//! [`report`] and [`table`] are what comes out.

pub mod apart;
pub mod boxes;
pub mod capacity;
pub mod ceiling;
pub mod child;
pub mod cli;
pub mod context;
pub mod error;
pub mod idle;
pub mod load;
pub mod machine;
pub mod neighbour;
pub mod obvious;
pub mod ours;
pub mod overload;
pub mod pictures;
pub mod report;
pub mod results;
pub mod rtt;
pub mod server;
pub mod stages;
pub mod stats;
pub mod table;
