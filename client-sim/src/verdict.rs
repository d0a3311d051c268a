//! Whether a run passed: a pure function of its figures.

use crate::{
    clock::millis,
    config::Slo,
    report::schema::{CameraFigures, PercentileLimit, Report},
    stats::Tally,
    stream::COMPLETE,
};

/// What a run is held against.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Largest acceptable latency of an OK answer, in milliseconds.
    pub slo_max_ms: f64,
    /// Limits on percentiles, with what they were.
    pub percentiles: Vec<PercentileLimit>,
    /// Share of the sent frames, in total and of each camera, that must be answered OK, 0.0 to 1.0.
    pub min_answered_ratio: f64,
}

impl Limits {
    /// Those of `slo`; `measured` tells what a percentile was, in milliseconds.
    #[must_use]
    pub fn of(slo: &Slo, measured: impl Fn(f64) -> Option<f64>) -> Self {
        let percentile = |&(percentile, limit)| PercentileLimit {
            percentile,
            limit_ms: millis(limit),
            ms: measured(percentile),
        };
        Self {
            slo_max_ms: millis(slo.max),
            percentiles: slo.percentiles.iter().map(percentile).collect(),
            min_answered_ratio: slo.min_answered_ratio,
        }
    }

    /// Those that a report names.
    #[must_use]
    pub fn of_report(report: &Report) -> Self {
        Self {
            slo_max_ms: report.slo_max_ms,
            percentiles: report.slo_percentiles.clone(),
            min_answered_ratio: report.min_answered_ratio,
        }
    }
}

/// Ways in which streams ended that a verdict names; the report lists all.
const NAMED_ENDS: usize = 3;

/// Why a run did not pass, slow answers apart from everything else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Answers that came too late.
    pub slow: Vec<String>,
    /// Everything else.
    pub other: Vec<String>,
}

impl Judgement {
    /// Whether the run passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.slow.is_empty() && self.other.is_empty()
    }

    /// All reasons.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        self.slow.iter().chain(&self.other).cloned().collect()
    }
}

/// Judges a run by its cameras' measured frames. `interrupted_after` is the time in seconds after
/// which it was stopped by hand, if it was.
#[must_use]
pub fn judge(
    cameras: &[CameraFigures],
    limits: &Limits,
    interrupted_after: Option<f64>,
) -> Judgement {
    let mut reasons = Vec::new();
    let mut total = Tally::default();
    for camera in cameras {
        total.add(&camera.tally.less(&camera.excused));
    }
    if let Some(seconds) = interrupted_after {
        reasons.push(format!("interrupted after {seconds:.1} s"));
    }
    // Warm-up answers may be slow or not OK; a frame without one is a fault at any time.
    reasons.extend(unanswered(cameras, "frame", |camera| camera.tally.less(&camera.excused)));
    reasons.extend(unanswered(cameras, "warm-up frame", |camera| {
        camera.warmup.less(&camera.warmup_excused)
    }));
    reasons.extend(missed(cameras, &total, limits.min_answered_ratio));
    reasons.extend(starved(cameras, &total));
    reasons.extend(protocol_errors(cameras));
    if total.ok == 0 {
        reasons.push("no frame was answered OK".to_owned());
    }
    reasons.extend(broken_streams(cameras));
    let percentiles = limits.percentiles.iter().filter_map(percentile_over);
    let slow = too_slow(cameras, limits.slo_max_ms).into_iter().chain(percentiles).collect();
    Judgement { slow, other: reasons }
}

fn percentile_over(limit: &PercentileLimit) -> Option<String> {
    let ms = limit.ms.filter(|ms| *ms > limit.limit_ms)?;
    Some(format!("p{} {ms:.1} ms > {} ms", limit.percentile, limit.limit_ms))
}

fn too_slow(cameras: &[CameraFigures], slo_max_ms: f64) -> Option<String> {
    let max = |camera: &CameraFigures| camera.figures.max_ms.unwrap_or(0.0);
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
    cameras: &[CameraFigures],
    thing: &str,
    what: &str,
    of: impl Fn(&CameraFigures) -> u64,
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
    cameras: &[CameraFigures],
    thing: &str,
    part: fn(&CameraFigures) -> Tally,
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

/// A camera's frames without those that are excused.
fn judged(camera: &CameraFigures) -> Tally {
    camera.tally.less(&camera.excused)
}

/// Answered, but not OK: acceptable up to a share, of all frames and of each camera's.
fn missed(cameras: &[CameraFigures], total: &Tally, min_answered_ratio: f64) -> Vec<String> {
    let too_few = |tally: &Tally| (tally.ok as f64) < min_answered_ratio * tally.sent as f64;
    let below: Vec<_> = cameras.iter().filter(|camera| too_few(&judged(camera))).collect();
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
        let worst = below.iter().min_by(|a, b| share(&judged(a)).total_cmp(&share(&judged(b))));
        reasons.extend(worst.map(|worst| {
            format!(
                "{} with less than {min_answered_ratio} answered OK (worst: {} with {:.4})",
                counted(below.len() as u64, "camera"),
                worst.camera_id,
                share(&judged(worst)),
            )
        }));
    }
    reasons
}

