//! What a model file says about itself: class names and layout.

use std::collections::BTreeMap;

use super::InferError;

/// Parses class names as exporters write them into a model's `names` metadata: a JSON list
/// (`["red", "green"]`), a JSON object or a Python dictionary (`{0: 'red', 1: 'green'}`).
///
/// `None` when the text is neither, or the numbers are not 0, 1, 2 and so on.
#[must_use]
pub fn parse_names(text: &str) -> Option<Vec<String>> {
    if let Ok(names) = serde_json::from_str(text) {
        return Some(names);
    }
    if let Ok(numbered) = serde_json::from_str::<BTreeMap<usize, String>>(text) {
        let in_order = numbered.keys().copied().eq(0..numbered.len());
        return (in_order && !numbered.is_empty()).then(|| numbered.into_values().collect());
    }
    let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (key, after) = rest.split_once(':')?;
        let number: usize = key.trim().trim_matches(['"', '\'']).parse().ok()?;
        if number != names.len() {
            return None;
        }
        let (name, after) = quoted(after.trim_start())?;
        names.push(name);
        let after = after.trim_start();
        rest = if after.is_empty() { after } else { after.strip_prefix(',')?.trim_start() };
    }
    (!names.is_empty()).then_some(names)
}

/// Splits a leading quoted string, single or double, with backslash escapes, off the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut chars = text.char_indices();
    let (_, quote) = chars.next().filter(|(_, c)| matches!(c, '"' | '\''))?;
    let mut out = String::new();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => out.push(chars.next()?.1),
            _ if c == quote => return Some((out, &text[at + c.len_utf8()..])),
            _ => out.push(c),
        }
    }
    None
}

/// Labels from a text file: one per line, blank lines at the end ignored.
#[must_use]
pub fn parse_label_file(text: &str) -> Vec<String> {
    let text = text.trim_start_matches('\u{feff}');
    text.trim_end().lines().map(|line| line.trim().to_owned()).collect()
}

/// Settles the labels of a model with `classes` classes: the user's file, else the model's own
/// metadata, else, with a warning, `class_0` and so on.
///
/// # Errors
/// When the user's labels, or else the model's own, are not as many as the model's classes.
pub fn settle_labels(
    classes: usize,
    from_file: Option<Vec<String>>,
    from_model: Option<&str>,
) -> Result<Vec<String>, InferError> {
    if let Some(labels) = from_file {
        if labels.len() != classes {
            return Err(InferError::Labels(format!(
                "the file names {} classes, the model has {classes}",
                labels.len()
            )));
        }
        return Ok(labels);
    }
    let Some(names) = from_model.and_then(parse_names) else {
        tracing::warn!(
            classes,
            "the model does not name its classes; they are called class_0 and so on (--labels names \
             them)"
        );
        return Ok((0..classes).map(|class| format!("class_{class}")).collect());
    };
    if names.len() != classes {
        return Err(InferError::Layout(format!(
            "the model names {} classes but its output has {classes}; is it laid out otherwise \
             (--layout), or were classes added later (--labels)?",
            names.len()
        )));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_exporters_write_them() {
        for text in [
            r#"["red", "green"]"#,
            "{0: 'red', 1: 'green'}",
            r#"{"0": "red", "1": "green"}"#,
            "{ 0:'red' ,1:'green' }",
        ] {
            assert_eq!(parse_names(text), Some(vec!["red".into(), "green".into()]), "{text}");
        }
        let odd = r#"{0: "driver's seat", 1: 'it\'s', 2: 'a, b: c'}"#;
        let names = vec!["driver's seat".to_owned(), "it's".into(), "a, b: c".into()];
        assert_eq!(parse_names(odd), Some(names));
    }

    #[test]
    fn json_escapes_are_read() {
        assert_eq!(parse_names(r#"{"0": "caf\u00e9"}"#), Some(vec!["café".into()]));
    }

    #[test]
    fn anything_else_is_not_names() {
        for text in ["", "red", "{}", "{1: 'red'}", "{0: 'red', 2: 'blue'}", "{0: 'red", "{0: red}"]
        {
            assert_eq!(parse_names(text), None, "{text}");
        }
    }

    #[test]
    fn a_users_labels_must_match() {
        let three = || Some(vec!["a".to_owned(), "b".into(), "c".into()]);
        assert!(settle_labels(3, three(), None).is_ok());
        let error = settle_labels(80, three(), None).expect_err("count").to_string();
        assert_eq!(error, "labels: the file names 3 classes, the model has 80");
        let numbered = settle_labels(2, None, None).expect("numbered");
        assert_eq!(numbered, ["class_0", "class_1"]);
        let other = settle_labels(1, None, Some("['x']")).expect("numbered");
        assert_eq!(other, ["class_0"], "neither JSON nor a dictionary");
        let error = settle_labels(2, None, Some(r#"["x"]"#)).expect_err("count").to_string();
        assert!(error.contains("names 1 classes but its output has 2"), "{error}");
    }

    #[test]
    fn label_files() {
        assert_eq!(parse_label_file("\u{feff}red\r\ngreen \n\n"), ["red", "green"]);
    }
}
