"""Admission and eviction on a box in memory, several roles on one GPU: who is in the way, goes and returns."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.box_file import write_record
from anvil_tui.core.box import MIB, Container, Gpu, GpuGrant, GpuProcess, GpuSnapshot
from anvil_tui.core.errors import EffectFailed, Refused
from anvil_tui.core.journal import fold
from anvil_tui.core.loads import CardLoad, MeasuredLoad
from anvil_tui.core.reading import Reading
from anvil_tui.core.waivers import CheckWaiver
from anvil_tui.core.workspace import Workspace
from anvil_tui.core.world import OPERATION_LABEL, RECIPE_LABEL, BoxRecord, RoleRecord, ServeRecord
from anvil_tui.core.world import World as State
from anvil_tui.ports import ContainerSpec
from anvil_tui.service.operation import accept, operate, prepare
from anvil_tui.service.probes import Probes, Sources
from anvil_tui.service.store import Store
from tests.support.membox import GPU, IMAGE, World, recipe, workspace

TOTAL = 97_887
ROLES = ("primary", "small", "middle", "large", "fixed")
PORTS = {f"{role}-{ab}": 9131 + 2 * n + (ab == "b") for n, role in enumerate(ROLES) for ab in "ab"}


def roles() -> Workspace:
    """Five roles; all but `primary` and `fixed` may be evicted."""
    made = [
        {
            "name": name, "aliases": (f"llm.{name}",), "promotion_suite": "small",
            "residency": "resident" if name in ("primary", "fixed") else "evictable",
            "slots": tuple({"name": f"{name}-{ab}", "port": PORTS[f"{name}-{ab}"]} for ab in "ab"),
        }
        for name in ROLES
    ]  # fmt: skip
    return Workspace.model_validate({**workspace().model_dump(by_alias=True), "roles": tuple(made)})


def of(name: str, need: int, **more: Any) -> Any:
    return recipe(name, gpus={"select": (GPU,), "need_free_mib": need}, **more)


class Shared(World):
    """One GPU that several roles share; a serve holds what its recipe needs, and NVML says so."""

    def __init__(self, tmp: Path, *recipes: Any) -> None:
        super().__init__(tmp, *recipes)
        self.gate.ports = PORTS
        self.gate.in_flight = dict.fromkeys(PORTS, 0)
        self.gate.file = {f"llm.{name}": "none" for name in ROLES}
        self.gate.live = dict(self.gate.file)
        self.box = dataclasses.replace(self.box, workspace=roles())
        self.bare: list[GpuProcess] = []
        self.held: dict[str, int] = {}
        self.attributes = True

    def _gpu(self) -> Gpu:
        by_id = {r.id: r for r in self.recipes}
        mine = {
            c.id: by_id[c.labels["anvil.recipe"]].gpus.need_free_mib
            for c in self.docker.running() if c.labels.get("anvil.recipe") in by_id
        }  # fmt: skip
        self.held |= dict.fromkeys(mine, 0)
        pids = {i: 500 + n for n, i in enumerate(self.held)}
        self.pids |= {pid: i for i, pid in pids.items()}
        rows = [GpuProcess(pids[i], "engine", mib * MIB if self.attributes else None) for i, mib in mine.items()]
        used = sum(mine.values()) * MIB + sum(p.used_bytes or 0 for p in self.bare)
        free = TOTAL * MIB - used
        return Gpu(0, GPU, "card", total_bytes=TOTAL * MIB, used_bytes=used, free_bytes=free,
                   processes=(*rows, *self.bare))  # fmt: skip

    def do(self, verb: str, kill_at: str = "", **target: Any) -> str:
        self.clock.sleep(1)
        return super().do(verb, kill_at, **target)

    def serve(self, name: str, role: str) -> None:
        """What serves a role, as a promotion would have left it."""
        made, slot, store = next(r for r in self.recipes if r.id == name), f"{role}-a", self.box.store
        labels = {OPERATION_LABEL: "OP", RECIPE_LABEL: name}
        spec = ContainerSpec(name, IMAGE, made.filled_argv(PORTS[slot]), labels=labels, gpu_uuids=(GPU,))
        id_ = self.docker.create(spec)
        self.docker.start(id_)
        image = self.docker.all[id_].image_id
        serve = ServeRecord(id_, name, made.digest(), image, role, slot, PORTS[slot], name, "OP")
        now = store.read()
        store.keep_recipe(made)
        record = BoxRecord(1, {**now.serves, id_: serve}, {**now.roles, role: RoleRecord(role, id_)})
        write_record(self.tmp / "box.json", record)
        self.gate.file[f"llm.{role}"] = slot
        self.gate.live = dict(self.gate.file)

    def stranger(self, **grant: Any) -> Container:
        made = Container("f" * 64, "jupyter", "running", "", "", gpus=GpuGrant(**grant))
        self.docker.all[made.id] = made
        return made

    def up(self) -> list[str]:
        return [c.labels.get("anvil.recipe", c.name) for c in self.docker.running()]

    def at(self, role: str) -> str:
        """The recipe that a role's alias reaches; "none", "hold"."""
        target = self.gate.live[f"llm.{role}"]
        found = self.docker.on_port(PORTS.get(target, 0))
        return found.labels["anvil.recipe"] if found else target

    def why(self) -> str:
        view = fold(self.box.operations.journal(self.last).records())
        assert view
        return view.why

    def refused(self, verb: str = "load", **target: Any) -> str:
        return "\n".join(self.plan(verb, **target).refusals)


