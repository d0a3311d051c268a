//! Distributions as text: the `HdrHistogram` format that many tools read.
//!
//! The format holds what the buckets hold; the exact extremes and the mean travel beside it in a
//! report's figures, see [`Distribution::with_figures`].

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hdrhistogram::{
    Counter, Histogram,
    serialization::{Deserializer, Serializer as _, V2DeflateSerializer},
};

use super::{Distribution, Figures, MAX_TRACKED_US};

/// Longest text taken, in characters. A latency histogram has at most 20 thousand buckets, each of
/// at most 9 bytes, deflated, in base64: more than this is no histogram of this tool.
const MAX_TEXT: usize = 4 << 20;

/// The text of a histogram, if it is not too long to be one.
pub(crate) fn bounded(text: &str) -> Result<&str, String> {
    if text.len() > MAX_TEXT {
        return Err(format!("a histogram of more than {MAX_TEXT} characters"));
    }
    Ok(text)
}

/// Reads a histogram of any bounds; [`bounded`] comes before.
pub(crate) fn decode<T: Counter>(text: &str) -> Result<Histogram<T>, String> {
    let bytes = BASE64.decode(text).map_err(|error| format!("not base64: {error}"))?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| format!("no histogram: {error}"))
}

impl Distribution {
    /// The buckets in microseconds as an `HdrHistogram`: V2 format, deflated, in base64.
    #[expect(clippy::missing_panics_doc, reason = "writing to a Vec cannot fail")]
    #[must_use]
    pub fn to_base64(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.histogram, &mut bytes)
            .expect("a Vec takes all bytes, and bounds and counts fit the format");
        BASE64.encode(bytes)
    }

    /// Reads what [`Self::to_base64`] wrote. Extremes and mean are the buckets', so right to the
    /// histogram's precision.
    pub fn from_base64(text: &str) -> Result<Self, String> {
        let histogram: Histogram<u32> = decode(bounded(text)?.trim())?;
        if histogram.low() != 1 || histogram.high() != MAX_TRACKED_US {
            return Err(format!(
                "a histogram of {} to {} us instead of 1 to {MAX_TRACKED_US}",
                histogram.low(),
                histogram.high()
            ));
        }
        let sum_us = histogram
            .iter_recorded()
            .map(|step| {
                let middle = histogram.median_equivalent(step.value_iterated_to());
                u128::from(middle) * u128::from(step.count_since_last_iteration())
            })
            .sum();
        let empty = histogram.is_empty();
        Ok(Self {
            min_us: if empty { u64::MAX } else { histogram.min_nz() },
            max_us: if empty { 0 } else { histogram.max() },
            sum_us,
            histogram,
        })
    }

    /// The same buckets with the exact extremes and mean that `figures` know.
    #[must_use]
    pub fn with_figures(mut self, figures: &Figures) -> Self {
        let us = |ms: f64| (ms * 1e3).round();
        if self.histogram.is_empty() {
            return self;
        }
        if let Some(ms) = figures.min_ms {
            self.min_us = us(ms) as u64;
        }
        if let Some(ms) = figures.max_ms {
            self.max_us = us(ms) as u64;
        }
        if let Some(ms) = figures.mean_ms {
            self.sum_us = (us(ms) as u128) * u128::from(self.histogram.len());
        }
        self
    }

    /// Number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_histogram_of_ours_is_refused() {
        let other = Histogram::<u32>::new_with_bounds(1, 1_000_000, 3).unwrap();
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&other, &mut bytes).unwrap();
        for (text, part) in [
            ("%%%".to_owned(), "not base64"),
            (String::new(), "no histogram"),
            (BASE64.encode([7; 40]), "no histogram"),
            (BASE64.encode(bytes), "instead of 1 to 120000000"),
            ("A".repeat(MAX_TEXT + 1), "more than"),
        ] {
            let error = Distribution::from_base64(&text).unwrap_err();
            assert!(error.contains(part) && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn an_empty_distribution_comes_back_empty() {
        let text = Distribution::latency().to_base64();
        let back = Distribution::from_base64(&text).unwrap().with_figures(&Figures::default());
        assert_eq!((back.count(), back.figures()), (0, Figures::default()));
        assert_eq!(back.at_percentile(50.0), None);
    }

    proptest! {
        #[test]
        fn figures_survive_the_text(
            values in prop::collection::vec(1u64..200_000_000, 1..200),
            digits in 2u8..=3,
        ) {
            let mut all = Distribution::new(digits);
            for &us in &values {
                all.record(Duration::from_micros(us));
            }
            let figures = all.figures();
            let back = Distribution::from_base64(&all.to_base64()).unwrap();
            prop_assert_eq!(back.count(), values.len() as u64);
            let exact = back.with_figures(&figures).figures();
            // The mean is kept to a microsecond.
            prop_assert_eq!(exact, figures);
        }
    }
}
