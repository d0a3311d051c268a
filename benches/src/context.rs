//! What every bench starts from: options with quick runs settled, programs, pictures, L.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use client_sim::source::PictureSet;

use crate::{
    apart,
    capacity::Capacity,
    cli::CommonArgs,
    error::{BenchError, io_error},
    machine::{self, Facts},
    ours::ModelFiles,
    pictures::{self, Source},
    report::{Mark, Report, Table},
};

/// Length of the measured parts of a smoke run, in seconds.
const QUICK_SECONDS: f64 = 1.0;

/// Length of a smoke run's measurements of L, in seconds.
const QUICK_REFERENCE_SECONDS: f64 = 0.3;

/// ONNX Runtime's library where the set-up puts it.
const DEFAULT_RUNTIME_LIB: &str = "models/cache/onnxruntime/libonnxruntime.so";

/// Photographs where the set-up puts them.
const DEFAULT_PHOTOGRAPHS: &str = "models/cache/pictures";

/// What a bench gave, before it is dated and stored.
#[derive(Debug, Default)]
pub struct Findings {
    /// How to read the tables, a paragraph each.
    pub reading: Vec<String>,
    /// The figures.
    pub tables: Vec<Table>,
    /// What was promised.
    pub marks: Vec<Mark>,
}

impl Findings {
    /// Puts another part's findings behind these.
    pub fn add(&mut self, other: Self) {
        self.reading.extend(other.reading);
        self.tables.extend(other.tables);
        self.marks.extend(other.marks);
    }
}

/// The options of a run.
#[derive(Debug, Clone)]
pub struct Context {
    args: CommonArgs,
    bench: &'static str,
}

impl Context {
    /// For the bench of this name.
    #[must_use]
    pub fn new(bench: &'static str, args: &CommonArgs) -> Self {
        Self { args: args.clone(), bench }
    }

    /// Tells what is going on, on standard error.
    pub fn say(&self, line: impl std::fmt::Display) {
        // A closed terminal is no reason to stop.
        let _ = writeln!(std::io::stderr().lock(), "{}: {line}", self.bench);
    }

    /// Number of trials.
    #[must_use]
    pub fn trials(&self) -> u64 {
        if self.args.quick { 1 } else { self.args.trials }
    }

    /// Whether nothing is judged.
    #[must_use]
    pub fn quick(&self) -> bool {
        self.args.quick
    }

    /// Length of a measured part whose own length is `default` seconds.
    #[must_use]
    pub fn length(&self, default: f64) -> Duration {
        let quick = self.args.quick.then_some(QUICK_SECONDS);
        Duration::from_secs_f64(self.args.seconds.or(quick).unwrap_or(default))
    }

    /// Length of a measurement of L.
    #[must_use]
    pub fn reference(&self) -> Duration {
        let quick = QUICK_REFERENCE_SECONDS;
        Duration::from_secs_f64(if self.args.quick { quick } else { self.args.reference_seconds })
    }

    /// Cameras of an open loop: as many as asked for, a few in a smoke run.
    #[must_use]
    pub fn cameras(&self, wanted: u32) -> u32 {
        if self.args.quick { wanted.min(4) } else { wanted }
    }

    /// Loads the model, a session per core.
    ///
    /// # Errors
    /// When a file is missing or unusable.
    pub async fn capacity(&self) -> Result<Capacity, BenchError> {
        Capacity::load(self.files()).await
    }

    /// The model's files, as far as named.
    #[must_use]
    pub fn files(&self) -> ModelFiles {
        let CommonArgs { model, runtime_lib, .. } = self.args.clone();
        ModelFiles { model, runtime_lib }
    }

    /// Pictures of this size (width, height in pixels).
    ///
    /// # Errors
    /// A folder without readable pictures.
    pub async fn pictures(&self, size: (u32, u32)) -> Result<PictureSet, BenchError> {
        self.say(format_args!("preparing pictures of {}x{}", size.0, size.1));
        let (folder, quick) = (self.args.images.clone(), self.args.quick);
        apart::run("pictures", move || Source { folder: folder.as_deref(), quick }.load(size))
            .await?
    }

