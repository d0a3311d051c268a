//! The report of `client-sim selftest`: what the simulator itself costs on this machine.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::schema::{
    MachineFigures, PictureFigures, Report, SCHEMA_VERSION, SelfTestFigures, Verdict,
};
use crate::{self_test, verdict::counted};

/// What `kind` says in a self-test's report.
pub const KIND_SELF_TEST: &str = "selftest";

/// Share of a core that the estimate counts on for each thread. From there on answers wait for the
/// processor noticeably, and other work needs some of it.
const USABLE_SHARE: f64 = 0.8;

/// A fleet against a server that answers at once, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelfTestReport {
    /// As in a run's report.
    pub schema_version: u32,
    /// [`KIND_SELF_TEST`].
    pub kind: String,
    /// Version of this tool.
    pub client_version: String,
    /// Arguments of the tool, as typed.
    pub arguments: Vec<String>,
    /// Start of the measured part, in milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// The machine on which this tool ran.
    pub machine: MachineFigures,
    /// Frames per second of each camera.
    pub fps: f64,
    /// Connections shared by all cameras; `null` = one for each.
    pub connections: Option<u32>,
    /// What was sent.
    pub pictures: PictureFigures,
    /// Threads that sent and received.
    pub threads: usize,
    /// The fleet and its figures.
    #[serde(flatten)]
    pub figures: SelfTestFigures,
    /// Half of the answers took at most this long.
    pub p50_ms: Option<f64>,
    /// Largest acceptable latency.
    pub slo_max_ms: f64,
    /// Processor time of the busiest thread, 0.0 to 1.0; `null` where it cannot be known.
    pub busiest_thread_share: Option<f64>,
    /// Processor time of a frame and its answer, without the server's, in microseconds.
    pub cpu_us_per_frame: Option<f64>,
    /// Cameras of this kind that this machine could simulate, estimated from the above; `null`
    /// without it.
    pub estimated_cameras: Option<u32>,
    /// Whether the simulator alone held the limit.
    pub holds: bool,
    /// Why it did not.
    pub reasons: Vec<String>,
}

impl SelfTestReport {
    /// From the report of the fleet that was played.
    ///
    /// # Panics
    /// For a run without cameras, which there is none of.
    #[must_use]
    pub fn of(run: &Report) -> Self {
        let figures = self_test::figures(run);
        let holds = run.verdict == Verdict::Pass;
        let cpu_us_per_frame = (figures.sent > 0)
            .then(|| figures.cpu_cores * figures.seconds * 1e6 / figures.sent as f64);
        let threads = run.simulator.threads;
        let estimated_cameras = cpu_us_per_frame.map(|us| {
            let cameras = cameras(us, run.fps, threads.min(run.machine.cores));
            if holds { cameras.max(run.cameras) } else { cameras }
        });
        Self {
            schema_version: SCHEMA_VERSION,
            kind: KIND_SELF_TEST.to_owned(),
            client_version: run.client_version.clone(),
            arguments: run.arguments.clone(),
            started_unix_ms: run.started_unix_ms,
            machine: run.machine.clone(),
            fps: run.fps,
            connections: run.connections,
            pictures: run.groups[0].pictures.clone(),
            threads,
            figures,
            p50_ms: run.figures.p50_ms,
            slo_max_ms: run.slo_max_ms,
            busiest_thread_share: run.simulator.busiest_thread_share,
            cpu_us_per_frame,
            estimated_cameras,
            holds,
            reasons: run.reasons.clone(),
        }
    }

    /// The report for people; whether the limit was held is on its last line.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        let figures = &self.figures;
        let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"));
        let threads = counted(self.threads as u64, "thread");
        let links = self.connections.map_or_else(
            || "a connection for each".to_owned(),
            |shared| format!("{} for all", counted(u64::from(shared), "connection")),
        );
        writeln!(
            text,
            "load      {} x {} fps for {} s, {links}, {threads}",
            counted(u64::from(figures.cameras), "camera"),
            self.fps,
            figures.seconds,
        )?;
        let pictures = &self.pictures;
        let kilobytes = pictures.mean_bytes as f64 / 1e3;
        writeln!(text, "pictures  {} of {kilobytes:.1} KB (mean)", pictures.count)?;
        writeln!(text, "frames    sent {}, ok {}", figures.sent, figures.ok)?;
        writeln!(
            text,
            "latency   p50 {}, p99 {}, max {} ms against a server that answers at once",
            ms(self.p50_ms),
            ms(figures.p99_ms),
            ms(figures.max_ms)
        )?;
        write!(text, "processor {:.2} cores without that server's", figures.cpu_cores)?;
        if let Some(us) = self.cpu_us_per_frame {
            write!(text, ", {us:.0} us per frame")?;
        }
        if let Some(share) = self.busiest_thread_share {
            write!(text, ", busiest thread {:.0} %", share * 100.0)?;
        }
        writeln!(text)?;
        if let Some(cameras) = self.estimated_cameras {
            writeln!(
                text,
                "estimate  about {} of this kind with {threads} of this machine, beside a server \
                 elsewhere",
                counted(u64::from(cameras), "camera"),
            )?;
        }
        let (max, limit) = (ms(figures.max_ms), self.slo_max_ms);
        if self.holds {
            writeln!(text, "\nHOLDS: slowest answer {max} ms <= {limit} ms")
        } else {
            writeln!(text, "\nDOES NOT HOLD ({})", self.reasons.join("; "))
        }
    }
}

/// Cameras of `fps` that `threads` threads can simulate at `us` of processor time per frame.
fn cameras(us: f64, fps: f64, threads: usize) -> u32 {
    (threads as f64 * USABLE_SHARE * 1e6 / us.max(1.0) / fps) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_the_usable_time_by_the_time_that_a_camera_takes() {
        // 10 frames of 200 us each second: 2 ms of the 800 that a thread has.
        assert_eq!(cameras(200.0, 10.0, 1), 400);
        assert_eq!(cameras(200.0, 10.0, 4), 1600);
        assert_eq!(cameras(0.0, 1000.0, 1), 800);
    }
}
