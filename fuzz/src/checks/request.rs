//! One request's message, without the five bytes that gRPC puts before it; and the same bytes as the body of
//! a stream, cut up as a network does.

use std::collections::VecDeque;

use bytes::Bytes;
use prost::Message as _;
use vedette_proto::camera_ai::{DetectRequest, PixelFormat};
use vedette_server::{
    frame::{CameraId, Layout, Picture},
    intake::{Framing, Meter},
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

/// Most bytes that a dropped message leaves: a prefix, a tag and the longest number.
const STUB_BYTES: usize = 5 + 1 + 10;

/// What is kept of a body comes through as it is; what is dropped leaves next to nothing. The first byte says
/// how long the pieces are.
fn check_framing(data: &[u8]) {
    let Some((&piece, body)) = data.split_first() else { return };
    for shed in [false, true] {
        let (mut framing, mut out) = (Framing::default(), VecDeque::new());
        let mut asked = 0;
        for chunk in body.chunks(usize::from(piece).max(1)) {
            framing.feed(&Bytes::copy_from_slice(chunk), &mut out, |_, _| {
                asked += 1;
                if shed { Meter::Shed } else { Meter::Keep }
            });
        }
        let amid = framing.amid();
        assert_eq!(framing.messages(), asked);
        let rest = framing.end();
        let whole: Vec<u8> = out.into_iter().chain(rest.clone()).flatten().collect();
        if shed {
            assert!(whole.len() <= STUB_BYTES * (asked as usize + 1));
            assert_eq!(rest.is_some(), amid, "an end in the middle shows");
        } else {
            assert_eq!(whole, body);
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