    /// Photographs as they are, as JPEG: the folder's, or those that the set-up fetches. Drawn scenes
    /// hold nothing that a network knows for sure.
    ///
    /// # Errors
    /// When there are none.
    pub async fn photographs(&self) -> Result<Vec<Bytes>, BenchError> {
        let folder = self.photograph_folder();
        let most = if self.args.quick { 2 } else { usize::MAX };
        apart::run("pictures", move || pictures::photographs(&folder, most)).await?
    }

    /// The same photographs at this size (width, height in pixels).
    ///
    /// # Errors
    /// As [`photographs`](Self::photographs).
    pub async fn photographs_of(&self, size: (u32, u32)) -> Result<Vec<Bytes>, BenchError> {
        let (folder, quick) = (self.photograph_folder(), self.args.quick);
        let set =
            apart::run("pictures", move || Source { folder: Some(&folder), quick }.load(size))
                .await??;
        Ok(set.pictures().iter().map(|picture| picture.bytes.clone()).collect())
    }

    fn photograph_folder(&self) -> PathBuf {
        self.args.images.clone().unwrap_or_else(|| DEFAULT_PHOTOGRAPHS.into())
    }

    /// What the results page says of the photographs.
    #[must_use]
    pub fn describe_photographs(&self) -> &'static str {
        match self.args.images {
            None => "the photographs that the set-up fetches",
            Some(_) => "a folder's photographs",
        }
    }

    /// Writes pictures to a folder beside the results, for the camera simulator.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn store(&self, pictures: &PictureSet) -> Result<PathBuf, BenchError> {
        let folder = self.file("-pictures");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(io_error(folder.display().to_string()))?;
        for (index, picture) in pictures.pictures().iter().enumerate() {
            let path = folder.join(format!("{index:03}.jpg"));
            fs::write(&path, &picture.bytes).map_err(io_error(path.display().to_string()))?;
        }
        Ok(folder)
    }

    /// What the results page says of the pictures.
    #[must_use]
    pub fn describe_pictures(&self) -> String {
        Source { folder: self.args.images.as_deref(), quick: false }.describe()
    }

    /// The server's program.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn server_bin(&self) -> Result<PathBuf, BenchError> {
        program(self.args.server_bin.as_deref(), "vedette-server", "--server-bin")
    }

    /// The camera simulator's program.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn client_bin(&self) -> Result<PathBuf, BenchError> {
        program(self.args.client_bin.as_deref(), "client-sim", "--client-bin")
    }

    /// A file of this run beside its result. Those of smoke runs lie apart, so that they replace no
    /// measurement.
    #[must_use]
    pub fn file(&self, suffix: &str) -> PathBuf {
        let folder = &self.args.out_dir;
        let folder = if self.quick() { folder.join("quick") } else { folder.clone() };
        folder.join(format!("{}{suffix}", self.bench))
    }

    /// Dates the findings and stores them.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn finish(&self, command: String, findings: Findings) -> Result<Report, BenchError> {
        let lib = self.args.runtime_lib.as_deref().unwrap_or(Path::new(DEFAULT_RUNTIME_LIB));
        let unix_seconds = vedette_server::clock::unix_micros().unsigned_abs() / 1_000_000;
        let Findings { reading, tables, mut marks } = findings;
        if self.quick() {
            marks = marks.into_iter().map(Mark::for_information).collect();
        }
        let report = Report {
            bench: self.bench.to_owned(),
            command,
            date: machine::utc(unix_seconds),
            quick: self.quick(),
            machine: Facts::read(lib),
            reading,
            tables,
            marks,
        };
        report.write(&self.file(".json"))?;
        if let Some(path) = &self.args.json {
            report.write(path)?;
        }
        Ok(report)
    }
}

fn program(named: Option<&Path>, name: &str, flag: &'static str) -> Result<PathBuf, BenchError> {
    let beside = || {
        let own = std::env::current_exe().ok()?;
        Some(own.parent()?.join(name))
    };
    let path = named.map(Path::to_path_buf).or_else(beside).unwrap_or_else(|| name.into());
    if path.is_file() { Ok(path) } else { Err(BenchError::NoBinary { path, flag }) }
}
