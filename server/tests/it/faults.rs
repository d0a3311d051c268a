//! Things that must not happen, made to happen: panics in each stage, and a network that hangs.

use std::time::Duration;

use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use vedette_proto::camera_ai::Outcome;
use vedette_server::{
    error::ServeError,
    faults::{Faults, Stage},
    settings::Settings,
};

use crate::common::{
    SQUARES, TestServer, assert_squares, bytes, cells, channel, get, small_jpeg, spin, wait_until,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_any_stage_costs_its_frame_and_nothing_else() {
    for stage in [Stage::Decode, Stage::Inference, Stage::Postprocess] {
        let settings = Settings { workers: Some(1), ..cells("cells_v8.onnx") };
        let server = TestServer::start_faulty(settings, Faults::Panic(stage, 2)).await;
        let picture = bytes("base_640x360.jpg");
        let (mut camera, mut other) = (server.camera("one").await, server.camera("other").await);
        for round in 0..3 {
            let answer = camera.detect(round, &picture).await;
            assert_squares(&answer, &SQUARES, 2);
            let answer = other.detect(round, &picture).await;
            assert_eq!(answer.outcome(), Outcome::Internal, "{stage:?}");
            assert!(answer.objects.is_empty() && !answer.detail.is_empty());
        }
        server.wait_for("vedette_worker_panics_total", 3.0).await;
        server.wait_for("vedette_frames_total{outcome=\"internal\"}", 3.0).await;
        drop((camera, other));
        server.stop().await;
    }
}

/// A server whose 20th frame hangs for so long, and a camera that has just sent it.
async fn hanging(
    seconds: u64,
    exit: u64,
) -> (TestServer, crate::common::Camera, HealthClient<tonic::transport::Channel>) {
    let settings = Settings {
        workers: Some(1),
        stuck_seconds: Some(1),
        stuck_exit_seconds: Some(exit),
        grace_seconds: Some(1),
        ..spin(0.0)
    };
    let faults = Faults::Hang(Duration::from_secs(seconds));
    let server = TestServer::start_faulty(settings, faults).await;
    let mut camera = server.camera("cam").await;
    for id in 1..20 {
        camera.detect(id, &small_jpeg()).await;
    }
    camera.send_picture(20, &small_jpeg()).await;
    let health = HealthClient::new(channel(server.addr).await);
    (server, camera, health)
}

async fn status(
    health: &mut HealthClient<tonic::transport::Channel>,
    service: &str,
) -> ServingStatus {
    let request = HealthCheckRequest { service: service.into() };
    health.check(request).await.expect("answered").into_inner().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_worker_turns_readiness_off_until_it_goes_on() {
    let (server, mut camera, mut health) = hanging(4, 0).await;
    assert_eq!(get(server.admin, "/readyz").0, "HTTP/1.1 200 OK");
    server.wait_for("vedette_ready", 0.0).await;
    for service in ["", "camera_ai.ObjectDetection"] {
        assert_eq!(status(&mut health, service).await, ServingStatus::NotServing);
    }
    let (line, body) = get(server.admin, "/readyz");
    assert_eq!(line, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(body, "a worker is stuck\n");
    assert_eq!(get(server.admin, "/healthz").0, "HTTP/1.1 200 OK", "the process runs");

    assert_eq!(camera.answer().await.frame_id, 20);
    server.wait_for("vedette_ready", 1.0).await;
    let addr = server.admin;
    wait_until(|| get(addr, "/readyz").0 == "HTTP/1.1 200 OK").await;
    assert_eq!(status(&mut health, "").await, ServingStatus::Serving);
    assert_eq!(camera.detect(21, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.wait_for("vedette_workers_stuck_total", 1.0).await;
    drop((camera, health));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stays_stuck_ends_the_server_for_its_supervisor() {
    let (server, mut camera, _health) = hanging(8, 2).await;
    let error = server.ends().await.expect_err("not by itself");
    assert!(matches!(error, ServeError::Stuck { seconds: 2.. }), "{error}");
    assert_eq!(error.exit_code(), 70);
    assert!(error.to_string().contains("stuck-exit-seconds"), "{error}");
    // Its camera is not left without an end.
    let (_, status) = camera.rest_and_status().await;
    assert!(status.is_some());
}
