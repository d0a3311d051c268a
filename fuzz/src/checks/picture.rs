//! Frames: from bytes to the network's input, as a worker does it.

use bytes::Bytes;
use vedette_server::{
    decode::{Axis, DecodeError, Decoded, Decoder, FrameLimits, JpegDecode, Pixels, Planar},
    frame::{Layout, Picture, RawFormat, RawSpec},
    letterbox::Letterbox,
    limits::RAW_PADDING_BYTES,
    postprocess::layout::{Family, FamilyName},
    preprocess::{InputSpec, Preprocessor, values},
};

use super::{Numbers, assert_one_line};

/// Small, so that thousands of pictures a second are decoded: 256x256.
pub(crate) const LIMITS: FrameLimits = FrameLimits { max_bytes: 1 << 16, max_pixels: 1 << 16 };

/// Longest text of an error, in bytes: it goes into each answer.
const DETAIL_BYTES: usize = 300;

/// Sides of the network's input in pixels: small enough for each scale at which JPEGs are decoded, and
/// larger than some pictures.
const SIDES: [u32; 4] = [32, 64, 96, 128];

/// One input in so many is also decoded by a decoder that has decoded something else before.
const WITH_HISTORY: usize = 16;

/// Most bytes of a raw frame that is made up to its declared size.
const RAW_BYTES: u128 = 1 << 18;

/// A larger picture that is turned: it leaves something in each of a decoder's buffers.
const EARLIER: &[u8] = include_bytes!("../../../server/tests/fixtures/exif_orient6.jpg");

/// Its width and height as it is used, in pixels: more than most inputs have.
const EARLIER_SIDE: u16 = 128;

/// A picture file, told apart by its content.
pub(crate) fn check_encoded(data: &[u8]) {
    check_file(data, LIMITS);
}

/// As [`check_encoded`], within other limits.
pub(crate) fn check_file(data: &[u8], limits: FrameLimits) {
    check_frame(&Picture { data: Bytes::copy_from_slice(data), layout: Layout::Encoded }, limits);
}

/// A raw frame: format (u8), width, height, stride (u32 each), then its bytes.
pub(crate) fn check_raw(data: &[u8]) {
    let mut numbers = Numbers::new(data);
    let format = RawFormat::ALL[usize::from(numbers.u8()) % RawFormat::ALL.len()];
    let (width, height, stride) = (numbers.u32(), numbers.u32(), numbers.u32());
    let spec = RawSpec { format, width, height, stride };
    let bytes = numbers.rest();
    check_raw_frame(spec, bytes.to_vec());
    // Bytes that happen to be as many as the geometry takes are rare. Made so many, and exactly: one
    // byte read beyond them is one beyond their allocation.
    let (smallest, _) = raw_sizes(spec).unwrap_or_default();
    if (1..=RAW_BYTES).contains(&smallest) && !bytes.is_empty() {
        let exact: Vec<u8> = bytes.iter().copied().cycle().take(smallest as usize).collect();
        check_raw_frame(spec, exact[..exact.len() - 1].to_vec());
        check_raw_frame(spec, exact);
    }
}

fn check_raw_frame(spec: RawSpec, data: Vec<u8>) {
    let bytes = data.len() as u128;
    let fits = raw_sizes(spec).is_some_and(|(smallest, largest)| {
        (smallest..=largest + RAW_PADDING_BYTES as u128).contains(&bytes)
    });
    let pixels = u64::from(spec.width) * u64::from(spec.height);
    let allowed = (1..=LIMITS.max_bytes as u128).contains(&bytes) && pixels <= LIMITS.max_pixels;
    let picture = Picture { data: data.into(), layout: Layout::Raw(spec) };
    let size = check_frame(&picture, LIMITS);
    let expected = (fits && allowed).then_some((spec.width, spec.height));
    assert_eq!(size, expected, "{spec:?} in {bytes} bytes");
}

