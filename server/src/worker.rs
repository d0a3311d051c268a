//! One worker: takes frames and carries each from its bytes to its answer.

use std::{sync::Arc, time::Duration};

use crate::{
    admit::{Place, Taken, worth_computing},
    clock,
    decode::{DecodeError, Decoder, FrameLimits, JpegDecode},
    faults::{Faults, Stage},
    frame::{Outcome, Picture},
    infer::{InferError, ModelInfo, network::Network, onnx::OnnxModel, spin::spin},
    letterbox::Letterbox,
    postprocess::{DetectOptions, Postprocessor},
    preprocess::Preprocessor,
    response::{Answer, Progress, Ticket},
    telemetry::metrics::Metrics,
};

/// What a worker computes with. The buffers and sessions are its own.
pub enum Engine {
    /// Decode, network, postprocess.
    Onnx(Box<OnnxEngine>),
    /// Header check and busy loop.
    Spin(SpinEngine),
    /// Panics over every frame.
    #[cfg(test)]
    Panics,
}

/// Decodes frames and runs the network on them.
pub struct OnnxEngine {
    limits: FrameLimits,
    jpeg: JpegDecode,
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
    prepared: Vec<Prepared>,
    failures: u64,
    faults: Faults,
    /// Frames taken up so far.
    frames: u64,
    metrics: Arc<Metrics>,
}

/// A frame whose tensor is filled.
struct Prepared {
    ticket: Ticket,
    place: Place,
    letterbox: Letterbox,
    progress: Progress,
    /// For an operator who waits for one.
    picture: Option<Picture>,
}

/// Stands in for a network.
pub struct SpinEngine {
    limits: FrameLimits,
    duration: Duration,
    info: Arc<ModelInfo>,
    faults: Faults,
    frames: u64,
    metrics: Arc<Metrics>,
}

impl Engine {
    /// An engine for one network session.
    #[must_use]
    pub fn onnx(
        model: Arc<OnnxModel>,
        network: Network,
        options: DetectOptions,
        (limits, jpeg): (FrameLimits, JpegDecode),
        faults: Faults,
        metrics: Arc<Metrics>,
    ) -> Self {
        let runner = Runner {
            prepared: Vec::with_capacity(model.batch),
            postprocessor: Postprocessor::default(),
            failures: 0,
            faults,
            frames: 0,
            model,
            network,
            options,
            metrics: Arc::clone(&metrics),
        };
        Self::Onnx(Box::new(OnnxEngine {
            limits,
            jpeg,
            decoder: Decoder::new(limits, jpeg),
            preprocessor: Preprocessor::default(),
            runner,
            metrics,
        }))
    }

    /// An engine that spins.
    #[must_use]
    pub fn spin(
        info: Arc<ModelInfo>,
        duration: Duration,
        limits: FrameLimits,
        faults: Faults,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self::Spin(SpinEngine { limits, duration, info, faults, frames: 0, metrics })
    }

    /// Frames to take at once, at most.
    #[must_use]
    pub fn batch(&self) -> usize {
        match self {
            Self::Onnx(engine) => engine.runner.model.batch,
            Self::Spin(_) => 1,
            #[cfg(test)]
            Self::Panics => 1,
        }
    }

    /// Answers every frame in `taken`.
    pub fn process(&mut self, taken: &mut Vec<Taken>) {
        match self {
            Self::Onnx(engine) => engine.process(taken),
            Self::Spin(engine) => taken.drain(..).for_each(|frame| engine.process(frame)),
            #[cfg(test)]
            Self::Panics => std::panic::panic_any("an engine that fails"),
        }
    }

    /// Replaces the buffers that a panic may have left half-written.
    pub fn recover(&mut self) {
        let Self::Onnx(engine) = self else { return };
        engine.decoder = Decoder::new(engine.limits, engine.jpeg);
        engine.preprocessor = Preprocessor::default();
        engine.runner.postprocessor = Postprocessor::default();
        engine.runner.prepared.clear();
    }
}

