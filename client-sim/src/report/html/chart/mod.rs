//! Charts as SVG: scales, axes, lines, bars, marks and limits.
//!
//! A chart carries its numbers twice: drawn, and as data attributes (`data-x`, `data-y`, and each
//! axis' kind, domain and range), so that the page's script can read values out under the pointer
//! and a test can compare what is drawn with what was measured. All looks come from CSS classes.

mod axes;
pub mod marks;
pub mod scale;

use std::fmt::Write as _;

use super::text::{escape, number};
use scale::Scale;

pub use axes::{from_zero, latency_axis, latency_name};

/// Decimals of places in pixels.
const PLACES: usize = 2;

/// Decimals of values in data attributes: a microsecond in milliseconds, and some more for ratios.
const DIGITS: usize = 6;

/// Least distance between two labels at the right edge, in pixels.
const LABEL_GAP: f64 = 15.0;

/// A chart is drawn once for screens and once for phones; the page shows the one that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// About 1100 pixels, with labels beside the lines.
    Wide,
    /// About 340 pixels.
    Narrow,
}

impl Layout {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Wide, Self::Narrow];

    /// Its CSS class.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }

    /// Width of the picture.
    #[must_use]
    pub fn width(self) -> f64 {
        match self {
            Self::Wide => 1100.0,
            Self::Narrow => 340.0,
        }
    }

    /// Either of two values.
    #[must_use]
    pub fn pick<T>(self, wide: T, narrow: T) -> T {
        match self {
            Self::Wide => wide,
            Self::Narrow => narrow,
        }
    }
}

/// Room around the plotted area, in pixels.
#[derive(Debug, Clone, Copy)]
pub struct Margins {
    /// For the values of the y axis.
    pub left: f64,
    /// For labels of lines.
    pub right: f64,
    /// For the name of the y axis.
    pub top: f64,
    /// For the values and the name of the x axis.
    pub bottom: f64,
}

impl Margins {
    /// What most charts need.
    #[must_use]
    pub fn usual(layout: Layout) -> Self {
        layout.pick(
            Self { left: 56.0, right: 92.0, top: 26.0, bottom: 44.0 },
            Self { left: 40.0, right: 12.0, top: 26.0, bottom: 42.0 },
        )
    }
}

/// What a chart is.
#[derive(Debug, Clone, Copy)]
pub struct Spec<'a> {
    /// Its name, unique in the page.
    pub name: &'a str,
    /// What it shows in a few words, for those who cannot see it.
    pub label: &'a str,
    /// What can be seen in it, in a sentence.
    pub description: &'a str,
    /// How the pointer finds values: `x` = all series at the nearest x, `point` = the nearest
    /// mark, `heat` = the cell, empty = not at all.
    pub hover: &'a str,
    /// What a read-out says of x, with `{}` in place of the value.
    pub x_text: &'a str,
    /// Length of a bin where x is a place in time.
    pub bin: Option<f64>,
}

/// A line's values.
#[derive(Debug, Clone, Copy)]
pub struct Series<'a> {
    /// As read-outs and labels call it.
    pub name: &'a str,
    /// Unit in read-outs.
    pub unit: &'a str,
    /// CSS class that gives it its colour.
    pub class: &'a str,
    /// Places.
    pub x: &'a [f64],
    /// Values; `None` = nothing measured there, which leaves a gap.
    pub y: &'a [Option<f64>],
}

#[derive(Debug)]
struct Label {
    y: f64,
    text: String,
    class: String,
}

/// A chart being drawn.
#[derive(Debug)]
pub struct Plot<'a> {
    spec: Spec<'a>,
    layout: Layout,
    height: f64,
    /// The horizontal axis.
    pub x: Scale,
    /// The vertical one.
    pub y: Scale,
    under: String,
    body: String,
    labels: Vec<Label>,
}

impl<'a> Plot<'a> {
    /// An empty chart of a height in pixels.
    #[must_use]
    pub fn new(
        spec: Spec<'a>,
        layout: Layout,
        height: f64,
        margins: Margins,
        axes: (Scale, Scale),
    ) -> Self {
        let (x, y) = axes;
        Self {
            spec,
            layout,
            height,
            x: x.over((margins.left, layout.width() - margins.right)),
            y: y.over((height - margins.bottom, margins.top)),
            under: String::new(),
            body: String::new(),
            labels: Vec::new(),
        }
    }

