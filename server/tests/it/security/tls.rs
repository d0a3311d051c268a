//! Encryption: who can connect, and how certificates change while the server runs.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tonic::Code;
use vedette_proto::camera_ai::{Outcome, object_detection_client::ObjectDetectionClient};
use vedette_server::settings::Settings;

use super::pki::{self, Authority, Files, Pair, der, raw, shown};
use crate::{
    common::{Camera, PATIENCE, TestServer, channel, get, small_jpeg},
    lifecycle::{Server, fails},
};

const REFUSED_BY_TLS: &str = "vedette_connections_refused_total{reason=\"tls\"}";
const LATE: &str = "vedette_connections_refused_total{reason=\"handshake\"}";
const RELOADED: &str = "vedette_tls_reloads_total{result=\"ok\"}";
const NOT_RELOADED: &str = "vedette_tls_reloads_total{result=\"failed\"}";

/// An authority and the files of a server whose certificate it has signed.
fn set_up() -> (Authority, Files, Pair) {
    let authority = Authority::new("authority of the server");
    let pair = authority.signs("the first");
    let files = Files::new(&pair);
    (authority, files, pair)
}

async fn camera(server: &TestServer, authority: &Authority, pair: Option<&Pair>) -> Camera {
    let channel = pki::channel(server.addr, authority, pair).await.expect("connects");
    Camera::open(&mut ObjectDetectionClient::new(channel), "cam").await.expect("accepted")
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_and_answers_are_encrypted() {
    let (authority, files, _) = set_up();
    let server = TestServer::start(files.settings()).await;
    let mut camera = camera(&server, &authority, None).await;
    let mut picture = small_jpeg();
    picture.resize(300_000, 0);
    for id in 0..5 {
        assert_eq!(camera.detect(id, &picture).await.outcome(), Outcome::Ok);
    }
    camera.finish();
    assert!(camera.rest().await.is_empty());
    assert!(server.metric(REFUSED_BY_TLS) < 0.5);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_trusts_another_authority_or_none_stays_out() {
    let (authority, files, _) = set_up();
    let server = TestServer::start(files.settings()).await;
    let told = pki::alert(server.addr, &Authority::new("of somebody else"), None).await;
    assert!(told.contains("UnknownIssuer"), "{told}");
    server.wait_for(REFUSED_BY_TLS, 1.0).await;

    // In the open: the server answers by an alert and closes.
    let mut open = TcpStream::connect(server.addr).await.expect("connects");
    open.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sends");
    let mut heard = Vec::new();
    timeout(PATIENCE, open.read_to_end(&mut heard)).await.expect("closed").expect("no reset");
    // An alert (RFC 8446, section 6) is a record of kind 21.
    assert_eq!(heard.first(), Some(&21));
    server.wait_for(REFUSED_BY_TLS, 2.0).await;

    // Health checks of balancers that connect and leave are nothing to count.
    drop(TcpStream::connect(server.addr).await.expect("connects"));
    camera(&server, &authority, None).await.detect(1, &small_jpeg()).await;
    assert!((server.metric(REFUSED_BY_TLS) - 2.0).abs() < 0.5);
    assert!(server.metric(LATE) < 0.5);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mutual_tls_takes_only_clients_of_its_authority() {
    let (authority, files, _) = set_up();
    let clients = Authority::new("authority of the clients");
    let server = TestServer::start(files.mutual(&clients)).await;
    let stranger = Authority::new("authority of the clients").signs("camera 1");
    let expired = clients.signs_until("camera 1", 2021);
    for (pair, alert) in [
        (None, "CertificateRequired"),
        (Some(&stranger), "fatal alert"),
        (Some(&expired), "CertificateExpired"),
    ] {
        let told = pki::alert(server.addr, &authority, pair).await;
        assert!(told.contains(alert), "{told}");
    }
    server.wait_for(REFUSED_BY_TLS, 3.0).await;
    let pair = clients.signs("camera 1");
    let mut camera = camera(&server, &authority, Some(&pair)).await;
    assert_eq!(camera.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_for_new_connections_and_a_bad_one_for_none() {
    let (authority, files, first) = set_up();
    let server = TestServer::start(files.settings()).await;
    let mut old = camera(&server, &authority, None).await;
    old.detect(1, &small_jpeg()).await;
    assert_eq!(shown(server.addr, &authority).await, der(&first.cert));

    // By itself: the files are looked at.
    let second = authority.signs("the second");
    files.write(&second);
    server.wait_for(RELOADED, 1.0).await;
    assert_eq!(shown(server.addr, &authority).await, der(&second.cert));
    assert_eq!(old.detect(2, &small_jpeg()).await.outcome(), Outcome::Ok, "it lives on");

    // A key that is another certificate's, and one that is none.
    for key in [first.key.as_str(), "no key"] {
        files.write(&Pair { cert: second.cert.clone(), key: key.into() });
        let failed = server.metric(NOT_RELOADED);
        server.reloader.reload().await;
        assert!(server.metric(NOT_RELOADED) > failed);
        assert_eq!(shown(server.addr, &authority).await, der(&second.cert));
    }
    assert_eq!(old.detect(3, &small_jpeg()).await.outcome(), Outcome::Ok);

    // At once, when asked.
    let third = authority.signs("the third");
    files.write(&third);
    server.reloader.reload().await;
    assert_eq!(shown(server.addr, &authority).await, der(&third.cert));
    let mut new = camera(&server, &authority, None).await;
    assert_eq!(new.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    assert_eq!(old.detect(4, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authority_of_clients_changes_too() {
    let (authority, files, _) = set_up();
    let (before, after) = (Authority::new("before"), Authority::new("after"));
    let server = TestServer::start(files.mutual(&before)).await;
    let (old_pair, new_pair) = (before.signs("camera 1"), after.signs("camera 2"));
    let mut old = camera(&server, &authority, Some(&old_pair)).await;
    old.detect(1, &small_jpeg()).await;
    pki::alert(server.addr, &authority, Some(&new_pair)).await;
    pki::replace(&files.path("clients.pem"), &after.pem);
    server.reloader.reload().await;
    pki::alert(server.addr, &authority, Some(&old_pair)).await;
    camera(&server, &authority, Some(&new_pair)).await.detect(1, &small_jpeg()).await;
    assert_eq!(old.detect(2, &small_jpeg()).await.outcome(), Outcome::Ok, "it lives on");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_does_not_shake_hands_is_closed_and_holds_up_nobody() {
    let (authority, files, _) = set_up();
    let settings = Settings { handshake_seconds: Some(2), ..files.settings() };
    let server = TestServer::start(settings).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(server.addr).await.expect("connects"));
    }
    camera(&server, &authority, None).await.detect(1, &small_jpeg()).await;
    for mut peer in silent {
        let mut heard = Vec::new();
        timeout(PATIENCE, peer.read_to_end(&mut heard)).await.expect("closed").expect("in order");
        assert_eq!(heard, b"");
    }
    server.wait_for(LATE, 20.0).await;
    server.stop().await;
}

/// One connection in four may be shaking hands; who comes then takes the place of the slowest.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_that_shake_hands_lose_the_slowest() {
    let (authority, files, _) = set_up();
    let settings =
        Settings { max_connections: Some(16), handshake_seconds: Some(3600), ..files.settings() };
    let server = TestServer::start(settings).await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(TcpStream::connect(server.addr).await.expect("connects"));
    }
    camera(&server, &authority, None).await.detect(1, &small_jpeg()).await;
    let mut heard = Vec::new();
    let reading = silent[0].read_to_end(&mut heard);
    timeout(PATIENCE, reading).await.expect("closed").expect("in order");
    server.wait_for(LATE, 1.0).await;
    server.stop().await;
}

/// The last answers and the status reach a peer although it still sends when the connection is closed.
#[tokio::test(flavor = "multi_thread")]
async fn an_aged_connection_ends_in_order() {
    let (authority, files, _) = set_up();
    let server = TestServer::start(aged_one_second(&files)).await;
    let mut camera = camera(&server, &authority, None).await;
    let (frames, mut picture) = (camera.sender(), small_jpeg());
    picture.resize(70_000, 0);
    let sending = tokio::spawn(async move {
        for id in 0.. {
            if frames.send(crate::common::encoded(id, &picture)).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let (answers, status) = camera.rest_and_status().await;
    sending.abort();
    let status = status.expect("a status");
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let said = status.metadata().get(vedette_proto::ACCEPTED_FRAMES_KEY).expect("the number");
    assert_eq!(said.to_str().expect("ASCII"), answers.len().to_string());
    drop(camera);
    // And one that only holds on is cut.
    let settings = Settings { connection_grace_seconds: Some(0), ..aged_one_second(&files) };
    server.stop().await;
    let server = TestServer::start(settings).await;
    let mut idle = raw(server.addr, &authority).await;
    let mut heard = Vec::new();
    let _ = timeout(PATIENCE, idle.read_to_end(&mut heard)).await.expect("closed");
    server.wait_for("vedette_connections_cut_total", 1.0).await;
    self::camera(&server, &authority, None).await.detect(1, &small_jpeg()).await;
    server.stop().await;
}

fn aged_one_second(files: &Files) -> Settings {
    Settings {
        max_connection_age_seconds: Some(1),
        connection_age_jitter: Some(0.0),
        ..files.settings()
    }
}

#[test]
fn files_that_cannot_be_used_end_the_start() {
    let (authority, files, pair) = set_up();
    let path = |name: &str| files.path(name).to_str().expect("Unicode").to_owned();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let ports = ["--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--backend", "spin"];
    let start = |cert: &str, key: &str| {
        fails(&[&ports[..], &["--tls-cert", cert, "--tls-key", key]].concat())
    };
    let (code, line) = start("/nowhere/cert.pem", &key);
    assert_eq!(code, 66, "{line}");
    assert!(line.contains("tls_cert: /nowhere/cert.pem: No such file"), "{line}");
    let (code, line) = start(&cert, "/nowhere/key.pem");
    assert_eq!(code, 66, "{line}");
    assert!(line.contains("tls_key: /nowhere/key.pem"), "{line}");
    files.write(&Pair { cert: authority.signs("another").cert, key: pair.key });
    let (code, line) = start(&cert, &key);
    assert_eq!(code, 64, "{line}");
    assert!(line.contains("tls_key: ") && line.contains("is not the key of"), "{line}");
}

/// The real program takes SIGHUP for "read again", and says in its metrics when its certificate expires.
#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_reads_the_certificate_again() {
    let (authority, files, first) = set_up();
    let path = |name: &str| files.path(name).to_str().expect("Unicode").to_owned();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let server = Server::start(&["--backend", "spin", "--tls-cert", &cert, "--tls-key", &key]);
    assert_eq!(shown(server.addr, &authority).await, der(&first.cert));
    let second = authority.signs_until("the second", 2040);
    files.write(&second);
    server.signal("HUP");
    let reading = async {
        while shown(server.addr, &authority).await != der(&second.cert) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, reading).await.expect("read again");
    let (_, metrics) = get(server.admin, "/metrics");
    // The beginning of 2040.
    assert!(metrics.contains("vedette_tls_certificate_expiry_seconds 2208988800\n"), "{metrics}");
    // Without anything to read, it is no reason to end.
    let plain = Server::start(&["--backend", "spin"]);
    plain.signal("HUP");
    let mut camera =
        Camera::open(&mut ObjectDetectionClient::new(channel(plain.addr).await), "cam")
            .await
            .expect("accepted");
    assert_eq!(camera.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    drop(camera);
    for server in [server, plain] {
        server.signal("TERM");
        assert_eq!(server.end().0, Some(0));
    }
}
