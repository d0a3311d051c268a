"""Promises 14, 17 and 18: bad frames, ids, and the accounts."""

from __future__ import annotations

import collections
import random
import re
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pictures
from client import Answer, Camera, StreamEnded
from env import Env, picture
from pictures import Case
from promise import Finding, promise
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
    """Every picture of the tests, raw frames of right and wrong geometry, and a JPEG of 5 MB are
    sent each on a stream of its own and followed by a good picture: the first is answered once, as
    is right for it, and in the second the three squares are found. Then all of them, and 300 copies
    damaged at random with a fixed seed, go down one single stream, which must still find the
    squares in the end. Nothing may be answered INTERNAL.
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
    """One stream sends 0, doubles, descending ids, the ends of 32 and 64 bits, and then 10,000
    random ones, a frame after each answer: the ids come back the same in the same order. Five
    streams then send 400 frames each without waiting, so that some are computed and some replaced
    by newer ones: every id comes back exactly once, and the computed ones, as well as the replaced
    ones, in the order in which they were sent.
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
    """Five fleets one after the other: one that fits, one of twice what fits, one whose frames have
    3 ms to live, one that sends broken files, and one whose server is terminated in the middle.
    Every frame that client-sim sent has an answer, or was, by the server's own word, not taken up
    before it ended. A sixth client is killed, and the server's accounts still add up. Then all
    servers of all other rows are looked at: frames received must equal the sum over all outcomes,
    exactly.
    """
    load = ("--fps", "10", "--seconds", "6", "--warmup", "1")
    half = ("--backend", "spin", "--spin-ms", "5", "--workers", "2")
    broken = env.work / "broken"
    broken.mkdir()
    for case in pictures.refusable():
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
    """Adds up what client-sim sent and what servers said in all rows. `own` are frames that the
    first server of this row received, and that the second one said at its end: received, and
    accounted for."""
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
    kinds_seen = ", ".join(f"{count} {kind}" for kind, count in seen.items())
    detail = f"the simulator's accounts {told}, the servers' {own}; {kinds_seen}"
    return Finding(figure, held, detail)
