"""The control socket: one JSON object a line in, one out; `gpus` streams snapshot lines."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from anvil_tui.simbox import faults
from anvil_tui.simbox.daemon import DockerError

if TYPE_CHECKING:
    from anvil_tui.simbox.box import SimBox


class Control:
    def __init__(self, box: SimBox) -> None:
        self._box = box
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def open(self) -> None:
        path = self._box.control_path
        self._server = await asyncio.start_unix_server(self._serve, path=str(path))
        path.chmod(0o600)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task, writer in list(self._open.items()):
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            while line := await reader.readline():
                await self._answer(line, writer)
        except (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()  # the other side left, or we close
        finally:
            self._open.pop(task, None)
            writer.close()

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            asked = json.loads(line)
            if asked.get("do") == "gpus":
                await self._gpus(float(asked.get("interval_s", 1.0)), writer)
                return
            reply = {"ok": True, "text": await self._do(asked)}
        except (faults.BadFault, DockerError, ValueError, AttributeError) as why:
            reply = {"ok": False, "text": str(why)}
        await _send(writer, reply)

    async def _do(self, asked: dict[str, Any]) -> Any:
        match asked.get("do"):
            case "fault":
                args = {str(k): str(v) for k, v in asked.get("args", {}).items()}
                return await faults.put(self._box, str(asked.get("name")), args)
            case "clear":
                return await faults.clear(self._box, str(asked.get("name") or ""))
            case "list":
                return {name: {"help": f.help, "keys": list(f.keys)} for name, f in faults.FAULTS.items()}
            case "status":
                return self._box.status()
            case other:
                raise ValueError(f"do: {other!r} is not one of fault, clear, list, status, gpus")

    async def _gpus(self, interval_s: float, writer: asyncio.StreamWriter) -> None:
        while True:
            if not self._box.board.silent:
                await _send(writer, self._box.board.line())
            await asyncio.sleep(interval_s)


async def _send(writer: asyncio.StreamWriter, value: object) -> None:
    writer.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")
    await writer.drain()
