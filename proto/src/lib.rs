//! The `camera_ai` gRPC contract: messages, client and server, generated from `camera_ai.proto`.
//!
//! Units, ranges and guarantees are documented on the fields in the `.proto` file.

/// Package `camera_ai`.
pub mod camera_ai {
    #![expect(
        missing_docs,
        clippy::pedantic,
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        reason = "generated code; the .proto file carries the documentation"
    )]
    tonic::include_proto!("camera_ai");
}

/// The encoded `FileDescriptorSet` of the contract, for gRPC server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/camera_ai.bin"));

/// Metadata key under which a client names its camera.
pub const CAMERA_ID_KEY: &str = "camera-id";

/// Trailer of a stream ended by the server's shutdown: how many frames the server had read on it.
pub const ACCEPTED_FRAMES_KEY: &str = "accepted-frames";
