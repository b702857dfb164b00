"""From a recipe, its box and earlier loads to the screen of `core.feasibility`, and its words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from typing import Any, Literal

from anvil_tui.core.box import MIB, Gpu, GpuSnapshot
from anvil_tui.core.errors import Refused
from anvil_tui.core.feasibility import ORDER, Screen, by_waiver, compared, screen
from anvil_tui.core.gpus import resolve_gpus
from anvil_tui.core.heaps import Behaviour, Card, Heap, Need, mib
from anvil_tui.core.loads import MeasuredLoad, left, newest_pool, per_token, replicas_of, rest, whole
from anvil_tui.core.quantity import Amount, exactly, unknown
from anvil_tui.core.recipe import EngineKind, Recipe, Weights
from anvil_tui.core.vram import find, label
from anvil_tui.core.waivers import Waiver, in_force, waiver_text
from anvil_tui.core.workspace import Workspace

Basis = Literal["whole card", "free now"]


@dataclass(frozen=True, slots=True)
class Ground:
    """What a screen stands on besides the recipe. `qualified` None = no qualification of exactly this recipe."""

    workspace: Workspace
    snapshot: GpuSnapshot | None
    today: date
    loads: Sequence[MeasuredLoad] = ()
    waivers: Sequence[Waiver] = ()
    qualified: Behaviour | None = None


@dataclass(frozen=True, slots=True)
class Feasible:
    """A recipe's screen on one box, with its waiver. `gpus` are UUIDs, () = none named or not resolvable."""

    recipe: str
    basis: Basis
    screen: Screen
    gpus: tuple[str, ...] = ()
    waiver: Waiver | None = None
    standing_mib: int = 0
    note: str = ""
    standing_class: str = field(default="")

    @property
    def cls(self) -> str:
        return self.screen.cls


def feasible(recipe: Recipe, ground: Ground, basis: Basis = "whole card") -> Feasible:
    """The screen under the standing reserve, and under the waiver that is in force, if there is one."""
    uuids, note = resolved(recipe, ground)
    standing = recipe.reserve.needed_mib(ground.workspace.policies.reserve_mib)
    need = need_of(recipe, ground, uuids, basis)
    cards = cards_of(recipe, ground, uuids, basis, need)
    plain = screen(need, cards, standing * MIB)
    waiver = in_force(recipe, uuids, ground.waivers, ground.today, ground.workspace.policies.reserve_mib)
    shown = plain
    if waiver:
        shown = by_waiver(plain, screen(need, cards, waiver.reserve_mib * MIB), waiver_text(waiver))
    if not recipe.gpus.select:
        note = "the recipe names no GPU: host memory is not modelled"
    return Feasible(recipe.id, basis, shown, uuids, waiver, standing, note, plain.cls)


def resolved(recipe: Recipe, ground: Ground) -> tuple[tuple[str, ...], str]:
    """The recipe's GPUs here, and why they cannot be told ("" = they can)."""
    if not recipe.gpus.select:
        return (), ""
    if ground.snapshot is None:
        return (), "GPUs cannot be read"
    try:
        return resolve_gpus(recipe.gpus.select, ground.workspace.gpus.roles, ground.snapshot), ""
    except Refused as why:
        return (), str(why)


# the need


def need_of(recipe: Recipe, ground: Ground, uuids: tuple[str, ...], basis: Basis) -> Need:
    table = recipe.feasibility
    measured = whole(recipe, _on_alike(recipe, ground, uuids))
    seen = _left(recipe, ground, uuids)[0] if basis == "whole card" else None
    return Need(
        tokens=_tokens(recipe),
        concurrency=recipe.envelope.concurrency,
        resident=_resident(recipe, ground.loads),
        per_sequence=tuple(q.amount(name) for name, q in table.per_sequence.items()),
        per_token=_per_token(recipe, ground.loads),
        multiplier=table.kv_multiplier.amount("KV multiplier")
        if table.kv_multiplier
        else exactly("KV multiplier", 1),
        whole=None if seen else measured,
        left=seen,
        loaded_tokens=_loaded(recipe, ground.loads),
        context_limit=table.context_limit.amount("context limit") if table.context_limit else None,
        stable_context=table.stable_context.amount("stable context") if table.stable_context else None,
        hard_failures=table.hard_failures,
        behaviours=_behaviours(recipe, ground, uuids),
    )


def _tokens(recipe: Recipe) -> Amount:
    """What must be resident at once: as the recipe says, else one window, or each slot's where slots are cut."""
    if recipe.feasibility.tokens:
        return recipe.feasibility.tokens.amount("tokens")
    shape = recipe.envelope
    cut = any("{total_context}" in arg for arg in recipe.launch.argv)
    return exactly("tokens", shape.context_tokens * (shape.concurrency if cut else 1), "confirmed", "envelope")


