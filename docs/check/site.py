#!/usr/bin/env python3
"""Builds the book into target/book and looks at its links.

mdBook copies everything beside the pages, so the checks' own files are taken out again. Exit code 0, 1 for
faults in the pages, 2 when mdBook is missing or of another version.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import links

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BOOK = ROOT / "target" / "book"

# The version that the pages are built and checked with; another may give other names to headings.
MDBOOK = "0.5.4"

# What is no part of the book.
TAKEN_OUT = ("check", "book.toml")


def mdbook() -> str:
    """The program, in the pinned version."""
    install = f"cargo install mdbook --locked --version {MDBOOK}"
    program = os.environ.get("MDBOOK", "mdbook")
    try:
        asked = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit(stopped(f"there is no mdbook: {install} (MDBOOK names one elsewhere)")) from None
    version = asked.stdout.split()[-1].lstrip("v")
    if version != MDBOOK:
        raise SystemExit(stopped(f"mdbook is {version}, the pages are for {MDBOOK}: {install}"))
    return program


def stopped(why: str) -> int:
    """Says why there is no book. Returns the exit code."""
    print(f"book: {why}", file=sys.stderr)
    return 2


def main() -> int:
    """See above."""
    program = mdbook()
    shutil.rmtree(BOOK, ignore_errors=True)
    built = subprocess.run([program, "build", str(DOCS)], capture_output=True, text=True, check=False)
    said = [line for line in built.stderr.splitlines() if "WARN" in line or "ERROR" in line]
    if built.returncode != 0 or said:
        print("\n".join(said or [built.stderr.strip()]), file=sys.stderr)
        return 1
    for name in TAKEN_OUT:
        path = BOOK / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    count, faults = links.html_faults(BOOK)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"target/book/index.html: {len(list(BOOK.glob('*.html')))} pages, {count} links, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
