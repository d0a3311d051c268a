//! What must hold of any frame, whatever its bytes.

use std::hash::{DefaultHasher, Hasher};

use vedette_server::{
    decode::{DecodeError, Decoded, Decoder, FrameLimits, JpegDecode, Pixels, Plane},
    frame::Picture,
};

/// Small enough that no input takes long to decode, large enough for every path.
const LIMITS: FrameLimits = FrameLimits { max_bytes: 1 << 20, max_pixels: 1024 * 1024 };

/// Network input that JPEGs are scaled down to, in pixels.
const NEEDED: (u32, u32) = (96, 64);

/// A decoder that has seen every input before.
#[derive(Debug)]
pub struct Decoders([Decoder; 2]);

impl Default for Decoders {
    fn default() -> Self {
        Self([JpegDecode::Scaled, JpegDecode::Full].map(|how| Decoder::new(LIMITS, how)))
    }
}

impl Decoders {
    /// Decodes a picture whole and scaled, with a decoder that is used for the first time and one that
    /// was used before.
    ///
    /// # Panics
    /// When the two differ, when a picture beyond the limits is decoded, when its header promises another
    /// size, or when a refusal is not one line.
    pub fn check(&mut self, picture: &Picture) {
        let Self(used) = self;
        for (used, how) in used.iter_mut().zip([JpegDecode::Scaled, JpegDecode::Full]) {
            let mut fresh = Decoder::new(LIMITS, how);
            let expected = fresh.decode(picture, |_| NEEDED).map(|decoded| seen(&decoded));
            let found = used.decode(picture, |_| NEEDED).map(|decoded| seen(&decoded));
            assert_eq!(expected, found, "a decoder remembers earlier pictures");
            match found {
                Ok((size, _)) => {
                    assert_eq!(LIMITS.probe(picture), Ok(size), "the header says another size");
                }
                Err(error) => check_words(&error),
            }
        }
    }
}

/// Size of a picture, and a hash of every pixel that a network could be shown.
fn seen(decoded: &Decoded<'_>) -> ((u32, u32), u64) {
    let (width, height) = (decoded.width, decoded.height);
    assert!(u64::from(width) * u64::from(height) <= LIMITS.max_pixels, "{width}x{height}");
    let mut hasher = DefaultHasher::new();
    match decoded.pixels {
        Pixels::Rows(view) => {
            let mut buffer = Vec::new();
            for y in 0..height as usize {
                hasher.write(view.rgb_row(y, &mut buffer));
            }
        }
        Pixels::Planar(planar) => {
            let mut plane = |plane: Plane<'_>| {
                (0..plane.rows.length as usize).for_each(|y| hasher.write(plane.row(y)));
            };
            plane(planar.luma);
            planar.chroma.into_iter().flatten().for_each(plane);
        }
    }
    ((width, height), hasher.finish())
}

/// What a camera is told of a frame that is no picture: one line.
fn check_words(error: &DecodeError) {
    let words = error.to_string();
    assert!(!words.contains('\n'), "{words:?}");
}
