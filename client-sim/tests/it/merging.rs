//! Reports of parts of a fleet, merged: the same as that of the whole.

use std::fs;

use client_sim::report::{
    merge::{Options, Part, merge},
    schema::{HeartbeatFigures, PerServerFigures, ReconnectFigures, Report, Verdict},
};
use proptest::prelude::*;

use crate::samples::{self, START_UNIX_MS, Story, easy, stalling};

/// Width of a bucket of a latency histogram, as a share of its values.
const LATENCY_RESOLUTION: f64 = 1e-3;

fn merged(reports: &[Report], allow_disjoint: bool) -> Result<Report, String> {
    let names = ["a.json", "b.json", "c.json", "d.json"];
    let parts: Vec<Part<'_>> =
        reports.iter().zip(names).map(|(report, name)| Part { name, report }).collect();
    merge(&parts, &Options { allow_disjoint, ..Options::default() })
}

/// Cuts a fleet into parts, and holds their merged report against the whole's.
fn check(story: &Story, cuts: &[u32]) {
    let whole = story.report();
    let mut edges = vec![0];
    edges.extend(cuts);
    edges.push(whole.cameras);
    let parts: Vec<Report> = edges.windows(2).map(|pair| story.part(pair[0]..pair[1])).collect();
    let merged = merged(&parts, false).unwrap();
    assert_eq!(merged.tally, whole.tally);
    assert_eq!((merged.cameras, merged.over_slo), (whole.cameras, whole.over_slo));
    assert_eq!(merged.histogram_us, whole.histogram_us);
    let close = |a: Option<f64>, b: Option<f64>| match (a, b) {
        // A mean of means that were rounded to a microsecond.
        (Some(a), Some(b)) => (a - b).abs() <= 0.0021,
        (a, b) => a == b,
    };
    let (a, b) = (&merged.figures, &whole.figures);
    assert_eq!((a.max_ms, a.min_ms), (b.max_ms, b.min_ms));
    assert_eq!((a.p50_ms, a.p95_ms, a.p99_ms), (b.p50_ms, b.p95_ms, b.p99_ms));
    assert!(close(a.mean_ms, b.mean_ms), "{a:?} {b:?}");
    assert_eq!(merged.percentiles, whole.percentiles);
    assert_eq!(merged.per_camera, whole.per_camera);
    assert_eq!((merged.verdict, &merged.reasons), (whole.verdict, &whole.reasons));
    assert_eq!(merged.stream_ends, whole.stream_ends);
    assert_eq!(merged.reconnects.count, whole.reconnects.count);
    let mean = |report: &Report| report.reconnects.gap_mean_ms;
    assert!(close(mean(&merged), mean(&whole)));
    let exact = |report: &Report| ReconnectFigures { gap_mean_ms: None, ..report.reconnects };
    assert_eq!(exact(&merged), exact(&whole));
    check_servers(&merged, &whole);
    assert_eq!(merged.warmup, whole.warmup);
    let (a, b) = (&merged.timeline, &whole.timeline);
    assert_eq!((&a.ok, &a.not_ok, &a.unanswered), (&b.ok, &b.not_ok, &b.unanswered));
    assert_eq!(a.max_ms, b.max_ms);
    for (part, exact) in a.p99_ms.iter().zip(&b.p99_ms) {
        // The largest of the parts' is an upper bound.
        assert!(part >= exact || close(*part, *exact), "{part:?} {exact:?}");
    }
    for (part, exact) in a.stages_mean_us.iter().zip(&b.stages_mean_us) {
        assert_eq!(part.is_some(), exact.is_some());
        let (Some(part), Some(exact)) = (part, exact) else { continue };
        assert!((part.inference - exact.inference).abs() <= 1.5);
        assert!((part.total - exact.total).abs() <= 1.5);
    }
}

