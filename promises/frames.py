"""Promises 14 to 18: bad frames, what decoding costs and yields, ids, and the accounts."""

from __future__ import annotations

import collections
import random
import re
import statistics
import subprocess
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pictures
from client import Answer, Camera, StreamEnded
from env import Env, picture
from pictures import SQUARES, Case
from process import Meter
from promise import CannotRun, Finding, promise
from server import SPIN, Server
from sim import Report, run_sim, start_sim, unanswered

# Frames made from the tests' pictures by damaging them; the seed makes them the same every time.
DAMAGED = 300
DAMAGE_SEED = 14


def rest(camera: Camera) -> tuple[list[Answer], str]:
    """Says that no more frames come: the answers that still do, and the status of the end."""
    camera.finish()
    answers = []
    while True:
        try:
            answers.append(camera.next())
        except StreamEnded as over:
            return answers, over.code


def judged(server: Server, case: Case) -> list[str]:
    """Sends a frame and then a good one on a stream of their own, and says what was wrong."""
    wrong = []
    with Camera(server.addr, "case") as camera:
        first = camera.exchange(1, case.data, **case.fields)
        second = camera.exchange(2, picture())
        if fault := case.wrong(first) or pictures.missing(second):
            wrong.append(f"{case.name}: {fault}")
        more, code = rest(camera)
        if (first.frame_id, second.frame_id) != (1, 2) or more or code != "OK":
            wrong.append(f"{case.name}: not one answer per frame, or the stream ended {code}")
    return wrong


@promise(
    14,
    "one bad frame never ends a stream",
    mark="each: one right answer, the next frame's squares; no stream ends",
)
def bad_frames(env: Env) -> Finding:
    """Every picture of the tests, raw frames of right and wrong geometry, and a JPEG of 5 MB are sent each on a
    stream of its own and followed by a good picture: the first is answered once, as is right for it, and in the
    second the three squares are found. Then all of them, and 300 copies damaged at random with a fixed seed, go
    down one single stream, which must still find the squares in the end. Nothing may be answered INTERNAL.
    """
    noise = (pictures.noise_4k(env) / "noise_4k.jpg").read_bytes()
    cases = [pictures.of_file(path) for path in pictures.files()]
    cases += [*pictures.raw_frames(), Case("noise_4k.jpg", noise, squares=None)]
    outcomes: collections.Counter[str] = collections.Counter()
    with Server(env, *pictures.cells()) as server:
        wrong = [fault for case in cases for fault in judged(server, case)]
        damaged = [*pictures.damaged(DAMAGE_SEED, DAMAGED)]
        with Camera(server.addr, "all") as camera:
            for number, case in enumerate([*cases, *damaged]):
                answer = camera.exchange(number, case.data, **case.fields)
                outcomes[answer.outcome] += 1
                if answer.frame_id != number or answer.outcome == "INTERNAL":
                    wrong.append(f"{case.name}: {answer}")
            if fault := pictures.missing(camera.exchange(999, picture())):
                wrong.append(f"the last frame of the long stream: {fault}")
            if (end := rest(camera)) != ([], "OK"):
                wrong.append(f"the long stream ended {end}")
        panics = server.metric("vedette_worker_panics_total")
    told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    figure = (
        f"{len(cases)} cases and {len(damaged)} damaged copies: {len(wrong)} wrong, "
        f"{panics:g} panics; on one stream {told}"
    )
    return Finding(figure, held=not wrong and panics == 0, detail="\n".join(wrong[:20]))


# The most that a frame may cost that is not decoded in the end.
REFUSAL_MS = 20.0
REFUSAL_MIB = 64.0
TOGETHER = 20
TRIES = 5


