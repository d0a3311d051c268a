//! What happened to one camera's frames, matched answer by answer.
//!
//! A record belongs to its camera's task alone, so nothing here is locked; the fleet's figures are
//! added up after the run.

use std::{sync::Arc, time::Duration};

use vedette_proto::camera_ai::{DetectResponse, Outcome};

use crate::{
    clock::{micros, millis},
    heartbeat::{self, Heartbeats, is_heartbeat},
    report::schema::CameraFigures,
    schedule::{Lane, Schedule},
    stats::{Distribution, StageSums, Tally},
    stream::StreamEnd,
    timeline::{Bins, CameraBin, Measured},
};

/// Shortest time between two gaps of a camera that may both be excused. A stream that does not last that
/// long is part of an outage that goes on, whatever it answered meanwhile.
const SETTLED: Duration = Duration::from_secs(1);

/// Where a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameState {
    Unsent,
    Sent,
    Answered,
    Lost,
    Unaccepted,
}

/// A time without answers, because the stream had ended.
#[derive(Debug, Clone, Default)]
struct Gap {
    since: Duration,
    /// Frames that the ended stream left open, and which the server did not owe an answer.
    open: Vec<u64>,
    /// The first frame that could not be sent any more.
    next: u64,
}

/// What a camera had to do with one of several servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerBook {
    /// Streams that it answered.
    pub streams: u64,
    /// Streams that ended without an answer.
    pub refused: u64,
    /// Times that the camera came from another server.
    pub moved_in: u64,
    /// Times that it went to another one.
    pub moved_out: u64,
    /// Whether it was the first to answer the camera.
    pub first: bool,
    /// Measured frames.
    pub tally: Tally,
}

/// One camera's frames and figures while the run goes on. Times are offsets from the run's start.
#[derive(Debug)]
pub struct CameraRecord {
    camera: u32,
    schedule: Arc<Schedule>,
    slo_max: Duration,
    frames: Vec<FrameState>,
    /// Ids of what was sent on the present stream, in order: frames, and heartbeats, because a server
    /// that shuts down counts both.
    on_stream: Vec<u64>,
    heartbeats: Heartbeats,
    open: u64,
    warmup: Tally,
    measured: Tally,
    excused: Tally,
    warmup_excused: Tally,
    warmup_max: Option<Duration>,
    all_answers_max: Option<Duration>,
    over_slo: u64,
    over_slo_by_itself: u64,
    latency: Distribution,
    lateness: Distribution,
    wake_lateness: Distribution,
    /// How late each frame's camera woke up for it.
    woken_late_us: Vec<u32>,
    stages: StageSums,
    bins: Bins,
    camera_bins: Vec<CameraBin>,
    gap: Option<Gap>,
    gaps: Vec<Duration>,
    /// The end of the last gap.
    back_at: Option<Duration>,
    max_gap: Duration,
    /// The end of the first stream since the last OK answer.
    away_since: Option<Duration>,
    /// Times from a stream's end to the next OK answer.
    backs: Vec<Duration>,
    /// The server of the present stream.
    server: usize,
    /// Whether it has answered anything.
    heard: bool,
    /// The server of the last stream that was answered.
    home: Option<usize>,
    /// What each server did, up to the last one that was used.
    by_server: Vec<ServerBook>,
    protocol_errors: u64,
    first_protocol_error: Option<String>,
}

impl CameraRecord {
    /// An empty record of camera `camera` of `schedule`. Answers slower than `slo_max` are counted;
    /// what is missed while a stream is opened again within `max_gap` is excused.
    #[must_use]
    pub fn new(camera: u32, schedule: Arc<Schedule>, slo_max: Duration, max_gap: Duration) -> Self {
        let frames = schedule.lane(camera).frames() as usize;
        let bins = Bins::of(&schedule);
        Self {
            camera,
            schedule,
            slo_max,
            frames: vec![FrameState::Unsent; frames],
            on_stream: Vec::new(),
            heartbeats: Heartbeats::default(),
            open: 0,
            warmup: Tally::default(),
            measured: Tally::default(),
            excused: Tally::default(),
            warmup_excused: Tally::default(),
            warmup_max: None,
            all_answers_max: None,
            over_slo: 0,
            over_slo_by_itself: 0,
            latency: Distribution::latency(),
            lateness: Distribution::lateness(),
            wake_lateness: Distribution::lateness(),
            woken_late_us: vec![0; frames],
            stages: StageSums::default(),
            bins,
            camera_bins: vec![CameraBin::default(); bins.count()],
            gap: None,
            gaps: Vec::new(),
            back_at: None,
            max_gap,
            away_since: None,
            backs: Vec::new(),
            server: 0,
            heard: false,
            home: None,
            by_server: Vec::new(),
            protocol_errors: 0,
            first_protocol_error: None,
        }
    }

