//! Limits of connections: how many, and what those must say that want to stay.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tonic::{Code, Request, metadata::MetadataValue};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use vedette_proto::camera_ai::{Outcome, ServerInfoRequest};
use vedette_server::{limits::ADMIN_CONNECTIONS, settings::Settings};

use super::pki::{Authority, Files, raw};
use crate::{
    common::{Camera, PATIENCE, TestServer, channel, small_jpeg, spin},
    connections::{GOAWAY, Wire},
};

const OPEN: &str = "vedette_connections";

fn refused(reason: &str) -> String {
    format!("vedette_connections_refused_total{{reason=\"{reason}\"}}")
}

/// Waits until the server has closed a connection on which it has said nothing of use.
async fn closed(peer: &mut TcpStream) {
    let mut heard = Vec::new();
    // Whether in order or by a reset.
    let _ = timeout(PATIENCE, peer.read_to_end(&mut heard)).await.expect("closed in time");
}

async fn connect(addr: SocketAddr) -> TcpStream {
    TcpStream::connect(addr).await.expect("connects")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_too_many_is_closed_at_once() {
    let server = TestServer::start(Settings { max_connections: Some(2), ..spin(0.0) }).await;
    let mut first = server.camera("first").await;
    let second = server.camera("second").await;
    server.wait_for(OPEN, 2.0).await;
    closed(&mut connect(server.addr).await).await;
    server.wait_for(&refused("max_connections"), 1.0).await;
    assert_eq!(first.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    drop(second);
    server.wait_for(OPEN, 1.0).await;
    let mut third = server.camera("third").await;
    assert_eq!(third.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    drop((first, third));
    server.wait_for(OPEN, 0.0).await;
    server.stop().await;
}

/// Whoever may connect to the operators' port cannot take the descriptors that cameras need.
#[tokio::test(flavor = "multi_thread")]
async fn the_operators_port_has_a_number_of_places() {
    const ASK: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let server = TestServer::start(spin(0.0)).await;
    let mut idle = Vec::new();
    for _ in 0..ADMIN_CONNECTIONS {
        idle.push(connect(server.admin).await);
    }
    let mut late = connect(server.admin).await;
    late.write_all(ASK).await.expect("writes");
    let mut heard = Vec::new();
    timeout(Duration::from_millis(300), late.read_to_end(&mut heard)).await.expect_err("waits");
    idle.pop();
    let _ = timeout(PATIENCE, late.read_to_end(&mut heard)).await.expect("its turn");
    assert!(heard.starts_with(b"HTTP/1.1 200 OK"), "{}", heard.escape_ascii());
    let mut camera = server.camera("cam").await;
    assert_eq!(camera.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.stop().await;
}

/// The health service asks for no token, so nothing large is held for it.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_send_small_messages() {
    let server = TestServer::start(spin(0.0)).await;
    let mut health = HealthClient::new(channel(server.addr).await);
    let mut code = async |bytes| {
        let service = "x".repeat(bytes);
        health.check(HealthCheckRequest { service }).await.expect_err("no such service").code()
    };
    assert_eq!(code(100).await, Code::NotFound);
    assert_eq!(code(2000).await, Code::OutOfRange);
    let mut camera = server.camera("cam").await;
    assert_eq!(camera.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_has_no_more_connections_than_it_may() {
    let settings = Settings { max_connections_per_ip: Some(1), ..spin(0.0) };
    let server = TestServer::start(settings).await;
    let mut only = server.camera("only").await;
    closed(&mut connect(server.addr).await).await;
    server.wait_for(&refused("max_connections_per_ip"), 1.0).await;
    // From another of this machine's addresses.
    let other = tokio::net::TcpSocket::new_v4().expect("a socket");
    other.bind("127.0.0.2:0".parse().expect("an address")).expect("binds");
    let other = other.connect(server.addr).await.expect("connects");
    server.wait_for(OPEN, 2.0).await;
    assert_eq!(only.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    drop(other);
    server.stop().await;
}

/// Neither silence nor a greeting that never ends is a way to hold a connection.
#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_speak_http_2_in_time_is_closed() {
    let settings = Settings { handshake_seconds: Some(2), ..spin(0.0) };
    let server = TestServer::start(settings).await;
    let mut camera = server.camera("cam").await;
    let mut silent = connect(server.addr).await;
    let mut half = connect(server.addr).await;
    half.write_all(b"PRI * HTTP/2.0\r\n\r\n").await.expect("sends");
    let mut without_settings = connect(server.addr).await;
    without_settings.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sends");
    for peer in [&mut silent, &mut half, &mut without_settings] {
        closed(peer).await;
    }
    server.wait_for(&refused("handshake"), 3.0).await;
    // What is no HTTP/2 at all is closed without waiting.
    let mut other = connect(server.addr).await;
    other.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sends");
    closed(&mut other).await;
    // Who has spoken may be quiet for longer.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(camera.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    assert!((server.metric(&refused("handshake")) - 3.0).abs() < 0.5);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_silence_is_closed_too() {
    let authority = Authority::new("an authority");
    let files = Files::new(&authority.signs("server"));
    let settings = Settings { handshake_seconds: Some(2), ..files.settings() };
    let server = TestServer::start(settings).await;
    let mut silent = raw(server.addr, &authority).await;
    let mut heard = Vec::new();
    let _ = timeout(PATIENCE, silent.read_to_end(&mut heard)).await.expect("closed in time");
    server.wait_for(&refused("handshake"), 1.0).await;
    server.wait_for(OPEN, 0.0).await;
    let channel = super::pki::channel(server.addr, &authority, None).await.expect("connects");
    let mut client =
        vedette_proto::camera_ai::object_detection_client::ObjectDetectionClient::new(channel);
    let mut camera = Camera::open(&mut client, "cam").await.expect("accepted");
    camera.detect(1, &small_jpeg()).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_without_end_is_refused_and_its_connection_serves_on() {
    let server = TestServer::start(spin(0.0)).await;
    let mut client = server.client().await;
    let mut camera = Camera::open(&mut client, "cam").await.expect("accepted");
    let mut request = Request::new(ServerInfoRequest {});
    for number in 0..20 {
        let key: tonic::metadata::AsciiMetadataKey = format!("x-{number}").parse().expect("a key");
        let value: MetadataValue<_> = "y".repeat(1000).parse().expect("a value");
        request.metadata_mut().insert(key, value);
    }
    client.get_server_info(request).await.expect_err("more than 16 KiB");
    client.get_server_info(ServerInfoRequest {}).await.expect("usual metadata");
    assert_eq!(camera.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.stop().await;
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
/// A stream that has ended, and the last of its headers (RFC 9113, section 6.2).
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// An HTTP/2 frame as it stands on the wire (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The headers of a call (HPACK, RFC 7541: indexed fields, and literals that are not to be indexed).
fn call() -> Vec<u8> {
    // :method POST, :scheme http, then :path, :authority, content-type and te.
    let mut block = vec![0x83, 0x86, 0x04];
    let mut text = |text: &str, before: &[u8]| {
        block.extend(before);
        block.push(u8::try_from(text.len()).expect("short"));
        block.extend(text.as_bytes());
    };
    text("/camera_ai.ObjectDetection/DetectStream", &[]);
    text("x", &[0x01]);
    text("application/grpc", &[0x0f, 0x10]);
    text("te", &[0x00]);
    text("trailers", &[]);
    block
}

/// The error code of the GOAWAY with which the server ends a connection; `None` if it ends without.
async fn goaway(wire: &mut Wire) -> Option<u32> {
    let mut code = None;
    while let Some(frame) = wire.next().await {
        if frame.kind == GOAWAY {
            code = frame.payload[4..8].try_into().ok().map(u32::from_be_bytes);
        }
    }
    code
}

/// CVE-2023-44487: streams that are opened and reset at once cost their client nothing.
#[tokio::test(flavor = "multi_thread")]
async fn rapid_resets_end_their_connection_and_no_other() {
    let server = TestServer::start(spin(0.0)).await;
    let mut camera = server.camera("cam").await;
    let mut wire = Wire::connect(server.addr).await;
    let (headers, cancel) = (call(), 8_u32.to_be_bytes());
    let mut flood = Vec::new();
    for stream in (1..20_000).step_by(2) {
        flood.extend(frame(HEADERS, END_HEADERS, stream, &headers));
        flood.extend(frame(RST_STREAM, 0, stream, &cancel));
    }
    // The server may close in the middle of it.
    let _ = wire.0.write_all(&flood).await;
    // ENHANCE_YOUR_CALM (RFC 9113, section 7), if it arrives before the reset that follows.
    let code = goaway(&mut wire).await;
    assert!(matches!(code, None | Some(11)), "{code:?}");
    server.wait_for(OPEN, 1.0).await;
    assert_eq!(camera.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.stop().await;
}

/// RUSTSEC-2024-0332: headers that are continued without end.
#[tokio::test(flavor = "multi_thread")]
async fn endless_headers_end_their_connection_and_no_other() {
    let server = TestServer::start(spin(0.0)).await;
    let mut camera = server.camera("cam").await;
    let mut wire = Wire::connect(server.addr).await;
    let mut flood = frame(HEADERS, END_STREAM, 1, &call());
    for number in 0..10_000 {
        let mut more = vec![0x00, 5];
        more.extend(format!("{number:05}").as_bytes());
        more.extend([1, b'y']);
        flood.extend(frame(CONTINUATION, 0, 1, &more));
    }
    let _ = wire.0.write_all(&flood).await;
    goaway(&mut wire).await;
    server.wait_for(OPEN, 1.0).await;
    assert_eq!(camera.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.stop().await;
}
