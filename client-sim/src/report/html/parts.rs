//! The building blocks of pages.

use std::fmt::Write as _;

use super::{
    chart::Layout,
    text::{escape, plain},
};
use crate::report::schema::Verdict;

/// A chapter of the page with a sentence that says what it shows.
pub(super) fn section(id: &str, title: &str, lead: &str, content: &str) -> String {
    let lead =
        if lead.is_empty() { String::new() } else { format!("<p class=\"lead\">{lead}</p>") };
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-h\"><h2 id=\"{id}-h\">{}</h2>{lead}{content}\
         </section>\n",
        escape(title)
    )
}

/// A chart, drawn for both layouts, with its legend above and a remark below.
pub(super) fn figure(legend: &str, note: &str, draw: impl Fn(Layout) -> String) -> String {
    let pictures: String = Layout::ALL.into_iter().map(draw).collect();
    let note =
        if note.is_empty() { String::new() } else { format!("<figcaption>{note}</figcaption>") };
    format!("<figure class=\"card\">{legend}{pictures}{note}</figure>")
}

/// How an entry of a legend is drawn.
pub(super) enum Swatch {
    Line,
    Fill,
    /// SVG strokes around the middle of the swatch.
    Mark(String),
}

/// What the colours and shapes of a chart mean.
pub(super) fn legend(entries: &[(Swatch, &str, &str)]) -> String {
    let mut items = String::new();
    for (swatch, class, name) in entries {
        let drawn = match swatch {
            Swatch::Line => format!("<path class=\"line {class}\" d=\"M1 7h24\"/>"),
            Swatch::Fill => {
                format!(
                    "<rect class=\"bar {class}\" x=\"6\" y=\"1\" width=\"13\" height=\"12\" rx=\"2\"/>"
                )
            }
            Swatch::Mark(strokes) => {
                format!("<path class=\"mark {class}\" d=\"M13 7{strokes}\"/>")
            }
        };
        let _ = write!(
            items,
            "<li><svg class=\"swatch\" viewBox=\"0 0 26 14\" aria-hidden=\"true\">{drawn}</svg>{}</li>",
            escape(name)
        );
    }
    format!("<ul class=\"legend\">{items}</ul>")
}

/// A headline figure.
pub(super) struct Kpi<'a> {
    /// What it is.
    pub(super) name: &'a str,
    /// Its value, as HTML.
    pub(super) value: String,
    /// What it is to be seen against, as text.
    pub(super) note: String,
    /// Whether it is not as it should be.
    pub(super) bad: bool,
}

