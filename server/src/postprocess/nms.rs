//! Greedy non-maximum suppression.

use serde::{Deserialize, Serialize};

use super::{Candidate, DetectOptions};
use crate::{letterbox::BoxF, limits::NMS_MAX_CANDIDATES};

/// Which boxes may suppress each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum NmsMode {
    /// Only boxes of the same class.
    ClassAware,
    /// Any two boxes.
    Agnostic,
}

/// Intersection over union, 0.0 to 1.0. Disjoint, empty and inverted boxes overlap nothing.
#[must_use]
pub fn iou(a: BoxF, b: BoxF) -> f32 {
    let width = a.x2.min(b.x2) - a.x1.max(b.x1);
    let height = a.y2.min(b.y2) - a.y1.max(b.y1);
    // Both clamped before they are multiplied: two negative overlaps would make a positive area.
    let intersection = width.max(0.0) * height.max(0.0);
    let area = |r: BoxF| (r.x2 - r.x1).max(0.0) * (r.y2 - r.y1).max(0.0);
    let union = area(a) + area(b) - intersection;
    if union > 0.0 { intersection / union } else { 0.0 }
}

/// Keeps the strongest boxes: each candidate, from strong to weak, stays unless it overlaps a kept
/// one by more than `options.iou`. Sorts `candidates`; `kept` is overwritten.
pub fn suppress(
    candidates: &mut Vec<Candidate>,
    options: &DetectOptions,
    kept: &mut Vec<Candidate>,
) {
    kept.clear();
    // Ties in the order of the boxes' edges, so that the result does not depend on the sort.
    let edges = |c: &Candidate| [c.bbox.x1, c.bbox.y1, c.bbox.x2, c.bbox.y2].map(f32::to_bits);
    candidates.sort_unstable_by(|a, b| {
        b.score.total_cmp(&a.score).then_with(|| (a.class, edges(a)).cmp(&(b.class, edges(b))))
    });
    candidates.truncate(NMS_MAX_CANDIDATES);
    for candidate in candidates.iter() {
        if kept.len() == options.max_detections {
            break;
        }
        let suppressed = kept.iter().any(|k| {
            (options.nms == NmsMode::Agnostic || k.class == candidate.class)
                && iou(k.bbox, candidate.bbox) > options.iou
        });
        if !suppressed {
            kept.push(*candidate);
        }
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these results are exact")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rect(x1: f32, y1: f32, x2: f32, y2: f32) -> BoxF {
        BoxF { x1, y1, x2, y2 }
    }

    fn options(iou: f32, nms: NmsMode) -> DetectOptions {
        DetectOptions { confidence: 0.0, iou, nms, max_detections: 100 }
    }

    #[test]
    fn overlap_by_hand() {
        let a = rect(0.0, 0.0, 2.0, 2.0);
        assert_eq!(iou(a, a), 1.0);
        assert!((iou(a, rect(1.0, 0.0, 3.0, 2.0)) - 1.0 / 3.0).abs() < 1e-6);
        assert_eq!(iou(a, rect(5.0, 5.0, 6.0, 6.0)), 0.0, "apart on both axes");
        assert_eq!(iou(a, rect(2.0, 0.0, 4.0, 2.0)), 0.0, "touching");
        assert_eq!(iou(rect(1.0, 1.0, 1.0, 1.0), rect(1.0, 1.0, 1.0, 1.0)), 0.0, "empty");
    }

    #[test]
    fn classes_suppress_each_other_only_when_asked() {
        let bbox = rect(0.0, 0.0, 10.0, 10.0);
        let all =
            [(0.9, 0), (0.8, 1), (0.7, 0)].map(|(score, class)| Candidate { bbox, score, class });
        let mut kept = Vec::new();
        suppress(&mut all.to_vec(), &options(0.5, NmsMode::ClassAware), &mut kept);
        assert_eq!(kept, all[..2]);
        suppress(&mut all.to_vec(), &options(0.5, NmsMode::Agnostic), &mut kept);
        assert_eq!(kept, all[..1]);
    }

    fn any_rect() -> impl Strategy<Value = BoxF> {
        (0..50_i32, 0..50_i32, 0..30_i32, 0..30_i32)
            .prop_map(|(x, y, w, h)| rect(x as f32, y as f32, (x + w) as f32, (y + h) as f32))
    }

    fn any_candidate() -> impl Strategy<Value = Candidate> {
        (any_rect(), 0.0..1.0_f32, 0..3_u32).prop_map(|(bbox, score, class)| Candidate {
            bbox,
            score,
            class,
        })
    }

    proptest! {
        #[test]
        fn iou_is_symmetric_and_counts_pixels(a in any_rect(), b in any_rect()) {
            let count = |inside: &dyn Fn(f32, f32) -> bool| {
                let cells = (0..80).flat_map(|y| (0..80).map(move |x| (x as f32 + 0.5, y as f32 + 0.5)));
                cells.filter(|&(x, y)| inside(x, y)).count() as f32
            };
            let within = |r: BoxF, x: f32, y: f32| r.x1 < x && x < r.x2 && r.y1 < y && y < r.y2;
            let both = count(&|x, y| within(a, x, y) && within(b, x, y));
            let either = count(&|x, y| within(a, x, y) || within(b, x, y));
            let want = if either > 0.0 { both / either } else { 0.0 };
            prop_assert!((iou(a, b) - want).abs() < 1e-5);
            prop_assert_eq!(iou(a, b), iou(b, a));
        }

        #[test]
        fn kept_boxes_are_apart_and_dropped_ones_are_covered(
            all in proptest::collection::vec(any_candidate(), 0..60),
            threshold in 0.1..0.9_f32,
        ) {
            let options = options(threshold, NmsMode::ClassAware);
            let mut kept = Vec::new();
            suppress(&mut all.clone(), &options, &mut kept);
            let rivals = |a: &Candidate, b: &Candidate| a.class == b.class && iou(a.bbox, b.bbox) > threshold;
            for (i, a) in kept.iter().enumerate() {
                prop_assert!(kept[i + 1..].iter().all(|b| !rivals(a, b) && a.score >= b.score));
            }
            for c in &all {
                prop_assert!(kept.contains(c) || kept.iter().any(|k| rivals(k, c) && k.score >= c.score));
            }
        }

        #[test]
        fn at_most_max_detections(
            all in proptest::collection::vec(any_candidate(), 0..60),
            most in 0..10_usize,
        ) {
            let options = DetectOptions { max_detections: most, ..options(0.5, NmsMode::ClassAware) };
            let mut kept = Vec::new();
            suppress(&mut all.clone(), &options, &mut kept);
            prop_assert!(kept.len() <= most);
        }
    }
}
