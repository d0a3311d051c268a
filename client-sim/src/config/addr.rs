//! Where the server is.

use std::{fmt, str::FromStr};

/// Port of a server whose address names none.
pub const DEFAULT_PORT: u16 = 50_051;

/// Host and port of a gRPC server, with or without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddr {
    authority: String,
    tls: bool,
}

impl Default for ServerAddr {
    /// This machine, at [`DEFAULT_PORT`].
    fn default() -> Self {
        Self { authority: format!("127.0.0.1:{DEFAULT_PORT}"), tls: false }
    }
}

impl From<std::net::SocketAddr> for ServerAddr {
    fn from(addr: std::net::SocketAddr) -> Self {
        Self { authority: addr.to_string(), tls: false }
    }
}

impl ServerAddr {
    /// One of the addresses that the host has.
    #[must_use]
    pub fn resolved(&self, addr: std::net::SocketAddr) -> Self {
        Self { authority: addr.to_string(), tls: self.tls }
    }

    /// The address as a URI.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority)
    }

    /// Whether the connection is to be encrypted.
    #[must_use]
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The host alone, without brackets around an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        let host = self.authority.rsplit_once(':').map_or(&*self.authority, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl fmt::Display for ServerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tls {
            f.write_str("https://")?;
        }
        f.write_str(&self.authority)
    }
}

impl FromStr for ServerAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let encrypted = text.strip_prefix("https://");
        let rest = encrypted.or_else(|| text.strip_prefix("http://")).unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let wrong = || format!("write HOST:PORT, such as 127.0.0.1:{DEFAULT_PORT}");
        if text.contains(',') || text.starts_with("dns:") || text.starts_with("dns+") {
            return Err("one server, not several: those are for client-sim run".to_owned());
        }
        if rest.is_empty() || rest.contains(['/', ' ', '@', '?', '#']) {
            return Err(wrong());
        }
        // A bare IPv6 address holds colons but no port.
        let authority = if rest.parse::<std::net::Ipv6Addr>().is_ok() {
            format!("[{rest}]:{DEFAULT_PORT}")
        } else if rest.ends_with(']') || !rest.contains(':') {
            format!("{rest}:{DEFAULT_PORT}")
        } else {
            rest.to_owned()
        };
        let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none_or(|port| port == 0) {
            return Err(wrong());
        }
        Ok(Self { authority, tls: encrypted.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_written_in_several_ways() {
        for (text, shown, host) in [
            ("127.0.0.1:50051", "127.0.0.1:50051", "127.0.0.1"),
            ("http://127.0.0.1:50051", "127.0.0.1:50051", "127.0.0.1"),
            ("http://camera-host:9000/", "camera-host:9000", "camera-host"),
            ("https://camera-host", "https://camera-host:50051", "camera-host"),
            ("localhost", "localhost:50051", "localhost"),
            ("[::1]:7000", "[::1]:7000", "::1"),
            ("::1", "[::1]:50051", "::1"),
        ] {
            let addr: ServerAddr = text.parse().unwrap();
            assert_eq!((addr.to_string().as_str(), addr.host()), (shown, host), "{text}");
            assert_eq!(addr.tls(), text.starts_with("https:"));
            assert_eq!(addr.to_string().parse(), Ok(addr));
        }
        for wrong in ["", "http://", "a:b", "host:99999", "host:0", "http://a/b", "https://a:1/b"] {
            assert!(wrong.parse::<ServerAddr>().is_err(), "{wrong}");
        }
        for several in ["a:1,b:1", "dns:///a:1", "dns+https:///a:1"] {
            let why = several.parse::<ServerAddr>().unwrap_err();
            assert_eq!(why, "one server, not several: those are for client-sim run");
        }
    }
}
