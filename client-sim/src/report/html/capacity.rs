//! The page of a capacity search.

use super::{
    capacity_charts::{answered_share, charts, median, runs_of},
    machine::{self, card},
    parts::{self, Kpi, Row, chip, facts, kpis, section, table, verdict_chip, with_unit},
    text::{NONE, count, counted, escape, ms, number, percent, plain, utc},
};
use crate::report::{
    capacity::{CapacityReport, CostFigures, StepFigures, StepRun},
    schema::Verdict,
};

/// The result as a few words.
fn result(report: &CapacityReport) -> String {
    let slo = plain(report.slo_max_ms);
    match report.found {
        None => format!("Not known yet how many cameras hold {slo} ms"),
        Some(0) => format!("Not even one camera holds {slo} ms"),
        Some(1) => format!("1 camera holds {slo} ms"),
        Some(n) => format!("{} cameras hold {slo} ms", count(u64::from(n))),
    }
}

/// The title of the page.
pub(super) fn title(report: &CapacityReport) -> String {
    format!("Capacity: {}, {}", result(report), report.addr)
}

/// Everything between the page's head and its foot.
pub(super) fn body(report: &CapacityReport) -> String {
    let mut body = head(report);
    body += &banner(report);
    body += &kpis(&headline(report));
    body += &parts::arrival(&report.phases, report.ramp_cameras, report.ramp_every_ms);
    body += &charts(report);
    body += &section(
        "steps",
        "Every step",
        "In the order tried. Figures are medians over a step\u{2019}s runs.",
        &steps(report),
    );
    if !report.cost.is_empty() {
        body += &section(
            "cost",
            "What it costs",
            "Prices change and differ by region and contract: check them before you decide. N+1 = \
             the cameras that still hold the limits when one instance fails. A month has 730 hours.",
            &report.cost.iter().map(|figures| cost(figures, report)).collect::<Vec<_>>().concat(),
        );
    }
    let test = machine::self_test(report.self_test.as_ref());
    body += &section(
        "simulator",
        "The simulator\u{2019}s own part",
        "",
        &format!("<div class=\"card\">{test}</div>"),
    );
    body += &section("setup", "Machine and configuration", "", &setup(report));
    body
}

fn head(report: &CapacityReport) -> String {
    let server = machine::server_in_words(report.server.as_ref());
    let place = if report.same_machine {
        "server and simulator on one machine"
    } else {
        "server on another machine"
    };
    let lines = [format!(
        "<b>{}</b>{server} \u{b7} {} \u{b7} {place}",
        escape(&report.addr),
        utc(report.started_unix_ms)
    )];
    let mut chips = vec![
        chip("", &format!("arrival: {}", report.phases)),
        chip("", &format!("limit: max {} ms", plain(report.slo_max_ms))),
        chip("", &format!("{} fps each", number(report.fps, 2))),
    ];
    for limit in &report.slo_percentiles {
        let text = format!("limit: p{} {} ms", plain(limit.percentile), plain(limit.limit_ms));
        chips.push(chip("", &text));
    }
    if !report.complete {
        chips.push(chip("invalid", "search not complete"));
    }
    parts::head("capacity search", "How many cameras does this server hold?", &lines, &chips)
}

