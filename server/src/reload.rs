//! Files that may change while the server runs: certificates, keys, tokens. What was made of them is
//! replaced as a whole, and only by something that is sound; until then the old goes on.
//!
//! They are looked at from time to time instead of being watched by the kernel: Kubernetes replaces mounted
//! secrets by turning a symbolic link two directories up, editors and `openssl` write in place, others
//! rename over, and network file systems tell nobody. What is in the files is all that counts.

use std::{
    fmt, fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use ring::digest;

use crate::{
    limits::{RELOAD_POLL, SECRET_FILE_BYTES},
    telemetry::metrics::ReloadCounters,
};

/// A file that cannot be used. One line that names the setting and the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {}: {reason}", path.display())]
pub struct FileError {
    /// The setting that names the file.
    pub key: &'static str,
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
    /// Whether it could not even be read.
    pub unreadable: bool,
}

/// A file by the setting that names it.
#[derive(Debug, Clone)]
pub struct Named {
    /// The setting.
    pub key: &'static str,
    /// The file.
    pub path: PathBuf,
}

impl Named {
    /// An error about what the file says.
    #[must_use]
    pub fn wrong(&self, reason: impl Into<String>) -> FileError {
        let (key, path) = (self.key, self.path.clone());
        FileError { key, path, reason: reason.into(), unreadable: false }
    }

    fn read(&self) -> Result<Content, FileError> {
        read(&self.path)
            .map(|(bytes, mode)| Content { file: self.clone(), bytes, mode })
            .map_err(|error| FileError { unreadable: true, ..self.wrong(error.to_string()) })
    }
}

fn read(path: &Path) -> io::Result<(Vec<u8>, u32)> {
    // Opening a pipe would wait for its writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("is not a file"));
    }
    let file = fs::File::open(path)?;
    let mode = file.metadata()?.mode();
    let mut bytes = Vec::new();
    if file.take(SECRET_FILE_BYTES + 1).read_to_end(&mut bytes)? as u64 > SECRET_FILE_BYTES {
        return Err(io::Error::other(format!("is larger than {SECRET_FILE_BYTES} bytes")));
    }
    Ok((bytes, mode))
}

/// A file as it was read.
pub struct Content {
    /// Which it is.
    pub file: Named,
    /// What is in it.
    pub bytes: Vec<u8>,
    /// Who may do what with it (`st_mode`, inode(7)).
    pub mode: u32,
}

impl Content {
    /// Says so when others may read a secret, or a group change it. That a group may read it is how it gets
    /// to a server which is not root: Kubernetes mounts secrets as root's and readable for `fsGroup`, packages
    /// make their key files 0640.
    pub fn warn_if_open_to_others(&self) {
        if self.mode & 0o027 != 0 {
            let (key, file) = (self.file.key, self.file.path.display());
            let mode = format_args!("{:o}", self.mode & 0o777);
            tracing::warn!(key, %file, %mode, "others may read this secret; make it 0640 or less");
        }
    }
}

impl fmt::Debug for Content {
    /// Never what is in it: keys and tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").field("file", &self.file).finish_non_exhaustive()
    }
}

/// SHA-256 over what the files hold, or over why they cannot be read.
type Fingerprint = [u8; digest::SHA256_OUTPUT_LEN];

fn fingerprint(contents: &[Result<Content, FileError>]) -> Fingerprint {
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut part = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for content in contents {
        match content {
            Ok(content) => part(&content.bytes),
            Err(error) => part(error.reason.as_bytes()),
        }
    }
    let mut out = [0; digest::SHA256_OUTPUT_LEN];
    out.copy_from_slice(hash.finish().as_ref());
    out
}

/// Makes something of the files' contents, given in the order of the files.
type Parse<T> = Box<dyn Fn(&[Content]) -> Result<T, FileError> + Send + Sync>;

/// Something that is read from files, now and again when they change.
pub struct Watched<T> {
    /// What it is, for logs.
    what: &'static str,
    files: Vec<Named>,
    parse: Parse<T>,
    current: ArcSwap<T>,
    // A lock because a signal may ask for a reload in the middle of a look. Held while the files are read,
    // by blocking threads only.
    looks: Mutex<Looks>,
    counters: ReloadCounters,
}

