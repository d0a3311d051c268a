//! Bytes to pixels: what kind of picture it is, whether its size is allowed, then its pixels.
//!
//! The order matters: the header is read and the limits are checked before anything is allocated for
//! pixels or decoded, so that a few hundred hostile bytes cost a few hundred bytes of work.

mod error;
mod header;
mod jpeg;
mod jpeg_markers;
mod planes;
mod png;
mod raw;
mod sniff;
mod webp;

use image::{DynamicImage, ImageDecoder, ImageFormat, metadata::Orientation};
use serde::{Deserialize, Serialize};

pub use error::DecodeError;
pub(crate) use error::one_line;
pub use header::FrameLimits;
pub use planes::{Axis, Planar, Plane};
pub use raw::{PixelView, Rows};

use error::image_error;
use header::{Kind, open};
use jpeg::Jpeg;
use jpeg_markers::JpegInfo;
use planes::{PlaneBuffers, Turn};
use sniff::Encoded;

use crate::frame::{Layout, Picture};

/// How much of a JPEG is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum JpegDecode {
    /// As many samples as the network needs: at half, a quarter or an eighth of the size where that is
    /// enough, luma and chroma apart, interpolated once.
    Scaled,
    /// Every pixel, as `djpeg` decodes it.
    Full,
}

/// A decoded picture, upright.
#[derive(Debug)]
pub struct Decoded<'a> {
    /// Pixels per row of the whole picture, however it was decoded.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// The pixels, possibly still in the camera's own layout.
    pub pixels: Pixels<'a>,
    /// The data was damaged but decodable; the damaged part may be gray or smeared.
    pub damaged: bool,
}

/// The pixels of a decoded picture.
#[derive(Debug, Clone, Copy)]
pub enum Pixels<'a> {
    /// All of them, in rows.
    Rows(PixelView<'a>),
    /// Luma and chroma apart, possibly at a fraction of the size.
    Planar(Planar<'a>),
}

/// The media type (RFC 6838) of a picture that any browser shows as it is; `None` for raw pixels, and for
/// JPEGs that rely on their decoder's Huffman tables.
#[must_use]
pub fn media_type(picture: &Picture) -> Option<&'static str> {
    if picture.layout != Layout::Encoded {
        return None;
    }
    match sniff::sniff(&picture.data).ok()? {
        Encoded::Jpeg => jpeg_markers::scan(&picture.data).ok()?.tables.then_some("image/jpeg"),
        Encoded::Other(format) => Some(format.to_mime_type()),
    }
}

/// Decodes frames, reusing its buffers. One per worker.
#[derive(Debug)]
pub struct Decoder {
    limits: FrameLimits,
    jpeg: JpegDecode,
    planes: PlaneBuffers,
    rgb: Vec<u8>,
    turned: Vec<u8>,
    cmyk: Vec<u8>,
    scratch: Vec<u8>,
}

/// A decoded JPEG, in the decoder's buffers.
struct DecodedJpeg {
    /// Planes, or else all pixels in `rgb`.
    planes: Option<jpeg::PlaneSizes>,
    size: (u32, u32),
    warning: jpeg::Warning,
}

impl Decoder {
    /// A decoder with these limits.
    #[must_use]
    pub fn new(limits: FrameLimits, jpeg: JpegDecode) -> Self {
        Self {
            limits,
            jpeg,
            planes: PlaneBuffers::default(),
            rgb: Vec::new(),
            turned: Vec::new(),
            cmyk: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Decodes a picture. The pixels borrow from the decoder's buffers or from the frame itself.
    ///
    /// `needed` is asked, given the upright picture's size, how many pixels in width and height are
    /// needed of it; what is decoded is at least as large, unless the picture itself is smaller.
    ///
    /// # Errors
    /// A frame that is not a complete picture of its declared layout within the limits.
    pub fn decode<'a>(
        &'a mut self,
        picture: &'a Picture,
        needed: impl FnOnce((u32, u32)) -> (u32, u32),
    ) -> Result<Decoded<'a>, DecodeError> {
        match self.limits.classify(picture)? {
            Kind::Raw(rows) => Ok(Decoded {
                width: rows.width,
                height: rows.height,
                pixels: Pixels::Rows(PixelView::new(rows, &picture.data)),
                damaged: false,
            }),
            Kind::Encoded(Encoded::Jpeg) => self.decode_jpeg(&picture.data, needed),
            Kind::Encoded(Encoded::Other(format)) => self.decode_other(&picture.data, format),
        }
    }

