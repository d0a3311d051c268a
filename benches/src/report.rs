//! A bench's result: tables and marks, kept as JSON, shown as text or Markdown.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    error::{BenchError, failed, io_error},
    machine::Facts,
    stats,
};

/// Everything that one bench gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the bench.
    pub bench: String,
    /// Command line that repeats it.
    pub command: String,
    /// When it ended.
    pub date: String,
    /// A smoke run: its figures mean nothing.
    pub quick: bool,
    /// What it ran on.
    pub machine: Facts,
    /// How to read the tables, a paragraph each.
    pub reading: Vec<String>,
    /// The figures.
    pub tables: Vec<Table>,
    /// What was promised, and whether it held.
    pub marks: Vec<Mark>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named")]
pub struct Table {
    pub title: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

/// A table's cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// As it stands.
    Text(String),
    /// One value per trial, shown with their median.
    Trials {
        /// The values in order of the trials; a trial that gave none has none.
        trials: Vec<Option<f64>>,
        /// Their median.
        median: Option<f64>,
        /// Decimals shown.
        decimals: usize,
    },
}

/// A promise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// What was promised.
    pub promise: String,
    /// What was found.
    pub found: String,
    /// Whether it held.
    pub verdict: Verdict,
}

/// How a mark ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// It held.
    Pass,
    /// It did not.
    Fail,
    /// Not judged: it depends on the machine alone, or the run was a smoke run.
    Info,
}

impl Verdict {
    /// As it is shown.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Info => "INFO",
        }
    }
}

impl Cell {
    /// One value per trial.
    #[must_use]
    pub fn trials(values: impl IntoIterator<Item = f64>, decimals: usize) -> Self {
        let trials: Vec<Option<f64>> =
            values.into_iter().map(|value| Some(value).filter(|v| v.is_finite())).collect();
        let given: Vec<f64> = trials.iter().copied().flatten().collect();
        Self::Trials { median: stats::median(&given), trials, decimals }
    }

    /// The median, and behind it in parentheses every trial when there were several.
    #[must_use]
    pub fn show(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Trials { median: None, .. } => "-".to_owned(),
            Self::Trials { trials, median: Some(median), decimals } => {
                let show = |value: &Option<f64>| {
                    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
                };
                let all: Vec<_> = trials.iter().map(show).collect();
                match all.as_slice() {
                    [one] => one.clone(),
                    several => format!("{median:.decimals$} ({})", several.join(" ")),
                }
            }
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(title: impl Into<String>, header: &[&str]) -> Self {
        let header = header.iter().map(|&name| name.to_owned()).collect();
        Self { title: title.into(), header, rows: Vec::new() }
    }
}

impl Mark {
    /// The median of the trials is to be at least `least`.
    #[must_use]
    pub fn at_least(what: &str, least: f64, trials: &[f64], decimals: usize) -> Self {
        let promise = format!("{what} >= {least}");
        Self::of_median(promise, trials, decimals, |median| median >= least)
    }

    /// The median of the trials is to be at most `most`.
    #[must_use]
    pub fn at_most(what: &str, most: f64, trials: &[f64], decimals: usize) -> Self {
        let promise = format!("{what} <= {most}");
        Self::of_median(promise, trials, decimals, |median| median <= most)
    }

    fn of_median(
        promise: String,
        trials: &[f64],
        decimals: usize,
        holds: impl Fn(f64) -> bool,
    ) -> Self {
        let verdict =
            if stats::median(trials).is_some_and(holds) { Verdict::Pass } else { Verdict::Fail };
        Self { promise, found: Cell::trials(trials.iter().copied(), decimals).show(), verdict }
    }

    /// The majority of the trials is to hold: a machine that stands still for a moment spoils one.
    #[must_use]
    pub fn majority(promise: impl Into<String>, held: &[bool], found: impl Into<String>) -> Self {
        let passed = held.iter().filter(|&&held| held).count();
        let verdict = if passed * 2 > held.len() { Verdict::Pass } else { Verdict::Fail };
        let found = format!("{}; {passed} of {} trials", found.into(), held.len());
        Self { promise: promise.into(), found, verdict }
    }

    /// The same mark, not judged.
    #[must_use]
    pub fn for_information(self) -> Self {
        Self { verdict: Verdict::Info, ..self }
    }
}

impl Report {
    /// Whether no mark failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.marks.iter().all(|mark| mark.verdict != Verdict::Fail)
    }

    /// Writes it as JSON, making the folder when missing.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), BenchError> {
        let writing = |path: &Path| io_error(format!("cannot write {}", path.display()));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(writing(folder))?;
        }
        let mut text = serde_json::to_string_pretty(self).map_err(failed("JSON"))?;
        text.push('\n');
        fs::write(path, text).map_err(writing(path))
    }

    /// Reads what [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let text = fs::read_to_string(path)
            .map_err(io_error(format!("cannot read {}", path.display())))?;
        serde_json::from_str(&text).map_err(|error| {
            BenchError::Setup(format!("{}: {error}; run that bench again", path.display()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trial_is_shown() {
        assert_eq!(Cell::trials([0.97, 0.95, 0.96], 2).show(), "0.96 (0.97 0.95 0.96)");
        assert_eq!(Cell::trials([12.0], 0).show(), "12");
        assert_eq!(Cell::trials([f64::NAN], 0).show(), "-");
        assert_eq!(Cell::trials([4.0, f64::NAN, 2.0], 0).show(), "3 (4 - 2)");
        assert_eq!(Cell::from("x").show(), "x");
    }

    #[test]
    fn marks_are_judged_by_median_or_majority() {
        assert_eq!(Mark::at_least("ratio", 0.9, &[0.8, 0.95, 0.9], 2).verdict, Verdict::Pass);
        assert_eq!(Mark::at_least("ratio", 0.9, &[0.8, 0.95, 0.89], 2).verdict, Verdict::Fail);
        assert_eq!(Mark::at_most("memory", 25.5, &[], 1).verdict, Verdict::Fail, "no figures");
        assert_eq!(Mark::at_least("ratio", 0.9, &[1.0, f64::NAN], 2).verdict, Verdict::Fail);
        assert_eq!(Mark::majority("max", &[true, false, true], "").verdict, Verdict::Pass);
        assert_eq!(Mark::majority("max", &[true, false], "").verdict, Verdict::Fail);
        assert_eq!(Mark::majority("max", &[], "").verdict, Verdict::Fail);
    }

    #[test]
    fn reports_survive_the_file() {
        let report = Report {
            bench: "x".into(),
            command: "vedette-bench x".into(),
            date: "today".into(),
            quick: true,
            machine: Facts::read(Path::new("/nonexistent")),
            reading: vec!["so".into()],
            tables: vec![Table {
                title: "t".into(),
                header: vec!["a".into(), "b".into()],
                rows: vec![vec!["c".into(), Cell::trials([1.5, 2.5], 1)]],
            }],
            marks: vec![Mark::at_most("b", 3.0, &[2.0], 0).for_information()],
        };
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("deep/x.json");
        report.write(&path).expect("writes");
        assert_eq!(Report::read(&path).expect("reads"), report);
        assert!(report.passed());
        std::fs::write(&path, "{}").expect("writes");
        let error = Report::read(&path).expect_err("no report").to_string();
        assert!(error.contains("run that bench again"), "{error}");
    }
}
