"""Promises of connections and streams: what becomes of peers that vanish, stall or come in crowds."""

from __future__ import annotations

import re
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from client import Camera, CameraHost
from env import Env, picture, wait_until
from netns import NetNs
from promise import Finding, promise
from server import RECEIVED, SPIN, STREAM_LOGS, STREAMS, STREAMS_OPENED, Server
from sim import run_sim, start_sim, unanswered

MIB = 1 << 20

# How often the server gives free memory back to the kernel (`UPKEEP` in server/src/limits.rs).
UPKEEP_SECONDS = 5.0


def warm(server: Server) -> None:
    """One camera comes and goes, so that what is made once does not count as a leak."""
    with Camera(server.addr) as camera:
        camera.exchange(1, picture())
    server.wait_metric(STREAMS, 0, 5)
    time.sleep(1)  # its connection is read a little longer


@promise(1, "half-open connections are reclaimed", mark="streams 0 and files back in <= 20 s")
def half_open(env: Env) -> Finding:
    """20 cameras in a network namespace stream; after each camera's fifth frame every packet to and
    from the server is dropped, as when a switch loses its power: no FIN, no RST. Half of the cameras
    have a frame under way at that instant, the others are silent. From the cut until the server
    serves no stream any more and has as many open files as before the cameras came."""
    limit = 20.0
    with NetNs(env) as netns, Server(env, *SPIN, netns=netns) as server:
        with CameraHost(netns=netns) as host:
            first = host.camera(server.addr)
            first.exchange(1, picture())
            first.close()
            server.wait_metric(STREAMS, 0, 5)
            time.sleep(1)
            files = server.fds()
            cameras = [host.camera(server.addr) for _ in range(20)]
            for frame in range(1, 6):
                for camera in cameras:
                    camera.exchange(frame, picture())
            open_files, streams = server.fds(), server.metric(STREAMS)
            for camera in cameras[::2]:
                camera.send(6, picture())
            netns.blackhole(server.port)
            cut = time.monotonic()
            gone = reached(lambda: server.metric(STREAMS) == 0, limit + 10)
            closed = reached(lambda: server.fds() <= files, limit + 10)
            took = time.monotonic() - cut
            host.kill()
        # Files first: reading a metric opens one.
        left = f"{server.fds() - files} files, {server.metric(STREAMS):g} streams left"
    held = gone and closed and took <= limit and streams == 20 and open_files >= files + 20
    return Finding(
        f"{took:.1f} s; {streams:g} streams and {open_files - files} files before",
        held,
        "" if held else left,
    )


def reached(condition: Any, seconds: float) -> bool:
    """Whether a condition comes true in that time."""
    try:
        wait_until(condition, seconds)
    except TimeoutError:
        return False
    return True


@promise(
    3,
    "clients killed in the middle of frames",
    mark="new client in <= its inference + 100 ms; >= 950 of 1000 cancelled",
    quiet=True,
)
def killed_clients(env: Env) -> Finding:
    """20 clients push 50 frames each at a server with one worker and an inference time of 50 ms; once
    all 1000 have been read, the clients' process is killed by SIGKILL. A new client connects at once
    and sends a frame, which must be answered in one inference time + 100 ms: nothing of what the dead
    have left may be computed before it but the frame already under way. Of the 1000, no more than 50
    may have been computed; the others ended as SUPERSEDED (a newer frame of the same camera came) or
    `client_gone` (cancelled before or during their computation), and the sum is exact."""
    inference_ms = 50
    flags = ("--backend", "spin", "--spin-ms", f"{inference_ms}", "--workers", "1")
    with Server(env, *flags, "--budget-ms", "60000") as server:
        warm(server)
        with CameraHost() as host:
            cameras = [host.camera(server.addr) for _ in range(20)]
            push(cameras, 50)
            read = reached(lambda: server.metric(RECEIVED) >= 1001, 10)
            at_kill = server.metrics()
            host.kill()
            start = time.monotonic()
            with Camera(server.addr, "new") as camera:
                answer = camera.exchange(1, picture())
                took_ms = (time.monotonic() - start) * 1000
        server.check_accounts()
        ended = server.metrics()
    outcomes = {
        name: ended[f'vedette_frames_total{{outcome="{name}"}}']
        for name in ("ok", "superseded", "client_gone", "expired")
    }
    computed = outcomes["ok"] - 2  # the first camera's, which warmed up, and the new client's
    cancelled = outcomes["superseded"] + outcomes["client_gone"]
    waiting = at_kill["vedette_waiting_frames"]
    held = (
        read
        and answer.outcome == "OK"
        and took_ms <= answer.inference_us / 1000 + 100
        and ended[RECEIVED] == 1002
        and cancelled >= 950
        and computed + cancelled == 1000
        and waiting > 0
    )
    figure = (
        f"{took_ms:.0f} ms, {answer.inference_us / 1000:.0f} of them inference; {cancelled:.0f} "
        f"cancelled ({outcomes['client_gone']:.0f} of them at the kill, {waiting:.0f} were waiting), "
        f"{computed:.0f} computed"
    )
    return Finding(figure, held)


