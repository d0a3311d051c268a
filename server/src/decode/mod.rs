//! Bytes to pixels: what kind of picture it is, whether its size is allowed, then its pixels.
//!
//! The order matters: the header is read and the limits are checked before anything is allocated for
//! pixels or decoded, so that a few hundred hostile bytes cost a few hundred bytes of work.

mod jpeg;
mod jpeg_markers;
mod planes;
mod raw;
mod sniff;

use std::io::Cursor;

use image::{
    DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, metadata::Orientation,
};

pub use planes::{Axis, Planar, Plane};
pub use raw::{PixelView, Rows};

use jpeg::Jpeg;
use jpeg_markers::JpegInfo;
use planes::{PlaneBuffers, Turn};
use serde::{Deserialize, Serialize};
use sniff::{Encoded, sniff};

use crate::{
    frame::{Layout, Outcome, Picture},
    limits::{DECODE_ALLOC_BYTES, DECODE_ALLOC_BYTES_PER_PIXEL},
};

/// Why a frame is not a picture. The display text is one line for people and begins with
/// [`reason`](Self::reason) in upper case.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum DecodeError {
    #[error("EMPTY: the frame has no bytes")]
    Empty,
    #[error("TOO_LARGE: the frame has {bytes} bytes, max-frame-bytes is {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("TOO_MANY_PIXELS: {width}x{height} is {} pixels, max-pixels is {limit}",
        u64::from(*.width) * u64::from(*.height))]
    TooManyPixels { width: u32, height: u32, limit: u64 },
    #[error("TRUNCATED: {0}")]
    Truncated(String),
    #[error("MALFORMED: {0}")]
    Malformed(String),
    #[error("UNRECOGNISED: {0}")]
    Unrecognised(String),
    #[error("RAW_GEOMETRY: {0}")]
    RawGeometry(String),
    #[error("UNSUPPORTED: {0}")]
    Unsupported(String),
}

impl DecodeError {
    /// Stable name of the kind, the metric's label value.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::TooLarge { .. } => "too_large",
            Self::TooManyPixels { .. } => "too_many_pixels",
            Self::Truncated(_) => "truncated",
            Self::Malformed(_) => "malformed",
            Self::Unrecognised(_) => "unrecognised",
            Self::RawGeometry(_) => "raw_geometry",
            Self::Unsupported(_) => "unsupported",
        }
    }

    /// Every reason, for registering the metric's series at start.
    pub const REASONS: [&'static str; 8] = [
        "empty",
        "too_large",
        "too_many_pixels",
        "truncated",
        "malformed",
        "unrecognised",
        "raw_geometry",
        "unsupported",
    ];

    /// The outcome that a frame with this error ends in.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Unsupported(_) => Outcome::Unsupported,
            _ => Outcome::BadImage,
        }
    }
}

/// Limits on one frame.
#[derive(Debug, Clone, Copy)]
pub struct FrameLimits {
    /// Largest frame in bytes.
    pub max_bytes: usize,
    /// Largest picture in pixels, width times height.
    pub max_pixels: u64,
}

impl FrameLimits {
    fn check_pixels(self, width: u32, height: u32) -> Result<(), DecodeError> {
        if u64::from(width) * u64::from(height) > self.max_pixels {
            return Err(DecodeError::TooManyPixels { width, height, limit: self.max_pixels });
        }
        Ok(())
    }

    /// What can be told of a frame at no cost: whether its length, its first bytes and its declared
    /// geometry are those of a picture.
    ///
    /// # Errors
    /// As [`Decoder::decode`], as far as that shows.
    pub fn check(self, picture: &Picture) -> Result<(), DecodeError> {
        self.classify(picture).map(|_| ())
    }

    /// Reads the header and checks the limits without decoding. Returns the picture's upright width
    /// and height in pixels.
    ///
    /// # Errors
    /// As [`Decoder::decode`], as far as the header shows.
    pub fn probe(self, picture: &Picture) -> Result<(u32, u32), DecodeError> {
        match self.classify(picture)? {
            Kind::Raw(rows) => Ok((rows.width, rows.height)),
            Kind::Encoded(Encoded::Jpeg) => {
                let info = jpeg_markers::scan(&picture.data)?;
                self.check_pixels(info.width, info.height)?;
                Ok(Turn::new(info.orientation).size((info.width, info.height)))
            }
            Kind::Encoded(Encoded::Other(format)) => {
                let mut decoder = open(&picture.data, format, self)?;
                let (width, height) = decoder.dimensions();
                let turn = decoder.orientation().unwrap_or(Orientation::NoTransforms);
                Ok(Turn::new(turn).size((width, height)))
            }
        }
    }

    fn classify(self, picture: &Picture) -> Result<Kind, DecodeError> {
        let bytes = picture.data.len();
        if bytes == 0 {
            return Err(DecodeError::Empty);
        }
        if bytes > self.max_bytes {
            return Err(DecodeError::TooLarge { bytes, limit: self.max_bytes });
        }
        match picture.layout {
            Layout::Encoded => sniff(&picture.data).map(Kind::Encoded),
            Layout::Raw(spec) => {
                self.check_pixels(spec.width, spec.height)?;
                Rows::check(spec, bytes).map(Kind::Raw)
            }
            Layout::Unknown(number) => Err(DecodeError::Unsupported(format!(
                "PixelFormat {number} is not known to this server"
            ))),
        }
    }
}

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

enum Kind {
    Raw(Rows),
    Encoded(Encoded),
}

/// Opens a PNG, WebP or BMP up to its header and checks the limits.
fn open(
    data: &[u8],
    format: ImageFormat,
    limits: FrameLimits,
) -> Result<impl ImageDecoder, DecodeError> {
    // A PNG's size stands at a fixed place. Read first, it bounds what the file's other parts, such as
    // a compressed colour profile, may make the decoder allocate.
    let pixels = match png_size(data, format) {
        Some((width, height)) => {
            limits.check_pixels(width, height)?;
            u64::from(width) * u64::from(height)
        }
        None => limits.max_pixels,
    };
    let mut bounds = image::Limits::no_limits();
    let bytes = pixels.saturating_mul(DECODE_ALLOC_BYTES_PER_PIXEL);
    bounds.max_alloc = Some(bytes.saturating_add(DECODE_ALLOC_BYTES));
    let mut reader = ImageReader::with_format(Cursor::new(data), format);
    reader.limits(bounds.clone());
    let mut decoder = reader.into_decoder().map_err(|error| image_error(&error))?;
    let (width, height) = decoder.dimensions();
    limits.check_pixels(width, height)?;
    // `into_decoder` leaves the allocation limit off for some formats.
    decoder.set_limits(bounds).map_err(|error| image_error(&error))?;
    Ok(decoder)
}

/// Width and height out of a PNG's first chunk (PNG specification, 11.2.1).
fn png_size(data: &[u8], format: ImageFormat) -> Option<(u32, u32)> {
    if format != ImageFormat::Png || data.get(12..16) != Some(b"IHDR") {
        return None;
    }
    let number = |at: usize| Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?));
    Some((number(16)?, number(20)?))
}

fn image_error(error: &ImageError) -> DecodeError {
    let text = one_line(&error.to_string());
    match error {
        ImageError::IoError(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => {
            DecodeError::Truncated(text)
        }
        ImageError::Unsupported(_) => DecodeError::Unsupported(text),
        _ => DecodeError::Malformed(text),
    }
}

/// Folds a library's message into one line.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::frame::{RawFormat, RawSpec};

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
