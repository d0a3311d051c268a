//! Why the tool could not do what it was asked to do.

use std::{io, path::PathBuf};

/// Reasons for not running at all. Each one is a single line that says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The server's address is not usable.
    #[error("--addr {addr}: {why}")]
    Address {
        /// As given.
        addr: String,
        /// What is wrong with it.
        why: String,
    },
    /// A flag's value is not usable.
    #[error("{flag}: {why}")]
    Flag {
        /// As typed.
        flag: &'static str,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The connection cannot be encrypted, or one side does not trust the other.
    #[error("cannot connect to {addr}: {why}")]
    Tls {
        /// Host and port.
        addr: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The server does not know this client.
    #[error("{addr} refuses this client: {why}; give it a valid token with --token-file")]
    Unauthenticated {
        /// Host and port.
        addr: String,
        /// The server's words.
        why: String,
    },
    /// Nobody answers there.
    #[error("cannot reach {addr}: {why}; is vedette-server running there?")]
    Unreachable {
        /// Host and port.
        addr: String,
        /// The operating system's or the transport's words.
        why: String,
    },
    /// Something answers, but it is not a gRPC server.
    #[error("{addr} does not speak gRPC: {why}")]
    NotGrpc {
        /// Host and port.
        addr: String,
        /// The transport's words.
        why: String,
    },
    /// The server took a picture and did not answer.
    #[error("no answer from {addr}: {why}")]
    NoAnswer {
        /// Host and port.
        addr: String,
        /// How the waiting ended.
        why: String,
    },
    /// The folder of pictures cannot be listed.
    #[error("cannot read the folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder holds nothing that can be sent.
    #[error("no pictures in {}: none of its {files} files is a JPEG, PNG, WebP or BMP", path.display())]
    NoPictures {
        /// The folder.
        path: PathBuf,
        /// Files looked at.
        files: usize,
    },
    /// There is no ffmpeg to take a video apart.
    #[error(
        "ffmpeg is not installed: install it (Debian: apt-get install ffmpeg), or extract pictures \
         to a folder and use --images"
    )]
    NoFfmpeg,
    /// A video gives no pictures.
    #[error("cannot take pictures from {}: {why}", path.display())]
    Video {
        /// The file.
        path: PathBuf,
        /// ffmpeg's words, or what is wrong with what it made.
        why: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file can be read, but what it holds is not what it should be.
    #[error("cannot use {}: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Reports do not fit together.
    #[error("cannot merge: {0}")]
    Merge(String),
    /// Reports cannot be held against each other.
    #[error("cannot compare: {0}")]
    Compare(String),
    /// A file or folder cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file can be read but not used.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// No price is known for the instance.
    #[error("--instance {name}: not in the list; it has {known}")]
    Instance {
        /// As given.
        name: String,
        /// The names in the list.
        known: String,
    },
    /// A picture cannot be encoded or decoded here.
    #[error("{what}: {source}")]
    Picture {
        /// Which picture, and what was done to it.
        what: String,
        /// Why.
        source: image::ImageError,
    },
    /// Standard output takes no more, for another reason than that its reader went away.
    #[error("cannot write to standard output: {0}")]
    Stdout(io::Error),
    /// A result cannot be put into JSON.
    #[error("cannot write the result as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The runtime could not be started.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// A camera's task, or the drawing of pictures, ended abnormally.
    #[error("a task of the run failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}
