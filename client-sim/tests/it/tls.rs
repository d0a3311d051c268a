//! Encrypted connections and tokens: what is accepted, and what a refusal says.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::PoisonError,
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::{
    cli::{client, code, stderr},
    fake::{Act, Fake, fake},
    run::{OK, check_books, config},
};
use client_sim::{
    config::{Credentials, Reconnect, RunConfig},
    report::schema::Report,
    run,
};

/// Name in the server's certificate, which its address is not.
const NAME: &str = "camera-server.test";

/// An authority and what it signs.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, both PEM.
struct Certified {
    cert: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn certify(&self, names: &[&str]) -> Certified {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let cert = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        Certified { cert: cert.pem(), key: key.serialize_pem() }
    }
}

impl Certified {
    fn identity(&self) -> Identity {
        Identity::from_pem(&self.cert, &self.key)
    }
}

/// Files of a test.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

async fn encrypted(server: &Fake, tls: ServerTlsConfig) -> RunConfig {
    let addr = server.start_tls(tls).await;
    let mut config = config(addr);
    config.target.addr = format!("https://{addr}").parse().unwrap();
    config.scenario.measured = Duration::from_millis(200);
    config
}

async fn played(config: &RunConfig) -> Result<Report, String> {
    let report = run::run(config, std::future::pending()).await.map_err(|e| e.to_string())?;
    check_books(&report);
    Ok(report)
}

