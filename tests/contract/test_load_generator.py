"""Lanes of the load generator over real sockets, with its real child process. No timing is asserted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import psutil
import pytest

from anvil_tui.adapters import load_answers
from anvil_tui.adapters.load_generator import ChildLoadGenerator, timing_server, timing_stats
from anvil_tui.core.chat import ChatAnswer, ChatRequest, decode_tok_s, request_body
from anvil_tui.core.errors import EffectFailed, Unreachable
from anvil_tui.core.measure import row_of
from anvil_tui.ports import LoadAnswer, LoadGenerator, LoadLane, LoadRequest, LoadRun
from tests.support.ports import free_ports
from tests.support.scripted import DONE, SSE_HEAD, Script, Seen, Step, answer, chunk, scripted
from tests.support.wait import wait_until

GENERATOR: LoadGenerator = ChildLoadGenerator()
ASKED = request_body(ChatRequest("m", ({"role": "user", "content": "hi"},), max_tokens=4, stream=True))
EVENTS = chunk(content="ok") + chunk(finish="stop") + DONE
OK: list[Step] = [SSE_HEAD, EVENTS]


def requests(count: int, **body: object) -> tuple[LoadRequest, ...]:
    return tuple(LoadRequest(100 + n, ASKED | body) for n in range(count))


def run(url: str, count: int, streams: int = 1, timeout_s: float = 20.0) -> LoadRun:
    lane = LoadLane(url, requests(count), streams, timeout_s)
    return GENERATOR.run(lane, lambda done: None, lambda: False)


def one(*scripts: Script, timeout_s: float = 20.0, read_body: bool = True) -> ChatAnswer:
    with scripted(*scripts, read_body=read_body) as server:
        (got,) = run(server.url, 1, timeout_s=timeout_s).answers
    return got.answer


def child_of(pid: int, module: str = "load_child") -> psutil.Process | None:
    found = [p for p in psutil.Process(pid).children() if module in " ".join(p.cmdline())]
    return found[0] if found else None


def test_64_streams_and_every_answer_counted() -> None:
    """Each request has one answer, each token one chunk; connections are used again."""
    done: list[int] = []
    with timing_server() as port:
        lane = LoadLane(f"http://127.0.0.1:{port}", requests(192, max_tokens=5), 64, 30.0)
        got = GENERATOR.run(lane, done.append, lambda: False)
        truth = timing_stats(port)
    assert [a.n for a in got.answers] == list(range(100, 292))
    assert done == list(range(1, 193))
    row = row_of(got, lane="c64", streams=64)
    assert (row.requests, row.failed) == (192, 0)
    assert {(a.answer.completion_tokens, len(a.answer.content)) for a in got.answers} == {(5, 10)}
    assert len(truth) == 192
    assert sum(r["chunks"] for r in truth) == 192 * 5
    assert row.decode_tok_s is not None and row.decode_tok_s.n == 192
    assert most_at_once(truth) == 64
    assert got.instrument.collections == 0
    assert got.instrument.rss_mib > 5 and got.instrument.cpu_s > 0
    assert child_of(os.getpid()) is None


def most_at_once(truth: list[dict[str, int]]) -> int:
    moves = sorted([(r["start"], 1) for r in truth] + [(r["end"], -1) for r in truth])
    return max(accumulate(step for _, step in moves))


@dataclass
class Together:
    """Answers only when `count` requests are here at once."""

    count: int
    barrier: threading.Barrier = field(init=False)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.count)

    def __call__(self, seen: Seen) -> Sequence[Step]:
        self.barrier.wait(10)
        return OK


@pytest.mark.parametrize(("streams", "burst"), [(8, False), (2, True)])
def test_so_many_at_once(streams: int, burst: bool) -> None:
    """A burst sends all, whatever `streams` says; a closed loop never more than its streams."""
    with scripted(Together(8)) as server:
        lane = LoadLane(server.url, requests(8 if burst else 16), streams, 20.0, burst=burst)
        got = GENERATOR.run(lane, lambda done: None, lambda: False)
    assert [a.answer.error for a in got.answers] == [None] * (8 if burst else 16)


def test_what_is_sent() -> None:
    with scripted(OK) as server:
        body = {"model": "m", "messages": [{"role": "user", "content": "näive\n模型"}], "stream": True}
        lane = LoadLane(server.url + "/@slot-a/", (LoadRequest(7, body),), 1, 20.0, api_key="s3cret-key")
        shown: list[str] = []

        def look() -> bool:
            child = child_of(os.getpid())
            shown.extend(child.cmdline() if child and not shown else ())
            return False

        (got,) = GENERATOR.run(lane, lambda done: None, look).answers
    (seen,) = server.seen
    assert (seen.path, seen.json) == ("/@slot-a/v1/chat/completions", body)
    assert (seen.headers["authorization"], seen.headers["content-type"]) == (
        "Bearer s3cret-key",
        "application/json",
    )
    assert seen.headers["host"] == server.url.removeprefix("http://")
    assert (got.n, got.answer.content, got.answer.finish_reason) == (7, "ok", "stop")
    assert shown and "s3cret-key" not in " ".join(shown)


CHUNKED = SSE_HEAD.replace(b"Connection: close", b"Transfer-Encoding: chunked")


def in_chunks(data: bytes, size: int) -> bytes:
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in parts) + b"0\r\n\r\n"


PING: list[Step] = [0.1, b": ping\n\n"]
PAGE = b"<html><title>413 Request Entity Too Large</title></html>"
STREAMS: dict[str, tuple[Sequence[Step], str | None, str, str]] = {
    "done": (OK, None, "", "ok"),
    "closed after the finish reason": ([SSE_HEAD, EVENTS.removesuffix(DONE)], None, "", "ok"),
    "done, and the socket stays open": ([*OK, "hold"], None, "", "ok"),
    "chunks of 7 bytes": ([CHUNKED, in_chunks(EVENTS, 7)], None, "", "ok"),
    "closed too early": ([SSE_HEAD, chunk(content="The")], "truncated", "eof", "The"),
    "closed inside a chunk": ([CHUNKED, in_chunks(chunk(content="The"), 99)[:-5]], "truncated", "unclean", "The"),
    "reset": ([SSE_HEAD, chunk(content="The"), 0.1, "reset"], "truncated", "reset", "The"),
    "silent": ([SSE_HEAD, chunk(content="The"), "hold"], "timeout", "deadline", "The"),
    "heartbeats only": ([SSE_HEAD, *PING * 30], "timeout", "deadline", ""),
    "no answer": (["hold"], "timeout", "deadline", ""),
    "closed without an answer": ([], "unreachable", "reset", ""),
    "not HTTP": ([b"220 mail.example.com ESMTP\r\n"], "malformed", "not_http", ""),
    "a broken event": ([SSE_HEAD, b"data: {nope\n\n", DONE], "malformed", "protocol_error", ""),
    "an endless line": ([SSE_HEAD, b"data: " + b"x" * 5_000_000], "malformed", "too_large", ""),
    "a size that is none": ([CHUNKED, b"zz\r\n"], "truncated", "unclean", ""),
}


@pytest.fixture(scope="module")
def streamed() -> Iterator[dict[str, ChatAnswer]]:
    """All of them in one lane, in a burst: each connection plays one, told apart by the prompt."""
    names = list(STREAMS)

    def script(seen: Seen) -> Sequence[Step]:
        return STREAMS[names[seen.json["seed"]]][0]

    with scripted(script) as server:
        asked = tuple(LoadRequest(n, ASKED | {"seed": n}) for n in range(len(names)))
        got = GENERATOR.run(LoadLane(server.url, asked, 1, 1.0, burst=True), lambda done: None, lambda: False)
    yield dict(zip(names, (a.answer for a in got.answers), strict=True))


@pytest.mark.parametrize("name", STREAMS)
def test_what_the_network_does_to_a_stream(name: str, streamed: dict[str, ChatAnswer]) -> None:
    _, error, code, content = STREAMS[name]
    got = streamed[name]
    assert (got.error, got.error_code, got.content) == (error, code, content)
    assert bool(got.error_message) == (error is not None)
    assert (got.status == 200) == (
        got.error not in ("unreachable",) and code != "not_http" and name != "no answer"
    )


@pytest.mark.parametrize(
    ("script", "status", "error", "code"),
    [
        ([answer({"error": {"message": "no key"}}, "401 Unauthorized")], 401, "http", "unauthorized"),
        ([answer(PAGE, "413 Request Entity Too Large", "text/html")], 413, "http", "payload_too_large"),
        ([answer(b"x" * 200_000, "500 Internal Server Error", "text/plain")], 500, "http", None),
        ([b"HTTP/1.1 204 No Content\r\n\r\n", "hold"], 204, "http", None),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", *OK], 200, None, ""),
        ([answer(b'{"choices":[]}')], 200, "malformed", None),
        ([answer(b"{}")[:-1]], 200, "truncated", "eof"),
    ],
)  # fmt: skip
def test_answers_that_are_no_stream(script: Script, status: int, error: str | None, code: str | None) -> None:
    got = one(script)
    assert (got.status, got.error) == (status, error)
    assert code is None or got.error_code == code


def test_a_large_body_is_sent_whole_and_an_early_refusal_is_read() -> None:
    large = "x" * 8_000_000
    asked = (LoadRequest(0, ASKED | {"messages": [{"role": "user", "content": large}]}),)
    with scripted(OK) as server:
        (got,) = GENERATOR.run(LoadLane(server.url, asked, 1, 20.0), lambda done: None, lambda: False).answers
        assert server.seen[0].json["messages"][0]["content"] == large
    assert got.answer.error is None
    page = answer(PAGE, "413 Request Entity Too Large", "text/html")
    with scripted([page, 0.2], read_body=False) as server:
        (got,) = GENERATOR.run(LoadLane(server.url, asked, 1, 20.0), lambda done: None, lambda: False).answers
    assert (got.answer.status, got.answer.error_code) == (413, "payload_too_large")


def test_a_server_that_closes_after_each_answer_costs_no_request() -> None:
    """It says nothing of it, so that every second request may meet a connection that is just being closed."""
    body = {"choices": [{"index": 0, "message": {"content": "ok"}, "finish_reason": "stop"}]}
    with scripted([answer(body)]) as server:
        got = run(server.url, 40, streams=4)
    assert [a.answer.error for a in got.answers] == [None] * 40
    assert len(server.seen) == 40


def test_nobody_listens() -> None:
    got = run(f"http://127.0.0.1:{free_ports(1)[0]}", 500, streams=4)
    assert {(a.answer.error, a.answer.status, a.answer.ttft_any_s) for a in got.answers} == {
        ("unreachable", None, None)
    }
    assert len(got.answers) == 500
    assert "refused" in got.answers[0].answer.error_message.lower()


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "nonsense", "http://127.0.0.1:notaport"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(Unreachable, match=r"spoken|Port|port"):
        run(url, 1)


def test_a_host_that_has_no_address_is_named() -> None:
    with pytest.raises(EffectFailed, match=r"load_child ended with status 1: no-such-host\.invalid: "):
        run("http://no-such-host.invalid:8000", 1)


def test_after_a_cancel_no_request_begins_and_those_under_way_end() -> None:
    with scripted(OK) as server:
        lane = LoadLane(server.url, requests(5000), 2, 20.0)
        got = GENERATOR.run(lane, lambda done: None, lambda: len(server.seen) >= 2)
        seen = len(server.seen)
    assert 2 <= len(got.answers) == seen < 5000
    assert {a.answer.error for a in got.answers} == {None}


def test_a_cancel_before_the_first_request() -> None:
    with scripted(OK) as server:
        got = GENERATOR.run(LoadLane(server.url, requests(5000), 2, 20.0), lambda done: None, lambda: True)
    assert len(got.answers) < 5000


def test_a_cancel_after_everything_was_said_loses_no_answer() -> None:
    """Whoever decides to cancel may take long, as in an operator's pause; the child has ended meanwhile."""
    asked: list[int] = []

    def cancelled() -> bool:
        if not asked:
            asked.append(1)
            child = child_of(os.getpid())
            assert child is not None
            wait_until(lambda: child.status() == psutil.STATUS_ZOMBIE, "the child has ended", 20)
        return True

    with scripted(OK) as server:
        found = GENERATOR.run(LoadLane(server.url, requests(1), 1, 20.0), lambda done: None, cancelled)
    assert [a.answer.error for a in found.answers] == [None]