def push(cameras: Sequence[Any], frames: int) -> None:
    """Sends all frames of all cameras as fast as their process takes them."""
    data = picture()

    def one(camera: Any) -> None:
        for frame in range(1, frames + 1):
            camera.send(frame, data)

    threads = [threading.Thread(target=one, args=(camera,)) for camera in cameras]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@promise(
    4,
    "10,000 short streams leave nothing behind",
    mark="10000 succeed twice; RSS < +16 MiB, then < +1 MiB; same files",
)
def churn(env: Env) -> Finding:
    """`h2load -n 10000 -c 10 -m 20` opens 10,000 streams of one frame each over 10 connections, 200
    at a time; then all of it again. Every stream must be served and every frame computed. Resident
    memory and open files are compared with those before the first run, and between the runs, once the
    server's upkeep has given back what is free."""
    from client import request

    frame = env.work / "frame.grpc"
    message = request(1, picture()).SerializeToString()
    frame.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
    with Server(env, *SPIN) as server:
        warm(server)
        memory, files = [server.rss_bytes()], [server.fds()]
        succeeded = []
        for _ in range(2):
            succeeded.append(h2load(env, server.addr, frame))
            server.wait_metric(STREAMS, 0, 10)
            time.sleep(UPKEEP_SECONDS + 1)
            memory.append(server.rss_bytes())
            files.append(server.fds())
        opened = server.metric(STREAMS_OPENED)
        computed = server.metric('vedette_frames_total{outcome="ok"}')
    grown = [(after - before) / MIB for before, after in zip(memory, memory[1:], strict=False)]
    held = (
        succeeded == [10_000, 10_000]
        and opened == computed == 20_001
        and grown[0] < 16
        and grown[1] < 1
        and len(set(files)) == 1
    )
    figure = (
        f"{' and '.join(map(str, succeeded))} succeeded, {computed - 1:.0f} computed; RSS "
        f"{grown[0]:+.1f} MiB, then {grown[1]:+.2f} MiB; files {' '.join(map(str, files))}"
    )
    return Finding(figure, held)


def h2load(env: Env, addr: str, frame: Path) -> int:
    """Runs h2load once and returns how many requests succeeded."""
    headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    url = f"http://{addr}/camera_ai.ObjectDetection/DetectStream"
    load = ["h2load", "-n", "10000", "-c", "10", "-m", "20", "-d", frame, *headers, url]
    done = env.run(load, 120)
    found = re.search(r"(\d+) succeeded", done.stdout)
    if found is None:
        raise RuntimeError(f"h2load: {(done.stderr or done.stdout)[-300:]}")
    return int(found[1])