@pytest.fixture
def box(tmp_path: Path) -> Shared:
    return furnished(tmp_path)


def furnished(tmp: Path) -> Shared:
    """Four serves hold 80,000 of 97,887 MiB; `x`, `y` and `z` need room, `whole` needs the box."""
    made = Shared(
        tmp, of("s", 10_000), of("m", 20_000), of("l", 40_000), of("f", 10_000), of("x", 25_000),
        of("y", 70_000), of("z", 90_000), of("whole", 60_000, exclusive=True),
    )  # fmt: skip
    for name, role in (("s", "small"), ("m", "middle"), ("l", "large"), ("f", "fixed")):
        made.serve(name, role)
    return made


# who is in the way


def stranger_all(box: Shared) -> None:
    box.stranger(effective="all", via="privileged")


def stranger_index(box: Shared) -> None:
    box.stranger(requested=("0",), effective="unknown", via="device-request")


def stranger_watches(box: Shared) -> None:
    """As `stranger_all`, and `[gpus] monitors` names it."""
    stranger_all(box)
    gpus = box.box.workspace.gpus.model_copy(update={"monitors": ("jupyter",)})
    box.box = dataclasses.replace(box.box, workspace=box.box.workspace.model_copy(update={"gpus": gpus}))


def stranger_elsewhere(box: Shared) -> None:
    other = "GPU-bbbb0000-0000-0000-0000-000000000002"
    box.stranger(requested=(other,), effective="uuids", uuids=(other,), via="device-request")


def bare(box: Shared) -> None:
    box.bare = [GpuProcess(4120, "python", 1_024 * MIB)]
    box.pids[4120] = ""


def left(box: Shared) -> None:
    gone = next(c for c in box.docker.all.values() if c.labels["anvil.recipe"] == "s")
    box.docker.stop(gone.id, 1)
    box.bare = [GpuProcess(4120, "VLLM::Worker", 10_000 * MIB)]
    box.pids[4120] = gone.id


def nothing(box: Shared) -> None:
    pass


@pytest.mark.parametrize("verb", ["load", "promote"])
@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (nothing, ()),
        (
            stranger_all,
            ("is held by container jupyter (ffffffffffff), privileged, 0 MiB", "stop container jupyter"),
        ),
        (stranger_index, ("is held by container jupyter (ffffffffffff), device-request 0, 0 MiB",)),
        (stranger_elsewhere, ()),
        (stranger_watches, ()),
        (bare, ("is held by pid 4120 python 1,024 MiB in no container", "end that process")),
        (left, ("is held by pid 4120 VLLM::Worker 10,000 MiB left by container ",)),
    ],
)
def test_everybody_on_the_card_is_named_before_anything_starts(
    box: Shared, verb: str, setting: Any, says: tuple[str, ...]
) -> None:
    """O-08, and rows 9 and 10 of the reference's defects: any recipe on the card, the dry run as the real one."""
    box.recipes.append(of("tiny", 1_000))
    setting(box)
    found = box.refused(verb, recipe="tiny", role="primary")
    assert (found == "") if not says else all(word in found for word in says), found
    if says:
        before = dict(box.docker.all)
        with pytest.raises(Refused, match="GPU 0"):
            box.do(verb, recipe="tiny", role="primary")
        assert box.docker.all == before


