//! What stands in a street: signs, lights, clocks, benches.

use super::{BLACK, Pen, WHITE};
use crate::draw::{self, Color, Point};

const STEEL: Color = [120, 122, 126];

pub(super) fn stop_sign(pen: &mut Pen<'_>) {
    const RED: Color = [190, 26, 34];
    let eighth = std::f32::consts::TAU / 16.0;
    pen.rect((-2.5, 40.0), (5.0, 110.0), STEEL);
    // 100 units between opposite sides.
    let octagon = |side: f32| {
        let radius = side / 2.0 / eighth.cos();
        draw::regular(8, eighth, (0.0, 0.0), (radius, radius))
    };
    pen.polygon(&octagon(100.0), WHITE);
    pen.polygon(&octagon(93.0), RED);
    stop_letters(pen);
}

/// STOP in strokes, as on the road sign: tall narrow capitals.
fn stop_letters(pen: &mut Pen<'_>) {
    const TALL: f32 = 32.0;
    const WIDE: f32 = 15.0;
    const STROKE: f32 = 5.0;
    let strokes: [&[(Point, Point)]; 4] = [
        &[
            ((1.0, 0.0), (0.0, 0.0)),
            ((0.0, 0.0), (0.0, 0.5)),
            ((0.0, 0.5), (1.0, 0.5)),
            ((1.0, 0.5), (1.0, 1.0)),
            ((1.0, 1.0), (0.0, 1.0)),
        ],
        &[((0.0, 0.0), (1.0, 0.0)), ((0.5, 0.0), (0.5, 1.0))],
        &[
            ((0.0, 0.0), (1.0, 0.0)),
            ((1.0, 0.0), (1.0, 1.0)),
            ((1.0, 1.0), (0.0, 1.0)),
            ((0.0, 1.0), (0.0, 0.0)),
        ],
        &[
            ((0.0, 0.0), (1.0, 0.0)),
            ((1.0, 0.0), (1.0, 0.5)),
            ((1.0, 0.5), (0.0, 0.5)),
            ((0.0, 0.0), (0.0, 1.0)),
        ],
    ];
    for (letter, strokes) in (0..).zip(strokes) {
        let left = -40.0 + letter as f32 * 21.5;
        for &(from, to) in strokes {
            let place = |(x, y): Point| (left + x * WIDE, -TALL / 2.0 + y * TALL);
            let (from, to) = (place(from), place(to));
            // Square ends half a stroke longer close the corners.
            let (dx, dy) = ((to.0 - from.0).signum(), (to.1 - from.1).signum());
            let along = if (to.1 - from.1).abs() > 0.0 { (0.0, dy) } else { (dx, 0.0) };
            let reach = STROKE / 2.0;
            pen.line(
                (from.0 - along.0 * reach, from.1 - along.1 * reach),
                (to.0 + along.0 * reach, to.1 + along.1 * reach),
                STROKE,
                WHITE,
            );
        }
    }
}

pub(super) fn clock(pen: &mut Pen<'_>, hour: f32) {
    pen.rect((-3.5, 45.0), (7.0, 80.0), [52, 50, 50]);
    pen.ellipse((0.0, 0.0), (50.0, 50.0), [44, 40, 38]);
    pen.ellipse((0.0, 0.0), (45.0, 45.0), [188, 160, 96]);
    pen.ellipse((0.0, 0.0), (43.0, 43.0), WHITE);
    let hand = |turn: f32, length: f32| {
        let angle = (turn - 0.25) * std::f32::consts::TAU;
        (length * angle.cos(), length * angle.sin())
    };
    for minute in 0..60_u8 {
        let turn = f32::from(minute) / 60.0;
        let width = if minute % 5 == 0 { 2.0 } else { 0.7 };
        pen.line(hand(turn, 38.5), hand(turn, 41.5), width, BLACK);
    }
    for number in 1..=12_u8 {
        let at = hand(f32::from(number) / 12.0, 32.0);
        pen.text(at, &number.to_string(), if number < 10 { 9.0 } else { 7.5 }, BLACK);
    }
    pen.line((0.0, 0.0), hand(hour / 12.0, 20.0), 4.0, BLACK);
    pen.line((0.0, 0.0), hand(hour.fract(), 31.0), 2.6, BLACK);
    pen.ellipse((0.0, 0.0), (3.2, 3.2), BLACK);
}

pub(super) fn traffic_light(pen: &mut Pen<'_>) {
    pen.rect((-3.0, 48.0), (6.0, 100.0), [60, 62, 64]);
    pen.rect((-19.0, -50.0), (38.0, 100.0), [30, 32, 34]);
    pen.rect((-17.0, -48.0), (34.0, 96.0), [44, 46, 46]);
    for (y, color, lit) in
        [(-31.0, [255, 60, 44], true), (0.0, [92, 74, 20], false), (31.0, [18, 74, 44], false)]
    {
        pen.ellipse((0.0, y), (14.0, 14.0), [14, 14, 16]);
        pen.ellipse((0.0, y + 0.5), (12.0, 12.0), color);
        if lit {
            pen.ellipse((0.0, y), (7.0, 7.0), [255, 150, 120]);
        }
        pen.rect((-14.0, y - 15.0), (28.0, 4.0), [20, 20, 22]);
    }
}

/// A park bench seen from the front.
pub(super) fn bench(pen: &mut Pen<'_>) {
    const WOOD: Color = [134, 92, 56];
    for x in [-92.0, 84.0] {
        pen.rect((x, -48.0), (8.0, 98.0), [52, 52, 54]);
        pen.rect((x - 6.0, -4.0), (20.0, 5.0), [52, 52, 54]);
    }
    for y in [-46.0, -30.0, -14.0, 6.0, 16.0] {
        pen.rect((-106.0, y), (212.0, 9.0), WOOD);
    }
}