def test_a_killed_child_is_an_error_and_leaves_no_zombie() -> None:
    def kill(done: int) -> None:
        if done == 1:  # what the pipe already holds is told after the kill, too
            child = child_of(os.getpid())
            assert child is not None
            child.kill()

    with scripted(OK) as server:
        lane = LoadLane(server.url, requests(5000), 2, 20.0)
        with pytest.raises(EffectFailed, match="load_child ended with status -9"):
            GENERATOR.run(lane, kill, lambda: False)
    assert child_of(os.getpid()) is None


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("/does/not/exist",), "cannot be started"),
        ((sys.executable, "-c", "import sys; sys.exit('no luck')"), "ended with status 1: no luck"),
    ],
)
def test_a_child_that_does_not_start(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(EffectFailed, match=message):
        ChildLoadGenerator(argv).run(LoadLane("http://127.0.0.1:1", requests(1), 1, 1.0), print, lambda: False)


PARENT = """
import sys
from anvil_tui.adapters.load_generator import ChildLoadGenerator
from anvil_tui.ports import LoadLane, LoadRequest
lane = LoadLane(sys.argv[1], (LoadRequest(0, {"stream": True}),), 1, 60.0)
ChildLoadGenerator().run(lane, print, lambda: False)
"""


def test_the_child_dies_with_its_parent() -> None:
    with scripted(["hold"]) as server:
        parent = subprocess.Popen([sys.executable, "-c", PARENT, server.url])
        try:
            wait_until(lambda: server.seen, "the request")
            child = child_of(parent.pid)
            assert child is not None
        finally:
            os.kill(parent.pid, signal.SIGKILL)
            parent.wait()
        wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the child is gone")


def test_answers_are_the_same_when_they_are_read_while_the_lane_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_answers, "RAW_BYTES", 100)
    with scripted(OK) as server:
        got = run(server.url, 20, streams=2)
    assert [(a.n, a.answer.content, a.answer.error) for a in got.answers] == [
        (100 + n, "ok", None) for n in range(20)
    ]


