//! What SECURITY.md and the threat model say is so.

use std::fs;

use vedette_server::{auth::Holders, telemetry::metrics::Metrics};

use crate::{
    common::{repository, source},
    lifecycle::command,
};

fn text(name: &str) -> String {
    fs::read_to_string(repository().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// What stands in backticks, besides whole blocks, which hold commands of other programs too.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

#[test]
fn every_test_of_the_threat_model_exists() {
    let server = repository().join("server");
    let sources = source(&server.join("src")) + &source(&server.join("tests/it"));
    let model = text("docs/threat-model.md");
    // Names of tests are sentences; nothing else in the table has so many words.
    let named: Vec<_> = quoted(&model).filter(|name| name.matches('_').count() >= 3).collect();
    assert!(named.len() > 20, "{named:?}");
    for name in named {
        assert!(sources.contains(&format!("fn {name}()")), "no test {name}");
    }
}

#[test]
fn every_flag_and_series_exists() {
    let output = command(&["--help"]).output().expect("runs");
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let metrics = text("server/src/telemetry/metrics.rs");
    for document in ["SECURITY.md", "docs/threat-model.md"] {
        let document = text(document);
        for word in quoted(&document).flat_map(str::split_whitespace) {
            if word.starts_with("--") && word != "--version" && word != "--print-config" {
                assert!(help.contains(&format!("{word} ")), "no flag {word}");
            }
            if word.starts_with("vedette_") {
                let name = word.split('{').next().unwrap_or_default();
                assert!(metrics.contains(&format!("\"{name}\"")), "no series {name}");
            }
        }
    }
}

#[test]
fn the_token_file_that_is_shown_can_be_used() {
    let document = text("SECURITY.md");
    let example = document
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("an example");
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), example).expect("writes");
    let metrics = std::sync::Arc::new(Metrics::new());
    Holders::load(file.path(), &metrics).unwrap_or_else(|error| panic!("{error}"));
}
