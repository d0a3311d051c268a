//! The report as text for a terminal.

use std::fmt::{self, Write as _};

use super::schema::{CameraFigures, ReconnectFigures, Report};
use crate::{
    stats::{Figures, Tally},
    verdict::counted,
};

/// Cameras listed unless all are asked for: the slowest.
const LISTED: usize = 5;

/// The whole report; its last line is the verdict.
pub(super) fn render(report: &Report, every_camera: bool) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = head(&mut text, report)
        .and_then(|()| servers(&mut text, report))
        .and_then(|()| rows(&mut text, report, every_camera))
        .and_then(|()| foot(&mut text, report));
    text
}

fn head(text: &mut String, report: &Report) -> fmt::Result {
    write!(text, "server    {}", report.addr)?;
    if let Some(server) = &report.server {
        write!(text, ", version {}, {} ({})", server.version, server.model, server.backend)?;
        if server.input_width > 0 {
            write!(text, ", input {}x{}", server.input_width, server.input_height)?;
        }
        write!(text, ", {}", counted(u64::from(server.workers), "worker"))?;
    }
    let cameras = counted(u64::from(report.cameras), "camera");
    write!(text, "\nload      {cameras}")?;
    if report.groups.len() > 1 {
        write!(text, " with {} fps together", report.fps * f64::from(report.cameras))?;
    } else {
        write!(text, " x {} fps", report.fps)?;
    }
    write!(text, " for {} s", report.seconds)?;
    if report.warmup.seconds > 0.0 {
        write!(text, " after {} s of warm-up", report.warmup.seconds)?;
    }
    if let Some(connections) = report.connections {
        let all = if report.servers.len() > 1 { "each server" } else { "all" };
        write!(text, ", {} for {all}", counted(u64::from(connections), "connection"))?;
    }
    writeln!(text, "\nphase     {}", phase(report))?;
    for group in &report.groups {
        let pictures = &group.pictures;
        let name = if group.name.is_empty() { "pictures" } else { &group.name };
        // A long name still has a space behind it.
        write!(text, "{name:<9} ")?;
        if report.groups.len() > 1 {
            write!(text, "{} x {} fps, ", counted(u64::from(group.cameras), "camera"), group.fps)?;
        }
        match &pictures.size {
            Some(size) => write!(text, "{} drawn, {size}", pictures.count)?,
            None => write!(text, "{} from {}", pictures.count, pictures.source)?,
        }
        writeln!(
            text,
            ", {} to {} KB, mean {}",
            pictures.min_bytes / 1000,
            pictures.max_bytes / 1000,
            pictures.mean_bytes / 1000
        )?;
    }
    for rogue in &report.rogues {
        let clients = counted(u64::from(rogue.clients), "client");
        let (name, streams) = (rogue.behaviour.name(), counted(rogue.streams, "stream"));
        writeln!(
            text,
            "rogue     {clients} ({name}): {streams}, sent {}, answered {}, ok {}{}",
            rogue.sent,
            rogue.answered,
            rogue.ok,
            if rogue.streams == 0 { "; none of them got in" } else { "" }
        )?;
    }
    writeln!(text)
}

/// How the cameras' start times lie to each other, in words: it decides as much as the server.
fn phase(report: &Report) -> String {
    let period = 1e3 / report.fps;
    match (report.phases.as_str(), report.ramp_cameras, report.ramp_every_ms) {
        (_, Some(cameras), Some(ms)) => {
            format!("ramp, starting {cameras} at a time, {ms} ms apart")
        }
        ("aligned", ..) => "aligned, all at the same instant".to_owned(),
        ("random", ..) => format!("random within {period:.1} ms, seed {}", report.seed),
        _ => format!("even, start times spread over {period:.1} ms"),
    }
}

/// What each of several servers did.
fn servers(text: &mut String, report: &Report) -> fmt::Result {
    let [_, _, ..] = &report.servers[..] else { return Ok(()) };
    let balance = report.balance.as_deref().unwrap_or("mixed");
    writeln!(text, "balance   {balance}, {} servers\n", report.servers.len())?;
    let width = report.servers.iter().map(|server| server.addr.len()).max().unwrap_or(0).max(10);
    writeln!(
        text,
        "{:<width$}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}{:>10}{:>10}",
        "server",
        "cameras",
        "streams",
        "in vain",
        "moved in",
        "out",
        "sent",
        "ok",
        "lost",
        "p99 ms",
        "max ms"
    )?;
    for server in &report.servers {
        writeln!(
            text,
            "{:<width$}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}{:>10}{:>10}",
            server.addr,
            server.cameras,
            server.streams,
            server.refused,
            server.moved_in,
            server.moved_out,
            server.tally.sent,
            server.tally.ok,
            server.tally.lost + server.tally.unaccepted,
            ms(server.figures.p99_ms),
            ms(server.figures.max_ms),
        )?;
    }
    writeln!(text)
}

fn rows(text: &mut String, report: &Report, every_camera: bool) -> fmt::Result {
    writeln!(
        text,
        "{:<10}{:>8}{:>8}{:>8}{:>8}{:>10}{:>10}{:>10}{:>10}",
        "camera", "sent", "ok", "not ok", "lost", "p50 ms", "p95 ms", "p99 ms", "max ms"
    )?;
    row(text, "total", &report.tally, &report.figures)?;
    let mut cameras: Vec<&CameraFigures> = report.per_camera.iter().collect();
    if !every_camera {
        cameras.sort_by(|a, b| badness(b).total_cmp(&badness(a)));
        cameras.truncate(LISTED);
    }
    for camera in &cameras {
        row(text, &camera.camera_id, &camera.tally, &camera.figures)?;
    }
    let left_out = report.per_camera.len() - cameras.len();
    if left_out > 0 {
        let left_out = counted(left_out as u64, "camera");
        writeln!(text, "{left_out} more, none slower (--per-camera lists all)")?;
    }
    writeln!(text)
}

