//! One request's message, without the five bytes that gRPC puts before it.

use bytes::Bytes;
use prost::Message as _;
use vedette_proto::camera_ai::{DetectRequest, PixelFormat};
use vedette_server::{
    frame::{CameraId, Layout, Picture},
    limits::CAMERA_ID_CHARS,
};

use super::picture::{LIMITS, check_frame};

pub(crate) fn check(data: &[u8]) {
    check_camera_id(data);
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

/// A name that comes with a stream is taken as it is or not at all.
fn check_camera_id(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(name) = CameraId::parse(text) else { return };
    assert_eq!(name.to_string(), text);
    assert!((1..=CAMERA_ID_CHARS).contains(&text.len()) && !text.contains(['/', ' ', '\n']));
}
