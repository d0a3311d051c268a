//! Reports side by side: what differs, by how much, and whether that is more than noise.

mod capacity;
mod noise;
mod runs;
mod settings;
mod table;

use serde::{Deserialize, Serialize};

use super::{
    capacity::{CapacityReport, KIND_CAPACITY},
    files::Loaded,
    schema::{KIND_RUN, PercentilePoint, Report, SCHEMA_VERSION, Timeline, Verdict},
};

/// What `kind` says in a comparison.
pub const KIND_COMPARISON: &str = "comparison";

/// Most entries of a comparison: more lines cannot be told apart in one chart.
pub const MAX_ENTRIES: usize = 6;

/// Several reports, the others held against the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// As in a run's report.
    pub schema_version: u32,
    /// [`KIND_COMPARISON`].
    pub kind: String,
    /// Version of this tool.
    pub client_version: String,
    /// What is compared: `run` or `capacity`.
    pub of: String,
    /// How it was judged what is noise, in sentences.
    pub rule: Vec<String>,
    /// Settings in which the entries differ; empty when they do not.
    pub differences: Vec<Difference>,
    /// What is compared, the base first.
    pub entries: Vec<EntryFigures>,
    /// The figures, one by one.
    pub rows: Vec<RowFigures>,
}

/// A setting in which entries differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Its name.
    pub setting: String,
    /// Each entry's.
    pub values: Vec<String>,
    /// Whether figures of runs that differ in it may not be comparable at all.
    pub matters: bool,
}

/// One side of the comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EntryFigures {
    /// Its name.
    pub label: String,
    /// The files, as given.
    pub files: Vec<String>,
    /// What each run came to; empty for capacity searches.
    pub verdicts: Vec<Verdict>,
    /// Host and port of the server.
    pub addr: String,
    /// How the cameras' start times lie to each other.
    pub phases: String,
    /// Number of cameras; `null` for capacity searches.
    pub cameras: Option<u32>,
    /// Frames per second of each camera.
    pub fps: f64,
    /// Largest acceptable latency.
    pub slo_max_ms: f64,
    /// The latency curve of all repeats together; empty for capacity searches.
    pub percentiles: Vec<PercentilePoint>,
    /// The middle repeat, bin by bin; `null` for capacity searches.
    pub timeline: Option<Timeline>,
    /// The largest number of cameras held; `null` for runs.
    pub found: Option<u32>,
    /// The capacity curve; empty for runs.
    pub capacity: Vec<CapacityPoint>,
}

/// A point of a capacity curve: medians over the runs with that many cameras.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CapacityPoint {
    /// How many.
    pub cameras: u32,
    /// Median of the slowest answers.
    pub max_ms: Option<f64>,
}

/// One figure of all entries. All lists are as long as that of the entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowFigures {
    /// What it is.
    pub name: String,
    /// Its unit; empty for counts.
    pub unit: String,
    /// Which is better: `less`, `more`, or `neither`.
    pub better: String,
    /// The values, medians over repeats.
    pub values: Vec<Option<f64>>,
    /// What the values are spread over: between repeats, between bins, or not known.
    pub spreads: Vec<Option<Spread>>,
    /// What an entry has more than the base; `null` for the base.
    pub deltas: Vec<Option<f64>>,
    /// The same in per cent of the base.
    pub delta_percents: Vec<Option<f64>>,
    /// What to think of it.
    pub judgements: Vec<Judged>,
}

/// A range of values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What to think of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judged {
    /// The entry that the others are held against.
    Base,
    /// More than noise, in the right direction.
    Better,
    /// More than noise, in the wrong direction.
    Worse,
    /// More than noise, and neither better nor worse.
    Different,
    /// No more than noise.
    Noise,
    /// Not known, as nothing tells the noise.
    Unknown,
}

/// Reports of one configuration, read.
#[derive(Debug, Clone)]
pub struct Side {
    /// Its name.
    pub label: String,
    /// The files' names and what was in them, at least one.
    pub reports: Vec<(String, Loaded)>,
}

/// Compares; or says in one line why that cannot be done.
pub fn compare(sides: &[Side]) -> Result<Comparison, String> {
    if sides.len() < 2 {
        return Err("there is nothing to compare: name at least two reports".to_owned());
    }
    if sides.len() > MAX_ENTRIES {
        return Err(format!("at most {MAX_ENTRIES} entries can be compared"));
    }
    let runs: Option<Vec<RunSide<'_>>> = sides.iter().map(RunSide::of).collect();
    if let Some(runs) = runs {
        return runs::compare(&runs);
    }
    let searches: Option<Vec<CapacitySide<'_>>> = sides.iter().map(CapacitySide::of).collect();
    match searches {
        Some(searches) => capacity::compare(&searches),
        None => Err("only reports of runs, or only those of capacity searches, can be compared \
                     with each other"
            .to_owned()),
    }
}

/// Runs of one configuration.
struct RunSide<'a> {
    label: &'a str,
    files: Vec<String>,
    runs: Vec<&'a Report>,
}

impl<'a> RunSide<'a> {
    /// `None` when there is something else in it.
    fn of(side: &'a Side) -> Option<Self> {
        let run = |(_, loaded): &'a (String, Loaded)| match loaded {
            Loaded::Run(report) => Some(&**report),
            _ => None,
        };
        let runs: Vec<&Report> = side.reports.iter().map(run).collect::<Option<_>>()?;
        (!runs.is_empty()).then(|| Self { label: &side.label, files: files(side), runs })
    }
}

/// Searches of one configuration.
struct CapacitySide<'a> {
    label: &'a str,
    files: Vec<String>,
    searches: Vec<&'a CapacityReport>,
}

impl<'a> CapacitySide<'a> {
    /// `None` when there is something else in it.
    fn of(side: &'a Side) -> Option<Self> {
        let search = |(_, loaded): &'a (String, Loaded)| match loaded {
            Loaded::Capacity(report) => Some(&**report),
            _ => None,
        };
        let searches: Vec<&CapacityReport> =
            side.reports.iter().map(search).collect::<Option<_>>()?;
        (!searches.is_empty()).then(|| Self { label: &side.label, files: files(side), searches })
    }
}

fn files(side: &Side) -> Vec<String> {
    side.reports.iter().map(|(name, _)| name.clone()).collect()
}

impl Comparison {
    fn new(of: &str) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            kind: KIND_COMPARISON.to_owned(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            of: of.to_owned(),
            rule: Vec::new(),
            differences: Vec::new(),
            entries: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Whether it is one of runs.
    #[must_use]
    pub fn is_of_runs(&self) -> bool {
        self.of == KIND_RUN
    }

    /// Whether it is one of capacity searches.
    #[must_use]
    pub fn is_of_searches(&self) -> bool {
        self.of == KIND_CAPACITY
    }

    /// The comparison as text for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        table::render(self)
    }
}
