//! The searches' log, kept in a file when one is named, so that a search can be continued.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::search::{Rules, Search};
use crate::{
    clock,
    config::CapacityConfig,
    error::SimError,
    report::{capacity::StepRun, schema::ServerFigures, shared_connections, start},
    run::Prepared,
    schedule::Phases,
};

/// Version of the file; raised when it changes its meaning.
const VERSION: u32 = 1;

/// The searches of all phases.
#[derive(Debug)]
pub(super) struct Book {
    saved: Saved,
    path: Option<PathBuf>,
    /// When this sitting began.
    since: Instant,
    /// Time of the sittings before.
    before: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    version: u32,
    /// What the results depend on, by the name of the flag.
    settings: BTreeMap<String, String>,
    started_unix_ms: i64,
    elapsed_seconds: f64,
    searches: Vec<Search>,
}

impl Book {
    /// A new book, or the one that the state file holds.
    pub(super) fn open(
        config: &CapacityConfig,
        rules: Rules,
        prepared: &Prepared,
    ) -> Result<Self, SimError> {
        let fresh = Saved {
            version: VERSION,
            settings: settings(config, rules, prepared),
            started_unix_ms: clock::unix_micros() / 1000,
            elapsed_seconds: 0.0,
            searches: vec![Search::new(rules); config.phases.len()],
        };
        let kept = config.state.as_deref().map(read).transpose()?.flatten();
        if let (Some(kept), Some(path)) = (&kept, &config.state) {
            let refuse = |why| Err(SimError::File { path: path.clone(), why });
            if let Some(difference) = difference(&kept.settings, &fresh.settings) {
                return refuse(format!(
                    "{difference}; give the same flags or name another --state"
                ));
            }
            if kept.searches.iter().any(|search| search.rules != rules)
                || kept.searches.len() != fresh.searches.len()
            {
                return refuse("not a whole state file; remove it".to_owned());
            }
        }
        let saved = kept.unwrap_or(fresh);
        let seconds = saved.elapsed_seconds;
        let before = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let mut book = Self { saved, path: config.state.clone(), since: clock::now(), before };
        // A file that cannot be written is found before the first run, not after it.
        book.save()?;
        Ok(book)
    }

    pub(super) fn search(&self, index: usize) -> &Search {
        &self.saved.searches[index]
    }

    pub(super) fn searches(&self) -> &[Search] {
        &self.saved.searches
    }

    /// Takes a run's result down.
    pub(super) fn record(&mut self, index: usize, run: StepRun) -> Result<(), SimError> {
        self.saved.searches[index].record(run);
        self.save()
    }

    /// Whether nothing was tried yet.
    pub(super) fn is_empty(&self) -> bool {
        self.saved.searches.iter().all(|search| search.steps.is_empty())
    }

    pub(super) fn started_unix_ms(&self) -> i64 {
        self.saved.started_unix_ms
    }

    /// Time spent, over all sittings.
    pub(super) fn elapsed(&self) -> Duration {
        self.before + clock::now().saturating_duration_since(self.since)
    }

    fn save(&mut self) -> Result<(), SimError> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        self.saved.elapsed_seconds = self.elapsed().as_secs_f64();
        let mut text = serde_json::to_string(&self.saved)?;
        text.push('\n');
        // A whole file takes the place of a whole file: a crash in between leaves one of them.
        let mut name = path.clone().into_os_string();
        name.push(".new");
        let next = PathBuf::from(name);
        fs::write(&next, text)
            .and_then(|()| fs::rename(&next, &path))
            .map_err(|source| SimError::Write { path, source })
    }
}

/// What a state file holds; `None` when there is none.
fn read(path: &Path) -> Result<Option<Saved>, SimError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(SimError::Read { path: path.to_owned(), source }),
    };
    let saved: Option<Saved> = serde_json::from_str(&text).ok();
    let saved = saved.filter(|saved| saved.version == VERSION).ok_or_else(|| SimError::File {
        path: path.to_owned(),
        why: "not a state file of this version of the tool; remove it or name another --state"
            .to_owned(),
    })?;
    Ok(Some(saved))
}

/// The first setting in which two searches differ.
fn difference(was: &BTreeMap<String, String>, is: &BTreeMap<String, String>) -> Option<String> {
    let none = String::new();
    let names = was.keys().chain(is.keys());
    let of =
        |settings: &BTreeMap<String, String>, name| settings.get(name).unwrap_or(&none).clone();
    names
        .map(|name| (name, of(was, name), of(is, name)))
        .find(|(_, was, is)| was != is)
        .map(|(name, was, is)| format!("it is of another search: {name} was {was}, now it is {is}"))
}

/// All that the results depend on.
fn settings(
    config: &CapacityConfig,
    rules: Rules,
    prepared: &Prepared,
) -> BTreeMap<String, String> {
    let (run, slo) = (&config.run, &config.run.slo);
    let group = &run.scenario.groups[0];
    let server = prepared.server.clone().map(ServerFigures::from);
    let phases: Vec<String> = config.phases.iter().map(|&phases| phases_text(phases)).collect();
    let percentiles: Vec<String> =
        slo.percentiles.iter().map(|(p, limit)| format!("p{p}={limit:?}")).collect();
    let connections = shared_connections(run.connections);
    [
        ("--addr", run.target.addr.to_string()),
        ("--budget-ms", group.budget_ms.to_string()),
        ("--connections", connections.map_or("per-camera".to_owned(), |n| n.to_string())),
        ("--fps", group.fps.to_string()),
        ("--from", rules.from.to_string()),
        ("--images, --video or --size", format!("{:?}", group.pictures)),
        ("--jitter-ms", format!("{:?}", group.jitter)),
        ("--max-cameras", rules.max_cameras.to_string()),
        ("--max-gap-ms", format!("{:?}", run.reconnect.max_gap)),
        ("--min-answered-ratio", slo.min_answered_ratio.to_string()),
        ("--no-reconnect", (!run.reconnect.enabled).to_string()),
        ("--phase", phases.join(",")),
        ("--repeats", rules.repeats.to_string()),
        ("--seconds", format!("{:?}", run.scenario.measured)),
        ("--seed", run.scenario.seed.to_string()),
        ("--slo-max-ms", format!("{:?}", slo.max)),
        ("--slo-percentile", percentiles.join(",")),
        ("--threads", run.threads.to_string()),
        ("--warmup", format!("{:?}", run.scenario.warmup)),
        ("the server", server.map_or_else(String::new, |server| server_text(&server))),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// As in `ramp of 10 every 50 ms`.
pub(super) fn phases_text(phases: Phases) -> String {
    let start = start(phases);
    match (start.ramp_cameras, start.ramp_every_ms) {
        (Some(cameras), Some(ms)) => format!("{} of {cameras} every {ms} ms", start.name),
        _ => start.name.to_owned(),
    }
}

fn server_text(server: &ServerFigures) -> String {
    format!(
        "version {} with {} ({}), {} workers, at most {} cameras",
        server.version, server.model, server.backend, server.workers, server.max_cameras
    )
}
