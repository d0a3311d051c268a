//! Bounds of the server: each with its unit, its reason and, where there is one, its source.

use std::time::Duration;

/// Threads for sockets on small machines. They move bytes and never compute. One moves 25,000 pictures a
/// second, more than 8 cores can compute; a second would only wake up for the first one's work.
pub const MIN_IO_THREADS: usize = 1;

/// Cores per thread for sockets on larger machines: with more workers there is more to move.
pub const CORES_PER_IO_THREAD: usize = 8;

/// Most threads for sockets that may be set; far more than any network card needs.
pub const MAX_IO_THREADS: usize = 256;

/// Answers that may wait for one client to read them. A frame is read off the wire only once its
/// answer's place is reserved, so this bounds both directions: it must exceed what one camera can
/// have in hand (one waiting frame and one per worker), the rest lets a client read in bursts.
pub const REPLY_QUEUE_FRAMES: usize = 32;

/// CPU time that reading any frame takes on the I/O thread, measured on one core of a Xeon of 2023, and
/// what its bytes add.
pub const READ_COST: Duration = Duration::from_micros(10);
/// See [`READ_COST`].
pub const READ_BYTES_PER_SECOND: f64 = 2e9;

/// Share of a core that one stream may take with frames that only replace each other. A client that
/// pushes as fast as it can would otherwise take half a core from everyone.
pub const READ_SHARE: f64 = 0.1;

/// Longest time for which a stream is not read because frames were dropped for want of memory: a camera that
/// hears nothing for longer would be taken for dead.
pub const LONGEST_SHED_PAUSE: Duration = Duration::from_secs(1);

/// Shortest pause worth making: the resolution of tokio's timers.
pub const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Bytes of a request besides its picture: scalar fields, tags and lengths of the message.
pub const REQUEST_OVERHEAD_BYTES: usize = 64 * 1024;

/// A frame up to this many times `max-frame-bytes` is read and answered `BAD_IMAGE`, so that its
/// stream lives on; a larger one is refused before its body is buffered and ends the stream.
pub const OVERSIZE_FACTOR: usize = 2;

/// Largest message that is read for frames of so many bytes.
#[must_use]
pub const fn message_bytes(max_frame_bytes: usize) -> usize {
    max_frame_bytes * OVERSIZE_FACTOR + REQUEST_OVERHEAD_BYTES
}

/// Part of the memory that the process may use for frames in hand, unless set: one in so many. The rest is
/// for networks, decoders, what HTTP/2 has under way, and what the allocator keeps.
pub const FRAME_MEMORY_DIVISOR: u64 = 4;

/// Bytes of a message up to which it is not metered: signs of life and empty frames, which take less than
/// keeping count of them.
pub const UNMETERED_BYTES: u32 = 1024;

/// Least and most frames per second that may be set as a limit: about one a day, and more than a stream of
/// empty frames can carry.
pub const FPS: std::ops::RangeInclusive<f64> = 1e-5..=1e6;

/// Connections to the operators' port: scrapers, probes and people. They take file descriptors that cameras
/// need as well.
pub const ADMIN_CONNECTIONS: usize = 64;

/// Time that such a connection may take to ask, and may stay open without asking.
pub const ADMIN_IDLE: Duration = Duration::from_mins(1);

/// How long a health check waits for an answer: less than the supervisors of containers give it.
pub const PROBE_TIME: Duration = Duration::from_secs(3);

/// How long the last traces may take to be sent while the server ends: within what [`GRACE_RESERVE`] leaves.
pub const TRACES_END: Duration = Duration::from_millis(100);

/// Connections of those that are kept by open live pages. What is left is for scrapers and probes.
pub const LIVE_VIEWERS: usize = 32;

/// Least time between two pictures of a camera that somebody looks at: five a second are enough to see what it
/// sees, and cost its viewer's browser and network little.
pub const PICTURE_PAUSE: Duration = Duration::from_millis(200);

/// How long a viewer's request waits for the next picture; proxies give up after a minute as a rule.
pub const PICTURE_WAIT: Duration = Duration::from_secs(10);

/// Longest side of a picture that had to be encoded anew for a viewer, in pixels.
pub const PICTURE_SIDE: u32 = 960;

/// Time within which an answer must arrive, or the next frame of a camera at 10 FPS is there first.
pub const PROMISE: Duration = Duration::from_millis(100);

/// Seconds that are kept of each camera and of all together: the time in which somebody who was called opens
/// the page. 64 bytes each.
pub const HISTORY_SECONDS: usize = 300;

/// How long a camera that has left is remembered.
pub const GONE: Duration = Duration::from_secs(HISTORY_SECONDS as u64);

/// Cameras that have left and are remembered, at most; each keeps its history, 19 KB.
pub const GONE_CAMERAS: usize = 32;

/// Silence after which a camera is stale, unless it is used to be silent for longer. The live page is told each
/// second, so that it says so within 3 s.
pub const STALE: Duration = Duration::from_millis(1750);

