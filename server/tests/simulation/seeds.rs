//! A thousand runs, each drawn from its seed.

use std::fmt::Write as _;

use vedette_server::clock;

use crate::{
    plan::Plan,
    run::run,
    situations::{Seen, Situation},
};

/// Runs unless `VEDETTE_SIM_SEEDS` says otherwise.
const SEEDS: u64 = 1000;

/// How often, at least, each situation must have been met in so many runs: a tenth of what it is, so that
/// a change of the plans that keeps one out is noticed.
const MET: u64 = 20;

/// A whole number from the environment.
fn from_environment(name: &str) -> Option<u64> {
    #[expect(
        clippy::disallowed_methods,
        reason = "how a run of the test program is asked for a seed"
    )]
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a whole number")))
}

/// Runs a seed. Returns its events and situations, or what a person needs to see of its failure.
fn try_seed(seed: u64) -> Result<(u64, Seen), String> {
    let run = run(Plan::draw(seed));
    let trace = run.world.trace.borrow();
    let Some(failure) = run.failure else { return Ok((trace.count(), *run.world.seen.borrow())) };
    let plan = &run.world.plan;
    let mut report = format!("simulation: seed {seed}: {failure}\n");
    let _ = writeln!(
        report,
        "replay: VEDETTE_SIM_SEED={seed} cargo test -p vedette-server --test simulation seeds::seeds"
    );
    let _ = writeln!(
        report,
        "{} workers, batch {}, {} cameras, {} places, shutdown at {:?}; the last of {} events \
         (trace {:016x}):",
        plan.workers,
        plan.batch,
        plan.cameras.len(),
        plan.max_cameras,
        plan.shutdown,
        trace.count(),
        trace.hash()
    );
    report += &trace.end();
    Err(report)
}

/// Every rule of `rules.rs` holds in every run.
#[test]
fn seeds() {
    let (first, seeds) = match from_environment("VEDETTE_SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (
            from_environment("VEDETTE_SIM_FIRST").unwrap_or_default(),
            from_environment("VEDETTE_SIM_SEEDS").unwrap_or(SEEDS),
        ),
    };
    let start = clock::now();
    let (mut events, mut seen) = (0, Seen::default());
    for seed in first..first.saturating_add(seeds) {
        match try_seed(seed) {
            Ok((more, met)) => {
                events += more;
                seen.add(&met);
            }
            Err(report) => panic!("{report}"),
        }
    }
    let took = clock::now().saturating_duration_since(start);
    println!(
        "simulation: {seeds} seeds, {:.1} million events, {:.1} s",
        events as f64 / 1e6,
        took.as_secs_f64()
    );
    for situation in Situation::ALL {
        let times = seen.count(situation);
        println!("{times:>9} {situation:?}");
    }
    let rare = Situation::ALL.into_iter().find(|situation| seen.count(*situation) < MET);
    assert!(seeds < SEEDS || rare.is_none(), "{rare:?} was met less than {MET} times");
}

/// A seed decides everything: run again, the same happens at the same instants.
#[test]
fn a_seed_replays() {
    for seed in 0..20 {
        let hashes = [(); 2].map(|()| {
            let run = run(Plan::draw(seed));
            assert_eq!(run.failure, None, "seed {seed}");
            let trace = run.world.trace.borrow();
            (trace.count(), trace.hash())
        });
        assert_eq!(hashes[0], hashes[1], "seed {seed} did not replay");
    }
    let hash = |seed| run(Plan::draw(seed)).world.trace.borrow().hash();
    assert_ne!(hash(1), hash(2), "two seeds are two runs");
}
