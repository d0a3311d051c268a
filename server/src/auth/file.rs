//! The token file: from TOML to who may call. Errors name the file, the token and the key, and never show a
//! value: any of them may be a secret in the wrong place.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ring::digest;
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};
use toml::{Table as Toml, Value, value};
use x509_cert::der::DateTime;

use super::pattern::Pattern;
use crate::{
    frame::CameraId,
    limits::{FPS, MAX_TOKEN_BYTES, MIN_TOKEN_BYTES},
    reload::{Content, FileError},
};

/// SHA-256 of a secret. As secret as what it is of, which may be short.
type Digest = [u8; digest::SHA256_OUTPUT_LEN];

fn digest_of(secret: &[u8]) -> Digest {
    let mut out = [0; digest::SHA256_OUTPUT_LEN];
    out.copy_from_slice(digest::digest(&digest::SHA256, secret).as_ref());
    out
}

/// Who may call.
pub(super) struct Tokens {
    secrets: Vec<Secret>,
    holders: BTreeMap<Arc<str>, Holder>,
}

/// One `[[token]]`: a secret of its holder.
struct Secret {
    digest: Digest,
    holder: Arc<str>,
    /// Seconds since the Unix epoch from which on it is not valid any more.
    expires: Option<i64>,
}

/// What the tokens of one name allow.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Holder {
    cameras: Vec<Pattern>,
    pub(super) max_cameras: Option<usize>,
    pub(super) max_fps: Option<f64>,
}

impl Holder {
    /// Whether a camera of this id, or one without, may be theirs.
    pub(super) fn allows(&self, camera: Option<&CameraId>) -> bool {
        self.cameras.iter().any(|pattern| match camera {
            Some(id) => pattern.matches(id.as_str()),
            None => pattern.is_everything(),
        })
    }
}

impl Secret {
    fn is_valid(&self, now: i64) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

impl Tokens {
    /// Reads the file.
    ///
    /// # Errors
    /// At the first thing that is wrong.
    pub(super) fn parse(content: &Content) -> Result<Self, FileError> {
        let tokens = parse(&content.bytes).map_err(|reason| content.file.wrong(reason))?;
        content.warn_if_open_to_others();
        Ok(tokens)
    }

    /// Whose secret this is, if it is valid at `now` (seconds since the Unix epoch). Every secret of the file
    /// is compared to the end, so that the time taken tells nothing about any.
    pub(super) fn holder_of(&self, presented: &[u8], now: i64) -> Option<&Arc<str>> {
        let digest = digest_of(presented);
        // The place in the list, from 1; 0 is none.
        let mut found = 0_u64;
        for (place, secret) in (1..).zip(&self.secrets) {
            found.conditional_assign(&place, secret.digest.ct_eq(&digest));
        }
        let place = usize::try_from(found).ok()?.checked_sub(1)?;
        self.secrets.get(place).filter(|secret| secret.is_valid(now)).map(|secret| &secret.holder)
    }

    pub(super) fn holder(&self, name: &str) -> Option<&Holder> {
        self.holders.get(name)
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = (&Arc<str>, &Holder)> {
        self.holders.iter()
    }

    /// Whether any secret of this name is valid.
    pub(super) fn has_valid(&self, name: &str, now: i64) -> bool {
        self.secrets.iter().any(|secret| &*secret.holder == name && secret.is_valid(now))
    }

    /// How many secrets are not valid any more.
    pub(super) fn expired(&self, now: i64) -> usize {
        self.secrets.iter().filter(|secret| !secret.is_valid(now)).count()
    }
}

const KEYS: [&str; 7] =
    ["name", "secret", "sha256", "cameras", "max_cameras", "max_fps", "expires"];

fn parse(bytes: &[u8]) -> Result<Tokens, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is not text (UTF-8)".to_owned())?;
    // The parser's own message quotes the line, and with it perhaps a secret.
    let mut file: Toml = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().map_or(text, |span| &text[..span.start.min(text.len())]);
        format!("line {}: is not TOML", before.matches('\n').count() + 1)
    })?;
    let entries = match file.remove("token") {
        Some(Value::Array(entries)) if !entries.is_empty() => entries,
        _ => return Err("there is no [[token]] in it; nobody could call".into()),
    };
    if let Some(key) = file.keys().next() {
        return Err(format!("{key}: unknown key; tokens begin with [[token]]"));
    }
    let mut tokens = Tokens { secrets: Vec::new(), holders: BTreeMap::new() };
    for (number, entry) in (1..).zip(entries) {
        let Value::Table(entry) = entry else {
            return Err(format!("token {number}: is not a table; tokens begin with [[token]]"));
        };
        let named = match entry.get("name") {
            Some(Value::String(name)) if CameraId::parse(name).is_some() => {
                format!("token {number} ({name})")
            }
            _ => format!("token {number}"),
        };
        add(&mut tokens, &entry).map_err(|reason| format!("{named}: {reason}"))?;
    }
    Ok(tokens)
}

