"""One run of a suite against one serve: where requests go, what they cost, and what was seen meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from anvil_tui.core.box import MIB, Container
from anvil_tui.core.chat import ChatAnswer, ChatRequest, decode_seeds_tok_s, decode_tok_s
from anvil_tui.core.chat_errors import retry_after_s
from anvil_tui.core.errors import AnvilError, NotFound
from anvil_tui.core.gates import FailureClass, Gate, Observation, Suite, Thinking
from anvil_tui.core.lanes import LaneRow
from anvil_tui.core.recipe import EngineKind, Recipe
from anvil_tui.core.redact import redact
from anvil_tui.core.routing import Origin, origin_by_header
from anvil_tui.core.verdicts import OK, Judged, delivered, failed
from anvil_tui.core.waivers import Waiver
from anvil_tui.ports import (
    ChatClient,
    Clock,
    CommandRunner,
    ContainerReader,
    EngineReader,
    GpuReader,
    HostInspector,
    LoadGenerator,
    MediaReader,
    Sandbox,
)
from anvil_tui.service.gates.start_up import StartUp

EXCERPT_BYTES = 2048


@dataclass(frozen=True, slots=True)
class GateTarget:
    """The serve under test. `container_id` is empty while only a plan is made.

    `base_url` is the engine's own port, which asks for no key; `routed_url` and `routed_model` are its private way
    through the gateway to `slot`, and `origin` tells which slot gave a routed answer. `reserve_mib` is the box's
    standing reserve per GPU; the recipe may ask for more.
    `aliases` are the role's: names that the engine may have been told besides its own. `start` is what the engine
    said of itself when it started; a plan does not know it.
    """

    recipe: Recipe
    container_id: str
    base_url: str
    routed_url: str | None = None
    routed_key: str | None = None
    routed_model: str = ""
    slot: str = ""
    origin: Callable[[ChatAnswer], Origin] = origin_by_header
    reserve_mib: int = 0
    aliases: tuple[str, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    start: StartUp = StartUp()

    @property
    def port(self) -> int:
        return urlsplit(self.base_url).port or 0

    def way(self, routed: bool) -> tuple[str, str | None]:
        """(base URL, key) of its own port, or of its private way through the gateway."""
        return (self.routed_url or "", self.routed_key) if routed else (self.base_url, None)

    def model(self, routed: bool) -> str:
        """What a request calls the model; gateways may want another name than the engine's."""
        return (self.routed_model if routed else "") or self.recipe.served_name

    @property
    def reserve_needed_mib(self) -> int:
        return self.recipe.reserve.needed_mib(self.reserve_mib)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one repeat of a gate came to, and the requests or readings behind it."""

    judged: Judged
    observations: tuple[Observation, ...]
    rows: tuple[LaneRow, ...] = ()


@dataclass(frozen=True, slots=True)
class GateParts:
    """What gates may reach. A part that is None makes the gates that need it `unrunnable`."""

    chat: ChatClient
    engines: EngineReader
    containers: ContainerReader
    gpus: GpuReader
    clock: Clock
    host: HostInspector | None = None
    load: LoadGenerator | None = None
    commands: CommandRunner | None = None
    media: MediaReader | None = None
    sandbox: Sandbox | None = None


@dataclass(frozen=True, slots=True)
class GateWork:
    """How one kind of gate is made. `once` makes repeat `n` (a kind without repeats: all of it, n = 1).

    `why_not` says before anything starts why the gate could not run; "" = it can.
    """

    once: Callable[[Session, Gate, int], Finding]
    why_not: Callable[[Suite, Gate, GateTarget, GateParts], str] = lambda suite, gate, target, parts: ""


def budgets(gate: Gate, recipe: Recipe) -> tuple[int, int]:
    """(visible, reasoning) tokens: the gate's own, else those the recipe is qualified with."""
    visible = gate.visible_tokens if gate.visible_tokens is not None else recipe.budgets.visible_tokens
    reasoning = gate.reasoning_tokens if gate.reasoning_tokens is not None else recipe.budgets.reasoning_tokens
    return visible, reasoning


def thinking_wanted(gate: Gate, recipe: Recipe) -> Thinking:
    """The gate's own thinking, else the recipe's."""
    return gate.thinking or recipe.thinking


def thinking_control(engine: EngineKind, wanted: Thinking, route: str = "chat") -> Mapping[str, Any]:
    """The request fields that ask this engine for it; empty for `none` and for what the route cannot say."""
    if wanted == "none":
        return {}
    if route == "responses":
        return {} if wanted in ("on", "off") else {"reasoning": {"effort": wanted}}
    if wanted in ("on", "off"):
        return {"chat_template_kwargs": {"enable_thinking": wanted == "on"}}
    if engine is EngineKind.LLAMACPP:
        return {"chat_template_kwargs": {"reasoning_effort": wanted}}
    return {"reasoning_effort": wanted}