def test_the_instrument_knows_its_error() -> None:
    p50, p95 = GENERATOR.error_ms(16)
    assert isinstance(p50, float) and p50 <= p95 + 200
    assert child_of(os.getpid(), "timing_server") is None


LANE = {"start": 0, "wall": 10**9, "cpu": 10**7, "rss_kib": 15360, "collections": 1, "collection_max": 2_000_000}


def told(lag_us: Sequence[int], gap_ms: int | None = None) -> LoadRun:
    """A lane of one answer as the child writes it, with chunks `gap_ms` apart."""
    ns = 1_000_000
    reads = [] if gap_ms is None else [(200 + gap_ms * n, chunk(content="t")) for n in range(5)]
    head = {
        "n": 0, "began": 0, "sent": ns, "end": 900 * ns, "how": "marker", "message": "", "status": 200,
        "head": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream", "reads": len(reads), "chunked": False,
        "bytes": sum(len(part) for _, part in reads), "missing": None, "sent_bytes": 10,
    }  # fmt: skip
    stamps = b"".join((ns + at * ns).to_bytes(8, sys.byteorder) for at, _ in reads)
    lengths = b"".join(len(part).to_bytes(4, sys.byteorder) for _, part in reads)
    frames = load_answers.Frames((LoadRequest(9, {}),))
    whole = json.dumps(head).encode() + b"\n" + stamps + lengths + b"".join(part for _, part in reads)
    whole += json.dumps({"lane": LANE | {"lag_us": list(lag_us)}}).encode() + b"\n"
    for at in range(0, len(whole), 11):
        assert not frames.over
        frames.take(whole[at : at + 11])
    return frames.run()


