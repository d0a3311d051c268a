//! Pictures drawn by the tool, for runs without a folder.

use std::{fs, path::Path};

use image::codecs::jpeg::JpegEncoder;

use super::Picture;
use crate::{
    config::{DrawConfig, Size},
    error::SimError,
    scene,
};

/// JPEG quality of drawn pictures, 1 to 100; cameras commonly use about this.
pub const JPEG_QUALITY: u8 = 85;

/// The first `count` drawn scenes (cycling with fresh noise beyond [`scene::COUNT`]) as JPEG files
/// of `size`. The same arguments give the same bytes.
pub fn draw_pictures(size: Size, count: usize) -> Result<Vec<Picture>, SimError> {
    (0..count)
        .map(|index| {
            let name = format!("{:02}-{}.jpg", index + 1, scene::name(index));
            let drawn = scene::render(index, size);
            let mut bytes = Vec::new();
            JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY)
                .encode_image(&drawn)
                .map_err(|source| SimError::Picture { what: format!("encoding {name}"), source })?;
            Ok(Picture { name, bytes: bytes.into() })
        })
        .collect()
}

/// Writes drawn pictures to a folder, making it when missing, and prints their paths.
pub fn write_drawn(config: &DrawConfig) -> Result<(), SimError> {
    let write_error = |path: &Path| {
        let path = path.to_path_buf();
        move |source| SimError::Write { path, source }
    };
    fs::create_dir_all(&config.dir).map_err(write_error(&config.dir))?;
    for picture in draw_pictures(config.size, config.count)? {
        let path = config.dir.join(&picture.name);
        fs::write(&path, &picture.bytes).map_err(write_error(&path))?;
        crate::print(&format!("{} {} bytes\n", path.display(), picture.bytes.len()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{PictureKind, sniff};

    #[test]
    fn drawn_pictures_are_jpegs_of_a_camera_s_size_and_always_the_same() {
        let size = Size { width: 640, height: 480 };
        let first = draw_pictures(size, scene::COUNT).unwrap();
        let second = draw_pictures(size, scene::COUNT).unwrap();
        for (picture, again) in first.iter().zip(&second) {
            assert_eq!(sniff(&picture.bytes), Some(PictureKind::Jpeg));
            assert_eq!(picture.bytes, again.bytes, "{}", picture.name);
            let kilobytes = picture.bytes.len() / 1000;
            assert!((40..=90).contains(&kilobytes), "{}: {kilobytes} KB", picture.name);
        }
    }

    #[test]
    fn more_pictures_than_scenes_all_differ() {
        let size = Size { width: 64, height: 48 };
        let pictures = draw_pictures(size, scene::COUNT + 2).unwrap();
        assert_ne!(pictures[0].bytes, pictures[scene::COUNT].bytes);
    }
}
