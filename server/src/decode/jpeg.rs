//! libjpeg-turbo through its TurboJPEG API (version 3.1).
//!
//! The library's C functions are called directly, not through a safe crate, for one reason: whether
//! a complaint was a warning (the picture is there, part of it may be damaged) or an error decides
//! what the client is told.

use std::{ffi::CStr, os::raw::c_int, ptr::NonNull};

use turbojpeg_sys as tj;

use super::{DecodeError, one_line, planes::PlaneSize};
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

/// Samples along each side of a block (ITU-T T.81, 3.1.13).
const BLOCK: u32 = 8;

/// Largest factor by which a JPEG is scaled down while it is decoded. The inverse DCT yields 4, 2 or 1
/// samples for 8 at hardly any cost; other factors have no vector code in libjpeg-turbo and take longer
/// than the whole picture.
const MAX_DOWNSCALE: u32 = 8;

/// The largest power of two, at most 8, by which a picture of size `full` can be scaled down and still be
/// at least as large as `needed` in width and height.
pub(super) fn downscale(full: (u32, u32), needed: (u32, u32)) -> u32 {
    let mut factor = 1;
    while factor < MAX_DOWNSCALE
        && full.0.div_ceil(factor * 2) >= needed.0
        && full.1.div_ceil(factor * 2) >= needed.1
    {
        factor *= 2;
    }
    factor
}

/// A JPEG whose header has been read.
pub(super) struct Jpeg<'d> {
    instance: Instance,
    data: &'d [u8],
    /// Pixels per row.
    pub(super) width: u32,
    /// Rows.
    pub(super) height: u32,
}

/// The library's complaint, if part of the data was damaged.
pub(super) type Warning = Option<String>;

impl<'d> Jpeg<'d> {
    /// Reads the header.
    pub(super) fn open(data: &'d [u8], max_pixels: u64) -> Result<Self, DecodeError> {
        // A new instance for every picture, which costs less than a microsecond: an instance keeps the
        // quantisation and Huffman tables of the picture before, and a camera that leaves its tables
        // out (most USB cameras do) would be decoded with another camera's.
        let instance = Instance::new()?;
        // SAFETY: pointer and length describe `data`, which is only read during the call.
        let code = unsafe {
            tj::tj3DecompressHeader(instance.as_ptr(), data.as_ptr(), data.len() as tj::size_t)
        };
        if let Some((text, false)) = instance.complaint(code) {
            return Err(DecodeError::Malformed(text));
        }
        let size = |parameter| u32::try_from(instance.get(parameter)).unwrap_or(0);
        let width = size(tj::TJPARAM_TJPARAM_JPEGWIDTH);
        let height = size(tj::TJPARAM_TJPARAM_JPEGHEIGHT);
        if width == 0 || height == 0 || u64::from(width) * u64::from(height) > max_pixels {
            return Err(DecodeError::Malformed(format!(
                "libjpeg-turbo reads a size of {width}x{height}"
            )));
        }
        Ok(Self { instance, data, width, height })
    }

    /// Decodes into `out`, tightly packed, whose capacity is reused.
    pub(super) fn pixels(self, pixels: Pixels, out: &mut Vec<u8>) -> Result<Warning, DecodeError> {
        let pitch = self.width as usize * pixels.bytes();
        out.resize(pitch * self.height as usize, 0);
        let marked = mark_last_row(out, pitch);
        // SAFETY: the output is written row by row, `pitch` bytes apart, `height` rows: exactly `out`.
        // Width and height were read by the same library from the same bytes, unscaled and uncropped.
        let code = unsafe {
            tj::tj3Decompress8(
                self.instance.as_ptr(),
                self.data.as_ptr(),
                self.data.len() as tj::size_t,
                out.as_mut_ptr(),
                pitch as c_int,
                pixels.code() as c_int,
            )
        };
        self.judge(code, marked != mark(&out[out.len() - pitch..]))
    }

