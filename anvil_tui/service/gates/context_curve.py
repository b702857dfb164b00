"""What is found again at which depth: several kinds of retrieval at each depth and position, and the whole curve.

One figure of an "effective context" is never made of it: a curve that falls and rises again would be hidden.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from anvil_tui.core.answers import value_is
from anvil_tui.core.bounds import METHOD
from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.gate_kinds import RETRIEVALS
from anvil_tui.core.gates import FailureClass, Gate, Observation, Suite
from anvil_tui.core.stats import lower_bound
from anvil_tui.core.verdicts import OK, Judged, check, failed
from anvil_tui.service.gates import prompts
from anvil_tui.service.gates.calibrate import Calibration, Scale, at_length, calibrate, room_for
from anvil_tui.service.gates.puzzles import PLACES
from anvil_tui.service.gates.session import Finding, GateParts, GateTarget, Session, budgets

PEOPLE = ("Aldous", "Berit", "Cosmo", "Delia", "Edmund", "Freya", "Gideon", "Hedda")
ALONE = "Reply with the {} alone."


@dataclass(frozen=True, slots=True)
class Lookup:
    """A question about notes of any length. `facts` are (percent of the notes, sentence); `answer` is exact."""

    retrieval: str
    seed: str
    facts: tuple[tuple[int, str], ...]
    asked: str
    answer: str

    def prompt(self, sentences: int) -> str:
        """The seed stands at the head: no prefix of an earlier prompt is in the engine's cache."""
        notes = prompts.filler(random.Random(f"notes/{self.seed}"), sentences)
        for percent, fact in sorted(self.facts, key=lambda f: f[0], reverse=True):
            notes.insert(sentences * percent // 100, fact)
        return f"Notes {self.seed}.\n\n{' '.join(notes)}\n\n{self.asked}"


def _needle(pick: random.Random, at: int) -> tuple[list[tuple[int, str]], str, str]:
    place, *others = pick.sample(PLACES, 4)
    code = prompts.code(pick)
    facts = [(at, f"The access code of the {place} is {code}.")]
    facts += [(pick.randrange(101), f"The access code of the {o} is {prompts.code(pick)}.") for o in others]
    return facts, f"What is the access code of the {place}? {ALONE.format('code')}", code


def _pair(pick: random.Random, at: int) -> tuple[list[tuple[int, str]], str, str]:
    place, first, second = pick.choice(PLACES), prompts.code(pick), prompts.code(pick)
    apart = at + 20 if at <= 50 else at - 20
    facts = [(at, f"A parcel marked {first} was left at the {place}.")]
    facts += [(apart, f"A parcel marked {second} was left at the {place}.")]
    want = f"{first}, {second}" if at < apart else f"{second}, {first}"
    asked = (
        f"What are the marks of the two parcels that were left at the {place}? "
        "Reply with the two marks alone, in the order of the notes, separated by a comma."
    )
    return facts, asked, want


def _distractor(pick: random.Random, at: int) -> tuple[list[tuple[int, str]], str, str]:
    place, codes = pick.choice(PLACES), [prompts.code(pick) for _ in range(4)]
    facts = [(at, f"The present gate code of the {place} is {codes[0]}.")]
    wrong = ("The former gate code of the", "The suggested gate code of the", "The present door code of the")
    facts += [(pick.randrange(101), f"{w} {place} is {c}.") for w, c in zip(wrong, codes[1:], strict=True)]
    return facts, f"What is the present gate code of the {place}? {ALONE.format('code')}", codes[0]


def _crosslink(pick: random.Random, at: int) -> tuple[list[tuple[int, str]], str, str]:
    place, other = pick.sample(PLACES, 2)
    keeper, rest = pick.sample(PEOPLE, 2)
    code, spare = prompts.code(pick), prompts.code(pick)
    facts = [
        (at, f"The keeper of the {place} is {keeper}."),
        (100 - at if at != 50 else 90, f"The badge number of {keeper} is {code}."),
        (pick.randrange(101), f"The keeper of the {other} is {rest}."),
        (pick.randrange(101), f"The badge number of {rest} is {spare}."),
    ]
    return facts, f"What is the badge number of the keeper of the {place}? {ALONE.format('number')}", code


_MAKERS = dict(zip(RETRIEVALS, (_needle, _pair, _distractor, _crosslink), strict=True))


def lookup(retrieval: str, seed: str, at: int) -> Lookup:
    facts, asked, answer = _MAKERS[retrieval](random.Random(f"lookup/{retrieval}/{seed}"), at)
    return Lookup(retrieval, seed, tuple(facts), asked, answer)


@dataclass(slots=True)
class Depth:
    """What one depth came to. `asked` counts answers that could be judged; `lost` those that could not."""

    nominal: int
    right: int = 0
    asked: int = 0
    lost: int = 0
    measured: tuple[int, ...] = ()

    def told(self) -> str:
        bound = f" (≥ {100 * lower_bound(self.right, self.asked):.1f} %)" if self.asked else ""
        lost = f", {self.lost} not judged" if self.lost else ""
        seen = f" ({min(self.measured):,} to {max(self.measured):,})" if self.measured else ""
        return f"{self.nominal:,}{seen}: {self.right}/{self.asked}{bound}{lost}"

    def row(self) -> dict[str, Any]:
        return {
            "nominal_tokens": self.nominal,
            "prompt_tokens": [min(self.measured), max(self.measured)] if self.measured else None,
            "right": self.right, "asked": self.asked, "not_judged": self.lost,
            "share": self.right / self.asked if self.asked else None,
            "lower_bound": lower_bound(self.right, self.asked) if self.asked else None,
        }  # fmt: skip


def rises(curve: Sequence[Depth]) -> list[tuple[Depth, Depth]]:
    """Neighbours of the curve where more was found at the larger depth: there is no one depth where it ends."""
    known = [d for d in curve if d.asked]
    return [(a, b) for a, b in pairwise(known) if b.right * a.asked > a.right * b.asked]


def told(curve: Sequence[Depth]) -> str:
    """The whole curve in one line."""
    bent = rises(curve)
    how = "; ".join(f"more found at {b.nominal:,} than at {a.nominal:,}" for a, b in bent)
    right, asked = sum(d.right for d in curve), sum(d.asked for d in curve)
    points = "; ".join(d.told() for d in curve)
    return f"{right}/{asked} found; tokens (by the engine): right ({METHOD}): {points}" + (
        f"; not monotone: {how}" if bent else ""
    )


def context_ladder(session: Session, gate: Gate, n: int) -> Finding:
    """The whole ladder. It passes when at every depth `pass_at_least` (default: all) of the answers are right."""
    curve: list[Depth] = []
    kept: list[Observation] = []
    of, stopped, wrong = gate.most * len(gate.prompt_tokens), "", OK
    for depth in sorted(gate.prompt_tokens):
        point = Depth(depth)
        curve.append(point)
        for finding in _depth(session, gate, depth):
            wrong = _count(point, finding, wrong)
            kept += finding.observations
            session.progress(sum(d.asked + d.lost for d in curve), of, None)
        stopped = session.dead or ("cancelled" if session.cancelled() else "")
        if stopped:
            break
    judged = _judged(gate, curve, wrong, stopped)
    raw = {
        "purpose": "curve", "curve": [d.row() for d in curve], "bound": METHOD, "monotone": not rises(curve),
        "outcome": judged.outcome,
    }  # fmt: skip
    return Finding(judged, (*kept, Observation(0, judged.ok, judged.failure, judged.note, raw=raw)))


def _depth(session: Session, gate: Gate, depth: int) -> Iterator[Finding]:
    """One finding for each question at this depth, `gate.parallel` at a time, until cancelled or dead."""
    cells = [(r, at, k) for k in range(1, gate.repeat + 1) for at in gate.positions_pct for r in RETRIEVALS]

    def ask(cell: tuple[str, int, int]) -> Finding | None:
        if session.dead or session.cancelled():
            return None
        retrieval, at, k = cell
        return _cell(session, gate, depth, lookup(retrieval, f"{session.salt}/{depth}/{at}/{k}", at), at)

    with ThreadPoolExecutor(gate.parallel) as pool:
        yield from (found for found in pool.map(ask, cells) if found is not None)


def _cell(session: Session, gate: Gate, depth: int, item: Lookup, at: int) -> Finding:
    deep = gate.model_copy(update={"prompt_tokens_at_least": depth})
    room = room_for(session, gate)
    scale = calibrate(session, deep, item.prompt, kind=f"lookup/{item.retrieval}", tokens=depth)

    def ask(sentences: int) -> tuple[Finding, ChatAnswer]:
        judge: Callable[[ChatAnswer], Judged] = lambda a: check(value_is(a.content, item.answer, case=True))  # noqa: E731
        return session.ask(deep, depth, judge, messages=(prompts.user(item.prompt(sentences)),), stream=True)

    finding = at_length(session, deep, scale, room, ask)
    if (better := _short(depth, finding, scale)) is not None:
        with session.lock:
            session.memory[f"scale/{scale.kind}"] = better
        again = at_length(session, deep, Calibration(scale.kind, better, OK), room, ask)
        tried = tuple(replace(o, raw={**o.raw, "purpose": "calibration"}) for o in finding.observations)
        finding = Finding(again.judged, (*tried, *again.observations))
    where = {"retrieval": item.retrieval, "position_pct": at, "nominal_tokens": depth}
    seen = tuple(replace(o, raw={**o.raw, **where}) for o in finding.observations)
    return Finding(finding.judged, seen)


def _short(depth: int, finding: Finding, calibration: Calibration) -> Scale | None:
    """A better scale when a wrong answer came to a prompt that missed its depth: it says nothing of this one."""
    last = finding.observations[-1] if finding.observations else None
    if last is None or finding.judged.outcome != "failed" or calibration.scale is None:
        return None
    got, units = last.prompt_tokens, last.raw.get("units")
    return calibration.scale.corrected(units, got) if got and units and got < depth else None


def _count(point: Depth, finding: Finding, wrong: Judged) -> Judged:
    """Adds one answer to its depth; returns the first judgement that was not right, OK = all were."""
    judged = finding.judged
    if judged.outcome in ("ok", "failed"):
        point.asked += 1
        point.right += judged.ok
    else:
        point.lost += 1
    if finding.observations and (got := finding.observations[-1].prompt_tokens) is not None:
        point.measured += (got,)
    return wrong if judged.ok or not wrong.ok else judged


def _judged(gate: Gate, curve: Sequence[Depth], first: Judged, stopped: str) -> Judged:
    of = gate.most
    need = gate.pass_at_least or of
    low = [d for d in curve if d.asked - d.right > of - need]
    note = told(curve)
    if low:
        where = ", ".join(f"{d.nominal:,}" for d in low)
        klass = first.failure if first.outcome == "failed" and first.failure else FailureClass.CHECK
        return failed(klass, f"fewer than {need} of {of} at {where}; {note}; first: {first.note}")
    if stopped == "cancelled":
        return Judged("cancelled", None, note)
    if stopped:
        return Judged("errored", None, f"{stopped}; {note}")
    if all(d.right >= need for d in curve):
        return Judged("ok", None, note)
    outcome = first.outcome if first.outcome not in ("ok", "failed") else "errored"
    return Judged(outcome, first.failure, f"{note}; first: {first.note}")


def no_ladder(suite: Suite, gate: Gate, target: GateTarget, parts: GateParts) -> str:
    """Every depth must fit beside the answer's budgets, or the curve would end where the recipe does."""
    limit = target.recipe.envelope.context_tokens
    need = max(gate.prompt_tokens) + sum(budgets(gate, target.recipe))
    if need > limit:
        return f"the deepest prompt and the budgets need {need:,} tokens, the recipe's context is {limit:,}"
    return ""
