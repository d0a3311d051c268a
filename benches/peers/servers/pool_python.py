"""Multi-process Python: an event loop for the streams, a pool of processes for the work."""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
from concurrent import futures
from threading import Barrier

import aio
import peer

# Longest wait for all processes to be ready to work.
START_SECONDS = 30.0

# Set in each process of the pool when it starts.
worker_work: peer.Work


def start_worker(args: argparse.Namespace, ready: Barrier) -> None:
    """Prepares a process of the pool; none takes work before all are ready."""
    global worker_work
    worker_work = peer.make_work(args)
    ready.wait(START_SECONDS)


def work(image: bytes) -> list[peer.Found]:
    """Runs in a process of the pool."""
    return worker_work(image)


def nothing() -> None:
    """Occupies a process, so that the pool starts another one."""


def main() -> None:
    """Starts the pool, then serves."""
    args = peer.arguments(__doc__)
    # gRPC's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    pool = futures.ProcessPoolExecutor(
        args.workers,
        mp_context=context,
        initializer=start_worker,
        initargs=(args, context.Barrier(args.workers)),
    )
    for started in [pool.submit(nothing) for _ in range(args.workers)]:
        started.result(START_SECONDS)
    asyncio.run(aio.serve(args.port, pool, work))


if __name__ == "__main__":
    main()