def test_what_is_not_certain_is_called_so(box: Shared) -> None:
    """Two GPUs, one container with one of them by index: it may hold either."""
    second = dataclasses.replace(
        box._gpu(), index=1, uuid="GPU-bbbb0000-0000-0000-0000-000000000002", processes=()
    )
    read = box.read
    box.box = dataclasses.replace(box.box, gpus=_Both(read, second))  # type: ignore[arg-type]
    stranger_index(box)
    assert "may be held by container jupyter (ffffffffffff), device-request 0, 0 MiB, not certain" in box.refused(
        recipe="x", role="primary"
    )


class _Both:
    def __init__(self, read: Any, second: Gpu) -> None:
        self._read, self._second = read, second

    def read(self) -> Reading[GpuSnapshot]:
        seen = self._read().value
        return Reading.known(GpuSnapshot("1", (*seen.gpus, self._second)), 1.0, "test")


def test_a_plan_made_before_somebody_took_the_card_is_refused(box: Shared) -> None:
    made = box.plan("load", recipe="x", role="primary", evict=True)
    operation = prepare(box.box, made)
    box.stranger(effective="all", via="environment")
    ended = operate(
        box.box, box.controls, operation, "start", pid=1, interrupted=lambda: None, checkpoint=lambda at: None
    )
    box.last = operation
    assert ended == "undone" and "refused before step 1" in box.why() and "jupyter" in box.why()
    assert box.up() == ["s", "m", "l", "f", "jupyter"]


def test_an_owner_that_changes_nothing_about_the_room_still_moves_the_facts(box: Shared) -> None:
    made = box.plan("load", recipe="x", role="primary", evict=True)
    box.docker.stop(next(c.id for c in box.docker.running() if c.labels["anvil.recipe"] == "f"), 1)
    assert box.plan("load", recipe="x", role="primary", evict=True).hash != made.hash


@pytest.mark.parametrize("pids_known", [True, False])
def test_a_monitor_that_holds_nothing_does_not_hinder_a_return(tmp_path: Path, pids_known: bool) -> None:
    """Started with every GPU since the promotion; whether it holds nothing must be known."""
    made = Shared(tmp_path, of("a", 20_000), of("b", 20_000))
    assert [made.do("promote", recipe=name, role="primary") for name in "ab"] == ["done"] * 2
    stranger_all(made)
    if not pids_known:
        made.bare = [GpuProcess(4120, "python", 8 * MIB)]
    assert "is held by container jupyter" in made.refused("promote", recipe="a", role="primary")
    found = made.plan("rollback", role="primary")
    assert any("held by container jupyter" in w for w in found.refusals) == (not pids_known)
    assert (
        any("given to container jupyter" in w and "holds nothing now" in w for w in found.warnings) == pids_known
    )
    assert not pids_known or made.do("rollback", role="primary") == "done"


# who goes


@pytest.mark.parametrize(("recipe_id", "goes"), [("x", ["l"]), ("y", ["l", "m"])])
def test_the_fewest_go_the_largest_first_and_a_resident_never(
    box: Shared, recipe_id: str, goes: list[str]
) -> None:
    """17,887 MiB are free. x needs 25,000: one goes; s alone would be enough, but the largest goes first."""
    made = box.plan("load", recipe=recipe_id, role="primary", evict=True)
    assert [s.title.split(" ")[1] for s in made.steps if s.deed == "stop"] == goes
    assert made.refusals == ()


def test_who_needs_the_whole_box_cannot_have_it_while_a_resident_runs(box: Shared) -> None:
    (only,) = box.plan("load", recipe="whole", role="primary", evict=True).refusals
    assert only.startswith("f (") and "role fixed is resident, so it is not evicted" in only


