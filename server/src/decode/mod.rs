//! Bytes to pixels: what kind of picture it is, whether its size is allowed, then its pixels.
//!
//! The order matters: the header is read and the limits are checked before anything is allocated for
//! pixels or decoded, so that a few hundred hostile bytes cost a few hundred bytes of work.

mod jpeg;
mod jpeg_markers;
mod raw;

use std::io::Cursor;

use image::{
    DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, metadata::Orientation,
};

pub use raw::{PixelView, Rows};

use crate::{
    frame::{Layout, Outcome, Picture},
    limits::DECODE_ALLOC_BYTES_PER_PIXEL,
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
}

/// Encoded formats that are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoded {
    Jpeg,
    Other(ImageFormat),
}

/// A decoded picture, upright.
#[derive(Debug)]
pub struct Decoded<'a> {
    /// Pixels per row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// The pixels, possibly still in the camera's own layout.
    pub pixels: PixelView<'a>,
    /// The data was damaged but decodable; the damaged part may be gray or smeared.
    pub damaged: bool,
}

/// Decodes frames, reusing its buffers. One per worker.
#[derive(Debug)]
pub struct Decoder {
    limits: FrameLimits,
    jpeg: jpeg::Decompressor,
    rgb: Vec<u8>,
    scratch: Vec<u8>,
}

impl Decoder {
    /// A decoder with these limits.
    ///
    /// # Errors
    /// When libjpeg-turbo cannot allocate its state.
    pub fn new(limits: FrameLimits) -> Result<Self, DecodeError> {
        let jpeg = jpeg::Decompressor::new()?;
        Ok(Self { limits, jpeg, rgb: Vec::new(), scratch: Vec::new() })
    }

    /// Reads the header and checks the limits without decoding. Returns the picture's upright width
    /// and height in pixels.
    ///
    /// # Errors
    /// As [`decode`](Self::decode), as far as the header shows.
    pub fn probe(&self, picture: &Picture) -> Result<(u32, u32), DecodeError> {
        match self.classify(picture)? {
            Kind::Raw(rows) => Ok((rows.width, rows.height)),
            Kind::Encoded(Encoded::Jpeg) => {
                let info = jpeg_markers::scan(&picture.data)?;
                self.limits.check_pixels(info.width, info.height)?;
                Ok(upright(info.width, info.height, info.orientation))
            }
            Kind::Encoded(Encoded::Other(format)) => {
                let mut decoder = open(&picture.data, format, self.limits)?;
                let (width, height) = decoder.dimensions();
                let turn = decoder.orientation().unwrap_or(Orientation::NoTransforms);
                Ok(upright(width, height, turn))
            }
        }
    }

    /// Decodes a picture. The pixels borrow from the decoder's buffers or from the frame itself.
    ///
    /// # Errors
    /// A frame that is not a complete picture of its declared layout within the limits.
    pub fn decode<'a>(&'a mut self, picture: &'a Picture) -> Result<Decoded<'a>, DecodeError> {
        match self.classify(picture)? {
            Kind::Raw(rows) => Ok(Decoded {
                width: rows.width,
                height: rows.height,
                pixels: PixelView::new(rows, &picture.data),
                damaged: false,
            }),
            Kind::Encoded(Encoded::Jpeg) => self.decode_jpeg(&picture.data),
            Kind::Encoded(Encoded::Other(format)) => self.decode_other(&picture.data, format),
        }
    }

    fn classify(&self, picture: &Picture) -> Result<Kind, DecodeError> {
        let bytes = picture.data.len();
        if bytes == 0 {
            return Err(DecodeError::Empty);
        }
        if bytes > self.limits.max_bytes {
            return Err(DecodeError::TooLarge { bytes, limit: self.limits.max_bytes });
        }
        match picture.layout {
            Layout::Encoded => sniff(&picture.data).map(Kind::Encoded),
            Layout::Raw(spec) => {
                self.limits.check_pixels(spec.width, spec.height)?;
                Rows::check(spec, bytes).map(Kind::Raw)
            }
            Layout::Unknown(number) => Err(DecodeError::Unsupported(format!(
                "PixelFormat {number} is not known to this server"
            ))),
        }
    }

