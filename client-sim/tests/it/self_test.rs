//! Whether a run can tell a slow server from a slow simulator.

use std::{
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    cli::{client, code, serving, stderr, stdout},
    fake::{Act, fake},
    run::{OK, run_against},
};
use client_sim::{
    config::{RunConfig, SelfTest},
    report::schema::Verdict,
};

/// Far above what a busy machine makes of a quick answer, and below [`SLOW`].
const LIMIT: Duration = Duration::from_millis(1500);
const SLOW: Duration = Duration::from_secs(2);

fn slow_for(when: SelfTest) -> impl FnOnce(&mut RunConfig) {
    move |config| (config.slo.max, config.self_test) = (LIMIT, when)
}

#[tokio::test]
async fn a_slow_server_fails_and_the_simulator_alone_would_not_have() {
    let server = fake(|_, k| if k == 5 { Act::Stall(SLOW) } else { OK });
    let report = run_against(&server, slow_for(SelfTest::OnFail)).await;
    assert_eq!(report.verdict, Verdict::Fail, "{:?}", report.reasons);
    assert!(report.reasons[0].starts_with("slowest answer "), "{:?}", report.reasons);
    let test = report.simulator.self_test.as_ref().unwrap();
    assert_eq!((test.cameras, test.sent, test.ok), (4, 100, 100));
    assert!(test.max_ms.unwrap() <= 1500.0 && test.p99_ms <= test.max_ms, "{test:?}");
    assert!(test.cpu_cores > 0.0);
    assert!(report.table(false).contains("\nself-test 4 cameras against a server that answers"));
    assert_eq!(server.seen.lock().unwrap()["sim-0001"].len(), 25, "it has its own server");
}

#[tokio::test]
async fn the_self_test_runs_when_it_is_asked_for() {
    for (when, slow, tested) in [
        (SelfTest::OnFail, false, false),
        (SelfTest::Always, false, true),
        (SelfTest::Never, true, false),
    ] {
        let script = move |_: &str, k| if slow && k == 5 { Act::Stall(SLOW) } else { OK };
        let report = run_against(&fake(script), slow_for(when)).await;
        assert_eq!(report.simulator.self_test.is_some(), tested, "{when:?}, slow: {slow}");
        assert_eq!(report.passed(), !slow);
    }
    // Frames that are lost say nothing about the simulator's speed.
    let lossy =
        fake(
            |_, k| {
                if k == 3 { Act::Answer(vedette_proto::camera_ai::Outcome::Internal) } else { OK }
            },
        );
    let report = run_against(&lossy, slow_for(SelfTest::OnFail)).await;
    assert!(!report.passed() && report.simulator.self_test.is_none());
}

/// A process that gets to run for a quarter of the time: stopped for 150 ms, running for 50.
struct Stuttering(Child);

const STOPPED: Duration = Duration::from_millis(150);
const RUNNING: Duration = Duration::from_millis(50);

impl Stuttering {
    fn play_to_end(&mut self) -> ExitStatus {
        loop {
            // It is not waited for yet, so the number is still its own.
            self.signal(Signal::STOP);
            thread::sleep(STOPPED);
            self.signal(Signal::CONT);
            thread::sleep(RUNNING);
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Stuttering {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_simulator_that_is_slow_itself_gives_no_verdict_on_the_server() {
    let (_runtime, addr) = serving(&fake(|_, _| OK));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.json");
    let mut args = vec!["run", "--addr", &addr, "--cameras", "2", "--fps", "20", "--seconds", "2"];
    args.extend(["--warmup", "0.5", "--size", "64x48", "--quiet", "--drain-seconds", "20"]);
    args.extend(["--connect-seconds", "60", "--json", file.to_str().unwrap()]);
    let child = Command::new(env!("CARGO_BIN_EXE_client-sim"))
        .args(args)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let status = Stuttering(child).play_to_end();
    assert_eq!(status.code(), Some(2));
    let text = std::fs::read_to_string(&file).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["verdict"], "INVALID");
    let reason = report["reasons"][0].as_str().unwrap();
    assert!(reason.starts_with("the simulator itself was late: "), "{reason}");
    assert!(report["simulator"]["wake_lateness_ms"]["p99"].as_f64().unwrap() > 25.0);
    assert_eq!((&report["sent"], &report["lost"]), (&80.into(), &0.into()));
}

#[test]
fn selftest_prints_what_the_simulator_costs() {
    let args = ["selftest", "--cameras", "3", "--fps", "20", "--seconds", "0.5", "--warmup", "0.1"];
    let more = ["--size", "64x48", "--slo-max-ms", "60000", "--connections", "2"];
    let output = client(&[&args[..], &more].concat());
    let text = stdout(&output);
    assert_eq!(code(&output), 0, "{text}{}", stderr(&output));
    assert!(
        text.starts_with("load      3 cameras x 20 fps for 0.5 s, 2 connections for all, 1 thr")
    );
    assert!(text.contains("frames    sent 30, ok 30\n") && text.contains("us per frame"), "{text}");
    assert!(
        text.trim_end().lines().last().unwrap().starts_with("HOLDS: slowest answer "),
        "{text}"
    );

    let output = client(&[&args[..], &more, &["--json", "-"]].concat());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["kind"], &report["holds"]), (&"selftest".into(), &true.into()));
    assert_eq!((&report["sent"], &report["ok"]), (&30.into(), &30.into()));
    assert!(report["estimated_cameras"].as_u64().unwrap() >= 3);
    for name in ["p50_ms", "p99_ms", "max_ms", "cpu_cores", "cpu_us_per_frame", "machine"] {
        assert!(!report[name].is_null(), "{name} is missing");
    }
}

#[test]
fn a_limit_that_the_simulator_does_not_hold_exits_2() {
    let args = ["selftest", "--seconds", "0.3", "--warmup", "0", "--size", "64x48"];
    let output = client(&[&args[..], &["--slo-max-ms", "0.001"]].concat());
    assert_eq!(code(&output), 2);
    let text = stdout(&output);
    let last = text.trim_end().lines().last().unwrap();
    assert!(last.starts_with("DOES NOT HOLD ("), "{text}");
}
