//! Raw frames: checking that the bytes are what the declared geometry needs, and reading rows.

use super::DecodeError;
use crate::{
    frame::{RawFormat, RawSpec},
    limits::RAW_PADDING_BYTES,
};

/// Checked geometry of a raw frame: every row lies inside the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Layout of the planes.
    pub format: RawFormat,
    /// Pixels per row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bytes from one row of the first plane to the next.
    stride: usize,
    /// Bytes from one row of a chroma plane to the next (NV12, I420).
    chroma_stride: usize,
    /// Offsets of the second and third plane.
    planes: [usize; 2],
}

impl Rows {
    /// Checks a declared geometry against the number of bytes that came.
    ///
    /// # Errors
    /// When a size is 0, the stride is shorter than a row, the bytes are too few, or so many that the
    /// declared size cannot be the frame's.
    pub fn check(spec: RawSpec, bytes: usize) -> Result<Self, DecodeError> {
        let RawSpec { format, width, height, .. } = spec;
        if width == 0 || height == 0 {
            return Err(DecodeError::RawGeometry(format!(
                "a raw frame needs width and height, got {width}x{height}"
            )));
        }
        let (w, h) = (width as usize, height as usize);
        let even_width = w + w % 2;
        let row_bytes = match format {
            RawFormat::Rgb24 | RawFormat::Bgr24 => w * 3,
            RawFormat::Gray8 | RawFormat::I420 => w,
            RawFormat::Nv12 => even_width,
            RawFormat::Yuyv => even_width * 2,
        };
        let stride = if spec.stride == 0 { row_bytes } else { spec.stride as usize };
        if stride < row_bytes {
            return Err(DecodeError::RawGeometry(format!(
                "stride {stride} is shorter than a row of {row_bytes} bytes"
            )));
        }
        // No overflow: max-pixels is at most 2^30 and bounds the height, stride is at most 2^32.
        let luma = stride * h;
        let chroma_rows = h.div_ceil(2);
        let (chroma_stride, planes, needed) = match format {
            RawFormat::Nv12 => {
                // The last row needs no padding behind it.
                (stride, [luma, 0], luma + stride * (chroma_rows - 1) + even_width)
            }
            RawFormat::I420 => {
                let chroma_stride = stride.div_ceil(2);
                let plane = chroma_stride * chroma_rows;
                let last = chroma_stride * (chroma_rows - 1) + w.div_ceil(2);
                (chroma_stride, [luma, luma + plane], luma + plane + last)
            }
            _ => (0, [0, 0], stride * (h - 1) + row_bytes),
        };
        let padded = match format {
            RawFormat::Nv12 => luma + stride * chroma_rows,
            RawFormat::I420 => luma + 2 * chroma_stride * chroma_rows,
            _ => luma,
        };
        if bytes < needed || bytes > padded + RAW_PADDING_BYTES {
            let much = if bytes < needed { "few" } else { "many" };
            return Err(DecodeError::RawGeometry(format!(
                "too {much} bytes: {format} {width}x{height} with stride {stride} takes {padded}, \
                 got {bytes}"
            )));
        }
        Ok(Self { format, width, height, stride, chroma_stride, planes })
    }
}

/// Pixels of one picture, in the layout in which they came. Rows are converted as they are read.
#[derive(Debug, Clone, Copy)]
pub struct PixelView<'a> {
    rows: Rows,
    data: &'a [u8],
}

impl<'a> PixelView<'a> {
    /// Raw pixels with a geometry checked against `data`.
    #[must_use]
    pub fn new(rows: Rows, data: &'a [u8]) -> Self {
        Self { rows, data }
    }

    /// Tightly packed RGB of `width * height * 3` bytes.
    #[must_use]
    pub fn rgb(width: u32, height: u32, data: &'a [u8]) -> Self {
        let stride = width as usize * 3;
        debug_assert_eq!(data.len(), stride * height as usize);
        let rows = Rows {
            format: RawFormat::Rgb24,
            width,
            height,
            stride,
            chroma_stride: 0,
            planes: [0, 0],
        };
        Self { rows, data }
    }