    /// Frames sent and not answered yet.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.open
    }

    fn lane(&self) -> &Lane {
        self.schedule.lane(self.camera)
    }

    /// What follows is on a new stream to `server`.
    pub fn stream_opens(&mut self, server: usize) {
        (self.server, self.heard) = (server, false);
    }

    fn book(&mut self, server: usize) -> &mut ServerBook {
        if self.by_server.len() <= server {
            self.by_server.resize(server + 1, ServerBook::default());
        }
        &mut self.by_server[server]
    }

    /// The stream's first answer: the camera is at home where it came from.
    fn hear(&mut self) {
        if std::mem::replace(&mut self.heard, true) {
            return;
        }
        let server = self.server;
        let left = self.home.replace(server);
        let book = self.book(server);
        book.streams += 1;
        book.first |= left.is_none();
        if let Some(left) = left.filter(|&left| left != server) {
            book.moved_in += 1;
            self.book(left).moved_out += 1;
        }
    }

    /// Frame `k` was handed to the connection at `offset`, after its camera had woken up for it
    /// `woken_late` after the intended instant.
    pub fn sent(&mut self, k: u64, offset: Duration, woken_late: Duration) {
        self.frames[k as usize] = FrameState::Sent;
        self.on_stream.push(k);
        self.open += 1;
        self.count(k, |tally| tally.sent += 1);
        if !self.lane().is_warmup(k) {
            let lateness = offset.saturating_sub(self.lane().intended(k));
            self.lateness.record(lateness);
            self.wake_lateness.record(woken_late);
            self.woken_late_us[k as usize] = u32::try_from(micros(woken_late)).unwrap_or(u32::MAX);
        }
    }

    /// A heartbeat is handed to the connection. Returns its id.
    pub fn heartbeat_sent(&mut self) -> u64 {
        let id = self.heartbeats.next_id();
        self.heartbeats.sent();
        self.on_stream.push(id);
        id
    }

    /// The answer to a heartbeat came in. One that is not waited for is a protocol error.
    pub fn heartbeat_answered(&mut self, answer: &DetectResponse) {
        match self.heartbeats.answered(answer) {
            Ok(()) => self.hear(),
            Err(why) => {
                self.protocol_error(why);
            }
        }
    }

    /// An answer came in at `offset`. One to a frame that is not waiting for one is a protocol error
    /// and counts as nothing else. Returns what a measured answer adds to the fleet's timeline.
    pub fn answered(&mut self, answer: &DetectResponse, offset: Duration) -> Option<Measured> {
        let k = answer.frame_id;
        match self.frames.get_mut(k as usize) {
            Some(state @ FrameState::Sent) => *state = FrameState::Answered,
            Some(FrameState::Answered) => {
                return self.protocol_error(format!("second answer to frame {k}"));
            }
            Some(FrameState::Lost | FrameState::Unaccepted) => {
                return self.protocol_error(format!("answer to frame {k} of an earlier stream"));
            }
            Some(FrameState::Unsent) | None => {
                return self.protocol_error(format!("answer to frame {k}, which was not sent"));
            }
        }
        self.open -= 1;
        self.hear();
        self.close_gap(offset);
        let outcome = match Outcome::try_from(answer.outcome) {
            Ok(Outcome::Heartbeat) => {
                self.protocol_error(format!("frame {k} answered as a heartbeat"));
                Outcome::Internal
            }
            Ok(outcome) => outcome,
            Err(_) => {
                self.protocol_error(format!("unknown outcome {} of frame {k}", answer.outcome));
                Outcome::Internal
            }
        };
        self.count(k, |tally| tally.count(outcome));
        if outcome == Outcome::Ok
            && let Some(since) = self.away_since.take()
        {
            self.backs.push(offset.saturating_sub(since));
        }
        let intended = self.lane().intended(k);
        // Whole microseconds, so that what is counted against the limit is what is reported.
        let latency = Duration::from_micros(micros(offset.saturating_sub(intended)));
        if self.lane().is_warmup(k) {
            self.warmup_max = self.warmup_max.max(Some(latency));
            return None;
        }
        self.all_answers_max = self.all_answers_max.max(Some(latency));
        let bin = self.bins.index(intended);
        let ok = outcome == Outcome::Ok;
        if ok {
            self.latency.record(latency);
            self.camera_bins[bin].max = self.camera_bins[bin].max.max(Some(latency));
            if latency > self.slo_max {
                self.over_slo += 1;
                let by_itself = Duration::from_micros(self.woken_late_us[k as usize].into());
                self.over_slo_by_itself +=
                    u64::from(latency.saturating_sub(by_itself) <= self.slo_max);
            }
            if let Some(times) = &answer.times {
                self.stages.record(times);
            }
        } else {
            self.camera_bins[bin].not_ok += 1;
        }
        Some(Measured { bin, latency, ok, server: self.server })
    }

    /// The stream ended at `offset` in the way of `end`, and another one will be opened; the next
    /// frame would be `next`. Frames still open are lost, or unaccepted where the server said that
    /// it had not read them.
    pub fn stream_ended(&mut self, end: &StreamEnd, offset: Duration, next: u64) {
        let owed = end.accepted();
        self.heartbeats.stream_ended();
        self.away_since.get_or_insert(offset);
        self.count_refusal();
        let mut gap = self.gap.take().unwrap_or(Gap { since: offset, open: Vec::new(), next });
        for (place, k) in (0..).zip(std::mem::take(&mut self.on_stream)) {
            if is_heartbeat(k) || self.frames[k as usize] != FrameState::Sent {
                continue;
            }
            self.open -= 1;
            self.write_off(k, owed.is_none_or(|accepted| place < accepted));
            // A server that says what it had read owes answers to that much, and what was overdue
            // already was not missed because of the gap.
            let overdue = offset.saturating_sub(self.lane().intended(k)) > self.slo_max;
            if owed.is_none_or(|accepted| place >= accepted) && !overdue {
                gap.open.push(k);
            }
        }
        self.gap = Some(gap);
    }

    /// The stream has ended; perhaps without an answer.
    fn count_refusal(&mut self) {
        // What has ended is not counted again when the books are closed.
        if !std::mem::replace(&mut self.heard, true) {
            self.book(self.server).refused += 1;
        }
    }

    /// An answer after an earlier stream's end: the camera is back.
    fn close_gap(&mut self, offset: Duration) {
        let Some(gap) = self.gap.take() else { return };
        let length = offset.saturating_sub(gap.since);
        self.gaps.push(length);
        let settled = self.back_at.is_none_or(|back| gap.since.saturating_sub(back) >= SETTLED);
        self.back_at = Some(offset);
        if length > self.max_gap || !settled {
            return;
        }
        let first = self.on_stream.iter().copied().find(|&id| !is_heartbeat(id));
        let back = first.unwrap_or(gap.next);
        let missed = (gap.next..back).filter(|&k| self.frames[k as usize] == FrameState::Unsent);
        let excused: Vec<u64> = gap.open.into_iter().chain(missed).collect();
        for k in excused {
            let warmup = self.lane().is_warmup(k);
            let tally = if warmup { &mut self.warmup_excused } else { &mut self.excused };
            match self.frames[k as usize] {
                FrameState::Lost => (tally.lost, tally.sent) = (tally.lost + 1, tally.sent + 1),
                FrameState::Unaccepted => {
                    (tally.unaccepted, tally.sent) = (tally.unaccepted + 1, tally.sent + 1);
                }
                _ => tally.not_sent += 1,
            }
        }
    }

    /// A frame that was sent will not be answered any more.
    fn write_off(&mut self, k: u64, lost: bool) {
        self.count(k, |tally| *if lost { &mut tally.lost } else { &mut tally.unaccepted } += 1);
        self.frames[k as usize] = if lost { FrameState::Lost } else { FrameState::Unaccepted };
        self.missed_in_bin(k);
    }

    fn missed_in_bin(&mut self, k: u64) {
        if !self.lane().is_warmup(k) {
            let bin = self.bins.index(self.lane().intended(k));
            self.camera_bins[bin].unanswered += 1;
        }
    }

    /// Closes the books: frames still open are lost, or unaccepted where the server said that it
    /// had not read them; frames that came due within `horizon` (`None`: all of the schedule's) and
    /// were not sent count as `not_sent`.
    #[must_use]
    pub fn finish(mut self, end: &StreamEnd, horizon: Option<Duration>) -> CameraResult {
        let owed = end.accepted();
        if *end != StreamEnd::Done {
            self.count_refusal();
        }
        for (place, k) in (0..).zip(std::mem::take(&mut self.on_stream)) {
            if !is_heartbeat(k) && self.frames[k as usize] == FrameState::Sent {
                self.write_off(k, owed.is_none_or(|accepted| place < accepted));
            }
        }
        let lane = self.lane();
        let due = horizon.map_or(lane.frames(), |offset| lane.due(offset));
        for k in 0..due {
            if self.frames[k as usize] == FrameState::Unsent {
                self.tally(k).not_sent += 1;
                self.missed_in_bin(k);
            }
        }
        let gap_max = self.gaps.iter().max().copied();
        let lane = self.lane();
        let over = horizon.unwrap_or_else(|| lane.intended(lane.frames().saturating_sub(1)));
        let away = self.away_since.map(|since| over.saturating_sub(since));
        CameraResult {
            group: self.lane().group(),
            figures: CameraFigures {
                camera_id: camera_id(self.camera),
                group: String::new(),
                tally: self.measured,
                figures: self.latency.figures(),
                all_answers_max_ms: self.all_answers_max.map(millis),
                over_slo: self.over_slo,
                protocol_errors: self.protocol_errors,
                first_protocol_error: self.first_protocol_error,
                warmup: self.warmup,
                warmup_max_ms: self.warmup_max.map(millis),
                end: end.to_string(),
                reconnects: self.gaps.len() as u64,
                gap_max_ms: gap_max.map(millis),
                moves: self.by_server.iter().map(|server| server.moved_in).sum(),
                back_max_ms: self.backs.iter().max().copied().map(millis),
                back_ms: self.backs.into_iter().map(millis).collect(),
                away_ms: away.map(millis),
                addr: None,
                servers: Vec::new(),
                excused: self.excused,
                warmup_excused: self.warmup_excused,
                bins_max_ms: Vec::new(),
                bins_missed: Vec::new(),
            },
            gaps: self.gaps,
            home: self.home,
            by_server: self.by_server,
            heartbeats: self.heartbeats.counts(),
            over_slo_by_itself: self.over_slo_by_itself,
            latency: self.latency,
            lateness: self.lateness,
            wake_lateness: self.wake_lateness,
            stages: self.stages,
            bins: self.camera_bins,
        }
    }

    /// Counts frame `k`, which is of the present stream.
    fn count(&mut self, k: u64, count: impl Fn(&mut Tally)) {
        count(self.tally(k));
        if !self.lane().is_warmup(k) {
            count(&mut self.book(self.server).tally);
        }
    }

    fn tally(&mut self, k: u64) -> &mut Tally {
        if self.lane().is_warmup(k) { &mut self.warmup } else { &mut self.measured }
    }

    fn protocol_error(&mut self, what: String) -> Option<Measured> {
        self.protocol_errors += 1;
        self.first_protocol_error.get_or_insert(what);
        None
    }
}

