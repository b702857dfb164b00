"""The dossier of a model family: what was decided and why, what failed, the way back, and what still holds. Pure.

Built from recipes, evidence and records at each call: it has no text of its own that could go stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from anvil_tui.core.errors import NotFound
from anvil_tui.core.holding import Holding, Past, word, words
from anvil_tui.core.recipe import Recipe, Status
from anvil_tui.core.waivers import Waiver, waivers_for
from anvil_tui.core.world import BoxRecord

NEGATIVE = (Status.REJECTED, Status.POLICY_INFEASIBLE, Status.UNVERIFIED)
# How old a source may be: 60 days current, 120 aging, beyond that stale.
FRESH_DAYS, AGING_DAYS = 60, 120


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision, as its recipe keeps it. `newest` = it is what counts for that recipe now."""

    date: date
    recipe: str
    status: str
    reason: str
    evidence: str = ""
    author: str = ""
    newest: bool = False


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the way back; `recipe` "" = the end, and `why` says why there is no other."""

    recipe: str
    status: str = ""
    qualified: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """One recipe of the family. `live` names the roles that it holds on this box, by the record."""

    recipe: str
    title: str
    status: str
    decided: str
    context_tokens: int
    concurrency: int
    rollback: str
    control: str
    control_of: tuple[str, ...]
    licence: str
    holding: Holding
    live: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Negative:
    """Something that did not work, kept whatever was decided afterwards."""

    at: str
    recipe: str
    what: str
    reason: str
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Dossier:
    """`reviewed` is the newest decision's date; `freshness` is current, aging or stale by its age in days."""

    family: str
    current: tuple[str, ...]
    reviewed: date | None
    age_days: int | None
    freshness: str
    ladder: tuple[Rung, ...]
    lanes: tuple[Lane, ...]
    decisions: tuple[Decided, ...]
    negatives: tuple[Negative, ...]
    waivers: tuple[str, ...]


def dossier(
    family: str,
    recipes: Sequence[Recipe],
    *,
    today: date,
    pasts: Sequence[Past] = (),
    holdings: dict[str, Holding] | None = None,
    waivers: Iterable[Waiver] = (),
    record: BoxRecord | None = None,
    box_mib: int = 0,
) -> Dossier:
    """`box_mib` is the box's own reserve. NotFound names the families that there are."""
    mine = [r for r in recipes if r.family == family]
    if not mine:
        have = ", ".join(sorted({r.family for r in recipes})) or "none"
        raise NotFound(f"no recipe of family {family!r} (have: {have})")
    held, kept = holdings or {}, list(waivers)
    decisions = _newest_first(_decisions(mine))
    current = tuple(d.recipe for d in decisions if d.newest and d.status == Status.CURRENT)
    reviewed = decisions[0].date if decisions else None
    age = (today - reviewed).days if reviewed else None
    return Dossier(
        family, current, reviewed, age, _freshness(age),
        ladder=tuple(_ladder(current[0], recipes, held)) if current else (),
        lanes=tuple(_lane(r, mine, held, record) for r in _ordered(mine)),
        decisions=tuple(decisions),
        negatives=tuple(sorted(_negatives(mine, pasts), key=lambda n: n.at, reverse=True)),
        waivers=tuple(s for r in mine for s in _waived(r, kept, today, box_mib)),
    )  # fmt: skip


def _freshness(age: int | None) -> str:
    if age is None:
        return "never decided"
    return "current" if age <= FRESH_DAYS else "aging" if age <= AGING_DAYS else "stale"


def _newest_first(decisions: Iterable[Decided]) -> list[Decided]:
    """Of one day, what counts for its recipe before what does not, then the later in its file."""
    rows = list(enumerate(decisions))
    return [d for _, d in sorted(rows, key=lambda row: (row[1].date, row[1].newest, row[0]), reverse=True)]


def _decisions(recipes: Iterable[Recipe]) -> Iterator[Decided]:
    for r in recipes:
        for d in r.decisions:
            yield Decided(d.date, r.id, str(d.status), d.reason, d.evidence, d.author, d is r.decision)


def _ordered(recipes: Iterable[Recipe]) -> list[Recipe]:
    """The current one first, then by the newest decision; those without one last."""

    def rank(r: Recipe) -> tuple[bool, date, str]:
        is_current = r.decision is not None and r.decision.status is Status.CURRENT
        return is_current, r.decision.date if r.decision else date.min, r.id

    return sorted(recipes, key=rank, reverse=True)


def _ladder(first: str, recipes: Sequence[Recipe], held: dict[str, Holding]) -> Iterator[Rung]:
    """From the current recipe back, by what each recipe names as its rollback, of whatever family."""
    by_id, seen, at = {r.id: r for r in recipes}, set[str](), first
    while at in by_id and at not in seen:
        seen.add(at)
        here = by_id[at]
        status = str(here.decision.status) if here.decision else "undecided"
        yield Rung(at, status, words(held[at]) if at in held else "evidence not read")
        at = here.rollback
    if at.startswith("none"):
        yield Rung("", why=at.removeprefix("none: "))
    else:
        why = "the way back runs in a circle" if at in seen else "no recipe of this name is here"
        yield Rung("", why=f"{at}: {why}")


