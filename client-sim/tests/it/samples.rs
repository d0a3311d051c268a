//! Reports as real runs write them, made from frames that nobody sent: the same books, timeline and
//! verdict, without a server and without waiting. What decides is the seed.

#[path = "samples/searches.rs"]
mod searches;

use std::{sync::Arc, time::Duration};

use client_sim::{
    camera::Load,
    config::{
        Balancing, Connections, Credentials, Group, Reconnect, RunConfig, Scenario, SelfTest,
        ServerName, Slo, Target,
    },
    meter::Usage,
    random::{hash, unit},
    record::{CameraRecord, CameraResult},
    report::{
        self, RunFacts, ServerFacts,
        capacity::CapacityReport,
        compare::{Comparison, Side, compare},
        files::Loaded,
        schema::{MachineFigures, Report, SelfTestFigures},
    },
    schedule::{Phases, Schedule},
    source::{Picture, PictureSet},
    stream::StreamEnd,
    timeline::{Bins, FleetTimeline},
};
use vedette_proto::camera_ai::{DetectResponse, Outcome, ServerInfo, StageTimes};

pub(crate) use searches::{capacity, capacity_of};

/// Start of the measured part of all samples: 2026-03-14 09:26:53 UTC.
pub(crate) const START_UNIX_MS: i64 = 1_773_480_413_000;

/// What a server does with a frame: an outcome and a latency in milliseconds, or nothing.
pub(crate) type Fate = Option<(Outcome, f64)>;

/// A frame, as a server sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// Its camera, from 0.
    pub(crate) camera: u32,
    /// Its intended instant in seconds since the measured part began.
    pub(crate) at: f64,
    /// Four random numbers, 0.0 to 1.0.
    pub(crate) luck: [f64; 4],
}

/// A fleet and a server.
#[derive(Clone)]
pub(crate) struct Story {
    /// Groups of cameras: name, number, frames per second.
    pub(crate) groups: Vec<(&'static str, u32, f64)>,
    /// Length of the measured part in seconds.
    pub(crate) seconds: u64,
    /// How the cameras' start times lie to each other.
    pub(crate) phases: Phases,
    /// Decides the random numbers.
    pub(crate) seed: u64,
    /// How late cameras wake up at most, in milliseconds.
    pub(crate) wake_late_ms: f64,
    /// Cameras that lose their stream at a second, and for how long.
    pub(crate) breaks: Vec<(u32, f64, f64)>,
    /// What the server does.
    pub(crate) server: fn(Frame) -> Fate,
    /// Limits on percentiles.
    pub(crate) percentiles: Vec<(f64, Duration)>,
    /// Number of servers, which cameras use in turn.
    pub(crate) servers: u32,
}

/// A server with room: most answers in 20 to 40 ms, a few slower.
#[expect(clippy::unnecessary_wraps, reason = "servers of this kind may leave frames unanswered")]
pub(crate) fn easy(frame: Frame) -> Fate {
    let [a, b, c, _] = frame.luck;
    let wave = 4.0 * (frame.at / 9.0).sin();
    let tail = if c > 0.985 { 22.0 * b } else { 0.0 };
    Some((Outcome::Ok, 21.0 + wave + 11.0 * a * a + 5.0 * b + tail))
}

/// The same with a stall of two seconds after which old frames are dropped, and a late slow patch.
pub(crate) fn stalling(frame: Frame) -> Fate {
    let [a, _, c, d] = frame.luck;
    let (_, usual) = easy(frame)?;
    if (24.0..26.2).contains(&frame.at) {
        let left = (26.2 - frame.at) * 1e3;
        return if left > 900.0 {
            Some((if d > 0.35 { Outcome::Superseded } else { Outcome::Expired }, left))
        } else {
            Some((Outcome::Ok, usual + left))
        };
    }
    if (44.0..49.0).contains(&frame.at) && frame.camera.is_multiple_of(7) {
        return Some((Outcome::Ok, usual + 38.0 + 45.0 * a * c));
    }
    Some((Outcome::Ok, usual))
}

impl Story {
    /// A fleet of one group at 10 frames per second.
    pub(crate) fn new(cameras: u32, seconds: u64) -> Self {
        Self {
            groups: vec![("", cameras, 10.0)],
            seconds,
            phases: Phases::Even,
            seed: 1,
            wake_late_ms: 1.2,
            breaks: Vec::new(),
            server: easy,
            percentiles: Vec::new(),
            servers: 1,
        }
    }

