"""What a gateway that can do less makes of a plan, and the text that the anvil-serving gateway runs on."""

from __future__ import annotations

import dataclasses
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.box import Backend, Capabilities, Expected, Gateway
from anvil_tui.core.errors import BadFile, Refused
from anvil_tui.core.gates import Suite, SuiteFile
from anvil_tui.core.gateway_routes import (
    Routes,
    clients_text,
    environment,
    merged,
    parse_routes,
    quiesced,
    render,
    written,
)
from anvil_tui.core.workspace import GatewaySettings, Role
from anvil_tui.ports import GatewayReader
from tests.support.membox import World, recipe

POOR = Capabilities(atomic=False, holds=False, severs=False)
EXPECTS = {"primary-a": Expected("a", 2048), "primary-b": Expected("older", 2048)}


class Poor:
    """The gateway of a box in memory, as one that holds nothing and restarts to move an alias."""

    def __init__(self, inner: GatewayReader, can: Capabilities = POOR, aliases: str = "primary-a") -> None:
        self._inner, self._can, self._aliases = inner, can, aliases
        self.expects = EXPECTS

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def snapshot(self) -> Gateway:
        seen = self._inner.snapshot()
        backends = tuple(Backend(b.name, b.address, 0, expects=self.expects[b.name]) for b in seen.backends)
        aliases = dict.fromkeys(seen.aliases, self._aliases)
        at = dict.fromkeys(seen.aliases, "primary-a")
        return dataclasses.replace(seen, backends=backends, aliases=aliases, at=at, can=self._can)


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., World]:
    def make(exclusive: bool = False, can: Capabilities = POOR, aliases: str = "primary-a", **more: Any) -> World:
        made = World(tmp_path, recipe("a", exclusive=exclusive), recipe("b", exclusive=exclusive), **more)
        assert made.do("promote", recipe="a") == "done"
        made.box = dataclasses.replace(made.box, gateway=Poor(made.gate, can, aliases))
        return made

    return make


def names(world: World, verb: str, **target: str) -> list[str]:
    return [s.name for s in world.plan(verb, **target).steps]


def test_a_full_box_is_told_what_comes_and_says_503_and_each_restart(world: Callable[..., World]) -> None:
    made = world(exclusive=True)
    plan = made.plan("promote", recipe="b")
    assert [s.name for s in plan.steps] == [
        "create", "hold", "drain", "stop-incumbent", "start", "ready",
        "route-gates", "gates", "decide", "flip", "verify", "record",
    ]  # fmt: skip
    assert plan.refusals == ()
    assert "503 from `hold` to `flip`, no request is held" in plan.interrupts
    assert "restarts at `route-gates`, `flip`" in plan.interrupts
    assert "are held" not in plan.interrupts and "transaction" not in "".join(s.title for s in plan.steps)
    (route,) = [s for s in plan.steps if s.deed == "expect"]
    assert route.args == {"slot": "primary-b", "expects": {"model": "b", "context_tokens": 2048}}
    assert all(s.deadline_s >= 1 + 60 for s in plan.steps if s.name in ("route-gates", "flip"))


def test_with_room_for_both_the_restarts_are_said_where_another_gateway_interrupts_nothing(
    world: Callable[..., World],
) -> None:
    plan = world().plan("promote", recipe="b")
    assert [s.name for s in plan.steps if s.deed in ("expect", "point")] == ["route-gates", "flip"]
    assert plan.interrupts.startswith("the gateway restarts at `route-gates`, `flip`: each time every alias (llm.")
    assert plan.outage == "the restarts of the gateway"


def test_a_candidate_in_the_incumbents_own_slot_is_told_there_and_back(tmp_path: Path) -> None:
    made = World(tmp_path, *(recipe(name, exclusive=True) for name in "abc"))
    assert [made.do("promote", recipe=name) for name in "abc"] == ["done"] * 3
    poor = Poor(made.gate)
    poor.expects = {"primary-a": Expected("c", 2048), "primary-b": Expected("b", 2048)}
    made.box = dataclasses.replace(made.box, gateway=poor)
    plan = made.plan("promote", recipe="a")
    there = [(s.name, s.args["expects"]["model"]) for s in plan.steps if s.deed == "expect"]
    back = [s.name for s in plan.undo_steps]
    assert there == [("route-gates", "a")]
    assert back.index("undo:ready") < back.index("undo:route-aliases") < back.index("undo:aliases")
    assert plan.undo_steps[back.index("undo:route-aliases")].args["expects"]["model"] == "c"
    assert "restarts at `route-gates`: " in plan.interrupts
    assert plan.on_failure.endswith("; the gateway restarts for that, too")


def test_readmit_to_the_same_slot_restarts_nothing(world: Callable[..., World]) -> None:
    held = world(aliases="hold")
    assert "route-flip" not in names(held, "readmit", role="primary")
    assert held.plan("readmit", role="primary").interrupts == "nothing: requests are answered again"


def test_quiesce_says_503(world: Callable[..., World]) -> None:
    plan = world().plan("quiesce", role="primary")
    assert (plan.interrupts, plan.outage) == (
        "llm.primary, llm.secondary: 503 from `hold` to `readmit`, no request is held",
        "until readmit: 503",
    )


