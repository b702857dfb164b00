"""Who holds each GPU: our serves, foreign containers, bare processes, and serves that vanished with its memory.

Derived from what is read, never stored. A container that runs holds what it was given, by whatever way; one whose
GPUs only the driver could name may hold each of them. Unknown is a claim of its own and never "free".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from anvil_tui.core.box import MIB, Container, Gpu, GpuGrant, GpuProcess, GpuSnapshot
from anvil_tui.core.errors import Refused
from anvil_tui.core.gpus import resolve_gpus
from anvil_tui.core.loads import MeasuredLoad
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.standing import Owner
from anvil_tui.core.vram import BASELINE_TOLERANCE_MIB, free_mib, gpus_free, label
from anvil_tui.core.workspace import GpuSource
from anvil_tui.core.world import OPERATION_LABEL, BoxRecord, ServeRecord, World

ENDED = frozenset({"created", "exited", "dead"})
"""States in which a container holds nothing; of `removing` and of a failed inspect that is not known."""

# An idle H200 shows 615 MiB used where the driver's own share is counted in, and 0 where it is not; of 2,575 MiB
# in use there NVML attributed 2,566 to the one process that held them.
IDLE_MIB, IDLE_WITH_RESERVED_MIB = BASELINE_TOLERANCE_MIB, 1024
_MIG_OF = re.compile(r"MIG-(GPU-[0-9a-f-]{36})/", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sight:
    """What ownership follows from. `containers` None = the engine cannot be read.

    `pids` gives the container of a process ("" = of none; absent = not known). `gone` are recorded serves whose
    container does not exist any more, with the GPUs of their recipe; `before` is, by recipe digest and UUID, how
    many MiB were free before the newest load. `monitors` are names of containers that only watch.
    """

    gpus: Reading[GpuSnapshot]
    containers: tuple[Container, ...] | None
    record: BoxRecord = BoxRecord()
    pids: Mapping[int, str] = field(default_factory=dict)
    gone: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    before: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    monitors: frozenset[str] = frozenset()

    @property
    def cards(self) -> dict[str, Gpu]:
        """By UUID; none while the GPUs cannot be read."""
        snapshot = self.gpus.value if self.gpus.ok else None
        return {g.uuid: g for g in snapshot.gpus if g.uuid} if snapshot else {}


def sight(
    gpus: Reading[GpuSnapshot],
    containers: tuple[Container, ...] | None,
    record: BoxRecord,
    pids: Mapping[int, str],
    source: GpuSource,
    exact: Callable[[ServeRecord], Recipe | None],
    loads: Iterable[MeasuredLoad],
) -> Sight:
    """`source` is `[gpus]` of anvil.toml, `exact` finds the recipe that made a serve."""
    here = {c.id for c in containers or ()}
    lost = [s for s in record.serves.values() if s.container_id not in here] if containers is not None else []
    gone = {s.container_id: uuids_of(exact(s), source.roles, gpus) for s in lost}
    return Sight(gpus, containers, record, pids, gone, free_before(loads), frozenset(source.monitors))


def sight_of(world: World) -> Sight:
    containers = world.containers.value if world.containers.ok else None
    return sight(
        world.gpus, containers, world.record, world.pids, world.workspace.gpus,
        lambda s: world.exact_recipe(s.recipe_digest, s.recipe_id), world.loads_kept,
    )  # fmt: skip


def uuids_of(recipe: Recipe | None, roles: Mapping[str, str], gpus: Reading[GpuSnapshot]) -> tuple[str, ...]:
    """The GPUs that a recipe means, () where that cannot be told."""
    if recipe is None or gpus.value is None or not gpus.ok:
        return ()
    try:
        return resolve_gpus(recipe.gpus.select, roles, gpus.value)
    except Refused:
        return ()


def needed_by(world: World) -> dict[str, str]:
    """The GPUs that the workspace needs, by UUID: a recipe that selects it, or its role in anvil.toml."""
    found = {uuid: f"GPU role {role}" for role, uuid in world.workspace.gpus.roles.items()}
    for recipe in (f.recipe for f in world.recipes if f.recipe and f.recipe.loadable):
        found |= dict.fromkeys(uuids_of(recipe, world.workspace.gpus.roles, world.gpus), recipe.id)
    return found


def free_before(loads: Iterable[MeasuredLoad]) -> dict[str, dict[str, int]]:
    """By recipe digest and UUID: MiB free before its newest load that was measured."""
    found: dict[str, dict[str, int]] = {}
    for load in loads:
        known = {c.uuid: c.before // MIB for c in load.cards if c.before is not None}
        found.setdefault(load.digest, {}).update(known)
    return found


def gpu_pids(gpus: Reading[GpuSnapshot]) -> tuple[int, ...]:
    """Every process that the driver names on a GPU."""
    snapshot = gpus.value if gpus.ok else None
    return tuple({p.pid: None for g in snapshot.gpus for p in g.processes or ()}) if snapshot else ()


def owners(seen: Sight) -> tuple[Owner, ...]:
    """Everybody who holds, or was given, a GPU. Containers first, in the order of the engine's list."""
    cards = seen.cards
    live = {c.id: c for c in seen.containers or () if c.status not in ENDED}
    whose = pid_map(seen)
    found = [o for c in live.values() for o in _container(seen, c, cards, whose)]
    for uuid, card in cards.items():
        shared = any(o.gpu in (uuid, "") for o in found)
        for process in card.processes or ():
            if whose.get(process.pid) not in live:
                found.append(_process(seen, uuid, process, whose.get(process.pid), shared))
    return (*found, *_vanished(seen, cards, found))


