"""Small edits of ONNX files on the protobuf wire format, with the standard library only.

An ONNX file is one protobuf message. The edits that the set-up makes touch a handful of its fields
and copy all others byte for byte, so the result is the same on every machine and can be pinned by
its hash; a full ONNX library would re-serialise everything in an order that its version chooses.

Field numbers are those of onnx.proto (IR version 3 and later):
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

# Wire types.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# Field numbers.
MODEL_IR_VERSION, MODEL_GRAPH, MODEL_METADATA = 1, 7, 14
GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT, GRAPH_VALUE_INFO = 1, 5, 11, 12, 13
NODE_INPUT, NODE_OP_TYPE = 1, 4
TENSOR_DIMS, TENSOR_DATA_TYPE, TENSOR_INT64, TENSOR_NAME, TENSOR_RAW = 1, 2, 7, 8, 9
VALUE_NAME, VALUE_TYPE = 1, 2
TYPE_TENSOR, TENSOR_TYPE_SHAPE, SHAPE_DIM, DIM_VALUE, DIM_PARAM = 1, 2, 1, 1, 2
ENTRY_KEY, ENTRY_VALUE = 1, 2

INT64 = 7  # TensorProto.DataType

RESHAPE = struct.Struct("<3q")  # a Reshape's shape of three dimensions, as raw_data holds it

Dim = int | str


class OnnxError(ValueError):
    """The bytes are not what the edit expects."""


class Field(NamedTuple):
    """One field of a message: number, wire type, value, and its bytes with the tag."""

    number: int
    wire: int
    value: int | bytes
    raw: bytes

    def payload(self) -> bytes:
        """Content of a length-delimited field."""
        if not isinstance(self.value, bytes):
            raise OnnxError(f"field {self.number} has wire type {self.wire}, expected {BYTES}")
        return self.value


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Value of the varint at `at` and the position after it."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise OnnxError("truncated or over-long varint")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def varint(value: int) -> bytes:
    """Encoding of a non-negative integer."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data: bytes) -> Iterator[Field]:
    """The fields of a message in file order."""
    at = 0
    while at < len(data):
        start = at
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: int | bytes
        if wire == VARINT:
            value, at = read_varint(data, at)
        elif wire == BYTES:
            size, at = read_varint(data, at)
            value, at = data[at : at + size], at + size
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
            value, at = data[at : at + size], at + size
        else:
            raise OnnxError(f"wire type {wire} at byte {start}")
        if number == 0 or at > len(data):
            raise OnnxError(f"truncated or damaged field at byte {start}")
        yield Field(number, wire, value, data[start:at])


def put_bytes(number: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | BYTES) + varint(len(payload)) + payload


def put_int(number: int, value: int) -> bytes:
    """A varint field."""
    return varint(number << 3 | VARINT) + varint(value)


def rewrite(data: bytes, edits: Mapping[int, Callable[[bytes], bytes | None]]) -> bytes:
    """The message with an edit applied to the content of each field named; None drops the field.

    Fields that are not named keep their bytes and their order.
    """
    out = []
    for field in fields(data):
        edit = edits.get(field.number)
        if edit is None:
            out.append(field.raw)
            continue
        payload = edit(field.payload())
        if payload is not None:
            out.append(field.raw if payload == field.value else put_bytes(field.number, payload))
    return b"".join(out)


def first(data: bytes, number: int) -> Field | None:
    """The first field of that number."""
    return next((field for field in fields(data) if field.number == number), None)


def text(data: bytes, number: int) -> str:
    """A string field, empty when absent."""
    field = first(data, number)
    return decoded(field) if field else ""


def decoded(field: Field) -> str:
    """Content of a string field."""
    try:
        return field.payload().decode()
    except UnicodeDecodeError as error:
        raise OnnxError(f"field {field.number} is not text: {field.payload()[:20]!r}") from error


def check_model(model: bytes) -> None:
    """Raises OnnxError unless the bytes read as an ONNX model with a graph."""
    try:
        numbers = {field.number for field in fields(model)}
    except OnnxError as error:
        raise OnnxError(f"not an ONNX model ({error})") from error
    if not {MODEL_IR_VERSION, MODEL_GRAPH} <= numbers:
        raise OnnxError("not an ONNX model (no graph in it)")


def metadata(model: bytes) -> dict[str, str]:
    """The model's metadata_props."""
    entries = (field.payload() for field in fields(model) if field.number == MODEL_METADATA)
    return {text(entry, ENTRY_KEY): text(entry, ENTRY_VALUE) for entry in entries}


def with_metadata(model: bytes, entries: dict[str, str], *, keep: bool) -> bytes:
    """The model with these metadata_props; `keep` keeps the others that it had."""

    def old(entry: bytes) -> bytes | None:
        return entry if keep and text(entry, ENTRY_KEY) not in entries else None

    added = (
        put_bytes(ENTRY_KEY, key.encode()) + put_bytes(ENTRY_VALUE, value.encode())
        for key, value in entries.items()
    )
    return rewrite(model, {MODEL_METADATA: old}) + b"".join(
        put_bytes(MODEL_METADATA, entry) for entry in added
    )