    /// Row `y` as packed RGB, `3 * width` bytes: borrowed if the picture is RGB, else converted into
    /// `buffer`.
    #[must_use]
    pub fn rgb_row<'b>(&self, y: usize, buffer: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        let width = self.rows.width as usize;
        let row = &self.data[y * self.rows.stride..];
        if self.rows.format == RawFormat::Rgb24 {
            return &row[..width * 3];
        }
        buffer.resize(width * 3, 0);
        let out = buffer.as_mut_slice();
        match self.rows.format {
            RawFormat::Rgb24 => {}
            RawFormat::Bgr24 => {
                for (rgb, bgr) in out.chunks_exact_mut(3).zip(row.chunks_exact(3)) {
                    rgb.copy_from_slice(&[bgr[2], bgr[1], bgr[0]]);
                }
            }
            RawFormat::Gray8 => {
                for (rgb, &gray) in out.chunks_exact_mut(3).zip(row) {
                    rgb.fill(gray);
                }
            }
            RawFormat::Nv12 => {
                let uv = &self.data[self.rows.planes[0] + (y / 2) * self.rows.chroma_stride..];
                for (x, rgb) in out.chunks_exact_mut(3).enumerate() {
                    let pair = x / 2 * 2;
                    rgb.copy_from_slice(&yuv_to_rgb(row[x], uv[pair], uv[pair + 1]));
                }
            }
            RawFormat::I420 => {
                let start = (y / 2) * self.rows.chroma_stride;
                let u = &self.data[self.rows.planes[0] + start..];
                let v = &self.data[self.rows.planes[1] + start..];
                for (x, rgb) in out.chunks_exact_mut(3).enumerate() {
                    rgb.copy_from_slice(&yuv_to_rgb(row[x], u[x / 2], v[x / 2]));
                }
            }
            RawFormat::Yuyv => {
                for (x, rgb) in out.chunks_exact_mut(3).enumerate() {
                    let quad = &row[x / 2 * 4..];
                    rgb.copy_from_slice(&yuv_to_rgb(row[x * 2], quad[1], quad[3]));
                }
            }
        }
        buffer
    }
}

