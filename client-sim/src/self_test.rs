//! A run's load against a server that answers at once: what the simulator itself costs, and whether it
//! could have kept the limits.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{
    config::{Balancing, Credentials, Group, RunConfig, Scenario, SelfTest},
    error::SimError,
    null_server::NullServer,
    report::schema::{Report, SelfTestFigures},
    run::{self, Prepared},
    schedule::Phases,
};

/// Longest measured part of a test after a run, whose user waits for its report.
const LONGEST: Duration = Duration::from_secs(3);

/// Longest part before it, unless a ramp needs more until all cameras are there.
const LONGEST_WARMUP: Duration = Duration::from_secs(1);

/// Plays a run's load at its busiest, for at most 3 s once a ramp is over, against a server in this process that answers
/// at once. That server's processor time is not in the figures; cameras that misbehave are left out.
pub async fn run(config: &RunConfig, prepared: &Prepared) -> Result<SelfTestFigures, SimError> {
    let scenario = shortened(&config.scenario);
    let report = play(&RunConfig { scenario, ..config.clone() }, prepared).await?;
    Ok(figures(&report))
}

/// Plays a load as it is against a server in this process that answers at once. The report is judged
/// by the limits of `config`; its target is not looked at.
pub async fn play(config: &RunConfig, prepared: &Prepared) -> Result<Report, SimError> {
    let server = NullServer::start(1).map_err(SimError::Runtime)?;
    let mut config = RunConfig { self_test: SelfTest::Never, quiet: true, ..config.clone() };
    config.target.addr = server.addr.into();
    config.target.credentials = Credentials::default();
    config.balancing = Balancing::default();
    config.scenario.rogues.clear();
    boxed(&config, prepared).await
}

type Playing<'a> = Pin<Box<dyn Future<Output = Result<Report, SimError>> + Send + 'a>>;

/// A run may end with a self-test, which is a run: the box ends the circle of their types.
fn boxed<'a>(config: &'a RunConfig, prepared: &'a Prepared) -> Playing<'a> {
    Box::pin(run::play(config, prepared, Arc::default(), std::future::pending()))
}

/// What a run's report says about the test.
#[must_use]
pub fn figures(report: &Report) -> SelfTestFigures {
    SelfTestFigures {
        cameras: report.cameras,
        seconds: report.seconds,
        sent: report.tally.sent,
        ok: report.tally.ok,
        p99_ms: report.figures.p99_ms,
        max_ms: report.figures.max_ms,
        cpu_cores: report.simulator.cpu_cores,
    }
}

/// A short scenario that offers steadily what `scenario` offers at its busiest.
fn shortened(scenario: &Scenario) -> Scenario {
    let busiest = busiest(scenario);
    let present = |group: &Group| {
        let cameras = cameras_at(group, busiest);
        let fps = fps_at(group, busiest);
        let bursts = Vec::new();
        let steady = Group { cameras, fps, bursts, arrive: None, leave: None, ..group.clone() };
        // Jitter is less than a period, which is shorter in a burst.
        let jitter = group.jitter.min(Duration::from_secs_f64(0.99 / fps));
        (cameras > 0).then_some(Group { arrive_over: Duration::ZERO, jitter, ..steady })
    };
    let mut short = Scenario {
        groups: scenario.groups.iter().filter_map(present).collect(),
        rogues: Vec::new(),
        measured: scenario.measured.min(LONGEST),
        ..scenario.clone()
    };
    if short.groups.is_empty() {
        short.groups.clone_from(&scenario.groups);
    }
    short.warmup = scenario.warmup.min(LONGEST_WARMUP).max(ramp(&short));
    short
}

/// Time until the last camera of a ramp has started; what comes before is no full load.
fn ramp(scenario: &Scenario) -> Duration {
    match scenario.phases {
        Phases::Ramp { cameras, every } => every * (scenario.cameras() / cameras.max(1)),
        Phases::Even | Phases::Random | Phases::Aligned => Duration::ZERO,
    }
}

