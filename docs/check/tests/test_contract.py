"""The page of the wire contract against the contract: planted differences are found."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contract import PAGE, PROTO, Unreadable, differences, read_page, read_proto

CONTRACT = """
// message NotOne { int32 x = 9; }
service S { rpc Play(stream Ask) returns (Tell); }
message Ask {
  // what it is
  uint64 id = 1;
  repeated string names = 2;
}
message Tell {}
enum Kind { GOOD = 0; BAD = 1; }
"""

DESCRIBED = """
### service `S`

| call | takes | answers | |
|---|---|---|---|
| `Play` | stream Ask | Tell | plays a game |

### message `Ask`

| field | number | type | unit |
|---|---|---|---|
| `id` | 1 | uint64 | any number |
| `names` | 2 | repeated string | two or more |

| word | with |
|---|---|
| `OTHER` | a table of something else |

### message `Tell`

No fields.

### enum `Kind`

| value | number | meaning |
|---|---|---|
| `GOOD` | 0 | all is well |
| `BAD` | 1 | it is not |

## Something else

| field | number | type | unit |
|---|---|---|---|
| `x` | 1 | uint64 | no part of it |
"""


def faults(page: str) -> list[str]:
    """All differences between a page and the small contract."""
    found, wrong = read_page(page)
    return wrong + differences(read_proto(CONTRACT), found)


class Small(unittest.TestCase):
    def test_a_page_that_says_the_same(self) -> None:
        self.assertEqual(faults(DESCRIBED), [])

    def test_planted_differences(self) -> None:
        for old, new, says in (
            ("| `id` | 1 |", "| `id` | 3 |", "Ask.id is 1 uint64, not 3 uint64"),
            ("| uint64 | any number |", "| uint32 | any number |", "not 1 uint32"),
            ("| `names` | 2 | repeated string | two or more |\n", "", "Ask.names is not described"),
            ("| `BAD` | 1 | it is not |", "| `BAD` | 1 | it is not |\n| `UGLY` | 2 | made up here |", "no part"),
            ("| `BAD` | 1 |", "| `BAD` | 2 |", "Kind.BAD is 1, not 2"),
            ("stream Ask | Tell", "Ask | Tell", "S.Play is stream Ask Tell"),
            ("### message `Tell`\n", "", "Tell is not described"),
            ("### enum `Kind`", "### message `Kind`", "Kind: the contract has the enum"),
            ("## Something else", "### message `Extra`", "Extra is no part"),
            ("| all is well |", "| |", "listed and not described"),
            ("| `GOOD` | 0 | all is well |\n", "| `GOOD` | 0 | all is well |\n" * 2, "twice"),
            ("| `id` |", "| id |", "backticks"),
        ):
            with self.subTest(says):
                self.assertIn(old, DESCRIBED)
                found = faults(DESCRIBED.replace(old, new))
                self.assertTrue(any(says in fault for fault in found), found)

    def test_what_cannot_be_read_is_said(self) -> None:
        for text in ("", "message A { oneof b { int32 c = 1; } }", "message A { map<string, int32> b = 1; }"):
            with self.assertRaises(Unreadable):
                read_proto(text)


class Real(unittest.TestCase):
    def test_every_part_of_the_contract_is_found(self) -> None:
        contract = read_proto(PROTO.read_text(encoding="utf-8"))
        self.assertEqual(contract["DetectRequest"].rows["image_data"], ("2", "bytes"))
        self.assertEqual(contract["ObjectDetection"].rows["DetectStream"][0], "stream DetectRequest")
        self.assertEqual(len(contract["Outcome"].rows), 8)
        self.assertIn("ServerInfoRequest", contract)

    def test_the_page_is_the_contract(self) -> None:
        page, wrong = read_page(PAGE.read_text(encoding="utf-8"))
        self.assertEqual(wrong + differences(read_proto(PROTO.read_text(encoding="utf-8")), page), [])


if __name__ == "__main__":
    unittest.main()
