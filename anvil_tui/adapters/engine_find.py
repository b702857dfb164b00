"""Which engine answers at a loopback port, by its own answers. Asks little: no key, no redirect, no generation.

Every engine of the OpenAI kind answers `/v1/models`, with a list, with 401, or with the reason why not yet. Only
who answers that is asked more. A proxy passes on `owned_by` of what is behind it, so a second answer must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anvil_tui.adapters.http_get import Getter, Got
from anvil_tui.core.discovery import Recognised
from anvil_tui.core.recipe import EngineKind
from anvil_tui.ports import Clock

_TIMEOUT_S = 2.0
_SIZE_LIMIT = 1024 * 1024
_PROMETHEUS = "text/plain;version=0.0.4"
_Get = Callable[..., Got]
_PREFIXES = {
    "vllm:": EngineKind.VLLM,
    "sglang:": EngineKind.SGLANG,
    "llamacpp:": EngineKind.LLAMACPP,
}


class HttpEngineFinder:
    """`ports.EngineFinder` of this machine's loopback."""

    def __init__(self, clock: Clock, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._clock, self._timeout_s = clock, timeout_s

    def recognise(self, port: int) -> Recognised:
        getter = Getter(f"http://127.0.0.1:{port}", self._clock, redirects=0, size_limit=_SIZE_LIMIT)
        try:
            return self._told(getter, port)
        finally:
            getter.close()

    def _told(self, getter: Getter, port: int) -> Recognised:
        def get(path: str, accept: str = "application/json") -> Got:
            return getter.get(path, api_key=None, timeout_s=self._timeout_s, accept=accept)

        models = get("/v1/models")
        where = f"127.0.0.1:{port}"
        if models.status is None:
            silent = models.failure in ("refused", "empty", "timeout")
            return Recognised("silent" if silent else "other", why=f"{where}: {models.reason}")
        if models.ok and _cards(models) is not None:
            return Recognised("engine", _kind(models, get))
        if _is_llamacpp(models):
            return Recognised("engine", EngineKind.LLAMACPP)
        if models.status in (401, 403) and isinstance(models.json(), dict):
            return Recognised("engine", _behind_key(get))
        if models.status in (502, 503, 504):
            return Recognised("silent", why=f"{where}: {models.said()}")
        return Recognised("other", why=f"{where} is no server of the OpenAI kind: /v1/models says {models.said()}")


def _cards(got: Got) -> list[Any] | None:
    data = got.object().get("data")
    return data if isinstance(data, list) else None


def _kind(models: Got, get: _Get) -> EngineKind:
    owners = [card.get("owned_by") for card in _cards(models) or () if isinstance(card, dict)]
    if "vllm" in owners and _version(get("/version")):
        return EngineKind.VLLM
    if "sglang" in owners and _has_model(get):
        return EngineKind.SGLANG
    if "llamacpp" in owners and (get("/props").object().keys() & {"total_slots", "build_info"}):
        return EngineKind.LLAMACPP
    return EngineKind.OPENAI


def _version(got: Got) -> bool:
    """vLLM's whole answer is one word; others that have the path tell more, or something else."""
    told = got.object()
    return got.ok and set(told) == {"version"} and isinstance(told["version"], str)


def _has_model(get: _Get) -> bool:
    """/model_info, under its older name on 404."""
    got = get("/model_info")
    return "model_path" in (get("/get_model_info") if got.status == 404 else got).object()


def _behind_key(get: _Get) -> EngineKind:
    """It wants a key, and none is sent: what it leaves open tells who it is, else it is one of the OpenAI kind."""
    if _version(get("/version")):
        return EngineKind.VLLM
    metrics = get("/metrics", _PROMETHEUS)
    found = {kind for prefix, kind in _PREFIXES.items() if metrics.ok and f"\n{prefix}" in f"\n{metrics.text}"}
    return found.pop() if len(found) == 1 else EngineKind.OPENAI


def _is_llamacpp(got: Got) -> bool:
    """llama-server's own words while it loads its model, and to who has no key."""
    error = got.object().get("error")
    if not isinstance(error, dict) or error.get("code") != got.status:
        return False
    return (got.status, error.get("type"), error.get("message")) in (
        (503, "unavailable_error", "Loading model"),
        (401, "authentication_error", "Invalid API Key"),
    )
