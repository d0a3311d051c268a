//! Writes reports of runs that never took place as JSON: for looking at pages, and for
//! `make check-pages`. Usage: `sample_reports FOLDER`.

#![expect(clippy::unwrap_used, reason = "a tool for developers may stop at the first surprise")]

#[path = "../tests/it/samples.rs"]
mod samples;

use std::{fs, path::Path};

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/pages".to_owned());
    let folder = Path::new(&folder);
    fs::create_dir_all(folder).unwrap();
    for (name, json) in [
        ("pass", serde_json::to_string_pretty(&samples::passing())),
        ("fail", serde_json::to_string_pretty(&samples::failing())),
        ("invalid", serde_json::to_string_pretty(&samples::invalid())),
        ("balance", serde_json::to_string_pretty(&samples::balanced())),
        ("capacity", serde_json::to_string_pretty(&samples::capacity())),
        ("compare", serde_json::to_string_pretty(&samples::comparison())),
        ("compare-capacity", serde_json::to_string_pretty(&samples::capacity_comparison())),
    ] {
        fs::write(folder.join(format!("{name}.json")), json.unwrap()).unwrap();
    }
}
