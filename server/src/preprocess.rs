//! Pixels to tensor in one pass: resize, letterbox, channel order, NCHW layout and scaling, fused.
//!
//! Bilinear with half-pixel centres and clamped borders, as OpenCV's `INTER_LINEAR`, which is what
//! these networks were trained with; but not rounded to integers in between.

use crate::{decode::PixelView, letterbox::Letterbox};

/// Channel order of the network's input planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the field's own names")]
pub enum ChannelOrder {
    Rgb,
    Bgr,
}

/// How a network wants its values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InputSpec {
    /// Order of the planes.
    pub order: ChannelOrder,
    /// Factor from 0..=255 to the network's range.
    pub scale: f32,
    /// Level of the padding, 0..=255, before `scale`.
    pub pad: f32,
}

/// Values of one picture: three planes of `input.0 * input.1`.
#[must_use]
pub fn values(input: (u32, u32)) -> usize {
    3 * input.0 as usize * input.1 as usize
}

/// Sampling positions along one axis: two neighbours and the weight of the second.
#[derive(Debug, Default)]
struct Taps {
    lengths: (u32, u32),
    taps: Vec<(usize, usize, f32)>,
}

impl Taps {
    /// Positions for scaling `source` samples to `scaled`; kept while the lengths stay the same.
    fn prepare(&mut self, source: u32, scaled: u32) -> &[(usize, usize, f32)] {
        if self.lengths != (source, scaled) {
            self.lengths = (source, scaled);
            self.taps.clear();
            let step = f64::from(source) / f64::from(scaled);
            let last = source as usize - 1;
            self.taps.extend((0..scaled).map(|i| {
                let position = ((f64::from(i) + 0.5) * step - 0.5).clamp(0.0, last as f64);
                let first = position as usize;
                (first, (first + 1).min(last), (position - first as f64) as f32)
            }));
        }
        &self.taps
    }
}

/// Fills input tensors, reusing its buffers. One per worker.
#[derive(Debug, Default)]
pub struct Preprocessor {
    columns: Taps,
    rows: Taps,
    buffers: [Vec<u8>; 2],
    blended: Vec<f32>,
}

impl Preprocessor {
    /// Writes `pixels`, scaled and placed as `letterbox` says, into `tensor`, three planes of its input
    /// size. Every value is written, so the tensor may hold anything before.
    ///
    /// # Panics
    /// When the tensor is not [`values`] of the input long.
    pub fn run(
        &mut self,
        pixels: &PixelView<'_>,
        letterbox: &Letterbox,
        spec: &InputSpec,
        tensor: &mut [f32],
    ) {
        assert_eq!(tensor.len(), values(letterbox.input), "tensor of another size");
        let width = letterbox.input.0 as usize;
        let (left, top) = (letterbox.offset.0 as usize, letterbox.offset.1 as usize);
        let (scaled_w, scaled_h) = (letterbox.scaled.0 as usize, letterbox.scaled.1 as usize);
        let columns = self.columns.prepare(letterbox.source.0, letterbox.scaled.0);
        let rows = self.rows.prepare(letterbox.source.1, letterbox.scaled.1);
        let pad = spec.pad * spec.scale;

        let mut planes = split_planes(tensor, spec.order);
        for plane in &mut planes {
            plane[..top * width].fill(pad);
            plane[(top + scaled_h) * width..].fill(pad);
        }
        let [above, below] = &mut self.buffers;
        for (y, &(first, second, weight)) in rows.iter().enumerate() {
            let upper = pixels.rgb_row(first, above);
            let lower = if second == first { upper } else { pixels.rgb_row(second, below) };
            let start = (top + y) * width;
            let [r, g, b] = planes.each_mut().map(|plane| &mut plane[start..start + width]);
            for line in [&mut *r, &mut *g, &mut *b] {
                line[..left].fill(pad);
                line[left + scaled_w..].fill(pad);
            }
            let span = left..left + scaled_w;
            blend_rows(upper, lower, weight, &mut self.blended);
            let planes = [&mut r[span.clone()], &mut g[span.clone()], &mut b[span]];
            sample_row(&self.blended, columns, spec.scale, planes);
        }
    }
}

/// The planes for red, green and blue, in whichever order they lie in the tensor.
fn split_planes(tensor: &mut [f32], order: ChannelOrder) -> [&mut [f32]; 3] {
    let area = tensor.len() / 3;
    let (first, rest) = tensor.split_at_mut(area);
    let (second, third) = rest.split_at_mut(area);
    match order {
        ChannelOrder::Rgb => [first, second, third],
        ChannelOrder::Bgr => [third, second, first],
    }
}

