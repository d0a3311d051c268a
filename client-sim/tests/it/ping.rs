//! Calls one after the other: what is counted, and what is compared.

use std::{num::NonZeroU32, sync::atomic::Ordering::Relaxed, time::Duration};

use crate::{
    cli::{client, code, serving, stderr, stdout},
    fake::{Act, Fake, fake},
    run::OK,
};
use client_sim::{
    config::{Credentials, Mode, Payload, PingConfig, PingServer, Sharing, Target},
    ping::ping,
    report::ping::PingReport,
};
use vedette_proto::camera_ai::Outcome;

fn config(server: PingServer) -> PingConfig {
    let count = |n| NonZeroU32::new(n).unwrap();
    PingConfig {
        server,
        modes: vec![Mode::Unary, Mode::Stream],
        payload: Payload::Filler(vec![0, 3000]),
        in_flight: vec![count(1), count(3)],
        sharings: vec![Sharing::One, Sharing::PerWorker, Sharing::Several(count(2))],
        seconds: Duration::from_millis(300),
        warmup: Duration::from_millis(50),
        delay: None,
        threads: 1,
        json: None,
        quiet: true,
    }
}

async fn at(server: &Fake) -> PingServer {
    let addr = server.start().await.into();
    let (connect, credentials) = (Duration::from_mins(1), Credentials::default());
    PingServer::At(Target { addr, connect, credentials })
}

fn check(report: &PingReport) {
    for point in &report.points {
        assert!(point.calls > 0 && point.not_ok <= point.calls, "{point:?}");
        assert!((point.calls_per_second - point.calls as f64 / report.seconds).abs() < 1e-6);
        let megabytes = point.calls_per_second * point.payload_bytes as f64 / 1e6;
        assert!((point.megabytes_per_second - megabytes).abs() < 1e-6);
        let latency = &point.latency;
        assert!(latency.p50_ms.is_some() && latency.p50_ms <= latency.p99_ms);
        assert!(latency.p99_ms <= latency.max_ms);
    }
}

#[tokio::test]
async fn every_combination_is_a_point_and_compared_with_one_connection() {
    let mut config = config(PingServer::Null(1));
    config.modes.truncate(1);
    let report = ping(&config).await.unwrap();
    check(&report);
    let points: Vec<_> = report
        .points
        .iter()
        .map(|point| (&*point.mode, point.payload_bytes, point.in_flight, &*point.sharing))
        .collect();
    let mut expected = Vec::new();
    for bytes in [0, 3000] {
        for in_flight in [1, 3] {
            expected.extend(["one", "per-worker", "2"].map(|s| ("unary", bytes, in_flight, s)));
        }
    }
    assert_eq!(points, expected);
    let connections: Vec<_> = report.points.iter().take(6).map(|point| point.connections).collect();
    assert_eq!(connections, [1, 1, 1, 1, 3, 2]);
    for three in report.points.chunks(3) {
        assert_eq!(three[0].ratio_to_one, Some(1.0));
        assert!(three.iter().all(|point| point.ratio_to_one > Some(0.0) && point.not_ok == 0));
    }
    assert_eq!((&*report.addr, report.server_threads), ("null", Some(1)));
    assert_eq!(report.server.unwrap().model, "null");
}

#[tokio::test]
async fn any_server_may_answer_and_each_worker_waits_for_its_answers() {
    let server = fake(|_, _| Act::Answer(Outcome::BadImage));
    let mut config = config(at(&server).await);
    (config.modes, config.payload) = (vec![Mode::Stream], Payload::Filler(vec![1000]));
    let report = ping(&config).await.unwrap();
    check(&report);
    assert!(report.points.iter().all(|point| point.not_ok == point.calls));
    // Those of the points, and one that asks the server what it is.
    let opened: u32 = report.points.iter().map(|point| point.connections).sum();
    assert_eq!(server.accepted.load(Relaxed), 1 + opened as usize);
    let seen = server.seen.lock().unwrap();
    let mut workers: Vec<_> = seen.keys().map(String::as_str).collect();
    workers.sort_unstable();
    assert_eq!(workers, ["ping-1", "ping-2", "ping-3"]);
    let counted: u64 = report.points.iter().map(|point| point.calls).sum();
    assert!(seen.values().map(Vec::len).sum::<usize>() as u64 >= counted);
    let frames = || seen.values().flatten();
    assert!(frames().all(|frame| frame.image_data.len() == 1000));
    assert!(image::load_from_memory(&frames().next().unwrap().image_data).is_err());
}

