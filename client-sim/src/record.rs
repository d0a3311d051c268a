//! What happened to one camera's frames, matched answer by answer.
//!
//! A record belongs to its camera's task alone, so nothing here is locked; the fleet's figures are
//! added up after the run.

use std::{fmt, time::Duration};

use serde::Serialize;
use vedette_proto::camera_ai::{DetectResponse, Outcome};

use crate::{
    clock::{micros, millis},
    schedule::Schedule,
    stats::{Distribution, Figures, StageSums, Tally},
};

/// Where a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameState {
    Unsent,
    Sent,
    Answered,
}

/// How a camera's stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEnd {
    /// Everything was sent and either answered or waited for in vain.
    Done,
    /// The server ended the stream without an error before everything was sent and answered.
    Closed,
    /// The transport took no more frames until the time was up.
    Blocked,
    /// The stream broke.
    Broken {
        /// gRPC status, as in `UNAVAILABLE`.
        code: String,
        /// The status message.
        message: String,
        /// Frames read by a server that announced its shutdown.
        accepted: Option<u64>,
    },
}

impl fmt::Display for StreamEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("complete"),
            Self::Closed => f.write_str("the server ended the stream"),
            Self::Blocked => f.write_str("the connection took no more frames"),
            // The server's words hold each stream's own count; without them streams group together.
            Self::Broken { code, accepted: Some(_), .. } => write!(f, "{code}: server shut down"),
            Self::Broken { code, message, .. } => write!(f, "{code}: {}", message.trim()),
        }
    }
}

/// One camera's frames and figures while the run goes on.
#[derive(Debug)]
pub struct CameraRecord {
    camera: u32,
    schedule: Schedule,
    slo_max: Duration,
    frames: Vec<FrameState>,
    open: u64,
    warmup: Tally,
    measured: Tally,
    warmup_max: Option<Duration>,
    all_answers_max: Option<Duration>,
    over_slo: u64,
    latency: Distribution,
    lateness: Distribution,
    stages: StageSums,
    protocol_errors: u64,
    first_protocol_error: Option<String>,
}

impl CameraRecord {
    /// An empty record of camera `camera` of `schedule`; answers slower than `slo_max` are counted.
    #[must_use]
    pub fn new(camera: u32, schedule: Schedule, slo_max: Duration) -> Self {
        Self {
            camera,
            schedule,
            slo_max,
            frames: vec![FrameState::Unsent; schedule.frames() as usize],
            open: 0,
            warmup: Tally::default(),
            measured: Tally::default(),
            warmup_max: None,
            all_answers_max: None,
            over_slo: 0,
            latency: Distribution::latency(),
            lateness: Distribution::lateness(),
            stages: StageSums::default(),
            protocol_errors: 0,
            first_protocol_error: None,
        }
    }

    /// Frames sent and not answered yet.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Frame `k` was handed to the connection, `lateness` after its intended instant.
    pub fn sent(&mut self, k: u64, lateness: Duration) {
        self.frames[k as usize] = FrameState::Sent;
        self.open += 1;
        self.tally(k).sent += 1;
        if !self.schedule.is_warmup(k) {
            self.lateness.record(lateness);
        }
    }

    /// An answer came in; `latency` tells how long after the intended instant of the frame it
    /// names. An answer to a frame that is not waiting for one is a protocol error and counts as
    /// nothing else.
    pub fn answered(&mut self, answer: &DetectResponse, latency: impl FnOnce(u64) -> Duration) {
        let k = answer.frame_id;
        match self.frames.get_mut(k as usize) {
            Some(state @ FrameState::Sent) => *state = FrameState::Answered,
            Some(FrameState::Answered) => {
                return self.protocol_error(format!("second answer to frame {k}"));
            }
            Some(FrameState::Unsent) | None => {
                return self.protocol_error(format!("answer to frame {k}, which was not sent"));
            }
        }
        self.open -= 1;
        let outcome = Outcome::try_from(answer.outcome).unwrap_or_else(|_| {
            self.protocol_error(format!("unknown outcome {} of frame {k}", answer.outcome));
            Outcome::Internal
        });
        self.tally(k).count(outcome);
        // Whole microseconds, so that what is counted against the limit is what is reported.
        let latency = Duration::from_micros(micros(latency(k)));
        if self.schedule.is_warmup(k) {
            self.warmup_max = self.warmup_max.max(Some(latency));
            return;
        }
        self.all_answers_max = self.all_answers_max.max(Some(latency));
        if outcome == Outcome::Ok {
            self.latency.record(latency);
            self.over_slo += u64::from(latency > self.slo_max);
            if let Some(times) = &answer.times {
                self.stages.record(times);
            }
        }
    }

