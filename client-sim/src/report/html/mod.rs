//! Reports as one HTML file each, which needs nothing else: no network, no fonts, no scripts of
//! others. What it shows is drawn as SVG here; its script only reads values out under the pointer.
//! The report itself lies in the page as JSON, so that a page can be turned back into its data.

mod cameras;
mod capacity;
mod capacity_charts;
pub mod chart;
mod compare;
mod heat;
mod machine;
mod parts;
mod run;
mod run_charts;
mod servers;
mod stages;
pub mod text;

use serde::Serialize;

use super::{capacity::CapacityReport, compare::Comparison, schema::Report};
use text::{escape, script_json};

/// Colours, sizes and the layout of the page.
const STYLE: &str = include_str!("style.css");

/// Read-outs under the pointer.
const SCRIPT: &str = include_str!("script.js");

/// What can be shown as a page.
#[derive(Debug, Clone, Copy)]
pub enum Document<'a> {
    /// A run, or merged runs.
    Run(&'a Report),
    /// A capacity search.
    Capacity(&'a CapacityReport),
    /// Several reports side by side.
    Comparison(&'a Comparison),
}

/// The whole file.
#[must_use]
pub fn render(document: &Document<'_>) -> String {
    match document {
        Document::Run(report) => page(&run::title(report), &run::body(report), report),
        Document::Capacity(report) => {
            page(&capacity::title(report), &capacity::body(report), report)
        }
        Document::Comparison(comparison) => {
            page(&compare::title(comparison), &compare::body(comparison), comparison)
        }
    }
}

/// The JSON that a page holds; `None` when it is no page of this tool.
#[must_use]
pub fn data_of(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once(DATA_OPEN)?;
    rest.split_once("</script>").map(|(json, _)| json.trim())
}

const DATA_OPEN: &str = "<script type=\"application/json\" id=\"data\">";

fn page(title: &str, body: &str, data: &impl Serialize) -> String {
    // Reports hold numbers, texts and lists only, which all have a form in JSON.
    let json = script_json(&serde_json::to_string(data).unwrap_or_default());
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"client-sim {version}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <main>\n{body}</main>\n\
         <footer>Made by client-sim {version} of Vedette. This file needs no network; its data is \
         in it as JSON (element <code>#data</code>), and <code>client-sim report</code> makes the \
         page again.</footer>\n\
         <div id=\"tip\" role=\"status\" aria-live=\"polite\" hidden></div>\n\
         {DATA_OPEN}{json}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        escape(title),
    )
}
