"""Every deed: open when it can run, closed with a sentence that says what stands in the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from anvil_tui.core.box import Gateway
from anvil_tui.core.plan import VERBS
from anvil_tui.core.reading import Reading
from anvil_tui.core.serves import derive
from anvil_tui.core.standing import CredentialState
from anvil_tui.core.workspace import NamedCredential
from anvil_tui.core.world import BoxRecord, Lease, World
from anvil_tui.ui import policies
from anvil_tui.ui.actions import ACTIONS, BY_VERB, REGISTRY
from anvil_tui.ui.policies import Target
from tests.support import standings, worlds

SERVING, BACK = worlds.cid(worlds.CANDIDATE), worlds.cid(worlds.INCUMBENT)
ROLE = Target(serve=SERVING, role="primary")


def why(action: str, world: World, target: Target = ROLE) -> str | None:
    return REGISTRY[action].policy(world, target)


def held() -> World:
    return derive(replace(worlds.calm(), gateway=Reading.known(worlds.gateway("hold"), worlds.NOW_S, "haproxy")))


def without(**change: object) -> World:
    return derive(replace(worlds.calm(), **change))  # type: ignore[arg-type]


def stopped(container_id: str) -> World:
    here = worlds.calm().containers
    ended = tuple(replace(c, status="exited") if c.id == container_id else c for c in here.value or ())
    return without(containers=replace(here, value=ended), gpus=worlds.freed())


def keyed(state: Literal["accepted", "refused"] = "accepted") -> World:
    """One client key, in a file and with a name."""
    calm = worlds.calm()
    gateway = calm.workspace.gateway.model_copy(update={"client_keys": ("file:key",)})
    named = (NamedCredential(name="clients", ref="file:key"),)
    workspace = calm.workspace.model_copy(update={"gateway": gateway, "credentials": named})
    return without(workspace=workspace, credentials=(CredentialState("clients", "file:key", state),))


GATEWAY_DOWN: Reading[Gateway] = Reading.error("127.0.0.1:9100: refused", worlds.NOW_S, "haproxy")
CASES: list[tuple[str, World, Target, str | None]] = [
    ("serve.qualify", worlds.calm(), ROLE, None),
    ("serve.qualify", worlds.calm(), Target(serve=BACK, role="primary"), "is stopped: gates need it ready"),
    ("serve.qualify", worlds.calm(), Target(), "choose a serve first"),
    ("serve.qualify", worlds.calm(), Target(serve="gone"), "not there any more"),
    ("serve.unload", worlds.calm(), ROLE, None),
    ("role.quiesce", worlds.calm(), ROLE, None),
    ("role.quiesce", held(), ROLE, "already quiesced"),
    ("role.quiesce", without(gateway=GATEWAY_DOWN), ROLE, "the gateway cannot be read: 127.0.0.1:9100: refused"),
    ("role.drain", worlds.calm(), ROLE, None),
    ("role.drain", worlds.empty(), ROLE, "cannot be read"),
    ("role.readmit", worlds.calm(), ROLE, "admitted already"),
    ("role.readmit", held(), ROLE, None),
    ("role.rollback", worlds.calm(), ROLE, None),
    ("role.rollback", without(images=dict.fromkeys(worlds.calm().images)), ROLE, None),
    ("role.drill", without(images=dict.fromkeys(worlds.calm().images)), ROLE, "missing image: the image"),
    ("role.rollback", standings.not_ready(), ROLE, "missing weights: /models/glm: 12 of 41 files"),
    ("role.rollback", without(images={}), ROLE, None),
    ("role.drill", worlds.calm(), ROLE, None),
    ("role.steps", worlds.calm(), ROLE, None),
    ("role.drill", without(record=BoxRecord()), ROLE, "has no rollback yet"),
    ("role.drill", stopped(SERVING), ROLE, "nothing to come home to"),
    ("credential.rotate", worlds.calm(), ROLE, "only a key in a file can be rotated"),
    ("credential.rotate", keyed(), ROLE, None),
    ("credential.rotate", keyed(), replace(ROLE, target="clients"), None),
    ("credential.rotate", keyed(), replace(ROLE, target="gone"), "no such credential, there are: clients"),
    ("credential.rotate", keyed("refused"), ROLE, "the gateway refuses credential clients"),
    ("credential.rotate", standings.wired(), ROLE, None),
    ("client.apply", standings.wired(), ROLE, None),
    ("client.apply", standings.wired(), replace(ROLE, target="hermes"), "hermes is converged"),
    ("client.apply", worlds.calm(), ROLE, "no client is known"),
    ("storage.remove", worlds.calm(), ROLE, None),
    ("recipe.load", worlds.calm(), ROLE, None),
    ("recipe.load", worlds.calm(), replace(ROLE, recipe=worlds.CANDIDATE), "is already loaded"),
    ("recipe.load", worlds.calm(), replace(ROLE, recipe=worlds.FALLBACK), "p promotes glm53-245k-c1"),
    ("recipe.load", worlds.calm(), replace(ROLE, recipe="nope"), "not there any more"),
    ("recipe.promote", worlds.calm(), ROLE, None),
    ("recipe.promote", worlds.calm(), replace(ROLE, recipe=worlds.FALLBACK), None),
    ("recipe.promote", worlds.calm(), replace(ROLE, recipe=worlds.CANDIDATE), "already serves primary"),
    ("recipe.promote", worlds.calm(), Target(serve=SERVING), "choose a serve of the role first"),
    ("operation.resume", worlds.calm(), ROLE, "no operation is paused, interrupted or halted"),
    ("operation.cancel", worlds.calm(), ROLE, "no operation is running"),
]  # fmt: skip


@pytest.mark.parametrize(("action", "world", "target", "reason"), CASES)
def test_policy(action: str, world: World, target: Target, reason: str | None) -> None:
    said = why(action, world, target)
    assert said is None if reason is None else said is not None and reason in said


@pytest.mark.parametrize("action", [a.id for a in ACTIONS if a.mutates])
def test_read_only_closes_every_deed(action: str) -> None:
    said = why(action, worlds.calm(read_only=True), replace(ROLE, recipe=worlds.FALLBACK))
    assert said == "read-only: this console was started with --read-only"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("world", "part"),
    [
        (worlds.promoting(), "is running: one operation at a time"),
        (worlds.interrupted(), "was interrupted: r resumes it, z undoes it"),
        (without(lease=Lease("", 77, "root", "")), "the lease is held by root, process 77"),
        (worlds.stale(), "the container engine cannot be read"),
        (without(containers=replace(worlds.calm().containers, at_s=worlds.NOW_S - 42)), "was last read 42 s ago"),
    ],
)
def test_nothing_starts_beside_another_or_on_old_readings(verb: str, world: World, part: str) -> None:
    said = BY_VERB[verb].policy(world, replace(ROLE, recipe=worlds.FALLBACK))
    assert said is not None and part in said


def test_interrupted_before_the_decision_goes_either_way_and_after_it_only_forward() -> None:
    world = worlds.interrupted()
    target = Target(operation=world.operations[-1].id)
    assert why("operation.resume", world, target) is None
    assert why("operation.undo", world, target) is None
    decided = replace(world, operations=(replace(world.operations[-1], decision="forward"),))
    assert why("operation.resume", decided, target) is None
    assert "r finishes it" in (why("operation.undo", decided, target) or "")


def test_running_can_be_cancelled_until_it_has_decided() -> None:
    world = worlds.promoting()
    target = Target(operation=world.operations[-1].id)
    assert why("operation.cancel", world, target) is None
    decided = replace(world, operations=(replace(world.operations[-1], decision="forward"),))
    assert "ends by itself" in (why("operation.cancel", decided, target) or "")


def test_a_foreign_serve_is_never_touched() -> None:
    world = worlds.with_containers(worlds.calm(), worlds.alien())
    target = Target(serve=worlds.alien().id)
    for action in ("serve.qualify", "serve.unload"):
        assert "is foreign" in (why(action, world, target) or "")


def test_every_verb_has_one_action_with_an_intent_of_that_verb() -> None:
    full = Target("c" * 64, "primary", "some-recipe", "op")
    made = {v: a.intent(full) for v, a in BY_VERB.items() if a.intent}
    assert set(made) == set(VERBS)
    assert all(intent.verb == verb for verb, intent in made.items())
    assert made["promote"].recipe == "some-recipe" and made["promote"].role == "primary"
    assert made["unload"].container_id == "c" * 64


def test_ids_and_keys_are_unique() -> None:
    keys = [k for a in ACTIONS for k in a.keys]
    assert len(keys) == len(set(keys))
    assert len(REGISTRY) == len(ACTIONS)
    assert all(len(a.id.split(".")) == 2 for a in ACTIONS)
    # control characters that a terminal sends for other keys, or takes for itself
    assert not {"ctrl+h", "ctrl+i", "ctrl+j", "ctrl+m", "ctrl+s", "ctrl+q"} & set(keys)
    assert [a.id for a in ACTIONS if "ctrl+z" in a.keys] == ["view.suspend"], "it is what a shell means by it"


def test_a_halted_operation_can_be_taken_up_and_blocks_the_rest_until_it_is_accepted() -> None:
    world = worlds.interrupted()
    (operation,) = world.operations[-1:]
    target = Target(operation=operation.id)
    halted = replace(world, operations=(replace(operation, outcome="halted"),))
    assert policies.resume(halted, target) is None and policies.undo(halted, target) is None
    assert "halted: r resumes it" in (policies.load(halted, Target()) or "")
    accepted = replace(world, operations=(replace(operation, outcome="halted", accepted=True),))
    assert "accepted" in (policies.resume(accepted, target) or "")
    assert "halted" not in (policies.load(accepted, Target()) or "")


def test_what_another_operator_changes_says_who_where_and_for_how_long() -> None:
    said = why("recipe.load", standings.drilling(3))
    assert said is not None and said.startswith(f"drill {standings.DRILL} is running")
    assert "(sekou@gpu-desk, process 4300, for 3 min 30 s); this console follows" in said
