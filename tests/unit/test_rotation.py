"""Credentials in operations, on a box in memory: proven first, waited for mid-way, rotated."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.credentials import credential_text, credentials_of, fingerprint
from anvil_tui.core.plan import Plan
from anvil_tui.core.secrets import Secret
from anvil_tui.core.workspace import Workspace
from anvil_tui.service.credentials import inspect
from anvil_tui.service.operation import prepare
from anvil_tui.service.rotate import copies_read
from tests.support.membox import World, recipe

OLD = "key-of-the-clients"
STALE = "a-key-of-last-year"


# proof before mutation


@pytest.fixture
def box(tmp_path: Path) -> World:
    """`a` serves; `b` may be promoted over it."""
    world = World(tmp_path, recipe("a", exclusive=True), recipe("b", exclusive=True))
    assert world.do("promote", recipe="a") == "done"
    return world


def journal(world: World) -> list[Any]:
    return list(world.box.operations.journal(world.last).records())


def run(world: World, made: Plan) -> str:
    world.last = prepare(world.box, made)
    return world.operate("start")


def notes(world: World) -> str:
    return "\n".join(str(r.data.get("text", "")) for r in journal(world))


@pytest.mark.parametrize(
    ("verb", "target"), [("promote", {"recipe": "b"}), ("rollback", {}), ("readmit", {"role": "primary"})]
)
def test_what_is_verified_through_the_gateway_needs_a_key_that_it_takes(
    box: World, verb: str, target: dict[str, str]
) -> None:
    """O-73: the refusal names the winner and the place to mend, before anything is touched."""
    if verb == "rollback":
        assert box.do("promote", recipe="b") == "done"
    if verb == "readmit":
        assert box.do("quiesce", role="primary") == "done"
    before = (dict(box.gate.live), list(box.docker.started), box.box.store.read().generation)
    box.accepted.clear()
    (why,) = [r for r in box.plan(verb, **target).refusals if "credential" in r]
    assert "refuses credential gateway.client_keys[0] (HTTP 401: unknown token)" in why
    assert "found in environment variable KEY" in why and "nothing was touched" in why and OLD not in why
    box.key = ""
    (why,) = [r for r in box.plan(verb, **target).refusals if "credential" in r]
    assert "looked in: environment variable KEY: is not set" in why
    assert (dict(box.gate.live), list(box.docker.started), box.box.store.read().generation) == before


def test_the_key_is_proven_again_under_the_lease(box: World) -> None:
    made = box.plan("promote", recipe="b")
    started = list(box.docker.started)
    box.accepted.clear()
    assert run(box, made) == "undone"
    end = journal(box)[-1].data
    assert end["refused"] and "refuses credential" in end["why"] and box.docker.started == started


def test_an_unload_is_not_refused_but_warned_of(box: World) -> None:
    """Taking something off the box in a hurry needs no key; what comes next does."""
    box.accepted.clear()
    serve = next(iter(box.box.store.read().serves))
    made = box.plan("unload", container_id=serve)
    assert not made.refusals and any("could not be verified" in w for w in made.warnings)


def test_begin_holds_fingerprints_and_no_key(box: World) -> None:
    begun = journal(box)[0]
    assert begun.kind == "begin"
    assert begun.data["credentials"] == [["gateway.client_keys[0]", fingerprint(OLD)]]
    folder = box.tmp / "operations" / box.last
    assert OLD not in "".join(p.read_text() for p in folder.iterdir() if p.is_file())


# a 401 mid-way


def test_a_key_that_is_refused_after_the_decision_leaves_the_serve_and_a_resume_finishes(box: World) -> None:
    box.hooks["flip:after"] = box.accepted.clear
    assert box.do("promote", recipe="b") == "halted"
    assert box.decision() == "forward" and box.serving() == "b" and len(box.docker.running()) == 1
    end = journal(box)[-1].data
    assert "refuses credential gateway.client_keys[0]" in end["why"]
    assert "refuses credential" in notes(box), "said while it waited"
    box.accepted.add(OLD)
    assert box.operate("resume") == "done"
    assert (box.serving(), box.incumbent(), box.refusals) == ("b", "b", [])


def test_a_key_that_is_mended_while_verify_waits_is_taken_up(box: World) -> None:
    """O-73: after the file changes the next request uses the new value, without a restart."""
    box.hooks["flip:after"] = box.accepted.clear
    slept = box.clock.sleep

    def sleep(seconds: float) -> None:
        slept(seconds)
        if not box.accepted and "refuses credential" in notes(box):
            box.key = "the-new-key-of-the-clients"
            box.accepted.add(box.key)

    box.clock.sleep = sleep  # type: ignore[method-assign]
    assert box.do("promote", recipe="b") == "done"
    assert f"was changed meanwhile ({fingerprint(OLD)} to {fingerprint(box.key)}) and is accepted" in notes(box)


def test_a_way_back_needs_no_key(box: World) -> None:
    box.failing.add("b")
    box.hooks["gates:intended"] = box.accepted.clear
    assert box.do("promote", recipe="b") == "undone"
    assert (box.serving(), box.incumbent()) == ("a", "a")
    (left,) = [r for r in journal(box)[-1].data["residue"] if "credential" in r]
    assert left.startswith("not verified through the gateway: the gateway refuses credential")


# rotation


def rotating(world: World, folder: Path) -> None:
    """The key in an env file; copies in JSON, TOML and another env file, the last one stale."""
    (folder / "gateway.env").write_text(f"# the gateway\nexport ROUTER_TOKEN='{OLD}'\nOTHER=1\n")
    (folder / "pi.json").write_text(json.dumps({"providers": {"anvil": {"apiKey": OLD, "n": 1}}}, indent=2) + "\n")
    (folder / "hermes.toml").write_text(f'# kept\n[model]\napi_key = "{OLD}"  # here\n')
    (folder / "claw.env").write_text(f"ROUTER_TOKEN={STALE}\n")
    raw = world.box.workspace.model_dump(mode="json", by_alias=True)
    raw["gateway"]["client_keys"] = ["file:gateway.env#ROUTER_TOKEN"]
    raw["credentials"] = [{
        "name": "clients", "ref": "file:gateway.env#ROUTER_TOKEN",
        "targets": [
            {"file": "pi.json", "key": "providers.anvil.apiKey", "format": "json"},
            {"file": "hermes.toml", "key": "model.api_key", "format": "toml"},
            {"file": "claw.env", "key": "ROUTER_TOKEN", "format": "env"},
        ],
    }]  # fmt: skip
    world.box = dataclasses.replace(world.box, workspace=Workspace.model_validate_json(json.dumps(raw)))


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, recipe("a"))
    rotating(world, tmp_path)
    yield world
    left = [p for p in tmp_path.rglob("staged.json")]
    assert not left, "no value outlives its operation"


def held(folder: Path) -> list[str]:
    """The key in each file, found without the product's readers."""
    return [
        (folder / "gateway.env").read_text().split("'")[1],
        json.loads((folder / "pi.json").read_text())["providers"]["anvil"]["apiKey"],
        (folder / "hermes.toml").read_text().split('"')[1],
        (folder / "claw.env").read_text().split("=")[1].strip(),
    ]


