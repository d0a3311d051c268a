//! The marker segments of a JPEG (ITU-T T.81, annex B): size, orientation and where the data ends,
//! read without decoding anything.

use image::metadata::Orientation;
use memchr::memchr;

use super::DecodeError;

const SOI: u8 = 0xD8;
/// End of image.
pub(super) const EOI: u8 = 0xD9;
const SOS: u8 = 0xDA;
const DHT: u8 = 0xC4;
const JPG: u8 = 0xC8;
const DAC: u8 = 0xCC;
const TEM: u8 = 0x01;
const APP1: u8 = 0xE1;
const APP14: u8 = 0xEE;
const EXIF: &[u8] = b"Exif\0\0";
const ADOBE: &[u8] = b"Adobe";

/// What the segments before the first scan say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JpegInfo {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) components: u8,
    pub(super) orientation: Orientation,
    /// Written by Adobe's software or in its manner, which inverts inks.
    pub(super) adobe: bool,
    /// Brings its Huffman tables. USB cameras leave them out, as Motion JPEG in AVI files may.
    pub(super) tables: bool,
    /// Offset of the first scan's entropy-coded data.
    scan_start: usize,
}

/// Walks the segments up to the first scan.
pub(super) fn scan(data: &[u8]) -> Result<JpegInfo, DecodeError> {
    let cut = || DecodeError::Truncated("the JPEG ends inside its header".into());
    let mut frame = None;
    let mut orientation = Orientation::NoTransforms;
    let mut adobe = false;
    let mut tables = false;
    let mut at = 2;
    loop {
        let marker = next_marker(data, &mut at).ok_or_else(cut)?;
        match marker {
            SOI | TEM | 0x00 | 0xD0..=0xD7 => continue,
            EOI => {
                return Err(DecodeError::Truncated("the JPEG holds no picture data".into()));
            }
            _ => {}
        }
        let body = segment(data, at)?.ok_or_else(cut)?;
        match marker {
            SOS => {
                let (width, height, components) = frame.ok_or_else(|| {
                    DecodeError::Malformed("the JPEG has a scan before its frame header".into())
                })?;
                let scan_start = at + 2 + body.len();
                return Ok(JpegInfo {
                    width,
                    height,
                    components,
                    orientation,
                    adobe,
                    tables,
                    scan_start,
                });
            }
            DHT => tables = true,
            0xC0..=0xCF if !matches!(marker, DHT | JPG | DAC) => frame = Some(frame_header(body)?),
            APP1 if body.starts_with(EXIF) => {
                orientation = Orientation::from_exif_chunk(&body[EXIF.len()..])
                    .unwrap_or(Orientation::NoTransforms);
            }
            APP14 => adobe |= body.starts_with(ADOBE),
            _ => {}
        }
        at += 2 + body.len();
    }
}

/// Finds the next marker at or after `at` and steps over it. Anything between segments is skipped,
/// as every decoder does; fill bytes (0xFF) may precede a marker (B.1.1.2).
fn next_marker(data: &[u8], at: &mut usize) -> Option<u8> {
    *at += memchr(0xFF, data.get(*at..)?)?;
    while *data.get(*at)? == 0xFF {
        *at += 1;
    }
    let marker = data[*at];
    *at += 1;
    Some(marker)
}

/// The body of the segment whose length field is at `at`; `None` when the data ends inside it.
fn segment(data: &[u8], at: usize) -> Result<Option<&[u8]>, DecodeError> {
    let Some(length) = data.get(at..at + 2) else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    if length < 2 {
        return Err(DecodeError::Malformed(
            "a JPEG segment claims to be shorter than its header".into(),
        ));
    }
    Ok(data.get(at + 2..at + length))
}

/// Width, height and number of components (B.2.2).
fn frame_header(body: &[u8]) -> Result<(u32, u32, u8), DecodeError> {
    let &[precision, h1, h0, w1, w0, components, ..] = body else {
        return Err(DecodeError::Malformed("the JPEG's frame header is too short".into()));
    };
    if precision != 8 {
        return Err(DecodeError::Unsupported(format!(
            "a JPEG with {precision} bits per sample; 8 are decoded"
        )));
    }
    let (width, height) = (u16::from_be_bytes([w1, w0]), u16::from_be_bytes([h1, h0]));
    if width == 0 || height == 0 {
        return Err(DecodeError::Malformed(format!(
            "the JPEG claims to be {width}x{height} pixels"
        )));
    }
    Ok((u32::from(width), u32::from(height), components))
}

