//! The largest number of cameras that a server holds within limits.
//!
//! [`search`] decides what to try, the runner tries it and cuts failing runs short, the book keeps the log.
//! Afterwards [`limiting`] tells what ran out, from what [`metrics`] of the server and the runs' own figures
//! say, and [`cost`] what the result costs.

mod book;
pub mod cost;
pub mod instances;
pub mod limiting;
pub mod metrics;
mod neighbours;
mod plan;
mod progress;
mod runner;
pub mod search;
mod summary;
mod table;
mod watch;

use std::{
    future::Future,
    path::{Path, PathBuf},
};

use self::{
    book::Book,
    cost::Prices,
    plan::Plan,
    progress::Progress,
    runner::{Interrupt, Runner},
    search::Rules,
    summary::Surroundings,
};
use crate::{
    config::{CapacityConfig, JsonTarget, Pricing},
    error::SimError,
    machine,
    report::{
        capacity::CapacityReport, files, html::Document, schema::SelfTestFigures, write_json,
    },
    run, self_test,
};

/// The report of a search as text for a terminal.
#[must_use]
pub fn table_of(report: &CapacityReport) -> String {
    // Prices given on the command line have no source.
    let shipped_prices = report.cost.iter().any(|cost| !cost.source.is_empty());
    table::render(std::slice::from_ref(report), false, shipped_prices)
}

/// What came of the searches.
#[derive(Debug)]
pub struct Findings {
    /// A report for each search that was begun, in order.
    pub reports: Vec<CapacityReport>,
    /// Whether several phases were asked for.
    pub sweep: bool,
    /// Why the searches ended before they were done; `None` when they are.
    pub stopped: Option<Stopped>,
    /// Whether prices are used that came with this tool.
    shipped_prices: bool,
    /// The file to remove once the results are written.
    spent_state: Option<PathBuf>,
}

/// Why a search ended before it was done.
#[derive(Debug)]
pub enum Stopped {
    /// Stopped by hand.
    ByHand,
    /// There was no time for another run.
    Time,
    /// The server cannot be reached any more, or the state not be kept.
    Failed(SimError),
}

/// What an exit code says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// Enough cameras are held.
    Held,
    /// Not one is, or fewer than expected.
    NotHeld,
    /// Nothing is known about the server.
    Unknown,
    /// Stopped by hand.
    Interrupted,
}

/// Searches, until it is done, `interrupt` ends or the time is up.
pub async fn find(
    config: &CapacityConfig,
    interrupt: impl Future<Output = ()>,
) -> Result<Findings, SimError> {
    let prices = prices(&config.pricing)?;
    let prepared = run::prepare(&config.run).await?;
    let takes = prepared.server.as_ref().map_or(0, |server| server.max_cameras);
    let rules = rules(config.rules, takes);
    let mut book = Book::open(config, rules, &prepared)?;
    let plan = Plan::of(config, rules);
    let progress = Progress::start(config.run.quiet, plan);
    let same_machine = summary::is_here(config.run.target.addr.host()).await;
    let interrupt = Interrupt::new(interrupt);
    let mut runner = Runner::start(config, &prepared, interrupt, progress, same_machine).await;
    let mut stopped = None;
    for index in 0..config.phases.len() {
        stopped = runner.search(&mut book, index).await;
        if stopped.is_some() {
            break;
        }
    }
    if book.is_empty()
        && let Some(Stopped::Failed(error)) = stopped
    {
        return Err(error);
    }
    let self_tests = match stopped {
        // Whoever stops it does not want to wait.
        Some(Stopped::ByHand) => None,
        _ => runner.unless_stopped(self_tests(config, &prepared, &book)).await,
    };
    let self_tests = self_tests.unwrap_or_default();
    let surroundings = Surroundings {
        config,
        prepared: &prepared,
        prices: &prices,
        machine: machine::figures(),
        same_machine,
        no_metrics: runner.no_metrics().map(str::to_owned),
        stopped_by: matches!(stopped, Some(Stopped::Time)).then_some("time"),
    };
    // The bar goes before the result comes.
    drop(runner);
    let begun = |search: &&search::Search| config.phases.len() == 1 || !search.steps.is_empty();
    let tested = self_tests.into_iter().chain(std::iter::repeat(None));
    let searches = book.searches().iter().zip(&config.phases).zip(tested);
    let reports = searches.filter(|((search, _), _)| begun(search));
    Ok(Findings {
        reports: reports
            .map(|((search, &phases), test)| surroundings.report(&book, phases, search, test))
            .collect(),
        sweep: config.sweep,
        spent_state: config.state.clone().filter(|_| stopped.is_none()),
        stopped,
        shipped_prices: prices.are_shipped(),
    })
}

