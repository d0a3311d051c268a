"""Makes what the comparison runs: environment, generated gRPC code, the C++ servers, ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVERS = Path(__file__).resolve().parent / "servers"
# The contract as first published: the peers are written to it, and it is all they know.
CONTRACT = ROOT / "proto" / "bare" / "camera_ai.proto"
OUT = ROOT / "target" / "bench" / "peers"
# The environment of benches/accuracy has all that the Python servers need: grpcio and its
# compiler, numpy, OpenCV, ONNX Runtime.
PYTHON = ROOT / "models" / "cache" / "pyenv" / "bin" / "python"

CPP_SERVERS = ("async_cpp", "sync_cpp")
CPP_FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
# Found by pkg-config or on PATH, and the Debian package that brings it.
CPP_LIBRARIES = {"grpc++": "libgrpc++-dev", "protobuf": "libprotobuf-dev"}
CPP_PROGRAMS = {
    "g++": "g++",
    "pkg-config": "pkg-config",
    "protoc": "protobuf-compiler",
    "grpc_cpp_plugin": "protobuf-compiler-grpc",
}


class CannotRun(Exception):
    """The comparison is not possible; one line says why and what to do."""


def missing_packages() -> list[str]:
    """Debian packages that the C++ servers still need."""
    missing = [package for name, package in CPP_PROGRAMS.items() if shutil.which(name) is None]
    if "pkg-config" in missing:
        return missing + list(CPP_LIBRARIES.values())
    for library, package in CPP_LIBRARIES.items():
        if subprocess.run(["pkg-config", "--exists", library], check=False).returncode != 0:
            missing.append(package)
    return missing


def check_packages() -> None:
    """Raises CannotRun with the command that installs what is missing."""
    if missing := missing_packages():
        raise CannotRun(
            "the C++ servers need packages that are not installed: "
            f"sudo apt-get install -y {' '.join(missing)}"
        )


def run(what: str, command: list[str]) -> str:
    """Runs a step and returns its output; a failure becomes one line and the step's own words."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except OSError as error:
        raise CannotRun(f"{what}: {command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr, end="")
        raise CannotRun(f"{what} failed; its output is above")
    return done.stdout


def show(what: str, command: list[str]) -> None:
    """Runs a step that may take minutes and tells what it does itself."""
    try:
        done = subprocess.run(command, cwd=ROOT, check=False)
    except OSError as error:
        raise CannotRun(f"{what}: {command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise CannotRun(f"{what} failed; its output is above")


def older(made: Path, sources: list[Path]) -> bool:
    """Whether a file has to be made again."""
    if not made.exists():
        return True
    age = made.stat().st_mtime_ns
    return any(source.stat().st_mtime_ns > age for source in sources)


def generate_python() -> None:
    """The Python side of the contract."""
    folder = OUT / "python"
    if not older(folder / "camera_ai_pb2_grpc.py", [CONTRACT, PYTHON]):
        return
    folder.mkdir(parents=True, exist_ok=True)
    options = [f"-I{CONTRACT.parent}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    command = [str(PYTHON), "-m", "grpc_tools.protoc", *options, str(CONTRACT)]
    run("generating gRPC code for Python", command)


def flags_of_libraries(kind: str) -> list[str]:
    """`--cflags` or `--libs`; headers of others are not ours to warn about."""
    text = run("pkg-config", ["pkg-config", kind, *CPP_LIBRARIES])
    return [flag.replace("-I", "-isystem", 1) for flag in text.split()]


def build_cpp() -> None:
    """The C++ side of the contract, and the two servers."""
    folder = OUT / "cpp"
    folder.mkdir(parents=True, exist_ok=True)
    generated = [folder / "camera_ai.pb.cc", folder / "camera_ai.grpc.pb.cc"]
    objects = [source.with_suffix(".o") for source in generated]
    compiler = ["g++", *CPP_FLAGS, *flags_of_libraries("--cflags"), f"-isystem{folder}"]
    if older(objects[-1], [CONTRACT, Path(__file__)]):
        plugin = f"--plugin=protoc-gen-grpc={shutil.which('grpc_cpp_plugin')}"
        options = [f"-I{CONTRACT.parent}", f"--cpp_out={folder}", f"--grpc_out={folder}", plugin]
        run("generating gRPC code for C++", ["protoc", *options, str(CONTRACT)])
        for source, made in zip(generated, objects, strict=True):
            # Warnings of generated code are not ours either.
            run(f"compiling {source.name}", [*compiler, "-w", "-c", str(source), "-o", str(made)])
    for name in CPP_SERVERS:
        source, program = SERVERS / f"{name}.cpp", folder / name
        if older(program, [source, SERVERS / "peer.hpp", *objects]):
            parts = [str(source), *map(str, objects), "-o", str(program), "-pthread"]
            run(f"compiling {source.name}", [*compiler, *parts, *flags_of_libraries("--libs")])


def build_ours(*, compile_ours: bool) -> None:
    """The server and the simulator, in release."""
    command = [
        "cargo",
        "build",
        "--release",
        "--locked",
        "-p",
        "vedette-server",
        "-p",
        "client-sim",
    ]
    if compile_ours:
        show("building ours", command)
    for program in ("vedette-server", "client-sim"):
        if not (ROOT / "target" / "release" / program).is_file():
            raise CannotRun(f"no target/release/{program}: run {' '.join(command)}")


def build_all(*, compile_ours: bool) -> None:
    """Everything; quick when nothing has changed."""
    check_packages()
    show("set-up", [sys.executable, "models/setup.py", "--python-env", "accuracy"])
    generate_python()
    build_cpp()
    build_ours(compile_ours=compile_ours)