/// The name that camera `camera` (from 0) gives itself in the stream's metadata.
#[must_use]
pub fn camera_id(camera: u32) -> String {
    format!("sim-{:04}", camera + 1)
}

/// One camera's closed books.
#[derive(Debug, Clone)]
pub struct CameraResult {
    /// Its group, by its place in the scenario.
    pub group: usize,
    /// As reported; the bins and the group's name are filled in there.
    pub figures: CameraFigures,
    /// Times from a stream's end to the next one's first answer.
    pub gaps: Vec<Duration>,
    /// The server of its last stream that was answered.
    pub home: Option<usize>,
    /// What each server did, up to the last one that was used.
    pub by_server: Vec<ServerBook>,
    /// Its signs of life.
    pub heartbeats: heartbeat::Counts,
    /// Measured OK answers over the limit that had been within it without the camera's waking late.
    pub over_slo_by_itself: u64,
    /// Latency of the measured OK answers.
    pub latency: Distribution,
    /// How late the measured frames were sent.
    pub lateness: Distribution,
    /// How late the camera woke up for them.
    pub wake_lateness: Distribution,
    /// Stage times of the measured OK answers.
    pub stages: StageSums,
    /// Its measured frames bin by bin.
    pub bins: Vec<CameraBin>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Scenario;
    use proptest::prelude::*;