def _resident(recipe: Recipe, loads: Sequence[MeasuredLoad]) -> tuple[Amount, ...]:
    table = recipe.feasibility.resident
    if not table and (other := rest(recipe, loads)):
        return (other,)
    own = [q.amount(name) for name, q in table.items()]
    if "weights" not in table:
        own.insert(0, _weights("weights", recipe.model, recipe))
    if recipe.speculation and recipe.speculation.draft and "draft" not in table:
        own.append(_weights("draft", recipe.speculation.draft, recipe))
    if not set(table) - {"weights", "draft"}:
        own.append(
            unknown("runtime and graphs", "not in the recipe's [feasibility], and never measured at a load")
        )
    return tuple(own)


def _weights(name: str, checkpoint: Weights, recipe: Recipe) -> Amount:
    """Assumed: a rank's share takes on the card what it takes on disk, and every rank gets the same share."""
    if checkpoint.bytes is None:
        return unknown(name, f"{checkpoint.repo}: the recipe does not say how many bytes it has")
    if recipe.engine is EngineKind.LLAMACPP and len(recipe.gpus.select) > 1:
        return Amount(
            name, 0, checkpoint.bytes, "assumed", f"{checkpoint.bytes:,} bytes on disk, cut over the GPUs unevenly"
        )
    share = checkpoint.bytes / recipe.gpus.tensor_parallel
    return Amount(
        name, share, share, "assumed", f"{checkpoint.bytes:,} bytes on disk / {recipe.gpus.tensor_parallel}"
    )


def _per_token(recipe: Recipe, loads: Sequence[MeasuredLoad]) -> tuple[Amount, ...]:
    measured = per_token(recipe, loads)
    if measured:
        return (measured,)
    table = recipe.feasibility.per_token
    if table:
        return tuple(q.amount(name) for name, q in table.items())
    return (
        unknown("KV", "bytes a token: not in the recipe's [feasibility], and no load of its shape was measured"),
    )


def _left(recipe: Recipe, ground: Ground, uuids: tuple[str, ...]) -> tuple[Amount | None, Mapping[str, Amount]]:
    """What was left free with exactly this recipe: (the least, by card where it was measured here).

    Here, else on the hardware that the recipe's record names.
    """
    gpus = {u.lower(): g for u in uuids if ground.snapshot and (g := find(ground.snapshot, u))}
    here = left(recipe, uuids, ground.loads, {u: g.reserved_bytes for u, g in gpus.items()})
    least = min(here.values(), key=lambda a: a.low or 0.0, default=None)
    points = [q.amount(f"left free {name}") for name, q in recipe.feasibility.free.items()]
    named = [p for p in points if p.low is not None]
    if named and _same_hardware(recipe, ground.snapshot, uuids):
        recorded = min(named, key=lambda p: p.low or 0.0)
        if least is None or (recorded.low or 0.0) < (least.low or 0.0):
            return recorded, {}
    return least, here


def _on_alike(recipe: Recipe, ground: Ground, uuids: tuple[str, ...]) -> list[MeasuredLoad]:
    """Loads whose whole need speaks of these cards: of engines that take a share, those on cards of such sizes."""
    sizes = {g.total_bytes for u in uuids if ground.snapshot and (g := find(ground.snapshot, u))} - {None}
    if recipe.engine not in _BY_SHARE or not sizes:
        return list(ground.loads)
    return [x for x in ground.loads if all(c.total is None or c.total in sizes for c in x.cards)]


_BY_SHARE = (EngineKind.VLLM, EngineKind.SGLANG)


def _same_hardware(recipe: Recipe, snapshot: GpuSnapshot | None, uuids: tuple[str, ...]) -> bool:
    """Where no card can be read the record speaks of its own hardware; on other cards it says nothing."""
    if snapshot is None or not uuids:
        return True
    names = [(g.name or "") if (g := find(snapshot, u)) else "" for u in uuids]
    return all(recipe.feasibility.hardware.lower() in n.lower() for n in names)


def _loaded(recipe: Recipe, loads: Sequence[MeasuredLoad]) -> Amount:
    pool = newest_pool(recipe, loads)
    if not pool.known and recipe.kv.pool_tokens:
        return exactly(
            "pool", recipe.kv.pool_tokens / replicas_of(recipe), "confirmed", "the recipe's kv.pool_tokens"
        )
    return pool


def _behaviours(recipe: Recipe, ground: Ground, uuids: tuple[str, ...]) -> tuple[Behaviour, ...]:
    """The recipe's recorded results, on the hardware they name; elsewhere they only project."""
    here = _same_hardware(recipe, ground.snapshot, uuids)
    asked = []
    for r in recipe.feasibility.requirements:
        result = r.result.amount(r.name)
        counted = result if here or not result.known else replace(result, status="assumed")
        asked.append(compared(r.name, counted, r.at_least, r.at_most))
    return (*asked, ground.qualified) if ground.qualified else tuple(asked)


# the cards


def cards_of(recipe: Recipe, ground: Ground, uuids: tuple[str, ...], basis: Basis, need: Need) -> list[Card]:
    snapshot = ground.snapshot
    if snapshot is None or not uuids:
        if need.left is None:
            return []
        return [
            Card(f"a card of {recipe.feasibility.hardware}", unknown("card", "no GPU of the recipe is read here"))
        ]
    on = _left(recipe, ground, uuids)[1] if need.left is not None else {}
    return [replace(_card(g, basis), left=on.get(u.lower())) for u in uuids if (g := find(snapshot, u))]


