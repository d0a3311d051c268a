//! The operations page quotes the server: its words must be those of the source.

use std::fs;

use crate::common::{repository, source};

/// A quotation with a placeholder `<name>` for what varies, or a format string with `{name}`, as the
/// pieces of text between those.
fn pieces(text: &str, open: char, close: char) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut depth = 0;
    for c in text.chars() {
        if c == open {
            depth += 1;
        } else if c == close && depth > 0 {
            depth -= 1;
            pieces.push(String::new());
        } else if depth == 0 {
            pieces.last_mut().expect("one").push(c);
        }
    }
    pieces.retain(|piece| !piece.trim().is_empty());
    pieces
}

/// Rust source with string literals that go on on the next line made whole.
fn joined(text: &str) -> String {
    let mut whole = String::new();
    for line in text.lines() {
        match whole.strip_suffix('\\') {
            Some(begun) => whole = begun.to_owned() + line.trim_start(),
            None => whole = whole + "\n" + line,
        }
    }
    whole
}

/// Quotations of a table's row: all in backticks in its second column, unless another program is quoted.
fn quotations(page: &str) -> Vec<String> {
    let rows =
        page.lines().filter(|line| line.starts_with("| ") && !line.contains("from the gRPC"));
    let messages = rows.filter_map(|row| row.split(" | ").nth(1));
    let quoted = messages.filter(|cell| cell.starts_with('`') && cell.ends_with('`'));
    quoted.map(|cell| cell[1..cell.len() - 1].to_owned()).collect()
}

#[test]
fn every_quotation_is_in_the_source() {
    let page = fs::read_to_string(repository().join("docs/operations.md")).expect("the page");
    let source = joined(&source(&repository().join("server/src")));
    let messages = &page[page.find("## When it does not start").expect("the tables")..];
    let messages = &messages[..messages.find("## What to alert on").expect("the tables' end")];
    let quotations = quotations(messages);
    assert!(quotations.len() > 30, "{quotations:?}");
    for quotation in quotations {
        for piece in pieces(&quotation, '<', '>') {
            assert!(source.contains(piece.as_str()), "{piece:?} of {quotation:?} is not said");
        }
    }
}

#[test]
fn every_metric_to_alert_on_exists() {
    let page = fs::read_to_string(repository().join("docs/operations.md")).expect("the page");
    let names = fs::read_to_string(repository().join("server/src/telemetry/metrics.rs"));
    let names = names.expect("the names");
    let mut found = 0;
    for word in page.split(|c: char| !(c.is_ascii_lowercase() || c == '_')) {
        if word.starts_with("vedette_") {
            found += 1;
            assert!(names.contains(&format!("\"{word}\"")), "{word} is no metric");
        }
    }
    assert!(found > 10);
}

#[test]
fn placeholders_split_quotations() {
    assert_eq!(pieces("<key>: cannot listen on <addr>", '<', '>'), [": cannot listen on "]);
}
