//! Any bytes as the message of a request: protobuf, raw layouts with their geometry, and pictures.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use vedette_fuzz::Decoders;
use vedette_proto::camera_ai::DetectRequest;
use vedette_server::frame::Picture;

thread_local! {
    static DECODERS: RefCell<Decoders> = RefCell::default();
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = DetectRequest::decode(bytes) {
        let picture = Picture::from_request(request);
        DECODERS.with_borrow_mut(|decoders| decoders.check(&picture));
    }
});