def pid_map(seen: Sight) -> dict[int, str]:
    """The container of each process that is known: by its control group, or as a container's first process."""
    first = {c.pid: c.id for c in seen.containers or () if c.pid and c.status not in ENDED}
    return {**first, **seen.pids}


def _container(seen: Sight, c: Container, cards: Mapping[str, Gpu], whose: Mapping[int, str]) -> Iterable[Owner]:
    record = seen.record.serves.get(c.id)
    kind = "ours" if record or OPERATION_LABEL in c.labels else "foreign"
    on = {u for u, g in cards.items() for p in g.processes or () if whose.get(p.pid) == c.id}
    detail = f" {', '.join(c.gpus.requested)}" if c.gpus.effective == "unknown" and c.gpus.requested else ""
    how = f"{c.gpus.via}{detail}" if c.gpus.effective != "none" else "its process"
    watches = kind == "foreign" and c.name in seen.monitors
    slices = {name.lower(): uuid for uuid, card in cards.items() for name in card.mig or ()}
    for uuid, certain in given(c.gpus, tuple(cards), on, slices).items():
        if watches and uuid not in on:
            continue
        mib = _attributed(cards[uuid], c.id, whose) if uuid in cards else None
        name = record.recipe_id if record else c.name
        yield Owner(uuid, "ours" if kind == "ours" else "foreign", c.id, name, how, mib, certain)


def given(
    grant: GpuGrant, cards: Sequence[str], on: Iterable[str] = (), slices: Mapping[str, str] = MappingProxyType({})
) -> dict[str, bool]:
    """The GPUs of a grant by UUID, and whether that is certain; "" = of none that can be read.

    `on` are those where processes of the container were seen, `slices` the GPUs of MIG slices by their UUIDs in
    small letters. A count, an index, a device node and a slice that the driver does not list do not tell which GPU
    they mean, unless every GPU is meant or the processes show it.
    """
    if grant.effective == "all":
        return dict.fromkeys(cards or ("",), True)
    sure = dict.fromkeys(on, True)
    if grant.effective == "none":
        return sure
    names = grant.uuids if grant.effective == "uuids" else grant.requested
    named = {name: _card(name, cards, slices) for name in names}
    known = {uuid for uuid in named.values() if uuid}
    loose = sum(_count(name) for name, uuid in named.items() if not uuid) - len(set(sure) - known)
    sure |= dict.fromkeys(known, True)
    rest = [uuid for uuid in cards if uuid not in sure]
    if names and loose <= 0:
        return sure
    apart = bool(names) and not known and not any(name.upper().startswith("MIG-") for name in names)
    return {**sure, **dict.fromkeys(rest or ([] if sure else [""]), apart and loose >= len(rest) > 0)}


