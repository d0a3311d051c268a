//! Network output to objects: decode the layout, threshold, NMS, map back, clip.

pub mod layout;
pub mod nms;

use vedette_proto::camera_ai::{BoundingBox, Object};

use crate::{
    letterbox::{BoxF, Letterbox},
    postprocess::{
        layout::{Family, OutputShape},
        nms::NmsMode,
    },
};

/// A scored box in pixels of the network's input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The box.
    pub bbox: BoxF,
    /// 0.0 to 1.0.
    pub score: f32,
    /// Index into the labels.
    pub class: u32,
}

/// What is reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DetectOptions {
    /// Lowest score, 0.0 to 1.0.
    pub confidence: f32,
    /// Overlap (IoU) above which the weaker box is dropped, 0.0 to 1.0.
    pub iou: f32,
    /// Whether boxes of different classes suppress each other.
    pub nms: NmsMode,
    /// Most objects per picture, strongest first.
    pub max_detections: usize,
}

/// A detected object, in pixels of the upright picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Detection {
    /// The box, inside the picture.
    pub bbox: BoundingBox,
    /// 0.0 to 1.0.
    pub score: f32,
    /// Index into the labels.
    pub class: u32,
}

impl Detection {
    /// The object as it is reported.
    #[must_use]
    pub fn to_object(self, labels: &[String]) -> Object {
        Object {
            label: labels.get(self.class as usize).cloned().unwrap_or_default(),
            confidence: self.score,
            bbox: Some(self.bbox),
            class_id: self.class,
        }
    }
}

/// Turns outputs into detections, reusing its buffers. One per worker.
#[derive(Debug, Default)]
pub struct Postprocessor {
    candidates: Vec<Candidate>,
    kept: Vec<Candidate>,
    detections: Vec<Detection>,
}

impl Postprocessor {
    /// Detections in one picture, strongest first, clipped to it.
    ///
    /// `output` is one picture's part of the network's output, `shape.anchors * shape.attributes`
    /// values.
    pub fn run(
        &mut self,
        family: &Family,
        shape: OutputShape,
        output: &[f32],
        letterbox: &Letterbox,
        options: &DetectOptions,
    ) -> &[Detection] {
        self.candidates.clear();
        layout::candidates(
            family,
            shape,
            output,
            letterbox.input,
            options.confidence,
            &mut self.candidates,
        );
        nms::suppress(&mut self.candidates, options, &mut self.kept);
        self.detections.clear();
        self.detections.extend(self.kept.iter().filter_map(|candidate| {
            let bbox = clip(letterbox.to_source(candidate.bbox), letterbox.source)?;
            Some(Detection { bbox, score: candidate.score, class: candidate.class })
        }));
        &self.detections
    }
}

/// Cuts a box to the picture and rounds its edges to whole pixels, at least one pixel wide and high.
/// `None` for a box that lies wholly outside.
fn clip(bbox: BoxF, picture: (u32, u32)) -> Option<BoundingBox> {
    let (x, width) = clip_axis(bbox.x1, bbox.x2, picture.0)?;
    let (y, height) = clip_axis(bbox.y1, bbox.y2, picture.1)?;
    Some(BoundingBox { x, y, width, height })
}

fn clip_axis(low: f32, high: f32, length: u32) -> Option<(i32, i32)> {
    let limit = length as f32;
    // Written so that a NaN is "outside".
    if !(low < limit && high > 0.0) {
        return None;
    }
    let length = length as i32;
    let start = (low.max(0.0).round() as i32).min(length - 1);
    let end = (high.min(limit).round() as i32).clamp(start + 1, length);
    Some((start, end - start))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn boxes_are_cut_to_the_picture() {
        let cut = |x1, y1, x2, y2| clip(BoxF { x1, y1, x2, y2 }, (100, 50));
        let is = |x, y, width, height| Some(BoundingBox { x, y, width, height });
        assert_eq!(cut(10.2, 5.6, 20.4, 9.5), is(10, 6, 10, 4));
        assert_eq!(cut(-330.0, -510.0, 1200.0, 1200.0), is(0, 0, 100, 50));
        assert_eq!(cut(99.8, 49.9, 130.0, 60.0), is(99, 49, 1, 1));
        assert_eq!(cut(100.0, 0.0, 130.0, 10.0), None);
        assert_eq!(cut(-30.0, 0.0, 0.0, 10.0), None);
        assert_eq!(cut(f32::NAN, 0.0, 10.0, 10.0), None);
        assert_eq!(cut(7.0, 7.0, 7.0, 7.0), is(7, 7, 1, 1));
    }

    proptest! {
        #[test]
        fn clipped_boxes_lie_inside(
            edges in proptest::array::uniform4(any::<f32>()),
            size in (1..5000_u32, 1..5000_u32),
        ) {
            let [x1, y1, x2, y2] = edges;
            if let Some(b) = clip(BoxF { x1, y1, x2, y2 }, size) {
                prop_assert!(b.x >= 0 && b.y >= 0 && b.width >= 1 && b.height >= 1);
                prop_assert!(b.x + b.width <= size.0 as i32 && b.y + b.height <= size.1 as i32);
            }
        }
    }
}
