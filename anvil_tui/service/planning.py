"""Facts gathered from every source, and the plan made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anvil_tui.core.box import GpuSnapshot
from anvil_tui.core.facts import Facts
from anvil_tui.core.ownership import gpu_pids
from anvil_tui.core.plan import Intent, Plan, Verb
from anvil_tui.core.planner import make_plan
from anvil_tui.core.reading import Reading
from anvil_tui.service.box import Box
from anvil_tui.service.clients import with_catalogs, with_catalogs_after
from anvil_tui.service.credentials import inspect
from anvil_tui.service.mending import read_or_mend
from anvil_tui.service.rotate import with_copies
from anvil_tui.service.storage import with_disks
from anvil_tui.service.targets import unrunnable_on
from anvil_tui.service.way_back import WayBack


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
