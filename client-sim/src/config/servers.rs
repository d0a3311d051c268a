//! Which servers a run's cameras share, and how they are spread over them.

use std::{fmt, str::FromStr};

use super::ServerAddr;

/// Before a name of which each address is a server.
const DNS: &str = "dns:///";

/// The same with encrypted connections.
const DNS_TLS: &str = "dns+https:///";

/// What `--addr` names: a server, or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerName {
    /// One server. If it has a name with several addresses, any of them.
    One(ServerAddr),
    /// Each address of a name is a server; it is looked up again while the run goes on.
    Each(ServerAddr),
}

impl ServerName {
    /// Host and port.
    #[must_use]
    pub fn addr(&self) -> &ServerAddr {
        match self {
            Self::One(addr) | Self::Each(addr) => addr,
        }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(addr) => addr.fmt(f),
            Self::Each(addr) if addr.tls() => write!(f, "{DNS_TLS}{}", addr.authority()),
            Self::Each(addr) => write!(f, "{DNS}{}", addr.authority()),
        }
    }
}

impl FromStr for ServerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err("an address is empty; write them with a comma between two".to_owned());
        }
        let text = text.trim();
        if let Some(rest) = text.strip_prefix(DNS_TLS) {
            return Ok(Self::Each(format!("https://{rest}").parse()?));
        }
        match text.strip_prefix(DNS) {
            Some(rest) if !rest.contains("://") => Ok(Self::Each(rest.parse()?)),
            None if !text.starts_with("dns:") => Ok(Self::One(text.parse()?)),
            _ => Err(format!("write {DNS}HOST:PORT, or {DNS_TLS}HOST:PORT for TLS")),
        }
    }
}

/// How cameras choose among several servers, by the names of gRPC's and Envoy's policies.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    clap::ValueEnum,
    serde::Deserialize,
    serde::Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// In turn: camera i begins at server i, and goes on to the next one when its stream ends
    /// (gRPC: `round_robin`)
    #[default]
    #[value(alias = "round_robin")]
    #[serde(alias = "round_robin")]
    RoundRobin,
    /// Each stream goes to the server that has the fewest (gRPC, Envoy: `least_request`)
    #[value(alias = "least_request")]
    #[serde(alias = "least_request")]
    LeastCameras,
    /// The first of the list that answers (gRPC: `pick_first`)
    #[value(alias = "pick_first")]
    #[serde(alias = "pick_first")]
    Failover,
}

impl Policy {
    /// As flags and reports write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::LeastCameras => "least-cameras",
            Self::Failover => "failover",
        }
    }
}

/// The servers of a run, when it has more than the one of its target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Balancing {
    /// All of them, the target's first; empty = the target's alone.
    pub servers: Vec<ServerName>,
    /// How cameras choose.
    pub policy: Policy,
}

impl Balancing {
    /// Checks that the servers are different ones, and encrypted either all or not at all. The error
    /// says what is wrong with them.
    pub fn of(mut servers: Vec<ServerName>, policy: Option<Policy>) -> Result<Self, String> {
        for (place, name) in servers.iter().enumerate() {
            if servers[..place].iter().any(|other| other.addr() == name.addr()) {
                return Err(format!("{name} is there twice"));
            }
            if name.addr().tls() != servers[0].addr().tls() {
                return Err(format!(
                    "{} and {name}: encrypt the connections to all servers or to none",
                    servers[0]
                ));
            }
        }
        if matches!(servers[..], [ServerName::One(_)]) {
            servers.clear();
        }
        Ok(Self { servers, policy: policy.unwrap_or_default() })
    }

    /// Whether there may be more than one server.
    #[must_use]
    pub fn several(&self) -> bool {
        !self.servers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Vec<ServerName> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn names_are_servers_or_all_addresses_of_a_host() {
        for (text, shown, each, tls) in [
            ("a:1", "a:1", false, false),
            (" a:1 ", "a:1", false, false),
            ("https://a:1", "https://a:1", false, true),
            ("dns:///a:1", "dns:///a:1", true, false),
            ("dns:///a", "dns:///a:50051", true, false),
            ("dns+https:///a:1", "dns+https:///a:1", true, true),
        ] {
            let name: ServerName = text.parse().unwrap();
            assert_eq!((name.to_string().as_str(), name.addr().tls()), (shown, tls));
            assert_eq!(matches!(name, ServerName::Each(_)), each, "{text}");
            assert_eq!(shown.parse(), Ok(name));
        }
        for (wrong, part) in [
            ("", "an address is empty"),
            ("dns://8.8.8.8/a:1", "write dns:///HOST:PORT"),
            ("dns:///https://a:1", "dns+https:///HOST:PORT"),
            ("dns:///", "write HOST:PORT"),
            ("a:0", "write HOST:PORT"),
        ] {
            let why = wrong.parse::<ServerName>().unwrap_err();
            assert!(why.contains(part), "{wrong}: {why}");
        }
    }

    #[test]
    fn servers_differ_and_are_all_encrypted_or_none() {
        let one = Balancing::of(names(&["a:1"]), None).unwrap();
        assert_eq!((one.several(), one), (false, Balancing::default()));
        assert!(Balancing::of(names(&["dns:///a:1"]), None).unwrap().several());
        let two = Balancing::of(names(&["a:1", "b:1"]), Some(Policy::Failover)).unwrap();
        assert_eq!((two.servers.len(), two.policy), (2, Policy::Failover));
        let wrong = |texts: &[&str]| Balancing::of(names(texts), None).unwrap_err();
        assert_eq!(wrong(&["a:1", "b:1", "a:1"]), "a:1 is there twice");
        assert_eq!(wrong(&["a", "dns:///a:50051"]), "dns:///a:50051 is there twice");
        assert!(wrong(&["a:1", "https://b:1"]).contains("to all servers or to none"));
    }

    #[test]
    fn policies_have_the_names_that_grpc_gives_them_too() {
        use clap::ValueEnum as _;
        for (name, alias, policy) in [
            ("round-robin", "round_robin", Policy::RoundRobin),
            ("least-cameras", "least_request", Policy::LeastCameras),
            ("failover", "pick_first", Policy::Failover),
        ] {
            assert_eq!(policy.name(), name);
            for text in [name, alias] {
                assert_eq!(Policy::from_str(text, false), Ok(policy));
                assert_eq!(serde_json::from_value::<Policy>(text.into()).unwrap(), policy);
            }
        }
    }
}
