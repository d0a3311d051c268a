//! Inputs from bug reports of people who do this job, through the real server over gRPC.
//!
//! Each test is named by the quirk. The pictures show a red, a green and a blue square on gray; the
//! models report such squares, so that boxes, labels and confidences are known exactly.

use crate::common::{
    Camera, SQUARES, SQUARES_1080P, TestServer, assert_squares, bytes, cells, edges, encode,
    fixture,
};
use image::ImageFormat;
use vedette_proto::camera_ai::{DetectResponse, Outcome};
use vedette_server::{
    infer::{InferError, onnx::OnnxModel},
    postprocess::nms::NmsMode,
    settings::Settings,
};

/// Sends each file and then a good picture on one stream, and hands the answers to `check`: whatever
/// the first was, the second is answered normally.
async fn each_then_good(files: &[&str], check: impl Fn(&str, &DetectResponse)) {
    let server = TestServer::start(cells("cells_v8.onnx")).await;
    let good = bytes("base_640x360.jpg");
    for file in files {
        let mut camera = server.camera("case").await;
        let first = camera.detect(1, &bytes(file)).await;
        check(file, &first);
        assert_squares(&camera.detect(2, &good).await, &SQUARES, 2);
        camera.finish();
        assert_eq!(camera.rest().await, [], "{file}: exactly one answer per frame");
    }
    server.stop().await;
}

async fn all_squares(files: &[&str]) {
    each_then_good(files, |file, answer| {
        println!("{file}");
        assert_squares(answer, &SQUARES, 2);
    })
    .await;
}

async fn no_objects(files: &[&str]) {
    each_then_good(files, |file, answer| {
        assert_eq!(answer.outcome(), Outcome::Ok, "{file}: {}", answer.detail);
        assert_eq!(answer.objects, [], "{file}");
        assert!(answer.image_width > 0, "{file}");
    })
    .await;
}