impl SpinEngine {
    fn process(&mut self, frame: Taken) {
        self.frames += 1;
        let Taken { picture, ticket, place, mut progress } = frame;
        match self.limits.probe(&picture) {
            Ok(size) => {
                let start = clock::now();
                self.faults.strike(Stage::Inference, self.frames);
                spin(self.duration);
                progress.inference = clock::now().saturating_duration_since(start);
                progress.size = size;
                self.metrics.stages.inference.record(progress.inference);
                let model = self.info.name.clone();
                let picture = ticket.wants_picture(start).then_some(picture);
                let answer = Answer { progress, model, picture, ..Answer::default() };
                ticket.answer(Outcome::Ok, answer);
            }
            Err(error) => refuse(ticket, &error, &progress, &self.metrics),
        }
        drop(place);
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
        let Taken { picture, ticket, place, mut progress } = frame;
        self.metrics.decode_bytes.increment(picture.data.len() as u64);
        self.runner.frames += 1;
        self.runner.faults.strike(Stage::Decode, self.runner.frames);
        let start = clock::now();
        let model = &self.runner.model;
        let decoded = self.decoder.decode(&picture, |size| model.letterbox(size).scaled);
        let decoded = match decoded {
            Ok(decoded) => decoded,
            Err(error) => return refuse(ticket, &error, &progress, &self.metrics),
        };
        progress.decode = clock::now().saturating_duration_since(start);
        progress.size = (decoded.width, decoded.height);
        self.metrics.stages.decode.record(progress.decode);
        if decoded.damaged {
            self.metrics.damaged_frames.increment(1);
        }

        let letterbox = model.letterbox(progress.size);
        let input = model.input;
        // This may run the frames collected so far.
        let tensor = match self.runner.room_for(&letterbox) {
            Ok(tensor) => tensor,
            Err(error) => return self.runner.refuse(ticket, &error.to_string(), &progress),
        };
        let start = clock::now();
        self.preprocessor.run(&decoded.pixels, &letterbox, &input, tensor);
        let end = clock::now();
        progress.preprocess = end.saturating_duration_since(start);
        self.metrics.stages.preprocess.record(progress.preprocess);
        if let Some(ticket) = worth_computing(ticket, end, &progress) {
            let picture = ticket.wants_picture(end).then_some(picture);
            let prepared = Prepared { ticket, place, letterbox, progress, picture };
            self.runner.prepared.push(prepared);
        }
    }
}

impl Runner {
    /// The next free part of the batch. Pictures run together must have inputs of one size: at another
    /// size, those collected so far are run first.
    fn room_for(&mut self, letterbox: &Letterbox) -> Result<&mut [f32], InferError> {
        if self.prepared.first().is_some_and(|first| first.letterbox.input != letterbox.input) {
            self.run();
        }
        self.network.room(letterbox.input, self.prepared.len())
    }

    /// Tensors to answers.
    fn run(&mut self) {
        let pictures = self.prepared.len();
        let Some(first) = self.prepared.first() else { return };
        let input = first.letterbox.input;
        let start = clock::now();
        self.faults.strike(Stage::Inference, self.frames);
        let result = self.network.run(input, pictures);
        let inference = clock::now().saturating_duration_since(start);
        self.metrics.stages.inference.record(inference);
        self.metrics.batch_frames.record(pictures as f64);

        let family = self.model.family;
        let outputs = match result {
            Ok(outputs) => outputs,
            Err(error) => return self.fail(&error.to_string(), inference),
        };
        let shape = family.shape(outputs.dims, input).filter(|shape| {
            family.classes(*shape) == Some(self.model.info.labels.len())
                && outputs.values.len() == shape.values() * pictures
        });
        let Some(shape) = shape else {
            let why = format!(
                "the network's output changed its layout to {:?} for an input of {}x{}",
                outputs.dims, input.0, input.1
            );
            return self.fail(&why, inference);
        };
        let each = outputs.values.chunks_exact(shape.values());
        for (frame, output) in self.prepared.drain(..).zip(each) {
            let start = clock::now();
            self.faults.strike(Stage::Postprocess, self.frames);
            let letterbox = &frame.letterbox;
            let detections =
                self.postprocessor.run(family, shape, output, letterbox, &self.options);
            let postprocess = clock::now().saturating_duration_since(start);
            self.metrics.stages.postprocess.record(postprocess);
            self.metrics.detections.increment(detections.len() as u64);
            let labels = &self.model.info.labels;
            let answer = Answer {
                objects: detections.iter().map(|detection| detection.to_object(labels)).collect(),
                progress: Progress { inference, postprocess, ..frame.progress },
                model: self.model.info.name.clone(),
                detail: String::new(),
                picture: frame.picture,
            };
            frame.ticket.answer(Outcome::Ok, answer);
            drop(frame.place);
        }
    }

    /// Answers the collected frames.
    fn fail(&mut self, why: &str, inference: Duration) {
        for frame in std::mem::take(&mut self.prepared) {
            let progress = Progress { inference, ..frame.progress };
            self.refuse(frame.ticket, why, &progress);
        }
    }

    /// Answers a frame that the network failed on, and logs ever more rarely while it goes on.
    fn refuse(&mut self, ticket: Ticket, why: &str, progress: &Progress) {
        self.failures += 1;
        if self.failures.is_power_of_two() {
            let (camera, frame) = ticket.name();
            tracing::error!(%camera, %frame, failures = self.failures, "{why}");
        }
        ticket.answer(Outcome::Internal, Answer::refusal(why, progress));
    }
}

/// Answers a frame that is not a picture.
pub fn refuse(ticket: Ticket, error: &DecodeError, progress: &Progress, metrics: &Metrics) {
    metrics.bad_frame(error);
    let (camera, frame) = ticket.name();
    tracing::debug!(%camera, %frame, %error, "not a picture");
    ticket.answer(error.outcome(), Answer::refusal(error.to_string(), progress));
}
