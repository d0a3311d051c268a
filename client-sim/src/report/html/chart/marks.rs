//! Single points, whose shape says what their colour says.

use std::fmt::Write as _;

use super::{PLACES, Plot, Series};
use crate::report::html::text::number;

/// The shape of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A filled circle.
    Dot,
    /// Two crossing strokes.
    Cross,
    /// A square on its corner.
    Diamond,
    /// A triangle that points down.
    Flag,
}

impl Shape {
    /// Strokes of a mark of radius `r`, relative to its middle.
    #[must_use]
    pub fn strokes(self, r: f64) -> String {
        let (r, twice) = (number(r, PLACES), number(2.0 * r, PLACES));
        match self {
            Self::Dot => {
                format!("m-{r} 0a{r} {r} 0 1 0 {twice} 0a{r} {r} 0 1 0-{twice} 0z")
            }
            Self::Cross => format!("m-{r}-{r}l{twice} {twice}m-{twice} 0l{twice}-{twice}"),
            Self::Diamond => format!("m0-{r}l{r} {r}l-{r} {r}l-{r}-{r}z"),
            Self::Flag => format!("m-{r}-{r}h{twice}l-{r} {twice}z"),
        }
    }
}

impl Plot<'_> {
    /// A mark at each known value; it starts with a move to its middle.
    pub fn marks(&mut self, series: &Series<'_>, shape: Shape, radius: f64) {
        let mut path = String::new();
        let strokes = shape.strokes(radius);
        for (x, y) in series.x.iter().zip(series.y) {
            if let Some(y) = y {
                let (x, y) = (self.x.place(*x), self.y.place(*y));
                let _ = write!(path, "M{} {}{strokes}", number(x, PLACES), number(y, PLACES));
            }
        }
        if !path.is_empty() {
            let class = format!("mark {}", series.class);
            self.path(&class, series, &path);
        }
    }
}
