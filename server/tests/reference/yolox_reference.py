#!/usr/bin/env python3
"""Reference of the YOLOX pipeline in plain numpy, ONNX Runtime and OpenCV.

Written apart from the server and with other libraries, so that the two can be compared: decode,
letterbox, network, grid decode, threshold, NMS, back to pixels of the picture. Also makes the
pictures that they are compared on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

STRIDES = (8, 16, 32)
PAD_VALUE = 114.0

Floats = NDArray[np.float32]
Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Letterbox:
    """A picture of `width` x `height` scaled to `new_width` x `new_height` at the top left."""

    width: int
    height: int
    new_width: int
    new_height: int


@dataclass(frozen=True)
class Settings:
    """Size of the network's input and what is reported."""

    input_width: int
    input_height: int
    confidence: float
    iou: float
    max_detections: int
    # OpenCV's 8-bit arithmetic rounds resized pixels to integers, as the authors' own demo does. A
    # fused loop has no reason to; faint detections of small pictures then move by up to 0.015 in
    # score and a few pixels. The plain definition of bilinear interpolation is the default.
    resize_uint8: bool = False


def round_half_up(value: float) -> int:
    """Python's round() would send halves to the even neighbour."""
    return math.floor(value + 0.5)


def decode_picture(data: bytes) -> Picture:
    """Height x width x 3 BGR pixels of a picture file, upright as its EXIF orientation says."""
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if picture is None:
        raise ValueError("not a picture that OpenCV can decode")
    return picture


def letterbox_of(width: int, height: int, input_width: int, input_height: int) -> Letterbox:
    """Largest size of the same shape that fits the input, at least one pixel on each side."""
    scale = min(input_width / width, input_height / height)
    return Letterbox(
        width,
        height,
        max(1, round_half_up(width * scale)),
        max(1, round_half_up(height * scale)),
    )


def preprocess(picture: Picture, settings: Settings) -> tuple[Floats, Letterbox]:
    """The network's input, 1 x 3 x H x W, BGR 0..255, and the geometry that made it.

    Bilinear with half-pixel centres and edges repeated, no smoothing before shrinking.
    """
    height, width = picture.shape[:2]
    box = letterbox_of(width, height, settings.input_width, settings.input_height)
    pixels = picture if settings.resize_uint8 else picture.astype(np.float32)
    resized = cv2.resize(pixels, (box.new_width, box.new_height), interpolation=cv2.INTER_LINEAR)
    canvas = np.full((settings.input_height, settings.input_width, 3), PAD_VALUE, np.float32)
    canvas[: box.new_height, : box.new_width] = resized
    return np.ascontiguousarray(canvas.transpose(2, 0, 1)[np.newaxis]), box