/// Cameras that the server left out while it served others; no share makes up for that.
fn starved(cameras: &[CameraFigures], total: &Tally) -> Option<String> {
    let starved = |camera: &&CameraFigures| camera.tally.sent > 0 && camera.tally.ok == 0;
    let first = cameras.iter().find(starved).filter(|_| total.ok > 0)?;
    let number = cameras.iter().filter(starved).count() as u64;
    Some(format!(
        "{} without any OK answer (first: {})",
        counted(number, "camera"),
        first.camera_id
    ))
}

fn protocol_errors(cameras: &[CameraFigures]) -> Option<String> {
    let sum: u64 = cameras.iter().map(|camera| camera.protocol_errors).sum();
    let camera = cameras.iter().find(|camera| camera.protocol_errors > 0)?;
    let first = camera.first_protocol_error.as_deref().unwrap_or("unknown");
    Some(format!("{} (first: {}, {first})", counted(sum, "protocol error"), camera.camera_id))
}

/// Why streams did not last, the most frequent reasons with their numbers of streams.
fn broken_streams(cameras: &[CameraFigures]) -> Vec<String> {
    stream_ends(cameras)
        .into_iter()
        .take(NAMED_ENDS)
        .map(|(end, streams)| format!("{} ended early: {end}", counted(streams, "stream")))
        .collect()
}

