//! Pages: what they draw is what was measured, and they are whole by themselves.

mod safety;
mod svg;

use client_sim::report::{
    capacity::CapacityReport,
    compare::Comparison,
    files::{Loaded, parse},
    html::{Document, data_of, render},
    schema::{Report, Verdict},
};
use svg::{Chart, Path, charts, numbers};

use crate::samples;

/// The charts of a name, in both layouts.
fn named(page: &str, name: &str) -> Vec<Chart> {
    let found: Vec<Chart> = charts(page).into_iter().filter(|chart| chart.name == name).collect();
    assert_eq!(found.len(), 2, "{name} is drawn for screens and for phones");
    found
}

fn run_in(page: &str) -> Report {
    match parse(page).unwrap() {
        Loaded::Run(report) => *report,
        other => panic!("{other:?}"),
    }
}

/// Numbers in a page are to six decimals.
fn same(shown: &[Option<f64>], measured: &[Option<f64>], what: &str) {
    assert_eq!(shown.len(), measured.len(), "{what}");
    for (i, (shown, measured)) in shown.iter().zip(measured).enumerate() {
        let close = match (shown, measured) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * b.abs().max(1.0),
            (None, None) => true,
            _ => false,
        };
        assert!(close, "{what}, place {i}: {shown:?} is not {measured:?}");
    }
}

/// What is drawn agrees with the numbers beside it, in every chart.
fn check_drawing(page: &str) {
    for chart in charts(page) {
        for path in &chart.paths {
            let what = format!("{} of {}", path.name, chart.name);
            if path.class.starts_with("line") || path.class.starts_with("mark") {
                check_points(&chart, path, &what);
            } else if chart.name.ends_with("-time") {
                check_bars(&chart, path, &what);
            }
        }
    }
}

fn check_points(chart: &Chart, path: &Path, what: &str) {
    let (places, known) = (path.places(), path.known());
    assert_eq!(places.len(), known.len(), "{what}");
    for ((px, py), (x, y)) in places.into_iter().zip(known) {
        assert!(chart.x.shows(px, x), "{what}: {px} shows {}, not {x}", chart.x.value(px));
        // Flags lie at the upper edge, whatever their number.
        let flag = path.class.contains("miss");
        assert!(flag || chart.y.shows(py, y), "{what}: {py} shows {}, not {y}", chart.y.value(py));
    }
}

fn check_bars(chart: &Chart, path: &Path, what: &str) {
    let bars = path.rectangles();
    let known: Vec<_> = path.known().into_iter().filter(|(_, y)| *y > 0.0).collect();
    assert_eq!(bars.len(), known.len(), "{what}");
    for ([left, top, right, bottom], (x, y)) in bars.into_iter().zip(known) {
        assert!((chart.x.value(left)..=chart.x.value(right)).contains(&x), "{what} at {x}");
        let height = chart.y.value(top) - chart.y.value(bottom);
        let slack = (chart.y.value(0.0) - chart.y.value(0.03)).abs();
        assert!((height - y).abs() <= slack, "{what} at {x}: {height} is not {y}");
    }
}

#[test]
fn charts_of_a_run_show_its_figures() {
    for report in [samples::passing(), samples::failing(), samples::invalid()] {
        let page = render(&Document::Run(&report));
        check_drawing(&page);
        let report = run_in(&page);
        for chart in named(&page, "percentiles") {
            let line = chart.path("latency");
            let points = &report.percentiles;
            let of = |f: fn(&_) -> f64| points.iter().map(|p| Some(f(p))).collect::<Vec<_>>();
            same(&line.x, &of(|point| point.percentile), "percentiles");
            same(&line.y, &of(|point| point.ms), "latency");
            same(&chart.path("slowest").y, &[report.figures.max_ms], "slowest");
        }
        let timeline = &report.timeline;
        for chart in named(&page, "latency-time") {
            same(&chart.path("median").y, &timeline.p50_ms, "median");
            same(&chart.path("99 %").y, &timeline.p99_ms, "99 %");
            same(&chart.path("slowest").y, &timeline.max_ms, "slowest");
            let limit = svg::attribute(&chart.svg, "data-value").unwrap();
            assert_eq!(limit.parse(), Ok(report.slo_max_ms));
        }
        let missed = timeline.not_ok.iter().sum::<u64>() + timeline.unanswered.iter().sum::<u64>();
        if missed == 0 {
            assert!(!page.contains("data-chart=\"drops-time\""));
            continue;
        }
        let counts = |list: &[u64]| list.iter().map(|n| Some(*n as f64)).collect::<Vec<_>>();
        for chart in named(&page, "drops-time") {
            same(&chart.path("answered, not OK").y, &counts(&timeline.not_ok), "not OK");
            same(&chart.path("not answered").y, &counts(&timeline.unanswered), "unanswered");
        }
    }
}

