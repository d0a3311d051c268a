//! Kinds of cloud instances and their prices: a list that its user keeps.

use std::{collections::HashSet, path::Path};

use serde::Deserialize;

use crate::error::SimError;

/// The list that comes with this tool, as a file to edit.
pub const SHIPPED: &str = include_str!("../../instances.toml");

/// A kind of instance.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// Virtual CPUs, at least 1.
    pub vcpus: u32,
    /// Price of an hour, above 0.
    pub price_per_hour: f64,
    /// As in `USD`.
    pub currency: String,
    /// Where the price is from.
    pub source: String,
    /// Of what day it is.
    pub date: String,
    /// Cameras measured on it, at least 1, if anybody has.
    pub cameras: Option<u32>,
}

/// Most virtual CPUs of an instance, far above any; with it costs stay within their numbers.
const MAX_VCPUS: u32 = 10_000;

/// Most cameras of an instance, likewise.
const MAX_CAMERAS: u32 = 1_000_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    instance: Vec<Instance>,
}

impl Instance {
    /// Where the price is from and of what day.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("{}, {}", self.source, self.date)
    }

    fn check(&self) -> Result<(), String> {
        let name = &self.name;
        let empty = [
            ("name", name),
            ("currency", &self.currency),
            ("source", &self.source),
            ("date", &self.date),
        ]
        .into_iter()
        .find(|(_, text)| text.trim().is_empty() || text.contains(char::is_control));
        if let Some((key, _)) = empty {
            return Err(format!("instance {name:?}: {key} must be one line of text"));
        }
        if !(1..=MAX_VCPUS).contains(&self.vcpus) {
            return Err(format!("instance {name:?}: vcpus must be 1 to {MAX_VCPUS}"));
        }
        if !(self.price_per_hour.is_finite() && self.price_per_hour > 0.0) {
            return Err(format!("instance {name:?}: price_per_hour must be above 0"));
        }
        if self.cameras.is_some_and(|cameras| !(1..=MAX_CAMERAS).contains(&cameras)) {
            return Err(format!("instance {name:?}: cameras must be 1 to {MAX_CAMERAS}"));
        }
        Ok(())
    }
}

/// The instances of a list; the error is one line without the file's name.
pub fn parse(text: &str) -> Result<Vec<Instance>, String> {
    let list: List = toml::from_str(text).map_err(|error| {
        let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let line = error.span().map(|span| line_of(span.start));
        let place = line.map_or_else(String::new, |line| format!("line {line}: "));
        format!("{place}{}", error.message().lines().collect::<Vec<_>>().join(" "))
    })?;
    if list.instance.is_empty() {
        return Err("no [[instance]] in it".to_owned());
    }
    let mut names = HashSet::new();
    for instance in &list.instance {
        instance.check()?;
        if !names.insert(&instance.name) {
            return Err(format!("instance {:?} is there twice", instance.name));
        }
    }
    Ok(list.instance)
}

/// The instances of a file.
pub fn read(path: &Path) -> Result<Vec<Instance>, SimError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| SimError::Read { path: path.to_owned(), source })?;
    parse(&text).map_err(|why| SimError::File { path: path.to_owned(), why })
}

/// The instances that come with this tool.
///
/// # Panics
/// Never: a test reads them.
#[must_use]
pub fn shipped() -> Vec<Instance> {
    parse(SHIPPED).expect("the shipped list is well-formed")
}

/// Whether an instance's price is one that comes with this tool.
#[must_use]
pub fn is_shipped(instance: &Instance) -> bool {
    let same = |known: &Instance| {
        known.name == instance.name
            && known.price_per_hour.total_cmp(&instance.price_per_hour).is_eq()
            && known.date == instance.date
    };
    shipped().iter().any(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[[instance]]\nname = \"a\"\nvcpus = 2\nprice_per_hour = 0.1\n\
                        currency = \"USD\"\nsource = \"a list\"\ndate = \"2025-01-31\"\n";

    #[test]
    fn the_shipped_list_is_marked_as_what_it_is() {
        let list = shipped();
        assert!(list.iter().any(|instance| instance.name == "c7i.large"));
        for instance in &list {
            assert!(instance.source.contains("from memory") && is_shipped(instance));
            assert_eq!(instance.cameras, None, "nothing was measured there");
        }
    }

    #[test]
    fn mistakes_are_one_line_with_the_key() {
        assert_eq!(parse(GOOD).unwrap().len(), 1);
        for (from, to, part) in [
            ("vcpus", "cpus", "line 3: unknown field `cpus`, expected one of `name`, `vcpus`"),
            ("vcpus = 2", "vcpus = 0", "instance \"a\": vcpus must be 1 to 10000"),
            ("vcpus = 2", "vcpus = \"two\"", "line 3: invalid type: string \"two\""),
            ("0.1", "-1.0", "price_per_hour must be above 0"),
            ("0.1", "nan", "price_per_hour must be above 0"),
            ("\"USD\"", "\"\"", "currency must be one line of text"),
            ("date = \"2025-01-31\"", "", "missing field `date`"),
            ("date", "cameras = 0\ndate", "cameras must be 1 to 1000000"),
            ("[[instance]]", "[[instances]]", "unknown field `instances`"),
            ("name = \"a\"", "name = ", "line 2"),
        ] {
            let line = parse(&GOOD.replacen(from, to, 1)).unwrap_err();
            assert!(line.contains(part) && line.lines().count() == 1, "{to}: {line}");
        }
        assert_eq!(parse(&GOOD.repeat(2)).unwrap_err(), "instance \"a\" is there twice");
        assert_eq!(parse("").unwrap_err(), "no [[instance]] in it");
    }
}
