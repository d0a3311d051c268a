#!/usr/bin/env python3
"""Writes the inputs that fuzzing begins with, out of the project's own test files.

Fills fuzz/corpus/TARGET with files named seed-*; the same on every machine. What fuzzing has found
and kept there stays. fuzz/run.py runs this.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    print("error: Python 3.11 or later is needed to write the seeds", file=sys.stderr)
    sys.exit(2)

import argparse
import itertools
import random
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
FIXTURES = ROOT / "server" / "tests" / "fixtures"
sys.path.insert(0, str(ROOT / "models"))

import onnx_edit  # noqa: E402
import pictures  # noqa: E402

CORPUS = HERE / "corpus"

# Largest seed in bytes. Short inputs are tried more often, and each target cuts longer ones.
MAX_BYTES = 16 << 10

# Sizes that JPEGs are cut to: even, odd, and large enough to be decoded at an eighth.
SMALL, ODD, WIDE = (64, 48), (61, 35), (512, 100)

Seeds = Iterator[tuple[str, bytes]]


def noise(name: str, size: int) -> bytes:
    """Bytes that are the same on every machine."""
    return random.Random(name).randbytes(size)


def fixtures() -> Iterator[tuple[str, bytes]]:
    """The server's test pictures and what is none."""
    for path in sorted(FIXTURES.iterdir()):
        if path.is_file():
            yield path.name, path.read_bytes()


def kept(target: str) -> Seeds:
    """Inputs that fuzzing found earlier and that the server's tests run."""
    for path in sorted((FIXTURES / "fuzz").glob(f"{target}-*")):
        yield f"kept-{path.name}", path.read_bytes()


def decode() -> Seeds:
    """Frames: the test files, and small pictures of every kind."""
    for name, data in fixtures():
        if len(data) <= MAX_BYTES:
            yield name, data
        if data.startswith(b"\xff\xd8"):
            for size in SMALL, ODD, WIDE:
                small = pictures.shrink_jpeg(data, size)
                if small and len(small) <= MAX_BYTES:
                    yield f"{size[0]}x{size[1]}-{name}", small
        if data.startswith(b"RIFF"):
            yield f"small-{name}", pictures.shrink_webp(data, SMALL)
    base = pictures.shrink_jpeg((FIXTURES / "base_640x360.jpg").read_bytes(), ODD)
    for turn in range(1, 9):
        yield f"turned-{turn}.jpg", pictures.with_exif(base, turn)
    yield "no-end.jpg", base[:-2]
    yield "two.jpg", base + base
    yield from pictures.pngs()
    yield from pictures.bmps()
    yield from pictures.webps()


# The raw formats in the order of PixelFormat, less ENCODED: name and bytes of a tight row.
RAW: tuple[tuple[str, Callable[[int], int]], ...] = (
    ("rgb24", lambda width: 3 * width),
    ("bgr24", lambda width: 3 * width),
    ("gray8", lambda width: width),
    ("nv12", lambda width: width + width % 2),
    ("i420", lambda width: width),
    ("yuyv", lambda width: 2 * (width + width % 2)),
)


