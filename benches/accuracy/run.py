#!/usr/bin/env python3
"""mAP of the server's answers beside that of the reference pipeline, on the same pictures.

Both use a square input, a confidence of 0.001 and NMS at IoU 0.65, as COCO results are commonly
computed; every picture goes to the server through gRPC, on one stream. A difference above the
tolerance means that the server's decoding, letterbox, or postprocessing loses accuracy. A second
server runs as by default, with inputs that fit the pictures and JPEGs decoded at scale, and has a
tolerance of its own.

Exit status: 0 within the tolerance, 1 outside, 2 could not run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "models" / "cache" / "pyenv" / "bin" / "python"
sys.path.insert(0, str(ROOT / "server" / "tests" / "reference"))

try:
    import grpc
    import numpy as np
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval
    from yolox_reference import Settings, Yolox, round_half_up
except ImportError as error:
    print(
        f"error: {error}. Install the packages and use their interpreter:\n"
        "  python3 models/setup.py --python-env accuracy\n"
        f"  {ENVIRONMENT} {Path(__file__).relative_to(ROOT)}",
        file=sys.stderr,
    )
    sys.exit(2)

CONFIDENCE = 0.001
IOU = 0.65
MAX_DETECTIONS = 300
# Longest wait for the server to start, for one answer and for the end of the stream after the last
# one, and for it to stop.
START_SECONDS = 30.0
ANSWER_SECONDS = 60.0
STOP_SECONDS = 20.0
# Rows of COCOeval.stats that are reported.
STATS = {"AP": 0, "AP50": 1, "AP75": 2, "small": 3, "medium": 4, "large": 5}

# One detection: label, score, x, y, width, height.
Detection = tuple[str, float, float, float, float, float]


class CannotRun(Exception):
    """The measurement is not possible; one line says why."""


# ---- The two pipelines -----------------------------------------------------------------------


def reference_answers(
    files: dict[int, Path], model: Path, size: int, resize_uint8: bool
) -> dict[int, list[Detection]]:
    """Detections of the numpy pipeline, by image id."""
    settings = Settings(size, size, CONFIDENCE, IOU, MAX_DETECTIONS, resize_uint8)
    yolox = Yolox(model, settings)
    if not yolox.labels:
        raise CannotRun(f"{model} does not name its classes (metadata key `names`)")
    answers = {}
    for image_id, path in files.items():
        answers[image_id] = [
            (
                yolox.labels[found["class_id"]],
                found["score"],
                found["x1"],
                found["y1"],
                found["x2"] - found["x1"],
                found["y2"] - found["y1"],
            )
            for found in yolox.detect(path.read_bytes())["detections"]
        ]
    return answers


def whole_pixels(answers: dict[int, list[Detection]]) -> dict[int, list[Detection]]:
    """The same with corners rounded to integers, which is all that the wire contract can say."""

    def rounded(found: Detection) -> Detection:
        label, score, x, y, width, height = found
        left, top = round_half_up(x), round_half_up(y)
        right, bottom = round_half_up(x + width), round_half_up(y + height)
        return label, score, left, top, max(1, right - left), max(1, bottom - top)

    return {image_id: [rounded(found) for found in all_] for image_id, all_ in answers.items()}


def server_answers(files: dict[int, Path], address: str, size: int) -> dict[int, list[Detection]]:
    """Detections of the server, by image id: one stream, the next picture after each answer."""
    sys.path.insert(0, str(ROOT / "proto"))
    messages, services = grpc.protos_and_services("camera_ai.proto")
    limit = 64 << 20
    options = [("grpc.max_receive_message_length", limit), ("grpc.max_send_message_length", limit)]
    with grpc.insecure_channel(address, options=options) as channel:
        stub = services.ObjectDetectionStub(channel)
        info = stub.GetServerInfo(
            messages.ServerInfoRequest(), timeout=START_SECONDS, wait_for_ready=True
        )
        check_server(info, size)
        requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        replies = stub.DetectStream(
            iter(requests.get, None), metadata=(("camera-id", "accuracy-bench"),)
        )
        answers = {}
        for image_id, path in files.items():
            requests.put(
                messages.DetectRequest(
                    frame_id=image_id,
                    image_data=path.read_bytes(),
                    budget_ms=int(ANSWER_SECONDS * 1000),
                )
            )
            reply = next_reply(replies)
            if reply is None:
                raise CannotRun(f"{path.name}: the server ended the stream instead of answering")
            if reply.frame_id != image_id or reply.outcome != messages.OK:
                outcome = messages.Outcome.Name(reply.outcome)
                raise CannotRun(f"{path.name}: {outcome} {reply.detail} (frame {reply.frame_id})")
            answers[image_id] = [
                (
                    found.label,
                    found.confidence,
                    found.bbox.x,
                    found.bbox.y,
                    found.bbox.width,
                    found.bbox.height,
                )
                for found in reply.objects
            ]
        requests.put(None)
        if next_reply(replies) is not None:
            raise CannotRun("the server answered more often than it was asked")
        return answers


def next_reply(replies: Any) -> Any | None:
    """The next answer; None once the server has ended the stream.

    gRPC's own deadline is one for the whole stream; this one is for each answer.
    """
    timer = threading.Timer(ANSWER_SECONDS, replies.cancel)
    timer.start()
    try:
        return next(replies, None)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.CANCELLED:
            raise CannotRun(f"nothing from the server within {ANSWER_SECONDS:g} s") from error
        raise
    finally:
        timer.cancel()


def check_server(info: Any, size: int) -> None:
    """Raises CannotRun unless the server is set as the reference is."""
    found = {
        "--confidence": (info.confidence, CONFIDENCE),
        "--iou": (info.iou, IOU),
        "--input-size (width)": (info.input_width, size),
        "--input-size (height)": (info.input_height, size),
    }
    for flag, (got, wanted) in found.items():
        if not np.isclose(got, wanted, rtol=1e-4):
            raise CannotRun(f"the server runs with {flag} {got:g}, needed is {wanted:g}")


@contextlib.contextmanager
def running_server(binary: Path, model: Path, size: int, extra: list[str]) -> Iterator[str]:
    """Starts a server of our own and yields its address."""
    command = [
        str(binary), "--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0",
        "--model", str(model), "--input-size", str(size), "--confidence", str(CONFIDENCE),
        "--iou", str(IOU), "--max-detections", str(MAX_DETECTIONS), *extra,
    ]  # fmt: skip
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        server = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            started: queue.SimpleQueue[str | None] = queue.SimpleQueue()
            threading.Thread(target=watch, args=(server, started), daemon=True).start()
            try:
                address = started.get(timeout=START_SECONDS)
            except queue.Empty:
                address = None
            if address is None:
                log.seek(0)
                last = (log.read().strip().splitlines() or ["no output"])[-1]
                raise CannotRun(f"the server did not start: {last}")
            yield address
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def watch(server: subprocess.Popen[str], started: queue.SimpleQueue[str | None]) -> None:
    """Reads the server's output to its end, so that it never blocks.

    Tells the address once the server listens, and None at the end.
    """
    if server.stdout is not None:
        for line in server.stdout:
            if line.startswith("listening on "):
                started.put(line.removeprefix("listening on ").strip())
    started.put(None)


# ---- Scoring ---------------------------------------------------------------------------------


def load_truth(images: Path) -> tuple[COCO, dict[int, Path]]:
    """The annotations and the files that they describe."""
    annotations = images / "instances.json"
    if not annotations.is_file():
        raise CannotRun(
            f"no {annotations}: name a folder that holds pictures and their boxes in COCO's "
            "format as instances.json with --images DIR (a part of COCO val2017, for example)"
        )
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            truth = COCO(str(annotations))
        files = {image["id"]: images / image["file_name"] for image in truth.dataset["images"]}
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise CannotRun(f"{annotations} is not in COCO's format: {error!r}") from error
    if not files:
        raise CannotRun(f"{annotations} names no pictures")
    missing = [path.name for path in files.values() if not path.is_file()]
    if missing:
        raise CannotRun(f"{len(missing)} pictures are not in {images}, such as {missing[0]}")
    return truth, dict(sorted(files.items()))


def score(truth: COCO, answers: dict[int, list[Detection]]) -> dict[str, float]:
    """COCO's measures in points (0 to 100), with categories matched by name."""
    category_of = {category["name"]: category["id"] for category in truth.dataset["categories"]}
    unknown = {found[0] for all_ in answers.values() for found in all_} - category_of.keys()
    if unknown:
        raise CannotRun(f"labels that the annotations do not have: {', '.join(sorted(unknown))}")
    results = [
        {
            "image_id": image_id,
            "category_id": category_of[label],
            "score": confidence,
            "bbox": [x, y, width, height],
        }
        for image_id, all_ in answers.items()
        for label, confidence, x, y, width, height in all_
    ]
    if not results:
        return dict.fromkeys(STATS, 0.0)
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return {name: 100 * float(evaluation.stats[at]) for name, at in STATS.items()}


