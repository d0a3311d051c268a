//! Where the pictures that cameras send come from. Read or drawn once, then shared.

mod drawn;
mod folder;
mod jpegs;
mod sniff;
mod video;

use bytes::Bytes;

pub use self::{
    drawn::{JPEG_QUALITY, draw_pictures, write_drawn},
    folder::{Folder, read_folder},
    sniff::{PictureKind, sniff},
    video::{check_video, read_video},
};

/// One picture file, ready to be sent.
#[derive(Debug, Clone)]
pub struct Picture {
    /// File name, or the scene's name.
    pub name: String,
    /// The file's bytes.
    pub bytes: Bytes,
}

/// The pictures of a run: at least one.
#[derive(Debug, Clone)]
pub struct PictureSet {
    pictures: Vec<Picture>,
}

impl PictureSet {
    /// `None` when there is no picture.
    #[must_use]
    pub fn new(pictures: Vec<Picture>) -> Option<Self> {
        (!pictures.is_empty()).then_some(Self { pictures })
    }

    /// All pictures, in order.
    #[must_use]
    pub fn pictures(&self) -> &[Picture] {
        &self.pictures
    }

    /// The bytes that camera `camera` sends as its frame `k`: it starts at picture
    /// `camera mod n` and cycles. Shared, not copied.
    #[must_use]
    pub fn frame(&self, camera: u32, k: u64) -> Bytes {
        let n = self.pictures.len() as u64;
        self.pictures[((u64::from(camera) + k) % n) as usize].bytes.clone()
    }

    /// Smallest, mean and largest size in bytes.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize, usize) {
        let lengths = || self.pictures.iter().map(|picture| picture.bytes.len());
        let mean = lengths().sum::<usize>() / self.pictures.len();
        (lengths().min().unwrap_or(0), mean, lengths().max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cameras_start_at_their_own_picture_and_cycle() {
        let picture = |text: &'static str| Picture {
            name: text.into(),
            bytes: Bytes::from_static(text.as_bytes()),
        };
        let set = PictureSet::new(vec![picture("a"), picture("bb"), picture("cccccc")]).unwrap();
        let frames: Vec<_> = (0..4).map(|k| set.frame(4, k)).collect();
        assert_eq!(frames, ["bb", "cccccc", "a", "bb"]);
        assert_eq!(set.sizes(), (1, 3, 6));
        assert!(PictureSet::new(Vec::new()).is_none());
    }
}