fn add(tokens: &mut Tokens, entry: &Toml) -> Result<(), String> {
    if let Some(unknown) = entry.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("{unknown}: unknown key; known are {}", KEYS.join(", ")));
    }
    let name = text(entry, "name")?.ok_or("name: is missing")?;
    let name: Arc<str> = match CameraId::parse(name) {
        Some(_) => name.into(),
        None => return Err("name: must be 1 to 64 characters of A-Z a-z 0-9 . _ -".into()),
    };
    let digest = secret(entry)?;
    let expires = entry.get("expires").map(expiry).transpose()?;
    let holder = Holder {
        cameras: cameras(entry)?,
        max_cameras: max_cameras(entry)?,
        max_fps: max_fps(entry)?,
    };
    if let Some(same) = tokens.secrets.iter().find(|secret| secret.digest == digest) {
        return Err(format!("has the same secret as an earlier one ({})", same.holder));
    }
    let known = tokens.holders.entry(Arc::clone(&name)).or_insert_with(|| holder.clone());
    if *known != holder {
        return Err(
            "cameras, max_cameras and max_fps must be those of the other tokens of its name; \
                    a name is one holder, who may have several secrets"
                .into(),
        );
    }
    tokens.secrets.push(Secret { digest, holder: name, expires });
    Ok(())
}

fn text<'a>(entry: &'a Toml, key: &str) -> Result<Option<&'a str>, String> {
    match entry.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{key}: must be text in quotes")),
    }
}

fn secret(entry: &Toml) -> Result<Digest, String> {
    match (text(entry, "secret")?, text(entry, "sha256")?) {
        (Some(secret), None) => {
            sound(secret.as_bytes()).map_err(|reason| format!("secret: {reason}"))
        }
        (None, Some(hex)) => from_hex(hex)
            .ok_or_else(|| "sha256: must be 64 hexadecimal digits, as `sha256sum` prints".into()),
        (Some(_), Some(_)) => Err("has a secret and a sha256; one of them is enough".into()),
        (None, None) => Err("has neither secret nor sha256".into()),
    }
}

/// The digest of what may be a secret.
fn sound(secret: &[u8]) -> Result<Digest, String> {
    let lengths = MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES;
    // What a header may carry as one word.
    if secret.iter().all(u8::is_ascii_graphic) && lengths.contains(&secret.len()) {
        return Ok(digest_of(secret));
    }
    Err(format!(
        "must be {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} characters of ASCII without spaces; `openssl rand \
         -hex 32` makes one"
    ))
}

/// A secret that stands in a file alone.
pub(super) struct OneSecret(Digest);

impl OneSecret {
    /// Reads the file: one line, which may have an end.
    ///
    /// # Errors
    /// When it is not what a secret may be.
    pub(super) fn parse(content: &Content) -> Result<Self, FileError> {
        let digest = sound(content.bytes.trim_ascii_end());
        let digest = digest.map_err(|reason| content.file.wrong(reason))?;
        content.warn_if_open_to_others();
        Ok(Self(digest))
    }

    /// Whether it is this one, in constant time.
    pub(super) fn is(&self, presented: &[u8]) -> bool {
        self.0.ct_eq(&digest_of(presented)).into()
    }
}

