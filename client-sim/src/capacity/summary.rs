//! The report of a search.

use std::{fs, net::UdpSocket};

use super::{
    book::Book,
    cost::Prices,
    limiting::{Facts, limiting},
    search::{Next, Search},
};
use crate::{
    config::CapacityConfig,
    report::{
        capacity::{CapacityReport, KIND_CAPACITY},
        pictures,
        schema::{MachineFigures, SCHEMA_VERSION, SelfTestFigures, ServerFigures},
        shared_connections, start,
    },
    run::Prepared,
    schedule::Phases,
    validity::holds,
    verdict::Limits,
};

/// What a report holds besides the search.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) config: &'a CapacityConfig,
    pub(super) prepared: &'a Prepared,
    pub(super) prices: &'a Prices,
    pub(super) machine: MachineFigures,
    /// Whether server and simulator share a machine.
    pub(super) same_machine: bool,
    /// Why the server's metrics are not known.
    pub(super) no_metrics: Option<String>,
    /// What stopped the searches, if anything did.
    pub(super) stopped_by: Option<&'static str>,
}

impl Surroundings<'_> {
    pub(super) fn report(
        &self,
        book: &Book,
        phases: Phases,
        search: &Search,
        self_test: Option<SelfTestFigures>,
    ) -> CapacityReport {
        let (run, rules) = (&self.config.run, search.rules);
        let ended = match search.next() {
            Next::Done(ended) => Some(ended),
            Next::Run { .. } => None,
        };
        let known = search.knowledge();
        let server = self.prepared.server.clone().map(ServerFigures::from);
        let limits = Limits::of(&run.slo, |_| None);
        let facts = Facts {
            ended,
            found: known.found.unwrap_or(0),
            steps: &search.steps,
            same_machine: self.same_machine,
            cores: self.machine.cores,
            workers: server.as_ref().map(|server| server.workers),
            server_takes: server.as_ref().map(|server| server.max_cameras),
            link_mbit_per_s: link_mbit_per_s(),
            no_metrics: self.no_metrics.as_deref(),
            self_test: self_test.as_ref().filter(|test| !holds(test, &limits)),
        };
        let start = start(phases);
        let group = &run.scenario.groups[0];
        CapacityReport {
            schema_version: SCHEMA_VERSION,
            kind: KIND_CAPACITY.to_owned(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            arguments: std::env::args().skip(1).collect(),
            started_unix_ms: book.started_unix_ms(),
            elapsed_seconds: book.elapsed().as_secs_f64(),
            machine: self.machine.clone(),
            addr: run.target.addr.to_string(),
            same_machine: self.same_machine,
            fps: group.fps,
            phases: start.name.to_owned(),
            ramp_cameras: start.ramp_cameras,
            ramp_every_ms: start.ramp_every_ms,
            connections: shared_connections(run.connections),
            pictures: pictures(&group.pictures, self.prepared.pictures(&group.pictures)),
            seconds: run.scenario.measured.as_secs_f64(),
            warmup_seconds: run.scenario.warmup.as_secs_f64(),
            repeats: rules.repeats,
            slo_max_ms: limits.slo_max_ms,
            slo_percentiles: limits.percentiles,
            min_answered_ratio: limits.min_answered_ratio,
            found: known.found,
            sure: known.sure,
            refuted: known.refuted,
            complete: ended.is_some(),
            ended_by: ended
                .map(super::search::Ended::name)
                .or(self.stopped_by)
                .unwrap_or("interrupted")
                .to_owned(),
            limiting: limiting(&facts),
            steps: search.steps.clone(),
            self_test,
            cost: self.prices.costs(known.found.unwrap_or(0), self.vcpus(server.as_ref())),
            server,
        }
    }

    /// Virtual CPUs of the measured machine: its own where it can be looked at, else the server's workers,
    /// of which there is one for each unless somebody set another number.
    fn vcpus(&self, server: Option<&ServerFigures>) -> Option<u32> {
        if self.same_machine {
            return u32::try_from(self.machine.cores).ok();
        }
        server.map(|server| server.workers)
    }
}

/// Whether the server's host is this machine: whether one of its addresses can be listened on here.
pub(super) async fn is_here(host: &str) -> bool {
    let Ok(addresses) = tokio::net::lookup_host((host, 0)).await else { return false };
    addresses.into_iter().any(|address| UdpSocket::bind(address).is_ok())
}

/// Speed of the fastest network link that is up, in megabits per second; virtual ones often have none.
fn link_mbit_per_s() -> Option<f64> {
    let entries = fs::read_dir("/sys/class/net").ok()?;
    let speed = |entry: fs::DirEntry| {
        let read = |name| fs::read_to_string(entry.path().join(name)).ok();
        let up = read("operstate")?.trim() == "up";
        let speed: f64 = read("speed")?.trim().parse().ok()?;
        (up && speed > 0.0).then_some(speed)
    };
    entries.filter_map(Result::ok).filter_map(speed).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn loopback_is_here_and_documentation_addresses_are_not() {
        assert!(is_here("127.0.0.1").await && is_here("localhost").await);
        assert!(!is_here("203.0.113.7").await && !is_here("no such host").await);
    }
}
