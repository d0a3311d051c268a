//! Hostile names, odd reports, and no word to the outside.

use client_sim::{
    report::{
        capacity::CapacityReport,
        html::{Document, render},
        schema::Report,
    },
    stats::{Distribution, Figures, Tally},
};

use super::{check_drawing, run_in};
use crate::samples::{self, Story};

/// Nothing in the page leads outside, and every number in it is one.
fn check_page(page: &str) {
    let outside = page.match_indices("src=\"").chain(page.match_indices("href=\""));
    for (at, start) in outside.filter(|(at, _)| !page[..*at].contains("id=\"data\"")) {
        let target = &page[at + start.len()..];
        assert!(target.starts_with("data:,\""), "{start}{}", &target[..target.len().min(60)]);
    }
    for word in ["url(", "@import", "fetch(", "XMLHttpRequest", "import("] {
        let own = page.split_once("</style>").unwrap().0.contains(word)
            || page.rsplit_once("<script>").unwrap().1.contains(word);
        assert!(!own, "{word}");
    }
    for element in ["<iframe", "<object", "<embed", "<img", "<base", "<form"] {
        assert!(!page.contains(element), "{element}");
    }
    let (body, _) = page.split_once("<script type=").unwrap();
    assert!(!body.contains("NaN") && !body.contains("inf ") && !body.contains("inf<"));
    for name in ["d", "x", "y", "x1", "x2", "y1", "y2", "width", "data-x", "data-y", "data-max"] {
        for (_, rest) in body.match_indices(&format!(" {name}=\"")).map(|(at, _)| body.split_at(at))
        {
            let value = rest.split('"').nth(1).unwrap();
            let fine = |c: char| c.is_ascii_digit() || " .,-MLHVZSmlhvazsc".contains(c);
            assert!(value.chars().all(fine), "{name}={value}");
        }
    }
    assert_eq!(page.matches("<script").count(), 2, "the data and the read-outs");
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("name=\"viewport\""));
}

#[test]
fn pages_need_no_network() {
    for report in [samples::passing(), samples::failing(), samples::invalid(), samples::balanced()]
    {
        check_page(&render(&Document::Run(&report)));
    }
    check_page(&render(&Document::Capacity(&samples::capacity())));
    check_page(&render(&Document::Comparison(&samples::comparison())));
    check_page(&render(&Document::Comparison(&samples::capacity_comparison())));
}

const HOSTILE: &str =
    "</script><script>alert(1)</script><img src=x onerror='a(\"b\")'>&amp;\u{0}]]>";

#[test]
fn hostile_names_stay_names() {
    let mut report = samples::failing();
    report.addr = HOSTILE.to_owned();
    report.phases = HOSTILE.to_owned();
    report.scenario = Some(HOSTILE.to_owned());
    report.arguments = vec![HOSTILE.to_owned(), "it's".to_owned()];
    report.reasons = vec![HOSTILE.to_owned()];
    report.machine.cpu = HOSTILE.to_owned();
    report.groups[0].name = HOSTILE.to_owned();
    report.groups[0].pictures.source = HOSTILE.to_owned();
    report.per_camera[0].camera_id = HOSTILE.to_owned();
    report.per_camera[0].end = HOSTILE.to_owned();
    report.server.as_mut().unwrap().model = HOSTILE.to_owned();
    let page = render(&Document::Run(&report));
    check_page(&page);
    assert!(!page.contains("<img"), "a name became an element");
    assert_eq!(run_in(&page), report);

    let mut report = samples::balanced();
    report.balance = Some(HOSTILE.to_owned());
    report.servers[0].addr = HOSTILE.to_owned();
    report.servers[0].server.as_mut().unwrap().version = HOSTILE.to_owned();
    let page = render(&Document::Run(&report));
    check_page(&page);
    assert!(!page.contains("<img"), "a name became an element");

    let mut search = samples::capacity();
    search.limiting.why = HOSTILE.to_owned();
    search.steps[0].phase = HOSTILE.to_owned();
    search.cost[0].instance = HOSTILE.to_owned();
    search.cost[0].source = HOSTILE.to_owned();
    check_page(&render(&Document::Capacity(&search)));

    let mut comparison = samples::comparison();
    comparison.entries[0].label = HOSTILE.to_owned();
    comparison.entries[0].files[0] = HOSTILE.to_owned();
    let page = render(&Document::Comparison(&comparison));
    check_page(&page);
    assert!(!page.contains("<img"));
}

