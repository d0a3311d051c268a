//! Authorities, certificates and the files that they are read from, made for one test.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{io::AsyncReadExt as _, net::TcpStream};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Error, Identity};
use vedette_server::settings::Settings;

use crate::common::spin;

/// What certificates here are for.
const HOST: &str = "localhost";

/// An authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate in PEM.
    pub(crate) pem: String,
}

/// A certificate and its key in PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signs").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(crate) fn signs(&self, name: &str) -> Pair {
        self.signs_until(name, 2099)
    }

    /// A certificate that is valid until the beginning of a year.
    pub(crate) fn signs_until(&self, name: &str, year: i32) -> Pair {
        let mut params = CertificateParams::new(vec![HOST.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("signs").pem();
        Pair { cert, key: key.serialize_pem() }
    }
}

/// The files of a server.
pub(crate) struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new(pair: &Pair) -> Self {
        let files = Self { folder: tempfile::tempdir().expect("a folder") };
        files.write(pair);
        files
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts another certificate and key in place, each at once, as tools that renew them do.
    pub(crate) fn write(&self, pair: &Pair) {
        replace(&self.path("cert.pem"), &pair.cert);
        replace(&self.path("key.pem"), &pair.key);
    }

    /// Settings of a server that has these files and a busy loop of no length.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            tls_cert: Some(self.path("cert.pem")),
            tls_key: Some(self.path("key.pem")),
            ..spin(0.0)
        }
    }

    /// The same, for clients with a certificate of this authority only.
    pub(crate) fn mutual(&self, clients: &Authority) -> Settings {
        replace(&self.path("clients.pem"), &clients.pem);
        Settings { tls_client_ca: Some(self.path("clients.pem")), ..self.settings() }
    }
}

/// Writes beside and renames over: nobody sees half a file.
pub(crate) fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, path)).expect("replaces");
}

/// An encrypted channel to a server whose certificate this authority should have signed.
pub(crate) async fn channel(
    addr: SocketAddr,
    authority: &Authority,
    identity: Option<&Pair>,
) -> Result<Channel, Error> {
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&authority.pem))
        .domain_name(HOST);
    if let Some(pair) = identity {
        tls = tls.identity(Identity::from_pem(&pair.cert, &pair.key));
    }
    Channel::from_shared(format!("https://{addr}"))
        .expect("an address")
        .tls_config(tls)?
        .connect_timeout(Duration::from_secs(30))
        .connect()
        .await
}

/// An encrypted connection without HTTP/2 on it.
pub(crate) async fn raw(addr: SocketAddr, authority: &Authority) -> TlsStream<TcpStream> {
    shake(addr, authority, None).await.expect("shakes hands")
}

/// What a client is told that is not let in. With TLS 1.3 the server's word on the client's certificate comes
/// after the client's side of the handshake.
pub(crate) async fn alert(addr: SocketAddr, authority: &Authority, pair: Option<&Pair>) -> String {
    let error = match shake(addr, authority, pair).await {
        Ok(mut stream) => stream.read_u8().await.expect_err("not in"),
        Err(error) => error,
    };
    error.to_string()
}

async fn shake(
    addr: SocketAddr,
    authority: &Authority,
    pair: Option<&Pair>,
) -> io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(der(&authority.pem)).expect("an authority");
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let mut config = match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(vec![der(&pair.cert)], key).expect("a pair")
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = TcpStream::connect(addr).await.expect("connects");
    let name = ServerName::try_from(HOST).expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await
}

/// The certificate with which the server meets a new connection.
pub(crate) async fn shown(addr: SocketAddr, authority: &Authority) -> CertificateDer<'static> {
    let stream = raw(addr, authority).await;
    let (_, session) = stream.get_ref();
    assert_eq!(session.alpn_protocol(), Some(&b"h2"[..]));
    session.peer_certificates().expect("a server has one")[0].clone().into_owned()
}

pub(crate) fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")
}
