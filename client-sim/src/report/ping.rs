//! The report of `client-sim ping`.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::schema::{MachineFigures, ServerFigures};
use crate::{stats::Figures, verdict::counted};

/// What `kind` says in a ping's report.
pub const KIND_PING: &str = "ping";

/// What [`PingReport::addr`] calls the built-in server.
pub const NULL_ADDR: &str = "null";

/// Calls per second and their latency, point by point, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PingReport {
    /// As in a run's report.
    pub schema_version: u32,
    /// [`KIND_PING`].
    pub kind: String,
    /// Version of this tool.
    pub client_version: String,
    /// Arguments of the tool, as typed.
    pub arguments: Vec<String>,
    /// Start of the first point, in milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// The machine on which this tool ran.
    pub machine: MachineFigures,
    /// Host and port of the server; `null` (the word) = one in this process.
    pub addr: String,
    /// Whether the connections were encrypted.
    pub tls: bool,
    /// What the server said about itself; `null` when it does not know the question.
    pub server: Option<ServerFigures>,
    /// Threads of the built-in server; `null` for another one.
    pub server_threads: Option<usize>,
    /// Threads of the workers and their connections.
    pub threads: usize,
    /// Length of each measurement.
    pub seconds: f64,
    /// Length of the part before it.
    pub warmup_seconds: f64,
    /// Round trip that a proxy added; `null` without one.
    pub delay_ms: Option<f64>,
    /// What was measured, in order.
    pub points: Vec<PingPoint>,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PingPoint {
    /// `unary` or `stream`.
    pub mode: String,
    /// Bytes of each frame; the mean of pictures.
    pub payload_bytes: usize,
    /// Calls under way at the same time, one for each worker.
    pub in_flight: u32,
    /// How workers shared connections: `one`, `per-worker`, or a number for all.
    pub sharing: String,
    /// Connections that this came to.
    pub connections: u32,
    /// Calls answered in the measured time.
    pub calls: u64,
    /// Of those, answered otherwise than OK, as bytes that are no picture are.
    pub not_ok: u64,
    /// Calls per second.
    pub calls_per_second: f64,
    /// Megabytes (1,000,000 bytes) of frames per second.
    pub megabytes_per_second: f64,
    /// Times the calls per second of the same point with one connection; `null` without that one.
    pub ratio_to_one: Option<f64>,
    /// From handing a frame over to its answer.
    #[serde(flatten)]
    pub latency: Figures,
    /// Processor time of this tool per second, without the built-in server's and the proxy's: 1.0 = one
    /// core.
    pub cpu_cores: f64,
    /// The same of its busiest thread, 0.0 to 1.0; `null` where it cannot be known.
    pub busiest_thread_share: Option<f64>,
}

impl PingPoint {
    /// Whether both differ only in how connections were shared.
    fn is_beside(&self, other: &Self) -> bool {
        self.is_of_table(other) && self.in_flight == other.in_flight
    }

    fn is_of_table(&self, other: &Self) -> bool {
        self.mode == other.mode && self.payload_bytes == other.payload_bytes
    }
}

impl PingReport {
    /// Fills in each point's ratio to the point with one connection.
    pub fn compare(&mut self) {
        let ones: Vec<PingPoint> =
            self.points.iter().filter(|point| point.sharing == "one").cloned().collect();
        for point in &mut self.points {
            let one = ones.iter().find(|one| one.is_beside(point) && one.calls > 0);
            point.ratio_to_one = one.map(|one| point.calls_per_second / one.calls_per_second);
        }
    }

