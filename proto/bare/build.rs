//! Generates a client of the first contract.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=camera_ai.proto");
    let descriptors = protox::compile(["camera_ai.proto"], ["."])?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    Ok(())
}
