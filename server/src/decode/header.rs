//! What a frame's first bytes say, checked against the limits before anything is decoded.

use std::io::Cursor;

use image::{ImageDecoder, ImageFormat, ImageReader, metadata::Orientation};

use super::{
    DecodeError, Rows,
    error::image_error,
    jpeg_markers,
    planes::Turn,
    png,
    sniff::{Encoded, sniff},
    webp,
};
use crate::{
    frame::{Layout, Picture},
    limits::{DECODE_ALLOC_BYTES, DECODE_ALLOC_BYTES_PER_PIXEL},
};

/// Limits on one frame.
#[derive(Debug, Clone, Copy)]
pub struct FrameLimits {
    /// Largest frame in bytes.
    pub max_bytes: usize,
    /// Largest picture in pixels, width times height.
    pub max_pixels: u64,
}

impl FrameLimits {
    pub(super) fn check_pixels(self, width: u32, height: u32) -> Result<(), DecodeError> {
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

    pub(super) fn classify(self, picture: &Picture) -> Result<Kind, DecodeError> {
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

/// What kind of picture a frame is.
pub(super) enum Kind {
    Raw(Rows),
    Encoded(Encoded),
}

/// Opens a PNG, WebP or BMP up to its header and checks the limits.
pub(super) fn open(
    data: &[u8],
    format: ImageFormat,
    limits: FrameLimits,
) -> Result<impl ImageDecoder, DecodeError> {
    let mut pixels = limits.max_pixels;
    match format {
        ImageFormat::Png => {
            // Read first, the size bounds what the file's other parts, such as a compressed colour
            // profile, may make the decoder allocate.
            if let Some((width, height)) = png::size(data) {
                limits.check_pixels(width, height)?;
                pixels = u64::from(width) * u64::from(height);
            }
            png::check_palette(data)?;
        }
        ImageFormat::WebP => webp::check(data)?,
        _ => {}
    }
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