fn banner(report: &CapacityReport) -> String {
    let limiting = match report.limiting.resource.as_str() {
        "server-cpu" => "the server\u{2019}s processor",
        "simulator-cpu" => "the simulator\u{2019}s processor",
        "machine-cpu" => "the processor that server and simulator share",
        "network" => "the network",
        _ => "not known",
    };
    let cameras = |n: Option<u32>| n.map_or_else(|| "unknown".to_owned(), |n| count(u64::from(n)));
    let sentence = format!(
        "Sure: <b>{}</b>, which held in every run. Refuted: <b>{}</b>, which failed in every run. \
         What runs out first: <b>{limiting}</b>.",
        cameras(report.sure),
        cameras(report.refuted)
    );
    let mut reasons = Vec::new();
    if !report.limiting.why.is_empty() {
        reasons.push(report.limiting.why.clone());
    }
    let ended = match report.ended_by.as_str() {
        "slo" => None,
        "max-cameras" => Some("The search ended at the largest fleet allowed: there may be room."),
        "simulator" => {
            Some("The search ended at the simulator\u{2019}s limit: the server may hold more.")
        }
        "interrupted" => Some("The search was interrupted."),
        "time" => Some("The search ran out of time."),
        _ => Some("The search ended for a reason that this version does not know."),
    };
    reasons.extend(ended.map(str::to_owned));
    let (class, verdict) = match report.found {
        Some(0) => ("fail", Verdict::Fail),
        Some(_) if report.complete && report.ended_by != "simulator" => ("pass", Verdict::Pass),
        _ => ("invalid", Verdict::Invalid),
    };
    parts::banner(class, parts::verdict_sign(verdict), &result(report), &sentence, &reasons)
}

fn headline(report: &CapacityReport) -> Vec<Kpi<'static>> {
    let kpi = |name, value, note| Kpi { name, value, note, bad: false };
    let found = report.found.unwrap_or(0);
    let cameras = |n: Option<u32>| n.map_or_else(|| NONE.to_owned(), |n| count(u64::from(n)));
    let at_found = report.steps.iter().filter(|step| step.cameras == found);
    let slowest = median(at_found.flat_map(runs_of).map(|run| run.max_ms));
    let runs: usize = report.steps.iter().map(|step| step.runs.len()).sum();
    // Only what was measured stands among the figures; the table has the scaled ones.
    let measured = report.cost.iter().filter(|cost| cost.measured);
    let cheapest = measured.min_by(|a, b| a.per_camera_month.total_cmp(&b.per_camera_month));
    vec![
        kpi(
            "Cameras held",
            cameras(report.found),
            format!("{} to {}", cameras(report.sure), cameras(report.refuted)),
        ),
        kpi(
            "Frames per second",
            count((f64::from(found) * report.fps).round() as u64),
            format!("{} of each camera", number(report.fps, 2)),
        ),
        kpi(
            "Slowest answer there",
            with_unit(&ms(slowest), "ms"),
            format!("limit {} ms; median of the runs", plain(report.slo_max_ms)),
        ),
        match cheapest {
            Some(cost) => kpi(
                "A camera and month",
                with_unit(&number(cost.per_camera_month, 2), &cost.currency),
                format!("on {}", cost.instance),
            ),
            None => kpi(
                "Searched for",
                with_unit(&number(report.elapsed_seconds / 60.0, 1), "min"),
                format!(
                    "{} in {}",
                    counted(runs as u64, "run"),
                    counted(report.steps.len() as u64, "step")
                ),
            ),
        },
    ]
}

fn steps(report: &CapacityReport) -> String {
    let head = [
        "cameras",
        "phase",
        "runs",
        "slowest ms",
        "p99 ms",
        "OK share",
        "server cores",
        "server busy",
        "simulator cores",
        "Mbit/s",
        "why not",
    ];
    let rows: Vec<Row> = report.steps.iter().map(|step| step_row(step, report.found)).collect();
    table("Steps in the order tried", &head, &[1, 2, 10], &rows)
}

