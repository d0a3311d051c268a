"""Tests of the ONNX editor. Run with `python3 -m unittest discover -s models`."""

from __future__ import annotations

import struct
import unittest

import onnx_edit

RESHAPE_BYTES = struct.pack("<3q", 1, 7, -1)


def shaped(name: str, dims: list[onnx_edit.Dim]) -> bytes:
    """A ValueInfoProto of a float tensor."""
    put = onnx_edit.put_bytes
    tensor = onnx_edit.put_int(1, 1) + put(2, onnx_edit.tensor_shape(dims))
    return put(1, name.encode()) + put(2, put(1, tensor))


def tiny_yolox(reshapes: int = 3) -> bytes:
    """A model that has what the edit looks at and little else: two classes, three heads."""
    put, number = onnx_edit.put_bytes, onnx_edit.put_int
    graph = b""
    for head in range(reshapes):
        node = put(1, b"x%d" % head) + put(1, b"shape%d" % head) + put(4, b"Reshape")
        graph += put(onnx_edit.GRAPH_NODE, node)
        tensor = number(1, 3) + number(2, 7) + put(8, b"shape%d" % head) + put(9, RESHAPE_BYTES)
        graph += put(onnx_edit.GRAPH_INITIALIZER, tensor)
    # The same bytes in a constant that is no Reshape's must stay.
    other = number(1, 3) + number(2, 7) + put(8, b"other") + put(9, RESHAPE_BYTES)
    graph += put(onnx_edit.GRAPH_INITIALIZER, other)
    graph += put(onnx_edit.GRAPH_INPUT, shaped("images", [1, 3, 64, 64]))
    graph += put(onnx_edit.GRAPH_OUTPUT, shaped("output", [1, 84, 7]))
    graph += put(onnx_edit.GRAPH_VALUE_INFO, shaped("x0", [1, 7, 64]))
    entry = put(1, b"from") + put(2, b"elsewhere")
    return number(1, 6) + put(2, b"test") + put(7, graph) + put(14, entry)


class WireFormat(unittest.TestCase):
    """The protobuf editor."""

    def test_varints_of_every_length_come_back(self) -> None:
        """1 to 10 bytes."""
        for value in (0, 1, 127, 128, 300, 2**32, 2**63 - 1, 2**64 - 1):
            encoded = onnx_edit.varint(value)
            self.assertEqual(onnx_edit.read_varint(encoded, 0), (value, len(encoded)))

    def test_fields_that_are_not_edited_keep_their_bytes(self) -> None:
        """Also an unknown field of each wire type and a varint longer than it needs to be."""
        data = b"\x80\x01\x05" + b"\x89\x01" + bytes(8) + b"\x95\x01" + bytes(4) + b"\x08\x81\x00"
        self.assertEqual(onnx_edit.rewrite(data, {}), data)
        self.assertEqual([field.number for field in onnx_edit.fields(data)], [16, 17, 18, 1])

    def test_damaged_messages_are_refused(self) -> None:
        """Truncated length, varint, fixed field; group; field 0."""
        for data in (
            b"\x0a\x05ab",
            b"\x08\x80",
            b"\x09\x00",
            b"\x0b",
            b"\x02\x00",
            b"\x08" + b"\xff" * 11,
        ):
            with self.subTest(data=data), self.assertRaises(onnx_edit.OnnxError):
                list(onnx_edit.fields(data))

    def test_the_edit_opens_batch_and_size(self) -> None:
        """Declared shapes, Reshape constants, stale inner shapes; everything else as it was."""
        edited = onnx_edit.yolox_dynamic(tiny_yolox())
        self.assertEqual(
            onnx_edit.io_shapes(edited),
            ([["batch", 3, "height", "width"]], [["batch", "anchors", 7]]),
        )
        graph = onnx_edit.first(edited, onnx_edit.MODEL_GRAPH)
        assert graph is not None
        tensors = [f for f in onnx_edit.fields(graph.payload()) if f.number == 5]
        raws = [onnx_edit.first(t.payload(), onnx_edit.TENSOR_RAW) for t in tensors]
        firsts = [struct.unpack("<3q", raw.payload())[0] for raw in raws if raw]
        self.assertEqual(firsts, [0, 0, 0, 1])
        self.assertFalse(any(f.number == 13 for f in onnx_edit.fields(graph.payload())))
        self.assertEqual(onnx_edit.yolox_dynamic(edited), edited, "a second time changes nothing")

    def test_the_edit_refuses_another_network(self) -> None:
        """One head less, or no graph."""
        for model in (tiny_yolox(reshapes=2), b"\x08\x06"):
            with self.subTest(model=model[:4]), self.assertRaises(onnx_edit.OnnxError):
                onnx_edit.yolox_dynamic(model)

    def test_metadata_is_replaced_or_kept(self) -> None:
        """With `keep`, entries of other keys stay."""
        model = tiny_yolox()
        self.assertEqual(onnx_edit.metadata(model), {"from": "elsewhere"})
        alone = onnx_edit.with_metadata(model, {"names": "[]"}, keep=False)
        self.assertEqual(onnx_edit.metadata(alone), {"names": "[]"})
        both = onnx_edit.with_metadata(model, {"names": "é"}, keep=True)
        self.assertEqual(onnx_edit.metadata(both), {"from": "elsewhere", "names": "é"})
        replaced = onnx_edit.with_metadata(model, {"from": "here"}, keep=True)
        self.assertEqual(onnx_edit.metadata(replaced), {"from": "here"})

    def test_a_damaged_model_is_one_error(self) -> None:
        """Each byte changed in several ways and each length: never anything but OnnxError."""
        model = tiny_yolox()
        damaged = [model[:length] for length in range(len(model))]
        for at, byte in enumerate(model):
            for other in {0, byte ^ 1, byte ^ 8, byte ^ 0x80, 0xFF}:
                damaged.append(model[:at] + bytes([other]) + model[at + 1 :])
        refused = 0
        for data in damaged:
            try:
                onnx_edit.check_model(data)
                edited = onnx_edit.yolox_dynamic(data)
                onnx_edit.metadata(onnx_edit.with_metadata(edited, {"names": "[]"}, keep=True))
            except onnx_edit.OnnxError:
                refused += 1
        self.assertGreater(refused, len(damaged) // 2)

    def test_what_is_wrong_is_said(self) -> None:
        """A Reshape without a shape, a shape of a broken length, a name that is no text."""
        put = onnx_edit.put_bytes
        graph = onnx_edit.first(tiny_yolox(), onnx_edit.MODEL_GRAPH)
        assert graph is not None
        reshape = put(1, b"x") + put(4, b"Reshape")
        bare = put(onnx_edit.GRAPH_NODE, reshape)
        odd_node = put(onnx_edit.GRAPH_NODE, put(1, b"x") + put(1, b"\xff") + put(4, b"Reshape"))

        def shorten(tensor: bytes) -> bytes:
            return onnx_edit.rewrite(tensor, {onnx_edit.TENSOR_RAW: lambda _old: b"short"})

        short = onnx_edit.rewrite(graph.payload(), {onnx_edit.GRAPH_INITIALIZER: shorten})
        cases = [
            (graph.payload() + bare, "a Reshape without a shape"),
            (graph.payload() + odd_node, "is not text"),
            (short, "0 of 3 Reshape"),
        ]
        for changed, says in cases:
            model = onnx_edit.put_int(1, 6) + put(onnx_edit.MODEL_GRAPH, changed)
            with self.subTest(says=says), self.assertRaisesRegex(onnx_edit.OnnxError, says):
                onnx_edit.yolox_dynamic(model)


if __name__ == "__main__":
    unittest.main()
