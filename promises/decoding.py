"""Promises 15 and 16: what decoding costs, and what it yields."""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path

import pictures
from client import Camera
from env import Env, picture
from pictures import Case
from process import Meter
from promise import CannotRun, Finding, promise
from server import Server

# The most that a frame may cost that is not decoded in the end.
REFUSAL_MS = 20.0
REFUSAL_MIB = 64.0
TOGETHER = 20
TRIES = 5


def settled_ms(meter: Meter) -> float:
    """Processor time once what follows an answer (freeing, counting) is done, in milliseconds."""
    time.sleep(0.02)
    return meter.cpu_ms()


def cost_alone(server: Server, camera: Camera, case: Case) -> tuple[float, float, str]:
    """Highest processor time in ms and growth of memory in MiB of some tries, and what was wrong."""
    worst_ms = worst_mib = 0.0
    for _ in range(TRIES):
        meter = Meter(server.pid)
        answer = camera.exchange(1, case.data)
        worst_ms = max(worst_ms, settled_ms(meter))
        worst_mib = max(worst_mib, meter.growth_mib())
        wrong = case.wrong(answer) or pictures.missing(camera.exchange(2, picture()))
        if wrong:
            return worst_ms, worst_mib, f"{case.name}: {wrong}"
    return worst_ms, worst_mib, ""


def cost_together(server: Server, cameras: list[Camera], case: Case) -> tuple[float, float]:
    """Processor time per frame in ms and growth of memory of all in MiB, when all send at once."""
    meter = Meter(server.pid)
    for camera in cameras:
        camera.send(1, case.data)
    for camera in cameras:
        camera.next()
    return settled_ms(meter) / len(cameras), meter.growth_mib()


@promise(
    15,
    "the cost of a frame is bounded before anything is allocated for it",
    mark="each < 20 ms of CPU and < 64 MiB; 20 at once: each < 20 ms, together < 64 MiB",
)
def decode_cost(env: Env) -> Finding:
    """Files of a few hundred bytes that claim millions of pixels, files that are no picture, and
    pictures cut in half are sent to a server that is warm. Processor time is read from the server's
    own clock in nanoseconds and memory from its high-water mark, which is set back before each; the
    highest of five tries counts. Then 20 streams send the same file at the same instant. In
    between, the next picture of the stream is answered with its squares.
    """
    cases = pictures.refusable()
    alone_ms: dict[str, float] = {}
    alone_mib: dict[str, float] = {}
    together_ms: dict[str, float] = {}
    together_mib: dict[str, float] = {}
    wrong = []
    with Server(env, *pictures.cells()) as server:
        cameras = [Camera(server.addr, f"camera-{number}") for number in range(TOGETHER)]
        for camera in cameras:
            camera.exchange(0, picture("scene_1080p.jpg"))
        for case in cases:
            name = case.name
            alone_ms[name], alone_mib[name], fault = cost_alone(server, cameras[0], case)
            together_ms[name], together_mib[name] = cost_together(server, cameras, case)
            wrong += [fault] if fault else []
        for camera in cameras:
            wrong += [f for f in [pictures.missing(camera.exchange(2, picture()))] if f]
            camera.close()
    bombs_ms = max(alone_ms[name] for name in pictures.BOMBS)
    figure = (
        f"{len(cases)} files: at most {max(alone_ms.values()):.1f} ms and "
        f"{max(alone_mib.values()):.1f} MiB (bombs {bombs_ms:.1f} ms); {TOGETHER} at once "
        f"{max(together_ms.values()):.1f} ms each, {max(together_mib.values()):.1f} MiB together"
    )
    cheap = all(max(ms.values()) < REFUSAL_MS for ms in (alone_ms, together_ms))
    small = all(max(mib.values()) < REFUSAL_MIB for mib in (alone_mib, together_mib))
    table = [
        f"{name}: {alone_ms[name]:.2f} ms, {alone_mib[name]:.2f} MiB; "
        f"{TOGETHER} at once {together_ms[name]:.2f} ms each, {together_mib[name]:.2f} MiB"
        for name in alone_ms
    ]
    return Finding(figure, held=cheap and small and not wrong, detail="\n".join(wrong + table))