def test_a_drain_that_should_cut_is_refused_where_nothing_can_be_cut(world: Callable[..., World]) -> None:
    made = world(on_drain_timeout="sever")
    assert any("cannot cut requests" in why for why in made.plan("drain", role="primary").refusals)
    assert not made.plan("quiesce", role="primary").refusals


def test_what_policies_demand_of_the_gateway_is_refused_before_anything(world: Callable[..., World]) -> None:
    poor = world(gateway_must=("holds", "counts"))
    assert poor.plan("promote", recipe="b").refusals == (
        "the gateway cannot hold requests while a role is quiesced, and policies.gateway_must has holds",
    )
    assert poor.plan("load", recipe="b", role="primary").refusals == ()


def test_a_gate_about_an_engines_words_is_refused_where_they_do_not_arrive(world: Callable[..., World]) -> None:
    gate = {"id": "too-long", "kind": "overlong", "routed": True}
    suite = Suite.model_validate({"schema": "anvil.suite/1", "id": "small", "gates": (gate,)})
    for can, refused in ((Capabilities(errors=False), True), (Capabilities(), False)):
        made = world(can=can)
        made.box = dataclasses.replace(made.box, suites=lambda: (SuiteFile("small", suite),))
        refusals = made.plan("promote", recipe="b").refusals
        assert (
            any("gate too-long cannot be run: the gateway does not pass on" in why for why in refusals) is refused
        )
        shutil.rmtree(made.tmp)


def test_a_gateway_that_can_do_all_gets_the_plan_as_it_was(world: Callable[..., World]) -> None:
    rich = world(can=Capabilities(), gateway_must=("holds", "severs", "atomic"))
    assert "route-gates" not in names(rich, "promote", recipe="b")


ROLES = (
    Role.model_validate({
        "name": "p", "aliases": ("llm.x", "y"),
        "slots": ({"name": "a", "port": 9001}, {"name": "b", "port": 9002}),
    }),
)  # fmt: skip
ROUTES = Routes({"llm.x": "hold", "y": "b"}, {"llm.x": "a", "y": "b"}, {"b": Expected('odd "name"\\', 5)}, 7)


def test_routes_are_read_back_and_a_cut_file_is_never_a_short_one() -> None:
    text = ROUTES.text()
    assert parse_routes(text) == ROUTES
    for end in range(len(text) - 2):
        with pytest.raises(ValueError):
            parse_routes(text[:end])


def test_the_same_routes_give_the_same_bytes_and_odd_names_stay_what_they_are() -> None:
    secrets = environment("admin-key", ("k" * 16,))
    text, digest = render("/d", ROUTES, ROLES, secrets)
    assert (text, digest) == render("/d", ROUTES, ROLES, secrets)
    assert written(text, "/d", ROUTES, ROLES) == digest
    assert written(text.replace("9002", "9003"), "/d", ROUTES, ROLES) == ""
    made = tomllib.loads(text)
    models = {t["id"]: t["model"] for t in made["router"]["tiers"]}
    assert models == {
        "llm.x@a": "nothing-is-expected-here", "y@b": 'odd "name"\\',
        "@a": "nothing-is-expected-here", "@b": 'odd "name"\\',
    }  # fmt: skip
    assert quiesced(ROUTES, ROLES) == {"llm.x@a": "hold"}
    assert "k" * 16 not in text + clients_text(1)
    other = environment("admin-key", ("K" * 16,))
    assert render("/d", ROUTES, ROLES, other)[1] != digest


def test_new_aliases_start_at_none_and_one_that_lost_its_slot_is_refused() -> None:
    assert merged(Routes(), ROLES).targets == {"llm.x": "none", "y": "none"}
    assert merged(ROUTES, ROLES) == ROUTES
    with pytest.raises(Refused, match="cannot point at gone"):
        merged(Routes({"y": "gone"}, {"y": "gone"}), ROLES)


@pytest.mark.parametrize(
    ("keys", "why"), [(("short",), "16 bytes or more"), (("admin-key-12345678",), "is the admin key, too")]
)
def test_client_keys_that_it_would_not_take_are_named(keys: tuple[str, ...], why: str) -> None:
    with pytest.raises(BadFile, match=rf"gateway\.client_keys\[0\]: .*{why}"):
        environment("admin-key-12345678", keys)


def test_aliases_that_are_one_name_to_it_are_refused() -> None:
    role = ROLES[0].model_copy(update={"aliases": ("Y", "y")})
    with pytest.raises(BadFile, match="Y and y are one name to anvil-serving"):
        render("/d", merged(Routes(), (role,)), (role,), {})


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"kind": "anvil-serving"}, "admin_key is missing"),
        ({"kind": "anvil-serving", "admin_key": "env:A", "hold_max_s": 5}, "hold_max_s says nothing"),
        ({"admin_key": "env:A"}, "admin_key is for kind"),
        ({"kind": "nginx"}, "haproxy"),
    ],
)
def test_settings_of_another_kind_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        GatewaySettings.model_validate({"client_keys": ("env:K",), **settings})
