//! ONNX Runtime: loading the library and a model, sessions, runs.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use ort::{
    environment::Environment,
    logging::LogLevel,
    session::{
        Session,
        builder::{GraphOptimizationLevel, SessionBuilder},
    },
};

use super::{
    InferError, ModelInfo,
    declared::Declared,
    model,
    network::{Network, Size},
};
use crate::{
    config::ModelConfig,
    decode::one_line,
    letterbox::Letterbox,
    postprocess::layout::{Family, FamilyName},
    preprocess::InputSpec,
};

/// The usual aspect ratios of cameras, lying and standing: tensors for them are in place from the start.
const USUAL_PICTURES: [(u32, u32); 4] = [(9, 16), (3, 4), (4, 3), (16, 9)];

/// A model, loaded and checked by running it. Makes the workers' networks.
pub struct OnnxModel {
    environment: Environment,
    bytes: Vec<u8>,
    path: PathBuf,
    /// What it is.
    pub info: ModelInfo,
    /// How it wants its input.
    pub input: InputSpec,
    /// How its output is read.
    pub family: &'static Family,
    /// Pictures per run, at most.
    pub batch: usize,
    half: bool,
    /// Stride of inputs that fit their picture; `None` when every picture gets the whole input.
    adaptive: Option<u32>,
}

impl OnnxModel {
    /// Loads library and model, settles size, layout and labels, and runs it once.
    ///
    /// # Errors
    /// With one line that names the setting to change.
    pub fn load(config: &ModelConfig) -> Result<Self, InferError> {
        let environment = load_runtime(&config.runtime_lib)?;
        let path = config.model.clone();
        let bytes = fs::read(&path).map_err(|error| InferError::Unreadable {
            path: path.clone(),
            reason: missing_hint(&path, &error),
        })?;
        let labels = config.labels.as_deref().map(read_labels).transpose()?;
        let session = open_session(&environment, &bytes, &path)?;
        let declared = Declared::read(&session, &path)?;

        let named = config.layout.map(Ok).or_else(|| declared.named_layout()).transpose()?;
        let named = named.map(Family::get);
        // Until an output has been seen, the size is settled as for the more common family.
        let likely = named.unwrap_or(Family::get(FamilyName::Yolov8));
        let size = declared.settle_size(config.input_size, likely)?;
        let batch = declared.settle_batch(config.batch)?;
        let mut network = Network::new(session, declared.half, batch);
        // A model that cannot run is as broken as one that cannot be read.
        let dims = network.try_out(size, 1).map_err(|error| InferError::Broken {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        let unfit = || unfit_output(&path, named, &dims, size);
        let family = named.or_else(|| Family::guess(&dims, size)).ok_or_else(unfit)?;
        let output = family
            .shape(&dims, size)
            .filter(|shape| named.is_none() || family.is_plausible(*shape))
            .ok_or_else(unfit)?;
        let classes = family.classes(output).unwrap_or(0);
        let labels = model::settle_labels(classes, labels, declared.names.as_deref())?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            environment,
            bytes,
            path,
            info: ModelInfo { name, backend: "onnx", input: size, labels },
            input: InputSpec { order: family.order, scale: family.scale, pad: family.pad },
            family,
            batch,
            half: declared.half,
            adaptive: declared.settle_shape(config.input_shape, family),
        })
    }

    /// A worker's network, which has run every input that a picture can get: one picture of each, and
    /// full batches of the usual ones.
    ///
    /// # Errors
    /// When the session cannot be made or a run fails.
    pub fn network(&self) -> Result<Network, InferError> {
        let session = open_session(&self.environment, &self.bytes, &self.path)?;
        let mut network = Network::new(session, self.half, self.batch);
        let (rare, usual) = self.inputs();
        for input in rare {
            network.try_out(input, 1)?;
        }
        let mut runs: Vec<_> =
            usual.into_iter().flat_map(|input| [(input, 1), (input, self.batch)]).collect();
        // One picture is a full batch where batches are of one.
        runs.dedup();
        for (input, pictures) in runs {
            let dims = network.try_out(input, pictures)?;
            if dims.first() != Some(&(pictures as i64)) {
                return Err(InferError::Batch(format!(
                    "{pictures} pictures gave an output of {dims:?}"
                )));
            }
        }
        Ok(network)
    }

