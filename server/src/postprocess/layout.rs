//! Model families as data: how a family wants its input and how its output is laid out.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Candidate;
use crate::{
    letterbox::{Align, BoxF},
    preprocess::ChannelOrder,
};

/// Name of a family on the command line and in a model's `vedette.layout` metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum FamilyName {
    /// YOLOX: BGR 0..255, picture top left, rows of x y w h objectness classes as grid offsets.
    Yolox,
    /// YOLOv8 and later Ultralytics exports: RGB 0..1, picture centred, columns of x y w h classes
    /// in pixels.
    Yolov8,
}

impl fmt::Display for FamilyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yolox => "yolox",
            Self::Yolov8 => "yolov8",
        })
    }
}

/// How values are ordered in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// `anchors x attributes`: an anchor's values lie together.
    AnchorRows,
    /// `attributes x anchors`: an attribute's values lie together.
    AttributeRows,
}

/// What the first four attributes mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Boxes {
    /// Centre and size in pixels of the input.
    Pixels,
    /// Centre as an offset from the anchor's cell and logarithm of the size, both in strides; cells in
    /// row-major order, one grid per stride (Ge et al., "YOLOX: Exceeding YOLO Series in 2021").
    Grid(&'static [u32]),
}

/// A family of networks.
#[derive(Debug)]
pub struct Family {
    /// Its name.
    pub name: FamilyName,
    /// Order of the input planes.
    pub order: ChannelOrder,
    /// Factor from 0..=255 to the network's range.
    pub scale: f32,
    /// Level of the padding, 0..=255.
    pub pad: f32,
    /// Where the picture lies in the input.
    pub align: Align,
    /// Input sizes must be multiples of this many pixels.
    pub stride: u32,
    /// Input size when neither the model nor the user names one, in pixels.
    pub default_size: u32,
    output: Order,
    boxes: Boxes,
    objectness: bool,
}

const YOLOX: Family = Family {
    name: FamilyName::Yolox,
    order: ChannelOrder::Bgr,
    scale: 1.0,
    pad: 114.0,
    align: Align::TopLeft,
    stride: 32,
    default_size: 416,
    output: Order::AnchorRows,
    boxes: Boxes::Grid(&[8, 16, 32]),
    objectness: true,
};

const YOLOV8: Family = Family {
    name: FamilyName::Yolov8,
    order: ChannelOrder::Rgb,
    scale: 1.0 / 255.0,
    pad: 114.0,
    align: Align::Centre,
    stride: 32,
    default_size: 640,
    output: Order::AttributeRows,
    boxes: Boxes::Pixels,
    objectness: false,
};

/// Shape of one picture's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputShape {
    /// Boxes.
    pub anchors: usize,
    /// Values per box.
    pub attributes: usize,
}

impl OutputShape {
    /// Values of one picture.
    #[must_use]
    pub fn values(self) -> usize {
        self.anchors * self.attributes
    }
}

impl Family {
    /// The family of this name.
    #[must_use]
    pub fn get(name: FamilyName) -> &'static Self {
        match name {
            FamilyName::Yolox => &YOLOX,
            FamilyName::Yolov8 => &YOLOV8,
        }
    }

    /// Values in front of the class scores.
    fn header(&self) -> usize {
        4 + usize::from(self.objectness)
    }

    /// Classes that an output of this shape scores; `None` when it cannot be this family's.
    #[must_use]
    pub fn classes(&self, shape: OutputShape) -> Option<usize> {
        shape.attributes.checked_sub(self.header()).filter(|&classes| classes > 0)
    }

    /// Reads an output's dimensions (batch, then two more) for an input of `input` pixels; `None` when
    /// they cannot be this family's.
    #[must_use]
    pub fn shape(&self, dims: &[i64], input: (u32, u32)) -> Option<OutputShape> {
        let &[_, first, second] = dims else {
            return None;
        };
        let (first, second) = (usize::try_from(first).ok()?, usize::try_from(second).ok()?);
        let (anchors, attributes) = match self.output {
            Order::AnchorRows => (first, second),
            Order::AttributeRows => (second, first),
        };
        let fits = match self.boxes {
            Boxes::Grid(strides) => anchors == count_cells(strides, input),
            Boxes::Pixels => anchors > 0,
        };
        let shape = OutputShape { anchors, attributes };
        // A model may declare anything.
        let countable = anchors.checked_mul(attributes).is_some();
        (fits && countable && self.classes(shape).is_some()).then_some(shape)
    }

    /// Whether an output of this shape is likely to be read right: a network has more anchors than
    /// values per anchor, and an output read the wrong way round has not.
    #[must_use]
    pub fn is_plausible(&self, shape: OutputShape) -> bool {
        shape.anchors > shape.attributes
    }

    /// Guesses the family by an output's dimensions: YOLOX when the number of anchors is that of its
    /// grids, else YOLOv8 when there are more anchors than values per anchor.
    #[must_use]
    pub fn guess(dims: &[i64], input: (u32, u32)) -> Option<&'static Self> {
        if YOLOX.shape(dims, input).is_some() {
            return Some(&YOLOX);
        }
        YOLOV8.shape(dims, input).filter(|shape| YOLOV8.is_plausible(*shape)).map(|_| &YOLOV8)
    }
}

