//! Writes reports of runs that never took place, and their pages: for looking at pages, and for
//! `make check-pages`. Usage: `sample_reports FOLDER`.

#![expect(clippy::unwrap_used, reason = "a tool for developers may stop at the first surprise")]

#[path = "../tests/it/samples.rs"]
mod samples;

use std::{fs, path::Path};

use client_sim::report::html::{Document, render};

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/pages".to_owned());
    let folder = Path::new(&folder);
    fs::create_dir_all(folder).unwrap();
    for (name, report) in [
        ("pass", samples::passing()),
        ("fail", samples::failing()),
        ("invalid", samples::invalid()),
    ] {
        let json = serde_json::to_string_pretty(&report).unwrap();
        fs::write(folder.join(format!("{name}.json")), json).unwrap();
        fs::write(folder.join(format!("{name}.html")), render(&Document::Run(&report))).unwrap();
    }
    for (name, comparison) in
        [("compare", samples::comparison()), ("compare-capacity", samples::capacity_comparison())]
    {
        let json = serde_json::to_string_pretty(&comparison).unwrap();
        fs::write(folder.join(format!("{name}.json")), json).unwrap();
        let page = render(&Document::Comparison(&comparison));
        fs::write(folder.join(format!("{name}.html")), page).unwrap();
    }
    let capacity = samples::capacity();
    let json = serde_json::to_string_pretty(&capacity).unwrap();
    fs::write(folder.join("capacity.json"), json).unwrap();
    let page = render(&Document::Capacity(&capacity));
    fs::write(folder.join("capacity.html"), page).unwrap();
}