def test_what_no_eviction_can_make_room_for_is_refused_with_the_figures(box: Shared) -> None:
    """z needs 90,000; without l, m and s there are 87,887, and f is resident."""
    found = box.refused(recipe="z", role="primary", evict=True)
    assert "72,113 MiB" not in found and "short by 72113 MiB" in found


def test_without_the_flag_the_refusal_names_who_would_go_and_the_flag(box: Shared) -> None:
    assert box.refused(recipe="y", role="primary") == (
        f"GPU 0 ({GPU[:12]}): 17887 MiB free, 70000 needed, short by 52113 MiB; "
        "`load y --evict` would drain and stop l, m"
    )
    whole = box.refused("promote", recipe="whole", role="primary")
    assert (
        "l (" in whole
        and "40,000 MiB on 1 GPUs) is running in slot large-a and whole needs the whole box: " in whole
    )
    assert "`promote whole --evict` drains and stops it, or `unload l` first" in whole
    assert whole.count("--evict") == 3 and "`unload f` first" in whole


def test_the_incumbent_of_the_own_role_is_never_evicted(box: Shared) -> None:
    box.recipes.append(of("alone", 50_000, exclusive=True))
    found = box.refused(recipe="alone", role="large", evict=True)
    own = next(line for line in found.splitlines() if line.startswith("l ("))
    assert "`promote alone` stops the one" in own and "it is of role large itself" in own


def test_what_nvml_does_not_attribute_is_taken_from_the_measured_load(box: Shared) -> None:
    """m was measured to take 62,000, more than anybody: it goes alone, and there are 17,887 + 62,000 MiB then."""
    box.attributes = False
    for name, mib in (("s", 10_000), ("m", 62_000), ("l", 40_000)):
        digest = next(r for r in box.recipes if r.id == name).digest()
        card = CardLoad(GPU, before=90_000 * MIB, after=(90_000 - mib) * MIB)
        box.box.store.keep_load(MeasuredLoad(f"OP-{name}", "t", name, digest, "s", 1, 1, cards=(card,)))
    made = box.plan("load", recipe="y", role="primary", evict=True)
    assert [s.title.split(" ")[1] for s in made.steps if s.deed == "stop"] == ["m"] and made.refusals == ()


def test_one_that_could_not_come_back_is_not_evicted(box: Shared) -> None:
    large = next(c for c in box.docker.running() if c.labels["anvil.recipe"] == "l")
    box.docker.all[large.id] = dataclasses.replace(large, restart_policy="always")
    made = box.plan("load", recipe="x", role="primary", evict=True)
    assert [s.title for s in made.steps if s.deed == "stop" and "stop m" in s.title], made.refusals


def image_other(box: Shared, serve: ServeRecord) -> None:
    box.docker.all[serve.container_id] = dataclasses.replace(
        box.docker.all[serve.container_id], image_id="sha256:" + "9" * 64
    )


def mount_gone(box: Shared, serve: ServeRecord) -> None:
    box.docker.all[serve.container_id] = dataclasses.replace(
        box.docker.all[serve.container_id], mounts=(("/srv/models", "/models", True),)
    )


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (image_other, "container: container {} has image sha256:999999999999, recorded is sha256:bbbbbbbbbbbb"),
        (mount_gone, "configuration: /srv/models, mounted at /models, does not exist"),
    ],
)
@pytest.mark.parametrize("verb", ["load", "promote"])
def test_an_eviction_that_could_not_be_taken_back_is_refused_by_name(
    box: Shared, verb: str, damage: Any, says: str
) -> None:
    """Its undo starts the evicted serve again, so it is proven beforehand, as every way back is; or waived."""
    large = next(s for s in box.box.store.read().serves.values() if s.recipe_id == "l")
    assert box.refused(verb, recipe="x", role="primary", evict=True) == ""
    damage(box, large)
    said = box.refused(verb, recipe="x", role="primary", evict=True)
    lead = f"evicting l cannot be taken back: no way back to l: {says.format(large.container_id[:12])}"
    assert said.startswith(lead) and "`anvil-tui waive l --way-back " in said
    check = says.partition(":")[0]
    box.box.store.waive_check(CheckWaiver("2026-09-01", "l", check, "it can go"))  # type: ignore[arg-type]
    made = box.plan(verb, recipe="x", role="primary", evict=True)
    assert made.refusals == () and any("it can go" in w for w in made.warnings)