fn count_cells(strides: &[u32], (width, height): (u32, u32)) -> usize {
    strides.iter().map(|stride| (width / stride) as usize * (height / stride) as usize).sum()
}

/// Appends every box whose best class scores at least `threshold`. Boxes and scores that are not
/// finite are skipped.
pub fn candidates(
    family: &Family,
    shape: OutputShape,
    output: &[f32],
    input: (u32, u32),
    threshold: f32,
    out: &mut Vec<Candidate>,
) {
    let scan = Scan { family, shape, output, threshold };
    match family.boxes {
        Boxes::Grid(strides) => scan.run(grid_cells(strides, input).map(Some), out),
        Boxes::Pixels => scan.run(std::iter::repeat(None), out),
    }
}

/// One picture's output, about to be looked through.
struct Scan<'a> {
    family: &'a Family,
    shape: OutputShape,
    output: &'a [f32],
    threshold: f32,
}

impl Scan<'_> {
    /// Looks at every anchor, whose cells come in turn.
    fn run(&self, cells: impl Iterator<Item = Option<Cell>>, out: &mut Vec<Candidate>) {
        let OutputShape { anchors, attributes } = self.shape;
        let (anchor_step, attribute_step) = match self.family.output {
            Order::AnchorRows => (attributes, 1),
            Order::AttributeRows => (1, anchors),
        };
        for (anchor, cell) in (0..anchors).zip(cells) {
            let at = |attribute| self.output[anchor * anchor_step + attribute * attribute_step];
            let objectness = if self.family.objectness { at(4) } else { 1.0 };
            // No class can lift a score above its objectness, and most anchors see nothing.
            if objectness.is_nan() || objectness < self.threshold {
                continue;
            }
            let scores = (self.family.header()..attributes).map(at);
            let Some((class, score)) = best_class(scores) else { continue };
            let score = score * objectness;
            if score < self.threshold {
                continue;
            }
            let bbox = decode_box([0, 1, 2, 3].map(at), cell);
            let finite = [score, bbox.x1, bbox.y1, bbox.x2, bbox.y2].iter().all(|v| v.is_finite());
            if finite {
                out.push(Candidate { bbox, score: score.min(1.0), class: class as u32 });
            }
        }
    }
}

/// The best class and its score; NaN never wins.
fn best_class(scores: impl Iterator<Item = f32>) -> Option<(usize, f32)> {
    scores
        .enumerate()
        .filter(|(_, score)| score.is_finite())
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
}

/// An anchor's cell: column, row and stride in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    x: f32,
    y: f32,
    stride: f32,
}

/// The cell of each anchor in turn: stride by stride, each grid row by row.
fn grid_cells(strides: &'static [u32], (width, height): (u32, u32)) -> impl Iterator<Item = Cell> {
    strides.iter().flat_map(move |&stride| {
        (0..height / stride).flat_map(move |y| {
            (0..width / stride).map(move |x| Cell {
                x: x as f32,
                y: y as f32,
                stride: stride as f32,
            })
        })
    })
}