def _lane(r: Recipe, recipes: Sequence[Recipe], held: dict[str, Holding], record: BoxRecord | None) -> Lane:
    live = [
        role for role in (record.roles if record else {})
        if record and (serve := record.serve_in(role)) and serve.recipe_id == r.id
    ]  # fmt: skip
    return Lane(
        r.id, r.title, str(r.decision.status) if r.decision else "undecided",
        str(r.decision.date) if r.decision else "", r.envelope.context_tokens, r.envelope.concurrency, r.rollback,
        r.control, tuple(x.id for x in recipes if x.control == r.id), r.licence.boundary,
        held.get(r.id, Holding(r.id, "cannot-tell", untold=("evidence not read",))), tuple(live),
    )  # fmt: skip


def _negatives(recipes: Iterable[Recipe], pasts: Iterable[Past]) -> Iterator[Negative]:
    mine = {r.id: r for r in recipes}
    for r in mine.values():
        for d in r.decisions:
            if d.status in NEGATIVE:
                after = f"; {r.decision.status} now" if r.decision and r.decision is not d else ""
                yield Negative(str(d.date), r.id, str(d.status) + after, d.reason, d.evidence)
        for why in r.feasibility.hard_failures:
            yield Negative("", r.id, "hard failure", why)
    for p in pasts:
        if p.identity.recipe in mine:
            for failed in p.failed:
                yield Negative(p.at[:10], p.identity.recipe, "gate", failed, p.id)


def _waived(r: Recipe, waivers: Sequence[Waiver], today: date, box_mib: int) -> Iterator[str]:
    """Of every GPU set that a waiver of this recipe names, and of its own file."""
    scopes = list(dict.fromkeys(w.gpus for w in waivers if w.recipe == r.id)) or [()]
    seen: set[str] = set()
    for gpus in scopes:
        for said in waivers_for(r, gpus, waivers, today, box_mib):
            if said not in seen:
                seen.add(said)
                yield said


# the words

Section = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def sections(d: Dossier) -> list[Section]:
    """(title, head, rows) of every table."""
    lanes: list[tuple[str, ...]] = [
        (x.recipe, x.status, x.decided, f"{x.context_tokens:,} C{x.concurrency}", word(x.holding),
         ", ".join(x.live) or "-", x.control or "-", x.licence) for x in d.lanes
    ]  # fmt: skip
    ladder: list[tuple[str, ...]] = [(x.recipe or "end", x.status, x.qualified or x.why) for x in d.ladder]
    return [
        ("Way back", ("recipe", "decision", "qualification"), ladder),
        (
            "Recipes",
            ("recipe", "decision", "since", "envelope", "qualified", "live", "control", "licence"),
            lanes,
        ),
        (
            "Does it still hold",
            ("recipe", "answer"),
            [(x.recipe, words(x.holding)) for x in d.lanes if x.holding.state != "never"],
        ),
        (
            "Decisions",
            ("date", "recipe", "decision", "reason", "evidence"),
            [(str(x.date), x.recipe, x.status, x.reason, x.evidence) for x in d.decisions],
        ),
        (
            "Retained negatives",
            ("date", "recipe", "what", "reason", "evidence"),
            [(x.at, x.recipe, x.what, x.reason, x.evidence) for x in d.negatives],
        ),
        ("Waivers", ("waiver",), [(w,) for w in d.waivers]),
    ]


def headline(d: Dossier) -> str:
    now = ", ".join(d.current) or "none"
    when = f"reviewed {d.reviewed}, {d.age_days} days ago: {d.freshness}" if d.reviewed else d.freshness
    return f"{d.family}: current {now}; {when}"


def dossier_lines(d: Dossier) -> list[str]:
    """For a terminal: every row on one line, columns aligned but the last."""
    out = [headline(d), "A decision is a record; whether something is live is a reading of the box."]
    for title, head, rows in sections(d):
        out += ["", title]
        widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head) - 1)]
        for row in rows or [("none", *[""] * (len(head) - 1))]:
            cells = [cell.ljust(w) for cell, w in zip(row, widths, strict=False)]
            out.append(("  " + "  ".join([*cells, row[-1]] if len(head) > 1 else [row[0]])).rstrip())
    return out


def dossier_markdown(d: Dossier) -> str:
    out = [f"# {d.family}", "", headline(d), ""]
    for title, head, rows in sections(d):
        out += [f"## {title}", ""]
        if not rows:
            out += ["none", ""]
            continue
        out += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        out += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows] + [""]
    return "\n".join(out)


def dossier_json(d: Dossier) -> dict[str, Any]:
    """Dates as ISO 8601; null = unknown."""
    return {"schema": "anvil.dossier/1", **asdict(d)}
