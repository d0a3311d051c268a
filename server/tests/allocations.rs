//! The hot path takes no memory from the heap once it is warm: decode, preprocess, the network's input
//! and postprocess, counted by the allocator of this test program.
//!
//! Counted is what Rust code allocates. libjpeg-turbo and ONNX Runtime keep their own books.

use std::{
    alloc::{GlobalAlloc, Layout as MemoryLayout, System},
    cell::Cell,
    io::Cursor,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use vedette_server::{
    decode::{Decoder, FrameLimits, JpegDecode},
    frame::{Layout, Picture},
    infer::{network::Network, onnx::OnnxModel},
    postprocess::{DetectOptions, Detection, Postprocessor},
    preprocess::Preprocessor,
    settings::Settings,
};

struct Counting;

thread_local! {
    // A constant start value and no destructor: reading it never allocates.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: MemoryLayout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: MemoryLayout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: MemoryLayout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: MemoryLayout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread while `work` runs.
fn allocations<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.get();
    let result = work();
    (ALLOCATIONS.get() - before, result)
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The stages of one worker.
struct Stages {
    model: OnnxModel,
    network: Network,
    decoder: Decoder,
    preprocessor: Preprocessor,
    postprocessor: Postprocessor,
    options: DetectOptions,
}

/// Allocations in each stage of one frame.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    decode: u64,
    preprocess: u64,
    infer_input: u64,
    postprocess: u64,
}

impl Stages {
    fn new(jpeg: JpegDecode) -> Self {
        let settings = Settings {
            model: Some(repository("models/cache/yolox_nano.onnx")),
            runtime_lib: Some(repository("models/cache/onnxruntime/libonnxruntime.so")),
            ..Settings::default()
        };
        let config = settings.check().expect("valid settings");
        let model = OnnxModel::load(&config.model).unwrap_or_else(|error| panic!("{error}"));
        let network = model.network().unwrap_or_else(|error| panic!("{error}"));
        let limits = FrameLimits { max_bytes: 1 << 24, max_pixels: 1 << 24 };
        Self {
            model,
            network,
            decoder: Decoder::new(limits, jpeg),
            preprocessor: Preprocessor::default(),
            postprocessor: Postprocessor::default(),
            // Low, so that there is something to suppress, map and clip.
            options: DetectOptions { confidence: 0.02, ..config.detect },
        }
    }

    fn detect(&mut self, picture: &Picture) -> (Counts, Vec<Detection>) {
        let model = &self.model;
        let (decode, decoded) = allocations(|| {
            self.decoder.decode(picture, |size| model.letterbox(size).scaled).expect("decodes")
        });
        let letterbox = model.letterbox((decoded.width, decoded.height));
        let (infer_input, tensor) =
            allocations(|| self.network.room(letterbox.input, 0).expect("room"));
        let (preprocess, ()) = allocations(|| {
            self.preprocessor.run(&decoded.pixels, &letterbox, &model.input, tensor);
        });
        let outputs = self.network.run(letterbox.input, 1).expect("runs");
        let shape = model.family.shape(outputs.dims, letterbox.input).expect("a known layout");
        let (postprocess, detections) = allocations(|| {
            self.postprocessor.run(model.family, shape, outputs.values, &letterbox, &self.options)
        });
        (Counts { decode, preprocess, infer_input, postprocess }, detections.to_vec())
    }
}

/// A photograph as a JPEG, which says that it is to be turned if `turned`.
fn photograph(turned: bool) -> Picture {
    let path = repository("models/cache/pictures/astronaut.png");
    let image = image::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut out = Cursor::new(Vec::new());
    image.into_rgb8().write_to(&mut out, image::ImageFormat::Jpeg).expect("encodes");
    let mut data = out.into_inner();
    if turned {
        // EXIF orientation 6, a quarter turn clockwise, right after the start marker.
        let exif = b"\xFF\xE1\x00\x22Exif\0\0MM\0\x2A\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        data.splice(2..2, exif.iter().copied());
    }
    Picture { data: Bytes::from(data), layout: Layout::Encoded }
}

#[test]
fn a_warm_worker_takes_nothing_from_the_heap() {
    for jpeg in [JpegDecode::Scaled, JpegDecode::Full] {
        let mut stages = Stages::new(jpeg);
        for turned in [false, true] {
            let picture = photograph(turned);
            let (cold, first) = stages.detect(&picture);
            assert!(cold.decode > 0 || turned, "the counter counts: {cold:?}");
            assert!(!first.is_empty(), "nothing was detected");
            for round in 0..10 {
                let (warm, again) = stages.detect(&picture);
                assert_eq!(warm, Counts::default(), "{jpeg:?}, turned {turned}, round {round}");
                assert_eq!(again, first);
            }
        }
    }
}