    fn decode_jpeg<'a>(&'a mut self, data: &[u8]) -> Result<Decoded<'a>, DecodeError> {
        let info = jpeg_markers::scan(data)?;
        self.limits.check_pixels(info.width, info.height)?;
        if info.components == 4 {
            // CMYK and YCCK: `image` knows Adobe's inverted inks, and no camera is in a hurry here.
            return self.decode_other(data, ImageFormat::Jpeg);
        }
        let complete = info.has_end_marker(data);
        let data = if complete {
            data
        } else {
            // A picture whose last two bytes were lost decodes without complaint once they are back;
            // one that was cut short does not.
            self.scratch.clear();
            self.scratch.extend_from_slice(jpeg_markers::without_trailing_zeros(data));
            self.scratch.extend_from_slice(&[0xFF, jpeg_markers::EOI]);
            &self.scratch
        };
        let (width, height, warning) =
            self.jpeg.decompress_rgb(data, self.limits.max_pixels, &mut self.rgb)?;
        if let (false, Some(warning)) = (complete, &warning) {
            return Err(DecodeError::Truncated(format!(
                "the JPEG has no end marker and its data stops early ({warning})"
            )));
        }
        let damaged = warning.is_some();
        if info.orientation == Orientation::NoTransforms {
            return Ok(Decoded {
                width,
                height,
                pixels: PixelView::rgb(width, height, &self.rgb),
                damaged,
            });
        }
        let upright = image::RgbImage::from_raw(width, height, std::mem::take(&mut self.rgb))
            .ok_or_else(|| DecodeError::Malformed("size and pixels disagree".into()))?;
        Ok(self.keep(upright.into(), info.orientation, damaged))
    }

    fn decode_other<'a>(
        &'a mut self,
        data: &[u8],
        format: ImageFormat,
    ) -> Result<Decoded<'a>, DecodeError> {
        let mut decoder = open(data, format, self.limits)?;
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        let image = DynamicImage::from_decoder(decoder).map_err(|error| image_error(&error))?;
        Ok(self.keep(image, orientation, false))
    }

    /// Turns a picture upright and lends it out of the decoder's buffer.
    fn keep(&mut self, mut image: DynamicImage, turn: Orientation, damaged: bool) -> Decoded<'_> {
        image.apply_orientation(turn);
        let rgb = image.into_rgb8();
        let (width, height) = rgb.dimensions();
        self.rgb = rgb.into_raw();
        Decoded { width, height, pixels: PixelView::rgb(width, height, &self.rgb), damaged }
    }
}

enum Kind {
    Raw(Rows),
    Encoded(Encoded),
}

/// Width and height once a picture has been turned upright.
fn upright(width: u32, height: u32, turn: Orientation) -> (u32, u32) {
    match turn {
        Orientation::Rotate90
        | Orientation::Rotate270
        | Orientation::Rotate90FlipH
        | Orientation::Rotate270FlipH => (height, width),
        _ => (width, height),
    }
}

/// Opens a PNG, WebP or BMP (or a CMYK JPEG) up to its header and checks the limits.
fn open(
    data: &[u8],
    format: ImageFormat,
    limits: FrameLimits,
) -> Result<impl ImageDecoder, DecodeError> {
    let mut reader = ImageReader::with_format(Cursor::new(data), format);
    let mut bounds = image::Limits::no_limits();
    bounds.max_alloc = Some(limits.max_pixels.saturating_mul(DECODE_ALLOC_BYTES_PER_PIXEL));
    reader.limits(bounds.clone());
    let mut decoder = reader.into_decoder().map_err(|error| image_error(&error))?;
    let (width, height) = decoder.dimensions();
    limits.check_pixels(width, height)?;
    // `into_decoder` leaves the allocation limit off for some formats.
    decoder.set_limits(bounds).map_err(|error| image_error(&error))?;
    Ok(decoder)
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

/// Tells the format by the first bytes.
fn sniff(data: &[u8]) -> Result<Encoded, DecodeError> {
    if data.starts_with(&[0xFF, 0xD8]) {
        return Ok(Encoded::Jpeg);
    }
    if data.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Ok(Encoded::Other(ImageFormat::Png));
    }
    if data.starts_with(b"RIFF") && data.get(8..12) == Some(b"WEBP") {
        return Ok(Encoded::Other(ImageFormat::WebP));
    }
    if data.starts_with(b"BM") && data.len() >= 26 {
        return Ok(Encoded::Other(ImageFormat::Bmp));
    }
    Err(name_stranger(data))
}

