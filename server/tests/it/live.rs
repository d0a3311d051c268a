//! The live page's data: what it says is what `/metrics` says and what clients are told.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;
use vedette_proto::camera_ai::DetectResponse;
use vedette_server::settings::Settings;

use crate::common::{TestServer, bytes, cells, get, small_jpeg, spin, wait_until};

const SECRET: &str = "an-operators-secret";

/// Settings that show pictures to those who know [`SECRET`].
fn with_preview(settings: Settings, file: &tempfile::NamedTempFile) -> Settings {
    std::fs::write(file.path(), format!("{SECRET}\n")).expect("writes");
    Settings { preview: Some(true), admin_token_file: Some(file.path().to_path_buf()), ..settings }
}

/// An open stream of events.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(admin: SocketAddr, path: &str) -> (String, Self) {
        let mut stream = TcpStream::connect(admin).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("sets");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("sends");
        let mut reader = BufReader::new(stream);
        let mut status = String::new();
        reader.read_line(&mut status).expect("a status");
        (status.trim().to_owned(), Self(reader))
    }

    /// The next event's name and data.
    fn next(&mut self) -> (String, Value) {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).expect("reads") > 0, "the stream has ended");
            if let Some(event) = line.strip_prefix("event: ") {
                event.trim().clone_into(&mut name);
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data).expect("JSON"));
            }
        }
    }
}

/// A request with or without a token: status line and body.
fn picture(admin: SocketAddr, camera: &str, token: Option<&str>) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(admin).expect("connects");
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(
        stream,
        "GET /live/cameras/{camera}/picture?after=0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{token}\r\n"
    )
    .expect("sends");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("reads");
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    (head.lines().next().unwrap_or_default().to_owned(), all[end..].to_vec())
}

