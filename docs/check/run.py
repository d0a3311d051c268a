#!/usr/bin/env python3
"""Runs the commands of the pages and looks at their files: every fenced block of the repository's Markdown
in sh, bash, console, python, toml, yaml and json. README.md beside this file has the marks.

Exit code 0 when no block fails, 1 when one does, 2 when nothing could be run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import environment
from blocks import Block, pages, read_pages
from rules import decide
from runner import Result, Setting, run_all

OUT = environment.ROOT / "target" / "docs"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    made.add_argument("pages", nargs="*", type=Path, help="only these files; all when none is named")
    made.add_argument("--all", action="store_true", help="the slow blocks too, and all as long as written")
    made.add_argument(
        "--bin",
        type=Path,
        default=environment.ROOT / "target" / "release",
        help="folder of vedette-server and client-sim (target/release)",
    )
    made.add_argument("--list", action="store_true", help="name the blocks and what is done with each, run none; 1 for a block without a mark")
    made.add_argument("--keep", action="store_true", help="leave the blocks' folders in target/docs")
    made.add_argument("--verbose", action="store_true", help="say what was put in place of a page's words")
    return made


def show(result: Result, verbose: bool) -> None:
    """A line for a block, and what was wrong with it."""
    block = result.block
    line = f"{block.place:<34} {result.verdict:<8} {result.seconds:6.1f} s  {block.kind}"
    if result.verdict == "NOT RUN":
        line += f": {result.detail}"
    print(line, flush=True)
    if verbose and result.substitutions:
        print(f"    put in: {'; '.join(result.substitutions)}")
    if result.verdict == "FAIL":
        print("\n".join(f"    {part}" for part in result.detail.splitlines()), flush=True)


def write(results: list[Result], every: bool, seconds: float) -> Path:
    """The report as JSON."""
    path = OUT / "blocks.json"
    rows = [
        {
            "page": result.block.page,
            "line": result.block.line,
            "kind": result.block.kind,
            "verdict": result.verdict,
            "detail": result.detail,
            "action": result.action,
            "seconds": round(result.seconds, 2),
            "substitutions": result.substitutions,
        }
        for result in results
    ]
    whole = {"all": every, "seconds": round(seconds, 1), "blocks": rows}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return path


def programs(folder: Path) -> Path:
    """The folder of the programs under test, whole."""
    missing = [name for name in ("vedette-server", "client-sim") if not (folder / name).is_file()]
    if missing:
        raise environment.CannotRun(
            f"{folder} has no {' and no '.join(missing)}: cargo build --release, or --bin DIR"
        )
    return folder.resolve()


def listed(blocks: list[Block], every: bool) -> int:
    """What would be done with each block; nothing is run. Returns the exit code."""
    plans = [decide(block, every) for block in blocks]
    for block, plan in zip(blocks, plans, strict=True):
        print(f"{block.place:<34} {block.kind:<8} {plan.action}{plan.why and ': '}{plan.why}")
    unclear = sum(plan.action == "fail" for plan in plans)
    print(f"{len(plans)} blocks, {unclear} of which nobody can tell what to do")
    return 1 if unclear else 0


def check(arguments: argparse.Namespace) -> int:
    """Runs everything and says what came of it."""
    root = environment.ROOT
    blocks = read_pages(root, arguments.pages or pages(root))
    if not blocks:
        raise environment.CannotRun("these pages have no block that could be checked")
    if arguments.list:
        return listed(blocks, arguments.all)
    binaries = programs(arguments.bin)
    OUT.mkdir(parents=True, exist_ok=True)
    python = environment.ready()
    stubs = OUT / "stubs"
    environment.generate(python, stubs)
    begun = time.monotonic()
    # A folder of its own, so that two of these may run at once.
    work = Path(tempfile.mkdtemp(prefix="work-", dir=OUT))
    try:
        setting = Setting(work, binaries, python, stubs, arguments.all, root)
        results = run_all(blocks, setting, lambda result: show(result, arguments.verbose))
    finally:
        if not arguments.keep:
            shutil.rmtree(work, ignore_errors=True)
    seconds = time.monotonic() - begun
    report = write(results, arguments.all, seconds)
    count = {verdict: 0 for verdict in ("PASS", "FAIL", "NOT RUN")}
    for result in results:
        count[result.verdict] += 1
    print(
        f"{len(results)} blocks in {seconds:.0f} s: {count['PASS']} pass, {count['FAIL']} fail, "
        f"{count['NOT RUN']} not run, each with its reason ({report.relative_to(root)})"
    )
    return 1 if count["FAIL"] else 0


def main() -> int:
    """See above."""
    try:
        return check(parser().parse_args())
    except environment.CannotRun as error:
        print(f"check-docs: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
