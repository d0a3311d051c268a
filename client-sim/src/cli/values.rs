//! What flags take: numbers with units and limits.

use std::time::Duration;

use crate::config::{Connections, MAX_FPS, MAX_SECONDS, MIN_FPS};

/// Most connections that cameras share.
const MAX_CONNECTIONS: u32 = 20_000;

pub(super) fn number(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|number| number.is_finite())
        .ok_or_else(|| "not a number".to_owned())
}

pub(super) fn fps(text: &str) -> Result<f64, String> {
    number(text).and_then(|fps| {
        if (MIN_FPS..=MAX_FPS).contains(&fps) {
            Ok(fps)
        } else {
            Err(format!("must be {MIN_FPS} to {MAX_FPS}"))
        }
    })
}

pub(super) fn ratio(text: &str) -> Result<f64, String> {
    number(text).and_then(|ratio| {
        if (0.0..=1.0).contains(&ratio) { Ok(ratio) } else { Err("must be 0 to 1".to_owned()) }
    })
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    number(text).and_then(|seconds| {
        if (0.0..=MAX_SECONDS).contains(&seconds) {
            Ok(Duration::from_secs_f64(seconds))
        } else {
            Err(format!("must be 0 to {MAX_SECONDS} seconds"))
        }
    })
}

pub(super) fn positive_seconds(text: &str) -> Result<Duration, String> {
    let duration = seconds(text)?;
    if duration.is_zero() { Err("must be more than 0 seconds".to_owned()) } else { Ok(duration) }
}

pub(super) fn positive_millis(text: &str) -> Result<Duration, String> {
    number(text).and_then(|millis| {
        if millis > 0.0 && millis <= MAX_SECONDS * 1e3 {
            Ok(Duration::from_secs_f64(millis / 1e3))
        } else {
            Err("must be more than 0 milliseconds".to_owned())
        }
    })
}

pub(super) fn millis(text: &str) -> Result<Duration, String> {
    if number(text) == Ok(0.0) { Ok(Duration::ZERO) } else { positive_millis(text) }
}

/// `p99=50`: a percentile and its limit in milliseconds.
pub(super) fn percentile_limit(text: &str) -> Result<(f64, Duration), String> {
    let wrong = || "write pNN=MS, such as p99=50 or p99.9=80".to_owned();
    let (name, limit) = text.split_once('=').ok_or_else(wrong)?;
    let percentile = name.strip_prefix(['p', 'P']).and_then(|text| number(text).ok());
    let percentile = percentile.filter(|p| *p > 0.0 && *p < 100.0).ok_or_else(wrong)?;
    Ok((percentile, positive_millis(limit)?))
}

pub(super) fn connections(text: &str) -> Result<Connections, String> {
    if text == "per-camera" {
        return Ok(Connections::PerCamera);
    }
    let number = text.parse().ok().filter(|n| (1..=MAX_CONNECTIONS).contains(n));
    let wrong = || format!("write per-camera or a number from 1 to {MAX_CONNECTIONS}");
    number.map(Connections::Shared).ok_or_else(wrong)
}
