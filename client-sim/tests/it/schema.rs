//! The document of the JSON reports names every field.

use std::{collections::BTreeSet, fs, path::Path};

use client_sim::report::{
    ping::{KIND_PING, PingPoint, PingReport},
    schema::SCHEMA_VERSION,
};
use serde_json::Value;

use crate::samples;

fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                into.insert(key.clone());
                keys(value, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, into)),
        _ => {}
    }
}

#[test]
fn the_document_names_every_field() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/report-schema.md");
    let document = fs::read_to_string(path).unwrap();
    let mut run = samples::failing();
    run.rogues.push(client_sim::report::schema::RogueFigures {
        behaviour: client_sim::config::Behaviour::Flood,
        clients: 1,
        streams: 1,
        sent: 1,
        answered: 1,
        ok: 1,
    });
    run.heartbeats = Some(client_sim::report::schema::HeartbeatFigures {
        every_seconds: 5.0,
        sent: 1,
        answered: 1,
        taken_for_frames: 0,
    });
    run.stream_ends.push(client_sim::report::schema::StreamEndFigures {
        reason: "UNAVAILABLE: gone".to_owned(),
        streams: 1,
    });
    let ping = PingReport {
        schema_version: SCHEMA_VERSION,
        kind: KIND_PING.to_owned(),
        client_version: run.client_version.clone(),
        arguments: Vec::new(),
        started_unix_ms: run.started_unix_ms,
        machine: run.machine.clone(),
        addr: run.addr.clone(),
        tls: false,
        server: run.server.clone(),
        server_threads: None,
        threads: 1,
        seconds: 1.0,
        warmup_seconds: 0.5,
        delay_ms: None,
        points: vec![PingPoint {
            mode: "unary".to_owned(),
            payload_bytes: 1,
            in_flight: 1,
            sharing: "one".to_owned(),
            connections: 1,
            calls: 1,
            not_ok: 0,
            calls_per_second: 1.0,
            megabytes_per_second: 1.0,
            ratio_to_one: None,
            latency: run.figures,
            cpu_cores: 0.1,
            busiest_thread_share: None,
        }],
    };
    let test = client_sim::report::selftest::SelfTestReport::of(&run);
    for (kind, value) in [
        ("run", serde_json::to_value(&run)),
        ("capacity", serde_json::to_value(samples::capacity())),
        ("comparison", serde_json::to_value(samples::comparison())),
        ("comparison", serde_json::to_value(samples::capacity_comparison())),
        ("selftest", serde_json::to_value(test)),
        ("ping", serde_json::to_value(ping)),
    ] {
        let value = value.unwrap();
        assert_eq!(value["kind"], kind);
        let mut names = BTreeSet::new();
        keys(&value, &mut names);
        assert!(names.len() > 15, "{names:?}");
        for name in names {
            assert!(document.contains(&format!("`{name}`")), "{kind}: {name} is not explained");
        }
    }
    assert!(document.contains(&format!("`schema_version` is **{SCHEMA_VERSION}**")));
}
