//! TLS towards the server: what the flags name, and what to do when it fails.

use std::{error::Error, fs, io, path::Path};

use rustls::{AlertDescription, CertificateError, Error as TlsError};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::{config::Target, error::SimError};

/// Begins each certificate in a PEM file.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// Ends the line that begins a key in a PEM file, whatever kind of key it is.
const PRIVATE_KEY: &str = "PRIVATE KEY-----";

/// How to encrypt; `None` for a plain address.
///
/// # Errors
/// When a file is missing or not what it should be, or a flag does not fit the address.
pub fn config(target: &Target) -> Result<Option<ClientTlsConfig>, SimError> {
    let credentials = &target.credentials;
    if !target.addr.tls() {
        return credentials.tls_flag().map_or(Ok(None), |flag| {
            let why = format!("needs an encrypted address: --addr https://{}", target.addr);
            Err(SimError::Flag { flag, why })
        });
    }
    let mut config = ClientTlsConfig::new();
    config = match &credentials.ca {
        Some(path) => {
            config.ca_certificate(Certificate::from_pem(pem("--tls-ca", path, CERTIFICATE)?))
        }
        None => config.with_native_roots(),
    };
    if let Some(domain) = &credentials.domain {
        config = config.domain_name(domain);
    }
    match (&credentials.cert, &credentials.key) {
        (Some(cert), Some(key)) => {
            let cert = pem("--tls-cert", cert, CERTIFICATE)?;
            let key = pem("--tls-key", key, PRIVATE_KEY)?;
            config = config.identity(Identity::from_pem(cert, key));
        }
        (None, None) => {}
        (Some(_), None) => return Err(alone("--tls-cert", "--tls-key")),
        (None, Some(_)) => return Err(alone("--tls-key", "--tls-cert")),
    }
    Ok(Some(config))
}

fn alone(flag: &'static str, other: &str) -> SimError {
    SimError::Flag { flag, why: format!("needs {other} beside it") }
}

/// Reads a PEM file that holds `marker`.
fn pem(flag: &'static str, path: &Path, marker: &str) -> Result<String, SimError> {
    let wrong = |why: String| SimError::Flag { flag, why: format!("{}: {why}", path.display()) };
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    if text.contains(marker) {
        return Ok(text);
    }
    let thing = if marker == CERTIFICATE { "certificate" } else { "private key" };
    Err(wrong(format!("there is no PEM {thing} in it")))
}

/// What to do about an error of TLS; `None` for any other one.
#[must_use]
pub fn explain(target: &Target, error: &(dyn Error + 'static)) -> Option<SimError> {
    let error = tls_error(error)?;
    let credentials = &target.credentials;
    let why = match error {
        // An authority that was made again under its old name shows as a bad signature.
        TlsError::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => match &credentials.ca {
            Some(path) => format!(
                "its certificate is not signed by an authority in {}; is that the right --tls-ca?",
                path.display()
            ),
            None => "its certificate is not signed by an authority that this system trusts; name \
                     its authority's file with --tls-ca"
                .to_owned(),
        },
        TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            let name = credentials.domain.as_deref().unwrap_or(target.addr.host());
            format!(
                "its certificate is not for {name} ({error}); if it is the right server, give the \
                 certificate's name with --tls-domain"
            )
        }
        TlsError::AlertReceived(AlertDescription::CertificateRequired) => {
            "it wants a client certificate; give one with --tls-cert and --tls-key".to_owned()
        }
        TlsError::AlertReceived(alert) if credentials.cert.is_some() => {
            format!("it refuses the client certificate ({alert:?}); is that the right --tls-cert?")
        }
        TlsError::InvalidMessage(_) => {
            format!("it does not speak TLS; try --addr {}", target.addr.authority())
        }
        other => other.to_string(),
    };
    Some(SimError::Tls { addr: target.addr.to_string(), why })
}

/// The error of TLS behind `error`.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a TlsError> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // An error of input or output gives its content's source as its own, so look into it.
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match inside {
            Some(inside) => Some(inside as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Credentials;
    use std::{path::PathBuf, time::Duration};

    fn target(addr: &str, credentials: Credentials) -> Target {
        Target { addr: addr.parse().unwrap(), connect: Duration::from_secs(1), credentials }
    }

    fn mistake(addr: &str, credentials: Credentials) -> String {
        config(&target(addr, credentials)).unwrap_err().to_string()
    }

    #[test]
    fn flags_without_their_counterpart_are_named() {
        let file = || Some(PathBuf::from("/no/such/file.pem"));
        assert!(config(&target("a:1", Credentials::default())).unwrap().is_none());
        let ca = || Credentials { ca: file(), ..Credentials::default() };
        let line = mistake("camera-host:9000", ca());
        assert_eq!(line, "--tls-ca: needs an encrypted address: --addr https://camera-host:9000");
        let line = mistake("https://a:1", ca());
        assert!(line.starts_with("--tls-ca: /no/such/file.pem: No such file"), "{line}");
        let key = Credentials { key: file(), ..Credentials::default() };
        assert_eq!(mistake("https://a:1", key), "--tls-key: needs --tls-cert beside it");
    }

    #[test]
    fn files_of_another_kind_are_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "-----BEGIN PRIVATE KEY-----").unwrap();
        let path = || Some(file.path().to_path_buf());
        let line = mistake("https://a:1", Credentials { ca: path(), ..Credentials::default() });
        assert!(line.ends_with("there is no PEM certificate in it"), "{line}");
    }
}
