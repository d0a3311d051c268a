//! JPEG files one after the other in a stream of bytes.
//!
//! Where a file ends follows from its markers alone: segments give their length, and within the
//! entropy-coded data of a scan a byte FF is always followed by 00 or a restart marker (ITU-T T.81,
//! B.1.1). Looking for the bytes FF D9 would cut files at their thumbnails and comments.

/// Why bytes are no row of JPEG files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    /// A file does not begin as one.
    #[error("byte {0} begins no JPEG file")]
    Start(u64),
    /// A marker is missing, or means nothing there.
    #[error("byte {0} is no marker of a JPEG file")]
    Marker(u64),
    /// A segment is shorter than its own length field.
    #[error("byte {0} ends a segment before it begins")]
    Length(u64),
    /// The bytes end within a file.
    #[error("the last picture is incomplete")]
    Incomplete,
}

const PREFIX: u8 = 0xFF;
/// Follows [`PREFIX`] in entropy-coded data where that is meant as it is.
const STUFFED: u8 = 0x00;
const TEMPORARY: u8 = 0x01;
const FIRST_RESTART: u8 = 0xD0;
const LAST_RESTART: u8 = 0xD7;
const START_OF_IMAGE: u8 = 0xD8;
const END_OF_IMAGE: u8 = 0xD9;
const START_OF_SCAN: u8 = 0xDA;

/// What the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The first byte of a file.
    First,
    /// The second one.
    Second,
    /// The prefix of a marker.
    Prefix,
    /// A marker after its prefix, or another prefix.
    Marker,
    /// The high byte of a segment's length; whether the segment begins a scan.
    LengthHigh(bool),
    /// The low byte.
    LengthLow(bool, u8),
    /// Within a segment, of which so many bytes follow.
    Segment(bool, u16),
    /// Within the entropy-coded data of a scan.
    Scan,
    /// After a byte FF in it.
    ScanPrefix,
}

/// Cuts bytes, in pieces of any size, into JPEG files.
#[derive(Debug)]
pub(super) struct Splitter {
    state: State,
    file: Vec<u8>,
    /// Bytes taken so far.
    taken: u64,
}

impl Splitter {
    pub(super) fn new() -> Self {
        Self { state: State::First, file: Vec::new(), taken: 0 }
    }

    /// Takes the next piece and appends the files that end in it to `files`.
    pub(super) fn push(&mut self, piece: &[u8], files: &mut Vec<Vec<u8>>) -> Result<(), Broken> {
        let mut begin = 0;
        for (index, &byte) in piece.iter().enumerate() {
            let ended = byte == END_OF_IMAGE && self.state.in_marker();
            self.state = self.state.after(byte, self.taken + index as u64)?;
            if ended {
                self.file.extend_from_slice(&piece[begin..=index]);
                files.push(std::mem::take(&mut self.file));
                begin = index + 1;
            }
        }
        self.file.extend_from_slice(&piece[begin..]);
        self.taken += piece.len() as u64;
        Ok(())
    }

    /// Whether the bytes ended where a file does.
    pub(super) fn finish(&self) -> Result<(), Broken> {
        if self.state == State::First { Ok(()) } else { Err(Broken::Incomplete) }
    }

    /// Bytes of the file that is not complete yet.
    pub(super) fn pending(&self) -> usize {
        self.file.len()
    }
}

impl State {
    /// Whether the next byte may be a marker's second one.
    fn in_marker(self) -> bool {
        matches!(self, Self::Marker | Self::ScanPrefix)
    }

    /// The state after `byte`, which is number `at` of all.
    fn after(self, byte: u8, at: u64) -> Result<Self, Broken> {
        Ok(match (self, byte) {
            (Self::First, PREFIX) => Self::Second,
            (Self::Second, START_OF_IMAGE) => Self::Prefix,
            (Self::First | Self::Second, _) => return Err(Broken::Start(at)),
            // Any number of prefixes may stand before a marker.
            (Self::Prefix | Self::Marker, PREFIX) => Self::Marker,
            (Self::Prefix, _) => return Err(Broken::Marker(at)),
            (Self::Scan | Self::ScanPrefix, PREFIX) => Self::ScanPrefix,
            (Self::Scan, _) | (Self::ScanPrefix, STUFFED | FIRST_RESTART..=LAST_RESTART) => {
                Self::Scan
            }
            (Self::Marker | Self::ScanPrefix, END_OF_IMAGE) => Self::First,
            (Self::Marker, TEMPORARY | FIRST_RESTART..=LAST_RESTART) => Self::Prefix,
            (Self::Marker | Self::ScanPrefix, STUFFED | TEMPORARY | START_OF_IMAGE) => {
                return Err(Broken::Marker(at));
            }
            (Self::Marker | Self::ScanPrefix, marker) => Self::LengthHigh(marker == START_OF_SCAN),
            (Self::LengthHigh(scan), high) => Self::LengthLow(scan, high),
            (Self::LengthLow(scan, high), low) => {
                // The length counts its own two bytes.
                let rest = u16::from_be_bytes([high, low]).checked_sub(2);
                Self::within(scan, rest.ok_or(Broken::Length(at))?)
            }
            (Self::Segment(scan, rest), _) => Self::within(scan, rest - 1),
        })
    }