    /// A line through the values, with gaps where there are none.
    pub fn line(&mut self, series: &Series<'_>) {
        let mut path = String::new();
        let mut pen_down = false;
        for (x, y) in series.x.iter().zip(series.y) {
            if let Some(y) = y {
                let (x, y) = (self.x.place(*x), self.y.place(*y));
                let command = if pen_down { 'L' } else { 'M' };
                let _ = write!(path, "{command}{} {}", number(x, PLACES), number(y, PLACES));
                if !pen_down {
                    // A value between two gaps is a dot: a line of no length with round ends.
                    path.push_str("h0");
                }
            }
            pen_down = y.is_some();
        }
        let class = format!("line {}", series.class);
        self.path(&class, series, &path);
    }

    /// The area between two lines, where both are known.
    pub fn band(&mut self, class: &str, x: &[f64], low: &[Option<f64>], high: &[Option<f64>]) {
        let known = |i: usize| Some((x[i], (*low.get(i)?)?, (*high.get(i)?)?));
        let points: Vec<_> = (0..x.len()).map(known).collect();
        for run in points.split(Option::is_none) {
            let run: Vec<_> = run.iter().flatten().collect();
            if run.len() < 2 {
                continue;
            }
            let there = run.iter().map(|(x, _, high)| (*x, *high));
            let back = run.iter().rev().map(|(x, low, _)| (*x, *low));
            let path: Vec<String> = there
                .chain(back)
                .map(|(x, y)| {
                    let (x, y) = (self.x.place(x), self.y.place(y));
                    format!("{} {}", number(x, 1), number(y, 1))
                })
                .collect();
            let _ = write!(self.body, "<path class=\"{class}\" d=\"M{}z\"/>", path.join("L"));
        }
    }

    /// Bars from `from` to `to`, each between two places on the x axis; the values that read-outs
    /// give are `series`'.
    pub fn bars(&mut self, series: &Series<'_>, bars: &[Bar]) {
        let mut path = String::new();
        for bar in bars {
            let (left, right) = (self.x.place(bar.x.0), self.x.place(bar.x.1));
            let (top, base) = (self.y.place(bar.y.1), self.y.place(bar.y.0));
            // A sliver of room between bars, where there is room for it.
            let gap = if right - left > 6.0 { 1.0 } else { 0.0 };
            let _ = write!(
                path,
                "M{} {}H{}V{}H{}z",
                number(left, PLACES),
                number(top, PLACES),
                number(right - gap, PLACES),
                number(base, PLACES),
                number(left, PLACES),
            );
        }
        let class = format!("bar {}", series.class);
        self.path(&class, series, &path);
    }

    /// A limit: a dashed line over the whole width, with its name.
    pub fn limit(&mut self, name: &str, value: f64) {
        let (left, right) = self.x.range;
        let y = self.y.place(value);
        let _ = write!(
            self.body,
            "<line class=\"limit\" data-name=\"{name}\" data-value=\"{}\" x1=\"{}\" x2=\"{}\" \
             y1=\"{y}\" y2=\"{y}\"/><text class=\"limit-name\" x=\"{}\" y=\"{}\">{name}</text>",
            number(value, DIGITS),
            number(left, 1),
            number(right, 1),
            number(left + 6.0, 1),
            number(y - 6.0, 1),
            name = escape(name),
            y = number(y, PLACES),
        );
    }

