"""From what `adapters.load_child` wrote to the answers of a lane.

Raw answers are kept until the lane is over, as far as `RAW_BYTES` go: reading them takes CPU from the lane.
"""

from __future__ import annotations

import array
import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anvil_tui.adapters.openai_client import cut
from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.chat_stream import StreamAssembler, message_answer
from anvil_tui.core.lanes import Instrument
from anvil_tui.core.measure import chunk_gaps_s, nearest_rank
from anvil_tui.core.sse import SseDecoder, SseTooLong
from anvil_tui.ports import LoadAnswer, LoadRequest, LoadRun

RAW_BYTES = 64 * 1024 * 1024
"""Of raw answers held at once; beyond it the oldest are read while the lane goes on."""

WORST_LAG_MS, WORST_LAG_SHARE = 5.0, 0.1
"""Of the p99 lag of the load generator, as such and of the median chunk gap."""

_NS = 1e9
_WHY = {
    "eof": "the connection closed before the end of the answer",
    "deadline": "not complete before the deadline",
    "unreachable": "no connection before the deadline",
    "unclean": "the connection closed inside a chunk",
}


@dataclass(frozen=True, slots=True)
class _Frame:
    """One request as the child told it: a dict, then stamps, lengths and bytes of its reads."""

    told: dict[str, Any]
    raw: bytes

    def reads(self) -> Iterator[tuple[int, bytes]]:
        count = self.told["reads"]
        stamps, lengths, at = array.array("q"), array.array("I"), 12 * count
        stamps.frombytes(self.raw[: 8 * count])
        lengths.frombytes(self.raw[8 * count : at])
        for stamp, length in zip(stamps, lengths, strict=True):
            yield stamp, self.raw[at : at + length]
            at += length

    def since_sent_s(self, stamp: int) -> float:
        return float((stamp - self.told["sent"]) / _NS)

    @property
    def message(self) -> str:
        return str(self.told["message"]) or _WHY.get(self.told["how"], "")


class Frames:
    """Takes the child's output as it comes. `count` requests are whole; `over` when the lane is; then `run`."""

    def __init__(self, requests: Sequence[LoadRequest]) -> None:
        self.over, self.count = False, 0
        self._requests = requests
        self._data = bytearray()
        self._frames: deque[_Frame] = deque()
        self._held = 0
        self._read: dict[int, LoadAnswer] = {}
        self._began_ns: dict[int, int] = {}
        self._lane: dict[str, Any] = {}

    def take(self, data: bytes) -> None:
        self._data += data
        while (frame := self._next()) is not None:
            self._frames.append(frame)
            self.count += 1
            self._held += len(frame.raw)
        while self._held > RAW_BYTES:
            self._judge()

    def _next(self) -> _Frame | None:
        end = self._data.find(b"\n")
        if end < 0:
            return None
        told = json.loads(self._data[:end])
        if "lane" in told:
            self._lane, self.over = told["lane"], True
            return None
        whole = end + 1 + 12 * told["reads"] + told["bytes"]
        if len(self._data) < whole:
            return None
        raw = bytes(self._data[end + 1 : whole])
        del self._data[:whole]
        return _Frame(told, raw)

    def _judge(self) -> None:
        frame = self._frames.popleft()
        self._held -= len(frame.raw)
        n = frame.told["n"]
        self._began_ns[n] = frame.told["began"]
        self._read[n] = LoadAnswer(self._requests[n].n, 0.0, _answer(frame))

    def run(self) -> LoadRun:
        while self._frames:
            self._judge()
        lane, start = self._lane, self._lane["start"]
        answers = tuple(
            replace(self._read[n], began_s=(self._began_ns[n] - start) / _NS) for n in sorted(self._read)
        )
        p50, p99, most = (us / 1000 for us in lane["lag_us"])
        instrument = Instrument(
            p50, p99, most, lane["collections"], lane["collection_max"] / 1e6, lane["cpu"] / _NS,
            lane["wall"] / _NS, lane["rss_kib"] / 1024, invalid=_invalid(p99, answers),
        )  # fmt: skip
        return LoadRun(answers, lane["wall"] / _NS, instrument)


