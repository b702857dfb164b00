"""What requests in progress are doing, as far as the gateway's bytes prove it. Pure.

A request is `waiting` until its answer has begun: in a queue, while a long prompt is read, or because the whole
answer comes at once. Then bytes flow, or have been missing for a moment (`quiet`), or for so long that it is
`stalled`. A slow stream is never stalled: each byte begins the count anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Literal

from anvil_tui.core.box import Gateway, Request
from anvil_tui.core.workspace import OnDrainTimeout, Policies

State = Literal["waiting", "flowing", "quiet", "stalled", "unknown"]

# Engines send the head of a stream, and some a first empty chunk, before they have read the prompt.
HEAD_BYTES = 2048
# A byte within this is a stream that flows; the gateway is looked at every second.
FLOWING_S = 2.0
SHOWN = 8
# The gateway itself ends a request that is silent for longer (`SILENCE` of its configuration).
LONGEST_SILENCE_S = 4 * 3600


def state_of(request: Request, policies: Policies) -> State:
    """By age, bytes and silence. `unknown` = not watched for long enough, or the gateway counts no bytes."""
    if request.bytes_out is None:
        return "unknown"
    if request.bytes_out <= HEAD_BYTES:
        return "waiting" if request.age_s < policies.first_byte_s else "stalled"
    if request.idle_s is None:
        return "unknown"
    if request.idle_s >= policies.stalled_after_s:
        return "stalled"
    return "flowing" if request.idle_s < FLOWING_S else "quiet"


def rate(request: Request) -> float | None:
    """Bytes a second over its whole life; None when bytes are not counted or it has just begun."""
    return request.bytes_out / request.age_s if request.bytes_out is not None and request.age_s >= 1 else None


def on_slot(gateway: Gateway, slot: str) -> tuple[Request, ...] | None:
    """The slot's requests, oldest first; None = the gateway cannot list them."""
    if gateway.requests is None:
        return None
    return tuple(sorted((r for r in gateway.requests if r.backend == slot), key=lambda r: -r.age_s))


def of_state(requests: Iterable[Request], state: State, policies: Policies) -> tuple[Request, ...]:
    return tuple(r for r in requests if state_of(r, policies) == state)


def request_json(request: Request, policies: Policies) -> dict[str, Any]:
    average = rate(request)
    return {
        **asdict(request), "bytes_per_s": None if average is None else round(average, 1),
        "state": state_of(request, policies),
    }  # fmt: skip


def request_text(request: Request, policies: Policies) -> str:
    """`ID stalled, 312 s old, 18,200 bytes (58/s), no byte for 61 s`."""
    sent, average = request.bytes_out, rate(request)
    many = "bytes n/a" if sent is None else f"{sent:,} bytes"
    per_s = "" if average is None else f" ({average:,.0f}/s)"
    still = "" if not request.idle_s or request.idle_s < FLOWING_S else f", no byte for {request.idle_s:.0f} s"
    return f"{request.id} {state_of(request, policies)}, {request.age_s:.0f} s old, {many}{per_s}{still}"


def slot_text(gateway: Gateway, slot: str, policies: Policies) -> str:
    """`2 in flight on primary-a (1 stalled, 1 waiting), oldest 312 s, 58 bytes/s`; the count is the authority."""
    backend = gateway.backend(slot)
    if backend is None or backend.in_flight is None:
        return f"the gateway cannot tell what is in flight on {slot}"
    if not backend.in_flight:
        return f"nothing in flight on {slot}"
    requests = on_slot(gateway, slot) or ()
    states = [state_of(r, policies) for r in requests]
    named: tuple[State, ...] = ("stalled", "waiting", "quiet")
    counts = ", ".join(f"{states.count(s)} {s}" for s in named if s in states)
    oldest = "" if backend.oldest_s is None else f", oldest {backend.oldest_s:.0f} s"
    average = rate(requests[0]) if requests else None
    per_s = "" if average is None else f", {average:,.0f} bytes/s"
    return f"{backend.in_flight} in flight on {slot}{f' ({counts})' if counts else ''}{oldest}{per_s}"


def list_text(requests: Iterable[Request], policies: Policies) -> str:
    """The first few in words; the journal has them all."""
    texts = [request_text(r, policies) for r in requests]
    more = f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more


def then_text(how: OnDrainTimeout, extend_s: int, policies: Policies) -> str:
    """What happens when a drain's time is over, as a plan says it beforehand."""
    texts: dict[OnDrainTimeout, str] = {
        "abort": "everything is put back",
        "extend": f"{extend_s} s more, once, then everything is put back",
        "sever": "what is left is cut",
        "sever-stalled": "what is left is cut if all of it is stalled "
        f"({policies.stalled_after_s} s without a byte), else everything is put back",
    }
    return texts[how]


def findings(gateway: Gateway, policies: Policies) -> Iterator[str]:
    """What is wrong with what is in flight, as sentences."""
    for b in gateway.backends:
        if b.in_flight is not None and b.in_flight < 0:
            yield f"gateway: it counts {b.in_flight} requests on {b.name}: its count leaks"
        requests = on_slot(gateway, b.name) or ()
        if stalled := of_state(requests, "stalled", policies):
            many = "1 request is" if len(stalled) == 1 else f"{len(stalled)} requests are"
            yield f"{b.name}: {many} stalled: {list_text(stalled, policies)}; `drain --sever-stalled` may cut them"
        for r in requests:
            if (r.idle_s or 0) >= LONGEST_SILENCE_S:
                yield f"gateway: {r.id} on {b.name} should have been ended by its own limit: its count leaks"
