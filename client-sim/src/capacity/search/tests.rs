//! The search against simulated servers: sharp ones, noisy ones, drifting ones.

use proptest::prelude::*;

use super::*;
use crate::random;

const RULES: Rules = Rules { from: 1, max_cameras: 1000, repeats: 3 };

/// A server on a machine that is not always the same.
#[derive(Debug, Clone, Copy)]
struct Server {
    /// Cameras that it holds every other time.
    limit: f64,
    /// Cameras over which that turns from nearly always to nearly never.
    softness: f64,
    /// Share of the runs that fail for no reason.
    stalls: f64,
    /// Cameras by which the limit moves up and down in the course of a search.
    drift: f64,
    seed: u64,
}

impl Server {
    fn sharp(limit: u32) -> Self {
        Self { limit: f64::from(limit) + 0.5, softness: 0.0, stalls: 0.0, drift: 0.0, seed: 0 }
    }

    fn verdict(&self, cameras: u32, run: u64) -> Verdict {
        let draw = |use_| random::unit(random::hash(self.seed, run, use_));
        // A slow swing, a period of about 50 runs, beginning anywhere.
        let swing = (run as f64 / 8.0 + 6.3 * random::unit(random::hash(self.seed, 0, 9))).sin();
        let room = self.limit + self.drift * swing - f64::from(cameras);
        let holds = if self.softness > 0.0 {
            draw(0) < 1.0 / (1.0 + (-room / self.softness).exp())
        } else {
            room > 0.0
        };
        if holds && draw(1) >= self.stalls { Verdict::Pass } else { Verdict::Fail }
    }
}

/// Plays a search to its end.
fn play(rules: Rules, server: &Server) -> (Search, Ended) {
    let mut search = Search::new(rules);
    let bound = rules.most_steps() * (rules.repeats + MOST_INVALID);
    for run in 0..=u64::from(bound) {
        match search.next() {
            Next::Run { cameras, .. } => search.record(StepRun::of(server.verdict(cameras, run))),
            Next::Done(ended) => return (search, ended),
        }
    }
    panic!("no end after {bound} runs: {:?}", search.steps);
}

fn found(rules: Rules, server: &Server) -> u32 {
    play(rules, server).0.knowledge().found.unwrap()
}

/// How many of `seeds` searches came within `off` of the limit.
fn within(off: u32, seeds: u64, server: &Server) -> usize {
    let limit = server.limit.floor() as u32;
    let fine = |&seed: &u64| found(RULES, &Server { seed, ..*server }).abs_diff(limit) <= off;
    (0..seeds).filter(fine).count()
}

proptest! {
    #[test]
    fn a_sharp_limit_is_found_exactly(limit in 0..1200_u32, from in 1..300_u32, repeats in 1..6_u32) {
        let rules = Rules { from, repeats, ..RULES };
        let (search, ended) = play(rules, &Server::sharp(limit));
        let known = search.knowledge();
        prop_assert_eq!(known.found, Some(limit.min(1000)));
        prop_assert_eq!(known.sure, (limit > 0).then_some(limit.min(1000)));
        prop_assert_eq!(known.refuted, (limit < 1000).then_some(limit + 1));
        prop_assert_eq!(ended, if limit < 1000 { Ended::Slo } else { Ended::MaxCameras });
    }

    #[test]
    fn any_server_comes_to_an_end(
        limit in 0.0..200_f64, softness in 0.0..20_f64, stalls in 0.0..0.9_f64, drift in 0.0..40_f64,
        seed: u64, repeats in 1..5_u32,
    ) {
        let server = Server { limit, softness, stalls, drift, seed };
        let (search, _) = play(Rules { repeats, ..RULES }, &server);
        let known = search.knowledge();
        let found = known.found.unwrap();
        prop_assert!(known.sure.is_none_or(|n| n <= found) && known.refuted.is_none_or(|n| n > found));
    }

    #[test]
    fn a_search_that_was_put_away_goes_on_as_if_it_had_not(
        limit in 1..60_u32, seed: u64, pause in 0..60_usize,
    ) {
        let server = Server { stalls: 0.12, seed, ..Server::sharp(limit) };
        let (whole, _) = play(RULES, &server);
        let mut part = Search::new(RULES);
        for run in 0..200 {
            if run == pause as u64 {
                let text = serde_json::to_string(&part).unwrap();
                part = serde_json::from_str(&text).unwrap();
            }
            let Next::Run { cameras, .. } = part.next() else { break };
            part.record(StepRun::of(server.verdict(cameras, run)));
        }
        prop_assert_eq!(part, whole);
    }
}

#[test]
fn stalls_move_the_result_by_a_camera_at_most() {
    for limit in [3, 15, 37, 64, 200] {
        for stalls in [0.10, 0.15] {
            let server = Server { stalls, ..Server::sharp(limit) };
            let (near, exact) = (within(1, 400, &server), within(0, 400, &server));
            assert!(near >= 384 && exact >= 380, "limit {limit}, {stalls} stalls: {near}, {exact}");
        }
    }
}

/// Fleets around the limit hold now and then, the limit swings, and some runs fail for no reason.
#[test]
fn three_searches_on_a_noisy_machine_agree_within_a_camera() {
    for (limit, softness, drift) in [(37.5, 0.3, 0.2), (37.5, 0.5, 0.5), (15.0, 0.4, 0.5)] {
        let server = Server { limit, softness, stalls: 0.08, drift, seed: 0 };
        let agree = |&three: &u64| {
            let all = [0, 1, 2].map(|k| found(RULES, &Server { seed: three * 3 + k, ..server }));
            all.iter().max().unwrap() - all.iter().min().unwrap() <= 1
        };
        let agreeing = (0..200).filter(agree).count();
        assert!(agreeing >= 180, "limit {limit}, softness {softness}: {agreeing} of 200");
    }
}