/// Centre and size to edges, in pixels of the input.
fn decode_box([cx, cy, w, h]: [f32; 4], cell: Option<Cell>) -> BoxF {
    let (cx, cy, w, h) = match cell {
        None => (cx, cy, w, h),
        Some(Cell { x, y, stride }) => {
            ((cx + x) * stride, (cy + y) * stride, w.exp() * stride, h.exp() * stride)
        }
    };
    BoxF { x1: cx - w / 2.0, y1: cy - h / 2.0, x2: cx + w / 2.0, y2: cy + h / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_told_apart_by_shape() {
        let guess = |dims: &[i64], input| Family::guess(dims, input).map(|family| family.name);
        assert_eq!(guess(&[1, 3549, 85], (416, 416)), Some(FamilyName::Yolox));
        assert_eq!(guess(&[1, 2184, 85], (416, 256)), Some(FamilyName::Yolox));
        assert_eq!(guess(&[1, 84, 8400], (640, 640)), Some(FamilyName::Yolov8));
        assert_eq!(guess(&[4, 7, 1024], (640, 640)), Some(FamilyName::Yolov8));
        assert_eq!(guess(&[1, 3549, 85], (640, 640)), None, "neither its grids nor columns");
        assert_eq!(guess(&[1, 1000], (224, 224)), None, "a classifier");
        assert_eq!(guess(&[1, 4, 1024], (640, 640)), None, "no classes");
        assert_eq!(
            guess(&[1, 1 << 32, 1 << 33], (640, 640)),
            None,
            "more values than can be counted"
        );
        assert_eq!(guess(&[-1, i64::MIN, i64::MAX], (u32::MAX, u32::MAX)), None);
    }

    fn find(family: &Family, dims: &[i64], input: (u32, u32), output: &[f32]) -> Vec<Candidate> {
        let shape = family.shape(dims, input).expect("shape");
        let mut out = Vec::new();
        candidates(family, shape, output, input, 0.5, &mut out);
        out
    }

    #[test]
    fn yolox_grid_offsets_by_hand() {
        // 32x64 input: 4x8 cells of 8, 2x4 of 16, 1x2 of 32; two classes.
        let input = (32, 64);
        let mut output = vec![0.0; 42 * 7];
        // Second cell of the last grid: column 0, row 1, stride 32.
        output[41 * 7..].copy_from_slice(&[0.5, -0.25, 0.0, 2.0_f32.ln(), 0.9, 0.2, 0.8]);
        // First cell of the second grid, below the threshold once multiplied.
        output[32 * 7..33 * 7].copy_from_slice(&[0.0, 0.0, 0.0, 0.0, 0.6, 0.8, 0.1]);
        let found = find(&YOLOX, &[1, 42, 7], input, &output);
        assert_eq!(found.len(), 1);
        let Candidate { bbox, score, class } = found[0];
        assert_eq!(class, 1);
        assert!((score - 0.72).abs() < 1e-6);
        // Centre (16, 24), size 32 x 64.
        for (got, want) in [bbox.x1, bbox.y1, bbox.x2, bbox.y2].iter().zip([0.0, -8.0, 32.0, 56.0])
        {
            assert!((got - want).abs() < 1e-4, "{bbox:?}");
        }
    }

    #[test]
    fn yolov8_columns_by_hand() {
        // 5 anchors, 3 classes; anchor 3 holds a box of class 2.
        let mut output = vec![0.0; 7 * 5];
        for (attribute, value) in [(0, 50.0), (1, 40.0), (2, 20.0), (3, 10.0), (6, 0.75)] {
            output[attribute * 5 + 3] = value;
        }
        let found = find(&YOLOV8, &[1, 7, 5], (64, 64), &output);
        let bbox = BoxF { x1: 40.0, y1: 35.0, x2: 60.0, y2: 45.0 };
        assert_eq!(found, [Candidate { bbox, score: 0.75, class: 2 }]);
    }

    #[test]
    fn values_that_are_not_finite_are_skipped() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for attribute in 0..7 {
                let mut output = vec![0.0; 7 * 5];
                for (row, value) in [(0, 50.0), (1, 40.0), (2, 20.0), (3, 10.0), (6, 0.75)] {
                    output[row * 5] = value;
                }
                output[attribute * 5] = bad;
                let found = find(&YOLOV8, &[1, 7, 5], (64, 64), &output);
                let survives = attribute == 4 || attribute == 5;
                assert_eq!(found.len(), usize::from(survives), "{bad} at {attribute}");
            }
        }
        for bad in [f32::NAN, f32::INFINITY] {
            let output = vec![bad; 42 * 7];
            assert_eq!(find(&YOLOX, &[1, 42, 7], (32, 64), &output), []);
            let mut output = vec![0.5; 42 * 7];
            output[4] = bad;
            assert_eq!(find(&YOLOX, &[1, 42, 7], (32, 64), &output), [], "objectness {bad}");
        }
    }
}
