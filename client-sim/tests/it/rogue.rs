//! Clients that break the rules, and the cameras beside them.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use crate::{
    fake::{Act, Fake, fake},
    run::{OK, run_against},
};
use client_sim::{
    config::{Behaviour, Rogue},
    report::schema::{Report, RogueFigures},
};
use vedette_proto::camera_ai::Outcome;

/// A server that finds no picture in what a rogue sends, if that is garbage.
fn server(behaviour: Behaviour) -> Fake {
    fake(move |camera, _| {
        let garbage = behaviour == Behaviour::Garbage && camera.starts_with("rogue-");
        if garbage { Act::Answer(Outcome::BadImage) } else { OK }
    })
}

async fn beside(server: &Fake, rogue: Rogue) -> (Report, RogueFigures) {
    let report = run_against(server, |config| config.scenario.rogues = vec![rogue]).await;
    let figures = report.rogues[0].clone();
    (report, figures)
}

fn two(behaviour: Behaviour) -> Rogue {
    Rogue { behaviour, clients: 2, arrive: Duration::ZERO, leave: None }
}

#[tokio::test]
async fn cameras_beside_rogues_keep_their_books_apart() {
    for behaviour in Behaviour::ALL {
        let server = server(behaviour);
        let (report, figures) = beside(&server, two(behaviour)).await;
        assert!(report.passed(), "{behaviour:?}: {:?}", report.reasons);
        assert_eq!((report.tally.sent, report.tally.ok), (100, 100), "{behaviour:?}");
        assert_eq!(report.per_camera.len(), 4);
        assert!(report.per_camera.iter().all(|camera| camera.camera_id.starts_with("sim-")));
        assert_eq!((figures.behaviour, figures.clients), (behaviour, 2));
        assert!(figures.streams >= 2 && figures.sent >= 2, "{figures:?}");
        let name = format!("rogue     2 clients ({}): ", behaviour.name());
        assert!(report.table(false).contains(&name));
    }
}

#[tokio::test]
async fn a_flood_sends_far_more_than_a_camera() {
    let (_, figures) = beside(&server(Behaviour::Flood), two(Behaviour::Flood)).await;
    assert_eq!(figures.streams, 2);
    assert!(figures.sent > 100 && figures.ok > 100, "{figures:?}");
}

#[tokio::test]
async fn who_never_reads_takes_one_answer_at_most() {
    let (_, figures) = beside(&server(Behaviour::NeverReads), two(Behaviour::NeverReads)).await;
    assert_eq!(figures.streams, 2);
    assert!(figures.answered <= 2 && figures.sent > figures.answered, "{figures:?}");
}

#[tokio::test]
async fn garbage_is_no_picture_and_looks_like_one_half_the_time() {
    let server = server(Behaviour::Garbage);
    let (_, figures) = beside(&server, two(Behaviour::Garbage)).await;
    assert!(figures.answered > 0, "{figures:?}");
    assert_eq!(figures.ok, 0);
    let seen = server.seen.lock().unwrap();
    let frames = &seen["rogue-1"];
    assert!(frames[0].image_data.starts_with(&[0xFF, 0xD8, 0xFF]));
    assert!(!frames[1].image_data.starts_with(&[0xFF, 0xD8, 0xFF]));
    assert!(frames.iter().all(|frame| image::load_from_memory(&frame.image_data).is_err()));
}

#[tokio::test]
async fn a_flapping_client_opens_a_connection_for_each_frame() {
    let server = server(Behaviour::Flapping);
    let (_, figures) = beside(&server, two(Behaviour::Flapping)).await;
    assert!(figures.streams > 4, "{figures:?}");
    assert!(figures.sent <= figures.streams, "{figures:?}");
    // Those of the four cameras, and one that asks what the server is.
    let theirs = server.accepted.load(Relaxed) as u64 - 4 - 1;
    // At the end each client may have been about to open another one.
    assert!((figures.streams..=figures.streams + 2).contains(&theirs), "{theirs}: {figures:?}");
}

#[tokio::test]
async fn rogues_come_and_go_when_the_scenario_says() {
    let never = Rogue { arrive: Duration::from_hours(1), ..two(Behaviour::Flood) };
    let (_, figures) = beside(&server(Behaviour::Flood), never).await;
    assert_eq!((figures.streams, figures.sent), (0, 0));
    let at_once = Rogue { leave: Some(Duration::ZERO), ..two(Behaviour::Flapping) };
    let (_, figures) = beside(&server(Behaviour::Flapping), at_once).await;
    assert!(figures.streams <= 2, "{figures:?}");
}

#[tokio::test]
async fn rogues_outlast_a_server_that_throws_them_out() {
    let server = fake(|camera, _| match camera {
        "rogue-1" | "rogue-2" => Act::Break(tonic::Code::ResourceExhausted, "enough"),
        _ => OK,
    });
    let (report, figures) = beside(&server, two(Behaviour::Flood)).await;
    assert!(report.passed(), "{:?}", report.reasons);
    assert!(figures.streams > 2 && figures.answered == 0, "{figures:?}");
}
