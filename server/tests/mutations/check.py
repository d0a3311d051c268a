#!/usr/bin/env python3
"""Plants one bug after the other into the server's core; the simulation must find each.

Every *.patch beside this file is a bug, with words at its head that say which. The tracked files are
copied as they are in the working tree, one patch at a time is applied to the copy, and the simulation
is run on it. The first time this builds everything, in target/mutations; after that, the server alone.

Exit status: 0 every bug was found, 1 one was not, 2 could not run.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

EXIT_NOT_FOUND = 1
EXIT_CANNOT_RUN = 2

# Seeds that a bug gets: those that `cargo test` runs.
SEEDS = 1000
# Longest time for the simulation of one bug, in seconds. All seeds take some ten; a bug may make a run
# slow, but one that makes it endless is found by the simulation itself.
RUN_SECONDS = 600

TEST = ("-p", "vedette-server", "--test", "simulation")
FOUND = re.compile(r'^simulation: seed (\d+): "([^"]+)" does not hold', re.MULTILINE)
PASSED = re.compile(r"^simulation: \d+ seeds, ", re.MULTILINE)


class CannotRun(Exception):
    """Why nothing can be said."""


@dataclass(frozen=True)
class Bug:
    """A patch and the words at its head."""

    name: str
    what: str
    path: Path


@dataclass(frozen=True)
class Finding:
    """What the simulation said of a bug. Without a seed and an invariant it was not found."""

    bug: str
    what: str
    seed: int | None
    invariant: str | None
    trouble: str | None
    seconds: float

    def found(self) -> bool:
        """Whether a rule did not hold."""
        return self.invariant is not None

    def verdict(self) -> str:
        """A few words."""
        if self.invariant is None:
            return self.trouble or "NOT FOUND"
        by = "" if self.seed is None else f" by seed {self.seed}"
        return f'found{by}: "{self.invariant}"'


class Parser(argparse.ArgumentParser):
    """Mistakes are one line."""

    def error(self, message: str) -> NoReturn:
        """Prints the line and leaves."""
        self.exit(EXIT_CANNOT_RUN, f"error: {message} (see --help)\n")


def whole(text: str) -> int:
    """A whole number above 0."""
    if not text.isdigit() or not 1 <= int(text) <= 10_000_000:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number above 0")
    return int(text)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="check.py", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--only", metavar="NAMES", help="only these bugs, with commas; a name is a patch's file name")
    add("--list", action="store_true", help="say which bugs there are")
    add(
        "--seeds",
        type=whole,
        default=SEEDS,
        metavar="N",
        help="seeds that each bug gets [default: %(default)s]",
    )
    add("--json", type=Path, metavar="FILE", help="write the table there, too")
    return parser.parse_args(arguments)


def head(patch: str) -> str:
    """The words before a patch's first file, in one line."""
    words = re.split(r"^(?:diff --git|---) ", patch, maxsplit=1, flags=re.MULTILINE)[0]
    return " ".join(words.split())


def bugs(folder: Path, only: Iterable[str] | None) -> list[Bug]:
    """The patches, or those of these names."""
    known = {path.stem: path for path in sorted(folder.glob("*.patch"))}
    wanted = list(known) if only is None else list(only)
    if unknown := [name for name in wanted if name not in known]:
        raise CannotRun(f"{unknown[0] or 'nothing'}: no such bug; see --list")
    if not wanted:
        raise CannotRun(f"no patches in {folder}")
    chosen = [Bug(name, head(known[name].read_text()), known[name]) for name in wanted]
    for bug in chosen:
        if not bug.what:
            raise CannotRun(f"{bug.path}: does not begin with words that say what the bug is")
    return chosen


def verdict(output: str, returncode: int) -> tuple[int | None, str | None, str | None]:
    """Seed and rule of what the simulation printed; or why there are none."""
    if match := FOUND.search(output):
        return int(match[1]), match[2], None
    if returncode < 0:
        return None, "the process lives", None
    if returncode == 0 and PASSED.search(output):
        return None, None, None
    if PASSED.search(output):
        # Every run kept the rules, and some kind of situation was never met.
        return None, "every situation is met", None
    return None, None, "the simulation said nothing"


def table(findings: Sequence[Finding]) -> str:
    """A line per bug."""
    width = max(len(finding.bug) for finding in findings)
    return "\n".join(f"{finding.bug:<{width}}  {finding.verdict()}" for finding in findings)


