"""The dashboards are sound, and what draws them draws what it is given."""

from __future__ import annotations

import itertools
import re
import struct
import sys
import unittest
import zlib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import queries
import render
import units

ROOT = Path(__file__).resolve().parents[3]
PROVISIONING = ROOT / "deploy" / "grafana" / "provisioning"
BOARDS = queries.dashboards()
COLUMNS = 24
KINDS = {"stat", "timeseries", "heatmap", "table", "row"}


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    """Whether two places share a cell."""
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )


class Dashboards(unittest.TestCase):
    def each_panel(self) -> list[tuple[str, dict[str, Any]]]:
        return [(name, panel) for name, board in BOARDS.items() for panel in queries.panels(board)]

    def test_there_are_two_with_identities_of_their_own(self) -> None:
        self.assertEqual(set(BOARDS), {"vedette.json", "vedette-camera.json"})
        self.assertEqual(len({board["uid"] for board in BOARDS.values()}), 2)
        links = {link["url"] for board in BOARDS.values() for link in board["links"]}
        self.assertEqual(links, {f"/d/{board['uid']}" for board in BOARDS.values()})

    def test_panels_have_ids_and_places_of_their_own(self) -> None:
        for name, board in BOARDS.items():
            ids = [panel["id"] for panel in board["panels"]]
            self.assertEqual(len(ids), len(set(ids)), name)
            for panel in board["panels"]:
                place = panel["gridPos"]
                self.assertIn(panel["type"], KINDS)
                self.assertGreaterEqual(place["x"], 0)
                self.assertLessEqual(place["x"] + place["w"], COLUMNS, panel["title"])
            for one, other in itertools.combinations(board["panels"], 2):
                both = f"{name}: {one['title']} and {other['title']}"
                self.assertFalse(overlap(one["gridPos"], other["gridPos"]), both)

    def test_panels_say_what_they_show_and_in_which_unit(self) -> None:
        panels = self.each_panel()
        self.assertGreater(len(panels), 30)
        for name, panel in panels:
            where = f"{name}: {panel['title']}"
            self.assertTrue(panel["description"], where)
            self.assertTrue(panel["fieldConfig"]["defaults"]["unit"], where)
            refs = [target["refId"] for target in panel["targets"]]
            self.assertEqual(len(refs), len(set(refs)), where)

    def test_everything_asks_the_chosen_data_source(self) -> None:
        for name, board in BOARDS.items():
            variables = {variable["name"] for variable in board["templating"]["list"]}
            self.assertTrue({"datasource", "job", "instance"} <= variables, name)
            asking = [*queries.panels(board), *board["annotations"]["list"]]
            asking += [target for panel in queries.panels(board) for target in panel["targets"]]
            asking += [v for v in board["templating"]["list"] if v["type"] == "query"]
            for one in asking:
                self.assertEqual(one["datasource"], {"type": "prometheus", "uid": "${datasource}"})

    def test_queries_use_declared_variables_and_known_metrics(self) -> None:
        for name, board in BOARDS.items():
            variables = {variable["name"] for variable in board["templating"]["list"]}
            asked = [query.expression for query in queries.all_queries(board)]
            asked += [series for _, _, series in queries.variables(board)]
            for expression in asked:
                used = set(re.findall(r"\$(\w+)", expression)) - {"__rate_interval", "__interval"}
                self.assertEqual(used - variables, set(), expression)
                metrics = queries.metrics_of(expression)
                self.assertTrue(metrics, expression)
                self.assertEqual(metrics - queries.known_metrics(), set(), f"{name}: {expression}")

    def test_series_of_the_server_are_asked_of_the_chosen_servers(self) -> None:
        for _, board in BOARDS.items():
            for query in queries.all_queries(board):
                for selector in re.findall(
                    r"\b(?:vedette|process)_\w+(\{[^}]*\})?", query.expression
                ):
                    self.assertIn("$instance", selector, query.expression)

    def test_the_limit_of_100_ms_is_drawn_where_answers_are(self) -> None:
        limits = {
            step["value"]
            for panel in queries.panels(BOARDS["vedette.json"])
            if panel["title"] in ("Slowest answer", "Slowest answer by server", "Time to an answer")
            for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        }
        self.assertEqual(limits, {None, 0.1})

    def test_what_is_provisioned_is_where_the_files_say(self) -> None:
        source = (PROVISIONING / "datasources" / "vedette.yml").read_text(encoding="utf-8")
        provider = (PROVISIONING / "dashboards" / "vedette.yml").read_text(encoding="utf-8")
        compose = (ROOT / "deploy" / "compose" / "compose.yaml").read_text(encoding="utf-8")
        self.assertIn("url: $PROMETHEUS_URL", source)
        self.assertIn("PROMETHEUS_URL:", compose)
        self.assertIn("path: /var/lib/grafana/dashboards", provider)
        self.assertIn("../grafana/dashboards:/var/lib/grafana/dashboards", compose)


