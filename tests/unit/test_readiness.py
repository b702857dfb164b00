"""Every check of a way back: what it says of each state, what plans make of it, and how a waiver changes that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from anvil_tui.core.box import MIB, Container, GpuSnapshot, Host
from anvil_tui.core.problems import problems
from anvil_tui.core.readiness import Bind, judged
from anvil_tui.core.reading import Reading
from anvil_tui.core.serves import derive
from anvil_tui.core.shape import changed, shape_of, write
from anvil_tui.core.standing import WAIVABLE, Check, CheckName, CredentialState, DrillPhase, DrillRecord
from anvil_tui.core.status import status_json, status_lines
from anvil_tui.core.waivers import CheckWaiver
from anvil_tui.core.world import World
from tests.support import worlds

BACK, NOW = worlds.cid(worlds.INCUMBENT), worlds.cid(worlds.CANDIDATE)
LIMB = worlds.recipes()[worlds.INCUMBENT]
Change = Callable[[World], dict[str, Any]]


def back_container(w: World, **more: Any) -> dict[str, Any]:
    seen = tuple(replace(c, **more) if c.id == BACK else c for c in w.containers.value or ())
    return {"containers": Reading.known(seen, w.now_s, "docker")}


def only(*left: str) -> Change:
    def change(w: World) -> dict[str, Any]:
        kept = tuple(c for c in w.containers.value or () if c.id in left)
        return {"containers": Reading.known(kept, w.now_s, "docker")}

    return change


def made_again(w: World) -> dict[str, Any]:
    old = next(c for c in w.containers.value or () if c.id == BACK)
    labels = {"anvil.recipe-digest": LIMB.digest()}
    new = replace(old, id="f" * 64, labels=labels)
    return {"containers": Reading.known((*only(NOW)(w)["containers"].value, new), w.now_s, "docker")}


def proof(name: CheckName, state: str, why: str) -> Change:
    def change(w: World) -> dict[str, Any]:
        others = tuple(c for c in w.proofs[BACK] if c.name != name)
        made = Check(name, state, why, worlds.at(1))  # type: ignore[arg-type]
        return {"proofs": {**w.proofs, BACK: (*others, made)}}

    return change


def without_shape(w: World) -> dict[str, Any]:
    serves = {**w.record.serves, BACK: replace(w.record.serves[BACK], shape="")}
    return {"record": replace(w.record, serves=serves)}


def forgotten(w: World) -> dict[str, Any]:
    return {"stored": {}, "recipes": tuple(f for f in w.recipes if f.recipe and f.recipe.id != LIMB.id)}


def one_card(w: World) -> dict[str, Any]:
    return {"gpus": Reading.known(GpuSnapshot("580", (worlds.gpu(0),)), w.now_s, "nvml")}


def stranger(w: World) -> dict[str, Any]:
    held = Container("e" * 64, "web", "running", "i", "r", ports=("127.0.0.1:9131->80/tcp",))
    return {"containers": Reading.known((*(w.containers.value or ()), held), w.now_s, "docker")}


def key(state: str, why: str = "") -> Change:
    return lambda w: {"credentials": (CredentialState("key", "env:K", state, why=why, at=worlds.at(1)),)}  # type: ignore[arg-type]


def demanding(days: int, *drills: DrillRecord) -> Change:
    def change(w: World) -> dict[str, Any]:
        policies = w.workspace.policies.model_copy(update={"drill_max_age_days": days})
        return {"workspace": w.workspace.model_copy(update={"policies": policies}), "drills": drills}

    return change


def drilled(at: str, **more: Any) -> DrillRecord:
    both = (DrillPhase("away", "start", 1.0), DrillPhase("home", "start", 1.0))
    fields: dict[str, Any] = {"place": "box", "outcome": "restored", "phases": both, **more}
    return DrillRecord("OP", "primary", at, incumbent=NOW, way_back=BACK, **fields)


CASES: list[tuple[CheckName, str, str, Change]] = [
    ("record", "missing", "is not known any more", forgotten),
    ("image", "missing", "is not here", lambda w: {"images": {LIMB.image.ref: None}}),
    ("image", "unknown", "not looked up yet", lambda w: {"images": {}}),
    ("container", "missing", "does not exist", only(NOW)),
    ("container", "missing", "(ffffffffffff) is another one of its recipe", made_again),
    ("container", "missing", "has image sha256:other", lambda w: back_container(w, image_id="sha256:other")),
    ("container", "missing", "is dead", lambda w: back_container(w, status="dead")),
    ("container", "missing", "argv changed", lambda w: back_container(w, argv=("other",))),
    ("container", "missing", "env changed", lambda w: back_container(w, env_names=("NEW",))),
    ("container", "missing", "mounts, labels, restart changed",
     lambda w: back_container(w, mounts=(("/a", "/b", True),), labels={"x": "y"}, restart_policy="always")),
    ("container", "missing", "restart changed", lambda w: back_container(w, restart_policy="on-failure")),
    ("container", "unknown", "cannot be inspected", lambda w: back_container(w, status="unknown", error="no")),
    ("container", "unknown", "containers cannot be read: docker: refused",
     lambda w: {"containers": Reading.error("docker: refused", 1.0, "docker", w.containers.value)}),
    ("container", "unknown", "recorded without its configuration", without_shape),
    ("weights", "missing", "12 bytes", proof("weights", "missing", "/m: 12 bytes, 13 are recorded")),
    ("configuration", "missing", "not the file", proof("configuration", "missing", "x is not the file")),
    ("port", "missing", "taken by container web (eeeeeeeeeeee)", stranger),
    ("port", "missing", "process 77", proof("port", "missing", "port 9131 is taken by process 77 (nginx)")),
    ("gpus", "missing", f"GPU {worlds.UUIDS[1]} is not on this box", one_card),
    ("gpus", "unknown", "GPUs cannot be read: lost", lambda w: {"gpus": Reading.error("lost", 1.0, "nvml")}),
    ("credential", "missing", "refused: HTTP 401", key("refused", "HTTP 401")),
    ("credential", "missing", "absent", key("absent")),
    ("credential", "unknown", "unproven", key("unproven", "no answer")),
    ("credential", "unknown", "not asked yet", lambda w: {"credentials": ()}),
    ("gates", "missing", "gate image", proof("gates", "missing", "suite promotion: gate image: no media")),
    ("budgets", "unknown", "set aside", proof("budgets", "unknown", "no tokens are set aside for it")),
    ("drill", "missing", "never drilled", demanding(30)),
    ("drill", "missing", "33 days ago; at most 30", demanding(30, drilled("2026-07-31T10:00:00Z"))),
    ("drill", "missing", "halted", demanding(30, drilled("2026-09-01T10:00:00Z", outcome="halted"))),
    ("drill", "missing", "never drilled", demanding(30, drilled("2026-09-01T10:00:00Z", place="copy"))),
    ("drill", "missing", "never drilled", demanding(30, drilled(
        "2026-09-01T10:00:00Z", phases=(DrillPhase("away", "verify", 1.0), DrillPhase("home", "start", 1.0))))),
    ("drill", "missing", "never drilled", demanding(30, drilled("2026-09-01T10:00:00Z", recheck=True))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "state", "words", "change"), CASES, ids=[f"{c[0]}-{c[1]}-{c[2]}" for c in CASES])
def test_one_check_that_fails_is_named_with_its_reason(name: str, state: str, words: str, change: Change) -> None:
    """O-22 among them: removed behind the console, and made again under another id."""
    calm = worlds.calm()
    assert calm.rollbacks["primary"].ready and calm.rollbacks["primary"].target == LIMB.id
    world = derive(replace(calm, **change(calm)))
    way = world.rollbacks["primary"]
    failing = [(c.name, c.state) for c in way.checks if c.state != "ok"]
    assert failing == [(name, state)]
    assert len(way.missing) == 1 and way.missing[0].startswith(f"{name}: ") and words in way.missing[0]
    word = "not known" if state == "unknown" else "not ready"
    assert any(f"{word}: {name}: " in line and words in line for line in status_lines(world))
    told = status_json(world)["rollbacks"]["primary"]
    assert told["ready"] is False and name in [c["name"] for c in told["checks"] if c["state"] == state]


def test_a_restart_policy_that_lets_it_stay_stopped_may_be_changed() -> None:
    calm = worlds.calm()
    world = derive(replace(calm, **back_container(calm, restart_policy="unless-stopped")))
    assert world.rollbacks["primary"].ready


@pytest.mark.parametrize("days", [0, 1, 30])
def test_a_drill_of_either_end_that_is_young_enough_counts(days: int) -> None:
    world = derive(replace(worlds.calm(), **demanding(days, drilled("2026-09-01T10:00:00Z"))(worlds.calm())))
    assert [r.missing for r in (world.rollbacks["primary"], world.returns["primary"])] == [(), ()]


def test_the_way_home_is_a_check_of_its_own_and_the_incumbent_has_checks_too() -> None:
    calm = worlds.calm()
    bad = Check("gates", "missing", "suite promotion: gate image: no media", worlds.at(1))
    proofs = {**calm.proofs, NOW: (*(c for c in calm.proofs[NOW] if c.name != "gates"), bad)}
    world = derive(replace(calm, proofs=proofs))
    assert world.rollbacks["primary"].missing == (f"home: {worlds.CANDIDATE}: {bad.why}",)
    assert world.returns["primary"].target == worlds.CANDIDATE
    assert world.returns["primary"].missing == (f"gates: {bad.why}",)


def test_what_was_not_looked_at_yet_is_unknown_and_no_problem() -> None:
    world = derive(replace(worlds.calm(), proofs={}))
    assert {c.name for c in world.rollbacks["primary"].checks if c.state == "unknown"} == {
        "weights", "configuration", "port", "gates", "budgets", "home",
    }  # fmt: skip
    assert not [p for p in world.problems if "rollback" in p]


def test_a_way_back_that_is_not_ready_is_a_problem_unless_its_role_is_being_changed() -> None:
    calm = worlds.calm()
    world = derive(replace(calm, **proof("weights", "missing", "/m does not exist")(calm)))
    assert "rollback of primary not ready: weights: /m does not exist" in world.problems
    busy = replace(worlds.promoting().operations[-1])
    assert not [p for p in problems(replace(world, operations=(busy,))) if "rollback of" in p]


def test_no_way_back_by_design_is_no_problem() -> None:
    calm = worlds.calm()
    alone = replace(calm.record, roles={"primary": replace(calm.record.roles["primary"], rollback=())})
    world = derive(replace(calm, record=alone))
    assert (world.rollbacks["primary"].target, world.problems) == ("", ())


# what plans make of it: M = refused when missing, U = when unknown

TABLE: dict[str, dict[CheckName, str]] = {
    "promote": {"record": "M", "image": "MU", "container": "MU", "weights": "MU", "configuration": "MU",
                "port": "MU", "gpus": "MU", "credential": "", "gates": "MU", "budgets": "MU", "drill": "M",
                "home": ""},
    "rollback": {"record": "M", "image": "", "container": "M", "weights": "M", "configuration": "M",
                 "port": "M", "gpus": "MU", "credential": "", "gates": "", "budgets": "", "drill": "",
                 "home": ""},
    "drill": {"record": "M", "image": "MU", "container": "MU", "weights": "MU", "configuration": "MU",
              "port": "MU", "gpus": "MU", "credential": "", "gates": "MU", "budgets": "", "drill": "",
              "home": "MU"},
}  # fmt: skip


@pytest.mark.parametrize("verb", ["promote", "rollback", "drill"])
def test_what_binds_each_verb(verb: Bind) -> None:
    for name, letters in TABLE[verb].items():
        for state, letter in (("missing", "M"), ("unknown", "U")):
            refusals, warnings = judged(verb, "x", (Check(name, state, "because"),))  # type: ignore[arg-type]
            assert bool(refusals) == (letter in letters), (verb, name, state)
            assert all(f"{name}: because" in r for r in refusals)
            assert bool(warnings) == (letter not in letters and name != "credential")
        assert judged(verb, "x", (Check(name, "ok", ""),)) == ([], [])
        assert judged(verb, "x", (Check(name, "waived", "why; waived"),))[0] == []


def test_the_refusal_names_the_waiver_that_would_let_it_go_on() -> None:
    (said,), _ = judged("promote", "x", (Check("weights", "missing", "/m does not exist"),))
    assert said == (
        "no way back to x: weights: /m does not exist; mend it, or go on without it by "
        "`anvil-tui waive x --way-back weights --reason ...`"
    )
    (never,), _ = judged("promote", "x", (Check("record", "missing", "gone"),))
    assert "waive" not in never and set(WAIVABLE).isdisjoint({"record", "credential"})


@pytest.mark.parametrize(
    ("waivers", "waived"),
    [
        ([("2026-09-01", LIMB.id, "weights", "")], True),
        ([("2026-09-01", LIMB.id, "weights", "2026-09-02")], True),
        ([("2026-09-01", LIMB.id, "weights", "2026-09-01")], False),
        ([("2026-09-01", LIMB.id, "port", "")], False),
        ([("2026-09-01", "other", "weights", "")], False),
        ([("2026-08-01", LIMB.id, "weights", ""), ("2026-09-01", LIMB.id, "weights", "2026-09-01")], False),
    ],
)
def test_a_waiver_counts_for_one_recipe_and_one_check_until_its_day(
    waivers: list[tuple[str, str, CheckName, str]], waived: bool
) -> None:
    calm = worlds.calm()
    ledger = tuple(CheckWaiver(day, name, check, "known bad disk", until=end) for day, name, check, end in waivers)
    change = proof("weights", "missing", "/m does not exist")(calm)
    world = derive(replace(calm, **change, check_waivers=ledger))
    found = next(c for c in world.rollbacks["primary"].checks if c.name == "weights")
    assert (found.state == "waived", world.rollbacks["primary"].ready) == (waived, waived)
    assert not waived or found.why.startswith("/m does not exist; waived 2026-09-01")


def test_shapes_tell_what_changed_and_older_ones_are_not_compared() -> None:
    seen = Container("a" * 64, "n", "running", "i", "r", argv=("x",), mounts=(("/h", "/c", True),))
    kept = write({**shape_of(seen), "bytes:/m": "5"})
    assert changed(kept, replace(seen, status="exited", started_at="2026", exit_code=0, name="m")) == ()
    assert changed(kept, replace(seen, mounts=(("/h", "/c", False),))) == ("mounts",)
    assert changed("argv 0000000000000000", seen) == ("argv",)
    assert changed("", seen) == ()


def test_weights_that_no_gpu_holds_must_fit_the_host() -> None:
    calm = worlds.calm()
    cpu = LIMB.model_copy(update={"gpus": LIMB.gpus.model_copy(update={"select": ()})})
    serves = {**calm.record.serves, BACK: replace(calm.record.serves[BACK], recipe_digest=cpu.digest())}
    assert cpu.model.bytes
    for total, state in ((cpu.model.bytes, "ok"), (cpu.model.bytes - MIB, "missing"), (None, "ok")):
        host = Host(total, total, None, None, None, None, None, None, None, None)
        world = derive(replace(
            calm, host=Reading.known(host, calm.now_s, "host"), record=replace(calm.record, serves=serves),
            stored={cpu.digest(): cpu},
        ))  # fmt: skip
        assert {c.name: c.state for c in world.rollbacks["primary"].checks}["gpus"] == state
