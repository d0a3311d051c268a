//! What a PNG's first chunks say, read before the decoder believes it.

use super::DecodeError;

/// Bytes of a chunk's length and type, and of its checksum.
const CHUNK_HEAD: usize = 8;
const CHUNK_TAIL: usize = 4;

/// The colour type of pictures whose pixels are numbers of colours (PNG specification, 11.2.1).
const INDEXED: u8 = 3;

/// Most colours that a palette holds (11.2.2).
const COLOURS: usize = 256;

/// Width and height out of the first chunk (11.2.1).
pub(super) fn size(data: &[u8]) -> Option<(u32, u32)> {
    if data.get(12..16) != Some(b"IHDR") {
        return None;
    }
    Some((number(data, 16)?, number(data, 20)?))
}

/// Checks that an indexed picture's palette is a number of whole colours, which the decoder takes for
/// granted.
///
/// # Errors
/// [`DecodeError::Malformed`] if it is not.
pub(super) fn check_palette(data: &[u8]) -> Result<(), DecodeError> {
    if data.get(25) != Some(&INDEXED) {
        return Ok(());
    }
    let mut rest = data.get(8..).unwrap_or_default();
    while let (Some(length), Some(kind)) = (number(rest, 0), rest.get(4..CHUNK_HEAD)) {
        let length = length as usize;
        match kind {
            b"PLTE" if !length.is_multiple_of(3) || length > 3 * COLOURS => {
                return Err(DecodeError::Malformed(format!(
                    "the PNG's palette has {length} bytes; each of its up to {COLOURS} colours has 3"
                )));
            }
            b"PLTE" | b"IDAT" => return Ok(()),
            _ => {
                let next = length.saturating_add(CHUNK_HEAD + CHUNK_TAIL);
                rest = rest.get(next..).unwrap_or_default();
            }
        }
    }
    Ok(())
}

/// Four bytes, the highest first.
fn number(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(kind: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("short");
        [&length.to_be_bytes()[..], &kind, payload, &[0; CHUNK_TAIL]].concat()
    }

    fn file(colour_type: u8, palette: usize) -> Vec<u8> {
        let header = [0, 0, 2, 1, 0, 0, 1, 3, 8, colour_type, 0, 0, 0];
        let parts = [
            b"\x89PNG\r\n\x1a\n".to_vec(),
            chunk(*b"IHDR", &header),
            chunk(*b"gAMA", &[0; 4]),
            chunk(*b"PLTE", &vec![0; palette]),
            chunk(*b"IDAT", b""),
        ];
        parts.concat()
    }

    #[test]
    fn sizes_stand_at_a_fixed_place() {
        let file = file(2, 0);
        assert_eq!(size(&file), Some((0x201, 0x103)));
        assert_eq!(size(&file[..23]), None);
        assert_eq!(size(&[0; 30]), None);
    }

    #[test]
    fn palettes_hold_whole_colours() {
        for palette in [3, 48, 768] {
            assert_eq!(check_palette(&file(INDEXED, palette)), Ok(()), "{palette}");
        }
        for palette in [1, 49, 767, 771] {
            let text = format!(
                "MALFORMED: the PNG's palette has {palette} bytes; each of its up to 256 colours has 3"
            );
            let error = check_palette(&file(INDEXED, palette)).expect_err("not whole");
            assert_eq!(error.to_string(), text);
            // In pictures of other types it is a hint that nobody reads.
            assert_eq!(check_palette(&file(2, palette)), Ok(()), "{palette}");
        }
    }

    #[test]
    fn chunks_may_say_anything() {
        let whole = file(INDEXED, 48);
        for length in 0..whole.len() {
            assert_eq!(check_palette(&whole[..length]), Ok(()), "{length}");
        }
        let mut endless = file(INDEXED, 49);
        endless[33..37].fill(0xFF);
        assert_eq!(check_palette(&endless), Ok(()));
    }
}
