//! Which server a stream goes to: a decision without clock or network.
//!
//! Back-offs are of servers and shared by all cameras, as in a gateway or a client library; the pauses
//! of [`crate::attempts`] are each camera's own, and come when it has tried all servers.

use std::time::{Duration, Instant};

use crate::config::Policy;

/// Time for which a server that failed gets no streams, doubled with each failure in a row. The first
/// is gRPC's (its connection back-off protocol begins with 1 s).
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);

/// Most of that: a server that returns is used within it, also when it was away for long.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(30);

/// How a camera left a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parting {
    /// It was done, or the run was over.
    Done,
    /// The server asked it to choose again because of its connection's age, and takes new streams.
    Aged,
    /// Its connection was closing, so that its stream did not begin; the next one has a new connection.
    Stale,
    /// The server is going away, or the stream broke, or never opened.
    Failed,
}

/// The servers of a run, by their places in the list, and what is known about them.
#[derive(Debug, Clone)]
pub struct Balancer {
    policy: Policy,
    servers: Vec<Standing>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    /// Whether it is still among the addresses of its name.
    listed: bool,
    streams: u32,
    /// In a row, without an answer in between.
    failures: u32,
    /// The end of its back-off.
    out_until: Option<Instant>,
}

impl Standing {
    fn is_out(&self, now: Instant) -> bool {
        self.out_until.is_some_and(|until| now < until)
    }
}

