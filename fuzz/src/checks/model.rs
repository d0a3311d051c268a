//! What a model file says of itself, and what its network puts out.

use vedette_server::{
    infer::model::{parse_label_file, parse_names, settle_labels},
    letterbox::Letterbox,
    postprocess::{
        DetectOptions, Detection, Postprocessor,
        layout::{Family, FamilyName, OutputShape},
        nms::NmsMode,
    },
};

use super::{Numbers, assert_one_line};

/// Most values of an output, so that each is looked through in a moment.
const OUTPUT_VALUES: usize = 1 << 15;

/// Most classes that labels are settled for.
const CLASSES: usize = 1000;

/// First byte: which of the parts the rest is for.
pub(crate) fn check(data: &[u8]) {
    let mut numbers = Numbers::new(data);
    match numbers.u8() % 3 {
        0 => check_labels(numbers),
        1 => check_dimensions(numbers),
        _ => check_output(numbers),
    }
}

/// Number of classes (u16), then names as metadata has them or as lines of a file.
fn check_labels(mut numbers: Numbers<'_>) {
    let classes = usize::from(numbers.u16()) % CLASSES;
    let text = String::from_utf8_lossy(numbers.rest());
    let names = parse_names(&text);
    if let Some(names) = &names {
        let list = serde_json::to_string(names).expect("strings");
        assert_eq!(parse_names(&list).as_ref(), Some(names), "written as a list and read again");
    }
    let lines = parse_label_file(&text);
    assert!(lines.iter().all(|line| !line.contains('\n') && line.trim() == line), "{lines:?}");
    assert!(lines.len() <= text.lines().count());

    let of_model = settle_labels(classes, None, Some(&text));
    match of_model {
        Ok(labels) => {
            assert_eq!(labels.len(), classes);
            assert!(names.is_none_or(|names| names == labels));
        }
        Err(error) => assert_one_line(&error.to_string()),
    }
    match settle_labels(classes, Some(lines.clone()), Some(&text)) {
        Ok(labels) => assert_eq!(labels, lines),
        Err(error) => assert_one_line(&error.to_string()),
    }
}

/// Dimensions of an output as a model may declare them, however absurd.
fn check_dimensions(mut numbers: Numbers<'_>) {
    let input = (numbers.u32(), numbers.u32());
    let dims: Vec<i64> = (0..numbers.u8() % 5).map(|_| numbers.i64()).collect();
    if let Some(family) = Family::guess(&dims, input) {
        assert!(family.shape(&dims, input).is_some(), "{dims:?}");
    }
    for name in [FamilyName::Yolox, FamilyName::Yolov8] {
        let family = Family::get(name);
        let Some(shape) = family.shape(&dims, input) else { continue };
        assert!(family.classes(shape).is_some_and(|classes| classes > 0));
        let of_picture = i128::from(dims[1]) * i128::from(dims[2]);
        assert_eq!(shape.values() as i128, of_picture, "{dims:?}");
    }
}

/// A network's output for a picture: family, sides of input and picture, classes, options, then the
/// values, repeated until they are enough.
fn check_output(mut numbers: Numbers<'_>) {
    let names = [FamilyName::Yolox, FamilyName::Yolov8];
    let family = Family::get(names[usize::from(numbers.u8()) % 2]);
    let mut side = || (u32::from(numbers.u8()) % 8 + 1) * family.stride;
    let input = (side(), side());
    let source = (u32::from(numbers.u16()).max(1), u32::from(numbers.u16()).max(1));
    let classes = usize::from(numbers.u8()).max(1);
    let anchors = i64::from(numbers.u16());
    let options = options(&mut numbers);
    let Some(shape) = shape(family, input, classes, anchors) else { return };
    assert_eq!(family.classes(shape), Some(classes));

    let values = numbers.rest().as_chunks::<4>().0;
    if values.is_empty() || shape.values() > OUTPUT_VALUES {
        return;
    }
    let values = values.iter().map(|bytes| f32::from_le_bytes(*bytes)).cycle();
    let output: Vec<f32> = values.take(shape.values()).collect();
    let letterbox = Letterbox::fit(source, input, family.align);
    let mut postprocessor = Postprocessor::default();
    let found = postprocessor.run(family, shape, &output, &letterbox, &options).to_vec();
    assert!(found.len() <= options.max_detections);
    assert!(found.is_sorted_by(|a, b| a.score >= b.score), "strongest first");
    for detection in &found {
        check_detection(detection, source, classes, &options);
    }
    let again = postprocessor.run(family, shape, &output, &letterbox, &options);
    assert_eq!(again, found, "the same output, the same objects");
}

fn options(numbers: &mut Numbers<'_>) -> DetectOptions {
    let mut ratio = || f32::from(numbers.u16()) / f32::from(u16::MAX);
    let (confidence, iou) = (ratio(), ratio());
    let nms = if numbers.u8().is_multiple_of(2) { NmsMode::ClassAware } else { NmsMode::Agnostic };
    let max_detections = usize::from(numbers.u8()).max(1);
    DetectOptions { confidence, iou, nms, max_detections }
}

/// The shape of an output with so many classes. YOLOX has as many anchors as its grids have cells, the
/// other family any number.
fn shape(family: &Family, input: (u32, u32), classes: usize, anchors: i64) -> Option<OutputShape> {
    let cells = |stride: u32| i64::from(input.0 / stride) * i64::from(input.1 / stride);
    let classes = classes as i64;
    let dims = match family.name {
        FamilyName::Yolox => [1, cells(8) + cells(16) + cells(32), 5 + classes],
        FamilyName::Yolov8 => [1, 4 + classes, anchors],
    };
    family.shape(&dims, input)
}

fn check_detection(
    detection: &Detection,
    picture: (u32, u32),
    classes: usize,
    options: &DetectOptions,
) {
    let Detection { bbox, score, class } = detection;
    assert!((options.confidence..=1.0).contains(score), "{score} for {options:?}");
    assert!((*class as usize) < classes, "class {class} of {classes}");
    let inside = |low: i32, length: i32, limit: u32| {
        low >= 0 && length >= 1 && i64::from(low) + i64::from(length) <= i64::from(limit)
    };
    assert!(
        inside(bbox.x, bbox.width, picture.0) && inside(bbox.y, bbox.height, picture.1),
        "{bbox:?} in {picture:?}"
    );
}
