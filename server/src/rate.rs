//! How many frames per second: of a stream, of the calls on a connection, of a token's holder.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A bucket of frames that may come now: it holds one second's worth, at least one, and fills at the rate. A
/// backlog of a second, as after a stall of the network, passes.
///
/// Kept as the instant at which it would be full if nothing more came (the generic cell rate algorithm, ITU-T
/// I.371, annex A), so that nothing has to fill it.
#[derive(Debug, Default, Clone, Copy)]
pub struct Bucket {
    full_at: Option<Instant>,
}

/// Part of a frame by which one may come early: a camera whose rate is the limit does not send by a ruler.
const EARLY: f64 = 0.5;

impl Bucket {
    /// Takes a frame out, if there is one, at a rate of so many per second (above zero).
    pub fn take(&mut self, now: Instant, per_second: f64) -> bool {
        let frame = Duration::from_secs_f64(per_second.recip());
        let others = frame.mul_f64(per_second.max(1.0) - 1.0 + EARLY);
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        if full_at.duration_since(now) > others {
            return false;
        }
        self.full_at = Some(full_at + frame);
        true
    }
}

/// A frame came too soon after others. The text is its answer's detail.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("RATE: over {per_second} frames per second ({whose})")]
pub struct OverRate {
    per_second: f64,
    whose: Arc<str>,
}

/// A limit that several streams may share, and that may change.
#[derive(Debug)]
pub struct Limiter {
    /// What has set it, for people.
    whose: Arc<str>,
    // A lock because streams are read on several threads. Held for a comparison.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None`: no limit.
    per_second: Option<f64>,
    bucket: Bucket,
}

impl Limiter {
    /// A limit that this has set, with a full bucket.
    #[must_use]
    pub fn new(whose: &str, per_second: Option<f64>) -> Self {
        let state = State { per_second, bucket: Bucket::default() };
        Self { whose: whose.into(), state: Mutex::new(state) }
    }

    /// Changes the rate from now on. What was taken at another rate is forgotten: it may stand for hours.
    pub fn set(&self, per_second: Option<f64>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.per_second != per_second {
            *state = State { per_second, bucket: Bucket::default() };
        }
    }

    fn take(&self, now: Instant) -> Result<(), OverRate> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(per_second) = state.per_second else { return Ok(()) };
        if state.bucket.take(now, per_second) {
            return Ok(());
        }
        Err(OverRate { per_second, whose: Arc::clone(&self.whose) })
    }
}

/// Every limit that a frame of a stream is under, the narrowest first.
#[derive(Clone, Default)]
pub struct Quota(Vec<Arc<Limiter>>);

impl Quota {
    /// These limits.
    #[must_use]
    pub fn new(limits: impl IntoIterator<Item = Arc<Limiter>>) -> Self {
        Self(limits.into_iter().collect())
    }

    /// Takes a frame out of each bucket.
    ///
    /// # Errors
    /// When one is empty. Those before it have lost a frame all the same; they are this stream's own, which
    /// has sent it.
    pub fn take(&self, now: Instant) -> Result<(), OverRate> {
        self.0.iter().try_for_each(|limit| limit.take(now))
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|limit| &limit.whose)).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock;

    /// How many frames pass that come at these instants, in seconds.
    fn passed(per_second: f64, instants: impl IntoIterator<Item = f64>) -> usize {
        let (start, mut bucket) = (clock::now(), Bucket::default());
        instants
            .into_iter()
            .filter(|&at| bucket.take(start + Duration::from_secs_f64(at), per_second))
            .count()
    }

    #[test]
    fn a_second_s_worth_passes_at_once_and_at_least_one() {
        for (per_second, frames) in [(15.0, 15), (1.0, 1), (0.2, 1), (2.5, 3), (1000.0, 1000)] {
            assert_eq!(passed(per_second, [0.0; 2000]), frames, "{per_second}");
        }
    }

    #[test]
    fn a_flood_is_cut_to_the_rate() {
        // A hundred frames a second for ten seconds.
        let flood = (0..1000).map(|frame| f64::from(frame) / 100.0);
        assert_eq!(passed(15.0, flood.clone()), 15 + 150);
        assert_eq!(passed(0.5, flood), 1 + 5);
    }

    #[test]
    fn the_narrowest_limit_of_several_decides_and_is_named() {
        let (stream, token) =
            (Limiter::new("max-fps", Some(2.0)), Limiter::new("max_fps of token north", Some(3.0)));
        let token = Arc::new(token);
        let quota = Quota::new([Arc::new(stream), Arc::clone(&token)]);
        let neighbour = Quota::new([Arc::clone(&token)]);
        let now = clock::now();
        assert_eq!((quota.take(now), quota.take(now)), (Ok(()), Ok(())));
        let error = quota.take(now).expect_err("the third").to_string();
        assert_eq!(error, "RATE: over 2 frames per second (max-fps)");
        assert_eq!(neighbour.take(now), Ok(()), "what the stream did not get is left");
        let error = neighbour.take(now).expect_err("the token's fourth").to_string();
        assert_eq!(error, "RATE: over 3 frames per second (max_fps of token north)");
        token.set(None);
        assert_eq!(neighbour.take(now), Ok(()));
        // An hour of frames was taken at a rate that is no more.
        token.set(Some(0.001));
        assert_eq!((neighbour.take(now), neighbour.take(now).is_err()), (Ok(()), true));
        token.set(Some(25.0));
        assert_eq!(neighbour.take(now), Ok(()));
        assert_eq!(Quota::default().take(now), Ok(()));
    }

    proptest! {
        #[test]
        fn never_more_than_the_rate_and_a_second_s_worth(
            per_second in 0.1..200.0_f64, gaps in prop::collection::vec(0.0..0.5, 1..300),
        ) {
            let instants: Vec<f64> = gaps.iter().scan(0.0, |at, gap| {
                *at += gap;
                Some(*at)
            }).collect();
            let time = instants.last().copied().unwrap_or_default();
            let most = per_second * time + per_second.max(1.0) + EARLY;
            prop_assert!(passed(per_second, instants) as f64 <= most + 1e-6);
        }

        #[test]
        fn a_camera_whose_rate_is_the_limit_loses_nothing(
            per_second in 0.1..200.0_f64, jitter in prop::collection::vec(0.0..0.49, 1..300),
        ) {
            let instants = jitter.iter().enumerate().map(|(n, late)| (n as f64 + late) / per_second);
            prop_assert_eq!(passed(per_second, instants), jitter.len());
        }
    }
}
