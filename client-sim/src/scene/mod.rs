//! Street scenes drawn by the tool: pictures to send when there is no folder of real ones.
//!
//! They look enough like a camera's picture to cost as much (texture, noise, JPEG size) and hold
//! things that a detector trained on COCO recognises. Everything follows from the scene's number
//! and the size: the same scene always has the same pixels.

mod backdrop;
mod noise;
mod things;

use image::RgbImage;

use crate::{config::Size, draw::Color};

use self::{backdrop::Backdrop, noise::Noise};

/// Number of different scenes.
pub const COUNT: usize = SCENES.len();

/// Seed of the first scene's noise; the others count on from it.
const SEED: u32 = 0x5eed_0001;

/// A scene: its name, its surroundings and what is in it.
struct Scene {
    name: &'static str,
    backdrop: Backdrop,
    things: &'static [Placed],
}

/// Something drawn at a place: x and y in thousandths of the picture's width and height (of the
/// thing's middle), height in thousandths of the picture's shorter side.
struct Placed(Thing, f32, f32, f32);

/// What can be drawn.
#[derive(Debug, Clone, Copy)]
enum Thing {
    StopSign,
    /// Shows this hour, 0.0 to 12.0.
    Clock(f32),
    TrafficLight,
    Bench,
    /// In this colour.
    Car(Color),
    Bus,
    /// With a coat of this colour.
    Person(Color),
    Ball,
    Kite,
    /// Of this colour and white.
    Umbrella(Color),
}

const SCENES: [Scene; 8] = [
    Scene {
        name: "stop-sign",
        backdrop: Backdrop::DAY,
        things: &[Placed(Thing::StopSign, 620.0, 400.0, 420.0)],
    },
    Scene {
        name: "station-clock",
        backdrop: Backdrop::BRICK,
        things: &[Placed(Thing::Clock(10.15), 420.0, 330.0, 400.0)],
    },
    Scene {
        name: "crossing",
        backdrop: Backdrop::OVERCAST,
        things: &[
            Placed(Thing::TrafficLight, 800.0, 330.0, 400.0),
            Placed(Thing::StopSign, 250.0, 370.0, 330.0),
            Placed(Thing::Car([40, 70, 150]), 560.0, 760.0, 260.0),
        ],
    },
    Scene {
        name: "square",
        backdrop: Backdrop::DAY,
        things: &[
            Placed(Thing::Clock(1.9), 700.0, 300.0, 330.0),
            Placed(Thing::Person([150, 40, 50]), 300.0, 640.0, 480.0),
            Placed(Thing::Bench, 560.0, 680.0, 200.0),
        ],
    },
    Scene {
        name: "bus-stop",
        backdrop: Backdrop::OVERCAST,
        things: &[
            Placed(Thing::Bus, 570.0, 600.0, 420.0),
            Placed(Thing::StopSign, 130.0, 260.0, 260.0),
            Placed(Thing::Person([40, 90, 60]), 170.0, 680.0, 460.0),
        ],
    },
    Scene {
        name: "park",
        backdrop: Backdrop::GREEN,
        things: &[
            Placed(Thing::Umbrella([210, 60, 50]), 300.0, 430.0, 330.0),
            Placed(Thing::Ball, 640.0, 780.0, 130.0),
            Placed(Thing::Kite, 760.0, 220.0, 240.0),
        ],
    },
    Scene {
        name: "evening",
        backdrop: Backdrop::DUSK,
        things: &[
            Placed(Thing::TrafficLight, 200.0, 360.0, 380.0),
            Placed(Thing::Clock(6.5), 640.0, 290.0, 300.0),
            Placed(Thing::Car([190, 36, 36]), 660.0, 770.0, 240.0),
        ],
    },
    Scene {
        name: "corner",
        backdrop: Backdrop::BRICK,
        things: &[
            Placed(Thing::StopSign, 300.0, 400.0, 380.0),
            Placed(Thing::Clock(8.33), 740.0, 280.0, 280.0),
            Placed(Thing::Person([206, 186, 96]), 560.0, 640.0, 440.0),
        ],
    },
];

/// Name of scene `index`; beyond [`COUNT`] they repeat.
#[must_use]
pub fn name(index: usize) -> &'static str {
    SCENES[index % COUNT].name
}

/// Draws scene `index`. Beyond [`COUNT`] scenes repeat with other noise.
#[must_use]
pub fn render(index: usize, size: Size) -> RgbImage {
    let scene = &SCENES[index % COUNT];
    let noise = Noise::new(SEED.wrapping_add(index as u32));
    let mut picture = RgbImage::new(size.width, size.height);
    backdrop::draw(&mut picture, &scene.backdrop, noise);
    for placed in scene.things {
        things::draw(&mut picture, placed);
    }
    noise::grain(&mut picture, noise);
    picture
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn every_size_can_be_drawn(
            index in 0..2 * COUNT, width in 16u32..300, height in 16u32..300
        ) {
            let picture = render(index, Size { width, height });
            prop_assert_eq!(picture.dimensions(), (width, height));
        }
    }
}
