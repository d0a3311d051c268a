//! Which frame next: one waiting place per camera, fair picks. Pure logic, no clock, no threads.
//!
//! - A camera has one waiting place; a newer frame replaces the one that waits (newest wins).
//! - The next frame is that of the camera with the fewest frames being computed, among those the one
//!   that has waited longest. So a lone camera may occupy every worker, and as soon as others wait it
//!   falls back to its share.
//! - A replaced frame hands its turn to its successor: a camera that sends fast neither gains nor
//!   loses its place in the line.

use std::collections::HashMap;

/// Identifies a stream for as long as it is registered. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CameraKey(pub u64);

/// What became of an offered frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Offer<F> {
    /// It waits; the camera had nothing waiting.
    Waiting,
    /// It waits in place of this older frame, which must now be answered.
    Replaced(F),
    /// The camera is not registered (any more); the frame comes back.
    NoCamera(F),
}

/// Waiting places and picks of all cameras. `F` is the frame; its contents are not looked at.
#[derive(Debug)]
pub struct Scheduler<F> {
    cameras: HashMap<CameraKey, Slot<F>>,
    next_turn: u64,
    waiting: usize,
    computing: usize,
}

#[derive(Debug)]
struct Slot<F> {
    waiting: Option<Waiting<F>>,
    computing: usize,
}

#[derive(Debug)]
struct Waiting<F> {
    turn: u64,
    frame: F,
}

impl<F> Default for Scheduler<F> {
    fn default() -> Self {
        Self { cameras: HashMap::new(), next_turn: 0, waiting: 0, computing: 0 }
    }
}

impl<F> Scheduler<F> {
    /// Registers a camera. Registering it again changes nothing.
    pub fn add(&mut self, key: CameraKey) {
        self.cameras.entry(key).or_insert(Slot { waiting: None, computing: 0 });
    }

    /// Forgets a camera and hands back the frame that waited, if any. Frames being computed are
    /// still to be reported with [`done`](Self::done).
    pub fn remove(&mut self, key: CameraKey) -> Option<F> {
        let slot = self.cameras.remove(&key)?;
        self.computing -= slot.computing;
        slot.waiting.map(|waiting| {
            self.waiting -= 1;
            waiting.frame
        })
    }

    /// Puts a camera's newest frame into its waiting place.
    pub fn offer(&mut self, key: CameraKey, frame: F) -> Offer<F> {
        let Some(slot) = self.cameras.get_mut(&key) else {
            return Offer::NoCamera(frame);
        };
        if let Some(waiting) = &mut slot.waiting {
            return Offer::Replaced(std::mem::replace(&mut waiting.frame, frame));
        }
        slot.waiting = Some(Waiting { turn: self.next_turn, frame });
        self.next_turn += 1;
        self.waiting += 1;
        Offer::Waiting
    }

    /// Takes the frame whose turn it is. Linear in the number of cameras, which at hundreds of
    /// cameras is a microsecond beside milliseconds of computing.
    pub fn pick(&mut self) -> Option<(CameraKey, F)> {
        if self.waiting == 0 {
            return None;
        }
        let key = self
            .cameras
            .iter()
            .filter_map(|(key, slot)| Some((slot.computing, slot.waiting.as_ref()?.turn, *key)))
            .min()
            .map(|(_, _, key)| key)?;
        let slot = self.cameras.get_mut(&key)?;
        let waiting = slot.waiting.take()?;
        slot.computing += 1;
        self.computing += 1;
        self.waiting -= 1;
        Some((key, waiting.frame))
    }

    /// Reports that a picked frame of this camera is no longer being computed.
    pub fn done(&mut self, key: CameraKey) {
        if let Some(slot) = self.cameras.get_mut(&key) {
            slot.computing -= 1;
            self.computing -= 1;
        }
    }

    /// Registered cameras.
    #[must_use]
    pub fn cameras(&self) -> usize {
        self.cameras.len()
    }

