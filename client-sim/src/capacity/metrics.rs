//! What the server says about itself while it works: its Prometheus metrics.
//!
//! The processor time is what any exporter of process metrics gives; the rest is Vedette's own. Another
//! server of the contract lacks some or all of it, and nothing depends on it but the explanation of a limit.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, client::conn::http1, header::HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::connect::root_cause;

/// How long the server may take to show its metrics; it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Largest page of metrics read, in bytes; a server's is a few tens of kilobytes.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// Port on which Vedette shows its metrics unless told otherwise.
pub const DEFAULT_ADMIN_PORT: u16 = 9464;

const CPU_SECONDS: &str = "process_cpu_seconds_total";
const WORKERS: &str = "vedette_workers";
const STAGE_SECONDS: &str = "vedette_stage_seconds_sum";
const BATCH_FRAMES: &str = "vedette_batch_frames_sum";
const BATCHES: &str = "vedette_batch_frames_count";
const FRAMES: &str = "vedette_frames_total";

/// The counters at one instant; `None` where the server has no such metric.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Scrape {
    /// Processor time of the server's process, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Threads that decode and infer.
    pub workers: Option<f64>,
    /// Frames of all outcomes.
    pub frames: Option<f64>,
    /// Time of frames in the stages that occupy a worker, inference apart, in seconds.
    stages: Option<f64>,
    /// Time of frames in inference; each frame of a batch counts the whole batch's.
    inference: Option<f64>,
    batch_frames: Option<f64>,
    batches: Option<f64>,
}

/// What the server used between two scrapes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ServerUsage {
    /// Processor time per second of load: 1.0 = one core.
    pub cpu_cores: Option<f64>,
    /// Share of the load's time in which the workers were busy, 0.0 to 1.0.
    pub busy: Option<f64>,
}

/// One line of the text format.
#[derive(Debug, PartialEq)]
struct Sample<'a> {
    name: &'a str,
    /// What stands between the braces.
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    /// `None` for comments, empty lines and whatever is no sample.
    fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim();
        if line.starts_with('#') {
            return None;
        }
        let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inside) => inside.split_at(closing(inside)?),
            None => ("", rest),
        };
        // A time stamp may follow the value.
        let value = rest.trim_start_matches('}').split_whitespace().next()?;
        Some(Self { name, labels, value: value.parse().ok()? })
    }

    fn has(&self, label: &str, value: &str) -> bool {
        // Labels of the metrics read here hold neither commas nor quotes.
        self.labels.split(',').any(|pair| {
            pair.split_once('=').is_some_and(|(name, text)| {
                name.trim() == label && text.trim().trim_matches('"') == value
            })
        })
    }
}

/// Where the label set ends: the first closing brace outside of quotes.
fn closing(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    text.char_indices().find_map(|(at, c)| {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = quoted,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(at),
            _ => {}
        }
        None
    })
}

impl Scrape {
    /// Reads the Prometheus text format; unknown metrics and broken lines are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        for sample in text.lines().filter_map(Sample::parse).filter(|s| s.value.is_finite()) {
            let sum = match sample.name {
                CPU_SECONDS => &mut scrape.cpu_seconds,
                WORKERS => &mut scrape.workers,
                FRAMES => &mut scrape.frames,
                BATCH_FRAMES => &mut scrape.batch_frames,
                BATCHES => &mut scrape.batches,
                STAGE_SECONDS if sample.has("stage", "inference") => &mut scrape.inference,
                STAGE_SECONDS if !sample.has("stage", "queue") => &mut scrape.stages,
                _ => continue,
            };
            *sum = Some(sum.unwrap_or(0.0) + sample.value);
        }
        scrape
    }

    /// What was used since `earlier`, under a load of length `load`. Nothing is known when the server was
    /// started again in between.
    #[must_use]
    pub fn since(&self, earlier: &Self, load: Duration) -> ServerUsage {
        let seconds = load.as_secs_f64();
        let grown = |of: fn(&Self) -> Option<f64>| {
            let growth = of(self)? - of(earlier)?;
            (growth >= 0.0 && seconds > 0.0).then_some(growth)
        };
        let batch = grown(|s| s.batch_frames)
            .zip(grown(|s| s.batches))
            .filter(|&(frames, batches)| batches > 0.0 && frames > 0.0)
            .map_or(1.0, |(frames, batches)| frames / batches);
        let busy = || {
            let seconds_busy = grown(|s| s.stages)? + grown(|s| s.inference)? / batch;
            let workers = self.workers.filter(|workers| *workers > 0.0)?;
            Some((seconds_busy / seconds / workers).min(1.0))
        };
        ServerUsage { cpu_cores: grown(|s| s.cpu_seconds).map(|cpu| cpu / seconds), busy: busy() }
    }

    /// Whether these may be the metrics of a server that took frames since `earlier`: not when it counts
    /// frames and counted none.
    #[must_use]
    pub fn moved_since(&self, earlier: &Self) -> bool {
        self.frames.zip(earlier.frames).is_none_or(|(now, then)| now > then)
    }
}

