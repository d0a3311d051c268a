//! Connections: how they are accepted, how old they get, how they end.
//!
//! A camera's stream never ends by itself, so a server that joins a load balancer's pool later gets no
//! cameras. With a maximum age they move, in three steps, each for the peers that the one before does
//! not reach:
//!
//! 1. at the age, the peer is told to open no more streams here (GOAWAY; tonic does that);
//! 2. at the age x (1 + jitter x f), f in 0..1 and different for each stream, a stream is ended in order:
//!    all its accepted frames are answered ([`crate::ingress`]);
//! 3. at the age x (1 + jitter) + grace the connection is cut, whatever is open on it. A peer that does
//!    not read cannot be reached in any other way: its flow-control window is full, so HTTP/2 does not
//!    even ask for the stream's end.
//!
//! All three count from when the connection was accepted. Counting a stream's age from its own start
//! would let a connection get twice as old, or cut young streams with it.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::Sleep,
};
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::server::{Connected, TcpIncoming};

use crate::{
    clock,
    config::ConnectionConfig,
    limits::{ACCEPT_PAUSE, CLOSE_LINGER, TCP_KEEPALIVE},
    schedule::CameraKey,
    telemetry::metrics::Metrics,
};

/// Bytes dropped at once from a connection that the server has closed.
const LINGER_READ_BYTES: usize = 4096;

/// How old connections and the streams on them may get.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AgeLimit {
    /// Age from which a connection takes no new streams. Above zero.
    pub age: Duration,
    /// Part of the age, 0 to 1, over which the ends of streams are spread.
    pub jitter: f64,
    /// Time for the last answers to be read.
    pub grace: Duration,
}

impl AgeLimit {
    /// Age of its connection at which the stream of this key is ended: the age x (1 to 1 + jitter).
    #[must_use]
    pub fn stream_end(&self, key: CameraKey) -> Duration {
        self.age.mul_f64(1.0 + self.jitter * spread(key))
    }

    /// Age at which a connection is cut; no stream's end lies beyond the grace time before it.
    #[must_use]
    pub fn cut(&self) -> Duration {
        self.age.mul_f64(1.0 + self.jitter) + self.grace
    }
}

/// Places keys in 0..1: multiples of the golden ratio, less their whole part.
///
/// Keys are given out one after the other, and any run of successive multiples of the golden ratio
/// divides the interval almost evenly (the three-distance theorem; Knuth, The Art of Computer
/// Programming 3, section 6.4). So cameras that came in the same instant leave one by one, more evenly
/// than random numbers would have it, and neither a source of randomness nor its seed is needed.
fn spread(key: CameraKey) -> f64 {
    /// 2^64 divided by the golden ratio: the product's overflow is the whole part.
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    /// Bits that a double holds exactly.
    const BITS: u32 = f64::MANTISSA_DIGITS;
    (key.0.wrapping_mul(STEP) >> (u64::BITS - BITS)) as f64 / (1_u64 << BITS) as f64
}

/// What the streams of a connection know of it.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionInfo {
    /// When it was accepted.
    pub accepted: Instant,
}

/// The connections of a listening socket.
pub fn incoming(
    listener: TcpListener,
    config: &ConnectionConfig,
    metrics: &Arc<Metrics>,
) -> impl Stream<Item = io::Result<Connection>> + use<> {
    let (age, metrics) = (config.age, Arc::clone(metrics));
    TcpIncoming::from(listener)
        .with_nodelay(Some(config.tcp_nodelay))
        .with_keepalive(Some(TCP_KEEPALIVE))
        .then(pause_after_failure())
        .map(move |tcp| Ok(Connection::new(tcp?, age, Arc::clone(&metrics))))
}

