//! gRPC's framing, read as it arrives: where messages begin and end, and which are handed on.
//!
//! A message is a flag byte, its length in four bytes, most significant first, and so many bytes ("Length-
//! Prefixed-Message" of gRPC over HTTP2, the protocol's description).

use std::collections::VecDeque;

use bytes::Bytes;
use prost::Message as _;
use vedette_proto::camera_ai::DetectRequest;

/// Bytes before a message: a flag and a length.
const PREFIX: usize = 5;

/// What has been seen of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Its prefix.
    Prefix {
        /// Zero unless the message is compressed.
        flag: u8,
        /// Bytes that it will have.
        length: u32,
    },
    /// So many bytes in all.
    Bytes(u32),
}

/// What to do with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meter {
    /// Hand it on as it is, once it is whole.
    Keep,
    /// Hand it on as it comes: whoever reads on refuses it at its prefix.
    Pass,
    /// Drop it, and hand on one with nothing but its frame id.
    Shed,
}

/// Follows the messages of one stream. Keeps nothing but the one that is arriving, as the pieces that it
/// comes in.
#[derive(Debug, Default)]
pub struct Framing {
    state: State,
    /// What there is of a message that is kept, its prefix first.
    held: Vec<Bytes>,
    messages: u64,
}

#[derive(Debug)]
enum State {
    /// Part of a prefix.
    Prefix { bytes: [u8; PREFIX], have: usize },
    /// A message that is kept. What is left and the length are its own bytes, without the prefix.
    Keep { left: usize, length: u32 },
    /// One that is handed on as it comes.
    Pass { left: usize },
    /// One that is dropped.
    Shed { left: usize, skim: Skim },
}

impl Default for State {
    fn default() -> Self {
        Self::Prefix { bytes: [0; PREFIX], have: 0 }
    }
}

impl Framing {
    /// Prefixes seen so far.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether a message has begun and not ended.
    #[must_use]
    pub fn amid(&self) -> bool {
        !matches!(self.state, State::Prefix { have: 0, .. })
    }

    /// Nothing more will arrive. If a message has begun of which nothing was handed on so far, a byte that
    /// shows this is.
    pub fn end(&mut self) -> Option<Bytes> {
        let begun = self.amid() && !matches!(self.state, State::Pass { .. });
        self.state = State::default();
        self.held.clear();
        begun.then(|| Bytes::from_static(&[0]))
    }

    /// Takes what has arrived off the front of `chunk`, no further than to the end of a message, and puts
    /// what is to be handed on at the end of `out`. `meter` is asked as a message's prefix is complete, and
    /// for one that is kept as more of it comes. Returns how the message was treated that has ended.
    pub fn feed(
        &mut self,
        chunk: &mut Bytes,
        out: &mut VecDeque<Bytes>,
        mut meter: impl FnMut(Seen) -> Meter,
    ) -> Option<Meter> {
        if let State::Prefix { bytes, have } = &mut self.state {
            let here = *have == 0 && chunk.len() >= PREFIX;
            let piece = chunk.split_to(chunk.len().min(PREFIX - *have));
            bytes[*have..*have + piece.len()].copy_from_slice(&piece);
            *have += piece.len();
            if *have < PREFIX {
                return None;
            }
            let [flag, length @ ..] = *bytes;
            let length = u32::from_be_bytes(length);
            // In one piece where it came in one.
            let prefix = if here { piece } else { Bytes::copy_from_slice(bytes) };
            let left = length as usize;
            self.messages += 1;
            self.state = match meter(Seen::Prefix { flag, length }) {
                Meter::Keep => {
                    self.held.push(prefix);
                    State::Keep { left, length }
                }
                Meter::Pass => {
                    out.push_back(prefix);
                    State::Pass { left }
                }
                Meter::Shed => State::Shed { left, skim: Skim::default() },
            };
        }
        if let State::Keep { left, length } = &mut self.state {
            let piece = chunk.split_to(chunk.len().min(*left));
            *left -= piece.len();
            let left = *left;
            if !piece.is_empty() {
                self.held.push(piece);
                if meter(Seen::Bytes(*length - left as u32)) == Meter::Shed {
                    let mut skim = Skim::default();
                    self.held.drain(..).skip(1).for_each(|piece| skim.feed(&piece));
                    self.state = State::Shed { left, skim };
                }
            }
        }
        let (left, treated) = match &mut self.state {
            State::Prefix { .. } => return None,
            State::Keep { left, .. } => {
                if *left == 0 {
                    out.extend(self.held.drain(..));
                }
                (*left, Meter::Keep)
            }
            State::Pass { left } => {
                let piece = chunk.split_to(chunk.len().min(*left));
                *left -= piece.len();
                out.extend((!piece.is_empty()).then_some(piece));
                (*left, Meter::Pass)
            }
            State::Shed { left, skim } => {
                let piece = chunk.split_to(chunk.len().min(*left));
                *left -= piece.len();
                skim.feed(&piece);
                if *left == 0 {
                    out.push_back(stub(skim.frame_id));
                }
                (*left, Meter::Shed)
            }
        };
        if left > 0 {
            return None;
        }
        self.state = State::default();
        Some(treated)
    }
}

