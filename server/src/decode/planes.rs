//! Pictures as planes of luma and chroma, as a JPEG stores them: each plane with its own size.

use image::metadata::Orientation;

/// Where a plane's samples lie along one axis of the upright picture.
///
/// Sample `i` covers the picture's pixels from `i * step - lead` to `(i + 1) * step - lead`. A step of 2
/// is a plane of half the picture's length, whose samples are centred between two pixels (JFIF 1.02,
/// page 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Samples, at least 1.
    pub length: u32,
    /// Pixels per sample, at least 1.
    pub step: u32,
    /// Pixels by which the first sample begins before the picture: what rounding up the plane's size
    /// has added at its end is at its start once the picture is turned round.
    pub lead: u32,
}

impl Axis {
    /// One sample per pixel.
    #[must_use]
    pub fn plain(length: u32) -> Self {
        Self { length, step: 1, lead: 0 }
    }
}

/// One plane, tightly packed.
#[derive(Debug, Clone, Copy)]
pub struct Plane<'a> {
    samples: &'a [u8],
    /// Along a row.
    pub columns: Axis,
    /// Along a column.
    pub rows: Axis,
}

impl<'a> Plane<'a> {
    /// Row `y`, below `rows.length`.
    #[must_use]
    pub fn row(&self, y: usize) -> &'a [u8] {
        let width = self.columns.length as usize;
        &self.samples[y * width..][..width]
    }
}

/// A picture in luma and chroma, full range, BT.601 matrix (JFIF 1.02), or in luma alone.
#[derive(Debug, Clone, Copy)]
pub struct Planar<'a> {
    /// Brightness.
    pub luma: Plane<'a>,
    /// Blue and red difference, both laid out alike; `None` for a gray picture.
    pub chroma: Option<[Plane<'a>; 2]>,
}

/// Size of one stored plane and what a sample of it covers, in the order in which it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlaneSize {
    /// Samples per row and rows.
    pub(super) samples: (u32, u32),
    /// Pixels per sample, across and down.
    pub(super) step: (u32, u32),
}

impl PlaneSize {
    pub(super) fn area(self) -> usize {
        self.samples.0 as usize * self.samples.1 as usize
    }
}

/// Reused memory for the planes of one picture, and for the same planes turned upright.
#[derive(Debug, Default)]
pub(super) struct PlaneBuffers {
    pub(super) stored: [Vec<u8>; 3],
    turned: [Vec<u8>; 3],
}

impl PlaneBuffers {
    /// The first `sizes.len()` planes (1 or 3) as a picture that is `picture` pixels large as stored
    /// and is to be turned by `orientation`.
    pub(super) fn view(
        &mut self,
        sizes: &[PlaneSize],
        picture: (u32, u32),
        orientation: Orientation,
    ) -> Option<Planar<'_>> {
        let turn = Turn::new(orientation);
        let buffers = if orientation == Orientation::NoTransforms {
            &self.stored
        } else {
            for (index, size) in sizes.iter().enumerate() {
                turn.apply::<1>(&self.stored[index], size.samples, &mut self.turned[index]);
            }
            &self.turned
        };
        let plane = |index: usize| {
            let (columns, rows) = turn.axes(*sizes.get(index)?, picture);
            Some(Plane { samples: buffers.get(index)?, columns, rows })
        };
        let chroma = match sizes.len() {
            1 => None,
            _ => Some([plane(1)?, plane(2)?]),
        };
        Some(Planar { luma: plane(0)?, chroma })
    }
}

/// How stored pixels become upright ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    /// Stored rows become upright columns.
    swapped: bool,
    /// Upright x runs against the stored axis that it comes from.
    against_x: bool,
    /// Upright y does.
    against_y: bool,
}

impl Turn {
    /// The turn that an EXIF orientation asks for.
    pub(super) fn new(orientation: Orientation) -> Self {
        let (swapped, against_x, against_y) = match orientation {
            Orientation::NoTransforms => (false, false, false),
            Orientation::FlipHorizontal => (false, true, false),
            Orientation::Rotate180 => (false, true, true),
            Orientation::FlipVertical => (false, false, true),
            Orientation::Rotate90FlipH => (true, false, false),
            Orientation::Rotate90 => (true, true, false),
            Orientation::Rotate270FlipH => (true, true, true),
            Orientation::Rotate270 => (true, false, true),
        };
        Self { swapped, against_x, against_y }
    }