fn step_row(step: &StepFigures, found: Option<u32>) -> Row {
    let of = |value: fn(&StepRun) -> Option<f64>| median(step.runs.iter().map(value));
    let cores = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), |v| number(v, 2));
    let (ok, sent) =
        step.runs.iter().fold((0, 0), |(ok, sent), run| (ok + run.ok, sent + run.sent));
    let why = step.runs.iter().find_map(|run| run.reasons.first());
    let busy = of(|run| run.server_busy.map(|busy| busy * 100.0));
    let cells = vec![
        count(u64::from(step.cameras)),
        escape(&step.phase),
        verdicts(step),
        ms(of(|run| run.max_ms)),
        ms(of(|run| run.p99_ms)),
        percent(ok, sent),
        cores(of(|run| run.server_cpu_cores)),
        busy.map_or_else(|| NONE.to_owned(), |busy| format!("{} %", number(busy, 0))),
        cores(of(|run| Some(run.simulator_cpu_cores))),
        of(|run| Some(run.sent_mbit_per_s)).map_or_else(|| NONE.to_owned(), |v| number(v, 0)),
        why.map_or_else(String::new, |why| format!("<span class=\"why\">{}</span>", escape(why))),
    ];
    let class = if Some(step.cameras) == found && step.passed {
        "best"
    } else if step.passed {
        ""
    } else {
        "bad"
    };
    Row { class, cells }
}

/// How many of a step's runs came to what.
fn verdicts(step: &StepFigures) -> String {
    let chips = [Verdict::Pass, Verdict::Fail, Verdict::Invalid].map(|verdict| {
        let n = step.runs.iter().filter(|run| run.verdict == verdict).count();
        if n == 0 { String::new() } else { verdict_chip(verdict, n) }
    });
    chips.join(" ")
}

fn cost(figures: &CostFigures, report: &CapacityReport) -> String {
    let money = |value: f64| format!("{} {}", number(value, 2), escape(&figures.currency));
    let head = [
        "instances",
        "cameras",
        "a month",
        "a camera and month",
        "cameras at N+1",
        "a camera and month at N+1",
    ];
    let rows: Vec<Row> = figures
        .fleets
        .iter()
        .map(|fleet| {
            let each = if fleet.cameras == 0 {
                NONE.to_owned()
            } else {
                money(fleet.month / f64::from(fleet.cameras))
            };
            let cells = vec![
                count(u64::from(fleet.instances)),
                count(u64::from(fleet.cameras)),
                money(fleet.month),
                each,
                count(u64::from(fleet.cameras_n_plus_1)),
                fleet.per_camera_month_n_plus_1.map_or_else(|| NONE.to_owned(), money),
            ];
            Row { class: "", cells }
        })
        .collect();
    let how = if figures.measured {
        format!("{} measured", counted(u64::from(figures.cameras), "camera"))
    } else {
        let cores = counted(report.machine.cores as u64, "core");
        let cameras = counted(u64::from(figures.cameras), "camera");
        format!("{cameras}, scaled from the {cores} measured: measure before you rely on it")
    };
    let source = if figures.source.is_empty() {
        "given on the command line".to_owned()
    } else {
        escape(&figures.source)
    };
    format!(
        "<h3>{}: {} an hour, {how}</h3><p class=\"lead\">Price: {source}.</p>{}",
        escape(&figures.instance),
        money(figures.price_per_hour),
        table(&format!("Cost on {}", figures.instance), &head, &[], &rows)
    )
}

fn setup(report: &CapacityReport) -> String {
    let runs: usize = report.steps.iter().map(|step| step.runs.len()).sum();
    let search = facts(&[
        ("Frames per second", format!("{} of each camera", plain(report.fps))),
        ("Arrival", escape(&report.phases)),
        ("Connections", machine::connections(report.connections)),
        ("A run", format!("{} s after {} s", plain(report.seconds), plain(report.warmup_seconds))),
        ("Runs of a step", format!("{}, of which most must pass", report.repeats)),
        ("Answered OK at least", format!("{} %", number(report.min_answered_ratio * 100.0, 4))),
        ("Pictures", machine::pictures(&report.pictures)),
        ("Runs", format!("{} in {} s", count(runs as u64), number(report.elapsed_seconds, 0))),
        ("Answered OK in all", answered_share(report)),
    ]);
    format!(
        "<div class=\"columns\">{}{}{}</div>{}",
        card("Search", &search),
        card("Server", &machine::server(&report.addr, report.server.as_ref())),
        card("Machine of the simulator", &machine::machine(&report.machine)),
        machine::arguments(&report.arguments)
    )
}
