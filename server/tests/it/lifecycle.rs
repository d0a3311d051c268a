//! The real program: what it says when it cannot start, probes, and how it ends.

use std::{
    io::{BufRead, BufReader, Read},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::Duration,
};

use crate::common::{
    Camera, channel, connect, connect_narrow, fetched, fixture, get, small_jpeg, wait_until,
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use vedette_proto::{ACCEPTED_FRAMES_KEY, camera_ai::Outcome};

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vedette-server"));
    command.args(args).env_clear().stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs to the end and returns its exit code and stderr, which must be one line.
pub(crate) fn fails(args: &[&str]) -> (i32, String) {
    one_line(&command(args).output().expect("runs"))
}

pub(crate) fn one_line(output: &Output) -> (i32, String) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    assert!(output.stdout.is_empty());
    (output.status.code().expect("an exit code"), text)
}

pub(crate) struct Server {
    pub(crate) child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) addr: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Server {
    /// Starts with a free port for cameras and for operators.
    pub(crate) fn start(args: &[&str]) -> Self {
        let admin = free_addr();
        let admin_text = admin.to_string();
        let mut all = vec!["--addr", "127.0.0.1:0", "--admin-addr", admin_text.as_str()];
        all.extend(args);
        let mut child = command(&all).spawn().expect("starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("reads");
        let addr = line
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("unexpected first line {line:?}"))
            .trim()
            .parse()
            .expect("an address");
        Self { child, stdout, addr, admin }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, pid.as_str()]).status().expect("kill");
        assert!(status.success());
    }

    /// Waits for the end: exit code, stdout after the first line, stderr.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        let status = self.child.wait().expect("ends");
        let (mut out, mut err) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).expect("reads");
        self.child.stderr.take().expect("piped").read_to_string(&mut err).expect("reads");
        (status.code(), out, err)
    }
}

pub(crate) fn free_addr() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port")
}

#[test]
fn unknown_flag() {
    let (code, text) = fails(&["--wrokers", "2"]);
    assert_eq!(code, 64);
    assert!(text.contains("--wrokers") && text.contains("--workers"), "{text}");
}

#[test]
fn unknown_keys_in_file_and_environment() {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    std::fs::write(file.path(), "wrokers = 2\n").expect("write");
    let path = file.path().to_str().expect("Unicode");
    let (code, text) = fails(&["--config", path]);
    assert_eq!(code, 64);
    assert!(text.contains("wrokers: unknown key") && text.contains(path), "{text}");

    let output = command(&[]).env("VEDETTE_WROKERS", "2").output().expect("runs");
    let (code, text) = one_line(&output);
    assert_eq!(code, 64);
    assert!(text.contains("VEDETTE_WROKERS: unknown key"), "{text}");
}