    fn config(&self) -> RunConfig {
        let names: Vec<ServerName> = self.addrs().map(|addr| addr.parse().unwrap()).collect();
        let seconds = Duration::from_secs;
        let mut scenario = Scenario::uniform(1, 10.0, seconds(2), seconds(self.seconds));
        let usual = scenario.groups.remove(0);
        for (name, cameras, fps) in &self.groups {
            let name = (*name).to_owned();
            scenario.groups.push(Group { name, cameras: *cameras, fps: *fps, ..usual.clone() });
        }
        scenario.name = (self.groups.len() > 1).then(|| "junction".to_owned());
        (scenario.phases, scenario.seed) = (self.phases, self.seed);
        RunConfig {
            target: Target {
                addr: "10.20.0.7:50051".parse().unwrap(),
                connect: Duration::from_secs(5),
                credentials: Credentials::default(),
            },
            balancing: Balancing::of(names, None).unwrap(),
            scenario,
            connections: Connections::PerCamera,
            reconnect: Reconnect { enabled: true, max_gap: Duration::from_secs(5) },
            drain: Duration::from_secs(2),
            slo: Slo {
                max: Duration::from_millis(100),
                percentiles: self.percentiles.clone(),
                min_answered_ratio: 1.0,
            },
            self_test: SelfTest::Never,
            quiet: true,
            threads: 1,
        }
    }

    fn addrs(&self) -> impl Iterator<Item = String> {
        (0..self.servers).map(|server| format!("10.20.0.{}:50051", 7 + server))
    }

    /// The report of the whole fleet.
    pub(crate) fn report(&self) -> Report {
        let schedule = Schedule::of(&self.config().scenario);
        self.part(0..schedule.cameras())
    }

    /// The report of a process that plays some of the cameras, as the whole fleet would.
    pub(crate) fn part(&self, cameras: std::ops::Range<u32>) -> Report {
        let mut config = self.config();
        let schedule = Arc::new(Schedule::of(&config.scenario));
        let bins = Bins::of(&schedule);
        let mut timeline = FleetTimeline::new(bins);
        let results: Vec<CameraResult> = cameras
            .clone()
            .map(|camera| self.camera(camera, &config, &schedule, &mut timeline))
            .collect();
        let times = timeline.servers(self.servers as usize);
        let timeline = timeline.finish(results.iter().map(|camera| &*camera.bins));
        for (index, group) in config.scenario.groups.iter_mut().enumerate() {
            group.cameras = results.iter().filter(|camera| camera.group == index).count() as u32;
        }
        let pictures = || PictureSet::new(vec![picture(34_000), picture(61_500)]).unwrap();
        let load = |_: &Group| Load { pictures: pictures(), budget_ms: 0 };
        let loads: Vec<Load> = config.scenario.groups.iter().map(load).collect();
        let per_second: f64 =
            config.scenario.groups.iter().map(|g| f64::from(g.cameras) * g.fps).sum();
        let mut report = report::make(&RunFacts {
            config: &config,
            loads: &loads,
            server: Some(server_info()),
            servers: self
                .addrs()
                .zip(times)
                .map(|(addr, times)| ServerFacts { addr, info: Some(server_info()), times })
                .collect(),
            started_unix_ms: START_UNIX_MS,
            interrupted_after: None,
            cameras: results,
            timeline,
            rogues: Vec::new(),
            usage: Usage {
                cores: 0.04 + per_second / 5200.0,
                busiest_thread: Some((0.02 + per_second / 5600.0).min(0.99)),
            },
            self_test: Some(SelfTestFigures {
                cameras: cameras.len() as u32,
                seconds: 3.0,
                sent: 3 * per_second as u64,
                ok: 3 * per_second as u64,
                p99_ms: Some(1.31),
                max_ms: Some(3.42),
                cpu_cores: 0.05 + per_second / 5000.0,
            }),
        });
        // Whatever machine makes the sample, it is the same.
        report.machine = machine();
        report.arguments = ["run", "--addr", "10.20.0.7:50051", "--cameras"]
            .map(str::to_owned)
            .into_iter()
            .chain([report.cameras.to_string(), "--seconds".into(), self.seconds.to_string()])
            .collect();
        report
    }