/// When most frames per second are offered, from the start of the measured part. That changes only
/// where a group comes, has come, leaves, or begins or ends a burst.
fn busiest(scenario: &Scenario) -> Duration {
    let just_before = |at: Duration| at.saturating_sub(Duration::from_nanos(1));
    let changes = |group: &Group| {
        let came = group.arrive.map(|arrive| arrive + group.arrive_over);
        let left = group.leave.map(just_before);
        let bursts = group.bursts.iter().flat_map(move |burst| {
            [burst.at, just_before(burst.at + burst.length), burst.at + burst.length]
        });
        came.into_iter().chain(left).chain(bursts).collect::<Vec<_>>()
    };
    let offered = |at: Duration| -> f64 {
        let fps = |group: &Group| f64::from(cameras_at(group, at)) * fps_at(group, at);
        scenario.groups.iter().map(fps).sum()
    };
    let mut best = Duration::ZERO;
    for at in scenario.groups.iter().flat_map(changes).filter(|at| *at < scenario.measured) {
        if offered(at) > offered(best) {
            best = at;
        }
    }
    best
}

/// Cameras of a group that are there `at` after the start of the measured part.
fn cameras_at(group: &Group, at: Duration) -> u32 {
    let arrive = group.arrive.unwrap_or(Duration::ZERO);
    if at < arrive || group.leave.is_some_and(|leave| at >= leave) {
        return 0;
    }
    if group.arrive.is_none() || at >= arrive + group.arrive_over {
        return group.cameras;
    }
    let share = at.saturating_sub(arrive).div_duration_f64(group.arrive_over);
    ((share * f64::from(group.cameras)) as u32 + 1).min(group.cameras)
}

/// Frames per second of each of its cameras then.
fn fps_at(group: &Group, at: Duration) -> f64 {
    let burst = group.bursts.iter().find(|burst| burst.at <= at && at < burst.at + burst.length);
    burst.map_or(group.fps, |burst| burst.fps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Behaviour, Burst, Rogue};

    const SECOND: Duration = Duration::from_secs(1);

    /// 10 cameras of 5 fps for 20 s after 5 s.
    fn long() -> Scenario {
        Scenario::uniform(10, 5.0, 5 * SECOND, 20 * SECOND)
    }

    #[test]
    fn a_uniform_load_is_only_shortened() {
        let expected = Scenario { warmup: SECOND, measured: 3 * SECOND, ..long() };
        assert_eq!(shortened(&long()), expected);
        let short = Scenario { warmup: SECOND / 2, measured: SECOND, ..long() };
        assert_eq!(shortened(&short), short);
        let rogue =
            Rogue { behaviour: Behaviour::Flood, clients: 1, arrive: Duration::ZERO, leave: None };
        assert_eq!(shortened(&Scenario { rogues: vec![rogue], ..long() }), expected);
    }

    #[test]
    fn a_ramp_is_over_before_frames_count() {
        let ramp = |ms| Phases::Ramp { cameras: 2, every: Duration::from_millis(ms) };
        let warmup = |ms| shortened(&Scenario { phases: ramp(ms), ..long() }).warmup;
        assert_eq!((warmup(50), warmup(500)), (SECOND, 5 * SECOND / 2));
    }

    #[test]
    fn what_is_played_is_the_busiest_instant() {
        let mut scenario = long();
        let group = scenario.groups[0].clone();
        let late = Group {
            arrive: Some(4 * SECOND),
            arrive_over: 2 * SECOND,
            leave: Some(12 * SECOND),
            ..group.clone()
        };
        scenario.groups.push(late);
        let both = shortened(&scenario);
        assert_eq!(both.cameras(), 20);
        assert!(both.groups.iter().all(|group| (group.arrive, group.leave) == (None, None)));

        // A burst of the first group alone outweighs the second one's being there.
        let burst = Burst { at: 15 * SECOND, length: SECOND, fps: 20.0 };
        scenario.groups[0].bursts.push(burst);
        let bursting = shortened(&scenario);
        assert_eq!((bursting.cameras(), bursting.groups[0].fps), (10, 20.0));
        assert!(bursting.groups[0].bursts.is_empty());

        // While the second group is coming, the burst's end sees more of it than its beginning.
        scenario.groups[0].bursts[0].at = 4 * SECOND;
        assert_eq!(shortened(&scenario).cameras(), 10 + 5);
    }

    #[test]
    fn jitter_stays_less_than_a_period() {
        let mut scenario = long();
        let group = &mut scenario.groups[0];
        group.jitter = Duration::from_millis(150);
        group.bursts.push(Burst { at: SECOND, length: SECOND, fps: 50.0 });
        assert!(shortened(&scenario).groups[0].jitter < Duration::from_millis(20));
    }
}
