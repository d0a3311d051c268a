"""The live page against a fleet on paper: what a real one seldom does.

256 cameras, a server that dies and returns, names of outcomes that are markup, pictures known to the pixel.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from drawn import check_boxes, check_picture
from live_page import Browser, LivePage
from looks import LEAST_CONTRAST, SIZES, Checks, looks, opened, silent
from mock_fleet import HOSTILE, MockFleet, moved_objects, painted
from mock_live import TOKEN, MockServer

# Seconds within which a camera that stops must be stale on the page.
STALE_SECONDS = 3.0
LOST_SECONDS = 4.0
# What a page may cost its viewer, as a share of a core, at 30 and at 256 cameras.
MOST_COST = {30: 0.15, 256: 0.5}
COST_SECONDS = 10.0
# Pictures per second that the page may fetch.
MOST_PICTURES = 5.2

CAMERAS = "[...document.querySelectorAll('a.camera')].map((card) => card.dataset.camera)"
CARD = "document.querySelector('a.camera[data-camera=\"%s\"]')"
FIGURES = """Object.fromEntries([...document.querySelectorAll('#view [data-key]')]
  .map((element) => [element.dataset.key, element.dataset.value]))"""


def figures(page: LivePage, checks: Checks) -> None:
    """Every figure of the fleet is the one of the last event."""
    time.sleep(2.5)
    page.forget()
    page.wait("true")
    for _ in range(40):
        if events := page.events("Network.eventSourceMessageReceived"):
            break
        time.sleep(0.05)
    event = json.loads(events[-1]["data"])
    shown = page.evaluate(FIGURES)
    wanted: dict[str, Any] = {
        "cameras-connected": event["cameras"]["connected"], "answered": event["rates"]["answered"],
        "dropped": event["rates"]["dropped"], "slowest-10s": event["slowest_ms"]["10s"],
        "slowest-60s": event["slowest_ms"]["60s"], "headroom": event["headroom"], "busy": event["busy"],
        "memory": event["memory_bytes"], "received": event["frames"]["received"], **event["frames"]["outcomes"],
        **{f"stage-{name}": cores for name, cores in event["stage_cores"].items()},
    }
    for name, value in wanted.items():
        told = shown.get(name, "missing")
        same = told == "" if value is None else told not in ("", "missing") and abs(float(told) - value) < 1e-9
        checks.that(same, f"figure {name}: {told}")
    checks.that("cameras" in page.evaluate("document.title"), f"title: {page.evaluate('document.title')}")


def cost(page: LivePage, checks: Checks, cameras: int) -> None:
    """What the page costs its viewer: Chromium's own count of the main thread's time."""
    before = page.metrics()
    time.sleep(COST_SECONDS)
    after = page.metrics()
    spent = {name: after[name] - before[name] for name in ("TaskDuration", "ScriptDuration", "LayoutDuration", "RecalcStyleDuration")}
    share = spent["TaskDuration"] / COST_SECONDS
    parts = ", ".join(f"{name.removesuffix('Duration')} {1e3 * value / COST_SECONDS:.0f}" for name, value in spent.items())
    heap = after["JSHeapUsedSize"] / 1e6
    checks.that(share <= MOST_COST[cameras], f"{cameras} cameras cost the browser {share:.1%} of a core (ms per second: {parts}), heap {heap:.1f} MB")


def silence(page: LivePage, fleet: MockFleet, checks: Checks) -> None:
    """A camera that stops, one that leaves, and one that is back."""
    fleet.stop("cam-017")
    took = page.wait(f"{CARD % 'cam-017'}.dataset.state === 'stale'", 8)
    checks.that(took <= STALE_SECONDS, f"a camera that stops is stale after {took:.1f} s")
    words = page.text("a.camera[data-camera='cam-017'] .state")
    sign = page.evaluate("getComputedStyle(document.querySelector('[data-camera=\"cam-017\"] .state'), '::before').content")
    checks.that("stale" in words and "▲" in sign, f"it says so by word and shape: {sign} {words}")
    page.wait(f"{CAMERAS}[0] === 'cam-017'", 3)
    checks.that("1 camera has gone silent" in page.text("h1") or "late" in page.text("h1"), f"the headline: {page.text('h1')}")
    checks.that("stale" in page.evaluate("document.title"), f"title: {page.evaluate('document.title')}")
    fleet.leave("cam-018")
    page.wait(f"{CARD % 'cam-018'}.dataset.state === 'gone'", 3)
    checks.that("gone" in page.text("a.camera[data-camera='cam-018'] .state"), "one that leaves is gone")
    fleet.resume("cam-017")
    took = page.wait(f"{CARD % 'cam-017'}.dataset.state === 'live'", 4)
    checks.that(True, f"one that sends again is live after {took:.1f} s")
    fleet.resume("cam-018")


def held(page: LivePage, fleet: MockFleet, checks: Checks) -> None:
    """Cards stay where they are while the pointer is over them."""
    place = page.evaluate("(() => { document.querySelector('a.camera').scrollIntoView({block: 'center'}); "
                          "const b = document.querySelector('a.camera').getBoundingClientRect(); return [b.x + 40, b.y + 40]; })()")
    page.move_to(*place)
    before = page.evaluate(CAMERAS)
    fleet.stop(before[12])
    page.wait(f"{CARD % before[12]}.dataset.state === 'stale'", 6)
    checks.that(page.evaluate(CAMERAS) == before, "cards keep their places under the pointer")
    checks.that("held" in page.text(".none"), f"and the page says so: {page.text('.none')}")
    page.move_to(2, 2)
    page.wait(f"{CAMERAS}[0] === {before[12]!r}", 3)
    checks.that(True, "they move once it has left")
    fleet.resume(before[12])
    page.evaluate("scrollTo(0, 0)")


def keyboard(page: LivePage, checks: Checks) -> None:
    """Filter, order, cards, a camera and back, and a chart's read-out without a pointer."""
    page.evaluate("document.activeElement.blur()")
    page.press("/")
    checks.that(page.evaluate("document.activeElement.id") == "filter", "/ goes to the filter")
    page.type("01 ok")
    shown = page.evaluate(CAMERAS)
    checks.that(set(shown) == {f"cam-{n:03}" for n in (1, *range(10, 20))}, f"the filter shows {len(shown)} of 30")
    page.press("Escape")
    checks.that(len(page.evaluate(CAMERAS)) == 30, "Escape empties the filter")
    page.press("Tab")
    checks.that(page.evaluate("document.activeElement.id") == "order", "Tab goes to the order")
    page.press("ArrowDown")
    checks.that(page.evaluate(CAMERAS) == sorted(page.evaluate(CAMERAS)), "the arrow orders by name")
    page.press("ArrowDown")
    order = page.evaluate("[...document.querySelectorAll('a.camera')].map((c) => parseFloat(c.querySelectorAll('.numbers b')[1].textContent))")
    checks.that(order == sorted(order, reverse=True) and order[0] > order[-1], f"and by the slowest answer: {order[:3]}")
    page.press("ArrowUp")
    page.press("Tab")
    page.press("Tab")
    checks.that(page.evaluate("document.activeElement.dataset.camera") == "cam-002", "Tab goes from card to card")
    page.press("Enter")
    page.wait("document.querySelector('.one [data-key=fps]')?.dataset.value > 0")
    checks.that(page.text("h1 .name") == "cam-002", "Enter opens a camera")
    checks.that("All cameras" in page.evaluate("document.activeElement.textContent"), "the focus is on the way back")
    page.press("Enter")
    page.wait("document.activeElement.dataset.camera === 'cam-002'")
    checks.that(True, "Enter goes back, to the card that was left")
    page.evaluate("document.getElementById('order').value = 'trouble'; document.getElementById('order').dispatchEvent(new Event('change'))")
    page.evaluate("document.activeElement.blur()")


