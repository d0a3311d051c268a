//! A camera's latest picture with what was found on it, for those who may see it and only while they look.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use image::{ExtendedColorType, ImageEncoder as _, codecs::jpeg::JpegEncoder};
use serde::Serialize;

use super::{Admin, live::unknown};
use crate::{
    auth::OperatorToken,
    decode::{Decoder, FrameLimits, JpegDecode, media_type},
    frame::Picture,
    letterbox::{Align, Letterbox},
    limits::{PICTURE_SIDE, PICTURE_WAIT},
    preprocess::{ChannelOrder, InputSpec, Preprocessor, values},
    telemetry::fleet::Shown,
};

/// Levels of 0 to 255.
const LEVELS: InputSpec = InputSpec { order: ChannelOrder::Rgb, scale: 1.0, pad: 0.0 };

/// Who may see pictures, and what may be decoded for them.
#[derive(Clone)]
pub struct Preview {
    token: Arc<OperatorToken>,
    limits: FrameLimits,
}

impl Preview {
    /// Shows pictures to those who give the token.
    #[must_use]
    pub fn new(token: Arc<OperatorToken>, limits: FrameLimits) -> Self {
        Self { token, limits }
    }
}

pub(super) fn routes() -> Router<Admin> {
    Router::new().route("/live/cameras/{name}/picture", get(picture))
}

/// What stands before the picture's bytes.
#[derive(Serialize)]
struct Caption<'a> {
    seq: u64,
    // Text: a number of 64 bits does not fit into one of JavaScript.
    frame_id: String,
    width: u32,
    height: u32,
    total_ms: f64,
    outcome: &'a str,
    content_type: &'a str,
    objects: Vec<Object<'a>>,
}

#[derive(Serialize)]
struct Object<'a> {
    label: &'a str,
    class_id: u32,
    confidence: f32,
    x: i32,
    y: i32,
    width: i32,
    height: i32,
}

async fn picture(
    State(admin): State<Admin>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let Some(preview) = admin.preview.clone() else {
        let how = "pictures are off; start the server with --preview and --admin-token-file\n";
        return (StatusCode::FORBIDDEN, how).into_response();
    };
    if !preview.token.opens(&headers) {
        let how = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, how, "the operators' token is needed\n").into_response();
    }
    let Some(camera) = admin.metrics.fleet.camera(&name) else { return unknown() };
    let Ok(_place) = Arc::clone(&admin.viewers).try_acquire_owned() else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let next = tokio::time::timeout(PICTURE_WAIT, camera.next_picture());
    let Ok(Some(shown)) = next.await else { return StatusCode::NO_CONTENT.into_response() };
    // A picture that has to be encoded takes milliseconds.
    let body = tokio::task::spawn_blocking(move || body(&shown, preview.limits)).await;
    match body {
        Ok(Some(body)) => {
            let kind = [
                (header::CONTENT_TYPE, "application/octet-stream"),
                (header::CACHE_CONTROL, "no-store"),
            ];
            (kind, body).into_response()
        }
        Ok(None) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The length of the caption in four bytes, the caption as JSON, the picture.
fn body(shown: &Shown, limits: FrameLimits) -> Option<Vec<u8>> {
    let known = media_type(&shown.picture);
    let encoded = match known {
        Some(_) => None,
        None => Some(encode(&shown.picture, limits)?),
    };
    let data = encoded.as_deref().unwrap_or(&shown.picture.data);
    let response = &shown.response;
    let objects = response.objects.iter().map(|object| {
        let bbox = object.bbox.unwrap_or_default();
        Object {
            label: &object.label,
            class_id: object.class_id,
            confidence: object.confidence,
            x: bbox.x,
            y: bbox.y,
            width: bbox.width,
            height: bbox.height,
        }
    });
    let caption = Caption {
        seq: shown.number,
        frame_id: response.frame_id.to_string(),
        width: response.image_width,
        height: response.image_height,
        total_ms: f64::from(response.times.unwrap_or_default().total_us) / 1e3,
        outcome: "ok",
        content_type: known.unwrap_or("image/jpeg"),
        objects: objects.collect(),
    };
    let caption = serde_json::to_vec(&caption).ok()?;
    let mut body = Vec::with_capacity(4 + caption.len() + data.len());
    body.extend_from_slice(&u32::try_from(caption.len()).ok()?.to_be_bytes());
    body.extend_from_slice(&caption);
    body.extend_from_slice(data);
    Some(body)
}

/// A picture that browsers do not show as it is, as a JPEG of at most [`PICTURE_SIDE`] pixels a side.
fn encode(picture: &Picture, limits: FrameLimits) -> Option<Vec<u8>> {
    let mut decoder = Decoder::new(limits, JpegDecode::Scaled);
    let fit = |size: (u32, u32)| {
        let side = size.0.max(size.1).min(PICTURE_SIDE);
        Letterbox::tight(size, (side, side), Align::TopLeft, 1)
    };
    let upright = decoder.decode(picture, |size| fit(size).scaled).ok()?;
    let letterbox = fit((upright.width, upright.height));
    let (width, height) = letterbox.input;
    let mut planes = vec![0.0; values(letterbox.input)];
    Preprocessor::default().run(&upright.pixels, &letterbox, &LEVELS, &mut planes);
    let pixels = width as usize * height as usize;
    let level = |value: f32| value.round().clamp(0.0, 255.0) as u8;
    let rgb: Vec<u8> = (0..pixels)
        .flat_map(|at| [0, 1, 2].map(|plane| level(planes[plane * pixels + at])))
        .collect();
    let mut jpeg = Vec::new();
    JpegEncoder::new(&mut jpeg).write_image(&rgb, width, height, ExtendedColorType::Rgb8).ok()?;
    Some(jpeg)
}
