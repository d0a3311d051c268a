//! Any bytes as a picture file.

#![no_main]

use std::cell::RefCell;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use vedette_fuzz::Decoders;
use vedette_server::frame::{Layout, Picture};

thread_local! {
    static DECODERS: RefCell<Decoders> = RefCell::default();
}

fuzz_target!(|bytes: &[u8]| {
    let picture = Picture { data: Bytes::copy_from_slice(bytes), layout: Layout::Encoded };
    DECODERS.with_borrow_mut(|decoders| decoders.check(&picture));
});