    /// Every input size (width, height in pixels) that a picture can get: the rare ones, and those of
    /// cameras, whose memory is to stay.
    fn inputs(&self) -> (Vec<Size>, Vec<Size>) {
        let whole = self.info.input;
        let (mut rare, mut usual) = (Vec::new(), vec![whole]);
        if let Some(stride) = self.adaptive {
            usual.extend(USUAL_PICTURES.map(|(w, h)| self.letterbox((w * 1000, h * 1000)).input));
            let sides = |limit: u32| (stride..=limit).step_by(stride as usize);
            let all =
                sides(whole.1).map(|h| (whole.0, h)).chain(sides(whole.0).map(|w| (w, whole.1)));
            rare.extend(all.filter(|input| !usual.contains(input)));
        }
        (rare, usual)
    }

    /// How a picture of this size (width, height in pixels, both positive) is laid into the input.
    #[must_use]
    pub fn letterbox(&self, source: (u32, u32)) -> Letterbox {
        let (budget, align) = (self.info.input, self.family.align);
        match self.adaptive {
            Some(stride) => Letterbox::tight(source, budget, align, stride),
            None => Letterbox::fit(source, budget, align),
        }
    }
}

fn unfit_output(path: &Path, named: Option<&Family>, dims: &[i64], size: (u32, u32)) -> InferError {
    let as_what =
        named.map_or("neither YOLOX nor YOLOv8".to_owned(), |f| format!("not {}", f.name));
    InferError::Layout(format!(
        "{} has an output of {dims:?} for an input of {}x{}, which is {as_what}; served are yolox \
         (1 x anchors x 5+classes) and yolov8 (1 x 4+classes x anchors): export it to one of these",
        path.display(),
        size.0,
        size.1
    ))
}

fn missing_hint(path: &Path, error: &std::io::Error) -> String {
    if error.kind() == std::io::ErrorKind::NotFound {
        return "no such file; `python3 models/setup.py` fetches the default model".into();
    }
    if path.is_dir() {
        return "it is a folder".into();
    }
    error.to_string()
}

fn read_labels(path: &Path) -> Result<Vec<String>, InferError> {
    fs::read_to_string(path)
        .map(|text| model::parse_label_file(&text))
        .map_err(|error| InferError::NoLabels { path: path.to_owned(), reason: error.to_string() })
}

/// ONNX Runtime allows one library and one environment per process; a second server in it (tests do
/// that) shares them. A lock because servers may start on several threads; held at start only.
static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

fn load_runtime(path: &Path) -> Result<Environment, InferError> {
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let failed = |reason: String| InferError::Runtime { path: full.clone(), reason };
    if !path.exists() {
        return Err(failed("no such file; `python3 models/setup.py` fetches it".into()));
    }
    let mut shared = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(environment) = &*shared {
        return Ok(environment.clone());
    }
    let environment = ort::init_from(path)
        .map_err(|error| failed(one_line(&error.to_string())))?
        .with_name("vedette")
        .with_telemetry(false)
        .build()
        .map_err(|error| failed(one_line(error.message())))?;
    *shared = Some(environment.clone());
    Ok(environment)
}

/// One thread, no spinning: a worker is one thread, and a runtime that spins between frames takes
/// CPU from its neighbours.
fn configure(environment: &Environment) -> Result<SessionBuilder, ort::Error> {
    Ok(Session::builder(environment)?
        .with_optimization_level(GraphOptimizationLevel::All)?
        .with_intra_threads(1)?
        .with_inter_threads(1)?
        .with_intra_op_spinning(false)?
        .with_inter_op_spinning(false)?
        .with_log_level(LogLevel::Fatal)?)
}

fn open_session(
    environment: &Environment,
    bytes: &[u8],
    path: &Path,
) -> Result<Session, InferError> {
    let broken = |error: ort::Error| InferError::Broken {
        path: path.to_owned(),
        reason: broken_hint(bytes).unwrap_or_else(|| one_line(error.message())),
    };
    configure(environment).map_err(broken)?.commit_from_memory(bytes).map_err(broken)
}

/// Names the common ways in which a file is not the model that it should be.
fn broken_hint(bytes: &[u8]) -> Option<String> {
    if bytes.is_empty() {
        return Some("the file is empty".into());
    }
    if bytes.starts_with(b"version https://git-lfs") {
        return Some("it is a Git LFS pointer; fetch the file itself with `git lfs pull`".into());
    }
    None
}
