//! Random numbers without state: the same seed and place give the same number, in any order.

/// Mixes a seed with a place into 64 well-spread bits: the output function of `SplitMix64` (Steele,
/// Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014), applied to each part.
#[must_use]
pub fn hash(seed: u64, place: u64, use_: u64) -> u64 {
    [place, use_].iter().fold(mix(seed), |mixed, &part| mix(mixed ^ mix(part)))
}

fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A hash as a number from 0.0 up to, not including, 1.0.
#[must_use]
pub fn unit(hash: u64) -> f64 {
    // 53 bits are what an f64 holds.
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_repeat_and_spread() {
        assert_eq!(hash(1, 2, 3), hash(1, 2, 3));
        let draws: Vec<f64> = (0..10_000).map(|k| unit(hash(7, k, 0))).collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        let differing = (0..1000).filter(|&k| hash(1, k, 0) != hash(2, k, 0)).count();
        assert_eq!(differing, 1000);
    }
}
