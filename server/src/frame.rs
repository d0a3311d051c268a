//! A frame and what can become of it.

use std::{
    fmt,
    time::{Duration, Instant},
};

use bytes::Bytes;
use vedette_proto::camera_ai::{self as pb, DetectRequest};

use crate::limits::CAMERA_ID_CHARS;

/// The client's own number for a frame: opaque, echoed, never interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameId(pub u64);

impl fmt::Display for FrameId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Name of a camera: 1 to 64 characters of `[A-Za-z0-9._-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CameraId(String);

impl CameraId {
    /// Checks a client's name for its camera; `None` if it breaks the rule.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        ((1..=CAMERA_ID_CHARS).contains(&name.len()) && name.bytes().all(legal))
            .then(|| Self(name.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Names a stream whose client did not.
    #[must_use]
    pub fn unnamed(number: u64) -> Self {
        Self(format!("stream-{number}"))
    }
}

impl fmt::Display for CameraId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What became of a frame. Every frame read off the wire ends in exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Detected.
    Ok,
    /// A newer frame of its camera came first.
    Superseded,
    /// Its budget was gone before it was computed.
    Expired,
    /// No room.
    Overloaded,
    /// Not a complete picture within the limits.
    BadImage,
    /// A picture of a kind that is not decoded here.
    Unsupported,
    /// The server failed on it.
    Internal,
    /// A sign of life, no frame.
    Heartbeat,
    /// Its client had left, so nobody could be answered. Never on the wire.
    ClientGone,
}

impl Outcome {
    /// Every outcome, in the order of the metric's documentation.
    pub const ALL: [Self; 9] = [
        Self::Ok,
        Self::Superseded,
        Self::Expired,
        Self::Overloaded,
        Self::BadImage,
        Self::Unsupported,
        Self::Internal,
        Self::Heartbeat,
        Self::ClientGone,
    ];

    /// The metric's label value.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Superseded => "superseded",
            Self::Expired => "expired",
            Self::Overloaded => "overloaded",
            Self::BadImage => "bad_image",
            Self::Unsupported => "unsupported",
            Self::Internal => "internal",
            Self::Heartbeat => "heartbeat",
            Self::ClientGone => "client_gone",
        }
    }

    /// The value on the wire. `ClientGone` has none: there is nobody to send it to.
    #[must_use]
    pub fn to_wire(self) -> pb::Outcome {
        match self {
            Self::Ok => pb::Outcome::Ok,
            Self::Superseded => pb::Outcome::Superseded,
            Self::Expired => pb::Outcome::Expired,
            Self::Overloaded => pb::Outcome::Overloaded,
            Self::BadImage => pb::Outcome::BadImage,
            Self::Unsupported => pb::Outcome::Unsupported,
            Self::Heartbeat => pb::Outcome::Heartbeat,
            Self::Internal | Self::ClientGone => pb::Outcome::Internal,
        }
    }
}

/// Layout of a frame's bytes, as declared by the client and not yet checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A picture file, told apart by content.
    Encoded,
    /// Raw pixels.
    Raw(RawSpec),
    /// A number of `PixelFormat` that this server does not know.
    Unknown(i32),
}

/// Declared layout of raw pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawSpec {
    /// Which of the raw formats.
    pub format: RawFormat,
    /// Pixels per row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bytes from one row of the first plane to the next; 0 = tight.
    pub stride: u32,
}

/// Raw pixel formats; see `PixelFormat` in the contract for their planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the field's own names")]
pub enum RawFormat {
    Rgb24,
    Bgr24,
    Gray8,
    Nv12,
    I420,
    Yuyv,
}

impl RawFormat {
    /// Every format, in the contract's order.
    pub const ALL: [Self; 6] =
        [Self::Rgb24, Self::Bgr24, Self::Gray8, Self::Nv12, Self::I420, Self::Yuyv];
}

impl fmt::Display for RawFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rgb24 => "RGB24",
            Self::Bgr24 => "BGR24",
            Self::Gray8 => "GRAY8",
            Self::Nv12 => "NV12",
            Self::I420 => "I420",
            Self::Yuyv => "YUYV",
        })
    }
}

/// The picture of one request: bytes and declared layout.
#[derive(Debug, Clone)]
pub struct Picture {
    /// The client's bytes, a slice of the receive buffer.
    pub data: Bytes,
    /// How the client says they are laid out.
    pub layout: Layout,
}

impl Picture {
    /// Takes the picture out of a request.
    #[must_use]
    pub fn from_request(request: DetectRequest) -> Self {
        let raw = |format| {
            Layout::Raw(RawSpec {
                format,
                width: request.width,
                height: request.height,
                stride: request.stride,
            })
        };
        let layout = match pb::PixelFormat::try_from(request.format) {
            Ok(pb::PixelFormat::Encoded) => Layout::Encoded,
            Ok(pb::PixelFormat::Rgb24) => raw(RawFormat::Rgb24),
            Ok(pb::PixelFormat::Bgr24) => raw(RawFormat::Bgr24),
            Ok(pb::PixelFormat::Gray8) => raw(RawFormat::Gray8),
            Ok(pb::PixelFormat::Nv12) => raw(RawFormat::Nv12),
            Ok(pb::PixelFormat::I420) => raw(RawFormat::I420),
            Ok(pb::PixelFormat::Yuyv) => raw(RawFormat::Yuyv),
            Err(_) => Layout::Unknown(request.format),
        };
        Self { data: request.image_data, layout }
    }
}

/// When a frame came and how long it is worth computing.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// When the server had read the frame.
    pub received: Instant,
    /// Longest useful time from receipt to answer.
    pub budget: Duration,
    /// When the camera took the picture, by its own clock: microseconds since the Unix epoch.
    pub captured_us: Option<i64>,
}

impl Timing {
    /// How far past its budget the frame is at `now`; `None` while there is time left.
    #[must_use]
    pub fn overrun(&self, now: Instant) -> Option<Duration> {
        now.saturating_duration_since(self.received)
            .checked_sub(self.budget)
            .filter(|late| !late.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn camera_ids_follow_the_rule() {
        for good in ["a", "cam-01.front_door", &"x".repeat(64)] {
            assert_eq!(CameraId::parse(good).map(|id| id.to_string()), Some(good.to_owned()));
        }
        for bad in ["", "a b", "ü", "a/b", "a\n", &"x".repeat(65)] {
            assert_eq!(CameraId::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn overrun_counts_from_the_end_of_the_budget() {
        let received = crate::clock::now();
        let timing = Timing { received, budget: Duration::from_millis(100), captured_us: None };
        assert_eq!(timing.overrun(received), None);
        assert_eq!(timing.overrun(received + Duration::from_millis(100)), None);
        assert_eq!(
            timing.overrun(received + Duration::from_millis(130)),
            Some(Duration::from_millis(30))
        );
    }

    #[test]
    fn unknown_formats_are_kept_as_such() {
        let request = DetectRequest { format: 99, ..Default::default() };
        assert_eq!(Picture::from_request(request).layout, Layout::Unknown(99));
    }

    #[test]
    fn outcome_labels_are_distinct() {
        let labels: std::collections::HashSet<_> = Outcome::ALL.iter().map(|o| o.label()).collect();
        assert_eq!(labels.len(), Outcome::ALL.len());
    }
}
