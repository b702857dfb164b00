"""A small HTTP/1.1 server on asyncio and h11: enough for a daemon's socket and an engine's port.

A client that goes away cancels the handler that was working for it, as engines abort a request then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    def json(self) -> Any:
        """The body as JSON; None when it is empty. ValueError when it is not JSON."""
        return json.loads(self.body) if self.body else None

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() in ("1", "true", "t")


@dataclass(frozen=True, slots=True)
class Reply:
    """`stream` replaces `body`; it is sent chunked as it comes. `cut` ends the connection without an end mark."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncGenerator[bytes, None] | None = None


class Cut(Exception):
    """Raised by a handler or stream to break the connection where it stands."""


Handler = Callable[[Request], Awaitable[Reply]]


def json_reply(status: int, value: object, **headers: str) -> Reply:
    return Reply(status, json.dumps(value).encode(), headers=headers)


def text_reply(status: int, text: str, kind: str = "text/plain; charset=utf-8") -> Reply:
    return Reply(status, text.encode(), kind)


class Listener:
    """One listening socket and its connections."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def open_unix(self, path: Path) -> None:
        """The socket file is for its owner alone."""
        self._server = await asyncio.start_unix_server(self._serve, path=str(path))
        path.chmod(0o600)

    async def open_socket(self, bound: socket.socket) -> None:
        """Listen on a socket that was bound before."""
        self._server = await asyncio.start_server(self._serve, sock=bound, backlog=128)

    async def close(self) -> None:
        """Stop listening and break every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = list(self._open.items())
        for task, writer in tasks:
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*(t for t, _ in tasks), return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            await _Connection(reader, writer, self._handler).run()
        except (Cut, ConnectionError, h11.RemoteProtocolError, asyncio.CancelledError):
            writer.transport.abort()  # broken by us or by the far end: nobody is left to tell
        finally:
            self._open.pop(task, None)
            writer.close()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
        self._reader, self._writer, self._handler = reader, writer, handler
        self._h11 = h11.Connection(h11.SERVER)

    async def run(self) -> None:
        while (request := await self._request()) is not None:
            await self._while_connected(self._answer(request))
            if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
                return
            self._h11.start_next_cycle()

    async def _request(self) -> Request | None:
        head: h11.Request | None = None
        body: list[bytes] = []
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                if self._h11.they_are_waiting_for_100_continue:
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                self._h11.receive_data(await self._reader.read(READ_BYTES))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return _request(head, b"".join(body))
            else:
                return None

    async def _while_connected(self, work: Awaitable[None]) -> None:
        """Do the work, but give up when the client closes its side first."""
        doing = asyncio.ensure_future(work)
        watching = asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise Cut("client went away")
            doing.result()
        finally:
            for task in (doing, watching):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await watching
            if not doing.done():
                with contextlib.suppress(asyncio.CancelledError, ConnectionError, Cut):
                    await doing

    async def _watch(self) -> None:
        while data := await self._reader.read(READ_BYTES):
            self._h11.receive_data(data)

    async def _answer(self, request: Request) -> None:
        reply = await self._handler(request)
        headers = [("Content-Type", reply.kind), *reply.headers.items()]
        if reply.stream is None and reply.status not in (204, 304):
            headers.append(("Content-Length", str(len(reply.body))))
        await self._send(h11.Response(status_code=reply.status, headers=headers))
        if reply.stream is not None:
            async with contextlib.aclosing(reply.stream) as stream:
                async for chunk in stream:
                    await self._send(h11.Data(data=chunk))
        elif reply.body and request.method != "HEAD" and reply.status not in (204, 304):
            await self._send(h11.Data(data=reply.body))
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        data = self._h11.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()


def _request(head: h11.Request, body: bytes) -> Request:
    url = urlsplit(head.target.decode("latin-1"))
    headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in head.headers}
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    return Request(head.method.decode("latin-1"), unquote(url.path), query, headers, body)
