//! Traces of single frames for OpenTelemetry: a span for the frame, and one for each stage in it.
//!
//! Off unless an endpoint is set. A frame's spans are made once it has been answered, from the times that were
//! taken anyway. Batches wait in a bounded queue for a thread of their own; when the collector is slow or away,
//! spans are dropped, and no frame waits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::HeaderMap;
use opentelemetry::{
    Context, KeyValue,
    propagation::{Extractor, TextMapPropagator},
    trace::{SpanContext, SpanKind, Status, TraceContextExt, Tracer as _, TracerProvider as _},
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{Sampler, SdkTracer, SdkTracerProvider},
};

use super::fleet::STAGES;
use crate::{
    clock,
    config::TraceConfig,
    frame::{CameraId, FrameId, Outcome},
    limits::TRACES_END,
    response::Progress,
};

/// Name of the service, as the collector shows it.
const SERVICE: &str = "vedette-server";

/// The golden ratio's fraction: its multiples are spread evenly over 0 to 1, however many there are.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Where traces go.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    ratio: f64,
    frames: AtomicU64,
}

/// What is told of a frame.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct TracedFrame<'a> {
    pub camera: &'a CameraId,
    pub id: FrameId,
    pub outcome: Outcome,
    pub objects: usize,
    pub detail: &'a str,
    /// From receipt until the answer was handed over, which was just now.
    pub total: Duration,
    pub progress: &'a Progress,
}

impl Traces {
    /// Traces that go to the collector of these settings. It need not be there yet.
    ///
    /// # Errors
    /// When the endpoint is no address.
    pub fn new(config: &TraceConfig) -> Result<Arc<Self>, String> {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(&config.endpoint)
            .build()
            .map_err(|error| error.to_string())?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            // Which frames are traced is decided here, for whole frames.
            .with_sampler(Sampler::AlwaysOn)
            .with_resource(Resource::builder().with_service_name(SERVICE).build())
            .build();
        let tracer = provider.tracer(SERVICE);
        Ok(Arc::new(Self { provider, tracer, ratio: config.ratio, frames: AtomicU64::new(0) }))
    }

    /// Whether the next frame is traced. Evenly spread, whatever the share.
    #[must_use]
    fn takes_next(&self) -> bool {
        let number = self.frames.fetch_add(1, Relaxed);
        (number as f64 * GOLDEN).fract() < self.ratio
    }

    /// Tells of a frame, if it is one of those that are traced. Its client may not want it to be.
    pub fn note(&self, frame: &TracedFrame<'_>, parent: Option<&SpanContext>) {
        if parent.is_some_and(|parent| !parent.is_sampled()) || !self.takes_next() {
            return;
        }
        let context = match parent {
            Some(parent) => Context::new().with_remote_span_context(parent.clone()),
            None => Context::new(),
        };
        let end = UNIX_EPOCH + Duration::from_micros(clock::unix_micros().unsigned_abs());
        let start = end.checked_sub(frame.total).unwrap_or(end);
        let mut attributes = vec![
            KeyValue::new("vedette.camera", frame.camera.to_string()),
            KeyValue::new("vedette.frame_id", frame.id.to_string()),
            KeyValue::new("vedette.outcome", frame.outcome.label()),
            KeyValue::new("vedette.objects", frame.objects as i64),
        ];
        let (width, height) = frame.progress.size;
        if width > 0 {
            attributes.push(KeyValue::new("vedette.width", i64::from(width)));
            attributes.push(KeyValue::new("vedette.height", i64::from(height)));
        }
        let builder = self
            .tracer
            .span_builder("frame")
            .with_kind(SpanKind::Server)
            .with_start_time(start)
            .with_attributes(attributes);
        let span = self.tracer.build_with_context(builder, &context);
        let context = context.with_span(span);
        self.stages(frame.progress, start, &context);
        let span = context.span();
        if frame.outcome == Outcome::Internal {
            span.set_status(Status::error(frame.detail.to_owned()));
        }
        span.end_with_timestamp(end);
    }

    /// A span for each stage that the frame got through, one after the other.
    fn stages(&self, progress: &Progress, start: SystemTime, context: &Context) {
        let Progress { queue, decode, preprocess, inference, postprocess, .. } = *progress;
        let mut at = start;
        let times = [queue, decode, preprocess, inference, postprocess];
        for (name, time) in STAGES.iter().zip(times).filter(|(_, time)| !time.is_zero()) {
            let builder = self.tracer.span_builder(*name).with_start_time(at);
            at += time;
            let span = self.tracer.build_with_context(builder, context);
            Context::new().with_span(span).span().end_with_timestamp(at);
        }
    }

    /// Sends what waits, for a moment. Blocks.
    pub fn end(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(TRACES_END) {
            tracing::debug!(%error, "the last traces were not sent");
        }
    }
}

/// The trace that a call names in its metadata (W3C Trace Context, `traceparent`).
#[must_use]
pub fn parent(headers: &HeaderMap) -> Option<SpanContext> {
    let context =
        TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers));
    Some(context.span().span_context().clone()).filter(SpanContext::is_valid)
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            http::HeaderName::from_static("traceparent"),
            value.parse().expect("a value"),
        )])
    }

    #[test]
    fn a_call_names_its_trace() {
        let parent = parent(&headers(PARENT)).expect("a parent");
        assert_eq!(parent.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.span_id().to_string(), "00f067aa0ba902b7");
        assert!(parent.is_sampled());
    }

    #[test]
    fn what_is_no_trace_is_none() {
        for wrong in ["", "00-0-0-01", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"] {
            assert!(parent(&headers(wrong)).is_none(), "{wrong}");
        }
        assert!(parent(&HeaderMap::new()).is_none());
    }
}