/// Caption and picture of a body.
fn parts(body: &[u8]) -> (Value, &[u8]) {
    let length = u32::from_be_bytes(body[..4].try_into().expect("four bytes")) as usize;
    let caption = serde_json::from_slice(&body[4..4 + length]).expect("JSON");
    (caption, &body[4 + length..])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_in_events_is_the_fleet_in_the_metrics() {
    let server = TestServer::start(spin(1.0)).await;
    let mut camera = server.camera("gate").await;
    for id in 0..20 {
        camera.detect(id, &small_jpeg()).await;
    }
    camera.send_picture(20, b"<html>401</html>").await;
    assert!(!camera.answer().await.detail.is_empty());
    // Until the second in which they ended is over.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let admin = server.admin;
    let (status, first, second) = tokio::task::spawn_blocking(move || {
        let (status, mut events) = Events::open(admin, "/live/fleet");
        (status, events.next(), events.next())
    })
    .await
    .expect("no panic");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let ((name, first), (_, second)) = (first, second);
    assert_eq!(name, "fleet");
    for event in [&first, &second] {
        assert_eq!(event["cameras"]["connected"], 1, "{event}");
        let received = server.metric("vedette_frames_received_total");
        assert_eq!(event["frames"]["received"].as_f64(), Some(received));
        for outcome in ["ok", "bad_image", "superseded", "heartbeat"] {
            let series = format!("vedette_frames_total{{outcome=\"{outcome}\"}}");
            let count = event["frames"]["outcomes"][outcome].as_f64();
            assert_eq!(count, Some(server.metric(&series)), "{outcome}");
        }
        let slowest = event["slowest_ms"]["60s"].as_f64().expect("an answer");
        let metric = server.metric("vedette_slowest_frame_seconds{window=\"60s\"}") * 1e3;
        assert!((slowest - metric).abs() < 0.01, "{slowest} and {metric}");
        assert_eq!(event["ready"], true);
        assert_eq!(event["list"][0]["name"], "gate");
        assert_eq!(event["list"][0]["outcome"], "bad_image");
        assert_eq!(
            event["list"][0]["spark"].as_array().map(Vec::len),
            event["uptime_seconds"].as_u64().map(|s| s.min(60) as usize)
        );
    }
    let seconds = first["history"].as_array().expect("a history");
    let sum = |key: &str| seconds.iter().filter_map(|second| second[key].as_u64()).sum::<u64>();
    assert_eq!((sum("answered"), sum("failed")), (20, 1));
    assert_eq!(
        second["last"]["t"].as_i64(),
        seconds.last().and_then(|s| s["t"].as_i64()).map(|t| t + 1)
    );
    assert!(second["history"].is_null());
    drop(camera);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cameras_own_page_tells_its_outcomes_and_last_refusal() {
    let server = TestServer::start(cells("cells_v8.onnx")).await;
    let mut camera = server.camera("door").await;
    camera.detect(1, &bytes("base_640x360.jpg")).await;
    camera.send_picture(2, &bytes("base_640x360.jpg")[..2000]).await;
    let told = camera.answer().await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let admin = server.admin;
    let (name, event) =
        tokio::task::spawn_blocking(move || Events::open(admin, "/live/cameras/door").1.next())
            .await
            .expect("no panic");
    assert_eq!(name, "camera");
    let camera_page = &event["camera"];
    assert_eq!(camera_page["name"], "door");
    assert_eq!(camera_page["streams"], 1);
    assert_eq!(camera_page["size"], serde_json::json!([640, 360]));
    assert_eq!(camera_page["outcomes"]["ok"], 1);
    assert_eq!(camera_page["outcomes"]["bad_image"], 1);
    assert_eq!(camera_page["detail"], told.detail.as_str());
    assert_eq!(camera_page["detail_outcome"], "bad_image");
    assert!(camera_page["stages_ms"]["decode"].as_f64().is_some_and(|ms| ms > 0.0), "{event}");
    let (status, _) = get(server.admin, "/live/cameras/nobody");
    assert_eq!(status, "HTTP/1.1 404 Not Found");
    drop(camera);
    server.stop().await;
}

/// Whether the boxes of a caption are those of an answer.
fn same_boxes(caption: &Value, answer: &DetectResponse) -> bool {
    let objects = caption["objects"].as_array().expect("objects");
    objects.len() == answer.objects.len()
        && objects.iter().zip(&answer.objects).all(|(shown, told)| {
            let bbox = told.bbox.unwrap_or_default();
            shown["label"] == told.label.as_str()
                && [&shown["x"], &shown["y"], &shown["width"], &shown["height"]]
                    == [bbox.x, bbox.y, bbox.width, bbox.height]
        })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_is_shown_with_the_boxes_that_its_client_was_told() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let server = TestServer::start(with_preview(cells("cells_v8.onnx"), &file)).await;
    let mut camera = server.camera("door").await;
    let sent = bytes("base_640x360.jpg");
    let admin = server.admin;
    let looking = tokio::task::spawn_blocking(move || picture(admin, "door", Some(SECRET)));
    let mut answers = Vec::new();
    while !looking.is_finished() {
        answers.push(camera.detect(answers.len() as u64, &sent).await);
    }
    let (status, body) = looking.await.expect("no panic");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let (caption, shown) = parts(&body);
    assert_eq!(shown, sent, "as it was sent");
    assert_eq!((&caption["width"], &caption["height"]), (&640.into(), &360.into()));
    assert_eq!(caption["content_type"], "image/jpeg");
    let id: usize = caption["frame_id"].as_str().and_then(|id| id.parse().ok()).expect("an id");
    assert!(!answers[id].objects.is_empty() && same_boxes(&caption, &answers[id]), "{caption}");
    // Nothing is kept of it, nor of its room among the frames in hand.
    wait_until(|| server.metric("vedette_frame_memory_bytes") < 1.0).await;
    drop(camera);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_that_browsers_do_not_show_are_encoded_for_them() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let server = TestServer::start(with_preview(spin(1.0), &file)).await;
    let mut camera = server.camera("usb").await;
    let sent = bytes("mjpeg_no_dht.jpg");
    let admin = server.admin;
    let looking = tokio::task::spawn_blocking(move || picture(admin, "usb", Some(SECRET)));
    let mut id = 0;
    while !looking.is_finished() {
        camera.detect(id, &sent).await;
        id += 1;
    }
    let (_, body) = looking.await.expect("no panic");
    let (caption, shown) = parts(&body);
    assert_eq!(caption["content_type"], "image/jpeg");
    assert_ne!(shown, sent);
    let picture = image::load_from_memory(shown).expect("a picture that others decode");
    assert_eq!((picture.width(), picture.height()), (640, 360));
    drop(camera);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_need_the_flag_and_the_token() {
    let off = TestServer::start(spin(1.0)).await;
    let (status, how) = picture(off.admin, "door", Some(SECRET));
    assert_eq!(status, "HTTP/1.1 403 Forbidden");
    assert!(String::from_utf8_lossy(&how).contains("--preview"));
    let mut camera = off.camera("door").await;
    camera.detect(1, &small_jpeg()).await;
    drop(camera);
    off.stop().await;

    let file = tempfile::NamedTempFile::new().expect("a file");
    let server = TestServer::start(with_preview(spin(1.0), &file)).await;
    let mut camera = server.camera("door").await;
    camera.detect(1, &small_jpeg()).await;
    for wrong in [None, Some("another-secret-16"), Some("an-operators-secre")] {
        assert_eq!(picture(server.admin, "door", wrong).0, "HTTP/1.1 401 Unauthorized");
    }
    assert_eq!(picture(server.admin, "nobody", Some(SECRET)).0, "HTTP/1.1 404 Not Found");
    // Another token in the file is the token from then on.
    std::fs::write(file.path(), "the-next-secret-of-all").expect("writes");
    server.reloader.reload().await;
    assert_eq!(picture(server.admin, "nobody", Some(SECRET)).0, "HTTP/1.1 401 Unauthorized");
    assert_eq!(
        picture(server.admin, "nobody", Some("the-next-secret-of-all")).0,
        "HTTP/1.1 404 Not Found"
    );
    drop(camera);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_pages_leave_room_for_scrapers() {
    let server = TestServer::start(spin(1.0)).await;
    let admin = server.admin;
    let mut camera = server.camera("door").await;
    camera.detect(1, &small_jpeg()).await;
    let (statuses, scrape) = tokio::task::spawn_blocking(move || {
        let pages: Vec<_> = (0..40).map(|_| Events::open(admin, "/live/fleet")).collect();
        let statuses: Vec<_> = pages.iter().map(|(status, _)| status.clone()).collect();
        (statuses, get(admin, "/metrics").0)
    })
    .await
    .expect("no panic");
    let open = statuses.iter().filter(|status| *status == "HTTP/1.1 200 OK").count();
    assert_eq!(open, 32, "{statuses:?}");
    assert!(statuses[39].contains("503"), "{statuses:?}");
    assert_eq!(scrape, "HTTP/1.1 200 OK");
    drop(camera);
    server.stop().await;
}

#[test]
fn preview_without_a_token_is_refused_at_the_start() {
    let settings = Settings { preview: Some(true), ..spin(1.0) };
    let error = settings.check().expect_err("no token").0;
    assert!(error.starts_with("admin_token_file: "), "{error}");
}
