//! Watches a run and ends it as soon as it cannot pass any more, so that failing runs cost little.

use std::{
    cell::Cell,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use crate::{camera::Live, clock, config::RunConfig, schedule::Schedule};

/// How often the counters are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a run goes on once it cannot pass: enough for figures that say how bad it is, and whether the
/// simulator was to blame.
const GRACE: Duration = Duration::from_millis(500);

/// Why a run was ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// By hand.
    ByHand,
    /// It cannot pass any more.
    Hopeless,
}

/// What is seen of one run.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    live: &'a Live,
    /// Frames of the run; those of the warm-up are among them, so this errs on the side of waiting.
    frames: u64,
    min_answered_ratio: f64,
    /// Whether a stream that ends early fails the run.
    fragile: bool,
    length: Duration,
    warmup: Duration,
    began: Cell<Option<Instant>>,
    cut: Cell<Option<(Cut, Instant)>>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(config: &RunConfig, live: &'a Live) -> Self {
        let schedule = Schedule::of(&config.scenario);
        Self {
            live,
            frames: (0..schedule.cameras()).map(|n| schedule.lane(n).frames()).sum(),
            min_answered_ratio: config.slo.min_answered_ratio,
            fragile: !config.reconnect.enabled,
            length: schedule.length(),
            warmup: schedule.warmup(),
            began: Cell::new(None),
            cut: Cell::new(None),
        }
    }

    /// Ends when `by_hand` does or the run cannot pass any more; never otherwise. `look` is called now and
    /// then with the counters.
    pub(super) async fn until(&self, by_hand: impl Future<Output = ()>, look: impl Fn(&Live)) {
        let cut = tokio::select! {
            () = by_hand => Cut::ByHand,
            () = self.hopeless(look) => Cut::Hopeless,
        };
        self.cut.set(Some((cut, clock::now())));
    }

    /// Why the run was ended early, if it was.
    pub(super) fn cut(&self) -> Option<Cut> {
        self.cut.get().map(|(cut, _)| cut)
    }

    /// How long frames were sent.
    pub(super) fn load(&self) -> Duration {
        let Some((cut, began)) = self.cut.get().zip(self.began.get()) else { return self.length };
        cut.1.saturating_duration_since(began).min(self.length)
    }

    /// How much of that was measured.
    pub(super) fn measured(&self) -> Duration {
        self.load().saturating_sub(self.warmup)
    }

    async fn hopeless(&self, look: impl Fn(&Live)) {
        while !self.is_lost() {
            clock::sleep_until(clock::now() + LOOK_EVERY).await;
            if self.began.get().is_none() && self.live.sent.load(Relaxed) > 0 {
                self.began.set(Some(clock::now()));
            }
            look(self.live);
        }
        clock::sleep_until(clock::now() + GRACE).await;
    }

    /// Whether whatever comes cannot make the run pass. Limits on percentiles are not looked at: later
    /// answers can bring a percentile down again.
    fn is_lost(&self) -> bool {
        let best = self.frames.saturating_sub(self.live.not_ok.load(Relaxed));
        self.live.over_slo.load(Relaxed) > 0
            || (best as f64) < self.min_answered_ratio * self.frames as f64
            || (self.fragile && self.live.broken.load(Relaxed) > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        Balancing, Connections, Credentials, Reconnect, Scenario, SelfTest, Slo, Target,
    };

    fn config(min_answered_ratio: f64, reconnect: bool) -> RunConfig {
        RunConfig {
            target: Target {
                addr: "localhost".parse().unwrap(),
                connect: Duration::ZERO,
                credentials: Credentials::default(),
            },
            balancing: Balancing::default(),
            scenario: Scenario::uniform(2, 10.0, Duration::from_secs(1), Duration::from_secs(4)),
            connections: Connections::PerCamera,
            reconnect: Reconnect { enabled: reconnect, max_gap: Duration::ZERO },
            drain: Duration::ZERO,
            slo: Slo { max: GRACE, percentiles: Vec::new(), min_answered_ratio },
            self_test: SelfTest::Never,
            quiet: true,
            threads: 1,
        }
    }

    #[test]
    fn a_run_is_lost_when_nothing_can_make_it_pass() {
        for (over_slo, not_ok, broken, ratio, reconnect, lost) in [
            (0, 0, 0, 1.0, true, false),
            (1, 0, 0, 0.5, true, true),
            (0, 1, 0, 1.0, true, true),
            (0, 10, 0, 0.9, true, false),
            (0, 11, 0, 0.9, true, true),
            (0, 0, 1, 1.0, true, false),
            (0, 0, 1, 1.0, false, true),
        ] {
            let live = Live::default();
            live.over_slo.store(over_slo, Relaxed);
            live.not_ok.store(not_ok, Relaxed);
            live.broken.store(broken, Relaxed);
            let config = config(ratio, reconnect);
            let watch = Watch::new(&config, &live);
            assert_eq!(watch.is_lost(), lost, "{live:?} {ratio}");
            assert_eq!((watch.cut(), watch.load()), (None, Duration::from_secs(5)));
            assert_eq!(watch.measured(), Duration::from_secs(4));
        }
    }
}
