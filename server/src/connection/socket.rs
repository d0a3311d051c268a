//! One accepted connection, encrypted or not: it fails at its greatest age, and is closed without losing
//! what its peer has yet to read.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock},
    task::{Context, Poll, ready},
    time::Instant,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::TcpStream,
    time::Sleep,
};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tonic::transport::server::Connected;

use super::{AgeLimit, Guest, Place, Terms};
use crate::{
    limits::CLOSE_LINGER, pace::SharedPace, rate::Limiter, telemetry::metrics::ConnectionRefusal,
};

/// Bytes dropped at once from a connection that the server has closed.
const LINGER_READ_BYTES: usize = 4096;

/// Bytes with which every HTTP/2 client begins: the preface, and the head of a SETTINGS frame (RFC 9113,
/// section 3.4). Until all of them are there, there is no HTTP/2 on the connection, and none of its probes.
const GREETING_BYTES: usize = 24 + 9;

/// What the streams of a connection know of it.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// When it was accepted.
    pub accepted: Instant,
    /// Who has connected.
    pub peer: SocketAddr,
    /// Whom the client's certificate is for, where clients need one.
    pub subject: Option<Arc<str>>,
    /// What frames of single calls on this connection are counted against, once there has been one: together
    /// they are to it what one stream is.
    pub calls: Arc<OnceLock<Arc<Limiter>>>,
    /// Holds single calls back whose frames are of no use. A lock because they run on any I/O thread; held for
    /// an addition.
    pub useless_calls: Arc<Mutex<SharedPace>>,
}

/// Bytes in the open, or encrypted.
pub(super) type Socket = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A TCP connection, encrypted or not, that fails at its greatest age, and is closed without losing what its
/// peer has yet to read.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    info: ConnectionInfo,
    /// Ends at the greatest age. Whoever reads or writes is woken by it, so that a peer which neither
    /// sends nor reads is cut too.
    cut: Option<Pin<Box<Sleep>>>,
    was_cut: bool,
    /// While it is being closed from this side: until when that may take.
    linger: Option<Pin<Box<Sleep>>>,
    /// The peer has been told that nothing more comes.
    ended: bool,
    /// What the peer has yet to say before it counts as one that speaks HTTP/2.
    greeting: Option<Greeting>,
    terms: Terms,
    _place: Place,
}

/// How HTTP/2 begins.
#[derive(Debug)]
struct Greeting {
    missing_bytes: usize,
    deadline: Pin<Box<Sleep>>,
}

impl Connection {
    pub(super) fn new(socket: Socket, guest: Guest) -> Self {
        let deadline = Box::pin(tokio::time::sleep_until(guest.deadline().into()));
        let Guest { info, place, terms } = guest;
        let end = |limit: AgeLimit| tokio::time::sleep_until((info.accepted + limit.cut()).into());
        Self {
            cut: terms.age.map(|limit| Box::pin(end(limit))),
            socket,
            info,
            was_cut: false,
            linger: None,
            ended: false,
            greeting: Some(Greeting { missing_bytes: GREETING_BYTES, deadline }),
            terms,
            _place: place,
        }
    }

    fn tcp(&mut self) -> &mut TcpStream {
        match &mut self.socket {
            Either::Left(tcp) => tcp,
            Either::Right(tls) => tls.get_mut().0,
        }
    }

