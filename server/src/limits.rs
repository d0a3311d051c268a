//! Bounds of the server: each with its unit, its reason and, where there is one, its source.

use std::time::Duration;

/// Answers that may wait for one client to read them. A frame is read off the wire only once its
/// answer's place is reserved, so this bounds both directions: it must exceed what one camera can
/// have in hand (one waiting frame and one per worker), the rest lets a client read in bursts.
pub const REPLY_QUEUE_FRAMES: usize = 32;

/// Bytes of a request besides its picture: scalar fields, tags and lengths of the message.
pub const REQUEST_OVERHEAD_BYTES: usize = 64 * 1024;

/// A frame up to this many times `max-frame-bytes` is read and answered `BAD_IMAGE`, so that its
/// stream lives on; a larger one is refused before its body is buffered and ends the stream.
pub const OVERSIZE_FACTOR: usize = 2;

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

/// Input and output tensors that a worker keeps, by input size: more than a fleet has aspect ratios. A
/// set is about 3 MB at an input of 416x416.
pub const TENSOR_SETS: usize = 8;

/// Candidates that enter non-maximum suppression, strongest first; it is quadratic.
pub const NMS_MAX_CANDIDATES: usize = 4096;

/// HTTP/2 receive window of a stream, in bytes: a megabyte in flight per camera, so that a round
/// trip does not cap the rate of large frames (RFC 9113, section 5.2).
pub const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// Most streams that one connection may have open, cameras behind one gateway, health checks and
/// calls together. Advertised to clients (RFC 9113, section 5.1.2).
pub const STREAMS_PER_CONNECTION: u32 = 1024;

/// HTTP/2 receive window of a connection, in bytes: room for every stream's own window, so that one
/// stream that is not read from never holds up its neighbours on the same connection.
pub const CONNECTION_WINDOW_BYTES: u32 = STREAM_WINDOW_BYTES * STREAMS_PER_CONNECTION;

/// Silence after which the kernel probes a connection; for peers that vanish before HTTP/2 is spoken.
pub const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Pause after a connection could not be accepted, such as for want of file descriptors: trying on at
/// once would take a core and help nobody.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Pause after which a silent connection is probed (HTTP/2 PING), and how long the answer may take.
/// A peer that vanished without a FIN is let go after the sum.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// See [`KEEPALIVE_INTERVAL`].
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time at shutdown to take in frames that have already arrived on a stream.
pub const DRAIN_READ: Duration = Duration::from_millis(100);

/// Time at shutdown between the end of the last stream and the closing of connections: several round
/// trips to a far camera.
pub const DRAIN_LINGER: Duration = Duration::from_millis(500);

/// Part of the grace time kept back for closing down after the last answer.
pub const GRACE_RESERVE: Duration = Duration::from_millis(250);

/// How often the histograms are folded when nobody scrapes: their samples pile up until then.
pub const METRICS_UPKEEP: Duration = Duration::from_secs(5);