    const SLO: Duration = Duration::from_millis(100);
    const NO_GAP: Duration = Duration::ZERO;

    /// A camera of one frame per second.
    fn record(warmup: u64, measured: u64) -> CameraRecord {
        let seconds = Duration::from_secs;
        let scenario = Scenario::uniform(1, 1.0, seconds(warmup), seconds(measured));
        CameraRecord::new(0, Arc::new(Schedule::of(&scenario)), SLO, NO_GAP)
    }

    fn answer(frame_id: u64, outcome: i32) -> DetectResponse {
        DetectResponse { frame_id, outcome, ..DetectResponse::default() }
    }

    fn at(k: u64) -> Duration {
        Duration::from_secs(k)
    }

    fn shut_down(accepted: Option<u64>) -> StreamEnd {
        let (code, message) = ("UNAVAILABLE".into(), "shutting down".into());
        StreamEnd::Broken { code, message, accepted }
    }

    #[test]
    fn latency_is_of_measured_ok_answers_and_warm_up_is_kept_apart() {
        let mut record = record(1, 3);
        for k in 0..4 {
            record.sent(k, at(k), Duration::ZERO);
        }
        let after = |k, ms| at(k) + Duration::from_millis(ms);
        assert_eq!(record.answered(&answer(0, 0), after(0, 900)), None);
        record.answered(&answer(1, 0), after(1, 30));
        let superseded = Outcome::Superseded as i32;
        let measured = record.answered(&answer(2, superseded), after(2, 400)).unwrap();
        assert_eq!((measured.bin, measured.ok), (1, false));
        record.answered(&answer(3, 0), after(3, 101));
        assert_eq!(record.open(), 0);
        let result = record.finish(&StreamEnd::Done, None);
        let figures = result.figures;
        assert_eq!((figures.tally.ok, figures.tally.superseded, figures.over_slo), (2, 1, 1));
        assert_eq!(figures.figures.max_ms, Some(101.0));
        assert_eq!(figures.all_answers_max_ms, Some(400.0));
        assert_eq!((figures.warmup.ok, figures.warmup_max_ms), (1, Some(900.0)));
        let bins: Vec<_> = result.bins.iter().map(|bin| (bin.max, bin.not_ok)).collect();
        let ms = Duration::from_millis;
        assert_eq!(bins, [(Some(ms(30)), 0), (None, 1), (Some(ms(101)), 0)]);
    }