/// Times a camera's usual interval between messages after which it is stale.
pub const STALE_INTERVALS: f64 = 3.0;

/// Share of the workers' time up to which cameras can be added. The slowest answer of 14 cameras was 41 ms at
/// 0.85 of what the machine can do, of 17 cameras 60 ms at 0.96 (benches/RESULTS.md): beyond, a stall is not
/// made up for.
pub const HEADROOM_BUSY: f64 = 0.85;

/// Largest message to services that ask for no token: the name of a service or of a symbol.
pub const STRANGERS_MESSAGE_BYTES: usize = 1024;

/// Room that a message takes beyond what of it is here: most frames take all of theirs at once, and whoever
/// announces much and sends nothing holds no more than this.
pub const RESERVED_AT_ONCE: u32 = 64 << 10;

/// Time for one message from its first byte to its last, unless set: a frame of 4 MB over 1 Mbit/s. What
/// has arrived of a message occupies memory until the rest comes, so there must be an end.
pub const MESSAGE_TIME: Duration = Duration::from_secs(30);

/// Bytes that may follow the last row of a raw frame: drivers hand out whole pages, and a page is
/// 4096 bytes. More than that means that the declared size is not the frame's.
pub const RAW_PADDING_BYTES: usize = 4095;

/// Longest `camera-id`, in characters: it becomes a log field.
pub const CAMERA_ID_CHARS: usize = 64;

/// Scans of one progressive JPEG. Encoders write about 10; each scan of a hostile file costs a pass
/// over the whole picture (libjpeg-turbo's advisory LJT-01-004).
pub const JPEG_MAX_SCANS: i32 = 100;

/// Bytes per pixel that the decoders of PNG, WebP and BMP may allocate: 8 for 16-bit RGBA, and as
/// much again for their own buffers.
pub const DECODE_ALLOC_BYTES_PER_PIXEL: u64 = 16;

/// Bytes that they may allocate besides, for tables, colour profiles and text.
pub const DECODE_ALLOC_BYTES: u64 = 1 << 20;

/// Input and output tensors that a worker keeps, by input size, when it runs one picture at a time: more
/// than a fleet has aspect ratios. A set is about 3 MB at an input of 416x416, and so much more with larger
/// batches, of which fewer are kept.
pub const TENSOR_SETS: usize = 8;
/// See [`TENSOR_SETS`]: lying and standing cameras.
pub const MIN_TENSOR_SETS: usize = 2;

/// Candidates that enter non-maximum suppression, strongest first; it is quadratic.
pub const NMS_MAX_CANDIDATES: usize = 4096;

/// HTTP/2 receive window of a stream unless set, in bytes: a megabyte in flight per camera, so that a
/// round trip does not cap the rate of large frames (RFC 9113, section 5.2).
pub const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// Most streams that one connection may have open unless set: cameras behind one gateway, health checks
/// and calls together. Advertised to clients (RFC 9113, section 5.1.2).
pub const STREAMS_PER_CONNECTION: u32 = 1024;

/// Smallest HTTP/2 receive window taken, in bytes: a connection's begins with this many and can only
/// grow (RFC 9113, section 6.9.2), and a stream's that is smaller stops in the middle of every picture.
pub const MIN_WINDOW_BYTES: u32 = 65_535;

/// Largest HTTP/2 receive window, in bytes (RFC 9113, section 6.9.1).
pub const MAX_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// HTTP/2 receive window of a connection unless set, in bytes: room for every stream's own window, so
/// that one stream that is not read from never holds up its neighbours on the same connection.
#[must_use]
pub const fn connection_window_bytes(stream_window_bytes: u32, max_streams: u32) -> u32 {
    match stream_window_bytes.saturating_mul(max_streams) {
        ..MIN_WINDOW_BYTES => MIN_WINDOW_BYTES,
        MAX_WINDOW_BYTES.. => MAX_WINDOW_BYTES,
        all => all,
    }
}

/// Largest HTTP/2 frame taken unless set, in bytes: a camera's picture arrives in one or two pieces
/// instead of five or more, and each piece costs a header and a wake-up. Not more, because a frame is
/// buffered whole before its stream sees it, and on a shared connection nothing overtakes it.
pub const FRAME_BYTES: u32 = 64 * 1024;

/// Smallest value of `SETTINGS_MAX_FRAME_SIZE`, in bytes (RFC 9113, section 6.5.2).
pub const MIN_FRAME_BYTES: u32 = 1 << 14;

/// Largest value of `SETTINGS_MAX_FRAME_SIZE`, in bytes (RFC 9113, section 6.5.2).
pub const MAX_FRAME_BYTES: u32 = (1 << 24) - 1;

/// Most streams per connection that may be set: as many as there can be cameras.
pub const MAX_STREAMS_PER_CONNECTION: u32 = 100_000;

/// Silence after which the kernel probes a connection; for peers that vanish before HTTP/2 is spoken.
pub const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Connections open at the same time unless set: far more than there are cameras, and few enough for the
/// usual limit of file descriptors to be raised to (systemd's units come with half a million).
pub const MAX_CONNECTIONS: usize = 4096;

