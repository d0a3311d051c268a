"""Promises 23 to 27: what networks and their files can do to a server."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import networks
import pictures
from client import Answer, Camera, StreamEnded
from env import PLAIN_USER, Env, picture, wait_until
from networks import INFINITY, NAN, Bias
from pictures import SQUARES, Squares
from probes import HealthWatch, http_status
from promise import Finding, promise
from server import Server
from supervise import NotifySocket, Supervisor

PANICS = "vedette_worker_panics_total"
RELOADED = 'vedette_model_reloads_total{result="ok"}'
RELOAD_FAILED = 'vedette_model_reloads_total{result="failed"}'

# The detectors' cells are 20 pixels wide and lie in rows of 32; a picture of 640x360 lies in the
# middle of the input of 640x640.
CELL, ROW, TOP = 20, 32, 140
IN_SQUARES = {(y + TOP) // CELL * ROW + x // CELL for x, y, _, _ in SQUARES.values()}

# Networks whose output is not finite: what is added to it, and the squares that are left to find.
NON_FINITE: dict[str, tuple[Bias, Squares]] = {
    "every value NaN": (lambda row, cell: NAN, {}),
    "every value +inf": (lambda row, cell: INFINITY, {}),
    "every value -inf": (lambda row, cell: -INFINITY, {}),
    "every box NaN": (lambda row, cell: NAN if row < 4 else 0.0, {}),
    "every width inf": (lambda row, cell: INFINITY if row == 2 else 0.0, {}),
    "every score of red NaN": (
        lambda row, cell: NAN if row == 4 else 0.0,
        {label: box for label, box in SQUARES.items() if label != "red"},
    ),
    "NaN in all cells but the squares'": (
        lambda row, cell: 0.0 if cell in IN_SQUARES else NAN, SQUARES,
    ),
    "+inf in all cells but the squares'": (
        lambda row, cell: 0.0 if cell in IN_SQUARES else INFINITY, SQUARES,
    ),
}  # fmt: skip


def well_formed(answer: Answer) -> bool:
    """Whether every object has a score from 0 to 1 and a box inside the picture."""
    return all(
        0 <= score <= 1
        and x >= 0 and y >= 0 and width >= 1 and height >= 1
        and x + width <= answer.width and y + height <= answer.height
        for _, score, (x, y, width, height) in answer.objects
    )  # fmt: skip


@promise(
    23,
    "numbers that are not finite stay inside",
    mark="no such box or score is reported, finite ones beside them are; no panic, no dead stream",
)
def non_finite_outputs(env: Env) -> Finding:
    """Eight networks put NaN or infinity into their output: everywhere, into all boxes, into one
    class, into all cells without a square. Each server answers two frames of a stream alike: every
    object that it reports is sound, and the squares whose numbers are finite are found.
    """
    wrong, panics, told = [], 0.0, []
    for number, (name, (bias, squares)) in enumerate(NON_FINITE.items()):
        model = env.work / f"not_finite_{number}.onnx"
        model.write_bytes(networks.with_bias(bias))
        with Server(env, *pictures.cells(model)) as server:
            with Camera(server.addr, "camera") as camera:
                answers = [camera.exchange(at, picture()) for at in (1, 2)]
            panics += server.metric(PANICS)
        told.append(f"{name}: {answers[0].outcome}, {len(answers[0].objects)} objects")
        wrong += [
            f"{name}: {fault or answer}"
            for answer in answers
            if (fault := pictures.missing(answer, squares)) or not well_formed(answer)
        ]
    figure = f"{len(NON_FINITE)} networks: {len(wrong)} wrong answers, {panics:g} panics"
    return Finding(figure, held=not wrong and panics == 0, detail="\n".join(wrong or told))


STAGES = ("decode", "inference", "postprocess")
EVERY = 7
ROUNDS = 35
# Longer than stuck-seconds by default: a worker that panicked must not count as stuck.
STUCK_SECONDS = 5


def panics_in(env: Env, stage: str) -> tuple[int, str]:
    """Two cameras take turns while every seventh frame panics: how many were struck, and what was
    wrong."""
    flags = ("--fault", f"panic-{stage}:{EVERY}", *pictures.cells(workers=1))
    with Server(env, *flags, binary=env.faults_server()) as server:
        threads = server.threads()
        with Camera(server.addr, "one") as one, Camera(server.addr, "two") as two:
            answers = [
                (2 * at + turn + 1, camera.exchange(at, picture()))
                for at in range(ROUNDS)
                for turn, camera in enumerate((one, two))
            ]
            time.sleep(STUCK_SECONDS + 2)
            last = one.exchange(999, picture())
        struck = [number for number, answer in answers if answer.outcome == "INTERNAL"]
        expected = [number for number, _ in answers if number % EVERY == 0]
        others = [pictures.missing(a) for n, a in answers if n not in expected]
        counted, ready = server.metric(PANICS), http_status(server.admin, "GET", "/readyz")
        checks = {
            f"INTERNAL for {struck}": struck == expected,
            f"{sum(map(bool, others))} other frames wrong": not any(others),
            f"{counted:g} panics counted": counted == len(expected),
            f"afterwards {last.outcome}": not pictures.missing(last),
            f"/readyz {ready}": ready == 200,
            f"{server.threads()} threads, {threads} before": server.threads() == threads,
        }
    wrong = [f"{stage}: {what}" for what, right in checks.items() if not right]
    return len(struck), "; ".join(wrong)


@promise(
    24,
    "a panic costs one frame",
    mark="that frame INTERNAL, counted; all others right, both streams live; process and workers too",
)
def panics(env: Env) -> Finding:
    """A server whose single worker panics over every seventh frame, in turn while decoding, in
    inference and in postprocessing. Two cameras take turns with 70 frames: exactly every seventh is
    answered INTERNAL, all others have their three squares, the counter of panics has counted each,
    no thread is lost, and after the time in which a worker would count as stuck the server is ready
    and computes.
    """
    found = [panics_in(env, stage) for stage in STAGES]
    wrong = [fault for _, fault in found if fault]
    struck = ", ".join(
        f"{count} in {stage}" for stage, (count, _) in zip(STAGES, found, strict=True)
    )
    figure = f"of {2 * ROUNDS} frames each INTERNAL: {struck}; {len(wrong)} stages wrong otherwise"
    return Finding(figure, held=not wrong, detail="\n".join(wrong))


READY_GONE_SECONDS = 10.0
HANG_SECONDS = 12
GIVES_UP_SECONDS = 30
WATCHDOG_SECONDS = 6.0
EXIT_FAILURE = 70


def until_it_hangs(camera: Camera) -> float:
    """Sends frames until one is not answered, and returns when that one was sent."""
    for number in range(60):
        sent = time.monotonic()
        try:
            camera.exchange(number, picture(), 2)
        except TimeoutError:
            return sent
    raise TimeoutError("no frame of 60 has hung")


def hanging(seconds: int, *more: str) -> tuple[str, ...]:
    """Flags of a server with one worker whose 20th inference takes so long."""
    return (*pictures.cells(workers=1), "--fault", f"hang-inference:{seconds}", *more)


def hang_that_ends(env: Env) -> tuple[str, bool]:
    """The worker goes on by itself after 12 s."""
    with (
        NotifySocket(env, WATCHDOG_SECONDS) as told,
        Server(
            env, *hanging(HANG_SECONDS), binary=env.faults_server(), preload_env=told.environment
        ) as server,
        HealthWatch(server.addr) as health,
        Camera(server.addr, "camera") as camera,
    ):
        sound_before = bool(told.notices.times("WATCHDOG=1"))
        began = until_it_hangs(camera)
        gone = health.when("NOT_SERVING", began, READY_GONE_SECONDS + 5)
        page = http_status(server.admin, "GET", "/readyz")
        late = camera.next(HANG_SECONDS + 10)
        back = health.when("SERVING", began + gone, 10)
        pages = (page, http_status(server.admin, "GET", "/readyz"))
        silence = max(told.notices.gaps(began, began + back + gone))
        time.sleep(WATCHDOG_SECONDS / 2)
        sound_after = bool(told.notices.times("WATCHDOG=1", began + gone + back))
        right = not pictures.missing(late) and not pictures.missing(camera.exchange(999, picture()))
    figure = (
        f"NOT_SERVING after {gone:.1f} s, signs of life stop for {silence:.1f} s, back by itself"
    )
    held = (
        gone <= READY_GONE_SECONDS
        and pages == (503, 200)
        and sound_before
        and sound_after
        and silence > WATCHDOG_SECONDS
        and right
    )
    return figure, held


def hang_for_good(env: Env, *flags: str) -> tuple[float, float, int, bool]:
    """The worker does not go on. Returns the seconds until readiness was gone and until a camera
    was answered again, the exit code, and whether the answer was right."""
    with Supervisor(
        env, *hanging(120, *flags), watchdog_seconds=WATCHDOG_SECONDS if flags else 3600,
        binary=env.faults_server(),
    ) as supervisor:  # fmt: skip
        addr = supervisor.server.addr
        with HealthWatch(addr) as health, Camera(addr, "camera") as camera:
            began = until_it_hangs(camera)
            gone = health.when("NOT_SERVING", began, READY_GONE_SECONDS + 5)
        wait_until(lambda: bool(supervisor.ends), GIVES_UP_SECONDS + 15)
        right = False
        while not right and time.monotonic() < began + GIVES_UP_SECONDS + 60:
            try:
                with Camera(addr, "again") as camera:
                    right = not pictures.missing(camera.exchange(1, picture(), 5))
            except (StreamEnded, TimeoutError):
                time.sleep(0.2)
        return gone, time.monotonic() - began, supervisor.ends[0], right


@promise(
    25,
    "a stuck inference is noticed and ended",
    mark="NOT_SERVING and /readyz 503 <= 10 s, WATCHDOG=1 stops; back by itself, or restarted",
)
def stuck_inference(env: Env) -> Finding:
    """The 20th inference of a server's only worker hangs. It is told of a supervisor by
    NOTIFY_SOCKET and WATCHDOG_USEC, as by systemd. First the hang ends after 12 s: health is
    NOT_SERVING and /readyz 503 within 10 s, the signs of life stop, and all of that turns back by
    itself when the worker goes on, with the late frame answered. Then it does not end: the process
    exits with 70 after 30 s and the supervisor starts it again. At last the process may not exit by
    itself, and the supervisor ends it when the signs of life have stopped for 6 s. Each time a
    camera that connects again finds its squares.
    """
    recovery, recovered = hang_that_ends(env)
    gone, again, code, right = hang_for_good(env)
    gone_too, restarted, killed, right_too = hang_for_good(env, "--stuck-exit-seconds", "0")
    figure = (
        f"{recovery}; for good: exit {code}, served again {again:.0f} s after the hang; "
        f"by the watchdog ({killed}): {restarted:.0f} s"
    )
    held = (
        recovered
        and right
        and right_too
        and max(gone, gone_too) <= READY_GONE_SECONDS
        and code == EXIT_FAILURE
        and killed == -signal.SIGKILL
    )
    return Finding(figure, held)


@dataclass
class Steady:
    """A camera that goes on sending, and notes what it is told, model file or not."""

    addr: str
    answers: list[Answer] = field(default_factory=list)
    sent: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Steady:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.thread.join(30)

    def _run(self) -> None:
        with Camera(self.addr, "steady") as camera:
            while not self.stopping.wait(0.05):
                self.sent += 1
                self.answers.append(camera.exchange(self.sent, picture()))

    def more(self, count: int = 10) -> list[Answer]:
        """The next answers, leaving out the one that may be under way."""
        start = len(self.answers) + 1
        wait_until(lambda: len(self.answers) >= start + count, 30)
        return self.answers[start : start + count]


def complaints(server: Server, model: Path) -> int:
    """Lines of the log above INFO that name the model's file."""
    lines = server.stderr_text().splitlines()
    return sum(model.name in line and ("WARN" in line or "ERROR" in line) for line in lines)


