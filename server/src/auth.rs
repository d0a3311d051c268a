//! Bearer tokens (RFC 6750): who may call, with which cameras, how many and how fast.
//!
//! A token's name is its holder, who may have several secrets at a time; to renew one is to add the next, and
//! to take the old one out once nobody uses it. What a call is told in is checked before its body is read, so
//! that strangers cannot make the server hold anything for them.
//!
//! Secrets are kept as hashes, compared in constant time, and shown nowhere: not in errors, not in logs, not in
//! `Debug`.

mod file;
mod pattern;

use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::HeaderMap;
use metrics::Gauge;
use tokio::sync::watch;
use tonic::{Request, Status, metadata::MetadataMap, service::Interceptor};

use crate::{
    clock,
    error::{Farewell, RefusedStream},
    frame::CameraId,
    rate::Limiter,
    reload::{Content, FileError, Named, Reload, Watched},
    telemetry::metrics::Metrics,
};
use file::{OneSecret, Tokens};

/// Metadata key of the token.
const AUTHORIZATION: &str = "authorization";
/// What stands before it (RFC 6750, section 2.1), in upper or lower case (RFC 9110, section 11.1).
const SCHEME: &str = "Bearer";

/// Everybody who holds a token.
pub struct Holders {
    tokens: Watched<Tokens>,
    // A lock because calls come on several threads. Held for a look into a map.
    accounts: Mutex<HashMap<Arc<str>, Arc<Account>>>,
    /// Changes with whatever may end a stream: the file, or the time of a token.
    changed: watch::Sender<()>,
    /// Secrets that had expired when that was last looked at.
    expired: AtomicUsize,
    metrics: Arc<Metrics>,
}

/// What one holder has open.
struct Account {
    name: Arc<str>,
    open: AtomicUsize,
    rate: Arc<Limiter>,
    cameras: Gauge,
}

impl Holders {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// When it cannot be read, or is not what it should be.
    pub fn load(path: &Path, metrics: &Arc<Metrics>) -> Result<Arc<Self>, FileError> {
        let file = Named { key: "token_file", path: path.to_path_buf() };
        let counters = metrics.token_reloads.clone();
        let tokens =
            Watched::load("tokens", vec![file], counters, |contents| Tokens::parse(&contents[0]))?;
        let holders = Self {
            tokens,
            accounts: Mutex::default(),
            changed: watch::Sender::new(()),
            expired: AtomicUsize::new(0),
            metrics: Arc::clone(metrics),
        };
        holders.take_note(false);
        Ok(Arc::new(holders))
    }

    /// Acts on what the file says now and on the time, for those who are in.
    fn take_note(&self, read_again: bool) {
        let tokens = self.tokens.current();
        let expired = tokens.expired(now());
        let more_expired = self.expired.swap(expired, Ordering::Relaxed) != expired;
        if read_again {
            let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
            accounts.retain(|name, account| {
                tokens.holder(name).is_some() || account.open.load(Ordering::Relaxed) > 0
            });
            for (name, holder) in tokens.holders() {
                if let Some(account) = accounts.get(name) {
                    account.rate.set(holder.max_fps);
                }
            }
        }
        if read_again || more_expired {
            self.changed.send_replace(());
        }
    }

    /// Who calls, by the token in the metadata.
    ///
    /// # Errors
    /// Without a valid one. What is wrong with it is not told.
    fn bearer(self: &Arc<Self>, metadata: &MetadataMap) -> Result<Bearer, RefusedStream> {
        let tokens = self.tokens.current();
        let name = presented(metadata.as_ref())
            .and_then(|secret| tokens.holder_of(secret, now()))
            .ok_or(RefusedStream::Unauthenticated)?;
        Ok(Bearer { account: self.account(name), holders: Arc::clone(self) })
    }

    fn account(&self, name: &Arc<str>) -> Arc<Account> {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let account = accounts.entry(Arc::clone(name)).or_insert_with(|| {
            let max_fps = self.tokens.current().holder(name).and_then(|holder| holder.max_fps);
            Arc::new(Account {
                name: Arc::clone(name),
                open: AtomicUsize::new(0),
                rate: Arc::new(Limiter::new(&format!("max_fps of token {name}"), max_fps)),
                cameras: self.metrics.token_cameras(name),
            })
        });
        Arc::clone(account)
    }
}