/// Names what cameras and their gateways send by mistake, so that the cause is in the answer.
fn name_stranger(data: &[u8]) -> DecodeError {
    let known = [
        (&b"GIF8"[..], "a GIF"),
        (&b"II*\0"[..], "a TIFF"),
        (&b"MM\0*"[..], "a TIFF"),
        (&b"\0\0\0\x01"[..], "an H.264 or H.265 byte stream"),
        (&b"\0\0\x01"[..], "an H.264, H.265 or MPEG byte stream"),
    ];
    let name =
        known.iter().find(|(magic, _)| data.starts_with(magic)).map(|(_, name)| *name).or_else(
            || (data.get(4..8) == Some(b"ftyp")).then_some("an ISO media file (MP4, HEIF, AVIF)"),
        );
    if let Some(name) = name {
        return DecodeError::Unsupported(format!(
            "{name}; send JPEG, PNG, WebP, BMP or raw pixels"
        ));
    }
    let text = data.trim_ascii_start();
    if text.starts_with(b"<") || text.starts_with(b"HTTP/") || text.starts_with(b"{") {
        return DecodeError::Unrecognised(
            "text, not a picture; the camera may have answered with an error page".into(),
        );
    }
    let head: Vec<_> = data.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    DecodeError::Unrecognised(format!(
        "neither JPEG, PNG, WebP nor BMP; {} bytes that begin with {}",
        data.len(),
        head.join(" ")
    ))
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
        let mut decoder = Decoder::new(LIMITS).expect("decoder");
        let error = decoder.decode(&picture).expect_err("must not decode");
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
            let mut worker = Decoder::new(LIMITS).expect("decoder");
            assert_eq!(worker.probe(&picture), Ok((37, 23)), "{format:?}");
            let decoded = worker.decode(&picture).unwrap_or_else(|e| panic!("{format:?}: {e}"));
            assert_eq!((decoded.width, decoded.height, decoded.damaged), (37, 23, false));
            let cut = encoded(&data[..data.len() / 2]);
            assert!(worker.decode(&cut).is_err(), "{format:?} cut in half");
        }
    }

    #[test]
    fn pixels_are_limited_before_decoding() {
        for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp] {
            let picture = encoded(&file(format, 40, 30));
            let limits = FrameLimits { max_pixels: 40 * 30 - 1, ..LIMITS };
            let mut decoder = Decoder::new(limits).expect("decoder");
            let expected = DecodeError::TooManyPixels { width: 40, height: 30, limit: 1199 };
            assert_eq!(decoder.probe(&picture), Err(expected), "{format:?}");
            assert_eq!(decoder.decode(&picture).expect_err("limit").reason(), "too_many_pixels");
        }
    }

    #[test]
    fn a_jpeg_without_its_end_marker_is_whole_but_one_cut_short_is_not() {
        let mut data = file(ImageFormat::Jpeg, 64, 48);
        assert_eq!(data.split_off(data.len() - 2), [0xFF, 0xD9]);
        let mut decoder = Decoder::new(LIMITS).expect("decoder");
        assert!(decoder.decode(&encoded(&data)).is_ok());
        data.extend_from_slice(&[0; 1000]);
        assert!(decoder.decode(&encoded(&data)).is_ok(), "padding after a lost end marker");
        data.truncate(data.len() - 1400);
        assert_eq!(reason(&data), "truncated");
    }

    #[test]
    fn unknown_pixel_formats_are_unsupported() {
        let picture = Picture { data: Bytes::from_static(b"abc"), layout: Layout::Unknown(42) };
        let mut decoder = Decoder::new(LIMITS).expect("decoder");
        let error = decoder.decode(&picture).expect_err("unknown");
        assert_eq!((error.reason(), error.outcome()), ("unsupported", Outcome::Unsupported));
    }

    #[test]
    fn raw_sizes_are_limited_too() {
        let spec =
            RawSpec { format: RawFormat::Gray8, width: u32::MAX, height: u32::MAX, stride: 0 };
        let picture = Picture { data: Bytes::from_static(b"abc"), layout: Layout::Raw(spec) };
        let mut decoder = Decoder::new(LIMITS).expect("decoder");
        assert_eq!(decoder.decode(&picture).expect_err("limit").reason(), "too_many_pixels");
    }
}
