//! How many connections are open, altogether and from each address.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    config::ConnectionConfig,
    telemetry::metrics::{ConnectionRefusal, Metrics},
};

/// No place for one more connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Full {
    #[error("{0} connections are open (max-connections)")]
    All(usize),
    #[error("{0} connections are open from its address (max-connections-per-ip)")]
    Address(usize),
}

impl Full {
    pub(super) fn refusal(self) -> ConnectionRefusal {
        match self {
            Self::All(_) => ConnectionRefusal::MaxConnections,
            Self::Address(_) => ConnectionRefusal::MaxConnectionsPerIp,
        }
    }
}

/// The places for connections.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    most_per_address: Option<usize>,
    // A lock because connections end on any of the I/O threads. Held for a look into a map.
    taken: Mutex<Taken>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Empty unless they are limited by address; no entry is zero.
    by_address: HashMap<IpAddr, usize>,
}

impl Places {
    pub(super) fn new(config: &ConnectionConfig, metrics: Arc<Metrics>) -> Arc<Self> {
        let (most, most_per_address) = (config.max_connections, config.max_connections_per_ip);
        Arc::new(Self { most, most_per_address, taken: Mutex::default(), metrics })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from this address, held until it is dropped.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr) -> Result<Place, Full> {
        let mut taken = self.taken();
        if taken.all >= self.most {
            return Err(Full::All(self.most));
        }
        let address = self.most_per_address.map(|_| network(peer));
        if let Some((address, most)) = address.zip(self.most_per_address) {
            let open = taken.by_address.entry(address).or_default();
            if *open >= most {
                return Err(Full::Address(most));
            }
            *open += 1;
        }
        taken.all += 1;
        self.metrics.connections.increment(1);
        Ok(Place { address, places: Arc::clone(self) })
    }
}

/// What counts as one address: with IPv6 a network of 64 bits, which is what a single machine is given
/// (RFC 4291, section 2.5.1) and may change its address in at will.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::from([a, b, c, d, 0, 0, 0, 0]).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Counts as one open connection until dropped.
#[derive(Debug)]
pub(super) struct Place {
    address: Option<IpAddr>,
    places: Arc<Places>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.metrics.connections.decrement(1);
        let mut taken = self.places.taken();
        taken.all -= 1;
        if let Some(address) = self.address
            && let Some(open) = taken.by_address.get_mut(&address)
        {
            *open -= 1;
            if *open == 0 {
                taken.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::settings::Settings;

    fn places(most: usize, per_address: usize) -> Arc<Places> {
        let settings = Settings {
            max_connections: Some(most),
            max_connections_per_ip: Some(per_address),
            ..Settings::default()
        };
        let config = settings.check().expect("valid").net.connections;
        Places::new(&config, Arc::new(Metrics::new()))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_place_is_free_again_once_its_connection_is_gone() {
        let places = places(2, 0);
        let first = places.take(ip("10.0.0.1")).expect("free");
        let _second = places.take(ip("10.0.0.1")).expect("free");
        assert_eq!(places.take(ip("10.0.0.2")).err(), Some(Full::All(2)));
        assert!(places.metrics.render().contains("vedette_connections 2\n"));
        drop(first);
        assert!(places.take(ip("10.0.0.2")).is_ok());
        assert!(places.taken().by_address.is_empty());
    }

    #[test]
    fn addresses_are_counted_apart_and_networks_of_ipv6_together() {
        let places = places(100, 1);
        let taken: Vec<_> = ["10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8:0:1::1"]
            .map(|address| places.take(ip(address)).expect("the first of its address"))
            .into();
        for again in ["10.0.0.1", "::ffff:10.0.0.2", "2001:db8::ffff:2"] {
            assert_eq!(places.take(ip(again)).err(), Some(Full::Address(1)), "{again}");
        }
        drop(taken);
        assert!(places.taken().by_address.is_empty());
    }

    proptest! {
        #[test]
        fn no_limit_is_passed_and_no_place_lost(
            steps in prop::collection::vec((0..4_u8, any::<bool>()), 0..200),
        ) {
            let places = places(6, 2);
            let mut open: Vec<(u8, Place)> = Vec::new();
            for (host, comes) in steps {
                if comes {
                    let of_host = open.iter().filter(|(other, _)| *other == host).count();
                    let place = places.take(IpAddr::from([10, 0, 0, host]));
                    prop_assert_eq!(place.is_ok(), open.len() < 6 && of_host < 2);
                    open.extend(place.ok().map(|place| (host, place)));
                } else if let Some(at) = open.iter().position(|(other, _)| *other == host) {
                    open.remove(at);
                }
                prop_assert_eq!(places.taken().all, open.len());
            }
        }
    }
}