/// What the files were like.
struct Looks {
    /// When they were last made something of, or tried to.
    tried: Fingerprint,
    /// At the last look.
    seen: Fingerprint,
}

impl<T> Watched<T> {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// When one cannot be read, or they are not what they should be.
    pub fn load(
        what: &'static str,
        files: Vec<Named>,
        counters: ReloadCounters,
        parse: impl Fn(&[Content]) -> Result<T, FileError> + Send + Sync + 'static,
    ) -> Result<Self, FileError> {
        let contents: Vec<_> = files.iter().map(Named::read).collect();
        let tried = fingerprint(&contents);
        let contents = contents.into_iter().collect::<Result<Vec<_>, _>>()?;
        let current = ArcSwap::from_pointee(parse(&contents)?);
        let looks = Mutex::new(Looks { tried, seen: tried });
        Ok(Self { what, files, parse: Box::new(parse), current, looks, counters })
    }

    /// What is in use now.
    pub fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Looks at the files. A change is taken over once it has stood still from one look to the next: a
    /// certificate and its key are two files, and neither is written in an instant. Tells whether something
    /// new is in use.
    pub fn look(&self) -> bool {
        self.read(false)
    }

    /// Reads the files again, changed or not. Tells whether what they hold is in use now.
    pub fn reload(&self) -> bool {
        self.read(true)
    }

    fn read(&self, in_any_case: bool) -> bool {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let contents: Vec<_> = self.files.iter().map(Named::read).collect();
        let print = fingerprint(&contents);
        let stands_still = std::mem::replace(&mut looks.seen, print) == print;
        if !in_any_case && (print == looks.tried || !stands_still) {
            return false;
        }
        looks.tried = print;
        let what = self.what;
        let made = contents
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .and_then(|contents| (self.parse)(&contents));
        match made {
            Ok(new) => {
                self.current.store(Arc::new(new));
                self.counters.ok.increment(1);
                tracing::info!(what, "read again");
                true
            }
            Err(error) => {
                self.counters.failed.increment(1);
                tracing::warn!(what, %error, "cannot be read again; what was read before stays in use");
                false
            }
        }
    }
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("files", &self.files).finish_non_exhaustive()
    }
}

/// A part of the server that can be read again while it runs. Its methods read files, so they are called
/// where that may take time.
pub trait Reload: Send + Sync {
    /// Looks whether anything has changed.
    fn look(&self);
    /// Reads everything again.
    fn reload(&self);
}

impl<T: Send + Sync> Reload for Watched<T> {
    fn look(&self) {
        Self::look(self);
    }

    fn reload(&self) {
        Self::reload(self);
    }
}

/// Everything that can be read again while the server runs.
#[derive(Clone)]
pub struct Reloader {
    parts: Arc<[Arc<dyn Reload>]>,
}

impl Reloader {
    /// A reloader of these parts.
    #[must_use]
    pub fn new(parts: Vec<Arc<dyn Reload>>) -> Self {
        Self { parts: parts.into() }
    }

    /// Reads everything again now, and is back when it has been. A part that fails keeps what it had.
    pub async fn reload(&self) {
        self.each(<dyn Reload>::reload).await;
    }

    /// Looks for changes until dropped.
    pub async fn watch(self) {
        while !self.parts.is_empty() {
            tokio::time::sleep(RELOAD_POLL).await;
            self.each(<dyn Reload>::look).await;
        }
    }

