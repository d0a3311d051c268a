"""Opens the live page of a running server in a browser: `make check-live`.

A real server, cameras of client-sim, and headless Chromium. What the page says must be what `/metrics` says; boxes
must lie where the answer says, to the pixel; a camera that stops must turn stale within 3 s; nothing may be said on
the console or asked of any other server. Pictures of the page go to the folder given, to be looked at.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "client-sim" / "tests" / "browser"))

from check import CONTRAST, LEAST_CONTRAST, VIEWS  # noqa: E402
from chromium import Browser, BrowserError, Page  # noqa: E402

TOKEN = "the-operators-token-of-this-check"
CAMERAS = 30
# Seconds within which a camera that stops must be stale on the page, and within which anything else must show.
STALE_SECONDS = 3.0
PATIENCE = 20.0
# How far a colour may be from the box's own where the picture was scaled, in levels of 255.
COLOUR_TOLERANCE = 40
# Share of a core that one open page may take of the server, at 30 cameras.
MOST_PAGE_CORES = 0.02

# What stands in the page's figures, by their names.
FIGURES = """Object.fromEntries([...document.querySelectorAll('[data-key]')]
  .map((element) => [element.dataset.key, element.dataset.value]))"""

CARDS = """[...document.querySelectorAll('a.camera')]
  .map((card) => [card.dataset.camera, card.dataset.state])"""

# The colours on each box's left edge, a third of the way down, as the canvas has them.
EDGES = """(() => { const canvas = document.querySelector('canvas');
  const scale = Number(canvas.dataset.scale), pen = canvas.getContext('2d');
  return JSON.parse(canvas.dataset.boxes).map((box) => {
    const at = (x, y) => [...pen.getImageData(Math.min(canvas.width - 1, Math.max(0, Math.round(x * scale))),
      Math.min(canvas.height - 1, Math.max(0, Math.round(y * scale))), 1, 1).data].slice(0, 3);
    return {box, left: at(box.x, box.y + box.height * 0.4), right: at(box.x + box.width, box.y + box.height * 0.4),
      bottom: at(box.x + box.width * 0.5, box.y + box.height)}; }); })()"""

# As in picture.js, by class.
COLOURS = """(() => {
  const colours = ["#ffd23f", "#4cc9f0", "#ff7096", "#80ed99", "#f4a261", "#c77dff", "#ffffff", "#90e0ef"];
  return colours.map((c) => [1, 3, 5].map((at) => parseInt(c.slice(at, at + 2), 16))); })()"""


class Checks:
    """What was found wrong, and how much was looked at."""

    def __init__(self) -> None:
        self.done = 0
        self.problems: list[str] = []

    def that(self, holds: bool, what: str) -> None:
        """Counts a check; one that does not hold is a problem."""
        self.done += 1
        print(f"  {'ok  ' if holds else 'FAIL'} {what}", flush=True)
        if not holds:
            self.problems.append(what)


class Live(Page):
    """A page of a server."""

    origin = ""

    def go(self, url: str) -> None:
        """Opens an address; the part behind # is a view of the page."""
        self.origin = url.split("/", 3)[0] + "//" + url.split("/", 3)[2]
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def wait(self, condition: str, seconds: float = PATIENCE) -> float:
        """Waits until an expression is true; seconds that took."""
        start = time.monotonic()
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() - start > seconds:
                raise BrowserError(f"not within {seconds:g} s: {condition}")
            time.sleep(0.05)
        return time.monotonic() - start

    def complaints(self) -> list[str]:
        """As for any page, but its own server may be asked."""
        own = f"request: {self.origin}/"
        return [text for text in super().complaints() if not text.startswith((own, "request: blob:"))]


@contextlib.contextmanager
def server(program: Path, folder: Path, *flags: str) -> Iterator[tuple[str, str, int]]:
    """A server that shows pictures: where cameras connect, its page, its pid."""
    token = folder / "token"
    token.write_text(TOKEN + "\n", encoding="ascii")
    token.chmod(0o600)
    preview = ["--preview", "--admin-token-file", str(token)]
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
            yield line.removeprefix("listening on ").strip(), f"http://{admin}", child.pid
        finally:
            child.terminate()
            child.wait(15)


