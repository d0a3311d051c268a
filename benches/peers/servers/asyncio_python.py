"""Asynchronous Python: an event loop for the streams, a pool of threads for the work."""

from __future__ import annotations

import asyncio
from concurrent import futures

import aio
import peer

if __name__ == "__main__":
    args = peer.arguments(__doc__)
    threads = futures.ThreadPoolExecutor(args.workers)
    asyncio.run(aio.serve(args.port, threads, peer.make_work(args)))