    /// How the picture's planes lie once it is scaled down by `most` (1, 2, 4 or 8), or less where the
    /// library cannot; `None` unless it is gray or luma and chroma in a common subsampling. One size for
    /// a gray picture, else three.
    pub(super) fn planes(&self, most: u32) -> Option<PlaneSizes> {
        let get = |parameter| self.instance.get(parameter);
        let subsampling = get(tj::TJPARAM_TJPARAM_SUBSAMP);
        let components = match tj::TJCS::try_from(get(tj::TJPARAM_TJPARAM_COLORSPACE)).ok()? {
            tj::TJCS_TJCS_GRAY => 1,
            tj::TJCS_TJCS_YCbCr => 3,
            _ => return None,
        };
        if get(tj::TJPARAM_TJPARAM_LOSSLESS) != 0 {
            return None;
        }
        let picture = (self.width, self.height);
        let mut factor = most;
        loop {
            let sizes = plane_sizes(picture, factor, subsampling)?;
            if factor == 1 || is_decoded(sizes[0], picture, factor) {
                return Some(PlaneSizes { sizes, components, factor });
            }
            factor /= 2;
        }
    }

    /// Decodes into planes laid out as [`planes`](Self::planes) has said, whose capacity is reused.
    pub(super) fn decode_planes(
        self,
        PlaneSizes { sizes, components, factor }: &PlaneSizes,
        out: &mut [Vec<u8>; 3],
    ) -> Result<Warning, DecodeError> {
        let factor = tj::tjscalingfactor { num: 1, denom: *factor as c_int };
        // SAFETY: the handle is valid; a factor that is not supported is refused with an error code.
        let refused = unsafe { tj::tj3SetScalingFactor(self.instance.as_ptr(), factor) };
        if refused != 0 {
            let complaint =
                self.instance.complaint(refused).map_or_else(String::new, |(text, _)| text);
            return Err(DecodeError::Malformed(complaint));
        }
        let mut pointers = [std::ptr::null_mut(); 3];
        let mut strides = [0; 3];
        for (index, (plane, size)) in out.iter_mut().zip(sizes).take(*components).enumerate() {
            plane.resize(size.area(), 0);
            pointers[index] = plane.as_mut_ptr();
            strides[index] = size.samples.0 as c_int;
        }
        let pitch = sizes[0].samples.0 as usize;
        let marked = mark_last_row(&mut out[0], pitch);
        // SAFETY: each plane is written row by row, its stride apart. Its size is that of
        // tj3YUVPlaneWidth and tj3YUVPlaneHeight for the scaled picture (a test compares them), whose
        // size and subsampling were read by the same library from the same bytes; and no larger than
        // what it decodes, so that it reads no further than its own buffers either.
        let code = unsafe {
            tj::tj3DecompressToYUVPlanes8(
                self.instance.as_ptr(),
                self.data.as_ptr(),
                self.data.len() as tj::size_t,
                pointers.as_mut_ptr(),
                strides.as_mut_ptr(),
            )
        };
        self.judge(code, marked != mark(&out[0][out[0].len() - pitch..]))
    }

    /// Tells damage from failure after decoding returned `code`. `written` says that the last row has
    /// been reached: an error after a warning is reported as a warning too, and then the buffer may
    /// still hold an older picture.
    fn judge(&self, code: c_int, written: bool) -> Result<Warning, DecodeError> {
        match self.instance.complaint(code) {
            Some((text, warning)) if !warning || !written => Err(DecodeError::Malformed(text)),
            complaint => Ok(complaint.map(|(text, _)| text)),
        }
    }
}

/// Luma and both chroma planes of a picture (width, height in pixels) scaled down by `factor`, in one of
/// the library's subsamplings.
fn plane_sizes(
    picture: (u32, u32),
    factor: u32,
    subsampling: tj::TJSAMP,
) -> Option<[PlaneSize; 3]> {
    // Pixels per chroma sample, across and down.
    let (across, down) = match subsampling {
        tj::TJSAMP_TJSAMP_GRAY | tj::TJSAMP_TJSAMP_444 => (1, 1),
        tj::TJSAMP_TJSAMP_422 => (2, 1),
        tj::TJSAMP_TJSAMP_420 => (2, 2),
        tj::TJSAMP_TJSAMP_440 => (1, 2),
        tj::TJSAMP_TJSAMP_411 => (4, 1),
        tj::TJSAMP_TJSAMP_441 => (1, 4),
        _ => return None,
    };
    let scaled = (picture.0.div_ceil(factor), picture.1.div_ceil(factor));
    let chroma = PlaneSize {
        samples: (scaled.0.div_ceil(across), scaled.1.div_ceil(down)),
        step: (factor * across, factor * down),
    };
    // The library pads the luma of a picture whose size is no multiple of the chroma's.
    let luma = PlaneSize {
        samples: (chroma.samples.0 * across, chroma.samples.1 * down),
        step: (factor, factor),
    };
    Some([luma, chroma, chroma])
}