    fn within(scan: bool, rest: u16) -> Self {
        match (rest, scan) {
            (0, true) => Self::Scan,
            (0, false) => Self::Prefix,
            _ => Self::Segment(scan, rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(bytes: &[u8], pieces: usize) -> Result<Vec<Vec<u8>>, Broken> {
        let mut splitter = Splitter::new();
        let mut files = Vec::new();
        for piece in bytes.chunks(pieces) {
            splitter.push(piece, &mut files)?;
        }
        splitter.finish()?;
        Ok(files)
    }

    fn encoded(seed: u8) -> Vec<u8> {
        let noise = |x: u32, y: u32| {
            let mixed = crate::random::hash(seed.into(), x.into(), y.into()).to_le_bytes();
            image::Rgb([mixed[0], mixed[1], mixed[2]])
        };
        let mut bytes = std::io::Cursor::new(Vec::new());
        image::RgbImage::from_fn(40, 24, noise)
            .write_to(&mut bytes, image::ImageFormat::Jpeg)
            .unwrap();
        bytes.into_inner()
    }

    #[test]
    fn real_files_come_out_as_they_went_in() {
        let files: Vec<_> = (0..5).map(encoded).collect();
        let stuffed = |file: &Vec<u8>| file.windows(2).any(|pair| pair == [PREFIX, STUFFED]);
        assert!(files.iter().any(stuffed), "noise has bytes FF in its scan");
        for pieces in [1, 7, 100, 100_000] {
            assert_eq!(split(&files.concat(), pieces).unwrap(), files);
        }
        assert_eq!(split(&[], 1), Ok(Vec::new()));
    }

    #[test]
    fn a_thumbnail_and_a_comment_do_not_end_a_file() {
        let (inner, outer) = (encoded(1), encoded(2));
        let length = (inner.len() as u16 + 2).to_be_bytes();
        let comment = [&[PREFIX, 0xFE, 0, 4, PREFIX, END_OF_IMAGE], &outer[2..]].concat();
        let thumbnail = [&[PREFIX, 0xE1], &length[..], &inner].concat();
        let file = [&outer[..2], &thumbnail, &comment].concat();
        assert_eq!(split(&[&file[..], &inner].concat(), 3).unwrap(), [file, inner]);
    }

    #[test]
    fn several_scans_restarts_and_fill_bytes_are_one_file() {
        let scan = [PREFIX, START_OF_SCAN, 0, 3, 9];
        let data = [1, PREFIX, STUFFED, END_OF_IMAGE, PREFIX, 0xD3, 2, PREFIX, PREFIX];
        let table = [0xC4, 0, 2];
        let file = [
            &[PREFIX, START_OF_IMAGE, PREFIX, PREFIX, TEMPORARY][..],
            &scan,
            &data,
            &table,
            &scan,
            &[PREFIX, END_OF_IMAGE],
        ]
        .concat();
        assert_eq!(split(&[&file[..], &file].concat(), 1).unwrap(), [file.clone(), file]);
    }

    #[test]
    fn what_is_no_jpeg_is_told() {
        assert_eq!(split(b"GIF89a", 9), Err(Broken::Start(0)));
        assert_eq!(split(&[PREFIX, START_OF_IMAGE, 7], 9), Err(Broken::Marker(2)));
        assert_eq!(split(&[PREFIX, START_OF_IMAGE, PREFIX, STUFFED], 9), Err(Broken::Marker(3)));
        let empty = [PREFIX, START_OF_IMAGE, PREFIX, 0xE0, 0, 1];
        assert_eq!(split(&empty, 9), Err(Broken::Length(5)));
        let file = encoded(1);
        assert_eq!(split(&file[..file.len() - 1], 9), Err(Broken::Incomplete));
        assert_eq!(split(&[&file[..], b"x"].concat(), 9), Err(Broken::Start(file.len() as u64)));
    }

    /// A well-formed file of any segments and any scan.
    fn any_file() -> impl Strategy<Value = Vec<u8>> {
        let segment = (0xE0u8..=0xFE, prop::collection::vec(any::<u8>(), 0..300));
        let segments = prop::collection::vec(segment, 0..6);
        (segments, prop::collection::vec(any::<u8>(), 0..500)).prop_map(|(segments, scan)| {
            let mut file = vec![PREFIX, START_OF_IMAGE];
            for (marker, bytes) in segments {
                file.extend([PREFIX, marker]);
                file.extend((bytes.len() as u16 + 2).to_be_bytes());
                file.extend(bytes);
            }
            file.extend([PREFIX, START_OF_SCAN, 0, 2]);
            for byte in scan {
                file.push(byte);
                if byte == PREFIX {
                    file.push(STUFFED);
                }
            }
            file.extend([PREFIX, END_OF_IMAGE]);
            file
        })
    }

    proptest! {
        #[test]
        fn files_of_any_content_in_any_pieces(
            files in prop::collection::vec(any_file(), 0..5),
            pieces in 1usize..700,
        ) {
            prop_assert_eq!(split(&files.concat(), pieces), Ok(files));
        }

        #[test]
        fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let jpeg = [&[PREFIX, START_OF_IMAGE], &bytes[..]].concat();
            let _ = split(&jpeg, 5);
        }
    }
}
