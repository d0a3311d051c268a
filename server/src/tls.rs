//! The server's side of TLS: certificates and keys from PEM files, to what each new connection begins with.
//! Versions 1.2 and 1.3, by rustls with ring's cryptography.

use std::{sync::Arc, time::Duration};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _},
    server::WebPkiClientVerifier,
    version::{TLS12, TLS13},
};
use x509_cert::{Certificate, der::Decode as _};

use crate::{
    clock,
    config::TlsFiles,
    reload::{Content, FileError, Named, Watched},
    telemetry::metrics::Metrics,
};

/// What is spoken over TLS (ALPN, RFC 7301): HTTP/2.
const ALPN: &[u8] = b"h2";

/// What new connections begin with.
pub type Tls = Watched<ServerConfig>;

/// Reads the files for the first time.
///
/// # Errors
/// When one cannot be read, or they are not what they should be.
pub fn load(files: &TlsFiles, metrics: &Arc<Metrics>) -> Result<Arc<Tls>, FileError> {
    let mut named = vec![
        Named { key: "tls_cert", path: files.cert.clone() },
        Named { key: "tls_key", path: files.key.clone() },
    ];
    named.extend(files.client_ca.clone().map(|path| Named { key: "tls_client_ca", path }));
    let (counters, metrics) = (metrics.tls_reloads.clone(), Arc::clone(metrics));
    let parse = move |contents: &[Content]| server_config(contents, &metrics);
    Watched::load("certificates", named, counters, parse).map(Arc::new)
}