    #[test]
    fn what_is_over_the_limit_is_counted_as_it_is_reported() {
        let mut record = record(0, 2);
        for (k, nanoseconds) in [(0, 900), (1, 1_000)] {
            record.sent(k, at(k), Duration::ZERO);
            record.answered(&answer(k, 0), at(k) + SLO + Duration::from_nanos(nanoseconds));
            assert_eq!(record.over_slo, k, "{nanoseconds} ns more than the limit");
        }
        let result = record.finish(&StreamEnd::Done, None);
        assert_eq!(result.figures.figures.max_ms, Some(100.001));
    }

    #[test]
    fn what_a_camera_that_wakes_late_adds_to_the_latency_is_its_own() {
        let mut record = record(0, 3);
        let late = Duration::from_millis(60);
        for (k, ms, by_itself) in [(0, 90, 0), (1, 150, 1), (2, 170, 1)] {
            record.sent(k, at(k) + late, late);
            record.answered(&answer(k, 0), at(k) + Duration::from_millis(ms));
            assert_eq!(record.over_slo_by_itself, by_itself, "{ms} ms");
        }
        assert_eq!(record.over_slo, 2);
    }

    #[test]
    fn duplicates_and_strangers_are_protocol_errors() {
        let mut record = record(0, 3);
        record.sent(0, at(0), Duration::ZERO);
        for frame_id in [0, 0, 1, 77, u64::MAX] {
            record.answered(&answer(frame_id, 0), at(0));
        }
        let figures = record.finish(&StreamEnd::Done, Some(Duration::ZERO)).figures;
        assert_eq!(figures.protocol_errors, 4);
        assert_eq!(figures.first_protocol_error.as_deref(), Some("second answer to frame 0"));
        let tally = figures.tally;
        assert_eq!((tally.ok, tally.sent, tally.not_sent), (1, 1, 0));
    }