#[test]
fn kubernetes_service_links_are_not_settings() {
    let output = command(&["--print-config"])
        .env("VEDETTE_SERVICE_HOST", "10.0.0.1")
        .env("VEDETTE_PORT", "tcp://10.0.0.1:50051")
        .env("VEDETTE_PORT_50051_TCP_ADDR", "10.0.0.1")
        .env("VEDETTE_SERVER_SERVICE_PORT_GRPC", "50051")
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn environment_wins_over_the_file_and_flags_over_both() {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    std::fs::write(file.path(), "workers = 2\nbatch = 2\niou = 0.2\n").expect("write");
    let output = command(&["--print-config", "--workers", "4"])
        .env("VEDETTE_CONFIG", file.path())
        .env("VEDETTE_WORKERS", "3")
        .env("VEDETTE_BATCH", "3")
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    for line in ["workers = 4", "batch = 3", "iou = 0.2", "confidence = 0.25"] {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
}

/// In a container with a share of a machine, workers for all its cores would only throttle each other.
#[test]
fn threads_follow_the_cores_that_the_process_may_use() {
    let output = Command::new("taskset")
        .args(["-c", &first_allowed_cpu(), env!("CARGO_BIN_EXE_vedette-server"), "--print-config"])
        .env_remove("VEDETTE_CONFIG")
        .env_remove("VEDETTE_WORKERS")
        .env_remove("VEDETTE_IO_THREADS")
        .output();
    let Ok(output) = output else {
        println!("skipped: no taskset here (util-linux)");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    for line in ["workers = 1", "io_threads = 1"] {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
}

/// A CPU that this process may run on; not always number 0.
fn first_allowed_cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = list.expect("Linux").trim().split([',', '-']).next().unwrap_or_default();
    first.to_owned()
}

fn model_error(model: &Path) -> (i32, String) {
    let runtime = fetched("onnxruntime/libonnxruntime.so");
    let [addr, admin] = [free_addr(), free_addr()].map(|addr| addr.to_string());
    fails(&[
        "--addr",
        &addr,
        "--admin-addr",
        &admin,
        "--log-level",
        "error",
        "--runtime-lib",
        runtime.to_str().expect("Unicode"),
        "--model",
        model.to_str().expect("Unicode"),
    ])
}

#[test]
fn missing_and_broken_models() {
    let (code, text) = model_error(Path::new("/nowhere/model.onnx"));
    assert_eq!(code, 66);
    assert!(text.contains("model: ") && text.contains("/nowhere/model.onnx"), "{text}");
    assert!(text.contains("setup.py"), "{text}");
    for broken in ["corrupt_truncated.onnx", "corrupt_lfs_pointer.onnx"] {
        let (code, text) = model_error(&fixture("models").join(broken));
        assert_eq!(code, 65, "{text}");
        assert!(text.contains("not a usable ONNX model") && text.contains(broken), "{text}");
    }
    let (_, text) = model_error(&fixture("models/corrupt_lfs_pointer.onnx"));
    assert!(text.contains("git lfs pull"), "{text}");
}

#[test]
fn a_layout_that_is_not_the_models() {
    let runtime = fetched("onnxruntime/libonnxruntime.so");
    let args = ["--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-level", "error"];
    let model = fetched("yolox_nano.onnx");
    let paths = [
        "--runtime-lib",
        runtime.to_str().expect("Unicode"),
        "--model",
        model.to_str().expect("Unicode"),
    ];
    let (code, text) = fails(&[&args[..], &paths, &["--layout", "yolov8"]].concat());
    assert_eq!(code, 65);
    assert!(text.contains("layout: ") && text.contains("not yolov8"), "{text}");
}

#[test]
fn a_misspelt_log_level_is_not_silence() {
    let (code, text) = fails(&["--backend", "spin", "--log-level", "verbose"]);
    assert_eq!(code, 64);
    assert!(text.contains("log-level: \"verbose\""), "{text}");
}

#[test]
fn missing_runtime_library() {
    let [addr, admin] = [free_addr(), free_addr()].map(|addr| addr.to_string());
    let args = ["--addr", &addr, "--admin-addr", &admin, "--runtime-lib", "/nowhere/lib.so"];
    let (code, text) = fails(&args);
    assert_eq!(code, 66);
    assert!(text.contains("runtime-lib: ") && text.contains("setup.py"), "{text}");
}

#[test]
fn busy_ports() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|addr| (addr.to_string(), taken)).expect("address");
    let free = free_addr().to_string();
    for args in
        [["--addr", &taken.0, "--admin-addr", &free], ["--addr", &free, "--admin-addr", &taken.0]]
    {
        let (code, text) = fails(&[&args[..], &["--backend", "spin"]].concat());
        assert_eq!(code, 69);
        assert!(text.contains(&taken.0) && text.contains("another process"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_metrics() {
    let server = Server::start(&["--backend", "spin", "--spin-ms", "0"]);
    let mut camera = Camera::open(&mut connect(server.addr).await, "cam").await.expect("accepted");
    camera.detect(1, &small_jpeg()).await;
    assert_eq!(get(server.admin, "/healthz").0, "HTTP/1.1 200 OK");
    assert_eq!(get(server.admin, "/readyz").0, "HTTP/1.1 200 OK");
    assert_eq!(get(server.admin, "/nothing").0, "HTTP/1.1 404 Not Found");
    let (status, body) = get(server.admin, "/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    for series in [
        "vedette_frames_total{outcome=\"ok\"} 1",
        "vedette_streams 1",
        "vedette_frame_seconds_count 1",
        "vedette_stage_seconds_bucket{stage=\"inference\",le=\"0.1\"}",
        "vedette_decode_bytes_total",
        "vedette_model_info{",
        "process_resident_memory_bytes",
    ] {
        assert!(body.contains(series), "{series} in\n{body}");
    }
    let mut health = HealthClient::new(channel(server.addr).await);
    for service in ["", "camera_ai.ObjectDetection"] {
        let request = HealthCheckRequest { service: service.into() };
        let answer = health.check(request).await.expect("answered").into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service:?}");
    }
    drop((camera, health));
    server.signal("INT");
    assert_eq!(server.end().0, Some(0));
}

/// Terminates a server in the middle of a run of many cameras: every accepted frame is answered, the
/// stream says how many that were, and the process ends in order.
#[tokio::test(flavor = "multi_thread")]
async fn termination_answers_every_accepted_frame() {
    const CAMERAS: usize = 30;
    let server = Server::start(&["--backend", "spin", "--spin-ms", "3", "--grace-seconds", "30"]);
    let mut health = HealthClient::new(channel(server.addr).await);
    let mut watch =
        health.watch(HealthCheckRequest::default()).await.expect("answered").into_inner();
    let first = watch.message().await.expect("open").expect("a state");
    assert_eq!(first.status(), ServingStatus::Serving);

    // As large as a camera's: what is still on its way when the server goes must not cost answers.
    let mut picture = small_jpeg();
    picture.resize(70_000, 0);
    let mut runs = Vec::new();
    let (ready, mut all_ready) = tokio::sync::mpsc::channel(CAMERAS);
    for number in 0..CAMERAS {
        let mut client = connect(server.addr).await;
        let (picture, ready) = (picture.clone(), ready.clone());
        runs.push(tokio::spawn(async move {
            let name = format!("cam-{number}");
            let mut camera = Camera::open(&mut client, &name).await.expect("accepted");
            camera.detect(0, &picture).await;
            ready.send(()).await.expect("counted");
            let (frames, mut sent) = (camera.sender(), 1);
            let sending = tokio::spawn(async move {
                let mut tick = tokio::time::interval(Duration::from_millis(20));
                loop {
                    tick.tick().await;
                    let request = crate::common::encoded(sent, &picture);
                    if frames.send(request).await.is_err() {
                        return;
                    }
                    sent += 1;
                }
            });
            let (answers, status) = camera.rest_and_status().await;
            sending.abort();
            (answers, status.expect("a stream cut by shutdown ends with a status"))
        }));
    }
    for _ in 0..CAMERAS {
        all_ready.recv().await.expect("a camera");
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.signal("TERM");
    let next = watch.message().await.expect("open").expect("a state");
    assert_eq!(next.status(), ServingStatus::NotServing, "load balancers are told at once");

    let mut accepted_by_all = 0;
    for run in runs {
        let (answers, status) = run.await.expect("no panic");
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
        let accepted = status.metadata().get(ACCEPTED_FRAMES_KEY).expect("the number accepted");
        let accepted: usize = accepted.to_str().expect("ASCII").parse().expect("a number");
        // The first frame's answer was read before.
        assert_eq!(answers.len() + 1, accepted);
        accepted_by_all += accepted;
        for answer in answers {
            assert!(matches!(answer.outcome(), Outcome::Ok | Outcome::Superseded));
        }
    }
    assert!(accepted_by_all > CAMERAS);
    // A watcher of the health service is still there, and does not hold up the end.
    let (code, out, err) = server.end();
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
}

/// The same with a real network: the runtime's library is unloaded only once no worker uses it.
#[tokio::test(flavor = "multi_thread")]
async fn termination_with_the_real_network() {
    let runtime = fetched("onnxruntime/libonnxruntime.so");
    let model = fixture("models/cells_v8.onnx");
    let server = Server::start(&[
        "--runtime-lib",
        runtime.to_str().expect("Unicode"),
        "--model",
        model.to_str().expect("Unicode"),
        "--grace-seconds",
        "30",
    ]);
    let mut camera = Camera::open(&mut connect(server.addr).await, "cam").await.expect("accepted");
    let picture = crate::common::bytes("scene_1080p.jpg");
    camera.detect(0, &picture).await;
    for id in 1..4 {
        camera.send_picture(id, &picture).await;
    }
    server.signal("TERM");
    let (answers, status) = camera.rest_and_status().await;
    let status = status.expect("a stream cut by shutdown ends with a status");
    let accepted = status.metadata().get(ACCEPTED_FRAMES_KEY).expect("the number accepted");
    assert_eq!(accepted.to_str().expect("ASCII"), (answers.len() + 1).to_string());
    let (code, _, err) = server.end();
    assert_eq!(code, Some(0), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_never_reads_does_not_hold_up_the_end() {
    let server = Server::start(&["--backend", "spin", "--spin-ms", "0", "--grace-seconds", "2"]);
    let camera =
        Camera::open(&mut connect_narrow(server.addr).await, "deaf").await.expect("accepted");
    let picture = small_jpeg();
    let feeding = async {
        for id in 0.. {
            camera.send_picture(id, &picture).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), feeding).await;
    server.signal("TERM");
    let (code, _, err) = tokio::task::spawn_blocking(move || server.end()).await.expect("ends");
    assert_eq!(code, Some(0), "{err}");
    drop(camera);
}

#[test]
fn a_later_signal_ends_at_once() {
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let server = Server::start(&["--backend", "spin", "--spin-ms", "0", "--grace-seconds", "3600"]);
    let addr = server.addr;
    let (camera, picture) = (
        runtime.block_on(async {
            Camera::open(&mut connect_narrow(addr).await, "deaf").await.expect("accepted")
        }),
        small_jpeg(),
    );
    runtime.block_on(async {
        let feeding = async {
            for id in 0.. {
                camera.send_picture(id, &picture).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), feeding).await;
    });
    server.signal("TERM");
    // One that follows at once is taken for the first one's echo, so signal until it ends.
    let mut server = server;
    while server.child.try_wait().expect("waits").is_none() {
        std::thread::sleep(Duration::from_millis(100));
        server.signal("TERM");
    }
    assert_eq!(server.end().0, Some(143));
    drop(camera);
}

/// The model file changes under a running server: nothing happens until it is told to look, and a file that
/// is of no use changes nothing then.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_changes_under_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("model.onnx");
    std::fs::copy(fixture("models/cells_v8.onnx"), &model).expect("copies");
    let runtime = fetched("onnxruntime/libonnxruntime.so");
    let server = Server::start(&[
        "--runtime-lib",
        runtime.to_str().expect("Unicode"),
        "--model",
        model.to_str().expect("Unicode"),
        "--confidence",
        "0.5",
    ]);
    let mut camera = Camera::open(&mut connect(server.addr).await, "cam").await.expect("accepted");
    let picture = crate::common::bytes("base_640x360.jpg");
    let labels = |answer: &vedette_proto::camera_ai::DetectResponse| {
        answer.objects.iter().map(|object| object.label.clone()).collect::<Vec<_>>()
    };
    let before = labels(&camera.detect(1, &picture).await);
    assert_eq!(before.len(), 3);

    // Truncated in place, then removed: what serves is in memory.
    std::fs::OpenOptions::new().write(true).truncate(true).open(&model).expect("truncates");
    assert_eq!(labels(&camera.detect(2, &picture).await), before);
    let metrics = |series: &str| get(server.admin, "/metrics").1.lines().any(|line| line == series);
    server.signal("HUP");
    wait_until(|| metrics("vedette_model_reloads_total{result=\"failed\"} 1")).await;
    assert_eq!(labels(&camera.detect(3, &picture).await), before);
    std::fs::remove_file(&model).expect("removes");
    server.signal("HUP");
    wait_until(|| metrics("vedette_model_reloads_total{result=\"failed\"} 2")).await;
    assert_eq!(labels(&camera.detect(4, &picture).await), before);

    // Another one takes over between two frames of an open stream.
    std::fs::copy(fixture("models/cells_names_missing.onnx"), &model).expect("copies");
    server.signal("HUP");
    wait_until(|| metrics("vedette_model_reloads_total{result=\"ok\"} 1")).await;
    let after = labels(&camera.detect(5, &picture).await);
    assert_ne!(after, before, "the labels of the other model");
    drop(camera);
    server.signal("TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("going on with the model as it was").count(), 2, "{log}");
}

#[test]
fn a_health_check_tells_whether_cameras_are_taken() {
    let server = Server::start(&["--backend", "spin"]);
    let admin = server.admin.to_string();
    let check = ["--check-health", "--admin-addr", &admin];
    let output = command(&check).output().expect("runs");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    server.signal("TERM");
    assert_eq!(server.end().0, Some(0));
    let (code, said) = fails(&check);
    assert_eq!(code, 1);
    assert!(said.starts_with("vedette-server: not ready: "), "{said}");
}
