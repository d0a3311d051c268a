//! How a client proves itself and checks the server.

use std::path::PathBuf;

/// Files and names for TLS and for a token. All are optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Certificates (PEM) of the authorities to trust; `None` = those that the system trusts.
    pub ca: Option<PathBuf>,
    /// Name in the server's certificate; `None` = the address' host.
    pub domain: Option<String>,
    /// The client's certificate and those up to its authority's (PEM).
    pub cert: Option<PathBuf>,
    /// The private key of that certificate (PEM).
    pub key: Option<PathBuf>,
    /// A file with the token that goes with every call.
    pub token_file: Option<PathBuf>,
}

impl Credentials {
    /// The first flag that has no meaning without TLS.
    #[must_use]
    pub fn tls_flag(&self) -> Option<&'static str> {
        [
            (self.ca.is_some(), "--tls-ca"),
            (self.domain.is_some(), "--tls-domain"),
            (self.cert.is_some(), "--tls-cert"),
            (self.key.is_some(), "--tls-key"),
        ]
        .into_iter()
        .find_map(|(given, flag)| given.then_some(flag))
    }
}
