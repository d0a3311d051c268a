//! Drawing on RGB pictures: filled shapes with smooth edges, and text from an 8x8 bitmap font.
//!
//! Coordinates are pixels, origin at the top left, y downwards; a pixel's centre lies at .5. What
//! lies outside the picture is clipped.

use font8x8::{BASIC_FONTS, UnicodeFonts as _};
use image::{Rgb, RgbImage};

/// Red, green, blue.
pub type Color = [u8; 3];

/// A point or vector in pixels.
pub type Point = (f32, f32);

/// Samples per pixel row for smooth edges; across, coverage is exact.
const SUBROWS: usize = 4;

/// Points of a polygon that stands for an ellipse; 64 leave no visible corner up to 500 pixels.
const ELLIPSE_POINTS: usize = 64;

/// Width and height of a glyph in font pixels.
pub const GLYPH: u32 = 8;

/// Fills the polygon with the colour that `paint` gives for each pixel, by the even-odd rule.
pub fn polygon_with(picture: &mut RgbImage, points: &[Point], paint: impl Fn(u32, u32) -> Color) {
    let (left, right) = extent(points.iter().map(|point| point.0), picture.width());
    let (top, bottom) = extent(points.iter().map(|point| point.1), picture.height());
    if points.len() < 3 || left >= right || top >= bottom {
        return;
    }
    let mut coverage = vec![0.0_f32; (right - left) as usize];
    let mut crossings = Vec::new();
    for y in top..bottom {
        coverage.fill(0.0);
        for subrow in 0..SUBROWS {
            let at = y as f32 + (subrow as f32 + 0.5) / SUBROWS as f32;
            crossings_at(points, at, &mut crossings);
            for span in crossings.chunks_exact(2) {
                cover(&mut coverage, span[0] - left as f32, span[1] - left as f32);
            }
        }
        for (x, &covered) in (left..).zip(&coverage) {
            if covered > 0.0 {
                let share = covered / SUBROWS as f32;
                blend(picture.get_pixel_mut(x, y), paint(x, y), share);
            }
        }
    }
}

/// The pixels from the smallest to the largest of `values`, within 0 to `limit`.
fn extent(values: impl Iterator<Item = f32> + Clone, limit: u32) -> (u32, u32) {
    let first = values.clone().fold(f32::INFINITY, f32::min);
    let last = values.fold(f32::NEG_INFINITY, f32::max);
    // Casts of floats saturate, so places beside the picture give empty ranges.
    (first as u32, (last.ceil() as u32).min(limit))
}

/// Where the polygon's edges cross the horizontal line at `y`, from left to right.
fn crossings_at(points: &[Point], y: f32, crossings: &mut Vec<f32>) {
    crossings.clear();
    let mut from = points[points.len() - 1];
    for &to in points {
        if (from.1 <= y) != (to.1 <= y) {
            crossings.push(from.0 + (y - from.1) / (to.1 - from.1) * (to.0 - from.0));
        }
        from = to;
    }
    crossings.sort_by(f32::total_cmp);
}

/// Adds to each pixel the share of it between `left` and `right`.
fn cover(coverage: &mut [f32], left: f32, right: f32) {
    let left = left.max(0.0);
    let right = right.min(coverage.len() as f32);
    if left >= right {
        return;
    }
    let first = left as usize;
    let last = (right.ceil() as usize).min(coverage.len());
    for (x, covered) in (first..last).zip(&mut coverage[first..last]) {
        *covered += (right.min(x as f32 + 1.0) - left.max(x as f32)).max(0.0);
    }
}

fn blend(pixel: &mut Rgb<u8>, color: Color, share: f32) {
    for (channel, value) in pixel.0.iter_mut().zip(color) {
        let mixed = f32::from(*channel) * (1.0 - share) + f32::from(value) * share;
        *channel = (mixed + 0.5) as u8;
    }
}

/// Fills the polygon with one colour.
pub fn polygon(picture: &mut RgbImage, points: &[Point], color: Color) {
    polygon_with(picture, points, |_, _| color);
}

/// Fills the rectangle from `(x, y)`.
pub fn rect(picture: &mut RgbImage, (x, y): Point, (w, h): Point, color: Color) {
    polygon(picture, &[(x, y), (x + w, y), (x + w, y + h), (x, y + h)], color);
}

