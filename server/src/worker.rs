//! One worker: takes frames and carries each from its bytes to its answer.

use std::{sync::Arc, time::Duration};

use crate::{
    admit::{Taken, worth_computing},
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
    preprocess::Preprocessor,
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

/// Runs the network on decoded frames.
pub struct OnnxEngine {
    model: Arc<OnnxModel>,
    network: Network,
    options: DetectOptions,
    limits: FrameLimits,
    scratch: Scratch,
    tensor: Vec<f32>,
    prepared: Vec<Prepared>,
    metrics: Arc<Metrics>,
}

/// Reused buffers that a panic may leave in any state; replaced after one.
struct Scratch {
    decoder: Decoder,
    preprocessor: Preprocessor,
    postprocessor: Postprocessor,
}

impl Scratch {
    fn new(limits: FrameLimits) -> Result<Self, DecodeError> {
        Ok(Self {
            decoder: Decoder::new(limits)?,
            preprocessor: Preprocessor::default(),
            postprocessor: Postprocessor::default(),
        })
    }
}

/// A frame whose tensor is filled.
struct Prepared {
    ticket: Ticket,
    place: Box<dyn Send>,
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
        Ok(Self::Onnx(Box::new(OnnxEngine {
            tensor: vec![0.0; model.input.values() * model.batch],
            prepared: Vec::with_capacity(model.batch),
            scratch: Scratch::new(limits)?,
            model,
            network,
            options,
            limits,
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
        Ok(Self::Spin(SpinEngine {
            decoder: Decoder::new(limits)?,
            duration,
            info,
            metrics,
        }))
    }

    /// Frames to take at once, at most.
    #[must_use]
    pub fn batch(&self) -> usize {
        match self {
            Self::Onnx(engine) => engine.model.batch,
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

    /// Replaces what a panic may have left half-done.
    pub fn recover(&mut self) {
        if let Self::Onnx(engine) = self {
            engine.prepared.clear();
            match Scratch::new(engine.limits) {
                Ok(scratch) => engine.scratch = scratch,
                Err(error) => tracing::error!(%error, "cannot replace a decoder after a panic"),
            }
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
                let times = StageDurations {
                    queue,
                    inference,
                    ..Default::default()
                };
                let model = self.info.name.clone();
                let answer = Answer {
                    size,
                    times,
                    model,
                    ..Answer::default()
                };
                frame.ticket.answer(Outcome::Ok, answer);
            }
            Err(error) => {
                let times = StageDurations {
                    queue,
                    ..Default::default()
                };
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
        let pictures = self.prepared.len();
        if pictures > 0 {
            self.infer(pictures);
        }
    }

    /// Bytes to tensor: decodes and preprocesses into the next free part of the batch.
    fn prepare(&mut self, frame: Taken) {
        let start = clock::now();
        let received = frame.ticket.timing.received;
        let mut times = StageDurations {
            queue: start.saturating_duration_since(received),
            ..Default::default()
        };
        self.metrics.stages.queue.record(times.queue);
        self.metrics
            .decode_bytes
            .increment(frame.picture.data.len() as u64);

        let Scratch {
            decoder,
            preprocessor,
            ..
        } = &mut self.scratch;
        let decoded = match decoder.decode(&frame.picture) {
            Ok(decoded) => decoded,
            Err(error) => {
                times.decode = clock::now().saturating_duration_since(start);
                refuse(frame.ticket, &error, times, &self.metrics);
                return;
            }
        };
        let decode_end = clock::now();
        if decoded.damaged {
            self.metrics.damaged_frames.increment(1);
        }
        let values = self.model.input.values();
        let slot = self.prepared.len() * values;
        let letterbox = preprocessor.run(
            &decoded.pixels,
            (decoded.width, decoded.height),
            &self.model.input,
            &mut self.tensor[slot..slot + values],
        );
        let end = clock::now();
        times.decode = decode_end.saturating_duration_since(start);
        times.preprocess = end.saturating_duration_since(decode_end);
        self.metrics.stages.decode.record(times.decode);
        self.metrics.stages.preprocess.record(times.preprocess);

        // The frame's bytes are let go here; its place among those being computed is kept.
        let (ticket, place) = frame.into_ticket();
        if let Some(ticket) = worth_computing(ticket, end) {
            self.prepared.push(Prepared {
                ticket,
                place: Box::new(place),
                letterbox,
                times,
            });
        }
    }

    /// Tensor to answers.
    fn infer(&mut self, pictures: usize) {
        let start = clock::now();
        let values = self.model.input.values() * pictures;
        let result = self.network.run(&self.tensor[..values], pictures);
        let inference = clock::now().saturating_duration_since(start);
        self.metrics.stages.inference.record(inference);
        self.metrics.batch_frames.record(pictures as f64);
        let shape = self.model.output;
        let expected = shape.anchors * shape.attributes * pictures;
        let output = match result {
            Ok((output, _)) if output.len() == expected => output,
            Ok((output, dims)) => {
                let length = output.len();
                tracing::error!(
                    ?dims,
                    length,
                    expected,
                    "the network's output changed its shape"
                );
                return self.fail("the network's output changed its shape");
            }
            Err(error) => {
                tracing::error!(%error, "a run of the network failed");
                return self.fail(&error.to_string());
            }
        };
        let per_picture = shape.anchors * shape.attributes;
        for (frame, output) in self
            .prepared
            .drain(..)
            .zip(output.chunks_exact(per_picture))
        {
            let start = clock::now();
            let objects = self.scratch.postprocessor.run(
                self.model.family,
                shape,
                output,
                &frame.letterbox,
                &self.model.info.labels,
                &self.options,
            );
            let postprocess = clock::now().saturating_duration_since(start);
            self.metrics.stages.postprocess.record(postprocess);
            self.metrics.detections.increment(objects.len() as u64);
            let times = StageDurations {
                inference,
                postprocess,
                ..frame.times
            };
            let answer = Answer {
                objects,
                size: frame.letterbox.source,
                times,
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
    let answer = Answer {
        times,
        ..Answer::refusal(error.to_string())
    };
    ticket.answer(error.outcome(), answer);
}