impl JpegInfo {
    /// Whether the picture's end marker is there. Bytes after it, as drivers pad their buffers with,
    /// do not matter; a second picture's start before it does.
    pub(super) fn has_end_marker(&self, data: &[u8]) -> bool {
        let mut at = self.scan_start;
        while let Some(marker) = next_marker(data, &mut at) {
            match marker {
                EOI => return true,
                SOI => return false,
                // A stuffed zero or a restart marker: still inside a scan.
                0x00 | TEM | 0xD0..=0xD7 => {}
                _ => match segment(data, at) {
                    Ok(Some(body)) => at += 2 + body.len(),
                    _ => return false,
                },
            }
        }
        false
    }
}

/// Drops the zeros that pad a driver's buffer. A zero after 0xFF is data (a stuffed byte).
pub(super) fn without_trailing_zeros(data: &[u8]) -> &[u8] {
    let end = data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let end = if data[..end].last() == Some(&0xFF) { (end + 1).min(data.len()) } else { end };
    &data[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// SOI, SOF0 of the given size with three components, SOS, then `entropy`.
    fn jpeg(width: u16, height: u16, entropy: &[u8]) -> Vec<u8> {
        let mut data = vec![0xFF, SOI, 0xFF, 0xC0, 0, 8, 8];
        data.extend(height.to_be_bytes());
        data.extend(width.to_be_bytes());
        data.push(3);
        data.extend([0xFF, SOS, 0, 2]);
        data.extend(entropy);
        data
    }

    #[test]
    fn reads_size_and_components() {
        let info = scan(&jpeg(640, 360, &[])).expect("header");
        assert_eq!((info.width, info.height, info.components), (640, 360, 3));
        assert_eq!(info.orientation, Orientation::NoTransforms);
    }

    #[test]
    fn finds_the_end_marker_past_stuffing_restarts_and_padding() {
        let cases: [(&[u8], bool); 8] = [
            (&[1, 2, 0xFF, EOI], true),
            (&[1, 0xFF, 0x00, 2, 0xFF, 0xD3, 3, 0xFF, EOI, 0, 0, 0], true),
            (&[1, 2, 3], false),
            (&[1, 0xFF, 0x00, EOI], false),
            (&[1, 0xFF], false),
            // A Huffman table between two scans may hold any bytes.
            (&[1, 0xFF, DHT, 0, 4, 0xFF, EOI, 2], false),
            (&[1, 0xFF, DHT, 0, 4, 0xFF, EOI, 2, 0xFF, EOI, 9], true),
            // The next picture follows directly: this one was never finished.
            (&[1, 2, 0xFF, SOI, 0xFF, 0xC0, 0, 2, 0xFF, EOI], false),
        ];
        for (entropy, expected) in cases {
            let data = jpeg(8, 8, entropy);
            let info = scan(&data).expect("header");
            assert_eq!(info.has_end_marker(&data), expected, "{entropy:02x?}");
        }
    }

    #[test]
    fn zero_sizes_and_other_precisions_are_refused() {
        assert_eq!(scan(&jpeg(0, 8, &[])).expect_err("size").reason(), "malformed");
        let mut deep = jpeg(8, 8, &[]);
        deep[6] = 12;
        assert_eq!(scan(&deep).expect_err("precision").reason(), "unsupported");
    }

    #[test]
    fn padding_is_dropped_but_stuffed_zeros_are_kept() {
        assert_eq!(without_trailing_zeros(&[1, 2, 0, 0]), [1, 2]);
        assert_eq!(without_trailing_zeros(&[1, 0xFF, 0, 0, 0]), [1, 0xFF, 0]);
        assert_eq!(without_trailing_zeros(&[0, 0]), [] as [u8; 0]);
    }

    proptest! {
        #[test]
        fn never_panics(mut data in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = scan(&data).map(|info| info.has_end_marker(&data));
            data.splice(0..0, [0xFF, SOI, 0xFF, 0xC0, 0, 8, 8, 0, 8, 0, 8, 3, 0xFF, SOS, 0, 2]);
            let info = scan(&data).expect("a whole header");
            let _ = info.has_end_marker(&data);
            let _ = without_trailing_zeros(&data);
        }
    }
}
