//! People, and what they take to the park.

use super::{BLACK, Pen, WHITE};
use crate::{
    draw::{self, Color, Point},
    scene::backdrop::lighten,
};

const SKIN: Color = [214, 168, 138];

/// Somebody standing, seen from the front.
pub(super) fn person(pen: &mut Pen<'_>, coat: Color) {
    const TROUSERS: Color = [48, 54, 74];
    let dark = coat.map(|value| lighten(value, -24.0));
    pen.ellipse((0.0, 49.0), (20.0, 3.0), [60, 60, 60]);
    pen.polygon(&[(-9.0, 0.0), (-0.5, 0.0), (-2.0, 46.0), (-8.5, 46.0)], TROUSERS);
    pen.polygon(&[(9.0, 0.0), (0.5, 0.0), (2.0, 46.0), (8.5, 46.0)], TROUSERS);
    pen.polygon(&[(-9.5, 45.0), (-1.5, 45.0), (-1.0, 49.5), (-11.0, 49.5)], BLACK);
    pen.polygon(&[(9.5, 45.0), (1.5, 45.0), (1.0, 49.5), (11.0, 49.5)], BLACK);
    for side in [-1.0, 1.0] {
        let arm =
            [(10.0, -31.0), (14.5, -28.0), (17.0, -8.0), (15.5, 4.0), (12.0, 4.0), (11.0, -8.0)];
        pen.polygon(&arm.map(|(x, y)| (side * x, y)), dark);
        pen.ellipse((side * 13.8, 6.5), (2.4, 3.4), SKIN);
    }
    pen.polygon(
        &[
            (-5.0, -34.0),
            (5.0, -34.0),
            (12.0, -31.0),
            (11.5, -10.0),
            (11.0, 6.0),
            (-11.0, 6.0),
            (-11.5, -10.0),
            (-12.0, -31.0),
        ],
        coat,
    );
    pen.line((0.0, -33.0), (0.0, 6.0), 0.7, dark);
    pen.rect((-2.6, -38.0), (5.2, 5.0), SKIN);
    pen.ellipse((0.0, -43.0), (5.4, 6.8), SKIN);
    pen.polygon(
        &[
            (-5.8, -43.0),
            (-5.4, -48.0),
            (0.0, -51.0),
            (5.4, -48.0),
            (5.8, -43.0),
            (4.4, -46.0),
            (-4.4, -46.0),
        ],
        [52, 38, 30],
    );
    for side in [-1.0, 1.0] {
        pen.ellipse((side * 2.1, -43.6), (0.6, 0.6), BLACK);
    }
    pen.line((-1.6, -39.6), (1.6, -39.6), 0.7, [150, 80, 74]);
}

/// A football.
pub(super) fn ball(pen: &mut Pen<'_>) {
    pen.ellipse((0.0, 48.0), (44.0, 6.0), [52, 70, 40]);
    pen.ellipse((0.0, 0.0), (50.0, 50.0), WHITE);
    pen.polygon(&draw::regular(5, -1.57, (0.0, 0.0), (17.0, 17.0)), BLACK);
    for spoke in 0..5_u8 {
        let angle = f32::from(spoke) / 5.0 * std::f32::consts::TAU - 1.57;
        let place =
            |radius: f32, turn: f32| (radius * (angle + turn).cos(), radius * (angle + turn).sin());
        pen.line(place(17.0, 0.0), place(34.0, 0.0), 1.6, BLACK);
        pen.polygon(
            &[
                place(35.0, -0.02),
                place(40.0, 0.33),
                place(48.5, 0.25),
                place(49.5, 0.0),
                place(48.5, -0.25),
                place(40.0, -0.33),
            ],
            BLACK,
        );
    }
}

pub(super) fn kite(pen: &mut Pen<'_>) {
    let (top, bottom, left, right) = ((0.0, -50.0), (0.0, 50.0), (-34.0, -12.0), (34.0, -12.0));
    let middle = (0.0, -12.0);
    pen.polygon(&[top, right, middle], [230, 60, 60]);
    pen.polygon(&[top, left, middle], [250, 200, 50]);
    pen.polygon(&[bottom, right, middle], [60, 110, 220]);
    pen.polygon(&[bottom, left, middle], [60, 180, 90]);
    pen.line(bottom, (-24.0, 90.0), 1.4, WHITE);
    pen.line((-24.0, 90.0), (-10.0, 130.0), 1.4, WHITE);
    for (x, y) in [(-8.0, 66.0), (-17.0, 80.0), (-20.0, 102.0)] {
        pen.polygon(&[(x, y), (x - 8.0, y - 5.0), (x - 8.0, y + 5.0)], [230, 60, 60]);
        pen.polygon(&[(x, y), (x + 8.0, y - 5.0), (x + 8.0, y + 5.0)], [250, 200, 50]);
    }
}

/// An open umbrella in the ground.
pub(super) fn umbrella(pen: &mut Pen<'_>, cloth: Color) {
    pen.line((0.0, -48.0), (0.0, 100.0), 3.0, [230, 226, 218]);
    let rim = |share: f32| (-78.0 + 156.0 * share, 4.0);
    for panel in 0..6_u8 {
        let (left, right) = (f32::from(panel) / 6.0, f32::from(panel + 1) / 6.0);
        let color = if panel % 2 == 0 { cloth } else { WHITE };
        let curve = |share: f32, t: f32| {
            let x = rim(share).0 * (t * std::f32::consts::FRAC_PI_2).sin();
            (x, -46.0 + 50.0 * (1.0 - (t * std::f32::consts::FRAC_PI_2).cos()))
        };
        let steps = || (0..=8_u8).map(|step| f32::from(step) / 8.0);
        let mut points: Vec<Point> = steps().map(|t| curve(left, t)).collect();
        points.push((rim(left).0.midpoint(rim(right).0), -1.0));
        points.extend(steps().map(|t| curve(right, t)).collect::<Vec<_>>().into_iter().rev());
        pen.polygon(&points, color);
    }
    pen.line((0.0, -50.0), (0.0, -44.0), 2.4, [90, 70, 50]);
}
