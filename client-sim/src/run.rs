//! A load run from pictures to report: the wiring of everything else.

use std::{
    collections::HashMap,
    future::Future,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, task::JoinSet};
use vedette_proto::camera_ai::ServerInfo;

use crate::{
    camera::{self, Fleet, Live, Load},
    clock,
    config::{PictureSource, RunConfig, Scenario, SelfTest, Size},
    error::SimError,
    meter::{Reading, Usage},
    pacer::Pacer,
    progress,
    record::{CameraRecord, CameraResult},
    report::{
        RunFacts, ServerFacts, make,
        schema::{Report, SelfTestFigures},
    },
    rogue, scene,
    schedule::Schedule,
    self_test,
    servers::{self, Found, Servers},
    source::{PictureSet, check_video, draw_pictures, read_folder, read_video},
    stream::StreamEnd,
    timeline::{Bins, FleetTimeline},
    token::Token,
    verdict::counted,
};

/// Time between the last set-up step and the first frame, so that every camera's task is waiting
/// when its first frame is due.
const START_LEAD: Duration = Duration::from_millis(50);

/// Size from which drawing the built-in pictures takes more than about 2 s, in pixels each; all of
/// them at 3840x2160 take 15 s on a slow core.
const LONG_DRAWING_PIXELS: u64 = 1_000_000;

/// What is fetched or made once for any number of runs with the same server and pictures.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// What the server said about itself; of several the first that did.
    pub server: Option<ServerInfo>,
    /// The servers that were found.
    servers: Vec<Found>,
    pictures: HashMap<PictureSource, PictureSet>,
}

impl Prepared {
    /// For a run against a server that needs no questions.
    pub async fn without_server(config: &RunConfig) -> Result<Self, SimError> {
        let mut pictures = HashMap::new();
        make_pictures(config, &mut pictures).await?;
        Ok(Self { server: None, servers: Vec::new(), pictures })
    }

    /// The servers of a run: those that were found, or, for one server, the one that it names.
    fn found(&self, config: &RunConfig) -> Vec<Found> {
        if config.balancing.several() {
            return self.servers.clone();
        }
        vec![Found { target: config.target.clone(), info: self.server.clone(), up: true }]
    }

    /// The pictures of a source that was prepared.
    ///
    /// # Panics
    /// For another one.
    #[must_use]
    pub fn pictures(&self, source: &PictureSource) -> &PictureSet {
        &self.pictures[source]
    }
}

/// Looks at the server and gets the pictures.
///
/// Mistakes show at once: an unusable folder before anything is sent, and a server that is not
/// there before pictures are drawn.
pub async fn prepare(config: &RunConfig) -> Result<Prepared, SimError> {
    let mut pictures = HashMap::new();
    for group in &config.scenario.groups {
        match &group.pictures {
            PictureSource::Folder(dir) => {
                pictures.insert(group.pictures.clone(), folder_pictures(dir)?);
            }
            PictureSource::Video { path, .. } => check_video(path)?,
            PictureSource::Drawn(_) => {}
        }
    }
    let servers = servers::find(&config.target, &config.balancing).await?;
    let server = servers.iter().find_map(|server| server.info.clone());
    make_pictures(config, &mut pictures).await?;
    Ok(Prepared { server, servers, pictures })
}

/// Adds the pictures that are not there yet.
async fn make_pictures(
    config: &RunConfig,
    pictures: &mut HashMap<PictureSource, PictureSet>,
) -> Result<(), SimError> {
    for group in &config.scenario.groups {
        if pictures.contains_key(&group.pictures) {
            continue;
        }
        // Of groups with the same video, the one with the most frames decides.
        let same = config.scenario.groups.iter().filter(|same| same.pictures == group.pictures);
        let fps = same.map(|group| group.fps).fold(group.fps, f64::max);
        let made = pictures_of(&group.pictures, fps, config.quiet).await?;
        pictures.insert(group.pictures.clone(), made);
    }
    Ok(())
}

