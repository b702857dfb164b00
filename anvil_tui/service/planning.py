"""Facts gathered from every source, and the plan made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anvil_tui.core.box import GpuSnapshot
from anvil_tui.core.facts import Facts
from anvil_tui.core.gates import Suite
from anvil_tui.core.ownership import gpu_pids
from anvil_tui.core.plan import Intent, Plan, Verb
from anvil_tui.core.planner import make_plan
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.routing import private
from anvil_tui.core.secrets import Secret
from anvil_tui.service.box import Box, engine_url
from anvil_tui.service.clients import with_catalogs, with_catalogs_after
from anvil_tui.service.credentials import found_or_why, inspect
from anvil_tui.service.gates.session import GateTarget
from anvil_tui.service.mending import read_or_mend
from anvil_tui.service.rotate import with_copies
from anvil_tui.service.storage import with_disks
from anvil_tui.service.way_back import Unrunnable, WayBack


def gather(box: Box, *, ignore: str = "") -> Facts:
    """Read everything a plan rests on. Unreachable names the source that did not answer.

    `ignore` is the operation that asks: its own unfinished journal is no obstacle to itself.
    """
    files, suites = box.recipes(), box.suites()
    record = read_or_mend(box, ignore)
    recipes = {f.recipe.id: f.recipe for f in files if f.recipe}
    needed = any(r.gpus.select for r in recipes.values() if r.loadable)
    gpus = first_reading(box) if needed else Reading.unknown("no recipe needs a GPU")
    open_ones = [o.id for o in box.operations.views() if o.needs_person and o.id != ignore]
    return Facts(
        workspace=box.workspace,
        record=record,
        recipes=recipes,
        recipe_errors={_stem(f.path): f.error for f in files if not f.recipe},
        suites={s.suite.id: s.suite for s in suites if s.suite},
        suite_errors={s.id: s.error for s in suites if not s.suite},
        stored=box.store.kept_recipes(),
        containers={c.id: c for c in box.containers.list()},
        images={r.image.ref: box.containers.image_id(r.image.ref) for r in recipes.values() if r.loadable},
        gateway=box.gateway.snapshot(),
        gpus=gpus,
        pids=box.host.containers_of(gpu_pids(gpus)),
        unfinished=open_ones[-1] if open_ones else "",
        waivers=box.store.waivers(),
        check_waivers=box.store.check_waivers(),
        loads=box.store.loads(),
        drills=box.store.drills(),
        today=box.clock.utc().date(),
        credentials=inspect(box),
    )


def first_reading(box: Box) -> Reading[GpuSnapshot]:
    """The GPU reader starts with its first question; its first line may take the reader's own deadline."""
    until = box.clock.monotonic_s() + box.workspace.gpus.deadline_s + 5
    while (reading := box.gpus.read()).state == "unknown" and box.clock.monotonic_s() < until:
        box.clock.sleep(0.05)
    return reading


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".toml")


def plan(box: Box, intent: Intent, facts: Facts | None = None) -> Plan:
    """The plan for an intent over the world as it is now (or over given facts)."""
    facts = facts or gather(box)
    for enrich in ENRICHED_BY.get(intent.verb, ()):
        facts = enrich(box, intent, facts)
    return make_plan(intent, facts, unrunnable_on(box))


def unrunnable_on(box: Box) -> Unrunnable:
    """Asks the conductor which gates of a suite could not run on a recipe, and why."""

    def unrunnable(suite: Suite, recipe: Recipe) -> Mapping[str, str]:
        return box.conductor().unrunnable(suite, target_of(box, recipe, "", 0, ""))

    return unrunnable


def _prove_way_back(box: Box, intent: Intent, facts: Facts) -> Facts:
    return WayBack(box, unrunnable_on(box)).for_plan(intent, facts)


Enrich = Callable[[Box, Intent, Facts], Facts]
ENRICHED_BY: Mapping[Verb, tuple[Enrich, ...]] = {
    "load": (_prove_way_back,),
    "promote": (_prove_way_back, with_catalogs_after),
    "rollback": (_prove_way_back, with_catalogs_after),
    "drill": (_prove_way_back,),
    "apply": (with_catalogs,),
    "remove": (with_disks,),
    "rotate": (with_copies,),
}
"""What a plan rests on beside the facts that every plan needs; slow to read, so read for these verbs only."""


def target_of(box: Box, recipe: Recipe, container_id: str, port: int, slot: str) -> GateTarget:
    """Where the gates of one serve send their requests: its own port, and its private way through the gateway."""
    role = next((r for r in box.workspace.roles if any(s.name == slot for s in r.slots)), None)
    key = found_or_why(box, box.workspace.gateway.client_keys[0])
    way = box.gateway.way(private(slot), recipe.served_name)
    return GateTarget(
        recipe=recipe,
        container_id=container_id,
        base_url=engine_url(port),
        routed_url=way.base_url,
        routed_model=way.model,
        slot=slot,
        origin=box.gateway.served_by,
        routed_key=key.value if isinstance(key, Secret) else None,
        reserve_mib=box.workspace.policies.reserve_mib,
        aliases=role.aliases if role else (),
        waivers=box.store.waivers(),
    )
