//! One worker's session and the tensors that it reads and writes.

use half::f16;
use ort::{
    session::{IoBinding, Session},
    value::{DynValue, Tensor, TensorElementType},
};

use super::InferError;
use crate::{decode::one_line, limits::TENSOR_SETS, preprocess};

/// Width and height in pixels, and the number of pictures.
type Shape = ((u32, u32), usize);

/// One worker's session. Its tensors are kept and reused, a set for each input size that is in use.
pub struct Network {
    session: Session,
    input_name: String,
    output_name: String,
    half: bool,
    batch: usize,
    /// Most recently used last.
    sets: Vec<TensorSet>,
}

/// Outputs of one run, one picture after the other.
pub struct Outputs<'a> {
    /// All values.
    pub values: &'a [f32],
    /// Dimensions; the first is the number of pictures.
    pub dims: &'a [i64],
}

impl Network {
    /// A network of a session with one input; `half` says that it takes half precision. Runs `batch`
    /// pictures at once, at most.
    pub(super) fn new(session: Session, half: bool, batch: usize) -> Self {
        let name = |outlets: &[ort::value::Outlet]| {
            outlets.first().map(|outlet| outlet.name().to_owned()).unwrap_or_default()
        };
        let (input_name, output_name) = (name(session.inputs()), name(session.outputs()));
        Self { session, input_name, output_name, half, batch, sets: Vec::new() }
    }

    /// Where to write picture `index` of the next run, as three planes of `size` (width, height in
    /// pixels). What was written for a run of another size may be gone.
    ///
    /// # Errors
    /// When ONNX Runtime has no memory for it.
    ///
    /// # Panics
    /// When `index` is not below the number of pictures run at once.
    pub fn room(&mut self, size: (u32, u32), index: usize) -> Result<&mut [f32], InferError> {
        let values = preprocess::values(size);
        let batch = self.batch;
        let set = self.set((size, batch))?;
        Ok(&mut set.input.single_mut()[index * values..][..values])
    }

    /// Runs the first `pictures` pictures of `size` (width, height in pixels).
    ///
    /// # Errors
    /// When ONNX Runtime reports one or the output is not of floats.
    pub fn run(&mut self, size: (u32, u32), pictures: usize) -> Result<Outputs<'_>, InferError> {
        if pictures < self.batch {
            self.repack(size, pictures)?;
        }
        self.set((size, pictures))?;
        // `set` has put it there.
        let set = self.sets.last_mut().ok_or_else(|| InferError::Run("no tensors".into()))?;
        set.input.narrow();
        if set.output.is_none() {
            set.output =
                Some(first_run(&mut self.session, &self.input_name, &self.output_name, set)?);
        } else if let Some(output) = &set.output {
            self.session.run_binding(&output.binding).map_err(failed)?;
        }
        let output = set.output.as_mut().ok_or_else(|| InferError::Run("no output".into()))?;
        Ok(Outputs { values: output.values.widen(), dims: &output.dims })
    }

    /// Runs empty pictures and returns the output's dimensions.
    pub(super) fn try_out(
        &mut self,
        size: (u32, u32),
        pictures: usize,
    ) -> Result<Vec<i64>, InferError> {
        for index in 0..pictures {
            self.room(size, index)?.fill(0.0);
        }
        Ok(self.run(size, pictures)?.dims.to_vec())
    }

    /// Copies the first pictures of a full batch to tensors of their number.
    fn repack(&mut self, size: (u32, u32), pictures: usize) -> Result<(), InferError> {
        self.set((size, pictures))?;
        self.set((size, self.batch))?;
        // The two that were used last.
        if let [.., few, full] = self.sets.as_mut_slice() {
            let few = few.input.single_mut();
            few.copy_from_slice(&full.input.single_mut()[..few.len()]);
        }
        Ok(())
    }

    /// The tensors of a shape, made when there are none, in place of those that have been unused for
    /// longest when there are too many.
    fn set(&mut self, shape: Shape) -> Result<&mut TensorSet, InferError> {
        if let Some(place) = self.sets.iter().position(|set| set.shape == shape) {
            self.sets[place..].rotate_left(1);
        } else {
            if self.sets.len() == TENSOR_SETS + self.batch {
                self.sets.remove(0);
            }
            let ((width, height), pictures) = shape;
            let dims = [pictures as i64, 3, i64::from(height), i64::from(width)];
            let input = Values::new(&self.session, &dims, self.half)?;
            self.sets.push(TensorSet { shape, input, output: None });
        }
        self.sets.last_mut().ok_or_else(|| InferError::Run("no tensors".into()))
    }
}

/// Runs a shape for the first time and binds memory for its output.
fn first_run(
    session: &mut Session,
    input_name: &str,
    output_name: &str,
    set: &TensorSet,
) -> Result<BoundOutput, InferError> {
    let (dims, half) = {
        let inputs = match &set.input {
            Values::Single(tensor) => ort::inputs![input_name => tensor],
            Values::Half(tensor, _) => ort::inputs![input_name => tensor],
        };
        let outputs = session.run(inputs).map_err(failed)?;
        let output = outputs.get(output_name);
        layout(output.ok_or_else(|| InferError::Run("the model has no output".into()))?)?
    };
    let mut values = Values::new(session, &dims, half)?;
    let mut binding = session.create_binding().map_err(failed)?;
    set.input.bind(&mut binding, input_name).map_err(failed)?;
    values.bind_output(&mut binding, output_name).map_err(failed)?;
    session.run_binding(&binding).map_err(failed)?;
    Ok(BoundOutput { binding, values, dims })
}

/// Dimensions of an output and whether it is of half precision.
fn layout(output: &DynValue) -> Result<(Vec<i64>, bool), InferError> {
    let dtype = output.dtype();
    let (Some(ty), Some(shape)) = (dtype.tensor_type(), dtype.tensor_shape()) else {
        return Err(InferError::Run("the output is not a tensor".into()));
    };
    match ty {
        TensorElementType::Float32 => Ok((shape.to_vec(), false)),
        TensorElementType::Float16 => Ok((shape.to_vec(), true)),
        other => Err(InferError::Run(format!("the output is {other}, not a float tensor"))),
    }
}

/// Input and output of one shape, bound to the session: a run allocates neither.
struct TensorSet {
    shape: Shape,
    input: Values,
    /// Missing until the first run of this shape has shown its dimensions.
    output: Option<BoundOutput>,
}

struct BoundOutput {
    binding: IoBinding,
    values: Values,
    dims: Vec<i64>,
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
        if !half {
            return Ok(Self::Single(Tensor::new(allocator, dims).map_err(failed)?));
        }
        let tensor = Tensor::<f16>::new(allocator, dims).map_err(failed)?;
        let single = vec![0.0; tensor.extract_tensor().1.len()];
        Ok(Self::Half(tensor, single))
    }

    fn single_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Single(tensor) => tensor.extract_tensor_mut().1,
            Self::Half(_, single) => single,
        }
    }

    /// Passes on to the network what was written.
    fn narrow(&mut self) {
        if let Self::Half(tensor, single) = self {
            for (half, single) in tensor.extract_tensor_mut().1.iter_mut().zip(single) {
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