    #[test]
    fn a_server_that_shut_down_says_which_frames_it_had_read() {
        let mut record = record(0, 10);
        for k in 0..6 {
            record.sent(k, at(k), Duration::ZERO);
        }
        record.answered(&answer(0, 0), at(5));
        let tally = record.finish(&shut_down(Some(4)), None).figures.tally;
        assert_eq!((tally.lost, tally.unaccepted, tally.not_sent), (3, 2, 4));
    }

    #[test]
    fn heartbeats_are_no_frames_but_count_among_what_a_server_had_read() {
        let beat = Outcome::Heartbeat as i32;
        let mut record = record(0, 6);
        record.sent(0, at(0), Duration::ZERO);
        let first = record.heartbeat_sent();
        record.sent(1, at(1), Duration::ZERO);
        let unanswered = record.heartbeat_sent();
        record.sent(2, at(2), Duration::ZERO);
        record.answered(&answer(0, 0), at(0));
        record.heartbeat_answered(&answer(first, beat));
        assert_eq!(record.open(), 2);
        // Of frame 0, a heartbeat, frame 1, a heartbeat, frame 2 the server had read three.
        record.stream_ended(&shut_down(Some(3)), at(3), 3);
        record.heartbeat_sent();
        record.sent(4, at(4), Duration::ZERO);
        record.answered(&answer(4, 0), at(4));
        // The ended stream's is not waited for any more, and a frame is no heartbeat.
        record.heartbeat_answered(&answer(unanswered, beat));
        record.sent(5, at(5), Duration::ZERO);
        record.answered(&answer(5, beat), at(5));
        record.heartbeat_sent();
        let result = record.finish(&shut_down(Some(1)), None);
        let (counts, figures) = (result.heartbeats, result.figures);
        let expected = heartbeat::Counts { sent: 4, answered: 1, taken_for_frames: 0 };
        assert_eq!(counts, expected);
        let tally = figures.tally;
        assert_eq!((tally.sent, tally.ok, tally.internal), (5, 2, 1));
        assert_eq!((tally.lost, tally.unaccepted, tally.not_sent), (1, 1, 1));
        assert_eq!((figures.reconnects, figures.protocol_errors), (1, 2));
        let first = figures.first_protocol_error.unwrap();
        assert_eq!(first, format!("answer to heartbeat {unanswered}, which awaits none"));
    }

    /// Frames 0 to 2 on a first stream that ends at 2.05 s, of which the server had read `accepted`;
    /// frame 4 on a second one, answered at 4.1 s: a gap of 2.05 s. Frame 1 was overdue by then.
    fn reconnected(accepted: Option<u64>, max_gap: Duration) -> CameraFigures {
        let mut record = record(0, 5);
        record.max_gap = max_gap;
        for k in 0..3 {
            record.sent(k, at(k), Duration::ZERO);
        }
        record.answered(&answer(0, 0), at(2));
        record.stream_ended(&shut_down(accepted), Duration::from_millis(2050), 3);
        record.sent(4, at(4), Duration::ZERO);
        record.answered(&answer(4, 0), Duration::from_millis(4100));
        record.answered(&answer(1, 0), Duration::from_millis(4200));
        record.finish(&StreamEnd::Done, None).figures
    }

