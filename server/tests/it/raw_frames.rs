//! Raw frames through the real server: planes, strides, odd sizes, wrong sizes.

use crate::common::{SQUARES, TestServer, assert_squares, bytes, cells};
use image::{Rgb, RgbImage};
use vedette_proto::camera_ai::{DetectRequest, Outcome, PixelFormat};

fn raw(format: PixelFormat, width: u32, height: u32, stride: u32, data: Vec<u8>) -> DetectRequest {
    DetectRequest {
        frame_id: 1,
        image_data: data.into(),
        format: format.into(),
        width,
        height,
        stride,
        ..Default::default()
    }
}

/// Spreads rows of `row` bytes so that they lie `stride` bytes apart.
fn pad_rows(data: &[u8], row: usize, stride: usize) -> Vec<u8> {
    let padded = |line: &[u8]| {
        let mut line = line.to_vec();
        line.resize(stride, 0x55);
        line
    };
    data.chunks(row).flat_map(padded).collect()
}

/// The scene as drawn: gray with the three squares.
fn scene() -> RgbImage {
    RgbImage::from_fn(640, 360, |x, y| {
        let inside = |left, top| (left..left + 20).contains(&x) && (top..top + 20).contains(&y);
        if inside(80, 20) {
            Rgb([255, 0, 0])
        } else if inside(300, 180) {
            Rgb([0, 255, 0])
        } else if inside(520, 320) {
            Rgb([0, 0, 255])
        } else {
            Rgb([128; 3])
        }
    })
}

async fn finds_the_squares(request: DetectRequest) {
    let server = TestServer::start(cells("cells_v8.onnx")).await;
    let mut camera = server.camera("raw").await;
    camera.send(request).await;
    assert_squares(&camera.answer().await, &SQUARES, 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nv12_tight_and_padded() {
    let data = bytes("nv12_640x360.raw");
    finds_the_squares(raw(PixelFormat::Nv12, 640, 360, 0, data.clone())).await;
    finds_the_squares(raw(PixelFormat::Nv12, 640, 360, 704, pad_rows(&data, 640, 704))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nv12_of_odd_size_with_rows_padded_to_even() {
    let data = bytes("nv12_639x359_evenpad.raw");
    finds_the_squares(raw(PixelFormat::Nv12, 639, 359, 640, data.clone())).await;
    finds_the_squares(raw(PixelFormat::Nv12, 639, 359, 0, data)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i420_planes() {
    let nv12 = bytes("nv12_640x360.raw");
    let (luma, chroma) = nv12.split_at(640 * 360);
    let mut data = luma.to_vec();
    data.extend(chroma.iter().step_by(2));
    data.extend(chroma.iter().skip(1).step_by(2));
    finds_the_squares(raw(PixelFormat::I420, 640, 360, 0, data)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn yuyv_tight_and_padded() {
    let data = bytes("yuyv_640x360.raw");
    finds_the_squares(raw(PixelFormat::Yuyv, 640, 360, 0, data.clone())).await;
    finds_the_squares(raw(PixelFormat::Yuyv, 640, 360, 1536, pad_rows(&data, 1280, 1536))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rgb_and_bgr() {
    let rgb = scene().into_raw();
    let bgr = rgb.chunks_exact(3).flat_map(|p| [p[2], p[1], p[0]]).collect();
    finds_the_squares(raw(PixelFormat::Rgb24, 640, 360, 2048, pad_rows(&rgb, 1920, 2048))).await;
    finds_the_squares(raw(PixelFormat::Rgb24, 640, 360, 0, rgb)).await;
    finds_the_squares(raw(PixelFormat::Bgr24, 640, 360, 0, bgr)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gray_has_no_colours() {
    let server = TestServer::start(cells("cells_v8.onnx")).await;
    let mut camera = server.camera("night").await;
    camera.send(raw(PixelFormat::Gray8, 640, 360, 0, vec![128; 640 * 360])).await;
    let answer = camera.answer().await;
    assert_eq!((answer.outcome(), answer.objects.len()), (Outcome::Ok, 0), "{}", answer.detail);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_geometry_is_answered_and_the_stream_lives_on() {
    let data = bytes("nv12_640x360.raw");
    let short = data[..data.len() - 1].to_vec();
    let mut long = data.clone();
    long.extend([0; 8192]);
    let server = TestServer::start(cells("cells_v8.onnx")).await;
    let mut camera = server.camera("raw").await;
    for (request, reason) in [
        (raw(PixelFormat::Nv12, 640, 360, 0, short), "RAW_GEOMETRY: too few bytes"),
        (raw(PixelFormat::Nv12, 640, 360, 0, long), "RAW_GEOMETRY: too many bytes"),
        (raw(PixelFormat::Nv12, 0, 0, 0, data.clone()), "RAW_GEOMETRY: a raw frame needs width"),
        (raw(PixelFormat::Nv12, 640, 360, 600, data.clone()), "RAW_GEOMETRY: stride 600"),
        (raw(PixelFormat::Nv12, 64_000, 36_000, 0, data.clone()), "TOO_MANY_PIXELS"),
    ] {
        camera.send(request).await;
        let answer = camera.answer().await;
        assert_eq!(answer.outcome(), Outcome::BadImage, "{}", answer.detail);
        assert!(answer.detail.starts_with(reason), "{} for {reason}", answer.detail);
    }
    let mut unknown = raw(PixelFormat::Nv12, 640, 360, 0, data.clone());
    unknown.format = 77;
    camera.send(unknown).await;
    assert_eq!(camera.answer().await.outcome(), Outcome::Unsupported);
    camera.send(raw(PixelFormat::Nv12, 640, 360, 0, data)).await;
    assert_squares(&camera.answer().await, &SQUARES, 2);
    server.stop().await;
}
