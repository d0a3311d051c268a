//! What a model file declares of its input, and what is made of it and the user's wishes.

use std::path::Path;

use ort::{session::Session, value::TensorElementType};

use super::InferError;
use crate::{
    postprocess::layout::{Family, FamilyName},
    settings::{InputShape, InputSize},
};

/// Metadata key under which a model names its layout; see [`FamilyName`].
const LAYOUT_KEY: &str = "vedette.layout";
/// Metadata keys that exporters write: class names, and input height and width.
const NAMES_KEY: &str = "names";
const IMAGE_SIZE_KEY: &str = "imgsz";

/// What the model file declares before anything is known of the user's wishes.
pub(super) struct Declared {
    batch: i64,
    height: i64,
    width: i64,
    pub(super) half: bool,
    layout: Option<String>,
    pub(super) names: Option<String>,
    image_size: Option<(u32, u32)>,
}

impl Declared {
    /// Reads it off a session.
    pub(super) fn read(session: &Session, path: &Path) -> Result<Self, InferError> {
        let broken = |reason: String| InferError::Broken { path: path.to_owned(), reason };
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
            return Err(broken(format!("its input is {:?}, not N x 3 x H x W", &shape[..])));
        };
        let metadata = session.metadata().ok();
        let custom = |key: &str| metadata.as_ref().and_then(|metadata| metadata.custom(key));
        let image_size = custom(IMAGE_SIZE_KEY)
            .and_then(|text| serde_json::from_str::<(u32, u32)>(&text).ok())
            .map(|(height, width)| (width, height));
        Ok(Self {
            batch,
            height,
            width,
            half,
            layout: custom(LAYOUT_KEY),
            names: custom(NAMES_KEY),
            image_size,
        })
    }

    /// The layout that the model's metadata names.
    pub(super) fn named_layout(&self) -> Option<Result<FamilyName, InferError>> {
        self.layout.as_deref().map(|name| {
            clap::ValueEnum::from_str(name, true).map_err(|_| {
                InferError::Layout(format!("the model's metadata names {name:?}, which is unknown"))
            })
        })
    }

    /// Width and height of the input in pixels.
    pub(super) fn settle_size(
        &self,
        wanted: Option<InputSize>,
        family: &Family,
    ) -> Result<(u32, u32), InferError> {
        let fixed = [self.width, self.height].map(|side| u32::try_from(side).ok());
        let wanted = wanted.map(|size| (size.width, size.height));
        let default =
            wanted.or(self.image_size).unwrap_or((family.default_size, family.default_size));
        let size = match (fixed, wanted) {
            ([Some(width), Some(height)], None) => (width, height),
            _ => default,
        };
        let asked = [size.0, size.1];
        if fixed.iter().zip(asked).any(|(fixed, asked)| fixed.is_some_and(|side| side != asked)) {
            let or_any = |side: Option<u32>| side.map_or("any".to_owned(), |n| n.to_string());
            return Err(InferError::InputSize(format!(
                "the model takes {} x {} (width x height) only, not {} x {}",
                or_any(fixed[0]),
                or_any(fixed[1]),
                size.0,
                size.1
            )));
        }
        let stride = family.stride;
        let fits = |(side, fixed): (u32, Option<u32>)| {
            side > 0 && (fixed.is_some() || side.is_multiple_of(stride))
        };
        if !asked.into_iter().zip(fixed).all(fits) {
            return Err(InferError::InputSize(format!(
                "{} x {} is not a multiple of {stride} in width and height",
                size.0, size.1
            )));
        }
        Ok(size)
    }

    /// The stride of inputs that may be smaller than the whole, picture by picture.
    pub(super) fn settle_shape(&self, wanted: InputShape, family: &Family) -> Option<u32> {
        let any_size = self.width < 0 && self.height < 0;
        (any_size && wanted == InputShape::Adaptive).then_some(family.stride)
    }

    /// Pictures per run, at most.
    pub(super) fn settle_batch(&self, wanted: usize) -> Result<usize, InferError> {
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