def _card(name: str, cards: Sequence[str], slices: Mapping[str, str]) -> str:
    """The GPU that a name certainly means: a full UUID, a slice of it, a MIG name that holds one, a prefix of one
    alone."""
    name = name.rpartition("=")[2] if "/" in name.partition("=")[0] else name
    if name.lower() in slices:
        return slices[name.lower()]
    wanted = (m[1] if (m := _MIG_OF.match(name)) else name).lower()
    if not wanted.startswith("gpu-"):
        return ""
    hits = [uuid for uuid in cards if uuid.lower().startswith(wanted)]
    if len(hits) == 1:
        return hits[0]
    return wanted.replace("gpu-", "GPU-", 1) if len(wanted) == 40 else ""


def _count(name: str) -> int:
    found = re.fullmatch(r"count=(\d+)", name)
    return int(found[1]) if found else 1


def _attributed(card: Gpu, container_id: str, whose: Mapping[int, str]) -> int | None:
    """MiB of one container's processes; None as soon as one of them, or of the card's, is not known. Nothing is no
    figure while the card has memory in use that is no listed process's: some drivers list none."""
    if card.processes is None or any(p.pid not in whose for p in card.processes):
        return None
    sizes = [p.used_bytes for p in card.processes if whose[p.pid] == container_id]
    mib = None if any(s is None for s in sizes) else sum(s or 0 for s in sizes) // MIB
    return None if mib == 0 and not _all_listed(card) else mib


def _all_listed(card: Gpu) -> bool:
    """Whether the listed processes account for the memory in use, as far as their sizes are told."""
    sizes = [p.used_bytes for p in card.processes or ()]
    if card.used_bytes is None or any(s is None for s in sizes):
        return bool(sizes)
    return (card.used_bytes - sum(s or 0 for s in sizes)) // MIB <= _idle_mib(card)


def _idle_mib(card: Gpu) -> int:
    return IDLE_WITH_RESERVED_MIB if card.used_includes_reserved else IDLE_MIB


def _process(seen: Sight, uuid: str, process: GpuProcess, of: str | None, shared: bool) -> Owner:
    """A process of no container that runs. Where whose it is is not known, a container of this GPU may be it."""
    mib = None if process.used_bytes is None else process.used_bytes // MIB
    record = seen.record.serves.get(of or "")
    if seen.containers is None and record:
        return Owner(uuid, "ours", record.container_id, record.recipe_id, "its process", mib)
    ours = record is not None or any(c.id == of for c in seen.containers or ())
    how = "in no container" if of == "" else f"left by container {of[:12]}" if of and ours else ""
    how = how or (f"in container {of[:12]}, which the engine does not list" if of else "in which container is n/a")
    return Owner(
        uuid, "process", str(process.pid), process.name or "name n/a", how, mib, of is not None or not shared
    )


def _vanished(seen: Sight, cards: Mapping[str, Gpu], found: Sequence[Owner]) -> Iterable[Owner]:
    """A serve that was removed behind the console keeps its GPUs until their memory is back, or is a process's."""
    for container_id, uuids in seen.gone.items():
        record = seen.record.serves[container_id]
        before = seen.before.get(record.recipe_digest, {})
        for uuid in uuids:
            card = cards.get(uuid)
            if card is None or card.state != "ok" or any(o.gpu == uuid and o.kind != "process" for o in found):
                continue
            missing = unreturned_mib(card, before.get(uuid))
            told = sum(o.mib or 0 for o in found if o.gpu == uuid)
            if missing is None or missing > (BASELINE_TOLERANCE_MIB if told else 0) + told:
                how = "its container is gone, its memory is not back"
                yield Owner(
                    uuid, "ours", container_id, record.recipe_id, how, missing, before.get(uuid) is not None
                )


def unreturned_mib(card: Gpu, before_mib: int | None) -> int | None:
    """MiB that are not back on a GPU that nobody should hold; 0 = all is back, None = cannot be told.

    Against the MiB that were free before the load where that is known, else against an idle card.
    """
    free = free_mib(card)
    if before_mib is not None and free is not None:
        return before_mib - free if before_mib - free > BASELINE_TOLERANCE_MIB else 0
    if card.used_bytes is None:
        return 0 if card.processes == () else None
    used = card.used_bytes // MIB
    return used if used > _idle_mib(card) else 0


