//! What the server sees in pictures: text, JSON, and copies with boxes drawn on them.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use image::{DynamicImage, ImageDecoder as _, ImageFormat, ImageReader, Limits};
use serde::Serialize;
use vedette_proto::camera_ai::{DetectRequest, DetectResponse, Outcome, PixelFormat};

use crate::{
    boxes, clock,
    config::DetectConfig,
    connect::{connect, endpoint, server_info},
    error::SimError,
    source::JPEG_QUALITY,
    stream,
    token::Token,
};

/// Budget sent with each picture, in milliseconds: somebody is waiting, no next frame is due.
const BUDGET_MS: u32 = 20_000;

/// Name that the stream gives itself.
const CAMERA_ID: &str = "detect";

/// Most memory that decoding a picture for drawing may take, in bytes.
const MAX_DECODED_BYTES: u64 = 1 << 30;

/// A picture and its answer, as printed.
#[derive(Debug, Serialize)]
struct Seen {
    file: String,
    bytes: usize,
    width: u32,
    height: u32,
    outcome: &'static str,
    detail: String,
    model: String,
    latency_ms: f64,
    times_us: Option<Times>,
    objects: Vec<SeenObject>,
    saved: Option<String>,
}

#[derive(Debug, Serialize)]
struct Times {
    queue: u32,
    decode: u32,
    preprocess: u32,
    inference: u32,
    postprocess: u32,
    total: u32,
}

#[derive(Debug, Serialize)]
struct SeenObject {
    label: String,
    class_id: u32,
    confidence: f32,
    x: i32,
    y: i32,
    width: i32,
    height: i32,
}

/// Sends each picture and shows its answer. True when all were answered OK; an error when one could
/// not be read, sent or saved. All files are read before anything is sent, so a mistyped name costs
/// nothing.
pub async fn detect(config: &DetectConfig) -> Result<bool, SimError> {
    let mut files = Vec::with_capacity(config.pictures.len());
    for path in &config.pictures {
        let bytes =
            fs::read(path).map_err(|source| SimError::Read { path: path.clone(), source })?;
        files.push((path, bytes::Bytes::from(bytes)));
    }
    if let Some(dir) = &config.save {
        fs::create_dir_all(dir).map_err(|source| SimError::Write { path: dir.clone(), source })?;
    }
    let channel = connect(&endpoint(&config.target)?, &config.target).await?;
    let token = Token::of(&config.target)?;
    server_info(channel.clone(), &config.target).await?;
    let (sender, mut answers) = stream::open(channel, CAMERA_ID, token.as_ref());

    let mut all_ok = true;
    let mut shown = Vec::new();
    let mut names = HashSet::new();
    let mut not_saved = None;
    // One after the other: a second picture on the way would supersede the first.
    for (frame_id, (path, bytes)) in (1..).zip(files) {
        let request = DetectRequest {
            frame_id,
            image_data: bytes.clone(),
            format: PixelFormat::Encoded as i32,
            budget_ms: BUDGET_MS,
            ..DetectRequest::default()
        };
        let sent = clock::now();
        let answer = exchange(config, &sender, &mut answers, request).await?;
        let latency_ms = clock::micros(clock::now() - sent) as f64 / 1e3;
        let mut seen = seen(path, bytes.len(), &answer, latency_ms);
        all_ok &= answer.outcome == Outcome::Ok as i32;
        if let (Some(dir), true) = (&config.save, answer.outcome == Outcome::Ok as i32) {
            match save(&mut names, dir, path, &bytes, &answer) {
                Ok(saved) => seen.saved = Some(saved.display().to_string()),
                // The others still run; the last such error ends the job.
                Err(error) => {
                    if let Some(earlier) = not_saved.replace(error) {
                        crate::say(&format!("client-sim: {earlier}"));
                    }
                }
            }
        }
        if config.json {
            shown.push(seen);
        } else {
            crate::print(&describe(&seen))?;
        }
    }
    if config.json {
        crate::print(&format!("{}\n", serde_json::to_string_pretty(&shown)?))?;
    }
    not_saved.map_or(Ok(all_ok), Err)
}

/// Sends one request and waits for its answer.
async fn exchange(
    config: &DetectConfig,
    sender: &tokio::sync::mpsc::Sender<DetectRequest>,
    answers: &mut stream::Answers,
    request: DetectRequest,
) -> Result<DetectResponse, SimError> {
    let failed = |why| SimError::NoAnswer { addr: config.target.addr.to_string(), why };
    let asked = request.frame_id;
    // A dropped receiver shows in the answers, which say why.
    let _ = sender.send(request).await;
    match tokio::time::timeout(config.patience, answers.next()).await {
        Ok(Ok(Some(answer))) if answer.frame_id == asked => Ok(answer),
        Ok(Ok(Some(answer))) => {
            Err(failed(format!("answer to frame {} while {asked} was asked", answer.frame_id)))
        }
        Ok(Ok(None)) => Err(failed("the server ended the stream".to_owned())),
        Ok(Err(status)) => Err(failed(stream::broken(&status).to_string())),
        Err(_) => Err(failed(format!("nothing within {} s", config.patience.as_secs_f64()))),
    }
}

