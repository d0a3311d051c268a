//! Inputs that fuzzing has found, run again: what once failed, and what is odd.
//!
//! A file in `fixtures/fuzz` is named by its fuzz target, a hyphen and whatever tells it apart;
//! `fuzz/run.py --keep FILE` puts it there. What is checked is what fuzzing checks (`fuzz/README.md`).

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
};

use vedette_server::decode::FrameLimits;

use crate::common::fixture;

#[path = "../../../fuzz/src/checks/mod.rs"]
mod checks;

/// Fails over an input for which the server does what it must not.
type Check = fn(&[u8]);

/// The check of each fuzz target.
const CHECKS: [(&str, Check); 5] = [
    ("config", checks::config::check),
    ("decode", checks::picture::check_encoded),
    ("model", checks::model::check),
    ("raw", checks::picture::check_raw),
    ("request", checks::request::check),
];

#[test]
fn every_input_that_was_kept() {
    let mut names = Vec::new();
    let mut failed = Vec::new();
    for entry in fs::read_dir(fixture("fuzz")).expect("the folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        let (target, _) = name.split_once('-').unwrap_or_else(|| panic!("{name}: no target"));
        let (_, check) =
            CHECKS.iter().find(|(t, _)| *t == target).unwrap_or_else(|| panic!("{name}: unknown"));
        let data = fs::read(&path).expect("reads");
        // All of them, so that a bug shows in each input that it breaks.
        if catch_unwind(AssertUnwindSafe(|| check(&data))).is_err() {
            failed.push(name.clone());
        }
        names.push(name);
    }
    assert_eq!(failed, [] as [String; 0], "of {names:?}");
    assert!(names.len() >= KEPT, "the inputs are gone: {names:?}");
}

/// Inputs that are there at least.
const KEPT: usize = 1;

/// A check that lets everything pass would keep nothing.
#[test]
fn the_checks_see_what_is_wrong() {
    for text in ["", "two\nlines", "\u{1b}[2J", "a\u{2028}b"] {
        assert!(catch_unwind(|| checks::assert_one_line(text)).is_err(), "{text:?}");
    }
    checks::assert_one_line("TRUNCATED: the JPEG ends inside its header");
}

/// Wide enough for whole pictures, other than where the fuzzer is to be quick.
const LIMITS: FrameLimits = FrameLimits { max_bytes: 1 << 20, max_pixels: 1 << 22 };

/// The checks hold for the pictures that everything else is tested with, too.
#[test]
fn every_case_file() {
    for entry in fs::read_dir(fixture("")).expect("fixtures") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            println!("{}", path.display());
            checks::picture::check_file(&fs::read(&path).expect("reads"), LIMITS);
        }
    }
}
