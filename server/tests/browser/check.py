"""Opens the live page in a browser: `make check-live`.

First against a fleet on paper, which does what a real one seldom does (paper.py); then against a real server with
cameras of client-sim. What the page says must be what `/metrics` says; boxes must lie where the answer says, to the
pixel; a camera that stops must turn stale within 3 s; nothing may be said on the console or asked of any other
server. Pictures of the page go to the folder given, to be looked at.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from drawn import check_boxes
from live_page import ROOT, Browser, BrowserError, LivePage
from looks import Checks, looks, opened, silent
from paper import FIGURES, STALE_SECONDS, asked, on_paper, pause, read_outs, resume, token

sys.path.append(str(ROOT / "promises"))

from process import cpu_seconds  # noqa: E402
from server import http_get, parse_metrics  # noqa: E402

TOKEN = "the-operators-token-of-this-check"
CAMERAS = 30
# Share of a core that one open page may take of the server, at 30 cameras.
MOST_PAGE_CORES = 0.02
# Seconds over which that is taken.
COST_SECONDS = 10.0

# The page's name for a figure, and how to read it from /metrics.
FROM_METRICS: dict[str, Callable[[dict[str, float]], float]] = {
    "cameras-connected": lambda m: m["vedette_streams"],
    "received": lambda m: m["vedette_frames_received_total"],
    "ok": lambda m: m['vedette_frames_total{outcome="ok"}'],
    "slowest-10s": lambda m: m['vedette_slowest_frame_seconds{window="10s"}'] * 1e3,
    "slowest-60s": lambda m: m['vedette_slowest_frame_seconds{window="60s"}'] * 1e3,
    "headroom": lambda m: m.get("vedette_headroom_cameras", float("nan")),
    "busy": lambda m: m["vedette_busy_ratio"],
}
# What rounding in the page's events takes away.
ROUNDING = {"slowest-10s": 0.01, "slowest-60s": 0.01, "busy": 0.0051}


@contextlib.contextmanager
def serving(program: Path, folder: Path, *flags: str) -> Iterator[tuple[str, str, int]]:
    """A server that shows pictures: where cameras connect, where operators do, its pid."""
    secret = folder / "token"
    secret.write_text(TOKEN + "\n", encoding="ascii")
    secret.chmod(0o600)
    preview = ["--preview", "--admin-token-file", str(secret)]
    ports = ["--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"]
    log = folder / "server.log"
    with log.open("w", encoding="utf-8") as err:
        child = subprocess.Popen(
            [program, *ports, *preview, *flags], cwd=ROOT, stdout=subprocess.PIPE, stderr=err, text=True
        )
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            if not line.startswith("listening on "):
                raise BrowserError(f"the server did not start: {log.read_text(encoding='utf-8')}")
            said = log.read_text(encoding="utf-8")
            admin = said.split("admin_addr=", 1)[1].split(" ", 1)[0]
            yield line.removeprefix("listening on ").strip(), admin, child.pid
        finally:
            child.terminate()
            child.wait(15)


@contextlib.contextmanager
def sending(program: Path, addr: str, count: int, fps: int) -> Iterator[subprocess.Popen[bytes]]:
    """Cameras that send until the block ends."""
    command = [program, "run", "--addr", addr, "--cameras", f"{count}", "--fps", f"{fps}", "--seconds", "600"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen([*command, "--quiet", "--self-test", "never"], cwd=ROOT, **quiet)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait(10)


def cores(pid: int) -> float:
    """Cores that a process keeps busy."""
    start, before = time.monotonic(), cpu_seconds(pid)
    time.sleep(COST_SECONDS)
    return (cpu_seconds(pid) - before) / (time.monotonic() - start)


def equal_to_metrics(page: LivePage, admin: str, checks: Checks) -> None:
    """The page's figures against /metrics, asked before they were read for as long as an event may be old."""
    history = []
    for _ in range(7):
        history.append(parse_metrics(http_get(admin, "/metrics")[1]))
        time.sleep(0.3)
    history.append(parse_metrics(http_get(admin, "/metrics")[1]))
    shown = page.evaluate(FIGURES)
    for name, read in FROM_METRICS.items():
        values, value = [read(each) for each in history], float(shown[name] or "nan")
        slack = ROUNDING.get(name, 0.0)
        inside = min(values) - slack <= value <= max(values) + slack
        checks.that(inside, f"{name}: the page says {value:g}, /metrics {min(values):g} to {max(values):g}")