/// The ways in which streams ended other than by being complete, most frequent first.
#[must_use]
pub fn stream_ends(cameras: &[CameraFigures]) -> Vec<(String, u64)> {
    let mut ends = std::collections::BTreeMap::new();
    for camera in cameras {
        if camera.end != COMPLETE {
            *ends.entry(camera.end.clone()).or_insert(0) += 1;
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
        config::Scenario,
        record::CameraRecord,
        schedule::{Phases, Schedule},
        stream::StreamEnd,
    };
    use std::{sync::Arc, time::Duration};
    use vedette_proto::camera_ai::{DetectResponse, Outcome};

    fn limits(min_answered_ratio: f64) -> Limits {
        Limits { slo_max_ms: 100.0, percentiles: Vec::new(), min_answered_ratio }
    }

    fn verdict(cameras: &[CameraFigures], limits: &Limits, interrupted: Option<f64>) -> String {
        let judgement = judge(cameras, limits, interrupted);
        let reasons = judgement.reasons();
        assert_eq!(judgement.passed(), reasons.is_empty());
        if reasons.is_empty() { "PASS".into() } else { format!("FAIL ({})", reasons.join("; ")) }
    }

    /// A camera of 4 frames answered as told, `None` = not at all.
    fn camera(index: u32, answers: [Option<(Outcome, u64)>; 4]) -> CameraFigures {
        camera_ended(index, answers, &StreamEnd::Done)
    }

    fn camera_ended(
        index: u32,
        answers: [Option<(Outcome, u64)>; 4],
        end: &StreamEnd,
    ) -> CameraFigures {
        let mut record = record(index, Duration::ZERO, Duration::from_secs(4));
        for (k, answer) in (0..).zip(answers) {
            let intended = Duration::from_secs(k);
            record.sent(k, intended, Duration::ZERO);
            if let Some((outcome, ms)) = answer {
                let answer = DetectResponse {
                    frame_id: k,
                    outcome: outcome as i32,
                    ..DetectResponse::default()
                };
                record.answered(&answer, intended + Duration::from_millis(ms));
            }
        }
        record.finish(end, None).figures
    }

    /// Of cameras with a frame each second, all at the same instant.
    fn record(index: u32, warmup: Duration, measured: Duration) -> CameraRecord {
        let scenario = Scenario::uniform(9, 1.0, warmup, measured);
        let scenario = Scenario { phases: Phases::Aligned, ..scenario };
        let schedule = Arc::new(Schedule::of(&scenario));
        CameraRecord::new(index, schedule, Duration::from_millis(100), Duration::ZERO)
    }

    const OK: Option<(Outcome, u64)> = Some((Outcome::Ok, 20));
    const AT_LIMIT: Option<(Outcome, u64)> = Some((Outcome::Ok, 100));
    const SLOW: Option<(Outcome, u64)> = Some((Outcome::Ok, 134));
    const SUPERSEDED: Option<(Outcome, u64)> = Some((Outcome::Superseded, 1));
    const EXPIRED: Option<(Outcome, u64)> = Some((Outcome::Expired, 500));

    #[test]
    fn verdicts() {
        for (cameras, expected) in [
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
            assert_eq!(verdict(&cameras, &limits(1.0), None), expected);
        }
    }

    #[test]
    fn a_share_of_missed_answers_can_be_allowed_but_losses_never() {
        let cameras = [camera(0, [OK, SUPERSEDED, OK, OK])];
        assert!(judge(&cameras, &limits(0.75), None).passed());
        let text = verdict(&cameras, &limits(0.8), None);
        assert!(text.contains("0.7500 of the frames answered OK < 0.8"), "{text}");
        assert!(!judge(&[camera(0, [OK, None, OK, OK])], &limits(0.0), None).passed());
    }

    #[test]
    fn broken_streams_are_named_with_their_reason() {
        let end = || StreamEnd::Broken {
            code: "UNAVAILABLE".into(),
            message: "gone".into(),
            accepted: None,
        };
        let cameras = [
            camera_ended(0, [OK, OK, None, None], &end()),
            camera_ended(1, [OK, OK, OK, None], &end()),
        ];
        let text = verdict(&cameras, &limits(1.0), None);
        assert_eq!(
            text,
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
            let cameras = [camera(0, [OK; 4]), camera_ended(1, [OK; 4], &end)];
            assert_eq!(judge(&cameras, &limits(1.0), None).reasons(), [reason]);
        }
    }

    #[test]
    fn warm_up_answers_do_not_count_but_lost_warm_up_frames_do() {
        let second = Duration::from_secs(1);
        let answered = |frames: &[u64]| {
            let mut record = record(0, 3 * second, second);
            for k in 0..4 {
                record.sent(k, second * k as u32, Duration::ZERO);
            }
            for &frame_id in frames {
                let outcome = if frame_id == 0 { Outcome::Expired } else { Outcome::Ok } as i32;
                let answer = DetectResponse { frame_id, outcome, ..DetectResponse::default() };
                let late = Duration::from_millis(if frame_id < 3 { 900 } else { 9 });
                record.answered(&answer, second * frame_id as u32 + late);
            }
            verdict(&[record.finish(&StreamEnd::Done, None).figures], &limits(1.0), None)
        };
        assert_eq!(answered(&[0, 1, 2, 3]), "PASS");
        assert_eq!(answered(&[0, 3]), "FAIL (2 warm-up frames lost (worst: sim-0001 with 2))");
        let unsent = record(0, 3 * second, second).finish(&StreamEnd::Done, None).figures;
        let text = verdict(&[unsent], &limits(1.0), None);
        assert!(text.contains("3 warm-up frames not sent"), "{text}");
    }

    #[test]
    fn percentiles_have_limits_of_their_own() {
        let p99 = |ms| PercentileLimit { percentile: 99.9, limit_ms: 50.0, ms };
        let limits = |ms| Limits { percentiles: vec![p99(ms)], ..limits(1.0) };
        let cameras = [camera(0, [OK; 4])];
        assert_eq!(verdict(&cameras, &limits(Some(50.0)), None), "PASS");
        let judgement = judge(&cameras, &limits(Some(50.1)), None);
        assert_eq!(judgement.slow, ["p99.9 50.1 ms > 50 ms"]);
    }

    #[test]
    fn what_is_excused_is_not_held_against_the_server() {
        let mut camera = camera(0, [OK, OK, OK, None]);
        assert!(!judge(&[camera.clone()], &limits(1.0), None).passed());
        (camera.excused.sent, camera.excused.lost) = (1, 1);
        assert!(judge(&[camera], &limits(1.0), None).passed());
    }

    #[test]
    fn no_share_makes_up_for_a_camera_that_is_left_out() {
        let cameras = [
            camera(0, [OK; 4]),
            camera(1, [OK; 4]),
            camera(2, [SUPERSEDED; 4]),
            camera(3, [OK, SUPERSEDED, OK, OK]),
        ];
        assert_eq!(
            judge(&cameras, &limits(0.0), None).reasons(),
            ["1 camera without any OK answer (first: sim-0003)"]
        );
        let text = verdict(&cameras[..3], &limits(0.5), None);
        let part = "1 camera with less than 0.5 answered OK (worst: sim-0003 with 0.0000)";
        assert!(text.contains(part) && !text.contains("of the frames"), "{text}");
        assert!(judge(&cameras[3..], &limits(0.75), None).passed());
    }

    #[test]
    fn an_interrupted_run_never_passes() {
        let text = verdict(&[camera(0, [OK; 4])], &limits(1.0), Some(3.21));
        assert_eq!(text, "FAIL (interrupted after 3.2 s)");
    }
}
