//! What each of several servers did.

use super::{
    chart::{Margins, Plot, Series, Spec, from_zero},
    parts::{Row, Swatch, figure, legend, table},
    run_charts::{middles, seconds},
    text::{NONE, count, counted, escape, ms, ms_unit, plain},
};
use crate::report::schema::{PerServerFigures, Report};

/// Height of the chart, in pixels.
const HEIGHT: f64 = 220.0;

/// The lines' classes, one for each server; of more servers the table has all.
const CLASSES: [&str; 6] = ["s1", "s3", "s2", "s4", "s5", "s6"];

/// Longest name beside a line, in characters.
const NAME_CHARS: usize = 12;

/// How cameras were spread, in a sentence.
pub(super) fn lead(report: &Report) -> String {
    let how = match report.balance.as_deref() {
        Some("round-robin") => {
            "Each camera began at the next server of the list, and went on to \
                                the next one when its stream ended (gRPC: round_robin)."
        }
        Some("least-cameras") => {
            "Each stream went to the server that had the fewest (gRPC and \
                                  Envoy: least_request)."
        }
        Some("failover") => {
            "Each stream went to the first server of the list that answered \
                             (gRPC: pick_first)."
        }
        _ => "The parts of this run spread their cameras in different ways.",
    };
    let gaps = &report.reconnects;
    let back = match (gaps.back_p50_ms, gaps.back_max_ms) {
        (Some(p50), Some(max)) => format!(
            " Cameras whose streams ended were answered OK again after {} at most, half of them \
             within {}; {} to another server.",
            ms_unit(Some(max)),
            ms_unit(Some(p50)),
            counted(gaps.moves, "move"),
        ),
        _ => String::new(),
    };
    let away = match gaps.away {
        0 => String::new(),
        away => format!(" {} did not come back.", counted(away, "camera")),
    };
    format!("{how}{back}{away}")
}

/// A table, and the answers of each server over time.
pub(super) fn show(report: &Report) -> String {
    format!("{}{}", over_time(report), servers(report))
}

fn servers(report: &Report) -> String {
    let head = [
        "server",
        "version",
        "cameras",
        "at first",
        "streams",
        "in vain",
        "moved in",
        "moved out",
        "sent",
        "OK",
        "not OK",
        "unanswered",
        "p50 ms",
        "p99 ms",
        "max ms",
    ];
    let row = |server: &PerServerFigures| {
        let tally = &server.tally;
        let figures = &server.figures;
        let version = server.server.as_ref().map_or(NONE, |about| about.version.as_str());
        let mut cells = vec![escape(&server.addr), escape(version)];
        cells.extend(
            [
                server.cameras,
                server.cameras_first,
                server.streams,
                server.refused,
                server.moved_in,
                server.moved_out,
                tally.sent,
                tally.ok,
                tally.answered.saturating_sub(tally.ok),
                tally.lost + tally.unaccepted,
            ]
            .map(count),
        );
        cells.extend([figures.p50_ms, figures.p99_ms, figures.max_ms].map(ms));
        Row { class: if figures.max_ms > Some(report.slo_max_ms) { "bad" } else { "" }, cells }
    };
    let rows: Vec<Row> = report.servers.iter().map(row).collect();
    table("Servers", &head, &[1], &rows)
}

/// Frames per second that each server answered OK.
fn over_time(report: &Report) -> String {
    let timeline = &report.timeline;
    if timeline.ok.is_empty() {
        return String::new();
    }
    let x = middles(timeline);
    let per_second = |server: &PerServerFigures| -> Vec<Option<f64>> {
        server.bins_ok.iter().map(|ok| Some(*ok as f64 / timeline.bin_seconds)).collect()
    };
    let drawn: Vec<(&PerServerFigures, &str, Vec<Option<f64>>)> = report
        .servers
        .iter()
        .zip(CLASSES)
        .map(|(server, class)| (server, class, per_second(server)))
        .collect();
    let key: Vec<_> =
        drawn.iter().map(|(server, class, _)| (Swatch::Line, *class, &*server.addr)).collect();
    let note = if drawn.len() < report.servers.len() {
        format!("The first {} of {} servers.", drawn.len(), report.servers.len())
    } else {
        String::new()
    };
    let values = || drawn.iter().flat_map(|(.., values)| values.iter().copied());
    let most = values().flatten().fold(0.0, f64::max);
    let description = format!(
        "{}; at most {} answers per second from one.",
        counted(drawn.len() as u64, "server"),
        plain(most)
    );
    figure(&legend(&key), &note, |layout| {
        let spec = Spec {
            name: "servers-time",
            label: "Answers of each server over time",
            description: &description,
            hover: "x",
            x_text: "{} s",
            bin: Some(timeline.bin_seconds),
        };
        let axes = (seconds(x.len(), timeline.bin_seconds), from_zero(values()));
        let mut plot = Plot::new(spec, layout, HEIGHT, Margins::usual(layout), axes);
        plot.y_axis("answered OK, frames per second", 5);
        plot.x_axis("seconds since the measured part began", layout.pick(12, 5));
        for (server, class, values) in &drawn {
            let name = &server.addr;
            plot.line(&Series { name, unit: "per s", class, x: &x, y: values });
            plot.label(class, &short(name), values.last().copied().flatten());
        }
        plot.finish()
    })
}

/// A name that fits beside a line: addresses differ at their ends.
fn short(name: &str) -> String {
    let length = name.chars().count();
    if length <= NAME_CHARS {
        return name.to_owned();
    }
    let end: String = name.chars().skip(length - (NAME_CHARS - 1)).collect();
    format!("\u{2026}{end}")
}