/// Bytes up to a frame's last pixel, and with all of its last rows' padding; `None` if there is no such
/// frame. As `camera_ai.proto` describes the formats, in numbers that cannot overflow.
fn raw_sizes(spec: RawSpec) -> Option<(u128, u128)> {
    let (w, h) = (u128::from(spec.width), u128::from(spec.height));
    let even = w.next_multiple_of(2);
    let row = match spec.format {
        RawFormat::Rgb24 | RawFormat::Bgr24 => 3 * w,
        RawFormat::Gray8 | RawFormat::I420 => w,
        RawFormat::Nv12 => even,
        RawFormat::Yuyv => 2 * even,
    };
    let stride = if spec.stride == 0 { row } else { u128::from(spec.stride) };
    if w == 0 || h == 0 || stride < row {
        return None;
    }
    let (half, chroma_rows) = (stride.div_ceil(2), h.div_ceil(2));
    let (last_row, padded_row, full) = match spec.format {
        RawFormat::Nv12 => (even, stride, stride * (h + chroma_rows)),
        RawFormat::I420 => (w.div_ceil(2), half, stride * h + 2 * half * chroma_rows),
        _ => (row, stride, stride * h),
    };
    Some((full - padded_row + last_row, full))
}

/// Takes a frame from its bytes to the network's input in both ways of decoding. Returns the picture's
/// size where it is one.
pub(crate) fn check_frame(picture: &Picture, limits: FrameLimits) -> Option<(u32, u32)> {
    let probed = limits.probe(picture);
    let network = Network::choose(picture.data.len(), limits);
    let full = check_decoder(picture, &network, JpegDecode::Full);
    let scaled = is_jpeg(picture).then(|| check_decoder(picture, &network, JpegDecode::Scaled));
    for result in std::iter::once(&full).chain(&scaled) {
        match (&probed, result) {
            (Ok(probed), Ok(size)) => assert_eq!(probed, size, "the header and the picture"),
            (Err(probed), Err(error)) => assert_eq!(probed, error, "the header and the picture"),
            (Err(error), Ok(_)) => panic!("decoded in spite of {error}"),
            (Ok(_), Err(_)) => {}
        }
    }
    if let Err(error) = limits.check(picture) {
        assert_eq!(probed, Err(error), "at first sight and by the header");
    }
    full.ok()
}

/// Whether there are two ways to decode it.
fn is_jpeg(picture: &Picture) -> bool {
    picture.layout == Layout::Encoded && picture.data.starts_with(&[0xFF, 0xD8])
}

/// A network's input, as far as pictures can tell, and what pictures it takes.
struct Network {
    limits: FrameLimits,
    family: &'static Family,
    side: u32,
    tight: bool,
    with_history: bool,
}

impl Network {
    /// By the length of an input, which fuzzing changes all the time.
    fn choose(bytes: usize, limits: FrameLimits) -> Self {
        let names = [FamilyName::Yolox, FamilyName::Yolov8];
        Self {
            limits,
            family: Family::get(names[bytes / 4 % 2]),
            side: SIDES[bytes % 4],
            tight: (bytes / 8).is_multiple_of(2),
            with_history: (bytes / 16).is_multiple_of(WITH_HISTORY),
        }
    }

    fn letterbox(&self, source: (u32, u32)) -> Letterbox {
        let (input, Family { align, stride, .. }) = ((self.side, self.side), self.family);
        if self.tight {
            Letterbox::tight(source, input, *align, *stride)
        } else {
            Letterbox::fit(source, input, *align)
        }
    }

    fn input(&self) -> InputSpec {
        let Family { order, scale, pad, .. } = *self.family;
        InputSpec { order, scale, pad }
    }
}

/// Decodes one way.
fn check_decoder(
    picture: &Picture,
    network: &Network,
    jpeg: JpegDecode,
) -> Result<(u32, u32), DecodeError> {
    let result = tensor(&mut Decoder::new(network.limits, jpeg), picture, network);
    if let Err(error) = &result {
        check_error(error);
    }
    if network.with_history && picture.layout == Layout::Encoded {
        // The whole picture, so that it fills more of the buffers than this one.
        let mut used = Decoder::new(network.limits, jpeg);
        used.decode(&earlier(), |size| size).expect("decodes");
        assert!(same(&result, &tensor(&mut used, picture, network)), "an older picture shows");
    }
    result.map(|(size, _)| size)
}

