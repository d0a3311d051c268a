//! Tries what the search asks for, run by run, against the real server.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Stopped,
    book::{Book, phases_text},
    metrics::{DEFAULT_ADMIN_PORT, Scrape, ServerUsage, scrape},
    neighbours::Reading,
    progress::{Place, Progress},
    search::Next,
    watch::{Cut, Watch},
};
use crate::{
    camera::Live,
    clock,
    config::{CapacityConfig, ServerAddr},
    connect::{connect, endpoint},
    error::SimError,
    report::{
        capacity::StepRun,
        schema::{Report, Verdict},
    },
    run::{self, Prepared},
    validity::settle,
    verdict::{Limits, judge},
};

/// Pause between runs, in which a server gets rid of the last one's streams and frames.
const PAUSE: Duration = Duration::from_millis(300);

/// A signal that is given at most once and then stays given.
pub(super) struct Interrupt<'a>(Option<Pin<Box<dyn Future<Output = ()> + 'a>>>);

impl<'a> Interrupt<'a> {
    pub(super) fn new(signal: impl Future<Output = ()> + 'a) -> Self {
        Self(Some(Box::pin(signal)))
    }

    /// Ends when the signal is given.
    async fn wait(&mut self) {
        if let Some(signal) = &mut self.0 {
            signal.await;
            self.0 = None;
        }
    }
}

/// Where the server's metrics are.
#[derive(Debug)]
struct Operators {
    admin: String,
    /// Why they are of no use.
    why_not: Option<String>,
}

impl Operators {
    async fn start(config: &CapacityConfig) -> Self {
        let admin = config.admin.clone().unwrap_or_else(|| usual(&config.run.target.addr));
        let why_not = scrape(&admin).await.err().map(|why| format!("{admin}: {why}"));
        Self { admin, why_not }
    }

    async fn look(&self) -> Option<Scrape> {
        if self.why_not.is_some() { None } else { scrape(&self.admin).await.ok() }
    }

    /// What the server used in a run; nothing when the metrics turn out to be another server's.
    fn used(&mut self, scrapes: Option<(Scrape, Scrape)>, load: Duration) -> ServerUsage {
        let Some((before, after)) = scrapes else { return ServerUsage::default() };
        if !after.moved_since(&before) {
            let why = "it counted none of the frames, so it is another server; see --admin";
            self.why_not = Some(format!("{}: {why}", self.admin));
            return ServerUsage::default();
        }
        after.since(&before, load)
    }
}

/// Where a server's metrics are unless told otherwise.
fn usual(addr: &ServerAddr) -> String {
    let host = addr.host();
    let brackets = host.contains(':');
    let host = if brackets { format!("[{host}]") } else { host.to_owned() };
    format!("{host}:{DEFAULT_ADMIN_PORT}")
}

/// Plays the runs of all searches.
pub(super) struct Runner<'a> {
    config: &'a CapacityConfig,
    prepared: &'a Prepared,
    interrupt: Interrupt<'a>,
    progress: Progress,
    operators: Operators,
    same_machine: bool,
    deadline: Option<Instant>,
}

impl<'a> Runner<'a> {
    pub(super) async fn start(
        config: &'a CapacityConfig,
        prepared: &'a Prepared,
        interrupt: Interrupt<'a>,
        progress: Progress,
        same_machine: bool,
    ) -> Self {
        let operators = Operators::start(config).await;
        if let Some(why) = &operators.why_not {
            progress.note(&format!(
                "no metrics of the server at {why}; what limits it may stay unknown"
            ));
        }
        let deadline = config.most_time.map(|most| clock::now() + most);
        Self { config, prepared, interrupt, progress, operators, same_machine, deadline }
    }

    /// Why the server's metrics are not known, if they are not.
    pub(super) fn no_metrics(&self) -> Option<&str> {
        self.operators.why_not.as_deref()
    }

    /// Goes on with a search until it is done or something stops it.
    pub(super) async fn search(&mut self, book: &mut Book, index: usize) -> Option<Stopped> {
        while let Next::Run { cameras, .. } = book.search(index).next() {
            let end = self
                .deadline
                .map(|deadline| (clock::now() + self.progress.plan().longest_run(), deadline));
            if end.is_some_and(|(end, deadline)| end > deadline) {
                return Some(Stopped::Time);
            }
            let run = match self.run(book, index, cameras).await {
                Ok(Some(run)) => run,
                Ok(None) => return Some(Stopped::ByHand),
                Err(error) => return Some(Stopped::Failed(error)),
            };
            if let Err(error) = book.record(index, run.clone()) {
                return Some(Stopped::Failed(error));
            }
            self.progress.finished(cameras, &run, &self.place(book, index, &self.phases(index)));
            tokio::select! {
                () = clock::sleep_until(clock::now() + PAUSE) => {}
                () = self.interrupt.wait() => return Some(Stopped::ByHand),
            }
        }
        None
    }