def tracked(root: Path) -> dict[str, bytes]:
    """The tracked files as they are in the working tree now."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True)
    names = listed.stdout.decode().split("\0")[:-1]
    return {name: (root / name).read_bytes() for name in names if (root / name).is_file()}


def refresh(folder: Path, files: Mapping[str, bytes]) -> None:
    """Makes the folder hold these files and no others. Files that are the same stay untouched, so that
    cargo builds what has changed and nothing else."""
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in files:
            path.unlink()
    for name, data in files.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


class Workshop:
    """The copy of the source, and where it is built."""

    def __init__(self, folder: Path, seeds: int) -> None:
        """`folder` is kept between runs: a copy at another path would be built from scratch."""
        self.source = folder / "source"
        # Whoever goes on to work in the tree meanwhile does not change what is judged.
        self.files = tracked(ROOT)
        self.seeds = seeds
        self.environment = os.environ | {
            "CARGO_TARGET_DIR": str(folder / "build"),
            # Tools that the set-up had to bring along come last, as in the Makefile.
            "PATH": f"{os.environ.get('PATH', '')}:{ROOT / 'models/cache/bin'}",
            # The copy lies within the repository; `git apply` would look for the patch's files there.
            "GIT_CEILING_DIRECTORIES": str(folder),
            "VEDETTE_SIM_SEEDS": str(seeds),
            # Nobody debugs these.
            "CARGO_PROFILE_DEV_DEBUG": "false",
            "RUST_BACKTRACE": "0",
        }
        for name in ("VEDETTE_SIM_SEED", "VEDETTE_SIM_FIRST"):
            self.environment.pop(name, None)

    def run(self, *command: str, seconds: float | None = None) -> tuple[int, str]:
        """Exit status and output of a command in the copy."""
        done = subprocess.run(
            command,
            cwd=self.source,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
        return done.returncode, done.stdout.decode(errors="replace")

    def restore(self) -> None:
        """The source without a bug."""
        self.source.mkdir(parents=True, exist_ok=True)
        refresh(self.source, self.files)

    def build(self) -> tuple[bool, str]:
        """Builds the simulation."""
        code, output = self.run("cargo", "test", *TEST, "--locked", "--no-run")
        return code == 0, output

    def forget(self) -> None:
        """Removes what was built of the server: a build that was broken off may leave parts that do not
        fit together, and the compiler does not notice."""
        self.run("cargo", "clean", "--package", "vedette-server", "--locked")

    def simulate(self) -> tuple[int | None, str | None, str | None]:
        """Runs the seeds."""
        command = ("cargo", "test", *TEST, "--locked", "--", "--exact", "--nocapture")
        try:
            code, output = self.run(*command, "seeds::seeds", seconds=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            return None, f"the seeds end within {RUN_SECONDS} s", None
        # Cargo reports a test program that was killed with a status of its own.
        killed = re.search(r"\(signal: \d+", output) is not None
        return verdict(output, -1 if killed else code)

    def judge(self, bug: Bug) -> Finding:
        """Plants a bug and looks whether it is found."""
        start = time.monotonic()
        seed, invariant, trouble = None, None, None
        code, output = self.run("git", "apply", str(bug.path))
        if code != 0:
            trouble = f"DOES NOT APPLY: {(output.splitlines() or ['git apply failed'])[-1]}"
        else:
            built, output = self.build()
            if built:
                seed, invariant, trouble = self.simulate()
            else:
                errors = [line for line in output.splitlines() if line.startswith("error")]
                trouble = f"DID NOT BUILD: {(errors or ['no reason given'])[0]}"
        self.restore()
        seconds = round(time.monotonic() - start, 1)
        return Finding(bug.name, bug.what, seed, invariant, trouble, seconds)


def say(line: str) -> None:
    """A line at once."""
    print(line, flush=True)


def baseline(shop: Workshop) -> None:
    """The tree without a bug must build and pass: else every bug would seem to be found."""
    say("the tree as it is (the first build takes minutes)")
    shop.restore()
    built, output = shop.build()
    if not built:
        shop.forget()
        built, output = shop.build()
    if not built:
        raise CannotRun(f"the tree does not build:\n{output}")
    seed, invariant, trouble = shop.simulate()
    if invariant is not None:
        raise CannotRun(f'without any bug, seed {seed} finds that "{invariant}" does not hold')
    if trouble is not None:
        raise CannotRun(f"without any bug, {trouble}")


def locked(folder: Path) -> object:
    """Keeps others from using the folder until the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise CannotRun(f"another check uses {folder}") from None
    return lock


def check(args: argparse.Namespace) -> int:
    """The exit status."""
    chosen = bugs(HERE, args.only and args.only.split(","))
    if args.list:
        say("\n".join(f"{bug.name}: {bug.what}" for bug in chosen))
        return 0
    folder = ROOT / "target" / "mutations"
    lock = locked(folder)
    shop = Workshop(folder, args.seeds)
    baseline(shop)
    findings = []
    for number, bug in enumerate(chosen, 1):
        finding = shop.judge(bug)
        findings.append(finding)
        say(f"{number}/{len(chosen)} {bug.name}: {finding.verdict()} ({finding.seconds:.0f} s)")
    say("\n" + table(findings))
    if args.json:
        rows = [asdict(finding) | {"found": finding.found()} for finding in findings]
        args.json.write_text(json.dumps({"seeds": args.seeds, "bugs": rows}, indent=2) + "\n")
    del lock
    missed = sum(not finding.found() for finding in findings)
    say(f"\n{len(findings) - missed} of {len(findings)} bugs found")
    return EXIT_NOT_FOUND if missed else 0


def main() -> int:
    """Runs the check; what keeps it from running is a line."""
    try:
        return check(parse_arguments())
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    return EXIT_CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main())
