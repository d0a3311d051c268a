//! A load run from pictures to report: the wiring of everything else.

use std::{
    future::Future,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tonic::transport::{Channel, Endpoint};

use crate::{
    camera::{self, Fleet, Live},
    clock,
    config::{RunConfig, ServerAddr},
    connect::{connect, endpoint, server_info},
    error::SimError,
    pacer::Pacer,
    progress,
    record::{CameraRecord, CameraResult, StreamEnd},
    report::{Report, RunFacts},
    scene,
    schedule::Schedule,
    source::{PictureSet, draw_pictures, read_folder},
    verdict::counted,
};

/// Connections being opened at the same time; a fleet that knocks all at once overflows the
/// backlog of the server's listening socket, and refused SYNs cost a second each.
const CONNECTING_AT_ONCE: usize = 16;

/// Time between the last set-up step and the first frame, so that every camera's task is waiting
/// when its first frame is due.
const START_LEAD: Duration = Duration::from_millis(50);

/// Size from which drawing the built-in pictures takes more than about 2 s, in pixels each; all of
/// them at 3840x2160 take 15 s on a slow core.
const LONG_DRAWING_PIXELS: u64 = 1_000_000;

/// Runs the fleet. When `interrupt` ends first, the run stops early and reports what it has.
pub async fn run(
    config: &RunConfig,
    interrupt: impl Future<Output = ()>,
) -> Result<Report, SimError> {
    // Mistakes show at once: an unusable folder before anything is sent, and a server that is not
    // there before pictures are drawn.
    let folder = config.images.as_deref().map(folder_pictures).transpose()?;
    let endpoint = endpoint(&config.addr, config.connect)?;
    let first = connect(&endpoint, &config.addr, clock::now() + config.connect).await?;
    let server = server_info(first.clone(), &config.addr, config.connect).await?;
    let pictures = match folder {
        Some(pictures) => pictures,
        None => drawn_pictures(config).await?,
    };
    let mut channels = vec![first];
    channels.extend(connect_rest(&endpoint, config).await?);
    let schedule = Schedule::new(config.cameras, config.fps, config.warmup, config.measured)
        .with_phases(config.phases);
    let start = clock::now() + START_LEAD;
    let fleet = Arc::new(Fleet {
        schedule,
        pacer: Pacer::start(schedule, start).map_err(SimError::Runtime)?,
        pictures,
        start,
        start_unix_us: clock::unix_micros().saturating_add_unsigned(clock::micros(START_LEAD)),
        budget_ms: config.budget_ms,
        drain: config.drain,
        slo_max: config.slo_max,
        live: Live::default(),
    });
    let (stop, stopped) = watch::channel(false);
    let mut cameras = JoinSet::new();
    for (index, channel) in (0..).zip(channels) {
        let camera = camera::run(fleet.clone(), index, channel, stopped.clone());
        cameras.spawn(async move { (index, camera.await) });
    }
    let progress = (!config.quiet).then(|| tokio::spawn(progress::show(fleet.clone())));

    let collected = collect(&mut cameras, interrupt, &stop, fleet.start).await;
    if let Some(progress) = progress {
        progress.abort();
        // Waiting for the abort lets the bar clear itself before the table is printed.
        let _ = progress.await;
    }
    let (mut records, interrupted_after) = collected?;
    records.sort_by_key(|(index, _)| *index);
    let results: Vec<CameraResult> = records
        .into_iter()
        .map(|(_, (record, end))| record.finish(end, interrupted_after))
        .collect();
    Ok(Report::new(RunFacts {
        config,
        schedule,
        pictures: &fleet.pictures,
        server,
        interrupted_after,
        cameras: results,
    }))
}

type Collected = (Vec<(u32, (CameraRecord, StreamEnd))>, Option<Duration>);

/// Waits for all cameras; tells them to stop when `interrupt` ends, and returns when that was.
async fn collect(
    cameras: &mut JoinSet<(u32, (CameraRecord, StreamEnd))>,
    interrupt: impl Future<Output = ()>,
    stop: &watch::Sender<bool>,
    start: Instant,
) -> Result<Collected, SimError> {
    let mut records = Vec::with_capacity(cameras.len());
    let mut interrupted_after = None;
    tokio::pin!(interrupt);
    loop {
        tokio::select! {
            joined = cameras.join_next() => match joined {
                Some(joined) => records.push(joined?),
                None => return Ok((records, interrupted_after)),
            },
            () = &mut interrupt, if interrupted_after.is_none() => {
                interrupted_after = Some(clock::now().saturating_duration_since(start));
                stop.send_replace(true);
            }
        }
    }
}

/// The built-in pictures. The runtime goes on meanwhile, so that open connections stay alive.
async fn drawn_pictures(config: &RunConfig) -> Result<PictureSet, SimError> {
    let size = config.size;
    if !config.quiet && u64::from(size.width) * u64::from(size.height) >= LONG_DRAWING_PIXELS {
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

/// The other cameras' connections; each has its own.
async fn connect_rest(endpoint: &Endpoint, config: &RunConfig) -> Result<Vec<Channel>, SimError> {
    let at_once = Arc::new(Semaphore::new(CONNECTING_AT_ONCE));
    let mut connecting = JoinSet::new();
    for _ in 1..config.cameras {
        let task =
            connect_one(at_once.clone(), endpoint.clone(), config.addr.clone(), config.connect);
        connecting.spawn(task);
    }
    let mut channels = Vec::with_capacity(connecting.len());
    while let Some(joined) = connecting.join_next().await {
        channels.push(joined??);
    }
    Ok(channels)
}

async fn connect_one(
    at_once: Arc<Semaphore>,
    endpoint: Endpoint,
    addr: ServerAddr,
    patience: Duration,
) -> Result<Channel, SimError> {
    // The semaphore is never closed, so a permit always comes.
    let _permit = at_once.acquire().await.ok();
    connect(&endpoint, &addr, clock::now() + patience).await
}
