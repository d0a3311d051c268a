"""What every view of the live page is looked at for: widths, contrast, silence; and pictures of it."""

from __future__ import annotations

import time
from pathlib import Path

from live_page import Browser, LivePage

# Least contrast of text by WCAG 2, level AA.
LEAST_CONTRAST = 4.5

# Texts that any view has at least: fewer, and it has not been drawn.
LEAST_TEXTS = 20

# Width, height, phone.
SIZES = {"phone": (390, 844, True), "tablet": (768, 1024, False), "screen": (1280, 900, False)}


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


def opened(browser: Browser, url: str, view: str = "") -> LivePage:
    """A page on a screen, told to be light and without motion."""
    page = LivePage(browser, *SIZES["screen"][:2], "light", False)
    page.call("Performance.enable")
    page.colours("light")
    page.go(f"{url}/{view}")
    return page


def silent(page: LivePage, checks: Checks, name: str) -> None:
    """No error, no word on the console, no request to anywhere else."""
    complaints = page.complaints()
    checks.that(not complaints, f"{name}: nothing on the console, nothing asked of others {complaints or ''}")


def looks(page: LivePage, checks: Checks, name: str, out: Path) -> None:
    """Widths, contrasts and a picture in each size and colour."""
    for size, (width, height, phone) in SIZES.items():
        page.resize(width, height, phone)
        for scheme in ("light", "dark"):
            page.colours(scheme)
            time.sleep(0.4)
            more, wide = page.too_wide()
            checks.that(more <= 0 and not wide, f"{name}, {size}, {scheme}: as wide as the window {[more, *wide] if more > 0 or wide else ''}")
            number, ratio, text = page.contrast()
            checks.that(number > LEAST_TEXTS and ratio >= LEAST_CONTRAST, f"{name}, {size}, {scheme}: {number} texts, least contrast {ratio:.2f} ({text!r})")
            page.picture(out / f"{name}-{size}-{scheme}.png")
    page.resize(*SIZES["screen"])
    page.colours("light")
    time.sleep(0.3)
