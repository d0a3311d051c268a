//! One worker's session and the tensors that it reads and writes.

use std::collections::{HashMap, hash_map::Entry};

use half::f16;
use ort::{
    session::{IoBinding, Session},
    value::{DynValue, Outlet, Tensor, TensorElementType, TensorRef},
};

use super::InferError;
use crate::{
    decode::one_line,
    limits::{MIN_TENSOR_SETS, TENSOR_SETS},
    preprocess,
};

/// Width and height in pixels.
pub(super) type Size = (u32, u32);

/// One worker's session. Its tensors are kept and reused, a set for each input size that is in use.
pub struct Network {
    session: Session,
    input_name: String,
    output_name: String,
    half: bool,
    batch: usize,
    /// Most recently used last.
    sets: Vec<TensorSet>,
    /// Output of a full batch, by input size: never forgotten, so that tensors can be made again
    /// without a run that only shows their dimensions.
    layouts: HashMap<Size, OutputLayout>,
    /// Output of fewer pictures than a full batch.
    few: (Vec<f32>, Vec<i64>),
}

/// Outputs of one run, one picture after the other.
pub struct Outputs<'a> {
    /// All values.
    pub values: &'a [f32],
    /// Dimensions; the first is the number of pictures.
    pub dims: &'a [i64],
}

/// Input and output of a full batch of one size. A run of a full batch allocates neither.
struct TensorSet {
    size: Size,
    input: Values,
    /// Missing until a full batch of this size has been run.
    output: Option<BoundOutput>,
}

struct BoundOutput {
    binding: IoBinding,
    values: Values,
}

#[derive(Debug, Clone)]
struct OutputLayout {
    dims: Vec<i64>,
    half: bool,
}

impl Network {
    /// A network of a session with one input; `half` says that it takes half precision. Runs `batch`
    /// pictures at once, at most.
    pub(super) fn new(session: Session, half: bool, batch: usize) -> Self {
        let name = |outlets: &[Outlet]| {
            outlets.first().map(|outlet| outlet.name().to_owned()).unwrap_or_default()
        };
        let (input_name, output_name) = (name(session.inputs()), name(session.outputs()));
        Self {
            session,
            input_name,
            output_name,
            half,
            batch,
            sets: Vec::new(),
            layouts: HashMap::new(),
            few: (Vec::new(), Vec::new()),
        }
    }

    /// Where to write picture `index` of the next run, as three planes of `size` (width, height in
    /// pixels). What was written for a run of another size may be gone.
    ///
    /// # Errors
    /// When ONNX Runtime has no memory for it.
    ///
    /// # Panics
    /// When `index` is not below the number of pictures run at once.
    pub fn room(&mut self, size: Size, index: usize) -> Result<&mut [f32], InferError> {
        let values = preprocess::values(size);
        let place = self.set(size)?;
        Ok(&mut self.sets[place].input.single_mut()[index * values..][..values])
    }

    /// Runs the first `pictures` pictures of `size` (width, height in pixels).
    ///
    /// # Errors
    /// When ONNX Runtime reports one or the output is not of floats.
    pub fn run(&mut self, size: Size, pictures: usize) -> Result<Outputs<'_>, InferError> {
        let place = self.set(size)?;
        let values = preprocess::values(size) * pictures;
        self.sets[place].input.narrow(values);
        if pictures < self.batch {
            return self.run_few(place, pictures);
        }
        let Self { session, sets, layouts, input_name, output_name, .. } = self;
        let set = &mut sets[place];
        if set.output.is_none() {
            let layout = match layouts.entry(size) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    unknown.insert(set.try_layout(session, input_name, output_name)?)
                }
            };
            set.output = Some(set.bind(session, layout, input_name, output_name)?);
        }
        let unbound = || InferError::Run("no output is bound".into());
        let BoundOutput { binding, values } = set.output.as_mut().ok_or_else(unbound)?;
        session.run_binding(binding).map_err(failed)?;
        let dims = &layouts.get(&size).ok_or_else(unbound)?.dims;
        Ok(Outputs { values: values.widen(), dims })
    }

    /// Runs part of a batch, into memory that ONNX Runtime finds.
    fn run_few(&mut self, place: usize, pictures: usize) -> Result<Outputs<'_>, InferError> {
        let set = &self.sets[place];
        let dims = input_dims(set.size, pictures);
        let length = preprocess::values(set.size) * pictures;
        let name = self.input_name.as_str();
        let outputs = match &set.input {
            Values::Single(tensor) => {
                let part = &tensor.extract_tensor().1[..length];
                let part = TensorRef::from_array_view((dims, part)).map_err(failed)?;
                self.session.run(ort::inputs![name => part])
            }
            Values::Half(tensor, _) => {
                let part = &tensor.extract_tensor().1[..length];
                let part = TensorRef::from_array_view((dims, part)).map_err(failed)?;
                self.session.run(ort::inputs![name => part])
            }
        }
        .map_err(failed)?;
        let output = outputs.get(&self.output_name).ok_or_else(no_output)?;
        let layout = layout(output)?;
        let (values, dims) = &mut self.few;
        values.clear();
        if layout.half {
            let (_, half) = output.try_extract_tensor::<f16>().map_err(failed)?;
            values.extend(half.iter().map(|value| value.to_f32()));
        } else {
            values.extend_from_slice(output.try_extract_tensor::<f32>().map_err(failed)?.1);
        }
        *dims = layout.dims;
        Ok(Outputs { values, dims })
    }

    /// Runs empty pictures and returns the output's dimensions.
    pub(super) fn try_out(&mut self, size: Size, pictures: usize) -> Result<Vec<i64>, InferError> {
        for index in 0..pictures {
            self.room(size, index)?.fill(0.0);
        }
        Ok(self.run(size, pictures)?.dims.to_vec())
    }

    /// Where the tensors of a size are, made when there are none, in place of those that have been
    /// unused for longest when there are too many.
    fn set(&mut self, size: Size) -> Result<usize, InferError> {
        if let Some(place) = self.sets.iter().position(|set| set.size == size) {
            self.sets[place..].rotate_left(1);
        } else {
            // A set of many pictures is so much larger.
            if self.sets.len() >= (TENSOR_SETS / self.batch).max(MIN_TENSOR_SETS) {
                self.sets.remove(0);
            }
            let input = Values::new(&self.session, &input_dims(size, self.batch), self.half)?;
            self.sets.push(TensorSet { size, input, output: None });
        }
        Ok(self.sets.len() - 1)
    }
}

