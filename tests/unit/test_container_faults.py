"""Containers that a daemon cannot start, stop or remove, and images behind tags: what plans and operations make of
them (field cases of the kinds container-state, image-identity, start-failure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.box import Container, GpuGrant
from anvil_tui.core.errors import EffectFailed
from anvil_tui.core.journal import OperationView, fold
from anvil_tui.core.plan import Plan
from anvil_tui.core.world import Phase
from anvil_tui.ui.presenters import details
from tests.support.membox import IMAGE, World, recipe
from tests.unit.test_presenters_screens import VIEW, words
from tests.unit.test_serves import F, box, one, stopped, world


@pytest.fixture
def spare(tmp_path: Path) -> World:
    """`a` serves, `b` could stand beside it."""
    made = World(tmp_path, recipe("a"), recipe("b"))
    assert made.do("promote", recipe="a") == "done"
    return made


def serve(made: World, name: str) -> str:
    return next(s.container_id for s in made.box.store.read().serves.values() if s.recipe_id == name)


def change(made: World, container_id: str, **fields: Any) -> Container:
    made.docker.all[container_id] = replace(made.docker.all[container_id], **fields)
    return made.docker.all[container_id]


def end(made: World) -> OperationView:
    view = fold(made.box.operations.journal(made.last).records())
    assert view is not None
    return view


def names(plan: Plan) -> list[str]:
    return [s.name for s in plan.steps]


# removing and dead


@pytest.mark.parametrize("status", ["removing", "dead"])
def test_what_is_being_removed_is_not_started_again(spare: World, status: str) -> None:
    """O-16: its kept container would be started; another one is made instead, under a name of its own."""
    assert spare.do("load", recipe="b") == "done"
    stuck = change(spare, serve(spare, "b"), status=status)
    plan = spare.plan("load", recipe="b")
    assert not plan.refusals and names(plan)[0] == "create"
    assert f"container {stuck.name} ({stuck.id[:12]}) is {status}" in " ".join(plan.warnings)
    spare.clock.sleep(5)
    assert spare.do("load", recipe="b") == "done"
    [fresh] = [c for c in spare.docker.running() if "b" in c.labels.values()]
    assert fresh.id != stuck.id and fresh.name != stuck.name


def test_what_is_being_removed_is_neither_stopped_nor_removed_twice(spare: World) -> None:
    """O-16: the reason stands in the plan; of a dead one the removal is tried again, and is called that."""
    assert spare.do("load", recipe="b") == "done"
    stuck = change(spare, serve(spare, "b"), status="removing")
    plan = spare.plan("unload", container_id=stuck.id)
    assert plan.refusals == (
        f"container {stuck.name} ({stuck.id[:12]}) is removing: the daemon has not finished; "
        "there is nothing to stop",
    )
    change(spare, stuck.id, status="dead")
    again = spare.plan("unload", container_id=stuck.id)
    assert not again.refusals and names(again) == ["decide", "remove", "record"] and "stop" not in names(again)


def test_a_dead_incumbent_is_no_way_back(spare: World) -> None:
    """O-16 for the ladder: refused before anything starts."""
    change(spare, serve(spare, "a"), status="dead", exit_code=137)
    assert any("is dead" in why for why in spare.plan("promote", recipe="b").refusals)


# a stop that the daemon could not do


def test_after_a_stop_that_failed_nothing_later_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O-18, NVIDIA/NemoClaw#7219: the message is kept as it is; the serve runs on and gets its aliases back."""
    made = World(tmp_path, recipe("a", exclusive=True), recipe("b", exclusive=True))
    assert made.do("promote", recipe="a") == "done"
    said = "cannot stop container: f6: tried to kill container, but did not receive an exit event"

    def stop(container_id: str, grace_s: int) -> None:
        raise EffectFailed(f"stop {container_id}: still running: {said}")

    monkeypatch.setattr(made.docker, "stop", stop)
    before = list(made.docker.started)
    assert made.do("promote", recipe="b") == "undone"
    assert said in end(made).why and made.docker.started == before
    assert (made.serving(), made.incumbent(), len(made.docker.running())) == ("a", "a", 1)
    states: Mapping[str, str] = {s.name: s.state for s in end(made).steps}
    assert {states[n] for n in ("start", "ready", "flip", "record")} == {"pending"}


# a start that the daemon could not do

TAKEN = (
    "driver failed programming external connectivity on endpoint serve-b: Bind for 127.0.0.1:9132 failed: port is "
    "already allocated"
)


