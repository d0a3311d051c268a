//! Pictures from a folder: any mix of files.

use std::{fs, path::Path};

use super::{Picture, PictureSet, sniff};
use crate::error::SimError;

/// What a folder gave.
#[derive(Debug)]
pub struct Folder {
    /// Its pictures, sorted by name.
    pub pictures: PictureSet,
    /// Files in it that are no pictures.
    pub ignored: usize,
}

/// Reads every file directly in `dir` whose content is a JPEG, PNG, WebP or BMP, sorted by name.
/// The pictures are sent as they are: nothing here decodes them.
pub fn read_folder(dir: &Path) -> Result<Folder, SimError> {
    let folder_error = |source| SimError::Folder { path: dir.to_path_buf(), source };
    let mut paths = fs::read_dir(dir)
        .map_err(folder_error)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(folder_error)?;
    paths.retain(|path| path.is_file());
    paths.sort();

    let mut pictures = Vec::new();
    for path in &paths {
        let bytes =
            fs::read(path).map_err(|source| SimError::Read { path: path.clone(), source })?;
        if sniff(&bytes).is_some() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            pictures.push(Picture { name, bytes: bytes.into() });
        }
    }
    let ignored = paths.len() - pictures.len();
    let pictures = PictureSet::new(pictures)
        .ok_or_else(|| SimError::NoPictures { path: dir.to_path_buf(), files: paths.len() })?;
    Ok(Folder { pictures, ignored })
}

#[cfg(test)]
mod tests {
    use super::*;

    const JPEG_HEAD: &[u8] = &[0xFF, 0xD8, 0xFF, 0xE0];

    #[test]
    fn pictures_are_chosen_by_content_and_sorted_by_name() {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("b.txt", JPEG_HEAD),
            ("a.bin", b"\x89PNG\r\n\x1a\n....".as_slice()),
            ("c.jpg", b"not a picture"),
        ] {
            fs::write(dir.path().join(name), content).unwrap();
        }
        fs::create_dir(dir.path().join("d.jpg")).unwrap();
        let folder = read_folder(dir.path()).unwrap();
        let names: Vec<_> =
            folder.pictures.pictures().iter().map(|picture| picture.name.as_str()).collect();
        assert_eq!(names, ["a.bin", "b.txt"]);
        assert_eq!(folder.ignored, 1);
    }

    #[test]
    fn a_folder_without_pictures_says_so() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes.txt"), "hello").unwrap();
        let error = read_folder(dir.path()).unwrap_err().to_string();
        assert!(error.starts_with("no pictures in ") && error.contains("1 files"), "{error}");
        let missing = read_folder(&dir.path().join("none")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the folder "), "{missing}");
    }
}
