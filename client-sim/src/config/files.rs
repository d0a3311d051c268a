//! Reports as files: which to read, and where to write.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::JsonTarget;
use crate::error::SimError;

/// Files that a report is written to, each replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// A page.
    pub html: Option<PathBuf>,
    /// A table of cameras, with one of bins beside it.
    pub csv: Option<PathBuf>,
    /// A log of `HdrHistogram`.
    pub hdr: Option<PathBuf>,
}

impl Files {
    /// Finds the most common mistake, a missing folder, before a long run instead of after it.
    pub fn check(&self) -> Result<(), SimError> {
        [&self.html, &self.csv, &self.hdr]
            .into_iter()
            .flatten()
            .try_for_each(|path| check_folder(path))
    }

    /// Whether nothing is to be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether the folder that a file is to be written to is there.
pub(super) fn check_folder(path: &Path) -> Result<(), SimError> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            let source = io::ErrorKind::NotFound.into();
            Err(SimError::Write { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// A report shown again.
#[derive(Debug, Clone)]
pub struct ReportConfig {
    /// The report, as JSON or as a page.
    pub path: PathBuf,
    /// Where to.
    pub files: Files,
    /// List every camera in the table, not the slowest ones only.
    pub per_camera: bool,
}

/// Reports of the same thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What they are called in the comparison.
    pub label: String,
    /// The reports, at least one: repeats of the same configuration.
    pub paths: Vec<PathBuf>,
}

/// Reports side by side.
#[derive(Debug, Clone)]
pub struct CompareConfig {
    /// At least two; the others are held against the first.
    pub entries: Vec<Entry>,
    /// Where the comparison goes as JSON.
    pub json: Option<JsonTarget>,
    /// Where it goes as a page.
    pub html: Option<PathBuf>,
}

/// Reports of parts of one run.
#[derive(Debug, Clone)]
pub struct MergeConfig {
    /// The parts, at least one.
    pub paths: Vec<PathBuf>,
    /// Where the report of the whole goes as JSON.
    pub json: Option<JsonTarget>,
    /// Where it goes besides.
    pub files: Files,
    /// Take parts that did not run at the same time.
    pub allow_disjoint: bool,
    /// List every camera in the table, not the slowest ones only.
    pub per_camera: bool,
}
