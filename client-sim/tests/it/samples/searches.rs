//! Capacity searches that never took place.

use client_sim::{
    random::{hash, unit},
    report::{
        capacity::{
            CapacityReport, CostFigures, FleetCost, KIND_CAPACITY, Limiting, StepFigures, StepRun,
        },
        schema::{SCHEMA_VERSION, Verdict},
    },
};

use super::{START_UNIX_MS, machine, passing};

/// A capacity search on one machine, with prices.
pub(crate) fn capacity() -> CapacityReport {
    capacity_of(186.0, 3)
}

/// A search whose server is used up near a number of cameras.
pub(crate) fn capacity_of(knee: f64, seed: u64) -> CapacityReport {
    let tried = [
        (25, "grow"),
        (50, "grow"),
        (100, "grow"),
        (200, "grow"),
        (400, "grow"),
        (150, "bisect"),
        (175, "bisect"),
        (187, "bisect"),
        (181, "bisect"),
        (184, "confirm"),
    ];
    let steps: Vec<StepFigures> = tried
        .into_iter()
        .map(|(cameras, phase)| {
            let runs: Vec<StepRun> =
                (0..3).map(|repeat| step_run(cameras, repeat, knee, seed)).collect();
            let passed = runs.iter().filter(|run| run.verdict == Verdict::Pass).count() > 1;
            StepFigures { cameras, phase: phase.to_owned(), passed, runs }
        })
        .collect();
    let all = |step: &StepFigures, verdict| step.runs.iter().all(|run| run.verdict == verdict);
    let found = steps.iter().filter(|step| step.passed).map(|step| step.cameras).max();
    let passed = steps.iter().filter(|step| all(step, Verdict::Pass));
    let sure = passed.map(|step| step.cameras).max();
    let failed = steps.iter().filter(|step| all(step, Verdict::Fail));
    let refuted = failed.map(|step| step.cameras).min();
    let run = passing();
    CapacityReport {
        schema_version: SCHEMA_VERSION,
        kind: KIND_CAPACITY.to_owned(),
        client_version: run.client_version,
        arguments: ["capacity", "--addr", "127.0.0.1:50051", "--price", "c7a.4xlarge=0.82112"]
            .map(str::to_owned)
            .into(),
        started_unix_ms: START_UNIX_MS,
        elapsed_seconds: 1043.0,
        machine: machine(),
        addr: "127.0.0.1:50051".to_owned(),
        same_machine: true,
        server: run.server,
        fps: 10.0,
        phases: "random".to_owned(),
        ramp_cameras: None,
        ramp_every_ms: None,
        connections: None,
        pictures: run.groups[0].pictures.clone(),
        seconds: 20.0,
        warmup_seconds: 3.0,
        repeats: 3,
        slo_max_ms: 100.0,
        slo_percentiles: Vec::new(),
        min_answered_ratio: 1.0,
        found,
        sure,
        refuted,
        complete: true,
        ended_by: "slo".to_owned(),
        limiting: Limiting {
            resource: "machine-cpu".to_owned(),
            why: "at 187 cameras server 13.9 and simulator 1.7 of 16 cores; the server's workers \
                  were busy 97 % of the time"
                .to_owned(),
        },
        steps,
        self_test: run.simulator.self_test,
        cost: cost(found.unwrap_or(0)),
    }
}

fn step_run(cameras: u32, repeat: u64, knee: f64, seed: u64) -> StepRun {
    let luck = |use_| unit(hash(seed, u64::from(cameras) << 8 | repeat, use_));
    let load = f64::from(cameras) / knee;
    let sent = u64::from(cameras) * 200;
    let queue = 14.0 / (1.04 - load.min(1.0)).max(0.02);
    let over = (load - 1.0).max(0.0);
    let max = 26.0 + queue * 0.2 * (0.8 + 0.5 * luck(1)) + over * 900.0 + 6.0 * luck(2);
    let ok = sent - (sent as f64 * (over * 0.6).min(0.7)) as u64;
    let verdict = if load > 2.1 && repeat == 2 {
        Verdict::Invalid
    } else if max <= 100.0 && ok == sent {
        Verdict::Pass
    } else {
        Verdict::Fail
    };
    StepRun {
        verdict,
        reasons: (verdict != Verdict::Pass)
            .then(|| match sent - ok {
                0 => format!("slowest answer {max:.1} ms > 100 ms at sim-0042"),
                missed => format!("{missed} frames superseded (worst: sim-0042 with 9)"),
            })
            .into_iter()
            .collect(),
        sent,
        ok,
        p50_ms: Some(22.0 + over * 80.0 + luck(3)),
        p99_ms: Some(max * 0.62),
        max_ms: Some(max),
        cut_short: load > 2.0,
        server_cpu_cores: Some((14.2 * load).min(14.0) + 0.2 * luck(4)),
        server_busy: Some((0.99 * load).min(1.0)),
        simulator_cpu_cores: 0.1 + f64::from(cameras) * 0.0088,
        others_cpu_cores: Some(0.3 + 0.2 * luck(5)),
        sent_mbit_per_s: f64::from(cameras) * 3.83,
        wake_lateness_p99_ms: Some(0.8 + load),
    }
}

fn cost(found: u32) -> Vec<CostFigures> {
    let of = |instance: &str, price: f64, measured: bool, cameras: u32| {
        let fleets = (1..=5)
            .map(|instances| {
                let spare = (instances - 1) * cameras;
                let month = price * 730.0 * f64::from(instances);
                FleetCost {
                    instances,
                    cameras: instances * cameras,
                    cameras_n_plus_1: spare,
                    month,
                    per_camera_month_n_plus_1: (spare > 0).then(|| month / f64::from(spare)),
                }
            })
            .collect();
        CostFigures {
            instance: instance.to_owned(),
            price_per_hour: price,
            currency: "USD".to_owned(),
            source: if measured { String::new() } else { "price list, 2026-03-01".to_owned() },
            measured,
            cameras,
            per_camera_month: price * 730.0 / f64::from(cameras.max(1)),
            fleets,
        }
    };
    vec![of("c7a.4xlarge", 0.82112, true, found), of("c7a.8xlarge", 1.64224, false, 2 * found)]
}
