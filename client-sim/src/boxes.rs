//! Detected objects drawn on their picture: a frame and a label each.

use image::RgbImage;
use vedette_proto::camera_ai::Object;

use crate::draw::{self, Color, GLYPH};

/// Colours of frames, by class: bright, and far apart for neighbouring classes.
const PALETTE: [Color; 10] = [
    [255, 64, 64],
    [64, 220, 96],
    [80, 150, 255],
    [255, 200, 40],
    [230, 90, 255],
    [40, 225, 225],
    [255, 140, 40],
    [170, 255, 70],
    [255, 110, 180],
    [150, 130, 255],
];

/// Sides of pictures, in pixels, for which frames are 1 pixel thick; 640 gives 2, 1920 gives 6.
const PIXELS_PER_STROKE: u32 = 320;

/// Thinnest frame that is still easy to see, in pixels.
const MIN_STROKE: u32 = 2;

/// Space around a label's text, in font pixels.
const PADDING: u32 = 2;

/// Draws every object's box and label, the least confident first so that the surest stay on top.
/// Boxes may lie anywhere; what is outside the picture is clipped, and labels are kept inside.
pub fn draw_objects(picture: &mut RgbImage, objects: &[Object]) {
    let side = picture.width().max(picture.height());
    let stroke = (side / PIXELS_PER_STROKE).max(MIN_STROKE) as f32;
    let font_scale = (side as f32 / 480.0).round().max(1.0);
    let mut order: Vec<&Object> = objects.iter().collect();
    order.sort_by(|a, b| a.confidence.total_cmp(&b.confidence));
    for object in order {
        draw_object(picture, object, stroke, font_scale);
    }
}

fn draw_object(picture: &mut RgbImage, object: &Object, stroke: f32, font_scale: f32) {
    let color = PALETTE[object.class_id as usize % PALETTE.len()];
    let bbox = object.bbox.unwrap_or_default();
    let (x, y) = (bbox.x as f32, bbox.y as f32);
    let (w, h) = (bbox.width.max(1) as f32, bbox.height.max(1) as f32);
    draw::rect(picture, (x, y), (w, stroke), color);
    draw::rect(picture, (x, y + h - stroke), (w, stroke), color);
    draw::rect(picture, (x, y), (stroke, h), color);
    draw::rect(picture, (x + w - stroke, y), (stroke, h), color);

    let label = format!("{} {:.2}", object.label, object.confidence);
    let text_width = label.chars().count() as f32 * GLYPH as f32 * font_scale;
    let padding = PADDING as f32 * font_scale;
    let (width, height) = (text_width + 2.0 * padding, GLYPH as f32 * font_scale + 2.0 * padding);
    // Above the box where there is room, else inside it.
    let top = if y >= height { y - height } else { y };
    let left = x.min(picture.width() as f32 - width).max(0.0);
    let top = top.min(picture.height() as f32 - height).max(0.0);
    draw::rect(picture, (left, top), (width, height), color);
    draw::text(picture, (left + padding, top + padding), &label, font_scale, text_color(color));
}

/// Black on bright backgrounds, white on dark ones.
fn text_color([red, green, blue]: Color) -> Color {
    // Rec. 601 luma, in thousandths.
    let luma = u32::from(red) * 299 + u32::from(green) * 587 + u32::from(blue) * 114;
    if luma > 128_000 { [0, 0, 0] } else { [255, 255, 255] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vedette_proto::camera_ai::BoundingBox;

    fn object(class_id: u32, label: &str, bbox: Option<BoundingBox>) -> Object {
        Object { label: label.into(), confidence: 0.87, bbox, class_id }
    }

    #[test]
    fn a_box_is_framed_and_labelled_in_its_class_s_colour() {
        let mut picture = RgbImage::new(640, 480);
        let bbox = BoundingBox { x: 100, y: 200, width: 300, height: 150 };
        draw_objects(&mut picture, &[object(1, "bicycle", Some(bbox))]);
        let is_coloured = |x, y| picture.get_pixel(x, y).0 == PALETTE[1];
        assert!(is_coloured(100, 300) && is_coloured(399, 300));
        assert!(is_coloured(250, 200) && is_coloured(250, 349));
        assert!(!is_coloured(99, 300) && !is_coloured(400, 300) && !is_coloured(250, 350));
        assert!(!is_coloured(250, 275), "the inside stays visible");
        assert!(is_coloured(101, 190), "the label's background lies above the box");
    }

    proptest! {
        #[test]
        fn no_box_panics_in_no_picture(
            width in 1u32..200, height in 1u32..200,
            x in any::<i32>(), y in any::<i32>(), w in any::<i32>(), h in any::<i32>(),
            class_id in any::<u32>(), label in ".{0,30}",
        ) {
            let mut picture = RgbImage::new(width, height);
            let bbox = BoundingBox { x, y, width: w, height: h };
            let edge = BoundingBox {
                x: x.rem_euclid(width as i32),
                y: y.rem_euclid(height as i32),
                width: w.rem_euclid(300),
                height: h.rem_euclid(300),
            };
            let objects =
                [Some(bbox), Some(edge), None].map(|bbox| object(class_id, &label, bbox));
            draw_objects(&mut picture, &objects);
        }
    }
}