/// Counts and extremes of servers are exact; the largest of the parts' percentiles is an upper bound, but for
/// the width of a histogram's bucket: no percentile is told above its own part's largest value.
fn check_servers(merged: &Report, whole: &Report) {
    assert_eq!((&merged.addr, &merged.balance), (&whole.addr, &whole.balance));
    assert_eq!(merged.servers.len(), whole.servers.len());
    for (part, exact) in merged.servers.iter().zip(&whole.servers) {
        let (a, b) = (&part.figures, &exact.figures);
        let bound = a.p99_ms.map(|ms| ms * (1.0 + LATENCY_RESOLUTION));
        assert!(bound >= b.p99_ms, "{part:?} {exact:?}");
        assert_eq!((a.max_ms, a.min_ms), (b.max_ms, b.min_ms));
        let counts = |server: &PerServerFigures| PerServerFigures {
            figures: exact.figures,
            ..server.clone()
        };
        assert_eq!(counts(part), *exact);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn parts_make_the_whole(
        cameras in 2u32..9,
        seconds in 1u64..5,
        seed in 0u64..1000,
        cuts in prop::collection::btree_set(1u32..9, 1..3),
    ) {
        let story = Story { seed, ..Story::new(cameras, seconds) };
        let cuts: Vec<u32> = cuts.into_iter().filter(|cut| *cut < cameras).collect();
        check(&story, &cuts);
    }
}

#[test]
fn parts_with_drops_and_reconnects_make_the_whole() {
    let story =
        Story { server: stalling, breaks: vec![(1, 3.0, 1.1), (4, 5.0, 0.7)], ..Story::new(6, 30) };
    check(&story, &[2, 4]);
    // On two servers one camera goes to the first one, the other to the second.
    let story = Story { servers: 2, ..story };
    assert_eq!(story.report().reconnects.moves, 2);
    check(&story, &[2, 4]);
}

#[test]
fn parts_that_began_at_different_times_are_laid_beside_each_other() {
    let first = Story::new(2, 5).report();
    let mut second = Story::new(2, 5).report();
    second.started_unix_ms += 1_960;
    for camera in &mut second.per_camera {
        camera.bins_missed[0] = 7;
    }
    let whole = merged(&[second.clone(), first.clone()], false).unwrap();
    assert_eq!(whole.started_unix_ms, START_UNIX_MS);
    assert_eq!(whole.timeline.ok, [20, 20, 40, 40, 40, 20, 20]);
    assert!((whole.seconds - 7.0).abs() < 1e-9);
    assert_eq!(whole.timeline.max_ms[6], second.timeline.max_ms[4]);
    let names: Vec<&str> = whole.per_camera.iter().map(|camera| &*camera.camera_id).collect();
    assert_eq!(names, ["sim-0001@1", "sim-0002@1", "sim-0001@2", "sim-0002@2"]);
    assert_eq!(whole.per_camera[0].bins_missed, [0, 0, 7, 0, 0, 0, 0]);
    assert_eq!(whole.per_camera[2].bins_missed, [0; 7]);
    assert_eq!(whole.groups.len(), 1);
    assert_eq!(whole.groups[0].cameras, 4);
}

#[test]
fn what_does_not_fit_together_is_refused_in_one_line() {
    let base = || Story::new(1, 2).report();
    let changed = |change: fn(&mut Report)| {
        let mut report = base();
        change(&mut report);
        report
    };
    for (other, part) in [
        (
            changed(|r| r.slo_max_ms = 50.0),
            "a.json and b.json differ in their slo_max_ms: 100 and 50",
        ),
        (changed(|r| r.min_answered_ratio = 0.9), "min_answered_ratio"),
        (changed(|r| r.timeline.bin_seconds = 2.0), "length of bins: 1 s and 2 s"),
        (changed(|r| r.server.as_mut().unwrap().model = "x".into()), "differ in their server"),
        (changed(|r| r.histogram_us = "?".into()), "b.json: histogram_us"),
        (changed(|r| r.tally.ok += 1), "holds 20 answers and the report 21"),
        (changed(|r| r.started_unix_ms += 60_000), "b.json began 58 s after a.json had ended"),
    ] {
        let why = merged(&[base(), other], false).unwrap_err();
        assert!(why.contains(part) && why.lines().count() == 1, "{why}");
    }
    let later = changed(|r| r.started_unix_ms += 60_000);
    let whole = merged(&[base(), later], true).unwrap();
    assert_eq!(whole.timeline.ok.len(), 62);
    let far = changed(|r| r.started_unix_ms += 1_000_000_000_000);
    assert!(merged(&[base(), far], true).unwrap_err().contains("bins apart"));
    assert!(merged(&[], false).is_err());
}

#[test]
fn a_part_that_says_nothing_makes_the_whole_say_nothing() {
    let good = Story::new(2, 4).report();
    let bad = Story { wake_late_ms: 130.0, server: easy, ..Story::new(2, 4) }.report();
    assert_eq!((good.verdict, bad.verdict), (Verdict::Pass, Verdict::Invalid));
    let whole = merged(&[good, bad], false).unwrap();
    assert_eq!(whole.verdict, Verdict::Invalid);
    assert!(whole.reasons[0].starts_with("b.json is INVALID: the simulator itself"));
}

#[test]
fn groups_of_a_name_are_one_when_they_are_alike() {
    let story = |name, fps| Story { groups: vec![(name, 2, fps)], ..Story::new(0, 3) };
    let [gate, mut also_gate, fast_gate, roof] =
        [("gate", 10.0), ("gate", 10.0), ("gate", 20.0), ("roof", 10.0)]
            .map(|(name, fps)| story(name, fps).report());
    // Two processes play two seeds; the same report twice is a mistake.
    also_gate.seed += 1;
    let whole = merged(&[gate, also_gate, fast_gate, roof], false).unwrap();
    let groups: Vec<_> =
        whole.groups.iter().map(|group| (group.name.as_str(), group.cameras)).collect();
    assert_eq!(groups, [("gate", 4), ("gate@3", 2), ("roof", 2)]);
    let of: Vec<&str> = whole.per_camera.iter().map(|camera| camera.group.as_str()).collect();
    assert_eq!(of, ["gate", "gate", "gate", "gate", "gate@3", "gate@3", "roof", "roof"]);
    assert!((whole.fps - 12.5).abs() < 1e-9);
}

#[test]
fn servers_of_parts_are_added_by_address_and_laid_beside_each_other_in_time() {
    let one = Story { servers: 2, ..Story::new(4, 5) }.report();
    let mut other = Story { servers: 3, seed: 2, ..Story::new(3, 5) }.report();
    other.started_unix_ms += 2_000;
    other.balance = Some("failover".to_owned());
    // A report of a version that told no servers.
    let older = Report { servers: Vec::new(), balance: None, ..Story::new(1, 5).report() };
    let whole = merged(&[one.clone(), other.clone(), older], false).unwrap();
    let servers: Vec<_> =
        whole.servers.iter().map(|server| (server.addr.as_str(), server.cameras)).collect();
    assert_eq!(servers, [("10.20.0.7:50051", 3), ("10.20.0.8:50051", 3), ("10.20.0.9:50051", 1)]);
    assert_eq!(whole.balance.as_deref(), Some("mixed"));
    let (first, last) = (&whole.servers[0], &whole.servers[2]);
    assert_eq!(first.bins_ok, [20, 20, 30, 30, 30, 10, 10]);
    assert_eq!(last.bins_ok, [0, 0, 10, 10, 10, 10, 10]);
    assert_eq!(first.tally.ok, one.servers[0].tally.ok + other.servers[0].tally.ok);
}

#[test]
fn heartbeats_add_up_and_a_part_may_have_had_none() {
    let story = Story::new(6, 5);
    let mut parts = [story.part(0..2), story.part(2..4), story.part(4..6)];
    assert_eq!(merged(&parts, false).unwrap().heartbeats, None);
    let beats = |every_seconds, sent, answered, taken_for_frames| {
        Some(HeartbeatFigures { every_seconds, sent, answered, taken_for_frames })
    };
    (parts[0].heartbeats, parts[2].heartbeats) = (beats(2.0, 5, 4, 1), beats(3.0, 6, 6, 0));
    assert_eq!(merged(&parts, false).unwrap().heartbeats, beats(3.0, 11, 10, 1));
}

#[test]
fn the_command_line_judges_the_whole_and_merges_logs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let client = |args: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_client-sim")).args(args).output().unwrap()
    };
    let story = Story::new(4, 3);
    let failing =
        Story { server: |frame| easy(frame).filter(|_| frame.camera > 0), ..story.clone() };
    let (a, b, bad) = (path("a.json"), path("b.json"), path("bad.json"));
    for (path, report) in
        [(&a, story.part(0..2)), (&b, story.part(2..4)), (&bad, failing.part(0..2))]
    {
        fs::write(path, serde_json::to_string(&report).unwrap()).unwrap();
    }
    let whole = path("whole.json");
    let (page, hdr) = (path("whole.html"), path("whole.hdr"));
    let output = client(&["merge", &a, &b, "--json", &whole, "--html", &page, "--hdr", &hdr]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Report = serde_json::from_str(&fs::read_to_string(&whole).unwrap()).unwrap();
    assert_eq!(report.tally, story.report().tally);
    assert_eq!(client(&["merge", &bad, &b]).status.code(), Some(1));
    assert_eq!(client(&["merge", &a, "/no/such.json"]).status.code(), Some(2));

    // Logs of the parts make the log of the whole.
    let logs = [path("a.hdr"), path("b.hdr")];
    for (report, log) in [&a, &b].into_iter().zip(&logs) {
        assert_eq!(client(&["report", report, "--hdr", log]).status.code(), Some(0));
    }
    let merged = path("merged.hlog");
    let output = client(&["merge", &logs[0], &logs[1], "--hdr", &merged]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(fs::read_to_string(&merged).unwrap(), fs::read_to_string(&hdr).unwrap());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(&format!("{} answers in 3 s", report.tally.ok)), "{text}");
}

#[test]
fn a_merged_report_has_a_page() {
    let same = merged(&[samples::failing(), samples::failing()], false).unwrap_err();
    assert!(same.ends_with("are the same report"), "{same}");
    let thinned = Report { per_camera: Vec::new(), seed: 98, ..samples::failing() };
    let thinned = merged(&[samples::failing(), thinned], false).unwrap_err();
    assert!(thinned.ends_with("its cameras do not add up to its totals"), "{thinned}");
    let other = Report { seed: 99, ..samples::failing() };
    let whole = merged(&[samples::failing(), other], false).unwrap();
    let page = client_sim::report::html::render(&client_sim::report::html::Document::Run(&whole));
    assert!(page.contains("64 cameras") && page.contains("sim-0001@2"));
}
