//! The page of a run.

use super::{
    cameras, heat, machine, parts,
    parts::{Kpi, chip, kpis, section, with_unit},
    run_charts, servers, stages,
    text::{count, counted, escape, ms, ms_unit, number, percent, plain, utc},
};
use crate::report::schema::{Report, Verdict};

/// The title of the page.
pub(super) fn title(report: &Report) -> String {
    format!(
        "{}: {} at {} fps, {}",
        report.verdict.word(),
        counted(u64::from(report.cameras), "camera"),
        number(report.fps, 2),
        report.addr
    )
}

/// Everything between the page's head and its foot.
pub(super) fn body(report: &Report) -> String {
    let slo = plain(report.slo_max_ms);
    let mut body = head(report);
    body += &banner(report);
    body += &kpis(&headline(report));
    body += &parts::arrival(&report.phases, report.ramp_cameras, report.ramp_every_ms);
    body += &section(
        "percentiles",
        "Latency by percentile",
        "How long the answers took, from the moment a frame should have left. To the right, \
         answers get rarer and slower: each step of the axis is ten times as rare.",
        &run_charts::percentiles(report),
    );
    body += &section(
        "time",
        "Latency over time",
        "The slowest answer, 99 % and the median of each bin of the measured part, and below the \
         frames that were not answered OK.",
        &run_charts::over_time(report),
    );
    if report.servers.len() > 1 {
        body += &section("servers", "Each server", &servers::lead(report), &servers::show(report));
    }
    body += &section(
        "cameras",
        "Each camera over time",
        &format!(
            "A row for each camera, a cell for each bin: the slowest answer against {slo} ms."
        ),
        &heat::strip(report),
    );
    body += &section(
        "stages",
        "Where the server spends the time",
        "Mean times that the server reports with its OK answers. What is left of its total is \
         shown as the rest; the way over the network is not in it.",
        &stages::charts(report),
    );
    body += &section("tables", "Cameras and groups", "", &cameras::tables(report));
    body += &section(
        "simulator",
        "The simulator's own part",
        "What this tool knows about itself. A simulator that is late or out of processor time \
         measures itself; such a run is INVALID.",
        &machine::simulator(report),
    );
    body += &section("setup", "Machine and configuration", "", &machine::setup(report));
    body
}

fn head(report: &Report) -> String {
    let server = machine::server_in_words(report.server.as_ref());
    let lines = [format!("<b>{}</b>{server} \u{b7} {}", escape(&report.addr), {
        let seconds = plain(report.seconds);
        format!("{} \u{b7} {seconds} s measured", utc(report.started_unix_ms))
    })];
    let mut chips = vec![chip("", &format!("arrival: {}", report.phases))];
    chips.push(chip("", &format!("limit: max {} ms", plain(report.slo_max_ms))));
    for limit in &report.slo_percentiles {
        let text = format!("limit: p{} {} ms", plain(limit.percentile), plain(limit.limit_ms));
        chips.push(chip("", &text));
    }
    chips.extend(report.scenario.iter().map(|name| chip("", &format!("scenario: {name}"))));
    chips.extend(report.balance.iter().map(|policy| chip("", &format!("balance: {policy}"))));
    if report.tls {
        chips.push(chip("", "TLS"));
    }
    if report.interrupted {
        chips.push(chip("invalid", "interrupted"));
    }
    if !report.rogues.is_empty() {
        chips.push(chip("", "with rule breakers"));
    }
    let title = format!(
        "{} at {} frames per second",
        counted(u64::from(report.cameras), "camera"),
        number(report.fps, 2)
    );
    parts::head("load run", &title, &lines, &chips)
}

fn banner(report: &Report) -> String {
    let (class, sentence) = match report.verdict {
        Verdict::Pass => ("pass", "The server kept every limit."),
        Verdict::Fail => ("fail", "The server did not keep the limits."),
        Verdict::Invalid => (
            "invalid",
            "The simulator itself was the bottleneck: this run says nothing about the server.",
        ),
    };
    let sentence = match (report.verdict, report.figures.max_ms) {
        (Verdict::Pass, Some(max)) => format!(
            "The slowest of {} answers took {} ms; the limit is {} ms.",
            count(report.tally.ok),
            ms(Some(max)),
            plain(report.slo_max_ms)
        ),
        _ => sentence.to_owned(),
    };
    let sign = parts::verdict_sign(report.verdict);
    parts::banner(class, sign, report.verdict.word(), &sentence, &report.reasons)
}

fn headline(report: &Report) -> Vec<Kpi<'static>> {
    let tally = &report.tally;
    let slo = format!("limit {} ms", plain(report.slo_max_ms));
    let drops = tally.answered.saturating_sub(tally.ok);
    let gone = tally.lost + tally.unaccepted + tally.not_sent;
    let max = report.figures.max_ms;
    let milliseconds = |value: Option<f64>| match value {
        Some(_) => with_unit(&ms(value), "ms"),
        None => escape(&ms(None)),
    };
    let due = tally.sent + tally.not_sent;
    let ratio = percent(tally.ok, due);
    let (ratio, unit) = ratio.split_once(' ').map_or((ratio.as_str(), ""), |(n, _)| (n, "%"));
    let kpi = |name, value, note, bad| Kpi { name, value, note, bad };
    vec![
        kpi("Slowest answer", milliseconds(max), slo, max.is_none_or(|m| m > report.slo_max_ms)),
        kpi(
            "99 % within",
            milliseconds(report.figures.p99_ms),
            format!("median {}", ms_unit(report.figures.p50_ms)),
            false,
        ),
        kpi(
            "Answered OK",
            with_unit(ratio, unit),
            format!("{} of {}", count(tally.ok), counted(due, "frame")),
            (tally.ok as f64) < report.min_answered_ratio * due as f64,
        ),
        kpi("Answered, not OK", count(drops), "dropped or refused".to_owned(), drops > 0),
        kpi(
            "Without an answer",
            count(gone),
            without_answer(report),
            gone > report.reconnects.excused_frames,
        ),
        kpi(
            "Reconnects",
            count(report.reconnects.count),
            report.reconnects.gap_max_ms.map_or_else(
                || "no gap".to_owned(),
                |gap| format!("longest gap {}", ms_unit(Some(gap))),
            ) + &away(report.reconnects.away),
            report.reconnects.away > 0,
        ),
        kpi(
            "Cameras",
            count(u64::from(report.cameras)),
            report.connections.map_or_else(
                || "a connection each".to_owned(),
                |n| counted(u64::from(n), "connection"),
            ),
            false,
        ),
        kpi(
            "Frames per second",
            count((report.tally.sent as f64 / report.seconds.max(1e-9)).round() as u64),
            format!("{} of each camera", number(report.fps, 2)),
            false,
        ),
    ]
}

/// Cameras that stayed away, to follow another remark.
fn away(cameras: u64) -> String {
    if cameras == 0 { String::new() } else { format!(", {} not back", counted(cameras, "camera")) }
}

/// How frames came to have no answer.
fn without_answer(report: &Report) -> String {
    let tally = &report.tally;
    let parts = [
        (tally.lost, "lost"),
        (tally.unaccepted, "not accepted"),
        (tally.not_sent, "not sent"),
        (report.reconnects.excused_frames, "of them excused by reconnecting"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(n, name)| *n > 0 || *name == "lost")
        .map(|(n, name)| format!("{} {name}", count(*n)))
        .collect();
    parts.join(", ")
}
