//! Values of settings that are more than a number or a name.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Width and height in pixels, written `416` (square) or `416x256`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named")]
pub struct InputSize {
    pub width: u32,
    pub height: u32,
}

impl FromStr for InputSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| part.trim().parse::<u32>().ok().filter(|&n| n > 0);
        let size = match text.split_once(['x', 'X']) {
            Some((width, height)) => number(width).zip(number(height)),
            None => number(text).map(|side| (side, side)),
        };
        let (width, height) =
            size.ok_or_else(|| format!("{text:?} is not a size; write 416 or 416x256"))?;
        Ok(Self { width, height })
    }
}

impl fmt::Display for InputSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// A number of pixels, written `2073600` or `1920x1080`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PixelCount(pub u64);

impl FromStr for PixelCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = match text.split_once(['x', 'X']) {
            Some((w, h)) => w
                .trim()
                .parse::<u64>()
                .ok()
                .zip(h.trim().parse::<u64>().ok())
                .and_then(|(w, h)| w.checked_mul(h)),
            None => text.trim().parse().ok(),
        };
        count.map(Self).ok_or_else(|| {
            format!("{text:?} is not a number of pixels; write 2073600 or 1920x1080")
        })
    }
}

/// Numbers and text both parse: TOML and the environment hand over `416` as a number.
fn from_number_or_text<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(
    deserializer: D,
) -> Result<T, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum NumberOrText {
        Number(u64),
        Text(String),
    }
    let text = match NumberOrText::deserialize(deserializer)? {
        NumberOrText::Number(number) => number.to_string(),
        NumberOrText::Text(text) => text,
    };
    text.parse().map_err(de::Error::custom)
}

impl Serialize for InputSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for InputSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_number_or_text(deserializer)
    }
}

impl Serialize for PixelCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for PixelCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_number_or_text(deserializer)
    }
}

/// What stands in for the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// The model file, by ONNX Runtime.
    Onnx,
    /// No network and no decoding: keeps a worker's CPU busy for spin-ms per frame.
    Spin,
}

/// Whether the network always gets the whole input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum InputShape {
    /// Each picture gets the smallest rectangle within input-size that holds it.
    Adaptive,
    /// Every picture is padded to the whole of input-size.
    Fixed,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!("416x256".parse(), Ok(InputSize { width: 416, height: 256 }));
        assert_eq!("320".parse(), Ok(InputSize { width: 320, height: 320 }));
        for bad in ["", "0", "x", "416x", "416x0", "-1", "1.5"] {
            assert!(bad.parse::<InputSize>().is_err(), "{bad}");
        }
        assert_eq!("1920x1080".parse(), Ok(PixelCount(2_073_600)));
        assert!("99999999999x99999999999".parse::<PixelCount>().is_err());
    }
}
