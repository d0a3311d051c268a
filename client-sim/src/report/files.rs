//! Reports as files: read again, and written as pages, tables and histograms.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

use super::{
    capacity::{CapacityReport, KIND_CAPACITY},
    compare::{Comparison, KIND_COMPARISON},
    csv, hdr,
    html::{self, Document},
    ping::KIND_PING,
    schema::{KIND_RUN, Report, SCHEMA_VERSION},
    selftest::KIND_SELF_TEST,
};
use crate::{config::Files, error::SimError, stats::Tally};

/// Largest report read, in bytes. One of 20 000 cameras has some 20 MB.
const MAX_BYTES: u64 = 512 << 20;

/// A report that was read.
#[derive(Debug, Clone, PartialEq)]
pub enum Loaded {
    /// A run, or merged runs.
    Run(Box<Report>),
    /// A capacity search.
    Capacity(Box<CapacityReport>),
    /// Several reports side by side.
    Comparison(Box<Comparison>),
}

impl Loaded {
    /// As a page shows it.
    #[must_use]
    pub fn document(&self) -> Document<'_> {
        match self {
            Self::Run(report) => Document::Run(report),
            Self::Capacity(report) => Document::Capacity(report),
            Self::Comparison(comparison) => Document::Comparison(comparison),
        }
    }
}

/// Reads a report: JSON, or a page that holds it.
pub fn load(path: &Path) -> Result<Loaded, SimError> {
    let text = text_of(path)?;
    parse(&text).map_err(|why| SimError::Unusable { path: path.to_owned(), why })
}

/// A file's text, if it is not too large to be a report.
pub fn text_of(path: &Path) -> Result<String, SimError> {
    let wrong = |source| SimError::Read { path: path.to_owned(), source };
    let unusable = |why: &str| SimError::Unusable { path: path.to_owned(), why: why.to_owned() };
    if fs::metadata(path).map_err(wrong)?.len() > MAX_BYTES {
        return Err(unusable("larger than any report"));
    }
    let bytes = fs::read(path).map_err(wrong)?;
    String::from_utf8(bytes).map_err(|_| unusable("not text, so no report"))
}

/// Reads the text of a report.
pub fn parse(text: &str) -> Result<Loaded, String> {
    let json = html::data_of(text).unwrap_or(text);
    if json.trim_start().starts_with("[{") || json.trim_start().starts_with("[\n") {
        return Err("a list of reports, as a search over several arrivals writes it; put one of \
                    them into a file of its own"
            .to_owned());
    }
    let head: Head = serde_json::from_str(json)
        .map_err(|error| format!("not a report of client-sim: {error}"))?;
    if head.schema_version != SCHEMA_VERSION {
        return Err(format!(
            "a report of schema version {}, and this client-sim reads version {SCHEMA_VERSION}; \
             make it again, or use the client-sim that made it",
            head.schema_version
        ));
    }
    match head.kind.as_str() {
        KIND_RUN => {
            let report: Report = whole(json)?;
            consistent(&report)?;
            Ok(Loaded::Run(Box::new(report)))
        }
        KIND_CAPACITY => whole(json).map(|report| Loaded::Capacity(Box::new(report))),
        KIND_COMPARISON => whole(json).map(|report| Loaded::Comparison(Box::new(report))),
        other @ (KIND_SELF_TEST | KIND_PING) => {
            Err(format!("a report of kind {other}, which only its own command shows"))
        }
        other => Err(format!("a report of the unknown kind {other:?}")),
    }
}

/// What all reports begin with. Those of version 1 named no kind.
#[derive(serde::Deserialize)]
struct Head {
    schema_version: u32,
    #[serde(default)]
    kind: String,
}

fn whole<T: DeserializeOwned>(json: &str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|error| format!("not a whole report: {error}"))
}