/// The outline of an ellipse around `center`.
#[must_use]
pub fn ellipse_points(center: Point, radius: Point) -> Vec<Point> {
    regular(ELLIPSE_POINTS, 0.0, center, radius)
}

/// Corners of a regular polygon of `n` corners inscribed in an ellipse, the first one at `angle`
/// radians from the right, clockwise.
#[must_use]
pub fn regular(n: usize, angle: f32, center: Point, radius: Point) -> Vec<Point> {
    (0..n)
        .map(|i| {
            let turn = angle + i as f32 / n as f32 * std::f32::consts::TAU;
            (center.0 + radius.0 * turn.cos(), center.1 + radius.1 * turn.sin())
        })
        .collect()
}

/// Fills an ellipse.
pub fn ellipse(picture: &mut RgbImage, center: Point, radius: Point, color: Color) {
    polygon(picture, &ellipse_points(center, radius), color);
}

/// A straight stroke of `width` pixels with square ends.
pub fn line(picture: &mut RgbImage, from: Point, to: Point, width: f32, color: Color) {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy);
    if length == 0.0 {
        return;
    }
    let (nx, ny) = (-dy / length * width / 2.0, dx / length * width / 2.0);
    let corners = [
        (from.0 + nx, from.1 + ny),
        (to.0 + nx, to.1 + ny),
        (to.0 - nx, to.1 - ny),
        (from.0 - nx, from.1 - ny),
    ];
    polygon(picture, &corners, color);
}

/// Writes `text` with its top left corner at `(x, y)`, each font pixel `scale` pixels wide.
/// Characters that the font lacks show as `?`. Its width is 8 x `scale` per character.
pub fn text(picture: &mut RgbImage, (x, y): Point, text: &str, scale: f32, color: Color) {
    let glyph_width = GLYPH as f32 * scale;
    for (column, character) in text.chars().enumerate() {
        let Some(rows) = BASIC_FONTS.get(character).or_else(|| BASIC_FONTS.get('?')) else {
            continue;
        };
        let left = x + column as f32 * glyph_width;
        if left > picture.width() as f32 {
            return;
        }
        for (row, bits) in rows.iter().enumerate() {
            for bit in (0..GLYPH).filter(|bit| bits >> bit & 1 == 1) {
                let at = (left + bit as f32 * scale, y + row as f32 * scale);
                rect(picture, at, (scale, scale), color);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RED: Color = [255, 0, 0];

    #[test]
    fn a_rectangle_covers_its_pixels_and_no_others() {
        let mut picture = RgbImage::new(10, 8);
        rect(&mut picture, (2.0, 1.0), (3.0, 4.0), RED);
        for (x, y, pixel) in picture.enumerate_pixels() {
            let inside = (2..5).contains(&x) && (1..5).contains(&y);
            assert_eq!(pixel.0 == RED, inside, "({x}, {y}) is {pixel:?}");
        }
    }

    #[test]
    fn edges_are_smooth() {
        let mut picture = RgbImage::new(4, 4);
        rect(&mut picture, (0.5, 0.0), (2.0, 4.0), RED);
        assert_eq!(picture.get_pixel(0, 2).0, [128, 0, 0]);
        assert_eq!(picture.get_pixel(1, 2).0, RED);
    }

    #[test]
    fn letters_look_like_letters() {
        let mut picture = RgbImage::new(8, 8);
        text(&mut picture, (0.0, 0.0), "L", 1.0, RED);
        let row =
            |y| (0..8).map(|x| u8::from(picture.get_pixel(x, y).0 == RED)).collect::<Vec<_>>();
        assert_eq!(row(0), [1, 1, 1, 1, 0, 0, 0, 0]);
        assert_eq!(row(6), [1, 1, 1, 1, 1, 1, 1, 0]);
    }

    proptest! {
        #[test]
        fn nothing_panics_wherever_it_is_drawn(
            width in 1u32..40, height in 1u32..40,
            x in -1e4f32..1e4, y in -1e4f32..1e4, w in -100f32..1e4, h in -100f32..1e4,
            scale in 0f32..9.0,
        ) {
            let mut picture = RgbImage::new(width, height);
            rect(&mut picture, (x, y), (w, h), RED);
            ellipse(&mut picture, (x, y), (w, h), RED);
            line(&mut picture, (x, y), (w, h), scale, RED);
            text(&mut picture, (x / 100.0, y / 100.0), "Aä€", scale, RED);
        }
    }
}