/// Gets the metrics of the server whose operators' port is at `admin` (`HOST:PORT`). The error is a part of
/// a line for people.
pub async fn scrape(admin: &str) -> Result<Scrape, String> {
    let text = match tokio::time::timeout(PATIENCE, page(admin)).await {
        Ok(page) => page?,
        Err(_) => return Err(format!("no answer within {} s", PATIENCE.as_secs())),
    };
    let scrape = Scrape::parse(&text);
    if scrape == Scrape::default() { Err("no known metric there".to_owned()) } else { Ok(scrape) }
}

async fn page(admin: &str) -> Result<String, String> {
    let stream = TcpStream::connect(admin).await.map_err(|error| root_cause(&error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| root_cause(&error))?;
    // Moves the bytes; it ends by itself when the sender is dropped.
    tokio::spawn(connection);
    let request = Request::get("/metrics").header(HOST, admin).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| root_cause(&error))?;
    let response = sender.send_request(request).await.map_err(|error| root_cause(&error))?;
    if !response.status().is_success() {
        return Err(format!("HTTP status {}", response.status().as_u16()));
    }
    let body = Limited::new(response.into_body(), MAX_PAGE_BYTES).collect().await;
    let body = body.map_err(|error| root_cause(&*error))?.to_bytes();
    Ok(String::from_utf8_lossy(&body).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"# HELP vedette_workers Threads that decode and infer
# TYPE vedette_workers gauge
vedette_workers 2
process_cpu_seconds_total 9.17
vedette_frames_total{outcome="ok"} 1800
vedette_frames_total{outcome="superseded"} 2 1796066218000
vedette_stage_seconds_sum{stage="queue"} 5.5
vedette_stage_seconds_sum{stage="decode"} 1.5
vedette_stage_seconds_sum{stage="preprocess"} 0.5
vedette_stage_seconds_sum{stage="inference"} 6
vedette_stage_seconds_bucket{stage="inference",le="+Inf"} 1800
other{text="a } in \"quotes\", and {",more="x"} 3
broken{ 4
no_number twelve
not_finite NaN
"#;

    #[test]
    fn the_few_series_are_found_among_others() {
        let scrape = Scrape::parse(PAGE);
        assert_eq!(scrape.cpu_seconds, Some(9.17));
        assert_eq!((scrape.workers, scrape.frames), (Some(2.0), Some(1802.0)));
        assert_eq!((scrape.stages, scrape.inference), (Some(2.0), Some(6.0)));
        assert_eq!(Scrape::parse("<html>not\n\nmetrics { at } all"), Scrape::default());
        let odd =
            Sample::parse("other{text=\"a } in \\\"quotes\\\", and {\",more=\"x\"} 3").unwrap();
        assert_eq!((odd.name, odd.value), ("other", 3.0));
        assert!(odd.labels.ends_with("more=\"x\"") && odd.has("more", "x"));
    }

    #[test]
    fn usage_is_what_grew_over_the_load() {
        let before = Scrape::parse(PAGE);
        let later = PAGE.replace("9.17", "18.17").replace("} 6\n", "} 14\n");
        let later = Scrape::parse(&later.replace("} 1800\n", "} 2800\n"));
        let usage = later.since(&before, Duration::from_secs(5));
        assert!((usage.cpu_cores.unwrap() - 1.8).abs() < 1e-9);
        assert!((usage.busy.unwrap() - 0.8).abs() < 1e-9);
        assert!(later.moved_since(&before) && !before.moved_since(&before));
        let restarted = before.since(&later, Duration::from_secs(5));
        assert_eq!(restarted, ServerUsage::default());
        let bare = Scrape { cpu_seconds: Some(1.0), ..Scrape::default() };
        assert!(bare.moved_since(&bare), "another server's exporter counts no frames");
    }

    #[test]
    fn a_batch_occupies_its_worker_once() {
        let page = |inference: f64, frames: u32, batches: u32| {
            Scrape::parse(&format!(
                "vedette_workers 1\nvedette_stage_seconds_sum{{stage=\"decode\"}} 0\n\
                 vedette_stage_seconds_sum{{stage=\"inference\"}} {inference}\n\
                 vedette_batch_frames_sum {frames}\nvedette_batch_frames_count {batches}\n"
            ))
        };
        let usage = page(8.0, 40, 10).since(&page(0.0, 0, 0), Duration::from_secs(4));
        assert_eq!(usage.busy, Some(0.5));
    }
}
