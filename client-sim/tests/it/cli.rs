//! The real binary: exit codes and what it says.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use crate::fake::{Act, Fake, fake};
use tokio::runtime::Runtime;
use vedette_proto::camera_ai::Outcome;

const OK: Act = Act::Answer(Outcome::Ok);

pub(crate) fn client(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_client-sim")).args(args).output().unwrap()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A running fake server; it serves while the returned runtime lives.
pub(crate) fn serving(server: &Fake) -> (Runtime, String) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let addr = runtime.block_on(server.start());
    (runtime, addr.to_string())
}

fn short_run<'a>(addr: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec![
        "run",
        "--addr",
        addr,
        "--cameras",
        "2",
        "--fps",
        "20",
        "--seconds",
        "0.5",
        "--warmup",
        "0.1",
        "--slo-max-ms",
        "60000",
        "--drain-seconds",
        "20",
        "--connect-seconds",
        "60",
        "--quiet",
    ];
    if !more.contains(&"--images") {
        args.extend(["--size", "64x48"]);
    }
    args.extend(more);
    args
}

/// Exit code 2 with one line that holds `part`.
fn could_not_run(args: &[&str], part: &str) {
    let output = client(args);
    let line = stderr(&output);
    assert_eq!(code(&output), 2, "{line}");
    assert!(line.contains(part) && line.trim_end().lines().count() == 1, "{line}");
    assert!(stdout(&output).is_empty());
}

#[test]
fn mistakes_on_the_command_line_are_one_helpful_line() {
    could_not_run(&["run", "--camras", "3"], "did you mean --cameras?; see client-sim run --help");
    could_not_run(&["run", "--fps", "fast"], "--fps");
    could_not_run(&["detect"], "<PICTURE>");
    could_not_run(&[], "name a job");
}

#[test]
fn help_and_version_are_no_mistakes() {
    for args in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let output = client(args);
        assert_eq!(code(&output), 0);
        assert!(stdout(&output).contains("client-sim"));
    }
}

#[test]
fn a_missing_server_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let expected = format!("cannot reach {free}: ");
    could_not_run(&["run", "--addr", &free, "--connect-seconds", "0.3"], &expected);
    // Nothing is drawn for a server that is not there: the line about it would be a second one.
    let large = ["run", "--addr", &free, "--connect-seconds", "0.3", "--size", "8192x8192"];
    could_not_run(&large, &expected);
    let picture = tempfile::NamedTempFile::new().unwrap();
    let picture = picture.path().to_str().unwrap();
    let args = ["detect", picture, "--addr", &free, "--connect-seconds", "0.3"];
    could_not_run(&args, "is vedette-server running there?");
}

#[test]
fn unusable_folders_are_named() {
    could_not_run(
        &["run", "--images", "/no/such/folder"],
        "cannot read the folder /no/such/folder",
    );
    let empty = tempfile::tempdir().unwrap();
    could_not_run(&["run", "--images", empty.path().to_str().unwrap()], "no pictures in ");
    could_not_run(&["detect", "/no/such/picture.jpg"], "cannot read /no/such/picture.jpg");
}

#[test]
fn a_passing_run_exits_0_and_ends_with_its_verdict() {
    let (_runtime, addr) = serving(&fake(|_, _| OK));
    let output = client(&short_run(&addr, &[]));
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    let last = text.trim_end().lines().last().unwrap();
    assert!(last.starts_with("PASS: slowest answer "), "{text}");
    assert!(last.ends_with("20 of 20 frames answered OK, 0 lost"), "{text}");
    assert!(stderr(&output).is_empty(), "{}", stderr(&output));
}

#[test]
fn a_failing_run_exits_1_and_says_why() {
    let (_runtime, addr) = serving(&fake(|_, k| if k == 3 { Act::Drop } else { OK }));
    let output = client(&short_run(&addr, &["--per-camera"]));
    assert_eq!(code(&output), 1);
    let text = stdout(&output);
    let verdict = "FAIL (2 frames lost (worst: sim-0001 with 1); 2 streams ended early: the server \
                   ended the stream)";
    assert!(text.trim_end().ends_with(verdict), "{text}");
}

