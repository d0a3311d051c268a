//! Whether a run passed: a pure function of its figures.

use std::fmt;

use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::{record::CameraResult, stats::Tally};

/// What a run is held against.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest acceptable latency of an OK answer, in milliseconds.
    pub slo_max_ms: f64,
    /// Share of the sent frames, in total and of each camera, that must be answered OK, 0.0 to 1.0.
    pub min_answered_ratio: f64,
}

/// Ways in which streams ended that a verdict names; the report lists all.
const NAMED_ENDS: usize = 3;

/// Pass, or the reasons for failing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Empty when the run passed.
    pub reasons: Vec<String>,
}

impl Verdict {
    /// Whether the run passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.reasons.is_empty()
    }

    /// `PASS` or `FAIL`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        if self.passed() { "PASS" } else { "FAIL" }
    }
}

/// As the fields `verdict` and `reasons`.
impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Verdict", 2)?;
        fields.serialize_field("verdict", self.word())?;
        fields.serialize_field("reasons", &self.reasons)?;
        fields.end()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        if self.passed() { Ok(()) } else { write!(f, " ({})", self.reasons.join("; ")) }
    }
}

/// Judges a run by its cameras' measured frames. `interrupted_after` is the time in seconds after
/// which it was stopped by hand, if it was.
#[must_use]
pub fn judge(cameras: &[CameraResult], limits: Limits, interrupted_after: Option<f64>) -> Verdict {
    let mut reasons = Vec::new();
    let mut total = Tally::default();
    for camera in cameras {
        total.add(&camera.tally);
    }
    if let Some(seconds) = interrupted_after {
        reasons.push(format!("interrupted after {seconds:.1} s"));
    }
    reasons.extend(too_slow(cameras, limits.slo_max_ms));
    // Warm-up answers may be slow or not OK; a frame without one is a fault at any time.
    reasons.extend(unanswered(cameras, "frame", |camera| camera.tally));
    reasons.extend(unanswered(cameras, "warm-up frame", |camera| camera.warmup));
    reasons.extend(missed(cameras, &total, limits.min_answered_ratio));
    reasons.extend(starved(cameras, &total));
    reasons.extend(protocol_errors(cameras));
    if total.ok == 0 {
        reasons.push("no frame was answered OK".to_owned());
    }
    reasons.extend(broken_streams(cameras));
    Verdict { reasons }
}

fn too_slow(cameras: &[CameraResult], slo_max_ms: f64) -> Option<String> {
    let max = |camera: &CameraResult| camera.figures.max_ms.unwrap_or(0.0);
    let worst = cameras.iter().max_by(|a, b| max(a).total_cmp(&max(b)))?;
    let over = cameras.iter().filter(|camera| camera.over_slo > 0);
    let answers: u64 = cameras.iter().map(|camera| camera.over_slo).sum();
    (answers > 0).then(|| {
        format!(
            "slowest answer {:.1} ms > {slo_max_ms} ms at {}; {} over the limit at {}",
            max(worst),
            worst.camera_id,
            counted(answers, "answer"),
            counted(over.count() as u64, "camera"),
        )
    })
}

/// "3 frames lost (worst: sim-0004 with 2)", if there is any.
fn count(
    cameras: &[CameraResult],
    thing: &str,
    what: &str,
    of: impl Fn(&CameraResult) -> u64,
) -> Option<String> {
    let sum: u64 = cameras.iter().map(&of).sum();
    let worst = cameras.iter().rev().max_by_key(|camera| of(camera))?;
    (sum > 0).then(|| {
        let most = of(worst);
        format!("{} {what} (worst: {} with {most})", counted(sum, thing), worst.camera_id)
    })
}

