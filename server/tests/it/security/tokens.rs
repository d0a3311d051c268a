//! Tokens: who may call, with which cameras and how many, and how that changes while the server runs.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Stdio},
};

use tonic::{Code, Request, Status, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use vedette_proto::{
    ACCEPTED_FRAMES_KEY,
    camera_ai::{Outcome, ServerInfoRequest, object_detection_client::ObjectDetectionClient},
};
use vedette_server::settings::Settings;

use super::pki::{self, Authority, Files, replace};
use crate::{
    common::{Camera, TestServer, channel, connect, encoded, small_jpeg, spin},
    lifecycle::{command, fails, one_line},
};

const NORTH: &str = "the-secret-of-the-north-0001";
const NORTH_NEXT: &str = "the-secret-of-the-north-0002";
const SOUTH: &str = "the-secret-of-the-south-0001";

/// A token file in a folder of its own.
pub(super) struct TokenFile(tempfile::TempDir);

impl TokenFile {
    pub(super) fn new(text: &str) -> Self {
        let file = Self(tempfile::tempdir().expect("a folder"));
        file.write(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("tokens.toml")
    }

    fn write(&self, text: &str) {
        replace(&self.path(), text);
    }

    pub(super) fn settings(&self) -> Settings {
        Settings { token_file: Some(self.path()), ..spin(0.0) }
    }
}

pub(super) fn entry(name: &str, secret: &str, more: &str) -> String {
    format!("[[token]]\nname = \"{name}\"\nsecret = \"{secret}\"\n{more}\n")
}

pub(super) fn with_token<T>(message: T, token: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().expect("ASCII");
        request.metadata_mut().insert("authorization", value);
    }
    request
}

async fn open(server: &TestServer, name: &str, token: Option<&str>) -> Result<Camera, Status> {
    Camera::open_with(&mut server.client().await, name, token).await
}

async fn refused(server: &TestServer, name: &str, token: Option<&str>) -> Status {
    match open(server, name, token).await {
        Ok(_) => panic!("{name} is served"),
        Err(status) => status,
    }
}

fn counted(reason: &str) -> String {
    format!("vedette_streams_refused_total{{reason=\"{reason}\"}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_but_a_health_check_needs_a_valid_token() {
    let file = TokenFile::new(
        &(entry("north", NORTH, "") + &entry("old", SOUTH, "expires = \"2020-01-01T00:00:00Z\"")),
    );
    let server = TestServer::start(file.settings()).await;
    let mut client = server.client().await;
    let mut told = Vec::new();
    for token in [None, Some("a-secret-that-nobody-has"), Some(SOUTH), Some(""), Some("a b")] {
        told.push(refused(&server, "cam", token).await);
        let detect = with_token(encoded(1, &small_jpeg()), token);
        told.push(client.detect(detect).await.expect_err("refused"));
        let info = with_token(ServerInfoRequest {}, token);
        told.push(client.get_server_info(info).await.expect_err("refused"));
    }
    for status in &told {
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        assert_eq!(status.message(), told[0].message(), "nobody is told which");
    }
    assert!(told[0].message().contains("authorization: Bearer TOKEN"), "{}", told[0]);
    server.wait_for(&counted("unauthenticated"), told.len() as f64).await;
    assert_eq!(server.frames(), (0, 0), "nothing was read");

    let mut camera = open(&server, "cam", Some(NORTH)).await.expect("accepted");
    assert_eq!(camera.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    let detect = with_token(encoded(2, &small_jpeg()), Some(NORTH));
    assert_eq!(client.detect(detect).await.expect("served").into_inner().outcome(), Outcome::Ok);
    client.get_server_info(with_token(ServerInfoRequest {}, Some(NORTH))).await.expect("served");
    let mut health = HealthClient::new(channel(server.addr).await);
    health.check(HealthCheckRequest::default()).await.expect("without a token");
    server.stop().await;
}

/// A stranger's body is not waited for: its answer comes while it is still being sent.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_read_of_a_call_without_a_token() {
    let file = TokenFile::new(&entry("north", NORTH, ""));
    let server = TestServer::start(file.settings()).await;
    let mut client = server.client().await;
    let large = vec![0; 30 << 20];
    let status = client.detect(encoded(1, &large)).await.expect_err("refused");
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    let mut camera = open(&server, "cam", Some(NORTH)).await.expect("accepted");
    camera.detect(1, &small_jpeg()).await;
    assert!(server.metric("vedette_frames_received_total") < 1.5);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_for_its_cameras() {
    let file = TokenFile::new(&entry("north", NORTH, "cameras = [\"north-*\", \"gate\"]"));
    let server = TestServer::start(file.settings()).await;
    for name in ["north-1", "gate"] {
        let mut camera = open(&server, name, Some(NORTH)).await.expect("accepted");
        camera.detect(1, &small_jpeg()).await;
    }
    let status = refused(&server, "south-1", Some(NORTH)).await;
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    let text = status.message();
    assert!(text.contains("\"south-1\"") && text.contains("\"north\""), "{text}");
    let status = refused(&server, "", Some(NORTH)).await;
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert!(status.message().contains("camera-id"), "{status}");
    let mut client = server.client().await;
    let detect = with_token(encoded(1, &small_jpeg()), Some(NORTH));
    let status = client.detect(detect).await.expect_err("names no camera");
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    server.wait_for(&counted("permission_denied"), 3.0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_has_no_more_streams_than_it_may() {
    let file =
        TokenFile::new(&(entry("north", NORTH, "max_cameras = 2") + &entry("south", SOUTH, "")));
    let server = TestServer::start(file.settings()).await;
    let mut first = open(&server, "one", Some(NORTH)).await.expect("accepted");
    let second = open(&server, "two", Some(NORTH)).await.expect("accepted");
    let status = refused(&server, "three", Some(NORTH)).await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("all 2 places for cameras of token \"north\""), "{status}");
    server.wait_for(&counted("token_max_cameras"), 1.0).await;
    let open_now = "vedette_token_cameras{token=\"north\"}";
    assert!((server.metric(open_now) - 2.0).abs() < 0.5);
    // Others have their own.
    open(&server, "three", Some(SOUTH)).await.expect("accepted").detect(1, &small_jpeg()).await;
    drop(second);
    server.wait_for(open_now, 1.0).await;
    open(&server, "three", Some(NORTH)).await.expect("accepted").detect(1, &small_jpeg()).await;
    first.detect(1, &small_jpeg()).await;
    server.stop().await;
}

fn assert_ended(status: Option<Status>, code: Code, accepted: usize) {
    let status = status.expect("a status");
    assert_eq!(status.code(), code, "{status}");
    let said = status.metadata().get(ACCEPTED_FRAMES_KEY).expect("the number accepted");
    assert_eq!(said.to_str().expect("ASCII"), accepted.to_string());
}

/// A secret is renewed by adding the next and taking out the old: the stream that began with it lives on, and
/// one whose holder is taken out ends, with every accepted frame answered.
#[tokio::test(flavor = "multi_thread")]
async fn streams_outlive_a_secret_and_not_their_holder() {
    let north = entry("north", NORTH, "");
    let file = TokenFile::new(&(north.clone() + &entry("south", SOUTH, "")));
    let settings = Settings { spin_ms: Some(20.0), ..file.settings() };
    let server = TestServer::start(settings).await;
    let mut old = open(&server, "old", Some(NORTH)).await.expect("accepted");
    let mut south = open(&server, "south", Some(SOUTH)).await.expect("accepted");
    old.detect(1, &small_jpeg()).await;

    let next = entry("north", NORTH_NEXT, "");
    file.write(&(north + &next + &entry("south", SOUTH, "")));
    server.reloader.reload().await;
    for secret in [NORTH, NORTH_NEXT] {
        open(&server, "x", Some(secret))
            .await
            .expect("both are valid")
            .detect(1, &small_jpeg())
            .await;
    }

    for id in 0..3 {
        south.send_picture(id, &small_jpeg()).await;
    }
    // The first answer: the frames have been accepted, or are about to be.
    let first = south.answer().await;
    assert!(matches!(first.outcome(), Outcome::Ok | Outcome::Superseded), "{first:?}");
    file.write(&next);
    // By itself: the file is looked at.
    let (answers, status) = south.rest_and_status().await;
    assert!(answers.iter().all(|a| matches!(a.outcome(), Outcome::Ok | Outcome::Superseded)));
    assert_ended(status, Code::Unauthenticated, 1 + answers.len());
    assert_eq!(refused(&server, "old", Some(NORTH)).await.code(), Code::Unauthenticated);
    assert_eq!(old.detect(2, &small_jpeg()).await.outcome(), Outcome::Ok, "merely renewed");
    server.wait_for("vedette_streams_revoked_total", 1.0).await;

    // A file that cannot be used changes nothing, and is counted.
    file.write("[[token]]\nname = \"north\"");
    server.reloader.reload().await;
    server.wait_for("vedette_token_reloads_total{result=\"failed\"}", 1.0).await;
    assert_eq!(old.detect(3, &small_jpeg()).await.outcome(), Outcome::Ok);
    open(&server, "x", Some(NORTH_NEXT)).await.expect("still valid").detect(1, &small_jpeg()).await;

    // The camera is taken from the holder.
    file.write(&entry("north", NORTH_NEXT, "cameras = [\"new\"]"));
    server.reloader.reload().await;
    let (answers, status) = old.rest_and_status().await;
    assert!(answers.is_empty());
    assert_ended(status, Code::PermissionDenied, 3);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_token_expires() {
    let in_seconds = |seconds: u64| {
        let output = std::process::Command::new("date")
            .args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d", &format!("+{seconds} seconds")])
            .output()
            .expect("date");
        String::from_utf8(output.stdout).expect("ASCII").trim().to_owned()
    };
    let expires = format!("expires = {}", in_seconds(4));
    let file = TokenFile::new(&(entry("north", NORTH, &expires) + &entry("south", SOUTH, "")));
    let server = TestServer::start(file.settings()).await;
    let mut camera = open(&server, "cam", Some(NORTH)).await.expect("not yet expired");
    let mut other = open(&server, "other", Some(SOUTH)).await.expect("accepted");
    camera.detect(1, &small_jpeg()).await;
    let (answers, status) = camera.rest_and_status().await;
    assert!(answers.is_empty());
    assert_ended(status, Code::Unauthenticated, 1);
    assert_eq!(refused(&server, "cam", Some(NORTH)).await.code(), Code::Unauthenticated);
    assert_eq!(other.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.stop().await;
}

/// Both at once, as it should be used.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_over_tls() {
    let authority = Authority::new("an authority");
    let files = Files::new(&authority.signs("server"));
    let tokens = TokenFile::new(&entry("north", NORTH, ""));
    let settings = Settings { token_file: Some(tokens.path()), ..files.settings() };
    let server = TestServer::start(settings).await;
    let channel = pki::channel(server.addr, &authority, None).await.expect("connects");
    let mut client: ObjectDetectionClient<Channel> = ObjectDetectionClient::new(channel);
    let status = client.get_server_info(ServerInfoRequest {}).await.expect_err("no token");
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    let mut camera = Camera::open_with(&mut client, "cam", Some(NORTH)).await.expect("accepted");
    assert_eq!(camera.detect(1, &small_jpeg()).await.outcome(), Outcome::Ok);
    server.stop().await;
}

/// The real program with its logs in a file: what it says at the finest level would fill a pipe.
struct Program {
    child: Child,
    addr: SocketAddr,
    log: PathBuf,
}

impl Program {
    fn start(file: &TokenFile, args: &[&str]) -> Self {
        let log = file.0.path().join("log");
        let mut command = command(&["--backend", "spin", "--admin-addr", "127.0.0.1:0"]);
        command.arg("--token-file").arg(file.path()).args(args);
        command.stderr(Stdio::from(std::fs::File::create(&log).expect("creates")));
        let mut child = command.spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("reads");
        let addr = line.trim().rsplit(' ').next().and_then(|addr| addr.parse().ok());
        Self { child, addr: addr.unwrap_or_else(|| panic!("{line:?}")), log }
    }

    /// Ends the program and returns its logs.
    fn end(mut self) -> String {
        self.child.kill().expect("ends");
        self.child.wait().expect("ends");
        std::fs::read_to_string(&self.log).expect("reads")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_the_logs_at_any_level() {
    let file = TokenFile::new(&entry("north", NORTH, ""));
    for format in ["text", "json"] {
        let args = ["--addr", "127.0.0.1:0", "--log-level", "trace", "--log-format", format];
        let program = Program::start(&file, &args);
        let mut client = connect(program.addr).await;
        let mut camera =
            Camera::open_with(&mut client, "cam", Some(NORTH)).await.expect("accepted");
        camera.detect(1, &small_jpeg()).await;
        // One that is not in the file is as much of a secret: it may be another server's.
        for token in [SOUTH, "Bearer of-another-server-0001"] {
            Camera::open_with(&mut client, "cam", Some(token))
                .await
                .map(drop)
                .expect_err("refused");
        }
        drop((camera, client));
        let log = program.end();
        for part in ["stream opened", "north", "h2::", "HEADERS"] {
            assert!(log.contains(part), "it says everything else: {part}");
        }
        for secret in [NORTH, SOUTH, "of-another-server", "Bearer of"] {
            assert!(!log.contains(secret), "{secret} in the log");
        }
    }
}

#[test]
fn no_secret_is_in_what_a_start_says() {
    let good = TokenFile::new(&entry("north", NORTH, ""));
    let path = good.path();
    let path = path.to_str().expect("Unicode");
    let output = command(&["--print-config", "--token-file", path]).output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!("token_file = \"{path}\"")) && !text.contains(NORTH), "{text}");

    let ports = ["--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--backend", "spin"];
    for (text, reason) in [
        (entry("north", NORTH, "camera = [\"a\"]"), "token 1 (north): camera: unknown key"),
        (entry("north", NORTH, "") + NORTH, "line 5: is not TOML"),
        (entry("north", "too-short", ""), "token 1 (north): secret: must be 16 to 512"),
    ] {
        good.write(&text);
        let (code, line) = fails(&[&ports[..], &["--token-file", path]].concat());
        assert_eq!(code, 64, "{line}");
        assert!(line.contains(&format!("token_file: {path}: {reason}")), "{line}");
        assert!(!line.contains(NORTH) && !line.contains("too-short"), "{line}");
    }
    let missing = ["--token-file", "/nowhere/tokens.toml"];
    let output = command(&[&ports[..], &missing].concat()).output().expect("runs");
    let (code, line) = one_line(&output);
    assert_eq!(code, 66, "{line}");
    assert!(line.contains("token_file: /nowhere/tokens.toml: No such file"), "{line}");
}

/// An open address and a file that others can read are said at the start, with what to do.
#[test]
fn what_may_be_open_by_mistake_is_said() {
    use std::os::unix::fs::PermissionsExt as _;

    let file = TokenFile::new(&entry("north", NORTH, ""));
    let set = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(file.path(), permissions).expect("sets");
    };
    set(0o644);
    let log = Program::start(&file, &["--addr", "0.0.0.0:0"]).end();
    assert!(log.contains("tokens and pictures cross the network unencrypted"), "{log}");
    assert!(log.contains("others may read this secret") && log.contains("644"), "{log}");
    for mode in [0o600, 0o640, 0o440, 0o400] {
        set(mode);
        let log = Program::start(&file, &["--addr", "127.0.0.1:0"]).end();
        assert!(!log.contains("others may read") && !log.contains("cross the network"), "{log}");
    }
}
