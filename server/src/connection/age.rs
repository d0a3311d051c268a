//! When connections and the streams on them end because of their age. Pure arithmetic.

use std::time::Duration;

use crate::schedule::CameraKey;

/// How old connections and the streams on them may get.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AgeLimit {
    /// Age from which a connection takes no new streams. Above zero.
    pub age: Duration,
    /// Part of the age, 0 to 1, over which the ends of streams are spread.
    pub jitter: f64,
    /// Time for the last answers to be read.
    pub grace: Duration,
}

impl AgeLimit {
    /// Age of its connection at which the stream of this key is ended: the age x (1 to 1 + jitter).
    #[must_use]
    pub fn stream_end(&self, key: CameraKey) -> Duration {
        self.age.mul_f64(1.0 + self.jitter * spread(key))
    }

    /// Age at which a connection is cut; no stream's end lies beyond the grace time before it.
    #[must_use]
    pub fn cut(&self) -> Duration {
        self.age.mul_f64(1.0 + self.jitter) + self.grace
    }
}

/// Places keys in 0..1: multiples of the golden ratio, less their whole part.
///
/// Keys are given out one after the other, and any run of successive multiples of the golden ratio
/// divides the interval almost evenly (the three-distance theorem; Knuth, The Art of Computer
/// Programming 3, section 6.4). So cameras that came in the same instant leave one by one, more evenly
/// than random numbers would have it, and neither a source of randomness nor its seed is needed.
fn spread(key: CameraKey) -> f64 {
    /// 2^64 divided by the golden ratio: the product's overflow is the whole part.
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    /// Bits that a double holds exactly.
    const BITS: u32 = f64::MANTISSA_DIGITS;
    (key.0.wrapping_mul(STEP) >> (u64::BITS - BITS)) as f64 / (1_u64 << BITS) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit(jitter: f64) -> AgeLimit {
        AgeLimit { age: Duration::from_mins(30), jitter, grace: Duration::from_secs(10) }
    }

    #[test]
    fn without_jitter_all_streams_end_at_the_age() {
        for key in [0, 1, 2, u64::MAX] {
            assert_eq!(limit(0.0).stream_end(CameraKey(key)), Duration::from_mins(30));
        }
        assert_eq!(limit(0.0).cut(), Duration::from_mins(30) + Duration::from_secs(10));
        assert_eq!(limit(0.5).cut(), Duration::from_mins(45) + Duration::from_secs(10));
    }

    #[test]
    fn neighbours_end_far_apart() {
        let ends: Vec<_> = (1..4).map(|key| limit(1.0).stream_end(CameraKey(key))).collect();
        // The golden ratio's multiples: 0.618, 0.236, 0.854 of the age after it.
        for (end, part) in ends.iter().zip([0.618, 0.236, 0.854]) {
            let expected = Duration::from_mins(30).mul_f64(1.0 + part);
            assert!(end.abs_diff(expected) < Duration::from_secs(1), "{ends:?}");
        }
    }

    proptest! {
        #[test]
        fn streams_end_between_the_age_and_the_grace_before_the_cut(
            key: u64, jitter in 0.0..=1.0,
        ) {
            let limit = limit(jitter);
            let end = limit.stream_end(CameraKey(key));
            prop_assert!(limit.age <= end && end <= limit.cut().saturating_sub(limit.grace));
        }

        #[test]
        fn any_run_of_cameras_leaves_evenly(first in 0..u64::MAX / 2, cameras in 2_u64..500) {
            let mut places: Vec<_> =
                (first..first + cameras).map(|key| spread(CameraKey(key))).collect();
            prop_assert!(places.iter().all(|place| (0.0..1.0).contains(place)));
            places.sort_by(f64::total_cmp);
            // From one to the next within twice to a third of what an even division would give.
            let even = 1.0 / cameras as f64;
            for pair in places.windows(2) {
                let gap = pair[1] - pair[0];
                prop_assert!((even / 3.0..=even * 2.0).contains(&gap), "{gap} of {even}");
            }
        }
    }
}