def read_outs(page: LivePage, checks: Checks) -> None:
    """Pointer and arrow keys on each chart, and the table beside it."""
    for at in range(page.evaluate("document.querySelectorAll('svg.chart').length")):
        figure = f"document.querySelectorAll('figure')[{at}]"
        readout = f"{figure}.querySelector('.readout').textContent"
        x, y, width = page.evaluate(f"(() => {{ const s = {figure}.querySelector('svg'); s.scrollIntoView({{block: 'center'}}); "
                                    "const b = s.getBoundingClientRect(); return [b.x, b.y + b.height / 2, b.width]; })()")
        page.move_to(x + width * 0.5, y)
        middle = page.evaluate(readout)
        page.move_to(2, 2)
        left = page.evaluate(readout)
        checks.that(middle[2] == ":" and left.startswith("last second"), f"chart {at}: the pointer reads out {middle!r}")
        page.evaluate(f"{figure}.querySelector('svg').focus()")
        page.press("End")
        end = page.evaluate(readout)
        page.press("ArrowLeft")
        before = page.evaluate(readout)
        checks.that(end[:8] > before[:8] and before[2] == ":", f"chart {at}: the arrow reads out {before!r}")
        page.press("Escape")
        page.evaluate(f"{figure}.querySelector('summary').click()")
        page.wait(f"{figure}.querySelectorAll('tbody tr').length > 0", 3)
        label = page.evaluate(f"{figure}.querySelector('svg').getAttribute('aria-label')")
        checks.that("five minutes" in label, f"chart {at}: its table has rows, its name says {label!r}")
        page.evaluate(f"{figure}.querySelector('summary').click()")
    page.evaluate("scrollTo(0, 0)")


