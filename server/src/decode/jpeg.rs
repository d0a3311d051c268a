//! libjpeg-turbo through its TurboJPEG API (version 3.1).
//!
//! The library's C functions are called directly, not through a safe crate, for one reason: whether
//! a complaint was a warning (the picture is there, part of it may be damaged) or an error decides
//! what the client is told.

use std::{ffi::CStr, os::raw::c_int, ptr::NonNull};

use turbojpeg_sys as tj;

use super::{DecodeError, one_line};
use crate::limits::JPEG_MAX_SCANS;

/// Layout of the decoded pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pixels {
    /// 3 bytes per pixel.
    Rgb,
    /// 4 bytes per pixel, as stored: Adobe's files hold inverted inks.
    Cmyk,
}

impl Pixels {
    fn bytes(self) -> usize {
        match self {
            Self::Rgb => 3,
            Self::Cmyk => 4,
        }
    }

    fn code(self) -> tj::TJPF {
        match self {
            Self::Rgb => tj::TJPF_TJPF_RGB,
            Self::Cmyk => tj::TJPF_TJPF_CMYK,
        }
    }
}

/// A decoded JPEG.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) width: u32,
    pub(super) height: u32,
    /// The library's complaint, if part of the data was damaged.
    pub(super) warning: Option<String>,
}

/// Decodes into `out`, tightly packed, whose capacity is reused.
pub(super) fn decompress(
    data: &[u8],
    max_pixels: u64,
    pixels: Pixels,
    out: &mut Vec<u8>,
) -> Result<Picture, DecodeError> {
    // A new instance for every picture, which costs less than a microsecond: an instance keeps the
    // quantisation and Huffman tables of the picture before, and a camera that leaves its tables out
    // (most USB cameras do) would be decoded with another camera's.
    let instance = Instance::new()?;
    // SAFETY: pointer and length describe `data`, which is only read during the call.
    let code = unsafe {
        tj::tj3DecompressHeader(instance.as_ptr(), data.as_ptr(), data.len() as tj::size_t)
    };
    if let Some((text, false)) = instance.complaint(code) {
        return Err(DecodeError::Malformed(text));
    }
    let size = |parameter| usize::try_from(instance.get(parameter)).unwrap_or(0);
    let width = size(tj::TJPARAM_TJPARAM_JPEGWIDTH);
    let height = size(tj::TJPARAM_TJPARAM_JPEGHEIGHT);
    if width == 0 || height == 0 || (width * height) as u64 > max_pixels {
        return Err(DecodeError::Malformed(format!(
            "libjpeg-turbo reads a size of {width}x{height}"
        )));
    }
    let pitch = width * pixels.bytes();
    out.resize(pitch * height, 0);
    let marked = mark_last_row(out, pitch);
    // SAFETY: the output is written row by row, `pitch` bytes apart, `height` rows: exactly `out`.
    // Width and height were read by the same library from the same bytes, unscaled and uncropped.
    let code = unsafe {
        tj::tj3Decompress8(
            instance.as_ptr(),
            data.as_ptr(),
            data.len() as tj::size_t,
            out.as_mut_ptr(),
            pitch as c_int,
            pixels.code() as c_int,
        )
    };
    let warning = match instance.complaint(code) {
        Some((text, false)) => return Err(DecodeError::Malformed(text)),
        // An error after a warning is reported as a warning too, and then the buffer still holds an
        // older picture.
        Some((text, true)) if marked == mark(&out[out.len() - pitch..]) => {
            return Err(DecodeError::Malformed(text));
        }
        complaint => complaint.map(|(text, _)| text),
    };
    Ok(Picture { width: width as u32, height: height as u32, warning })
}

/// A TurboJPEG decompressor instance.
struct Instance(NonNull<std::ffi::c_void>);

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the handle came from tj3Init and is destroyed once.
        unsafe { tj::tj3Destroy(self.as_ptr()) }
    }
}

