"""Whether a recipe can start here: who is in the way, what to do about each, and whom it may evict. Pure.

The one admission of every plan that starts something. Everything is named before anything is touched, and the
operation asks the same again under its lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from anvil_tui.core.box import MIB
from anvil_tui.core.draft import Candidate, Draft, memory_text, too_small
from anvil_tui.core.facts import alias_text
from anvil_tui.core.ownership import Sight, card_label, owner_text, owners
from anvil_tui.core.readiness import BINDS, in_facts, judged
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.shape import resurrects
from anvil_tui.core.standing import Owner
from anvil_tui.core.vram import BASELINE_TOLERANCE_MIB, fit, free_mib, gpus_free
from anvil_tui.core.workspace import Role
from anvil_tui.core.world import ServeRecord

Serves = tuple[ServeRecord, ...]
EVICTING = ("load", "promote")


def admit(
    d: Draft, c: Candidate, leaving: Iterable[ServeRecord | None] = (), beside: ServeRecord | None = None
) -> Serves:
    """Refuse a start that cannot go well; the serves to evict for it, in the order in which they go.

    `leaving` are serves that the plan itself stops first; `beside` is one that may stay whatever it is.
    """
    gone = {s.container_id for s in leaving if s}
    stay = [s for s in d.facts.running_serves() if s not in (c.kept, beside) and s.container_id not in gone]
    blocking = [s for s in stay if c.recipe.exclusive or s.exclusive or s.slot == c.slot]
    victims = tuple(s for s in blocking if d.intent.evict and not resident(d, s, c.role))
    for serve in blocking:
        if serve not in victims:
            d.refuse(_in_the_way(d, c, serve))
    uuids = () if c.running else d.gpu_uuids(c.recipe)
    if uuids:
        away = gone | {s.container_id for s in blocking}
        victims += _admit_on_gpus(d, c, uuids, away, [s for s in stay if s not in blocking])
    if victims:
        _rests_on_evicted(d, victims)
        _prove_returns(d, victims)
    return victims


def _admit_on_gpus(
    d: Draft, c: Candidate, uuids: tuple[str, ...], away: set[str], stay: Sequence[ServeRecord]
) -> Serves:
    """The GPUs once the containers of `away` are gone; returned are those of `stay` whose memory is needed too."""
    seen, need, snapshot = d.facts.sight(), c.recipe, d.facts.gpus.value
    if snapshot is None:
        return ()
    claims = [o for o in owners(seen) if o.gpu in (*uuids, "")]
    d.rests_on["owners"] = sorted([o.gpu, o.kind, o.id, o.certain] for o in claims)
    strangers = _strangers(d, seen, need, claims)
    wanted = tuple(sorted(uuids))
    for why in too_small(snapshot, wanted, need.gpus.need_free_mib):
        d.refuse(f"{need.id} can never start here: {why}")
    d.memory = memory_text(snapshot, wanted)
    short = _shortage(d, seen, need, wanted, claims)
    extra = _fewest(d, [s for s in stay if not resident(d, s, c.role)], claims, lambda ids: not short(away | ids))
    goes = extra if d.intent.evict else ()
    if short(away) and not strangers and not goes:
        for why in short(away):
            d.refuse(why + _would_evict(d, c, extra))
    d.screened(need, snapshot, alone=bool(away or goes))
    if need.exclusive and not away and not claims:
        for why in gpus_free(snapshot, wanted, 0):
            d.refuse(why)
    return goes


def resident(d: Draft, serve: ServeRecord, wants: Role) -> str:
    """Why a serve is never evicted for a role; "" = it may be."""
    role = d.facts.workspace.role(serve.role)
    if serve.role == wants.name:
        return f"it is of role {serve.role} itself"
    if role is None or role.residency == "resident":
        return f"role {serve.role} is resident"
    if d.facts.exact_recipe(serve) is None:
        return f"the recipe that made it ({serve.recipe_digest[:12]}) is not known any more"
    seen = d.facts.container(serve)
    if seen and resurrects(seen):
        return f"its restart policy {seen.restart_policy} would bring it back"
    return ""


def _in_the_way(d: Draft, c: Candidate, serve: ServeRecord) -> str:
    holder = c.recipe.id if c.recipe.exclusive else serve.recipe_id
    why = (
        f"{holder} needs the whole box"
        if c.recipe.exclusive or serve.exclusive
        else f"so is its slot {serve.slot}"
    )
    held = [o for o in owners(d.facts.sight()) if o.id == serve.container_id and o.mib]
    size = f", {sum(o.mib or 0 for o in held):,} MiB on {len(held)} GPUs" if held else ""
    text = f"{serve.recipe_id} ({serve.container_id[:12]}{size}) is running in slot {serve.slot} and {why}: "
    if serve.role == c.role.name and d.intent.verb == "load":
        text += f"`promote {c.recipe.id}` stops the one and starts the other under held traffic, or "
    elif d.intent.verb in EVICTING and not resident(d, serve, c.role):
        text += f"`{d.intent.verb} {c.recipe.id} --evict` drains and stops it, or "
    text += f"`unload {serve.recipe_id}` first"
    return text + (
        f" ({never}, so it is not evicted)" if d.intent.evict and (never := resident(d, serve, c.role)) else ""
    )


def _strangers(d: Draft, seen: Sight, need: Recipe, claims: Sequence[Owner]) -> bool:
    """Refuse for everybody on the recipe's GPUs who is no serve that we could stop. A return is not refused for
    who was given a GPU and holds nothing of it, such as a monitor that started since."""
    advice: dict[str, str] = {}
    returning = d.intent.verb in ("rollback", "drill")
    for o in claims:
        if o.kind == "foreign" and o.mib == 0 and returning:
            d.warnings.append(f"{card_label(seen, o.gpu)} was also given to {owner_text(o)}: it holds nothing now")
        elif o.kind == "foreign":
            advice[o.id] = f"stop container {o.name}, or choose other GPUs"
        elif o.kind == "process" and o.certain:
            advice[o.id] = "end that process, which nobody does for you, or choose other GPUs"
        elif o.id in seen.gone:
            advice[o.id] = "wait until its memory is back, or find the process that holds it"
    for who, what in advice.items():
        held = [o for o in claims if o.id == who]
        where = ", ".join(card_label(seen, o.gpu) for o in held)
        verb = "may be held" if any(not o.certain for o in held) else "is held"
        d.refuse(f"{where} {verb} by {owner_text(held[0])}; {need.id} needs it: {what}")
    return bool(advice)


def _shortage(
    d: Draft, seen: Sight, need: Recipe, uuids: tuple[str, ...], claims: Sequence[Owner]
) -> Callable[[set[str]], list[str]]:
    """Asks which of the GPUs are too small for the recipe once the containers with these ids are gone."""

    def short(away: set[str]) -> list[str]:
        found: list[str] = []
        for uuid in uuids:
            leaving = [o for o in claims if o.gpu == uuid and o.id in away]
            if not leaving:
                found += fit(d.facts.gpus, [uuid], need.gpus.need_free_mib).reasons
            elif (room := _room(d, seen, uuid, claims, away)) + BASELINE_TOLERANCE_MIB < need.gpus.need_free_mib:
                names = ", ".join(o.name for o in leaving)
                found.append(
                    f"{card_label(seen, uuid)}: {room:,} MiB at most are free without {names}, "
                    f"{need.gpus.need_free_mib:,} needed"
                )
        return found

    return short


def _room(d: Draft, seen: Sight, uuid: str, claims: Sequence[Owner], away: set[str]) -> int:
    """MiB free at most on a GPU without some containers: what they hold is added where it is known."""
    card = seen.cards[uuid]
    total, free = (card.total_bytes or 0) // MIB, free_mib(card)
    sizes = {o.id: held_mib(d, o) for o in claims if o.gpu == uuid}
    leaving = [size for who, size in sizes.items() if who in away]
    if free is None or any(size is None for size in leaving):
        return total - sum(size or 0 for who, size in sizes.items() if who not in away)
    return min(total, free + sum(size or 0 for size in leaving))


def held_mib(d: Draft, owner: Owner) -> int | None:
    """What a claim takes of its GPU: what NVML attributes, else what its newest load was measured to take."""
    record = d.facts.record.serves.get(owner.id)
    if owner.mib is not None or record is None:
        return owner.mib
    loads = [x for x in d.facts.loads if x.digest == record.recipe_digest]
    taken = [t for x in loads for card in x.cards if card.uuid == owner.gpu and (t := card.taken) is not None]
    return taken[-1] // MIB if taken else None


def _fewest(
    d: Draft, serves: Sequence[ServeRecord], claims: Sequence[Owner], enough: Callable[[set[str]], bool]
) -> Serves:
    """The fewest serves whose going is enough, the largest among as many; () = none is needed, or none helps."""
    if enough(set()):
        return ()
    size = {
        s: sum(held_mib(d, o) or 0 for o in claims if o.id == s.container_id)
        for s in serves if any(o.id == s.container_id for o in claims)
    }  # fmt: skip
    order = sorted(size, key=lambda s: (-size[s], s.recipe_id))
    for count in range(1, len(order) + 1):
        for chosen in sorted(combinations(order, count), key=lambda some: -sum(size[s] for s in some)):
            if enough({s.container_id for s in chosen}):
                return chosen
    return ()


def _would_evict(d: Draft, c: Candidate, serves: Serves) -> str:
    if not serves or d.intent.verb not in EVICTING:
        return ""
    names = ", ".join(s.recipe_id for s in serves)
    return f"; `{d.intent.verb} {c.recipe.id} --evict` would drain and stop {names}"


# the steps of an eviction


def _role_of(d: Draft, serve: ServeRecord) -> Role:
    return d.facts.role(serve.role)


def _holds(d: Draft, serve: ServeRecord) -> bool:
    """Whether clients of its role depend on this serve."""
    role = _role_of(d, serve)
    return d.facts.incumbent(role) == serve or serve.slot in d.facts.aliases(role).values()


def _prove_returns(d: Draft, victims: Serves) -> None:
    """A failure starts them again: refused as a rollback to each of them would be, waivers included."""
    for serve in victims:
        found = (c for c in in_facts(d.facts, serve, serve.container_id) if c.name in BINDS["rollback"])
        refusals, warnings = judged("rollback", serve.recipe_id, tuple(found))
        for why in refusals:
            d.refuse(f"evicting {serve.recipe_id} cannot be taken back: {why}")
        d.warnings += warnings


def _rests_on_evicted(d: Draft, victims: Serves) -> None:
    d.rests_on["evicted"] = [
        {"serve": s.container_id, "started": seen.started_at if (seen := d.facts.container(s)) else None,
         "aliases": d.facts.aliases(_role_of(d, s)), "ladder": list(d.ladder(_role_of(d, s)))}
        for s in victims
    ]  # fmt: skip


def evict(d: Draft, victims: Serves) -> None:
    """Each is held, drained and closed, then stopped; its container is kept. Clients get 503 from then on."""
    for n, serve in enumerate(victims, 1):
        role = _role_of(d, serve)
        if _holds(d, serve) and set(d.facts.aliases(role).values()) != {"hold"}:
            title = f"hold {alias_text(role.aliases)} at the gateway: {serve.recipe_id} is evicted"
            d.point(role, "hold", f"evict{n}-hold", title)
        d.drain(serve, f"evict{n}-drain")
        if _holds(d, serve):
            d.point(role, "none", f"evict{n}-close", f"answer 503: nothing serves {role.name}")
        d.stop(serve, f"evict{n}-stop")


def record_evicted(d: Draft, victims: Serves, recipe: Recipe) -> None:
    for n, serve in enumerate(victims, 1):
        role = _role_of(d, serve)
        if d.facts.incumbent(role) == serve:
            ladder = [serve.container_id, *(i for i in d.ladder(role) if i != serve.container_id)]
            d.step(f"evict{n}-record", "record", f"record that {role.name} was evicted", 30, role=role.name,
                   incumbent="", ladder=ladder, evicted_for=recipe.id)  # fmt: skip


def undo_evicted(d: Draft, victims: Serves) -> None:
    """The last that went comes back first: started, proven ready, readmitted, on record as before. Only who had
    clients moves aliases, and none to a serve that is not back yet."""
    for n, serve in reversed(tuple(enumerate(victims, 1))):
        role, name = _role_of(d, serve), f"{serve.recipe_id} ({serve.container_id[:12]})"
        recipe = d.exact(serve)
        if uuids := d.gpu_uuids(recipe):
            d.undo_step(f"evict{n}-free", "free", f"prove that the GPUs are free for {serve.recipe_id}",
                        d.facts.workspace.policies.gpu_release_timeout_s, gpus=list(uuids),
                        need_free_mib=recipe.gpus.need_free_mib, alone=recipe.exclusive,
                        unless_running=serve.container_id)  # fmt: skip
        d.undo_step(f"evict{n}-start", "start", f"start the evicted {name} again", 120,
                    container=serve.container_id, port=serve.port)  # fmt: skip
        d.ready(serve, f"undo:evict{n}-ready")
        if _holds(d, serve):
            before, others = d.facts.aliases(role), {s.slot for s in victims if s != serve}
            targets = {alias: target for alias, target in before.items() if target not in others}
            where = ", ".join(sorted(set(targets.values())))
            d.undo_step(
                f"evict{n}-aliases", "point", f"aliases of {role.name} back to {where}", 30, targets=targets
            )
            if set(before.values()) == {serve.slot}:
                d.verify(role, serve, f"undo:evict{n}-verify")
        if d.facts.incumbent(role) == serve:
            held = d.facts.record.roles[role.name]
            d.undo_step(f"evict{n}-record", "record", f"record of {role.name} as it was", 30, role=role.name,
                        incumbent=serve.container_id, ladder=list(held.rollback))  # fmt: skip


def tell_evicted(d: Draft, victims: Serves) -> None:
    """What the eviction interrupts, in the words of the plan."""
    if not victims:
        return
    cut = [
        f"{alias_text(_role_of(d, s).aliases)} ({s.recipe_id}): held while it drains, then 503"
        for s in victims if _holds(d, s)
    ]  # fmt: skip
    quiet = [f"{s.recipe_id}: stopped, no alias points at it" for s in victims if not _holds(d, s)]
    d.interrupts = "; ".join([*cut, *quiet] + ([] if d.interrupts.startswith("nothing") else [d.interrupts]))
    back = ", ".join(f"`rollback --role {s.role}`" for s in victims if d.facts.incumbent(_role_of(d, s)) == s)
    until = f"what was evicted stays away until {back or 'it is loaded'} or a promotion returns it"
    d.outage = until if d.outage == "none" else f"{d.outage}; {until}"
    d.on_failure += "; before the decision every evicted serve is started, proven and readmitted again"
    d.confirm_word = d.confirm_word or victims[0].served_name


# after a stop


def released(d: Draft, serve: ServeRecord) -> None:
    """Prove that a stopped serve gave its GPUs back: no process of it left, and the memory that it had taken."""
    seen, sight = d.facts.container(serve), d.facts.sight()
    given = seen.gpus.uuids if seen else ()
    here = [u for u in given if (card := sight.cards.get(u)) and card.state == "ok"]
    for uuid in given:
        if uuid not in here:
            d.warnings.append(f"whether the memory of {card_label(sight, uuid)} comes back cannot be read")
    if here:
        limit, need = d.facts.workspace.policies.gpu_release_timeout_s, d.exact(serve).gpus.need_free_mib
        others = sorted({int(o.id) for o in owners(sight) if o.kind == "process" and o.certain and o.gpu in here})
        d.step("released", "released", "prove that its GPU memory is back", limit, container=serve.container_id,
               digest=serve.recipe_digest, gpus=here, need_free_mib=need, others=others)  # fmt: skip
