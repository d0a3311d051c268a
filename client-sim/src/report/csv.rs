//! A run as tables: a row for each camera, and a row for each bin of its timeline. Columns are called
//! as in the JSON report; a value that was not measured is an empty field.

use csv::{Terminator, Writer, WriterBuilder};

use super::schema::{CameraFigures, Report, Timeline};
use crate::stats::{Figures, StageMeans, Tally};

type Column<T> = (&'static str, fn(&T) -> String);

/// Of counts, in the report's order.
const TALLY: [Column<Tally>; 12] = [
    ("sent", |t| t.sent.to_string()),
    ("answered", |t| t.answered.to_string()),
    ("ok", |t| t.ok.to_string()),
    ("superseded", |t| t.superseded.to_string()),
    ("expired", |t| t.expired.to_string()),
    ("overloaded", |t| t.overloaded.to_string()),
    ("bad_image", |t| t.bad_image.to_string()),
    ("unsupported", |t| t.unsupported.to_string()),
    ("internal", |t| t.internal.to_string()),
    ("lost", |t| t.lost.to_string()),
    ("unaccepted", |t| t.unaccepted.to_string()),
    ("not_sent", |t| t.not_sent.to_string()),
];

const FIGURES: [Column<Figures>; 6] = [
    ("p50_ms", |f| value(f.p50_ms)),
    ("p95_ms", |f| value(f.p95_ms)),
    ("p99_ms", |f| value(f.p99_ms)),
    ("max_ms", |f| value(f.max_ms)),
    ("mean_ms", |f| value(f.mean_ms)),
    ("min_ms", |f| value(f.min_ms)),
];

const CAMERA: [Column<CameraFigures>; 12] = [
    ("all_answers_max_ms", |c| value(c.all_answers_max_ms)),
    ("over_slo", |c| c.over_slo.to_string()),
    ("protocol_errors", |c| c.protocol_errors.to_string()),
    ("first_protocol_error", |c| c.first_protocol_error.clone().unwrap_or_default()),
    ("warmup_max_ms", |c| value(c.warmup_max_ms)),
    ("end", |c| c.end.clone()),
    ("reconnects", |c| c.reconnects.to_string()),
    ("gap_max_ms", |c| value(c.gap_max_ms)),
    ("moves", |c| c.moves.to_string()),
    ("back_max_ms", |c| value(c.back_max_ms)),
    ("away_ms", |c| value(c.away_ms)),
    ("addr", |c| c.addr.clone().unwrap_or_default()),
];

type Stage = (&'static str, fn(&StageMeans) -> f64);

const STAGES: [Stage; 6] = [
    ("queue_mean_us", |s| s.queue),
    ("decode_mean_us", |s| s.decode),
    ("preprocess_mean_us", |s| s.preprocess),
    ("inference_mean_us", |s| s.inference),
    ("postprocess_mean_us", |s| s.postprocess),
    ("total_mean_us", |s| s.total),
];

fn value(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Counts of a part of a camera's frames, with the prefix of their columns.
type Part = (&'static str, fn(&CameraFigures) -> &Tally);

/// A row for each camera.
pub(super) fn cameras(report: &Report) -> Vec<u8> {
    let parts: [Part; 3] = [
        ("warmup_", |camera| &camera.warmup),
        ("excused_", |camera| &camera.excused),
        ("warmup_excused_", |camera| &camera.warmup_excused),
    ];
    let mut head = vec!["camera_id".to_owned(), "group".to_owned()];
    head.extend(TALLY.iter().map(|(name, _)| (*name).to_owned()));
    head.extend(FIGURES.iter().map(|(name, _)| (*name).to_owned()));
    head.extend(CAMERA.iter().map(|(name, _)| (*name).to_owned()));
    for (prefix, _) in parts {
        head.extend(TALLY.iter().map(|(name, _)| format!("{prefix}{name}")));
    }
    let rows = report.per_camera.iter().map(|camera| {
        let mut row = vec![camera.camera_id.clone(), camera.group.clone()];
        row.extend(TALLY.iter().map(|(_, of)| of(&camera.tally)));
        row.extend(FIGURES.iter().map(|(_, of)| of(&camera.figures)));
        row.extend(CAMERA.iter().map(|(_, of)| of(camera)));
        for (_, part) in parts {
            row.extend(TALLY.iter().map(|(_, of)| of(part(camera))));
        }
        row
    });
    table(&head, rows)
}

/// A row for each bin.
pub(super) fn timeline(report: &Report) -> Vec<u8> {
    let timeline: &Timeline = &report.timeline;
    let mut head: Vec<String> = [
        "start_seconds",
        "bin_seconds",
        "ok",
        "not_ok",
        "unanswered",
        "p50_ms",
        "p99_ms",
        "max_ms",
    ]
    .map(str::to_owned)
    .into();
    head.extend(STAGES.iter().map(|(name, _)| (*name).to_owned()));
    let rows = (0..timeline.ok.len()).map(|i| {
        let figure = |list: &[Option<f64>]| value(list.get(i).copied().flatten());
        let count = |list: &[u64]| list.get(i).copied().unwrap_or(0).to_string();
        let mut row = vec![
            (i as f64 * timeline.bin_seconds).to_string(),
            timeline.bin_seconds.to_string(),
            count(&timeline.ok),
            count(&timeline.not_ok),
            count(&timeline.unanswered),
            figure(&timeline.p50_ms),
            figure(&timeline.p99_ms),
            figure(&timeline.max_ms),
        ];
        let stages = timeline.stages_mean_us.get(i).copied().flatten();
        row.extend(STAGES.iter().map(|(_, of)| value(stages.as_ref().map(of))));
        row
    });
    table(&head, rows)
}

fn table(head: &[String], rows: impl Iterator<Item = Vec<String>>) -> Vec<u8> {
    let mut writer: Writer<Vec<u8>> =
        WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
    // Memory takes all rows, and all have as many fields as the head.
    let _ = writer.write_record(head);
    for row in rows {
        let _ = writer.write_record(row.iter().map(|field| unspoken(field)));
    }
    writer.into_inner().unwrap_or_default()
}

/// Spreadsheets take a text that begins with one of these for a formula. Numbers stay as they are.
fn unspoken(field: &str) -> String {
    let formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if formula && field.parse::<f64>().is_err() { format!("'{field}") } else { field.to_owned() }
}
