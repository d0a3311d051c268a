//! The server from outside: one module per scenario, all in one program to link it once.

mod bare_contract;
mod cases;
mod common;
mod connections;
mod faults;
mod fuzz_crashes;
mod jpeg_decode;
mod lifecycle;
mod live;
mod operations;
mod overload;
mod raw_frames;
mod security;
mod streams;
mod traces;
mod yolox_reference;