    /// Closes the books: frames still open are lost, or unaccepted where the server said that it
    /// had not read them; frames that came due within `horizon` (`None`: all of the schedule's) and
    /// were not sent count as `not_sent`.
    #[must_use]
    pub fn finish(mut self, end: StreamEnd, horizon: Option<Duration>) -> CameraResult {
        let accepted = match &end {
            StreamEnd::Broken { accepted: Some(accepted), .. } => *accepted,
            _ => u64::MAX,
        };
        let due =
            horizon.map_or(self.schedule.frames(), |offset| self.schedule.due(self.camera, offset));
        for k in 0..self.schedule.frames() {
            match self.frames[k as usize] {
                FrameState::Sent if k < accepted => self.tally(k).lost += 1,
                FrameState::Sent => self.tally(k).unaccepted += 1,
                FrameState::Unsent if k < due => self.tally(k).not_sent += 1,
                FrameState::Unsent | FrameState::Answered => {}
            }
        }
        CameraResult {
            camera_id: camera_id(self.camera),
            tally: self.measured,
            figures: self.latency.figures(),
            all_answers_max_ms: self.all_answers_max.map(millis),
            over_slo: self.over_slo,
            protocol_errors: self.protocol_errors,
            first_protocol_error: self.first_protocol_error,
            warmup: self.warmup,
            warmup_max_ms: self.warmup_max.map(millis),
            end,
            latency: self.latency,
            lateness: self.lateness,
            stages: self.stages,
        }
    }

    fn tally(&mut self, k: u64) -> &mut Tally {
        if self.schedule.is_warmup(k) { &mut self.warmup } else { &mut self.measured }
    }

    fn protocol_error(&mut self, what: String) {
        self.protocol_errors += 1;
        self.first_protocol_error.get_or_insert(what);
    }
}

/// The name that camera `camera` (from 0) gives itself in the stream's metadata.
#[must_use]
pub fn camera_id(camera: u32) -> String {
    format!("sim-{:04}", camera + 1)
}

/// One camera's closed books.
#[derive(Debug, Clone, Serialize)]
pub struct CameraResult {
    /// As sent in the stream's metadata.
    pub camera_id: String,
    /// Measured frames.
    #[serde(flatten)]
    pub tally: Tally,
    /// Latency of the measured OK answers.
    #[serde(flatten)]
    pub figures: Figures,
    /// Slowest measured answer of any outcome.
    pub all_answers_max_ms: Option<f64>,
    /// Measured OK answers slower than the limit.
    pub over_slo: u64,
    /// Answers that fit no waiting frame, and unknown outcomes.
    pub protocol_errors: u64,
    /// The first of them.
    pub first_protocol_error: Option<String>,
    /// Warm-up frames.
    pub warmup: Tally,
    /// Slowest warm-up answer.
    pub warmup_max_ms: Option<f64>,
    /// How the stream ended.
    #[serde(serialize_with = "as_text")]
    pub end: StreamEnd,
    /// Latency of the measured OK answers, to be added up.
    #[serde(skip)]
    pub latency: Distribution,
    /// How late the measured frames were sent.
    #[serde(skip)]
    pub lateness: Distribution,
    /// Stage times of the measured OK answers.
    #[serde(skip)]
    pub stages: StageSums,
}