impl Reload for Holders {
    fn look(&self) {
        self.take_note(self.tokens.look());
    }

    fn reload(&self) {
        self.take_note(self.tokens.reload());
    }
}

impl fmt::Debug for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holders").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

/// Seconds since the Unix epoch.
fn now() -> i64 {
    clock::unix_micros() / 1_000_000
}

/// The secret of the one `authorization: Bearer SECRET`. Two of them say nothing.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?.as_bytes(), values.next()) else { return None };
    let (scheme, secret) = value.split_at_checked(SCHEME.len())?;
    let secret = secret.strip_prefix(b" ")?.trim_ascii();
    (scheme.eq_ignore_ascii_case(SCHEME.as_bytes()) && !secret.is_empty()).then_some(secret)
}

/// The one secret of the operators, who may see pictures.
#[derive(Debug)]
pub struct OperatorToken {
    secret: Watched<OneSecret>,
}

impl OperatorToken {
    /// Reads its file for the first time.
    ///
    /// # Errors
    /// When it cannot be read, or is not one line that a token may be.
    pub fn load(path: &Path, metrics: &Metrics) -> Result<Arc<Self>, FileError> {
        let file = Named { key: "admin_token_file", path: path.to_path_buf() };
        let counters = metrics.token_reloads.clone();
        let parse = |contents: &[Content]| OneSecret::parse(&contents[0]);
        let secret = Watched::load("the operators' token", vec![file], counters, parse)?;
        Ok(Arc::new(Self { secret }))
    }

    /// Whether a request carries it.
    #[must_use]
    pub fn opens(&self, headers: &HeaderMap) -> bool {
        presented(headers).is_some_and(|secret| self.secret.current().is(secret))
    }
}

impl Reload for OperatorToken {
    fn look(&self) {
        self.secret.look();
    }

    fn reload(&self) {
        self.secret.reload();
    }
}

/// One whose token was valid when the call began.
#[derive(Clone)]
pub struct Bearer {
    account: Arc<Account>,
    holders: Arc<Holders>,
}

impl Bearer {
    /// The token's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.account.name
    }

    /// The limit on the frames of everything that this holder sends.
    #[must_use]
    pub fn rate(&self) -> Arc<Limiter> {
        Arc::clone(&self.account.rate)
    }

    /// A place for a stream or call of this camera among the holder's, until it is dropped.
    ///
    /// # Errors
    /// When the camera is not theirs, or they have no place left.
    pub fn seat(&self, camera: Option<&CameraId>) -> Result<Seat, RefusedStream> {
        let token = || self.name().to_owned();
        let tokens = self.holders.tokens.current();
        let holder = tokens.holder(&self.account.name).ok_or(RefusedStream::Unauthenticated)?;
        if !holder.allows(camera) {
            return Err(match camera {
                Some(camera) => {
                    RefusedStream::ForbiddenCamera { camera: camera.clone(), token: token() }
                }
                None => RefusedStream::NoCameraId { token: token() },
            });
        }
        let most = holder.max_cameras.unwrap_or(usize::MAX);
        let one_more = |open| (open < most).then_some(open + 1);
        self.account
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .map_err(|_| RefusedStream::TokenFull { token: token(), limit: most })?;
        self.account.cameras.increment(1);
        let standing = Standing { bearer: self.clone(), camera: camera.cloned() };
        Ok(Seat { standing })
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bearer").field(&self.account.name).finish()
    }
}

/// Counts as one stream or call of its holder until dropped.
#[derive(Debug)]
pub struct Seat {
    standing: Standing,
}

impl Seat {
    /// What the stream's being open rests on.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing.clone()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let account = &self.standing.bearer.account;
        account.open.fetch_sub(1, Ordering::Relaxed);
        account.cameras.decrement(1);
    }
}

/// What a stream's being open rests on: some valid token of its holder, which allows its camera.
#[derive(Debug, Clone)]
pub struct Standing {
    bearer: Bearer,
    camera: Option<CameraId>,
}