@pytest.mark.parametrize(
    ("newcomer", "ready", "words"),
    [
        (of("x", 40_000), True, ""),
        (of("x", 80_000), False, "17,887 MiB at most are free for it, 40,000 needed; held by x ("),
        (of("x", 1_000, exclusive=True), False, "x runs, and one of the two needs the whole box"),
    ],
)
def test_a_way_back_whose_room_somebody_took_since_is_not_ready(
    tmp_path: Path, newcomer: Any, ready: bool, words: str
) -> None:
    """The overview says it before a rollback has to; 97,887 MiB in all, 10,000 of them with the incumbent."""
    made = Shared(tmp_path, of("a", 40_000), of("b", 10_000), newcomer)
    assert [made.do("promote", recipe=name, role="primary") for name in "ab"] == ["done"] * 2
    made.serve("x", "small")
    now = made.box.store.read()
    x = next(s for s in now.serves.values() if s.recipe_id == "x")
    alone = dataclasses.replace(x, exclusive=newcomer.exclusive)
    made.box.store.write(dataclasses.replace(now, serves={**now.serves, x.container_id: alone}), now)
    seen = Probes(Store(State(made.box.workspace, True), made.clock), Sources.of(made.box), made.clock).once()
    way = seen.rollbacks["primary"]
    assert (way.ready, way.target) == (ready, "a")
    assert not words or (len(way.missing) == 1 and way.missing[0].startswith("gpus: ") and words in way.missing[0])
    assert bool(made.plan("rollback", role="primary").refusals) == (not ready)


# what happens


LOAD = ["evict1-hold", "evict1-drain", "evict1-close", "evict1-stop", "evict2-hold", "evict2-drain",
        "evict2-close", "evict2-stop", "free", "start", "ready", "decide", "record", "evict1-record",
        "evict2-record"]  # fmt: skip


def test_an_evicting_load_takes_leave_in_order_and_says_so(box: Shared) -> None:
    made = box.plan("load", recipe="y", role="primary", evict=True)
    assert [s.name for s in made.steps] == ["create", *LOAD]
    undone = [s.name for s in made.undo_steps]
    assert undone.index("undo:evict2-start") < undone.index("undo:evict1-free")
    assert made.interrupts == (
        "llm.large (l): held while it drains, then 503; llm.middle (m): held while it drains, then 503"
    )
    assert "`rollback --role large`" in made.outage and made.confirm_word
    assert box.do("load", recipe="y", role="primary", evict=True) == "done"
    assert box.up() == ["s", "f", "y"] and len(box.docker.all) == 5, "the evicted containers are kept"
    assert {r: box.at(r) for r in ROLES} == {
        "primary": "none", "small": "s", "middle": "none", "large": "none", "fixed": "f"
    }  # fmt: skip
    assert all("large-a" not in h.values() for h in box.gate.history[-1:])


def test_the_record_says_evicted_and_readmit_explains_it(box: Shared) -> None:
    large = box.box.store.read().roles["large"]
    assert box.do("promote", recipe="y", role="primary", evict=True) == "done"
    held = box.box.store.read().roles["large"]
    assert (held.incumbent, held.rollback, held.evicted_for) == ("", (large.incumbent,), "y")
    assert "its serve was evicted for y; `rollback --role large` returns it" in box.refused(
        "readmit", role="large"
    )
    assert "`unload" in box.refused("rollback", role="large") or "short by" in box.refused(
        "rollback", role="large"
    )
    y = box.box.store.read().roles["primary"].incumbent
    assert box.do("unload", container_id=y) == "done"
    assert box.do("rollback", role="large") == "done"
    back = box.box.store.read().roles["large"]
    assert (back.incumbent, back.evicted_for, box.at("large")) == (large.incumbent, "", "l")