def _card(gpu: Gpu, basis: Basis) -> Card:
    if basis == "free now":
        return Card(label(gpu), _bytes("free memory", gpu.free_bytes))
    return Card(
        label(gpu), _bytes("card", gpu.total_bytes), (_bytes("the driver's own share", gpu.reserved_bytes),)
    )


def _bytes(name: str, value: int | None) -> Amount:
    return unknown(name, "the driver does not tell") if value is None else exactly(name, value, "measured", "NVML")


# the words


def worse(one: Feasible, other: Feasible) -> Feasible:
    """The one whose class stands earlier in the order; a waived class counts as the best."""
    rank = {c: n for n, c in enumerate((*ORDER, "verified-by-waiver"))}
    return min(one, other, key=lambda f: rank[f.screen.cls])


def sentence(f: Feasible) -> str:
    """One line for a plan: class, why, and on what figures."""
    return f"feasibility {f.cls} ({f.basis}): {f.screen.why}"


def lines(f: Feasible) -> list[str]:
    """For people, the class first."""
    s = f.screen
    reserve = f"{f.standing_mib:,} MiB a card"
    out = [f"{f.recipe}: {f.cls}", f"  why      {s.why}", f"  reserve  {reserve}"]
    out += [f"  waiver   {waiver_text(f.waiver)}"] if f.waiver else []
    out += [f"  note     {f.note}"] if f.note else []
    out += [f"  card     {h.card}: {heap_text(h)}" for h in s.heaps]
    out += [f"  part     {amount_text(p)}" for p in s.parts]
    out += [f"  requires {b.text}: {b.outcome}" for b in s.behaviours]
    out += [f"  unknown  {a.name}: {a.source}" for a in other_unknowns(s)]
    return [*out, "  this screen authorises no promotion"]


def other_unknowns(s: Screen) -> tuple[Amount, ...]:
    """What it rests on and nobody knows, but for the parts of the need, which stand in their own lines."""
    return tuple(a for a in s.load_bearing_unknowns if a not in s.parts)


def heap_text(h: Heap) -> str:
    """One card's size, margins and most tokens."""
    low, high = h.margin
    most = "n/a" if h.max_tokens[0] is None else f"{h.max_tokens[0]:,}"
    most += "" if h.max_tokens[0] == h.max_tokens[1] or h.max_tokens[1] is None else f" to {h.max_tokens[1]:,}"
    return (
        f"{mib(h.capacity.low)}; left {_range(low, high)}, beside the reserve "
        f"{_range(*h.policy_margin)}; tokens at most {most}"
    )


def amount_text(a: Amount) -> str:
    """One part of the need, with its standing and source."""
    size = "unknown" if a.low is None else f"{_range(a.low, a.high)}, {a.status}"
    return f"{a.name}: {size}" + (f" ({a.source}{', ' + a.at if a.at else ''})" if a.source else "")


def _range(low: float | None, high: float | None) -> str:
    return mib(low) if low == high else f"{mib(low)} to {mib(high)}"


def as_json(f: Feasible) -> dict[str, Any]:
    """Every figure with bounds, standing and source; bytes and tokens. null = unknown."""
    s = f.screen
    return {
        "recipe": f.recipe, "class": s.cls, "standing_class": f.standing_class, "why": s.why, "basis": f.basis,
        "gpus": list(f.gpus), "reserve_mib": f.standing_mib,
        "waiver": {k: v for k, v in asdict(f.waiver).items() if k != "by"} if f.waiver else None,
        "note": f.note, "cards": [asdict(h) for h in s.heaps], "parts": [asdict(p) for p in s.parts],
        "tokens": asdict(s.tokens), "context": s.context, "requirements": [asdict(b) for b in s.behaviours],
        "load_bearing_unknowns": [asdict(a) for a in s.load_bearing_unknowns],
        "planning_bound_inputs": [asdict(a) for a in s.planning_inputs], "promotion_authority": False,
    }  # fmt: skip


def warnings_for(recipe: Recipe, ground: Ground, *, alone: bool) -> tuple[list[str], list[str]]:
    """(refusals, warnings) of a load plan. `alone`: what holds the cards leaves first, else they must have room.

    Only what measured and confirmed figures prove not to fit is refused; everything weaker warns.
    """
    if not recipe.gpus.select:
        return [], []
    found = feasible(recipe, ground)
    if not alone:
        found = worse(found, feasible(recipe, ground, "free now"))
    if found.cls == "proven-infeasible":
        return [f"{recipe.id} cannot fit: {found.screen.why} ({found.basis})"], []
    return [], [] if found.cls in ("math-qualified", "benchmark-survivor") else [sentence(found)]


def under(ground: Ground, waiver: Waiver) -> Ground:
    """The ground as it is once the waiver is recorded."""
    return replace(ground, waivers=(*ground.waivers, waiver))