/// The headline figures.
pub(super) fn kpis(entries: &[Kpi<'_>]) -> String {
    let mut items = String::new();
    for kpi in entries {
        let _ = write!(
            items,
            "<div class=\"kpi{}\"><dt>{}</dt><dd>{}<small>{}</small></dd></div>",
            if kpi.bad { " bad" } else { "" },
            escape(kpi.name),
            kpi.value,
            escape(&kpi.note)
        );
    }
    format!("<dl class=\"kpis\">{items}</dl>\n")
}

/// A number with its unit, smaller.
pub(super) fn with_unit(number: &str, unit: &str) -> String {
    format!("{}<span class=\"unit\">{}</span>", escape(number), escape(unit))
}

/// Names and values; values are HTML.
pub(super) fn facts(entries: &[(&str, String)]) -> String {
    let mut items = String::new();
    for (name, value) in entries {
        let _ = write!(items, "<div><dt>{}</dt><dd>{value}</dd></div>", escape(name));
    }
    format!("<dl class=\"facts\">{items}</dl>")
}

/// Rows from which on a table scrolls by itself.
const LONG: usize = 20;

/// A table; cells are HTML. The first column is text, the others are numbers, except those named
/// in `texts`.
pub(super) fn table(caption: &str, head: &[&str], texts: &[usize], rows: &[Row]) -> String {
    let left = |i: usize| if i == 0 || texts.contains(&i) { " class=\"t\"" } else { "" };
    let mut html = format!(
        "<div class=\"table{long}\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\"><table>\
         <caption class=\"unseen\">{caption}</caption><thead><tr>",
        long = if rows.len() > LONG { " long" } else { "" },
        caption = escape(caption)
    );
    for (i, name) in head.iter().enumerate() {
        let _ = write!(html, "<th scope=\"col\"{}>{name}</th>", left(i));
    }
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        let _ = write!(html, "<tr class=\"{}\">", row.class);
        for (i, cell) in row.cells.iter().enumerate() {
            if i == 0 {
                let _ = write!(html, "<th scope=\"row\" class=\"t\">{cell}</th>");
            } else {
                let _ = write!(html, "<td{}>{cell}</td>", left(i));
            }
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

/// A row of a table.
pub(super) struct Row {
    /// CSS class.
    pub(super) class: &'static str,
    /// HTML of its cells.
    pub(super) cells: Vec<String>,
}

/// A small label; `kind` is its CSS class.
pub(super) fn chip(kind: &str, text: &str) -> String {
    format!("<span class=\"chip {kind}\">{}</span>", escape(text))
}

/// A verdict as a chip, and how often: word and sign say what the colour says.
pub(super) fn verdict_chip(verdict: Verdict, times: usize) -> String {
    let (kind, sign) = match verdict {
        Verdict::Pass => ("pass", '\u{2713}'),
        Verdict::Fail => ("fail", '\u{2715}'),
        Verdict::Invalid => ("invalid", '!'),
    };
    let times = if times > 1 { format!("{times} ") } else { String::new() };
    chip(kind, &format!("{sign} {times}{}", verdict.word()))
}

/// The sign of a verdict, for the banner.
pub(super) fn verdict_sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "<path d=\"M13 25l8 8 15-17\"/>",
        Verdict::Fail => "<path d=\"M15 15l18 18m0-18l-18 18\"/>",
        Verdict::Invalid => "<path d=\"M24 12v15m0 8v1\"/>",
    }
}

/// The banner at the head of a page: colour, sign, word, sentence, and reasons.
pub(super) fn banner(
    class: &str,
    sign: &str,
    word: &str,
    sentence: &str,
    reasons: &[String],
) -> String {
    let mut items = String::new();
    for reason in reasons {
        let _ = write!(items, "<li>{}</li>", escape(reason));
    }
    let items = if items.is_empty() { items } else { format!("<ul>{items}</ul>") };
    format!(
        "<div class=\"banner {class}\"><svg viewBox=\"0 0 48 48\" aria-hidden=\"true\">\
         <circle cx=\"24\" cy=\"24\" r=\"22\"/>{sign}</svg><div><strong>{}</strong>\
         <p>{sentence}</p>{items}</div></div>\n",
        escape(word)
    )
}

/// The head of a page: what it is, of what, and when.
pub(super) fn head(kind: &str, title: &str, lines: &[String], chips: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("<p>{line}</p>")).collect();
    let lines = lines.concat();
    format!(
        "<header><p class=\"kind\"><svg viewBox=\"0 0 24 24\" aria-hidden=\"true\">\
         <path d=\"M2 12s3.6-6.5 10-6.5S22 12 22 12s-3.6 6.5-10 6.5S2 12 2 12z\"/>\
         <circle cx=\"12\" cy=\"12\" r=\"3\"/></svg>Vedette <span>{}</span></p><h1>{}</h1>{lines}\
         <p class=\"chips\">{}</p></header>\n",
        escape(kind),
        escape(title),
        chips.join(" ")
    )
}

/// What a fleet's start times mean for the server, prominently: they decide as much as it does.
pub(super) fn arrival(phases: &str, ramp_cameras: Option<u32>, ramp_ms: Option<f64>) -> String {
    let meaning = match phases {
        "even" => "every camera in its own place of the frame period, the kindest arrival there is",
        "random" => "each camera at a random place of the frame period, as fleets do in the field",
        "aligned" => {
            "all cameras at the same instant of every period, the hardest arrival there is"
        }
        "mixed" => "merged parts whose fleets started in different ways",
        "ramp" => "group after group, as a fleet does that is switched on",
        _ => "an arrival that this version does not know",
    };
    let ramp = match (ramp_cameras, ramp_ms) {
        (Some(cameras), Some(ms)) => {
            format!(" ({cameras} cameras at a time, {} ms apart)", plain(ms))
        }
        _ => String::new(),
    };
    format!(
        "<p class=\"arrival\"><b>Arrival: {}</b> {meaning}{}. The arrival of frames decides over \
         latency as much as the server does: compare only runs with the same one.</p>\n",
        escape(phases),
        escape(&ramp)
    )
}
