//! Why a frame is not a picture.

use image::ImageError;

use crate::frame::Outcome;

/// Why a frame is not a picture. The display text is one line for people and begins with
/// [`reason`](Self::reason) in upper case.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum DecodeError {
    #[error("EMPTY: the frame has no bytes")]
    Empty,
    #[error("TOO_LARGE: the frame has {bytes} bytes, max-frame-bytes is {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("TOO_MANY_PIXELS: {width}x{height} is {} pixels, max-pixels is {limit}",
        u64::from(*.width) * u64::from(*.height))]
    TooManyPixels { width: u32, height: u32, limit: u64 },
    #[error("TRUNCATED: {0}")]
    Truncated(String),
    #[error("MALFORMED: {0}")]
    Malformed(String),
    #[error("UNRECOGNISED: {0}")]
    Unrecognised(String),
    #[error("RAW_GEOMETRY: {0}")]
    RawGeometry(String),
    #[error("UNSUPPORTED: {0}")]
    Unsupported(String),
}

impl DecodeError {
    /// Stable name of the kind, the metric's label value.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::TooLarge { .. } => "too_large",
            Self::TooManyPixels { .. } => "too_many_pixels",
            Self::Truncated(_) => "truncated",
            Self::Malformed(_) => "malformed",
            Self::Unrecognised(_) => "unrecognised",
            Self::RawGeometry(_) => "raw_geometry",
            Self::Unsupported(_) => "unsupported",
        }
    }

    /// Every reason, for registering the metric's series at start.
    pub const REASONS: [&'static str; 8] = [
        "empty",
        "too_large",
        "too_many_pixels",
        "truncated",
        "malformed",
        "unrecognised",
        "raw_geometry",
        "unsupported",
    ];

    /// The outcome that a frame with this error ends in.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Unsupported(_) => Outcome::Unsupported,
            _ => Outcome::BadImage,
        }
    }
}

pub(super) fn image_error(error: &ImageError) -> DecodeError {
    let text = one_line(&error.to_string());
    match error {
        ImageError::IoError(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => {
            DecodeError::Truncated(text)
        }
        ImageError::Unsupported(_) => DecodeError::Unsupported(text),
        _ => DecodeError::Malformed(text),
    }
}

/// Folds a library's message into one line. Control characters, which it may have out of a hostile file,
/// are written as escapes: the line is for terminals too.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        for c in word.chars() {
            if c.is_control() {
                line.extend(c.escape_default());
            } else {
                line.push(c);
            }
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn breaks_become_spaces_and_control_characters_escapes() {
        assert_eq!(one_line(" a\r\n  b\u{2028}c\u{85}\td\n"), "a b c d");
        assert_eq!(one_line("\u{1b}[2J caf\u{e9} \0x\u{9b}"), "\\u{1b}[2J café \\u{0}x\\u{9b}");
        assert_eq!(one_line("\n"), "");
    }
}
