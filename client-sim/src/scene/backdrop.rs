//! What every scene stands in: sky, a row of buildings, a pavement and a road.

use image::{Rgb, RgbImage};

use super::noise::Noise;
use crate::draw::{self, Color};

/// Colours and heights of a scene's surroundings.
pub(super) struct Backdrop {
    sky: [Color; 2],
    walls: [Color; 3],
    windows: Color,
    ground: Color,
    road: Color,
    /// Where buildings meet the ground and the ground meets the road, shares of the height.
    horizon: f32,
    kerb: f32,
    /// Whether there are slabs, windows, kerb and lane markings; else it is a lawn with hedges.
    street: bool,
    /// Height of the buildings above the horizon, share of the height.
    storeys: f32,
}

impl Backdrop {
    pub(super) const DAY: Self = Self {
        sky: [[104, 152, 210], [196, 214, 232]],
        walls: [[168, 156, 140], [142, 120, 104], [186, 180, 170]],
        windows: [70, 84, 98],
        ground: [150, 147, 142],
        road: [92, 92, 96],
        horizon: 0.66,
        kerb: 0.76,
        storeys: 0.36,
        street: true,
    };
    pub(super) const OVERCAST: Self = Self {
        sky: [[160, 166, 174], [204, 206, 208]],
        walls: [[128, 122, 118], [150, 142, 130], [112, 104, 100]],
        windows: [60, 66, 74],
        ground: [132, 132, 130],
        road: [80, 80, 84],
        horizon: 0.62,
        kerb: 0.72,
        storeys: 0.42,
        street: true,
    };
    pub(super) const BRICK: Self = Self {
        sky: [[140, 176, 214], [206, 218, 230]],
        walls: [[146, 88, 70], [132, 78, 64], [158, 100, 80]],
        windows: [58, 62, 70],
        ground: [142, 138, 130],
        road: [88, 88, 90],
        horizon: 0.74,
        kerb: 0.82,
        storeys: 0.70,
        street: true,
    };
    pub(super) const GREEN: Self = Self {
        sky: [[92, 146, 214], [190, 214, 236]],
        walls: [[70, 104, 58], [58, 92, 50], [84, 116, 66]],
        windows: [62, 96, 54],
        ground: [104, 142, 72],
        road: [96, 134, 66],
        horizon: 0.55,
        kerb: 0.70,
        storeys: 0.16,
        street: false,
    };
    pub(super) const DUSK: Self = Self {
        sky: [[52, 58, 96], [204, 140, 110]],
        walls: [[66, 60, 68], [78, 68, 70], [56, 52, 62]],
        windows: [226, 190, 118],
        ground: [84, 80, 84],
        road: [54, 54, 60],
        horizon: 0.66,
        kerb: 0.75,
        storeys: 0.40,
        street: true,
    };
}

/// Fills the picture.
pub(super) fn draw(picture: &mut RgbImage, backdrop: &Backdrop, noise: Noise) {
    let (width, height) = (picture.width() as f32, picture.height() as f32);
    for (x, y, pixel) in picture.enumerate_pixels_mut() {
        // Places in shares of the height, so that textures keep their scale at every size.
        let (u, v) = (x as f32 / height, y as f32 / height);
        *pixel = Rgb(surface(backdrop, noise, u, v));
    }
    buildings(picture, backdrop, noise, width, height);
    if backdrop.street {
        markings(picture, backdrop, width, height);
    }
}

/// Sky, ground or road at a place.
fn surface(backdrop: &Backdrop, noise: Noise, u: f32, v: f32) -> Color {
    if v < backdrop.horizon {
        let [top, bottom] = backdrop.sky;
        let clouds = noise.rough(u * 3.0, v * 6.0).max(0.0) * 40.0;
        mix(top, bottom, v / backdrop.horizon).map(|value| lighten(value, clouds))
    } else if v < backdrop.kerb {
        let slabs = if backdrop.street && (u * 14.0).fract() < 0.03 { -22.0 } else { 0.0 };
        let wear = noise.rough(u * 40.0, v * 80.0) * 16.0;
        backdrop.ground.map(|value| lighten(value, wear + slabs))
    } else {
        let stones = noise.rough(u * 90.0, v * 140.0) * 24.0;
        backdrop.road.map(|value| lighten(value, stones))
    }
}