# Mean difference from djpeg, in levels of 256.
PARITY = 2.0

# djpeg does not turn pictures; rows and columns of its output are reordered for these.
TURNED = {"exif_orient3.jpg": 2, "exif_orient6.jpg": 1, "exif_orient8.jpg": 3}

Pixels = tuple[int, int, bytes]


def pnm(data: bytes) -> Pixels:
    """Width, height and RGB bytes of a binary PPM or PGM."""
    magic, width, height, _levels, pixels = data.split(maxsplit=4) if data else [b""] * 5
    head = len(data) - len(pixels)
    # The pixels begin after exactly one blank, and may begin with bytes that look like more.
    body = data[data.index(_levels, head - len(_levels) - 8) + len(_levels) + 1 :]
    if magic == b"P5":
        body = bytes(value for gray in body for value in (gray, gray, gray))
    return int(width), int(height), body


def quarter_turns(pixels: Pixels, turns: int) -> Pixels:
    """A picture turned clockwise by so many quarters."""
    for _ in range(turns):
        width, height, data = pixels
        rows = [data[y * 3 * width : (y + 1) * 3 * width] for y in range(height)]
        turned = (row[3 * x : 3 * x + 3] for x in range(width) for row in reversed(rows))
        pixels = height, width, b"".join(turned)
    return pixels


def mean_difference(one: Pixels, other: Pixels) -> float:
    """Mean absolute difference of all values, in levels of 256; infinite for another size."""
    if one[:2] != other[:2] or len(one[2]) != len(other[2]):
        return float("inf")
    return statistics.fmean(map(abs, map(int.__sub__, one[2], other[2])))


def djpeg(path: Path) -> Pixels:
    """A JPEG as djpeg decodes it, upright."""
    done = subprocess.run(["djpeg", "-pnm", path], capture_output=True, check=False)
    if not done.stdout:
        raise CannotRun(f"djpeg: {path.name}: {done.stderr.decode(errors='replace').strip()}")
    return quarter_turns(pnm(done.stdout), TURNED.get(path.name, 0))


@promise(
    16,
    "pixels are those of djpeg",
    mark="mean absolute error < 2 of 256 levels, every decodable JPEG, both ways of decoding",
    seconds=1200,
)
def pixel_parity(env: Env) -> Finding:
    """Every JPEG of the tests is decoded by the server's decoder, both as `--jpeg-decode full` and
    as the default (planes, interpolated at the picture's own size), and compared with djpeg value
    by value. Pictures with an EXIF orientation are compared with djpeg's output turned upright; the
    CMYK one with what djpeg makes of its inverted inks, ink times black. The JPEGs that are refused
    must be exactly those that are bombs or cut.
    """
    cargo = ["cargo", "build", "--quiet", "--locked", "-p", "vedette-server"]
    built = env.run([*cargo, "--example", "decode_to_ppm"], 900, cwd=env.root)
    if built.returncode != 0:
        raise CannotRun(f"the example does not build: {built.stderr[-300:]}")
    program = env.root / "target" / "debug" / "examples" / "decode_to_ppm"
    output = env.work / "out.ppm"
    refused, table = set(), []
    worst = {"full": 0.0, "scaled": 0.0}
    jpegs = [path for path in pictures.files() if path.suffix == ".jpg"]
    for path in jpegs:
        for how in ("full", "scaled"):
            done = env.run([program, how, path, output])
            if done.returncode != 0:
                refused.add(path.name)
                continue
            difference = mean_difference(pnm(output.read_bytes()), djpeg(path))
            worst[how] = max(worst[how], difference)
            table.append(f"{path.name} {how}: {difference:.3f}")
    expected = {name for name in pictures.REFUSED if name.endswith(".jpg")}
    compared = len(jpegs) - len(refused)
    figure = (
        f"{compared} JPEGs: at most {worst['full']:.3f} levels in full, "
        f"{worst['scaled']:.3f} scaled; {len(refused)} refused"
    )
    held = max(worst.values()) < PARITY and refused == expected and compared > 0
    return Finding(figure, held, "\n".join(table))