/// Whether so many samples of luma are decoded of a picture at this scale. Padded to a multiple of the
/// chroma's they can be more, and then the library copies what lies behind its buffer's rows. At full size
/// they never are: blocks of 8 samples are such multiples.
fn is_decoded(luma: PlaneSize, picture: (u32, u32), factor: u32) -> bool {
    let decoded = |pixels: u32| pixels.div_ceil(BLOCK) * (BLOCK / factor);
    luma.samples.0 <= decoded(picture.0) && luma.samples.1 <= decoded(picture.1)
}

/// How a JPEG's planes lie; see [`Jpeg::planes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlaneSizes {
    sizes: [PlaneSize; 3],
    components: usize,
    factor: u32,
}

impl PlaneSizes {
    /// One size for a gray picture, else three.
    pub(super) fn as_slice(&self) -> &[PlaneSize] {
        &self.sizes[..self.components]
    }
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

    fn rgb(data: &[u8], out: &mut Vec<u8>) -> Result<Warning, DecodeError> {
        Jpeg::open(data, 1 << 20)?.pixels(Pixels::Rgb, out)
    }

    #[test]
    fn decodes_and_reuses_its_buffer() {
        let mut out = Vec::new();
        for (width, height, level) in [(33, 17, 200), (8, 8, 10), (64, 64, 90)] {
            let warning = rgb(&gray_jpeg(width, height, level), &mut out).expect("decodes");
            assert_eq!(warning, None);
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
    fn halves_while_the_picture_stays_large_enough() {
        for (full, needed, factor) in [
            ((640, 480), (416, 312), 1),
            ((1280, 720), (416, 234), 2),
            ((1920, 1080), (416, 234), 4),
            ((832, 1), (416, 1), 2),
            ((831, 1), (416, 1), 2),
            ((830, 1), (416, 1), 1),
            ((60_000, 60_000), (416, 416), 8),
            ((100, 100), (416, 416), 1),
        ] {
            assert_eq!(downscale(full, needed), factor, "{full:?} for {needed:?}");
        }
    }

    /// The sizes that memory is provided for, against those that the library will write.
    #[test]
    fn planes_are_as_large_as_the_library_says() {
        use tj::{
            TJSAMP_TJSAMP_411, TJSAMP_TJSAMP_420, TJSAMP_TJSAMP_422, TJSAMP_TJSAMP_440,
            TJSAMP_TJSAMP_441, TJSAMP_TJSAMP_444, TJSAMP_TJSAMP_GRAY,
        };
        let sides = || (1..70).chain([639, 640, 641]);
        for (subsampling, components) in [
            (TJSAMP_TJSAMP_GRAY, 1),
            (TJSAMP_TJSAMP_444, 3),
            (TJSAMP_TJSAMP_422, 3),
            (TJSAMP_TJSAMP_420, 3),
            (TJSAMP_TJSAMP_440, 3),
            (TJSAMP_TJSAMP_411, 3),
            (TJSAMP_TJSAMP_441, 3),
        ] {
            for (side, factor) in sides().flat_map(|side| [1, 2, 4, 8].map(|f| (side, f))) {
                let planes = plane_sizes((side, side), factor, subsampling).expect("known");
                let scaled = side.div_ceil(factor) as c_int;
                for (index, size) in (0..).zip(&planes[..components]) {
                    // SAFETY: pure functions of their arguments.
                    let expected = unsafe {
                        (
                            tj::tj3YUVPlaneWidth(index, scaled, subsampling),
                            tj::tj3YUVPlaneHeight(index, scaled, subsampling),
                        )
                    };
                    let got = (size.samples.0 as c_int, size.samples.1 as c_int);
                    assert_eq!(got, expected, "{subsampling}: {side}/{factor}, plane {index}");
                }
            }
        }
        assert_eq!(plane_sizes((8, 8), 1, tj::TJSAMP_TJSAMP_UNKNOWN), None);
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
