//! The server's own stages, called in this process. The only module that knows their signatures.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use vedette_server::{
    decode::{Decoder, FrameLimits, JpegDecode},
    frame::{Layout, Picture},
    infer::{network::Network, onnx::OnnxModel},
    letterbox::Letterbox,
    postprocess::{
        DetectOptions, Detection, Postprocessor,
        layout::{Family, OutputShape},
    },
    preprocess::{InputSpec, Preprocessor},
    settings::Settings,
};

use crate::error::{BenchError, failed};

/// A stage of a frame's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named")]
pub enum Stage {
    Decode,
    Preprocess,
    Infer,
    Postprocess,
}

impl Stage {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::Decode, Self::Preprocess, Self::Infer, Self::Postprocess];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Preprocess => "preprocess",
            Self::Infer => "infer",
            Self::Postprocess => "postprocess",
        }
    }
}

/// A way from a picture file to boxes, as a whole and by stage.
pub trait Pipeline: Default + Send {
    /// Runs every stage. Returns the number of boxes.
    ///
    /// # Errors
    /// A picture that does not decode, a network that does not run.
    fn detect(&mut self, net: &mut Net, data: &Bytes) -> Result<usize, BenchError>;

    /// Prepares one stage's input and hands `timer` a function that runs only that stage.
    ///
    /// # Errors
    /// As [`detect`](Self::detect).
    fn stage(
        &mut self,
        net: &mut Net,
        stage: Stage,
        data: &Bytes,
        timer: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<(), BenchError>;
}

/// Which model is run.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "see the flag of the same name")]
pub struct ModelFiles {
    pub model: Option<PathBuf>,
    pub runtime_lib: Option<PathBuf>,
}

/// A model as a server with these files and otherwise default settings runs it.
pub struct Model {
    onnx: Arc<OnnxModel>,
    options: DetectOptions,
    limits: FrameLimits,
    jpeg: JpegDecode,
    /// ONNX Runtime's library.
    pub runtime_lib: PathBuf,
}

impl Model {
    /// Loads it.
    ///
    /// # Errors
    /// When a file is missing or unusable.
    pub fn load(files: ModelFiles) -> Result<Self, BenchError> {
        let ModelFiles { model, runtime_lib } = files;
        let settings = Settings { model, runtime_lib, ..Settings::default() };
        let config = settings.check().map_err(failed("settings"))?;
        let onnx = OnnxModel::load(&config.model).map_err(failed("the model"))?;
        Ok(Self {
            onnx: Arc::new(onnx),
            options: config.detect,
            limits: config.frames.limits,
            jpeg: config.frames.jpeg,
            runtime_lib: config.model.runtime_lib,
        })
    }

    /// A session with its buffers, for one thread.
    ///
    /// # Errors
    /// When the session cannot be made.
    pub fn net(&self) -> Result<Net, BenchError> {
        let network = self.onnx.network().map_err(failed("the model"))?;
        Ok(Net {
            network,
            postprocessor: Postprocessor::default(),
            options: self.options,
            limits: self.limits,
            jpeg: self.jpeg,
            model: Arc::clone(&self.onnx),
        })
    }
}

/// One thread's network and what both pipelines use alike.
pub struct Net {
    model: Arc<OnnxModel>,
    network: Network,
    postprocessor: Postprocessor,
    options: DetectOptions,
    limits: FrameLimits,
    jpeg: JpegDecode,
}

/// A network's output with what it takes to read it.
pub struct Output<'a> {
    /// One picture's values.
    pub values: &'a [f32],
    /// Their shape.
    pub shape: OutputShape,
    /// How the picture lay in the input.
    pub letterbox: Letterbox,
    /// What is reported.
    pub options: &'a DetectOptions,
    model: &'a OnnxModel,
    postprocessor: &'a mut Postprocessor,
}

impl Net {
    /// How the network wants its input.
    #[must_use]
    pub fn spec(&self) -> InputSpec {
        self.model.input
    }

    /// Where a picture lies in the whole, square input, as in a pipeline that knows no other.
    #[must_use]
    pub fn square(&self, source: (u32, u32)) -> Letterbox {
        Letterbox::fit(source, self.model.info.input, self.model.family.align)
    }

    /// The tensor to fill for an input of this size: three planes.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn tensor(&mut self, input: (u32, u32)) -> Result<&mut [f32], BenchError> {
        self.network.room(input, 0).map_err(failed("the network"))
    }

    /// Runs the network on the tensor.
    ///
    /// # Errors
    /// When it does not run or its output is not what the model's loading has shown.
    pub fn infer(&mut self, letterbox: Letterbox) -> Result<Output<'_>, BenchError> {
        let (input, family): (_, &Family) = (letterbox.input, self.model.family);
        let outputs = self.network.run(input, 1).map_err(failed("the network"))?;
        let shape = family
            .shape(outputs.dims, input)
            .ok_or_else(|| failed("the network")("its output changed its layout"))?;
        Ok(Output {
            values: outputs.values,
            shape,
            letterbox,
            options: &self.options,
            model: &self.model,
            postprocessor: &mut self.postprocessor,
        })
    }
}

