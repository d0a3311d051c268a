//! More than there is room for: frames are shed one by one, with their reason, and streams live on.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http_body_util::StreamBody;
use tokio::{sync::mpsc::Sender, task::JoinHandle};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tonic::{Code, Status, body::Body, codegen::Service as _, transport::Channel};
use vedette_proto::camera_ai::{DetectRequest, Outcome};
use vedette_server::{limits::RESERVED_AT_ONCE, settings::Settings};

use crate::common::{Camera, TestServer, channel, encoded, small_jpeg, spin};

/// Room for three of the large frames below, and for one message of the largest size.
fn tight() -> Settings {
    Settings {
        workers: Some(1),
        max_frame_bytes: Some(100_000),
        frame_memory_bytes: Some(280_000),
        ..spin(40.0)
    }
}

/// A picture of so many bytes.
fn large(bytes: usize) -> Vec<u8> {
    let mut picture = small_jpeg();
    picture.resize(bytes, 0);
    picture
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_beyond_the_memory_are_shed_with_their_ids_and_the_number() {
    let server = TestServer::start(tight()).await;
    let picture = large(90_000);
    let mut cameras = Vec::new();
    for number in 0..6 {
        cameras.push(server.camera(&format!("cam-{number}")).await);
    }
    for round in 0..3 {
        for camera in &cameras {
            camera.send_picture(round, &picture).await;
        }
    }
    let mut outcomes = Vec::new();
    for camera in &mut cameras {
        camera.finish();
        let mut answers = camera.rest().await;
        answers.sort_by_key(|answer| answer.frame_id);
        assert_eq!(answers.iter().map(|a| a.frame_id).collect::<Vec<_>>(), [0, 1, 2]);
        for answer in answers {
            if answer.outcome() == Outcome::Overloaded {
                let detail = &answer.detail;
                assert!(detail.starts_with("MEMORY: ") && detail.contains("280000"), "{detail}");
            }
            outcomes.push(answer.outcome());
        }
    }
    let count = |outcome| outcomes.iter().filter(|&&o| o == outcome).count();
    assert!(count(Outcome::Overloaded) > 0 && count(Outcome::Ok) > 0, "{outcomes:?}");

    // Room again: the next frame is computed.
    server.wait_for("vedette_frame_memory_bytes", 0.0).await;
    let answer = server.camera("later").await.detect(9, &picture).await;
    assert_eq!(answer.outcome(), Outcome::Ok, "{}", answer.detail);
    server.stop().await;
}

/// What a client that vanishes in the middle of a message held is free again.
#[tokio::test(flavor = "multi_thread")]
async fn half_a_message_holds_room_only_as_long_as_its_stream() {
    let server = TestServer::start(tight()).await;
    let mut camera = server.camera("good").await;
    camera.detect(1, &small_jpeg()).await;
    let (body, answers) = start_message(server.addr, STREAM, 200_000).await;
    body.send(Bytes::from(vec![0; 199_000])).await.expect("open");
    server.wait_for("vedette_frame_memory_bytes", 200_000.0).await;
    // Not even the largest frame fits beside it.
    let answer = camera.detect(2, &large(90_000)).await;
    assert_eq!(answer.outcome(), Outcome::Overloaded);
    drop(body);
    answers.await.expect("no panic").expect_err("half a message");
    server.wait_for("vedette_frame_memory_bytes", 0.0).await;
    assert_eq!(camera.detect(3, &large(90_000)).await.outcome(), Outcome::Ok);
    server.stop().await;
}

/// What is announced and not sent takes no room from those who send.
#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_reserves_next_to_nothing() {
    let server = TestServer::start(tight()).await;
    let _first = start_message(server.addr, STREAM, 200_000).await;
    let _second = start_message(server.addr, SINGLE, 200_000).await;
    let reserved = 2.0 * f64::from(RESERVED_AT_ONCE);
    server.wait_for("vedette_frame_memory_bytes", reserved).await;
    let mut camera = server.camera("good").await;
    assert_eq!(camera.detect(1, &large(90_000)).await.outcome(), Outcome::Ok);
    server.stop().await;
}

/// A message behind the one that a call may have would be held for nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_call_with_a_second_message_ends() {
    let server = TestServer::start(tight()).await;
    for method in [SINGLE, "GetServerInfo"] {
        let (body, answers) = start_message(server.addr, method, 0).await;
        let flood =
            tokio::spawn(
                async move { while body.send(Bytes::from_static(&[0; 500])).await.is_ok() {} },
            );
        let status = answers.await.expect("no panic").expect_err("more than one");
        assert_eq!(status.code(), Code::InvalidArgument, "{method}: {status}");
        assert!(status.message().contains("one message"), "{status}");
        flood.await.expect("no panic");
    }
    assert_eq!(server.camera("good").await.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.stop().await;
}

