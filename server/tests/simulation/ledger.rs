//! The books of a run: what was read, what waits, what is in whose hands and what became of it, kept
//! beside the server and without looking into it. Every entry is checked against the rules.

use std::{collections::VecDeque, mem::replace, time::Duration};

use vedette_proto::camera_ai as pb;
use vedette_server::frame::{FrameId, Outcome};

use crate::{
    plan::{Fate, Reads},
    reading::{Doing, Reading},
    rules::{Checked, Rule, broken},
};

/// A frame that was read.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) stream: usize,
    pub(crate) sent: Duration,
    pub(crate) read: Duration,
    pub(crate) budget: Duration,
    pub(crate) fate: Fate,
    pub(crate) shape: u8,
    /// How many had been picked before it, of all cameras.
    pub(crate) pick: Option<u64>,
    pub(crate) outcome: Option<(Outcome, Duration)>,
    pub(crate) delivered: Option<Duration>,
}

/// A camera's stream, or a call.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) camera: usize,
    pub(crate) reads: Reads,
    reading: Reading,
    waiting: Option<Waiting>,
    /// Frames being computed.
    in_hand: usize,
    /// Picked frames, in that order, from the first on that has not ended; whether each has.
    turns: VecDeque<(u64, bool)>,
    /// Its client has left, or it has ended.
    gone: bool,
    pub(crate) read: u64,
    /// Frames that no answer was delivered for.
    undelivered: usize,
    unsettled: usize,
    last_settled: Duration,
    last_computed: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    frame: u64,
    turn: u64,
    /// Cameras that waited already when this one began to.
    ahead: usize,
    /// Picks of others since, with as many frames in hand as this one or more.
    passed: usize,
}

/// What became of an offered frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    Waits,
    /// It waits in place of this one.
    Replaced(u64),
    NoCamera,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) frames: Vec<Frame>,
    pub(crate) streams: Vec<Stream>,
    /// Streams with a frame that waits.
    waiting: Vec<usize>,
    registered: Vec<usize>,
    in_hand: usize,
    next_turn: u64,
    picks: u64,
    outcomes: [u64; Outcome::ALL.len()],
}

