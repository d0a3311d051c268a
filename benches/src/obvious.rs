//! The pipeline that one writes first: a picture library decodes and resizes, loops fill a square
//! input, loops read the output. What ours is compared with; the network's session is the same.

use bytes::Bytes;
use image::{
    RgbImage,
    imageops::{self, FilterType},
};
use vedette_server::{
    letterbox::{BoxF, Letterbox},
    preprocess::{ChannelOrder, InputSpec},
};

use crate::{
    error::{BenchError, failed},
    ours::{Net, Output, Pipeline, Stage},
};

/// The obvious pipeline. It keeps nothing from frame to frame.
#[derive(Debug, Default)]
pub struct Obvious;

impl Pipeline for Obvious {
    /// Postprocesses as the server does, so that the comparison of whole pipelines is one of what
    /// lies before.
    fn detect(&mut self, net: &mut Net, data: &Bytes) -> Result<usize, BenchError> {
        let rgb = decode(data)?;
        let letterbox = prepare(net, &rgb)?;
        Ok(net.infer(letterbox)?.boxes())
    }

    fn stage(
        &mut self,
        net: &mut Net,
        stage: Stage,
        data: &Bytes,
        timer: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<(), BenchError> {
        let rgb = decode(data)?;
        match stage {
            Stage::Decode => timer(&mut || {
                let _ = std::hint::black_box(decode(data));
            }),
            Stage::Preprocess => {
                prepare(net, &rgb)?;
                timer(&mut || {
                    let _ = std::hint::black_box(prepare(net, &rgb).is_ok());
                });
            }
            Stage::Infer => {
                let letterbox = prepare(net, &rgb)?;
                net.infer(letterbox)?;
                timer(&mut || {
                    let _ = std::hint::black_box(net.infer(letterbox).is_ok());
                });
            }
            Stage::Postprocess => {
                let letterbox = prepare(net, &rgb)?;
                let output = net.infer(letterbox)?;
                timer(&mut || {
                    std::hint::black_box(detections(&output));
                });
            }
        }
        Ok(())
    }
}

fn decode(data: &Bytes) -> Result<RgbImage, BenchError> {
    image::load_from_memory(data).map(image::DynamicImage::into_rgb8).map_err(failed("a picture"))
}

/// Resizes, pads to the square input and lays the values out as the network wants them.
fn prepare(net: &mut Net, rgb: &RgbImage) -> Result<Letterbox, BenchError> {
    let letterbox = net.square(rgb.dimensions());
    let spec = net.spec();
    let padded = pad(rgb, &letterbox, &spec);
    fill(&padded, &spec, net.tensor(letterbox.input)?);
    Ok(letterbox)
}

fn pad(rgb: &RgbImage, letterbox: &Letterbox, spec: &InputSpec) -> RgbImage {
    let (width, height) = letterbox.scaled;
    let scaled = imageops::resize(rgb, width, height, FilterType::Triangle);
    let level = image::Rgb([spec.pad as u8; 3]);
    let mut padded = RgbImage::from_pixel(letterbox.input.0, letterbox.input.1, level);
    let (left, top) = letterbox.offset;
    imageops::replace(&mut padded, &scaled, left.into(), top.into());
    padded
}

fn fill(padded: &RgbImage, spec: &InputSpec, tensor: &mut [f32]) {
    let (width, height) = padded.dimensions();
    let area = (width * height) as usize;
    for channel in 0..3 {
        let source = match spec.order {
            ChannelOrder::Rgb => channel,
            ChannelOrder::Bgr => 2 - channel,
        };
        for y in 0..height {
            for x in 0..width {
                let at = channel * area + (y * width + x) as usize;
                tensor[at] = f32::from(padded.get_pixel(x, y)[source]) * spec.scale;
            }
        }
    }
}

/// A box in pixels of the picture, its score and class.
type Detection = (BoxF, f32, usize);

/// Reads YOLOX's output (rows of x, y, w, h, objectness, class scores, as offsets in a grid) anchor
/// by anchor into a list, sorts it and drops overlapping boxes of one class.
fn detections(output: &Output<'_>) -> Vec<Detection> {
    let (input, attributes) = (output.letterbox.input, output.shape.attributes);
    let mut found: Vec<Detection> = Vec::new();
    let mut anchor = 0;
    for stride in [8, 16, 32] {
        for y in 0..input.1 / stride {
            for x in 0..input.0 / stride {
                let row = output.values[anchor * attributes..(anchor + 1) * attributes].to_vec();
                anchor += 1;
                let scores: Vec<f32> = row[5..].iter().map(|class| class * row[4]).collect();
                let best = scores.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
                let Some((class, score)) = best else { continue };
                if score >= output.options.confidence {
                    let bbox = decode_box(&row, (x as f32, y as f32), stride as f32);
                    found.push((output.letterbox.to_source(bbox), score, class));
                }
            }
        }
    }
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut kept: Vec<Detection> = Vec::new();
    for candidate in found {
        let same_thing = |other: &Detection| {
            other.2 == candidate.2 && iou(&other.0, &candidate.0) > output.options.iou
        };
        if !kept.iter().any(same_thing) {
            kept.push(candidate);
        }
    }
    kept
}

fn decode_box(row: &[f32], (x, y): (f32, f32), stride: f32) -> BoxF {
    let (cx, cy) = ((row[0] + x) * stride, (row[1] + y) * stride);
    let (w, h) = (row[2].exp() * stride, row[3].exp() * stride);
    BoxF { x1: cx - w / 2.0, y1: cy - h / 2.0, x2: cx + w / 2.0, y2: cy + h / 2.0 }
}

fn iou(a: &BoxF, b: &BoxF) -> f32 {
    let area = |b: &BoxF| (b.x2 - b.x1) * (b.y2 - b.y1);
    let width = (a.x2.min(b.x2) - a.x1.max(b.x1)).max(0.0);
    let height = (a.y2.min(b.y2) - a.y1.max(b.y1)).max(0.0);
    let both = width * height;
    both / (area(a) + area(b) - both)
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these results are exact")]
mod tests {
    use std::path::Path;

    use vedette_server::letterbox::Align;

    use super::*;
    use crate::{
        ours::{Model, ModelFiles, Ours},
        pictures::Source,
    };

    #[test]
    fn padding_and_planes() {
        let spec = InputSpec { order: ChannelOrder::Bgr, scale: 1.0, pad: 114.0 };
        let letterbox = Letterbox::fit((4, 2), (2, 2), Align::TopLeft);
        let padded = pad(&RgbImage::from_pixel(4, 2, image::Rgb([10, 20, 30])), &letterbox, &spec);
        let mut tensor = [0.0; 12];
        fill(&padded, &spec, &mut tensor);
        let pad = 114.0;
        assert_eq!(
            tensor,
            [30.0, 30.0, pad, pad, 20.0, 20.0, pad, pad, 10.0, 10.0, pad, pad],
            "blue first, the picture in the upper half"
        );
    }

    #[test]
    fn overlap() {
        let unit = BoxF { x1: 0.0, y1: 0.0, x2: 2.0, y2: 2.0 };
        let half = BoxF { x1: 1.0, ..unit };
        let apart = BoxF { x1: 5.0, x2: 6.0, ..unit };
        assert_eq!(iou(&unit, &unit), 1.0);
        assert_eq!(iou(&unit, &half), 0.5);
        assert_eq!(iou(&unit, &apart), 0.0);
    }

    #[test]
    fn the_obvious_postprocessing_finds_what_the_server_s_finds() {
        let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/cache");
        let model = Model::load(ModelFiles {
            model: Some(cache.join("yolox_nano.onnx")),
            runtime_lib: Some(cache.join("onnxruntime/libonnxruntime.so")),
        })
        .unwrap_or_else(|error| panic!("{error}; run `python3 models/setup.py`"));
        let mut net = model.net().expect("a session");
        let pictures = Source { folder: None, quick: false }.load((640, 480)).expect("draws");
        let mut boxes = (0, 0);
        for picture in pictures.pictures() {
            let rgb = decode(&picture.bytes).expect("decodes");
            let letterbox = prepare(&mut net, &rgb).expect("fits");
            let mut output = net.infer(letterbox).expect("runs");
            let found = detections(&output).len();
            assert_eq!(found, output.boxes(), "{}", picture.name);
            boxes.0 += found;
            boxes.1 += Ours::default().detect(&mut net, &picture.bytes).expect("detects");
        }
        assert!(boxes.0 > 0);
        // The rectangle's borders are not the square's: a weak box may come or go.
        assert!(
            boxes.0.abs_diff(boxes.1) <= 2,
            "{boxes:?} in {} pictures",
            pictures.pictures().len()
        );
    }
}