    /// An upright line at a value of the x axis, with its name at one end.
    pub fn upright(&mut self, class: &str, name: &str, value: f64, at: At) {
        let x = self.x.place(value);
        let (bottom, top) = self.y.range;
        // The name goes to the side that has more room.
        let middle = f64::midpoint(self.x.range.0, self.x.range.1);
        let (anchor, dx) = if x > middle { ("end", -6.0) } else { ("start", 6.0) };
        let _ = write!(
            self.body,
            "<line class=\"upright {class}\" data-name=\"{name}\" data-value=\"{}\" x1=\"{x}\" \
             x2=\"{x}\" y1=\"{}\" y2=\"{}\"/><text class=\"upright-name {class}\" x=\"{}\" \
             y=\"{}\" text-anchor=\"{anchor}\">{name}</text>",
            number(value, DIGITS),
            number(top, 1),
            number(bottom, 1),
            number(x + dx, 1),
            number(if at == At::Top { top + 11.0 } else { bottom - 8.0 }, 1),
            name = escape(name),
            x = number(x, PLACES),
        );
    }

    /// A name beside the right end of a line, at the height of a value.
    pub fn label(&mut self, class: &str, text: &str, value: Option<f64>) {
        if let (Layout::Wide, Some(value)) = (self.layout, value) {
            let y = self.y.place(value);
            self.labels.push(Label { y, text: text.to_owned(), class: class.to_owned() });
        }
    }

    /// Adds SVG of one's own.
    pub fn draw(&mut self, svg: &str) {
        self.body.push_str(svg);
    }

    /// Adds a path with the numbers behind it.
    pub fn path(&mut self, class: &str, series: &Series<'_>, path: &str) {
        let _ = write!(
            self.body,
            "<path class=\"{class}\" data-name=\"{}\" data-unit=\"{}\" data-x=\"{}\" \
             data-y=\"{}\" d=\"{path}\"/>",
            escape(series.name),
            escape(series.unit),
            list(series.x.iter().map(|x| Some(*x))),
            list(series.y.iter().copied()),
        );
    }

    /// The picture.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.place_labels();
        let Spec { name, label, description, hover, x_text, bin } = self.spec;
        let class = self.layout.class();
        let id = format!("{name}-{class}");
        let bin = bin.map_or_else(String::new, |bin| format!(" data-bin=\"{}\"", number(bin, 3)));
        let axis = |name: &str, scale: &Scale| {
            format!(
                "data-{name}-scale=\"{}\" data-{name}-domain=\"{} {}\" \
                 data-{name}-range=\"{} {}\"",
                scale.kind.word(),
                scale.domain.0,
                scale.domain.1,
                number(scale.range.0, PLACES),
                number(scale.range.1, PLACES),
            )
        };
        format!(
            "<svg class=\"chart {class}\" id=\"{id}\" data-chart=\"{name}\" data-hover=\"{hover}\" \
             data-x-text=\"{}\"{bin} {} {} viewBox=\"0 0 {} {}\" role=\"img\" tabindex=\"0\" \
             aria-label=\"{}\" aria-describedby=\"{id}-d\"><desc id=\"{id}-d\">{}</desc>{}{}</svg>",
            escape(x_text),
            axis("x", &self.x),
            axis("y", &self.y),
            number(self.layout.width(), 0),
            number(self.height, 0),
            escape(label),
            escape(description),
            self.under,
            self.body,
        )
    }

    /// Labels that would lie on each other are moved apart, from the bottom upwards.
    fn place_labels(&mut self) {
        self.labels.sort_by(|a, b| b.y.total_cmp(&a.y));
        let mut above = self.y.range.0 + LABEL_GAP;
        let x = number(self.x.range.1 + 8.0, 1);
        for label in &self.labels {
            let y = label.y.min(above - LABEL_GAP);
            above = y;
            let _ = write!(
                self.body,
                "<text class=\"label {}\" x=\"{x}\" y=\"{}\" dy=\".32em\">{}</text>",
                label.class,
                number(y, 1),
                escape(&label.text)
            );
        }
    }
}

/// An end of an upright line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The upper one.
    Top,
    /// The lower one.
    Bottom,
}

/// One bar: from where to where.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// Left and right end.
    pub x: (f64, f64),
    /// Lower and upper end.
    pub y: (f64, f64),
}

/// Numbers for a data attribute; nothing between two commas = not measured.
#[must_use]
pub fn list(values: impl IntoIterator<Item = Option<f64>>) -> String {
    let texts: Vec<String> = values
        .into_iter()
        .map(|value| value.map_or_else(String::new, |value| number(value, DIGITS)))
        .collect();
    texts.join(",")
}
