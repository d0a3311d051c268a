//! ONNX Runtime: loading the library and a model, sessions, runs.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use half::f16;
use ort::{
    environment::Environment,
    logging::LogLevel,
    session::{
        Session,
        builder::{GraphOptimizationLevel, SessionBuilder},
    },
    value::{TensorElementType, TensorRef},
};

use super::{InferError, ModelInfo, model};
use crate::{
    config::{InputSize, ModelConfig},
    decode::one_line,
    postprocess::layout::{Family, OutputShape},
    preprocess::InputSpec,
};

/// Metadata key under which a model names its layout; see [`FamilyName`].
///
/// [`FamilyName`]: crate::postprocess::layout::FamilyName
const LAYOUT_KEY: &str = "vedette.layout";
/// Metadata keys that exporters write: class names, and input height and width.
const NAMES_KEY: &str = "names";
const IMAGE_SIZE_KEY: &str = "imgsz";

/// A model, loaded and checked by running it once. Makes the workers' networks.
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
    /// Shape of one picture's output.
    pub output: OutputShape,
    /// Pictures per run, at most.
    pub batch: usize,
    /// Class names were not known and have been numbered.
    pub labels_made_up: bool,
    half: bool,
}

/// One worker's session with its reused buffers.
pub struct Network {
    session: Session,
    input_name: String,
    half_input: Vec<f16>,
    half: bool,
    output: Vec<f32>,
    dims: [i64; 4],
}

/// What the model file declares before anything is known of the user's wishes.
struct Declared {
    input_name: String,
    batch: i64,
    height: i64,
    width: i64,
    half: bool,
    layout: Option<String>,
    names: Option<String>,
    image_size: Option<(u32, u32)>,
}

impl OnnxModel {
    /// Loads library and model, settles size, layout and labels, and runs every batch size once.
    ///
    /// # Errors
    /// With one line that names the setting to change.
    pub fn load(config: &ModelConfig) -> Result<(Self, Network), InferError> {
        let environment = load_runtime(&config.runtime_lib)?;
        let path = config.model.clone();
        let bytes = fs::read(&path).map_err(|error| InferError::Unreadable {
            path: path.clone(),
            reason: missing_hint(&path, &error),
        })?;
        let labels = config.labels.as_deref().map(read_labels).transpose()?;
        let session = open_session(&environment, &bytes, &path)?;
        let declared = Declared::read(&session, &path)?;

        let named = config
            .layout
            .map(Ok)
            .or_else(|| declared.named_layout())
            .transpose()?;
        let family = named.map(Family::get);
        let size = declared.settle_size(config.input_size, family)?;
        let batch = declared.settle_batch(config.batch)?;
        let mut network = Network {
            session,
            input_name: declared.input_name.clone(),
            half_input: Vec::new(),
            half: declared.half,
            output: Vec::new(),
            dims: [1, 3, i64::from(size.1), i64::from(size.0)],
        };
        let dims = network.try_out(batch)?;
        let family = family
            .or_else(|| Family::guess(&dims, size))
            .ok_or_else(|| unknown_layout(&dims, size))?;
        let output = family.shape(&dims, size).ok_or_else(|| {
            InferError::Layout(format!(
                "{:?} does not fit an output of {dims:?} for an input of {}x{}",
                family.name, size.0, size.1
            ))
        })?;
        let classes = family.classes(output).unwrap_or(0);
        let (labels, labels_made_up) =
            model::settle_labels(classes, labels, declared.names.as_deref())?;
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let input = InputSpec {
            width: size.0,
            height: size.1,
            order: family.order,
            scale: family.scale,
            pad: family.pad,
            align: family.align,
        };
        let info = ModelInfo {
            name,
            backend: "onnx",
            input: size,
            labels,
        };
        let half = declared.half;
        let model = Self {
            environment,
            bytes,
            path,
            info,
            input,
            family,
            output,
            batch,
            labels_made_up,
            half,
        };
        Ok((model, network))
    }

    /// Another worker's network, run once to have its memory in place.
    ///
    /// # Errors
    /// When the session cannot be made or fails its first run.
    pub fn network(&self) -> Result<Network, InferError> {
        let session = open_session(&self.environment, &self.bytes, &self.path)?;
        let input_name = session.inputs()[0].name().to_owned();
        let mut network = Network {
            session,
            input_name,
            half_input: Vec::new(),
            half: self.half,
            output: Vec::new(),
            dims: [
                1,
                3,
                i64::from(self.input.height),
                i64::from(self.input.width),
            ],
        };
        network.try_out(self.batch)?;
        Ok(network)
    }
}

impl Network {
    /// Runs `pictures` pictures, whose tensors lie one after the other in `input`, and returns their
    /// outputs one after the other, and the dimensions of the whole.
    ///
    /// # Errors
    /// When ONNX Runtime reports one or the output is not of floats.
    pub fn run(
        &mut self,
        input: &[f32],
        pictures: usize,
    ) -> Result<(&[f32], Vec<i64>), InferError> {
        self.dims[0] = pictures as i64;
        let failed = |error: ort::Error| InferError::Run(one_line(error.message()));
        let outputs = if self.half {
            self.half_input.clear();
            self.half_input
                .extend(input.iter().map(|&value| f16::from_f32(value)));
            let tensor = TensorRef::from_array_view((self.dims, self.half_input.as_slice()))
                .map_err(failed)?;
            self.session
                .run(ort::inputs![self.input_name.as_str() => tensor])
        } else {
            let tensor = TensorRef::from_array_view((self.dims, input)).map_err(failed)?;
            self.session
                .run(ort::inputs![self.input_name.as_str() => tensor])
        }
        .map_err(failed)?;
        let value = outputs
            .values()
            .next()
            .ok_or_else(|| InferError::Run("the model has no output".into()))?;
        self.output.clear();
        let dims = if let Ok((shape, values)) = value.try_extract_tensor::<f32>() {
            self.output.extend_from_slice(values);
            shape.to_vec()
        } else {
            let (shape, values) = value.try_extract_tensor::<f16>().map_err(failed)?;
            self.output
                .extend(values.iter().map(|value| value.to_f32()));
            shape.to_vec()
        };
        Ok((&self.output, dims))
    }