/// The pictures of a source; of a video those of `fps` frames per second.
pub(crate) async fn pictures_of(
    source: &PictureSource,
    fps: f64,
    quiet: bool,
) -> Result<PictureSet, SimError> {
    match source {
        PictureSource::Drawn(size) => drawn_pictures(*size, quiet).await,
        PictureSource::Folder(dir) => folder_pictures(dir),
        PictureSource::Video { path, size } => read_video(path.clone(), *size, fps).await,
    }
}

/// Runs the fleet. When `interrupt` ends first, the run stops early and reports what it has.
pub async fn run(
    config: &RunConfig,
    interrupt: impl Future<Output = ()>,
) -> Result<Report, SimError> {
    let prepared = prepare(config).await?;
    play(config, &prepared, Arc::default(), interrupt).await
}

/// Runs the fleet with what is prepared already, and counts into `live`.
pub async fn play(
    config: &RunConfig,
    prepared: &Prepared,
    live: Arc<Live>,
    interrupt: impl Future<Output = ()>,
) -> Result<Report, SimError> {
    tokio::pin!(interrupt);
    let schedule = Arc::new(Schedule::of(&config.scenario));
    let found = prepared.found(config);
    let (servers, places) = Servers::open(config, &found, schedule.cameras()).await?;
    let start = clock::now() + START_LEAD;
    let fleet = Arc::new(Fleet {
        schedule: schedule.clone(),
        servers: servers.clone(),
        token: Token::of(&config.target)?,
        pacer: Pacer::start(schedule.clone(), start).map_err(SimError::Runtime)?,
        loads: loads(&config.scenario, prepared),
        start,
        start_unix_us: clock::unix_micros().saturating_add_unsigned(clock::micros(START_LEAD)),
        drain: config.drain,
        slo_max: config.slo.max,
        reconnect: config.reconnect,
        seed: config.scenario.seed,
        heartbeat: config.scenario.heartbeat,
        live,
        timeline: Mutex::new(FleetTimeline::new(Bins::of(&schedule))),
    });
    let (stop, stopped) = watch::channel(false);
    let mut cameras = JoinSet::new();
    for (index, place) in (0..).zip(places) {
        let camera = camera::run(fleet.clone(), index, place, stopped.clone());
        cameras.spawn(async move { (index, camera.await) });
    }
    let rogues = rogue::start(config, &fleet, &stopped)?;
    let progress = (!config.quiet).then(|| tokio::spawn(progress::show(fleet.clone())));

    let collected = collect(&mut cameras, interrupt.as_mut(), &stop, &fleet).await;
    if let Some(progress) = progress {
        progress.abort();
        // Waiting for the abort lets the bar clear itself before the table is printed.
        let _ = progress.await;
    }
    let Collected { records, interrupted_after, usage } = collected?;
    stop.send_replace(true);
    let results: Vec<CameraResult> = records
        .into_iter()
        .map(|(_, (record, end))| record.finish(&end, interrupted_after))
        .collect();
    let addrs = servers.addrs();
    let (timeline, times) = {
        let timeline = fleet.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = timeline.finish(results.iter().map(|camera| &*camera.bins));
        (whole, timeline.servers(addrs.len()))
    };
    let infos = found.into_iter().map(|server| server.info).chain(std::iter::repeat(None));
    let servers = addrs.into_iter().zip(infos).zip(times);
    let mut facts = RunFacts {
        config,
        loads: &fleet.loads,
        server: prepared.server.clone(),
        servers: servers.map(|((addr, info), times)| ServerFacts { addr, info, times }).collect(),
        started_unix_ms: fleet.start_unix_us / 1000 + schedule.warmup().as_millis() as i64,
        interrupted_after,
        cameras: results,
        timeline,
        rogues: match rogues {
            Some(rogues) => rogues.figures().await,
            None => Vec::new(),
        },
        usage,
        self_test: None,
    };
    let report = make(&facts);
    let wanted = match config.self_test {
        SelfTest::Always => true,
        SelfTest::OnFail => report.failed_in_time(),
        SelfTest::Never => false,
    };
    if !wanted || report.interrupted {
        return Ok(report);
    }
    tokio::select! {
        tested = self_test(config, prepared) => facts.self_test = tested,
        () = interrupt => {}
    }
    Ok(make(&facts))
}

