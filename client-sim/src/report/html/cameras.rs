//! Tables of groups, cameras, and clients that broke the rules.

use super::{
    parts::{Row, table},
    text::{count, counted, escape, ms, percent, plain},
};
use crate::{
    report::schema::{CameraFigures, GroupFigures, Report},
    stats::{Figures, Tally},
};

/// Rows of the table of cameras. The report's JSON and the CSV file have all of them.
const MAX_ROWS: usize = 100;

/// All tables.
pub(super) fn tables(report: &Report) -> String {
    let mut html = String::new();
    if report.groups.len() > 1 || report.groups.iter().any(|group| !group.name.is_empty()) {
        html += "<h3>Groups</h3>";
        html += &groups(&report.groups);
    }
    html += &cameras(report);
    if !report.rogues.is_empty() {
        html += "<h3>Clients that broke the rules on purpose</h3><p class=\"lead\">Nothing of \
                 theirs is in any other figure.</p>";
        html += &rogues(report);
    }
    if !report.stream_ends.is_empty() {
        html += "<h3>Streams that ended early</h3>";
        let rows: Vec<Row> = report
            .stream_ends
            .iter()
            .map(|end| Row { class: "", cells: vec![escape(&end.reason), count(end.streams)] })
            .collect();
        html += &table("Streams that ended early", &["reason", "streams"], &[], &rows);
    }
    html
}

const HEAD: [&str; 9] =
    ["sent", "OK", "OK share", "not OK", "unanswered", "p50 ms", "p95 ms", "p99 ms", "max ms"];

fn cells(tally: &Tally, figures: &Figures) -> Vec<String> {
    vec![
        count(tally.sent),
        count(tally.ok),
        percent(tally.ok, tally.sent),
        count(tally.answered.saturating_sub(tally.ok)),
        count(tally.lost + tally.unaccepted + tally.not_sent),
        ms(figures.p50_ms),
        ms(figures.p95_ms),
        ms(figures.p99_ms),
        ms(figures.max_ms),
    ]
}

fn groups(groups: &[GroupFigures]) -> String {
    let head: Vec<&str> = ["group", "load", "pictures"].into_iter().chain(HEAD).collect();
    let rows: Vec<Row> = groups
        .iter()
        .map(|group| {
            let pictures = &group.pictures;
            let size = pictures.size.as_deref().unwrap_or(&pictures.source);
            let load =
                format!("{} \u{d7} {} fps", count(u64::from(group.cameras)), plain(group.fps));
            let mut row = vec![
                escape(if group.name.is_empty() { "all" } else { &group.name }),
                load,
                format!("{}, {} KB", escape(size), pictures.mean_bytes / 1000),
            ];
            row.extend(cells(&group.tally, &group.figures));
            Row { class: "", cells: row }
        })
        .collect();
    table("Groups of cameras", &head, &[1, 2], &rows)
}

fn is_bad(camera: &CameraFigures) -> bool {
    camera.over_slo > 0 || camera.tally.ok < camera.tally.sent + camera.tally.not_sent
}

fn cameras(report: &Report) -> String {
    let mut worst: Vec<&CameraFigures> = report.per_camera.iter().collect();
    let slowest = |camera: &CameraFigures| camera.figures.max_ms.unwrap_or(f64::INFINITY);
    worst.sort_by(|a, b| slowest(b).total_cmp(&slowest(a)));
    worst.truncate(MAX_ROWS);
    let named = report.per_camera.iter().any(|camera| !camera.group.is_empty());
    let mut head = vec!["camera"];
    head.extend(named.then_some("group"));
    head.extend(HEAD);
    head.extend(["over limit", "reconnects", "end"]);
    let end_column = head.len() - 1;
    let rows: Vec<Row> = worst
        .iter()
        .map(|camera| {
            let mut row = vec![escape(&camera.camera_id)];
            row.extend(named.then(|| escape(&camera.group)));
            row.extend(cells(&camera.tally, &camera.figures));
            row.extend([count(camera.over_slo), count(camera.reconnects), escape(&camera.end)]);
            Row { class: if is_bad(camera) { "bad" } else { "" }, cells: row }
        })
        .collect();
    let left_out = report.per_camera.len() - worst.len();
    let note = if left_out > 0 {
        format!(
            "<p class=\"lead\">The {} slowest; {} more, none slower, are in the JSON and the CSV \
             file.</p>",
            worst.len(),
            counted(left_out as u64, "camera")
        )
    } else {
        "<p class=\"lead\">All cameras, the slowest first.</p>".to_owned()
    };
    let texts: &[usize] = if named { &[1, end_column] } else { &[end_column] };
    format!("<h3>Cameras</h3>{note}{}", table("Cameras, the slowest first", &head, texts, &rows))
}

fn rogues(report: &Report) -> String {
    let rows: Vec<Row> = report
        .rogues
        .iter()
        .map(|rogue| {
            // Behaviours are named in the report as on the command line.
            let name = serde_json::to_value(rogue.behaviour).ok();
            let name = name.as_ref().and_then(|name| name.as_str()).unwrap_or("unknown");
            let mut cells = vec![escape(name), count(u64::from(rogue.clients))];
            cells.extend([rogue.streams, rogue.sent, rogue.answered, rogue.ok].map(count));
            Row { class: "", cells }
        })
        .collect();
    let head = ["behaviour", "clients", "streams", "sent", "answered", "OK"];
    table("Clients that broke the rules", &head, &[], &rows)
}