    /// Runs an empty picture at every batch size and returns the output's dimensions for one.
    fn try_out(&mut self, batch: usize) -> Result<Vec<i64>, InferError> {
        let values = self.dims[1..].iter().product::<i64>() as usize;
        let blank = vec![0.0; values * batch];
        let mut dims = Vec::new();
        for pictures in (1..=batch).rev() {
            dims = self.run(&blank[..values * pictures], pictures)?.1;
            if dims.first() != Some(&(pictures as i64)) {
                return Err(InferError::Batch(format!(
                    "{pictures} pictures gave an output of {dims:?}"
                )));
            }
        }
        Ok(dims)
    }
}

impl Declared {
    fn read(session: &Session, path: &Path) -> Result<Self, InferError> {
        let broken = |reason: String| InferError::Broken {
            path: path.to_owned(),
            reason,
        };
        let [input] = session.inputs() else {
            return Err(broken(format!(
                "it has {} inputs; detectors with one input are served",
                session.inputs().len()
            )));
        };
        let (Some(ty), Some(shape)) = (input.dtype().tensor_type(), input.dtype().tensor_shape())
        else {
            return Err(broken("its input is not a tensor".into()));
        };
        let half = match ty {
            TensorElementType::Float32 => false,
            TensorElementType::Float16 => true,
            other => return Err(broken(format!("its input is {other}, not a float tensor"))),
        };
        let &[batch, 3 | -1, height, width] = &shape[..] else {
            return Err(broken(format!(
                "its input is {:?}, not N x 3 x H x W",
                &shape[..]
            )));
        };
        let metadata = session.metadata().ok();
        let custom = |key: &str| metadata.as_ref().and_then(|metadata| metadata.custom(key));
        let image_size = custom(IMAGE_SIZE_KEY)
            .and_then(|text| serde_json::from_str::<(u32, u32)>(&text).ok())
            .map(|(height, width)| (width, height));
        Ok(Self {
            input_name: input.name().to_owned(),
            batch,
            height,
            width,
            half,
            layout: custom(LAYOUT_KEY),
            names: custom(NAMES_KEY),
            image_size,
        })
    }

    fn named_layout(&self) -> Option<Result<crate::postprocess::layout::FamilyName, InferError>> {
        self.layout.as_deref().map(|name| {
            clap::ValueEnum::from_str(name, true).map_err(|_| {
                InferError::Layout(format!(
                    "the model's metadata names {name:?}, which is unknown"
                ))
            })
        })
    }

    fn settle_size(
        &self,
        wanted: Option<InputSize>,
        family: Option<&Family>,
    ) -> Result<(u32, u32), InferError> {
        let wanted = wanted.map(|size| (size.width, size.height));
        if let (Ok(width @ 1..), Ok(height @ 1..)) =
            (u32::try_from(self.width), u32::try_from(self.height))
        {
            return match wanted {
                Some(size) if size != (width, height) => Err(InferError::InputSize(format!(
                    "the model takes {width}x{height} only, not {}x{}",
                    size.0, size.1
                ))),
                _ => Ok((width, height)),
            };
        }
        let family = family.unwrap_or(Family::get(crate::postprocess::layout::FamilyName::Yolov8));
        let size = wanted
            .or(self.image_size)
            .unwrap_or((family.default_size, family.default_size));
        let stride = family.stride;
        if size.0 == 0 || size.1 == 0 || size.0 % stride != 0 || size.1 % stride != 0 {
            return Err(InferError::InputSize(format!(
                "{}x{} is not a multiple of {stride} in width and height",
                size.0, size.1
            )));
        }
        Ok(size)
    }

    fn settle_batch(&self, wanted: usize) -> Result<usize, InferError> {
        match self.batch {
            1.. if self.batch != 1 => Err(InferError::Batch(format!(
                "the model takes exactly {} pictures at a time; export it for 1 or any number",
                self.batch
            ))),
            1 if wanted > 1 => Err(InferError::Batch(format!(
                "the model takes 1 picture at a time, not {wanted}; export it with a dynamic batch"
            ))),
            _ => Ok(wanted),
        }
    }
}

fn unknown_layout(dims: &[i64], size: (u32, u32)) -> InferError {
    InferError::Layout(format!(
        "an output of {dims:?} for an input of {}x{} is neither YOLOX's nor YOLOv8's",
        size.0, size.1
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
        .map_err(|error| InferError::Labels(format!("cannot read {}: {error}", path.display())))
}

fn load_runtime(path: &Path) -> Result<Environment, InferError> {
    let failed = |reason: String| InferError::Runtime {
        path: path.to_owned(),
        reason,
    };
    if !path.exists() {
        return Err(failed(
            "no such file; `python3 models/setup.py` fetches it".into(),
        ));
    }
    // ONNX Runtime allows one library and one environment per process; a second server in it (tests
    // do that) shares them. Locked at start-up only.
    static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);
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
    configure(environment)
        .map_err(broken)?
        .commit_from_memory(bytes)
        .map_err(broken)
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
