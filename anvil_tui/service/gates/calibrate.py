"""Prompts of a wanted length, by the engine's own count of tokens and never by a number of characters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.gates import FailureClass, Gate, Observation
from anvil_tui.core.verdicts import OK, Judged, failed
from anvil_tui.service.gates import prompts
from anvil_tui.service.gates.session import Finding, Session, budgets

AIM_OVER = 1.01
TRIES = 4

Messages = tuple[prompts.Message, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """`base` tokens of a prompt without units, `each` tokens a unit, as the engine counts them."""

    base: float
    each: float

    def corrected(self, units: int, counted: int) -> Scale:
        """The scale after a prompt of so many units was counted: the base is kept, the unit moves."""
        return Scale(self.base, max((counted - self.base) / units, self.each / 10))


@dataclass(frozen=True, slots=True)
class Calibration:
    """`scale` None = the engine gave no count; `judged` says why. `observations` are the probes made now."""

    kind: str
    scale: Scale | None
    judged: Judged
    observations: tuple[Observation, ...] = ()


def units_for(scale: Scale, tokens: float) -> int:
    """How many units make a prompt of at least so many tokens; never fewer than one."""
    return max(1, math.ceil((tokens - scale.base) / scale.each))


def calibrate(
    session: Session,
    gate: Gate,
    text_of: Callable[[int], str],
    *,
    kind: str,
    tokens: int,
    wrap: Callable[[str], Messages] = lambda text: (prompts.user(text),),
    **request: Any,
) -> Calibration:
    """What a unit of a text costs on this engine, from two probes of one answer token each.

    `text_of(units)` is the text; `wrap` makes the messages of it; `request` holds what else the real request
    sends and the engine counts (tools). `kind` names the text: the scale is remembered for the session under it
    and the size of its probes, and a second call makes none. `tokens` is the length that will be wanted: the
    probes grow with it (a unit is taken to be about 15 tokens), for the longer the prompt, the dearer is a second
    try.
    Threads may call it at once: one probes, the others wait for its result. Never raises for what the serve does.
    """
    large = min(400, max(16, tokens // 60))
    kind = f"{kind}/{large}"
    with session.lock:
        known = session.memory.get(f"scale/{kind}")
        if isinstance(known, Scale):
            return Calibration(kind, known, OK)
        found = _probe(session, gate, text_of, kind, large, wrap, request)
        session.memory[f"scale/{kind}"] = found.scale
        return found


def _probe(
    session: Session,
    gate: Gate,
    text_of: Callable[[int], str],
    kind: str,
    large: int,
    wrap: Callable[[str], Messages],
    request: dict[str, Any],
) -> Calibration:
    counts: list[int] = []
    seen: list[Observation] = []
    small = large // 4
    for units in (small, large):
        finding, answer = session.ask(
            gate, 0, lambda a: OK, messages=wrap(text_of(units)), max_tokens=1, **request
        )
        seen += [_calibration(o, units) for o in finding.observations]
        if answer.error or not answer.prompt_tokens:
            return Calibration(kind, None, finding.judged if answer.error else counted(OK, None), tuple(seen))
        counts.append(answer.prompt_tokens)
    each = (counts[1] - counts[0]) / (large - small)
    if each <= 0:
        why = f"the engine counts {counts[0]} tokens for a short prompt and {counts[1]} for a long one"
        return Calibration(kind, None, failed(FailureClass.CHECK, why), tuple(seen))
    return Calibration(kind, Scale(counts[0] - each * small, each), OK, tuple(seen))


def _calibration(seen: Observation, units: int) -> Observation:
    """One token of answer says nothing about the model: only the count of the prompt is wanted."""
    raw = {**seen.raw, "purpose": "calibration", "units": units}
    if seen.prompt_tokens is None:
        return replace(seen, raw=raw)
    return replace(seen, ok=True, failure=None, note="calibration", raw=raw)


def counted(judged: Judged, got: int | None) -> Judged:
    """The verdict with the measured length of its prompt; without a measure nothing about a length is proven."""
    if judged.ok and got is None:
        return Judged("unverified", None, "the engine reports no usage, so the length of the prompt is not proven")
    return replace(judged, note="; ".join(p for p in (f"{got:,} prompt tokens" if got else "", judged.note) if p))


Ask = Callable[[int], tuple[Finding, ChatAnswer]]


def at_length(session: Session, gate: Gate, calibration: Calibration, room: int, ask: Ask) -> Finding:
    """One request whose prompt reaches the gate's floor by the engine's count, corrected until it does.

    `ask(units)` sends it; `room` is the most prompt tokens that fit beside the answer. A correction is remembered
    for the session, too.
    """
    kept, scale = list(calibration.observations), calibration.scale
    if scale is None:
        return Finding(calibration.judged, tuple(kept))
    floor = gate.prompt_tokens_at_least
    aim = min(math.ceil(floor * AIM_OVER), room)
    note = ""
    for _ in range(TRIES):
        units = units_for(scale, aim)
        finding, answer = ask(units)
        kept += [replace(o, raw={**o.raw, "units": units}) for o in finding.observations]
        missed = _missed(floor, answer, finding)
        if missed is None:
            return Finding(counted(finding.judged, answer.prompt_tokens), tuple(kept))
        scale, note = scale.corrected(units, missed), finding.judged.note
        with session.lock:
            session.memory[f"scale/{calibration.kind}"] = scale
    why = f"after {TRIES} corrections no prompt of {floor:,} tokens came about; {note}"
    return Finding(Judged("errored", None, why), tuple(kept))


def room_for(session: Session, gate: Gate) -> int:
    """The most prompt tokens that fit beside the gate's answer."""
    recipe = session.target.recipe
    return recipe.envelope.context_tokens - sum(budgets(gate, recipe))


def _missed(floor: int, answer: ChatAnswer, finding: Finding) -> int | None:
    """The engine's count of a prompt that came out too short or too long; None when this answer decides."""
    if answer.overflow and answer.overflow[1] > floor:
        return answer.overflow[0]
    got = answer.prompt_tokens
    return got if finding.judged.ok and got is not None and got < floor else None