def _invalid(lag_ms: float, answers: Sequence[LoadAnswer]) -> str:
    gaps = [1000 * gap for a in answers for gap in chunk_gaps_s(a.answer)]
    said = f"the load generator looked {lag_ms:.1f} ms late (p99)"
    if lag_ms > WORST_LAG_MS:
        return f"{said}, more than {WORST_LAG_MS:g} ms"
    if gaps and lag_ms > WORST_LAG_SHARE * (gap := nearest_rank(gaps, 0.5)):
        return f"{said}, more than a tenth of the median chunk gap of {gap:.1f} ms"
    return ""


def _answer(frame: _Frame) -> ChatAnswer:
    told, status = frame.told, frame.told["status"]
    waited_s = (told["sent"] - told["began"]) / _NS if told["sent"] else None
    if not status:
        return replace(_no_answer(frame), client_queue_s=waited_s)
    named = (line.partition(":") for line in told["head"].split("\r\n")[1:])
    headers = {k.strip().lower(): v.strip() for k, _, v in named}
    kind = headers.get("content-type", "")
    streamed = status == 200 and "text/event-stream" in kind
    answer = _streamed(frame) if streamed else _whole(frame, status, kind)
    return replace(answer, headers=headers, client_queue_s=waited_s)


def _no_answer(frame: _Frame) -> ChatAnswer:
    """No status line came: refused, closed, reset, silent, or something that is not HTTP."""
    how = frame.told["how"]
    if how == "deadline":
        return ChatAnswer(None, error="timeout", error_code=how, error_message="no answer before the deadline")
    if how == "not_http":
        return ChatAnswer(
            None, error="malformed", error_code=how, error_message=f"no HTTP answer: {frame.message}"
        )
    if how == "unreachable":
        return ChatAnswer(None, error="unreachable", error_message=frame.message)
    message = f"closed without an answer: {frame.message}"
    return ChatAnswer(None, error="unreachable", error_code="reset", error_message=message)


def _streamed(frame: _Frame) -> ChatAnswer:
    decoder, assembler, how, message = SseDecoder(), StreamAssembler(), frame.told["how"], frame.message
    at_s = end_s = frame.since_sent_s(frame.told["end"])
    if how == "eof" and frame.told["chunked"]:
        how, message = "unclean", _WHY["unclean"]
    try:
        for stamp, part in frame.reads():
            at_s = frame.since_sent_s(stamp)
            _feed(assembler, decoder, part, at_s)
        if how in ("whole", "marker", "eof"):
            how, message = "eof", ""
            _feed(assembler, decoder, None, at_s)
    except SseTooLong as why:
        how, message = "too_large", str(why)
    answer = assembler.end("done" if assembler.done else how, end_s, message)
    return replace(answer, notes=(*answer.notes, "invalid_utf8")) if decoder.replaced else answer


def _feed(assembler: StreamAssembler, decoder: SseDecoder, part: bytes | None, at_s: float) -> None:
    """The events of one read, or (None) what is left at the end; nothing after the end marker can matter."""
    for event in decoder.end() if part is None else decoder.feed(part):
        if not assembler.done:
            assembler.event(event, at_s)


def _whole(frame: _Frame, status: int, kind: str) -> ChatAnswer:
    told, body = frame.told, b"".join(part for _, part in frame.reads())
    how, end_s = told["how"], frame.since_sent_s(told["end"])
    if how == "deadline":
        return replace(cut(status, how, frame.message, body), error="timeout")
    closed_early = how == "eof" and (told["chunked"] or told["missing"])
    if closed_early or how in ("reset", "unclean") or (how == "too_large" and status == 200):
        return cut(status, how, frame.message, body)
    return message_answer(status, kind, body, told["sent_bytes"], end_s)
