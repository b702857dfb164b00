"""Clients that stream through the gateway and never stop, in a process of their own.

Every answer must be complete and wholly from one engine: all chunks of a stream name one model and one
fingerprint, and the gateway's header names the backend. One JSON line an answer: n, backend, model, error, at, ms.
`at` is when it was asked, by the monotonic clock, which all processes share.
`ClientLoop` starts and ends the process and reads what it wrote; a loop that ended by itself is an error too.
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.wait import wait_until

WORKERS, MAX_REQUESTS, MAX_S, TIMEOUT_S = 2, 200_000, 1_500, 90
# A token is 25 ms of a core and a question never asked before 75 ms: four of a known one are a stream of several
# chunks, a third of the time in flight, and leave the machine to what is tested.
PACE_S, TOKENS = 0.2, 4
PATHS = ("/llm.primary/v1/chat/completions", "/v1/chat/completions")


def ask(
    bind: str, key: str, number: int, tokens: int = TOKENS, *, endless: bool = False, by_path: bool = False
) -> dict[str, Any]:
    """One streamed completion; `error` is "" for a complete answer from one engine. `endless` = all `tokens` are
    made; `by_path` = the alias stands in the path alone, for an engine that knows only its own name."""
    host, port = bind.split(":")
    began = time.monotonic()
    connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
    row: dict[str, Any] = {"n": number, "backend": "", "model": "", "error": ""}
    try:
        body = {"model": "llm.secondary", "stream": True, "max_tokens": tokens, "temperature": 0,
                "messages": [{"role": "user", "content": "Count to five."}]}  # fmt: skip
        body |= {"ignore_eos": True} if endless else {}
        if by_path:
            del body["model"]
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request("POST", PATHS[0 if by_path else number % 2], json.dumps(body), headers)
        answer = connection.getresponse()
        row["backend"] = answer.getheader("x-anvil-backend", "")
        row["error"] = whole(answer, row) if answer.status == 200 else f"{answer.status}: {answer.read(300)!r}"
    except (OSError, http.client.HTTPException, ValueError) as why:
        row["error"] = f"{type(why).__name__}: {why}"
    finally:
        connection.close()
    return row | {"at": round(began, 4), "ms": round((time.monotonic() - began) * 1000, 1)}


def whole(answer: http.client.HTTPResponse, row: dict[str, Any]) -> str:
    """What is wrong with a stream; "" for a complete answer of one engine."""
    engines, finished, done = set(), "", False
    for line in (raw.decode().strip() for raw in answer):
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            done = True
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            return f"error in the stream: {chunk['error']}"
        engines.add((chunk.get("model"), chunk.get("system_fingerprint")))
        for choice in chunk.get("choices", ()):
            finished = choice.get("finish_reason") or finished
    row["model"] = "+".join(sorted(str(model) for model, _ in engines))
    if len(engines) != 1 or not row["backend"]:
        return f"chunks of {len(engines)} engines in one answer from backend {row['backend']!r}"
    return "" if done and finished else f"broke off (done {done}, finish {finished!r})"


def main(bind: str, key_file: str, out: str, max_s: str, pace_s: str, tokens: str, by_path: str) -> int:
    """0 when it was told to stop; 1 when it came to one of its bounds. `pace_s` is a pause after each request."""
    key, stop, lock = Path(key_file).read_text().strip(), threading.Event(), threading.Lock()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    until = time.monotonic() + float(max_s)
    with Path(out).open("a", buffering=1) as file:

        def work(first: int) -> None:
            number = first
            while not stop.is_set() and number < MAX_REQUESTS and time.monotonic() < until:
                row = ask(bind, key, number, int(tokens), by_path=bool(by_path))
                with lock:
                    file.write(json.dumps(row) + "\n")
                number += WORKERS
                stop.wait(float(pace_s))

        with ThreadPoolExecutor(WORKERS) as pool:
            for worker in [pool.submit(work, n) for n in range(WORKERS)]:
                worker.result()
    return 0 if stop.is_set() else 1


class ClientLoop:
    """`errors()` and `answers()` are complete once the block has ended. What it writes lies beside the workspace's
    state, so that a full state folder does not stop it."""

    def __init__(
        self, workspace: Path, max_s: float = MAX_S, pace_s: float = PACE_S, tokens: int = TOKENS,
        by_path: bool = False,
    ) -> None:  # fmt: skip
        from anvil_tui.adapters.toml_files import load_workspace

        gateway = load_workspace(workspace).gateway
        self._bind, self._key = gateway.bind, workspace / gateway.client_keys[0].removeprefix("file:")
        self._out = workspace / f"clients-{time.monotonic_ns()}.ndjson"
        self._bounds = (str(max_s), str(pace_s), str(tokens), "1" if by_path else "")

    def __enter__(self) -> ClientLoop:
        given = (self._bind, str(self._key), str(self._out), *self._bounds)
        self._process = subprocess.Popen([sys.executable, "-m", "tests.real.client_loop", *given])
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT_S + 10)

    def rows(self) -> list[dict[str, Any]]:
        text = self._out.read_text() if self._out.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def answers(self) -> list[dict[str, Any]]:
        return [r for r in self.rows() if not r["error"]]

    def errors(self) -> list[dict[str, Any]]:
        found = [r for r in self.rows() if r["error"]]
        if self._process.poll():
            found.append({"error": f"the client loop ended with {self._process.returncode}, its clients stopped"})
        return found

    def wait_answers(self, more: int) -> None:
        """Until the clients got this many further answers (errors count as rows, and are asserted later)."""
        have = len(self.rows())
        wait_until(lambda: len(self.rows()) >= have + more or self._process.poll(), f"{more} more answers", 60)


class LongStream:
    """One stream through the gateway that goes on for seconds; its first bytes are there when the block begins."""

    def __init__(self, workspace: Path, tokens: int = 1200) -> None:
        from anvil_tui.adapters.toml_files import load_workspace

        host, port = load_workspace(workspace).gateway.bind.split(":")
        self._link = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
        key = (workspace / "state" / "client.key").read_text().strip()
        self._head = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._body = {"model": "llm.primary", "stream": True, "max_tokens": tokens, "temperature": 0,
                      "ignore_eos": True, "messages": [{"role": "user", "content": "Count."}]}  # fmt: skip

    def __enter__(self) -> LongStream:
        self._link.request("POST", "/v1/chat/completions", json.dumps(self._body), self._head)
        self._answer = self._link.getresponse()
        assert self._answer.status == 200, self._answer.read(300)
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._link.close()

    def whole(self) -> str:
        """Read to its end; "" = it came whole, else what is wrong with it."""
        row = {"backend": self._answer.getheader("x-anvil-backend", "")}
        try:
            return whole(self._answer, row)
        except (OSError, http.client.HTTPException, ValueError) as why:
            return f"{type(why).__name__}: {why}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