    fn decode_jpeg<'a>(
        &'a mut self,
        data: &[u8],
        needed: impl FnOnce((u32, u32)) -> (u32, u32),
    ) -> Result<Decoded<'a>, DecodeError> {
        let info = jpeg_markers::scan(data)?;
        self.limits.check_pixels(info.width, info.height)?;
        let turn = Turn::new(info.orientation);
        // Turning twice swaps the sides back.
        let needed = turn.size(needed(turn.size((info.width, info.height))));
        let DecodedJpeg { planes, size, warning } = if info.has_end_marker(data) {
            self.decompress(data, &info, needed)?
        } else {
            self.decompress_unfinished(data, &info, needed)?
        };
        let (width, height) = turn.size(size);
        let pixels = match planes {
            Some(planes) => self
                .planes
                .view(planes.as_slice(), size, info.orientation)
                .map(Pixels::Planar)
                .ok_or_else(|| DecodeError::Malformed("planes are missing".into()))?,
            None if info.orientation == Orientation::NoTransforms => {
                Pixels::Rows(PixelView::rgb(width, height, &self.rgb))
            }
            None => {
                turn.apply::<3>(&self.rgb, size, &mut self.turned);
                Pixels::Rows(PixelView::rgb(width, height, &self.turned))
            }
        };
        Ok(Decoded { width, height, pixels, damaged: warning.is_some() })
    }

    /// Decodes a JPEG into this decoder's buffers.
    fn decompress(
        &mut self,
        data: &[u8],
        info: &JpegInfo,
        needed: (u32, u32),
    ) -> Result<DecodedJpeg, DecodeError> {
        let jpeg = Jpeg::open(data, self.limits.max_pixels)?;
        let size = (jpeg.width, jpeg.height);
        let planes = match self.jpeg {
            JpegDecode::Scaled => jpeg.planes(jpeg::downscale(size, needed)),
            JpegDecode::Full => None,
        };
        let warning = if let Some(planes) = &planes {
            jpeg.decode_planes(planes, &mut self.planes.stored)?
        } else if info.components == 4 {
            let warning = jpeg.pixels(jpeg::Pixels::Cmyk, &mut self.cmyk)?;
            jpeg::cmyk_to_rgb(&self.cmyk, info.adobe, &mut self.rgb);
            warning
        } else {
            jpeg.pixels(jpeg::Pixels::Rgb, &mut self.rgb)?
        };
        Ok(DecodedJpeg { planes, size, warning })
    }

    /// Decodes a JPEG without an end marker: one whose last two bytes were lost decodes without
    /// complaint once they are back, one that was cut short does not.
    fn decompress_unfinished(
        &mut self,
        data: &[u8],
        info: &JpegInfo,
        needed: (u32, u32),
    ) -> Result<DecodedJpeg, DecodeError> {
        let mut whole = std::mem::take(&mut self.scratch);
        let end = jpeg_markers::without_trailing_zeros(data).len();
        let mut result = Err(DecodeError::Truncated(String::new()));
        // The zeros at the end pad a driver's buffer; but the first of them may be data.
        for end in end..=(end + 1).min(data.len()) {
            whole.clear();
            whole.extend_from_slice(&data[..end]);
            whole.extend_from_slice(&[0xFF, jpeg_markers::EOI]);
            result = match self.decompress(&whole, info, needed) {
                Ok(DecodedJpeg { warning: Some(warning), .. }) => Err(DecodeError::Truncated(
                    format!("the JPEG has no end marker and its data stops early ({warning})"),
                )),
                result => result,
            };
            if result.is_ok() {
                break;
            }
        }
        self.scratch = whole;
        result
    }

    fn decode_other<'a>(
        &'a mut self,
        data: &[u8],
        format: ImageFormat,
    ) -> Result<Decoded<'a>, DecodeError> {
        let mut decoder = open(data, format, self.limits)?;
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        let image = DynamicImage::from_decoder(decoder).map_err(|error| image_error(&error))?;
        Ok(self.keep(image, orientation))
    }

    /// Turns a picture upright and lends it out of the decoder's buffer.
    fn keep(&mut self, mut image: DynamicImage, turn: Orientation) -> Decoded<'_> {
        image.apply_orientation(turn);
        let rgb = image.into_rgb8();
        let (width, height) = rgb.dimensions();
        self.rgb = rgb.into_raw();
        let pixels = Pixels::Rows(PixelView::rgb(width, height, &self.rgb));
        Decoded { width, height, pixels, damaged: false }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use bytes::Bytes;

    use super::*;
    use crate::frame::{Layout, Outcome, RawFormat, RawSpec};

    const LIMITS: FrameLimits = FrameLimits { max_bytes: 1 << 20, max_pixels: 1 << 20 };

    fn encoded(data: &[u8]) -> Picture {
        Picture { data: Bytes::copy_from_slice(data), layout: Layout::Encoded }
    }

    fn reason(data: &[u8]) -> &'static str {
        let picture = encoded(data);
        let mut decoder = Decoder::new(LIMITS, JpegDecode::Scaled);
        let error = decoder.decode(&picture, |size| size).expect_err("must not decode");
        assert!(DecodeError::REASONS.contains(&error.reason()));
        let text = error.to_string();
        assert!(text.starts_with(&format!("{}: ", error.reason().to_uppercase())), "{text}");
        assert!(!text.contains('\n'));
        error.reason()
    }

    fn file(format: ImageFormat, width: u32, height: u32) -> Vec<u8> {
        let image = image::RgbImage::from_fn(width, height, |x, y| {
            image::Rgb([(x * 7) as u8, (y * 5) as u8, ((x + y) * 3) as u8])
        });
        let mut out = Cursor::new(Vec::new());
        image.write_to(&mut out, format).expect("encode");
        out.into_inner()
    }

    #[test]
    fn strangers_are_named() {
        assert_eq!(reason(b""), "empty");
        assert_eq!(reason(&vec![0; LIMITS.max_bytes + 1]), "too_large");
        assert_eq!(reason(b"x"), "unrecognised");
        assert_eq!(reason(b"<html><body>401</body></html>"), "unrecognised");
        assert_eq!(reason(b"GIF89a........"), "unsupported");
        assert_eq!(reason(&[0, 0, 0, 1, 0x67, 0x64]), "unsupported");
        assert_eq!(reason(&[0xFF, 0xD8]), "truncated");
        assert_eq!(reason(b"\x89PNG\r\n\x1a\n"), "truncated");
    }

    #[test]
    fn every_format_decodes_and_its_first_half_does_not() {
        for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp] {
            let data = file(format, 37, 23);
            let picture = encoded(&data);
            let mut worker = Decoder::new(LIMITS, JpegDecode::Scaled);
            assert_eq!(LIMITS.probe(&picture), Ok((37, 23)), "{format:?}");
            let decoded =
                worker.decode(&picture, |size| size).unwrap_or_else(|e| panic!("{format:?}: {e}"));
            assert_eq!((decoded.width, decoded.height, decoded.damaged), (37, 23, false));
            let cut = encoded(&data[..data.len() / 2]);
            assert!(worker.decode(&cut, |size| size).is_err(), "{format:?} cut in half");
        }
    }

    #[test]
    fn pixels_are_limited_before_decoding() {
        for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp] {
            let picture = encoded(&file(format, 40, 30));
            let limits = FrameLimits { max_pixels: 40 * 30 - 1, ..LIMITS };
            let mut decoder = Decoder::new(limits, JpegDecode::Scaled);
            let expected = DecodeError::TooManyPixels { width: 40, height: 30, limit: 1199 };
            assert_eq!(limits.probe(&picture), Err(expected), "{format:?}");
            assert_eq!(
                decoder.decode(&picture, |size| size).expect_err("limit").reason(),
                "too_many_pixels"
            );
        }
    }

    #[test]
    fn a_jpeg_without_its_end_marker_is_whole_but_one_cut_short_is_not() {
        let mut data = file(ImageFormat::Jpeg, 64, 48);
        assert_eq!(data.split_off(data.len() - 2), [0xFF, 0xD9]);
        let mut decoder = Decoder::new(LIMITS, JpegDecode::Scaled);
        assert!(decoder.decode(&encoded(&data), |size| size).is_ok());
        data.extend_from_slice(&[0; 1000]);
        assert!(
            decoder.decode(&encoded(&data), |size| size).is_ok(),
            "padding after a lost end marker"
        );
        data.truncate(data.len() - 1400);
        assert_eq!(reason(&data), "truncated");
    }

    #[test]
    fn unknown_pixel_formats_are_unsupported() {
        let picture = Picture { data: Bytes::from_static(b"abc"), layout: Layout::Unknown(42) };
        let mut decoder = Decoder::new(LIMITS, JpegDecode::Scaled);
        let error = decoder.decode(&picture, |size| size).expect_err("unknown");
        assert_eq!((error.reason(), error.outcome()), ("unsupported", Outcome::Unsupported));
    }

    #[test]
    fn raw_sizes_are_limited_too() {
        let spec =
            RawSpec { format: RawFormat::Gray8, width: u32::MAX, height: u32::MAX, stride: 0 };
        let picture = Picture { data: Bytes::from_static(b"abc"), layout: Layout::Raw(spec) };
        let mut decoder = Decoder::new(LIMITS, JpegDecode::Scaled);
        assert_eq!(
            decoder.decode(&picture, |size| size).expect_err("limit").reason(),
            "too_many_pixels"
        );
    }

    #[test]
    fn a_picture_that_was_never_finished_before_the_next_began_is_truncated() {
        let whole = file(ImageFormat::Jpeg, 64, 48);
        let mut two = whole[..whole.len() * 3 / 4].to_vec();
        two.extend_from_slice(&whole);
        assert_eq!(reason(&two), "truncated");
        let mut finished = whole.clone();
        finished.extend_from_slice(&whole);
        assert!(
            Decoder::new(LIMITS, JpegDecode::Scaled)
                .decode(&encoded(&finished), |size| size)
                .is_ok()
        );
    }

    #[test]
    fn a_lost_end_marker_after_any_last_byte() {
        // Entropy-coded data may end in a zero, which looks like padding.
        for level in 0..=255 {
            let mut out = Cursor::new(Vec::new());
            image::GrayImage::from_fn(16, 8, |x, _| image::Luma([if x < 8 { 128 } else { level }]))
                .write_to(&mut out, ImageFormat::Jpeg)
                .expect("encode");
            let mut data = out.into_inner();
            data.truncate(data.len() - 2);
            let result = Decoder::new(LIMITS, JpegDecode::Scaled)
                .decode(&encoded(&data), |size| size)
                .map(|d| d.damaged);
            assert_eq!(result, Ok(false), "level {level}, last byte {:?}", data.last());
        }
    }
}
