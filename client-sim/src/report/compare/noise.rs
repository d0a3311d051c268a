//! What is noise: pure rules on ranges and counts.

use super::{Judged, RowFigures, Spread};

/// Differences below this share are within what latency histograms resolve.
const RESOLUTION: f64 = 0.001;

/// How many times the standard deviation of a difference of two counts it must be, to be more than
/// chance: about one in twenty is larger by chance.
const SIGMAS: f64 = 2.0;

/// The direction in which a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    Less,
    More,
    Neither,
}

impl Better {
    fn word(self) -> &'static str {
        match self {
            Self::Less => "less",
            Self::More => "more",
            Self::Neither => "neither",
        }
    }
}

/// A figure of one entry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Value {
    /// It, or the median of the repeats.
    pub(super) middle: Option<f64>,
    /// What it is spread over.
    pub(super) spread: Option<Spread>,
    /// The range is that of repeats. Otherwise it is the middle half of the run's bins, which need
    /// not hold the value itself.
    pub(super) repeated: bool,
    /// From the smallest to the largest bin of a single run.
    pub(super) reach: Option<f64>,
    /// For counts of one run: of how many.
    pub(super) of: Option<u64>,
}

/// The middle of some values.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// A quantile of some values, between two of them where it falls there.
fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

/// From the smallest to the largest.
pub(super) fn range(values: &[f64]) -> Option<Spread> {
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some(Spread { low, high })
}

/// The middle half.
pub(super) fn middle_half(values: &[f64]) -> Option<Spread> {
    Some(Spread { low: quantile(values, 0.25)?, high: quantile(values, 0.75)? })
}

fn apart(a: Spread, b: Spread) -> bool {
    a.high < b.low || b.high < a.low
}

/// Whether a difference is more than noise; `None` when nothing tells.
fn differs(base: &Value, other: &Value) -> Option<bool> {
    let (a, b) = (base.middle?, other.middle?);
    if (a - b).abs() <= RESOLUTION * a.abs().max(b.abs()) {
        return Some(false);
    }
    if base.repeated || other.repeated {
        // A single run beside repeats is a range of one value.
        let whole = |value: &Value, alone: f64| match value.spread {
            Some(spread) if value.repeated => spread,
            _ => Spread { low: alone, high: alone },
        };
        return Some(apart(whole(base, a), whole(other, b)));
    }
    if let (Some(of_a), Some(of_b)) = (base.of, other.of) {
        return Some(counts_differ((a, of_a), (b, of_b)));
    }
    // A stall of a second moves few bins and the slowest answer far: further than all bins of the
    // steadier run lie apart.
    let steadier = base.reach?.min(other.reach?);
    Some(apart(base.spread?, other.spread?) || (a - b).abs() > steadier)
}

/// Whether two counts of rare events are further apart than chance explains: the variance of such a
/// count is about the count itself.
fn counts_differ((a, of_a): (f64, u64), (b, of_b): (f64, u64)) -> bool {
    if of_a == 0 || of_b == 0 {
        return false;
    }
    let scale = of_a as f64 / of_b as f64;
    (a - b * scale).abs() > SIGMAS * (a + b * scale * scale).sqrt()
}

