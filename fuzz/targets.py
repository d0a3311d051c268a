"""The fuzz targets: how each is run, and which target an input belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from build import HERE, ROOT, CannotRun

ARTIFACTS = HERE / "artifacts"
CORPUS = HERE / "corpus"
DICTIONARIES = HERE / "dictionaries"

# Inputs that once failed, or that are odd; the server's tests run each.
KEPT_NAME = "server/tests/fixtures/fuzz"
KEPT = ROOT / KEPT_NAME

# Seconds that one input may take before it is reported. They take milliseconds, with the sanitizer
# and all checks: a frame must cost a bounded time.
INPUT_SECONDS = 10

# Memory of the process, in MiB; the sanitizer takes the most of it.
RSS_MB = 1024

# Largest single allocation, in MiB. A picture of the targets' limits takes 256 KiB, and what
# decoders allocate for it is bounded at a few times as much; but a part of a lossy WebP says its size in
# 24 bits (RFC 6386, section 9.5), and so much is set aside, though not touched, before it is read.
ALLOCATION_MB = 17

# Freed memory that the sanitizer keeps so that its use is noticed, in MiB.
QUARANTINE_MB = 32

SANITIZER_OPTIONS = ":".join(
    (
        "abort_on_error=0",
        "detect_odr_violation=0",
        f"quarantine_size_mb={QUARANTINE_MB}",
        "allow_addr2line=1",
    )
)

# libjpeg-turbo's vector code is assembly, which the sanitizer cannot see into. Without it the same
# work is done in C, where every access is checked. Every other job runs with it, as servers do.
PLAIN_C = {"JSIMD_FORCENONE": "1"}


@dataclass(frozen=True)
class Target:
    """One fuzz target."""

    name: str
    # Longest input in bytes: enough for every branch, short enough to be tried often.
    max_len: int
    # Environment of the jobs, which take it in turns.
    variants: tuple[dict[str, str], ...] = field(default=({},))

    def options(self) -> list[str]:
        """What libFuzzer is told in every run."""
        limits = [
            f"-timeout={INPUT_SECONDS}",
            f"-rss_limit_mb={RSS_MB}",
            f"-malloc_limit_mb={ALLOCATION_MB}",
            f"-max_len={self.max_len}",
        ]
        words = DICTIONARIES / f"{self.name}.dict"
        return limits + ([f"-dict={words}"] if words.exists() else [])


TARGETS = (
    Target("config", 4 << 10),
    Target("decode", 16 << 10, (PLAIN_C, {})),
    Target("model", 4 << 10),
    Target("raw", 16 << 10),
    Target("request", 16 << 10, (PLAIN_C, {})),
)


def of_input(path: Path) -> Target:
    """The target that an input was made for: its folder's name, or the beginning of its own."""
    if not path.is_file():
        raise CannotRun(f"no file {path}")
    for target in TARGETS:
        if path.resolve().parent.name == target.name or path.name.startswith(f"{target.name}-"):
            return target
    names = ", ".join(target.name for target in TARGETS)
    raise CannotRun(f"{path}: neither its folder nor its name begins with a target: {names}")


def keep_message(kept: Path) -> str:
    """What to do once an input is kept."""
    return (
        f"kept as {kept.relative_to(ROOT)} ({kept.stat().st_size} bytes). Until the bug is mended "
        "this fails:\n  cargo test -p vedette-server --test it fuzz_crashes\n"
        "Commit the file with the fix, and a unit test beside the code."
    )
