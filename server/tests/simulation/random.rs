//! Random numbers of a seed. Our own few lines instead of a crate's, so that a seed means the same run
//! whatever version of whatever crate is built in.

use std::{ops::RangeInclusive, time::Duration};

/// `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below `end`, which is above 0. The product's upper half: its bias of `end` in 2^64 is
    /// of no consequence here.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// A whole number of the range.
    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        low + self.below((high - low + 1) as usize) as u64
    }

    /// A duration of the range, in whole microseconds.
    pub(crate) fn time(&mut self, range: RangeInclusive<Duration>) -> Duration {
        let (low, high) = range.into_inner();
        Duration::from_micros(self.within(low.as_micros() as u64..=high.as_micros() as u64))
    }

    /// From 0 to below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True in so many of all cases.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of these.
    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of seed 1234567, as its authors' reference code prints them.
    #[test]
    fn the_generator_is_splitmix64() {
        let mut random = Random::new(1_234_567);
        let numbers = [random.next(), random.next(), random.next()];
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn ranges_are_met_to_both_ends_and_not_left() {
        let mut random = Random::new(1);
        let mut seen = [0_u32; 5];
        for _ in 0..1000 {
            seen[random.within(3..=7) as usize - 3] += 1;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert!(seen.iter().all(|times| *times > 100), "{seen:?}");
    }
}