@promise(
    6,
    "the stream cap is advertised and enforced",
    mark="SETTINGS shows the cap; camera cap + 1 RESOURCE_EXHAUSTED with text",
)
def stream_cap(env: Env) -> Finding:
    """`nghttp -nv` reads SETTINGS_MAX_CONCURRENT_STREAMS of a server with --h2-max-streams 7. Of a
    server with --max-cameras 5 the sixth camera, on a connection of its own, is refused with
    RESOURCE_EXHAUSTED and a text that names the setting, while the five go on."""
    with Server(env, *SPIN, "--h2-max-streams", "7", "--max-cameras", "5") as server:
        done = env.run(["nghttp", "-nv", f"http://{server.addr}/"], 20)
        cap = advertised_streams(done.stdout)
        cameras = [Camera(server.addr, f"camera-{n}") for n in range(5)]
        before = [camera.exchange(1, picture()).outcome for camera in cameras]
        with Camera(server.addr, "one-too-many") as extra:
            code, words, _ = extra.ended()
        after = [camera.exchange(2, picture()).outcome for camera in cameras]
        for camera in cameras:
            camera.close()
    held = (
        cap == "7"
        and code == "RESOURCE_EXHAUSTED"
        and "max-cameras" in words
        and before == after == ["OK"] * 5
    )
    return Finding(f"advertised {cap} of 7; camera 6 of 5: {code}: {words}", held)


def advertised_streams(log: str) -> str:
    """SETTINGS_MAX_CONCURRENT_STREAMS in the SETTINGS frame that nghttp received, from its log: it
    shows its own as well."""
    _, _, received = log.partition("recv SETTINGS frame")
    shown = re.search(
        r"SETTINGS_MAX_CONCURRENT_STREAMS\(0x03\):(\d+)", received.partition("send ")[0]
    )
    return shown[1] if shown else "nothing"