def tensor_shape(dims: Iterable[Dim]) -> bytes:
    """A TensorShapeProto; a name stands for a dimension that is known at run time only."""
    return b"".join(
        put_bytes(
            SHAPE_DIM,
            put_bytes(DIM_PARAM, dim.encode()) if isinstance(dim, str) else put_int(DIM_VALUE, dim),
        )
        for dim in dims
    )


def declared_shape(value_info: bytes) -> list[Dim]:
    """Dimensions of a ValueInfoProto of tensor type."""
    data = value_info
    for number in (VALUE_TYPE, TYPE_TENSOR, TENSOR_TYPE_SHAPE):
        field = first(data, number)
        if field is None:
            return []
        data = field.payload()
    dims: list[Dim] = []
    for field in fields(data):
        if field.number == SHAPE_DIM:
            known = first(field.payload(), DIM_VALUE)
            dims.append(
                int(known.value)
                if known and known.wire == VARINT
                else text(field.payload(), DIM_PARAM)
            )
    return dims


def io_shapes(model: bytes) -> tuple[list[list[Dim]], list[list[Dim]]]:
    """Declared shapes of the graph's inputs and outputs."""
    graph = first(model, MODEL_GRAPH)
    if graph is None:
        raise OnnxError("not an ONNX model (no graph in it)")
    found: dict[int, list[list[Dim]]] = {GRAPH_INPUT: [], GRAPH_OUTPUT: []}
    for field in fields(graph.payload()):
        if field.number in found:
            found[field.number].append(declared_shape(field.payload()))
    return found[GRAPH_INPUT], found[GRAPH_OUTPUT]


def _with_shape(dims: Iterable[Dim]) -> Callable[[bytes], bytes]:
    """An edit of ValueInfoProto that replaces its tensor's shape."""
    shape = tensor_shape(dims)
    tensor = {TENSOR_TYPE_SHAPE: lambda _old: shape}
    of_type = {TYPE_TENSOR: lambda data: rewrite(data, tensor)}
    return lambda value_info: rewrite(value_info, {VALUE_TYPE: lambda data: rewrite(data, of_type)})


def yolox_dynamic(model: bytes) -> bytes:
    """A stock YOLOX export with batch, height and width left open.

    The exporter froze the batch into three Reshape constants [1, 4 + 1 + classes, -1] and the sizes
    into the declared shapes. A 0 in a Reshape means "as in the input", so [0, C, -1] takes every
    batch; the last entry was open already. The graph has no other constant that depends on the size
    of its input: its Resize nodes scale by 2 and its Slices step by 2.

    Sizes have to be multiples of 32, the largest stride; the graph does not say so.
    """
    graph_field = first(model, MODEL_GRAPH)
    if graph_field is None:
        raise OnnxError("not an ONNX model (no graph in it)")
    graph = graph_field.payload()
    inputs, outputs = io_shapes(model)
    if [len(shape) for shape in inputs] != [4] or [len(shape) for shape in outputs] != [3]:
        raise OnnxError(f"not a stock YOLOX: inputs {inputs}, outputs {outputs}")
    channels, values = inputs[0][1], outputs[0][2]

    shape_constants = set()
    for field in fields(graph):
        if field.number == GRAPH_NODE and text(field.payload(), NODE_OP_TYPE) == "Reshape":
            inputs_of = [f for f in fields(field.payload()) if f.number == NODE_INPUT]
            if len(inputs_of) < 2:
                raise OnnxError("not a stock YOLOX: a Reshape without a shape")
            shape_constants.add(decoded(inputs_of[1]))
    opened: list[str] = []

    def open_batch(tensor: bytes) -> bytes:
        if text(tensor, TENSOR_NAME) not in shape_constants:
            return tensor
        raw = first(tensor, TENSOR_RAW)
        kind = first(tensor, TENSOR_DATA_TYPE)
        if raw is None or kind is None or kind.value != INT64:
            return tensor
        if len(raw.payload()) != RESHAPE.size:
            return tensor
        shape = RESHAPE.unpack(raw.payload())
        if shape not in ((1, values, -1), (0, values, -1)):
            return tensor
        opened.append(text(tensor, TENSOR_NAME))
        return rewrite(tensor, {TENSOR_RAW: lambda _old: RESHAPE.pack(0, *shape[1:])})

    edited = rewrite(
        graph,
        {
            GRAPH_INITIALIZER: open_batch,
            GRAPH_INPUT: _with_shape(["batch", channels, "height", "width"]),
            GRAPH_OUTPUT: _with_shape(["batch", "anchors", values]),
            # Shapes of inner tensors were inferred for the old sizes and would contradict the new.
            GRAPH_VALUE_INFO: lambda _old: None,
        },
    )
    if len(opened) != 3 or len(shape_constants) != 3:
        raise OnnxError(
            f"not a stock YOLOX: {len(opened)} of {len(shape_constants)} Reshape constants are "
            f"[1, {values}, -1], expected 3 of 3"
        )
    return rewrite(model, {MODEL_GRAPH: lambda _old: edited})


# Edits that a manifest entry may ask for by name.
EDITS: dict[str, Callable[[bytes], bytes]] = {"yolox-dynamic": yolox_dynamic}
