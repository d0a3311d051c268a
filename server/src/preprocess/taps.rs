//! Where along one axis a scaled picture takes its values from.

use crate::decode::Axis;

/// Values that a vector kernel computes at once, at most: what taps and lines are padded to.
pub(super) const LANES: usize = 16;

/// Readable values behind the last one of a line: a kernel reads two vectors from its block's first
/// sample on.
pub(super) const LINE_PADDING: usize = 2 * LANES;

/// Sampling positions along one axis: each value lies between two neighbouring samples.
#[derive(Debug, Default)]
pub(super) struct Taps {
    of: Option<(Axis, u32, u32)>,
    scaled: usize,
    /// The first neighbour of each value; the second is the sample behind it. Padded to whole blocks
    /// with repetitions of the last.
    pub(super) first: Vec<u32>,
    /// Weight of the second neighbour, 0.0 to below 1.0; 0.0 where there is none.
    pub(super) weight: Vec<f32>,
    /// Most samples from the first to the last neighbour in a block of this many values.
    spans: [(usize, usize); 2],
}

impl Taps {
    /// Positions for scaling a picture's `pixels` along this axis to `scaled` values, with half-pixel
    /// centres and clamped to the samples that cover the picture. Kept while nothing changes.
    pub(super) fn prepare(&mut self, axis: Axis, pixels: u32, scaled: u32) {
        if self.of == Some((axis, pixels, scaled)) {
            return;
        }
        self.of = Some((axis, pixels, scaled));
        self.scaled = scaled as usize;
        let ratio = f64::from(pixels) / f64::from(scaled);
        let (step, lead) = (f64::from(axis.step), f64::from(axis.lead));
        let low = axis.lead / axis.step;
        let high = (axis.lead + pixels).div_ceil(axis.step).min(axis.length) - 1;
        let padded = scaled.next_multiple_of(LANES as u32);
        let positions = (0..padded).map(|i| {
            let centre = (f64::from(i.min(scaled - 1)) + 0.5) * ratio;
            let position = (centre + lead) / step - 0.5;
            position.clamp(f64::from(low), f64::from(high))
        });
        self.first.clear();
        self.weight.clear();
        for position in positions {
            let first = position.floor();
            self.first.push(first as u32);
            self.weight.push((position - first) as f32);
        }
        self.spans = [8, LANES].map(|block| (block, self.widest(block)));
    }

    /// Samples that the widest block of this many values reaches over.
    fn widest(&self, block: usize) -> usize {
        let reach = |first: &[u32]| Some((first.last()? - first.first()? + 2) as usize);
        self.first.chunks_exact(block).filter_map(reach).max().unwrap_or(0)
    }

    /// Whether every block of this many values lies within twice as many samples.
    pub(super) fn fit(&self, block: usize) -> bool {
        self.spans.iter().any(|&(size, span)| size == block && span <= 2 * block)
    }

    /// Each value's neighbours and the weight of the second, which is the first again where the weight
    /// is 0.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, usize, f32)> {
        let pairs = self.first.iter().zip(&self.weight).take(self.scaled);
        pairs.map(|(&first, &weight)| {
            let first = first as usize;
            (first, first + usize::from(weight > 0.0), weight)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taps(axis: Axis, pixels: u32, scaled: u32) -> Vec<(usize, usize, f32)> {
        let mut taps = Taps::default();
        taps.prepare(axis, pixels, scaled);
        taps.iter().collect()
    }

    #[test]
    fn half_sized_planes_are_centred_between_pixels() {
        // Four pixels in two samples, at full size: a quarter before, after and between their centres.
        let half = Axis { length: 2, step: 2, lead: 0 };
        assert_eq!(taps(half, 4, 4), [(0, 0, 0.0), (0, 1, 0.25), (0, 1, 0.75), (1, 1, 0.0)]);
    }

    #[test]
    fn a_turned_plane_begins_before_the_picture() {
        // Three pixels, turned round: the first sample covers one pixel beside the picture and one of
        // it.
        let turned = Axis { length: 2, step: 2, lead: 1 };
        assert_eq!(taps(turned, 3, 3), [(0, 1, 0.25), (0, 1, 0.75), (1, 1, 0.0)]);
    }

    #[test]
    fn samples_beside_the_picture_are_not_used() {
        // Luma padded to a multiple of 8 behind 5 pixels.
        let padded = Axis { length: 8, step: 1, lead: 0 };
        assert_eq!(taps(padded, 5, 10).last(), Some(&(4, 4, 0.0)));
    }

    proptest! {
        #[test]
        fn neighbours_lie_inside_and_rise(
            pixels in 1..3000_u32,
            scaled in 1..700_u32,
            step in 1..9_u32,
            turned in any::<bool>(),
        ) {
            let length = pixels.div_ceil(step);
            let lead = if turned { length * step - pixels } else { 0 };
            let axis = Axis { length, step, lead };
            let all = taps(axis, pixels, scaled);
            prop_assert_eq!(all.len(), scaled as usize);
            for &(first, second, weight) in &all {
                prop_assert!(second < length as usize);
                prop_assert!((0.0..=1.0).contains(&weight), "{weight}");
                prop_assert!(first <= second);
            }
            prop_assert!(all.is_sorted_by_key(|tap| tap.0));
        }
    }
}
