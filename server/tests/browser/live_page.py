"""A page of a server in headless Chromium, and what can be asked about how it looks."""

from __future__ import annotations

import base64
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "client-sim" / "tests" / "browser"))

from chromium import Browser, BrowserError, Page  # noqa: E402

__all__ = ["Browser", "BrowserError", "LivePage"]

# Seconds in which anything that is to happen on the page must have happened.
PATIENCE = 20.0

# Codes of keys: without them Chromium tells the page of a key, and does nothing with it itself.
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
        "ArrowDown": 40}

# Every element with words of its own: their contrast against what is behind them, by WCAG 2, with colours that
# are partly transparent mixed with what is behind those.
CONTRAST = """(() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const mix = (over, under) => [0, 1, 2].map((i) => over[i] * over[3] + under[i] * (1 - over[3])).concat(1);
  const light = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((under, over) => mix(over, under), [255, 255, 255, 1]);
  };
  const own = (e) => [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim());
  const fields = 'input, select, button';
  const all = [...document.querySelectorAll('body *')].filter((e) => (own(e) || e.matches(fields)) && e.getClientRects().length > 0
    && !e.closest('noscript, .unseen') && !e.matches('option'));
  const found = all.map((element) => {
    const style = getComputedStyle(element), back = behind(element);
    const ink = mix(parse(element.closest('svg') ? style.fill : style.color), back);
    const [a, b] = [light(ink), light(back)];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.textContent.trim().slice(0, 40)];
  });
  return [found.length, ...found.reduce((worst, each) => each[0] < worst[0] ? each : worst, [99, ''])];
})()"""

# Elements that reach beyond the window's sides.
WIDE = """(() => { const wide = document.documentElement.clientWidth;
  return [document.documentElement.scrollWidth - wide, [...document.querySelectorAll('body *')].filter((e) => {
    const box = e.getBoundingClientRect();
    return box.width > 0 && (box.right > wide + 1 || box.left < -1) && !e.closest('.skip, .table, .unseen, svg, pre'); })
    .map((e) => `${e.tagName}.${e.className}`).slice(0, 3)]; })()"""


class LivePage(Page):
    """A page of a server."""

    origin = ""

    def go(self, url: str) -> None:
        """Opens an address; the part behind # is a view of the page."""
        scheme, _, host, *_ = url.split("/")
        self.origin = f"{scheme}//{host}"
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def resize(self, width: int, height: int, phone: bool = False, ratio: float = 1.0) -> None:
        """Another window."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio, mobile=phone)

    def colours(self, scheme: str) -> None:
        """Light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme},
                    {"name": "prefers-reduced-motion", "value": "reduce"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def wait(self, condition: str, seconds: float = PATIENCE) -> float:
        """Waits until an expression is true; seconds that took."""
        start = time.monotonic()
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() - start > seconds:
                raise BrowserError(f"not within {seconds:g} s: {condition}")
            time.sleep(0.05)
        return time.monotonic() - start

    def text(self, selector: str) -> str:
        """What is to be read in an element."""
        return self.evaluate(f"document.querySelector({selector!r})?.innerText ?? ''")

    def press(self, key: str) -> None:
        """Presses a key, of those with a name or with a letter."""
        code = KEYS.get(key, ord(key[0].upper()))
        letters = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **letters)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Types a text where the focus is."""
        self.call("Input.insertText", text=text)


    def complaints(self) -> list[str]:
        """As for any page, but its own server may be asked, and what is logged is told in full."""
        own = (f"request: {self.origin}/", "request: blob:")
        return [text for text in super().complaints() if not text.startswith(own)]

    def events(self, method: str) -> list[dict[str, Any]]:
        """Parameters of all events of a kind that have come for this page."""
        self.evaluate("1")
        found = [event for event in self.browser.events if event.get("method") == method]
        return [event["params"] for event in found if event.get("sessionId") == self.session]

    def forget(self) -> None:
        """Starts again to count what the page says and asks."""
        self.evaluate("1")
        self.browser.events.clear()

    def answer(self, request: str) -> str:
        """The body of an answer that the page has got; only what is ASCII in it is told as it was."""
        body = self.call("Network.getResponseBody", requestId=request)
        return base64.b64decode(body["body"]).decode("latin-1") if body["base64Encoded"] else body["body"]

    def contrast(self) -> tuple[int, float, str]:
        """How many texts there are, and the one that stands out least."""
        number, ratio, text = self.evaluate(CONTRAST)
        return number, ratio, text

    def too_wide(self) -> tuple[int, list[str]]:
        """Pixels that the page is wider than the window, and elements that reach out of it."""
        more, elements = self.evaluate(WIDE)
        return more, elements

    def metrics(self) -> dict[str, float]:
        """Chromium's own figures of the page."""
        return {each["name"]: each["value"] for each in self.call("Performance.getMetrics")["metrics"]}
