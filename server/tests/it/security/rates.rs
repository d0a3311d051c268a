//! Frames per second: of a stream, of the calls on a connection, of a token.

use vedette_proto::camera_ai::{DetectResponse, Outcome};
use vedette_server::settings::Settings;

use super::tokens::{TokenFile, entry, with_token};
use crate::common::{Camera, TestServer, encoded, small_jpeg, spin};

const NORTH: &str = "the-secret-of-the-north-0001";

/// Frames per second, so few that a test ends before another one may come.
const RARELY: f64 = 1e-3;

/// Answers to so many frames, each sent after the answer to the one before.
async fn answers(camera: &mut Camera, frames: u64) -> Vec<DetectResponse> {
    let mut answers = Vec::new();
    for id in 0..frames {
        answers.push(camera.detect(id, &small_jpeg()).await);
    }
    answers
}

fn passed(answers: &[DetectResponse], limit: &str) -> usize {
    let (passed, over): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.outcome() == Outcome::Ok);
    for answer in over {
        assert_eq!(answer.outcome(), Outcome::Overloaded, "{answer:?}");
        assert_eq!(answer.detail, limit);
    }
    passed.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_its_rate_and_its_neighbour_its_own() {
    let settings = Settings { max_fps: Some(RARELY), ..spin(0.0) };
    let server = TestServer::start(settings).await;
    let limit = "RATE: over 0.001 frames per second (max-fps)";
    let mut client = server.client().await;
    for name in ["one", "other"] {
        let mut camera = Camera::open(&mut client, name).await.expect("accepted");
        assert_eq!(passed(&answers(&mut camera, 5).await, limit), 1, "{name}");
    }
    assert!((server.metric("vedette_frames_total{outcome=\"overloaded\"}") - 8.0).abs() < 0.5);
    // Calls of one connection are one stream to it.
    let mut calls = Vec::new();
    for id in 0..3 {
        let answer = client.detect(encoded(id, &small_jpeg())).await.expect("answered");
        calls.push(answer.into_inner());
    }
    assert_eq!(passed(&calls, limit), 1);
    let another = server.client().await.detect(encoded(1, &small_jpeg())).await;
    assert_eq!(another.expect("answered").into_inner().outcome(), Outcome::Ok);
    server.stop().await;
}

/// The only worker is busy with a neighbour's frame; the camera's first one waits, and those above the rate do
/// not replace it.
#[tokio::test(flavor = "multi_thread")]
async fn a_frame_above_the_rate_does_not_take_the_waiting_place() {
    let settings = Settings { max_fps: Some(RARELY), workers: Some(1), ..spin(1000.0) };
    let server = TestServer::start(settings).await;
    let (mut neighbour, mut camera) =
        (server.camera("neighbour").await, server.camera("cam").await);
    neighbour.send_picture(0, &small_jpeg()).await;
    server.wait_for("vedette_frames_received_total", 1.0).await;
    for id in 0..6 {
        camera.send_picture(id, &small_jpeg()).await;
    }
    camera.finish();
    let answers = camera.rest().await;
    let of = |id| answers.iter().find(|answer| answer.frame_id == id).expect("answered").outcome();
    assert_eq!(of(0), Outcome::Ok, "it waited");
    assert!((1..6).all(|id| of(id) == Outcome::Overloaded), "{answers:?}");
    assert_eq!(neighbour.answer().await.outcome(), Outcome::Ok);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_s_rate_is_shared_by_its_streams_and_calls() {
    let file = TokenFile::new(&entry("north", NORTH, "max_fps = 0.001"));
    let server = TestServer::start(file.settings()).await;
    let limit = "RATE: over 0.001 frames per second (max_fps of token north)";
    let mut client = server.client().await;
    let mut one = Camera::open_with(&mut client, "one", Some(NORTH)).await.expect("accepted");
    let mut other = Camera::open_with(&mut client, "other", Some(NORTH)).await.expect("accepted");
    assert_eq!(passed(&answers(&mut one, 3).await, limit), 1);
    assert_eq!(passed(&answers(&mut other, 3).await, limit), 0);
    let detect = with_token(encoded(1, &small_jpeg()), Some(NORTH));
    let call = client.detect(detect).await.expect("answered").into_inner();
    assert_eq!(passed(&[call], limit), 0);
    server.stop().await;
}
