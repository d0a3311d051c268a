//! The ceiling: picture file to boxes on every core, ours and the obvious pipeline in turn.

use crate::{
    capacity::Kind,
    context::{Context, Findings},
    error::BenchError,
    report::{Cell, Mark, Table},
};

/// Picture sizes (width, height in pixels) with the ratio that is promised at each.
pub const SIZES: [((u32, u32), f64); 3] =
    [((640, 480), 1.7), ((1280, 720), 2.3), ((1920, 1080), 2.5)];

/// Frames per second at 640x480 that two cores of the reference machine reach in a good hour.
const USUAL_L: f64 = 200.0;

/// Length of each run of a pipeline, in seconds.
const SECONDS: f64 = 5.0;

/// Runs the bench.
///
/// # Errors
/// When it cannot run.
pub async fn run(ctx: &Context) -> Result<Findings, BenchError> {
    ctx.say("loading the model");
    let capacity = ctx.capacity().await?;
    let length = ctx.length(SECONDS);
    let mut table = Table::new(
        "Frames per second, all cores, picture file to boxes",
        &["picture", "ours (L)", "obvious", "ours / obvious", "boxes per frame, ours", "obvious"],
    );
    let mut marks = Vec::new();
    for (size, promised) in SIZES {
        let name = format!("{}x{}", size.0, size.1);
        let pictures = ctx.pictures(size).await?;
        let (mut ours, mut obvious, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let (mut our_boxes, mut obvious_boxes) = (Vec::new(), Vec::new());
        for trial in 1..=ctx.trials() {
            ctx.say(format_args!("{name}, trial {trial} of {}", ctx.trials()));
            let before = capacity.throughput(Kind::Ours, &pictures, length).await?;
            let other = capacity.throughput(Kind::Obvious, &pictures, length).await?;
            let after = capacity.throughput(Kind::Ours, &pictures, length).await?;
            let mean = f64::midpoint(before.fps, after.fps);
            ours.push(mean);
            obvious.push(other.fps);
            ratios.push(mean / other.fps);
            our_boxes.push(after.boxes);
            obvious_boxes.push(other.boxes);
        }
        marks.push(Mark::at_least(&format!("{name}: ours / obvious"), promised, &ratios, 2));
        if size == SIZES[0].0 {
            let usual = Mark::at_least(&format!("{name}: L, frames/s"), USUAL_L, &ours, 0);
            marks.push(usual.for_information());
        }
        table.rows.push(vec![
            name.into(),
            Cell::trials(ours, 1),
            Cell::trials(obvious, 1),
            Cell::trials(ratios, 2),
            Cell::trials(our_boxes.first().copied(), 2),
            Cell::trials(obvious_boxes.first().copied(), 2),
        ]);
    }
    Ok(Findings { reading: reading(ctx), tables: vec![table], marks })
}

fn reading(ctx: &Context) -> Vec<String> {
    vec![
        format!(
            "A loop on one thread per core, each with its own session of the same network: decode, \
             preprocess, infer, postprocess, no gRPC. Each value of ours is the mean of a run right \
             before and one right after the obvious pipeline's. Pictures: {}.",
            ctx.describe_pictures()
        ),
        "The obvious pipeline: `image` decodes, `imageops::resize` (Triangle) scales, loops fill a \
         square 416x416 input; the session and the postprocessing are ours. Boxes per frame show that \
         both see the same things; they differ a little because the inputs do. L depends on the \
         machine alone and is not judged."
            .to_owned(),
    ]
}
