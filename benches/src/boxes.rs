//! Whether the quick way finds what the plain one finds: inputs that fit the picture and JPEGs decoded at
//! the scale that is needed, against the square input and every pixel.

use bytes::Bytes;
use vedette_server::{
    decode::JpegDecode,
    letterbox::BoxF,
    postprocess::{Detection, nms::iou},
};

use crate::{
    apart,
    ceiling::SIZES,
    context::{Context, Findings},
    error::{BenchError, failed},
    ours::{Net, Way, detections},
    report::{Cell, Mark, Table},
};

/// Score from which a detection of the reference must be found again.
const SURE: f32 = 0.5;

/// Overlap (IoU) from which two boxes of one class are the same object, as for mAP50.
const SAME_OBJECT: f32 = 0.5;

/// Share of the reference's sure detections that must be found.
const RECALL: f64 = 0.98;

/// The ways compared with the reference; the last is the server's default.
const WAYS: [(&str, Way); 3] = [
    ("square, scaled", Way { fitting: false, jpeg: JpegDecode::Scaled }),
    ("fitting, full", Way { fitting: true, jpeg: JpegDecode::Full }),
    ("fitting, scaled (default)", Way { fitting: true, jpeg: JpegDecode::Scaled }),
];

/// How well one way finds what another has found.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Agreement {
    /// Detections of the reference with a score of [`SURE`] or more.
    sure: usize,
    /// Those that the other way reports too.
    found: usize,
    /// Those to which it gives a score of [`SURE`] or more too.
    found_sure: usize,
    /// Sum of the overlaps (IoU) of those found.
    overlap: f64,
    /// Sum of the differences of their scores.
    score_difference: f64,
}

/// Runs the bench.
///
/// # Errors
/// When it cannot run.
pub async fn run(ctx: &Context) -> Result<Findings, BenchError> {
    ctx.say("loading the model");
    let capacity = ctx.capacity().await?;
    let mut sets = vec![("as they are".to_owned(), ctx.photographs().await?)];
    for (size, _) in SIZES {
        let frames = ctx.photographs_of(size).await?;
        sets.push((format!("{}x{}", size.0, size.1), frames));
    }
    let mut table = Table::new(
        "Sure detections (score >= 0.5) of the square input and full decoding, found again",
        &["pictures", "way", "sure", "found", "as sure", "recall", "mean IoU", "mean |score diff|"],
    );
    let mut totals = [Agreement::default(); WAYS.len()];
    for (name, frames) in sets {
        ctx.say(format_args!("{name}, {} pictures", frames.len()));
        let capacity = capacity.clone();
        let agreements = apart::run("boxes", move || {
            capacity
                .with_net(|net| compare(net, &frames))
                .unwrap_or_else(|| Err(failed("boxes")("no network")))
        })
        .await??;
        for ((total, agreement), (way, _)) in totals.iter_mut().zip(agreements).zip(WAYS) {
            total.add(agreement);
            table.rows.push(agreement.row(&name, way));
        }
    }
    for (total, (way, _)) in totals.iter().zip(WAYS) {
        table.rows.push(total.row("all", way));
    }
    let recall = totals.last().map_or(f64::NAN, Agreement::recall);
    let marks = vec![Mark::at_least("recall of the default way", RECALL, &[recall], 4)];
    Ok(Findings { reading: vec![reading(ctx)], tables: vec![table], marks })
}

fn compare(net: &mut Net, frames: &[Bytes]) -> Result<[Agreement; WAYS.len()], BenchError> {
    let mut agreements = [Agreement::default(); WAYS.len()];
    for frame in frames {
        let reference = detections(net, Way::REFERENCE, frame)?;
        for (agreement, (_, way)) in agreements.iter_mut().zip(WAYS) {
            agreement.add(Agreement::of(&reference, &detections(net, way, frame)?));
        }
    }
    Ok(agreements)
}

impl Agreement {
    /// Looks for each sure detection among `others`, strongest first; each of those is found once.
    fn of(reference: &[Detection], others: &[Detection]) -> Self {
        let mut agreement = Self::default();
        let mut rest = others.to_vec();
        for sure in reference.iter().filter(|detection| detection.score >= SURE) {
            agreement.sure += 1;
            let overlap = |other: &Detection| iou(edges(sure), edges(other));
            let best = (0..rest.len())
                .filter(|&i| rest[i].class == sure.class && overlap(&rest[i]) >= SAME_OBJECT)
                .max_by(|&a, &b| overlap(&rest[a]).total_cmp(&overlap(&rest[b])));
            let Some(best) = best else { continue };
            let found = rest.swap_remove(best);
            agreement.found += 1;
            agreement.found_sure += usize::from(found.score >= SURE);
            agreement.overlap += f64::from(overlap(&found));
            agreement.score_difference += f64::from((found.score - sure.score).abs());
        }
        agreement
    }

    fn add(&mut self, other: Self) {
        self.sure += other.sure;
        self.found += other.found;
        self.found_sure += other.found_sure;
        self.overlap += other.overlap;
        self.score_difference += other.score_difference;
    }

    fn recall(&self) -> f64 {
        self.found as f64 / self.sure as f64
    }

    fn row(&self, pictures: &str, way: &str) -> Vec<Cell> {
        let mean = |sum: f64| Cell::trials([sum / self.found as f64], 3);
        vec![
            pictures.into(),
            way.into(),
            self.sure.to_string().into(),
            self.found.to_string().into(),
            self.found_sure.to_string().into(),
            Cell::trials([self.recall()], 4),
            mean(self.overlap),
            mean(self.score_difference),
        ]
    }
}

fn edges(detection: &Detection) -> BoxF {
    let b = detection.bbox;
    BoxF { x1: b.x as f32, y1: b.y as f32, x2: (b.x + b.width) as f32, y2: (b.y + b.height) as f32 }
}

fn reading(ctx: &Context) -> String {
    format!(
        "Every detection with a score of 0.5 or more that the network makes on the square input from a \
         fully decoded picture is looked for among what it reports (score 0.25 and up) on each other \
         way: same class, IoU 0.5 or more. Pictures: {}, as they are and scaled to the usual sizes.",
        ctx.describe_photographs()
    )
}

#[cfg(test)]
mod tests {
    use vedette_proto::camera_ai::BoundingBox;

    use super::*;

    fn detection(x: i32, class: u32, score: f32) -> Detection {
        Detection { bbox: BoundingBox { x, y: 0, width: 10, height: 10 }, score, class }
    }

    #[test]
    fn a_detection_is_found_by_class_and_overlap_once() {
        let reference = [detection(0, 1, 0.9), detection(1, 1, 0.8), detection(50, 2, 0.4)];
        let others = [detection(0, 1, 0.45), detection(0, 2, 0.9), detection(50, 2, 0.9)];
        let agreement = Agreement::of(&reference, &others);
        assert_eq!((agreement.sure, agreement.found, agreement.found_sure), (2, 1, 0));
        assert!((agreement.overlap - 1.0).abs() < 1e-6);
        assert!((agreement.score_difference - 0.45).abs() < 1e-6);
        assert!((agreement.recall() - 0.5).abs() < 1e-9);
        let apart = Agreement::of(&reference, &[detection(9, 1, 0.9)]);
        assert_eq!(apart.found, 0);
    }
}
