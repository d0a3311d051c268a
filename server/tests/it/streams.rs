//! Streams: ids, order, superseding, budgets, limits, clients that leave or do not read.

use std::{collections::HashMap, time::Duration};

use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
};
use vedette_proto::camera_ai::{DetectRequest, Outcome, ServerInfoRequest};
use vedette_server::settings::Settings;

use crate::common::{Camera, TestServer, channel, connect, encoded, small_jpeg, spin};

#[tokio::test(flavor = "multi_thread")]
async fn ids_are_opaque_and_echoed() {
    let server = TestServer::start(spin(0.0)).await;
    let mut camera = server.camera("ids").await;
    let picture = small_jpeg();
    let random = (0..200_u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let ids: Vec<u64> = [0, 0, 7, 7, u64::MAX, 3, 2, 1].into_iter().chain(random).collect();
    for &id in &ids {
        assert_eq!(camera.detect(id, &picture).await.outcome(), Outcome::Ok);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_answer_for_every_frame_of_a_burst_and_the_newest_is_computed() {
    const FRAMES: u64 = 300;
    let server = TestServer::start(Settings { workers: Some(1), ..spin(5.0) }).await;
    let mut camera = server.camera("burst").await;
    let picture = small_jpeg();
    for id in 0..FRAMES {
        camera.send_picture(id, &picture).await;
    }
    camera.finish();
    let answers = camera.rest().await;
    let mut outcomes = HashMap::new();
    for answer in &answers {
        assert!(outcomes.insert(answer.frame_id, answer.outcome()).is_none(), "answered twice");
    }
    assert_eq!(outcomes.len() as u64, FRAMES);
    assert_eq!(outcomes[&(FRAMES - 1)], Outcome::Ok, "the newest frame is computed");
    let known = |o: &Outcome| matches!(o, Outcome::Ok | Outcome::Superseded);
    assert!(outcomes.values().all(known), "{outcomes:?}");
    assert!(outcomes.values().any(|o| *o == Outcome::Superseded), "5 ms each, sent at once");
    let computed: Vec<_> = answers
        .iter()
        .filter(|answer| answer.outcome() == Outcome::Ok)
        .map(|answer| answer.frame_id)
        .collect();
    assert!(computed.is_sorted(), "computed answers come in the order sent: {computed:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fast_camera_leaves_the_others_their_turn() {
    let server = TestServer::start(Settings { workers: Some(1), ..spin(2.0) }).await;
    let picture = small_jpeg();
    let mut flood = server.camera("flood").await;
    let mut calm = server.camera("calm").await;
    for id in 0..2000 {
        flood.send_picture(id, &picture).await;
        if id % 100 == 0 {
            // Its only frame is never superseded, and never lost, however fast the other sends.
            let answer = calm.detect(id, &picture).await;
            assert_eq!(answer.outcome(), Outcome::Ok, "{}", answer.detail);
        }
    }
    flood.finish();
    assert_eq!(flood.rest().await.len(), 2000);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_whose_budget_is_gone_is_not_computed() {
    let server = TestServer::start(Settings { workers: Some(1), ..spin(1000.0) }).await;
    let picture = small_jpeg();
    let mut busy = server.camera("busy").await;
    let mut hurried = server.camera("hurried").await;
    busy.send_picture(1, &picture).await;
    server.wait_for("vedette_frames_received_total", 1.0).await;
    hurried.send(DetectRequest { budget_ms: 1, ..encoded(9, &picture) }).await;
    let answer = hurried.answer().await;
    assert_eq!(answer.outcome(), Outcome::Expired);
    assert!(answer.detail.contains("over its budget of 1 ms"), "{}", answer.detail);
    assert_eq!(busy.answer().await.outcome(), Outcome::Ok);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_age_of_pictures_is_measured_when_cameras_say_when_they_took_them() {
    let server = TestServer::start(spin(0.0)).await;
    let mut camera = server.camera("dated").await;
    camera.detect(1, &small_jpeg()).await;
    assert!(server.metric("vedette_capture_age_seconds_count") < 0.5, "unknown capture time");
    for capture_time_us in [1, i64::MAX] {
        camera.send(DetectRequest { capture_time_us, ..encoded(2, &small_jpeg()) }).await;
        assert_eq!(camera.answer().await.outcome(), Outcome::Ok);
    }
    server.wait_for("vedette_capture_age_seconds_count", 2.0).await;
    // One from 1970, one from the future, which counts as just taken.
    assert!(server.metric("vedette_capture_age_seconds_bucket{le=\"5\"}") < 1.5);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_camera_after_the_last_place_is_refused_with_the_number() {
    let server = TestServer::start(Settings { max_cameras: Some(2), ..spin(0.0) }).await;
    let mut first = server.camera("one").await;
    let second = server.camera("two").await;
    let refused = Camera::open(&mut server.client().await, "three").await.err().expect("full");
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert!(refused.message().contains("all 2 places"), "{refused}");
    assert!(
        (server.metric("vedette_streams_refused_total{reason=\"max_cameras\"}") - 1.0).abs() < 0.5
    );
    // A place that is left can be taken again.
    drop(second);
    server.wait_for("vedette_streams", 1.0).await;
    let mut third = server.camera("three").await;
    for camera in [&mut first, &mut third] {
        assert_eq!(camera.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_camera_id_is_refused_and_none_is_given_one() {
    let server = TestServer::start(spin(0.0)).await;
    let refused =
        Camera::open(&mut server.client().await, "front door").await.err().expect("space");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(refused.message().contains("camera-id"), "{refused}");
    assert_eq!(server.camera("").await.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_a_client_that_left_are_dropped_and_counted() {
    let server = TestServer::start(Settings { workers: Some(1), ..spin(500.0) }).await;
    let camera = server.camera("leaver").await;
    for id in 0..3 {
        camera.send_picture(id, &small_jpeg()).await;
    }
    server.wait_for("vedette_frames_received_total", 3.0).await;
    drop(camera);
    server.wait_for("vedette_streams", 0.0).await;
    // The worker is free for the next camera.
    assert_eq!(server.camera("next").await.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    assert!(server.metric("vedette_frames_total{outcome=\"client_gone\"}") >= 1.0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_no_answers_is_not_read_from_and_hurts_nobody() {
    let server = TestServer::start(spin(0.0)).await;
    let picture = small_jpeg();
    // A runtime of its own, so that the client can vanish with its connection.
    let elsewhere = tokio::runtime::Runtime::new().expect("a runtime");
    let (addr, frame) = (server.addr, picture.clone());
    let feeding = elsewhere.spawn(async move {
        let deaf = Camera::open(&mut connect(addr).await, "deaf").await.expect("accepted");
        for id in 0.. {
            deaf.send_picture(id, &frame).await;
        }
    });
    // Far more than its connection's windows and the server's bounded queue take in.
    server.wait_for("vedette_streams", 1.0).await;
    let mut before = u64::MAX;
    while server.frames().0 != before || before == 0 {
        before = server.frames().0;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(!feeding.is_finished(), "the endless feed cannot end");
    assert_eq!(server.camera("calm").await.detect(1, &picture).await.outcome(), Outcome::Ok);
    elsewhere.shutdown_background();
    server.wait_for("vedette_streams", 0.0).await;
    let (received, ended) = server.frames();
    assert_eq!(received, ended);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_picture_by_a_unary_call() {
    let server = TestServer::start(spin(0.0)).await;
    let mut client = server.client().await;
    let answer = client.detect(encoded(42, &small_jpeg())).await.expect("answered").into_inner();
    assert_eq!((answer.frame_id, answer.outcome()), (42, Outcome::Ok));
    assert_eq!((answer.image_width, answer.image_height), (64, 48));
    let answer = client.detect(encoded(43, b"junk")).await.expect("answered").into_inner();
    assert_eq!((answer.frame_id, answer.outcome()), (43, Outcome::BadImage));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_says_what_it_is() {
    let server = TestServer::start(Settings { max_cameras: Some(5), ..spin(3.0) }).await;
    let mut client = server.client().await;
    let info = client.get_server_info(ServerInfoRequest {}).await.expect("answered").into_inner();
    assert_eq!(info.version, env!("CARGO_PKG_VERSION"));
    assert_eq!((info.backend.as_str(), info.max_cameras, info.workers), ("spin", 5, 2));
    client.detect(encoded(1, &small_jpeg())).await.expect("answered");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_is_off_unless_asked_for() {
    for (asked, expected) in [(None, tonic::Code::Unimplemented), (Some(true), tonic::Code::Ok)] {
        let server = TestServer::start(Settings { reflection: asked, ..spin(0.0) }).await;
        let mut client = ServerReflectionClient::new(channel(server.addr).await);
        let request = tokio_stream::iter([ServerReflectionRequest::default()]);
        let code = client
            .server_reflection_info(request)
            .await
            .map_or_else(|status| status.code(), |_| tonic::Code::Ok);
        assert_eq!(code, expected);
        server.camera("x").await.detect(1, &small_jpeg()).await;
        server.stop().await;
    }
}