impl Ledger {
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Streams of cameras that are registered.
    pub(crate) fn registered(&self) -> &[usize] {
        &self.registered
    }

    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand
    }

    /// Frames in hand of cameras that are still registered.
    pub(crate) fn in_hand_of_registered(&self) -> usize {
        self.registered.iter().map(|number| self.streams[*number].in_hand).sum()
    }

    pub(crate) fn outcomes(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    pub(crate) fn unsettled(&self) -> impl Iterator<Item = usize> {
        (0..self.frames.len()).filter(|frame| self.frames[*frame].outcome.is_none())
    }

    pub(crate) fn frame(&self, frame: u64) -> &Frame {
        &self.frames[frame as usize]
    }

    fn stream_of(&self, frame: u64) -> &Stream {
        &self.streams[self.frame(frame).stream]
    }

    pub(crate) fn open(&mut self, camera: usize, reads: Reads, places: usize) -> usize {
        self.registered.push(self.streams.len());
        self.streams.push(Stream {
            camera,
            reads,
            reading: Reading::new(places),
            waiting: None,
            in_hand: 0,
            turns: VecDeque::new(),
            gone: false,
            read: 0,
            undelivered: 0,
            unsettled: 0,
            last_settled: Duration::ZERO,
            last_computed: None,
        });
        self.streams.len() - 1
    }

    /// A frame was read into the place that the reader held.
    pub(crate) fn read(&mut self, frame: Frame) -> FrameId {
        let stream = &mut self.streams[frame.stream];
        stream.reading.doing = Doing::WantsPlace;
        stream.read += 1;
        stream.undelivered += 1;
        stream.unsettled += 1;
        self.frames.push(frame);
        FrameId(self.frames.len() as u64 - 1)
    }

    /// A frame was offered, and the server says whether it has replaced one. The books tell which.
    pub(crate) fn offered(&mut self, frame: u64, replaced: bool) -> Checked<Offered> {
        let number = self.frame(frame).stream;
        let ahead = self.waiting.len();
        let stream = &mut self.streams[number];
        if stream.gone && replaced {
            let text = format!("frame {frame} has replaced one of a camera that has left");
            return broken(Rule::OneOutcome, text);
        }
        if stream.gone {
            return Ok(Offered::NoCamera);
        }
        match (&mut stream.waiting, replaced) {
            (Some(waiting), true) => Ok(Offered::Replaced(replace(&mut waiting.frame, frame))),
            (None, false) => {
                let turn = self.next_turn;
                stream.waiting = Some(Waiting { frame, turn, ahead, passed: 0 });
                self.next_turn += 1;
                self.waiting.push(number);
                Ok(Offered::Waits)
            }
            (Some(Waiting { frame: older, .. }), false) => broken(
                Rule::NewestWins,
                format!("frame {frame} came while {older} waited, and nothing was replaced"),
            ),
            (None, true) => broken(
                Rule::NewestWins,
                format!("frame {frame} has replaced one, and none of its camera waited"),
            ),
        }
    }

    fn no_longer_waits(&mut self, stream: usize) -> Option<Waiting> {
        let waiting = self.streams[stream].waiting.take()?;
        self.waiting.retain(|other| *other != stream);
        Some(waiting)
    }

    /// Of two frames that were taken at once, whether this one's turn came before that one's.
    pub(crate) fn comes_before(&self, this: u64, that: u64) -> bool {
        let turn = |frame| {
            let stream = self.stream_of(frame);
            stream.waiting.map(|waiting| (stream.in_hand, waiting.turn))
        };
        turn(this) <= turn(that)
    }

    /// A worker has picked a frame.
    ///
    /// Why nobody starves. Say that a camera C waits with c frames in hand; c cannot grow meanwhile.
    /// Another camera D that is picked before C has fewer than c in hand (that is C's fair share, and
    /// impossible for c = 0), or exactly c and waits for longer (by the rule of fair share not more).
    /// Of the second kind there are no more than cameras that waited before C did: once picked, D's next
    /// frame gets a turn after C's. So of the picks that pass C over, at most that many have c frames in
    /// hand or more, however often C's frame is replaced. In particular a camera with nothing in hand is
    /// picked before every other camera has been picked once.
    ///
    /// Tells whether the rule of fair share decided: one that waits for longer has more in hand.
    pub(crate) fn pick(&mut self, frame: u64) -> Checked<bool> {
        let number = self.frame(frame).stream;
        let turn = match self.no_longer_waits(number) {
            Some(waiting) if waiting.frame == frame => waiting.turn,
            Some(Waiting { frame: newest, .. }) => {
                let text = format!("frame {frame} was picked, its camera's newest is {newest}");
                return broken(Rule::NewestWins, text);
            }
            None => {
                let text = format!("frame {frame} was picked and did not wait");
                return broken(Rule::OneOutcome, text);
            }
        };
        let mut yielded = false;
        let share = self.streams[number].in_hand;
        for other in &self.waiting {
            let stream = &mut self.streams[*other];
            let Some(waiting) = &mut stream.waiting else { continue };
            if stream.in_hand < share {
                let text = format!(
                    "frame {frame} was picked with {share} of its camera in hand, and frame {} waits \
                     with {}",
                    waiting.frame, stream.in_hand
                );
                return broken(Rule::FairShare, text);
            }
            yielded |= stream.in_hand > share && waiting.turn < turn;
            waiting.passed += usize::from(stream.in_hand == share);
            if waiting.passed > waiting.ahead {
                let text = format!(
                    "frame {} waits with {} of its camera in hand, {} cameras were ahead of it, and \
                     now the {}th is picked before it (frame {frame})",
                    waiting.frame, stream.in_hand, waiting.ahead, waiting.passed
                );
                return broken(Rule::NoStarvation, text);
            }
        }
        let stream = &mut self.streams[number];
        stream.in_hand += 1;
        stream.turns.push_back((frame, false));
        stream.reading.picked();
        self.in_hand += 1;
        self.frames[frame as usize].pick = Some(self.picks);
        self.picks += 1;
        Ok(yielded)
    }

    /// A picked frame no longer counts as being computed.
    pub(crate) fn given_back(&mut self, frame: u64) {
        let stream = self.frame(frame).stream;
        self.streams[stream].in_hand -= 1;
        self.in_hand -= 1;
    }

    /// What must become of a frame that is about to be computed at this instant; nothing if it is
    /// worth it.
    pub(crate) fn verdict(&self, frame: u64, now: Duration) -> Option<Outcome> {
        let Frame { read, budget, .. } = self.frame(frame);
        if self.stream_of(frame).gone {
            return Some(Outcome::ClientGone);
        }
        (now.saturating_sub(*read) > *budget).then_some(Outcome::Expired)
    }

    /// A frame was answered so; of a client that has left, it counts as that. Returns what it counts as,
    /// and whether the answer has to wait for that of a frame picked earlier.
    pub(crate) fn settle(
        &mut self,
        frame: u64,
        asked: Outcome,
        now: Duration,
    ) -> Checked<(Outcome, bool)> {
        let outcome = if self.stream_of(frame).gone { Outcome::ClientGone } else { asked };
        let record = &mut self.frames[frame as usize];
        if let Some((before, _)) = record.outcome.replace((outcome, now)) {
            let text = format!("frame {frame} ended as {before:?} and again as {outcome:?}");
            return broken(Rule::OneOutcome, text);
        }
        let stream = &mut self.streams[record.stream];
        stream.unsettled -= 1;
        stream.last_settled = now;
        self.outcomes[outcome as usize] += 1;
        if let Some((_, ended)) = stream.turns.iter_mut().find(|(turn, _)| *turn == frame) {
            *ended = true;
        }
        while stream.turns.front().is_some_and(|(_, ended)| *ended) {
            stream.turns.pop_front();
        }
        Ok((outcome, stream.turns.iter().any(|(turn, _)| *turn == frame)))
    }

    /// An answer has come out of a stream.
    pub(crate) fn deliver(
        &mut self,
        number: usize,
        frame: u64,
        said: pb::Outcome,
        at: Duration,
    ) -> Checked<Outcome> {
        let Some(record) = self.frames.get_mut(frame as usize) else {
            return broken(Rule::OneOutcome, format!("an answer to frame {frame}, never read"));
        };
        let ended = record.outcome.map(|(outcome, _)| outcome);
        let superseded = [Some(said), ended.map(Outcome::to_wire)];
        let superseded = superseded.map(|outcome| outcome == Some(pb::Outcome::Superseded));
        if superseded[0] != superseded[1] {
            // Of two frames of which one replaced the other, the wrong one was answered.
            let text = format!("frame {frame} was answered {said:?}, by the books it is {ended:?}");
            return broken(Rule::NewestWins, text);
        }
        let Some(outcome) = ended.filter(|ended| ended.to_wire() == said) else {
            let text = format!("frame {frame} was answered {said:?}, by the books it is {ended:?}");
            return broken(Rule::OneOutcome, text);
        };
        if record.stream != number {
            let text = format!("frame {frame} of stream {} came from {number}", record.stream);
            return broken(Rule::OneOutcome, text);
        }
        if record.delivered.replace(at).is_some() {
            return broken(Rule::OneOutcome, format!("frame {frame} was answered twice"));
        }
        let stream = &mut self.streams[number];
        stream.undelivered -= 1;
        if record.pick.is_some()
            && let Some(before) = stream.last_computed.replace(frame)
            && before > frame
        {
            let text = format!("frame {frame} was answered after {before}, and sent before it");
            return broken(Rule::AnswerOrder, text);
        }
        Ok(outcome)
    }

    /// A stream has come to its end: no answer can be missing.
    pub(crate) fn ended(&self, number: usize, accepted: Option<u64>) -> Checked {
        let stream = &self.streams[number];
        if stream.undelivered > 0 {
            let text = format!("stream {number} ended with {} answers missing", stream.undelivered);
            return broken(Rule::OneOutcome, text);
        }
        if let Some(said) = accepted
            && said != stream.read
        {
            let text = format!("stream {number} ended after {} frames, {said} said", stream.read);
            return broken(Rule::Drain, text);
        }
        Ok(())
    }

    /// A stream's client has left, or the stream is over. Returns the frame that waited, and how many
    /// are in hand.
    pub(crate) fn leave(&mut self, number: usize) -> (Option<u64>, usize) {
        let waiting = self.no_longer_waits(number).map(|waiting| waiting.frame);
        let stream = &mut self.streams[number];
        stream.gone = true;
        self.registered.retain(|other| *other != number);
        (waiting, stream.in_hand)
    }

    pub(crate) fn reader(&mut self, stream: usize, doing: Doing) {
        self.streams[stream].reading.doing = doing;
    }

    /// A useless frame was read.
    pub(crate) fn useless(&mut self, number: usize, bytes: usize, now: Duration) -> Checked {
        match self.streams[number].reading.useless(bytes, now) {
            None => Ok(()),
            Some(missing) => {
                let text = format!("stream {number} was read {missing:?} too early");
                broken(Rule::ReadingPace, text)
            }
        }
    }

    /// Once nothing more happens at an instant: places of a stream's reply queue, of which so many are
    /// free, answers that should have come, and no reader that pauses although its frame was taken up.
    pub(crate) fn at_rest(&self, number: usize, free: Option<usize>) -> Checked {
        let stream = &self.streams[number];
        let Reading { places, doing, .. } = stream.reading;
        let used = stream.undelivered + usize::from(doing == Doing::HasPlace);
        if let Some(free) = free
            && doing != Doing::Finishes
            && free + used != places
        {
            let text = format!(
                "stream {number} has {free} of {places} reply places free, and {used} in use"
            );
            return broken(Rule::ReplyPlaces, text);
        }
        let held_back = stream.turns.iter().filter(|(_, ended)| *ended).count();
        let to_come = stream.unsettled + held_back;
        if stream.reads == Reads::AtOnce && stream.undelivered != to_come {
            let text = format!(
                "{} answers of stream {number} have not come, and only {to_come} must wait",
                stream.undelivered
            );
            return broken(Rule::AnswerOrder, text);
        }
        if doing == Doing::Released {
            let text = format!("stream {number} is not read although its frame was taken up");
            return broken(Rule::ReadingPace, text);
        }
        Ok(())
    }

    /// When the grace time was not enough: a client that reads, whose frames have all been answered for
    /// a while, should have seen its stream's end.
    pub(crate) fn not_drained(&self, patience: Duration, now: Duration) -> Checked {
        let hangs = |stream: &Stream| {
            !stream.gone
                && stream.reads == Reads::AtOnce
                && stream.unsettled == 0
                && stream.last_settled + patience < now
        };
        match self.streams.iter().position(hangs) {
            Some(number) => {
                let text = format!("stream {number} did not end, its frames are all answered");
                broken(Rule::Drain, text)
            }
            None => Ok(()),
        }
    }
}
