//! The search for the largest fleet, as the real binary does it. No limit here depends on time: a fake server
//! fails some cameras of a fleet and answers the others.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use client_sim::report::capacity::CapacityReport;
use tokio::runtime::Runtime;
use vedette_proto::camera_ai::Outcome;

use crate::fake::{Act, Fake, fake};

/// A server that holds so many cameras: the frames of any more are not answered OK.
fn holding(cameras: usize) -> Fake {
    fake(move |camera, _| {
        let number: usize = camera.trim_start_matches("sim-").parse().unwrap();
        Act::Answer(if number > cameras { Outcome::Expired } else { Outcome::Ok })
    })
}

/// It serves while the returned runtime lives.
fn serving(server: &Fake) -> (Runtime, String) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let addr = runtime.block_on(server.start());
    (runtime, addr.to_string())
}

/// A port on which nobody listens.
fn nowhere() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn search(addr: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_client-sim"));
    command.args(["capacity", "--addr", addr, "--fps", "20", "--size", "64x48"]);
    command.args(["--slo-max-ms", "60000", "--connect-seconds", "60"]);
    for (flag, value) in [("--seconds", "0.3"), ("--warmup", "0"), ("--max-cameras", "64")] {
        if !more.contains(&flag) {
            command.args([flag, value]);
        }
    }
    if !more.contains(&"--admin") {
        command.args(["--admin", &nowhere()]);
    }
    command.args(more);
    command
}