fn seen(path: &Path, bytes: usize, answer: &DetectResponse, latency_ms: f64) -> Seen {
    Seen {
        file: path.display().to_string(),
        bytes,
        width: answer.image_width,
        height: answer.image_height,
        outcome: Outcome::try_from(answer.outcome).map_or("UNKNOWN", |o| o.as_str_name()),
        detail: answer.detail.clone(),
        model: answer.model.clone(),
        latency_ms,
        times_us: answer.times.map(|times| Times {
            queue: times.queue_us,
            decode: times.decode_us,
            preprocess: times.preprocess_us,
            inference: times.inference_us,
            postprocess: times.postprocess_us,
            total: times.total_us,
        }),
        objects: answer
            .objects
            .iter()
            .map(|object| {
                let bbox = object.bbox.unwrap_or_default();
                SeenObject {
                    label: object.label.clone(),
                    class_id: object.class_id,
                    confidence: object.confidence,
                    x: bbox.x,
                    y: bbox.y,
                    width: bbox.width,
                    height: bbox.height,
                }
            })
            .collect(),
        saved: None,
    }
}

fn describe(seen: &Seen) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{}  ", seen.file);
    if seen.width > 0 {
        let _ = write!(text, "{}x{}, ", seen.width, seen.height);
    }
    let _ = write!(text, "{} bytes: {}", seen.bytes, seen.outcome);
    if !seen.detail.is_empty() {
        let _ = write!(text, " ({})", seen.detail);
    }
    let _ = write!(text, ", {:.1} ms", seen.latency_ms);
    if let Some(times) = &seen.times_us {
        let ms = |us: u32| f64::from(us) / 1e3;
        let _ = write!(
            text,
            " (decode {:.1}, preprocess {:.1}, inference {:.1}, postprocess {:.1})",
            ms(times.decode),
            ms(times.preprocess),
            ms(times.inference),
            ms(times.postprocess)
        );
    }
    text.push('\n');
    for object in &seen.objects {
        let _ = writeln!(
            text,
            "  {:<16} {:.3}  {},{} {}x{}",
            object.label, object.confidence, object.x, object.y, object.width, object.height
        );
    }
    if seen.objects.is_empty() && seen.outcome == Outcome::Ok.as_str_name() {
        text.push_str("  nothing detected\n");
    }
    if let Some(saved) = &seen.saved {
        let _ = writeln!(text, "  saved {saved}");
    }
    text
}

/// Writes the picture with its boxes to `dir`, as JPEG when it was one and as PNG otherwise. A name
/// that this run has used (it is added to `names`) gets a number.
fn save(
    names: &mut HashSet<PathBuf>,
    dir: &Path,
    path: &Path,
    bytes: &[u8],
    answer: &DetectResponse,
) -> Result<PathBuf, SimError> {
    let picture_error = |doing: &str| {
        let what = format!("{doing} {}", path.display());
        move |source| SimError::Picture { what, source }
    };
    let (picture, format) = upright(bytes)
        .map_err(picture_error("detected, but no copy with boxes could be made: decoding"))?;
    let mut picture = picture.into_rgb8();
    boxes::draw_objects(&mut picture, &answer.objects);

    let jpeg = format == Some(ImageFormat::Jpeg);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = if jpeg { "jpg" } else { "png" };
    let mut target = dir.join(format!("{stem}.boxes.{extension}"));
    for number in 2.. {
        if names.insert(target.clone()) {
            break;
        }
        target = dir.join(format!("{stem}-{number}.boxes.{extension}"));
    }
    let mut encoded = std::io::Cursor::new(Vec::new());
    if jpeg {
        image::codecs::jpeg::JpegEncoder::new_with_quality(&mut encoded, JPEG_QUALITY)
            .encode_image(&picture)
    } else {
        picture.write_to(&mut encoded, ImageFormat::Png)
    }
    .map_err(picture_error("encoding"))?;
    fs::write(&target, encoded.into_inner())
        .map_err(|source| SimError::Write { path: target.clone(), source })?;
    Ok(target)
}

/// Decodes a picture and turns it upright as its EXIF orientation says: the server's boxes are in
/// the upright picture.
fn upright(bytes: &[u8]) -> image::ImageResult<(DynamicImage, Option<ImageFormat>)> {
    let reader = ImageReader::new(std::io::Cursor::new(bytes)).with_guessed_format()?;
    let format = reader.format();
    let mut decoder = reader.into_decoder()?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    // A JPEG decoder checks only the sides.
    limits.reserve(decoder.total_bytes())?;
    decoder.set_limits(limits)?;
    let orientation = decoder.orientation()?;
    let mut picture = DynamicImage::from_decoder(decoder)?;
    picture.apply_orientation(orientation);
    Ok((picture, format))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_that_decodes_to_gigabytes_is_refused() {
        let mut jpeg = std::io::Cursor::new(Vec::new());
        image::RgbImage::new(8, 8).write_to(&mut jpeg, ImageFormat::Jpeg).unwrap();
        let mut jpeg = jpeg.into_inner();
        assert!(upright(&jpeg).is_ok());
        let frame = jpeg.windows(2).position(|marker| marker == [0xFF, 0xC0]).unwrap();
        // Height and width follow the marker, the segment's length and the precision.
        jpeg[frame + 5..frame + 9].copy_from_slice(&[0x75, 0x30, 0x75, 0x30]);
        let error = upright(&jpeg).unwrap_err();
        assert!(matches!(error, image::ImageError::Limits(_)), "{error}");
    }
}