#[test]
fn json_goes_to_a_file_or_alone_to_standard_output() {
    let (_runtime, addr) = serving(&fake(|_, _| OK));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.json");
    let output = client(&short_run(&addr, &["--json", file.to_str().unwrap()]));
    assert_eq!(code(&output), 0);
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!((&report["verdict"], &report["sent"]), (&"PASS".into(), &20.into()));

    let output = client(&short_run(&addr, &["--json", "-"]));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["lost"], 0);
    assert!(stderr(&output).trim_end().lines().last().unwrap().starts_with("PASS"));

    let args = short_run(&addr, &["--json", "/no/such/folder/report.json"]);
    could_not_run(&args, "cannot write /no/such/folder/report.json");

    let folder = dir.path().to_str().unwrap();
    let output = client(&short_run(&addr, &["--json", folder]));
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains(&format!("cannot write {folder}")));
    assert!(stdout(&output).contains("PASS"), "the figures are not lost with the file");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_run_early_with_what_it_has() {
    let server = fake(|_, _| OK);
    let (_runtime, addr) = serving(&server);
    let mut child = Command::new(env!("CARGO_BIN_EXE_client-sim"))
        .args(["run", "--addr", &addr, "--seconds", "600", "--warmup", "0", "--size", "64x48"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while server.seen.lock().unwrap().len() < 10 {
        assert_eq!(child.try_wait().unwrap(), None, "the run ended by itself");
        thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 130);
    let text = stdout(&output);
    assert!(text.trim_end().lines().last().unwrap().starts_with("FAIL (interrupted after "));
    assert!(text.contains("lost 0"), "{text}");
}

#[test]
fn a_folder_of_mixed_files_is_sent_by_content() {
    let server = fake(|_, _| OK);
    let (_runtime, addr) = serving(&server);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), "no picture").unwrap();
    image::RgbImage::new(8, 8).save(dir.path().join("a.png")).unwrap();
    image::RgbImage::new(8, 8).save(dir.path().join("b.jpg")).unwrap();
    let output = client(&short_run(&addr, &["--images", dir.path().to_str().unwrap()]));
    assert_eq!(code(&output), 0);
    assert!(stderr(&output).starts_with("ignoring 1 file of "), "{}", stderr(&output));
    let seen = server.seen.lock().unwrap();
    assert_eq!(seen["sim-0001"][0].image_data, fs::read(dir.path().join("a.png")).unwrap());
    assert_eq!(seen["sim-0002"][0].image_data, fs::read(dir.path().join("b.jpg")).unwrap());
}