@pytest.mark.parametrize(
    ("lag_us", "gap_ms", "invalid"),
    [
        ((100, 1900, 90_000), 20, ""),
        ((100, 2100, 2100), 20, "2.1 ms late (p99), more than a tenth of the median chunk gap of 20.0 ms"),
        ((100, 5100, 5100), 100, "5.1 ms late (p99), more than 5 ms"),
        ((100, 4900, 5100), None, ""),
    ],
)
def test_a_late_instrument_is_invalid(lag_us: tuple[int, int, int], gap_ms: int | None, invalid: str) -> None:
    got = told(lag_us, gap_ms).instrument
    assert got.invalid.endswith(invalid) and bool(got.invalid) == bool(invalid)
    assert (got.lag_p50_ms, got.lag_max_ms, got.rss_mib, got.collections) == (0.1, lag_us[2] / 1000, 15.0, 1)
    assert (got.cpu_s, got.wall_s, got.collection_max_ms) == (0.01, 1.0, 2.0)


def test_times_count_from_the_last_byte_sent() -> None:
    (got,) = told((0, 0, 0), 20).answers
    assert got == LoadAnswer(9, 0.0, got.answer)
    assert got.answer.client_queue_s == 0.001
    assert got.answer.token_times_s == pytest.approx((0.2, 0.22, 0.24, 0.26, 0.28))
    assert got.answer.ttft_any_s == pytest.approx(0.2)
    assert got.answer.end_s == pytest.approx(0.899)
    assert decode_tok_s(got.answer) is None  # no usage