@promise(
    26,
    "the model's file may change under a server",
    mark="replaced, cut, deleted: the old one serves on; bad reload: counted, one line; good: swapped",
)
def model_file(env: Env) -> Finding:
    """Under a camera that never stops, the model's file is replaced by rename with another network,
    then cut in place, then deleted: nothing changes. SIGHUP with the file missing, then cut, then
    with a network that cannot run: the old one serves on, each attempt is counted as failed and
    logged in one line. SIGHUP with the other network: within seconds answers are its. Every frame
    of the whole time has one right answer.
    """
    model, other = env.work / "model.onnx", networks.MODELS / "cells_single.onnx"
    shutil.copy(networks.MODELS / "cells_v8.onnx", model)
    only_red = {"red": SQUARES["red"]}
    wrong: list[str] = []

    def expect(what: str, squares: Squares) -> None:
        faults = [f for answer in steady.more() if (f := pictures.missing(answer, squares))]
        wrong.extend(f"{what}: {fault}" for fault in faults[:1])

    with Server(env, *pictures.cells(model)) as server, Steady(server.addr) as steady:
        expect("at first", SQUARES)
        incoming = env.work / "incoming.onnx"
        shutil.copy(other, incoming)
        incoming.rename(model)
        expect("replaced", SQUARES)
        os.truncate(model, 1000)
        expect("cut", SQUARES)
        model.unlink()
        expect("deleted", SQUARES)
        failed = bad_reloads(server, model, expect)
        shutil.copy(other, model)
        server.signal(signal.SIGHUP)
        swapped = server.wait_metric(RELOADED, 1, 20)
        expect("reloaded", only_red)
        lines, counted = complaints(server, model), server.metric(RELOAD_FAILED)
        bad = [a for a in steady.answers if a.outcome != "OK"]
    figure = (
        f"{len(steady.answers)} frames, {len(bad) + len(wrong)} wrong; {failed} bad reloads: "
        f"{counted:g} counted, {lines} lines; a good one in {swapped:.1f} s"
    )
    held = not wrong and not bad and counted == lines == failed
    return Finding(figure, held, "\n".join(wrong))


