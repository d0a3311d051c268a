"""Opens the pages of client-sim in a browser, and looks whether they work: `make check-pages`.

The sample reports are made into pages by client-sim; each is opened light and dark on a screen and on
a phone. Nothing may be said on the console or asked of the network, every chart must have a size, and
the pointer and the arrow keys must show values. Pictures of all of them go to the folder beside the
pages, to be looked at.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from chromium import Browser, BrowserError, Page

# Width and height in pixels, colour scheme, and whether it is a phone.
VIEWS = {
    "light": (1280, 900, "light", False),
    "dark": (1280, 900, "dark", False),
    "phone": (390, 844, "light", True),
    "phone-dark": (390, 844, "dark", True),
}

CHARTS = """[...document.querySelectorAll('svg.chart')].map((svg) => {
  const box = svg.getBoundingClientRect();
  const shown = getComputedStyle(svg).display !== 'none';
  return {name: svg.dataset.chart, shown, width: box.width, height: box.height,
          paths: svg.querySelectorAll('path').length, narrow: svg.classList.contains('narrow')};
})"""

TIP = """(() => { const tip = document.getElementById('tip');
  return tip.hidden ? '' : tip.innerText; })()"""

# Where a chart lies once it has been scrolled into view.
PLACE = """(() => { const svg = [...document.querySelectorAll('svg.chart')]
    .find((svg) => svg.dataset.chart === %r && getComputedStyle(svg).display !== 'none');
  svg.scrollIntoView({block: 'center'});
  const box = svg.getBoundingClientRect();
  return {x: box.x, y: box.y, width: box.width, height: box.height}; })()"""

FOCUS = """[...document.querySelectorAll('svg.chart')]
  .find((svg) => svg.dataset.chart === %r && getComputedStyle(svg).display !== 'none').focus()"""

# The text must stand out from what is behind it: the contrast of body and card, by WCAG.
CONTRAST = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92
      : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!/, 0\\)$/.test(colour) && colour !== 'transparent') return parse(colour);
    }
    return [255, 255, 255];
  };
  let worst = [99, ''];
  const texts = 'h1,h2,h3,p,dt,dd,small,td,th,li,footer,svg.chart text';
  for (const element of document.querySelectorAll(texts)) {
    const style = getComputedStyle(element);
    if (!element.textContent.trim() || element.getClientRects().length === 0) continue;
    if (element.classList.contains('in-bar')) continue;
    const ink = element.closest('svg') ? style.fill : style.color;
    const [a, b] = [light(parse(ink)), light(back(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, element.textContent.trim().slice(0, 40)];
  }
  return worst;
})()"""

# Least contrast of text by WCAG 2, level AA.
LEAST_CONTRAST = 4.5


def check_charts(page: Page, phone: bool) -> list[str]:
    """Every chart is there and has a size; one of its two layouts is shown."""
    problems = []
    shown = set()
    charts = page.evaluate(CHARTS)
    for chart in charts:
        if not chart["shown"]:
            continue
        shown.add(chart["name"])
        if chart["narrow"] != phone:
            problems.append(f"{chart['name']}: the wrong layout")
        if chart["width"] < 200 or chart["height"] < 60 or chart["paths"] == 0:
            problems.append(f"{chart['name']}: {chart}")
    missing = {chart["name"] for chart in charts} - shown
    if missing or not shown:
        problems.append(f"not shown: {missing or 'any chart'}")
    return problems


def check_read_outs(page: Page) -> list[str]:
    """The pointer over a chart shows a value, and leaving it hides it; so do the arrow keys."""
    problems = []
    names = {chart["name"] for chart in page.evaluate(CHARTS) if chart["shown"]}
    for name in sorted(names):
        place = page.evaluate(PLACE % name)
        page.move_to(place["x"] + place["width"] * 0.4, place["y"] + place["height"] * 0.45)
        tip = page.evaluate(TIP)
        if not any(character.isdigit() for character in tip):
            problems.append(f"{name}: the pointer shows {tip!r}")
        page.move_to(2, 2)
        if page.evaluate(TIP):
            problems.append(f"{name}: the read-out stays")
        page.evaluate(FOCUS % name)
        page.press("ArrowRight")
        if not page.evaluate(TIP):
            problems.append(f"{name}: the arrow keys show nothing")
        page.press("Escape")
    return problems


def check(browser: Browser, path: Path, view: str) -> list[str]:
    """Looks at one page in one view, and takes pictures of it."""
    width, height, scheme, phone = VIEWS[view]
    page = Page(browser, width, height, scheme, phone)
    page.open(path)
    problems = check_charts(page, phone)
    wide = page.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        problems.append(f"{wide} pixels wide on a screen of {width}")
    ratio, text = page.evaluate(CONTRAST)
    if ratio < LEAST_CONTRAST:
        problems.append(f"contrast {ratio:.2f} of {text!r}")
    page.picture(path.with_name(f"{path.stem}-{view}.png"))
    if not phone:
        problems += check_read_outs(page)
        chart = page.evaluate(CHARTS)[0]["name"]
        place = page.evaluate(PLACE % chart)
        page.move_to(place["x"] + place["width"] * 0.6, place["y"] + place["height"] * 0.5)
        page.picture(path.with_name(f"{path.stem}-{view}-pointer.png"), whole=False)
    problems += page.complaints()
    page.close()
    return [f"{path.name}, {view}: {problem}" for problem in problems]


def main() -> int:
    """Makes the pages and looks at them."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("client", type=Path, help="the program client-sim")
    arguments.add_argument("folder", type=Path, help="where the sample reports are")
    options = arguments.parse_args()
    problems = []
    reports = sorted(options.folder.glob("*.json"))
    if not reports:
        raise BrowserError(f"no sample reports in {options.folder}")
    with Browser() as browser:
        for report in reports:
            page = report.with_suffix(".html")
            command = [options.client, "report", report, "--html", page]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for view in VIEWS:
                problems += check(browser, page, view)
    for problem in problems:
        print(problem)
    pictures = len(list(options.folder.glob("*.png")))
    print(f"{len(reports)} pages, {pictures} pictures in {options.folder}: ", end="")
    print("all fine" if not problems else f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BrowserError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"check-pages: {error}")
