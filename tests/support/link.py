"""A link between two places on loopback that is slow, stops, or breaks. The kernel here has no netem."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from tests.support.ports import free_ports

CHUNK, WINDOW = 16_384, 8
"""Bytes of one read, and how many of them lie on the wire before the sender waits."""


class Link:
    """Relays TCP from `port` to `target`, `delay_s` each way. While `still` nothing passes, nothing is closed."""

    def __init__(self, target: int, delay_s: float = 0.0) -> None:
        self.port, self._target, self._delay_s = free_ports(1)[0], target, delay_s
        self._loop = asyncio.new_event_loop()
        self._go = asyncio.Event()
        self._go.set()
        self._writers: list[asyncio.StreamWriter] = []
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._client, "127.0.0.1", self.port))
        ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))

    async def _client(self, up: asyncio.StreamReader, down: asyncio.StreamWriter) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [down, writer]
        await asyncio.gather(self._pump(up, writer), self._pump(reader, down))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        wire: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(WINDOW)
        sender = asyncio.create_task(self._deliver(wire, sink))
        with contextlib.suppress(ConnectionError):  # a broken link ends both ways; that is what it is for
            while data := await source.read(CHUNK):
                await wire.put((self._loop.time() + self._delay_s, data))
        await wire.put((self._loop.time() + self._delay_s, b""))
        await sender

    async def _deliver(self, wire: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                due, data = await wire.get()
                await asyncio.sleep(due - self._loop.time())
                await self._go.wait()
                if not data:
                    break
                sink.write(data)
                await sink.drain()
        sink.close()

    def still(self, on: bool) -> None:
        """Half open: neither end is told."""
        self._loop.call_soon_threadsafe(self._go.clear if on else self._go.set)

    def cut(self) -> None:
        """Both ends are told."""
        for writer in self._writers:
            self._loop.call_soon_threadsafe(writer.close)

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


@contextlib.contextmanager
def link(target: int, delay_s: float = 0.0) -> Iterator[Link]:
    made = Link(target, delay_s)
    try:
        yield made
    finally:
        made.close()