def test_a_rotation_writes_every_copy_and_expels_the_old_key(keyed: World) -> None:
    made = keyed.plan("rotate", target="clients")
    assert not made.refusals
    assert any("claw.env: ROUTER_TOKEN holds another value" in w for w in made.warnings)
    assert run(keyed, made) == "done"
    (new,) = set(held(keyed.tmp))
    assert new not in (OLD, STALE) and len(new) >= 40 and keyed.accepted == {new}
    assert (keyed.tmp / "gateway.env").read_text() == f"# the gateway\nexport ROUTER_TOKEN='{new}'\nOTHER=1\n"
    assert (keyed.tmp / "hermes.toml").read_text() == f'# kept\n[model]\napi_key = "{new}"  # here\n'
    done = {r.step: r.data for r in journal(keyed) if r.kind == "done"}
    assert done["mint"]["new"] == done["prove"]["accepted"] == fingerprint(new)
    assert done["expel"]["refused"] == fingerprint(OLD)
    folder = keyed.tmp / "operations" / keyed.last
    told = "".join(p.read_text() for p in folder.iterdir()) + json.dumps(made.to_json(), default=str)
    assert not [v for v in (OLD, new, STALE) if v in told]


def rotation_points(tmp: Path) -> list[str]:
    tmp.mkdir()
    world = World(tmp, recipe("a"))
    rotating(world, tmp)
    assert world.do("rotate", target="clients") == "done"
    return list(dict.fromkeys(world.points))