/// Single calls have no place among the cameras while their message arrives, so they are counted apart.
#[tokio::test(flavor = "multi_thread")]
async fn no_more_calls_arrive_than_cameras_may() {
    let settings = Settings { max_cameras: Some(2), message_seconds: Some(2), ..tight() };
    let server = TestServer::start(settings).await;
    let (_one, first) = start_message(server.addr, SINGLE, 10).await;
    let (_two, second) = start_call(server.addr, SINGLE).await;
    let mut client = server.client().await;
    let refused = loop {
        match client.detect(encoded(1, &small_jpeg())).await {
            // The two are still on their way.
            Ok(_) => tokio::task::yield_now().await,
            Err(status) => break status,
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("max-cameras"), "{refused}");
    // Streams have places of their own.
    assert_eq!(server.camera("good").await.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    for call in [first, second] {
        let status = call.await.expect("no panic").expect_err("half a message");
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    }
    let answer = client.detect(encoded(2, &small_jpeg())).await.expect("room again").into_inner();
    assert_eq!(answer.outcome(), Outcome::Ok);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_never_ends_is_not_waited_for() {
    let settings = Settings { message_seconds: Some(1), ..tight() };
    let server = TestServer::start(settings).await;
    let mut camera = server.camera("good").await;
    let (body, answers) = start_message(server.addr, STREAM, 200_000).await;
    let dripping = tokio::spawn(async move {
        while body.send(Bytes::from_static(&[0])).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let status = answers.await.expect("no panic").expect_err("too slow");
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(status.message().contains("message-seconds"), "{status}");
    dripping.abort();
    server.wait_for("vedette_frame_memory_bytes", 0.0).await;
    // A stream on which nothing has begun may be silent for longer than that.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(camera.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.stop().await;
}

/// Methods with many messages and with one.
const STREAM: &str = "DetectStream";
const SINGLE: &str = "Detect";

/// As [`start_call`], with the beginning of a message of so many bytes.
async fn start_message(addr: SocketAddr, method: &str, bytes: u32) -> (Sender<Bytes>, Call) {
    let (body, call) = start_call(addr, method).await;
    let [a, b, c, d] = bytes.to_be_bytes();
    body.send(Bytes::copy_from_slice(&[0, a, b, c, d])).await.expect("open");
    (body, call)
}

/// What becomes of a call.
type Call = JoinHandle<Result<(), Status>>;

/// Calls a method. Returns its body and what becomes of the call.
async fn start_call(addr: SocketAddr, method: &str) -> (Sender<Bytes>, Call) {
    let (body, pieces) = tokio::sync::mpsc::channel::<Bytes>(4);
    let frames =
        ReceiverStream::new(pieces).map(|piece| Ok::<_, Infallible>(http_body::Frame::data(piece)));
    let request = http::Request::post(format!("http://{addr}/camera_ai.ObjectDetection/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(StreamBody::new(frames)))
        .expect("a request");
    let mut channel: Channel = channel(addr).await;
    let answers = tokio::spawn(async move {
        std::future::poll_fn(|cx| channel.poll_ready(cx))
            .await
            .map_err(|error| Status::from_error(error.into()))?;
        let response =
            channel.call(request).await.map_err(|error| Status::from_error(error.into()))?;
        if let Some(status) = Status::from_header_map(response.headers()) {
            return Err(status);
        }
        let collected = http_body_util::BodyExt::collect(response.into_body()).await?;
        match collected.trailers().and_then(Status::from_header_map) {
            Some(status) if status.code() != Code::Ok => Err(status),
            _ => Ok(()),
        }
    });
    (body, answers)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_of_life_is_answered_at_once_and_costs_no_place() {
    let server = TestServer::start(Settings { workers: Some(1), ..spin(60.0) }).await;
    let mut camera = server.camera("quiet").await;
    let heartbeat =
        |frame_id| DetectRequest { frame_id, heartbeat: true, ..DetectRequest::default() };
    camera.send_picture(1, &small_jpeg()).await;
    camera.send_picture(2, &small_jpeg()).await;
    camera.send(heartbeat(u64::MAX)).await;
    let mut answers = Vec::new();
    for _ in 0..3 {
        let answer = camera.answer().await;
        answers.push((answer.frame_id, answer.outcome()));
    }
    assert!(answers.contains(&(u64::MAX, Outcome::Heartbeat)), "{answers:?}");
    // The frame that waited, or was being computed, was not replaced by it.
    assert!(answers.contains(&(2, Outcome::Ok)), "{answers:?}");
    let mut client = server.client().await;
    let answer = client.detect(heartbeat(7)).await.expect("answered").into_inner();
    assert_eq!((answer.frame_id, answer.outcome()), (7, Outcome::Heartbeat));
    server.wait_for("vedette_frames_total{outcome=\"heartbeat\"}", 2.0).await;
    // With a picture it is a sign of life all the same.
    let both = DetectRequest { heartbeat: true, ..encoded(8, &small_jpeg()) };
    camera.send(both).await;
    assert_eq!(camera.answer().await.outcome(), Outcome::Heartbeat);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shed_call_is_answered_like_a_shed_frame() {
    let server = TestServer::start(tight()).await;
    let (body, _answers) = start_message(server.addr, STREAM, 250_000).await;
    body.send(Bytes::from(vec![0; 249_000])).await.expect("open");
    server.wait_for("vedette_frame_memory_bytes", 250_000.0).await;
    let mut client = server.client().await;
    let answer = client.detect(encoded(5, &large(90_000))).await.expect("answered").into_inner();
    assert_eq!((answer.frame_id, answer.outcome()), (5, Outcome::Overloaded));
    let camera: Camera = server.camera("small").await;
    drop(camera);
    server.stop().await;
}
