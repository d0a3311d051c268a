//! A search for the largest fleet.

use std::{path::PathBuf, time::Duration};

use super::{JsonTarget, RunConfig, files::check_folder};
use crate::{capacity::search::Rules, error::SimError, schedule::Phases};

/// What to search, and what to make of it.
#[derive(Debug, Clone)]
pub struct CapacityConfig {
    /// A run of the search; its only group is played with as many cameras as the search asks for, and its
    /// phases are those of the search.
    pub run: RunConfig,
    /// How the cameras' start times lie to each other: a search for each, at least one.
    pub phases: Vec<Phases>,
    /// Whether several phases were asked for, so that the result is a list.
    pub sweep: bool,
    /// Sizes and repeats.
    pub rules: Rules,
    /// The server's port for operators, as `HOST:PORT`; `None` = the usual one on the server's host.
    pub admin: Option<String>,
    /// Where the search is kept, so that it can be continued.
    pub state: Option<PathBuf>,
    /// Longest time for all searches of this sitting.
    pub most_time: Option<Duration>,
    /// Fewest cameras that are good enough.
    pub expect: Option<u32>,
    /// Prices.
    pub pricing: Pricing,
    /// The report as JSON.
    pub json: Option<JsonTarget>,
    /// The report as a page; one for each phase when several were asked for.
    pub html: Option<PathBuf>,
}

/// Where prices come from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pricing {
    /// Price of an hour of the server's machine, above 0, and its currency.
    pub per_hour: Option<(f64, String)>,
    /// A list of instances; `None` = the one that comes with this tool, if an instance is named.
    pub instances: Option<PathBuf>,
    /// Which of them the server runs on.
    pub instance: Option<String>,
    /// Fleets are priced for 1 to so many instances.
    pub most_instances: u32,
}

impl CapacityConfig {
    /// Finds a result that could not be written before a long search instead of after it.
    pub fn check(&self) -> Result<(), SimError> {
        self.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
        self.html.as_ref().map_or(Ok(()), |path| check_folder(path))
    }
}