/// Certificate chain, key and, if there is a third file, the authorities of clients.
fn server_config(contents: &[Content], metrics: &Metrics) -> Result<ServerConfig, FileError> {
    let [cert, key, client_ca @ ..] = contents else { unreachable!("two files or three") };
    let chain = certificates(cert)?;
    let expiry = chain.first().and_then(|own| validity(own));
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| cert.file.wrong(error.to_string()))?;
    let builder = match client_ca.first() {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let wrong = |error: String| authorities.file.wrong(error);
            let mut roots = RootCertStore::empty();
            for authority in certificates(authorities)? {
                roots.add(authority).map_err(|error| wrong(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| wrong(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, private_key(key)?).map_err(|error| {
        use rustls::Error;
        match error {
            Error::InconsistentKeys(_) => key.file.wrong(format!(
                "is not the key of the certificate in {} (tls_cert)",
                cert.file.path.display()
            )),
            Error::InvalidCertificate(error) => cert.file.wrong(error.to_string()),
            other => key.file.wrong(other.to_string()),
        }
    })?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    key.warn_if_open_to_others();
    if let Some(expiry) = expiry {
        tell_of(&expiry, cert, metrics);
    }
    Ok(config)
}

fn certificates(content: &Content) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let wrong = |error: pem::Error| content.file.wrong(error.to_string());
    let chain = CertificateDer::pem_slice_iter(&content.bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(wrong)?;
    if chain.is_empty() {
        return Err(content.file.wrong("there is no PEM certificate in it"));
    }
    Ok(chain)
}

fn private_key(content: &Content) -> Result<PrivateKeyDer<'static>, FileError> {
    PrivateKeyDer::from_pem_slice(&content.bytes).map_err(|error| {
        let encrypted = memchr::memmem::find(&content.bytes, b"BEGIN ENCRYPTED").is_some();
        content.file.wrong(match error {
            pem::Error::NoItemsFound if encrypted => {
                "is encrypted, and nobody is there to type its password: write it without one, by \
                 `openssl pkey`"
                    .to_owned()
            }
            pem::Error::NoItemsFound => "there is no PEM private key in it".to_owned(),
            other => other.to_string(),
        })
    })
}

/// When a certificate is valid: text for people and seconds since the Unix epoch.
struct Validity {
    from: (String, Duration),
    until: (String, Duration),
}

/// `None` for a certificate that is read differently here than by rustls, which decides.
fn validity(der: &CertificateDer<'_>) -> Option<Validity> {
    let certificate = Certificate::from_der(der).ok()?;
    let validity = certificate.tbs_certificate().validity();
    let told =
        |time: &x509_cert::time::Time| (time.to_date_time().to_string(), time.to_unix_duration());
    Some(Validity { from: told(&validity.not_before), until: told(&validity.not_after) })
}

/// Clients refuse a certificate outside its time; the server does not, as its clock may be what is wrong.
fn tell_of(validity: &Validity, cert: &Content, metrics: &Metrics) {
    metrics.certificate_expiry(validity.until.1.as_secs_f64());
    let now = Duration::from_micros(clock::unix_micros().unsigned_abs());
    let file = cert.file.path.display();
    let until = &validity.until.0;
    if now > validity.until.1 {
        tracing::warn!(%file, %until, "tls_cert: the certificate has expired; clients refuse it");
    } else if now < validity.from.1 {
        let from = &validity.from.0;
        tracing::warn!(%file, %from, "tls_cert: the certificate is not valid yet; clients refuse it");
    } else {
        tracing::info!(%file, %until, "certificate");
    }
}

/// The subject of a client's certificate as one line (RFC 4514), for logs.
#[must_use]
pub fn subject(der: &CertificateDer<'_>) -> Option<Arc<str>> {
    let certificate = Certificate::from_der(der).ok()?;
    Some(certificate.tbs_certificate().subject().to_string().into())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs, path::Path};

    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;

    /// An authority of this name and its certificate in PEM.
    pub(crate) fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("signs").pem();
        (Issuer::new(params, key), certificate)
    }

    /// A certificate of localhost until a year, and its key, in PEM.
    pub(crate) fn identity(
        issuer: &Issuer<'static, KeyPair>,
        name: &str,
        until: i32,
    ) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 2);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, issuer).expect("signs");
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes the files of a server.
    pub(crate) fn files(
        folder: &Path,
        (cert, key): &(String, String),
        ca: Option<&str>,
    ) -> TlsFiles {
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).expect("writes");
            path
        };
        TlsFiles {
            cert: write("cert.pem", cert),
            key: write("key.pem", key),
            client_ca: ca.map(|ca| write("ca.pem", ca)),
        }
    }

    #[test]
    fn files_that_do_not_fit_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let (issuer, authority) = authority("an authority");
        let good = identity(&issuer, "server", 2099);
        let (_, other_key) = identity(&issuer, "other", 2099);
        let encrypted =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let broken = good.0.replacen("MII", "MIJ", 1);
        for (cert, key, ca, key_named, reason) in [
            (
                good.0.as_str(),
                other_key.as_str(),
                None,
                "tls_key",
                "is not the key of the certificate",
            ),
            ("", &good.1, None, "tls_cert", "there is no PEM certificate"),
            (&good.1, &good.1, None, "tls_cert", "there is no PEM certificate"),
            (&broken, &good.1, None, "tls_cert", ""),
            (&good.0, "", None, "tls_key", "there is no PEM private key"),
            (&good.0, &good.0, None, "tls_key", "there is no PEM private key"),
            (&good.0, encrypted, None, "tls_key", "is encrypted"),
            (&good.0, &good.1, Some(""), "tls_client_ca", "there is no PEM certificate"),
        ] {
            let files = files(folder.path(), &(cert.into(), key.into()), ca);
            let metrics = Arc::new(Metrics::new());
            let error = load(&files, &metrics).expect_err(reason);
            let line = error.to_string();
            assert!(line.starts_with(&format!("{key_named}: ")), "{line}");
            assert!(line.contains(reason) && !line.contains('\n'), "{line}");
            assert!(!error.unreadable);
            assert!(!metrics.render().contains("vedette_tls_certificate_expiry_seconds"));
        }
        let files =
            TlsFiles { cert: "/nowhere/cert.pem".into(), ..files(folder.path(), &good, None) };
        let error = load(&files, &Arc::new(Metrics::new())).expect_err("no file");
        assert!(error.unreadable && error.to_string().contains("/nowhere/cert.pem"), "{error}");
        let with_authority = self::files(folder.path(), &good, Some(&authority));
        assert!(load(&with_authority, &Arc::new(Metrics::new())).is_ok());
    }

    #[test]
    fn an_expired_certificate_is_used_and_its_end_published() {
        let folder = tempfile::tempdir().expect("a folder");
        let (issuer, _) = authority("an authority");
        // The second of January, as seconds since 1970.
        for (year, expiry) in [(2021, "1609545600"), (2030, "1893542400")] {
            let files = files(folder.path(), &identity(&issuer, "server", year), None);
            let metrics = Arc::new(Metrics::new());
            let tls = load(&files, &metrics).expect("used all the same");
            assert_eq!(tls.current().alpn_protocols, [b"h2".to_vec()]);
            let line = format!("vedette_tls_certificate_expiry_seconds {expiry}\n");
            assert!(metrics.render().contains(&line), "{}", metrics.render());
        }
    }

    #[test]
    fn a_subject_is_one_line() {
        let (issuer, _) = authority("an authority");
        let (pem, _) = identity(&issuer, "camera 7", 2099);
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
        assert_eq!(subject(&der).as_deref(), Some("CN=camera 7"));
        assert_eq!(subject(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