def fleet(browser: Browser, admin: str, pid: int, out: Path, checks: Checks) -> None:
    """The whole fleet: figures, and what a page costs the server."""
    time.sleep(12)
    alone = cores(pid)
    page = opened(browser, f"http://{admin}")
    page.wait(f"document.querySelectorAll('a.camera').length === {CAMERAS}")
    page.wait("document.querySelector('path.slowest').getAttribute('d').length > 100")
    equal_to_metrics(page, admin, checks)
    cost = cores(pid) - alone
    what = f"one open page costs the server {100 * cost:+.1f} % of a core ({100 * alone:.1f} without)"
    checks.that(cost < MOST_PAGE_CORES, what)
    read_outs(page, checks)
    looks(page, checks, "fleet", out)
    silent(page, checks, "fleet")
    page.close()


def stopped(browser: Browser, program: Path, addr: str, admin: str, out: Path, checks: Checks) -> None:
    """A camera that stops without ending its connection, and one that leaves."""
    page = opened(browser, f"http://{admin}")
    card = "document.querySelector('[data-camera=sim-0001][data-state=%s]')"
    with sending(program, addr, 1, 10) as child:
        page.wait(card % "live")
        child.send_signal(signal.SIGSTOP)
        took = page.wait(card % "stale", 10)
        checks.that(took <= STALE_SECONDS, f"a camera that stops is stale after {took:.1f} s")
        page.picture(out / "fleet-stale.png")
        child.send_signal(signal.SIGCONT)
    page.wait(card % "gone", 10)
    checks.that(True, "one that left is gone")
    page.close()


def awaited(browser: Browser, admin: str, camera: str, checks: Checks) -> LivePage:
    """The page of a camera that has not come yet."""
    page = opened(browser, f"http://{admin}", f"#/camera/{camera}")
    page.wait("document.getElementById('status').innerText.includes('no such camera')")
    checks.that(page.text("h1") == "No such camera", f"of a camera that is not there the page says: {page.text('h1')}")
    return page


def picture(page: LivePage, camera: str, out: Path, checks: Checks) -> None:
    """A camera's page: the wrong token, the right one, boxes to the pixel."""
    page.wait("document.querySelector('#token')?.offsetParent")
    words = page.text("h1").split()
    checks.that(words == [camera, "live"], f"and once it has come: {' '.join(words)}")
    page.forget()
    token(page, "not-the-token-at-all")
    page.wait("document.querySelector('.picture').innerText.includes('not the operators')")
    noise = [each for each in page.complaints() if "401" not in each]
    checks.that(not noise, f"a wrong token is said to be wrong, and only the refusal is logged {noise or ''}")
    page.forget()
    token(page, TOKEN)
    page.wait("document.querySelector('canvas').dataset.boxes?.length > 4")
    pause(page)
    caption = check_boxes(page, checks.that, camera)
    checks.that(len(caption["objects"]) > 0, f"{len(caption['objects'])} boxes are drawn")
    resume(page)
    looks(page, checks, "camera", out)
    page.evaluate("location.hash = '#/'")
    page.wait("document.querySelector('.fleet')")
    time.sleep(0.5)
    checks.that(asked(page, 2.0) == 0, "no picture is fetched once the camera's page is left")
    silent(page, checks, camera)
    page.close()


def on_a_server(browser: Browser, programs: Path, work: Path, out: Path, checks: Checks) -> None:
    """A real server with cameras of client-sim."""
    sim, program = programs / "client-sim", programs / "vedette-server"
    print(f"{CAMERAS} cameras, a busy loop of 1 ms for a network", flush=True)
    with serving(program, work, "--backend", "spin", "--spin-ms", "1") as (addr, admin, pid):
        with sending(sim, addr, CAMERAS, 10):
            fleet(browser, admin, pid, out, checks)
        stopped(browser, sim, addr, admin, out, checks)
    print("4 cameras with the default network", flush=True)
    with serving(program, work) as (addr, admin, _):
        page = awaited(browser, admin, "sim-0001", checks)
        with sending(sim, addr, 4, 3):
            picture(page, "sim-0001", out, checks)
            page = opened(browser, f"http://{admin}")
            page.wait("document.querySelectorAll('a.camera').length === 4")
    page.wait("document.getElementById('status').dataset.kind === 'lost'", 10)
    checks.that(True, "a server that ends is said to be away")
    page.close()


def main() -> int:
    """Plays everything."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--bin", type=Path, default=ROOT / "target/release", help="folder of the programs")
    arguments.add_argument("--out", type=Path, default=ROOT / "target/live", help="folder for pictures")
    options = arguments.parse_args()
    paper = options.out / "paper"
    paper.mkdir(parents=True, exist_ok=True)
    checks = Checks()
    with tempfile.TemporaryDirectory() as work, Browser() as browser:
        on_paper(browser, checks, paper)
        on_a_server(browser, options.bin, Path(work), options.out, checks)
    print(f"{checks.done} checks, pictures in {options.out}: ", end="")
    print("all fine" if not checks.problems else f"{len(checks.problems)} problems")
    return 1 if checks.problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BrowserError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"check-live: {error}")
