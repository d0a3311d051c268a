//! Patterns of camera ids: `*` is any run of characters, `?` is any one.

/// A pattern of camera ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern(String);

impl Pattern {
    /// `None` for a pattern that no camera id could match, by its characters or by having none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let legal =
            |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'*' | b'?');
        (!text.is_empty() && text.bytes().all(legal)).then(|| Self(text.to_owned()))
    }

    /// Whether it matches everything, also a camera without an id.
    pub(super) fn is_everything(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'*')
    }

    /// Whether it matches the whole of `id`. Takes at most length x length steps, as only the last star is
    /// ever stretched.
    pub(super) fn matches(&self, id: &str) -> bool {
        let (pattern, id) = (self.0.as_bytes(), id.as_bytes());
        let (mut p, mut i) = (0, 0);
        // Where the last star stands, and where what follows it was last tried.
        let mut star = None;
        while i < id.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    star = Some((p, i));
                    p += 1;
                }
                Some(&byte) if byte == b'?' || byte == id[i] => {
                    p += 1;
                    i += 1;
                }
                _ => {
                    let Some((at, tried)) = star else { return false };
                    star = Some((at, tried + 1));
                    (p, i) = (at + 1, tried + 1);
                }
            }
        }
        pattern[p..].iter().all(|&byte| byte == b'*')
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, id: &str) -> bool {
        Pattern::parse(pattern).expect("legal").matches(id)
    }

    #[test]
    fn stars_and_question_marks() {
        for (pattern, id) in [
            ("*", "anything"),
            ("gate", "gate"),
            ("north-*", "north-1"),
            ("north-*", "north-"),
            ("*-door", "front-door"),
            ("cam-??", "cam-07"),
            ("a*b*c", "abbc"),
            ("*a*", "bab"),
            ("**", "x"),
        ] {
            assert!(matches(pattern, id), "{pattern} {id}");
        }
        for (pattern, id) in [
            ("gate", "gate-2"),
            ("gate", "a-gate"),
            ("north-*", "north"),
            ("cam-??", "cam-7"),
            ("a*b*c", "abb"),
            ("Gate", "gate"),
            ("?", ""),
        ] {
            assert!(!matches(pattern, id), "{pattern} {id}");
        }
        for bad in ["", "a b", "a/b", "[ab]", "ü"] {
            assert_eq!(Pattern::parse(bad), None, "{bad:?}");
        }
        assert!(Pattern::parse("**").is_some_and(|pattern| pattern.is_everything()));
        assert!(Pattern::parse("*?").is_some_and(|pattern| !pattern.is_everything()));
    }

    /// The definition, which takes exponential time.
    fn by_definition(pattern: &[u8], id: &[u8]) -> bool {
        match (pattern.split_first(), id.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => {
                by_definition(rest, id) || (!id.is_empty() && by_definition(pattern, &id[1..]))
            }
            (Some((b'?', rest)), Some((_, others))) => by_definition(rest, others),
            (Some((byte, rest)), Some((other, others))) => {
                byte == other && by_definition(rest, others)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn as_by_definition(pattern in "[ab*?]{1,8}", id in "[ab]{0,10}") {
            let expected = by_definition(pattern.as_bytes(), id.as_bytes());
            prop_assert_eq!(matches(&pattern, &id), expected, "{} {}", pattern, id);
        }
    }
}