class Asking(unittest.TestCase):
    def test_variables_are_replaced(self) -> None:
        text = 'rate(x{job=~"$job", camera=~"$camera"}[$__rate_interval])'
        self.assertEqual(queries.filled(text, "5s"), 'rate(x{job=~".+", camera=~".+"}[5s])')
        self.assertEqual(queries.filled('x{a="$job"}', "5s", {"job": "v"}), 'x{a="v"}')

    def test_metrics_are_found_and_recorded_series_are_none(self) -> None:
        text = 'sum(rate(vedette_frames_total{x="vedette_no"}[1m])) / up + vedette:frames:rate1m'
        self.assertEqual(queries.metrics_of(text), {"vedette_frames_total", "up"})


class Drawing(unittest.TestCase):
    def test_units(self) -> None:
        for value, unit, text in (
            (0.0412, "s", "41.2 ms"), (864000, "s", "10 d"), (0, "s", "0 s"), (1.5, "s", "1.5 s"),
            (0.853, "percentunit", "85.3 %"), (142 * 2**20, "bytes", "142 MiB"),
            (12.34, "suffix:/s", "12.3 /s"), (1234, "short", "1234"), (-3, "short", "-3"),
        ):  # fmt: skip
            self.assertEqual(units.shown(value, unit), text)

    def test_axes_have_round_values(self) -> None:
        self.assertEqual(render.ticks(0, 0.11), [0, 0.05, 0.1])
        self.assertEqual(render.ticks(0, 4.0), [0, 1, 2, 3, 4])
        self.assertEqual([v / 2**20 for v in render.ticks(0, 90 * 2**20, "bytes")], [0, 25, 50, 75])

    def test_stacks_lie_on_each_other(self) -> None:
        plot = render.Plot((200, 100), (0, 1), 10)
        lines = [("a", [(0.0, 2.0), (1.0, 3.0)]), ("b", [(0.0, 4.0), (1.0, 5.0)])]
        self.assertEqual(render.highest(lines, stack=True), 8)
        self.assertEqual(render.highest(lines, stack=False), 5)
        render.stacked(plot, lines, {"a": "#111111", "b": "#222222"})
        second = plot.parts[1]
        self.assertIn(f"{plot.x(1):.1f},{plot.y(8):.1f}", second)
        self.assertIn(f"{plot.x(1):.1f},{plot.y(3):.1f}", second)

    def test_values_take_the_colour_of_their_threshold(self) -> None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": 0.1}]
        panel = {"fieldConfig": {"defaults": {"unit": "s", "thresholds": {"steps": steps}}}}
        for value, colour in ((0.05, "green"), (0.1, "red"), (0.3, "red")):
            self.assertIn(render.NAMED[colour], render.stat(panel, [("", [(0.0, value)])]))

    def test_text_is_no_markup(self) -> None:
        plot = render.Plot((200, 100), (0, 1), 10)
        plot.words(0, 0, "<script>", "end")
        self.assertNotIn("<script>", plot.svg())
        self.assertIn("&lt;b&gt;", render.key({"<b>": "#111111"}, []))

    def test_a_picture_is_packed_and_stays_the_same(self) -> None:
        def chunk(kind: bytes, body: bytes) -> bytes:
            crc = zlib.crc32(kind + body)
            return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)

        rows = b"".join(b"\0" + bytes(300) for _ in range(100))
        packed = zlib.compress(rows, 0)
        header = struct.pack(">IIBBBBB", 100, 100, 8, 2, 0, 0, 0)
        half = len(packed) // 2
        png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed[:half])
        png += chunk(b"IDAT", packed[half:]) + chunk(b"IEND", b"")
        small = render.smaller(png)
        self.assertLess(len(small), len(png) // 10)
        at = small.index(b"IDAT")
        size = int.from_bytes(small[at - 4 : at], "big")
        self.assertEqual(zlib.decompress(small[at + 4 : at + 4 + size]), rows)
        self.assertTrue(small.endswith(chunk(b"IEND", b"")))


if __name__ == "__main__":
    unittest.main()
