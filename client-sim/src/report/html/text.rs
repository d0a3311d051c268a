//! Values as people read them, and text as HTML takes it.

/// What stands for a value that was not measured.
pub const NONE: &str = "\u{2013}";

/// `text` as HTML text or as a quoted attribute.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters are allowed in names but not in HTML.
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// JSON for a `script` element: nothing in it can end the element or start another.
#[must_use]
pub fn script_json(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// A number with at most `decimals`, without zeros at its end, as SVG and data attributes take it.
#[must_use]
pub fn number(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{value:.decimals$}");
    if !text.contains('.') {
        return text;
    }
    match text.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// A whole number in groups of three.
#[must_use]
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && digits.len() > 4 {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// "1 camera", "2 cameras".
#[must_use]
pub fn counted(n: u64, thing: &str) -> String {
    let end = if n == 1 { "" } else { "s" };
    format!("{} {thing}{end}", count(n))
}

/// Milliseconds without their unit: three digits that matter, all of them from 1000 on.
#[must_use]
pub fn ms(value: Option<f64>) -> String {
    match value {
        None => NONE.to_owned(),
        Some(ms) if ms.abs() < 9.995 => format!("{ms:.2}"),
        Some(ms) if ms.abs() < 999.95 => format!("{ms:.1}"),
        Some(ms) => count(ms.round() as u64),
    }
}

/// Milliseconds with their unit.
#[must_use]
pub fn ms_unit(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| format!("{} ms", ms(Some(value))))
}

/// A share in per cent, never rounded up to a whole that it is not.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return NONE.to_owned();
    }
    if part == whole {
        return "100 %".to_owned();
    }
    let share = 100.0 * part as f64 / whole as f64;
    // 99.9996 % is not 100 %: as many decimals as it takes to see that.
    let decimals = if share > 99.99 { 4 } else { 2 };
    let factor = 10f64.powi(decimals);
    let floored = (share * factor).floor() / factor;
    format!("{} %", number(floored, decimals as usize))
}

/// A limit or setting as it was given.
#[must_use]
pub fn plain(value: f64) -> String {
    number(value, 6)
}

/// A time of day in UTC, as in `2026-01-31 12:00:05 UTC`.
#[must_use]
pub fn utc(unix_ms: i64) -> String {
    let seconds = unix_ms.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

/// The Gregorian date of a day counted from 1970-01-01. Years are taken to begin in March, so that
/// the leap day is the last one.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Bytes as KB, MB or GB.
#[must_use]
pub fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{} KB", number(n as f64 / 1e3, 1)),
        1_000_000..1_000_000_000 => format!("{} MB", number(n as f64 / 1e6, 1)),
        _ => format!("{} GB", number(n as f64 / 1e9, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_text() {
        let escaped = escape("</script><img src=x onerror='a(\"b\")'>&\u{0}");
        assert!(!escaped.contains(['<', '>', '"', '\'', '\u{0}']), "{escaped}");
        assert!(!script_json(r#"{"a":"</script><!--"}"#).contains('<'));
        let back: serde_json::Value =
            serde_json::from_str(&script_json(r#"{"a":"</script>"}"#)).unwrap();
        assert_eq!(back["a"], "</script>");
    }

    #[test]
    fn numbers_are_short_and_honest() {
        assert_eq!([number(1.50, 2), number(-0.001, 2), number(f64::NAN, 2)], ["1.5", "0", "0"]);
        assert_eq!([number(100.0, 0), number(100.0, 1)], ["100", "100"]);
        assert_eq!([count(1234), count(12_345)], ["1234", "12\u{202f}345"]);
        assert_eq!([ms(Some(7.204)), ms(Some(71.96)), ms(None)], ["7.20", "72.0", NONE]);
        assert_eq!(percent(999_999, 1_000_000), "99.9999 %");
        assert_eq!([percent(1, 3), percent(5, 5), percent(0, 0)], ["33.33 %", "100 %", NONE]);
        assert_eq!([bytes(0), bytes(34_560), bytes(16_000_000_000)], ["0 B", "34.6 KB", "16 GB"]);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_767_225_599_999), "2025-12-31 23:59:59 UTC");
        assert_eq!(utc(-1), "1969-12-31 23:59:59 UTC");
    }
}
