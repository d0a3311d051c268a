//! JPEG decoding against `djpeg`, and the quick way (`scaled`: planes, at the scale that is needed)
//! against the plain one (`full`).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use bytes::Bytes;
use vedette_server::{
    decode::{Decoder, FrameLimits, JpegDecode, Pixels},
    frame::{Layout, Picture},
    letterbox::{Align, Letterbox},
    preprocess::{ChannelOrder, InputSpec, Preprocessor, values},
};

use crate::common::{fetched, fixture, repository};

const LIMITS: FrameLimits = FrameLimits { max_bytes: 1 << 26, max_pixels: 1 << 26 };

const SPEC: InputSpec = InputSpec { order: ChannelOrder::Rgb, scale: 1.0, pad: 114.0 };

/// Every way in which cameras and encoders lay out a JPEG that is decodable.
const LAYOUTS: [&str; 17] = [
    "base_640x360.jpg",
    "baseline_dri.jpg",
    "cmyk_adobe.jpg",
    "exif_orient3.jpg",
    "exif_orient6.jpg",
    "exif_orient8.jpg",
    "gray_baseline.jpg",
    "gray_progressive.jpg",
    "mjpeg_no_dht.jpg",
    "odd_639x359_420.jpg",
    "progressive_420.jpg",
    "progressive_dri_rows.jpg",
    "sub_410.jpg",
    "sub_411.jpg",
    "sub_440.jpg",
    "sub_444.jpg",
    "scene_1080p.jpg",
];

/// Longest side of the network's input: larger than the pictures, as large, and small enough for every
/// scale.
const INPUTS: [u32; 5] = [1024, 640, 416, 160, 96];

/// Largest mean difference between the two ways where nothing is scaled down, in levels of 256: how
/// chroma is interpolated.
const SAME_SIZE_TOLERANCE: f64 = 1.0;

/// The same at an input much smaller than the picture. Full decoding then skips pixels, so it is the one
/// that deviates from the mean of the area.
const SMALL_INPUT_TOLERANCE: f64 = 4.0;

/// Largest mean difference from `djpeg`, in levels of 256; the same library in another version.
const DJPEG_TOLERANCE: f64 = 0.1;

fn read(path: &Path) -> Picture {
    let data = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Picture { data: Bytes::from(data), layout: Layout::Encoded }
}

fn photographs() -> Vec<PathBuf> {
    let entries = fs::read_dir(fetched("pictures")).expect("the folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|e| e == "jpg")).collect()
}

/// The tensor of a picture that was decoded one way or the other.
fn tensor(decoder: &mut Decoder, picture: &Picture, input: u32) -> Vec<f32> {
    let letterbox = |size| Letterbox::tight(size, (input, input), Align::Centre, 32);
    let upright = decoder.decode(picture, |size| letterbox(size).scaled).expect("decodes");
    let letterbox = letterbox((upright.width, upright.height));
    let mut tensor = vec![f32::NAN; values(letterbox.input)];
    Preprocessor::default().run(&upright.pixels, &letterbox, &SPEC, &mut tensor);
    tensor
}

/// Whether a picture of more than half the input's size cannot be scaled down while it is decoded.
fn decoded_whole(picture: &Picture, input: u32) -> bool {
    let (width, height) = LIMITS.probe(picture).expect("a header");
    width.max(height) < 2 * input
}

fn mean_difference(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum: f64 = a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).sum();
    sum / a.len() as f64
}

#[test]
fn both_ways_see_the_same_picture() {
    let mut full = Decoder::new(LIMITS, JpegDecode::Full);
    let mut scaled = Decoder::new(LIMITS, JpegDecode::Scaled);
    let layouts = LAYOUTS.iter().map(|name| fixture(name));
    for path in layouts.chain(photographs()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let picture = read(&path);
        for input in INPUTS {
            let expected = tensor(&mut full, &picture, input);
            let difference = mean_difference(&expected, &tensor(&mut scaled, &picture, input));
            println!("{name} at {input}: {difference:.2}");
            let whole = decoded_whole(&picture, input);
            let tolerance = if whole { SAME_SIZE_TOLERANCE } else { SMALL_INPUT_TOLERANCE };
            assert!(difference < tolerance, "{name} at {input}: {difference}");
        }
    }
}