/// Lets the accept loop breathe when it cannot accept, and says so, ever more rarely.
fn pause_after_failure() -> impl FnMut(io::Result<TcpStream>) -> Accepted {
    let mut failures = 0_u64;
    move |accepted| {
        failures += u64::from(accepted.is_err());
        let times = failures;
        Box::pin(async move {
            if let Err(error) = &accepted {
                if times.is_power_of_two() {
                    tracing::warn!(%error, times, "cannot accept a connection");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            accepted
        })
    }
}

/// What the accept loop waits for before it goes on.
type Accepted = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// A TCP connection that fails at its greatest age, and is closed without losing what its peer has yet
/// to read.
#[derive(Debug)]
pub struct Connection {
    tcp: TcpStream,
    info: ConnectionInfo,
    /// Ends at the greatest age. Whoever reads or writes is woken by it, so that a peer which neither
    /// sends nor reads is cut too.
    cut: Option<Pin<Box<Sleep>>>,
    was_cut: bool,
    /// Once closed from this side: until when the peer's data is read and dropped.
    linger: Option<Pin<Box<Sleep>>>,
    metrics: Arc<Metrics>,
}

impl Connection {
    fn new(tcp: TcpStream, age: Option<AgeLimit>, metrics: Arc<Metrics>) -> Self {
        let accepted = clock::now();
        let cut =
            age.map(|limit| Box::pin(tokio::time::sleep_until((accepted + limit.cut()).into())));
        let info = ConnectionInfo { accepted };
        Self { tcp, info, cut, was_cut: false, linger: None, metrics }
    }

    /// Fails once the greatest age is reached; until then the task is woken when it is.
    fn check_age(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let reached = self.cut.as_mut().is_some_and(|cut| cut.as_mut().poll(cx).is_ready());
        if !reached {
            return Ok(());
        }
        if !self.was_cut {
            self.was_cut = true;
            self.metrics.connections_cut.increment(1);
            tracing::debug!(peer = ?self.tcp.peer_addr().ok(), "cutting a connection by its age");
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the connection has reached its age"))
    }

    /// Reads and drops what arrives until the peer has closed its side too, or time is up.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let linger = self.linger.get_or_insert_with(|| Box::pin(tokio::time::sleep(CLOSE_LINGER)));
        if linger.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        loop {
            let mut dropped = [0; LINGER_READ_BYTES];
            let mut buffer = ReadBuf::new(&mut dropped);
            match Pin::new(&mut self.tcp).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                // The peer's end, or an error: nothing more will come, and nothing is left to lose.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = ConnectionInfo;

    fn connect_info(&self) -> ConnectionInfo {
        self.info
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_age(cx)?;
        Pin::new(&mut self.tcp).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_age(cx)?;
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_age(cx)?;
        Pin::new(&mut self.tcp).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_age(cx)?;
        if self.linger.is_none() {
            std::task::ready!(Pin::new(&mut self.tcp).poll_shutdown(cx))?;
        }
        self.poll_linger(cx)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::settings::Settings;

    fn limit(jitter: f64) -> AgeLimit {
        AgeLimit { age: Duration::from_mins(30), jitter, grace: Duration::from_secs(10) }
    }

    #[test]
    fn without_jitter_all_streams_end_at_the_age() {
        for key in [0, 1, 2, u64::MAX] {
            assert_eq!(limit(0.0).stream_end(CameraKey(key)), Duration::from_mins(30));
        }
        assert_eq!(limit(0.0).cut(), Duration::from_mins(30) + Duration::from_secs(10));
        assert_eq!(limit(0.5).cut(), Duration::from_mins(45) + Duration::from_secs(10));
    }

    #[test]
    fn neighbours_end_far_apart() {
        let ends: Vec<_> = (1..4).map(|key| limit(1.0).stream_end(CameraKey(key))).collect();
        // The golden ratio's multiples: 0.618, 0.236, 0.854 of the age after it.
        for (end, part) in ends.iter().zip([0.618, 0.236, 0.854]) {
            let expected = Duration::from_mins(30).mul_f64(1.0 + part);
            assert!(end.abs_diff(expected) < Duration::from_secs(1), "{ends:?}");
        }
    }

    proptest! {
        #[test]
        fn streams_end_between_the_age_and_the_grace_before_the_cut(
            key: u64, jitter in 0.0..=1.0,
        ) {
            let limit = limit(jitter);
            let end = limit.stream_end(CameraKey(key));
            prop_assert!(limit.age <= end && end <= limit.cut().saturating_sub(limit.grace));
        }

        #[test]
        fn any_run_of_cameras_leaves_evenly(first in 0..u64::MAX / 2, cameras in 2_u64..500) {
            let mut places: Vec<_> =
                (first..first + cameras).map(|key| spread(CameraKey(key))).collect();
            prop_assert!(places.iter().all(|place| (0.0..1.0).contains(place)));
            places.sort_by(f64::total_cmp);
            // From one to the next within twice to a third of what an even division would give.
            let even = 1.0 / cameras as f64;
            for pair in places.windows(2) {
                let gap = pair[1] - pair[0];
                prop_assert!((even / 3.0..=even * 2.0).contains(&gap), "{gap} of {even}");
            }
        }
    }

    /// An accepted connection and its peer.
    async fn pair(settings: Settings) -> (Connection, TcpStream, Arc<Metrics>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let config = settings.check().expect("valid").net.connections;
        let metrics = Arc::new(Metrics::new());
        let mut incoming = std::pin::pin!(incoming(listener, &config, &metrics));
        let peer = TcpStream::connect(addr).await.expect("connects");
        let connection = incoming.next().await.expect("open").expect("accepted");
        (connection, peer, metrics)
    }

    fn aged() -> Settings {
        Settings {
            max_connection_age_seconds: Some(1),
            connection_age_jitter: Some(0.0),
            connection_grace_seconds: Some(0),
            ..Settings::default()
        }
    }

    #[tokio::test]
    async fn nodelay_is_set_unless_unwanted() {
        for (asked, set) in [(None, true), (Some(true), true), (Some(false), false)] {
            let settings = Settings { tcp_nodelay: asked, ..Settings::default() };
            let (connection, _peer, _) = pair(settings).await;
            assert_eq!(connection.tcp.nodelay().expect("read"), set, "{asked:?}");
        }
    }

    #[tokio::test]
    async fn a_reader_and_a_writer_are_woken_by_the_cut() {
        let (mut connection, _peer, metrics) = pair(aged()).await;
        let error = connection.read_u8().await.expect_err("the peer sends nothing");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(connection.write(&[0]).await.expect_err("cut").kind(), io::ErrorKind::TimedOut);
        assert!(metrics.render().contains("vedette_connections_cut_total 1\n"));

        let (mut connection, _peer, _) = pair(aged()).await;
        let full = vec![0; 1 << 16];
        let error = loop {
            if let Err(error) = connection.write(&full).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "the peer reads nothing");
    }

    /// A peer that still sends when the connection is closed reads the last words all the same.
    #[tokio::test]
    async fn closing_over_arriving_data_does_not_reset() {
        let (mut connection, mut peer, _) = pair(Settings::default()).await;
        peer.write_all(&vec![7; 100_000]).await.expect("sends");
        connection.write_all(b"the last answer").await.expect("sends");
        let closing = tokio::spawn(async move { connection.shutdown().await });
        let mut heard = Vec::new();
        peer.read_to_end(&mut heard).await.expect("no reset");
        assert_eq!(heard, b"the last answer");
        peer.write_all(&[7; 100]).await.expect("still open for writing");
        peer.shutdown().await.expect("closes");
        closing.await.expect("no panic").expect("closed");
    }

    #[tokio::test]
    async fn closing_does_not_wait_for_ever() {
        let (mut connection, _peer, _) = pair(Settings::default()).await;
        connection.shutdown().await.expect("closed");
    }
}
