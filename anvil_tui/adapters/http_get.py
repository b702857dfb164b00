"""Bounded GETs to one loopback server over one kept-alive connection."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from anvil_tui.core.text import clean
from anvil_tui.ports import Clock

_SIZE_LIMIT = 8 * 1024 * 1024
_REDIRECTS = 2

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

    def __init__(self, base_url: str, clock: Clock) -> None:
        self._base, self._clock = httpx.URL(base_url), clock
        self._lock = threading.Lock()
        self._client = httpx.Client(
            base_url=base_url, trust_env=False, limits=httpx.Limits(max_connections=2, keepalive_expiry=60.0)
        )

    def get(self, path: str, *, api_key: str | None, timeout_s: float, accept: str = "application/json") -> Got:
        """Never raises. A kept-alive connection that the server has closed meanwhile is tried again once."""
        headers = {"Accept": accept, **({"Authorization": f"Bearer {api_key}"} if api_key else {})}
        got = self._try(path, headers, timeout_s)
        return self._try(path, headers, timeout_s) if got.failure == "empty" else got

    def _try(self, path: str, headers: Mapping[str, str], timeout_s: float) -> Got:
        deadline = self._clock.monotonic_s() + timeout_s
        try:
            for _ in range(_REDIRECTS + 1):
                got, onward = self._once(path, headers, deadline)
                if onward is None:
                    return got
                path = onward
            return Got(None, failure="redirect", reason="too many redirects")
        except httpx.ConnectError as error:
            return Got(None, failure="refused", reason=clean(str(error) or "connection refused", 200))
        except httpx.TimeoutException:
            return Got(None, failure="timeout", reason=f"no answer to {path} within {timeout_s:g} s")
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
            return Got(None, failure="empty", reason=f"the connection was closed without an answer ({error})")
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return Got(None, failure="broken", reason=clean(str(error), 200))

    def _once(self, path: str, headers: Mapping[str, str], deadline: float) -> tuple[Got, str | None]:
        left = max(0.05, deadline - self._clock.monotonic_s())
        with self._client.stream("GET", path, headers=dict(headers), timeout=left) as response:
            if response.is_redirect:
                return self._redirect(response)
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > _SIZE_LIMIT:
                    return Got(None, failure="too_large", reason=f"{path} answered over {_SIZE_LIMIT} bytes"), None
                if self._clock.monotonic_s() > deadline:
                    raise httpx.ReadTimeout("slow body")
            return Got(response.status_code, bytes(body), headers=dict(response.headers)), None

    def _redirect(self, response: httpx.Response) -> tuple[Got, str | None]:
        target = self._base.join(response.headers.get("location", ""))
        if (target.host, target.port) != (self._base.host, self._base.port):
            host = clean(target.host, 80)
            return Got(None, failure="redirect", reason=f"redirects to another host ({host}); not followed"), None
        return Got(response.status_code), target.raw_path.decode("ascii")

    def close(self) -> None:
        self._client.close()
