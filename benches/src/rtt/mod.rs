//! Transport: what gRPC and scheduling cost by themselves, and HTTP/2 windows over a long line.

mod delay;
mod grpc;

use crate::{
    cli::{RttArgs, RttPart},
    context::{Context, Findings},
    error::BenchError,
};

/// Runs the parts asked for.
///
/// # Errors
/// When one cannot run.
pub async fn run(ctx: &Context, args: &RttArgs) -> Result<Findings, BenchError> {
    let asked = |part| args.parts.is_empty() || args.parts.contains(&part);
    let mut findings = Findings::default();
    if asked(RttPart::Grpc) {
        findings.add(grpc::run(ctx).await?);
    }
    if asked(RttPart::Delay) {
        findings.add(delay::run(ctx, args).await?);
    }
    Ok(findings)
}