def thought(gate: Gate, recipe: Recipe, control: Mapping[str, Any], answer: ChatAnswer) -> Judged:
    """Whether a good answer is proof that thinking was as asked; a thinking that is off was judged before."""
    wanted = thinking_wanted(gate, recipe)
    if gate.thinking == "off" and not control and answer.reasoning:
        note = (
            f"{len(answer.reasoning)} characters of reasoning came; this route has no control for thinking = off"
        )
        return Judged("unverified", None, note)
    asked_for = gate.thinking == "on" or gate.kind == "smoke"
    if wanted == "on" and asked_for and not answer.reasoning:
        return Judged("unverified", None, "thinking = on was accepted, but no reasoning came back")
    return OK


def came_whole(answer: ChatAnswer) -> bool:
    """Whether a good answer came as one message; a stream stamps its chunks, even one whose tokens are empty."""
    return answer.error is None and not answer.token_times_s and answer.e2e_s is not None


@dataclass(slots=True)
class Session:
    """State of one run. `salt` makes prompts of this run unlike those of any other.

    `progress(done, of, row)` and `cancelled()` are for gates that are one long piece of work.
    `began` is the container as it was before the first gate; `least_free` the smallest free bytes seen
    per GPU, `host_low` the host's worst bytes; `watch` is what of these a later process needs, JSON-able;
    `dead` says why no request can be answered any more. Requests of several threads may share it: `lock` guards
    what is found out once for all of them, and is held while the engine is asked for it; `readings` guards the
    smallest and largest that was seen.
    """

    target: GateTarget
    parts: GateParts
    salt: str
    progress: Callable[[int, int, LaneRow | None], None] = lambda done, of, row: None
    cancelled: Callable[[], bool] = lambda: False
    began: Container | None = None
    began_error: str = ""
    dead: str = ""
    least_free: dict[str, int] = field(default_factory=dict)
    host_low: dict[str, int] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    watch: dict[str, Any] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    readings: threading.Lock = field(default_factory=threading.Lock)

    @property
    def containers(self) -> ContainerReader:
        return self.parts.containers

    @property
    def engines(self) -> EngineReader:
        return self.parts.engines

    @property
    def gpus(self) -> GpuReader:
        return self.parts.gpus

    @property
    def clock(self) -> Clock:
        return self.parts.clock

    def ask(
        self, gate: Gate, n: int, check: Callable[[ChatAnswer], Judged], *, partial: bool = False, **request: Any
    ) -> tuple[Finding, ChatAnswer]:
        """One request: sent, judged as delivered, then checked for its content and its thinking.

        With `partial` the check alone decides over errors and answers cut by their limit. `request` holds fields
        of ChatRequest; `max_tokens` stands in place of the budgets, `extra` beside the thinking control.
        """
        recipe, target = self.target.recipe, self.target
        limit = request.pop("max_tokens", None) or sum(budgets(gate, recipe))
        control = thinking_control(recipe.engine, thinking_wanted(gate, recipe), request.get("route", "chat"))
        extra = {**control, **request.pop("extra", {})}
        made = ChatRequest(target.model(gate.routed), max_tokens=limit, extra=extra, **request)
        url, key = target.way(gate.routed)
        sent_at = self.clock.utc().isoformat()
        answer = self.parts.chat.chat(url, made, api_key=key, timeout_s=gate.timeout_s)
        off = thinking_wanted(gate, recipe) == "off" and bool(control)
        judged = OK if partial else delivered(answer, limit, thinking_off=off)
        if judged.ok and gate.routed and answer.status in (200, 400, 422):
            judged = self.came_from_the_slot(answer)
        judged = check(answer) if judged.ok else judged
        if judged.ok and made.stream and came_whole(answer):
            judged = failed(FailureClass.STREAM, "a stream was asked for, the answer came as one message")
        if judged.ok and not answer.error:
            proven = thought(gate, recipe, control, answer)
            judged = judged if proven.ok else proven
        judged = self._with_death(judged, answer)
        judged = replace(judged, note=self.safe(judged.note + self._wait(answer)))
        self.note_memory()
        raw = {"sent_at": sent_at, "max_tokens": limit, "thinking": dict(control), "routed": gate.routed}
        raw |= {"stream": made.stream, "route": made.route}
        return Finding(judged, (self._observation(n, judged, answer, raw),)), answer

    def ask_both(self, gate: Gate, n: int, check: Callable[[ChatAnswer], Judged], **request: Any) -> Finding:
        """The same request whole and streamed; the first that is not good decides, and ends it."""
        first, _ = self.ask(gate, n, check, **request)
        if not first.judged.ok:
            return first
        second, _ = self.ask(gate, n, check, stream=True, **request)
        return Finding(second.judged, (*first.observations, *second.observations))

    def came_from_the_slot(self, answer: ChatAnswer) -> Judged:
        """Whether a routed answer came from the serve under test, by the gateway's own account of it."""
        why = self.target.origin(answer).unlike(self.target.slot, self.target.recipe.served_name)
        return failed(FailureClass.IDENTITY, why) if why else Judged("ok")

    def _wait(self, answer: ChatAnswer) -> str:
        wait = retry_after_s(answer.headers.get("retry-after"), self.clock.utc()) if answer.error else None
        return "" if wait is None else f"; it asks to wait {wait:.0f} s"

    def _with_death(self, judged: Judged, answer: ChatAnswer) -> Judged:
        """A broken request after which the container is gone was no network trouble: say so."""
        if answer.error is None or (answer.error == "http" and (answer.status or 0) < 500):
            return judged
        self.dead = self.dead or self.death()
        if not self.dead:
            return judged
        return Judged("errored", judged.failure, f"{self.dead}; {judged.note}")

    def death(self) -> str:
        """Why the container that was there at the beginning serves no more; empty while it runs.

        Empty, too, when the daemon does not answer: its silence is no death.
        """
        try:
            now = self.containers.inspect(self.target.container_id)
        except NotFound:
            return "the engine died: its container is gone"
        except AnvilError:
            return ""
        if not now.running:
            oom = {True: ", killed for memory", False: "", None: ", memory kill unknown"}[now.oom_killed]
            return f"the engine died: container {now.status}, exit code {now.exit_code}{oom}"
        if self.began and now.started_at != self.began.started_at:
            return f"the engine died and was started again at {now.started_at}"
        return ""

    def note_memory(self) -> None:
        self._note_gpus()
        seen = self.parts.host.read() if self.parts.host else None
        if not (seen and seen.ok and seen.value):
            return
        with self.readings:
            for key, value, worse in (
                ("least_available", seen.value.memory_available, min), ("most_swap", seen.value.swap_used, max),
            ):  # fmt: skip
                if value is not None:
                    self.host_low[key] = worse(value, self.host_low.get(key, value))

    def _note_gpus(self) -> None:
        """Keep the least free memory of every GPU; a lazy allocation shows only after work."""
        seen = self.gpus.read()
        with self.readings:
            for gpu in seen.value.gpus if seen.ok and seen.value else ():
                if gpu.uuid and gpu.state == "ok" and gpu.free_bytes is not None:
                    self.least_free[gpu.uuid] = min(gpu.free_bytes, self.least_free.get(gpu.uuid, gpu.free_bytes))

    def _observation(self, n: int, judged: Judged, answer: ChatAnswer, raw: dict[str, Any]) -> Observation:
        excerpt = answer.content or answer.raw_excerpt
        with self.readings:
            least = {uuid: free // MIB for uuid, free in self.least_free.items()}
        raw |= {
            "outcome": judged.outcome,
            "salt": self.salt,
            "status": answer.status,
            "model": self.safe(answer.model or ""),
            "finish_reason": self.safe(answer.finish_reason or ""),
            "cached_tokens": answer.cached_tokens,
            "reasoning_characters": len(answer.reasoning),
            "reasoning_tokens": answer.reasoning_tokens,
            "client_queue_s": answer.client_queue_s,
            "end_s": answer.end_s,
            "decode_seeds_tok_s": decode_seeds_tok_s(answer),
            "token_times_s": [round(t, 6) for t in answer.token_times_s],
            "tool_calls": [
                {"id": self.safe(c.id), "name": self.safe(c.name), "arguments": self.safe(c.arguments)}
                for c in answer.tool_calls
            ],
            "notes": list(answer.notes),
            "least_free_mib": least,
        }
        return Observation(
            n=n, ok=judged.ok, failure=judged.failure, note=judged.note,
            prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens,
            ttft_any_s=answer.ttft_any_s, ttft_visible_s=answer.ttft_visible_s, e2e_s=answer.e2e_s,
            decode_tok_s=decode_tok_s(answer), excerpt=self.safe(excerpt), raw=raw,
        )  # fmt: skip

    def safe(self, text: str) -> str:
        """Foreign text as it may be kept: without secrets, at most `EXCERPT_BYTES`."""
        known = [self.target.routed_key] if self.target.routed_key else []
        return redact(text, known).encode()[:EXCERPT_BYTES].decode(errors="ignore")