/// Most connections that may be set: as many as Linux gives a process file descriptors by default at most
/// (`fs.nr_open`).
pub const MAX_MAX_CONNECTIONS: usize = 1 << 20;

/// File descriptors besides those of connections: listening sockets, logs, files that are read again, the
/// runtime's own. A server without cameras has fewer than 20 open.
pub const OTHER_DESCRIPTORS: u64 = 128;

/// Time for a new connection to speak TLS and HTTP/2 unless set: several round trips to a slow camera. One
/// that says nothing holds a file descriptor and would do so for ever.
pub const HANDSHAKE: Duration = Duration::from_secs(10);

/// Part of the connections that may be shaking hands (TLS) at the same time: one in so many. Room for the
/// whole of a usual fleet that comes back at once; and strangers who never finish do not take the places of
/// those who have.
pub const HANDSHAKE_SHARE: usize = 4;

/// TLS handshakes that are computed at the same time: one takes 0.1 to 1 ms of CPU on an I/O thread, during
/// which no frame is moved there.
pub const HANDSHAKES_AT_ONCE: usize = 1;

/// How often files of certificates and tokens are looked at. A change is taken over at the second look that
/// sees it, so within twice this; nobody who renews a certificate cares for less.
pub const RELOAD_POLL: Duration = Duration::from_secs(2);

/// Largest file of certificates, keys or tokens that is read, in bytes: thousands of either.
pub const SECRET_FILE_BYTES: u64 = 1 << 20;

/// Shortest secret of a token, in characters: 16 random ones of base64 are 96 bits.
pub const MIN_TOKEN_BYTES: usize = 16;

/// Longest secret of a token, in characters: room for any generator's, within the metadata of a call.
pub const MAX_TOKEN_BYTES: usize = 512;

/// Largest list of metadata of one call, in bytes as RFC 9113, section 10.5.1 counts them: names, values and
/// 32 for each. Ours are two of at most a few hundred bytes; 16 KiB is what HTTP servers commonly take.
pub const METADATA_BYTES: u32 = 16 * 1024;

/// Time on one frame after which a worker counts as stuck, unless set: a hundred times the slowest network
/// that is of use here, and half of the ten seconds in which a supervisor should have noticed.
pub const STUCK: Duration = Duration::from_secs(5);

/// Time on one frame after which the process gives itself up, unless set.
pub const STUCK_EXIT: Duration = Duration::from_secs(30);

/// How often the workers are looked after.
pub const SUPERVISION_TICK: Duration = Duration::from_millis(500);

/// Longest times of a worker on one frame that may be set, in seconds: an hour.
pub const MAX_STUCK_SECONDS: u64 = 3600;

/// Pause after a connection could not be accepted, such as for want of file descriptors: trying on at
/// once would take a core and help nobody.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Pause after which a silent connection is probed (HTTP/2 PING) unless set, and how long the answer
/// may take. A peer that vanished without a FIN is let go after the sum. Ten seconds are also below the
/// idle limits of load balancers and NATs, which begin at about a minute.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// See [`KEEPALIVE_INTERVAL`].
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest pause and longest time for the answer that may be set, in seconds: an hour. Whoever wants
/// fewer probes wants none.
pub const MAX_KEEPALIVE_SECONDS: u64 = 3600;

/// Age at which a connection takes no new streams, unless set. Zero: never. A forced reconnect costs
/// every camera a gap, and only fleets behind a load balancer gain from it.
pub const CONNECTION_AGE: Duration = Duration::ZERO;

/// Largest age that may be set, in seconds: a year. With the largest jitter it still fits tokio's timers,
/// which reach 2.2 years.
pub const MAX_CONNECTION_AGE_SECONDS: u64 = 365 * 24 * 3600;

/// Part of the age over which the ends of streams are spread, unless set: the same 10 % by which the
/// gRPC libraries spread theirs (gRFC A9).
pub const CONNECTION_AGE_JITTER: f64 = 0.1;

/// Time for the last answers on an aged connection to be read before it is cut, unless set: ten times
/// the budget that frames have by default.
pub const CONNECTION_GRACE: Duration = Duration::from_secs(10);

/// Time for which a connection that the server has closed is still read, and what arrives dropped:
/// several round trips to a far camera. A socket that is closed over unread data is reset, and what its
/// peer has not read by then is lost (RFC 1122, section 4.2.2.13).
pub const CLOSE_LINGER: Duration = Duration::from_millis(500);

/// Time at shutdown to take in frames that have already arrived on a stream.
pub const DRAIN_READ: Duration = Duration::from_millis(100);

/// Part of the grace time kept back for closing down after the last answer.
pub const GRACE_RESERVE: Duration = Duration::from_millis(250);

/// How often the histograms are folded, whose samples pile up when nobody scrapes, and free memory is given
/// back to the kernel.
pub const UPKEEP: Duration = Duration::from_secs(5);
