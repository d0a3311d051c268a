//! The server from outside: one module per scenario, all in one program to link it once.

mod bare_contract;
mod cases;
mod common;
mod connections;
mod fuzz_crashes;
mod jpeg_decode;
mod lifecycle;
mod raw_frames;
mod scheduling;
mod streams;
mod yolox_reference;
