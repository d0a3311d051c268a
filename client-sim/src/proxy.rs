//! A TCP proxy that delays: a long line between a client and a server on one machine.
//!
//! Each direction is a line that holds bytes for a time, in order, and passes them on. The proxy takes
//! bytes at once as long as its buffer has room, so both ends' kernels see a peer next door: TCP's own
//! windows and its slow start do not take part. What is left, and measured, is the flow control of the
//! protocol on top.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Builder,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::JoinSet,
};

use crate::{clock, meter::PROXY_THREAD};

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Chunks on a line, at most; the bound on bytes is reached first unless chunks are tiny.
const CHUNKS: usize = 64 << 10;

/// What a line is like, the same in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// How long a byte is under way: half the round trip. Unless it is zero, the runtime's timers add up
    /// to 1 ms.
    pub delay: Duration,
    /// Bytes per second; unlimited without.
    pub rate: Option<f64>,
    /// Bytes under way, at most; then nothing more is read.
    pub buffer_bytes: usize,
}

impl Line {
    /// A line with this round trip and room for more than any window here.
    #[must_use]
    pub fn with_rtt(rtt: Duration) -> Self {
        Self { delay: rtt / 2, rate: None, buffer_bytes: 64 << 20 }
    }
}

/// A running proxy, on a thread of its own named [`PROXY_THREAD`]. It ends with its handle, and so do
/// its connections.
#[derive(Debug)]
pub struct Proxy {
    /// Where clients connect.
    pub addr: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Proxy {
    /// Starts a proxy in front of `server`, on a free port of the loopback interface.
    ///
    /// # Errors
    /// When there is no port or no thread to be had.
    pub fn start(server: SocketAddr, line: Line) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // Nothing is ever sent: the channel's end is the signal.
        let (stop, stopped) = oneshot::channel();
        thread::Builder::new().name(PROXY_THREAD.to_owned()).spawn(move || {
            runtime.block_on(async {
                // Whoever connects sees a peer that is not there, which says enough.
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = accept(listener, server, line) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { addr, _stop: stop })
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, line: Line) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(async move {
            // A connection that breaks shows at its two ends.
            let _ = relay(client, server, line).await;
        });
    }
}

async fn relay(client: TcpStream, server: SocketAddr, line: Line) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (up, down) =
        tokio::join!(carry(from_client, to_server, line), carry(from_server, to_client, line));
    up.and(down)
}

/// Bytes under way.
struct Chunk {
    bytes: Vec<u8>,
    arrived: Instant,
    _room: OwnedSemaphorePermit,
}

/// Carries one direction to its end.
async fn carry(from: OwnedReadHalf, to: OwnedWriteHalf, line: Line) -> io::Result<()> {
    let (put, taken) = mpsc::channel(CHUNKS);
    let (read, written) = tokio::join!(take_in(from, put, line), put_out(to, taken, line));
    read.and(written)
}

async fn take_in(
    mut from: OwnedReadHalf,
    line_in: mpsc::Sender<Chunk>,
    line: Line,
) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(line.buffer_bytes.max(CHUNK_BYTES)));
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        // Room first: what is read must not wait outside the line.
        let reserved = Arc::clone(&room).acquire_many_owned(CHUNK_BYTES as u32).await;
        let Ok(mut reserved) = reserved else { return Ok(()) };
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let used = reserved.split(count);
        drop(reserved);
        let Some(used) = used else { return Ok(()) };
        let chunk = Chunk { bytes: buffer[..count].to_vec(), arrived: clock::now(), _room: used };
        if line_in.send(chunk).await.is_err() {
            return Ok(());
        }
    }
}

async fn put_out(
    mut to: OwnedWriteHalf,
    mut line_out: mpsc::Receiver<Chunk>,
    line: Line,
) -> io::Result<()> {
    let mut free = clock::now();
    while let Some(chunk) = line_out.recv().await {
        // The line is busy with a chunk for as long as its rate says, and then the chunk travels.
        let busy = line.rate.map_or(0.0, |rate| chunk.bytes.len() as f64 / rate);
        free = free.max(chunk.arrived) + Duration::from_secs_f64(busy);
        let due = free + line.delay;
        // The runtime would wait for its next tick even when there is nothing to wait for.
        if due > clock::now() {
            tokio::time::sleep_until(due.into()).await;
        }
        to.write_all(&chunk.bytes).await?;
    }
    to.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets, behind a line; a megabyte there and back.
    async fn echo(line: Line) -> Duration {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let server = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            let (mut peer, _) = listener.accept().await.expect("a client");
            let (mut read, mut write) = peer.split();
            tokio::io::copy(&mut read, &mut write).await.expect("echoes");
        });
        let proxy = Proxy::start(server, line).expect("starts");
        let client = TcpStream::connect(proxy.addr).await.expect("connects");
        let (mut read, mut write) = client.into_split();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        let copy = sent.clone();
        let start = clock::now();
        tokio::spawn(async move {
            // In pieces of odd sizes, so that chunks end anywhere.
            for piece in copy.chunks(7919) {
                write.write_all(piece).await.expect("writes");
            }
            write.shutdown().await.expect("half-closes");
        });
        let mut received = Vec::new();
        read.read_to_end(&mut received).await.expect("reads");
        assert!(received == sent, "bytes changed or out of order");
        clock::now().saturating_duration_since(start)
    }

    #[tokio::test]
    async fn bytes_come_through_in_order_and_not_before_the_round_trip() {
        let rtt = Duration::from_millis(60);
        assert!(echo(Line::with_rtt(rtt)).await >= rtt);
    }

    #[tokio::test]
    async fn a_small_buffer_and_a_slow_line_lose_nothing() {
        let line = Line { delay: Duration::ZERO, rate: Some(20e6), buffer_bytes: CHUNK_BYTES };
        // A megabyte at 20 MB/s; its way back overlaps.
        assert!(echo(line).await >= Duration::from_millis(50));
    }
}