impl Instance {
    fn new() -> Result<Self, DecodeError> {
        // SAFETY: no preconditions; null means failure.
        let handle = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_DECOMPRESS as c_int) };
        let instance = NonNull::new(handle)
            .map(Self)
            .ok_or_else(|| DecodeError::Malformed("libjpeg-turbo is out of memory".into()))?;
        instance.set(tj::TJPARAM_TJPARAM_SCANLIMIT, JPEG_MAX_SCANS);
        // No ICC profile is wanted; extracting one would allocate for each frame.
        instance.set(tj::TJPARAM_TJPARAM_SAVEMARKERS, 0);
        Ok(instance)
    }

    fn as_ptr(&self) -> *mut std::ffi::c_void {
        self.0.as_ptr()
    }

    fn set(&self, parameter: tj::TJPARAM, value: c_int) {
        // SAFETY: the handle is valid; an unknown parameter or value is refused with an error code.
        let refused = unsafe { tj::tj3Set(self.as_ptr(), parameter as c_int, value) };
        debug_assert_eq!(refused, 0, "tj3Set({parameter}, {value})");
    }

    fn get(&self, parameter: tj::TJPARAM) -> c_int {
        // SAFETY: the handle is valid.
        unsafe { tj::tj3Get(self.as_ptr(), parameter as c_int) }
    }

    /// The message of the last call when it returned `code` other than 0, and whether it was only a
    /// warning.
    fn complaint(&self, code: c_int) -> Option<(String, bool)> {
        if code == 0 {
            return None;
        }
        // SAFETY: the handle is valid; the string is NUL-terminated and lives until the next call.
        let text = unsafe { CStr::from_ptr(tj::tj3GetErrorStr(self.as_ptr())) };
        // SAFETY: the handle is valid.
        let severity = unsafe { tj::tj3GetErrorCode(self.as_ptr()) };
        Some((one_line(&text.to_string_lossy()), severity == tj::TJERR_TJERR_WARNING as c_int))
    }
}

/// Fills the last row with noise that no decoder writes, and returns its fingerprint.
fn mark_last_row(out: &mut [u8], pitch: usize) -> u64 {
    let start = out.len() - pitch;
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for byte in &mut out[start..] {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = (state >> 56) as u8;
    }
    mark(&out[start..])
}

/// FNV-1a of a row.
fn mark(row: &[u8]) -> u64 {
    row.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// Inks to light: tightly packed CMYK of 4 bytes per pixel to RGB of 3. Adobe stores inks inverted
/// (255 = none), the JPEG standard itself says nothing of inks.
pub(super) fn cmyk_to_rgb(cmyk: &[u8], inverted: bool, rgb: &mut Vec<u8>) {
    let paper = |ink: u8| u16::from(if inverted { ink } else { 255 - ink });
    rgb.clear();
    rgb.extend(cmyk.chunks_exact(4).flat_map(|pixel| {
        let black = paper(pixel[3]);
        [0, 1, 2].map(|channel| (paper(pixel[channel]) * black / 255) as u8)
    }));
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

    fn rgb(data: &[u8], out: &mut Vec<u8>) -> Result<Picture, DecodeError> {
        decompress(data, 1 << 20, Pixels::Rgb, out)
    }

    #[test]
    fn decodes_and_reuses_its_buffer() {
        let mut out = Vec::new();
        for (width, height, level) in [(33, 17, 200), (8, 8, 10), (64, 64, 90)] {
            let picture = rgb(&gray_jpeg(width, height, level), &mut out).expect("decodes");
            assert_eq!(picture, Picture { width, height, warning: None });
            assert_eq!(out.len(), (width * height * 3) as usize);
            assert!(out.iter().all(|&value| value.abs_diff(level) <= 2));
        }
    }

    #[test]
    fn an_error_never_hands_out_an_older_picture() {
        let mut out = Vec::new();
        rgb(&gray_jpeg(16, 16, 50), &mut out).expect("decodes");
        let mut broken = gray_jpeg(16, 16, 200);
        // Make the Huffman table's length impossible after the header has been accepted.
        let table = broken.windows(2).position(|w| w == [0xFF, 0xC4]).expect("DHT");
        broken[table + 5..table + 21].fill(0xFF);
        let error = rgb(&broken, &mut out).expect_err("broken");
        assert_eq!(error.reason(), "malformed");
    }

    #[test]
    fn tables_of_one_picture_are_not_used_for_the_next() {
        let mut untabled = gray_jpeg(16, 16, 200);
        let tables = untabled.windows(2).position(|w| w == [0xFF, 0xDB]).expect("DQT");
        let length = u16::from_be_bytes([untabled[tables + 2], untabled[tables + 3]]);
        untabled.drain(tables..tables + 2 + usize::from(length));
        let alone = rgb(&untabled, &mut Vec::new());
        let mut out = Vec::new();
        rgb(&gray_jpeg(16, 16, 50), &mut out).expect("decodes");
        assert_eq!(rgb(&untabled, &mut out), alone);
        assert!(alone.is_err(), "a JPEG without quantisation tables");
    }

    #[test]
    fn the_mark_tells_a_written_row_from_an_untouched_one() {
        let mut out = vec![0; 60];
        let marked = mark_last_row(&mut out, 30);
        assert_eq!(marked, mark(&out[30..]));
        out[59] ^= 1;
        assert_ne!(marked, mark(&out[30..]));
    }

    #[test]
    fn inks_both_ways() {
        let mut out = Vec::new();
        cmyk_to_rgb(&[255, 0, 0, 255, 255, 255, 255, 0], true, &mut out);
        assert_eq!(out, [255, 0, 0, 0, 0, 0]);
        cmyk_to_rgb(&[0, 255, 255, 0, 0, 0, 0, 255], false, &mut out);
        assert_eq!(out, [255, 0, 0, 0, 0, 0]);
    }
}