def test_killed_at_every_point_a_rotation_ends_whole(tmp_path: Path) -> None:
    """Old everywhere or new everywhere, and the gateway takes exactly that one; until the decision a client with
    the old key is served. Where nothing was decided both `resume` and `undo` go back."""
    # Between the end of one step and the beginning of the next nothing is written: one of the two is enough.
    found = [p for p in rotation_points(tmp_path / "first") if not p.endswith(":before")]
    assert len(found) >= 30
    for n, point in enumerate(found):
        for mode in ("resume", "undo") if n % 4 == 0 else ("resume",):
            folder = tmp_path / f"{n}-{mode}"
            folder.mkdir()
            world = World(folder, recipe("a"))
            rotating(world, folder)
            assert world.do("rotate", kill_at=point, target="clients") == "killed", point
            decided = world.decision()
            if decided and mode == "undo":
                continue
            assert decided or OLD in world.accepted, point
            got = world.operate(mode)
            values = held(folder)
            if decided:
                assert got == "done" and len(set(values)) == 1 and OLD not in values, point
            else:
                assert got == "undone" and set(values[:3]) == {OLD} and values[3] in (OLD, STALE), (point, values)
            assert world.accepted == {values[0]}, (point, world.accepted)
            assert not list(folder.rglob("staged.json")), point


def test_a_given_key_is_taken_and_one_that_is_the_old_one_is_refused(keyed: World) -> None:
    keyed.last = prepare(keyed.box, keyed.plan("rotate", target="clients"))
    keyed.box.operations.stage(keyed.last, {"new": "given-by-the-operator-1"})
    assert keyed.operate("start") == "done"
    assert set(held(keyed.tmp)) == {"given-by-the-operator-1"}
    keyed.last = prepare(keyed.box, keyed.plan("rotate", target="clients"))
    keyed.box.operations.stage(keyed.last, {"new": "given-by-the-operator-1"})
    assert keyed.operate("start") == "undone"
    assert set(held(keyed.tmp)) == {"given-by-the-operator-1"} == keyed.accepted


def test_a_copy_that_somebody_changes_meanwhile_turns_the_rotation_back(keyed: World) -> None:
    keyed.hooks["write-1:after"] = lambda: (keyed.tmp / "hermes.toml").write_text('[model]\napi_key = "mine"\n')
    assert keyed.do("rotate", target="clients") == "undone"
    assert held(keyed.tmp) == [OLD, OLD, "mine", STALE] and keyed.accepted == {OLD}
    assert "hermes.toml: model.api_key was changed since the plan was made" in journal(keyed)[-1].data["why"]


def put_back(world: World) -> None:
    """Something of the operator's own (a configuration manager, say) writes the old key into a copy again."""
    (world.tmp / "pi.json").write_text(json.dumps({"providers": {"anvil": {"apiKey": OLD, "n": 1}}}))


def test_a_copy_that_gets_the_old_key_within_the_grace_turns_the_rotation_back(keyed: World) -> None:
    keyed.hooks["grace:intended"] = lambda: put_back(keyed)
    assert keyed.do("rotate", target="clients") == "undone"
    assert held(keyed.tmp)[:3] == [OLD] * 3 and keyed.accepted == {OLD}
    assert "does not hold the new key any more: pi.json: providers.anvil.apiKey" in journal(keyed)[-1].data["why"]


