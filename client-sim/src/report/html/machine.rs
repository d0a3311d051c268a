//! The simulator's own part, the machine, and the configuration.

use super::{
    parts::facts,
    text::{NONE, bytes, count, counted, escape, ms_unit, number, plain},
};
use crate::report::schema::{
    HeartbeatFigures, MachineFigures, PictureFigures, Report, SelfTestFigures, ServerFigures,
};

/// What the server runs, to follow its address; nothing when it does not say.
pub(super) fn server_in_words(server: Option<&ServerFigures>) -> String {
    server.map_or_else(String::new, |server| {
        format!(
            " \u{b7} version {}, {} ({})",
            escape(&server.version),
            escape(&server.model),
            escape(&server.backend)
        )
    })
}

/// What the simulator knows about itself.
pub(super) fn simulator(report: &Report) -> String {
    let own = &report.simulator;
    let wake = &own.wake_lateness_ms;
    let lateness = &report.send_lateness_ms;
    let mut html = "<div class=\"card\">".to_owned();
    html += &facts(&[
        ("Threads", count(own.threads as u64)),
        ("Processor time", format!("{} cores", number(own.cpu_cores, 2))),
        ("Busiest thread", own.busiest_thread_share.map_or_else(|| "unknown".to_owned(), meter)),
        ("Cameras woke up late by", late(wake.p99, wake.max)),
        ("Frames were handed over late by", late(lateness.p99, lateness.max)),
        ("Answers over the limit by its own fault", count(own.over_slo_by_itself)),
        (
            "Warm-up",
            format!(
                "{} s, {} sent, slowest {} (not counted)",
                plain(report.warmup.seconds),
                count(report.warmup.tally.sent),
                ms_unit(report.warmup.max_ms)
            ),
        ),
        ("Protocol errors", count(report.protocol_errors)),
    ]);
    html += &self_test(own.self_test.as_ref());
    html + "</div>"
}

fn late(p99: Option<f64>, max: Option<f64>) -> String {
    format!("p99 {}, at most {}", ms_unit(p99), ms_unit(max))
}

/// A share as a bar with its number.
fn meter(share: f64) -> String {
    let percent = number(share * 100.0, 0);
    format!(
        "<meter min=\"0\" max=\"1\" high=\"0.8\" optimum=\"0\" value=\"{}\">{percent} %</meter> \
         {percent} %",
        number(share.clamp(0.0, 1.0), 3)
    )
}

/// The same load against a server that answers at once.
pub(super) fn self_test(test: Option<&SelfTestFigures>) -> String {
    let Some(test) = test else {
        return "<p class=\"note\">Self test: not run. <code>--self-test</code> drives a server \
                that answers at once and shows what the simulator itself costs.</p>"
            .to_owned();
    };
    format!(
        "<p class=\"note\">Self test against a server that answers at once: {} for {} s, {} of {} \
         frames answered, 99 % within {}, slowest {}, {} cores.</p>",
        counted(u64::from(test.cameras), "camera"),
        plain(test.seconds),
        count(test.ok),
        count(test.sent),
        ms_unit(test.p99_ms),
        ms_unit(test.max_ms),
        number(test.cpu_cores, 2)
    )
}

/// The machine, server and settings of a run, and the arguments.
pub(super) fn setup(report: &Report) -> String {
    let mut load = vec![
        ("Cameras", count(u64::from(report.cameras))),
        ("Frames per second", plain(report.fps)),
        ("Measured", format!("{} s", plain(report.seconds))),
        ("Arrival", escape(&report.phases)),
        ("Connections", connections(report.connections)),
        ("Seed", report.seed.to_string()),
        ("Answered OK at least", format!("{} %", number(report.min_answered_ratio * 100.0, 4))),
    ];
    if let Some(scenario) = &report.scenario {
        load.insert(0, ("Scenario", escape(scenario)));
    }
    if let Some(group) = report.groups.first() {
        load.push(("Budget", budget(group.budget_ms)));
        load.push(("Jitter", format!("{} ms", plain(group.jitter_ms))));
        load.push(("Pictures", pictures(&group.pictures)));
    }
    if let Some(beats) = report.heartbeats.filter(|beats| beats.sent > 0) {
        load.push(("Heartbeats", heartbeats(&beats)));
    }
    format!(
        "<div class=\"columns\">{}{}{}</div>{}",
        card("Load", &facts(&load)),
        card("Server", &server(&report.addr, report.server.as_ref())),
        card("Machine of the simulator", &machine(&report.machine)),
        arguments(&report.arguments)
    )
}

/// A card with a heading.
pub(super) fn card(title: &str, content: &str) -> String {
    format!("<div class=\"card\"><h3>{}</h3>{content}</div>", escape(title))
}

pub(super) fn connections(connections: Option<u32>) -> String {
    connections.map_or_else(|| "one for each camera".to_owned(), |n| count(u64::from(n)))
}

fn heartbeats(beats: &HeartbeatFigures) -> String {
    let every = plain(beats.every_seconds);
    let (sent, answered) = (count(beats.sent), count(beats.answered));
    let as_frames = match beats.taken_for_frames {
        0 => String::new(),
        n => format!(", {} taken for frames", count(n)),
    };
    format!("after {every} s without a frame: {sent} sent, {answered} answered{as_frames}")
}

fn budget(ms: u32) -> String {
    if ms == 0 { "the server\u{2019}s".to_owned() } else { format!("{ms} ms") }
}

pub(super) fn pictures(pictures: &PictureFigures) -> String {
    let what = match &pictures.size {
        Some(size) => format!("{} {}, {size}", count(pictures.count as u64), pictures.source),
        None => format!("{} from {}", count(pictures.count as u64), pictures.source),
    };
    let [low, mean, high] = [pictures.min_bytes, pictures.mean_bytes, pictures.max_bytes]
        .map(|size| bytes(size as u64));
    format!("{}; {low} to {high}, mean {mean}", escape(&what))
}

/// What the server said about itself.
pub(super) fn server(addr: &str, server: Option<&ServerFigures>) -> String {
    let Some(server) = server else {
        return facts(&[
            ("Address", escape(addr)),
            ("Description", "the server does not describe itself".to_owned()),
        ]);
    };
    facts(&[
        ("Address", escape(addr)),
        ("Version", escape(&server.version)),
        ("Model", escape(&server.model)),
        ("Backend", escape(&server.backend)),
        ("Input", format!("{} \u{d7} {}", server.input_width, server.input_height)),
        ("Classes", count(server.classes as u64)),
        ("Workers", count(u64::from(server.workers))),
        ("Budget of a frame", format!("{} ms", server.budget_ms)),
        ("Cameras at most", count(u64::from(server.max_cameras))),
        ("Confidence, IoU", format!("{}, {}", server.confidence, server.iou)),
    ])
}

/// The machine on which the simulator ran.
pub(super) fn machine(machine: &MachineFigures) -> String {
    let or_unknown = |known: bool, text: String| if known { text } else { NONE.to_owned() };
    facts(&[
        ("Processor", or_unknown(!machine.cpu.is_empty(), escape(&machine.cpu))),
        ("Cores", count(machine.cores as u64)),
        ("Memory", or_unknown(machine.memory_bytes > 0, bytes(machine.memory_bytes))),
        ("System", or_unknown(!machine.system.is_empty(), escape(&machine.system))),
    ])
}

/// The command line, as typed.
pub(super) fn arguments(arguments: &[String]) -> String {
    let words: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
    format!(
        "<h3>Command</h3><pre class=\"command\"><code>client-sim {}</code></pre>",
        escape(&words.join(" "))
    )
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
