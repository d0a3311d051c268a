//! TLS handshakes: beside the accept loop, each within its time, and so that a crowd of them does not hold
//! up the frames of those who are in.

use std::{
    collections::VecDeque,
    error::Error,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use rustls::server::Acceptor;
use tokio::{
    net::TcpStream,
    sync::Semaphore,
    task::{AbortHandle, JoinSet},
};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

use super::{
    Connection, Guest, Terms,
    socket::{self, Socket},
};
use crate::{
    limits::{HANDSHAKE_SHARE, HANDSHAKES_AT_ONCE},
    telemetry::metrics::ConnectionRefusal,
    tls::{self, Tls},
};

/// The handshakes under way.
pub(super) struct Handshakes {
    tls: Arc<Tls>,
    turns: Arc<Semaphore>,
    terms: Terms,
    running: JoinSet<Option<Connection>>,
    /// The same, the oldest first, and some that have ended since.
    order: VecDeque<AbortHandle>,
    /// How many may be under way.
    most: usize,
}

impl Handshakes {
    /// `most_connections`: of which those that have not shaken hands are a part.
    pub(super) fn new(tls: Arc<Tls>, most_connections: usize, terms: Terms) -> Self {
        Self {
            tls,
            turns: Arc::new(Semaphore::new(HANDSHAKES_AT_ONCE)),
            terms,
            running: JoinSet::new(),
            order: VecDeque::new(),
            most: most_connections.div_ceil(HANDSHAKE_SHARE),
        }
    }

    /// Begins a handshake. When too many are under way, the oldest one is given up: an honest peer needs two
    /// round trips, so who has taken the longest is the least likely to be one.
    pub(super) fn begin(&mut self, tcp: TcpStream, guest: Guest) {
        if self.running.len() >= self.most {
            self.order.retain(|handshake| !handshake.is_finished());
            if let Some(oldest) = self.order.pop_front() {
                oldest.abort();
                let reason = "it was the slowest of too many that shake hands";
                self.terms.refused(ConnectionRefusal::Handshake, None, &reason);
            }
        }
        let (tls, turns) = (Arc::clone(&self.tls), Arc::clone(&self.turns));
        self.order.push_back(self.running.spawn(run(tcp, guest, tls, turns)));
        if self.order.len() > 2 * self.most {
            self.order.retain(|handshake| !handshake.is_finished());
        }
    }

    /// The next connection that has shaken hands; pending also when there is none under way.
    pub(super) fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Connection> {
        while let Poll::Ready(Some(ended)) = self.running.poll_join_next(cx) {
            if let Ok(Some(connection)) = ended {
                return Poll::Ready(connection);
            }
        }
        Poll::Pending
    }
}

/// A connection, unless the handshake failed; then its peer has been told why, as far as TLS has words for it.
async fn run(
    tcp: TcpStream,
    mut guest: Guest,
    tls: Arc<Tls>,
    turns: Arc<Semaphore>,
) -> Option<Connection> {
    let shaking = shake(tcp, &tls, &turns);
    match tokio::time::timeout_at(guest.deadline().into(), shaking).await {
        Ok(Ok(stream)) => {
            let certificates = stream.get_ref().1.peer_certificates();
            guest.info.subject =
                certificates.and_then(|chain| chain.first()).and_then(tls::subject);
            Some(Connection::new(Socket::Right(Box::new(stream)), guest))
        }
        Ok(Err(Failure::Left)) => None,
        Ok(Err(Failure::Tls { error, tcp })) => {
            guest.refused(ConnectionRefusal::Tls, &describe(&error));
            if let Some(tcp) = tcp {
                socket::close(tcp).await;
            }
            None
        }
        Err(_) => {
            let time = guest.terms.handshake;
            let reason = format!("no TLS handshake within {time:?} (handshake-seconds)");
            guest.refused(ConnectionRefusal::Handshake, &reason);
            None
        }
    }
}

/// Why there was no handshake.
enum Failure {
    /// The peer left before it had said anything, as health checks of TCP balancers do.
    Left,
    /// The peer speaks something else, refuses the server's certificate, or has none that is taken.
    Tls { error: io::Error, tcp: Option<TcpStream> },
}

async fn shake(
    tcp: TcpStream,
    tls: &Tls,
    turns: &Semaphore,
) -> Result<TlsStream<TcpStream>, Failure> {
    let mut hello = LazyConfigAcceptor::new(Acceptor::default(), tcp);
    let start = match Pin::new(&mut hello).await {
        Ok(start) => start,
        Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(Failure::Left),
        Err(error) => return Err(Failure::Tls { error, tcp: hello.take_io() }),
    };
    let accept = {
        // Most of the computing is done here, up to a millisecond. One at a time, and everybody else's turn
        // in between: a fleet that comes back at once must not hold up the frames of those who are in.
        let _turn = turns.acquire().await;
        let accept = start.into_stream(tls.current());
        tokio::task::yield_now().await;
        accept
    };
    accept.into_fallible().await.map_err(|(error, tcp)| Failure::Tls { error, tcp: Some(tcp) })
}

/// What rustls says, and what to do about the usual ones.
fn describe(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|error| (error as &(dyn Error + 'static)).downcast_ref());
    match tls {
        Some(rustls::Error::InvalidMessage(_)) => {
            format!("{error}; does the client speak TLS?")
        }
        Some(rustls::Error::NoCertificatesPresented) => {
            format!("{error}, and tls-client-ca asks for one")
        }
        _ => error.to_string(),
    }
}