def test_after_the_decision_a_key_that_a_copy_still_holds_is_taken_on(keyed: World) -> None:
    keyed.hooks["decide:after"] = lambda: put_back(keyed)
    assert keyed.do("rotate", target="clients") == "halted"
    assert OLD in keyed.accepted and set(held(keyed.tmp)) <= keyed.accepted
    assert "pi.json: providers.anvil.apiKey holds the old key again" in journal(keyed)[-1].data["why"]
    (new,) = set(held(keyed.tmp)) - {OLD}
    (keyed.tmp / "pi.json").write_text(json.dumps({"providers": {"anvil": {"apiKey": new, "n": 1}}}))
    assert keyed.operate("resume") == "done"
    assert keyed.accepted == {new} == set(held(keyed.tmp))


def test_a_copy_that_is_gone_hinders_no_way_back(keyed: World) -> None:
    keyed.hooks["write-2:after"] = lambda: (keyed.tmp / "pi.json").unlink()
    keyed.hooks["grace:intended"] = lambda: keyed.box.operations.ask_cancel(keyed.last, "a client broke")
    assert keyed.do("rotate", target="clients", timeout_s=600) == "undone"
    assert keyed.accepted == {OLD} and (keyed.tmp / "hermes.toml").read_text().split('"')[1] == OLD
    assert any("pi.json: no such file" in left for left in journal(keyed)[-1].data["residue"])


def test_a_cancel_within_the_grace_goes_back_to_the_old_key(keyed: World) -> None:
    keyed.hooks["grace:intended"] = lambda: keyed.box.operations.ask_cancel(keyed.last, "a client broke")
    assert keyed.do("rotate", target="clients", timeout_s=600) == "undone"
    assert held(keyed.tmp)[:3] == [OLD] * 3 and keyed.accepted == {OLD}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ref": "env:KEY"}, "variable of this process's environment"),
        ({"twin": True}, "is the same key"),
        ({"gone": "pi.json"}, "pi.json: providers.anvil.apiKey cannot be written"),
        ({"refused": True}, "the gateway refuses credential clients"),
    ],
)
def test_what_cannot_be_rotated_is_refused_with_what_to_do(
    keyed: World, change: dict[str, Any], says: str
) -> None:
    raw = keyed.box.workspace.model_dump(mode="json", by_alias=True)
    if "ref" in change:
        raw["gateway"]["client_keys"], raw["credentials"][0]["ref"] = [change["ref"]], change["ref"]
    if "twin" in change:
        (keyed.tmp / "twin").write_text(OLD)
        raw["gateway"]["client_keys"] += ["file:twin"]
    if "gone" in change:
        (keyed.tmp / change["gone"]).unlink()
    if "refused" in change:
        keyed.accepted.clear()
    keyed.box = dataclasses.replace(keyed.box, workspace=Workspace.model_validate_json(json.dumps(raw)))
    assert any(says in r for r in keyed.plan("rotate", target="clients").refusals)


# the visible chain


def test_a_credential_is_shown_by_reference_winner_note_and_proof(tmp_path: Path) -> None:
    """O-73: `token: router.env`, `differs from process environment`; neither value."""
    world = World(tmp_path, recipe("a"))
    rotating(world, tmp_path)
    found = Secret(OLD, f"{tmp_path}/gateway.env: ROUTER_TOKEN", "differs from the process environment")
    world.box = dataclasses.replace(world.box, secret=lambda ref: found)
    (state,) = copies_read(world.box, inspect(world.box))
    text = credential_text(state, world.clock.utc())
    assert (
        text == f"clients: accepted 0 s ago; file:gateway.env#ROUTER_TOKEN; from {tmp_path}/gateway.env: "
        f"ROUTER_TOKEN; fingerprint {fingerprint(OLD)}; differs from the process environment"
    )
    assert [c.state for c in state.copies] == ["same", "same", "other"]
    assert OLD not in repr(state) and STALE not in repr(state)


def test_a_key_without_a_name_is_named_by_its_place(tmp_path: Path) -> None:
    assert [c.name for c in credentials_of(World(tmp_path).box.workspace)] == ["gateway.client_keys[0]"]