def outage(page: LivePage, server: MockServer, checks: Checks, out: Path) -> MockServer:
    """A server that dies and returns."""
    port, fleet = server.server_address[1], server.fleet
    server.kill()
    took = page.wait("document.getElementById('status').dataset.kind === 'lost'", 8)
    checks.that(took <= LOST_SECONDS, f"a server that dies is said to be lost after {took:.1f} s")
    page.wait("document.querySelector('#banner p').textContent.includes('Nothing has come for 3 s')", 8)
    checks.that("lost" in page.text("h1").lower() and "lost" in page.evaluate("document.title"), f"the page says: {page.text('h1')}: {page.text('#banner p')}")
    _, ratio, text = page.contrast()
    checks.that(ratio >= LEAST_CONTRAST, f"contrast while lost {ratio:.2f} ({text!r})")
    page.picture(out / "lost-screen-light.png")
    noise = [each for each in page.complaints() if "ERR_" not in each]
    checks.that(not noise, f"only the browser's own words about the connection on the console {noise or ''}")
    page.forget()
    again = MockServer(fleet, port)
    took = page.wait("document.getElementById('status').dataset.kind === 'ready'", 8)
    checks.that(took <= LOST_SECONDS, f"a server that is back is there after {took:.1f} s")
    checks.that(not page.evaluate("document.getElementById('view').classList.contains('old')"), "and its figures are new")
    page.forget()
    return again


def readiness(page: LivePage, fleet: MockFleet, checks: Checks) -> None:
    """A server that is not ready, and headroom that nobody knows yet."""
    fleet.ready, fleet.known_headroom = False, False
    page.wait("document.querySelector('h1').textContent.startsWith('Not ready')", 4)
    checks.that("shutting down" in page.text("h1") and "not ready" in page.text("#status"), f"not ready: {page.text('h1')}")
    tile = page.evaluate("document.querySelector('[data-key=headroom]').closest('.figure').innerText")
    checks.that("not known until" in tile, f"headroom: {tile.splitlines()}")
    fleet.ready, fleet.known_headroom = True, True
    page.wait("document.getElementById('status').dataset.kind === 'ready'", 4)


def hostile(browser: Browser, server: MockServer, checks: Checks) -> None:
    """What a client had the server say stays text; names that are none are said to be unknown."""
    server.fleet.refuse("cam-004", 45)
    page = opened(browser, server.url, "#/camera/cam-004")
    page.wait("document.querySelector('.refusal').innerText.length > 9")
    checks.that(HOSTILE in page.text(".refusal"), f"markup stays text: {page.text('.refusal')}")
    made = page.evaluate("document.querySelectorAll('#view img, #view script').length")
    checks.that(made == 0 and not page.events("Page.javascriptDialogOpening"), "and makes no element and no dialogue")
    silent(page, checks, "hostile words")
    page.evaluate("location.hash = '#/camera/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E'")
    page.wait("document.getElementById('status').innerText.includes('no such camera')")
    page.evaluate("location.hash = '#/camera/%E0%A4%A'")
    page.wait("document.getElementById('status').innerText.includes('no such camera')")
    checks.that(page.evaluate("document.querySelectorAll('#view img').length") == 0, "a camera that is not there, by hostile and by broken names")
    page.close()
    server.fleet.refuse("cam-004", 0)


def token(page: LivePage, secret: str) -> None:
    """Types a token and presses Enter."""
    page.wait("document.querySelector('#token')?.offsetParent")
    page.evaluate("document.getElementById('token').focus()")
    page.type(secret)
    page.press("Enter")


def asked(page: LivePage, seconds: float) -> int:
    """Requests for pictures in so many seconds."""
    page.forget()
    time.sleep(seconds)
    return sum("/picture?" in event["request"]["url"] for event in page.events("Network.requestWillBeSent"))


