//! One worker: takes frames and carries each from its bytes to its answer.

use std::{sync::Arc, time::Duration};

use crate::{
    admit::{Place, Taken, worth_computing},
    clock,
    decode::{DecodeError, Decoder, FrameLimits},
    frame::Outcome,
    infer::{
        ModelInfo,
        onnx::{Network, OnnxModel},
        spin::spin,
    },
    letterbox::Letterbox,
    postprocess::{DetectOptions, Postprocessor},
    preprocess::{self, InputSpec, Preprocessor},
    response::{Answer, StageDurations, Ticket},
    telemetry::metrics::Metrics,
};

/// What a worker computes with. The buffers and sessions are its own.
pub enum Engine {
    /// Decode, network, postprocess.
    Onnx(Box<OnnxEngine>),
    /// Header check and busy loop.
    Spin(SpinEngine),
}

/// Decodes frames and runs the network on them.
pub struct OnnxEngine {
    limits: FrameLimits,
    decoder: Decoder,
    preprocessor: Preprocessor,
    runner: Runner,
    metrics: Arc<Metrics>,
}

/// Collects tensors of one input size and runs the network on them.
struct Runner {
    model: Arc<OnnxModel>,
    network: Network,
    postprocessor: Postprocessor,
    options: DetectOptions,
    tensor: Vec<f32>,
    prepared: Vec<Prepared>,
    metrics: Arc<Metrics>,
}

/// A frame whose tensor is filled.
struct Prepared {
    ticket: Ticket,
    place: Place,
    letterbox: Letterbox,
    times: StageDurations,
}

/// Stands in for a network.
pub struct SpinEngine {
    decoder: Decoder,
    duration: Duration,
    info: Arc<ModelInfo>,
    metrics: Arc<Metrics>,
}

impl Engine {
    /// An engine for one network session.
    ///
    /// # Errors
    /// When the decoder cannot be made.
    pub fn onnx(
        model: Arc<OnnxModel>,
        network: Network,
        options: DetectOptions,
        limits: FrameLimits,
        metrics: Arc<Metrics>,
    ) -> Result<Self, DecodeError> {
        let runner = Runner {
            tensor: vec![0.0; preprocess::values(model.info.input) * model.batch],
            prepared: Vec::with_capacity(model.batch),
            postprocessor: Postprocessor::default(),
            model,
            network,
            options,
            metrics: Arc::clone(&metrics),
        };
        Ok(Self::Onnx(Box::new(OnnxEngine {
            limits,
            decoder: Decoder::new(limits)?,
            preprocessor: Preprocessor::default(),
            runner,
            metrics,
        })))
    }

    /// An engine that spins.
    ///
    /// # Errors
    /// When the decoder cannot be made.
    pub fn spin(
        info: Arc<ModelInfo>,
        duration: Duration,
        limits: FrameLimits,
        metrics: Arc<Metrics>,
    ) -> Result<Self, DecodeError> {
        Ok(Self::Spin(SpinEngine { decoder: Decoder::new(limits)?, duration, info, metrics }))
    }

    /// Frames to take at once, at most.
    #[must_use]
    pub fn batch(&self) -> usize {
        match self {
            Self::Onnx(engine) => engine.runner.model.batch,
            Self::Spin(_) => 1,
        }
    }

    /// Answers every frame in `taken`.
    pub fn process(&mut self, taken: &mut Vec<Taken>) {
        match self {
            Self::Onnx(engine) => engine.process(taken),
            Self::Spin(engine) => taken.drain(..).for_each(|frame| engine.process(frame)),
        }
    }

    /// Replaces the buffers that a panic may have left half-written.
    pub fn recover(&mut self) {
        let Self::Onnx(engine) = self else { return };
        engine.preprocessor = Preprocessor::default();
        engine.runner.postprocessor = Postprocessor::default();
        engine.runner.prepared.clear();
        match Decoder::new(engine.limits) {
            Ok(decoder) => engine.decoder = decoder,
            Err(error) => tracing::error!(%error, "cannot replace a decoder after a panic"),
        }
    }
}

impl SpinEngine {
    fn process(&mut self, frame: Taken) {
        let start = clock::now();
        let queue = start.saturating_duration_since(frame.ticket.timing.received);
        self.metrics.stages.queue.record(queue);
        match self.decoder.probe(&frame.picture) {
            Ok(size) => {
                spin(self.duration);
                let inference = clock::now().saturating_duration_since(start);
                self.metrics.stages.inference.record(inference);
                let times = StageDurations { queue, inference, ..Default::default() };
                let model = self.info.name.clone();
                let answer = Answer { size, times, model, ..Answer::default() };
                frame.ticket.answer(Outcome::Ok, answer);
            }
            Err(error) => {
                let times = StageDurations { queue, ..Default::default() };
                refuse(frame.ticket, &error, times, &self.metrics);
            }
        }
    }
}

