//! The live page: files that are part of this program, served as they are.

use axum::{
    Router,
    extract::Path,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};

use super::Admin;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

const INDEX: &str = include_str!("page/index.html");

/// What the page consists of: name, media type, content.
const FILES: [(&str, &str, &str); 10] = [
    ("app.js", SCRIPT, include_str!("page/app.js")),
    ("camera.js", SCRIPT, include_str!("page/camera.js")),
    ("chart.js", SCRIPT, include_str!("page/chart.js")),
    ("dom.js", SCRIPT, include_str!("page/dom.js")),
    ("fleet.js", SCRIPT, include_str!("page/fleet.js")),
    ("format.js", SCRIPT, include_str!("page/format.js")),
    ("icon.svg", SVG, include_str!("page/icon.svg")),
    ("picture.js", SCRIPT, include_str!("page/picture.js")),
    ("stream.js", SCRIPT, include_str!("page/stream.js")),
    ("style.css", STYLE, include_str!("page/style.css")),
];

/// What the page may do (Content Security Policy, level 3): run its own scripts, talk to its own server, show
/// pictures that it has fetched. Nothing from elsewhere, and nobody may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
                      connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> Router<Admin> {
    Router::new().route("/", get(async || served(HTML, INDEX))).route("/ui/{file}", get(file))
}

async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, content)) => served(kind, content),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn served(kind: &'static str, content: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // The next version of the server brings its own.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever a file refers to within the page.
    fn references(text: &str) -> impl Iterator<Item = &str> {
        let in_quotes = text.split('"').skip(1).step_by(2);
        in_quotes.filter_map(|word| word.strip_prefix("./").or_else(|| word.strip_prefix("/ui/")))
    }

    #[test]
    fn everything_that_the_page_refers_to_is_part_of_it() {
        let texts = FILES.iter().map(|(_, _, text)| *text).chain([INDEX]);
        let mut found = 0;
        for name in texts.flat_map(references) {
            found += 1;
            assert!(FILES.iter().any(|(known, ..)| *known == name), "{name} is missing");
        }
        assert!(found > 10);
    }

    #[test]
    fn nothing_in_the_page_is_from_elsewhere_or_reads_markup_from_data() {
        for (name, _, text) in FILES {
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for banned in ["http:", "https:", "innerHTML", "insertAdjacentHTML", "eval(", "@import"]
            {
                assert!(!text.contains(banned), "{banned} in {name}");
            }
        }
        assert!(
            !INDEX.contains("<style") && !INDEX.contains("style=") && !INDEX.contains("onclick")
        );
    }
}
