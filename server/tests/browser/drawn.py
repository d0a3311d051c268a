"""Whether what is drawn on the canvas is what the answer says: read from its pixels."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from live_page import BrowserError, LivePage

# Share of a box's outline that must be seen in the box's own colour: labels and other boxes cover the rest.
LEAST_OUTLINE = 0.4
# Share that may be met by chance where no box is.
MOST_ELSEWHERE = 0.15
# Share of the picture that boxes and labels may cover.
MOST_COVERED = 0.12
# Pixels of the canvas by which the outline is moved to see that it is not found elsewhere.
ELSEWHERE = 5
# Pixels of the canvas between two places at which the picture itself is looked at.
RASTER = 16

# The canvas' pixels under each box's outline, moved by so much to the inside: shares that have its colour.
OUTLINES = """(async () => {
  const { colour } = await import('/ui/picture.js');
  const canvas = document.querySelector('canvas'), copy = new OffscreenCanvas(canvas.width, canvas.height);
  const pen = copy.getContext('2d', { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
  const { boxes, scale } = { boxes: %s, scale: Number(canvas.dataset.scale) };
  const moved = %d;
  const at = (x, y) => { const i = 4 * (y * canvas.width + x); return [data[i], data[i + 1], data[i + 2]]; };
  const within = (v, most) => Math.min(most - 1, Math.max(1, Math.round(v)));
  return boxes.map((box) => {
    const own = [1, 3, 5].map((i) => parseInt(colour(box).slice(i, i + 2), 16));
    const [left, right] = [within(box.x * scale, canvas.width) + moved, within((box.x + box.width) * scale, canvas.width) - moved];
    const [top, bottom] = [within(box.y * scale, canvas.height) + moved, within((box.y + box.height) * scale, canvas.height) - moved];
    let [hits, all] = [0, 0];
    const look = (x, y) => { all += 1; hits += at(x, y).every((v, i) => Math.abs(v - own[i]) <= 2) ? 1 : 0; };
    for (let x = left; x <= right; x += 1) { look(x, top); look(x, bottom); }
    for (let y = top + 1; y < bottom; y += 1) { look(left, y); look(right, y); }
    return [hits / all, canvas.width, canvas.height];
  });
})()"""

# The canvas' pixels on a raster, as rows of colours.
PICTURE = """(() => { const canvas = document.querySelector('canvas'), copy = new OffscreenCanvas(canvas.width, canvas.height);
  const pen = copy.getContext('2d', { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height), found = [];
  for (let y = 8; y < canvas.height; y += %d) for (let x = 8; x < canvas.width; x += %d) {
    const i = 4 * (y * canvas.width + x); found.push([x, y, data[i], data[i + 1], data[i + 2]]); }
  return { scale: Number(canvas.dataset.scale), found }; })()"""

Caption = dict[str, Any]


def answers(page: LivePage) -> dict[int, Caption]:
    """Captions of the pictures that the page was sent and that the browser still has, by their number."""
    found: dict[int, Caption] = {}
    for event in page.events("Network.responseReceived")[-20:]:
        if "/picture?" not in event["response"]["url"] or event["response"]["status"] != 200:
            continue
        try:
            body = page.answer(event["requestId"])
        except BrowserError:
            continue
        # Behind four bytes of length, before the picture's bytes.
        caption, _ = json.JSONDecoder().raw_decode(body, body.index('{"'))
        found[caption["seq"]] = caption
    return found


def shown(page: LivePage) -> tuple[int, list[dict[str, Any]]]:
    """Number and boxes of the picture on the canvas, as its data says."""
    seq, boxes = page.evaluate("(() => { const { seq, boxes } = document.querySelector('canvas').dataset; return [seq, boxes]; })()")
    return int(seq), json.loads(boxes)


def outlines(page: LivePage, boxes: list[dict[str, Any]], moved: int = 0) -> list[float]:
    """Share of each box's outline that is drawn in its colour; moved inwards by so many pixels."""
    script = OUTLINES % (json.dumps(boxes), moved)
    answer = page.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
    if "exceptionDetails" in answer:
        raise BrowserError(f"outlines: {answer['exceptionDetails']}")
    return [share for share, *_ in answer["result"]["value"]]


def check_boxes(page: LivePage, that: Callable[[bool, str], None], name: str) -> Caption:
    """The canvas against the answer that the page was sent. The page must be paused."""
    seq, boxes = shown(page)
    caption = answers(page).get(seq)
    if caption is None:
        raise BrowserError(f"picture {seq} is on the page, and not among the answers that it got")
    that(boxes == caption["objects"], f"{name}: picture {seq} has the {len(caption['objects'])} boxes of its answer")
    for box, share in zip(caption["objects"], outlines(page, caption["objects"]), strict=True):
        where = [box[key] for key in ("x", "y", "width", "height")]
        that(share >= LEAST_OUTLINE, f"{name}: {box['label']} at {where} is drawn there ({share:.0%} of its outline)")
    large = [box for box in caption["objects"] if min(box["width"], box["height"]) >= 40]
    for box, share in zip(large, outlines(page, large, ELSEWHERE), strict=True):
        that(share <= MOST_ELSEWHERE, f"{name}: {box['label']} is not drawn {ELSEWHERE} pixels beside ({share:.0%})")
    return caption


def check_picture(page: LivePage, rows: list[bytes], that: Callable[[bool, str], None], name: str) -> None:
    """The picture itself against its rows of RGB, wherever no box and no label is."""
    drawn = page.evaluate(PICTURE % (RASTER, RASTER))
    scale, found = drawn["scale"], drawn["found"]
    right = 0
    for x, y, *colour in found:
        column, row = min(len(rows[0]) // 3 - 1, int(x / scale)), min(len(rows) - 1, int(y / scale))
        right += bytes(colour) == rows[row][3 * column: 3 * column + 3]
    share = right / len(found)
    that(share >= 1 - MOST_COVERED, f"{name}: {share:.1%} of {len(found)} places show the picture's own pixel")