fn as_text<S: serde::Serializer>(end: &StreamEnd, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLO: Duration = Duration::from_millis(100);

    fn record(warmup: u64, measured: u64) -> CameraRecord {
        let seconds = Duration::from_secs;
        CameraRecord::new(0, Schedule::new(1, 1.0, seconds(warmup), seconds(measured)), SLO)
    }

    fn answer(frame_id: u64, outcome: i32) -> DetectResponse {
        DetectResponse { frame_id, outcome, ..DetectResponse::default() }
    }

    #[test]
    fn latency_is_of_measured_ok_answers_and_warm_up_is_kept_apart() {
        let mut record = record(1, 3);
        for k in 0..4 {
            record.sent(k, Duration::ZERO);
        }
        let after = |ms| move |_| Duration::from_millis(ms);
        record.answered(&answer(0, 0), after(900));
        record.answered(&answer(1, 0), after(30));
        record.answered(&answer(2, Outcome::Superseded as i32), after(400));
        record.answered(&answer(3, 0), |_| SLO + Duration::from_millis(1));
        assert_eq!(record.open(), 0);
        let result = record.finish(StreamEnd::Done, None);
        assert_eq!((result.tally.ok, result.tally.superseded, result.over_slo), (2, 1, 1));
        assert_eq!(result.figures.max_ms, Some(101.0));
        assert_eq!(result.all_answers_max_ms, Some(400.0));
        assert_eq!((result.warmup.ok, result.warmup_max_ms), (1, Some(900.0)));
    }

    #[test]
    fn what_is_over_the_limit_is_counted_as_it_is_reported() {
        let mut record = record(0, 2);
        for (k, nanoseconds) in [(0, 900), (1, 1_000)] {
            record.sent(k, Duration::ZERO);
            record.answered(&answer(k, 0), |_| SLO + Duration::from_nanos(nanoseconds));
            assert_eq!(record.over_slo, k, "{nanoseconds} ns more than the limit");
        }
        assert_eq!(record.finish(StreamEnd::Done, None).figures.max_ms, Some(100.001));
    }

    #[test]
    fn duplicates_and_strangers_are_protocol_errors() {
        let mut record = record(0, 3);
        record.sent(0, Duration::ZERO);
        for frame_id in [0, 0, 1, 77, u64::MAX] {
            record.answered(&answer(frame_id, 0), |_| Duration::ZERO);
        }
        let result = record.finish(StreamEnd::Done, Some(Duration::ZERO));
        assert_eq!(result.protocol_errors, 4);
        assert_eq!(result.first_protocol_error.as_deref(), Some("second answer to frame 0"));
        assert_eq!((result.tally.ok, result.tally.sent, result.tally.not_sent), (1, 1, 0));
    }

    #[test]
    fn a_server_that_shut_down_says_which_frames_it_had_read() {
        let mut record = record(0, 10);
        for k in 0..6 {
            record.sent(k, Duration::ZERO);
        }
        record.answered(&answer(0, 0), |_| Duration::ZERO);
        let end = StreamEnd::Broken {
            code: "UNAVAILABLE".into(),
            message: "shutting down".into(),
            accepted: Some(4),
        };
        let tally = record.finish(end, None).tally;
        assert_eq!((tally.lost, tally.unaccepted, tally.not_sent), (3, 2, 4));
    }

    proptest! {
        #[test]
        fn sent_is_answered_plus_lost_plus_unaccepted(
            warmup in 0u64..10,
            measured in 1u64..40,
            sent in 0u64..60,
            answers in prop::collection::vec((0u64..70, 0i32..9), 0..120),
            accepted in prop::option::of(0u64..60),
            horizon in prop::option::of(0u64..60),
        ) {
            let mut record = record(warmup, measured);
            let sent = sent.min(warmup + measured);
            for k in 0..sent {
                record.sent(k, Duration::from_millis(k));
            }
            for (frame_id, outcome) in answers {
                record.answered(&answer(frame_id, outcome), Duration::from_millis);
            }
            let end = StreamEnd::Broken { code: String::new(), message: String::new(), accepted };
            let result = record.finish(end, horizon.map(Duration::from_secs));
            let mut all = result.warmup;
            all.add(&result.tally);
            for tally in [result.warmup, result.tally] {
                prop_assert_eq!(tally.sent, tally.answered + tally.lost + tally.unaccepted);
                let outcomes: u64 = tally.outcomes().iter().map(|(_, count)| count).sum();
                prop_assert_eq!(tally.answered, outcomes);
            }
            prop_assert_eq!(all.sent, sent);
            if horizon.is_none() {
                prop_assert_eq!(all.sent + all.not_sent, warmup + measured);
            }
        }
    }
}
