//! What flags take: numbers with units and limits.

use std::time::Duration;

use crate::config::{self, Connections, MAX_FPS, MAX_SECONDS, MIN_FPS};

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

/// A pause that may not be shorter than a heartbeat's, or 0.
pub(super) fn heartbeat(text: &str) -> Result<Duration, String> {
    Ok(config::heartbeat(seconds(text)?)?.unwrap_or_default())
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

pub(super) fn positive_minutes(text: &str) -> Result<Duration, String> {
    number(text).and_then(|minutes| {
        if minutes > 0.0 && minutes * 60.0 <= MAX_SECONDS {
            Ok(Duration::from_secs_f64(minutes * 60.0))
        } else {
            Err(format!("must be more than 0 minutes and at most {}", MAX_SECONDS / 60.0))
        }
    })
}

/// Highest price of an hour, far above any machine's in any currency.
const MAX_PRICE: f64 = 1e9;

pub(super) fn price(text: &str) -> Result<f64, String> {
    number(text).and_then(|price| {
        if price > 0.0 && price <= MAX_PRICE {
            Ok(price)
        } else {
            Err(format!("must be above 0 and at most {MAX_PRICE}"))
        }
    })
}

/// A currency as tables show it: a few letters or a sign.
pub(super) fn currency(text: &str) -> Result<String, String> {
    let fine = |c: char| !c.is_whitespace() && !c.is_control();
    if (1..=8).contains(&text.chars().count()) && text.chars().all(fine) {
        Ok(text.to_owned())
    } else {
        Err("write 1 to 8 characters, such as USD".to_owned())
    }
}

/// Where a server shows its metrics; a page's address is taken too.
pub(super) fn admin(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix("http://").unwrap_or(text);
    let bare = bare.strip_suffix("/metrics").unwrap_or(bare).trim_end_matches('/');
    let authority = bare.parse::<hyper::http::uri::Authority>().ok();
    let fine = authority
        .filter(|it| it.port_u16().is_some_and(|port| port > 0))
        .filter(|it| !it.host().is_empty() && !it.as_str().contains('@'));
    fine.map(|it| it.to_string())
        .ok_or_else(|| "write HOST:PORT, such as 127.0.0.1:9464".to_owned())
}
