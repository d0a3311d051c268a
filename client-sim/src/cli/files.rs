//! The flags of `client-sim report`, `compare` and `merge`, and of files in general.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

use crate::config::{CompareConfig, Entry, Files, JsonTarget, MergeConfig, ReportConfig};

#[derive(Debug, Args)]
pub(super) struct FileArgs {
    /// Write the report as a page with charts: one file that needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a table of the cameras, and beside it FILE.timeline.csv with one of the bins
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the latency distribution as a log of `HdrHistogram`, in microseconds
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
}

impl From<FileArgs> for Files {
    fn from(args: FileArgs) -> Self {
        Self { html: args.html, csv: args.csv, hdr: args.hdr }
    }
}

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// The report: JSON as `--json` writes it, or a page as `--html` writes it
    file: PathBuf,
    #[command(flatten)]
    files: FileArgs,
    /// List every camera in the table, not only the five slowest
    #[arg(long)]
    per_camera: bool,
}

impl From<ReportArgs> for ReportConfig {
    fn from(args: ReportArgs) -> Self {
        Self { path: args.file, files: args.files.into(), per_camera: args.per_camera }
    }
}

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// Reports, or repeats of one configuration as LABEL=FILE,FILE,...; the first is the one that
    /// the others are held against
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    reports: Vec<OsString>,
    /// Write the comparison as JSON to this file; "-" = standard output
    #[arg(long, value_name = "FILE")]
    json: Option<JsonTarget>,
    /// Write the comparison as a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl From<CompareArgs> for CompareConfig {
    fn from(args: CompareArgs) -> Self {
        let entries = args.reports.iter().map(entry).collect();
        Self { entries, json: args.json, html: args.html }
    }
}

/// `LABEL=A,B,C`, or a file. A file whose own name holds these signs is taken as a file.
fn entry(argument: &OsString) -> Entry {
    let path = PathBuf::from(argument);
    let single = |path: PathBuf| {
        let stem = path.file_stem().unwrap_or(path.as_os_str());
        Entry { label: stem.to_string_lossy().into_owned(), paths: vec![path] }
    };
    match argument.to_str().and_then(|text| text.split_once('=')) {
        Some((label, files)) if !path.exists() && !label.is_empty() => {
            let paths = files.split(',').filter(|file| !file.is_empty()).map(PathBuf::from);
            Entry { label: label.to_owned(), paths: paths.collect() }
        }
        _ => single(path),
    }
}

#[derive(Debug, Args)]
pub(super) struct MergeArgs {
    /// Reports of processes or machines that ran at the same time against one server, as JSON or
    /// pages; or logs of `HdrHistogram` (.hdr, .hlog)
    #[arg(required = true, value_name = "FILE")]
    reports: Vec<PathBuf>,
    /// Write the report of the whole as JSON to this file; "-" = standard output
    #[arg(long, value_name = "FILE")]
    json: Option<JsonTarget>,
    #[command(flatten)]
    files: FileArgs,
    /// Merge also what did not run at the same time
    #[arg(long)]
    allow_disjoint: bool,
    /// List every camera in the table, not only the five slowest
    #[arg(long)]
    per_camera: bool,
}

impl From<MergeArgs> for MergeConfig {
    fn from(args: MergeArgs) -> Self {
        Self {
            paths: args.reports,
            json: args.json,
            files: args.files.into(),
            allow_disjoint: args.allow_disjoint,
            per_camera: args.per_camera,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_files_or_labelled_lists() {
        let entry = |text: &str| entry(&OsString::from(text));
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let labelled = entry("before=a1.json,a2.json,");
        assert_eq!(labelled.label, "before");
        assert_eq!(labelled.paths, paths(&["a1.json", "a2.json"]));
        assert_eq!(entry("runs/a1.json").label, "a1");
        assert_eq!(entry("=x.json").paths, paths(&["=x.json"]));
    }
}
