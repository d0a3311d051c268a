//! The stages one by one, ours and the code one writes first in turn, timed by `criterion`.
//!
//! Criterion runs one function to its end before the next, which on a drifting machine would put the
//! drift into the ratio. So every trial is a run of ours, one of the obvious code and another of ours,
//! each short, and the ratio is formed within the trial; the medians that criterion estimates are read
//! from its files. Its own report, on standard output while it runs, shows their spread.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use client_sim::source::PictureSet;
use criterion::{Criterion, SamplingMode};
use serde_json::Value;

use crate::{
    apart,
    ceiling::SIZES,
    context::{Context, Findings},
    error::{BenchError, failed, io_error},
    obvious::Obvious,
    ours::{Net, Ours, Pipeline, Stage},
    report::{Cell, Table},
};

/// Length of each run, in seconds.
const SECONDS: f64 = 1.0;

/// Warm-up of each run, as a share of its length.
const WARMUP_SHARE: f64 = 0.2;

/// Samples of each run: criterion's fewest, since the slowest stage takes 20 ms or more.
const SAMPLES: usize = 10;

/// Resamples of criterion's bootstrap: its default takes longer than the measurement.
const RESAMPLES: usize = 2000;

/// One comparison's times, an entry per trial, in microseconds.
#[derive(Default)]
struct Compared {
    ours: Vec<f64>,
    obvious: Vec<f64>,
}

/// Where and how long to measure.
#[derive(Clone)]
struct Plan {
    folder: PathBuf,
    length: Duration,
    trials: u64,
}

/// Runs the bench.
///
/// # Errors
/// When it cannot run.
pub async fn run(ctx: &Context) -> Result<Findings, BenchError> {
    ctx.say("loading the model");
    let capacity = ctx.capacity().await?;
    let plan =
        Plan { folder: ctx.file("-criterion"), length: ctx.length(SECONDS), trials: ctx.trials() };
    // Criterion would compare with what it finds there.
    let _ = fs::remove_dir_all(&plan.folder);
    let mut table = Table::new(
        "Microseconds per picture, one thread",
        &["stage", "picture", "ours", "obvious", "obvious / ours"],
    );
    let mut pictures = Vec::new();
    for (size, _) in SIZES {
        pictures.push((format!("{}x{}", size.0, size.1), typical(&ctx.pictures(size).await?)));
    }
    for stage in Stage::ALL {
        for (name, picture) in &pictures {
            ctx.say(format_args!("{}, {name}", stage.name()));
            let (plan, capacity) = (plan.clone(), capacity.clone());
            let (of, picture) = (name.clone(), picture.clone());
            let compared = apart::run("stages", move || {
                capacity
                    .with_net(|net| compare(net, stage, &picture, &of, &plan))
                    .unwrap_or_else(|| Err(failed("stages")("no network")))
            })
            .await??;
            let Compared { ours, obvious } = compared;
            let ratios: Vec<f64> = obvious.iter().zip(&ours).map(|(b, a)| b / a).collect();
            table.rows.push(vec![
                stage.name().into(),
                name.as_str().into(),
                Cell::trials(ours, 0),
                Cell::trials(obvious, 0),
                Cell::trials(ratios, 2),
            ]);
        }
    }
    Ok(Findings { reading: vec![reading(ctx)], tables: vec![table], marks: Vec::new() })
}

/// The picture whose file is of middle size.
fn typical(pictures: &PictureSet) -> Bytes {
    let mut by_size: Vec<&Bytes> = pictures.pictures().iter().map(|p| &p.bytes).collect();
    by_size.sort_by_key(|bytes| bytes.len());
    by_size[by_size.len() / 2].clone()
}

fn compare(
    net: &mut Net,
    stage: Stage,
    picture: &Bytes,
    size: &str,
    plan: &Plan,
) -> Result<Compared, BenchError> {
    let mut criterion = Criterion::default()
        .output_directory(&plan.folder)
        .without_plots()
        .sample_size(SAMPLES)
        .nresamples(RESAMPLES)
        .warm_up_time(plan.length.mul_f64(WARMUP_SHARE))
        .measurement_time(plan.length);
    let (mut ours, mut obvious) = (Ours::default(), Obvious);
    let mut compared = Compared::default();
    for trial in 1..=plan.trials {
        let mut time = |pipeline: &mut dyn Staged, name: &str| {
            let group_name = format!("{}-{size}-{trial}", stage.name());
            let mut group = criterion.benchmark_group(&group_name);
            group.sampling_mode(SamplingMode::Flat);
            pipeline.staged(net, stage, picture, &mut |run| {
                group.bench_function(name, |bencher| bencher.iter(&mut *run));
            })?;
            group.finish();
            median_us(&plan.folder.join(group_name).join(name))
        };
        let before = time(&mut ours, "ours-before")?;
        compared.obvious.push(time(&mut obvious, "obvious")?);
        compared.ours.push(f64::midpoint(before, time(&mut ours, "ours-after")?));
    }
    Ok(compared)
}

/// [`Pipeline::stage`] of either pipeline.
trait Staged {
    fn staged(
        &mut self,
        net: &mut Net,
        stage: Stage,
        data: &Bytes,
        timer: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<(), BenchError>;
}

impl<P: Pipeline> Staged for P {
    fn staged(
        &mut self,
        net: &mut Net,
        stage: Stage,
        data: &Bytes,
        timer: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<(), BenchError> {
        self.stage(net, stage, data, timer)
    }
}

/// Criterion's estimate of the median, in microseconds.
fn median_us(folder: &Path) -> Result<f64, BenchError> {
    let path = folder.join("new").join("estimates.json");
    let text = fs::read_to_string(&path).map_err(io_error(path.display().to_string()))?;
    let estimates: Value = serde_json::from_str(&text).map_err(failed("criterion's estimates"))?;
    estimates
        .pointer("/median/point_estimate")
        .and_then(Value::as_f64)
        .map(|nanoseconds| nanoseconds / 1e3)
        .ok_or_else(|| failed("criterion's estimates")("no median"))
}

fn reading(ctx: &Context) -> String {
    format!(
        "Each stage by itself on one thread, on the picture of middle file size, timed by criterion: \
         ours, obvious, ours again, and the ratio of the obvious code's median to the mean of ours. \
         Decode: `image` to RGB, against ours to the scale that the network needs. Preprocess: \
         `imageops::resize` and loops into a square input, against one fused pass into the smallest \
         rectangle. Infer: the same network on the square, against the rectangle. Postprocess: lists of \
         anchors, against ours. Pictures: {}.",
        ctx.describe_pictures()
    )
}