    /// What `work` comes to; `None` when it is stopped by hand.
    pub(super) async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.interrupt.wait() => None,
        }
    }

    fn phases(&self, index: usize) -> String {
        phases_text(self.config.phases[index])
    }

    fn place<'p>(&self, book: &'p Book, index: usize, phases: &'p str) -> Place<'p> {
        Place {
            search: book.search(index),
            phases: self.config.sweep.then_some(phases),
            later: (self.config.phases.len() - index - 1) as u32,
            elapsed: book.elapsed(),
        }
    }

    /// One run; `None` when it was stopped by hand.
    async fn run(
        &mut self,
        book: &Book,
        index: usize,
        cameras: u32,
    ) -> Result<Option<StepRun>, SimError> {
        let mut config = self.config.run.clone();
        // The search has a progress of its own.
        config.quiet = true;
        config.scenario.phases = self.config.phases[index];
        config.scenario.groups[0].cameras = cameras;
        let phases = self.phases(index);
        self.progress.begin(&self.place(book, index, &phases));
        let (before, machine) = (self.operators.look().await, Reading::now());
        let live = Arc::new(Live::default());
        let watch = Watch::new(&config, &live);
        let played = {
            let (progress, sweep) = (&self.progress, self.config.sweep);
            let later = (self.config.phases.len() - index - 1) as u32;
            let look = |live: &Live| {
                let phases = sweep.then_some(&*phases);
                let (search, elapsed) = (book.search(index), book.elapsed());
                progress.look(&Place { search, phases, later, elapsed }, live);
            };
            let interrupt = watch.until(self.interrupt.wait(), look);
            run::play(&config, self.prepared, live.clone(), interrupt).await
        };
        let report = match played {
            Ok(_) if watch.cut() == Some(Cut::ByHand) => return Ok(None),
            Ok(report) => report,
            Err(error) => return self.could_not_play(error).await.map(Some),
        };
        let scrapes = before.zip(self.operators.look().await).filter(|_| report.tally.answered > 0);
        let used = self.operators.used(scrapes, watch.load());
        let server = used.cpu_cores.map(|cores| watch.load().mul_f64(cores));
        let server = server.filter(|_| self.same_machine);
        let others = server.and_then(|time| Reading::now().others_since(&machine, time));
        let pictures = self.prepared.pictures(&config.scenario.groups[0].pictures);
        let run = step_run(&report, &watch, used, pictures.sizes().1);
        Ok(Some(StepRun { others_cpu_cores: others, ..run }))
    }

    /// A run that could not begin while the server is there says nothing about the server: the simulator
    /// ran out of something, most likely file handles.
    async fn could_not_play(&self, error: SimError) -> Result<StepRun, SimError> {
        let target = &self.config.run.target;
        if connect(&endpoint(target)?, target).await.is_err() {
            return Err(error);
        }
        Ok(StepRun { reasons: vec![error.to_string()], ..StepRun::of(Verdict::Invalid) })
    }
}

/// What a run came to.
fn step_run(report: &Report, watch: &Watch<'_>, used: ServerUsage, mean_bytes: usize) -> StepRun {
    let cut_short = watch.cut() == Some(Cut::Hopeless);
    let (verdict, reasons) = verdict(report, cut_short);
    let seconds = watch.measured().as_secs_f64();
    let bits = report.tally.sent as f64 * mean_bytes as f64 * 8.0;
    StepRun {
        verdict,
        reasons,
        sent: report.tally.sent,
        ok: report.tally.ok,
        p50_ms: report.figures.p50_ms,
        p99_ms: report.figures.p99_ms,
        max_ms: report.figures.max_ms,
        cut_short,
        server_cpu_cores: used.cpu_cores,
        server_busy: used.busy,
        others_cpu_cores: None,
        simulator_cpu_cores: report.simulator.cpu_cores,
        sent_mbit_per_s: if seconds > 0.0 { bits / seconds / 1e6 } else { 0.0 },
        wake_lateness_p99_ms: report.simulator.wake_lateness_ms.p99,
    }
}

/// The verdict of a run. One that was cut short was not stopped by hand, though its report says so; it is
/// judged by everything else, and cannot pass.
fn verdict(report: &Report, cut_short: bool) -> (Verdict, Vec<String>) {
    if !cut_short {
        return (report.verdict, report.reasons.clone());
    }
    let limits = Limits::of_report(report);
    let mut cameras = report.per_camera.clone();
    for camera in &mut cameras {
        // Due at the moment of the cut and not yet sent says nothing about anybody.
        (camera.tally.not_sent, camera.excused.not_sent) = (0, 0);
        (camera.warmup.not_sent, camera.warmup_excused.not_sent) = (0, 0);
    }
    let judgement = judge(&cameras, &limits, None);
    match settle(&judgement, &report.simulator, &limits, report.over_slo) {
        (Verdict::Pass, _) => (Verdict::Fail, vec!["cut short".to_owned()]),
        settled => settled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_looked_for_on_the_server_s_host() {
        for (addr, admin) in [
            ("127.0.0.1:50051", "127.0.0.1:9464"),
            ("https://camera-host", "camera-host:9464"),
            ("[::1]:7000", "[::1]:9464"),
        ] {
            assert_eq!(usual(&addr.parse().unwrap()), admin);
        }
    }

    #[tokio::test]
    async fn an_interrupt_stays_given() {
        let mut interrupt = Interrupt::new(std::future::ready(()));
        interrupt.wait().await;
        interrupt.wait().await;
    }
}