fn output(addr: &str, more: &[&str]) -> Output {
    search(addr, more).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The report on standard output.
fn report(output: &Output) -> CapacityReport {
    let message = text(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {message}"))
}

/// The numbers of cameras tried, in order.
fn tried(report: &CapacityReport) -> Vec<u32> {
    report.steps.iter().map(|step| step.cameras).collect()
}

#[test]
fn the_largest_fleet_is_found_confirmed_and_told() {
    let (_runtime, addr) = serving(&holding(5));
    let file = tempfile::NamedTempFile::new().unwrap();
    let json = file.path().to_str().unwrap();
    let output = output(&addr, &["--json", json, "--price-per-hour", "0.1", "--currency", "EUR"]);
    let (table, plan) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(code(&output), 0, "{plan}");
    assert!(plan.starts_with("plan: from 1 camera to at most 64, doubling"), "{plan}");
    assert!(plan.contains("\ntime: ") && plan.contains("no metrics of the server at "), "{plan}");
    assert!(plan.contains("5 cameras: PASS, slowest answer "), "{plan}");
    for part in [
        "capacity  5 cameras at 20 fps hold 60000 ms, arrival phase even (5 held in every run, 6 in none)",
        "limited   unknown: at 6 cameras; the simulator used ",
        "cost      this server: 5 cameras (measured), 0.1 EUR an hour: 14.60 EUR a camera and month",
    ] {
        assert!(table.contains(part), "{part} in {table}");
    }
    let report: CapacityReport = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!((report.kind.as_str(), report.found), ("capacity", Some(5)));
    assert_eq!((report.sure, report.refuted), (Some(5), Some(6)));
    assert_eq!((report.complete, report.ended_by.as_str()), (true, "slo"));
    assert!(report.same_machine && report.elapsed_seconds > 0.0);
    assert_eq!(tried(&report), [1, 2, 4, 8, 6, 5, 5, 6]);
    assert!(
        report.steps.iter().all(|step| step.runs.len() == 2 && step.passed == (step.cameras <= 5))
    );
    assert_eq!(report.cost[0].fleets.len(), 4);
}

#[test]
fn a_run_that_cannot_pass_is_cut_short_and_failed() {
    let (_runtime, addr) = serving(&holding(0));
    let output = output(&addr, &["--seconds", "600", "--json", "-"]);
    let report = report(&output);
    assert_eq!((code(&output), report.found), (1, Some(0)));
    assert!(text(&output.stderr).contains("capacity  not even 1 camera at 20 fps"));
    let runs: Vec<_> = report.steps.iter().flat_map(|step| &step.runs).collect();
    assert_eq!(runs.len(), 4);
    for run in runs {
        assert!(run.cut_short && run.sent > 0 && run.ok == 0, "{run:?}");
        assert!(run.reasons.iter().any(|reason| reason.contains("expired")), "{run:?}");
        assert!(!run.reasons.iter().any(|reason| reason.contains("interrupted")), "{run:?}");
    }
}

#[test]
fn no_limit_is_a_result_and_too_few_cameras_an_exit_code() {
    let (_runtime, addr) = serving(&holding(3));
    let few = |more: &[&str]| {
        let args =
            [&["--max-cameras", "2", "--from", "2", "--quiet", "--json", "-"], more].concat();
        output(&addr, &args)
    };
    let output = few(&[]);
    let report = report(&output);
    assert_eq!((code(&output), report.found, report.refuted), (0, Some(2), None));
    assert_eq!((tried(&report), report.ended_by.as_str()), (vec![2, 2], "max-cameras"));
    assert_eq!(report.limiting.resource, "unknown");
    assert_eq!(code(&few(&["--expect", "2"])), 0);
    assert_eq!(code(&few(&["--expect", "3"])), 1);
}

#[test]
fn each_arrival_phase_has_a_search_of_its_own() {
    let (_runtime, addr) = serving(&holding(1));
    let output = output(&addr, &["--phases", "aligned,ramp", "--quiet", "--json", "-"]);
    assert_eq!(code(&output), 0);
    let reports: Vec<CapacityReport> = serde_json::from_slice(&output.stdout).unwrap();
    let told: Vec<_> =
        reports.iter().map(|report| (report.phases.as_str(), report.found)).collect();
    assert_eq!(told, [("aligned", Some(1)), ("ramp", Some(1))]);
    let table = text(&output.stderr);
    assert!(table.contains("cameras by arrival phase\nphase      cameras"), "{table}");
    assert!(table.contains("\naligned          1       1        2  unknown"), "{table}");
}

/// Waits until a search has written the result of a run to its state.
fn begun(child: &mut Child, state: &Path) {
    while !fs::read_to_string(state).unwrap_or_default().contains("\"verdict\"") {
        assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
        thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(unix)]
#[test]
fn a_search_that_was_interrupted_goes_on_where_it_was() {
    let (_runtime, addr) = serving(&holding(5));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.json");
    let state = path.to_str().unwrap();
    let args = ["--state", state, "--json", "-"];
    let mut child =
        search(&addr, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    begun(&mut child, &path);
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let first = child.wait_with_output().unwrap();
    let before = report(&first);
    assert_eq!(code(&first), 130);
    assert_eq!((before.complete, before.ended_by.as_str()), (false, "interrupted"));

    let other = output(&addr, &["--state", state, "--seconds", "0.4"]);
    let line = text(&other.stderr);
    assert_eq!(code(&other), 2);
    assert!(line.contains("--seconds was 300ms, now it is 400ms; give the same flags"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");

    let second = output(&addr, &args);
    let after = report(&second);
    assert_eq!((code(&second), after.found), (0, Some(5)));
    assert_eq!(tried(&after), [1, 2, 4, 8, 6, 5, 5, 6]);
    assert_eq!(after.started_unix_ms, before.started_unix_ms);
    assert_eq!(after.steps[0].runs[0], before.steps[0].runs[0]);
    assert!(!path.exists(), "a finished search leaves no state behind");
}

#[test]
fn a_file_that_is_no_state_is_left_alone() {
    let (_runtime, addr) = serving(&holding(1));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "my notes").unwrap();
    let output = output(&addr, &["--state", file.path().to_str().unwrap()]);
    let line = text(&output.stderr);
    assert!(
        line.contains("not a state file of this version") && line.lines().count() == 1,
        "{line}"
    );
    assert_eq!((code(&output), fs::read_to_string(file.path()).unwrap()), (2, "my notes".into()));
}

#[test]
fn time_that_is_up_ends_a_search_with_what_is_known() {
    let (_runtime, addr) = serving(&holding(5));
    let output = output(&addr, &["--max-minutes", "0.001", "--quiet", "--json", "-"]);
    let report = report(&output);
    assert_eq!((code(&output), report.found, report.complete), (2, None, false));
    assert_eq!(report.ended_by, "time");
    assert!(text(&output.stderr).contains("capacity  not known; not finished"));
}

#[test]
fn a_server_that_goes_away_is_told_after_what_is_known() {
    let (runtime, addr) = serving(&holding(5));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.json");
    let args = ["--state", path.to_str().unwrap(), "--connect-seconds", "0.3"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_client-sim"));
    command.args(["capacity", "--addr", &addr, "--size", "64x48", "--seconds", "0.5", "--quiet"]);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    begun(&mut child, &path);
    runtime.shutdown_background();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 2);
    assert!(text(&output.stdout).contains("capacity  "));
    let said = text(&output.stderr);
    assert!(said.contains(&format!("cannot reach {addr}")), "{said}");
    assert!(path.exists(), "the search can be continued");
}

/// Serves `/metrics` to one client after another; `page` makes the page of the n-th question.
fn metrics(page: impl Fn(u64) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for (n, stream) in (0..).zip(listener.incoming()) {
            let Ok(mut stream) = stream else { return };
            let mut question = [0; 1024];
            let read = stream.read(&mut question).unwrap_or(0);
            let known = question[..read].starts_with(b"GET /metrics HTTP/1.1\r\n");
            let (status, page) =
                if known { ("200 OK", page(n)) } else { ("404 Not Found", String::new()) };
            let length = page.len();
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{page}");
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    addr
}

#[test]
fn the_server_s_own_figures_tell_what_limits_it() {
    let (_runtime, addr) = serving(&holding(1));
    let admin = metrics(|n| {
        format!(
            "vedette_workers 3\nprocess_cpu_seconds_total {n}\n\
             vedette_frames_total{{outcome=\"ok\"}} {n}\n\
             vedette_stage_seconds_sum{{stage=\"inference\"}} {n}00\n\
             vedette_stage_seconds_sum{{stage=\"decode\"}} 0\n"
        )
    });
    let output = output(&addr, &["--admin", &admin, "--quiet", "--json", "-"]);
    let report = report(&output);
    for run in report.steps.iter().flat_map(|step| &step.runs) {
        assert_eq!(run.server_busy, Some(1.0));
        assert!(run.server_cpu_cores.unwrap() > 0.0);
    }
    assert!(["server-cpu", "machine-cpu"].contains(&report.limiting.resource.as_str()));
    let part = "at 2 cameras the server's workers were busy 100 % of the time and used ";
    assert!(report.limiting.why.starts_with(part), "{}", report.limiting.why);
}

#[test]
fn figures_of_another_server_are_not_taken() {
    let (_runtime, addr) = serving(&holding(1));
    let admin = metrics(|n| {
        format!("process_cpu_seconds_total {n}\nvedette_frames_total{{outcome=\"ok\"}} 7\n")
    });
    let output = output(&addr, &["--admin", &admin, "--quiet", "--json", "-"]);
    let report = report(&output);
    assert!(report.steps.iter().flat_map(|s| &s.runs).all(|run| run.server_cpu_cores.is_none()));
    assert!(report.limiting.why.contains("it is another server; see --admin"));
}

#[test]
fn instances_are_priced_and_shipped_prices_say_so() {
    let (_runtime, addr) = serving(&holding(2));
    let small = ["--max-cameras", "2", "--from", "2", "--quiet"];
    let output = |more: &[&str]| output(&addr, &[&small, more].concat());
    let shipped = output(&["--instance", "c7i.large", "--max-instances", "2"]);
    let table = text(&shipped.stdout);
    assert_eq!(code(&shipped), 0, "{}", text(&shipped.stderr));
    assert!(
        table.contains("cost      c7i.large: 2 cameras (measured), 0.08925 USD an hour"),
        "{table}"
    );
    assert!(table.contains("cost      c7i.xlarge: 4 cameras (scaled, not measured)"), "{table}");
    assert!(table.trim_end().ends_with("from memory and change; check them before use"), "{table}");

    let printed = Command::new(env!("CARGO_BIN_EXE_client-sim"))
        .args(["capacity", "--print-instances"])
        .output()
        .unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let own = text(&printed.stdout).replace("from memory; check before use", "looked up by me");
    fs::write(file.path(), own.replace("\"2025-01\"", "\"2026-02-03\"")).unwrap();
    let path = file.path().to_str().unwrap();
    let table = text(&output(&["--instance", "c7i.large", "--instances", path]).stdout);
    assert!(table.contains("looked up by me, 2026-02-03") && !table.contains("note "), "{table}");

    let could_not = |more: &[&str], part: &str| {
        let output = output(more);
        let line = text(&output.stderr);
        assert_eq!((code(&output), line.lines().count()), (2, 1), "{line}");
        assert!(line.contains(part), "{line}");
    };
    could_not(
        &["--instance", "c7i.lrage"],
        "--instance c7i.lrage: not in the list; it has c7i.large",
    );
    could_not(&["--instances", "/no/such/file"], "cannot read /no/such/file");
    fs::write(file.path(), "[[instance]]\nname = \"a\"\ncpus = 2\n").unwrap();
    could_not(&["--instances", path], "line 3: unknown field `cpus`");
    could_not(&["--json", "/no/such/folder/report.json"], "cannot write /no/such/folder");
    could_not(&["--state", "/no/such/folder/state"], "cannot write /no/such/folder/state");
    could_not(&["--form", "2"], "did you mean --from?");
}
