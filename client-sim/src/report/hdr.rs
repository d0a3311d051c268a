//! Logs of `HdrHistogram`: text files with one histogram a line, which its own and many other tools
//! read. Values are latencies in microseconds.

use std::{fmt::Write as _, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hdrhistogram::{
    Histogram,
    serialization::{
        Serializer as _, V2DeflateSerializer,
        interval_log::{IntervalLogIterator, LogEntry},
    },
};

use super::schema::Report;
use crate::stats::histogram::{bounded, decode};

/// Version of the format, as logs state it.
const FORMAT: &str = "1.3";

/// The log's greatest values are in milliseconds, its histograms in microseconds.
const MAX_DIVISOR: f64 = 1000.0;

/// Most intervals taken from one log: ten days of seconds.
const MAX_INTERVALS: usize = 864_000;

/// A histogram, and when it was taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Interval {
    /// Its beginning, since the Unix epoch.
    pub start: Duration,
    /// Its length.
    pub length: Duration,
    /// The latencies in microseconds.
    pub histogram: Histogram<u64>,
}

impl Interval {
    /// A run's measured part.
    pub fn of(report: &Report) -> Result<Self, String> {
        let histogram = decoded(&report.histogram_us)?;
        Ok(Self {
            start: Duration::from_millis(u64::try_from(report.started_unix_ms).unwrap_or(0)),
            length: Duration::from_secs_f64(report.seconds.clamp(0.0, 1e9)),
            histogram,
        })
    }

    fn end(&self) -> Duration {
        self.start.saturating_add(self.length)
    }

    /// Whether there was a time at which both were taken.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Adds another one: the length then reaches from the first beginning to the last end.
    pub fn add(&mut self, other: &Self) -> Result<(), String> {
        let end = self.end().max(other.end());
        self.start = self.start.min(other.start);
        self.length = end.saturating_sub(self.start);
        self.histogram
            .add(&other.histogram)
            .map_err(|error| format!("histograms that do not fit together: {error}"))
    }
}

fn decoded(text: &str) -> Result<Histogram<u64>, String> {
    let mut histogram: Histogram<u64> = decode(bounded(text)?)?;
    // Logs of other tools may hold larger values than the first of them.
    histogram.auto(true);
    Ok(histogram)
}

/// The log of some intervals, in order.
#[must_use]
pub fn log(intervals: &[Interval]) -> String {
    let start = intervals.iter().map(|interval| interval.start).min().unwrap_or_default();
    let seconds = start.as_secs_f64();
    let mut text = format!(
        "#[Latencies in microseconds, written by client-sim {}]\n\
         #[Histogram log format version {FORMAT}]\n\
         #[StartTime: {seconds:.3} (seconds since epoch)]\n\
         #[BaseTime: {seconds:.3} (seconds since epoch)]\n\
         #[MaxValueDivisor: {MAX_DIVISOR:.3}]\n\
         \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
        env!("CARGO_PKG_VERSION")
    );
    for interval in intervals {
        let mut bytes = Vec::new();
        // Memory takes all bytes; counts beyond the format's are beyond any run's.
        if V2DeflateSerializer::new().serialize(&interval.histogram, &mut bytes).is_err() {
            continue;
        }
        let _ = writeln!(
            text,
            "{:.3},{:.3},{:.3},{}",
            interval.start.saturating_sub(start).as_secs_f64(),
            interval.length.as_secs_f64(),
            interval.histogram.max() as f64 / MAX_DIVISOR,
            BASE64.encode(bytes),
        );
    }
    text
}

/// Reads a log, of this tool or another.
pub fn parse(text: &str) -> Result<Vec<Interval>, String> {
    let (mut base, mut start) = (None, None);
    let mut intervals = Vec::new();
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        let entry = entry.map_err(|_| "not a log of HdrHistogram".to_owned())?;
        let interval = match entry {
            LogEntry::BaseTime(time) => {
                base = Some(time);
                continue;
            }
            LogEntry::StartTime(time) => {
                start = Some(time);
                continue;
            }
            LogEntry::Interval(interval) => interval,
        };
        if intervals.len() == MAX_INTERVALS {
            return Err(format!("more than {MAX_INTERVALS} intervals"));
        }
        let histogram = decoded(interval.encoded_histogram())
            .map_err(|why| format!("interval {}: {why}", intervals.len() + 1))?;
        intervals.push(Interval {
            start: since_epoch(interval.start_timestamp(), base, start),
            length: interval.duration(),
            histogram,
        });
    }
    if intervals.is_empty() {
        return Err("a log of HdrHistogram without any interval".to_owned());
    }
    Ok(intervals)
}

/// A year: a time stamp that much before the log's start time is an offset from it, as the format's
/// own reader takes it.
const YEAR: Duration = Duration::from_hours(365 * 24);

fn since_epoch(at: Duration, base: Option<Duration>, start: Option<Duration>) -> Duration {
    match (base, start) {
        (Some(base), _) => base.saturating_add(at),
        (None, Some(start)) if at.saturating_add(YEAR) < start => start.saturating_add(at),
        (None, _) => at,
    }
}
