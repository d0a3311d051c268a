//! Figures from samples. Pure functions.

/// The middle value, or the mean of the two middle ones; `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let (low, high) = ((sorted.len().checked_sub(1)?) / 2, sorted.len() / 2);
    Some(f64::midpoint(sorted[low], sorted[high]))
}

/// The smallest value that at least `share` (0.0 to 1.0) of the values do not exceed; `None` without
/// values.
#[must_use]
pub fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let sorted = sorted(values);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The largest value; `None` without values.
#[must_use]
pub fn max(values: &[f64]) -> Option<f64> {
    values.iter().copied().max_by(f64::total_cmp)
}

/// The mean; `None` without values.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Slope of the least-squares line through points `(x, y)`, in y per x; 0 where no line is defined.
#[must_use]
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (sum_x, sum_y) = points.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    let (mean_x, mean_y) = (sum_x / n, sum_y / n);
    let (covariance, variance) = points.iter().fold((0.0, 0.0), |(c, v), (x, y)| {
        (c + (x - mean_x) * (y - mean_y), v + (x - mean_x) * (x - mean_x))
    });
    if variance > 0.0 { covariance / variance } else { 0.0 }
}

/// Largest distance of a value from the mean, as a share of the mean; 0 without values.
#[must_use]
pub fn largest_deviation(values: &[f64]) -> f64 {
    let Some(mean) = mean(values).filter(|&mean| mean > 0.0) else { return 0.0 };
    values.iter().map(|value| (value - mean).abs() / mean).fold(0.0, f64::max)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these results are exact")]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.5), Some(50.0));
        assert_eq!(percentile(&values, 0.99), Some(99.0));
        assert_eq!(percentile(&values, 1.0), Some(100.0));
        assert_eq!(percentile(&values, 0.0), Some(1.0));
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(max(&values), Some(100.0));
        assert_eq!(mean(&[1.0, 2.0, 6.0]), Some(3.0));
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn slopes() {
        let line: Vec<(f64, f64)> =
            (0..10).map(|x| (f64::from(x), 2.0 * f64::from(x) - 7.0)).collect();
        assert!((slope(&line) - 2.0).abs() < 1e-12);
        assert_eq!(slope(&[]), 0.0);
        assert_eq!(slope(&[(1.0, 5.0), (1.0, 9.0)]), 0.0, "no line");
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 1.0), (2.0, 1.0)]), 0.0);
    }

    #[test]
    fn deviation_is_relative_to_the_mean() {
        assert_eq!(largest_deviation(&[8.0, 10.0, 12.0]), 0.2);
        assert_eq!(largest_deviation(&[]), 0.0);
        assert_eq!(largest_deviation(&[0.0, 0.0]), 0.0);
    }
}