def refusable() -> list[Case]:
    """Bombs, files that are no whole picture, and halves of pictures of every kind."""
    cases = [case for path in pictures.files() if (case := pictures.of_file(path)).reasons]
    for name in ("cmyk_adobe.jpg", "png_rgba.png", "png16_rgb.png", "still.bmp", "scene_1080p.jpg"):
        data = picture(name)
        cases.append(Case(f"half of {name}", data[: len(data) // 2], reasons=("TRUNCATED",)))
    return cases


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
    """Files of a few hundred bytes that claim millions of pixels, files that are no picture, and pictures cut in
    half are sent to a server that is warm. Processor time is read from the server's own clock in nanoseconds
    and memory from its high-water mark, which is set back before each; the highest of five tries counts. Then 20
    streams send the same file at the same instant. In between, the next picture of the stream is answered with
    its squares.
    """
    cases = refusable()
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
    """Every JPEG of the tests is decoded by the server's decoder, both as `--jpeg-decode full` and as the default
    (planes, interpolated at the picture's own size), and compared with djpeg value by value. Pictures with an
    EXIF orientation are compared with djpeg's output turned upright; the CMYK one with what djpeg makes of its
    inverted inks, ink times black. The JPEGs that are refused must be exactly those that are bombs or cut.
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
        for how in worst:
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


RANDOM_IDS = 10_000
ID_SEED = 17
BURST = 400
BURST_STREAMS = 5
BURST_PAUSE_SECONDS = 0.002


def special_ids() -> list[int]:
    """Ids that a server could trip over: 0, doubles, descending ones, the ends of integers."""
    edges = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
    return [0, 0, 0, 7, 7, *range(100, 0, -1), *edges, *reversed(edges), 2**64 - 1, 0]


def echoes(addr: str, ids: list[int]) -> bool:
    """Sends one frame after the other: whether each comes back with its id, and nothing else."""
    with Camera(addr, "ids") as camera:
        same = all(camera.exchange(number, picture()).frame_id == number for number in ids)
        return same and rest(camera) == ([], "OK")


def in_a_burst(addr: str, seed: int) -> str:
    """Sends frames without waiting: each id comes back once, those computed in the order sent."""
    draw = random.Random(seed)
    ids = list({draw.randrange(2**64) for _ in range(BURST)})
    with Camera(addr, f"burst-{seed}") as camera:
        for number in ids:
            camera.send(number, picture())
            # So that some are computed and some replaced, whatever the machine.
            time.sleep(draw.random() * BURST_PAUSE_SECONDS)
        answers, code = rest(camera)
    order = {number: at for at, number in enumerate(ids)}
    if code != "OK" or sorted(a.frame_id for a in answers) != sorted(ids):
        return f"{len(answers)} answers to {len(ids)} frames, or other ids; the end {code}"
    for outcome in ("OK", "SUPERSEDED"):
        sent_at = [order[a.frame_id] for a in answers if a.outcome == outcome]
        if sent_at != sorted(sent_at) or not sent_at:
            return f"{outcome}: out of order, or none"
    return ""


@promise(17, "ids are opaque", mark="every id echoed once; in order per stream")
def opaque_ids(env: Env) -> Finding:
    """One stream sends 0, doubles, descending ids, the ends of 32 and 64 bits, and then 10,000 random ones, a
    frame after each answer: the ids come back the same in the same order. Five streams then send 400 frames each
    without waiting, so that some are computed and some replaced by newer ones: every id comes back exactly once,
    and the computed ones, as well as the replaced ones, in the order in which they were sent.
    """
    draw = random.Random(ID_SEED)
    ids = special_ids() + [draw.randrange(2**64) for _ in range(RANDOM_IDS)]
    with Server(env, "--backend", "spin", "--spin-ms", "0") as server:
        same = echoes(server.addr, ids)
    with (
        Server(env, *SPIN, "--workers", "2") as server,
        ThreadPoolExecutor(BURST_STREAMS) as threads,
    ):
        seeds = range(BURST_STREAMS)
        wrong = [f for f in threads.map(lambda seed: in_a_burst(server.addr, seed), seeds) if f]
    figure = (
        f"{len(ids)} ids in turn {'all' if same else 'NOT all'} echoed in order; "
        f"{BURST_STREAMS} bursts of {BURST}: {len(wrong)} wrong"
    )
    return Finding(figure, held=same and not wrong, detail="\n".join(wrong))


def without_colours(log: str) -> str:
    """A log without what paints it on a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", log)


def frames_of(reports: Iterable[Report], key: str) -> int:
    """A count over all runs, warm-up included."""
    return sum(int(part[key]) for report in reports for part in (report, report["warmup"]))


@promise(
    18,
    "every frame is accounted for",
    mark="sent = answered + reported drops, and received = outcomes, exactly, in every row",
    last=True,
)
def accounting(env: Env) -> Finding:
    """Five fleets one after the other: one that fits, one of twice what fits, one whose frames have 3 ms to live,
    one that sends broken files, and one whose server is terminated in the middle. Every frame that client-sim sent
    has an answer, or was, by the server's own word, not taken up before it ended. A sixth client is killed, and
    the server's accounts still add up. Then all servers of all other rows are looked at: frames received must
    equal the sum over all outcomes, exactly.
    """
    load = ("--fps", "10", "--seconds", "6", "--warmup", "1")
    half = ("--backend", "spin", "--spin-ms", "5", "--workers", "2")
    broken = env.work / "broken"
    broken.mkdir()
    for case in refusable():
        (broken / case.name.replace(" ", "-")).write_bytes(case.data)
    with Server(env, *half) as server:
        reports = [
            run_sim(env, server.addr, "--cameras", "10", *load),
            run_sim(env, server.addr, "--cameras", "80", *load),
            run_sim(env, server.addr, "--cameras", "60", "--budget-ms", "3", *load),
            run_sim(env, server.addr, "--cameras", "10", "--images", str(broken), *load),
        ]
        received = server.metric("vedette_frames_received_total")
        killed = start_sim(env, server.addr, "--cameras", "20", *load)
        time.sleep(3)
        killed.kill()
    with Server(env, *half) as server:
        last = start_sim(env, server.addr, "--cameras", "30", "--no-reconnect", *load)
        time.sleep(4)
        server.process.terminate()
        server.wait(15)
        reports.append(last.report())
        log = server.stderr_text()
    last_words = re.search(r"stopped.* received=(\d+) accounted=(\d+)", without_colours(log))
    own = [int(received), *map(int, last_words.groups() if last_words else ())]
    return judge_accounts(env, reports, own)


def judge_accounts(env: Env, reports: list[Report], own: list[int]) -> Finding:
    """Adds up what client-sim sent and what servers said in all rows. `own` are frames that the first
    server of this row received, and that the second one said at its end: received, and accounted for."""
    kept, last = reports[:-1], reports[-1:]
    told = [frames_of(kept, "sent"), *[frames_of(last, "answered")] * 2]
    sent, answered = frames_of(reports, "sent"), frames_of(reports, "answered")
    untaken, lost = frames_of(reports, "unaccepted"), sum(map(unanswered, reports))
    kinds = ("ok", "superseded", "expired", "bad_image")
    seen = {kind: frames_of(reports, kind) for kind in kinds}
    others = env.shared.accounts
    unequal = [a for a in others if a.received != a.outcomes]
    frames = sum(a.received for a in others)
    figure = (
        f"sent {sent} = answered {answered} + {untaken} not taken up ({lost} lost); "
        f"{len(others)} servers of {len({a.row for a in others})} rows: {frames} received, "
        f"{len(unequal)} servers off"
    )
    held = (
        lost == 0
        and sent == answered + untaken
        and told == own
        and not unequal
        and all(seen.values())
    )
    detail = f"the simulator's accounts {told}, the servers' {own}; {', '.join(f'{count} {kind}' for kind, count in seen.items())}"
    return Finding(figure, held, detail)