def picture(browser: Browser, server: MockServer, checks: Checks, out: Path) -> None:
    """Tokens, boxes to the pixel, and when pictures are fetched."""
    page = opened(browser, server.url, "#/camera/cam-006")
    token(page, "wrong")
    page.wait("document.querySelector('.picture').innerText.includes('not the operators')")
    checks.that(page.evaluate("document.querySelector('#token').offsetParent !== null"), f"a wrong token: {page.text('.picture .note')}")
    noise = [each for each in page.complaints() if "401" not in each]
    checks.that(not noise, f"only the refusal is logged {noise or ''}")
    page.picture(out / "token-screen-light.png")
    page.forget()
    token(page, TOKEN)
    page.wait("document.querySelector('canvas').dataset.seq > 3")
    stored = page.evaluate("[localStorage.length, document.cookie, location.href]")
    checks.that(stored[:2] == [0, ""] and TOKEN not in stored[2], "the token is in no cookie, no address, no lasting storage")
    number = asked(page, 5.0)
    checks.that(5 <= number <= MOST_PICTURES * 5, f"{number / 5:.1f} pictures a second are fetched")
    for ratio in (1.0, 2.0):
        page.resize(*SIZES["screen"], ratio=ratio)
        page.wait("true")
        time.sleep(0.8)
        pause(page)
        caption = check_boxes(page, checks.that, f"{ratio:g} pixels per pixel")
        check_picture(page, painted(moved_objects(caption["seq"])), checks.that, f"{ratio:g} pixels per pixel")
        checks.that(page.evaluate("document.querySelector('canvas').dataset.frameId") == caption["frame_id"], f"frame {caption['frame_id']}, to the last digit")
        if ratio == 1.0:
            checks.that(asked(page, 1.5) == 0, "nothing is fetched while paused")
        resume(page)
    page.resize(*SIZES["screen"])
    other = LivePage(browser, 800, 600, "light", False)
    browser.call("Target.activateTarget", targetId=other.target)
    page.wait("document.hidden", 5)
    time.sleep(0.5)
    checks.that(asked(page, 2.5) == 0, "nothing is fetched while the tab is hidden")
    browser.call("Target.activateTarget", targetId=page.target)
    other.close()
    page.wait("!document.hidden", 5)
    checks.that(asked(page, 2.0) > 3, "and again once it is seen")
    silent(page, checks, "camera")
    looks(page, checks, "camera", out)
    page.evaluate("location.hash = '#/'")
    page.wait("document.querySelector('.fleet')")
    time.sleep(0.5)
    checks.that(asked(page, 2.0) == 0, "nothing is fetched once the camera is left")
    page.evaluate("location.hash = '#/camera/cam-006'")
    page.wait("document.querySelector('canvas').dataset.seq > 3")
    page.evaluate("[...document.querySelectorAll('.picture button')].find((b) => b.textContent.startsWith('Forget')).click()")
    kept = page.evaluate("sessionStorage.getItem('vedette-token')")
    checks.that(kept is None and page.evaluate("document.querySelector('canvas').offsetParent === null"), "a token that is forgotten is gone, and the picture too")
    token(page, TOKEN)
    server.fleet.broken_pictures = True
    page.wait("document.querySelector('.picture .note').innerText.includes('cannot show')")
    time.sleep(0.5)
    pause(page)
    check_boxes(page, checks.that, "a picture that no browser knows")
    resume(page)
    server.fleet.broken_pictures = False
    server.fleet.preview = False
    page.wait("document.querySelector('.picture').innerText.includes('--preview --admin-token-file')", 4)
    checks.that(page.evaluate("document.querySelector('#token').offsetParent === null"), "with pictures off, the page says how to turn them on")
    page.picture(out / "off-screen-light.png")
    server.fleet.preview = True
    page.close()


def pause(page: LivePage) -> None:
    """Presses the button that stops the pictures, and waits for what is under way."""
    page.evaluate("[...document.querySelectorAll('.picture button')].find((b) => b.textContent === 'Pause').click()")
    time.sleep(0.3)


def resume(page: LivePage) -> None:
    """Lets them go on."""
    page.evaluate("[...document.querySelectorAll('.picture button')].find((b) => b.textContent === 'Go on').click()")
    time.sleep(0.3)


def on_paper(browser: Browser, checks: Checks, out: Path) -> None:
    """All of it."""
    print("30 cameras on paper", flush=True)
    server = MockServer(MockFleet(30))
    page = opened(browser, server.url)
    page.wait("document.querySelectorAll('a.camera').length === 30")
    server.fleet.more_dropped = 1.7
    figures(page, checks)
    server.fleet.more_dropped = 0.0
    cost(page, checks, 30)
    silence(page, server.fleet, checks)
    held(page, server.fleet, checks)
    keyboard(page, checks)
    read_outs(page, checks)
    readiness(page, server.fleet, checks)
    server.fleet.stop("cam-009")
    server.fleet.leave("cam-021")
    server.fleet.refuse("cam-004", 45)
    time.sleep(3)
    looks(page, checks, "fleet", out)
    silent(page, checks, "fleet")
    server = outage(page, server, checks, out)
    silent(page, checks, "after the outage")
    page.close()
    server.fleet.refuse("cam-004", 0)
    hostile(browser, server, checks)
    picture(browser, server, checks, out)
    server.kill()
    for cameras in (256, 1, 0):
        print(f"{cameras} cameras on paper", flush=True)
        server = MockServer(MockFleet(cameras))
        page = opened(browser, server.url)
        page.wait(f"document.getElementById('status').dataset.kind === 'ready' && document.querySelectorAll('a.camera').length === {cameras}")
        if cameras == 256:
            time.sleep(2)
            cost(page, checks, cameras)
        looks(page, checks, f"fleet{cameras}", out)
        silent(page, checks, f"{cameras} cameras")
        page.close()
        server.kill()
