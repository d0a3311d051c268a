#!/usr/bin/env python3
"""Checks the files that a deployment is made of.

    check.py           all checks; installs the tools of requirements.txt into models/cache/pyenv-deploy
    check.py --fast    those that need neither network nor tools (part of `make test`)

One line each: PASS, FAIL with what is wrong, or SKIP with what to install. Exit code: 0 nothing failed,
1 something did, 2 with --strict also when something was skipped.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import install
import registry


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fast", action="store_true", help="no network, no installing")
    parser.add_argument("--only", action="append", metavar="SUBJECT", help="may be repeated")
    parser.add_argument("--strict", action="store_true", help="a skipped check is an error")
    parser.add_argument("--list", action="store_true", help="name the checks and leave")
    args = parser.parse_args()
    checks = [one for one in registry.all_checks() if one.fast or not args.fast]
    subjects = {one.subject for one in checks}
    if unknown := set(args.only or []) - subjects:
        parser.error(f"--only {', '.join(sorted(unknown))}: known are {', '.join(sorted(subjects))}")
    checks = [one for one in checks if not args.only or one.subject in args.only]
    if args.list:
        for one in checks:
            print(f"{one.subject:<12} {one.name}{' (fast)' if one.fast else ''}")
        return 0
    if not args.fast and (why := install.install()):
        print(f"note: {why}", file=sys.stderr)
    found = Counter[str]()
    for one in checks:
        result = registry.run(one, registry.ROOT)
        found[result.outcome] += 1
        first, *rest = result.lines or ("",)
        print(f"{result.outcome}  {one.subject}: {one.name}{': ' if first else ''}{first}")
        for line in rest:
            print(f"      {line}")
    print(f"{found['PASS']} passed, {found['FAIL']} failed, {found['SKIP']} skipped")
    if found["FAIL"]:
        return 1
    return 2 if args.strict and found["SKIP"] else 0


if __name__ == "__main__":
    sys.exit(main())
