"""What the servers with an event loop share: all but the executor that the work runs in."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from concurrent import futures
from typing import Any

import grpc
import peer


class Detection(peer.Servicer):
    """Answers each frame of a stream before it takes the next."""

    def __init__(self, executor: futures.Executor, work: peer.Work) -> None:
        self.executor = executor
        self.work = work

    async def DetectStream(  # noqa: N802
        self, requests: AsyncIterator[Any], _context: Any
    ) -> AsyncIterator[Any]:
        """One camera."""
        loop = asyncio.get_running_loop()
        async for request in requests:
            found = await loop.run_in_executor(self.executor, self.work, request.image_data)
            yield peer.response(request.frame_id, found)


async def serve(port: int, executor: futures.Executor, work: peer.Work) -> None:
    """Serves until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    peer.add_to_server(Detection(executor, work), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    peer.announce(port)
    await stop.wait()
    await server.stop(peer.GRACE_SECONDS)
    executor.shutdown(wait=False, cancel_futures=True)
