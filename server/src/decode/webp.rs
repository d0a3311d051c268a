//! What a WebP file's chunks say (RFC 9649, section 2), checked before the decoder believes it.

use super::DecodeError;

/// Bytes of a chunk's name and size.
const CHUNK_HEAD: usize = 8;

/// A part of the file.
#[derive(Clone, Copy)]
struct Chunk<'d> {
    name: [u8; 4],
    payload: &'d [u8],
}

/// Checks that every chunk that the decoder reads is in the file as a whole, that there is one picture,
/// and that it has the size that the file's header declares: the decoder allocates what a chunk says of
/// itself.
///
/// # Errors
/// [`DecodeError::Truncated`] when a chunk ends beyond the file, [`DecodeError::Unsupported`] for an
/// animation, [`DecodeError::Malformed`] for a picture of another size than declared.
pub(super) fn check(data: &[u8]) -> Result<(), DecodeError> {
    // Behind `RIFF`, the file's size, which writers get wrong, and `WEBP`.
    let mut rest = data.get(12..).unwrap_or_default();
    let Some(first) = next_chunk(&mut rest)? else { return Ok(()) };
    if &first.name != b"VP8X" {
        return Ok(());
    }
    let canvas = number(first.payload, 4).zip(number(first.payload, 7));
    while let Some(chunk) = next_chunk(&mut rest)? {
        match &chunk.name {
            b"ANIM" | b"ANMF" => {
                return Err(DecodeError::Unsupported("an animated WebP; send pictures".into()));
            }
            b"VP8 " => check_size(chunk.payload, canvas)?,
            // The decoder compares a lossless picture's size itself, before it allocates.
            _ => {}
        }
    }
    Ok(())
}

/// Takes the next chunk off the front. None at the end, which may be followed by whatever a camera has
/// put behind its picture.
fn next_chunk<'d>(rest: &mut &'d [u8]) -> Result<Option<Chunk<'d>>, DecodeError> {
    let Some((head, body)) = rest.split_at_checked(CHUNK_HEAD) else { return Ok(None) };
    let (name, size) = head.split_at(4);
    let (Ok(name), Ok(size)) = (name.try_into(), size.try_into()) else { return Ok(None) };
    let size = u32::from_le_bytes(size) as usize;
    let Some(payload) = body.get(..size) else {
        if !is_known(name) {
            return Ok(None);
        }
        return Err(DecodeError::Truncated(format!(
            "the WebP's {} chunk has {size} bytes, of which {} are there",
            name.escape_ascii(),
            body.len()
        )));
    };
    // A chunk of odd size is followed by a byte of padding.
    *rest = body.get(size.next_multiple_of(2)..).unwrap_or_default();
    Ok(Some(Chunk { name, payload }))
}

/// Whether the format defines a chunk of this name.
fn is_known(name: [u8; 4]) -> bool {
    let known = [b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"ICCP", b"EXIF", b"XMP "];
    known.contains(&&name)
}

/// Checks the size of a lossy picture (RFC 6386, section 9.1) against the file's.
fn check_size(payload: &[u8], canvas: Option<(u32, u32)>) -> Result<(), DecodeError> {
    let (Some(&[w0, w1, h0, h1]), Some((width, height))) = (payload.get(6..10), canvas) else {
        return Err(DecodeError::Malformed("the WebP's picture has no header".into()));
    };
    // Two bits of each are a scale for display.
    let own = [[w0, w1], [h0, h1]].map(|side| u32::from(u16::from_le_bytes(side)) & 0x3FFF);
    if own == [width, height] {
        return Ok(());
    }
    Err(DecodeError::Malformed(format!(
        "the WebP is declared {width}x{height}, the picture in it is {}x{}",
        own[0], own[1]
    )))
}

/// A side of the canvas: three bytes that hold one less.
fn number(payload: &[u8], at: usize) -> Option<u32> {
    let &[low, middle, high] = payload.get(at..at + 3)? else { return None };
    Some(u32::from_le_bytes([low, middle, high, 0]) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(name: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let size = u32::try_from(payload.len()).expect("short");
        let mut out = [&name[..], &size.to_le_bytes(), payload].concat();
        out.resize(out.len().next_multiple_of(2), 0);
        out
    }

    fn file(chunks: &[Vec<u8>]) -> Vec<u8> {
        let body = chunks.concat();
        let size = u32::try_from(body.len() + 4).expect("short");
        [&b"RIFF"[..], &size.to_le_bytes(), b"WEBP", &body].concat()
    }

    fn canvas(width: u8, height: u8) -> Vec<u8> {
        chunk(*b"VP8X", &[0, 0, 0, 0, width - 1, 0, 0, height - 1, 0, 0])
    }

    fn lossy(width: u16, height: u16) -> Vec<u8> {
        let ([w0, w1], [h0, h1]) = (width.to_le_bytes(), height.to_le_bytes());
        chunk(*b"VP8 ", &[0x10, 0, 0, 0x9D, 1, 0x2A, w0, w1, h0, h1, 0])
    }

    /// What is said of a chunk that ends beyond the file.
    fn cut(name: &str, size: u32, there: usize) -> Result<(), DecodeError> {
        let text = format!("the WebP's {name} chunk has {size} bytes, of which {there} are there");
        Err(DecodeError::Truncated(text))
    }

    #[test]
    fn chunks_end_within_the_file() {
        let huge = [&b"EXIF"[..], &u32::MAX.to_le_bytes(), b"MM"].concat();
        let good = [canvas(32, 16), lossy(32, 16), chunk(*b"EXIF", b"odd")];
        assert_eq!(check(&file(&good)), Ok(()));
        assert_eq!(check(&file(&[&good[..2], &[huge]].concat())), cut("EXIF", u32::MAX, 2));

        let mut short = file(&[lossy(32, 16)]);
        assert_eq!(check(&short), Ok(()));
        short.truncate(short.len() - 2);
        assert_eq!(check(&short), cut("VP8 ", 11, 10));
        // Without its padding.
        let mut odd = file(&good);
        odd.truncate(odd.len() - 1);
        assert_eq!(check(&odd), Ok(()));
        for length in 0..odd.len() {
            assert!(!matches!(check(&odd[..length]), Err(DecodeError::Malformed(_))), "{length}");
        }
    }

    #[test]
    fn what_follows_the_picture_is_let_be() {
        let junk = b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF".to_vec();
        assert_eq!(check(&file(&[canvas(32, 16), lossy(32, 16), junk.clone()])), Ok(()));
        assert_eq!(check(&file(&[lossy(32, 16), junk])), Ok(()));
    }

    #[test]
    fn a_picture_is_of_the_declared_size() {
        // With the bits for its display set.
        assert_eq!(check(&file(&[canvas(32, 16), lossy(0x4000 | 32, 0x8000 | 16)])), Ok(()));
        let text = "the WebP is declared 32x16, the picture in it is 16383x16383";
        assert_eq!(
            check(&file(&[canvas(32, 16), lossy(16383, 16383)])),
            Err(DecodeError::Malformed(text.into()))
        );
        for parts in [[chunk(*b"VP8X", b""), lossy(1, 1)], [canvas(1, 1), chunk(*b"VP8 ", b"")]] {
            assert!(matches!(check(&file(&parts)), Err(DecodeError::Malformed(_))));
        }
    }

    #[test]
    fn animations_are_refused() {
        for name in [*b"ANIM", *b"ANMF"] {
            let file = file(&[canvas(32, 16), chunk(name, &[0; 32])]);
            assert!(matches!(check(&file), Err(DecodeError::Unsupported(_))));
        }
    }
}