#[tokio::test]
async fn a_delay_is_in_every_call() {
    let mut config = config(PingServer::Null(1));
    (config.delay, config.payload) = (Some(Duration::from_millis(20)), Payload::Filler(vec![500]));
    config.in_flight.truncate(1);
    let report = ping(&config).await.unwrap();
    check(&report);
    assert_eq!(report.delay_ms, Some(20.0));
    assert!(report.points.iter().all(|point| point.latency.min_ms.unwrap() >= 20.0));
}

#[tokio::test]
async fn a_call_that_fails_ends_the_measurement() {
    let server = fake(|_, k| if k < 3 { OK } else { Act::Break(tonic::Code::Internal, "burnt") });
    let mut config = config(at(&server).await);
    config.modes = vec![Mode::Stream];
    let line = ping(&config).await.unwrap_err().to_string();
    assert!(line.starts_with("no answer from 127.0.0.1:"), "{line}");
    assert!(line.ends_with(": INTERNAL: burnt"), "{line}");
}

#[test]
fn ping_prints_a_table_and_json() {
    let args = ["ping", "--in-flight", "1,2", "--seconds", "0.3", "--warmup", "0"];
    let more = ["--payload-bytes", "100", "--threads", "1", "--server-threads", "2"];
    let output = client(&[&args[..], &more].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let (text, progress) = (stdout(&output), stderr(&output));
    assert!(text.starts_with("server    in this process, 2 threads, answers at once\n"), "{text}");
    assert!(text.contains("\nunary, 100 bytes\nin flight  connections "), "{text}");
    assert!(text.trim_end().lines().last().unwrap().starts_with("unary, 100 bytes: a connection "));
    assert!(
        progress.starts_with("4 points of 0.3 s, about 1 s together\n[1/4] unary, 100 bytes, ")
    );
    assert_eq!(progress.lines().count(), 1 + 4, "{progress}");

    let (_runtime, addr) = serving(&fake(|_, _| OK));
    let more = ["--addr", &addr, "--mode", "stream", "--size", "64x48", "--quiet", "--json", "-"];
    let output = client(&[&args[..], &more].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["kind"], &report["addr"]), (&"ping".into(), &addr.as_str().into()));
    assert_eq!(report["points"].as_array().unwrap().len(), 4);
    assert_eq!(report["points"][0]["mode"], "stream");
    for name in ["calls", "p50_ms", "max_ms", "cpu_cores", "ratio_to_one", "megabytes_per_second"] {
        assert!(!report["points"][3][name].is_null(), "{name} is missing");
    }
    assert!(stderr(&output).starts_with(&format!("server    {addr}\n")));
}

#[test]
fn mistakes_are_one_line() {
    for (args, part) in [
        (&["--in-flight", "0"][..], "write numbers from 1 to 10000"),
        (&["--in-flight", "1,,2"], "write numbers from 1 to 10000"),
        (&["--connections", "all"], "write one, per-worker or a number"),
        (&["--payload-bytes", "99999999999"], "write numbers from 0 to "),
        (&["--payload-bytes", "5", "--images", "."], "cannot be used with"),
        (&["--mode", "both"], "unary"),
        (&["--token-file", "x"], "--token-file: the built-in server, --addr null, takes none"),
        (&["--addr", "nul"], "cannot reach nul:50051"),
        (&["--addr", "a:b"], "--addr a:b: write HOST:PORT"),
        (&["--addr", "a:1", "--server-threads", "2"], "--server-threads: is of the built-in"),
        (&["--addr", "https://a:1", "--delay-ms", "5"], "--delay-ms: its proxy has no certificate"),
        (&["--images", "/no/such"], "cannot read the folder /no/such"),
        (&["--json", "/no/such/x.json"], "cannot write /no/such/x.json"),
    ] {
        let output = client(&[&["ping", "--connect-seconds", "0.2"], args].concat());
        let line = stderr(&output);
        assert_eq!(code(&output), 2, "{args:?}: {line}");
        assert!(line.contains(part) && line.trim_end().lines().count() == 1, "{args:?}: {line}");
    }
}
