//! What must hold for any input, one function per fuzz target.
//!
//! The server's tests compile these files too and run them on every input that is kept
//! (`server/tests/it/fuzz_crashes.rs`), so they depend on the server's own crates only.

pub(crate) mod config;
pub(crate) mod model;
pub(crate) mod picture;
pub(crate) mod request;

/// Numbers off the front of an input, little-endian; zeros behind its end.
pub(crate) struct Numbers<'a>(&'a [u8]);

impl<'a> Numbers<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut out = [0; N];
        out[..head.len()].copy_from_slice(head);
        out
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(crate) fn i64(&mut self) -> i64 {
        i64::from_le_bytes(self.take())
    }

    /// All that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// An error is one line for a terminal or a log: no breaks, no escape sequences.
pub(crate) fn assert_one_line(text: &str) {
    assert!(!text.is_empty(), "an error without words");
    assert!(!text.contains(breaks_a_line), "{text:?}");
}

/// Control characters, and the two other characters that Unicode lets begin a line.
fn breaks_a_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}