    /// The report for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        let threads = |count: usize| counted(count as u64, "thread");
        match self.server_threads {
            Some(count) => {
                writeln!(text, "server    in this process, {}, answers at once", threads(count))?;
            }
            None => writeln!(text, "server    {}", self.addr)?,
        }
        writeln!(
            text,
            "client    {}, {} s for each point after {} s",
            threads(self.threads),
            self.seconds,
            self.warmup_seconds
        )?;
        if let Some(ms) = self.delay_ms {
            writeln!(text, "delay     {ms} ms added to each round trip")?;
        }
        let mut begun: Option<&PingPoint> = None;
        for point in &self.points {
            if begun.is_none_or(|begun| !begun.is_of_table(point)) {
                let (mode, bytes) = (&point.mode, point.payload_bytes);
                writeln!(text, "\n{mode}, {bytes} bytes\n{HEAD}")?;
                begun = Some(point);
            }
            row(text, point)?;
        }
        writeln!(text)?;
        let mut told: Vec<&PingPoint> = Vec::new();
        for point in self.points.iter().filter(|point| point.sharing == "per-worker") {
            if told.iter().all(|told| !told.is_of_table(point)) {
                self.conclude(text, point)?;
                told.push(point);
            }
        }
        Ok(())
    }

    /// What own connections gain at most, among the points of one table.
    fn conclude(&self, text: &mut String, like: &PingPoint) -> fmt::Result {
        let own = |point: &&PingPoint| point.is_of_table(like) && point.sharing == "per-worker";
        let gain = |point: &&PingPoint| point.ratio_to_one.unwrap_or(0.0);
        let best = self.points.iter().filter(own).max_by(|a, b| gain(a).total_cmp(&gain(b)));
        let Some((best, ratio)) = best.and_then(|best| Some((best, best.ratio_to_one?))) else {
            return Ok(());
        };
        writeln!(
            text,
            "{}, {} bytes: a connection for each worker makes at most {ratio:.2} times the calls of \
             one for all, with {} in flight",
            best.mode, best.payload_bytes, best.in_flight
        )
    }
}

const HEAD: &str = "in flight  connections     calls/s      MB/s    p50 ms    p99 ms    max ms     \
                    cores    vs one";

fn row(text: &mut String, point: &PingPoint) -> fmt::Result {
    let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"));
    let ratio = point.ratio_to_one.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x"));
    writeln!(
        text,
        "{:>9}{:>13}{:>12.0}{:>10.1}{:>10}{:>10}{:>10}{:>10.2}{ratio:>10}",
        point.in_flight,
        point.connections,
        point.calls_per_second,
        point.megabytes_per_second,
        ms(point.latency.p50_ms),
        ms(point.latency.p99_ms),
        ms(point.latency.max_ms),
        point.cpu_cores,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(mode: &str, in_flight: u32, sharing: &str, calls_per_second: f64) -> PingPoint {
        PingPoint {
            mode: mode.to_owned(),
            payload_bytes: 1000,
            in_flight,
            sharing: sharing.to_owned(),
            connections: if sharing == "one" { 1 } else { in_flight },
            calls: calls_per_second as u64,
            not_ok: 0,
            calls_per_second,
            megabytes_per_second: calls_per_second / 1e3,
            ratio_to_one: None,
            latency: Figures::default(),
            cpu_cores: 0.5,
            busiest_thread_share: None,
        }
    }

    #[test]
    fn points_are_compared_with_one_connection_of_the_same_load() {
        let mut report = PingReport {
            schema_version: 2,
            kind: KIND_PING.to_owned(),
            client_version: String::new(),
            arguments: Vec::new(),
            started_unix_ms: 0,
            machine: MachineFigures::default(),
            addr: NULL_ADDR.to_owned(),
            tls: false,
            server: None,
            server_threads: Some(2),
            threads: 1,
            seconds: 2.0,
            warmup_seconds: 0.5,
            delay_ms: Some(5.0),
            points: vec![
                point("unary", 4, "one", 1000.0),
                point("unary", 4, "per-worker", 1500.0),
                point("unary", 8, "per-worker", 9000.0),
                point("unary", 16, "one", 1000.0),
                point("unary", 16, "per-worker", 4000.0),
                point("stream", 4, "one", 0.0),
                point("stream", 4, "per-worker", 5.0),
            ],
        };
        report.compare();
        let ratios: Vec<_> = report.points.iter().map(|point| point.ratio_to_one).collect();
        let one = Some(1.0);
        assert_eq!(ratios, [one, Some(1.5), None, one, Some(4.0), None, None]);
        let text = report.table();
        assert!(text.starts_with("server    in this process, 2 threads, answers at once\nclient"));
        assert!(text.contains("\ndelay     5 ms added") && text.contains("     1.50x\n"), "{text}");
        let conclusion = "unary, 1000 bytes: a connection for each worker makes at most 4.00 times \
                          the calls of one for all, with 16 in flight\n";
        assert!(text.ends_with(conclusion), "{text}");
    }
}