#[test]
fn each_of_several_servers_has_a_line_and_a_row() {
    let report = samples::balanced();
    let page = render(&Document::Run(&report));
    check_drawing(&page);
    let report = run_in(&page);
    assert_eq!(report.servers.len(), 3);
    for chart in named(&page, "servers-time") {
        for server in &report.servers {
            let ok: Vec<_> = server.bins_ok.iter().map(|ok| Some(*ok as f64)).collect();
            same(&chart.path(&server.addr).y, &ok, &server.addr);
        }
    }
    assert_eq!(report.reconnects.moves, 8);
    assert!(page.contains("balance: round-robin") && page.contains("8 moves to another server"));
    let alone = render(&Document::Run(&samples::passing()));
    assert!(!alone.contains("servers-time") && !alone.contains("balance:"));
}

#[test]
fn stages_are_drawn_on_top_of_each_other_and_make_the_total() {
    let report = samples::failing();
    let page = render(&Document::Run(&report));
    let names = ["queue", "decode", "preprocess", "inference", "postprocess", "rest"];
    for chart in named(&page, "stages-time") {
        for (bin, means) in report.timeline.stages_mean_us.iter().enumerate() {
            let times: Vec<Option<f64>> =
                names.iter().map(|name| chart.path(name).y[bin]).collect();
            let Some(means) = means else {
                assert!(times.iter().all(Option::is_none));
                continue;
            };
            let known = [means.queue, means.decode, means.preprocess, means.inference];
            let shown: Vec<Option<f64>> = known.iter().map(|us| Some(us / 1e3)).collect();
            same(&times[..4], &shown, "stages");
            let sum: f64 = times.iter().flatten().sum();
            assert!((sum - means.total / 1e3).abs() < 1e-3, "bin {bin}: {sum}");
        }
    }
    for chart in named(&page, "stages-mean") {
        let mut end = chart.x.value(chart.path("queue").rectangles()[0][0]);
        for name in names {
            let path = chart.path(name);
            for [left, _, right, _] in path.rectangles() {
                let slack = chart.x.value(2.0) - chart.x.value(0.0);
                assert!((chart.x.value(left) - end).abs() <= slack, "{name} follows");
                end += path.y[0].unwrap();
                assert!((chart.x.value(right) - end).abs() <= slack, "{name} is as long as told");
            }
        }
    }
}

#[test]
fn the_heat_strip_colours_each_cell_by_its_slowest_answer() {
    let report = samples::failing();
    let page = render(&Document::Run(&report));
    for chart in named(&page, "heat") {
        let rows: Vec<&str> = chart.svg.split("<g data-row=").skip(1).collect();
        assert_eq!(rows.len(), report.per_camera.len());
        for (row, camera) in rows.into_iter().zip(&report.per_camera) {
            let row = format!("<g data-row={row}");
            assert_eq!(svg::attribute(&row, "data-row").unwrap(), camera.camera_id);
            let max = numbers(&svg::attribute(&row, "data-max").unwrap());
            same(&max, &camera.bins_max_ms, &camera.camera_id);
            let mut levels = vec![None; camera.bins_max_ms.len()];
            let mut crosses = vec![0; levels.len()];
            for text in row.split("<path ").skip(1) {
                let path = Path {
                    class: svg::attribute(&format!(" {text}"), "class").unwrap(),
                    name: String::new(),
                    x: Vec::new(),
                    y: Vec::new(),
                    d: svg::attribute(&format!(" {text}"), "d").unwrap().replace('v', "V"),
                };
                if path.class == "mark heat-miss" {
                    for (x, _) in path.places() {
                        crosses[chart.x.value(x) as usize] += 1;
                    }
                } else if let Some(level) = path.class.strip_prefix("bar h") {
                    for [left, _, right, _] in path.rectangles() {
                        let [from, to] = [left, right].map(|x| chart.x.value(x).round() as usize);
                        levels[from..to].fill(level.parse::<usize>().ok());
                    }
                }
            }
            for (bin, max) in camera.bins_max_ms.iter().enumerate() {
                let expected = max.map(|ms| {
                    [25.0, 50.0, 75.0, 100.0, 200.0].iter().filter(|edge| ms > **edge).count()
                });
                assert_eq!(levels[bin], expected, "{} bin {bin}", camera.camera_id);
                assert_eq!(crosses[bin] > 0, camera.bins_missed[bin] > 0);
            }
        }
    }
}

