//! The whole server, as a process of its own, against L.

mod closed;
mod open;
mod spin;

use crate::{
    cli::{ServerArgs, ServerPart},
    context::{Context, Findings},
    error::BenchError,
    report::Mark,
};

/// Runs the parts asked for.
///
/// # Errors
/// When one cannot run.
pub async fn run(ctx: &Context, args: &ServerArgs) -> Result<Findings, BenchError> {
    let asked = |part| args.parts.is_empty() || args.parts.contains(&part);
    let mut findings = Findings::default();
    if asked(ServerPart::Closed) || asked(ServerPart::Open) {
        ctx.say("loading the model");
        let capacity = ctx.capacity().await?;
        if asked(ServerPart::Closed) {
            findings.add(closed::run(ctx, &capacity, args.streams).await?);
        }
        if asked(ServerPart::Open) {
            findings.add(open::run(ctx, &capacity, &args.load_ratios).await?);
        }
    }
    if asked(ServerPart::Spin) {
        findings.add(spin::phases(ctx).await?);
    }
    if asked(ServerPart::Memory) {
        findings.add(spin::memory(ctx).await?);
    }
    Ok(findings)
}

/// A mark on something that could not be tried.
fn untried(promise: &str, why: &str) -> Mark {
    Mark::majority(promise, &[], why).for_information()
}