/// A row between two rows of the source, `weight` of the way from `upper` to `lower`. Written so that it
/// compiles to vector code; the horizontal half, which cannot, then runs once instead of twice.
fn blend_rows(upper: &[u8], lower: &[u8], weight: f32, out: &mut Vec<f32>) {
    out.clear();
    out.extend(upper.iter().zip(lower).map(|(&u, &l)| {
        let (u, l) = (f32::from(u), f32::from(l));
        u + (l - u) * weight
    }));
}

/// Samples a row of interleaved RGB at `columns` into three planes.
fn sample_row(
    row: &[f32],
    columns: &[(usize, usize, f32)],
    scale: f32,
    [red, green, blue]: [&mut [f32]; 3],
) {
    let outputs = red.iter_mut().zip(green.iter_mut()).zip(blue.iter_mut());
    for (&(left, right, weight), ((r, g), b)) in columns.iter().zip(outputs) {
        let (left, right) = (&row[left * 3..left * 3 + 3], &row[right * 3..right * 3 + 3]);
        *r = (left[0] + (right[0] - left[0]) * weight) * scale;
        *g = (left[1] + (right[1] - left[1]) * weight) * scale;
        *b = (left[2] + (right[2] - left[2]) * weight) * scale;
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these results are exact")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::letterbox::Align;

    const BGR: InputSpec = InputSpec { order: ChannelOrder::Bgr, scale: 1.0, pad: 114.0 };

    fn run(source: (u32, u32), rgb: &[u8], input: (u32, u32), spec: &InputSpec) -> Vec<f32> {
        let letterbox = Letterbox::fit(source, input, Align::Centre);
        let mut tensor = vec![f32::NAN; values(input)];
        let view = PixelView::rgb(source.0, source.1, rgb);
        Preprocessor::default().run(&view, &letterbox, spec, &mut tensor);
        tensor
    }

    #[test]
    fn same_size_is_a_copy_with_planes_in_order() {
        let rgb: Vec<u8> = (0..4 * 2 * 3).map(|v| v as u8 * 10).collect();
        let tensor = run((4, 2), &rgb, (4, 2), &BGR);
        for i in 0..8 {
            assert_eq!(tensor[i], f32::from(rgb[i * 3 + 2]), "blue first");
            assert_eq!(tensor[8 + i], f32::from(rgb[i * 3 + 1]));
            assert_eq!(tensor[16 + i], f32::from(rgb[i * 3]));
        }
        let rgb_order = InputSpec { order: ChannelOrder::Rgb, scale: 1.0 / 255.0, ..BGR };
        let tensor = run((4, 2), &rgb, (4, 2), &rgb_order);
        assert!((tensor[1] - f32::from(rgb[3]) / 255.0).abs() < 1e-6, "red first, scaled");
    }

    #[test]
    fn halving_averages_the_middle_pixels() {
        let gray: Vec<u8> = [0, 100, 200, 40].iter().flat_map(|&v| [v; 3]).collect();
        let tensor = run((4, 1), &gray, (2, 1), &BGR);
        assert_eq!(tensor[..2], [50.0, 120.0]);
    }

    proptest! {
        /// Every value is written; the picture's area holds its values, the rest the padding.
        #[test]
        fn covers_the_whole_input(
            source in (1..50_u32, 1..50_u32),
            input in (1..50_u32, 1..50_u32),
            level in 0..=255_u8,
        ) {
            let rgb = vec![level; (source.0 * source.1 * 3) as usize];
            let tensor = run(source, &rgb, input, &BGR);
            let l = Letterbox::fit(source, input, Align::Centre);
            for (i, value) in tensor.iter().enumerate() {
                let at = (i as u32 % (input.0 * input.1) % input.0, i as u32 % (input.0 * input.1) / input.0);
                let inside = (l.offset.0..l.offset.0 + l.scaled.0).contains(&at.0)
                    && (l.offset.1..l.offset.1 + l.scaled.1).contains(&at.1);
                let want = if inside { f32::from(level) } else { 114.0 };
                prop_assert_eq!(*value, want, "at {:?}", at);
            }
        }

        /// A linear ramp stays linear under bilinear scaling, away from the clamped borders.
        #[test]
        fn ramps_stay_ramps(width in 8..200_u32, scaled in 8..200_u32) {
            let row: Vec<u8> = (0..width).flat_map(|x| [(x * 255 / width) as u8; 3]).collect();
            let tensor = run((width, width), &row.repeat(width as usize), (scaled, scaled), &BGR);
            let step = f64::from(width) / f64::from(scaled);
            for x in 0..scaled {
                let position = (f64::from(x) + 0.5) * step - 0.5;
                if position < 0.0 || position > f64::from(width - 1) { continue; }
                let want = position * 255.0 / f64::from(width);
                prop_assert!((f64::from(tensor[x as usize]) - want).abs() <= 1.0);
            }
        }
    }
}