fn buildings(picture: &mut RgbImage, backdrop: &Backdrop, noise: Noise, width: f32, height: f32) {
    let bottom = backdrop.horizon * height;
    let unit = height / 480.0;
    let mut left = -20.0 * unit;
    let mut index = 0;
    while left < width {
        let wide = (110.0 + 50.0 * noise.white(index, 77)) * unit;
        let tall = backdrop.storeys * height * (0.85 + 0.2 * noise.white(index, 78));
        let wall = backdrop.walls[index as usize % backdrop.walls.len()];
        let corners = [
            (left, bottom - tall),
            (left + wide, bottom - tall),
            (left + wide, bottom),
            (left, bottom),
        ];
        draw::polygon_with(picture, &corners, |x, y| {
            let (u, v) = (x as f32 / unit, y as f32 / unit);
            let course = if backdrop.street && v.rem_euclid(7.0) < 1.0 { -13.0 } else { 0.0 };
            let plaster = noise.rough(u / 4.0, v / 4.0) * 18.0;
            wall.map(|value| lighten(value, plaster + course))
        });
        if backdrop.street {
            windows(picture, backdrop, noise, (left, bottom - tall, wide, tall), unit, index);
        }
        left += wide + 1.0;
        index += 1;
    }
}

fn windows(
    picture: &mut RgbImage,
    backdrop: &Backdrop,
    noise: Noise,
    (left, top, wide, tall): (f32, f32, f32, f32),
    unit: f32,
    building: i32,
) {
    let (step_x, step_y) = (30.0 * unit, 38.0 * unit);
    let columns = ((wide - 10.0 * unit) / step_x).max(0.0) as i32;
    let rows = ((tall - 10.0 * unit) / step_y).max(0.0) as i32;
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        let at =
            (left + 10.0 * unit + column as f32 * step_x, top + 10.0 * unit + row as f32 * step_y);
        let shade = noise.white(building * 100 + row, column) * 24.0;
        let pane = backdrop.windows.map(|value| lighten(value, shade));
        let frame = backdrop.walls[0].map(|value| lighten(value, 30.0));
        draw::rect(picture, (at.0 - unit, at.1 - unit), (18.0 * unit, 24.0 * unit), frame);
        draw::rect(picture, at, (16.0 * unit, 22.0 * unit), pane);
        draw::rect(picture, (at.0 + 7.5 * unit, at.1), (unit, 22.0 * unit), frame);
    }
}

/// Kerb stone and dashed centre line.
fn markings(picture: &mut RgbImage, backdrop: &Backdrop, width: f32, height: f32) {
    let kerb = backdrop.kerb * height;
    let stone = backdrop.ground.map(|value| lighten(value, 26.0));
    draw::rect(picture, (0.0, kerb), (width, height * 0.012), stone);
    let (y, tall) = (kerb + (height - kerb) * 0.55, height * 0.018);
    let paint = backdrop.ground.map(|value| lighten(value, 60.0));
    let step = height * 0.3;
    let mut x = -step / 3.0;
    while x < width {
        let slant = tall * 0.8;
        let corners = [
            (x + slant, y),
            (x + slant + step / 2.0, y),
            (x + step / 2.0, y + tall),
            (x, y + tall),
        ];
        draw::polygon(picture, &corners, paint);
        x += step;
    }
}

fn mix(a: Color, b: Color, share: f32) -> Color {
    std::array::from_fn(|i| {
        (f32::from(a[i]) + (f32::from(b[i]) - f32::from(a[i])) * share + 0.5) as u8
    })
}

/// `value` shifted by `by`, kept within 0 to 255.
pub(super) fn lighten(value: u8, by: f32) -> u8 {
    (f32::from(value) + by).clamp(0.0, 255.0) as u8
}
