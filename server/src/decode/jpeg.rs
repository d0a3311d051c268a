//! libjpeg-turbo through its TurboJPEG API (version 3.1).
//!
//! The library's C functions are called directly, not through a safe crate, for one reason: whether
//! a complaint was a warning (the picture is there, part of it may be damaged) or an error decides
//! what the client is told.

use std::{ffi::CStr, os::raw::c_int, ptr::NonNull};

use turbojpeg_sys as tj;

use super::{DecodeError, one_line};
use crate::limits::JPEG_MAX_SCANS;

/// Bytes per pixel of the output.
const RGB_BYTES: usize = 3;

/// A TurboJPEG decompressor instance.
#[derive(Debug)]
pub(super) struct Decompressor {
    handle: NonNull<std::ffi::c_void>,
}

// SAFETY: the instance has no ties to the thread that made it; TurboJPEG only forbids its use by two
// threads at the same time, which `&mut self` excludes.
unsafe impl Send for Decompressor {}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // SAFETY: the handle came from tj3Init and is destroyed once.
        unsafe { tj::tj3Destroy(self.handle.as_ptr()) }
    }
}

impl Decompressor {
    pub(super) fn new() -> Result<Self, DecodeError> {
        // SAFETY: no preconditions; null means failure.
        let handle = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_DECOMPRESS as c_int) };
        let handle = NonNull::new(handle)
            .ok_or_else(|| DecodeError::Malformed("libjpeg-turbo is out of memory".into()))?;
        let decompressor = Self { handle };
        decompressor.set(tj::TJPARAM_TJPARAM_SCANLIMIT, JPEG_MAX_SCANS);
        // No ICC profile is wanted; extracting one would allocate for each frame.
        decompressor.set(tj::TJPARAM_TJPARAM_SAVEMARKERS, 0);
        Ok(decompressor)
    }

    fn set(&self, parameter: tj::TJPARAM, value: c_int) {
        // SAFETY: the handle is valid; an unknown parameter or value is refused with an error code.
        let refused = unsafe { tj::tj3Set(self.handle.as_ptr(), parameter as c_int, value) };
        debug_assert_eq!(refused, 0, "tj3Set({parameter}, {value})");
    }

    fn get(&self, parameter: tj::TJPARAM) -> c_int {
        // SAFETY: the handle is valid.
        unsafe { tj::tj3Get(self.handle.as_ptr(), parameter as c_int) }
    }

    /// The message of the last call when it returned `code` other than 0, and whether it was only a
    /// warning.
    fn complaint(&self, code: c_int) -> Option<(String, bool)> {
        if code == 0 {
            return None;
        }
        // SAFETY: the handle is valid; the string is NUL-terminated and lives until the next call.
        let text = unsafe { CStr::from_ptr(tj::tj3GetErrorStr(self.handle.as_ptr())) };
        // SAFETY: the handle is valid.
        let severity = unsafe { tj::tj3GetErrorCode(self.handle.as_ptr()) };
        Some((one_line(&text.to_string_lossy()), severity == tj::TJERR_TJERR_WARNING as c_int))
    }

    /// Decodes to tightly packed RGB of `width * height * 3` bytes in `rgb`, whose capacity is reused.
    /// Returns width and height in pixels and the first warning, if the data was damaged.
    pub(super) fn decompress_rgb(
        &mut self,
        data: &[u8],
        max_pixels: u64,
        rgb: &mut Vec<u8>,
    ) -> Result<(u32, u32, Option<String>), DecodeError> {
        // SAFETY: pointer and length describe `data`, which is only read during the call.
        let code = unsafe {
            tj::tj3DecompressHeader(self.handle.as_ptr(), data.as_ptr(), data.len() as tj::size_t)
        };
        if let Some((text, false)) = self.complaint(code) {
            return Err(DecodeError::Malformed(text));
        }
        let size = |parameter| usize::try_from(self.get(parameter)).unwrap_or(0);
        let width = size(tj::TJPARAM_TJPARAM_JPEGWIDTH);
        let height = size(tj::TJPARAM_TJPARAM_JPEGHEIGHT);
        if width == 0 || height == 0 || (width * height) as u64 > max_pixels {
            return Err(DecodeError::Malformed(format!(
                "libjpeg-turbo reads a size of {width}x{height}"
            )));
        }
        let pitch = width * RGB_BYTES;
        rgb.resize(pitch * height, 0);
        let marked = mark_last_row(rgb, pitch);
        // SAFETY: the output is written row by row, `pitch` bytes apart, `height` rows: exactly `rgb`.
        // Width and height were read by the same library from the same bytes, unscaled and uncropped.
        let code = unsafe {
            tj::tj3Decompress8(
                self.handle.as_ptr(),
                data.as_ptr(),
                data.len() as tj::size_t,
                rgb.as_mut_ptr(),
                pitch as c_int,
                tj::TJPF_TJPF_RGB as c_int,
            )
        };
        let warning = match self.complaint(code) {
            Some((text, false)) => return Err(DecodeError::Malformed(text)),
            // An error after a warning is reported as a warning too, and then the buffer still holds
            // an older picture.
            Some((text, true)) if marked == mark(&rgb[rgb.len() - pitch..]) => {
                return Err(DecodeError::Malformed(text));
            }
            complaint => complaint.map(|(text, _)| text),
        };
        Ok((width as u32, height as u32, warning))
    }
}

