//! Figures of one camera or of the fleet: counts and distributions.

pub(crate) mod histogram;

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use vedette_proto::camera_ai::{Outcome, StageTimes};

use crate::{clock::micros, report::schema::PercentilePoint};

/// Range of the latency histograms: 1 us to 120 s. The exact maximum is kept apart.
const MAX_TRACKED_US: u64 = 120_000_000;

/// Significant digits of the latency histograms: values are right to 0.1 %.
const LATENCY_DIGITS: u8 = 3;

/// Significant digits of the send lateness histograms; two keep a camera's at about 10 KiB.
const LATENESS_DIGITS: u8 = 2;

/// Ratio of what two neighbours of the latency curve leave to 100 %: twenty points for a factor of 10.
const CURVE_STEP: f64 = 0.891_250_938_133_745_6;

/// What became of a number of frames.
///
/// `sent = answered + lost + unaccepted` and `answered` = the sum of the seven outcomes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Frames handed to the connection.
    pub sent: u64,
    /// Frames with an answer, of whatever outcome.
    pub answered: u64,
    /// Detected.
    pub ok: u64,
    /// Replaced by a newer frame of the same camera.
    pub superseded: u64,
    /// Out of time before being computed.
    pub expired: u64,
    /// Turned away.
    pub overloaded: u64,
    /// Not a whole picture.
    pub bad_image: u64,
    /// A kind of picture that the server does not decode.
    pub unsupported: u64,
    /// Failed in the server, or answered with an outcome that this tool does not know.
    pub internal: u64,
    /// Sent, and never answered.
    pub lost: u64,
    /// Sent while a server that shut down no longer took frames.
    pub unaccepted: u64,
    /// Due, but there was no stream to send them on.
    pub not_sent: u64,
}

impl Tally {
    /// Counts one answer.
    pub fn count(&mut self, outcome: Outcome) {
        self.answered += 1;
        *match outcome {
            Outcome::Ok => &mut self.ok,
            Outcome::Superseded => &mut self.superseded,
            Outcome::Expired => &mut self.expired,
            Outcome::Overloaded => &mut self.overloaded,
            Outcome::BadImage => &mut self.bad_image,
            Outcome::Unsupported => &mut self.unsupported,
            // Answers to heartbeats are not counted here; a frame answered like one has failed.
            Outcome::Internal | Outcome::Heartbeat => &mut self.internal,
        } += 1;
    }

    /// The outcomes by name, in the contract's order.
    #[must_use]
    pub fn outcomes(&self) -> [(&'static str, u64); 7] {
        [
            ("ok", self.ok),
            ("superseded", self.superseded),
            ("expired", self.expired),
            ("overloaded", self.overloaded),
            ("bad_image", self.bad_image),
            ("unsupported", self.unsupported),
            ("internal", self.internal),
        ]
    }

    /// Without a part of it.
    #[must_use]
    pub fn less(self, part: &Self) -> Self {
        Self {
            sent: self.sent - part.sent,
            lost: self.lost - part.lost,
            unaccepted: self.unaccepted - part.unaccepted,
            not_sent: self.not_sent - part.not_sent,
            answered: self.answered - part.answered,
            ok: self.ok - part.ok,
            superseded: self.superseded - part.superseded,
            expired: self.expired - part.expired,
            overloaded: self.overloaded - part.overloaded,
            bad_image: self.bad_image - part.bad_image,
            unsupported: self.unsupported - part.unsupported,
            internal: self.internal - part.internal,
        }
    }

    /// Adds another camera's counts.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.ok += other.ok;
        self.superseded += other.superseded;
        self.expired += other.expired;
        self.overloaded += other.overloaded;
        self.bad_image += other.bad_image;
        self.unsupported += other.unsupported;
        self.internal += other.internal;
        self.lost += other.lost;
        self.unaccepted += other.unaccepted;
        self.not_sent += other.not_sent;
    }
}

/// A distribution of durations with exact extremes and mean.
#[derive(Debug, Clone)]
pub struct Distribution {
    histogram: Histogram<u32>,
    min_us: u64,
    max_us: u64,
    sum_us: u128,
}

impl Distribution {
    /// An empty distribution for answer latencies.
    #[must_use]
    pub fn latency() -> Self {
        Self::new(LATENCY_DIGITS)
    }

    /// An empty distribution for send lateness.
    #[must_use]
    pub fn lateness() -> Self {
        Self::new(LATENESS_DIGITS)
    }

    fn new(digits: u8) -> Self {
        let histogram = Histogram::new_with_bounds(1, MAX_TRACKED_US, digits)
            .expect("constant bounds that the crate documents as valid");
        Self { histogram, min_us: u64::MAX, max_us: 0, sum_us: 0 }
    }

    /// Adds one duration.
    pub fn record(&mut self, duration: Duration) {
        let us = micros(duration);
        self.histogram.saturating_record(us);
        self.min_us = self.min_us.min(us);
        self.max_us = self.max_us.max(us);
        self.sum_us += u128::from(us);
    }

    /// Adds another distribution of the same kind.
    pub fn add(&mut self, other: &Self) {
        // Both were made with the same bounds, so every value fits.
        let _ = self.histogram.add(&other.histogram);
        self.min_us = self.min_us.min(other.min_us);
        self.max_us = self.max_us.max(other.max_us);
        self.sum_us += other.sum_us;
    }

    /// The value in milliseconds that `percentile` (0 to 100) percent of the values do not exceed.
    #[must_use]
    pub fn at_percentile(&self, percentile: f64) -> Option<f64> {
        // A bucket's upper edge may lie above the largest value recorded.
        let us = self.histogram.value_at_quantile(percentile / 100.0);
        (!self.histogram.is_empty()).then(|| us.clamp(self.min_us, self.max_us) as f64 / 1e3)
    }

