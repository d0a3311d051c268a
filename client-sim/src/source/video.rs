//! Pictures of a video, made by ffmpeg.

use std::{
    ffi::OsString,
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use super::{Picture, PictureSet, jpegs::Splitter};
use crate::{config::Size, error::SimError};

/// Most pictures taken: a minute of 10 frames per second. Cameras begin them anew, each at its own.
pub(super) const MAX_PICTURES: usize = 600;

/// Most bytes of them all; they stay in memory.
pub(super) const MAX_BYTES: usize = 256 << 20;

/// ffmpeg's quality of the pictures, 2 (best) to 31: about what cameras send.
const QUALITY: &str = "4";

/// Bytes read from ffmpeg at once.
const CHUNK_BYTES: usize = 64 << 10;

/// End of what ffmpeg says that is kept, in bytes; its last line tells what went wrong.
const SAID_BYTES: usize = 4 << 10;

/// Whether the file is there: what can be told before anything else is done.
pub fn check_video(path: &Path) -> Result<(), SimError> {
    let read_error = |source| SimError::Read { path: path.to_path_buf(), source };
    let is_dir = File::open(path).and_then(|file| file.metadata()).map_err(read_error)?.is_dir();
    if is_dir { Err(read_error(ErrorKind::IsADirectory.into())) } else { Ok(()) }
}

/// The first pictures of a video at `fps` frames per second, scaled to `size` if given, as JPEG files:
/// at most 600, and at most 256 MiB of them.
///
/// # Errors
/// When the file is missing, ffmpeg is missing, or it finds no pictures.
pub async fn read_video(
    path: PathBuf,
    size: Option<Size>,
    fps: f64,
) -> Result<PictureSet, SimError> {
    tokio::task::spawn_blocking(move || extract(&path, size, fps)).await?
}

fn extract(path: &Path, size: Option<Size>, fps: f64) -> Result<PictureSet, SimError> {
    check_video(path)?;
    let failed = |why: String| SimError::Video { path: path.to_path_buf(), why };
    let mut ffmpeg = Running(start(path, size, fps)?);
    let (mut out, mut err) = (ffmpeg.0.stdout.take(), ffmpeg.0.stderr.take());
    // What it says is read beside its pictures, or it would wait for that and we for pictures.
    let (files, said) = thread::scope(|scope| {
        let saying = scope.spawn(|| err.as_mut().map_or_else(String::new, last_line));
        let files = out.as_mut().map_or_else(|| Ok(Files::default()), read_files);
        // Closing the pipe ends an ffmpeg that has more to say than is taken.
        drop(out.take());
        (files, saying.join().unwrap_or_default())
    });
    let status = ffmpeg.0.wait().map_err(|error| failed(error.to_string()))?;
    let said = if said.is_empty() { format!("ffmpeg ended with {status}") } else { said };
    let files = match files {
        Ok(files) if files.enough || status.success() => files,
        Ok(_) => return Err(failed(said)),
        // A broken pipe is ffmpeg's end, whose words say more.
        Err(_) if !status.success() => return Err(failed(said)),
        Err(why) => return Err(failed(why)),
    };
    let name = |(index, bytes): (usize, Vec<u8>)| Picture {
        name: format!("frame {:04}", index + 1),
        bytes: bytes.into(),
    };
    PictureSet::new(files.pictures.into_iter().enumerate().map(name).collect())
        .ok_or_else(|| failed("there are no pictures in it".to_owned()))
}

/// An ffmpeg that does not outlive its handle.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(path: &Path, size: Option<Size>, fps: f64) -> Result<Child, SimError> {
    // As a URL, so that neither "-x.mp4" nor "http:x.mp4" means anything but a file.
    let mut input = OsString::from("file:");
    input.push(path);
    let scale = size.map_or_else(String::new, |s| format!(",scale={}:{}", s.width, s.height));
    let spawned = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-protocol_whitelist", "file", "-i"])
        .arg(input)
        .args(["-an", "-vf", &format!("fps={fps}{scale}"), "-q:v", QUALITY])
        .args(["-f", "image2pipe", "-c:v", "mjpeg", "-frames:v", &MAX_PICTURES.to_string()])
        .arg("pipe:1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    spawned.map_err(|error| match error.kind() {
        ErrorKind::NotFound => SimError::NoFfmpeg,
        _ => SimError::Video { path: path.to_path_buf(), why: format!("ffmpeg: {error}") },
    })
}

/// What came out of ffmpeg.
#[derive(Debug, Default)]
struct Files {
    pictures: Vec<Vec<u8>>,
    /// Whether there was more than is taken.
    enough: bool,
}

fn read_files(out: &mut impl Read) -> Result<Files, String> {
    let mut files = Files::default();
    let mut splitter = Splitter::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    loop {
        let count = match out.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.to_string()),
        };
        let had = files.pictures.len();
        splitter.push(&chunk[..count], &mut files.pictures).map_err(|error| error.to_string())?;
        bytes += files.pictures[had..].iter().map(Vec::len).sum::<usize>();
        if files.pictures.len() > MAX_PICTURES || bytes + splitter.pending() > MAX_BYTES {
            files.enough = true;
            files.pictures.truncate(MAX_PICTURES);
            return Ok(files);
        }
    }
    splitter.finish().map_err(|error| error.to_string())?;
    Ok(files)
}

/// The last line of what comes, of any length.
fn last_line(err: &mut impl Read) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0; SAID_BYTES];
    while let Ok(count @ 1..) = err.read(&mut chunk) {
        kept.extend_from_slice(&chunk[..count]);
        kept.drain(..kept.len().saturating_sub(SAID_BYTES));
    }
    let text = String::from_utf8_lossy(&kept);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: [u8; 4] = [0xFF, 0xD8, 0xFF, 0xD9];

    #[test]
    fn no_more_is_taken_than_the_bounds_allow() {
        let files = read_files(&mut FILE.repeat(MAX_PICTURES).as_slice()).unwrap();
        assert_eq!((files.pictures.len(), files.enough), (MAX_PICTURES, false));
        let files = read_files(&mut FILE.repeat(MAX_PICTURES + 50).as_slice()).unwrap();
        assert_eq!((files.pictures.len(), files.enough), (MAX_PICTURES, true));
        // One file without end.
        let mut endless = FILE[..2].chain(std::io::repeat(0xFF));
        let files = read_files(&mut endless).unwrap();
        assert_eq!((files.pictures.len(), files.enough), (0, true));
    }

    #[test]
    fn an_incomplete_picture_is_told() {
        let cut = [&FILE[..], &FILE[..3]].concat();
        assert_eq!(read_files(&mut cut.as_slice()).unwrap_err(), "the last picture is incomplete");
    }

    #[test]
    fn the_last_line_is_what_counts() {
        for (said, last) in [("", ""), ("one\ntwo \n\n", "two"), ("\u{fffd}", "\u{fffd}")] {
            assert_eq!(last_line(&mut said.as_bytes()), last);
        }
        let long = "x".repeat(10 * SAID_BYTES) + "\nlast";
        assert_eq!(last_line(&mut long.as_bytes()), "last");
    }
}
