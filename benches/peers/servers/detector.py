"""A YOLOX network behind OpenCV and ONNX Runtime: picture file in, objects out.

One thread per call: the servers run as many calls at once as there are cores.
"""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from peer import Found

SIZE = 416
STRIDES = (8, 16, 32)
PAD_VALUE = 114
# As the server that it is compared with has by default.
CONFIDENCE = 0.25
IOU = 0.45
MAX_DETECTIONS = 300

Floats = NDArray[np.float32]


def anchors() -> tuple[Floats, Floats]:
    """Column and row of each anchor's cell, and its stride; by stride, row, column."""
    cells, strides = [], []
    for stride in STRIDES:
        side = SIZE // stride
        rows, columns = np.mgrid[:side, :side]
        cells.append(np.stack([columns, rows], axis=-1).reshape(-1, 2))
        strides.append(np.full((side * side, 1), stride))
    return np.concatenate(cells).astype(np.float32), np.concatenate(strides).astype(np.float32)


def suppress(boxes: Floats, scores: Floats, classes: NDArray[np.int64]) -> list[int]:
    """Indices of the boxes that are kept, strongest first; boxes are corners."""
    order = np.argsort(-scores, kind="stable")
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    kept = []
    while order.size and len(kept) < MAX_DETECTIONS:
        best, order = order[0], order[1:]
        kept.append(int(best))
        low = np.maximum(boxes[best, :2], boxes[order, :2])
        high = np.minimum(boxes[best, 2:], boxes[order, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=1)
        iou = shared / np.maximum(areas[best] + areas[order] - shared, 1e-9)
        order = order[(iou <= IOU) | (classes[order] != classes[best])]
    return kept


class Detector:
    """The network and what it needs around it. May be called by several threads at once."""

    def __init__(self, model: Path) -> None:
        cv2.setNumThreads(1)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.input = self.session.get_inputs()[0].name
        self.labels = json.loads(self.session.get_modelmeta().custom_metadata_map["names"])
        self.cells, self.strides = anchors()
        # The first run of a session allocates; no camera should wait for that.
        self.run(np.zeros((SIZE, SIZE, 3), np.uint8))

    def detect(self, image: bytes) -> list[Found]:
        """What is on a JPEG or PNG, in its pixels."""
        picture = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR)
        if picture is None:
            return []
        height, width = picture.shape[:2]
        scale = min(SIZE / width, SIZE / height)
        inner = max(1, round(width * scale)), max(1, round(height * scale))
        canvas = np.full((SIZE, SIZE, 3), PAD_VALUE, np.uint8)
        canvas[: inner[1], : inner[0]] = cv2.resize(picture, inner, interpolation=cv2.INTER_LINEAR)
        corners, scores, classes = self.run(canvas)
        kept = suppress(corners, scores, classes)
        pixels = np.clip(corners[kept] / scale, 0, [width, height] * 2).round().astype(int)
        return [
            (self.labels[classes[index]], float(scores[index]), x1, y1, x2 - x1, y2 - y1)
            for index, (x1, y1, x2, y2) in zip(kept, pixels.tolist(), strict=True)
        ]

    def run(self, canvas: NDArray[np.uint8]) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """Corners, score and class of the anchors that pass, in pixels of the input."""
        tensor = cv2.dnn.blobFromImage(canvas)
        output = self.session.run(None, {self.input: tensor})[0][0]
        # Most anchors fall by their objectness alone: a class score is at most 1.
        likely = np.flatnonzero(output[:, 4] >= CONFIDENCE)
        rows = output[likely]
        classes = rows[:, 5:].argmax(axis=1)
        scores = rows[:, 4] * rows[np.arange(len(rows)), 5 + classes]
        sure = scores >= CONFIDENCE
        at, rows = likely[sure], rows[sure]
        centres = (rows[:, :2] + self.cells[at]) * self.strides[at]
        halves = np.exp(rows[:, 2:4]) * self.strides[at] / 2
        return np.hstack([centres - halves, centres + halves]), scores[sure], classes[sure]