/// The row of a figure.
pub(super) fn row(name: &str, unit: &str, better: Better, values: &[Value]) -> RowFigures {
    let base = values[0];
    let delta = |value: &Value| Some(value.middle? - base.middle?);
    let judged = |(index, value): (usize, &Value)| {
        if index == 0 {
            return Judged::Base;
        }
        let more = delta(value).is_some_and(|delta| delta > 0.0);
        match (differs(&base, value), better) {
            (None, _) => Judged::Unknown,
            (Some(false), _) => Judged::Noise,
            (Some(true), Better::Neither) => Judged::Different,
            (Some(true), Better::More) if more => Judged::Better,
            (Some(true), Better::Less) if !more => Judged::Better,
            (Some(true), _) => Judged::Worse,
        }
    };
    let but_base = |index: usize, value: Option<f64>| value.filter(|_| index > 0);
    let percent = |value: &Value| {
        let base = base.middle.filter(|base| *base != 0.0)?;
        Some(100.0 * delta(value)? / base.abs())
    };
    RowFigures {
        name: name.to_owned(),
        unit: unit.to_owned(),
        better: better.word().to_owned(),
        values: values.iter().map(|value| value.middle).collect(),
        spreads: values.iter().map(|value| value.spread).collect(),
        deltas: values.iter().enumerate().map(|(i, v)| but_base(i, delta(v))).collect(),
        delta_percents: values.iter().enumerate().map(|(i, v)| but_base(i, percent(v))).collect(),
        judgements: values.iter().enumerate().map(judged).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn repeats(values: &[f64]) -> Value {
        let repeated = values.len() > 1;
        let spread = if repeated { range(values) } else { None };
        Value { middle: median(values), spread, repeated, reach: None, of: None }
    }

    fn bins(value: f64, low: f64, high: f64) -> Value {
        let spread = Some(Spread { low, high });
        Value { middle: Some(value), spread, repeated: false, reach: Some(40.0), of: None }
    }

    fn judged(better: Better, base: Value, other: Value) -> Judged {
        row("x", "ms", better, &[base, other]).judgements[1]
    }

    #[test]
    fn ranges_of_repeats_that_touch_are_noise() {
        let base = repeats(&[50.0, 54.0, 58.0]);
        for (other, verdict) in [
            (repeats(&[57.0, 60.0, 70.0]), Judged::Noise),
            (repeats(&[59.0, 60.0, 70.0]), Judged::Worse),
            (repeats(&[40.0, 45.0, 49.0]), Judged::Better),
            (repeats(&[55.0]), Judged::Noise),
            (repeats(&[49.0]), Judged::Better),
        ] {
            assert_eq!(judged(Better::Less, base, other), verdict, "{other:?}");
        }
        assert_eq!(judged(Better::More, base, repeats(&[60.0])), Judged::Better);
        assert_eq!(judged(Better::Neither, base, repeats(&[60.0])), Judged::Different);
    }

    #[test]
    fn single_runs_are_judged_by_the_middle_half_of_their_bins() {
        let base = bins(97.0, 50.0, 60.0);
        assert_eq!(judged(Better::Less, base, bins(120.0, 58.0, 70.0)), Judged::Noise);
        assert_eq!(judged(Better::Less, base, bins(120.0, 61.0, 70.0)), Judged::Worse);
        let stalled = bins(900.0, 50.0, 60.0);
        assert_eq!(judged(Better::Less, base, stalled), Judged::Worse);
        let unknown = Value { spread: None, ..base };
        assert_eq!(judged(Better::Less, unknown, bins(1.0, 0.0, 2.0)), Judged::Unknown);
        let missing = Value { middle: None, ..base };
        assert_eq!(judged(Better::Less, base, missing), Judged::Unknown);
    }

    #[test]
    fn counts_must_differ_by_more_than_chance() {
        let count = |n: f64, of| Value { middle: Some(n), of: Some(of), ..bins(0.0, 0.0, 0.0) };
        let judged = |a, b| judged(Better::Less, a, b);
        assert_eq!(judged(count(0.0, 1000), count(3.0, 1000)), Judged::Noise);
        assert_eq!(judged(count(0.0, 1000), count(5.0, 1000)), Judged::Worse);
        assert_eq!(judged(count(100.0, 9000), count(80.0, 9000)), Judged::Noise);
        assert_eq!(judged(count(100.0, 9000), count(60.0, 9000)), Judged::Better);
        assert_eq!(judged(count(10.0, 1000), count(100.0, 10_000)), Judged::Noise);
    }

    proptest! {
        #[test]
        fn an_entry_does_not_differ_from_itself(
            values in prop::collection::vec(0.001f64..1e6, 1..9)
        ) {
            let side = repeats(&values);
            let row = row("x", "", Better::Less, &[side, side]);
            prop_assert_eq!(row.judgements[1], Judged::Noise);
            prop_assert_eq!(row.deltas[1], Some(0.0));
        }

        #[test]
        fn who_is_better_makes_the_other_worse(
            a in prop::collection::vec(1.0f64..100.0, 2..6),
            b in prop::collection::vec(1.0f64..100.0, 2..6),
        ) {
            let (a, b) = (repeats(&a), repeats(&b));
            let there = row("x", "", Better::Less, &[a, b]).judgements[1];
            let back = row("x", "", Better::Less, &[b, a]).judgements[1];
            let mirrored = match there {
                Judged::Better => Judged::Worse,
                Judged::Worse => Judged::Better,
                other => other,
            };
            prop_assert_eq!(back, mirrored);
        }
    }
}
