//! Pixels to tensor in one pass: resize, letterbox, channel order, NCHW layout and scaling, fused.
//!
//! Bilinear with half-pixel centres and clamped borders, as OpenCV's `INTER_LINEAR`, which is what
//! these networks were trained with; but not rounded to integers in between.

mod kernels;
mod taps;

use crate::{
    decode::{Axis, PixelView, Pixels, Planar, Plane},
    letterbox::Letterbox,
};
use kernels::Simd;
use taps::{LANES, Taps};

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

/// Fills input tensors, reusing its buffers. One per worker.
#[derive(Debug, Default)]
pub struct Preprocessor {
    simd: Simd,
    /// Positions in the picture, or in its luma.
    picture: Grid,
    /// Positions in its chroma.
    chroma: Grid,
    /// Two rows of the picture, converted.
    rows: [Vec<u8>; 2],
    /// A row between two rows.
    line: Vec<f32>,
    /// Scaled rows of luma and chroma.
    scaled: [Vec<f32>; 3],
}

/// Sampling positions in both directions.
#[derive(Debug, Default)]
struct Grid {
    columns: Taps,
    rows: Taps,
}

impl Grid {
    fn prepare(&mut self, columns: Axis, rows: Axis, letterbox: &Letterbox) {
        self.columns.prepare(columns, letterbox.source.0, letterbox.scaled.0);
        self.rows.prepare(rows, letterbox.source.1, letterbox.scaled.1);
    }

    fn prepare_for(&mut self, plane: &Plane<'_>, letterbox: &Letterbox) {
        self.prepare(plane.columns, plane.rows, letterbox);
    }
}

impl Preprocessor {
    /// Writes `pixels`, scaled and placed as `letterbox` says, into `tensor`, three planes of its input
    /// size. Every value is written, so the tensor may hold anything before.
    ///
    /// # Panics
    /// When the tensor is not [`values`] of the input long.
    pub fn run(
        &mut self,
        pixels: &Pixels<'_>,
        letterbox: &Letterbox,
        spec: &InputSpec,
        tensor: &mut [f32],
    ) {
        assert_eq!(tensor.len(), values(letterbox.input), "tensor of another size");
        let mut canvas = Canvas {
            planes: split_planes(tensor, spec.order),
            letterbox,
            pad: spec.pad * spec.scale,
        };
        canvas.pad_above_and_below();
        match pixels {
            Pixels::Rows(view) => self.scale_rows(view, letterbox, spec.scale, &mut canvas),
            Pixels::Planar(planar) => self.scale_planes(planar, letterbox, spec.scale, &mut canvas),
        }
    }

    fn scale_rows(
        &mut self,
        view: &PixelView<'_>,
        letterbox: &Letterbox,
        factor: f32,
        canvas: &mut Canvas<'_>,
    ) {
        let (width, height) = letterbox.source;
        self.picture.prepare(Axis::plain(width), Axis::plain(height), letterbox);
        let [above, below] = &mut self.rows;
        for (y, (first, second, weight)) in self.picture.rows.iter().enumerate() {
            let upper = view.rgb_row(first, above);
            let lower = if second == first { upper } else { view.rgb_row(second, below) };
            let between = (upper, lower, weight);
            let row = canvas.row(y);
            self.simd.scale_rgb(between, &self.picture.columns, &mut self.line, factor, row);
        }
    }

    fn scale_planes(
        &mut self,
        Planar { luma, chroma }: &Planar<'_>,
        letterbox: &Letterbox,
        factor: f32,
        canvas: &mut Canvas<'_>,
    ) {
        let Self { simd, picture, chroma: colour, line, scaled, .. } = self;
        picture.prepare_for(luma, letterbox);
        let width = letterbox.scaled.0 as usize;
        for row in scaled.iter_mut() {
            row.resize(width.next_multiple_of(LANES), 0.0);
        }
        let [luma_row, blue_row, red_row] = scaled;
        let Some([cb, cr]) = chroma else {
            for (y, tap) in picture.rows.iter().enumerate() {
                simd.scale(between(luma, tap), &picture.columns, line, luma_row);
                for channel in canvas.row(y) {
                    for (value, level) in channel.iter_mut().zip(&*luma_row) {
                        *value = level * factor;
                    }
                }
            }
            return;
        };
        colour.prepare_for(cb, letterbox);
        for (y, (tap, colour_tap)) in picture.rows.iter().zip(colour.rows.iter()).enumerate() {
            simd.scale(between(luma, tap), &picture.columns, line, luma_row);
            simd.scale(between(cb, colour_tap), &colour.columns, line, blue_row);
            simd.scale(between(cr, colour_tap), &colour.columns, line, red_row);
            simd.colour([luma_row, blue_row, red_row], factor, canvas.row(y));
        }
    }
}

/// The two rows of a plane that a scaled row lies between, and the weight of the second.
fn between<'a>(
    plane: &Plane<'a>,
    (first, second, weight): (usize, usize, f32),
) -> (&'a [u8], &'a [u8], f32) {
    (plane.row(first), plane.row(second), weight)
}

/// A tensor being filled.
struct Canvas<'a> {
    /// For red, green and blue, in whichever order they lie in the tensor.
    planes: [&'a mut [f32]; 3],
    letterbox: &'a Letterbox,
    /// Value of the padding.
    pad: f32,
}

impl Canvas<'_> {
    fn pad_above_and_below(&mut self) {
        let Letterbox { input, scaled, offset, .. } = self.letterbox;
        let width = input.0 as usize;
        let (top, bottom) = (offset.1 as usize, (offset.1 + scaled.1) as usize);
        for plane in &mut self.planes {
            plane[..top * width].fill(self.pad);
            plane[bottom * width..].fill(self.pad);
        }
    }

    /// Row `y` of the scaled picture, padded to its left and right.
    fn row(&mut self, y: usize) -> [&mut [f32]; 3] {
        let Letterbox { input, scaled, offset, .. } = self.letterbox;
        let width = input.0 as usize;
        let start = (offset.1 as usize + y) * width;
        let (left, right) = (offset.0 as usize, (offset.0 + scaled.0) as usize);
        self.planes.each_mut().map(|plane| {
            let row = &mut plane[start..start + width];
            row[..left].fill(self.pad);
            row[right..].fill(self.pad);
            &mut row[left..right]
        })
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
        let view = Pixels::Rows(PixelView::rgb(source.0, source.1, rgb));
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