/// Frames of `part` that ended without an answer.
fn unanswered(
    cameras: &[CameraResult],
    thing: &str,
    part: fn(&CameraResult) -> Tally,
) -> Vec<String> {
    let unaccepted = "not accepted by a server shutting down";
    [
        count(cameras, thing, "lost", |camera| part(camera).lost),
        count(cameras, thing, unaccepted, |camera| part(camera).unaccepted),
        count(cameras, thing, "not sent", |camera| part(camera).not_sent),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Answered, but not OK: acceptable up to a share, of all frames and of each camera's.
fn missed(cameras: &[CameraResult], total: &Tally, min_answered_ratio: f64) -> Vec<String> {
    let too_few = |tally: &Tally| (tally.ok as f64) < min_answered_ratio * tally.sent as f64;
    let below: Vec<_> = cameras.iter().filter(|camera| too_few(&camera.tally)).collect();
    if below.is_empty() {
        return Vec::new();
    }
    let mut reasons = Vec::new();
    for (index, (name, _)) in total.outcomes().iter().enumerate().skip(1) {
        reasons.extend(count(cameras, "frame", name, |c| c.tally.outcomes()[index].1));
    }
    if min_answered_ratio < 1.0 {
        let share = |tally: &Tally| tally.ok as f64 / tally.sent as f64;
        if too_few(total) {
            let share = share(total);
            reasons.push(format!("{share:.4} of the frames answered OK < {min_answered_ratio}"));
        }
        let worst = below.iter().min_by(|a, b| share(&a.tally).total_cmp(&share(&b.tally)));
        reasons.extend(worst.map(|worst| {
            format!(
                "{} with less than {min_answered_ratio} answered OK (worst: {} with {:.4})",
                counted(below.len() as u64, "camera"),
                worst.camera_id,
                share(&worst.tally),
            )
        }));
    }
    reasons
}

/// Cameras that the server left out while it served others; no share makes up for that.
fn starved(cameras: &[CameraResult], total: &Tally) -> Option<String> {
    let starved = |camera: &&CameraResult| camera.tally.sent > 0 && camera.tally.ok == 0;
    let first = cameras.iter().find(starved).filter(|_| total.ok > 0)?;
    let number = cameras.iter().filter(starved).count() as u64;
    Some(format!(
        "{} without any OK answer (first: {})",
        counted(number, "camera"),
        first.camera_id
    ))
}

fn protocol_errors(cameras: &[CameraResult]) -> Option<String> {
    let sum: u64 = cameras.iter().map(|camera| camera.protocol_errors).sum();
    let camera = cameras.iter().find(|camera| camera.protocol_errors > 0)?;
    let first = camera.first_protocol_error.as_deref().unwrap_or("unknown");
    Some(format!("{} (first: {}, {first})", counted(sum, "protocol error"), camera.camera_id))
}

/// Why streams did not last, the most frequent reasons with their numbers of streams.
fn broken_streams(cameras: &[CameraResult]) -> Vec<String> {
    stream_ends(cameras)
        .into_iter()
        .take(NAMED_ENDS)
        .map(|(end, streams)| format!("{} ended early: {end}", counted(streams, "stream")))
        .collect()
}

/// The ways in which streams ended other than by being complete, most frequent first.
#[must_use]
pub fn stream_ends(cameras: &[CameraResult]) -> Vec<(String, u64)> {
    let mut ends = std::collections::BTreeMap::new();
    for camera in cameras {
        if camera.end != crate::record::StreamEnd::Done {
            *ends.entry(camera.end.to_string()).or_insert(0) += 1;
        }
    }
    let mut ends: Vec<_> = ends.into_iter().collect();
    ends.sort_by_key(|&(_, streams)| std::cmp::Reverse(streams));
    ends
}

/// "1 frame", "2 frames".
#[must_use]
pub fn counted(n: u64, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::{CameraRecord, StreamEnd},
        schedule::Schedule,
    };
    use std::time::Duration;
    use vedette_proto::camera_ai::{DetectResponse, Outcome};

    const STRICT: Limits = Limits { slo_max_ms: 100.0, min_answered_ratio: 1.0 };

    /// A camera of 4 frames answered as told, `None` = not at all.
    fn camera(index: u32, answers: [Option<(Outcome, u64)>; 4]) -> CameraResult {
        camera_ended(index, answers, StreamEnd::Done)
    }

    fn camera_ended(
        index: u32,
        answers: [Option<(Outcome, u64)>; 4],
        end: StreamEnd,
    ) -> CameraResult {
        let schedule = Schedule::new(9, 1.0, Duration::ZERO, Duration::from_secs(4));
        let mut record = CameraRecord::new(index, schedule, Duration::from_millis(100));
        for (k, answer) in (0..).zip(answers) {
            record.sent(k, Duration::ZERO);
            if let Some((outcome, ms)) = answer {
                let answer = DetectResponse {
                    frame_id: k,
                    outcome: outcome as i32,
                    ..DetectResponse::default()
                };
                record.answered(&answer, |_| Duration::from_millis(ms));
            }
        }
        record.finish(end, None)
    }

    const OK: Option<(Outcome, u64)> = Some((Outcome::Ok, 20));
    const AT_LIMIT: Option<(Outcome, u64)> = Some((Outcome::Ok, 100));
    const SLOW: Option<(Outcome, u64)> = Some((Outcome::Ok, 134));
    const SUPERSEDED: Option<(Outcome, u64)> = Some((Outcome::Superseded, 1));
    const EXPIRED: Option<(Outcome, u64)> = Some((Outcome::Expired, 500));

    #[test]
    fn verdicts() {
        for (cameras, verdict) in [
            (vec![camera(0, [OK; 4]), camera(1, [OK, OK, AT_LIMIT, OK])], "PASS"),
            (
                vec![camera(0, [OK; 4]), camera(1, [SLOW, OK, SLOW, OK])],
                "FAIL (slowest answer 134.0 ms > 100 ms at sim-0002; 2 answers over the limit at \
                 1 camera)",
            ),
            (
                vec![camera(0, [OK, None, None, OK]), camera(1, [OK, None, OK, OK])],
                "FAIL (3 frames lost (worst: sim-0001 with 2))",
            ),
            (
                vec![camera(0, [OK, SUPERSEDED, EXPIRED, OK]), camera(1, [OK; 4])],
                "FAIL (1 frame superseded (worst: sim-0001 with 1); \
                 1 frame expired (worst: sim-0001 with 1))",
            ),
            (
                vec![camera(0, [SUPERSEDED; 4])],
                "FAIL (4 frames superseded (worst: sim-0001 with 4); no frame was answered OK)",
            ),
            (Vec::new(), "FAIL (no frame was answered OK)"),
        ] {
            assert_eq!(judge(&cameras, STRICT, None).to_string(), verdict);
        }
    }

    #[test]
    fn a_share_of_missed_answers_can_be_allowed_but_losses_never() {
        let limits = |min_answered_ratio| Limits { min_answered_ratio, ..STRICT };
        let cameras = [camera(0, [OK, SUPERSEDED, OK, OK])];
        assert!(judge(&cameras, limits(0.75), None).passed());
        let verdict = judge(&cameras, limits(0.8), None).to_string();
        assert!(verdict.contains("0.7500 of the frames answered OK < 0.8"), "{verdict}");
        assert!(!judge(&[camera(0, [OK, None, OK, OK])], limits(0.0), None).passed());
    }

    #[test]
    fn broken_streams_are_named_with_their_reason() {
        let end = || StreamEnd::Broken {
            code: "UNAVAILABLE".into(),
            message: "gone".into(),
            accepted: None,
        };
        let cameras = [
            camera_ended(0, [OK, OK, None, None], end()),
            camera_ended(1, [OK, OK, OK, None], end()),
        ];
        let verdict = judge(&cameras, STRICT, None).to_string();
        assert_eq!(
            verdict,
            "FAIL (3 frames lost (worst: sim-0001 with 2); \
             2 streams ended early: UNAVAILABLE: gone)"
        );
    }

    #[test]
    fn a_stream_that_ends_early_fails_a_run_by_itself() {
        let shut_down = StreamEnd::Broken {
            code: "UNAVAILABLE".into(),
            message: "shutting down".into(),
            accepted: Some(4),
        };
        for (end, reason) in [
            (shut_down, "1 stream ended early: UNAVAILABLE: server shut down"),
            (StreamEnd::Closed, "1 stream ended early: the server ended the stream"),
            (StreamEnd::Blocked, "1 stream ended early: the connection took no more frames"),
        ] {
            let cameras = [camera(0, [OK; 4]), camera_ended(1, [OK; 4], end)];
            assert_eq!(judge(&cameras, STRICT, None).reasons, [reason]);
        }
    }

    #[test]
    fn warm_up_answers_do_not_count_but_lost_warm_up_frames_do() {
        let second = Duration::from_secs(1);
        let schedule = Schedule::new(1, 1.0, 3 * second, second);
        let answered = |frames: &[u64]| {
            let mut record = CameraRecord::new(0, schedule, Duration::from_millis(100));
            for k in 0..4 {
                record.sent(k, Duration::ZERO);
            }
            for &frame_id in frames {
                let outcome = if frame_id == 0 { Outcome::Expired } else { Outcome::Ok } as i32;
                let answer = DetectResponse { frame_id, outcome, ..DetectResponse::default() };
                record.answered(&answer, |k| Duration::from_millis(if k < 3 { 900 } else { 9 }));
            }
            judge(&[record.finish(StreamEnd::Done, None)], STRICT, None).to_string()
        };
        assert_eq!(answered(&[0, 1, 2, 3]), "PASS");
        assert_eq!(answered(&[0, 3]), "FAIL (2 warm-up frames lost (worst: sim-0001 with 2))");
        let unsent = CameraRecord::new(0, schedule, second).finish(StreamEnd::Done, None);
        let verdict = judge(&[unsent], STRICT, None).to_string();
        assert!(verdict.contains("3 warm-up frames not sent"), "{verdict}");
    }

    #[test]
    fn no_share_makes_up_for_a_camera_that_is_left_out() {
        let limits = |min_answered_ratio| Limits { min_answered_ratio, ..STRICT };
        let cameras = [
            camera(0, [OK; 4]),
            camera(1, [OK; 4]),
            camera(2, [SUPERSEDED; 4]),
            camera(3, [OK, SUPERSEDED, OK, OK]),
        ];
        assert_eq!(
            judge(&cameras, limits(0.0), None).reasons,
            ["1 camera without any OK answer (first: sim-0003)"]
        );
        let verdict = judge(&cameras[..3], limits(0.5), None).to_string();
        let part = "1 camera with less than 0.5 answered OK (worst: sim-0003 with 0.0000)";
        assert!(verdict.contains(part) && !verdict.contains("of the frames"), "{verdict}");
        assert!(judge(&cameras[3..], limits(0.75), None).passed());
    }

    #[test]
    fn an_interrupted_run_never_passes() {
        let verdict = judge(&[camera(0, [OK; 4])], STRICT, Some(3.21));
        assert_eq!(verdict.to_string(), "FAIL (interrupted after 3.2 s)");
    }
}
