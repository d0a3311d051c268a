#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vedette_fuzz::Target::Decode.check(data));