def raw_bytes(name: str, stride: int, height: int) -> int:
    """Bytes of a frame with all rows padded."""
    chroma_rows = (height + 1) // 2
    chroma = {"nv12": stride, "i420": 2 * ((stride + 1) // 2)}.get(name, 0)
    return stride * height + chroma * chroma_rows


def crop(data: bytes, stride: int, rows: int, keep: tuple[int, int]) -> bytes:
    """The first bytes of the first rows."""
    return b"".join(data[y * stride :][: keep[0]] for y in range(min(rows, keep[1])))


def raw_frames() -> Iterator[tuple[str, tuple[int, int, int, int], bytes]]:
    """Name, then format, width, height and stride, then bytes."""
    for number, (name, tight) in enumerate(RAW):
        for width, height, pad in ((32, 18, 0), (33, 17, 0), (33, 17, 7), (1, 1, 0), (300, 2, 1)):
            stride = tight(width) + pad
            data = noise(name, raw_bytes(name, stride, height))
            spec = (number, width, height, stride if pad else 0)
            yield f"{name}-{width}x{height}-{pad}", spec, data
        yield f"{name}-none", (number, 0, 0, 0), b"x"
        yield f"{name}-huge", (number, 2**32 - 1, 2**32 - 1, 2**32 - 1), b"x"
    nv12 = (FIXTURES / "nv12_640x360.raw").read_bytes()
    luma, chroma = nv12[: 640 * 360], nv12[640 * 360 :]
    data = crop(luma, 640, 360, (96, 32)) + crop(chroma, 640, 180, (96, 16))
    yield "nv12-scene", (3, 96, 32, 0), data
    yuyv = (FIXTURES / "yuyv_640x360.raw").read_bytes()
    yield "yuyv-scene", (5, 96, 32, 0), crop(yuyv, 1280, 360, (192, 32))


def raw() -> Seeds:
    """As `check_raw` in src/checks/picture.rs reads them."""
    for name, (number, width, height, stride), data in raw_frames():
        yield name, struct.pack("<BIII", number, width, height, stride) + data


def request() -> Seeds:
    """DetectRequest messages (proto/camera_ai.proto)."""
    put_int, put_bytes = onnx_edit.put_int, onnx_edit.put_bytes
    for name, data in decode():
        if len(data) < 2000:
            yield name, put_int(1, 7) + put_bytes(2, data)
    for name, spec, data in raw_frames():
        fields = b"".join(put_int(3 + i, value) for i, value in enumerate((spec[0] + 1, *spec[1:])))
        yield name, put_int(1, 2**64 - 1) + put_bytes(2, data[:2000]) + fields
    picture = put_bytes(2, pictures.png(1, 1, 0, 8))
    yield "all-fields", put_int(1, 1) + picture + put_int(7, 1_700_000_000_000_000) + put_int(8, 50)
    yield "negative-time", picture + put_int(7, 2**64 - 5)
    yield "format-77", picture + put_int(3, 77)
    yield "format-negative", picture + put_int(3, 2**64 - 1)
    yield "twice", put_int(1, 1) + picture + put_int(1, 2) + picture
    yield "unknown-fields", put_int(100, 5) + picture + put_bytes(101, b"later") + b"\x9d\x06abcd"
    yield "cut", (put_int(1, 1) + picture)[:-3]
    yield "camera-id", b"cam-01.front_door"


def model() -> Seeds:
    """As `check` in src/checks/model.rs reads them: labels, dimensions, outputs."""
    texts = {}
    for path in sorted((FIXTURES / "models").glob("cells_*.onnx")):
        texts[path.stem] = onnx_edit.metadata(path.read_bytes()).get("names", "")
    texts["coco"] = (ROOT / "models" / "coco80.txt").read_text(encoding="utf-8")
    texts["quotes"] = """{0: "driver's seat", 1: 'it\\'s', 2: 'a, b: c'}"""
    texts["object"] = '{"0": "caf\\u00e9", "1": ""}'
    texts["mark"] = "\ufeffred\r\ngreen \n\n"
    for name, text in texts.items():
        for classes in (2, 3, 80):
            yield f"labels-{classes}-{name}", struct.pack("<BH", 0, classes) + text.encode()
    shapes = {
        "yolox": ((416, 416), (1, 3549, 85)),
        "yolox-rect": ((416, 256), (1, 2184, 85)),
        "yolov8": ((640, 640), (1, 84, 8400)),
        "classifier": ((224, 224), (1, 1000)),
        "absurd": ((2**32 - 1, 2**32 - 1), (-1, 2**62, 2**62)),
        "zero": ((0, 0), (1, 0, 0)),
    }
    for name, (size, dims) in shapes.items():
        numbers = struct.pack(f"<BIIB{len(dims)}q", 1, *size, len(dims), *dims)
        yield f"dims-{name}", numbers
    for name, values in output_values().items():
        data = struct.pack(f"<{len(values)}f", *values)
        for family in (0, 1):
            for classes, anchors in ((2, 300), (80, 40)):
                # 32x64 pixels of input, a picture of 640x360, scores from 0.25, IoU 0.45.
                head = struct.pack("<BBBBHHBH", 2, family, 0, 1, 640, 360, classes, anchors)
                options = struct.pack("<HHBB", 0x4000, 0x7333, family, 100)
                yield f"output-{family}-{classes}-{name}", head + options + data


def output_values() -> dict[str, list[float]]:
    """Values of outputs: plausible ones, and what breaks arithmetic."""
    inf, nan = float("inf"), float("nan")
    source = random.Random("output")
    return {
        "scores": [source.random() for _ in range(150)],
        "pixels": [source.uniform(-50, 100) for _ in range(150)],
        "one": [1.0],
        "nan": [nan, 0.5, 0.9],
        "inf": [inf, 0.9, -inf, 0.8, 1.0],
        "huge": [3.4e38, -3.4e38, 1.0, 0.9, 88.0, 89.0],
        "tiny": [1e-45, -0.0, 0.9],
    }


FIELD = re.compile(
    r"((?:^    ///.*\n)+)(?:^    #.*\n(?:^ {10}.*\n)*)+^    pub (\w+): Option<", re.MULTILINE
)
# A default that is a value and not a sentence.
DEFAULT = re.compile(r"\[default: ([^\s\]]+)\]")
PLAIN = re.compile(r"\d+(\.\d+)?|true|false")


def config() -> Seeds:
    """Settings files: each key alone, all of them, and odd TOML."""
    source = (ROOT / "server" / "src" / "settings.rs").read_text(encoding="utf-8")
    defaults = {
        key: DEFAULT.search(" ".join(docs.replace("///", "").split()))
        for docs, key in FIELD.findall(source)
    }
    if len(defaults) < 20:
        raise ValueError(f"server/src/settings.rs shows {len(defaults)} settings only")
    everything = ""
    for key, default in defaults.items():
        value = default[1] if default else "x"
        line = f"{key} = {value if PLAIN.fullmatch(value) else repr(value)}\n"
        everything += line if default else ""
        yield f"key-{key}", line.encode()
    yield "all", everything.encode()
    odd = {
        "input-size": 'input_size = "416x256"\nmax_pixels = "1920x1080"\nlayout = "yolox"\n',
        "number-as-text": "input_size = 320\nspin_ms = 1e3\nworkers = 0x10\n",
        "out-of-range": "confidence = nan\niou = -inf\nworkers = -1\nbatch = 9223372036854775807\n",
        "tables": "[workers]\na = [1, 2, {b = 3}]\n[[batch]]\n",
        "dotted": "a.b.c = 1\n'quoted key' = '''\ntext'''\n",
        "dates": "addr = 1979-05-27T07:32:00Z\nmodel = 07:32:00\n",
        "strings": 'log_level = "info,vedette_server=debug"\nmodel = "\\u00e9\\n\\t"\n',
        "unknown": "wrokers = 3\n",
        "broken": "workers = \n",
        "unfinished": 'model = "x',
    }
    for name, text in odd.items():
        yield name, text.encode()


TARGETS: dict[str, Callable[[], Seeds]] = {
    "config": config,
    "decode": decode,
    "model": model,
    "raw": raw,
    "request": request,
}


def write(corpus: Path, targets: list[str]) -> dict[str, int]:
    """Writes the seeds and returns how many there are per target."""
    counts = {}
    for target in targets:
        folder = corpus / target
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("seed-*"):
            old.unlink()
        counts[target] = 0
        for name, data in itertools.chain(TARGETS[target](), kept(target)):
            if len(data) <= MAX_BYTES:
                (folder / f"seed-{name}").write_bytes(data)
                counts[target] += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    names = parser.parse_args().targets or list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"no target {unknown[0]}; there are {', '.join(TARGETS)}")
    for target, count in write(CORPUS, names).items():
        print(f"{target}: {count} seeds")


if __name__ == "__main__":
    main()