/// Red, green and blue of a fully decoded picture.
fn rgb(decoder: &mut Decoder, picture: &Picture) -> Vec<u8> {
    let upright = decoder.decode(picture, |size| size).expect("decodes");
    let Pixels::Rows(view) = upright.pixels else { panic!("full decoding yields rows") };
    let mut row = Vec::new();
    (0..upright.height as usize).flat_map(|y| view.rgb_row(y, &mut row).to_vec()).collect()
}

/// The pixels of a binary PPM or PGM file, as RGB.
fn pnm(data: &[u8]) -> Option<Vec<u8>> {
    let mut parts = data.splitn(4, u8::is_ascii_whitespace);
    let magic = parts.next()?;
    let _size = (parts.next()?, parts.next()?);
    let (_depth, pixels) = {
        let rest = parts.next()?;
        let end = rest.iter().position(u8::is_ascii_whitespace)?;
        (&rest[..end], &rest[end + 1..])
    };
    match magic {
        b"P6" => Some(pixels.to_vec()),
        b"P5" => Some(pixels.iter().flat_map(|&gray| [gray; 3]).collect()),
        _ => None,
    }
}

#[test]
fn full_decoding_is_that_of_djpeg() {
    if Command::new("djpeg").arg("-version").output().is_err() {
        println!("skipped: djpeg (package libjpeg-turbo-progs) is not installed");
        return;
    }
    let mut decoder = Decoder::new(LIMITS, JpegDecode::Full);
    // djpeg does not turn pictures upright and writes CMYK as it is.
    let layouts =
        LAYOUTS.iter().filter(|name| !name.starts_with("exif") && !name.starts_with("cmyk"));
    let mut compared = 0;
    for path in layouts.map(|name| fixture(name)).chain(photographs()) {
        let name = path.display().to_string();
        let output = Command::new("djpeg").args(["-pnm"]).arg(&path).output().expect("djpeg runs");
        let expected = pnm(&output.stdout).unwrap_or_else(|| panic!("{name}: no PNM"));
        let got = rgb(&mut decoder, &read(&path));
        assert_eq!(got.len(), expected.len(), "{name}");
        let sum: f64 = got.iter().zip(&expected).map(|(a, b)| f64::from(a.abs_diff(*b))).sum();
        let difference = sum / got.len() as f64;
        println!("{name}: {difference:.3}");
        assert!(difference < DJPEG_TOLERANCE, "{name}: {difference}");
        compared += 1;
    }
    assert!(compared >= 12, "{compared} pictures compared");
}

/// Every decodable JPEG of the larger collection, where it is there.
#[test]
fn both_ways_agree_on_a_larger_collection() {
    let folder = repository().join("../shared/images/coco100");
    let Ok(entries) = fs::read_dir(&folder) else {
        println!("skipped: no {}", folder.display());
        return;
    };
    let mut full = Decoder::new(LIMITS, JpegDecode::Full);
    let mut scaled = Decoder::new(LIMITS, JpegDecode::Scaled);
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let (mut sum, mut pictures) = (0.0, 0.0);
    for path in paths.filter(|path| path.extension().is_some_and(|e| e == "jpg")) {
        let picture = read(&path);
        let expected = tensor(&mut full, &picture, 416);
        sum += mean_difference(&expected, &tensor(&mut scaled, &picture, 416));
        pictures += 1.0;
    }
    println!("{pictures} pictures, mean difference {:.3}", sum / pictures);
    assert!(pictures > 0.0 && sum / pictures < SAME_SIZE_TOLERANCE, "{sum} over {pictures}");
}