    fn camera(
        &self,
        camera: u32,
        config: &RunConfig,
        schedule: &Arc<Schedule>,
        timeline: &mut FleetTimeline,
    ) -> CameraResult {
        let max_gap = config.reconnect.max_gap;
        let mut record = CameraRecord::new(camera, schedule.clone(), config.slo.max, max_gap);
        let lane = schedule.lane(camera);
        let down = self.breaks.iter().find(|(broken, ..)| *broken == camera);
        let warmup = schedule.warmup();
        let (mut broken, mut server) = (false, (camera % self.servers) as usize);
        record.stream_opens(server);
        for k in 0..lane.frames() {
            let intended = lane.intended(k);
            let at = intended.as_secs_f64() - warmup.as_secs_f64();
            if down.is_some_and(|(_, from, length)| (*from..from + length).contains(&at)) {
                if !broken {
                    let end = StreamEnd::Broken {
                        code: "UNAVAILABLE".into(),
                        message: "connection reset by peer".into(),
                        accepted: None,
                    };
                    record.stream_ended(&end, intended, k);
                }
                broken = true;
                continue;
            }
            if std::mem::take(&mut broken) {
                server = (server + 1) % self.servers as usize;
                record.stream_opens(server);
            }
            let place = u64::from(camera) << 32 | k;
            let luck = [1, 2, 3, 4].map(|use_| unit(hash(self.seed, place, use_)));
            let seconds = self.wake_late_ms / 1e3 * luck[3] * luck[0];
            let woken_late = Duration::from_secs_f64(seconds);
            record.sent(k, intended + woken_late, woken_late);
            let fate = (self.server)(Frame { camera, at, luck });
            let Some((outcome, ms)) = fate else { continue };
            let latency = Duration::from_secs_f64(ms / 1e3) + woken_late;
            let times = (outcome == Outcome::Ok).then(|| stage_times(ms, luck));
            let answer = DetectResponse {
                frame_id: k,
                outcome: outcome as i32,
                times,
                ..DetectResponse::default()
            };
            if let Some(measured) = record.answered(&answer, intended + latency) {
                timeline.add(measured, answer.times.as_ref());
            }
        }
        record.finish(&StreamEnd::Done, None)
    }
}

/// How a server splits a latency.
fn stage_times(ms: f64, luck: [f64; 4]) -> StageTimes {
    let us = |ms: f64| (ms * 1e3) as u32;
    let inference = 9.0 + 1.5 * luck[1];
    let decode = 2.6 + 0.8 * luck[2];
    let rest = (ms - inference - decode - 3.0).max(0.2);
    StageTimes {
        queue_us: us(rest * 0.9),
        decode_us: us(decode),
        preprocess_us: us(0.9 + 0.1 * luck[0]),
        inference_us: us(inference),
        postprocess_us: us(0.35),
        total_us: us(ms - 0.6),
    }
}

fn picture(bytes: usize) -> Picture {
    Picture { name: format!("{bytes}.jpg"), bytes: vec![7; bytes].into() }
}

fn server_info() -> ServerInfo {
    ServerInfo {
        version: "0.1.0".into(),
        model: "yolov8n".into(),
        backend: "cuda".into(),
        input_width: 640,
        input_height: 640,
        workers: 8,
        max_cameras: 512,
        budget_ms: 90,
        confidence: 0.25,
        iou: 0.7,
        ..ServerInfo::default()
    }
}

/// The machine of the samples.
pub(crate) fn machine() -> MachineFigures {
    MachineFigures {
        cores: 16,
        cpu: "AMD EPYC 9354P 32-Core Processor".into(),
        memory_bytes: 67_436_544_000,
        system: "Linux 6.8.0-45-generic".into(),
    }
}

/// A run that passed.
pub(crate) fn passing() -> Report {
    Story::new(32, 60).report()
}

/// A run with a stall, drops and streams that broke.
pub(crate) fn failing() -> Report {
    Story {
        groups: vec![("entrance", 10, 15.0), ("parking", 18, 10.0), ("roof", 4, 5.0)],
        phases: Phases::Aligned,
        server: stalling,
        breaks: vec![(5, 36.0, 1.7), (21, 38.5, 2.4)],
        percentiles: vec![(99.0, Duration::from_millis(60))],
        ..Story::new(0, 60)
    }
    .report()
}

/// A run on three servers, of which one loses its cameras to the next one.
pub(crate) fn balanced() -> Report {
    let lost = (0..24).step_by(3).map(|camera| (camera, 18.2, 0.3 + f64::from(camera) / 20.0));
    Story { servers: 3, seed: 3, breaks: lost.collect(), ..Story::new(24, 40) }.report()
}

/// A run whose simulator was too late itself.
pub(crate) fn invalid() -> Report {
    Story { wake_late_ms: 130.0, seed: 5, ..Story::new(24, 30) }.report()
}

/// Two servers, three runs each: the second answers some 6 ms later and differs in its version.
pub(crate) fn comparison() -> Comparison {
    let slower = |frame| easy(frame).map(|(outcome, ms)| (outcome, ms + 6.0));
    let runs = |server: fn(Frame) -> Fate, version: &str, seed: u64| -> Vec<(String, Loaded)> {
        (seed..seed + 3)
            .map(|seed| {
                let mut report = Story { seed, server, ..Story::new(16, 30) }.report();
                version.clone_into(&mut report.server.as_mut().unwrap().version);
                (format!("{version}-{seed}.json"), Loaded::Run(Box::new(report)))
            })
            .collect()
    };
    compare(&[
        Side { label: "before".to_owned(), reports: runs(easy, "0.1.0", 11) },
        Side { label: "after".to_owned(), reports: runs(slower, "0.2.0", 11) },
    ])
    .unwrap()
}

/// Two capacity searches on machines of different sizes.
pub(crate) fn capacity_comparison() -> Comparison {
    let mut small = capacity();
    small.machine.cores = 8;
    small.cost.truncate(1);
    let side = |label: &str, report: CapacityReport| Side {
        label: label.to_owned(),
        reports: vec![(format!("{label}.json"), Loaded::Capacity(Box::new(report)))],
    };
    compare(&[side("8 cores", small), side("16 cores", capacity_of(310.0, 4))]).unwrap()
}