fn drawn(dir: &Path) -> Vec<String> {
    let output = client(&["draw", dir.to_str().unwrap(), "--size", "320x240", "--count", "2"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    files
}

#[test]
fn detect_prints_objects_and_saves_pictures_with_boxes() {
    let server = fake(|_, id| if id == 2 { Act::Answer(Outcome::BadImage) } else { OK });
    let (_runtime, addr) = serving(&server);
    let dir = tempfile::tempdir().unwrap();
    let files = drawn(&dir.path().join("pictures"));
    let png = dir.path().join("plain.png");
    image::RgbImage::new(640, 480).save(&png).unwrap();
    let (png, saved) = (png.to_str().unwrap(), dir.path().join("saved"));
    let args =
        ["detect", &files[0], &files[1], png, "--addr", &addr, "--save", saved.to_str().unwrap()];
    let output = client(&args);
    let text = stdout(&output);
    assert_eq!(code(&output), 1, "one picture was not answered OK: {text}");
    assert!(text.contains("stop sign        0.910  298,88 196x203"), "{text}");
    assert!(text.contains("BAD_IMAGE (BAD_IMAGE: told so)"), "{text}");
    assert!(saved.join("01-stop-sign.boxes.jpg").is_file());
    assert!(!saved.join("02-station-clock.boxes.jpg").exists());
    let boxes = image::open(saved.join("plain.boxes.png")).unwrap().into_rgb8();
    assert_ne!(boxes.get_pixel(298, 180).0, [0, 0, 0], "a box is drawn");
    assert_eq!(boxes.get_pixel(400, 180).0, [0, 0, 0], "its inside is not");
}

#[test]
fn an_answer_to_another_picture_is_not_taken() {
    let (_runtime, addr) = serving(&fake(|_, _| Act::AnswerAs(77)));
    let dir = tempfile::tempdir().unwrap();
    let file = &drawn(&dir.path().join("pictures"))[0];
    let saved = dir.path().join("saved");
    let args = ["detect", file, "--addr", &addr, "--save", saved.to_str().unwrap()];
    could_not_run(&args, "answer to frame 77 while 1 was asked");
    assert_eq!(fs::read_dir(&saved).unwrap().count(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn names_that_are_no_text_are_shown_as_well_as_they_can_be() {
    use std::os::unix::ffi::OsStrExt as _;
    let (_runtime, addr) = serving(&fake(|_, _| OK));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9.png"));
    image::RgbImage::new(8, 8).save_with_format(&file, image::ImageFormat::Png).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_client-sim"))
        .args(["detect", "--addr", &addr, "--json"])
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(seen[0]["file"].as_str().unwrap().ends_with("caf\u{fffd}.png"), "{seen}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_behind_standard_output_is_told_and_a_closed_pipe_is_not() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_client-sim")).arg("--help").stdout(full).output().unwrap();
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).starts_with("client-sim: cannot write to standard output: "));

    let mut child = Command::new(env!("CARGO_BIN_EXE_client-sim"))
        .arg("--help")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
}

#[test]
fn detect_prints_json() {
    let (_runtime, addr) = serving(&fake(|_, _| OK));
    let dir = tempfile::tempdir().unwrap();
    let files = drawn(dir.path());
    let output = client(&["detect", &files[0], &files[1], "--addr", &addr, "--json"]);
    assert_eq!(code(&output), 0);
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(seen.as_array().unwrap().len(), 2);
    assert_eq!(seen[1]["outcome"], "OK");
    assert_eq!(seen[1]["objects"][0]["label"], "stop sign");
    assert_eq!(seen[1]["objects"][0]["width"], 196);
}

#[test]
fn pictures_that_cannot_be_drawn_on_are_named_and_the_others_still_saved() {
    let (_runtime, addr) = serving(&fake(|_, _| OK));
    let dir = tempfile::tempdir().unwrap();
    let picture = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (broken, png, bmp) = (picture("broken.jpg"), picture("a.png"), picture("a.bmp"));
    fs::write(&broken, b"\xFF\xD8\xFF and nothing more").unwrap();
    image::RgbImage::new(64, 48).save(&png).unwrap();
    image::RgbImage::new(64, 48).save(&bmp).unwrap();
    let saved = picture("saved");
    let output = client(&["detect", &broken, &png, &bmp, "--addr", &addr, "--save", &saved]);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output)
            .starts_with("client-sim: detected, but no copy with boxes could be made: decoding "),
        "{}",
        stderr(&output)
    );
    assert!(dir.path().join("saved/a.boxes.png").is_file());
    assert!(dir.path().join("saved/a-2.boxes.png").is_file());
}

/// A phone's picture lies on its side and says so in its EXIF data; boxes are in the upright one.
#[test]
fn detect_turns_pictures_upright_before_drawing() {
    let (_runtime, addr) = serving(&fake(|_, _| OK));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("phone.jpg");
    let mut jpeg = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(480, 640).write_to(&mut jpeg, image::ImageFormat::Jpeg).unwrap();
    fs::write(&file, with_orientation(&jpeg.into_inner(), 6)).unwrap();
    let (file, save) = (file.to_str().unwrap(), dir.path().to_str().unwrap());
    let output = client(&["detect", file, "--addr", &addr, "--save", save]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let saved = image::open(dir.path().join("phone.boxes.jpg")).unwrap();
    assert_eq!((saved.width(), saved.height()), (640, 480));
}

/// The JPEG with an EXIF segment that holds nothing but an orientation (1 to 8).
fn with_orientation(jpeg: &[u8], orientation: u8) -> Vec<u8> {
    let mut exif =
        b"\xFF\xE1\x00\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
    [&jpeg[..2], &exif, &jpeg[2..]].concat()
}