/// BT.601 limited range (Y 16..=235, U and V 16..=240) to full-range RGB (ITU-R BT.601-7, section
/// 2.5), in 16.16 fixed point.
fn yuv_to_rgb(y: u8, u: u8, v: u8) -> [u8; 3] {
    const Y: i32 = 76_309; // 255 / 219
    const RV: i32 = 104_597; // 1.402 * 255 / 224
    const GU: i32 = 25_675; // 0.344136 * 255 / 224
    const GV: i32 = 53_279; // 0.714136 * 255 / 224
    const BU: i32 = 132_201; // 1.772 * 255 / 224
    const HALF: i32 = 1 << 15;
    let luma = (i32::from(y) - 16) * Y + HALF;
    let (u, v) = (i32::from(u) - 128, i32::from(v) - 128);
    [luma + RV * v, luma - GU * u - GV * v, luma + BU * u].map(|c| (c >> 16).clamp(0, 255) as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn even(n: u32) -> usize {
        (n + n % 2) as usize
    }

    /// Bytes of a row and of the whole frame, written down independently of `Rows::check`.
    fn expected(format: RawFormat, width: u32, height: u32, pad: usize) -> (usize, usize) {
        let (w, h) = (width as usize, height as usize);
        match format {
            RawFormat::Rgb24 | RawFormat::Bgr24 => (w * 3 + pad, (w * 3 + pad) * h),
            RawFormat::Gray8 => (w + pad, (w + pad) * h),
            RawFormat::Nv12 => {
                let s = even(width) + pad;
                (s, s * h + s * (even(height) / 2))
            }
            RawFormat::I420 => {
                let s = w + pad;
                (s, s * h + 2 * s.div_ceil(2) * (even(height) / 2))
            }
            RawFormat::Yuyv => {
                let s = even(width) * 2 + pad;
                (s, s * h)
            }
        }
    }

    /// Writes one pixel of a frame whose chroma is constant, so that each format has one right answer.
    fn paint(format: RawFormat, width: u32, height: u32, stride: usize, total: usize) -> Vec<u8> {
        let (w, h) = (width as usize, height as usize);
        let mut data = vec![0xEE; total];
        let luma = |x: usize, y: usize| (16 + (x * 3 + y * 7) % 200) as u8;
        for y in 0..h {
            for x in 0..w {
                match format {
                    RawFormat::Rgb24 | RawFormat::Bgr24 => {
                        data[y * stride + x * 3..][..3].fill(luma(x, y));
                    }
                    RawFormat::Gray8 | RawFormat::Nv12 | RawFormat::I420 => {
                        data[y * stride + x] = luma(x, y);
                    }
                    RawFormat::Yuyv => data[y * stride + x * 2] = luma(x, y),
                }
            }
        }
        match format {
            RawFormat::Nv12 | RawFormat::I420 => data[stride * h..].fill(128),
            RawFormat::Yuyv => {
                for y in 0..h {
                    for x in 0..even(width) {
                        data[y * stride + x * 2 + 1] = 128;
                    }
                }
            }
            _ => {}
        }
        data
    }

    proptest! {
        /// Odd sizes and padded rows: every pixel is found where it was put, whatever lies between.
        #[test]
        fn rows_are_read_where_they_are(
            format in proptest::sample::select(RawFormat::ALL.to_vec()),
            width in 1..40_u32,
            height in 1..20_u32,
            pad in 0..9_usize,
        ) {
            let (stride, total) = expected(format, width, height, pad);
            let spec = RawSpec { format, width, height, stride: stride as u32 };
            let rows = Rows::check(spec, total).expect("exact size");
            let data = paint(format, width, height, stride, total);
            let view = PixelView::new(rows, &data);
            let mut buffer = Vec::new();
            for y in 0..height as usize {
                let row = view.rgb_row(y, &mut buffer).to_vec();
                prop_assert_eq!(row.len(), width as usize * 3);
                for x in 0..width as usize {
                    let level = 16 + (x * 3 + y * 7) % 200;
                    let want = match format {
                        RawFormat::Rgb24 | RawFormat::Bgr24 | RawFormat::Gray8 => level as f64,
                        _ => ((level as f64 - 16.0) * 255.0 / 219.0).min(255.0),
                    };
                    for &got in &row[x * 3..x * 3 + 3] {
                        prop_assert!((f64::from(got) - want).abs() <= 0.51, "{got} for {want}");
                    }
                }
            }
        }

        #[test]
        fn sizes_are_checked_to_the_byte(
            format in proptest::sample::select(RawFormat::ALL.to_vec()),
            width in 1..64_u32,
            height in 1..64_u32,
            pad in 0..9_usize,
        ) {
            let (stride, total) = expected(format, width, height, pad);
            let spec = RawSpec { format, width, height, stride: stride as u32 };
            // What may be missing is the padding behind the last row, and no more.
            let spare = match format {
                RawFormat::I420 => stride.div_ceil(2) - (width as usize).div_ceil(2),
                _ => pad,
            };
            prop_assert!(Rows::check(spec, total - spare).is_ok());
            prop_assert!(Rows::check(spec, total - spare - 1).is_err());
            prop_assert!(Rows::check(spec, total + RAW_PADDING_BYTES).is_ok());
            prop_assert!(Rows::check(spec, total + RAW_PADDING_BYTES + 1).is_err());
            // The smallest legal buffer can be read to its last pixel.
            let data = vec![0; total - spare];
            let rows = Rows::check(spec, data.len()).expect("smallest");
            for y in 0..height as usize {
                let _ = PixelView::new(rows, &data).rgb_row(y, &mut Vec::new());
            }
        }

        #[test]
        fn declared_sizes_never_panic(
            format in proptest::sample::select(RawFormat::ALL.to_vec()),
            width in any::<u16>(),
            height in any::<u16>(),
            stride in any::<u32>(),
            bytes in 0..100_usize,
        ) {
            let spec = RawSpec { format, width: width.into(), height: height.into(), stride };
            let _ = Rows::check(spec, bytes);
        }
    }

    #[test]
    fn primary_colours_in_bt601() {
        // Y, U, V of pure colours at limited range, from the matrix of BT.601.
        for (yuv, rgb) in [
            ([81, 90, 240], [255, 0, 0]),
            ([145, 54, 34], [0, 255, 0]),
            ([41, 240, 110], [0, 0, 255]),
            ([235, 128, 128], [255, 255, 255]),
            ([16, 128, 128], [0, 0, 0]),
        ] {
            let got = yuv_to_rgb(yuv[0], yuv[1], yuv[2]);
            assert!(got.iter().zip(rgb).all(|(g, w)| g.abs_diff(w) <= 2), "{got:?} for {rgb:?}");
        }
    }

    #[test]
    fn tight_strides_are_the_default() {
        let spec = RawSpec { format: RawFormat::Nv12, width: 639, height: 359, stride: 0 };
        assert!(Rows::check(spec, 640 * 359 + 640 * 180).is_ok());
        let error = Rows::check(RawSpec { stride: 639, ..spec }, 1 << 20).expect_err("odd stride");
        assert!(error.to_string().contains("shorter than a row of 640"), "{error}");
    }
}
