"""Multi-process Python: synchronous servers side by side on one port (SO_REUSEPORT).

The kernel gives each new connection to one of them, by a hash of its addresses.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading

import peer
import sync_python

# Longest wait for all processes to listen.
START_SECONDS = 30.0


def main() -> None:
    """Starts a process per worker and stops them when told to stop."""
    args = peer.arguments(__doc__)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # gRPC's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(args.workers + 1)
    workers = [
        context.Process(
            target=sync_python.serve,
            args=(args, ready.wait),
            kwargs={"shared_port": True},
            daemon=True,
        )
        for _ in range(args.workers)
    ]
    for worker in workers:
        worker.start()
    ready.wait(START_SECONDS)
    peer.announce(args.port)
    stop.wait()
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