/// The simulator against a server that answers at once, for each search with one camera more than it found:
/// that many it must be able to play for the result to be the server's. A search is not lost with it.
async fn self_tests(
    config: &CapacityConfig,
    prepared: &run::Prepared,
    book: &Book,
) -> Vec<Option<SelfTestFigures>> {
    let mut tests = Vec::new();
    for (search, &phases) in book.searches().iter().zip(&config.phases) {
        if search.steps.is_empty() {
            tests.push(None);
            continue;
        }
        let mut run = config.run.clone();
        run.scenario.phases = phases;
        run.scenario.groups[0].cameras = search.knowledge().found.unwrap_or(0) + 1;
        let test = self_test::run(&run, prepared).await;
        if let Err(error) = &test {
            crate::say(&format!("no self-test: {error}"));
        }
        tests.push(test.ok());
    }
    tests
}

/// The rules, with no more cameras than the server takes (0 = it does not say): beyond that it only refuses.
fn rules(asked: Rules, takes: u32) -> Rules {
    let max_cameras = if takes > 0 { asked.max_cameras.min(takes) } else { asked.max_cameras };
    Rules { from: asked.from.min(max_cameras), max_cameras, ..asked }
}

/// Reads the prices, so that mistakes in them show before the search.
fn prices(pricing: &Pricing) -> Result<Prices, SimError> {
    let instances = match (&pricing.instances, &pricing.instance) {
        (Some(path), _) => instances::read(path)?,
        (None, Some(_)) if pricing.per_hour.is_none() => instances::shipped(),
        (None, _) => Vec::new(),
    };
    let known = |name: &String| instances.iter().any(|instance| instance.name == *name);
    if let Some(name) =
        pricing.instance.as_ref().filter(|name| !instances.is_empty() && !known(name))
    {
        let names: Vec<&str> = instances.iter().map(|instance| &*instance.name).collect();
        return Err(SimError::Instance { name: name.clone(), known: names.join(", ") });
    }
    Ok(Prices {
        instances,
        measured: pricing.instance.clone(),
        per_hour: pricing.per_hour.clone(),
        most_instances: pricing.most_instances,
    })
}

impl Findings {
    /// The result for people.
    #[must_use]
    pub fn table(&self) -> String {
        table::render(&self.reports, self.sweep, self.shipped_prices)
    }

    /// Writes the report: one, or a list of them when several phases were asked for.
    pub fn write_json(&self, target: &JsonTarget) -> Result<(), SimError> {
        match self.reports.first() {
            Some(report) if !self.sweep => write_json(report, target),
            _ => write_json(&self.reports, target),
        }
    }

    /// Writes the report as a page; one for each phase when several were asked for.
    pub fn write_html(&self, path: &Path) -> Result<(), SimError> {
        for report in &self.reports {
            let path = if self.sweep {
                path.with_extension(format!("{}.html", report.phases))
            } else {
                path.to_owned()
            };
            files::write_html(&Document::Capacity(report), &path)?;
        }
        Ok(())
    }

    /// Removes the state of a search that is over, once its results are safe.
    pub fn close(&self) -> Result<(), SimError> {
        let Some(path) = &self.spent_state else { return Ok(()) };
        std::fs::remove_file(path).map_err(|source| SimError::Write { path: path.clone(), source })
    }

    /// What the exit code says: the worst of all phases. A search that was not finished has held what it
    /// has held.
    #[must_use]
    pub fn answer(&self, expect: Option<u32>) -> Answer {
        if matches!(self.stopped, Some(Stopped::ByHand)) {
            return Answer::Interrupted;
        }
        let enough = expect.unwrap_or(1);
        let of = |report: &CapacityReport| {
            if report.found.is_some_and(|found| found >= enough) {
                Answer::Held
            } else if report.complete && report.limiting.resource != limiting::SIMULATOR {
                Answer::NotHeld
            } else {
                Answer::Unknown
            }
        };
        let worst = self.reports.iter().map(of).max().unwrap_or(Answer::Unknown);
        let partly = match self.stopped {
            Some(Stopped::Failed(_)) => true,
            Some(_) => self.sweep,
            None => false,
        };
        if partly { worst.max(Answer::Unknown) } else { worst }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_cameras_are_tried_than_the_server_takes() {
        let asked = Rules { from: 50, max_cameras: 1000, repeats: 3 };
        assert_eq!(rules(asked, 0), asked);
        assert_eq!(rules(asked, 256), Rules { max_cameras: 256, ..asked });
        assert_eq!(rules(asked, 8), Rules { from: 8, max_cameras: 8, ..asked });
    }
}