def snapshot(box: Shared) -> tuple[object, ...]:
    record = box.box.store.read()
    roles = {n: r for n, r in record.roles.items() if r.incumbent or r.rollback}
    return sorted(box.up()), dict(box.gate.live), roles, sorted(record.serves)


@pytest.mark.parametrize("verb", ["load", "promote"])
def test_a_failure_at_any_step_before_the_decision_brings_everybody_back(
    tmp_path: Path, verb: str, box: Shared
) -> None:
    """In reverse order, each proven ready and readmitted; nothing of the candidate is left."""
    before, everything = snapshot(box), sorted(box.docker.all)
    steps = [s.name for s in box.plan(verb, recipe="y", role="primary", evict=True).steps]
    for name in steps[: steps.index("decide")]:
        box.docker.started.clear()
        ended = broken(box, verb, f"{name}:intended")
        assert ended == "undone", (name, box.why())
        assert snapshot(box) == before and sorted(box.docker.all) == everything, name
        ids = {c.labels["anvil.recipe"]: c.id for c in box.docker.running()}
        back = [i for i in box.docker.started if i in (ids["l"], ids["m"])]
        assert back == [i for i in (ids["m"], ids["l"]) if i in back], name


def broken(box: Shared, verb: str, at: str) -> str:
    """The step at this checkpoint fails."""
    box.last = prepare(box.box, box.plan(verb, recipe="y", role="primary", evict=True))

    def checkpoint(point: str) -> None:
        if point == at:
            raise EffectFailed(f"broken at {at}")

    return operate(
        box.box, box.controls, box.last, "start", pid=1, interrupted=lambda: None, checkpoint=checkpoint
    )


def test_a_kill_at_any_point_of_an_eviction_ends_as_its_decision_says(tmp_path: Path, box: Shared) -> None:
    before = snapshot(box)
    assert box.do("promote", recipe="y", role="primary", evict=True) == "done"
    points = [p for p in box.points if p.endswith(":acted")]
    assert len(points) > 12
    for number, point in enumerate(points):
        (tmp_path / str(number)).mkdir()
        made = furnished(tmp_path / str(number))
        assert made.do("promote", kill_at=point, recipe="y", role="primary", evict=True) == "killed", point
        made.gate.restart()
        forward = made.decision() == "forward"
        assert made.operate("resume") == ("done" if forward else "undone"), point
        if not forward:
            assert snapshot(made) == before and len(made.docker.all) == 4, point
        else:
            assert sorted(made.up()) == ["f", "s", "y"] and made.at("primary") == "y", point
            assert made.box.store.read().roles["large"].evicted_for == "y", point


def test_a_drain_that_times_out_evicts_nobody_and_cuts_nothing(box: Shared) -> None:
    before = snapshot(box)
    box.gate.in_flight["middle-a"] = 2
    assert box.do("load", recipe="y", role="primary", evict=True) == "undone"
    assert "drain_timeout" in box.why() and box.gate.severed == []
    assert snapshot(box) == before


def test_an_evicting_promotion_on_a_full_box_evicts_before_it_holds_its_own_clients(tmp_path: Path) -> None:
    made = Shared(tmp_path, of("s", 20_000), of("a", 60_000), of("b", 90_000))
    made.serve("s", "small")
    assert made.do("promote", recipe="a", role="primary") == "done"
    names = [s.name for s in made.plan("promote", recipe="b", role="primary", evict=True).steps]
    assert names == [
        "create", "evict1-hold", "evict1-drain", "evict1-close", "evict1-stop", "hold", "drain", "stop-incumbent",
        "free", "start", "ready", "gates", "decide", "flip", "verify", "record", "evict1-record",
    ]  # fmt: skip
    made.failing.add("b")
    before = snapshot(made)
    assert made.do("promote", recipe="b", role="primary", evict=True) == "undone"
    assert snapshot(made) == before
    assert made.docker.started[-2:] == [
        made.box.store.read().roles[role].incumbent for role in ("primary", "small")
    ]