impl Standing {
    /// Waits until it is gone, and says why the stream ends.
    pub async fn lost(self) -> Farewell {
        let mut changed = self.bearer.holders.changed.subscribe();
        loop {
            if let Some(why) = self.check(now()) {
                return why;
            }
            // The sender lives as long as the bearer.
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn check(&self, now: i64) -> Option<Farewell> {
        let name = self.bearer.name();
        let tokens = self.bearer.holders.tokens.current();
        match tokens.holder(name) {
            Some(holder) if tokens.has_valid(name, now) => {
                (!holder.allows(self.camera.as_ref())).then_some(Farewell::Forbidden)
            }
            _ => Some(Farewell::Revoked),
        }
    }
}

/// Lets only calls with a valid token through to a service, before their bodies are read, and notes whose they
/// are.
#[derive(Debug, Clone)]
pub struct Gate {
    holders: Option<Arc<Holders>>,
    metrics: Arc<Metrics>,
}

impl Gate {
    /// A gate for these holders; without any it is open.
    #[must_use]
    pub fn new(holders: Option<Arc<Holders>>, metrics: Arc<Metrics>) -> Self {
        Self { holders, metrics }
    }
}

impl Interceptor for Gate {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(holders) = &self.holders {
            let bearer = holders.bearer(request.metadata()).inspect_err(|error| {
                error.note(&self.metrics, request.extensions().get(), None);
            })?;
            request.extensions_mut().insert(bearer);
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NORTH: &str = "the-secret-of-the-north";
    const SOUTH: &str = "the-secret-of-the-south";

    struct World {
        file: tempfile::NamedTempFile,
        holders: Arc<Holders>,
    }

    fn entry(name: &str, secret: &str, more: &str) -> String {
        format!("[[token]]\nname = '{name}'\nsecret = '{secret}'\n{more}\n")
    }

    fn world(text: &str) -> World {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), text).expect("writes");
        let holders = Holders::load(file.path(), &Arc::new(Metrics::new())).expect("tokens");
        World { file, holders }
    }

    impl World {
        fn rewrite(&self, text: &str) {
            fs::write(self.file.path(), text).expect("writes");
            self.holders.reload();
        }

        fn bearer(&self, secret: &str) -> Result<Bearer, RefusedStream> {
            self.holders.bearer(&metadata(&[&format!("Bearer {secret}")]))
        }
    }

    fn metadata(values: &[&str]) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        for value in values {
            metadata.append(AUTHORIZATION, value.parse().expect("ASCII"));
        }
        metadata
    }

    fn camera(id: &str) -> Option<CameraId> {
        CameraId::parse(id)
    }

    #[test]
    fn a_token_stands_behind_its_scheme() {
        for (values, secret) in [
            (&["Bearer abc"][..], Some("abc")),
            (&["bearer abc"], Some("abc")),
            (&["BEARER  abc "], Some("abc")),
            (&["Bearer "], None),
            (&["Bearer"], None),
            (&["Bearerabc"], None),
            (&["Basic abc"], None),
            (&["abc"], None),
            (&[""], None),
            (&[], None),
            (&["Bearer abc", "Bearer abc"], None),
        ] {
            let metadata = metadata(values);
            assert_eq!(presented(metadata.as_ref()), secret.map(str::as_bytes), "{values:?}");
        }
    }

    #[test]
    fn who_has_no_valid_token_is_told_the_same_whatever_is_wrong() {
        let world = world(
            &(entry("north", NORTH, "expires = 1999-01-01T00:00:00Z") + &entry("south", SOUTH, "")),
        );
        assert_eq!(world.bearer(SOUTH).expect("valid").name(), "south");
        let told: Vec<_> = [
            metadata(&[]),
            metadata(&["nonsense"]),
            metadata(&[&format!("Bearer {NORTH}")]),
            metadata(&["Bearer a-secret-of-nobody"]),
        ]
        .iter()
        .map(|metadata| world.holders.bearer(metadata).expect_err("not valid").to_string())
        .collect();
        assert!(told[0].contains("authorization: Bearer"), "{told:?}");
        assert!(told.iter().all(|text| *text == told[0]), "{told:?}");
    }

