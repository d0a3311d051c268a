//! A comparison as text for a terminal.

use std::fmt::{self, Write as _};

use super::{Comparison, Judged, RowFigures};
use crate::report::html::text::number;

/// Width of the column with the figures' names.
const NAME_WIDTH: usize = 40;

/// Width of an entry's column.
const ENTRY_WIDTH: usize = 34;

/// What stands behind a difference.
pub(crate) fn word(judged: Judged) -> &'static str {
    match judged {
        Judged::Base => "",
        Judged::Better => "better",
        Judged::Worse => "WORSE",
        Judged::Different => "different",
        Judged::Noise => "noise",
        Judged::Unknown => "not judged",
    }
}

/// The whole comparison.
pub(super) fn render(comparison: &Comparison) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = head(&mut text, comparison)
        .and_then(|()| rows(&mut text, comparison))
        .and_then(|()| foot(&mut text, comparison));
    text
}

fn head(text: &mut String, comparison: &Comparison) -> fmt::Result {
    let matters = comparison.differences.iter().any(|difference| difference.matters);
    if matters {
        writeln!(
            text,
            "CAUTION: the entries differ in more than the server; this may mean nothing"
        )?;
    }
    for difference in &comparison.differences {
        let mark = if difference.matters { "!" } else { " " };
        writeln!(text, "{mark} {:<20} {}", difference.setting, difference.values.join("  |  "))?;
    }
    if !comparison.differences.is_empty() {
        writeln!(text)?;
    }
    write!(text, "{:<NAME_WIDTH$}", "")?;
    for (index, entry) in comparison.entries.iter().enumerate() {
        let repeats = match entry.files.len() {
            1 => String::new(),
            n => format!(" ({n} runs)"),
        };
        let label = fitting(&format!("{}{repeats}", entry.label));
        write!(text, "{label:>width$}", width = width(index))?;
    }
    writeln!(text)
}

/// The base has no difference beside its values.
fn width(index: usize) -> usize {
    if index == 0 { 16 } else { ENTRY_WIDTH }
}

fn fitting(label: &str) -> String {
    let most = ENTRY_WIDTH - 2;
    if label.chars().count() <= most {
        return label.to_owned();
    }
    label.chars().take(most - 1).chain(['\u{2026}']).collect()
}

fn rows(text: &mut String, comparison: &Comparison) -> fmt::Result {
    for row in &comparison.rows {
        let unit = if row.unit.is_empty() { String::new() } else { format!(", {}", row.unit) };
        write!(text, "{:<NAME_WIDTH$}", format!("{}{unit}", row.name))?;
        for index in 0..row.values.len() {
            write!(text, "{:>width$}", cell(row, index), width = width(index))?;
        }
        writeln!(text)?;
    }
    writeln!(text)
}

fn cell(row: &RowFigures, index: usize) -> String {
    let shown = |value: f64| match (row.unit.as_str(), value.abs() < 10.0) {
        ("", _) => number(value, 1),
        (_, true) => format!("{value:.2}"),
        (_, false) => format!("{value:.1}"),
    };
    let Some(value) = row.values[index] else {
        return "-".to_owned();
    };
    if index == 0 {
        return shown(value);
    }
    let percent = row.delta_percents[index].filter(|percent| percent.is_finite());
    let change = match (row.deltas[index], percent) {
        (Some(delta), Some(percent)) if delta != 0.0 => format!("{percent:+.1} %"),
        (Some(delta), _) if delta != 0.0 => format!("{delta:+.1}"),
        (Some(_), _) => "same".to_owned(),
        (None, _) => String::new(),
    };
    format!("{}  {change:>9}  {:<10}", shown(value), word(row.judgements[index]))
}

fn foot(text: &mut String, comparison: &Comparison) -> fmt::Result {
    for rule in &comparison.rule {
        writeln!(text, "{rule}")?;
    }
    Ok(())
}
