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

/// Sides of pictures, in pixels, for which a font pixel is 1 pixel wide: letters of 16 pixels at 1280.
const PIXELS_PER_FONT_SCALE: u32 = 640;

/// Space around a label's text, in font pixels.
const PADDING: u32 = 2;

/// Left, top, width and height in pixels.
type Rect = (f32, f32, f32, f32);

/// Draws every object's box, then every label, the surest first to choose its place. Boxes may lie
/// anywhere; what is outside the picture is clipped, and labels are kept inside.
pub fn draw_objects(picture: &mut RgbImage, objects: &[Object]) {
    let longest = picture.width().max(picture.height());
    let stroke = (longest / PIXELS_PER_STROKE).max(MIN_STROKE) as f32;
    let font_scale = (longest / PIXELS_PER_FONT_SCALE).max(1) as f32;
    let mut order: Vec<&Object> = objects.iter().collect();
    order.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    // The surest last, so that its frame stays on top.
    for object in order.iter().rev() {
        draw_frame(picture, object, stroke);
    }
    let padding = PADDING as f32 * font_scale;
    let mut taken = Vec::with_capacity(order.len());
    let mut labels = Vec::with_capacity(order.len());
    for object in order {
        let text = format!("{} {:.2}", object.label, object.confidence);
        let text_width = text.chars().count() as f32 * GLYPH as f32 * font_scale;
        let size = (text_width + 2.0 * padding, GLYPH as f32 * font_scale + 2.0 * padding);
        let place = place_label(rect(object), size, picture.dimensions(), &taken);
        taken.push(place);
        labels.push((place, text, color(object)));
    }
    for ((left, top, width, height), text, color) in labels.into_iter().rev() {
        draw::rect(picture, (left, top), (width, height), color);
        let at = (left + padding, top + padding);
        draw::text(picture, at, &text, font_scale, text_color(color));
    }
}

fn color(object: &Object) -> Color {
    PALETTE[object.class_id as usize % PALETTE.len()]
}

fn rect(object: &Object) -> Rect {
    let bbox = object.bbox.unwrap_or_default();
    let length = |pixels: i32| pixels.max(1) as f32;
    (bbox.x as f32, bbox.y as f32, length(bbox.width), length(bbox.height))
}

fn draw_frame(picture: &mut RgbImage, object: &Object, stroke: f32) {
    let (x, y, w, h) = rect(object);
    let color = color(object);
    draw::rect(picture, (x, y), (w, stroke), color);
    draw::rect(picture, (x, y + h - stroke), (w, stroke), color);
    draw::rect(picture, (x, y), (stroke, h), color);
    draw::rect(picture, (x + w - stroke, y), (stroke, h), color);
}

/// Above the box, else below it, else inside: the first that lies in the picture and on no other
/// label, or where there is none, the first that lies in the picture.
fn place_label(bbox: Rect, size: (f32, f32), picture: (u32, u32), taken: &[Rect]) -> Rect {
    let (x, y, _, h) = bbox;
    let (width, height) = size;
    let (right, bottom) = (picture.0 as f32, picture.1 as f32);
    let left = x.min(right - width).max(0.0);
    let inside = |top: &f32| *top >= 0.0 && top + height <= bottom;
    let free = |top: &f32| !taken.iter().any(|label| overlap(*label, (left, *top, width, height)));
    let tops = || [y - height, y + h, y].into_iter().filter(inside);
    let top = tops().find(free).or_else(|| tops().next());
    (left, top.unwrap_or_else(|| y.min(bottom - height).max(0.0)), width, height)
}

fn overlap(a: Rect, b: Rect) -> bool {
    a.0 < b.0 + b.2 && b.0 < a.0 + a.2 && a.1 < b.1 + b.3 && b.1 < a.1 + a.3
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

    #[test]
    fn labels_leave_small_boxes_and_each_other_visible() {
        let size = (60.0, 12.0);
        let picture = (200, 100);
        let corner = (10.0, 2.0, 14.0, 12.0);
        let below = place_label(corner, size, picture, &[]);
        assert_eq!(below, (10.0, 14.0, 60.0, 12.0), "no room above");
        let middle = (100.0, 50.0, 30.0, 20.0);
        let above = place_label(middle, size, picture, &[]);
        assert_eq!(above, (100.0, 38.0, 60.0, 12.0));
        let neighbour = place_label((110.0, 50.0, 30.0, 20.0), size, picture, &[above]);
        assert!(!overlap(above, neighbour) && neighbour.1 > 50.0, "{neighbour:?}");
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