def test_no_alias_is_pointed_back_before_its_own_serve_runs(tmp_path: Path) -> None:
    """Two serves of one role go; the one without clients comes back first, and moves no alias."""
    made = Shared(tmp_path, of("l", 30_000), of("m", 20_000), of("whole", 60_000, exclusive=True))
    made.serve("l", "large")
    assert made.do("load", recipe="m", role="large") == "done"
    made.docker.dies.add("whole")
    point, at = made.gate.point, list[tuple[str, bool]]()

    def watched(targets: Any, generation: int, checkpoint: Any) -> None:
        at.extend((t, made.docker.on_port(PORTS[t]) is not None) for t in targets.values() if t in PORTS)
        point(targets, generation, checkpoint)

    made.gate.point = watched  # type: ignore[method-assign]
    before = snapshot(made)
    assert made.do("load", recipe="whole", role="primary", evict=True) == "undone"
    assert snapshot(made) == before and at == [("large-a", True)]


# after a stop


def test_memory_that_is_not_back_ends_the_unload_by_name_until_it_is(box: Shared) -> None:
    """O-10: `vram_not_released` with pid, name and MiB; nothing is killed, and nothing else starts meanwhile."""
    large = box.box.store.read().roles["large"].incumbent
    box.hooks["stop:acted"] = lambda: left_workers(box, large)
    assert box.do("unload", container_id=large) == "halted"
    why = box.why()
    for words in ("vram_not_released", "pid 41207 VLLM::Worker 20,000 MiB left by container", "pid 41208"):
        assert words in why, why
    assert box.bare and "has no good end" in box.refused(recipe="x", role="primary")
    accept(box.box, box.last, "the pids are known")
    assert "is held by pid 41207 VLLM::Worker 20,000 MiB left by container" in box.refused(
        recipe="x", role="primary"
    )
    box.bare = []
    assert box.refused(recipe="x", role="primary") == ""


def left_workers(box: Shared, container_id: str) -> None:
    box.bare = [GpuProcess(pid, "VLLM::Worker", 20_000 * MIB) for pid in (41207, 41208)]
    box.pids |= dict.fromkeys((41207, 41208), container_id)


def test_memory_that_comes_back_late_is_waited_for(box: Shared) -> None:
    large = box.box.store.read().roles["large"].incumbent
    box.hooks["stop:acted"] = lambda: left_workers(box, large)
    sleep = box.clock.sleep

    def later(seconds: float) -> None:
        sleep(seconds)
        if box.clock.now > 20:
            box.bare = []

    box.clock.sleep = later  # type: ignore[method-assign]
    assert box.do("unload", container_id=large) == "done"
    assert box.clock.now > 20


def test_a_process_of_somebody_else_does_not_hold_up_an_unload(box: Shared) -> None:
    bare(box)
    large = box.box.store.read().roles["large"].incumbent
    made = box.plan("unload", container_id=large)
    assert [s.args["others"] for s in made.steps if s.name == "released"] == [[4120]]
    assert box.do("unload", container_id=large) == "done"


def test_a_serve_without_gpus_is_unloaded_without_a_proof(tmp_path: Path) -> None:
    world = World(tmp_path, recipe("a"))
    assert world.do("promote", recipe="a") == "done"
    made = world.plan("unload", container_id=world.box.store.read().roles["primary"].incumbent)
    assert "released" not in [s.name for s in made.steps]


def test_a_vanished_serve_holds_the_card_until_its_memory_is_back(box: Shared) -> None:
    """O-22: removed behind the console; NVML names nobody, yet its 40,000 MiB are not back."""
    for name in ("s", "m", "f"):
        box.docker.stop(next(c.id for c in box.docker.running() if c.labels["anvil.recipe"] == name), 1)
    large = box.box.store.read().roles["large"].incumbent
    box.docker.remove(large)
    gpu = box._gpu
    used = 40_000 * MIB
    box._gpu = lambda: dataclasses.replace(  # type: ignore[method-assign]
        gpu(), used_bytes=used, free_bytes=TOTAL * MIB - used
    )
    found = box.refused(recipe="x", role="primary")
    assert "may be held by l (" in found and "its container is gone, its memory is not back, " in found, found
    assert "wait until its memory is back" in found
    box._gpu = gpu  # type: ignore[method-assign]
    assert box.refused(recipe="x", role="primary") == ""
