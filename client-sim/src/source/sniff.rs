//! Picture files told apart by their first bytes, never by their names.

/// A kind of picture file that the contract's `ENCODED` format takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PictureKind {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// WebP.
    WebP,
    /// Windows bitmap.
    Bmp,
}

/// Sizes of the header that follows a BMP file's own 14 bytes, in bytes: OS/2 1, OS/2 2 (short and
/// long) and Windows 3 to 5 with the variants found in the wild.
const BMP_INFO_SIZES: [u32; 8] = [12, 16, 40, 52, 56, 64, 108, 124];

/// The kind of picture that begins with `head` (18 bytes suffice); `None` for anything else.
#[must_use]
pub fn sniff(head: &[u8]) -> Option<PictureKind> {
    if head.starts_with(&[0xFF, 0xD8, 0xFF]) {
        Some(PictureKind::Jpeg)
    } else if head.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some(PictureKind::Png)
    } else if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        Some(PictureKind::WebP)
    } else if is_bmp(head) {
        Some(PictureKind::Bmp)
    } else {
        None
    }
}

/// "BM" alone also begins many a text; a known header size must follow.
fn is_bmp(head: &[u8]) -> bool {
    head.starts_with(b"BM")
        && head
            .get(14..18)
            .and_then(|size| size.try_into().ok())
            .is_some_and(|size| BMP_INFO_SIZES.contains(&u32::from_le_bytes(size)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ImageFormat, RgbImage};
    use proptest::prelude::*;
    use std::io::Cursor;

    fn encoded(format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        RgbImage::new(5, 3).write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn real_files_are_recognised() {
        for (format, kind) in [
            (ImageFormat::Jpeg, PictureKind::Jpeg),
            (ImageFormat::Png, PictureKind::Png),
            (ImageFormat::WebP, PictureKind::WebP),
            (ImageFormat::Bmp, PictureKind::Bmp),
        ] {
            assert_eq!(sniff(&encoded(format)), Some(kind));
        }
    }

    #[test]
    fn other_files_are_not() {
        for other in [
            &b""[..],
            b"BM",
            b"BMW drives past the camera",
            b"RIFF\x10\0\0\0WAVEfmt ",
            b"GIF89a",
            b"II*\0",
            b"<svg xmlns=",
            b"\x89PNG\n",
            b"\xFF\xD8",
        ] {
            assert_eq!(sniff(other), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = sniff(&bytes);
        }
    }
}
