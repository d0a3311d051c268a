//! One point: workers that call, each again when it was answered.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use tokio::{sync::mpsc, task::JoinSet};
use tonic::{Status, transport::Channel};
use vedette_proto::camera_ai::{
    DetectRequest, DetectResponse, Outcome, object_detection_client::ObjectDetectionClient,
};

use super::Setup;
use crate::{
    camera::request,
    clock,
    config::{Mode, Sharing},
    connect::{MAX_ANSWER_BYTES, connect_many},
    error::SimError,
    meter::Reading,
    report::ping::PingPoint,
    source::PictureSet,
    stats::Distribution,
    stream,
    token::{self, Token},
};

/// Time between the last set-up step and the first calls.
const START_LEAD: Duration = Duration::from_millis(20);

/// What is measured.
pub(super) struct Point {
    pub(super) mode: Mode,
    pub(super) payload: PictureSet,
    pub(super) in_flight: NonZeroU32,
    pub(super) sharing: Sharing,
}

/// What a worker counts: calls that were answered within the measured time.
struct Counts {
    calls: u64,
    not_ok: u64,
    bytes: u64,
    latency: Distribution,
}

/// When calls begin, when they count, and when they end.
#[derive(Debug, Clone, Copy)]
struct Times {
    start: Instant,
    from: Instant,
    until: Instant,
}

/// Opens the point's connections, calls, and closes them.
pub(super) async fn measure(setup: &Setup, point: &Point) -> Result<PingPoint, SimError> {
    let connections = point.sharing.connections(point.in_flight);
    let channels = connect_many(&setup.endpoint, &setup.target, connections).await?;
    let start = clock::now() + START_LEAD;
    let from = start + setup.warmup;
    let times = Times { start, from, until: from + setup.seconds };
    let mut workers = JoinSet::new();
    for number in 0..point.in_flight.get() {
        let channel = channels[number as usize % channels.len()].clone();
        let caller = Caller::new(point.mode, channel, number, setup.token.as_ref());
        workers.spawn(work(caller, number, point.payload.clone(), times));
    }
    drop(channels);
    clock::sleep_until(times.from).await;
    let first = Reading::now();
    clock::sleep_until(times.until).await;
    let usage = Reading::now().since(&first);
    let mut sum = Counts::new();
    while let Some(joined) = workers.join_next().await {
        let addr = || setup.target.addr.to_string();
        sum.add(&joined?.map_err(|why| SimError::NoAnswer { addr: addr(), why })?);
    }
    let seconds = setup.seconds.as_secs_f64();
    Ok(PingPoint {
        mode: point.mode.name().to_owned(),
        payload_bytes: point.payload.sizes().1,
        in_flight: point.in_flight.get(),
        sharing: point.sharing.name(),
        connections,
        calls: sum.calls,
        not_ok: sum.not_ok,
        calls_per_second: sum.calls as f64 / seconds,
        megabytes_per_second: sum.bytes as f64 / 1e6 / seconds,
        ratio_to_one: None,
        latency: sum.latency.figures(),
        cpu_cores: usage.cores,
        busiest_thread_share: usage.busiest_thread,
    })
}

/// Calls until the time is up. Fails with the first call that does.
async fn work(
    mut caller: Caller,
    number: u32,
    payload: PictureSet,
    times: Times,
) -> Result<Counts, String> {
    let mut counts = Counts::new();
    clock::sleep_until(times.start).await;
    for k in 0.. {
        let picture = payload.frame(number, k);
        let bytes = picture.len() as u64;
        let sent = clock::now();
        if sent >= times.until {
            break;
        }
        let answer = caller.call(request(k, picture)).await?;
        let answered = clock::now();
        if answer.frame_id != k {
            return Err(format!("answer to frame {} while {k} was asked", answer.frame_id));
        }
        if times.from <= answered && answered < times.until {
            counts.calls += 1;
            counts.not_ok += u64::from(answer.outcome != Outcome::Ok as i32);
            counts.bytes += bytes;
            counts.latency.record(answered.saturating_duration_since(sent));
        }
    }
    Ok(counts)
}

impl Counts {
    fn new() -> Self {
        Self { calls: 0, not_ok: 0, bytes: 0, latency: Distribution::latency() }
    }

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.not_ok += other.not_ok;
        self.bytes += other.bytes;
        self.latency.add(&other.latency);
    }
}

/// A worker's way to the server.
enum Caller {
    /// The token is read once: a file for each call would be most of what is measured.
    Unary(Box<ObjectDetectionClient<Channel>>, Option<token::Header>),
    Stream(mpsc::Sender<DetectRequest>, Box<stream::Answers>),
}

impl Caller {
    fn new(mode: Mode, channel: Channel, number: u32, token: Option<&Token>) -> Self {
        match mode {
            Mode::Unary => {
                let client = ObjectDetectionClient::new(channel);
                let client = client.max_decoding_message_size(MAX_ANSWER_BYTES);
                Self::Unary(Box::new(client), token.map(Token::header))
            }
            Mode::Stream => {
                let name = format!("ping-{}", number + 1);
                let (sender, answers) = stream::open(channel, &name, token);
                Self::Stream(sender, Box::new(answers))
            }
        }
    }

    async fn call(&mut self, frame: DetectRequest) -> Result<DetectResponse, String> {
        match self {
            Self::Unary(client, token) => {
                let mut request = tonic::Request::new(frame);
                if let Some(token) = token {
                    token.authorize(&mut request);
                }
                client.detect(request).await.map(tonic::Response::into_inner).map_err(|s| words(&s))
            }
            Self::Stream(sender, answers) => {
                // A dropped receiver shows in the answers, which say why.
                let _ = sender.send(frame).await;
                let answer = answers.next().await.map_err(|status| words(&status))?;
                answer.ok_or_else(|| "the server ended the stream".to_owned())
            }
        }
    }
}

fn words(status: &Status) -> String {
    stream::broken(status).to_string()
}