/// A report in which nothing was measured.
fn empty() -> Report {
    let mut report = samples::Story::new(1, 1).report();
    report.tally = Tally::default();
    report.figures = Figures::default();
    report.stages_mean_us = None;
    report.percentiles.clear();
    report.histogram_us = Distribution::latency().to_base64();
    report.server = None;
    report.simulator.self_test = None;
    report.simulator.busiest_thread_share = None;
    report.all_answers_max_ms = None;
    let timeline = &mut report.timeline;
    for list in [&mut timeline.p50_ms, &mut timeline.p99_ms, &mut timeline.max_ms] {
        list.fill(None);
    }
    timeline.stages_mean_us.fill(None);
    report.per_camera[0].figures = Figures::default();
    report.per_camera[0].bins_max_ms.fill(None);
    report
}

#[test]
fn reports_with_little_in_them_have_pages_too() {
    let mut nothing_at_all = empty();
    nothing_at_all.timeline = client_sim::report::schema::Timeline::default();
    nothing_at_all.servers.clear();
    nothing_at_all.per_camera.clear();
    nothing_at_all.groups.clear();
    (nothing_at_all.seconds, nothing_at_all.slo_max_ms) = (0.0, 0.0);
    let dropping = Story { server: |_| None, ..Story::new(3, 2) }.report();
    for report in [empty(), nothing_at_all, dropping, Story::new(1, 1).report()] {
        let page = render(&Document::Run(&report));
        check_page(&page);
        check_drawing(&page);
        assert_eq!(run_in(&page), report);
    }
    let search = CapacityReport {
        steps: Vec::new(),
        cost: Vec::new(),
        found: None,
        sure: None,
        refuted: None,
        complete: false,
        self_test: None,
        server: None,
        ..samples::capacity()
    };
    check_page(&render(&Document::Capacity(&search)));
    let mut odd = samples::capacity();
    for run in odd.steps.iter_mut().flat_map(|step| &mut step.runs) {
        (run.max_ms, run.p99_ms, run.p50_ms, run.server_cpu_cores) = (None, None, None, None);
        (run.sent, run.ok) = (0, 0);
    }
    let page = render(&Document::Capacity(&odd));
    check_page(&page);
    check_drawing(&page);
}

#[test]
fn a_fleet_of_twenty_thousand_has_a_page_of_bounded_length() {
    let mut report = Story::new(4, 2).report();
    let camera = report.per_camera[0].clone();
    report.cameras = 20_000;
    report.per_camera = (0..20_000)
        .map(|n| {
            let mut camera = camera.clone();
            camera.camera_id = format!("sim-{n:05}");
            camera.figures.max_ms = Some(f64::from(n % 977));
            camera
        })
        .collect();
    let page = render(&Document::Run(&report));
    check_page(&page);
    let (shown, _) = page.split_once("<script type=").unwrap();
    assert!(shown.len() < 300_000, "{} bytes are shown", shown.len());
    assert!(shown.contains("The worst 40 of 20\u{202f}000 cameras"));
    assert!(shown.contains("sim-00976"), "the slowest is among them");
    assert_eq!(run_in(&page).per_camera.len(), 20_000);
    // Without bins of single cameras, as very large fleets are reported.
    for camera in &mut report.per_camera {
        (camera.bins_max_ms, camera.bins_missed) = (Vec::new(), Vec::new());
    }
    check_page(&render(&Document::Run(&report)));
}