/// A way through the stages: how much of a JPEG is decoded, and into which input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// The smallest rectangle that holds the picture, not the whole square.
    pub fitting: bool,
    /// How much is decoded.
    pub jpeg: JpegDecode,
}

impl Way {
    /// Every pixel decoded into the square, as the networks are trained and validated.
    pub const REFERENCE: Self = Self { fitting: false, jpeg: JpegDecode::Full };
}

/// What the network sees in a picture on one way, strongest first, at the server's default score and up.
///
/// # Errors
/// A picture that does not decode, a network that does not run.
pub fn detections(net: &mut Net, way: Way, data: &Bytes) -> Result<Vec<Detection>, BenchError> {
    let picture = picture(data);
    let model = Arc::clone(&net.model);
    let letterbox = |size| if way.fitting { model.letterbox(size) } else { net.square(size) };
    let mut decoder = Decoder::new(net.limits, way.jpeg);
    let rgb =
        decoder.decode(&picture, |size| letterbox(size).scaled).map_err(failed("a picture"))?;
    let letterbox = letterbox((rgb.width, rgb.height));
    let tensor = net.tensor(letterbox.input)?;
    Preprocessor::default().run(&rgb.pixels, &letterbox, &model.input, tensor);
    let Output { values, shape, options, postprocessor, .. } = net.infer(letterbox)?;
    Ok(postprocessor.run(model.family, shape, values, &letterbox, options).to_vec())
}

impl Output<'_> {
    /// The server's postprocessing. Returns the number of boxes.
    pub fn boxes(&mut self) -> usize {
        let Self { values, shape, letterbox, options, .. } = self;
        let family = self.model.family;
        self.postprocessor.run(family, *shape, values, letterbox, options).len()
    }
}

/// The server's pipeline.
#[derive(Default)]
pub struct Ours {
    decoder: Option<Decoder>,
    preprocessor: Preprocessor,
}

impl Pipeline for Ours {
    fn detect(&mut self, net: &mut Net, data: &Bytes) -> Result<usize, BenchError> {
        let letterbox = self.fill(net, data, &mut |run| run())?;
        Ok(net.infer(letterbox)?.boxes())
    }

    fn stage(
        &mut self,
        net: &mut Net,
        stage: Stage,
        data: &Bytes,
        timer: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<(), BenchError> {
        match stage {
            Stage::Decode => {
                let picture = picture(data);
                let decoder = self.decoder(net);
                let needed = |size| net.model.letterbox(size).scaled;
                // Once by itself: what fails now, fails with its reason.
                decoder.decode(&picture, needed).map_err(failed("a picture"))?;
                timer(&mut || {
                    let _ = std::hint::black_box(decoder.decode(&picture, needed).is_ok());
                });
            }
            Stage::Preprocess => {
                self.fill(net, data, timer)?;
            }
            Stage::Infer => {
                let letterbox = self.fill(net, data, &mut |run| run())?;
                net.infer(letterbox)?;
                timer(&mut || {
                    let _ = std::hint::black_box(net.infer(letterbox).is_ok());
                });
            }
            Stage::Postprocess => {
                let letterbox = self.fill(net, data, &mut |run| run())?;
                let mut output = net.infer(letterbox)?;
                timer(&mut || {
                    std::hint::black_box(output.boxes());
                });
            }
        }
        Ok(())
    }
}

impl Ours {
    fn decoder(&mut self, net: &Net) -> &mut Decoder {
        self.decoder.get_or_insert_with(|| Decoder::new(net.limits, net.jpeg))
    }

    /// Decodes, and lets `timer` run the preprocessing into the network's tensor at least once.
    fn fill(
        &mut self,
        net: &mut Net,
        data: &Bytes,
        timer: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<Letterbox, BenchError> {
        let picture = picture(data);
        let Self { decoder, preprocessor } = self;
        let decoder = decoder.get_or_insert_with(|| Decoder::new(net.limits, net.jpeg));
        let rgb = decoder
            .decode(&picture, |size| net.model.letterbox(size).scaled)
            .map_err(failed("a picture"))?;
        let letterbox = net.model.letterbox((rgb.width, rgb.height));
        let spec = net.model.input;
        let tensor = net.tensor(letterbox.input)?;
        timer(&mut || preprocessor.run(&rgb.pixels, &letterbox, &spec, tensor));
        Ok(letterbox)
    }
}

fn picture(data: &Bytes) -> Picture {
    Picture { data: data.clone(), layout: Layout::Encoded }
}
