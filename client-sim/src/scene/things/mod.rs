//! The things in the scenes, each drawn in its own units and placed by a [`Pen`].

mod park;
mod street;
mod vehicles;

use image::RgbImage;

use super::{Placed, Thing, backdrop::lighten};
use crate::draw::{self, Color, Point};

const WHITE: Color = [242, 242, 240];
const BLACK: Color = [22, 22, 24];

/// Draws in a thing's own units: origin in its middle, its height 100 units.
struct Pen<'a> {
    picture: &'a mut RgbImage,
    origin: Point,
    scale: f32,
}

impl Pen<'_> {
    fn at(&self, (x, y): Point) -> Point {
        (self.origin.0 + x * self.scale, self.origin.1 + y * self.scale)
    }

    fn polygon(&mut self, points: &[Point], color: Color) {
        let points: Vec<Point> = points.iter().map(|&point| self.at(point)).collect();
        let top = points.iter().map(|p| p.1).fold(f32::INFINITY, f32::min);
        let bottom = points.iter().map(|p| p.1).fold(f32::NEG_INFINITY, f32::max);
        // Light from above: a little brighter at the top, a little darker at the bottom.
        draw::polygon_with(self.picture, &points, |_, y| {
            let down = (y as f32 - top) / (bottom - top).max(1.0);
            color.map(|value| lighten(value, 14.0 - 28.0 * down))
        });
    }

    fn rect(&mut self, (x, y): Point, (w, h): Point, color: Color) {
        self.polygon(&[(x, y), (x + w, y), (x + w, y + h), (x, y + h)], color);
    }

    fn ellipse(&mut self, center: Point, radius: Point, color: Color) {
        self.polygon(&draw::ellipse_points(center, radius), color);
    }

    fn line(&mut self, from: Point, to: Point, width: f32, color: Color) {
        let (from, to) = (self.at(from), self.at(to));
        draw::line(self.picture, from, to, width * self.scale, color);
    }

    /// Text whose middle is at `(x, y)`, glyphs `tall` units high.
    fn text(&mut self, (x, y): Point, text: &str, tall: f32, color: Color) {
        let half = text.chars().count() as f32 * tall / 2.0;
        let at = self.at((x - half, y - tall / 2.0));
        draw::text(self.picture, at, text, tall / draw::GLYPH as f32 * self.scale, color);
    }
}

/// Draws a thing at its place.
pub(super) fn draw(picture: &mut RgbImage, &Placed(thing, x, y, tall): &Placed) {
    let (width, height) = (picture.width() as f32, picture.height() as f32);
    let mut pen = Pen {
        picture,
        origin: (x / 1000.0 * width, y / 1000.0 * height),
        scale: tall / 1000.0 * width.min(height) / 100.0,
    };
    match thing {
        Thing::StopSign => street::stop_sign(&mut pen),
        Thing::Clock(hour) => street::clock(&mut pen, hour),
        Thing::TrafficLight => street::traffic_light(&mut pen),
        Thing::Car(body) => vehicles::car(&mut pen, body),
        Thing::Bus => vehicles::bus(&mut pen),
        Thing::Person(coat) => park::person(&mut pen, coat),
        Thing::Ball => park::ball(&mut pen),
        Thing::Kite => park::kite(&mut pen),
        Thing::Umbrella(cloth) => park::umbrella(&mut pen, cloth),
        Thing::Bench => street::bench(&mut pen),
    }
}