#[tokio::test]
async fn an_encrypted_run_checks_the_server_s_certificate() {
    let (authority, files) = (Authority::new("cameras"), Files::new());
    let certified = authority.certify(&["127.0.0.1", NAME]);
    let mut config =
        encrypted(&fake(|_, _| OK), ServerTlsConfig::new().identity(certified.identity())).await;
    config.target.credentials.ca = Some(files.write("ca.pem", &authority.pem));
    for domain in [None, Some(NAME.to_owned())] {
        config.target.credentials.domain = domain;
        let report = played(&config).await.unwrap();
        assert!(report.tls && report.passed(), "{:?}", report.reasons);
        assert!(report.addr.starts_with("https://127.0.0.1:"), "{}", report.addr);
    }
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_told_at_once() {
    let (authority, files) = (Authority::new("cameras"), Files::new());
    let certified = authority.certify(&["127.0.0.1"]);
    let mut config =
        encrypted(&fake(|_, _| OK), ServerTlsConfig::new().identity(certified.identity())).await;
    // One authority of another name, and one of the same, as after generating it again.
    for name in ["others", "cameras"] {
        let path = files.write("ca.pem", &Authority::new(name).pem);
        config.target.credentials.ca = Some(path.clone());
        let line = played(&config).await.unwrap_err();
        let part = format!("is not signed by an authority in {};", path.display());
        assert!(
            line.starts_with("cannot connect to https://127.0.0.1:") && line.contains(&part),
            "{line}"
        );
    }
    // The system's authorities, if it has any, do not know it either.
    config.target.credentials.ca = None;
    let line = played(&config).await.unwrap_err();
    assert!(line.contains("--tls-ca") && line.lines().count() == 1, "{line}");
}

#[tokio::test]
async fn a_certificate_of_another_name_is_told_at_once() {
    let (authority, files) = (Authority::new("cameras"), Files::new());
    let certified = authority.certify(&[NAME]);
    let mut config =
        encrypted(&fake(|_, _| OK), ServerTlsConfig::new().identity(certified.identity())).await;
    config.target.credentials.ca = Some(files.write("ca.pem", &authority.pem));
    for (domain, shown) in
        [(None, "127.0.0.1"), (Some("elsewhere.test".to_owned()), "elsewhere.test")]
    {
        config.target.credentials.domain = domain;
        let line = played(&config).await.unwrap_err();
        assert!(line.contains(&format!("its certificate is not for {shown} (")), "{line}");
        assert!(line.ends_with("give the certificate's name with --tls-domain"), "{line}");
    }
    config.target.credentials.domain = Some(NAME.to_owned());
    assert!(played(&config).await.unwrap().passed());
}

#[tokio::test]
async fn a_server_may_want_a_certificate_of_the_client_too() {
    let (authority, files) = (Authority::new("cameras"), Files::new());
    let certified = authority.certify(&["127.0.0.1"]);
    let tls = ServerTlsConfig::new()
        .identity(certified.identity())
        .client_ca_root(Certificate::from_pem(&authority.pem));
    let mut config = encrypted(&fake(|_, _| OK), tls).await;
    config.target.credentials.ca = Some(files.write("ca.pem", &authority.pem));
    let line = played(&config).await.unwrap_err();
    assert!(
        line.ends_with("give --tls-cert and --tls-key")
            || line.ends_with("give one with --tls-cert and --tls-key"),
        "{line}"
    );

    let ours = authority.certify(&["client"]);
    config.target.credentials.cert = Some(files.write("client.pem", &ours.cert));
    config.target.credentials.key = Some(files.write("client.key", &ours.key));
    assert!(played(&config).await.unwrap().passed());

    // A key of another certificate.
    let other = authority.certify(&["client"]);
    config.target.credentials.key = Some(files.write("client.key", &other.key));
    let line = played(&config).await.unwrap_err();
    assert!(line.lines().count() == 1 && line.starts_with("cannot connect to "), "{line}");
}

#[tokio::test]
async fn plain_and_encrypted_do_not_meet() {
    let (authority, files) = (Authority::new("cameras"), Files::new());
    let certified = authority.certify(&["127.0.0.1"]);
    let server = fake(|_, _| OK);
    let mut config =
        encrypted(&server, ServerTlsConfig::new().identity(certified.identity())).await;
    config.target.connect = Duration::from_secs(2);
    config.target.addr = config.target.addr.authority().parse().unwrap();
    let line = played(&config).await.unwrap_err();
    assert!(line.contains(&format!("say --addr https://{}", config.target.addr)), "{line}");

    let addr = server.start().await;
    config.target.addr = format!("https://{addr}").parse().unwrap();
    config.target.credentials.ca = Some(files.write("ca.pem", &authority.pem));
    let line = played(&config).await.unwrap_err();
    assert!(line.ends_with(&format!("it does not speak TLS; try --addr {addr}")), "{line}");
}

fn with_token(config: &mut RunConfig, path: &Path) {
    let token_file = Some(path.to_path_buf());
    config.target.credentials = Credentials { token_file, ..Credentials::default() };
}

#[tokio::test]
async fn a_token_goes_with_every_call_and_stream() {
    let (files, server) = (Files::new(), fake(|_, _| OK).wanting("s3cret"));
    let mut config = config(server.start().await);
    with_token(&mut config, &files.write("token", "s3cret\n"));
    assert!(played(&config).await.unwrap().passed());
    // One call and four streams.
    let tokens = server.tokens.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(tokens, vec!["Bearer s3cret"; 5]);
}

#[tokio::test]
async fn without_a_valid_token_nothing_is_sent() {
    let (files, server) = (Files::new(), fake(|_, _| OK).wanting("s3cret"));
    let mut config = config(server.start().await);
    for token in [None, Some("guess")] {
        if let Some(token) = token {
            with_token(&mut config, &files.write("token", token));
        }
        let line = played(&config).await.unwrap_err();
        assert!(line.contains("refuses this client: a token, please; "), "{line}");
        assert!(line.contains("--token-file") && !line.contains("guess"), "{line}");
    }
    assert!(server.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn streams_that_are_refused_are_not_tried_again() {
    let server = fake(|_, _| OK).wanting("s3cret").with_open_info();
    let mut config = config(server.start().await);
    config.reconnect = Reconnect { enabled: true, max_gap: Duration::ZERO };
    let report = played(&config).await.unwrap();
    assert_eq!(report.stream_ends[0].reason, "UNAUTHENTICATED: a token, please");
    assert_eq!((report.stream_ends[0].streams, report.reconnects.count), (4, 0));
    assert_eq!(server.tokens.lock().unwrap().len(), 1 + 4);
}

#[tokio::test]
async fn a_token_that_is_replaced_is_used_by_the_next_stream() {
    let files = Files::new();
    let path = files.write("token", "first");
    let rotating = path.clone();
    let server = fake(move |_, k| {
        if k != 3 {
            return OK;
        }
        fs::write(&rotating, "second").unwrap();
        Act::Break(tonic::Code::Unavailable, "moving")
    });
    let mut config = config(server.start().await);
    config.scenario.groups[0].cameras = 1;
    config.reconnect = Reconnect { enabled: true, max_gap: Duration::from_mins(1) };
    with_token(&mut config, &path);
    let report = played(&config).await.unwrap();
    assert_eq!(report.reconnects.count, 1);
    let tokens = server.tokens.lock().unwrap().clone();
    assert_eq!(tokens, ["Bearer first", "Bearer first", "Bearer second"]);
}

#[test]
fn mistakes_with_credentials_are_one_line() {
    for (args, part) in [
        (
            &["--tls-ca", "x.pem"][..],
            "--tls-ca: needs an encrypted address: --addr https://127.0.0.1",
        ),
        (&["--tls-domain", "x"], "--tls-domain: needs an encrypted address"),
        (&["--tls-cert", "x.pem"], "--tls-key <FILE>"),
        (&["--tls-key", "x.pem"], "--tls-cert <FILE>"),
        (&["--addr", "https://h", "--tls-ca", "/no/x.pem"], "--tls-ca: /no/x.pem: No such file"),
        (&["--token-file", "/no/token"], "--token-file: /no/token: No such file"),
    ] {
        for job in [&["run"][..], &["detect", "/dev/null"]] {
            let output = client(&[job, args].concat());
            let line = stderr(&output);
            assert_eq!(code(&output), 2, "{line}");
            assert!(line.contains(part) && line.trim_end().lines().count() == 1, "{line}");
        }
    }
}

#[test]
fn the_flags_reach_the_connection() {
    let (authority, files) = (Authority::new("cameras"), Files::new());
    let (certified, ours) = (authority.certify(&[NAME]), authority.certify(&["client"]));
    let tls = ServerTlsConfig::new()
        .identity(certified.identity())
        .client_ca_root(Certificate::from_pem(&authority.pem));
    let server = fake(|_, _| OK).wanting("s3cret");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let addr = format!("https://{}", runtime.block_on(server.start_tls(tls)));
    let picture = files.write("picture.bmp", "BM");
    let mut args = vec!["--addr".to_owned(), addr, "--tls-domain".to_owned(), NAME.to_owned()];
    for (flag, name, text) in [
        ("--tls-ca", "ca.pem", &*authority.pem),
        ("--tls-cert", "client.pem", &ours.cert),
        ("--tls-key", "client.key", &ours.key),
        ("--token-file", "token", "s3cret"),
    ] {
        args.extend([flag.to_owned(), files.write(name, text).display().to_string()]);
    }
    let run = "run --cameras 1 --seconds 0.2 --warmup 0 --size 64x48 --quiet --slo-max-ms 60000";
    let ping = "ping --in-flight 2 --seconds 0.3 --warmup 0 --quiet --mode unary,stream";
    let detect = format!("detect {}", picture.display());
    for job in [run, ping, &detect] {
        let job: Vec<&str> = job.split(' ').chain(args.iter().map(String::as_str)).collect();
        let output = client(&job);
        assert_eq!(code(&output), 0, "{job:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("s3cret"));
    }
}