    /// Frames that wait for a worker; at most one per camera.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Frames being computed for cameras that are still registered.
    #[must_use]
    pub fn computing(&self) -> usize {
        self.computing
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const A: CameraKey = CameraKey(1);
    const B: CameraKey = CameraKey(2);

    fn scheduler(cameras: &[CameraKey]) -> Scheduler<u32> {
        let mut scheduler = Scheduler::default();
        for &key in cameras {
            scheduler.add(key);
        }
        scheduler
    }

    #[test]
    fn newest_frame_wins_and_the_older_comes_back() {
        let mut s = scheduler(&[A]);
        assert_eq!(s.offer(A, 1), Offer::Waiting);
        assert_eq!(s.offer(A, 2), Offer::Replaced(1));
        assert_eq!(s.pick(), Some((A, 2)));
        assert_eq!(s.pick(), None);
    }

    #[test]
    fn a_lone_camera_may_use_every_worker() {
        let mut s = scheduler(&[A]);
        for frame in 0..4 {
            assert_eq!(s.offer(A, frame), Offer::Waiting);
            assert_eq!(s.pick(), Some((A, frame)));
        }
        assert_eq!(s.computing(), 4);
    }

    #[test]
    fn a_camera_with_frames_in_hand_yields_to_one_without() {
        let mut s = scheduler(&[A, B]);
        s.offer(A, 1);
        s.pick();
        s.offer(A, 2); // waits first,
        s.offer(B, 3); // but B has nothing in hand
        assert_eq!(s.pick(), Some((B, 3)));
        assert_eq!(s.pick(), Some((A, 2)));
    }

    #[test]
    fn replacing_a_frame_keeps_its_turn() {
        let mut s = scheduler(&[A, B]);
        s.offer(A, 1);
        s.offer(B, 2);
        s.offer(A, 3);
        assert_eq!(s.pick(), Some((A, 3)), "A has waited longest, whatever it sent since");
    }

    #[test]
    fn a_camera_that_leaves_takes_its_frame_along() {
        let mut s = scheduler(&[A]);
        s.offer(A, 1);
        s.pick();
        s.offer(A, 2);
        assert_eq!(s.remove(A), Some(2));
        assert_eq!(s.offer(A, 3), Offer::NoCamera(3));
        s.done(A);
        assert_eq!((s.cameras(), s.waiting(), s.computing()), (0, 0, 0));
    }

    #[derive(Debug, Clone)]
    enum Op {
        Add(u64),
        Remove(u64),
        Offer(u64),
        Pick,
        Done,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            1 => (0..5_u64).prop_map(Op::Add),
            1 => (0..5_u64).prop_map(Op::Remove),
            6 => (0..5_u64).prop_map(Op::Offer),
            4 => Just(Op::Pick),
            3 => Just(Op::Done),
        ]
    }

    proptest! {
        /// Against a plain model: no frame is lost or doubled, a pick is always the newest of its
        /// camera, and no waiting camera has fewer frames in hand than the picked one.
        #[test]
        fn every_frame_ends_exactly_once(ops in proptest::collection::vec(op(), 1..300)) {
            let mut s = Scheduler::default();
            let mut ended = BTreeMap::new();
            let mut newest = BTreeMap::new();
            let mut hands: BTreeMap<u64, usize> = BTreeMap::new();
            let mut picked = Vec::new();
            let mut offered = 0_u32;
            for op in ops {
                match op {
                    Op::Add(key) => { s.add(CameraKey(key)); hands.entry(key).or_default(); }
                    Op::Remove(key) => {
                        if let Some(frame) = s.remove(CameraKey(key)) {
                            *ended.entry(frame).or_insert(0) += 1;
                        }
                        hands.remove(&key);
                        newest.remove(&key);
                        picked.retain(|&k| k != key);
                    }
                    Op::Offer(key) => {
                        let frame = offered;
                        offered += 1;
                        match s.offer(CameraKey(key), frame) {
                            Offer::Waiting => prop_assert!(newest.insert(key, frame).is_none()),
                            Offer::Replaced(old) => {
                                prop_assert_eq!(newest.insert(key, frame), Some(old));
                                *ended.entry(old).or_insert(0) += 1;
                            }
                            Offer::NoCamera(back) => {
                                prop_assert!(!hands.contains_key(&key));
                                prop_assert_eq!(back, frame);
                                *ended.entry(back).or_insert(0) += 1;
                            }
                        }
                    }
                    Op::Pick => {
                        let fewest = newest.keys().map(|key| hands[key]).min();
                        if let Some((CameraKey(key), frame)) = s.pick() {
                            prop_assert_eq!(newest.remove(&key), Some(frame));
                            prop_assert_eq!(Some(hands[&key]), fewest);
                            *hands.entry(key).or_default() += 1;
                            *ended.entry(frame).or_insert(0) += 1;
                            picked.push(key);
                        } else {
                            prop_assert!(newest.is_empty());
                        }
                    }
                    Op::Done => if let Some(key) = picked.pop() {
                        s.done(CameraKey(key));
                        *hands.entry(key).or_default() -= 1;
                    }
                }
                prop_assert_eq!(s.waiting(), newest.len());
                prop_assert_eq!(s.computing(), picked.len());
            }
            while let Some((_, frame)) = s.pick() {
                *ended.entry(frame).or_insert(0) += 1;
            }
            prop_assert_eq!(ended.len(), offered as usize);
            prop_assert!(ended.values().all(|&times| times == 1));
        }

        /// However the others behave, a camera that waits is picked within one round of the rest.
        #[test]
        fn nobody_starves(flooders in 1..6_u64, rounds in 1..20_usize) {
            let mut s = Scheduler::default();
            for key in 0..=flooders { s.add(CameraKey(key)); }
            for round in 0..rounds {
                s.offer(CameraKey(0), round);
                let mut picks = 0;
                loop {
                    for key in 1..=flooders { s.offer(CameraKey(key), round); }
                    let (key, _) = s.pick().expect("someone always waits");
                    s.done(key);
                    picks += 1;
                    if key == CameraKey(0) { break; }
                    prop_assert!(picks <= flooders, "waited for {} picks", picks);
                }
            }
        }
    }
}