impl Balancer {
    /// Without any server yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, servers: Vec::new() }
    }

    /// Adds a server at the end of the list. Returns its place.
    pub fn add(&mut self) -> usize {
        self.servers.push(Standing { listed: true, ..Standing::default() });
        self.servers.len() - 1
    }

    /// A server that is not listed gets no more streams.
    pub fn list(&mut self, server: usize, listed: bool) {
        self.servers[server].listed = listed;
    }

    /// The server of the next stream of `camera`, which was at `last` before and has just `tried` some
    /// in vain; the stream is counted. Of servers that it has not tried, one in back-off is taken only
    /// when all are, and then the one whose back-off ends first. `None`: it has tried all.
    pub fn choose(
        &mut self,
        camera: u32,
        last: Option<usize>,
        tried: &[usize],
        now: Instant,
    ) -> Option<usize> {
        let untried = |place: &usize| self.servers[*place].listed && !tried.contains(place);
        let untried: Vec<usize> = (0..self.servers.len()).filter(untried).collect();
        let fit: Vec<usize> =
            untried.iter().copied().filter(|&place| !self.servers[place].is_out(now)).collect();
        let chosen = if fit.is_empty() {
            untried.into_iter().min_by_key(|&place| self.servers[place].out_until)?
        } else {
            self.best_of(&fit, camera, last)?
        };
        self.servers[chosen].streams += 1;
        Some(chosen)
    }

    /// What the policy takes of servers that are all fit.
    fn best_of(&self, fit: &[usize], camera: u32, last: Option<usize>) -> Option<usize> {
        let turn = match last {
            Some(last) => fit.iter().position(|&place| place > last).unwrap_or(0),
            None => camera as usize % fit.len().max(1),
        };
        let mut in_turn = fit.iter().cycle().skip(turn).take(fit.len()).copied();
        match self.policy {
            Policy::RoundRobin => in_turn.next(),
            Policy::LeastCameras => in_turn.min_by_key(|&place| self.servers[place].streams),
            Policy::Failover => fit.first().copied(),
        }
    }

    /// The next stream is on `server` as well; it is counted.
    pub fn stay(&mut self, server: usize) {
        self.servers[server].streams += 1;
    }

    /// A stream on `server` is over.
    pub fn parted(&mut self, server: usize, how: Parting, now: Instant) {
        let standing = &mut self.servers[server];
        standing.streams = standing.streams.saturating_sub(1);
        if how == Parting::Failed {
            self.failed(server, now);
        }
    }

    /// `server` gets no streams for a while. What fails in a back-off is the same failure.
    pub fn failed(&mut self, server: usize, now: Instant) {
        let standing = &mut self.servers[server];
        if standing.is_out(now) {
            return;
        }
        let doubled = FIRST_BACK_OFF.saturating_mul(2_u32.saturating_pow(standing.failures));
        standing.failures += 1;
        standing.out_until = Some(now + doubled.min(LONGEST_BACK_OFF));
    }

    /// A stream that was opened on `server` has its first answer, so it works.
    pub fn answered(&mut self, server: usize) {
        let standing = &mut self.servers[server];
        (standing.failures, standing.out_until) = (0, None);
    }

    /// Streams on `server` now.
    #[must_use]
    pub fn streams(&self, server: usize) -> u32 {
        self.servers[server].streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn balancer(policy: Policy, servers: usize) -> Balancer {
        let mut balancer = Balancer::new(policy);
        for place in 0..servers {
            assert_eq!(balancer.add(), place);
        }
        balancer
    }

    fn spread(balancer: &Balancer) -> u32 {
        let streams = || (0..balancer.servers.len()).map(|place| balancer.streams(place));
        streams().max().unwrap() - streams().min().unwrap()
    }

    #[test]
    fn round_robin_begins_at_the_camera_s_place_and_goes_on_to_the_next() {
        let (mut balancer, now) = (balancer(Policy::RoundRobin, 3), clock::now());
        let first: Vec<_> = (0..7).map(|camera| balancer.choose(camera, None, &[], now)).collect();
        assert_eq!(first, [0, 1, 2, 0, 1, 2, 0].map(Some));
        assert_eq!(balancer.choose(0, Some(0), &[0], now), Some(1));
        assert_eq!(balancer.choose(2, Some(2), &[], now), Some(0));
        assert_eq!(balancer.choose(2, Some(2), &[0, 2], now), Some(1));
        assert_eq!(balancer.choose(2, Some(2), &[0, 1, 2], now), None);
    }

    #[test]
    fn failover_takes_the_first_that_works_and_goes_back_at_the_next_stream_only() {
        let (mut balancer, now) = (balancer(Policy::Failover, 3), clock::now());
        assert_eq!(balancer.choose(5, None, &[], now), Some(0));
        balancer.parted(0, Parting::Failed, now);
        assert_eq!(balancer.choose(5, Some(0), &[0], now), Some(1));
        // The first one works again, and nothing ends the stream on the second.
        balancer.answered(0);
        assert_eq!((balancer.streams(0), balancer.streams(1)), (0, 1));
        balancer.parted(1, Parting::Failed, now);
        assert_eq!(balancer.choose(5, Some(1), &[1], now), Some(0));
        balancer.parted(0, Parting::Aged, now);
        assert_eq!(balancer.choose(5, Some(0), &[], now), Some(0));
    }

    #[test]
    fn a_back_off_grows_with_failures_in_a_row_and_ends() {
        let (mut balancer, mut now) = (balancer(Policy::Failover, 2), clock::now());
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            balancer.failed(0, now);
            // Cameras that lose the server at the same time are one failure.
            balancer.failed(0, now + 500 * MS);
            let back_off = Duration::from_secs(seconds);
            let end = now + back_off;
            let before = now + back_off.saturating_sub(MS);
            assert_eq!(balancer.choose(0, None, &[], before), Some(1), "{seconds} s");
            assert_eq!(balancer.choose(0, None, &[], end), Some(0), "{seconds} s");
            now = end;
        }
        balancer.answered(0);
        balancer.failed(0, now);
        assert_eq!(balancer.choose(0, None, &[], now + FIRST_BACK_OFF), Some(0));
    }

    #[test]
    fn when_all_are_out_the_one_that_returns_first_is_tried() {
        let (mut balancer, now) = (balancer(Policy::RoundRobin, 3), clock::now());
        for (place, after) in [(0, 20), (1, 0), (2, 10)] {
            balancer.failed(place, now + after * MS);
        }
        let now = now + 30 * MS;
        assert_eq!(balancer.choose(0, None, &[], now), Some(1));
        assert_eq!(balancer.choose(0, Some(1), &[1], now), Some(2));
        assert_eq!(balancer.choose(0, Some(2), &[1, 2], now), Some(0));
    }

    #[test]
    fn a_server_that_is_no_longer_listed_gets_nothing() {
        let (mut balancer, now) = (balancer(Policy::LeastCameras, 2), clock::now());
        balancer.list(0, false);
        let chosen: Vec<_> = (0..4).map(|camera| balancer.choose(camera, None, &[], now)).collect();
        assert_eq!(chosen, [Some(1); 4]);
        assert_eq!(balancer.choose(0, Some(1), &[1], now), None);
        balancer.list(0, true);
        assert_eq!(balancer.choose(0, Some(1), &[1], now), Some(0));
    }

    proptest! {
        #[test]
        fn fleets_start_evenly(cameras in 0u32..200, servers in 1usize..8, least in any::<bool>()) {
            let policy = if least { Policy::LeastCameras } else { Policy::RoundRobin };
            let (mut balancer, now) = (balancer(policy, servers), clock::now());
            for camera in 0..cameras {
                balancer.choose(camera, None, &[], now).unwrap();
                prop_assert!(spread(&balancer) <= 1);
            }
        }

        /// Cameras whose connections age, one after the other.
        #[test]
        fn least_cameras_stays_even_while_all_servers_are_up(
            servers in 1usize..6,
            cameras in 1u32..60,
            ends in prop::collection::vec(any::<u32>(), 0..200),
        ) {
            let (mut balancer, now) = (balancer(Policy::LeastCameras, servers), clock::now());
            let mut at: Vec<usize> = (0..cameras)
                .map(|camera| balancer.choose(camera, None, &[], now).unwrap())
                .collect();
            for camera in ends.into_iter().map(|end| end % cameras) {
                let last = at[camera as usize];
                balancer.parted(last, Parting::Aged, now);
                at[camera as usize] = balancer.choose(camera, Some(last), &[], now).unwrap();
                prop_assert!(spread(&balancer) <= 1);
            }
        }

        /// Servers fail and come back while cameras come, lose their streams and leave.
        #[test]
        fn a_server_in_back_off_gets_nothing_and_recovers_after_it(
            policy in prop::sample::select(vec![
                Policy::RoundRobin, Policy::LeastCameras, Policy::Failover,
            ]),
            servers in 1usize..5,
            steps in prop::collection::vec((0u8..4, any::<u32>(), 0u32..3000), 1..200),
        ) {
            let (mut balancer, mut now) = (balancer(policy, servers), clock::now());
            let mut at: Vec<usize> = Vec::new();
            for (step, number, ms) in steps {
                let some = number as usize % servers;
                match step {
                    0 => balancer.failed(some, now),
                    1 if !at.is_empty() => {
                        let place = at.swap_remove(number as usize % at.len());
                        balancer.parted(place, Parting::Failed, now);
                    }
                    2 => now += ms * MS,
                    _ => {
                        let out: Vec<bool> =
                            balancer.servers.iter().map(|server| server.is_out(now)).collect();
                        let chosen = balancer.choose(number, Some(some), &[], now).unwrap();
                        at.push(chosen);
                        prop_assert!(!out[chosen] || out.iter().all(|out| *out));
                        let next = balancer.clone().choose(number, None, &[chosen], now);
                        prop_assert!(next != Some(chosen));
                    }
                }
                let counted: u32 = (0..servers).map(|place| balancer.streams(place)).sum();
                prop_assert_eq!(counted as usize, at.len());
            }
            // After the longest back-off every server is chosen again.
            now += LONGEST_BACK_OFF;
            for place in 0..servers {
                let others: Vec<usize> = (0..servers).filter(|&other| other != place).collect();
                prop_assert_eq!(balancer.choose(0, None, &others, now), Some(place));
                prop_assert!(!balancer.servers[place].is_out(now));
            }
        }
    }
}
