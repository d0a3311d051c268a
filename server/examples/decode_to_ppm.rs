//! Decodes a picture as the server does and writes its pixels as a PPM, for comparison with other decoders.
//!
//! `decode_to_ppm full|scaled PICTURE OUT.ppm`: `full` is what `--jpeg-decode full` decodes; `scaled` are the
//! default's planes, interpolated by the preprocessing at the picture's own size. Exit code 1 and one line for
//! a frame that the server would refuse, 64 for a wrong command line.

use std::{fs, path::Path, process::ExitCode};

use bytes::Bytes;
use vedette_server::{
    decode::{Decoder, FrameLimits, JpegDecode},
    frame::{Layout, Picture},
    letterbox::{Align, Letterbox},
    preprocess::{ChannelOrder, InputSpec, Preprocessor, values},
};

/// As the server's defaults.
const LIMITS: FrameLimits = FrameLimits { max_bytes: 16 << 20, max_pixels: 4096 * 4096 };

/// Levels of 0 to 255, as in the file.
const SPEC: InputSpec = InputSpec { order: ChannelOrder::Rgb, scale: 1.0, pad: 0.0 };

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let (how, input, output) = match &args[..] {
        [how, input, output] if how == "full" => (JpegDecode::Full, input, output),
        [how, input, output] if how == "scaled" => (JpegDecode::Scaled, input, output),
        _ => {
            eprintln!("usage: decode_to_ppm full|scaled PICTURE OUT.ppm");
            return ExitCode::from(64);
        }
    };
    match convert(how, Path::new(input), Path::new(output)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{input}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn convert(how: JpegDecode, input: &Path, output: &Path) -> Result<(), String> {
    let data = fs::read(input).map_err(|error| error.to_string())?;
    let picture = Picture { data: Bytes::from(data), layout: Layout::Encoded };
    let mut decoder = Decoder::new(LIMITS, how);
    let upright = decoder.decode(&picture, |size| size).map_err(|error| error.to_string())?;
    let size = (upright.width, upright.height);
    let letterbox = Letterbox::fit(size, size, Align::TopLeft);
    let mut planes = vec![0.0; values(size)];
    Preprocessor::default().run(&upright.pixels, &letterbox, &SPEC, &mut planes);
    fs::write(output, ppm(size, &planes)).map_err(|error| error.to_string())
}

/// A binary PPM of three planes.
fn ppm((width, height): (u32, u32), planes: &[f32]) -> Vec<u8> {
    let pixels = width as usize * height as usize;
    let level = |value: f32| value.round().clamp(0.0, 255.0) as u8;
    let mut out = format!("P6\n{width} {height}\n255\n").into_bytes();
    out.extend(
        (0..pixels).flat_map(|at| [0, 1, 2].map(|plane| level(planes[plane * pixels + at]))),
    );
    out
}