/// The runs of a search, as in `1:PP 2:PFP`.
fn log(search: &Search) -> String {
    let letters = |step: &StepFigures| {
        let runs: String = step.runs.iter().map(|run| &run.verdict.word()[..1]).collect();
        format!("{}:{runs}", step.cameras)
    };
    search.steps.iter().map(letters).collect::<Vec<_>>().join(" ")
}

/// Plays a search whose runs end as `script` says for their fleet, in order; then as for a limit of 5.
fn scripted(script: &[(u32, &[Verdict])]) -> (Search, Ended) {
    let mut search = Search::new(RULES);
    let mut taken = BTreeMap::new();
    loop {
        match search.next() {
            Next::Done(ended) => return (search, ended),
            Next::Run { cameras, .. } => {
                let at = taken.entry(cameras).or_insert(0_usize);
                let told = script.iter().find(|(n, _)| *n == cameras);
                let verdict = told.and_then(|(_, verdicts)| verdicts.get(*at)).copied();
                *at += 1;
                let usual = if cameras <= 5 { Verdict::Pass } else { Verdict::Fail };
                search.record(StepRun::of(verdict.unwrap_or(usual)));
            }
        }
    }
}

#[test]
fn a_step_ends_when_two_runs_agree() {
    use Verdict::{Fail, Pass};
    let (search, ended) = scripted(&[(4, &[Pass, Fail])]);
    assert_eq!(log(&search), "1:PP 2:PP 4:PFP 8:FF 6:FF 5:PP 5:PP 6:FF");
    assert_eq!(ended, Ended::Slo);
    assert_eq!(search.steps[0].phase, "grow");
    assert_eq!(search.steps[4].phase, "bisect");
    assert_eq!(search.steps[7].phase, "confirm");
}

#[test]
fn an_upper_bound_that_falls_lets_the_search_go_up_again() {
    use Verdict::{Fail, Pass};
    let (search, _) = scripted(&[(2, &[Fail, Fail])]);
    assert_eq!(log(&search), "1:PP 2:FF 1:PP 2:PP 3:PP 5:PP 9:FF 7:FF 6:FF 5:PP 6:FF");
    let (search, _) = scripted(&[(6, &[Fail, Pass, Pass])]);
    assert_eq!(search.knowledge().found, Some(5), "one lucky step is not believed");
}

#[test]
fn a_limit_on_which_runs_disagree_is_asked_a_third_time() {
    use Verdict::{Fail, Pass};
    let (search, _) = scripted(&[(6, &[Fail, Pass, Fail]), (5, &[Fail, Pass, Pass])]);
    assert_eq!(log(&search), "1:PP 2:PP 4:PP 8:FF 6:FPF 5:FPP 5:PP 5:PP 6:FF 6:FF");
    let known = search.knowledge();
    assert_eq!(known, Knowledge { found: Some(5), sure: Some(4), refuted: Some(8) });
}

#[test]
fn a_limit_between_two_cameras_is_weighed_in_the_end() {
    use Verdict::{Fail, Pass};
    let toss = [Pass, Pass, Fail, Fail].repeat(9);
    let (search, _) = scripted(&[(5, &toss)]);
    let known = search.knowledge();
    assert!(search.beliefs().reversals > MOST_REVERSALS, "{}", log(&search));
    assert!([4, 5].contains(&known.found.unwrap()), "{}", log(&search));
    assert_eq!((known.sure, known.refuted), (Some(4), Some(6)));
}

#[test]
fn invalid_runs_are_repeated_and_then_end_the_step() {
    use Verdict::{Invalid, Pass};
    let (search, ended) = scripted(&[(2, &[Invalid, Pass, Invalid, Pass])]);
    assert_eq!((search.knowledge().found, ended), (Some(5), Ended::Slo));
    let (search, ended) = scripted(&[(5, &[Invalid; 9])]);
    assert_eq!(log(&search), "1:PP 2:PP 4:PP 8:FF 6:FF 5:III 4:PP 5:III");
    assert_eq!((search.knowledge().found, ended), (Some(4), Ended::Simulator));
    assert_eq!(search.knowledge().refuted, Some(6), "nothing is known about 5");
}

#[test]
fn not_one_camera_and_no_limit_are_results_too() {
    let (search, ended) = play(RULES, &Server::sharp(0));
    assert_eq!((log(&search).as_str(), ended), ("1:FF 1:FF", Ended::Slo));
    let known = search.knowledge();
    assert_eq!(known, Knowledge { found: Some(0), sure: None, refuted: Some(1) });
    let rules = Rules { from: 3, max_cameras: 8, repeats: 3 };
    let (search, ended) = play(rules, &Server::sharp(99));
    assert_eq!((log(&search).as_str(), ended), ("3:PP 6:PP 8:PP 8:PP", Ended::MaxCameras));
    let known = Search::new(RULES).knowledge();
    assert_eq!(known, Knowledge { found: None, sure: None, refuted: None });
}

#[test]
fn the_forecast_is_what_a_server_without_noise_gets() {
    let (whole, _) = play(RULES, &Server::sharp(37));
    let (passing, failing) = Search::new(RULES).forecast(37);
    assert_eq!((passing + failing) as usize, whole.runs().count());
    assert_eq!(whole.forecast(37), (0, 0));
    assert!(u64::from(RULES.most_runs()) < 200, "{}", RULES.most_runs());
}
