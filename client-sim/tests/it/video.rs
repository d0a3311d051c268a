//! Pictures of a video.

use std::{fs, path::Path, process::Command};

use crate::{
    cli::{client, code, serving, stderr, stdout},
    fake::fake,
    run::OK,
};

/// Four frames of the video that a flag of its own form names.
fn video_run<'a>(addr: &'a str, video: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["run", "--addr", addr, "--cameras", "1", "--fps", "10", "--warmup", "0"];
    args.extend(["--seconds", "0.4", "--slo-max-ms", "60000", "--quiet", video]);
    args.extend(["--connect-seconds", "60", "--drain-seconds", "20"]);
    args.extend(more);
    args
}

/// A second of moving test pattern, 64x48 at 10 frames per second; false without ffmpeg.
fn film(path: &Path) -> bool {
    let mut url = std::ffi::OsString::from("file:");
    url.push(path);
    let made = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-f", "lavfi", "-i"])
        .args(["testsrc=size=64x48:rate=10:duration=1", "-c:v", "mpeg4"])
        .arg(url)
        .status();
    match made {
        Ok(status) => status.success(),
        Err(error) => {
            println!("skipped: there is no ffmpeg to make a video with ({error})");
            false
        }
    }
}

#[test]
fn a_video_s_pictures_are_sent_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    // A name that could be an option, and one that could be an address.
    for name in ["-i.mp4", "http:x y.mp4"] {
        let path = dir.path().join(name);
        if !film(&path) {
            return;
        }
        let server = fake(|_, _| OK);
        let (_runtime, addr) = serving(&server);
        for (more, width) in [(&[][..], 64), (&["--size", "32x24"], 32)] {
            server.seen.lock().unwrap().clear();
            let output = Command::new(env!("CARGO_BIN_EXE_client-sim"))
                .current_dir(dir.path())
                .args(video_run(&addr, &format!("--video={name}"), more))
                .output()
                .unwrap();
            assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
            assert!(stdout(&output).contains(&format!("pictures  10 from {name}, ")));
            let seen = server.seen.lock().unwrap();
            let frames = &seen["sim-0001"];
            assert_eq!(frames.len(), 4);
            for frame in frames {
                let picture = image::load_from_memory(&frame.image_data).unwrap();
                assert_eq!(picture.width(), width);
            }
            assert_ne!(frames[0].image_data, frames[1].image_data, "it moves");
        }
    }
}

#[test]
fn what_is_no_video_is_told_in_one_line() {
    let (_runtime, addr) = serving(&fake(|_, _| OK));
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("notes.mp4");
    fs::write(&text, "no video").unwrap();
    for (path, part) in [
        (text.to_str().unwrap(), "cannot take pictures from "),
        ("/no/such/video.mp4", "cannot read /no/such/video.mp4: "),
        (dir.path().to_str().unwrap(), "cannot read "),
    ] {
        let output = client(&video_run(&addr, &format!("--video={path}"), &[]));
        let line = stderr(&output);
        assert_eq!(code(&output), 2, "{line}");
        let no_ffmpeg = line.contains("ffmpeg is not installed");
        assert!(line.contains(part) || no_ffmpeg, "{line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
    }
}

#[test]
fn without_ffmpeg_there_is_another_way() {
    let (_runtime, addr) = serving(&fake(|_, _| OK));
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_client-sim"))
        .args(video_run(&addr, &format!("--video={}", file.path().display()), &[]))
        .env("PATH", "")
        .output()
        .unwrap();
    assert_eq!(code(&output), 2);
    let line = stderr(&output);
    assert!(line.starts_with("client-sim: ffmpeg is not installed: install it "), "{line}");
    assert!(line.contains("--images") && line.trim_end().lines().count() == 1, "{line}");
}
