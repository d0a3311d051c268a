//! Generates the contract's Rust code with protox, so that no system `protoc` is needed.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=camera_ai.proto");
    let descriptors = protox::compile(["camera_ai.proto"], ["."])?;
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out_dir.join("camera_ai.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // Frames are handed through as reference-counted slices of the receive buffer, not copied.
        .bytes(".camera_ai.DetectRequest.image_data")
        .compile_fds(descriptors)?;
    Ok(())
}
