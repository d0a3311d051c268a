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
//!
//! A new connection needs a place, and has to show within its first seconds that it speaks TLS, where that
//! is on, and HTTP/2. Who does not is closed; so nobody can hold what a server has few of, file descriptors
//! and memory, by saying nothing.

mod age;
mod descriptors;
mod handshake;
mod places;
mod socket;

use std::{
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::net::{TcpListener, TcpStream};
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::server::TcpIncoming;

pub use age::AgeLimit;
pub use socket::{Connection, ConnectionInfo};

use crate::{
    clock,
    config::ConnectionConfig,
    limits::{ACCEPT_PAUSE, TCP_KEEPALIVE},
    telemetry::metrics::{ConnectionRefusal, Metrics},
    tls::Tls,
};
use handshake::Handshakes;
use places::{Place, Places};
use socket::Socket;

/// The connections of a listening socket, each once it can be spoken on.
pub struct Incoming {
    accepted: Pin<Box<dyn Stream<Item = io::Result<TcpStream>> + Send>>,
    places: Arc<Places>,
    /// `None`: connections are not encrypted.
    handshakes: Option<Handshakes>,
    terms: Terms,
}

/// The connections of a listening socket, encrypted if there is `tls`.
pub fn incoming(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    config: &ConnectionConfig,
    metrics: &Arc<Metrics>,
) -> Incoming {
    descriptors::make_room(config.max_connections);
    let accepted = TcpIncoming::from(listener)
        .with_nodelay(Some(config.tcp_nodelay))
        .with_keepalive(Some(TCP_KEEPALIVE))
        .then(pause_after_failure());
    let terms =
        Terms { age: config.age, handshake: config.handshake, metrics: Arc::clone(metrics) };
    let places = Places::new(config, Arc::clone(metrics));
    let handshakes = tls.map(|tls| Handshakes::new(tls, config.max_connections, terms.clone()));
    Incoming { accepted: Box::pin(accepted), places, handshakes, terms }
}

impl Incoming {
    /// Takes in a connection just accepted. It comes back if it can be spoken on at once.
    fn welcome(&mut self, tcp: TcpStream) -> Option<Connection> {
        // No address: the peer has left already.
        let peer = tcp.peer_addr().ok()?;
        let place = match self.places.take(peer.ip()) {
            Ok(place) => place,
            Err(full) => {
                self.terms.refused(full.refusal(), Some(peer), &full);
                return None;
            }
        };
        let accepted = clock::now();
        let info = ConnectionInfo {
            accepted,
            peer,
            subject: None,
            calls: Arc::default(),
            useless_calls: Arc::default(),
        };
        let guest = Guest { info, place, terms: self.terms.clone() };
        if let Some(handshakes) = &mut self.handshakes {
            handshakes.begin(tcp, guest);
            return None;
        }
        Some(Connection::new(Socket::Left(tcp), guest))
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(handshakes) = &mut self.handshakes
                && let Poll::Ready(connection) = handshakes.poll_done(cx)
            {
                return Poll::Ready(Some(Ok(connection)));
            }
            match ready!(self.accepted.as_mut().poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(tcp)) => {
                    if let Some(connection) = self.welcome(tcp) {
                        return Poll::Ready(Some(Ok(connection)));
                    }
                }
            }
        }
    }
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

/// What holds for every connection.
#[derive(Debug, Clone)]
struct Terms {
    age: Option<AgeLimit>,
    /// Time in which a new connection must have spoken TLS, where it is on, and HTTP/2.
    handshake: Duration,
    metrics: Arc<Metrics>,
}

impl Terms {
    /// Counts a connection that is closed before it was of use, and says so, ever more rarely.
    fn refused(&self, why: ConnectionRefusal, peer: Option<SocketAddr>, reason: &dyn fmt::Display) {
        let times = self.metrics.connection_refused(why);
        if times.is_power_of_two() {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(peer, times, "closing a new connection: {reason}");
        }
    }
}

/// A connection that has a place, before it is one.
struct Guest {
    info: ConnectionInfo,
    place: Place,
    terms: Terms,
}

impl Guest {
    /// When it must have spoken.
    fn deadline(&self) -> Instant {
        self.info.accepted + self.terms.handshake
    }

    fn refused(&self, why: ConnectionRefusal, reason: &dyn fmt::Display) {
        self.terms.refused(why, Some(self.info.peer), reason);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::settings::Settings;

    pub(crate) struct Pair {
        pub(crate) connection: Connection,
        pub(crate) peer: TcpStream,
        pub(crate) metrics: Arc<Metrics>,
    }

    /// An accepted connection and its peer.
    pub(crate) async fn pair(settings: Settings) -> Pair {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let config = settings.check().expect("valid").net.connections;
        let metrics = Arc::new(Metrics::new());
        let mut incoming = incoming(listener, None, &config, &metrics);
        let peer = TcpStream::connect(addr).await.expect("connects");
        let connection = incoming.next().await.expect("open").expect("accepted");
        Pair { connection, peer, metrics }
    }

    pub(crate) fn aged() -> Settings {
        Settings {
            max_connection_age_seconds: Some(1),
            connection_age_jitter: Some(0.0),
            connection_grace_seconds: Some(0),
            ..Settings::default()
        }
    }
}
