//! Repeatable noise: a hash of the place, smoothed into textures or left as grain.

use image::RgbImage;

/// Amplitude of the sensor's grain, in steps of 0 to 255. With the textures it brings a 640x480
/// picture to 40 to 90 KB at JPEG quality 85, as real street cameras' are.
const GRAIN: f32 = 6.0;

/// Noise of one scene.
#[derive(Debug, Clone, Copy)]
pub(super) struct Noise {
    seed: u32,
}

impl Noise {
    pub(super) fn new(seed: u32) -> Self {
        Self { seed }
    }

    /// White noise at a whole place, -1.0 to 1.0.
    pub(super) fn white(self, x: i32, y: i32) -> f32 {
        self.hash(x, y) as f32 * (2.0 / u32::MAX as f32) - 1.0
    }

    fn hash(self, x: i32, y: i32) -> u32 {
        // The finaliser of MurmurHash3, which spreads each input bit over all output bits.
        let mut hash = self
            .seed
            .wrapping_add((x as u32).wrapping_mul(0x9e37_79b1))
            .wrapping_add((y as u32).wrapping_mul(0x85eb_ca77));
        hash ^= hash >> 16;
        hash = hash.wrapping_mul(0x85eb_ca6b);
        hash ^= hash >> 13;
        hash = hash.wrapping_mul(0xc2b2_ae35);
        hash ^ (hash >> 16)
    }

    /// Noise that varies smoothly over about one unit, -1.0 to 1.0.
    pub(super) fn smooth(self, x: f32, y: f32) -> f32 {
        let (left, top) = (floor(x), floor(y));
        let ease = |t: f32| t * t * (3.0 - 2.0 * t);
        let (across, down) = (ease(x - left as f32), ease(y - top as f32));
        let mix = |a: f32, b: f32, t: f32| a + (b - a) * t;
        mix(
            mix(self.white(left, top), self.white(left + 1, top), across),
            mix(self.white(left, top + 1), self.white(left + 1, top + 1), across),
            down,
        )
    }

    /// Noise with structure at several scales, the coarsest about one unit, -1.0 to 1.0.
    pub(super) fn rough(self, x: f32, y: f32) -> f32 {
        let octave = |scale: f32| self.smooth(x * scale, y * scale) / scale;
        (octave(1.0) + octave(2.0) + octave(4.0) + octave(8.0)) / 1.875
    }
}

/// `x` rounded down. Without SSE 4.1, `f32::floor` is a function call, and it runs for every pixel.
fn floor(x: f32) -> i32 {
    x as i32 - i32::from(x < 0.0)
}

/// Adds the grain of a camera's sensor to the whole picture.
pub(super) fn grain(picture: &mut RgbImage, noise: Noise) {
    for (x, y, pixel) in picture.enumerate_pixels_mut() {
        // Mostly brightness, a little colour, as sensors have it: one byte of the hash each.
        let [luma, chroma @ ..] =
            noise.hash(x as i32, y as i32).to_le_bytes().map(|byte| f32::from(byte) / 127.5 - 1.0);
        for (chroma, value) in chroma.into_iter().zip(&mut pixel.0) {
            let shift = (luma * 0.75 + chroma * 0.25) * GRAIN;
            // The cast saturates; half a step more rounds.
            *value = (f32::from(*value) + shift + 0.5) as u8;
        }
    }
}
