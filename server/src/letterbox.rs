//! Letterbox geometry: how a picture lies in the network's input, and the way back.

/// Where the scaled picture lies inside the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// At the origin; all padding is right and below.
    TopLeft,
    /// In the middle; an odd pixel of padding goes right or below.
    Centre,
}

/// A picture scaled with its aspect ratio kept, lying in an input of fixed size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Letterbox {
    /// Picture, in pixels.
    pub source: (u32, u32),
    /// Network input, in pixels.
    pub input: (u32, u32),
    /// Scaled picture, in pixels of the input: at least 1, at most the input.
    pub scaled: (u32, u32),
    /// Its left and top edge in the input.
    pub offset: (u32, u32),
}

/// A box in floating-point pixels: left, top, right, bottom.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the coordinates are named")]
pub struct BoxF {
    pub x1: f32,
    pub y1: f32,
    pub x2: f32,
    pub y2: f32,
}

impl Letterbox {
    /// Fits `source` (width, height) into `input`. All four numbers must be positive.
    #[must_use]
    pub fn fit(source: (u32, u32), input: (u32, u32), align: Align) -> Self {
        let ratio = f64::min(
            f64::from(input.0) / f64::from(source.0),
            f64::from(input.1) / f64::from(source.1),
        );
        let scale = |length: u32, limit: u32| {
            let scaled = (f64::from(length) * ratio).round() as u32;
            scaled.clamp(1, limit)
        };
        let scaled = (scale(source.0, input.0), scale(source.1, input.1));
        Self::place(source, scaled, input, align)
    }

    /// As [`fit`](Self::fit), and the picture scaled to the same size, but the input is only the
    /// smallest rectangle within `budget` that holds it, in multiples of `stride`. The budget's sides
    /// must be such multiples.
    #[must_use]
    pub fn tight(source: (u32, u32), budget: (u32, u32), align: Align, stride: u32) -> Self {
        let Self { scaled, .. } = Self::fit(source, budget, align);
        let input = (scaled.0.next_multiple_of(stride), scaled.1.next_multiple_of(stride));
        Self::place(source, scaled, input, align)
    }

    fn place(source: (u32, u32), scaled: (u32, u32), input: (u32, u32), align: Align) -> Self {
        let offset = match align {
            Align::TopLeft => (0, 0),
            Align::Centre => ((input.0 - scaled.0) / 2, (input.1 - scaled.1) / 2),
        };
        Self { source, input, scaled, offset }
    }

    /// Maps a box from input pixels to pixels of the picture. Not clipped.
    #[must_use]
    pub fn to_source(&self, b: BoxF) -> BoxF {
        // Per axis, since rounding the scaled size bends the aspect ratio a little.
        let sx = self.source.0 as f32 / self.scaled.0 as f32;
        let sy = self.source.1 as f32 / self.scaled.1 as f32;
        let (ox, oy) = (self.offset.0 as f32, self.offset.1 as f32);
        BoxF {
            x1: (b.x1 - ox) * sx,
            y1: (b.y1 - oy) * sy,
            x2: (b.x2 - ox) * sx,
            y2: (b.y2 - oy) * sy,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_sizes() {
        let square = (416, 416);
        let vga = Letterbox::fit((640, 480), square, Align::TopLeft);
        assert_eq!((vga.scaled, vga.offset), ((416, 312), (0, 0)));
        let hd = Letterbox::fit((1920, 1080), (640, 640), Align::Centre);
        assert_eq!((hd.scaled, hd.offset), ((640, 360), (0, 140)));
        let tall = Letterbox::fit((1, 4000), square, Align::Centre);
        assert_eq!(tall.scaled, (1, 416));
    }

    #[test]
    fn tight_rectangles_of_common_cameras() {
        for (source, rectangle) in [
            ((640, 480), (416, 320)),
            ((1920, 1080), (416, 256)),
            ((1080, 1920), (256, 416)),
            ((500, 500), (416, 416)),
            ((10_000, 1), (416, 32)),
        ] {
            assert_eq!(Letterbox::tight(source, (416, 416), Align::Centre, 32).input, rectangle);
        }
    }

    fn size() -> impl Strategy<Value = (u32, u32)> {
        (1..5000_u32, 1..5000_u32)
    }

    proptest! {
        #[test]
        fn the_picture_lies_inside_and_touches_two_edges(
            source in size(),
            input in size(),
            align in prop_oneof![Just(Align::TopLeft), Just(Align::Centre)],
        ) {
            let l = Letterbox::fit(source, input, align);
            prop_assert!(l.scaled.0 >= 1 && l.scaled.1 >= 1);
            prop_assert!(l.offset.0 + l.scaled.0 <= input.0);
            prop_assert!(l.offset.1 + l.scaled.1 <= input.1);
            prop_assert!(l.scaled.0 == input.0 || l.scaled.1 == input.1);
            // The aspect ratio is kept to the rounding of one pixel.
            let want = f64::from(source.1) * f64::from(l.scaled.0) / f64::from(source.0);
            let per_pixel = f64::from(source.1) / f64::from(source.0);
            prop_assert!((want - f64::from(l.scaled.1)).abs() <= 1.0 + per_pixel);
        }

        /// A tight input holds the picture at the same scale and wastes less than a stride.
        #[test]
        fn tight_inputs_are_no_larger_than_needed(
            source in size(),
            budget in (1..21_u32, 1..21_u32).prop_map(|(w, h)| (w * 32, h * 32)),
        ) {
            let whole = Letterbox::fit(source, budget, Align::Centre);
            let tight = Letterbox::tight(source, budget, Align::Centre, 32);
            prop_assert_eq!(tight.scaled, whole.scaled);
            let axis = |input: u32, scaled: u32, offset: u32, limit: u32| {
                input.is_multiple_of(32) && input <= limit && input - scaled < 32 && offset + scaled <= input
            };
            prop_assert!(axis(tight.input.0, tight.scaled.0, tight.offset.0, budget.0));
            prop_assert!(axis(tight.input.1, tight.scaled.1, tight.offset.1, budget.1));
        }

        #[test]
        fn the_scaled_picture_maps_back_onto_the_whole(source in size(), input in size()) {
            let l = Letterbox::fit(source, input, Align::Centre);
            let (ox, oy) = (l.offset.0 as f32, l.offset.1 as f32);
            let whole = l.to_source(BoxF {
                x1: ox,
                y1: oy,
                x2: ox + l.scaled.0 as f32,
                y2: oy + l.scaled.1 as f32,
            });
            prop_assert!(whole.x1.abs() < 0.01 && whole.y1.abs() < 0.01);
            prop_assert!((whole.x2 - source.0 as f32).abs() < source.0 as f32 * 1e-5);
            prop_assert!((whole.y2 - source.1 as f32).abs() < source.1 as f32 * 1e-5);
        }
    }
}