def unreleased(
    seen: Sight, container_id: str, uuids: Iterable[str], need_mib: int, digest: str, others: Iterable[int] = ()
) -> list[str]:
    """Why the memory of a stopped container is not proven to be back; an empty list is the proof.

    `others` are processes, in none of our containers, that held these GPUs before the stop. Where somebody else
    holds a GPU too, only processes tell: its memory cannot be told from the others'.
    """
    if not seen.gpus.ok or seen.gpus.value is None:
        return [f"GPUs cannot be read: {seen.gpus.reason or seen.gpus.state}"]
    claims, whose, reasons = owners(seen), pid_words(seen), []
    before, known = seen.before.get(digest, {}), {str(pid) for pid in others}
    for uuid in uuids:
        here = [o for o in claims if o.gpu == uuid and o.id != container_id]
        if not any(o.kind != "process" or o.id in known for o in here):
            floor = need_mib if uuid not in before else 0
            reasons += gpus_free(seen.gpus.value, [uuid], floor, {uuid: before.get(uuid)}, whose)
            continue
        left = [o for o in here if o.kind == "process" and o.certain and o.id not in known]
        if left:
            reasons.append(f"{card_label(seen, uuid)}: held by {', '.join(owner_text(o) for o in left)}")
    return reasons


def pid_words(seen: Sight) -> dict[int, str]:
    """For each process that is known: `in container NAME (ID)`, or what `owners` says of it."""
    names = {c.id: c.name for c in seen.containers or ()}
    bare = {int(o.id): o.how for o in owners(seen) if o.kind == "process"}
    held = {p: f"in container {names[c]} ({c[:12]})" for p, c in pid_map(seen).items() if c in names}
    return {**held, **bare}


def card_label(seen: Sight, uuid: str) -> str:
    card = seen.cards.get(uuid)
    return label(card) if card else (f"GPU {uuid}" if uuid else "a GPU that cannot be read")


def owner_text(owner: Owner) -> str:
    """An owner as words: `container stray (0123456789ab), privileged, 1,024 MiB`."""
    mib = "n/a MiB" if owner.mib is None else f"{owner.mib:,} MiB"
    may = "" if owner.certain else ", not certain"
    if owner.kind == "process":
        return f"pid {owner.id} {owner.name} {mib} {owner.how}{may}"
    what = owner.name if owner.kind == "ours" else f"container {owner.name}"
    return f"{what} ({owner.id[:12]}), {owner.how}, {mib}{may}"


def mode(seen: Sight, claims: Sequence[Owner]) -> str:
    """How the box's GPUs are owned, in words: free, split by UUID, exclusive, or unresolved with the reason."""
    if not seen.gpus.ok:
        return f"unresolved: GPUs cannot be read: {seen.gpus.reason or seen.gpus.state}"
    if seen.containers is None:
        return "unresolved: containers cannot be read"
    doubt = next((o for o in claims if not o.certain), None)
    if doubt:
        return f"unresolved: {card_label(seen, doubt.gpu)}: {owner_text(doubt)}"
    names = {o.id: o.name for o in claims}
    alone = [i for i in names if (r := seen.record.serves.get(i)) and r.exclusive]
    if alone and len(names) > 1:
        others = ", ".join(n for i, n in names.items() if i != alone[0])
        return f"unresolved: {names[alone[0]]} is exclusive, and there is {others}"
    if alone:
        return f"exclusive: {names[alone[0]]}"
    blind = any(g.processes is None and g.state == "ok" for g in seen.cards.values())
    note = "; processes outside containers cannot be seen here" if blind else ""
    held = {u: ", ".join(o.name for o in claims if o.gpu == u) for u in seen.cards}
    rows = "; ".join(f"GPU {seen.cards[u].index} {who}" for u, who in held.items() if who)
    return (f"split by UUID: {rows}" if rows else "free: nobody holds a GPU") + note