    async fn each(&self, act: fn(&(dyn Reload + 'static))) {
        let parts = Arc::clone(&self.parts);
        let acting =
            tokio::task::spawn_blocking(move || parts.iter().for_each(|part| act(&**part)));
        // A panic in one of them was reported by its thread, and the next look may do better.
        let _ = acting.await;
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").field("parts", &self.parts.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    /// Reads a number from each of two files, which must agree.
    fn watched(paths: [PathBuf; 2], metrics: &Metrics) -> Result<Watched<u32>, FileError> {
        let files = paths.map(|path| Named { key: "number", path }).to_vec();
        Watched::load("numbers", files, metrics.token_reloads.clone(), |contents| {
            let number = |content: &Content| {
                let text = String::from_utf8_lossy(&content.bytes);
                text.trim().parse::<u32>().map_err(|_| content.file.wrong("is no number"))
            };
            let (one, other) = (number(&contents[0])?, number(&contents[1])?);
            if one == other { Ok(one) } else { Err(contents[1].file.wrong("is another number")) }
        })
    }

    fn write(path: &Path, text: &str) {
        fs::write(path, text).expect("writes");
    }

    fn two_files(folder: &Path) -> [PathBuf; 2] {
        ["one", "other"].map(|name| {
            let path = folder.join(name);
            write(&path, "1");
            path
        })
    }

    fn counted(metrics: &Metrics) -> (bool, bool) {
        let text = metrics.render();
        let some = |result: &str| {
            let none = format!("vedette_token_reloads_total{{result=\"{result}\"}} 0\n");
            !text.contains(&none)
        };
        (some("ok"), some("failed"))
    }

    #[test]
    fn a_change_is_taken_over_once_it_stands_still() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = two_files(folder.path());
        let metrics = Metrics::new();
        let numbers = watched(paths.clone(), &metrics).expect("two files that agree");
        assert_eq!(*numbers.current(), 1);
        assert!(!numbers.look(), "nothing has changed");

        write(&paths[0], "2");
        assert!(!numbers.look(), "it may be half of a change");
        write(&paths[1], "2");
        assert!(!numbers.look(), "it has only just changed");
        assert!(numbers.look());
        assert_eq!(*numbers.current(), 2);
        assert_eq!(counted(&metrics), (true, false), "the half was not tried");
    }

    #[test]
    fn what_cannot_be_used_is_said_once_and_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = two_files(folder.path());
        let metrics = Metrics::new();
        let numbers = watched(paths.clone(), &metrics).expect("two files that agree");
        write(&paths[1], "x");
        for _ in 0..4 {
            assert!(!numbers.look());
        }
        fs::remove_file(&paths[1]).expect("removes");
        assert!(!numbers.reload());
        assert_eq!(*numbers.current(), 1);
        let failed = "vedette_token_reloads_total{result=\"failed\"} 2\n";
        assert!(metrics.render().contains(failed), "{}", metrics.render());
        // Back to what it was: that is a change too.
        write(&paths[1], "1");
        assert!(!numbers.look() && numbers.look());
    }

    #[test]
    fn a_link_that_is_turned_is_a_change() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [("a", "1"), ("b", "2")] {
            fs::create_dir(folder.path().join(name)).expect("creates");
            write(&folder.path().join(name).join("file"), text);
        }
        let current = folder.path().join("current");
        symlink("a", &current).expect("links");
        let paths = [current.join("file"), current.join("file")];
        let numbers = watched(paths, &Metrics::new()).expect("a number");
        symlink("b", folder.path().join("next")).expect("links");
        fs::rename(folder.path().join("next"), &current).expect("turns the link");
        assert!(numbers.reload());
        assert_eq!(*numbers.current(), 2);
    }

    #[test]
    fn files_that_cannot_be_read_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let good = folder.path().join("good");
        write(&good, "1");
        let large = folder.path().join("large");
        write(&large, &" ".repeat(1 + SECRET_FILE_BYTES as usize));
        let error =
            |path: PathBuf| watched([good.clone(), path], &Metrics::new()).expect_err("bad");
        for (path, reason) in [
            (folder.path().join("none"), "No such file"),
            (folder.path().to_path_buf(), "is not a file"),
            (large, "is larger than"),
        ] {
            let error = error(path.clone());
            let line = error.to_string();
            assert!(line.starts_with(&format!("number: {}: {reason}", path.display())), "{line}");
            assert!(error.unreadable);
        }
    }

    #[test]
    fn contents_are_not_shown() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        write(file.path(), "a secret");
        let named = Named { key: "number", path: file.path().to_path_buf() };
        let shown = format!("{:?}", named.read().expect("reads"));
        assert!(shown.contains("number") && !shown.contains("secret"), "{shown}");
        assert!(!shown.contains(&format!("{:?}", b"a secret")), "{shown}");
    }
}