    #[test]
    fn a_gap_is_measured_and_excused_when_it_is_short() {
        let none = reconnected(None, Duration::from_millis(2049));
        assert_eq!((none.tally.ok, none.tally.lost, none.tally.not_sent), (2, 2, 1));
        assert_eq!((none.reconnects, none.gap_max_ms), (1, Some(2050.0)));
        assert_eq!(none.excused, Tally::default());
        assert_eq!(none.protocol_errors, 1, "frame 1 was of the earlier stream");
        let short = reconnected(None, Duration::from_millis(2050));
        assert_eq!((short.excused.sent, short.excused.lost, short.excused.not_sent), (1, 1, 1));
        // A stream that lasts 0.9 s, then 1 s: the second gap is of the same outage, then of another.
        for (ended, excused) in [(5900, 1), (6000, 2)] {
            let mut record = record(0, 9);
            record.max_gap = Duration::from_secs(2);
            let ms = Duration::from_millis;
            record.stream_ended(&shut_down(None), ms(3500), 4);
            record.sent(5, ms(5000), Duration::ZERO);
            record.answered(&answer(5, 0), ms(5000));
            record.stream_ended(&shut_down(None), ms(ended), 6);
            record.sent(7, ms(7000), Duration::ZERO);
            record.answered(&answer(7, 0), ms(7001));
            assert_eq!(record.excused.not_sent, excused, "ended at {ended} ms");
        }
        // What the server had read it owes an answer to, gap or not.
        let owed = reconnected(Some(2), Duration::from_secs(3));
        assert_eq!((owed.tally.lost, owed.tally.unaccepted), (1, 1));
        assert_eq!((owed.excused.lost, owed.excused.unaccepted), (0, 1));
    }

    proptest! {
        #[test]
        fn sent_is_answered_plus_lost_plus_unaccepted(
            warmup in 0u64..10,
            measured in 1u64..40,
            sent in 0u64..60,
            ended_after in prop::option::of(0u64..60),
            answers in prop::collection::vec((0u64..70, 0i32..9), 0..120),
            accepted in prop::option::of(0u64..60),
            horizon in prop::option::of(0u64..60),
            max_gap in 0u64..100,
        ) {
            let mut record = record(warmup, measured);
            record.max_gap = Duration::from_secs(max_gap);
            let sent = sent.min(warmup + measured);
            for k in 0..sent {
                record.sent(k, at(k), Duration::ZERO);
                if ended_after == Some(k) {
                    record.stream_ended(&shut_down(accepted), at(k), k + 1);
                }
            }
            for (place, (frame_id, outcome)) in (0..).zip(answers) {
                record.answered(&answer(frame_id, outcome), at(60 + place));
            }
            let result = record.finish(&shut_down(accepted), horizon.map(Duration::from_secs));
            let figures = result.figures;
            let mut all = figures.warmup;
            all.add(&figures.tally);
            for tally in [figures.warmup, figures.tally] {
                prop_assert_eq!(tally.sent, tally.answered + tally.lost + tally.unaccepted);
                let outcomes: u64 = tally.outcomes().iter().map(|(_, count)| count).sum();
                prop_assert_eq!(tally.answered, outcomes);
            }
            prop_assert_eq!(all.sent, sent);
            if horizon.is_none() {
                prop_assert_eq!(all.sent + all.not_sent, warmup + measured);
            }
            // No more is excused than was missed; `less` would overflow.
            let judged = figures.tally.less(&figures.excused);
            prop_assert_eq!(judged.answered, figures.tally.answered);
            let _ = figures.warmup.less(&figures.warmup_excused);
            let missed: u64 = result.bins.iter().map(|bin| bin.not_ok + bin.unanswered).sum();
            let tally = figures.tally;
            prop_assert_eq!(missed, tally.sent + tally.not_sent - tally.ok);
        }
    }
}