fn check_error(error: &DecodeError) {
    let text = error.to_string();
    assert_one_line(&text);
    assert!(text.len() <= DETAIL_BYTES, "{} bytes: {text}", text.len());
    let reason = format!("{}: ", error.reason().to_uppercase());
    assert!(text.starts_with(&reason), "{text} does not begin with {reason}");
    assert!(DecodeError::REASONS.contains(&error.reason()), "{reason}");
}

type Tensor = ((u32, u32), Vec<f32>);

/// The network's input for a picture.
fn tensor(
    decoder: &mut Decoder,
    picture: &Picture,
    network: &Network,
) -> Result<Tensor, DecodeError> {
    let seen = decoder.decode(picture, |size| network.letterbox(size).scaled)?;
    let size = (seen.width, seen.height);
    let pixels = u64::from(size.0) * u64::from(size.1);
    assert!((1..=network.limits.max_pixels).contains(&pixels), "{size:?}");
    let letterbox = network.letterbox(size);
    check_pixels(&seen, letterbox.scaled);
    let mut tensor = vec![f32::NAN; values(letterbox.input)];
    Preprocessor::default().run(&seen.pixels, &letterbox, &network.input(), &mut tensor);
    // Interpolation in single precision may end a little above both neighbours.
    let white = 255.001 * network.family.scale;
    let strange = tensor.iter().find(|value| !(0.0..=white).contains(*value));
    assert_eq!(strange, None, "{size:?} laid out as {letterbox:?}");
    Ok((size, tensor))
}

/// Rows and planes cover the picture.
fn check_pixels(decoded: &Decoded<'_>, needed: (u32, u32)) {
    let (width, height) = (decoded.width, decoded.height);
    match &decoded.pixels {
        Pixels::Rows(view) => {
            let mut buffer = Vec::new();
            for y in 0..height as usize {
                assert_eq!(view.rgb_row(y, &mut buffer).len(), width as usize * 3, "row {y}");
            }
        }
        Pixels::Planar(Planar { luma, chroma }) => {
            let chroma = chroma.iter().flatten();
            for plane in std::iter::once(luma).chain(chroma) {
                assert!(covers(plane.columns, width) && covers(plane.rows, height), "{plane:?}");
                let last = plane.rows.length as usize - 1;
                assert_eq!(plane.row(last).len(), plane.columns.length as usize);
            }
            assert!(luma.columns.length >= needed.0.min(width), "{luma:?} for {needed:?}");
            assert!(luma.rows.length >= needed.1.min(height), "{luma:?} for {needed:?}");
        }
    }
}

fn covers(axis: Axis, pixels: u32) -> bool {
    axis.length * axis.step >= pixels + axis.lead
}

/// Whether two decoders gave the same, to the bit.
fn same(a: &Result<Tensor, DecodeError>, b: &Result<Tensor, DecodeError>) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => {
            a.0 == b.0 && a.1.iter().map(|v| v.to_bits()).eq(b.1.iter().map(|v| v.to_bits()))
        }
        (Err(a), Err(b)) => a == b,
        _ => false,
    }
}

/// [`EARLIER`], cut to its first blocks.
fn earlier() -> Picture {
    let mut data = EARLIER.to_vec();
    let frame = data.windows(2).position(|bytes| bytes == [0xFF, 0xC0]).expect("a frame header");
    let side = EARLIER_SIDE.to_be_bytes();
    // Height and width follow marker, length and precision (ITU-T T.81, B.2.2).
    data[frame + 5..frame + 9].copy_from_slice(&[side, side].concat());
    Picture { data: data.into(), layout: Layout::Encoded }
}