@promise(7, "keepalive pings are tolerated", mark="no GOAWAY, same connection after 60 s idle")
def keepalive(env: Env) -> Finding:
    """A grpcio camera that probes every 10 s, also without calls under way, is answered once and then
    idle for 60 s; so is a channel whose call has ended. A bare HTTP/2 client beside them sends a PING
    every 5 s and looks for GOAWAY. Afterwards the stream still answers, and a new call goes out over
    the same TCP connection, which a library that has read GOAWAY would not use again."""
    from wire import Wire

    pings = [
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    with Server(env, *SPIN) as server, Wire(server.addr) as wire:
        camera, quiet = (Camera(server.addr, name, pings) for name in ("stream", "channel"))
        camera.exchange(1, picture())
        quiet.exchange(1, picture())
        quiet.finish()
        quiet.ended()
        before = connections(env, server.port)
        for _ in range(12):
            wire.ping()
            wire.pump(5)
        answers = [camera.exchange(2, picture()).outcome, quiet.detect(picture()).outcome]
        answers.append(camera.detect(picture()).outcome)
        after = connections(env, server.port)
        camera.close()
        quiet.close()
    held = (
        answers == ["OK"] * 3
        and len(before) == 3
        and before == after
        and wire.goaway is None
        and not wire.closed
        and wire.pongs == 12
    )
    figure = (
        f"{len(before & after)} of {len(before)} connections the same, {wire.pongs} of 12 pings "
        f"answered, GOAWAY: {'none' if wire.goaway is None else wire.goaway}"
    )
    return Finding(figure, held)


def connections(env: Env, port: int) -> set[str]:
    """Local ends of the established TCP connections to a port of loopback."""
    done = env.run(["ss", "-Htn", "state", "established", f"( dport = :{port} )"], 20)
    return {line.split()[2] for line in done.stdout.splitlines() if line.strip()}


@promise(
    9, "connections age in order", mark="0 accepted frames unanswered; reconnects' stddev > 0.2 s"
)
def aging(env: Env) -> Finding:
    """--max-connection-age-seconds 5 with ends spread over 20 % of it (the width of +-10 %), 30
    cameras at 10 FPS for 30 s. No frame that the server had accepted may stay unanswered. The cameras
    connect at the same time, and the instants at which they first come back must be spread, by the
    standard deviation of the server's log of opened streams."""
    age = ("--max-connection-age-seconds", "5", "--connection-age-jitter", "0.2")
    flags = ("--cameras", "30", "--fps", "10", "--seconds", "30", "--warmup", "0")
    with Server(env, *SPIN, *STREAM_LOGS, *age) as server:
        report = run_sim(env, server.addr, *flags, "--max-gap-ms", "2000")
        aged = server.metric("vedette_streams_aged_total")
        cut = server.metric("vedette_connections_cut_total")
        opened = sorted(server.opened_at())
    back = [at for at in opened if at - opened[0] > 2.5][:30]
    spread = statistics.stdev(back) if len(back) > 1 else 0.0
    lost = unanswered(report)
    held = lost == 0 and spread > 0.2 and aged >= 30 * 4 and cut == 0 and len(back) == 30
    figure = (
        f"{lost} of {report['sent']} unanswered ({report['unaccepted']} not accepted); stddev "
        f"{spread:.2f} s; {aged:.0f} streams aged, {report['reconnects']['count']} reconnects"
    )
    return Finding(figure, held)


def bins(instants: Sequence[float], width: float) -> list[int]:
    """Counts of instants in bins of this width, from the first one."""
    first = min(instants)
    counted = Counter(int((at - first) / width) for at in instants)
    return [counted[n] for n in range(max(counted) + 1)]


def worst_second(samples: Sequence[tuple[float, float]]) -> float:
    """Most CPU time used in any second, from samples of instant and CPU time so far."""
    most = 0.0
    for at, used in samples:
        later = [(t, u) for t, u in samples if at < t <= at + 1.0]
        most = max([most, *(u - used for _, u in later)])
    return most


@promise(
    13,
    "reconnect storm after a kill",
    mark="all streaming <= 10 s; <= 1 CPU-s in any second; no 0.1 s with > 25 of 100 connects",
)
def storm(env: Env) -> Finding:
    """100 cameras of client-sim stream; the server is killed by SIGKILL and starts again on the same
    port 3 s later. From its `listening` until the slowest camera has an answer again. Meanwhile the
    server's CPU time is sampled: the worst second may take one core of the two. The instants at which
    streams open, from the server's log, in bins of 0.1 s, show whether clients retry in step."""
    flags = ("--cameras", "100", "--fps", "2", "--seconds", "25", "--warmup", "0")
    down = 3.0
    with Server(env, *SPIN) as server:
        sim = start_sim(env, server.addr, *flags, "--max-gap-ms", "20000")
        server.wait_metric(STREAMS, 100, 20)
        time.sleep(2)
        server.signal(signal.SIGKILL)
        server.wait(5)
        killed = time.monotonic()
    time.sleep(down)
    with Server(env, *SPIN, *STREAM_LOGS, port=server.port) as again:
        listening = time.monotonic()
        samples = []
        while time.monotonic() < listening + 12:
            samples.append((time.monotonic(), again.cpu_seconds()))
            time.sleep(0.1)
        streams = again.metric(STREAMS)
        report = sim.report()
        opened = again.opened_at()
    if not opened:
        return Finding("no camera came back", held=False)
    gap = report["reconnects"]["gap_max_ms"] / 1000
    took = gap - (listening - killed)
    counts, cpu = bins(opened, 0.1), worst_second(samples)
    waited = all(camera["reconnects"] >= 1 for camera in report["per_camera"])
    held = streams == 100 and waited and took <= 10 and cpu <= 1.0 and max(counts) <= 25
    figure = (
        f"{streams:g} of 100 streaming, the last one answered after {took:.1f} s; {cpu:.2f} CPU-s in "
        f"the worst second; at most {max(counts)} connects in 0.1 s"
    )
    return Finding(figure, held, f"connects in each 0.1 s: {' '.join(map(str, counts))}")