/// What the worst cameras are chosen by: their slowest answer; no answer at all is worse.
fn badness(camera: &CameraFigures) -> f64 {
    camera.figures.max_ms.unwrap_or(f64::INFINITY)
}

fn ms(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"))
}

fn row(text: &mut String, name: &str, tally: &Tally, figures: &Figures) -> fmt::Result {
    writeln!(
        text,
        "{name:<10}{:>8}{:>8}{:>8}{:>8}{:>10}{:>10}{:>10}{:>10}",
        tally.sent,
        tally.ok,
        tally.answered - tally.ok,
        tally.lost + tally.unaccepted,
        ms(figures.p50_ms),
        ms(figures.p95_ms),
        ms(figures.p99_ms),
        ms(figures.max_ms),
    )
}

fn foot(text: &mut String, report: &Report) -> fmt::Result {
    let tally = &report.tally;
    let mut fates: Vec<String> = tally
        .outcomes()
        .iter()
        .filter(|&&(name, count)| count > 0 || name == "ok")
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    fates.push(format!("lost {}", tally.lost));
    for (name, count) in [
        ("unaccepted", tally.unaccepted),
        ("not sent", tally.not_sent),
        ("protocol errors", report.protocol_errors),
    ] {
        if count > 0 {
            fates.push(format!("{name} {count}"));
        }
    }
    writeln!(text, "frames    {}", fates.join(", "))?;
    if let Some(stages) = &report.stages_mean_us {
        let ms = |us: f64| us / 1e3;
        writeln!(
            text,
            "stages    queue {:.2}, decode {:.2}, preprocess {:.2}, inference {:.2}, \
             postprocess {:.2}, total {:.2} ms (means the server reports)",
            ms(stages.queue),
            ms(stages.decode),
            ms(stages.preprocess),
            ms(stages.inference),
            ms(stages.postprocess),
            ms(stages.total),
        )?;
    }
    if let (Some(p99), Some(max)) = (report.send_lateness_ms.p99, report.send_lateness_ms.max) {
        writeln!(text, "lateness  of sending: p99 {p99:.1}, max {max:.1} ms (within latency)")?;
    }
    simulator(text, report)?;
    gaps(text, &report.reconnects)?;
    if let Some(beats) = report.heartbeats.filter(|beats| beats.sent > 0) {
        write!(
            text,
            "heartbeat after {} s without a frame: sent {}, answered {}",
            beats.every_seconds, beats.sent, beats.answered
        )?;
        if beats.taken_for_frames > 0 {
            write!(text, ", taken for frames {}", beats.taken_for_frames)?;
        }
        writeln!(text)?;
    }
    if report.warmup.tally.sent > 0 {
        let warmup = &report.warmup;
        let tally = &warmup.tally;
        writeln!(
            text,
            "warm-up   sent {}, answered {}, lost {}, slowest {:.1} ms (not counted)",
            tally.sent,
            tally.answered,
            tally.lost,
            warmup.max_ms.unwrap_or_default()
        )?;
    }
    for limit in &report.slo_percentiles {
        let ms = limit.ms.unwrap_or(f64::NAN);
        writeln!(text, "limit     p{}: {ms:.1} of {} ms", limit.percentile, limit.limit_ms)?;
    }
    for end in &report.stream_ends {
        writeln!(text, "streams   {} ended early: {}", end.streams, end.reason)?;
    }
    writeln!(text, "\n{}", report.verdict_line())
}

/// How cameras came back whose streams had ended.
fn gaps(text: &mut String, reconnects: &ReconnectFigures) -> fmt::Result {
    if let (Some(max), Some(mean)) = (reconnects.gap_max_ms, reconnects.gap_mean_ms) {
        writeln!(
            text,
            "gaps      {}: mean {mean:.0}, longest {max:.0} ms from a stream's end to the next \
             answer; {} excused",
            counted(reconnects.count, "reconnection"),
            counted(reconnects.excused_frames, "frame"),
        )?;
    }
    if let (Some(max), Some(p50)) = (reconnects.back_max_ms, reconnects.back_p50_ms) {
        write!(text, "back      answered OK again: half within {p50:.0}, all within {max:.0} ms")?;
        if reconnects.moves > 0 {
            write!(text, "; {} to another server", reconnects.moves)?;
        }
        writeln!(text)?;
    }
    if reconnects.away > 0 {
        let cameras = counted(reconnects.away, "camera");
        writeln!(text, "away      {cameras} did not come back")?;
    }
    Ok(())
}

/// The tool's own part.
fn simulator(text: &mut String, report: &Report) -> fmt::Result {
    let simulator = &report.simulator;
    write!(text, "simulator {:.2} cores", simulator.cpu_cores)?;
    if let Some(share) = simulator.busiest_thread_share {
        write!(text, ", busiest thread {:.0} %", share * 100.0)?;
    }
    if let (Some(p99), Some(max)) = (simulator.wake_lateness_ms.p99, simulator.wake_lateness_ms.max)
    {
        write!(text, ", cameras woken late: p99 {p99:.1}, max {max:.1} ms")?;
    }
    writeln!(text)?;
    if let Some(test) = &simulator.self_test {
        writeln!(
            text,
            "self-test {} against a server that answers at once: p99 {:.1}, max {:.1} ms, {:.2} \
             cores",
            counted(u64::from(test.cameras), "camera"),
            test.p99_ms.unwrap_or(f64::NAN),
            test.max_ms.unwrap_or(f64::NAN),
            test.cpu_cores,
        )?;
    }
    Ok(())
}
