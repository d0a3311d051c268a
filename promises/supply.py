"""Promise 32: what this is built from."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

from advisories import Crate, Known, built_crates, matches
from env import Env
from promise import CannotRun, Finding, promise

LIST = Path(__file__).resolve().parent / "advisories.toml"
TOOLS = "target/tools"

# Least versions of what faces the network.
FLOORS = {"h2": "0.4.4", "tonic": "0.12.3", "rustls": "0.23.18"}

# cargo-deny's words when it cannot have the database.
UNREACHABLE = re.compile("failed to (fetch|clone|update|load) advisory database|failed to acquire")

# Compiling it takes minutes on a small machine.
INSTALL_SECONDS = 1500


def cargo_deny(env: Env) -> Path:
    """The tool: where it is, or built into target/tools."""
    own = env.root / TOOLS / "bin" / "cargo-deny"
    found = shutil.which("cargo-deny")
    if own.exists() or not found:
        if not own.exists():
            env.say("building cargo-deny")
            install = ["cargo", "install", "cargo-deny", "--locked", "--quiet", "--root"]
            env.run([*install, env.root / TOOLS], INSTALL_SECONDS, cwd=env.root)
        if not own.exists():
            raise CannotRun("cargo-deny is not installed: cargo install cargo-deny --locked")
        return own
    return Path(found)


def check(env: Env, deny: Path, *what: str, config: str | None = None) -> tuple[bool, str]:
    """Runs checks: whether they pass, and what the tool says."""
    file = env.root / "deny.toml"
    if config is not None:
        file = env.work / "deny.toml"
        file.write_text(config, encoding="utf-8")
    command = [str(deny), "--config", str(file), "check", "--hide-inclusion-graph", *what]
    done = env.run(command, 300, cwd=env.root)
    return done.returncode == 0, done.stdout + done.stderr


def floors_that_bite(env: Env, deny: Path) -> list[str]:
    """Crates whose ban would be noticed: with the floor raised above every version, the check
    fails."""
    config = (env.root / "deny.toml").read_text(encoding="utf-8")
    found = []
    for crate, floor in FLOORS.items():
        entry = f'"{crate}:<{floor}"'
        passes, said = check(env, deny, "bans", config=config.replace(entry, f'"{crate}:<999"'))
        if entry in config and not passes and f"crate '{crate} = " in said:
            found.append(crate)
    return found


def built(env: Env) -> set[Crate]:
    """Crates in the graph for the targets of deny.toml, with every feature."""
    targets = tomllib.loads((env.root / "deny.toml").read_text(encoding="utf-8"))["graph"][
        "targets"
    ]
    crates: set[Crate] = set()
    for target in targets:
        command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]
        done = env.run([*command, "--filter-platform", target], 300, cwd=env.root)
        if done.returncode != 0:
            raise CannotRun(f"cargo metadata: {done.stderr.strip()[-200:]}")
        crates |= built_crates(done.stdout)
    return crates


def advisories(env: Env, deny: Path, crates: set[Crate]) -> tuple[str, list[str]]:
    """Who judged the advisories, and what is wrong."""
    passes, said = check(env, deny, "advisories")
    if passes:
        return "the RustSec database of today", []
    if not UNREACHABLE.search(said):
        return "the RustSec database of today", [said[-2000:]]
    known = Known.read(LIST)
    judge = (
        f"the list in promises/advisories.toml (of {known.looked_up}, newest of {known.newest}; the "
        "database cannot be reached)"
    )
    unknown = [f"{name} was never looked up" for name in known.unknown(crates)]
    return judge, known.affecting(crates) + unknown


@promise(
    32,
    "nothing is built from what is known to be bad",
    mark="licences, sources, bans and advisories pass; h2 >= 0.4.4, tonic >= 0.12.3, rustls >= 0.23.18",
    seconds=2400,
)
def supply_chain(env: Env) -> Finding:
    """cargo-deny checks licences, sources and bans; the least versions of h2, tonic and rustls are
    bans, and each is seen to bite when it is raised above what is built. Advisories are judged by
    cargo-deny with the RustSec database where that can be fetched. Where it cannot, every crate in
    the graph for Linux is held against a list in this repository, which has the day on which each
    was looked up; a crate that is not in it fails.
    """
    deny, crates = cargo_deny(env), built(env)
    passes, said = check(env, deny, "bans", "licenses", "sources")
    biting = floors_that_bite(env, deny)
    judge, wrong = advisories(env, deny, crates)
    low = [
        f"{crate.name} {crate.version}"
        for crate in crates
        if crate.name in FLOORS and not matches(f">= {FLOORS[crate.name]}", crate.version)
    ]
    versions = ", ".join(
        f"{c.name} {c.version}" for c in sorted(crates, key=lambda c: c.name) if c.name in FLOORS
    )
    figure = (
        f"{len(crates)} crates: licences, sources, bans {'pass' if passes else 'FAIL'}; {versions}; "
        f"advisories by {judge}: {len(wrong)}"
    )
    held = passes and not low and not wrong and set(biting) == set(FLOORS)
    missing = sorted(set(FLOORS) - set(biting))
    detail = [*low, *wrong, *([f"bans that do not bite: {missing}"] if missing else [])]
    return Finding(figure, held, "\n".join([*detail, *([] if passes else [said[-2000:]])]))
