//! Traces as a collector gets them.

use std::{net::SocketAddr, sync::Arc};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    trace::v1::Span,
};
use tokio::{net::TcpListener, sync::Mutex};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status};
use vedette_proto::CAMERA_ID_KEY;
use vedette_server::settings::Settings;

use crate::{
    common::{TestServer, bytes, cells, encoded, spin},
    lifecycle::free_addr,
};

const TRACE: [u8; 16] = *b"sixteen bytes!!!";
const PARENT: [u8; 8] = *b"8 bytes!";

/// A collector that keeps what it gets.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans;
        let scopes = resources.into_iter().flat_map(|resource| resource.scope_spans);
        self.spans.lock().await.extend(scopes.flat_map(|scope| scope.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start() -> (Self, SocketAddr) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let addr = listener.local_addr().expect("an address");
        let service = TraceServiceServer::new(collector.clone());
        let serving = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        (collector, addr)
    }
}

fn traced(settings: Settings, collector: SocketAddr, ratio: f64) -> Settings {
    let otlp_endpoint = Some(format!("http://{collector}"));
    Settings { otlp_endpoint, otlp_ratio: Some(ratio), ..settings }
}

/// Sends so many pictures on a stream that names a trace.
async fn send(server: &TestServer, frames: u64, sampled: bool) {
    let picture = bytes("base_640x360.jpg");
    let (sender, queue) = tokio::sync::mpsc::channel(1);
    let mut request = Request::new(ReceiverStream::new(queue));
    let metadata = request.metadata_mut();
    let flags = u8::from(sampled);
    let (trace, parent) = (u128::from_be_bytes(TRACE), u64::from_be_bytes(PARENT));
    let parent = format!("00-{trace:032x}-{parent:016x}-{flags:02x}");
    metadata.insert("traceparent", parent.parse().expect("ASCII"));
    metadata.insert(CAMERA_ID_KEY, "gate".parse().expect("ASCII"));
    let mut client = server.client().await;
    let mut answers = client.detect_stream(request).await.expect("accepted").into_inner();
    for id in 0..frames {
        sender.send(encoded(id, &picture)).await.expect("open");
        answers.message().await.expect("no status").expect("an answer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_goes_on_the_trace_of_its_call() {
    let (collector, addr) = Collector::start().await;
    let server = TestServer::start(traced(cells("cells_v8.onnx"), addr, 1.0)).await;
    send(&server, 3, true).await;
    server.stop().await;
    let spans = collector.spans.lock().await;
    let frames: Vec<_> = spans.iter().filter(|span| span.name == "frame").collect();
    assert_eq!(frames.len(), 3, "{spans:?}");
    for frame in frames {
        assert_eq!((&frame.trace_id[..], &frame.parent_span_id[..]), (&TRACE[..], &PARENT[..]));
        let keys: Vec<_> = frame.attributes.iter().map(|pair| pair.key.as_str()).collect();
        assert!(keys.contains(&"vedette.camera") && keys.contains(&"vedette.width"), "{keys:?}");
        let stages: Vec<_> =
            spans.iter().filter(|span| span.parent_span_id == frame.span_id).collect();
        let names: Vec<_> = stages.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["queue", "decode", "preprocess", "inference", "postprocess"]);
        for stage in stages {
            assert_eq!(stage.trace_id, frame.trace_id);
            assert!(stage.start_time_unix_nano >= frame.start_time_unix_nano);
            // To the microsecond to which the wall clock is read.
            assert!(stage.end_time_unix_nano <= frame.end_time_unix_nano + 1000, "{stage:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_of_frames_is_traced_and_none_that_its_client_does_not_want() {
    let (collector, addr) = Collector::start().await;
    let server = TestServer::start(traced(spin(0.0), addr, 0.25)).await;
    send(&server, 40, true).await;
    send(&server, 40, false).await;
    server.stop().await;
    let spans = collector.spans.lock().await;
    let frames = spans.iter().filter(|span| span.name == "frame").count();
    assert!((8..=12).contains(&frames), "{frames} of 40 at a share of a quarter");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_costs_nothing_but_traces() {
    let server = TestServer::start(traced(spin(0.0), free_addr(), 1.0)).await;
    send(&server, 20, true).await;
    assert!((server.metric("vedette_frames_total{outcome=\"ok\"}") - 20.0).abs() < 0.5);
    server.stop().await;
}

#[test]
fn an_endpoint_is_an_address() {
    for wrong in ["collector", "https://collector:4317", "http://collector"] {
        let otlp_endpoint = Some(wrong.to_owned());
        let error = Settings { otlp_endpoint, ..spin(1.0) }.check().expect_err(wrong).0;
        assert!(error.starts_with("otlp_endpoint: "), "{error}");
    }
}