# ---- Command line ----------------------------------------------------------------------------


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--images",
        type=Path,
        required=True,
        metavar="DIR",
        help="pictures and their boxes in COCO's format, as instances.json",
    )
    parser.add_argument(
        "--model",
        type=Path,
        default=ROOT / "models" / "cache" / "yolox_nano.onnx",
        metavar="FILE",
        help="default: %(default)s",
    )
    parser.add_argument(
        "--input-size", type=int, default=416, metavar="N", help="side of the square input"
    )
    parser.add_argument("--addr", metavar="HOST:PORT", help="use this running server")
    parser.add_argument(
        "--server",
        type=Path,
        default=ROOT / "target" / "release" / "vedette-server",
        metavar="FILE",
        help="else start this one (default: %(default)s)",
    )
    parser.add_argument(
        "--server-arg", action="append", default=[], metavar="ARG", help="one more argument for it"
    )
    parser.add_argument("--reference-only", action="store_true", help="leave the server out")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.3,
        metavar="POINTS",
        help="largest difference of AP that passes (default: %(default)s)",
    )
    parser.add_argument(
        "--default-tolerance",
        type=float,
        default=0.5,
        metavar="POINTS",
        help="difference in mAP allowed with the server's default input and decoding",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    args = parser.parse_args()
    if args.input_size <= 0 or args.input_size % 32:
        parser.error(f"--input-size {args.input_size}: expected a multiple of 32")
    return args


def measure(args: argparse.Namespace) -> int:
    """Runs the pipelines, prints the table, and returns the exit status."""
    truth, files = load_truth(args.images)
    # The server is started in another folder than the caller's.
    model, binary, size = args.model.absolute(), args.server.absolute(), args.input_size
    if not model.is_file():
        raise CannotRun(f"no {model}: run python3 models/setup.py")
    if not (args.reference_only or args.addr or binary.is_file()):
        raise CannotRun(
            f"no {binary}: build it (cargo build --release), name another with --server or a "
            "running one with --addr, or use --reference-only"
        )
    rows: dict[str, dict[str, float]] = {}

    def row(name: str, answers: dict[int, list[Detection]]) -> None:
        rows[name] = score(truth, answers)
        figures = "".join(f"{value:8.2f}" for value in rows[name].values())
        print(f"{name:<28}{figures}", flush=True)

    print(f"{len(files)} pictures of {args.images}, {model.name} at {size}x{size}")
    print(f"{'':<28}" + "".join(f"{name:>8}" for name in STATS), flush=True)
    reference = reference_answers(files, model, size, resize_uint8=False)
    row("reference", reference)
    if not rows["reference"]["AP"] > 0.0:
        raise CannotRun(
            f"nothing was scored: the reference finds none of the boxes of {args.images}; do its "
            "annotations belong to the pictures, and the classes to the model?"
        )
    row("reference, whole pixels", whole_pixels(reference))
    row("reference, 8-bit resize", reference_answers(files, model, size, resize_uint8=True))
    differences: dict[str, float] = {}
    if args.addr:
        row("server", server_answers(files, args.addr, size))
        differences["server"] = args.tolerance
    elif not args.reference_only:
        # As the reference works: the whole square, every pixel. Then as the server works by default.
        plain = ["--input-shape", "fixed", "--jpeg-decode", "full"]
        for name, ways, tolerance in [
            ("server, square, full decode", plain, args.tolerance),
            ("server, default", [], args.default_tolerance),
        ]:
            with running_server(binary, model, size, [*args.server_arg, *ways]) as address:
                row(name, server_answers(files, address, size))
            differences[name] = tolerance
    passed = True
    for name, tolerance in differences.items():
        difference = rows[name]["AP"] - rows["reference"]["AP"]
        within = abs(difference) <= tolerance
        passed = passed and within
        verdict = "PASS" if within else "FAIL"
        print(f"{verdict}: {name}: AP differs by {difference:+.2f} points, allowed is {tolerance:g}")
    if args.json:
        report = {
            "pictures": len(files),
            "model": model.stem,
            "input_size": size,
            "confidence": CONFIDENCE,
            "iou": IOU,
            "rows": rows,
            "tolerances": differences,
            "passed": passed,
        }
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if passed else 1


def main() -> int:
    """Errors as one line."""
    try:
        return measure(parse_arguments())
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
    except grpc.RpcError as error:
        print(f"error: gRPC {error.code().name}: {error.details()}", file=sys.stderr)
    except OSError as error:
        print(f"error: {error.filename or 'server'}: {error.strerror or error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