fn from_hex(text: &str) -> Option<Digest> {
    let mut out = Digest::default();
    if text.len() != 2 * out.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in out.iter_mut().zip((0..text.len()).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(out)
}

fn cameras(entry: &Toml) -> Result<Vec<Pattern>, String> {
    let wrong = || {
        "cameras: must be a list of camera ids in quotes, in which * is any run of characters and ? \
         is any one; leave it out for all cameras"
            .to_owned()
    };
    match entry.get("cameras") {
        None => Ok(Pattern::parse("*").into_iter().collect()),
        Some(Value::Array(patterns)) if !patterns.is_empty() => {
            let pattern = |value: &Value| value.as_str().and_then(Pattern::parse);
            patterns.iter().map(pattern).collect::<Option<_>>().ok_or_else(wrong)
        }
        Some(_) => Err(wrong()),
    }
}

fn max_cameras(entry: &Toml) -> Result<Option<usize>, String> {
    entry
        .get("max_cameras")
        .map(|value| {
            let number = value.as_integer().and_then(|number| usize::try_from(number).ok());
            number
                .filter(|&number| number > 0)
                .ok_or_else(|| "max_cameras: must be a whole number above zero".to_owned())
        })
        .transpose()
}

fn max_fps(entry: &Toml) -> Result<Option<f64>, String> {
    entry
        .get("max_fps")
        .map(|value| {
            let number =
                value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
            number.filter(|number| FPS.contains(number)).ok_or_else(|| {
                format!("max_fps: must be a number from {} to {}", FPS.start(), FPS.end())
            })
        })
        .transpose()
}

fn expiry(value: &Value) -> Result<i64, String> {
    let wrong = || {
        "expires: must be an instant with its offset from UTC, such as 2027-01-01T00:00:00Z"
            .to_owned()
    };
    let instant = match value {
        Value::Datetime(instant) => Some(*instant),
        Value::String(text) => text.parse::<value::Datetime>().ok(),
        _ => None,
    };
    instant.and_then(unix_seconds).ok_or_else(wrong)
}

fn unix_seconds(instant: value::Datetime) -> Option<i64> {
    let value::Datetime { date: Some(date), time: Some(time), offset: Some(offset) } = instant
    else {
        return None;
    };
    let offset = match offset {
        value::Offset::Z => 0,
        value::Offset::Custom { minutes } => i64::from(minutes) * 60,
    };
    let value::Time { hour, minute, second, .. } = time;
    let utc = DateTime::new(date.year, date.month, date.day, hour, minute, second).ok()?;
    let since: Duration = utc.unix_duration();
    i64::try_from(since.as_secs()).ok()?.checked_sub(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "a-secret-of-thirty-two-characters";

    fn tokens(text: &str) -> Tokens {
        parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn camera(id: &str) -> CameraId {
        CameraId::parse(id).expect("legal")
    }

    #[test]
    fn a_token_is_found_by_its_secret_or_by_its_hash() {
        // printf %s another-secret-of-mine | sha256sum
        let hash = "0AA3283FEB6A635d9569bdf13ff85f4c52b9ae2ef52e7d9d36a8c3429c43aae6";
        let tokens = tokens(&format!(
            "[[token]]\nname = 'north'\nsecret = '{SECRET}'\n\
             [[token]]\nname = 'south'\nsha256 = '{hash}'\n"
        ));
        let holder = |secret: &str| tokens.holder_of(secret.as_bytes(), 0).map(|name| &**name);
        assert_eq!(holder(SECRET), Some("north"));
        assert_eq!(holder("another-secret-of-mine"), Some("south"));
        for wrong in ["", hash, "a-secret-of-thirty-two-character", &SECRET.to_uppercase()] {
            assert_eq!(holder(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn without_more_a_token_allows_everything() {
        let tokens = tokens(&format!("[[token]]\nname = 'north'\nsecret = '{SECRET}'"));
        let holder = tokens.holder("north").expect("known");
        assert_eq!((holder.max_cameras, holder.max_fps), (None, None));
        assert!(holder.allows(None) && holder.allows(Some(&camera("any"))));
        assert!(tokens.has_valid("north", i64::MAX - 1) && !tokens.has_valid("south", 0));
    }

    #[test]
    fn limits_and_cameras_are_read() {
        let tokens = tokens(&format!(
            "[[token]]\nname = 'north'\nsecret = '{SECRET}'\ncameras = ['north-*', 'gate']\n\
             max_cameras = 20\nmax_fps = 15\n"
        ));
        let holder = tokens.holder("north").expect("known");
        assert_eq!((holder.max_cameras, holder.max_fps), (Some(20), Some(15.0)));
        assert!(holder.allows(Some(&camera("north-7"))) && holder.allows(Some(&camera("gate"))));
        assert!(!holder.allows(Some(&camera("south-7"))) && !holder.allows(None));
    }

    #[test]
    fn tokens_expire_at_an_instant_wherever_it_was_written() {
        for (expires, seconds) in [
            ("2027-01-01T00:00:00Z", 1_798_761_600),
            ("'2027-01-01T00:00:00Z'", 1_798_761_600),
            ("2027-01-01T02:00:00+02:00", 1_798_761_600),
            ("2026-12-31T19:30:00.5-04:30", 1_798_761_600),
            ("2028-02-29T00:00:00Z", 1_835_395_200),
        ] {
            let tokens = tokens(&format!(
                "[[token]]\nname = 'north'\nsecret = '{SECRET}'\nexpires = {expires}"
            ));
            let valid = |now| tokens.holder_of(SECRET.as_bytes(), now).is_some();
            assert!(valid(seconds - 1) && !valid(seconds), "{expires}");
            assert_eq!((tokens.expired(seconds - 1), tokens.expired(seconds)), (0, 1));
            assert!(tokens.has_valid("north", seconds - 1) && !tokens.has_valid("north", seconds));
        }
    }

    #[test]
    fn one_holder_may_have_two_secrets() {
        let entry = |secret: &str, more: &str| {
            format!("[[token]]\nname = 'north'\nsecret = '{secret}'\nmax_fps = 9\n{more}\n")
        };
        let both =
            entry(SECRET, "expires = 1999-01-01T00:00:00Z") + &entry("the-next-secret-of-it", "");
        let tokens = tokens(&both);
        assert!(tokens.holder_of(SECRET.as_bytes(), 1_000_000_000).is_none());
        assert!(tokens.holder_of(b"the-next-secret-of-it", 1_000_000_000).is_some());
        assert!(tokens.has_valid("north", 1_000_000_000));
        assert_eq!(tokens.holders().count(), 1);
    }

    #[test]
    fn what_is_wrong_is_named_and_not_shown() {
        let with = |more: &str| format!("[[token]]\nname = 'north'\nsecret = '{SECRET}'\n{more}");
        let twice = with("") + &with("").replace("north", "south");
        let differs =
            with("") + "[[token]]\nname = 'north'\nsecret = 'other-secret-0123'\nmax_fps = 1";
        for (text, reason) in [
            (String::new(), "there is no [[token]]"),
            ("token = []".into(), "there is no [[token]]"),
            ("token = [1]".into(), "token 1: is not a table"),
            (with("") + "\n[other]", "other: unknown key"),
            (with("secrets = 1"), "token 1 (north): secrets: unknown key; known are name, secret"),
            (format!("[[token]]\nsecret = '{SECRET}'"), "token 1: name: is missing"),
            (format!("[[token]]\nname = 'a b'\nsecret = '{SECRET}'"), "token 1: name: must be"),
            (format!("[[token]]\nname = 7\nsecret = '{SECRET}'"), "token 1: name: must be text"),
            ("[[token]]\nname = 'north'".into(), "token 1 (north): has neither secret nor sha256"),
            (with(&format!("sha256 = '{}'", "0".repeat(64))), "token 1 (north): has a secret and"),
            ("[[token]]\nname = 'north'\nsecret = 'a-short-one'".into(), "secret: must be 16 to"),
            (
                "[[token]]\nname = 'north'\nsecret = 'a secret with spaces'".into(),
                "secret: must be",
            ),
            ("[[token]]\nname = 'north'\nsecret = 1234567890123456".into(), "secret: must be text"),
            (format!("[[token]]\nname = 'north'\nsecret = {SECRET}"), "line 3: is not TOML"),
            ("[[token]]\nname = 'north'\nsha256 = 'abc'".into(), "sha256: must be 64"),
            (with("cameras = []"), "cameras: must be a list"),
            (with("cameras = 'gate'"), "cameras: must be a list"),
            (with("cameras = ['a b']"), "cameras: must be a list"),
            (with("max_cameras = 0"), "max_cameras: must be a whole number"),
            (with("max_cameras = 1.5"), "max_cameras: must be a whole number"),
            (with("max_fps = 0"), "max_fps: must be a number"),
            (with("max_fps = nan"), "max_fps: must be a number"),
            (with("expires = 2027-01-01"), "expires: must be an instant"),
            (with("expires = 2027-01-01T00:00:00"), "expires: must be an instant"),
            (with("expires = '2027-02-30T00:00:00Z'"), "expires: must be an instant"),
            (with("expires = 7"), "expires: must be an instant"),
            (twice, "token 2 (south): has the same secret as an earlier one (north)"),
            (differs, "token 2 (north): cameras, max_cameras and max_fps must be"),
        ] {
            let error = parse(text.as_bytes()).err().unwrap_or_else(|| panic!("{text}"));
            assert!(error.contains(reason), "{error} for {text}");
            assert!(
                !error.contains('\n') && !error.contains("a-s") && !error.contains("3456"),
                "{error}"
            );
        }
        assert_eq!(parse(b"\xff").err().as_deref(), Some("is not text (UTF-8)"));
    }
}
