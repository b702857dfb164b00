"""Bounded GETs to one loopback server over one kept-alive connection."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

from anvil_tui.adapters.timed_socket import TimedSocket, connect
from anvil_tui.core.text import clean
from anvil_tui.ports import Clock

_SIZE_LIMIT = 8 * 1024 * 1024
_REDIRECTS = 2
_IDLE, _KEEP_S = 2, 60.0

Failure = Literal["", "refused", "empty", "timeout", "broken", "too_large", "redirect"]


@dataclass(frozen=True, slots=True)
class Got:
    """One answer. `status` None means none came: `failure` is its class and `reason` a sentence."""

    status: int | None
    body: bytes = b""
    failure: Failure = ""
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body's JSON, None when it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def object(self) -> dict[str, Any]:
        """The body's JSON object, empty when it is none."""
        found = self.json()
        return found if isinstance(found, dict) else {}

    def said(self) -> str:
        """Why this is no 200, in the server's words where it has any: every engine's form of an error body."""
        if self.status is None:
            return self.reason
        body = self.object()
        error = body.get("error", body)
        message = error.get("message") if isinstance(error, dict) else error
        return clean(f"HTTP {self.status}: {message}" if isinstance(message, str) else f"HTTP {self.status}", 300)


class Getter:
    """GETs one base URL. No proxy, no redirect to another host, size and total time capped. Thread-safe."""

    def __init__(
        self, base_url: str, clock: Clock, *, redirects: int = _REDIRECTS, size_limit: int = _SIZE_LIMIT
    ) -> None:
        self._base, self._now = urlsplit(base_url), clock.monotonic_s
        self._redirects, self._size_limit = redirects, size_limit
        self._lock = threading.Lock()
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []

    def get(self, path: str, *, api_key: str | None, timeout_s: float, accept: str = "application/json") -> Got:
        """Never raises. A kept-alive connection that the server has closed meanwhile is tried again once."""
        headers = {"Accept": accept, **({"Authorization": f"Bearer {api_key}"} if api_key else {})}
        got = self._try(path, headers, timeout_s)
        return self._try(path, headers, timeout_s) if got.failure == "empty" else got

    def _try(self, path: str, headers: Mapping[str, str], timeout_s: float) -> Got:
        deadline = self._now() + timeout_s
        try:
            for _ in range(self._redirects + 1):
                got, onward = self._once(path, headers, deadline)
                if onward is None:
                    return got
                path = onward
            return Got(None, failure="redirect", reason="too many redirects")
        except TimeoutError:
            return Got(None, failure="timeout", reason=f"no answer to {path} within {timeout_s:g} s")
        except _Refused as error:
            return Got(None, failure="refused", reason=clean(str(error) or "connection refused", 200))
        except (OSError, http.client.HTTPException) as error:
            return Got(None, failure="empty", reason=f"the connection was closed without an answer ({error})")
        except ValueError as error:
            return Got(None, failure="broken", reason=clean(str(error), 200))

    def _once(self, path: str, headers: Mapping[str, str], deadline: float) -> tuple[Got, str | None]:
        connection = self._connection(deadline)
        try:
            connection.request("GET", path, headers=dict(headers))
            response = connection.getresponse()
            body = self._body(response)
        except BaseException:
            connection.close()
            raise
        if response.isclosed() and not response.will_close:
            self._keep(connection)
        else:
            connection.close()
        if body is None:
            reason = f"{path} answered over {self._size_limit} bytes"
            return Got(None, failure="too_large", reason=reason), None
        if 300 <= response.status < 400:
            return self._redirect(response)
        seen = {name.lower(): value for name, value in response.getheaders()}
        return Got(response.status, body, headers=seen), None

    def _body(self, response: http.client.HTTPResponse) -> bytes | None:
        """None when it is over the limit."""
        body = response.read(self._size_limit + 1)
        if len(body) > self._size_limit:
            return None
        if response.length:
            raise http.client.IncompleteRead(body, response.length)
        return body

    def _connection(self, deadline: float) -> http.client.HTTPConnection:
        """One that is idle, else a new one; connected, with this deadline over everything that is done on it."""
        now = self._now()
        with self._lock:
            while self._idle:
                kept, since = self._idle.pop()
                if now - since < _KEEP_S and isinstance(kept.sock, TimedSocket):
                    kept.sock.deadline_s = deadline
                    return kept
                kept.close()
        made = http.client.HTTPConnection(self._base.hostname or "", self._base.port)
        try:
            made.sock = connect(made.host, made.port, deadline, self._now)
        except TimeoutError:
            raise
        except OSError as error:
            raise _Refused(error) from error
        return made

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < _IDLE:
                self._idle.append((connection, self._now()))
                return
        connection.close()

    def _redirect(self, response: http.client.HTTPResponse) -> tuple[Got, str | None]:
        target = urlsplit(urljoin(self._base.geturl(), response.getheader("Location") or ""))
        if (target.hostname, target.port) != (self._base.hostname, self._base.port):
            host = clean(target.hostname or "", 80)
            return Got(None, failure="redirect", reason=f"redirects to another host ({host}); not followed"), None
        return Got(response.status), (target.path or "/") + (f"?{target.query}" if target.query else "")

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop()[0].close()


class _Refused(Exception):
    """Nobody listens there."""
