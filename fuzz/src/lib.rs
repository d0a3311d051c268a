//! Fuzz targets of vedette-server. Each is one of [`Target`]; README.md says how to run them.

mod checks;

/// What is fuzzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "README.md has the table")]
pub enum Target {
    Config,
    Decode,
    Model,
    Raw,
    Request,
}

impl Target {
    /// Panics when the server does with these bytes what it must not.
    pub fn check(self, data: &[u8]) {
        match self {
            Self::Config => checks::config::check(data),
            Self::Decode => checks::picture::check_encoded(data),
            Self::Model => checks::model::check(data),
            Self::Raw => checks::picture::check_raw(data),
            Self::Request => checks::request::check(data),
        }
    }
}