    /// Fails once the greatest age is reached; until then the task is woken when it is.
    fn check_age(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let reached = self.cut.as_mut().is_some_and(|cut| cut.as_mut().poll(cx).is_ready());
        if !reached {
            return Ok(());
        }
        if !self.was_cut {
            self.was_cut = true;
            self.terms.metrics.connections_cut.increment(1);
            tracing::debug!(peer = %self.info.peer, "cutting a connection by its age");
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the connection has reached its age"))
    }

    /// Fails once a peer that has not spoken has run out of time; until then the reader is woken when it does.
    fn check_greeting(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(greeting) = &mut self.greeting else { return Ok(()) };
        if greeting.deadline.as_mut().poll(cx).is_pending() {
            return Ok(());
        }
        self.greeting = None;
        let time = self.terms.handshake;
        let reason = format!("no HTTP/2 within {time:?} (handshake-seconds)");
        self.terms.refused(ConnectionRefusal::Handshake, Some(self.info.peer), &reason);
        Err(io::Error::new(io::ErrorKind::TimedOut, reason))
    }

    /// Takes note that the peer has said so many bytes.
    fn heard(&mut self, bytes: usize) {
        if let Some(greeting) = &mut self.greeting {
            greeting.missing_bytes = greeting.missing_bytes.saturating_sub(bytes);
            if greeting.missing_bytes == 0 {
                self.greeting = None;
            }
        }
    }

    /// Reads and drops what arrives until the peer has closed its side too. Encrypted bytes are dropped as
    /// they are: nobody wants to know any more what they say.
    fn poll_drop_the_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut dropped = [0; LINGER_READ_BYTES];
            let mut buffer = ReadBuf::new(&mut dropped);
            match ready!(Pin::new(self.tcp()).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                // The peer's end, or an error: nothing more will come, and nothing is left to lose.
                _ => return Poll::Ready(()),
            }
        }
    }
}

/// Closes a connection that has not become one, such as by a failed handshake: what it was told last should
/// still reach its peer.
pub(super) async fn close(mut tcp: TcpStream) {
    let closing = async {
        tcp.shutdown().await?;
        let mut dropped = [0; LINGER_READ_BYTES];
        while tcp.read(&mut dropped).await? > 0 {}
        io::Result::Ok(())
    };
    // Whether in time or not, and with an error or without: it is closed then.
    let _ = tokio::time::timeout(CLOSE_LINGER, closing).await;
}

impl Connected for Connection {
    type ConnectInfo = ConnectionInfo;

    fn connect_info(&self) -> ConnectionInfo {
        self.info.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_age(cx)?;
        self.check_greeting(cx)?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        self.heard(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_age(cx)?;
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_age(cx)?;
        Pin::new(&mut self.socket).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_age(cx)?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    /// Says that nothing more comes, then reads on for a moment.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_age(cx)?;
        let linger = self.linger.get_or_insert_with(|| Box::pin(tokio::time::sleep(CLOSE_LINGER)));
        // TLS has a last word to write, which a peer that does not read would hold up for ever.
        if linger.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if !self.ended {
            ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
            self.ended = true;
        }
        self.poll_drop_the_rest(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use crate::connection::tests::{Pair, aged, pair};
    use crate::settings::Settings;

    use super::*;

    #[tokio::test]
    async fn nodelay_is_set_unless_unwanted() {
        for (asked, set) in [(None, true), (Some(true), true), (Some(false), false)] {
            let settings = Settings { tcp_nodelay: asked, ..Settings::default() };
            let mut connection = pair(settings).await.connection;
            assert_eq!(connection.tcp().nodelay().expect("read"), set, "{asked:?}");
        }
    }

    #[tokio::test]
    async fn a_reader_and_a_writer_are_woken_by_the_cut() {
        let Pair { mut connection, peer: _peer, metrics } = pair(aged()).await;
        let error = connection.read_u8().await.expect_err("the peer sends nothing");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(connection.write(&[0]).await.expect_err("cut").kind(), io::ErrorKind::TimedOut);
        assert!(metrics.render().contains("vedette_connections_cut_total 1\n"));

        let Pair { mut connection, peer: _peer, .. } = pair(aged()).await;
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
        let Pair { mut connection, mut peer, .. } = pair(Settings::default()).await;
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
        let Pair { mut connection, peer: _peer, .. } = pair(Settings::default()).await;
        connection.shutdown().await.expect("closed");
    }
}
