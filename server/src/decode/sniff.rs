//! Telling what a frame's bytes are by how they begin.

use image::ImageFormat;

use super::DecodeError;

/// Encoded formats that are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoded {
    Jpeg,
    Other(ImageFormat),
}

/// Tells the format by the first bytes.
pub(super) fn sniff(data: &[u8]) -> Result<Encoded, DecodeError> {
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