/// What every run's books hold, and what is done with reports relies on.
fn consistent(report: &Report) -> Result<(), String> {
    let timeline = &report.timeline;
    let bins = timeline.ok.len();
    let lists = [
        timeline.not_ok.len(),
        timeline.unanswered.len(),
        timeline.p50_ms.len(),
        timeline.p99_ms.len(),
        timeline.max_ms.len(),
        timeline.stages_mean_us.len(),
    ];
    if lists.iter().any(|length| *length != bins) {
        return Err("not a whole report: the lists of its timeline are not equally long".to_owned());
    }
    if report.servers.iter().any(|server| server.bins_ok.len() != bins) {
        return Err(
            "not a whole report: its servers\u{2019} lists are not as long as its timeline"
                .to_owned(),
        );
    }
    let counts = |tally: &Tally| {
        let outcomes = tally.outcomes().into_iter().map(|(_, count)| count);
        let others = [tally.sent, tally.answered, tally.lost, tally.unaccepted, tally.not_sent];
        outcomes.chain(others).collect::<Vec<u64>>()
    };
    let more =
        |part: &Tally, all: &Tally| counts(part).iter().zip(counts(all)).any(|(a, b)| *a > b);
    let wrong = report.per_camera.iter().find(|camera| {
        more(&camera.excused, &camera.tally) || more(&camera.warmup_excused, &camera.warmup)
    });
    if let Some(camera) = wrong {
        return Err(format!("{} excuses more frames than it missed", camera.camera_id));
    }
    let figures = &report.figures;
    let ordered = figures.min_ms <= figures.mean_ms && figures.mean_ms <= figures.max_ms;
    if !ordered || figures.min_ms < Some(0.0) && figures.min_ms.is_some() {
        return Err("not a report: its fastest, mean and slowest answer are in no order".to_owned());
    }
    Ok(())
}

/// Writes a document as a page.
pub fn write_html(document: &Document<'_>, path: &Path) -> Result<(), SimError> {
    write(path, html::render(document).as_bytes())
}

/// Writes a run as two tables: a row for each camera, and beside it one for each bin of the
/// timeline.
pub fn write_csv(report: &Report, path: &Path) -> Result<(), SimError> {
    write(path, &csv::cameras(report))?;
    write(&timeline_path(path), &csv::timeline(report))
}

/// Where the timeline goes: `run.csv` has it in `run.timeline.csv`.
#[must_use]
pub fn timeline_path(path: &Path) -> PathBuf {
    path.with_extension("timeline.csv")
}

/// Writes a run's latency distribution as a log of `HdrHistogram`'s.
pub fn write_hdr(report: &Report, path: &Path) -> Result<(), SimError> {
    let interval = hdr::Interval::of(report)
        .map_err(|why| SimError::Unusable { path: path.to_owned(), why })?;
    write(path, hdr::log(&[interval]).as_bytes())
}

/// Writes a run to all files asked for.
pub fn write_all(report: &Report, files: &Files) -> Result<(), SimError> {
    if let Some(path) = &files.html {
        write_html(&Document::Run(report), path)?;
    }
    if let Some(path) = &files.csv {
        write_csv(report, path)?;
    }
    if let Some(path) = &files.hdr {
        write_hdr(report, path)?;
    }
    Ok(())
}

/// Replaces a file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), SimError> {
    fs::write(path, bytes).map_err(|source| SimError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_report_says_so_on_one_line() {
        for (text, part) in [
            ("", "not a report of client-sim"),
            ("[]", "not a report of client-sim"),
            (r#"{"schema_version":1,"cameras":3}"#, "schema version 1"),
            (r#"{"schema_version":2,"kind":"dance"}"#, "unknown kind \"dance\""),
            (r#"{"schema_version":2,"kind":"ping"}"#, "which only its own command shows"),
            (r#"[{"schema_version":2,"kind":"capacity"}]"#, "a list of reports"),
            (r#"{"schema_version":2,"kind":"run"}"#, "not a whole report: missing field"),
            ("<script type=\"application/json\" id=\"data\">{}</script>", "not a report"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(part) && why.lines().count() == 1, "{text}: {why}");
        }
    }

    #[test]
    fn the_timeline_lies_beside_the_cameras() {
        assert_eq!(timeline_path(Path::new("a/run.csv")), Path::new("a/run.timeline.csv"));
        assert_eq!(timeline_path(Path::new("run")), Path::new("run.timeline.csv"));
    }
}
