//! From values to places in a picture and back, and the round values in between.

/// How values are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Equal steps take equal room.
    Linear,
    /// Equal factors take equal room.
    Log,
    /// Percentiles by the rarity of what lies above: 0, 90, 99, 99.9 % are equally far apart.
    Nines,
}

impl Kind {
    /// As the page's data attributes write it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Log => "log",
            Self::Nines => "nines",
        }
    }

    /// The value in units in which the axis is even.
    fn even(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log => value.max(f64::MIN_POSITIVE).log10(),
            Self::Nines => -(1.0 - value / 100.0).max(f64::MIN_POSITIVE).log10(),
        }
    }

    fn value(self, even: f64) -> f64 {
        match self {
            Self::Linear => even,
            Self::Log => 10f64.powf(even),
            Self::Nines => 100.0 * (1.0 - 10f64.powf(-even)),
        }
    }
}

/// An axis: which values it shows, and where.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// How values are spread.
    pub kind: Kind,
    /// First and last value shown.
    pub domain: (f64, f64),
    /// Their places in pixels.
    pub range: (f64, f64),
}

impl Scale {
    /// An axis over `domain`; one that holds a single value or none is widened, so that every
    /// place is a number.
    #[must_use]
    pub fn new(kind: Kind, domain: (f64, f64)) -> Self {
        let (low, high) = domain;
        let low = if low.is_finite() { low } else { 0.0 };
        let low = if kind == Kind::Log { low.max(1e-6) } else { low };
        let high = if high.is_finite() && high > low {
            high
        } else if kind == Kind::Log {
            low * 10.0
        } else {
            low + 1.0
        };
        Self { kind, domain: (low, high), range: (0.0, 1.0) }
    }

    /// The same between these places.
    #[must_use]
    pub fn over(self, range: (f64, f64)) -> Self {
        Self { range, ..self }
    }

    /// The place of a value; values outside lie on the edge.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let (low, high) = (self.kind.even(self.domain.0), self.kind.even(self.domain.1));
        let share = ((self.kind.even(value) - low) / (high - low)).clamp(0.0, 1.0);
        self.range.0 + share * (self.range.1 - self.range.0)
    }

    /// The value at a place.
    #[must_use]
    pub fn invert(&self, place: f64) -> f64 {
        let (low, high) = (self.kind.even(self.domain.0), self.kind.even(self.domain.1));
        let share = (place - self.range.0) / (self.range.1 - self.range.0);
        self.kind.value(low + share * (high - low))
    }

    /// Round values within the axis, at most about `at_most`.
    #[must_use]
    pub fn ticks(&self, at_most: usize) -> Vec<f64> {
        match self.kind {
            Kind::Linear => linear_ticks(self.domain, at_most),
            Kind::Log => log_ticks(self.domain, at_most),
            Kind::Nines => [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999]
                .into_iter()
                .filter(|tick| (self.domain.0..=self.domain.1).contains(tick))
                .collect(),
        }
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        // Room for the rounding of powers of ten.
        .find(|step| *step >= rough * (1.0 - 1e-9))
        .unwrap_or(power)
}

fn linear_ticks((low, high): (f64, f64), at_most: usize) -> Vec<f64> {
    let step = nice_step((high - low) / at_most.max(1) as f64);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    // Tenths are written as divisions: 3 * 0.1 is not 0.3.
    let inverse = (1.0 / step).round();
    (first..=last).map(|k| if step < 1.0 { k as f64 / inverse } else { k as f64 * step }).collect()
}

fn log_ticks((low, high): (f64, f64), at_most: usize) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    for factors in [&[1.0, 2.0, 3.0, 5.0, 7.0][..], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]] {
        let ticks: Vec<f64> = decades
            .clone()
            .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
            .filter(|tick| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(tick))
            .collect();
        if ticks.len() <= at_most || factors.len() == 1 {
            return ticks;
        }
    }
    Vec::new()
}

/// An upper end for an axis from 0: a little above `max`, at a round value.
#[must_use]
pub fn nice_top(max: f64) -> f64 {
    if !max.is_finite() || max <= 0.0 {
        return 1.0;
    }
    let step = nice_step(max / 8.0);
    (max * 1.02 / step).ceil() * step
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round() {
        let ticks = |kind, domain, n| Scale::new(kind, domain).ticks(n);
        assert_eq!(ticks(Kind::Linear, (0.0, 100.0), 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(Kind::Linear, (0.0, 0.3), 3), [0.0, 0.1, 0.2, 0.3]);
        assert_eq!(ticks(Kind::Log, (1.0, 100.0), 3), [1.0, 10.0, 100.0]);
        assert_eq!(ticks(Kind::Log, (10.0, 100.0), 5), [10.0, 20.0, 50.0, 100.0]);
        assert_eq!(ticks(Kind::Nines, (0.0, 99.95), 9), [0.0, 50.0, 90.0, 99.0, 99.9]);
        assert_eq!((nice_top(97.0), nice_top(100.0), nice_top(0.0)), (100.0, 120.0, 1.0));
    }

    #[test]
    fn an_axis_of_one_value_is_still_an_axis() {
        for kind in [Kind::Linear, Kind::Log, Kind::Nines] {
            for domain in [(0.0, 0.0), (f64::NAN, f64::INFINITY), (5.0, 1.0)] {
                let scale = Scale::new(kind, domain).over((40.0, 900.0));
                for value in [0.0, 1.0, 100.0, -3.0] {
                    assert!(scale.place(value).is_finite(), "{kind:?} {domain:?} {value}");
                }
                assert!(scale.ticks(5).len() < 20);
            }
        }
    }

    proptest! {
        #[test]
        fn places_come_back_as_values(
            kind in prop::sample::select(vec![Kind::Linear, Kind::Log, Kind::Nines]),
            share in 0.0f64..1.0,
        ) {
            let scale = Scale::new(kind, (1.0, 99.9)).over((600.0, 20.0));
            let value = 1.0 + share * 98.9;
            let back = scale.invert(scale.place(value));
            prop_assert!((back - value).abs() < 1e-6, "{kind:?} {value} {back}");
        }

        #[test]
        fn ticks_lie_within_and_are_few(low in -1e6f64..1e6, width in 1e-6f64..1e6, n in 1usize..12) {
            let scale = Scale::new(Kind::Linear, (low, low + width));
            let ticks = scale.ticks(n);
            prop_assert!(ticks.len() <= n + 1, "{ticks:?}");
            let slack = width * 1e-6 + 1e-6;
            prop_assert!(ticks.iter().all(|t| *t >= low - slack && *t <= low + width + slack));
        }

        #[test]
        fn tops_are_above_and_not_far(max in 1e-3f64..1e7) {
            let top = nice_top(max);
            prop_assert!(top >= max && top <= max * 1.5, "{max} {top}");
        }
    }
}