@contextlib.contextmanager
def cameras(program: Path, addr: str, count: int, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """A fleet that sends until the block ends."""
    command = [program, "run", "--addr", addr, "--cameras", str(count), "--seconds", "600", "--quiet"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen([*command, "--self-test", "never", *flags], cwd=ROOT, **quiet)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait(10)


def metrics(url: str) -> dict[str, float]:
    """All series of /metrics."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def equal_to_metrics(page: Live, url: str, checks: Checks) -> None:
    """The page's figures against /metrics, asked right before and right after they were read."""
    wanted: dict[str, Callable[[dict[str, float]], float]] = {
        "cameras-connected": lambda m: m["vedette_streams"],
        "received": lambda m: m["vedette_frames_received_total"],
        "ok": lambda m: m['vedette_frames_total{outcome="ok"}'],
        "slowest-10s": lambda m: m['vedette_slowest_frame_seconds{window="10s"}'] * 1e3,
        "slowest-60s": lambda m: m['vedette_slowest_frame_seconds{window="60s"}'] * 1e3,
        "headroom": lambda m: m.get("vedette_headroom_cameras", float("nan")),
        "busy": lambda m: m["vedette_busy_ratio"],
    }
    # The page may be one event behind: a second at most.
    history = [metrics(url)]
    for _ in range(6):
        time.sleep(0.3)
        history.append(metrics(url))
    shown = page.evaluate(FIGURES)
    for name, read in wanted.items():
        values = [read(each) for each in history]
        slack = {"slowest-10s": 0.01, "slowest-60s": 0.01, "busy": 0.0051}.get(name, 0.0)
        value = float(shown[name] or "nan")
        inside = min(values) - slack <= value <= max(values) + slack
        checks.that(inside, f"{name}: the page says {value:g}, /metrics {min(values):g} to {max(values):g}")


def fleet(browser: Browser, url: str, pid: int, out: Path, checks: Checks) -> None:
    """The view of the whole fleet in every size and colour, and what it costs the server."""
    time.sleep(12)
    alone = cores(pid, 10)
    for view, (width, height, scheme, phone) in VIEWS.items():
        page = Live(browser, width, height, scheme, phone)
        page.go(f"{url}/")
        page.wait(f"document.querySelectorAll('a.camera').length === {CAMERAS}")
        page.wait("document.querySelector('path.slowest').getAttribute('d').length > 100")
        wide = page.evaluate("document.documentElement.scrollWidth")
        checks.that(wide <= width, f"{view}: {wide} pixels wide on a screen of {width}")
        ratio, text = page.evaluate(CONTRAST)
        checks.that(ratio >= LEAST_CONTRAST, f"{view}: least contrast {ratio:.1f} ({text})")
        if view == "light":
            equal_to_metrics(page, url, checks)
            watched = cores(pid, 10)
            cost = watched - alone
            checks.that(
                cost < MOST_PAGE_CORES,
                f"one open page costs the server {100 * cost:+.1f} % of a core ({100 * alone:.1f} without)",
            )
            keyboard(page, checks)
        page.picture(out / f"fleet-{view}.png")
        checks.that(not (said := page.complaints()), f"{view}: nothing on the console {said or ''}")
        page.close()


def cores(pid: int, seconds: float) -> float:
    """Cores that a process keeps busy."""
    start, before = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - start)


def keyboard(page: Live, checks: Checks) -> None:
    """Filter, order and the charts' read-out without a pointer."""
    page.evaluate("document.getElementById('filter').focus()")
    page.call("Input.insertText", text="0007")
    shown = page.evaluate(CARDS)
    checks.that([name for name, _ in shown] == ["sim-0007"], f"the filter shows {shown}")
    page.evaluate("(() => { const f = document.getElementById('filter'); f.value = ''; "
                  "f.dispatchEvent(new Event('input')); })()")
    page.evaluate("(() => { const o = document.getElementById('order'); o.value = 'name'; "
                  "o.dispatchEvent(new Event('change')); })()")
    names = [name for name, _ in page.evaluate(CARDS)]
    checks.that(names == sorted(names) and len(names) == CAMERAS, "ordered by name")
    page.evaluate("document.querySelector('svg.chart').focus()")
    page.press("ArrowLeft")
    page.press("ArrowLeft")
    said = page.evaluate("document.querySelector('.readout').textContent")
    checks.that(not said.startswith("last second") and "slowest" in said, f"arrow keys say {said!r}")


def picture_of_boxes(browser: Browser, url: str, camera: str, out: Path, checks: Checks) -> None:
    """A camera's page: the wrong token, the right one, boxes to the pixel, no fetching once nobody looks."""
    page = Live(browser, *VIEWS["light"])
    page.go(f"{url}/")
    page.wait(f"document.querySelector('[data-camera={camera}]')")
    page.evaluate("location.hash = '#/camera/nobody'")
    page.wait("document.getElementById('status').innerText.includes('no such camera')")
    checks.that(True, "a camera that is not there is said not to be")
    page.evaluate(f"location.hash = '#/camera/{camera}'")
    page.browser.events.clear()
    page.wait("document.querySelector('#token')?.offsetParent")
    give_token(page, "not-the-token-at-all")
    page.wait("document.querySelector('.picture').innerText.includes('not the operators')")
    checks.that(True, "a wrong token is said to be wrong")
    refused = [e for e in page.browser.events if e.get("method") == "Log.entryAdded"]
    # The browser itself logs the refusal; nothing else may have been said.
    said = [e["params"]["entry"]["text"] for e in refused if e.get("sessionId") == page.session]
    checks.that(all("401" in text for text in said), f"only the refusal is logged: {said}")
    page.browser.events.clear()
    give_token(page, TOKEN)
    page.wait("document.querySelector('canvas').dataset.boxes?.length > 4")
    colours = page.evaluate(COLOURS)
    edges = page.evaluate(EDGES)
    checks.that(len(edges) > 0, f"{len(edges)} boxes are drawn")
    for edge in edges:
        wanted = colours[edge["box"]["class_id"] % len(colours)]
        off = min(
            max(abs(a - b) for a, b in zip(edge[side], wanted, strict=True))
            for side in ("left", "right", "bottom")
        )
        where = {key: edge["box"][key] for key in ("label", "x", "y", "width", "height")}
        checks.that(off <= COLOUR_TOLERANCE, f"box at {where}: colour is off by {off}")
    for view in ("light", "dark", "phone"):
        width, height, scheme, phone = VIEWS[view]
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        time.sleep(1.5)
        wide = page.evaluate("document.documentElement.scrollWidth")
        checks.that(wide <= width, f"camera, {view}: {wide} pixels wide on a screen of {width}")
        ratio, text = page.evaluate(CONTRAST)
        checks.that(ratio >= LEAST_CONTRAST, f"camera, {view}: least contrast {ratio:.1f} ({text})")
        page.picture(out / f"camera-{view}.png")
    page.evaluate("location.hash = '#/'")
    page.wait("document.querySelector('.fleet')")
    time.sleep(0.5)
    page.browser.events.clear()
    time.sleep(1.5)
    page.evaluate("1")
    asked = [e for e in page.browser.events if "/picture" in json.dumps(e.get("params", {}).get("request", {}))]
    checks.that(not asked, "pictures are not fetched once the camera's page is left")
    checks.that(not (said := page.complaints()), f"nothing on the console {said or ''}")
    page.close()


def give_token(page: Live, token: str) -> None:
    """Types a token and presses Enter."""
    page.evaluate("document.getElementById('token').focus()")
    page.call("Input.insertText", text=token)
    page.evaluate("document.querySelector('.picture form').requestSubmit()")


def stale(browser: Browser, program: Path, addr: str, url: str, out: Path, checks: Checks) -> None:
    """A camera that stops, and a server that does."""
    page = Live(browser, *VIEWS["light"])
    page.go(f"{url}/")
    with cameras(program, addr, 1, "--fps", "10") as child:
        page.wait("document.querySelector('[data-camera=sim-0001][data-state=live]')")
        stopped(child, page, checks)
        page.picture(out / "fleet-stale.png")
    page.wait("document.querySelector('[data-camera=sim-0001][data-state=gone]')", 10)
    checks.that(True, "one that left is gone")
    page.close()


def stopped(child: subprocess.Popen[bytes], page: Live, checks: Checks) -> None:
    """Stops a camera without ending its connection."""
    import signal

    child.send_signal(signal.SIGSTOP)
    took = page.wait("document.querySelector('[data-camera=sim-0001][data-state=stale]')", 10)
    checks.that(took <= STALE_SECONDS, f"a camera that stops is stale after {took:.1f} s")
    child.send_signal(signal.SIGCONT)


def main() -> int:
    """Plays everything."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--bin", type=Path, default=ROOT / "target/release", help="folder of the programs")
    arguments.add_argument("--out", type=Path, default=ROOT / "target/live", help="folder for pictures")
    options = arguments.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sim, program, checks = options.bin / "client-sim", options.bin / "vedette-server", Checks()
    with tempfile.TemporaryDirectory() as work, Browser() as browser:
        print("30 cameras, a busy loop of 1 ms for a network", flush=True)
        with server(program, Path(work), "--backend", "spin", "--spin-ms", "1") as (addr, url, pid):
            with cameras(sim, addr, CAMERAS, "--fps", "10"):
                fleet(browser, url, pid, options.out, checks)
            stale(browser, sim, addr, url, options.out, checks)
        print("4 cameras with the default network", flush=True)
        with server(program, Path(work)) as (addr, url, _), cameras(sim, addr, 4, "--fps", "3"):
            picture_of_boxes(browser, url, "sim-0001", options.out, checks)
            page = Live(browser, *VIEWS["light"])
            page.go(f"{url}/")
            page.wait("document.querySelectorAll('a.camera').length === 4")
        page.wait("document.getElementById('status').dataset.kind === 'lost'", 10)
        checks.that(True, "a server that ends is said to be away")
        page.close()
    print(f"{checks.done} checks, pictures in {options.out}: ", end="")
    print("all fine" if not checks.problems else f"{len(checks.problems)} problems")
    return 1 if checks.problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BrowserError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"check-live: {error}")