fn search_in(page: &str) -> CapacityReport {
    match parse(page).unwrap() {
        Loaded::Capacity(report) => *report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn charts_of_a_capacity_search_show_its_runs() {
    let page = render(&Document::Capacity(&samples::capacity()));
    check_drawing(&page);
    let report = search_in(&page);
    assert_eq!(report, samples::capacity());
    for chart in named(&page, "capacity") {
        for verdict in [Verdict::Pass, Verdict::Fail, Verdict::Invalid] {
            let runs = report
                .steps
                .iter()
                .flat_map(|step| step.runs.iter().map(|run| (f64::from(step.cameras), run)));
            let mut expected: Vec<(f64, f64)> = runs
                .filter(|(_, run)| run.verdict == verdict)
                .map(|(cameras, run)| (cameras, run.max_ms.unwrap()))
                .collect();
            let mut shown = chart.path(&format!("slowest answer, {}", verdict.word())).known();
            for list in [&mut expected, &mut shown] {
                list.sort_by(|a, b| a.partial_cmp(b).unwrap());
            }
            let of = |list: &[(f64, f64)]| -> Vec<Option<f64>> {
                list.iter().flat_map(|(x, y)| [Some(*x), Some(*y)]).collect()
            };
            same(&of(&shown), &of(&expected), verdict.word());
        }
        let found = chart.svg.split("class=\"upright found\"").nth(1).unwrap();
        let found = svg::attribute(found, "data-value").unwrap();
        assert_eq!(found.parse().ok(), report.found);
        let medians = chart.path("median");
        assert!(medians.known().windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (cameras, median) in medians.known() {
            let step =
                report.steps.iter().find(|step| (f64::from(step.cameras) - cameras).abs() < 1e-6);
            let mut values: Vec<f64> =
                step.unwrap().runs.iter().filter_map(|run| run.max_ms).collect();
            values.sort_by(f64::total_cmp);
            assert!((median - values[1]).abs() < 1e-6);
        }
    }
    for chart in named(&page, "answered") {
        let shown = chart.path("answered OK").known();
        assert!(shown.iter().any(|(_, share)| *share > 100.0 - 1e-6));
        assert!(shown.last().unwrap().1 < 50.0, "the last step dropped most");
    }
    for chart in named(&page, "cpu") {
        assert_eq!(chart.path("server").known().len(), chart.path("simulator").known().len());
    }
}

#[test]
fn charts_of_a_comparison_lay_the_entries_over_each_other() {
    let comparison = samples::comparison();
    let page = render(&Document::Comparison(&comparison));
    check_drawing(&page);
    let Loaded::Comparison(back) = parse(&page).unwrap() else { panic!() };
    assert_eq!(*back, comparison);
    for entry in &back.entries {
        for chart in named(&page, "percentiles") {
            let ms: Vec<_> = entry.percentiles.iter().map(|point| Some(point.ms)).collect();
            same(&chart.path(&entry.label).y, &ms, &entry.label);
        }
        let timeline = entry.timeline.as_ref().unwrap();
        for chart in named(&page, "max-time") {
            same(&chart.path(&entry.label).y, &timeline.max_ms, &entry.label);
        }
        for chart in named(&page, "p99-time") {
            same(&chart.path(&entry.label).y, &timeline.p99_ms, &entry.label);
        }
    }
    let searches: Comparison = samples::capacity_comparison();
    let page = render(&Document::Comparison(&searches));
    check_drawing(&page);
    for entry in &searches.entries {
        for chart in named(&page, "capacity") {
            let max: Vec<_> = entry.capacity.iter().map(|point| point.max_ms).collect();
            same(&chart.path(&entry.label).y, &max, &entry.label);
        }
    }
}

#[test]
fn a_page_turns_back_into_its_report() {
    for report in [samples::passing(), samples::failing(), samples::invalid()] {
        let page = render(&Document::Run(&report));
        assert_eq!(run_in(&page), report);
        assert!(data_of(&page).is_some());
        let json = serde_json::to_string_pretty(&report).unwrap();
        assert_eq!(parse(&json).unwrap(), Loaded::Run(Box::new(report)));
    }
    assert_eq!(data_of("<html></html>"), None);
}

#[test]
fn reports_whose_books_do_not_add_up_are_refused() {
    let changed = |change: fn(&mut Report)| {
        let mut report = samples::Story::new(1, 2).report();
        change(&mut report);
        parse(&serde_json::to_string(&report).unwrap()).unwrap_err()
    };
    let why = changed(|report| report.timeline.ok.push(3));
    assert!(why.contains("not equally long"), "{why}");
    let why = changed(|report| report.servers[0].bins_ok.push(3));
    assert!(why.contains("not as long as its timeline"), "{why}");
    let why = changed(|report| report.per_camera[0].excused.lost = 1);
    assert_eq!(why, "sim-0001 excuses more frames than it missed");
}
