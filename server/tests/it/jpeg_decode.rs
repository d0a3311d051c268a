//! JPEG decoding against `djpeg`, and the quick way (`scaled`: planes, at the scale that is needed)
//! against the plain one (`full`).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use bytes::Bytes;
use turbojpeg_sys as tj;
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

/// Largest mean difference on ramps of two levels per pixel, in levels of 256: right interpolation keeps
/// ramps, but for the borders, where samples are clamped over half of one. Chroma that is off by half a sample
/// differs by 0.8 levels and more for each pixel that a sample covers.
fn ramp_tolerance(subsampling: i32, factor: u32) -> f64 {
    let pixels = match subsampling {
        tj::TJSAMP_TJSAMP_444 | tj::TJSAMP_TJSAMP_GRAY => 1,
        tj::TJSAMP_TJSAMP_411 | tj::TJSAMP_TJSAMP_441 => 4,
        _ => 2,
    };
    0.3 + 0.35 * f64::from(factor * pixels)
}

/// Brightness and colour that change steadily across the picture, in RGB.
fn ramp(width: u32, height: u32) -> Vec<u8> {
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    pixels.flat_map(|(x, y)| [20 + 2 * x, 220 - 2 * y, 30 + x + y].map(|v| v as u8)).collect()
}

/// A JPEG in one of libjpeg-turbo's subsamplings, which says that it is to be turned.
fn encode(rgb: &[u8], (width, height): (u32, u32), subsampling: i32, orientation: u8) -> Picture {
    let mut jpeg = std::ptr::null_mut();
    let mut size = 0;
    // SAFETY: the library compresses `width * height` pixels of 3 bytes out of `rgb` into memory that it
    // allocates itself; it is copied before it is freed.
    let mut data = unsafe {
        let handle = tj::tj3Init(tj::TJINIT_TJINIT_COMPRESS as i32);
        tj::tj3Set(handle, tj::TJPARAM_TJPARAM_SUBSAMP as i32, subsampling);
        tj::tj3Set(handle, tj::TJPARAM_TJPARAM_QUALITY as i32, 98);
        assert_eq!(rgb.len(), (width * height * 3) as usize);
        let (width, height) = (width as i32, height as i32);
        let format = tj::TJPF_TJPF_RGB;
        let code = tj::tj3Compress8(
            handle,
            rgb.as_ptr(),
            width,
            0,
            height,
            format,
            &raw mut jpeg,
            &raw mut size,
        );
        assert_eq!(code, 0);
        let data = std::slice::from_raw_parts(jpeg, size as usize).to_vec();
        tj::tj3Free(jpeg.cast());
        tj::tj3Destroy(handle);
        data
    };
    let mut exif =
        b"\xFF\xE1\x00\x22Exif\0\0MM\0\x2A\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
    data.splice(2..2, exif);
    Picture { data: Bytes::from(data), layout: Layout::Encoded }
}

/// The tensor of a picture scaled to fit a square.
fn square(decoder: &mut Decoder, picture: &Picture, side: u32) -> Vec<f32> {
    let letterbox = |size| Letterbox::fit(size, (side, side), Align::TopLeft);
    let upright = decoder.decode(picture, |size| letterbox(size).scaled).expect("decodes");
    let letterbox = letterbox((upright.width, upright.height));
    let mut tensor = vec![f32::NAN; values(letterbox.input)];
    Preprocessor::default().run(&upright.pixels, &letterbox, &SPEC, &mut tensor);
    tensor
}

/// Odd sizes, every subsampling, every turn, every scale.
#[test]
fn planes_lie_where_the_pixels_do() {
    let mut full = Decoder::new(LIMITS, JpegDecode::Full);
    let mut scaled = Decoder::new(LIMITS, JpegDecode::Scaled);
    let mut worst = 0.0_f64;
    for size in [(93, 61), (64, 48), (95, 77), (33, 95)] {
        let rgb = ramp(size.0, size.1);
        for subsampling in tj::TJSAMP_TJSAMP_444..=tj::TJSAMP_TJSAMP_441 {
            for orientation in 1..=8 {
                let picture = encode(&rgb, size, subsampling, orientation);
                for factor in [1, 2, 4, 8] {
                    let side = size.0.max(size.1).div_ceil(factor);
                    let expected = square(&mut full, &picture, side);
                    let got = square(&mut scaled, &picture, side);
                    let difference = mean_difference(&expected, &got);
                    worst = worst.max(difference / f64::from(factor));
                    assert!(
                        difference < ramp_tolerance(subsampling, factor),
                        "{size:?}, subsampling {subsampling}, turned {orientation}, 1/{factor}: {difference}"
                    );
                }
            }
        }
    }
    println!("worst mean difference {worst:.2} times the factor");
}

/// The smallest pictures, whose padded planes are larger than what is decoded.
#[test]
fn pictures_of_a_few_pixels_decode_at_every_scale() {
    let mut scaled = Decoder::new(LIMITS, JpegDecode::Scaled);
    for (width, height) in
        (1..=17).flat_map(|side| [(side, 1), (1, side), (side, 17), (side, 4000)])
    {
        let rgb = vec![90; (width * height * 3) as usize];
        for subsampling in tj::TJSAMP_TJSAMP_444..=tj::TJSAMP_TJSAMP_441 {
            let picture = encode(&rgb, (width, height), subsampling, 1);
            for side in [1, 2, 400] {
                let tensor = square(&mut scaled, &picture, side);
                // Neither stale nor foreign memory: one gray level, and the padding.
                let foreign = tensor.iter().find(|&&v| (v - 90.0).abs() > 1.0 && v != SPEC.pad);
                assert_eq!(foreign, None, "{width}x{height}, subsampling {subsampling}, to {side}");
            }
        }
    }
}
