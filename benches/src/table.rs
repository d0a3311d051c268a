//! Reports as aligned text for a terminal and as Markdown for the results page.

use std::fmt::Write as _;

use crate::report::{Report, Table, Verdict};

/// A report for a terminal.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for table in &report.tables {
        let _ = writeln!(out, "{}", table.title);
        out.push_str(&aligned(&shown(table)));
        out.push('\n');
    }
    for mark in &report.marks {
        let _ = writeln!(out, "{}  {}: {}", mark.verdict.word(), mark.promise, mark.found);
    }
    if report.quick {
        out.push_str("(a smoke run: nothing was judged, and the figures mean nothing)\n");
    }
    out
}

/// A report as a section of the results page.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let mut out = format!("## {}\n\n", report.bench);
    let _ = writeln!(out, "`{}`, {}.", report.command, report.date);
    if report.quick {
        out.push_str("\n**A smoke run: the figures mean nothing.**\n");
    }
    for paragraph in &report.reading {
        let _ = write!(out, "\n{paragraph}\n");
    }
    for table in &report.tables {
        let _ = write!(out, "\n**{}**\n\n{}", table.title, markdown_rows(&shown(table)));
    }
    if !report.marks.is_empty() {
        let mut rows = vec![["mark", "found", "verdict"].map(str::to_owned).to_vec()];
        rows.extend(report.marks.iter().map(|mark| {
            let word = match mark.verdict {
                Verdict::Fail => "**FAIL**",
                other => other.word(),
            };
            vec![mark.promise.clone(), mark.found.clone(), word.to_owned()]
        }));
        let _ = write!(out, "\n{}", markdown_rows(&rows));
    }
    out
}

/// Header and rows as text.
fn shown(table: &Table) -> Vec<Vec<String>> {
    let rows = table.rows.iter().map(|row| row.iter().map(super::report::Cell::show).collect());
    std::iter::once(table.header.clone()).chain(rows).collect()
}

/// Columns of equal width; the first to the left, figures to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(line, "  {cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

fn markdown_rows(rows: &[Vec<String>]) -> String {
    let mut out = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
        if index == 0 {
            let _ = writeln!(out, "|{}", "---|".repeat(row.len()));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        [["size", "fps"], ["640x480", "9"]].map(|row| row.map(str::to_owned).to_vec()).to_vec()
    }

    #[test]
    fn columns_line_up() {
        assert_eq!(aligned(&rows()), "  size     fps\n  640x480    9\n");
    }

    #[test]
    fn markdown_tables() {
        assert_eq!(markdown_rows(&rows()), "| size | fps |\n|---|---|\n| 640x480 | 9 |\n");
        assert!(markdown_rows(&[vec!["a|b".to_owned()]]).contains("a\\|b"));
    }
}