def grid(input_width: int, input_height: int) -> tuple[Floats, Floats]:
    """Cell of each anchor (anchors x 2, column and row) and its stride (anchors x 1).

    Anchors are ordered by stride, then row, then column.
    """
    cells, strides = [], []
    for stride in STRIDES:
        rows, columns = np.mgrid[: input_height // stride, : input_width // stride]
        cells.append(np.stack([columns, rows], axis=-1).reshape(-1, 2))
        strides.append(np.full((len(cells[-1]), 1), stride))
    return np.concatenate(cells).astype(np.float32), np.concatenate(strides).astype(np.float32)


def decode_output(output: Floats, settings: Settings) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Corners in input pixels (n x 4), score and class of the anchors that pass the threshold.

    `output` is anchors x (4 + 1 + classes): centre's offset from the cell and logarithm of the
    size, both in strides; objectness; class scores. Each anchor stands for its best class only.
    """
    cells, strides = grid(settings.input_width, settings.input_height)
    class_ids = output[:, 5:].argmax(axis=1)
    scores = output[:, 4] * output[np.arange(len(output)), 5 + class_ids]
    keep = scores >= settings.confidence
    centres = (output[keep, :2] + cells[keep]) * strides[keep]
    halves = np.exp(output[keep, 2:4]) * strides[keep] / 2
    return np.hstack([centres - halves, centres + halves]), scores[keep], class_ids[keep]


def iou_of(box: Floats, others: Floats) -> Floats:
    """Intersection over union of one box with each of the others."""
    corners_low = np.maximum(box[:2], others[:, :2])
    corners_high = np.minimum(box[2:], others[:, 2:])
    # Disjoint boxes have a negative extent, and two negative ones would multiply to an area.
    inter = np.prod(np.clip(corners_high - corners_low, 0, None), axis=1)
    area = np.prod(box[2:] - box[:2])
    areas = np.prod(others[:, 2:] - others[:, :2], axis=1)
    return inter / np.maximum(area + areas - inter, np.finfo(np.float32).tiny)


def nms(
    boxes: Floats, scores: Floats, class_ids: NDArray[np.int64], iou: float
) -> NDArray[np.int64]:
    """Indices of the boxes kept by greedy NMS within each class, by descending score."""
    # Stable: of equal scores the earlier anchor goes first.
    order = np.argsort(-scores, kind="stable")
    alive = np.ones(len(order), bool)
    kept = []
    for at, index in enumerate(order):
        if not alive[at]:
            continue
        kept.append(index)
        rest = order[at + 1 :]
        same = class_ids[rest] == class_ids[index]
        alive[at + 1 :] &= ~(same & (iou_of(boxes[index], boxes[rest]) > iou))
    return np.array(kept, np.int64)


def to_source(boxes: Floats, box: Letterbox) -> Floats:
    """Corners in pixels of the source picture, clipped to it."""
    factor = np.array([box.width / box.new_width, box.height / box.new_height] * 2)
    limit = np.array([box.width, box.height] * 2)
    return np.clip(boxes * factor, 0, limit).astype(np.float32)


class Yolox:
    """A YOLOX network and its settings."""

    def __init__(self, model: Path, settings: Settings, threads: int = 0) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.settings = settings
        self.session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.input_name = self.session.get_inputs()[0].name
        names = self.session.get_modelmeta().custom_metadata_map.get("names", "[]")
        self.labels: list[str] = json.loads(names)

    def detect(self, data: bytes) -> dict[str, Any]:
        """Size of a picture file and the objects in it, most confident first."""
        tensor, box = preprocess(decode_picture(data), self.settings)
        output = self.session.run(None, {self.input_name: tensor})[0][0]
        boxes, scores, class_ids = decode_output(output, self.settings)
        kept = nms(boxes, scores, class_ids, self.settings.iou)[: self.settings.max_detections]
        corners = to_source(boxes[kept], box)
        return {
            "width": box.width,
            "height": box.height,
            "detections": [
                {
                    "class_id": int(class_ids[index]),
                    "score": float(scores[index]),
                    **dict(zip(("x1", "y1", "x2", "y2"), map(float, corner), strict=True)),
                }
                for index, corner in zip(kept, corners, strict=True)
            ],
        }


# ---- Pictures to compare on ----------------------------------------------------------------------


# Name that stands for four photographs side by side, two by two.
MOSAIC = "mosaic"
MOSAIC_PHOTOS = ("astronaut.png", "motorcycle_left.png", "chelsea.png", "coffee.png")
MOSAIC_TILE = (640, 480)


@dataclass(frozen=True)
class Recipe:
    """How a picture is made from a photograph: crop (fractions), flip, size, file type."""

    photo: str
    crop: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    flip: bool = False
    size: tuple[int, int] = (0, 0)
    suffix: str = "jpg"

    def name(self, number: int) -> str:
        """File name, telling what is in it."""
        width, height = self.size
        flip = "_flip" if self.flip else ""
        return f"{number:02}_{Path(self.photo).stem}{flip}_{width}x{height}.{self.suffix}"


# Sizes chosen for their quirks: odd sides, camera sizes, portrait, smaller than the input, wide.
# Crops chosen so that at 416x416, confidence 0.25 and IoU 0.45 no decision hangs on last digits:
# no score within 0.003 of the threshold, no overlap within 0.01 of the limit, no box that wins over
# another by less than 0.001.
RECIPES = (
    Recipe("astronaut.png", size=(512, 512), suffix="png"),
    Recipe("astronaut.png", size=(637, 479)),
    Recipe("astronaut.png", flip=True, size=(480, 640)),
    Recipe("astronaut.png", crop=(0.0, 0.0, 0.8, 1.0), size=(427, 640)),
    Recipe("astronaut.png", crop=(0.1, 0.0, 1.0, 0.7), size=(1280, 720)),
    Recipe("chelsea.png", size=(451, 300), suffix="png"),
    Recipe("chelsea.png", flip=True, size=(640, 427)),
    Recipe("chelsea.png", size=(1280, 720)),
    Recipe("chelsea.png", crop=(0.0, 0.0, 0.8, 1.0), size=(333, 333)),
    Recipe("chelsea.png", crop=(0.1, 0.05, 1.0, 1.0), flip=True, size=(637, 479)),
    Recipe("coffee.png", size=(600, 400), suffix="png"),
    Recipe("coffee.png", flip=True, size=(1920, 1080)),
    Recipe("coffee.png", size=(321, 241)),
    Recipe("coffee.png", crop=(0.15, 0.0, 0.95, 1.0), size=(640, 480)),
    Recipe("coffee.png", crop=(0.0, 0.1, 1.0, 1.0), flip=True, size=(853, 479), suffix="png"),
    Recipe("motorcycle_left.png", size=(741, 500), suffix="png"),
    Recipe("motorcycle_left.png", flip=True, size=(640, 480)),
    Recipe("motorcycle_left.png", crop=(0.0, 0.0, 0.95, 0.95), size=(1280, 720)),
    Recipe("motorcycle_left.png", crop=(0.05, 0.0, 0.75, 1.0), size=(427, 640)),
    Recipe("motorcycle_left.png", crop=(0.1, 0.1, 1.0, 1.0), flip=True, size=(639, 359)),
    Recipe("motorcycle_left.png", size=(200, 135), suffix="png"),
    Recipe("camera.png", size=(512, 512)),
    Recipe("camera.png", crop=(0.0, 0.0, 0.95, 1.0), flip=True, size=(640, 480)),
    Recipe("camera.png", crop=(0.1, 0.05, 0.9, 0.95), size=(427, 641), suffix="png"),
    # Many objects of several classes, small ones among them.
    Recipe(MOSAIC, size=(1280, 960)),
    Recipe(MOSAIC, crop=(0.0, 0.0, 0.94, 1.0), flip=True, size=(641, 481), suffix="png"),
    Recipe(MOSAIC, size=(719, 1279)),
    # The network finds nothing here at a confidence of 0.25.
    Recipe("rocket.jpg", size=(640, 427)),
    Recipe("rocket.jpg", crop=(0.2, 0.0, 0.8, 1.0), size=(301, 517), suffix="png"),
)


def make_picture(photo: Picture, recipe: Recipe) -> Picture:
    """The photograph cropped, flipped and scaled."""
    height, width = photo.shape[:2]
    left, top, right, bottom = recipe.crop
    rows = slice(round(top * height), round(bottom * height))
    columns = slice(round(left * width), round(right * width))
    cut = photo[rows, columns]
    if recipe.flip:
        cut = cut[:, ::-1]
    smaller = recipe.size[0] * recipe.size[1] < cut.shape[0] * cut.shape[1]
    how = cv2.INTER_AREA if smaller else cv2.INTER_CUBIC
    return cv2.resize(np.ascontiguousarray(cut), recipe.size, interpolation=how)


def open_photo(photos: Path, name: str) -> Picture:
    """A photograph, or the mosaic of four."""
    if name != MOSAIC:
        return decode_picture((photos / name).read_bytes())
    tiles = [
        cv2.resize(open_photo(photos, photo), MOSAIC_TILE, interpolation=cv2.INTER_AREA)
        for photo in MOSAIC_PHOTOS
    ]
    return np.vstack([np.hstack(tiles[:2]), np.hstack(tiles[2:])])


def make_pictures(photos: Path, into: Path) -> list[Path]:
    """Writes the pictures of all recipes and returns their paths."""
    into.mkdir(parents=True, exist_ok=True)
    written = []
    for number, recipe in enumerate(RECIPES):
        photo = open_photo(photos, recipe.photo)
        path = into / recipe.name(number)
        quality = [cv2.IMWRITE_JPEG_QUALITY, 90] if recipe.suffix == "jpg" else []
        if not cv2.imwrite(str(path), make_picture(photo, recipe), quality):
            raise OSError(f"cannot write {path}")
        written.append(path)
    return written


def parse_size(text: str) -> tuple[int, int]:
    """`416` or `416x256` (width x height), multiples of the largest stride."""
    parts = [int(part) for part in text.split("x")]
    if len(parts) not in (1, 2) or any(part <= 0 or part % STRIDES[-1] for part in parts):
        raise argparse.ArgumentTypeError(f"{text}: expected WxH, multiples of {STRIDES[-1]}")
    return parts[0], parts[-1]


def main() -> int:
    """Command line."""
    root = Path(__file__).resolve().parents[3]
    parser = argparse.ArgumentParser(
        description="Detects objects with the reference pipeline and prints one JSON document."
    )
    parser.add_argument("pictures", nargs="*", type=Path, metavar="PICTURE")
    parser.add_argument("--model", type=Path, default=root / "models/cache/yolox_nano.onnx")
    parser.add_argument("--size", type=parse_size, default=(416, 416), metavar="WxH")
    parser.add_argument("--conf", type=float, default=0.25)
    parser.add_argument("--iou", type=float, default=0.45)
    parser.add_argument("--max-det", type=int, default=300)
    parser.add_argument(
        "--resize",
        choices=("float", "uint8"),
        default="float",
        help="keep the fractions of resized pixels (default), or round as OpenCV does for pictures",
    )
    parser.add_argument("--photos", type=Path, default=root / "models/cache/pictures")
    parser.add_argument(
        "--make-pictures",
        type=Path,
        metavar="DIR",
        help="write the comparison pictures made from the photographs, then go on with them "
        "unless others are named",
    )
    args = parser.parse_args()
    pictures: list[Path] = args.pictures
    if args.make_pictures:
        made = make_pictures(args.photos, args.make_pictures)
        pictures = pictures or made
    if not pictures:
        parser.error("name at least one PICTURE")
    settings = Settings(
        *args.size, args.conf, args.iou, args.max_det, resize_uint8=args.resize == "uint8"
    )
    yolox = Yolox(args.model, settings)
    results = [{"file": str(path), **yolox.detect(path.read_bytes())} for path in pictures]
    json.dump(
        {
            "model": args.model.stem,
            "input_width": settings.input_width,
            "input_height": settings.input_height,
            "labels": yolox.labels,
            "pictures": results,
        },
        sys.stdout,
        indent=1,
    )
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
