//! Reads the charts of a page back: what is drawn, and the numbers beside it.

/// An axis, as a chart's attributes describe it; the arithmetic is the test's own.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    kind: String,
    domain: (f64, f64),
    range: (f64, f64),
}

impl Axis {
    fn even(&self, value: f64) -> f64 {
        match self.kind.as_str() {
            "linear" => value,
            "log" => value.log10(),
            "nines" => -(1.0 - value / 100.0).log10(),
            other => panic!("an axis of kind {other}"),
        }
    }

    /// The value at a place.
    pub(crate) fn value(&self, place: f64) -> f64 {
        let (low, high) = (self.even(self.domain.0), self.even(self.domain.1));
        let share = (place - self.range.0) / (self.range.1 - self.range.0);
        let even = low + share * (high - low);
        match self.kind.as_str() {
            "log" => 10f64.powf(even),
            "nines" => 100.0 - 100.0 * 10f64.powf(-even),
            _ => even,
        }
    }

    /// Whether a place shows a value, to a hundredth of a pixel; values outside lie on the edge.
    pub(crate) fn shows(&self, place: f64, value: f64) -> bool {
        let value = value.clamp(self.domain.0, self.domain.1);
        let (a, b) = (self.value(place - 0.02), self.value(place + 0.02));
        let slack = 1e-6 * value.abs().max(1.0);
        (a.min(b) - slack..=a.max(b) + slack).contains(&value)
    }
}

/// A path with its numbers.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) class: String,
    pub(crate) name: String,
    pub(crate) x: Vec<Option<f64>>,
    pub(crate) y: Vec<Option<f64>>,
    pub(crate) d: String,
}

/// A chart of a page.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    pub(crate) name: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) paths: Vec<Path>,
    pub(crate) svg: String,
}

/// The value of an attribute of the first element in `text`.
pub(crate) fn attribute(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!(" {name}=\""))?;
    let (value, _) = rest.split_once('"')?;
    let plain = value.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    Some(plain.replace("&#39;", "'").replace("&amp;", "&"))
}

/// Numbers between commas or spaces; nothing is nothing.
pub(crate) fn numbers(text: &str) -> Vec<Option<f64>> {
    text.split([',', ' ']).map(|part| (!part.is_empty()).then(|| part.parse().unwrap())).collect()
}

fn pair(text: &str) -> (f64, f64) {
    let numbers = numbers(text);
    (numbers[0].unwrap(), numbers[1].unwrap())
}

/// All charts of a page, in both layouts.
pub(crate) fn charts(page: &str) -> Vec<Chart> {
    let mut charts = Vec::new();
    for piece in page.split("<svg class=\"chart ").skip(1) {
        let (svg, _) = piece.split_once("</svg>").unwrap();
        let head = format!(" {}", svg.split_once('>').unwrap().0);
        let axis = |name: &str| Axis {
            kind: attribute(&head, &format!("data-{name}-scale")).unwrap(),
            domain: pair(&attribute(&head, &format!("data-{name}-domain")).unwrap()),
            range: pair(&attribute(&head, &format!("data-{name}-range")).unwrap()),
        };
        let paths = svg
            .split("<path ")
            .skip(1)
            .filter_map(|text| {
                let text = format!(" {}", text.split_once("/>")?.0);
                Some(Path {
                    class: attribute(&text, "class")?,
                    name: attribute(&text, "data-name")?,
                    x: numbers(&attribute(&text, "data-x")?),
                    y: numbers(&attribute(&text, "data-y")?),
                    d: attribute(&text, "d")?,
                })
            })
            .collect();
        charts.push(Chart {
            name: attribute(&head, "data-chart").unwrap(),
            x: axis("x"),
            y: axis("y"),
            paths,
            svg: svg.to_owned(),
        });
    }
    charts
}

impl Chart {
    /// The path of a name.
    pub(crate) fn path(&self, name: &str) -> &Path {
        let found = self.paths.iter().find(|path| path.name == name);
        found.unwrap_or_else(|| panic!("{} has no {name}", self.name))
    }
}

impl Path {
    /// Known values with their places on the x axis.
    pub(crate) fn known(&self) -> Vec<(f64, f64)> {
        self.x.iter().zip(&self.y).filter_map(|(x, y)| Some(((*x)?, (*y)?))).collect()
    }

    /// Where each absolute command of the path leads: a line's points, the middles of marks.
    pub(crate) fn places(&self) -> Vec<(f64, f64)> {
        let commands = self.d.split_inclusive(|_| true).fold(Vec::new(), |mut list, part| {
            match part {
                "M" | "L" => list.push(String::new()),
                _ => {
                    if let Some(last) = list.last_mut() {
                        last.push_str(part);
                    }
                }
            }
            list
        });
        commands.iter().map(|text| first_two(text)).collect()
    }

    /// Left, top, right and bottom of the rectangles of a path of bars.
    pub(crate) fn rectangles(&self) -> Vec<[f64; 4]> {
        self.d
            .split('M')
            .skip(1)
            .map(|text| {
                let (left, top) = first_two(text);
                let after = |command: char| -> f64 {
                    let (_, rest) = text.split_once(command).unwrap();
                    let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                    rest[..end].parse().unwrap()
                };
                [left, top, after('H'), after('V')]
            })
            .collect()
    }
}

/// The two numbers at the beginning; a letter or a sign ends a number too.
fn first_two(text: &str) -> (f64, f64) {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let mut numbers = text[..end].split(' ').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}
