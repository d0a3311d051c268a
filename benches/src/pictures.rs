//! What is sent and decoded: drawn scenes, a folder's pictures at the size wanted, or noise of a
//! given number of bytes.

use std::path::Path;

use bytes::Bytes;
use client_sim::{
    config::Size,
    scene,
    source::{JPEG_QUALITY, Picture, PictureSet, draw_pictures, read_folder},
};
use image::{RgbImage, codecs::jpeg::JpegEncoder, imageops::FilterType};

use crate::error::{BenchError, failed};

/// Most pictures of a folder: as many as show how pictures differ, at a bearable time of preparation.
const MOST_PICTURES: usize = 24;

/// Pictures of a smoke run.
const QUICK_PICTURES: usize = 2;

/// Where pictures come from.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// A folder; drawn scenes without one.
    pub folder: Option<&'a Path>,
    /// Few will do.
    pub quick: bool,
}

impl Source<'_> {
    /// JPEGs of `width` x `height` pixels. A folder's pictures are cropped and scaled to that and
    /// encoded anew, so that every size holds the same motifs.
    ///
    /// # Errors
    /// A folder without readable pictures.
    pub fn load(self, (width, height): (u32, u32)) -> Result<PictureSet, BenchError> {
        let size = Size { width, height };
        let Some(folder) = self.folder else {
            let count = if self.quick { QUICK_PICTURES } else { scene::COUNT };
            let drawn = draw_pictures(size, count).map_err(failed("drawing pictures"))?;
            return whole(drawn);
        };
        let found = read_folder(folder).map_err(failed("--images"))?;
        let most = if self.quick { QUICK_PICTURES } else { MOST_PICTURES };
        let scaled = found.pictures.pictures().iter().take(most).map(|picture| {
            let decoded = image::load_from_memory(&picture.bytes).map_err(|error| {
                BenchError::Setup(format!("--images: {}: {error}", picture.name))
            })?;
            let rgb = decoded.resize_to_fill(width, height, FilterType::Triangle).into_rgb8();
            encode(&picture.name, &rgb, JPEG_QUALITY)
        });
        whole(scaled.collect::<Result<_, _>>()?)
    }

    /// What the results page says of them.
    #[must_use]
    pub fn describe(self) -> String {
        match self.folder {
            None => "drawn scenes (`client-sim draw`), JPEG quality 85".to_owned(),
            Some(_) => "photographs, cropped and scaled to each size, JPEG quality 85".to_owned(),
        }
    }
}

/// At most `most` of a folder's pictures, unscaled: JPEGs as they are, others encoded.
///
/// # Errors
/// A folder without readable pictures.
pub fn photographs(folder: &Path, most: usize) -> Result<Vec<Bytes>, BenchError> {
    let found = read_folder(folder).map_err(failed("--images"))?;
    let all = found.pictures.pictures().iter().take(most).map(|picture| {
        if image::guess_format(&picture.bytes).ok() == Some(image::ImageFormat::Jpeg) {
            return Ok(picture.bytes.clone());
        }
        let decoded = image::load_from_memory(&picture.bytes).map_err(failed("--images"))?;
        Ok(encode(&picture.name, &decoded.into_rgb8(), JPEG_QUALITY)?.bytes)
    });
    all.collect()
}

fn whole(pictures: Vec<Picture>) -> Result<PictureSet, BenchError> {
    PictureSet::new(pictures).ok_or_else(|| failed("pictures")("there are none"))
}

fn encode(name: &str, rgb: &RgbImage, quality: u8) -> Result<Picture, BenchError> {
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, quality)
        .encode_image(rgb)
        .map_err(failed("encoding a picture"))?;
    Ok(Picture { name: name.to_owned(), bytes: bytes.into() })
}

/// A valid JPEG of `bytes` bytes, give or take a few hundredths: noise, whose size follows the area.
///
/// # Errors
/// Never in practice: encoding into memory.
pub fn noise_of(bytes: usize) -> Result<PictureSet, BenchError> {
    // At quality 90, noise takes about 2.6 bytes per pixel. The second try is scaled to what the
    // first one gave.
    let mut picture = noise((bytes as f64 / 2.6).sqrt() as u32)?;
    for _ in 0..3 {
        let (side, got) = (picture.0, picture.1.bytes.len() as f64);
        picture = noise((f64::from(side) * (bytes as f64 / got).sqrt()).round() as u32)?;
    }
    whole(vec![picture.1])
}

fn noise(side: u32) -> Result<(u32, Picture), BenchError> {
    let side = side.max(8);
    let mut state = 0x2545_F491_u32;
    let rgb = RgbImage::from_fn(side, side, |_, _| {
        image::Rgb([0; 3].map(|_: u8| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        }))
    });
    Ok((side, encode("noise.jpg", &rgb, 90)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_about_the_size_asked_for() {
        for bytes in [60_000, 500_000] {
            let set = noise_of(bytes).expect("encodes");
            let (got, ..) = set.sizes();
            assert!(got.abs_diff(bytes) < bytes / 20, "{got} for {bytes}");
            assert!(image::load_from_memory(&set.frame(0, 0)).is_ok());
        }
    }

    #[test]
    fn drawn_pictures_have_the_size_asked_for() {
        let set = Source { folder: None, quick: true }.load((64, 48)).expect("draws");
        assert_eq!(set.pictures().len(), QUICK_PICTURES);
        let decoded = image::load_from_memory(&set.frame(1, 0)).expect("decodes");
        assert_eq!((decoded.width(), decoded.height()), (64, 48));
    }

    #[test]
    fn a_folder_s_pictures_are_cropped_and_scaled() {
        let folder = tempfile::tempdir().expect("folder");
        RgbImage::new(100, 20).save(folder.path().join("wide.png")).expect("saves");
        let source = Source { folder: Some(folder.path()), quick: false };
        let set = source.load((32, 32)).expect("scales");
        let decoded = image::load_from_memory(&set.frame(0, 0)).expect("decodes");
        assert_eq!((decoded.width(), decoded.height()), (32, 32));
        let nowhere = Source { folder: Some(Path::new("/nonexistent")), quick: false };
        assert!(nowhere.load((32, 32)).is_err());
    }
}