async fn refused(files: &[&str], outcomes: &[Outcome], reasons: &[&str]) {
    each_then_good(files, |file, answer| {
        assert!(outcomes.contains(&answer.outcome()), "{file}: {:?}", answer.outcome());
        assert_eq!(answer.objects, [], "{file}");
        let reason = answer.detail.split(": ").next().unwrap_or_default();
        assert!(reasons.contains(&reason), "{file}: {}", answer.detail);
        assert!(!answer.detail.contains('\n'), "{file}: {}", answer.detail);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d01_usb_camera_omits_the_huffman_tables() {
    all_squares(&["mjpeg_no_dht.jpg", "mjpeg_avi1_no_dht.jpg"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d02_driver_pads_the_buffer_after_the_end_marker() {
    all_squares(&["trailing_zeros_64k.jpg", "trailing_garbage.jpg", "fill_bytes.jpg"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d03_end_marker_missing_but_picture_complete() {
    all_squares(&["no_eoi.jpg"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d04_frame_cut_in_the_middle_is_an_error_and_not_half_a_picture() {
    let files = ["truncated_50.jpg", "truncated_header.jpg"];
    refused(&files, &[Outcome::BadImage], &["TRUNCATED"]).await;

    let server = TestServer::start(cells("cells_v8.onnx")).await;
    server.camera("cut").await.detect(1, &bytes("truncated_50.jpg")).await;
    let series = "vedette_bad_frames_total{reason=\"truncated\"}";
    assert!((server.metric(series) - 1.0).abs() < f64::EPSILON);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d05_exif_orientation_is_honoured() {
    let files = ["exif_orient6.jpg", "exif_orient8.jpg", "exif_orient3.jpg"];
    each_then_good(&files, |_, answer| {
        assert_squares(answer, &SQUARES, 2);
        assert_eq!((answer.image_width, answer.image_height), (640, 360));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d06_four_component_adobe_jpeg() {
    all_squares(&["cmyk_adobe.jpg"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d07_one_component_jpeg_of_a_night_camera() {
    no_objects(&["gray_baseline.jpg", "gray_progressive.jpg"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d08_progressive_with_restart_intervals() {
    let files = [
        "progressive_dri_420.jpg",
        "progressive_dri_rows.jpg",
        "baseline_dri.jpg",
        "progressive_420.jpg",
    ];
    all_squares(&files).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d09_unusual_chroma_subsampling() {
    all_squares(&["sub_411.jpg", "sub_440.jpg", "sub_410.jpg", "sub_444.jpg"]).await;
    // One pixel less in width and height, same squares.
    all_squares(&["odd_639x359_420.jpg"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d10_not_a_picture_at_all() {
    let outcomes = [Outcome::BadImage, Outcome::Unsupported];
    refused(
        &[
            "empty.bin",
            "one_byte.bin",
            "soi_only.jpg",
            "random_4k.bin",
            "html_401.bin",
            "h264_nal.bin",
        ],
        &outcomes,
        &["EMPTY", "UNRECOGNISED", "TRUNCATED", "UNSUPPORTED"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d11_few_bytes_that_claim_millions_of_pixels() {
    let files = [
        "bomb_65500.jpg",
        "bomb_16000.jpg",
        "bomb_8192.jpg",
        "bomb_png_30000x3000.png",
        "bomb_png_hdr_100000.png",
    ];
    refused(&files, &[Outcome::BadImage], &["TOO_MANY_PIXELS"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d12_every_kind_of_png() {
    all_squares(&["png16_rgb.png", "png_palette.png", "png_palette_trns.png", "png_rgba.png"])
        .await;
    no_objects(&["png_la.png", "png16_gray.png", "png_1bit.png"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d12_bmp_and_webp() {
    each_then_good(&["still.bmp", "still.webp"], |file, answer| {
        assert_eq!(answer.outcome(), Outcome::Ok, "{file}: {}", answer.detail);
        assert!(answer.image_width > 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d13_partly_gray_after_packet_loss_is_a_normal_picture() {
    each_then_good(&["half_gray_lost.jpg"], |_, answer| {
        assert_squares(answer, &SQUARES[..1], 2);
    })
    .await;
    no_objects(&["gray_uniform_128.jpg"]).await;
}

async fn detect_once(settings: Settings, data: &[u8]) -> DetectResponse {
    let server = TestServer::start(settings).await;
    let answer = server.camera("once").await.detect(1, data).await;
    server.stop().await;
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn d14_boxes_are_in_pixels_of_a_picture_that_is_not_square() {
    let scene = bytes("scene_1080p.jpg");
    for model in ["cells_v8.onnx", "cells_rect_400x640.onnx"] {
        let server = TestServer::start(cells(model)).await;
        let mut camera = server.camera("hd").await;
        assert_squares(&camera.detect(1, &scene).await, &SQUARES_1080P, 3);
        assert_squares(&camera.detect(2, &bytes("base_640x360.jpg")).await, &SQUARES, 2);
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d15_red_is_red_and_blue_is_blue_in_a_png() {
    let scene = image::load_from_memory(&bytes("scene_1080p.jpg")).expect("decodes").into_rgb8();
    let png = encode(&scene, ImageFormat::Png);
    let answer = detect_once(cells("cells_v8.onnx"), &png).await;
    assert_squares(&answer, &SQUARES_1080P, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn d16_boxes_that_leave_the_picture_are_clipped() {
    let answer = detect_once(cells("cells_oob.onnx"), &bytes("scene_1080p.jpg")).await;
    assert_eq!(answer.outcome(), Outcome::Ok);
    assert!(!answer.objects.is_empty());
    for [x, y, width, height] in answer.objects.iter().map(edges) {
        assert!(x >= 0 && y >= 0 && width > 0 && height > 0);
        assert!(x + width <= 1920 && y + height <= 1080);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d17_suppression_respects_classes_unless_told_otherwise() {
    let scene = bytes("scene_1080p.jpg");
    let aware = detect_once(cells("cells_nms.onnx"), &scene).await;
    let labels = |answer: &DetectResponse| {
        let mut labels: Vec<_> = answer.objects.iter().map(|o| o.label.clone()).collect();
        labels.sort();
        labels
    };
    assert_eq!(labels(&aware), ["blue", "green", "green", "red"]);
    let settings = Settings { nms: Some(NmsMode::Agnostic), ..cells("cells_nms.onnx") };
    assert_eq!(detect_once(settings, &scene).await.objects.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn d18_labels_of_a_model_that_names_none() {
    let scene = bytes("scene_1080p.jpg");
    let unnamed = SQUARES_1080P.map(|(label, square)| match label {
        "red" => ("class_0", square),
        "green" => ("class_1", square),
        _ => ("class_2", square),
    });
    let answer = detect_once(cells("cells_names_missing.onnx"), &scene).await;
    assert_squares(&answer, &unnamed, 3);

    let labels = tempfile::NamedTempFile::new().expect("temporary file");
    std::fs::write(labels.path(), "red\ngreen\nblue\n").expect("write");
    let named = |path: &std::path::Path| Settings {
        labels: Some(path.to_owned()),
        ..cells("cells_names_missing.onnx")
    };
    assert_squares(&detect_once(named(labels.path()), &scene).await, &SQUARES_1080P, 3);

    std::fs::write(labels.path(), "red\ngreen\n").expect("write");
    let config = named(labels.path()).check().expect("valid");
    let error = OnnxModel::load(&config.model).err().expect("the wrong number of labels");
    assert!(matches!(error, InferError::Labels(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn d18_names_as_a_list() {
    let answer = detect_once(cells("cells_names_list.onnx"), &bytes("scene_1080p.jpg")).await;
    assert_squares(&answer, &SQUARES_1080P, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn d19_half_precision_input() {
    let answer = detect_once(cells("cells_fp16.onnx"), &bytes("scene_1080p.jpg")).await;
    assert_squares(&answer, &SQUARES_1080P, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn d20_dynamic_batch_gives_the_same_answers_at_every_size() {
    const CAMERAS: usize = 4;
    let scene = bytes("scene_1080p.jpg");
    let mut expected = None;
    for batch in [1, 4] {
        let settings =
            Settings { batch: Some(batch), workers: Some(1), ..cells("cells_dynbatch.onnx") };
        let server = TestServer::start(settings).await;
        let mut cameras = Vec::new();
        for number in 0..CAMERAS {
            cameras.push(server.camera(&format!("cam-{number}")).await);
        }
        // Frames that wait together are run together; repeated until that has happened.
        for round in 0..50 {
            for camera in &cameras {
                camera.send_picture(round, &scene).await;
            }
            for camera in &mut cameras {
                let answer = camera.answer().await;
                assert_squares(&answer, &SQUARES_1080P, 3);
                assert_eq!(&answer.objects, expected.get_or_insert(answer.objects.clone()));
            }
            let alone = server.metric("vedette_batch_frames_bucket{le=\"1\"}");
            let runs = server.metric("vedette_batch_frames_count");
            let together = runs - alone;
            if together > 0.0 || (batch == 1 && round == 2) {
                assert_eq!(together > 0.0, batch > 1);
                break;
            }
            assert!(round < 49, "no two frames were ever run together");
        }
        server.stop().await;
    }

    let fixed = Settings { batch: Some(4), ..cells("cells_v8.onnx") };
    let error =
        OnnxModel::load(&fixed.check().expect("valid").model).err().expect("batch of 1 only");
    assert!(matches!(error, InferError::Batch(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn d21_a_single_class() {
    let answer = detect_once(cells("cells_single.onnx"), &bytes("scene_1080p.jpg")).await;
    assert_squares(&answer, &SQUARES_1080P[..1], 3);
}

/// 3840x2160 of noise: about 5 MB, above the 4 MiB at which gRPC libraries stop by default.
fn noise_4k() -> Vec<u8> {
    let mut state = 1_u64;
    let noise = image::GrayImage::from_fn(3840, 2160, |_, _| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        image::Luma([(state >> 56) as u8])
    });
    let mut out = std::io::Cursor::new(Vec::new());
    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut out, 75);
    noise.write_with_encoder(encoder).expect("encodes");
    out.into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn d22_frame_above_the_usual_message_limit() {
    let noise = noise_4k();
    let limit = 4 << 20;
    assert!((limit + 1..2 * limit).contains(&noise.len()), "{} bytes", noise.len());
    let server = TestServer::start(cells("cells_v8.onnx")).await;
    let answer = server.camera("4k").await.detect(1, &noise).await;
    assert_eq!(answer.outcome(), Outcome::Ok, "{}", answer.detail);
    assert_eq!((answer.image_width, answer.image_height), (3840, 2160));
    server.stop().await;

    let settings = Settings { max_frame_bytes: Some(limit), ..cells("cells_v8.onnx") };
    let server = TestServer::start(settings).await;
    let mut other = server.camera("other").await;
    let mut camera = server.camera("4k").await;
    let answer = camera.detect(1, &noise).await;
    assert_eq!(answer.outcome(), Outcome::BadImage);
    let names_both = answer.detail.contains(&noise.len().to_string())
        && answer.detail.contains(&limit.to_string());
    assert!(names_both, "{}", answer.detail);
    // The stream lives on, and others never noticed.
    assert_squares(&camera.detect(2, &bytes("base_640x360.jpg")).await, &SQUARES, 2);
    assert_squares(&other.detect(1, &bytes("base_640x360.jpg")).await, &SQUARES, 2);

    // Far above the limit the message is not even read: a clear status ends this stream only.
    let mut huge = server.camera("huge").await;
    huge.send_picture(1, &vec![0; 3 * limit]).await;
    let status = huge.next().await.expect_err("too large to read");
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
    assert!(status.message().contains(&(2 * limit + (64 << 10)).to_string()), "{status}");
    assert_squares(&other.detect(2, &bytes("base_640x360.jpg")).await, &SQUARES, 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d01_tables_are_not_borrowed_from_another_camera() {
    let server = TestServer::start(Settings { workers: Some(1), ..cells("cells_v8.onnx") }).await;
    let mut usb = server.camera("usb").await;
    let mut other = server.camera("other").await;
    for (id, file) in ["progressive_420.jpg", "gray_progressive.jpg"].iter().enumerate() {
        other.detect(id as u64, &bytes(file)).await;
        assert_squares(&usb.detect(id as u64, &bytes("mjpeg_no_dht.jpg")).await, &SQUARES, 2);
    }
    assert!(server.metric("vedette_damaged_frames_total") < 0.5);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d04_cut_pictures_of_every_kind() {
    let cut = |file: &str, keep: usize| {
        let data = bytes(file);
        data[..data.len() * keep / 100].to_vec()
    };
    let good = bytes("base_640x360.jpg");
    let server = TestServer::start(cells("cells_v8.onnx")).await;
    let mut camera = server.camera("cut").await;
    // What is left of one frame, and the next directly behind it.
    let joined = [bytes("truncated_50.jpg"), good.clone()].concat();
    for data in [joined, cut("cmyk_adobe.jpg", 50), cut("png_rgba.png", 50), cut("still.bmp", 50)] {
        let answer = camera.detect(1, &data).await;
        assert_eq!(answer.outcome(), Outcome::BadImage, "{}", answer.detail);
    }
    assert_squares(&camera.detect(2, &good).await, &SQUARES, 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_file_leaves_its_stream_alive() {
    let server = TestServer::start(cells("cells_v8.onnx")).await;
    let mut camera: Camera = server.camera("all").await;
    let mut files: Vec<_> = std::fs::read_dir(fixture(""))
        .expect("fixtures")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    assert!(files.len() > 40, "{files:?}");
    for (number, file) in files.iter().enumerate() {
        let data = std::fs::read(file).expect("reads");
        camera.detect(number as u64, &data).await;
    }
    assert_squares(&camera.detect(999, &bytes("base_640x360.jpg")).await, &SQUARES, 2);
    assert_eq!(server.frames(), (files.len() as u64 + 1, files.len() as u64 + 1));
    server.stop().await;
}