/// Tries whether the simulator alone keeps up. That it could not be tried does not lose the run.
async fn self_test(config: &RunConfig, prepared: &Prepared) -> Option<SelfTestFigures> {
    if !config.quiet {
        crate::say("checking whether the simulator itself was the bottleneck");
    }
    let tested = self_test::run(config, prepared).await;
    tested
        .map_err(|error| crate::say(&format!("the simulator could not test itself: {error}")))
        .ok()
}

fn loads(scenario: &Scenario, prepared: &Prepared) -> Vec<Load> {
    let load = |group: &crate::config::Group| Load {
        pictures: prepared.pictures(&group.pictures).clone(),
        budget_ms: group.budget_ms,
    };
    scenario.groups.iter().map(load).collect()
}

struct Collected {
    records: Vec<(u32, (CameraRecord, StreamEnd))>,
    interrupted_after: Option<Duration>,
    usage: Usage,
}

/// Waits for all cameras; tells them to stop when `interrupt` ends. Meanwhile it reads the tool's own
/// processor time at the beginning and the end of the measured part.
async fn collect(
    cameras: &mut JoinSet<(u32, (CameraRecord, StreamEnd))>,
    mut interrupt: Pin<&mut impl Future<Output = ()>>,
    stop: &watch::Sender<bool>,
    fleet: &Fleet,
) -> Result<Collected, SimError> {
    let mut records = Vec::with_capacity(cameras.len());
    let mut interrupted_after = None;
    let mut first = Reading::now();
    let mut last = None;
    let measured = clock::sleep_until(fleet.start + fleet.schedule.warmup());
    let over = clock::sleep_until(fleet.start + fleet.schedule.length());
    tokio::pin!(measured, over);
    let mut warming_up = true;
    loop {
        tokio::select! {
            joined = cameras.join_next() => match joined {
                Some(joined) => records.push(joined?),
                None => break,
            },
            () = &mut interrupt, if interrupted_after.is_none() => {
                interrupted_after = Some(clock::now().saturating_duration_since(fleet.start));
                stop.send_replace(true);
            }
            () = &mut measured, if warming_up => (warming_up, first) = (false, Reading::now()),
            () = &mut over, if last.is_none() => last = Some(Reading::now()),
        }
    }
    records.sort_by_key(|(index, _)| *index);
    let usage = last.unwrap_or_else(Reading::now).since(&first);
    Ok(Collected { records, interrupted_after, usage })
}

/// The built-in pictures. The runtime goes on meanwhile, so that open connections stay alive.
async fn drawn_pictures(size: Size, quiet: bool) -> Result<PictureSet, SimError> {
    if !quiet && u64::from(size.width) * u64::from(size.height) >= LONG_DRAWING_PIXELS {
        crate::say(&format!("drawing {} pictures of {size}, this takes a while", scene::COUNT));
    }
    let drawn = tokio::task::spawn_blocking(move || draw_pictures(size, scene::COUNT)).await??;
    Ok(PictureSet::new(drawn).expect("scene::COUNT is above 0"))
}

fn folder_pictures(dir: &Path) -> Result<PictureSet, SimError> {
    let folder = read_folder(dir)?;
    if folder.ignored > 0 {
        let files = counted(folder.ignored as u64, "file");
        crate::say(&format!("ignoring {files} of {} that are no pictures", dir.display()));
    }
    Ok(folder.pictures)
}
