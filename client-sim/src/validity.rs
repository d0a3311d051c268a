//! Whether a run says anything about the server, or only about the simulator.

use crate::{
    report::schema::{SelfTestFigures, SimulatorFigures, Verdict},
    verdict::{Judgement, Limits},
};

/// Largest acceptable wake-up lateness of 99 % of the frames, as a share of the limit on latency.
/// Later than that, the fleet that was simulated is not the one that was asked for.
const MOST_WAKE_LATENESS: f64 = 0.25;

/// Share of a core from which a thread of the simulator counts as used up. A thread that waits for
/// nothing but the processor does not get much more than this beside other work.
const USED_UP: f64 = 0.95;

/// The verdict on a run and its reasons. Slow answers do not count against the server when the
/// simulator is to blame for them; then nothing is known about the server.
#[must_use]
pub fn settle(
    judgement: &Judgement,
    simulator: &SimulatorFigures,
    limits: &Limits,
    over_slo: u64,
) -> (Verdict, Vec<String>) {
    let blame = blame(judgement, simulator, limits, over_slo);
    if !blame.is_empty() {
        return (Verdict::Invalid, blame.into_iter().chain(judgement.reasons()).collect());
    }
    let verdict = if judgement.passed() { Verdict::Pass } else { Verdict::Fail };
    (verdict, judgement.reasons())
}

/// What the simulator did wrong, if it matters.
fn blame(
    judgement: &Judgement,
    simulator: &SimulatorFigures,
    limits: &Limits,
    over_slo: u64,
) -> Vec<String> {
    let mut blame = Vec::new();
    let late = simulator.wake_lateness_ms.p99.unwrap_or(0.0);
    let most = MOST_WAKE_LATENESS * limits.slo_max_ms;
    if late > most {
        blame.push(format!(
            "the simulator itself was late: its cameras woke up to {late:.1} ms after their time \
             (p99; at most {most:.1})"
        ));
    }
    // What follows explains slow answers only; a server that lost frames has failed in any case.
    if judgement.slow.is_empty() || !judgement.other.is_empty() {
        return blame;
    }
    if over_slo > 0 && simulator.over_slo_by_itself == over_slo {
        blame.push(format!(
            "all {over_slo} answers over the limit were sent late by the simulator itself"
        ));
    }
    if let Some(share) = simulator.busiest_thread_share.filter(|share| *share >= USED_UP) {
        blame.push(format!(
            "the simulator's busiest thread used {:.0} % of a core; give it --threads, or split the \
             fleet over machines and merge the reports",
            share * 100.0
        ));
    }
    if let Some(test) = simulator.self_test.as_ref().filter(|test| !holds(test, limits)) {
        blame.push(format!(
            "against a server that answers at once the simulator needed up to {:.1} ms itself",
            test.max_ms.unwrap_or(f64::INFINITY)
        ));
    }
    blame
}

/// Whether the simulator alone keeps the limits. What it had at 99 % it had at every higher
/// percentile at least; of lower ones nothing is known.
pub(crate) fn holds(test: &SelfTestFigures, limits: &Limits) -> bool {
    let mut high = limits.percentiles.iter().filter(|limit| limit.percentile >= 99.0);
    test.ok == test.sent
        && test.max_ms.is_some_and(|ms| ms <= limits.slo_max_ms)
        && high.all(|limit| test.p99_ms <= Some(limit.limit_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::schema::{LatenessFigures, PercentileLimit};

    const SLOW: &str = "slowest answer 134.0 ms > 100 ms at sim-0001";

    fn settled(slow: bool, other: bool, change: impl FnOnce(&mut SimulatorFigures)) -> Verdict {
        let mut simulator = SimulatorFigures { threads: 1, ..SimulatorFigures::default() };
        simulator.wake_lateness_ms = LatenessFigures { p99: Some(1.0), max: Some(9.0) };
        simulator.busiest_thread_share = Some(0.4);
        change(&mut simulator);
        let reasons = |there: bool| if there { vec![SLOW.to_owned()] } else { Vec::new() };
        let judgement = Judgement { slow: reasons(slow), other: reasons(other) };
        let limits = Limits { slo_max_ms: 100.0, percentiles: Vec::new(), min_answered_ratio: 1.0 };
        let (verdict, why) = settle(&judgement, &simulator, &limits, u64::from(slow) * 4);
        assert_eq!(verdict == Verdict::Pass, why.is_empty(), "{why:?}");
        verdict
    }

    fn self_test(max_ms: f64) -> SelfTestFigures {
        SelfTestFigures {
            cameras: 1,
            seconds: 1.0,
            sent: 10,
            ok: 10,
            p99_ms: Some(max_ms),
            max_ms: Some(max_ms),
            cpu_cores: 0.1,
        }
    }

    #[test]
    fn a_simulator_in_time_leaves_the_verdict_alone() {
        assert_eq!(settled(false, false, |_| ()), Verdict::Pass);
        assert_eq!(settled(true, false, |_| ()), Verdict::Fail);
        assert_eq!(settled(true, false, |sim| sim.over_slo_by_itself = 3), Verdict::Fail);
        assert_eq!(
            settled(true, false, |sim| sim.self_test = Some(self_test(99.0))),
            Verdict::Fail
        );
    }

    #[test]
    fn a_simulator_alone_must_keep_limits_on_high_percentiles_too() {
        let holds_with = |percentile, limit_ms| {
            let limit = PercentileLimit { percentile, limit_ms, ms: None };
            let percentiles = vec![limit];
            holds(
                &self_test(60.0),
                &Limits { slo_max_ms: 100.0, percentiles, min_answered_ratio: 1.0 },
            )
        };
        assert!(holds_with(99.0, 60.0) && holds_with(99.9, 70.0));
        assert!(!holds_with(99.0, 50.0) && !holds_with(99.9, 50.0));
        assert!(holds_with(50.0, 10.0), "nothing is known of its median");
    }

    #[test]
    fn a_simulator_that_wakes_late_invalidates_even_a_pass() {
        let late = |sim: &mut SimulatorFigures| sim.wake_lateness_ms.p99 = Some(25.1);
        assert_eq!(settled(false, false, late), Verdict::Invalid);
        assert_eq!(settled(true, true, late), Verdict::Invalid);
    }

    #[test]
    fn slow_answers_that_the_simulator_explains_are_not_the_server_s() {
        let by_itself = |sim: &mut SimulatorFigures| sim.over_slo_by_itself = 4;
        let used_up = |sim: &mut SimulatorFigures| sim.busiest_thread_share = Some(0.97);
        let slow_alone = |sim: &mut SimulatorFigures| sim.self_test = Some(self_test(130.0));
        for change in [by_itself, used_up, slow_alone] {
            assert_eq!(settled(true, false, change), Verdict::Invalid);
            assert_eq!(settled(true, true, change), Verdict::Fail, "frames were lost too");
            assert_eq!(settled(false, false, change), Verdict::Pass);
        }
    }
}
