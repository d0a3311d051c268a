//! One request's message, without the five bytes that gRPC puts before it; and the same bytes as the body of
//! a stream, cut up as a network does.

use std::collections::VecDeque;

use bytes::Bytes;
use prost::Message as _;
use vedette_proto::camera_ai::{DetectRequest, PixelFormat};
use vedette_server::{
    frame::{CameraId, Layout, Picture},
    intake::{Framing, Meter, Seen},
    limits::CAMERA_ID_CHARS,
};

use super::picture::{LIMITS, check_frame};

pub(crate) fn check(data: &[u8]) {
    check_camera_id(data);
    check_framing(data);
    let Ok(request) = DetectRequest::decode(Bytes::copy_from_slice(data)) else { return };
    let again = DetectRequest::decode(Bytes::from(request.encode_to_vec()));
    assert_eq!(again.as_ref(), Ok(&request), "written and read again");

    let picture = Picture::from_request(request.clone());
    assert_eq!(picture.data, request.image_data);
    match (picture.layout, request.format()) {
        (Layout::Unknown(number), _) => {
            assert!(PixelFormat::try_from(number).is_err() && number == request.format);
        }
        (Layout::Encoded, format) => assert_eq!(format, PixelFormat::Encoded),
        (Layout::Raw(spec), format) => {
            assert_eq!(
                (spec.width, spec.height, spec.stride),
                (request.width, request.height, request.stride)
            );
            assert_eq!(format!("{}", spec.format), format.as_str_name());
        }
    }
    check_frame(&picture, LIMITS);
}

/// Bytes before a message.
const PREFIX_BYTES: usize = 5;

/// Most bytes that a dropped message leaves: a prefix, a tag and the longest number.
const STUB_BYTES: usize = PREFIX_BYTES + 1 + 10;

/// What is kept of a body comes through as it is, message by message; what is dropped leaves next to nothing.
/// The first byte says how long the pieces are, and how many bytes of a message there is room for.
fn check_framing(data: &[u8]) {
    let Some((&piece, body)) = data.split_first() else { return };
    for room in [0, u32::from(piece), u32::MAX] {
        let (mut framing, mut out) = (Framing::default(), VecDeque::new());
        let (mut begun, mut ended, mut kept) = (0, 0, 0);
        for chunk in body.chunks(usize::from(piece).max(1)) {
            let mut chunk = Bytes::copy_from_slice(chunk);
            while !chunk.is_empty() {
                let treated = framing.feed(&mut chunk, &mut out, |seen| {
                    begun += u64::from(matches!(seen, Seen::Prefix { .. }));
                    let (Seen::Prefix { length: bytes, .. } | Seen::Bytes(bytes)) = seen;
                    match seen {
                        // What is longer is found to be so as it comes.
                        Seen::Prefix { .. } if room > 0 => Meter::Keep,
                        _ if bytes <= room && room > 0 => Meter::Keep,
                        _ => Meter::Shed,
                    }
                });
                assert!(treated.is_some() || chunk.is_empty(), "all is taken but at an end");
                ended += u64::from(treated.is_some());
                kept += u64::from(treated == Some(Meter::Keep));
            }
        }
        let amid = framing.amid();
        assert_eq!(framing.messages(), begun);
        assert!(begun == ended || (amid && begun == ended + 1));
        let whole: Vec<u8> = out.into_iter().flatten().collect();
        assert_eq!(framing.end().is_some(), amid, "an end in the middle shows");
        if room == u32::MAX {
            assert!(body.starts_with(&whole) && kept == ended);
            assert!(amid || whole.len() == body.len());
        } else {
            let most = kept as usize * (PREFIX_BYTES + room as usize);
            assert!(whole.len() <= most + STUB_BYTES * (ended - kept) as usize);
        }
    }
}

/// A name that comes with a stream is taken as it is or not at all.
fn check_camera_id(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(name) = CameraId::parse(text) else { return };
    assert_eq!(name.to_string(), text);
    assert!((1..=CAMERA_ID_CHARS).contains(&text.len()) && !text.contains(['/', ' ', '\n']));
}