    /// The distribution from its smallest to its largest value, denser towards the largest: twenty
    /// points while what is left to 100 % falls to a tenth.
    #[must_use]
    pub fn curve(&self) -> Vec<PercentilePoint> {
        let count = self.histogram.len();
        let mut points = Vec::new();
        let mut rest = 1.0;
        // Beyond one value in all of them there is only the largest.
        while rest * count as f64 >= 1.0 {
            let percentile = 100.0 * (1.0 - rest);
            points.extend(
                self.at_percentile(percentile).map(|ms| PercentilePoint { percentile, ms }),
            );
            rest *= CURVE_STEP;
        }
        let largest = self.figures().max_ms;
        points.extend(largest.map(|ms| PercentilePoint { percentile: 100.0, ms }));
        points
    }

    /// Its figures; all `None` when nothing was recorded.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let count = self.histogram.len();
        if count == 0 {
            return Figures::default();
        }
        let ms = |us: u64| Some(us as f64 / 1e3);
        Figures {
            p50_ms: self.at_percentile(50.0),
            p95_ms: self.at_percentile(95.0),
            p99_ms: self.at_percentile(99.0),
            max_ms: ms(self.max_us),
            mean_ms: Some((self.sum_us as f64 / count as f64).round() / 1e3),
            min_ms: ms(self.min_us),
        }
    }
}

/// A distribution in milliseconds; `None` (JSON `null`) when nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Half of the values were at most this.
    pub p50_ms: Option<f64>,
    /// 95 % of the values were at most this.
    pub p95_ms: Option<f64>,
    /// 99 % of the values were at most this.
    pub p99_ms: Option<f64>,
    /// Largest value, exact.
    pub max_ms: Option<f64>,
    /// Mean, exact.
    pub mean_ms: Option<f64>,
    /// Smallest value, exact.
    pub min_ms: Option<f64>,
}

/// Sums of the stage times that the server reports, over OK answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct StageSums {
    frames: u64,
    queue: u64,
    decode: u64,
    preprocess: u64,
    inference: u64,
    postprocess: u64,
    total: u64,
}

impl StageSums {
    /// Adds one answer's times.
    pub fn record(&mut self, times: &StageTimes) {
        self.frames += 1;
        self.queue += u64::from(times.queue_us);
        self.decode += u64::from(times.decode_us);
        self.preprocess += u64::from(times.preprocess_us);
        self.inference += u64::from(times.inference_us);
        self.postprocess += u64::from(times.postprocess_us);
        self.total += u64::from(times.total_us);
    }

    /// Adds another camera's sums.
    pub fn add(&mut self, other: &Self) {
        self.frames += other.frames;
        self.queue += other.queue;
        self.decode += other.decode;
        self.preprocess += other.preprocess;
        self.inference += other.inference;
        self.postprocess += other.postprocess;
        self.total += other.total;
    }

    /// Means; `None` when the server reported no times.
    #[must_use]
    pub fn means(&self) -> Option<StageMeans> {
        let mean = |sum: u64| (sum as f64 / self.frames as f64).round();
        (self.frames > 0).then(|| StageMeans {
            queue: mean(self.queue),
            decode: mean(self.decode),
            preprocess: mean(self.preprocess),
            inference: mean(self.inference),
            postprocess: mean(self.postprocess),
            total: mean(self.total),
        })
    }
}

/// Mean times of the server's stages over OK answers, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StageMeans {
    /// From receipt until a worker took the frame up.
    pub queue: f64,
    /// Decoding.
    pub decode: f64,
    /// Resizing and laying out.
    pub preprocess: f64,
    /// The network.
    pub inference: f64,
    /// Boxes from the network's output.
    pub postprocess: f64,
    /// From receipt until the answer was handed to the connection.
    pub total: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_measured_is_null_not_nan() {
        let figures = Distribution::latency().figures();
        assert_eq!(figures, Figures::default());
        let json = serde_json::to_string(&figures).unwrap();
        assert!(json.contains("\"p99_ms\":null") && !json.contains("NaN"), "{json}");
        assert_eq!(StageSums::default().means(), None);
    }

    #[test]
    fn the_maximum_is_exact_beyond_the_histogram_s_range() {
        let mut latency = Distribution::latency();
        latency.record(Duration::from_micros(1_234_567));
        latency.record(Duration::from_secs(500));
        assert_eq!(latency.figures().max_ms, Some(500_000.0));
        assert_eq!(latency.figures().min_ms, Some(1234.567));
    }

    proptest! {
        #[test]
        fn figures_are_ordered_and_close_to_the_sorted_values(
            mut values in prop::collection::vec(1u64..5_000_000, 1..300)
        ) {
            let mut parts = [Distribution::latency(), Distribution::latency()];
            for (i, &us) in values.iter().enumerate() {
                parts[i % 2].record(Duration::from_micros(us));
            }
            let [mut all, other] = parts;
            all.add(&other);
            let figures = all.figures();
            values.sort_unstable();
            let n = values.len();
            let exact = values[((n as f64 * 0.95).ceil() as usize - 1).min(n - 1)] as f64 / 1e3;
            let p95 = figures.p95_ms.unwrap();
            prop_assert!((p95 - exact).abs() <= exact * 0.001 + 0.001, "{p95} {exact}");
            prop_assert_eq!(figures.max_ms, Some(values[n - 1] as f64 / 1e3));
            prop_assert_eq!(figures.min_ms, Some(values[0] as f64 / 1e3));
            prop_assert!(figures.min_ms <= figures.p50_ms && figures.p50_ms <= figures.p95_ms);
            prop_assert!(figures.p95_ms <= figures.p99_ms && figures.p99_ms <= figures.max_ms);
        }
    }
}
