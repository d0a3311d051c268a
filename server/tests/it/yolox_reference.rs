//! The default network's boxes and scores against an independent implementation in Python, on real
//! photographs: `tests/reference/yolox_reference.py` with numpy, OpenCV and ONNX Runtime.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{TestServer, edges, fetched, settings};
use serde_json::Value;
use vedette_proto::camera_ai::{Object, Outcome};
use vedette_server::{
    decode::JpegDecode,
    letterbox::{Align, Letterbox},
    settings::{InputShape, InputSize, Settings},
};

/// How far an edge may be off, in pixels: the server reports whole ones.
const EDGE_TOLERANCE: f64 = 1.0;
/// How far a score may be off.
const SCORE_TOLERANCE: f64 = 0.002;

fn reference(args: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/yolox_reference.py");
    let output = Command::new(fetched("pyenv/bin/python"))
        .arg(script)
        .args(args)
        .output()
        .expect("the reference runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn pictures_in(folder: &Path) -> Vec<PathBuf> {
    let mut pictures: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .collect();
    pictures.sort();
    pictures
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// Whether an object is this detection of the reference.
fn same(object: &Object, expected: &Value) -> bool {
    let [x, y, width, height] = edges(object).map(f64::from);
    let corners = [("x1", x), ("y1", y), ("x2", x + width), ("y2", y + height)];
    u64::from(object.class_id) == expected["class_id"].as_u64().unwrap_or(u64::MAX)
        && (f64::from(object.confidence) - number(expected, "score")).abs() <= SCORE_TOLERANCE
        && corners.iter().all(|(key, got)| (got - number(expected, key)).abs() <= EDGE_TOLERANCE)
}

/// The reference's detections for each picture, each at the network input that `input_of` names for
/// the picture's size.
fn detections(
    model: &Path,
    pictures: &[PathBuf],
    input_of: impl Fn((u32, u32)) -> (u32, u32),
) -> BTreeMap<PathBuf, Value> {
    let mut by_input: BTreeMap<(u32, u32), Vec<&Path>> = BTreeMap::new();
    for path in pictures {
        let size = image::image_dimensions(path).expect("a picture");
        by_input.entry(input_of(size)).or_default().push(path);
    }
    let mut all = BTreeMap::new();
    for ((width, height), group) in by_input {
        let size = format!("{width}x{height}");
        let mut args = vec!["--model", model.to_str().expect("Unicode"), "--size", &size];
        args.extend(["--conf", "0.25", "--iou", "0.45", "--max-det", "300"]);
        args.extend(group.iter().map(|path| path.to_str().expect("Unicode")));
        let document: Value = serde_json::from_str(&reference(&args)).expect("JSON");
        let found = document["pictures"].as_array().expect("a list");
        assert_eq!(found.len(), group.len());
        all.extend(group.into_iter().map(Path::to_owned).zip(found.iter().cloned()));
    }
    all
}

/// Sends every picture to a server with this input, and compares.
async fn compare(
    budget: InputSize,
    shape: InputShape,
    input_of: impl Fn((u32, u32)) -> (u32, u32),
) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    reference(&["--make-pictures", folder.path().to_str().expect("Unicode")]);
    let pictures = pictures_in(folder.path());
    assert!(pictures.len() >= 20, "{} pictures", pictures.len());
    let model = fetched("yolox_nano.onnx");
    let expected = detections(&model, &pictures, input_of);

    let settings = Settings {
        model: Some(model),
        runtime_lib: Some(fetched("onnxruntime/libonnxruntime.so")),
        input_size: Some(budget),
        input_shape: Some(shape),
        // The reference decodes every pixel and interpolates as libjpeg does.
        jpeg_decode: Some(JpegDecode::Full),
        confidence: Some(0.25),
        iou: Some(0.45),
        ..settings()
    };
    let server = TestServer::start(settings).await;
    let mut camera = server.camera("reference").await;
    let mut with_objects = 0;
    for (number, (path, expected)) in expected.iter().enumerate() {
        let data = std::fs::read(path).expect("reads");
        let answer = camera.detect(number as u64, &data).await;
        let name = path.file_name().unwrap_or_default().display();
        assert_eq!(answer.outcome(), Outcome::Ok, "{name}: {}", answer.detail);
        assert_eq!(u64::from(answer.image_width), expected["width"].as_u64().expect("width"));
        assert_eq!(u64::from(answer.image_height), expected["height"].as_u64().expect("height"));
        let detections = expected["detections"].as_array().expect("a list");
        assert_eq!(answer.objects.len(), detections.len(), "{name}: {:#?}", answer.objects);
        let mut rest = answer.objects.clone();
        for detection in detections {
            let found = rest.iter().position(|object| same(object, detection));
            let found =
                found.unwrap_or_else(|| panic!("{name}: nothing like {detection} in {rest:#?}"));
            rest.swap_remove(found);
        }
        with_objects += usize::from(!detections.is_empty());
    }
    assert!(with_objects >= 15, "only {with_objects} pictures had anything to compare");
    server.stop().await;
}

const SQUARE: InputSize = InputSize { width: 416, height: 416 };

#[tokio::test(flavor = "multi_thread")]
async fn boxes_and_scores_equal_the_reference_in_a_square() {
    compare(SQUARE, InputShape::Fixed, |_| (416, 416)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn boxes_and_scores_equal_the_reference_in_rectangles_that_fit_the_pictures() {
    let rectangle = |size| Letterbox::tight(size, (416, 416), Align::TopLeft, 32).input;
    compare(SQUARE, InputShape::Adaptive, rectangle).await;
}