impl OnnxEngine {
    fn process(&mut self, taken: &mut Vec<Taken>) {
        for frame in taken.drain(..) {
            self.prepare(frame);
        }
        self.runner.run();
    }

    /// Bytes to tensor.
    fn prepare(&mut self, frame: Taken) {
        let start = clock::now();
        let Taken { picture, ticket, place } = frame;
        let queue = start.saturating_duration_since(ticket.timing.received);
        let mut times = StageDurations { queue, ..Default::default() };
        self.metrics.stages.queue.record(queue);
        self.metrics.decode_bytes.increment(picture.data.len() as u64);

        let decoded = match self.decoder.decode(&picture) {
            Ok(decoded) => decoded,
            Err(error) => {
                times.decode = clock::now().saturating_duration_since(start);
                refuse(ticket, &error, times, &self.metrics);
                return;
            }
        };
        let decode_end = clock::now();
        if decoded.damaged {
            self.metrics.damaged_frames.increment(1);
        }
        let letterbox = self.runner.model.letterbox((decoded.width, decoded.height));
        let (tensor, spec) = self.runner.room_for(&letterbox);
        let preprocess_start = clock::now();
        self.preprocessor.run(&decoded.pixels, &letterbox, spec, tensor);
        let end = clock::now();
        times.decode = decode_end.saturating_duration_since(start);
        times.preprocess = end.saturating_duration_since(preprocess_start);
        self.metrics.stages.decode.record(times.decode);
        self.metrics.stages.preprocess.record(times.preprocess);
        if let Some(ticket) = worth_computing(ticket, end) {
            self.runner.prepared.push(Prepared { ticket, place, letterbox, times });
        }
    }
}

impl Runner {
    /// The next free part of the batch, and how to fill it. Pictures run together must have inputs of
    /// one size: at another size, those collected so far are run first.
    fn room_for(&mut self, letterbox: &Letterbox) -> (&mut [f32], &InputSpec) {
        if self.prepared.first().is_some_and(|first| first.letterbox.input != letterbox.input) {
            self.run();
        }
        let values = preprocess::values(letterbox.input);
        let start = self.prepared.len() * values;
        (&mut self.tensor[start..start + values], &self.model.input)
    }

    /// Tensors to answers.
    fn run(&mut self) {
        let pictures = self.prepared.len();
        let Some(first) = self.prepared.first() else { return };
        let input = first.letterbox.input;
        let start = clock::now();
        let values = preprocess::values(input) * pictures;
        let result = self.network.run(&self.tensor[..values], input, pictures);
        let inference = clock::now().saturating_duration_since(start);
        self.metrics.stages.inference.record(inference);
        self.metrics.batch_frames.record(pictures as f64);

        let family = self.model.family;
        let outputs = match result {
            Ok(outputs) => outputs,
            Err(error) => {
                tracing::error!(%error, "a run of the network failed");
                return self.fail(&error.to_string());
            }
        };
        let shape = family.shape(&outputs.dims, input).filter(|shape| {
            family.classes(*shape) == Some(self.model.info.labels.len())
                && outputs.values.len() == shape.values() * pictures
        });
        let Some(shape) = shape else {
            tracing::error!(dims = ?outputs.dims, ?input, "the network's output changed its layout");
            return self.fail("the network's output changed its layout");
        };
        let each = outputs.values.chunks_exact(shape.values());
        for (frame, output) in self.prepared.drain(..).zip(each) {
            let start = clock::now();
            let objects = self.postprocessor.run(
                family,
                shape,
                output,
                &frame.letterbox,
                &self.model.info.labels,
                &self.options,
            );
            let postprocess = clock::now().saturating_duration_since(start);
            self.metrics.stages.postprocess.record(postprocess);
            self.metrics.detections.increment(objects.len() as u64);
            let answer = Answer {
                objects,
                size: frame.letterbox.source,
                times: StageDurations { inference, postprocess, ..frame.times },
                model: self.model.info.name.clone(),
                detail: String::new(),
            };
            frame.ticket.answer(Outcome::Ok, answer);
            drop(frame.place);
        }
    }

    fn fail(&mut self, why: &str) {
        for frame in self.prepared.drain(..) {
            frame.ticket.answer(Outcome::Internal, Answer::refusal(why));
        }
    }
}

/// Answers a frame that is not a picture.
fn refuse(ticket: Ticket, error: &DecodeError, times: StageDurations, metrics: &Metrics) {
    metrics.bad_frame(error);
    let answer = Answer { times, ..Answer::refusal(error.to_string()) };
    ticket.answer(error.outcome(), answer);
}
