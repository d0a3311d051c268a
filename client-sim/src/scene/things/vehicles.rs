//! What drives: cars and buses, seen from the side.

use super::{BLACK, Pen, WHITE};
use crate::{
    draw::{Color, Point},
    scene::backdrop::lighten,
};

const TYRE: Color = [28, 28, 30];
const GLASS: Color = [92, 112, 130];

/// A saloon seen from the side.
pub(super) fn car(pen: &mut Pen<'_>, body: Color) {
    let dark = body.map(|value| lighten(value, -30.0));
    pen.ellipse((0.0, 46.0), (150.0, 8.0), [40, 40, 42]);
    pen.polygon(
        &[
            (-148.0, 26.0),
            (-150.0, 4.0),
            (-140.0, -6.0),
            (-92.0, -12.0),
            (-56.0, -46.0),
            (-40.0, -50.0),
            (40.0, -50.0),
            (62.0, -44.0),
            (102.0, -10.0),
            (140.0, 0.0),
            (150.0, 12.0),
            (148.0, 30.0),
            (140.0, 34.0),
            (-140.0, 34.0),
        ],
        body,
    );
    pen.polygon(&[(-80.0, -12.0), (-50.0, -42.0), (-6.0, -43.0), (-6.0, -11.0)], GLASS);
    pen.polygon(&[(2.0, -11.0), (2.0, -43.0), (42.0, -43.0), (56.0, -39.0), (86.0, -10.0)], GLASS);
    pen.line((-2.0, -12.0), (-2.0, 30.0), 1.2, dark);
    pen.line((76.0, -8.0), (70.0, 28.0), 1.2, dark);
    pen.line((-146.0, 12.0), (148.0, 14.0), 1.6, dark);
    pen.rect((-18.0, -2.0), (12.0, 3.0), dark);
    pen.rect((52.0, -1.0), (12.0, 3.0), dark);
    pen.polygon(&[(-149.0, 2.0), (-136.0, -4.0), (-134.0, 4.0), (-148.0, 8.0)], [200, 40, 36]);
    pen.polygon(&[(148.0, 8.0), (132.0, 1.0), (130.0, 8.0), (149.0, 14.0)], [240, 236, 210]);
    pen.rect((-150.0, 24.0), (300.0, 9.0), dark);
    for x in [-92.0, 94.0] {
        pen.ellipse((x, 24.0), (29.0, 29.0), [20, 20, 22]);
        wheel(pen, (x, 26.0), 25.0);
    }
}

/// A city bus seen from the side.
pub(super) fn bus(pen: &mut Pen<'_>) {
    const BODY: Color = [200, 52, 44];
    pen.ellipse((0.0, 48.0), (125.0, 6.0), [40, 40, 42]);
    pen.polygon(
        &[
            (-120.0, 40.0),
            (-122.0, -40.0),
            (-116.0, -50.0),
            (116.0, -50.0),
            (121.0, -40.0),
            (123.0, 10.0),
            (121.0, 40.0),
        ],
        BODY,
    );
    pen.rect((-121.0, 6.0), (243.0, 6.0), WHITE);
    for column in 0..6_u8 {
        pen.rect((-110.0 + f32::from(column) * 31.0, -34.0), (27.0, 30.0), GLASS);
    }
    pen.rect((80.0, -36.0), (24.0, 74.0), [70, 84, 96]);
    pen.line((92.0, -36.0), (92.0, 38.0), 1.5, BLACK);
    pen.polygon(&[(110.0, -36.0), (119.0, -36.0), (121.0, 2.0), (110.0, 2.0)], GLASS);
    pen.rect((-60.0, -47.0), (110.0, 9.0), BLACK);
    pen.text((-5.0, -42.5), "12 CENTRAL", 7.0, [255, 190, 60]);
    pen.rect((114.0, 20.0), (8.0, 6.0), [250, 244, 210]);
    for x in [-74.0, 56.0] {
        pen.ellipse((x, 36.0), (19.0, 19.0), [20, 20, 22]);
        wheel(pen, (x, 37.0), 16.0);
    }
}

fn wheel(pen: &mut Pen<'_>, center: Point, radius: f32) {
    pen.ellipse(center, (radius, radius), TYRE);
    pen.ellipse(center, (radius * 0.62, radius * 0.62), [166, 168, 172]);
    pen.ellipse(center, (radius * 0.2, radius * 0.2), [70, 72, 74]);
    for spoke in 0..5_u8 {
        let angle = f32::from(spoke) / 5.0 * std::f32::consts::TAU;
        let rim = (center.0 + radius * 0.55 * angle.cos(), center.1 + radius * 0.55 * angle.sin());
        pen.line(center, rim, radius * 0.12, [80, 82, 86]);
    }
}