    #[test]
    fn cameras_and_places_are_the_holder_s() {
        let world = world(&entry("north", NORTH, "cameras = ['n-*']\nmax_cameras = 2"));
        let bearer = world.bearer(NORTH).expect("valid");
        let denied = |id| bearer.seat(camera(id).as_ref()).expect_err("not theirs").to_string();
        assert!(denied("s-1").contains("\"s-1\"") && denied("s-1").contains("\"north\""));
        assert!(denied("").contains("camera-id"), "{}", denied(""));
        let first = bearer.seat(camera("n-1").as_ref()).expect("free");
        // A second one of the same secret, or of another: the same holder.
        let _second =
            world.bearer(NORTH).expect("valid").seat(camera("n-2").as_ref()).expect("free");
        assert!(denied("n-3").contains("all 2 places"), "{}", denied("n-3"));
        let rendered = world.holders.metrics.render();
        assert!(rendered.contains("vedette_token_cameras{token=\"north\"} 2\n"), "{rendered}");
        drop(first);
        assert!(bearer.seat(camera("n-3").as_ref()).is_ok());
    }

    #[tokio::test]
    async fn a_stream_stands_as_long_as_its_holder_has_a_token_that_allows_it() {
        let world = world(&(entry("north", NORTH, "") + &entry("south", SOUTH, "")));
        let seat = world.bearer(NORTH).and_then(|b| b.seat(camera("n-1").as_ref())).expect("in");
        let mut lost = tokio::spawn(seat.standing().lost());
        let still = |lost: &tokio::task::JoinHandle<Farewell>| !lost.is_finished();

        // Renewed: another secret of the same name. Then limits change, and other tokens go.
        world.rewrite(&(entry("north", "the-next-of-the-north", "") + &entry("south", SOUTH, "")));
        world.rewrite(&entry("north", "the-next-of-the-north", "max_fps = 3\nmax_cameras = 1"));
        // And a file that cannot be used changes nothing.
        world.rewrite("nonsense");
        tokio::task::yield_now().await;
        assert!(still(&lost));
        assert!(world.bearer(NORTH).is_err() && world.bearer("the-next-of-the-north").is_ok());

        world.rewrite(&entry("north", NORTH, "cameras = ['other']"));
        assert_eq!((&mut lost).await.expect("no panic"), Farewell::Forbidden);
        world.rewrite(&entry("south", SOUTH, ""));
        assert_eq!(seat.standing().lost().await, Farewell::Revoked);
        world.rewrite(&entry("north", NORTH, "expires = 1999-01-01T00:00:00Z"));
        assert_eq!(seat.standing().lost().await, Farewell::Revoked);
    }

    #[test]
    fn expiry_is_noticed_without_a_change_of_the_file() {
        let world = world(&entry("north", NORTH, "expires = 1999-01-01T00:00:00Z"));
        let changed = world.holders.changed.subscribe();
        world.holders.look();
        assert!(!changed.has_changed().expect("open"), "it had expired before");
        // As if it had been valid at the last look.
        world.holders.expired.store(0, Ordering::Relaxed);
        world.holders.look();
        assert!(changed.has_changed().expect("open"));
    }

    #[test]
    fn a_rate_follows_the_file() {
        let world = world(&entry("north", NORTH, "max_fps = 1"));
        let quota = crate::rate::Quota::new([world.bearer(NORTH).expect("valid").rate()]);
        let now = clock::now();
        assert!(quota.take(now).is_ok());
        let told = quota.take(now).expect_err("the second").to_string();
        assert_eq!(told, "RATE: over 1 frames per second (max_fps of token north)");
        let later = now + std::time::Duration::from_millis(100);
        assert!(quota.take(later).is_err());
        world.rewrite(&entry("north", NORTH, "max_fps = 100"));
        assert!(quota.take(later).is_ok());
    }

    #[test]
    fn nothing_secret_is_shown() {
        let world = world(&entry("north", NORTH, ""));
        let bearer = world.bearer(NORTH).expect("valid");
        let seat = bearer.seat(None).expect("free");
        let shown = format!("{:?} {bearer:?} {seat:?}", world.holders);
        assert!(shown.contains("north") && !shown.contains("secret"), "{shown}");
    }
}