/// Fills the last row with noise that no decoder writes, and returns its fingerprint.
fn mark_last_row(rgb: &mut [u8], pitch: usize) -> u64 {
    let start = rgb.len() - pitch;
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for byte in &mut rgb[start..] {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = (state >> 56) as u8;
    }
    mark(&rgb[start..])
}

/// FNV-1a of a row.
fn mark(row: &[u8]) -> u64 {
    row.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gray_jpeg(width: u32, height: u32, level: u8) -> Vec<u8> {
        let mut out = std::io::Cursor::new(Vec::new());
        image::RgbImage::from_pixel(width, height, image::Rgb([level; 3]))
            .write_to(&mut out, image::ImageFormat::Jpeg)
            .expect("encode");
        out.into_inner()
    }

    #[test]
    fn decodes_and_reuses_its_buffer() {
        let mut decompressor = Decompressor::new().expect("instance");
        let mut rgb = Vec::new();
        for (width, height, level) in [(33, 17, 200), (8, 8, 10), (64, 64, 90)] {
            let data = gray_jpeg(width, height, level);
            let result = decompressor.decompress_rgb(&data, 1 << 20, &mut rgb).expect("decodes");
            assert_eq!(result, (width, height, None));
            assert_eq!(rgb.len(), (width * height * 3) as usize);
            assert!(rgb.iter().all(|&value| value.abs_diff(level) <= 2));
        }
    }

    #[test]
    fn an_error_never_hands_out_an_older_picture() {
        let mut decompressor = Decompressor::new().expect("instance");
        let mut rgb = Vec::new();
        decompressor.decompress_rgb(&gray_jpeg(16, 16, 50), 1 << 20, &mut rgb).expect("decodes");
        let mut broken = gray_jpeg(16, 16, 200);
        // Make the Huffman table's length impossible after the header has been accepted.
        let table = broken.windows(2).position(|w| w == [0xFF, 0xC4]).expect("DHT");
        broken[table + 5..table + 21].fill(0xFF);
        let error = decompressor.decompress_rgb(&broken, 1 << 20, &mut rgb).expect_err("broken");
        assert_eq!(error.reason(), "malformed");
    }

    #[test]
    fn the_mark_tells_a_written_row_from_an_untouched_one() {
        let mut rgb = vec![0; 60];
        let marked = mark_last_row(&mut rgb, 30);
        assert_eq!(marked, mark(&rgb[30..]));
        rgb[59] ^= 1;
        assert_ne!(marked, mark(&rgb[30..]));
    }
}
