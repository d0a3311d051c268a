//! The `camera_ai` contract as first published, for the test that its clients are still served.

/// Package `camera_ai`, client only.
pub mod camera_ai {
    #![expect(
        missing_docs,
        clippy::pedantic,
        clippy::allow_attributes_without_reason,
        reason = "generated code"
    )]
    tonic::include_proto!("camera_ai");
}