/// A message with nothing but a frame id, and its prefix.
fn stub(frame_id: u64) -> Bytes {
    let message = DetectRequest { frame_id, ..DetectRequest::default() }.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap_or(0);
    [&[0], &length.to_be_bytes()[..], &message].concat().into()
}

/// Finds the frame id in a request without keeping the request, wherever the field stands (protocol
/// buffers' encoding: a tag, then a value whose length the tag's wire type tells; of a field that comes
/// twice the last one counts).
#[derive(Debug, Default)]
struct Skim {
    frame_id: u64,
    part: Part,
    /// A number of which bytes are still to come, and how many bits are here.
    number: u64,
    bits: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Tag,
    FrameId,
    /// A number that is of no interest.
    Number,
    /// The length of a value that is of no interest.
    Length,
    Skip(u64),
    /// No request: nothing more is looked for.
    Lost,
}

/// Number of the field `frame_id`.
const FRAME_ID: u64 = 1;

impl Skim {
    fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            match self.part {
                Part::Lost => return,
                Part::Skip(0) => self.part = Part::Tag,
                Part::Skip(left) => {
                    let take = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    bytes = &bytes[take..];
                    self.part = Part::Skip(left - take as u64);
                }
                part => {
                    bytes = rest;
                    if let Some(number) = self.number(byte) {
                        self.part = self.after(part, number);
                    }
                }
            }
        }
    }

    /// Adds a byte to the number being read, seven bits at a time; the number, once it is whole.
    fn number(&mut self, byte: u8) -> Option<u64> {
        if self.bits >= u64::BITS {
            self.part = Part::Lost;
            return None;
        }
        self.number |= u64::from(byte & 0x7F) << self.bits;
        self.bits += 7;
        if byte & 0x80 != 0 {
            return None;
        }
        self.bits = 0;
        Some(std::mem::take(&mut self.number))
    }

    /// What comes after a number that was this part.
    fn after(&mut self, part: Part, number: u64) -> Part {
        match part {
            Part::Tag => match (number >> 3, number & 7) {
                (FRAME_ID, 0) => Part::FrameId,
                (_, 0) => Part::Number,
                (_, 1) => Part::Skip(8),
                (_, 2) => Part::Length,
                (_, 5) => Part::Skip(4),
                _ => Part::Lost,
            },
            Part::FrameId => {
                self.frame_id = number;
                Part::Tag
            }
            Part::Length => Part::Skip(number),
            _ => Part::Tag,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(request: &DetectRequest) -> Vec<u8> {
        let message = request.encode_to_vec();
        let length = u32::try_from(message.len()).expect("small");
        [&[0], &length.to_be_bytes()[..], &message].concat()
    }

    fn request(frame_id: u64, bytes: usize) -> DetectRequest {
        DetectRequest { frame_id, image_data: vec![7; bytes].into(), ..Default::default() }
    }

    /// Feeds bytes in pieces of these sizes, again and again.
    fn run(bytes: &[u8], sizes: &[usize], shed: impl Fn(u64) -> bool) -> (Vec<u8>, Framing) {
        let (mut framing, mut out, mut begun) = (Framing::default(), VecDeque::new(), 0);
        let mut rest = Bytes::copy_from_slice(bytes);
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let mut chunk = rest.split_to((*size).clamp(1, rest.len()));
            while !chunk.is_empty() {
                framing.feed(&mut chunk, &mut out, |seen| {
                    if !matches!(seen, Seen::Prefix { .. }) {
                        return Meter::Keep;
                    }
                    begun += 1;
                    if shed(begun - 1) { Meter::Shed } else { Meter::Keep }
                });
            }
        }
        (out.into_iter().flatten().collect(), framing)
    }

    #[test]
    fn a_message_that_is_kept_is_not_copied() {
        let bytes = Bytes::from(framed(&request(1, 100)));
        let (mut framing, mut out) = (Framing::default(), VecDeque::new());
        assert_eq!(framing.feed(&mut bytes.clone(), &mut out, |_| Meter::Keep), Some(Meter::Keep));
        let pieces: Vec<_> = out.iter().map(|piece| piece.as_ptr()).collect();
        assert_eq!(pieces, [bytes.as_ptr(), bytes[PREFIX..].as_ptr()]);
        assert!(!framing.amid());
    }

    /// What is behind a message is not looked at before it is asked for, and nothing is handed on of one that
    /// is not whole.
    #[test]
    fn one_message_at_a_time() {
        let (first, second) = (framed(&request(1, 10)), framed(&request(2, 0)));
        let mut chunk = Bytes::from([&first[..], &second].concat());
        let (mut framing, mut out) = (Framing::default(), VecDeque::new());
        let mut start = chunk.split_to(9);
        assert_eq!(framing.feed(&mut start, &mut out, |_| Meter::Keep), None);
        assert!(out.is_empty() && framing.amid());
        assert_eq!(framing.feed(&mut chunk, &mut out, |_| Meter::Keep), Some(Meter::Keep));
        assert_eq!((out.drain(..).flatten().collect::<Vec<_>>(), &chunk[..]), (first, &second[..]));
        assert_eq!(framing.messages(), 1);
    }

    #[test]
    fn the_meter_hears_how_much_is_here_and_may_change_its_mind() {
        let message = framed(&request(300, 1000));
        let length = message.len() as u32 - PREFIX as u32;
        let (mut framing, mut out, mut heard) = (Framing::default(), VecDeque::new(), Vec::new());
        let mut ended = Vec::new();
        for chunk in message.chunks(400) {
            let mut chunk = Bytes::copy_from_slice(chunk);
            ended.push(framing.feed(&mut chunk, &mut out, |part| {
                heard.push(part);
                if part == Seen::Bytes(795) { Meter::Shed } else { Meter::Keep }
            }));
        }
        let prefix = Seen::Prefix { flag: 0, length };
        assert_eq!(heard, [prefix, Seen::Bytes(395), Seen::Bytes(795)]);
        assert_eq!(ended, [None, None, Some(Meter::Shed)]);
        assert_eq!(out.into_iter().flatten().collect::<Vec<_>>(), framed(&request(300, 0)));
    }

    #[test]
    fn what_is_to_be_refused_is_handed_on_as_it_comes() {
        let mut message = framed(&request(1, 100));
        message[0] = 1;
        let (mut framing, mut out) = (Framing::default(), VecDeque::new());
        let mut chunk = Bytes::copy_from_slice(&message[..50]);
        assert_eq!(framing.feed(&mut chunk, &mut out, |_| Meter::Pass), None);
        assert_eq!(out.into_iter().flatten().collect::<Vec<_>>(), message[..50]);
        assert_eq!((framing.amid(), framing.end()), (true, None));
    }

    #[test]
    fn a_message_that_is_shed_leaves_its_id() {
        for id in [0, 1, 300, u64::MAX] {
            let (out, framing) = run(&framed(&request(id, 1000)), &[64], |_| true);
            assert_eq!(out, framed(&request(id, 0)));
            assert!(!framing.amid());
        }
    }

    #[test]
    fn the_id_is_found_wherever_it_stands() {
        let mut message = request(0, 500).encode_to_vec();
        message.extend(DetectRequest { budget_ms: 70, ..Default::default() }.encode_to_vec());
        // Other wire types: fields 20 (8 bytes) and 21 (4 bytes).
        message.extend([0xA1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0xAD, 1, 8, 8, 8, 8]);
        message.extend(request(77, 0).encode_to_vec());
        for size in 1..9 {
            let mut skim = Skim::default();
            message.chunks(size).for_each(|chunk| skim.feed(chunk));
            assert_eq!((skim.frame_id, skim.part), (77, Part::Tag));
        }
    }

    #[test]
    fn what_is_no_request_is_dropped_all_the_same() {
        let mut bytes = vec![0, 0, 0, 0, 40];
        bytes.extend([0xFF; 40]);
        bytes.extend(framed(&request(2, 3)));
        let (out, _) = run(&bytes, &[7], |number| number == 0);
        assert_eq!(out, [framed(&request(0, 0)), framed(&request(2, 3))].concat());
    }

    #[test]
    fn an_end_in_the_middle_of_a_message_can_be_seen() {
        let message = framed(&request(1, 100));
        for (bytes, shed) in [(3, false), (3, true), (50, true)] {
            let (mut out, mut framing) = run(&message[..bytes], &[2], |_| shed);
            out.extend(framing.end().into_iter().flatten());
            assert!(!out.is_empty() && out.len() < 5 && message.starts_with(&out), "{out:?}");
            assert_eq!(framing.end(), None);
        }
        let (out, mut framing) = run(&message, &[7], |_| false);
        assert_eq!((out, framing.end()), (message, None));
    }

    proptest! {
        /// However the bytes are cut up: kept messages come through as they are, and shed ones as stubs.
        #[test]
        fn any_cut_of_any_messages(
            messages in proptest::collection::vec((any::<u64>(), 0..300_usize, any::<bool>()), 1..12),
            sizes in proptest::collection::vec(1..200_usize, 1..6),
        ) {
            let (mut bytes, mut expected) = (Vec::new(), Vec::new());
            for &(id, size, shed) in &messages {
                bytes.extend(framed(&request(id, size)));
                expected.extend(framed(&request(id, if shed { 0 } else { size })));
            }
            let (out, framing) = run(&bytes, &sizes, |number| messages[number as usize].2);
            prop_assert_eq!(out, expected);
            prop_assert!(!framing.amid());
            prop_assert_eq!(framing.messages(), messages.len() as u64);
        }
    }
}