impl TensorSet {
    /// Runs the input once to see the output's layout.
    fn try_layout(
        &self,
        session: &mut Session,
        input_name: &str,
        output_name: &str,
    ) -> Result<OutputLayout, InferError> {
        let inputs = match &self.input {
            Values::Single(tensor) => ort::inputs![input_name => tensor],
            Values::Half(tensor, _) => ort::inputs![input_name => tensor],
        };
        let outputs = session.run(inputs).map_err(failed)?;
        layout(outputs.get(output_name).ok_or_else(no_output)?)
    }

    /// Makes memory for the output and binds it, and the input.
    fn bind(
        &self,
        session: &Session,
        layout: &OutputLayout,
        input_name: &str,
        output_name: &str,
    ) -> Result<BoundOutput, InferError> {
        let mut values = Values::new(session, &layout.dims, layout.half)?;
        let mut binding = session.create_binding().map_err(failed)?;
        self.input.bind(&mut binding, input_name).map_err(failed)?;
        values.bind_output(&mut binding, output_name).map_err(failed)?;
        Ok(BoundOutput { binding, values })
    }
}

fn input_dims((width, height): Size, pictures: usize) -> [i64; 4] {
    [pictures as i64, 3, i64::from(height), i64::from(width)]
}

/// Dimensions of an output and whether it is of half precision.
fn layout(output: &DynValue) -> Result<OutputLayout, InferError> {
    let dtype = output.dtype();
    let (Some(ty), Some(shape)) = (dtype.tensor_type(), dtype.tensor_shape()) else {
        return Err(InferError::Run("the output is not a tensor".into()));
    };
    let half = match ty {
        TensorElementType::Float32 => false,
        TensorElementType::Float16 => true,
        other => {
            return Err(InferError::Run(format!("the output is {other}, not a float tensor")));
        }
    };
    Ok(OutputLayout { dims: shape.to_vec(), half })
}

fn no_output() -> InferError {
    InferError::Run("the model has no output".into())
}

/// A tensor that is filled or read as single precision.
enum Values {
    Single(Tensor<f32>),
    /// What the network takes or yields, and the same in single precision.
    Half(Tensor<f16>, Vec<f32>),
}

impl Values {
    fn new(session: &Session, dims: &[i64], half: bool) -> Result<Self, InferError> {
        let allocator = session.allocator();
        // ONNX Runtime does not set the memory that it hands out.
        if !half {
            let mut tensor = Tensor::<f32>::new(allocator, dims).map_err(failed)?;
            tensor.extract_tensor_mut().1.fill(0.0);
            return Ok(Self::Single(tensor));
        }
        let mut tensor = Tensor::<f16>::new(allocator, dims).map_err(failed)?;
        tensor.extract_tensor_mut().1.fill(f16::ZERO);
        let single = vec![0.0; tensor.extract_tensor().1.len()];
        Ok(Self::Half(tensor, single))
    }

    fn single_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Single(tensor) => tensor.extract_tensor_mut().1,
            Self::Half(_, single) => single,
        }
    }

    /// Passes the first `length` values on to the network.
    fn narrow(&mut self, length: usize) {
        if let Self::Half(tensor, single) = self {
            let halves = tensor.extract_tensor_mut().1.iter_mut();
            for (half, single) in halves.zip(single).take(length) {
                *half = f16::from_f32(*single);
            }
        }
    }

    /// What the network has written.
    fn widen(&mut self) -> &[f32] {
        match self {
            Self::Single(tensor) => tensor.extract_tensor().1,
            Self::Half(tensor, single) => {
                for (single, half) in single.iter_mut().zip(tensor.extract_tensor().1) {
                    *single = half.to_f32();
                }
                single
            }
        }
    }

    fn bind(&self, binding: &mut IoBinding, name: &str) -> ort::Result<()> {
        match self {
            Self::Single(tensor) => binding.bind_input(name, tensor),
            Self::Half(tensor, _) => binding.bind_input(name, tensor),
        }
    }

    fn bind_output(&mut self, binding: &mut IoBinding, name: &str) -> ort::Result<()> {
        match self {
            Self::Single(tensor) => binding.bind_output(name, tensor),
            Self::Half(tensor, _) => binding.bind_output(name, tensor),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err hands it over")]
fn failed(error: ort::Error) -> InferError {
    InferError::Run(one_line(error.message()))
}
