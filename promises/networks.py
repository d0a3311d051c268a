"""Networks with something wrong, made from the tests' detectors by editing the file."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from env import FIXTURES, ROOT

sys.path.append(str(ROOT / "models"))

import onnx_edit as onnx

MODELS = FIXTURES / "models"

# The output of cells_v8: rows of x, y, width, height and the scores of three classes, a column per
# cell.
ROWS, ANCHORS = 7, 1024
SCORES = range(4, ROWS)

# Fields of NodeProto, TensorProto, and the operator sets of ModelProto (onnx.proto).
NODE_OUTPUT = 2
FLOAT = 1
MODEL_OPSETS, OPSET_VERSION = 8, 2

NAN, INFINITY = math.nan, math.inf

Bias = Callable[[int, int], float]


def with_bias(bias: Bias) -> bytes:
    """cells_v8 with `bias(row, cell)` added to its output, just before it leaves: 0 changes
    nothing."""
    values = [bias(row, anchor) for row in range(ROWS) for anchor in range(ANCHORS)]
    tensor = b"".join(onnx.put_int(onnx.TENSOR_DIMS, dim) for dim in (1, ROWS, ANCHORS))
    tensor += onnx.put_int(onnx.TENSOR_DATA_TYPE, FLOAT)
    tensor += onnx.put_bytes(onnx.TENSOR_NAME, b"bias")
    tensor += onnx.put_bytes(onnx.TENSOR_RAW, struct.pack(f"<{len(values)}f", *values))
    add = b"".join(
        onnx.put_bytes(number, text)
        for number, text in (
            (onnx.NODE_INPUT, b"cat"),
            (onnx.NODE_INPUT, b"bias"),
            (NODE_OUTPUT, b"output0"),
            (onnx.NODE_OP_TYPE, b"Add"),
        )
    )

    def node(old: bytes) -> bytes:
        # The last one only passes the output on.
        return add if onnx.text(old, onnx.NODE_OP_TYPE) == "Identity" else old

    def graph(old: bytes) -> bytes:
        return onnx.rewrite(old, {onnx.GRAPH_NODE: node}) + onnx.put_bytes(
            onnx.GRAPH_INITIALIZER, tensor
        )

    model: bytes = onnx.rewrite((MODELS / "cells_v8.onnx").read_bytes(), {onnx.MODEL_GRAPH: graph})
    return model


def with_opset(version: int) -> bytes:
    """cells_v8 that says to need another version of the operators."""
    opset = onnx.put_int(OPSET_VERSION, version)
    model = (MODELS / "cells_v8.onnx").read_bytes()
    return onnx.rewrite(model, {MODEL_OPSETS: lambda _old: opset})


def unusable(folder: Path) -> list[Path]:
    """Files that are no network, or none that can be run."""
    whole = (MODELS / "cells_v8.onnx").read_bytes()
    made = {
        "cells_opset99.onnx": with_opset(99),
        "empty.onnx": b"",
        "text.onnx": b"<html>404 Not Found</html>\n",
        "zeros.onnx": bytes(4096),
        "picture.onnx": (FIXTURES / "base_640x360.jpg").read_bytes(),
        "without_its_end.onnx": whole[:-100],
    }
    for name, data in made.items():
        (folder / name).write_bytes(data)
    return sorted([*MODELS.glob("corrupt_*.onnx"), *(folder / name for name in made)])