def test_a_taken_port_is_named_twice_and_only_the_made_container_goes(
    spare: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-25, moby/moby#36591: the second try says the same, not that a name is taken; who serves is untouched."""
    other = spare.docker.all["5" * 64] = Container("5" * 64, "anvil-b-old", "created", "sha256:x", IMAGE)
    start, removed = spare.docker.start, []

    def refuse(container_id: str) -> None:
        if spare.docker.all[container_id].labels.get("anvil.recipe") == "b":
            change(spare, container_id, error=TAKEN)
            raise EffectFailed(f"port_in_use: start {container_id}: {TAKEN}; another process listens there")
        start(container_id)

    def remove(container_id: str) -> None:
        removed.append(container_id)
        spare.docker.all.pop(container_id)

    monkeypatch.setattr(spare.docker, "start", refuse)
    monkeypatch.setattr(spare.docker, "remove", remove)
    aliases, before = dict(spare.gate.live), dict(spare.docker.all)
    whys = []
    for _ in range(2):
        spare.clock.sleep(5)
        assert spare.do("load", recipe="b") == "undone"
        whys.append(end(spare).why)
        assert (
            "port_in_use" in whys[-1] and "127.0.0.1:9132" in whys[-1] and "name" not in whys[-1].split(TAKEN)[0]
        )
    assert [w.split("Bind")[1] for w in whys] == [whys[0].split("Bind")[1]] * 2
    assert len(set(removed)) == 2 and not {other.id, serve(spare, "a")} & set(removed)
    assert spare.docker.all == before and spare.gate.live == aliases and spare.serving() == "a"


def test_who_has_the_port_is_said_before_the_start(spare: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """O-25: the holder, as far as it is known; on the host's network no daemon would say it."""
    spare.strangers[9132] = 4711
    real = spare.read

    def read(kind: object = None, port: int = 0) -> Any:
        seen = real(kind, port)
        return replace(seen, http="error") if port == 9132 else seen

    monkeypatch.setattr(spare, "read", read)
    assert spare.do("load", recipe="b") == "undone"
    assert "port 9132 answers already" in end(spare).why and "nginx (pid 4711) has it" in end(spare).why
    spare.pids[4711] = serve(spare, "a")
    assert spare.do("load", recipe="b") == "undone"
    assert f"nginx (pid 4711) of container {serve(spare, 'a')[:12]} has it" in end(spare).why


def test_a_container_that_never_ran_can_be_removed_by_id_and_the_incumbent_stays(spare: World) -> None:
    """O-101: offered for removal; what serves is not touched."""
    assert spare.do("load", recipe="b") == "done"
    error = 'error gathering device information while adding custom device "/dev/nvidia-uvm-tools": no such file'
    dead = change(spare, serve(spare, "b"), status="exited", exit_code=128, error=error, started_at=None)
    plan = spare.plan("unload", container_id=dead.id)
    assert [s.args.get("container") for s in plan.steps if s.deed == "remove"] == [dead.id]
    assert spare.do("unload", container_id=dead.id) == "done"
    assert dead.id not in spare.docker.all and spare.serving() == "a"
    seen = one(world(box(), stopped(exit_code=128, error=error, started_at=None)), "b" * 64)
    assert (
        seen.phase is Phase.FAILED and seen.why == f"never ran: {error}; driver device nodes missing on the host"
    )


def test_the_details_say_all_of_it() -> None:
    """O-101, O-25, O-26: never started, all of the daemon's words, who can reach its ports."""
    error = "OCI runtime create failed: " + "x" * 500 + " the last word"
    ports = ("*:8001->8000/tcp", "127.0.0.1:7001->7000/tcp", "10.0.0.5:7002->7000/tcp")
    made = world(box(), stopped(exit_code=128, error=error, started_at=None, ports=ports))
    text = " ".join(words(details.serve_panel(made, replace(VIEW, serve="b" * 64), 117, 90)).split())
    assert "started never started" in text and "the last word" in text
    assert (
        "*:8001->8000/tcp reachable from outside, 127.0.0.1:7001->7000/tcp, 10.0.0.5:7002->7000/tcp reach" in text
    )


# images


OLD, NEW = "sha256:" + "0e" * 32, "sha256:" + "1f" * 32
STABLE = "registry.local/eng:stable"
HELD = GpuGrant(("all",), "all", (), "device-request")


@pytest.mark.parametrize(
    ("ref", "now", "words"),
    [
        (STABLE, NEW, f"tag_drift: it runs {OLD[:19]}, {STABLE} names {NEW[:19]} now"),
        ("registry.local/eng", NEW, "tag_drift"),
        (STABLE, None, f"tag_drift: it runs {OLD[:19]}, {STABLE} names no image here now"),
        (STABLE, OLD, ""),
        (f"registry.local/eng@{OLD}", NEW, ""),
        (OLD, OLD, ""),
    ],
)
def test_a_tag_that_moved_since_the_start_is_marked(ref: str, now: str | None, words: str) -> None:
    """O-24, containrrr/watchtower#129: the running image is the truth."""
    foreign = box(F, image_id=OLD, image_ref=ref, gpus=HELD)
    made = world(box(), stopped(), foreign, images={IMAGE: "sha256:i", ref: now})
    told = [p for p in made.problems if "tag_drift" in p]
    assert bool(told) == bool(words) and words in one(made, F).why
    assert ("a restart keeps the same image, a re-create would change image" in one(made, F).why) == bool(words)


def test_a_tag_that_was_not_looked_up_is_not_called_moved() -> None:
    foreign = box(F, image_id=OLD, image_ref=STABLE, gpus=HELD)
    assert "tag_drift" not in one(world(box(), stopped(), foreign), F).why


def test_a_restart_has_the_same_image_and_a_re_create_may_change_it(
    spare: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-24: in the words of the plan, before anything is done."""
    assert spare.do("load", recipe="b") == "done"
    had = spare.docker.all[serve(spare, "b")].image_id
    spare.docker.stop(serve(spare, "b"), 1)
    again = next(s for s in spare.plan("load", recipe="b").steps if s.name == "start")
    assert again.title == f"start the container again: same image {had[:19]}"
    other, here = "registry.invalid/engine@sha256:" + "c" * 64, "sha256:" + "d" * 64
    spare.recipes = [recipe("a"), recipe("b", image={"ref": other})]
    monkeypatch.setattr(spare.docker, "image_id", lambda ref: here if ref == other else had)
    anew = next(s for s in spare.plan("load", recipe="b").steps if s.name == "create")
    assert f"would change image of b: {had[:19]} now, {here[:19]} then" in anew.title
