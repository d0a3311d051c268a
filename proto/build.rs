//! Generates the contract's Rust code with protox, so that no system `protoc` is needed.

use std::{error::Error, fs, path::PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=camera_ai.proto");
    let descriptors = protox::compile(["camera_ai.proto"], ["."])?;
    #[expect(clippy::disallowed_methods, reason = "cargo tells a build script its folder this way")]
    let out_dir = PathBuf::from(std::env::var("OUT_DIR")?);
    fs::write(out_dir.join("camera_ai.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // Frames are handed through as reference-counted slices of the receive buffer, not copied.
        .bytes(".camera_ai.DetectRequest.image_data")
        .compile_fds(descriptors)?;
    Ok(())
}