    /// Width and height once turned.
    pub(super) fn size(self, (width, height): (u32, u32)) -> (u32, u32) {
        if self.swapped { (height, width) } else { (width, height) }
    }

    /// Copies pixels of `BYTES` bytes, `stored` pixels wide and high, into `out`, turned.
    pub(super) fn apply<const BYTES: usize>(
        self,
        pixels: &[u8],
        stored: (u32, u32),
        out: &mut Vec<u8>,
    ) {
        let (width, height) = (stored.0 as usize, stored.1 as usize);
        let (pixels, _) = pixels.as_chunks::<BYTES>();
        // Along each stored axis: pixels from one to the next, and the first when run from its end.
        let (along_row, along_column) = ((1, width - 1), (width, (height - 1) * width));
        let (x_axis, y_axis) =
            if self.swapped { (along_column, along_row) } else { (along_row, along_column) };
        let place = |(step, last): (usize, usize), against: bool, i: usize| {
            if against { last - i * step } else { i * step }
        };
        let (out_width, out_height) = self.size(stored);
        out.clear();
        out.reserve(width * height * BYTES);
        for y in 0..out_height as usize {
            let row = place(y_axis, self.against_y, y);
            for x in 0..out_width as usize {
                out.extend_from_slice(&pixels[row + place(x_axis, self.against_x, x)]);
            }
        }
    }

    /// The upright axes of a plane of a picture that is `picture` pixels large as stored.
    fn axes(self, plane: PlaneSize, picture: (u32, u32)) -> (Axis, Axis) {
        let axis = |length: u32, step: u32, pixels: u32, against: bool| {
            let lead = if against { (length * step).saturating_sub(pixels) } else { 0 };
            Axis { length, step, lead }
        };
        let ((w, h), (sx, sy)) = (plane.samples, plane.step);
        if self.swapped {
            (axis(h, sy, picture.1, self.against_x), axis(w, sx, picture.0, self.against_y))
        } else {
            (axis(w, sx, picture.0, self.against_x), axis(h, sy, picture.1, self.against_y))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIENTATIONS: [Orientation; 8] = [
        Orientation::NoTransforms,
        Orientation::FlipHorizontal,
        Orientation::Rotate180,
        Orientation::FlipVertical,
        Orientation::Rotate90FlipH,
        Orientation::Rotate90,
        Orientation::Rotate270FlipH,
        Orientation::Rotate270,
    ];

    #[test]
    fn turns_are_those_of_the_image_crate() {
        let (width, height) = (5_u32, 3_u32);
        let rgb: Vec<u8> = (0..width * height * 3).map(|v| v as u8).collect();
        let gray: Vec<u8> = (0..width * height).map(|v| v as u8).collect();
        for orientation in ORIENTATIONS {
            let turn = Turn::new(orientation);
            let mut out = Vec::new();
            let image = image::RgbImage::from_raw(width, height, rgb.clone()).expect("size");
            let mut image = image::DynamicImage::from(image);
            image.apply_orientation(orientation);
            turn.apply::<3>(&rgb, (width, height), &mut out);
            assert_eq!(turn.size((width, height)), (image.width(), image.height()));
            assert_eq!(out, image.as_bytes(), "{orientation:?}");

            let image = image::GrayImage::from_raw(width, height, gray.clone()).expect("size");
            let mut image = image::DynamicImage::from(image);
            image.apply_orientation(orientation);
            turn.apply::<1>(&gray, (width, height), &mut out);
            assert_eq!(out, image.as_bytes(), "{orientation:?}");
        }
    }

    #[test]
    fn rounding_up_moves_to_the_side_that_the_end_is_turned_to() {
        // 7 x 5 pixels in samples of 2 x 2: 4 x 3 samples, 1 pixel too many on both axes.
        let plane = PlaneSize { samples: (4, 3), step: (2, 2) };
        let axis = |length, lead| Axis { length, step: 2, lead };
        for (orientation, columns, rows) in [
            (Orientation::NoTransforms, axis(4, 0), axis(3, 0)),
            (Orientation::FlipHorizontal, axis(4, 1), axis(3, 0)),
            (Orientation::Rotate180, axis(4, 1), axis(3, 1)),
            (Orientation::Rotate90, axis(3, 1), axis(4, 0)),
            (Orientation::Rotate270, axis(3, 0), axis(4, 1)),
        ] {
            assert_eq!(Turn::new(orientation).axes(plane, (7, 5)), (columns, rows));
        }
    }
}
