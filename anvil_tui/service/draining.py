"""Waiting until a slot has nothing in flight, and the outcome that was chosen for when the time is over.

The gateway's count is the authority, and what it cannot tell is never zero. The engine's own count is asked beside
it: while the engine has work that the gateway does not know of, nothing is stopped. An engine that tells no count
is said to be unchecked. Nothing is held while it waits but the lease, which dies with the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anvil_tui.core.box import Gateway, Request
from anvil_tui.core.errors import EffectFailed, Unreachable
from anvil_tui.core.inflight import list_text, of_state, on_slot, request_json, slot_text
from anvil_tui.core.plan import Step
from anvil_tui.core.recipe import EngineKind
from anvil_tui.service.deeds import Seen, stop
from anvil_tui.service.run import POLL_S, Run

ENGINE_S = 1.0
# Gauges follow an engine's steps: a request is gone at the gateway a moment before its engine says so.
DISAGREE_S = 5.0
TOLD_S = 5.0
LOOKS = 2


@dataclass(slots=True)
class Drain:
    """One slot, looked at again and again. `in_flight` and `engine` are of the last look, None = cannot tell."""

    run: Run
    args: Mapping[str, Any]
    in_flight: int | None = None
    engine: int | None = None
    requests: tuple[Request, ...] = ()
    oldest_s: float | None = None
    _zeros: int = 0
    _engine_at_s: float | None = None
    _differs_since_s: float | None = None
    _told: tuple[object, ...] = ()
    _told_at_s: float = field(default=float("-inf"))

    def left(self) -> str | None:
        """What is still there, as a sentence; None after two looks in a row that found nothing."""
        gateway, why = self._snapshot()
        backend = gateway.backend(self.args["slot"]) if gateway else None
        self.in_flight = backend.in_flight if backend else None
        self.oldest_s = backend.oldest_s if backend else None
        self.requests = (on_slot(gateway, self.args["slot"]) if gateway else None) or ()
        if gateway is None or self.in_flight is None:
            self._zeros = 0
            return f"the gateway cannot tell what is in flight on {self.args['slot']}{why}"
        self._ask_engine()
        text = slot_text(gateway, self.args["slot"], self.run.box.workspace.policies)
        if self.in_flight or self.engine:
            self._zeros = 0
            return text + self._beside()
        self._zeros += 1
        return None if self._zeros >= LOOKS else f"{text}; looking again"

    def stalled(self) -> tuple[Request, ...]:
        return of_state(self.requests, "stalled", self.run.box.workspace.policies)

    def listed(self, requests: Iterable[Request]) -> list[dict[str, Any]]:
        return [request_json(r, self.run.box.workspace.policies) for r in requests]

    def tell(self, step: Step, text: str) -> None:
        """A progress record when a count changed, else every few seconds: ages alone are no news."""
        now, stalled = self.run.box.clock.monotonic_s(), len(self.stalled())
        news = (self.in_flight, self.engine, stalled, self._differs_s(now) >= DISAGREE_S)
        if news == self._told and now < self._told_at_s + TOLD_S:
            return
        self._told, self._told_at_s = news, now
        self.run.note(
            step, text, in_flight=self.in_flight, oldest_s=self.oldest_s, stalled=stalled, engine=self.engine,
            waiting=True,
        )  # fmt: skip

    def _snapshot(self) -> tuple[Gateway | None, str]:
        try:
            return self.run.box.gateway.snapshot(), ""
        except Unreachable as silent:
            return None, f": {silent}"

    def _ask_engine(self) -> None:
        """Every second while the gateway has requests; with none left each time, since then it decides."""
        now = self.run.box.clock.monotonic_s()
        due = self._engine_at_s is None or now >= self._engine_at_s + ENGINE_S
        if self.args["engine"] and (due or not (self.in_flight or self.engine)):
            seen = self.run.box.engines.read(EngineKind(self.args["engine"]), self.args["port"])
            self.engine, self._engine_at_s = counted(seen.running, seen.waiting), now
        differs = self.engine is not None and bool(self.engine) != bool(self.in_flight)
        self._differs_since_s = (
            (now if self._differs_since_s is None else self._differs_since_s) if differs else None
        )

    def _differs_s(self, now: float) -> float:
        return 0.0 if self._differs_since_s is None else now - self._differs_since_s

    def _beside(self) -> str:
        """What the engine says of it, where that is worth saying."""
        since = self._differs_s(self.run.box.clock.monotonic_s())
        if self.engine is None:
            return "; not cross-checked: its engine tells no count"
        if since < DISAGREE_S:
            return "" if self.in_flight else f"; its engine still counts {self.engine}"
        if self.in_flight:
            return (
                f"; its engine has counted none for {since:.0f} s: it does not work on them, or its gauge is stuck"
            )
        return (
            f", but its engine has counted {self.engine} for {since:.0f} s: sent directly to port "
            f"{self.args['port']}, past the gateway, or its gauge is stuck; nothing is stopped meanwhile"
        )


def counted(running: int | None, waiting: int | None) -> int | None:
    """Requests that an engine has, None = it does not say. A part that is unknown makes no zero.

    >>> counted(2, 1), counted(0, 0), counted(0, None), counted(3, None)
    (3, 0, None, 3)
    """
    known = [n for n in (running, waiting) if n is not None]
    return sum(known) if len(known) == 2 or any(known) else None


# the drain step


def drained(run: Run, step: Step) -> Seen | None:
    """Only what this process waited out, and only while it is still so: two looks make it, one can end it."""
    seen: Seen | None = run.memory.get(step.name)
    backend = run.box.gateway.snapshot().backend(step.args["slot"])
    return seen if backend and backend.in_flight == 0 else None


def drain(run: Run, step: Step) -> None:
    watch, cut = Drain(run, step.args), list[Request]()
    limit = run.box.clock.monotonic_s() + step.args["timeout_s"]
    spent = False
    while (left := watch.left()) is not None:
        watch.tell(step, left)
        if run.box.clock.monotonic_s() >= limit:
            if spent and _cut_with_the_stop(watch, step):
                run.note(step, f"{left}: as decided, what the engine still has ends with its stop")
                break
            limit = run.box.clock.monotonic_s() + _outcome(watch, step, left, spent, cut)
            spent = True
        run.stop_if_asked()
        run.box.clock.sleep(POLL_S)
    run.memory[step.name] = {"in_flight": 0, "engine": watch.engine, "severed": watch.listed(cut)}


def _cut_with_the_stop(watch: Drain, step: Step) -> bool:
    return step.args["on_timeout"] == "sever" and watch.in_flight == 0


def _outcome(watch: Drain, step: Step, left: str, spent: bool, cut: list[Request]) -> float:
    """The time is over: what was decided beforehand, done once. Returns how long to wait from now; else raises."""
    how, after = step.args["on_timeout"], f"after {step.args['timeout_s']} s"
    if how == "extend" and not spent:
        watch.run.note(step, f"{left} {after}: {step.args['extend_s']} s more, as decided")
        return float(step.args["extend_s"])
    if watch.in_flight is None:
        raise EffectFailed(f"drain_unknown: {left} {after}; nothing was cut")
    chosen = _to_cut(watch, how) if not spent else None
    if chosen is None:
        said = "" if cut else "; nothing was cut"
        more = f" and {step.args['extend_s']} s more" if how == "extend" else ""
        raise EffectFailed(f"drain_timeout: {left} {after}{more}{said}")
    cut += _sever(watch, step, chosen, whole=how == "sever")
    return DISAGREE_S


def _to_cut(watch: Drain, how: str) -> tuple[Request, ...] | None:
    """The requests that may be cut now; None = none may. Stalled ones go only when that empties the slot."""
    if how == "sever":
        return watch.requests
    stalled = watch.stalled()
    return stalled if how == "sever-stalled" and stalled and len(stalled) == watch.in_flight else None


def _sever(watch: Drain, step: Step, chosen: tuple[Request, ...], *, whole: bool) -> tuple[Request, ...]:
    """Listed in the journal before, and as they were cut after. What came since the list ends with the slot only
    when all of it does."""
    run, policies = watch.run, watch.run.box.workspace.policies
    if not watch.in_flight:
        return ()
    run.fence()
    run.note(step, f"cutting {len(chosen)}: {list_text(chosen, policies)}", to_cut=watch.listed(chosen))
    done = run.controls.gateway.sever(step.args["slot"], None if whole else [r.id for r in chosen])
    silence = {r.id: r.idle_s for r in chosen}
    cut = tuple(_replaced(r, silence.get(r.id)) for r in done)
    run.note(step, f"cut {len(cut)}: {list_text(cut, policies)}", severed=watch.listed(cut))
    return cut


def _replaced(request: Request, idle_s: float | None) -> Request:
    return Request(request.id, request.backend, request.age_s, request.bytes_out, idle_s)


# the former incumbent, after a promotion


def retired(run: Run, step: Step) -> Seen | None:
    if "left-running" in run.memory:
        return {"left_running": run.memory["left-running"]}
    found = run.container(step.args)
    return None if found and found.running else {"container": step.args["container"]}


def retire(run: Run, step: Step) -> None:
    """Let the former incumbent finish. One that does not finish in time is left running and listed."""
    watch, limit = Drain(run, step.args), run.box.clock.monotonic_s() + step.args["timeout_s"]
    while (left := watch.left()) is not None:
        watch.tell(step, left)
        if run.box.clock.monotonic_s() >= limit:
            run.memory["left-running"] = left
            run.residue.append(f"container {step.args['container'][:12]} still runs: {left}; `unload` it later")
            return
        run.box.clock.sleep(POLL_S)
    run.fence()  # it may have waited for long
    stop(run, step)
