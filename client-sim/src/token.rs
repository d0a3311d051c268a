//! The token that goes with every call, from a file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
};

use crate::{config::Target, error::SimError};

/// Metadata key of the token.
const AUTHORIZATION: &str = "authorization";

/// A bearer token in a file. Its text is never shown.
#[derive(Debug, Clone)]
pub struct Token {
    path: PathBuf,
    /// As it was at the start.
    first: MetadataValue<Ascii>,
}

impl Token {
    /// The target's token; `None` when it has none.
    ///
    /// # Errors
    /// When the file cannot be read or holds no token.
    pub fn of(target: &Target) -> Result<Option<Self>, SimError> {
        let path = target.credentials.token_file.as_ref();
        path.map(|path| Ok(Self { path: path.clone(), first: read(path)? })).transpose()
    }

    /// Puts the token into a call's metadata. The file is read each time, so that a token that is
    /// replaced while a fleet runs is used by the next stream; while it cannot be read, the first one
    /// is.
    pub fn authorize<T>(&self, request: &mut Request<T>) {
        self.header().authorize(request);
    }

    /// The token as it is now, for many calls in short order.
    #[must_use]
    pub fn header(&self) -> Header {
        Header(read(&self.path).unwrap_or_else(|_| self.first.clone()))
    }
}

/// A token's text, ready to be sent.
#[derive(Debug, Clone)]
pub struct Header(MetadataValue<Ascii>);

impl Header {
    /// Puts the token into a call's metadata.
    pub fn authorize<T>(&self, request: &mut Request<T>) {
        request.metadata_mut().insert(AUTHORIZATION, self.0.clone());
    }
}

fn read(path: &Path) -> Result<MetadataValue<Ascii>, SimError> {
    let wrong = |why: String| {
        let why = format!("{}: {why}", path.display());
        SimError::Flag { flag: "--token-file", why }
    };
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(wrong("it is empty".to_owned()));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("a token is one line of ASCII characters without spaces".to_owned()));
    }
    let mut value = MetadataValue::try_from(format!("Bearer {token}"))
        .map_err(|_| wrong("its text cannot be sent".to_owned()))?;
    // Kept out of what is printed, and out of the header compression's memory.
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Credentials;
    use std::time::Duration;

    fn token(path: &Path) -> Result<Option<Token>, SimError> {
        let token_file = Some(path.to_path_buf());
        Token::of(&Target {
            addr: "localhost".parse().unwrap(),
            connect: Duration::from_secs(1),
            credentials: Credentials { token_file, ..Credentials::default() },
        })
    }

    fn sent(token: &Token) -> String {
        let mut request = Request::new(());
        token.authorize(&mut request);
        request.metadata().get(AUTHORIZATION).unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn a_token_is_trimmed_hidden_and_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), " s3cret\n").unwrap();
        let token = token(file.path()).unwrap().unwrap();
        assert_eq!(sent(&token), "Bearer s3cret");
        assert!(!format!("{token:?}").contains("s3cret"));
        fs::write(file.path(), "another").unwrap();
        assert_eq!(sent(&token), "Bearer another");
        fs::write(file.path(), "").unwrap();
        assert_eq!(sent(&token), "Bearer s3cret");
    }

    #[test]
    fn what_is_no_token_is_told_without_showing_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, why) in
            [("", "it is empty"), ("two words", "without spaces"), ("t\u{f6}ken", "ASCII")]
        {
            fs::write(file.path(), text).unwrap();
            let line = token(file.path()).unwrap_err().to_string();
            assert!(line.starts_with("--token-file: ") && line.contains(why), "{line}");
            assert!(text.is_empty() || !line.contains(text), "{line}");
        }
        assert!(token(Path::new("/no/such/file")).is_err());
    }
}
