"""The tests' pictures: how each is sent, and what is right for it.

They show a red, a green and a blue square on gray, which the tiny detectors beside them report, so
that boxes and labels are known exactly.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from client import Answer
from env import FIXTURES, Env, picture
from promise import CannotRun

Box = tuple[int, int, int, int]
Squares = Mapping[str, Box]

SQUARES: Squares = {
    "red": (80, 20, 20, 20),
    "green": (300, 180, 20, 20),
    "blue": (520, 320, 20, 20),
}
SQUARES_1080P: Squares = {
    "red": (240, 60, 60, 60),
    "green": (900, 540, 60, 60),
    "blue": (1560, 960, 60, 60),
}
NOTHING: Squares = {}

# How far an edge of a box may be off, in pixels, and the least score of a square that is there.
TOLERANCE = 3
SURE = 0.9

# What the detectors find, where that is not the three squares.
FOUND: dict[str, Squares] = {
    "scene_1080p.jpg": SQUARES_1080P,
    "half_gray_lost.jpg": {"red": SQUARES["red"]},
    **dict.fromkeys(
        (
            "gray_baseline.jpg", "gray_progressive.jpg", "gray_uniform_128.jpg", "png_la.png",
            "png16_gray.png", "png_1bit.png",
        ),
        NOTHING,
    ),
}  # fmt: skip

# Another scene: answered OK, whatever is found.
OTHER_SCENE = ("still.bmp", "still.webp")

# A few bytes that claim millions of pixels.
BOMBS = (
    "bomb_65500.jpg", "bomb_16000.jpg", "bomb_8192.jpg", "bomb_png_30000x3000.png",
    "bomb_png_hdr_100000.png",
)  # fmt: skip

# What is not a whole picture, and the reason that the answer must begin with.
REFUSED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(BOMBS, ("TOO_MANY_PIXELS",)),
    "truncated_50.jpg": ("TRUNCATED",),
    "truncated_header.jpg": ("TRUNCATED",),
    "soi_only.jpg": ("TRUNCATED",),
    "empty.bin": ("EMPTY",),
    "one_byte.bin": ("UNRECOGNISED",),
    "random_4k.bin": ("UNRECOGNISED",),
    "html_401.bin": ("UNRECOGNISED",),
    "h264_nal.bin": ("UNSUPPORTED",),
}

# Size of the raw frames of the scene, in pixels.
WIDTH, HEIGHT = 640, 360

# Noise at 3840x2160 in JPEG quality 75: the largest frame of that size that a camera could send.
NOISE_SIZE = (3840, 2160)


@dataclass(frozen=True)
class Case:
    """One frame. `fields` are those of the request besides the picture; `reasons` those of a
    refusal, else `squares` is what must be found, None for whatever it is."""

    name: str
    data: bytes
    fields: dict[str, Any] = field(default_factory=dict)
    squares: Squares | None = None
    reasons: tuple[str, ...] = ()

    def wrong(self, answer: Answer) -> str:
        """What is wrong with the answer; empty when nothing is."""
        if self.reasons:
            reason = answer.detail.partition(":")[0]
            told = answer.outcome in ("BAD_IMAGE", "UNSUPPORTED") and reason in self.reasons
            return "" if told and not answer.objects else f"{answer.outcome} {answer.detail}"
        if answer.outcome != "OK" or answer.width == 0:
            return f"{answer.outcome} {answer.detail}"
        return "" if self.squares is None else missing(answer, self.squares)


def missing(answer: Answer, squares: Squares = SQUARES) -> str:
    """Says how an answer differs from these squares and no others; empty when it does not."""

    def near(got: Box, want: Box) -> bool:
        return all(abs(g - w) <= TOLERANCE for g, w in zip(got, want, strict=True))

    found = [(label, box) for label, score, box in answer.objects if SURE <= score <= 1]
    right = len(found) == len(answer.objects) == len(squares) and all(
        any(label == name and near(box, want) for name, box in found)
        for label, want in squares.items()
    )
    return "" if right else f"{answer.outcome} {answer.objects} {answer.detail}"


def cells(model: str | Path = "cells_v8.onnx", workers: int = 2) -> tuple[str, ...]:
    """Flags for a server with one of the tiny detectors, and patience with a busy machine."""
    path, threads = str(FIXTURES / "models" / model), str(workers)
    return ("--model", path, "--confidence", "0.5", "--budget-ms", "60000", "--workers", threads)


def files() -> list[Path]:
    """Every picture file of the tests; raw frames are sent another way."""
    found = sorted(p for p in FIXTURES.iterdir() if p.is_file() and p.suffix != ".raw")
    if len(found) < 40:
        raise CannotRun(f"only {len(found)} pictures in {FIXTURES}")
    return found


def of_file(path: Path) -> Case:
    """A file as it is."""
    name = path.name
    squares = None if name in OTHER_SCENE else FOUND.get(name, SQUARES)
    return Case(name, path.read_bytes(), squares=squares, reasons=REFUSED.get(name, ()))


def padded(data: bytes, row: int, stride: int) -> bytes:
    """Rows of `row` bytes, `stride` bytes apart."""
    lines = (data[at : at + row] for at in range(0, len(data), row))
    return b"".join(line.ljust(stride, b"\x55") for line in lines)


def raw_frames() -> Iterator[Case]:
    """Raw frames: tight, padded, of odd size, too short, too long, of an impossible size."""
    size = {"width": WIDTH, "height": HEIGHT}
    nv12, yuyv = picture("nv12_640x360.raw"), picture("yuyv_640x360.raw")
    odd = {"width": 639, "height": 359, "format": "NV12"}
    as_nv12 = {"format": "NV12", **size}
    as_yuyv = {"format": "YUYV", **size}
    yield Case("nv12", nv12, as_nv12, SQUARES)
    yield Case("nv12 padded", padded(nv12, 640, 704), {**as_nv12, "stride": 704}, SQUARES)
    yield Case("nv12 odd", picture("nv12_639x359_evenpad.raw"), odd, SQUARES)
    yield Case("yuyv", yuyv, as_yuyv, SQUARES)
    yield Case("yuyv padded", padded(yuyv, 1280, 1536), {**as_yuyv, "stride": 1536}, SQUARES)
    geometry = ("RAW_GEOMETRY",)
    yield Case("nv12 short", nv12[:-1], as_nv12, reasons=geometry)
    yield Case("nv12 long", nv12 + bytes(8192), as_nv12, reasons=geometry)
    yield Case("nv12 stride", nv12, {**as_nv12, "stride": 600}, reasons=geometry)
    yield Case("nv12 no size", nv12, {"format": "NV12"}, reasons=geometry)
    huge = {"format": "NV12", "width": 2**32 - 1, "height": 2**32 - 1}
    yield Case("nv12 huge", nv12, huge, reasons=("TOO_MANY_PIXELS",))
    yield Case("format 77", nv12, {"format": 77, **size}, reasons=("UNSUPPORTED",))


def refusable() -> list[Case]:
    """Bombs, files that are no whole picture, and halves of pictures of every kind."""
    cases = [case for path in files() if (case := of_file(path)).reasons]
    for name in ("cmyk_adobe.jpg", "png_rgba.png", "png16_rgb.png", "still.bmp", "scene_1080p.jpg"):
        data = picture(name)
        cases.append(Case(f"half of {name}", data[: len(data) // 2], reasons=("TRUNCATED",)))
    return cases


def damaged(seed: int, count: int) -> Iterator[Case]:
    """Pictures with bytes changed, cut out or doubled at random; what each is worth is not known."""
    draw = random.Random(seed)
    sources = [path for path in files() if path.stat().st_size > 100]
    for number in range(count):
        path = draw.choice(sources)
        data = bytearray(path.read_bytes())
        for _ in range(draw.randint(1, 8)):
            at = draw.randrange(len(data))
            match draw.randrange(4):
                case 0:
                    data[at] = draw.randrange(256)
                case 1:
                    del data[at : at + draw.randint(1, 64)]
                case 2:
                    data[at:at] = data[at : at + draw.randint(1, 64)]
                case _:
                    del data[max(at, 20) :]
        yield Case(f"{path.name} damaged, seed {seed}, number {number}", bytes(data))


def noise_4k(env: Env) -> Path:
    """A folder with one JPEG of noise, made with cjpeg: about 5 MB."""
    folder = env.work / "noise"
    folder.mkdir(exist_ok=True)
    width, height = NOISE_SIZE
    ppm = env.work / "noise.ppm"
    pixels = random.Random(1).randbytes(3 * width * height)
    ppm.write_bytes(f"P6\n{width} {height}\n255\n".encode() + pixels)
    target = folder / "noise_4k.jpg"
    done = env.run(["cjpeg", "-quality", "75", "-outfile", target, ppm])
    ppm.unlink()
    if done.returncode != 0:
        raise CannotRun(f"cjpeg: {done.stderr.strip()}")
    return folder