def bad_reloads(server: Server, model: Path, expect: object) -> int:
    """Asks for reloads of files that cannot be loaded; how many that were."""
    whole = (networks.MODELS / "cells_v8.onnx").read_bytes()
    contents = (None, b"", whole[: len(whole) // 2], networks.with_opset(99))
    for number, content in enumerate(contents, start=1):
        if content is not None:
            model.write_bytes(content)
        server.signal(signal.SIGHUP)
        server.wait_metric(RELOAD_FAILED, number, 20)
        expect(f"bad reload {number}", SQUARES)  # type: ignore[operator]
    return len(contents)


BAD_MODEL_SECONDS = 2.0
BAD_MODEL_CODES = (65, 66)


@promise(
    27,
    "a bad model is refused at the start",
    mark="each file: exit code not 0, one line, < 2 s",
)
def bad_model_at_start(env: Env) -> Finding:
    """Eight files that are no network or none that can be run: cut short, a Git LFS pointer,
    operators of version 99, empty, a web page, zeros, a picture, without its last bytes; and one
    that does not exist, one that is a folder, one that may not be read. With default logs the
    server says one line that names the file, and ends.
    """
    secret = env.work / "not_readable.onnx"
    shutil.copy(networks.MODELS / "cells_v8.onnx", secret)
    secret.chmod(0o600)
    models = [*networks.unusable(env.work), env.work / "nowhere.onnx", env.work, secret]
    wrong, slowest = [], 0.0
    for model in models:
        where = ("--addr", f"127.0.0.1:{env.port()}", "--admin-addr", f"127.0.0.1:{env.port()}")
        start = time.monotonic()
        try:
            done = env.run(
                [env.server, *where, "--model", model], 10, user=PLAIN_USER, cwd=env.root
            )
        except TimeoutError:
            wrong.append(f"{model.name}: serves")
            continue
        seconds = time.monotonic() - start
        slowest = max(slowest, seconds)
        lines = done.stderr.strip().splitlines()
        told = len(lines) == 1 and model.name in lines[0] and not done.stdout
        if done.returncode not in BAD_MODEL_CODES or not told or seconds >= BAD_MODEL_SECONDS:
            wrong.append(f"{model.name}: {done.returncode} in {seconds:.1f} s: {done.stderr[:400]}")
    figure = f"{len(models)} files: {len(wrong)} not refused so; slowest {slowest:.2f} s"
    return Finding(figure, held=not wrong, detail="\n".join(wrong))
