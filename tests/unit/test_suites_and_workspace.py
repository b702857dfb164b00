"""Rules of suites and of anvil.toml that no single field can say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from anvil_tui.adapters.toml_files import load_suite
from anvil_tui.core import lane_rules
from anvil_tui.core.gate_kinds import GATE_KEYS, LANES
from anvil_tui.core.gates import Gate, Needs, Suite
from anvil_tui.core.recipe import Envelope
from anvil_tui.core.workspace import Workspace
from tests.support import membox

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("gate", "says"),
    [
        (
            {"kind": "smoke", "positions_pct": (10,)},
            "positions_pct does not apply to kind smoke (applies to: needle,",
        ),
        ({"kind": "tools", "when": "idle"}, "when does not apply to kind tools (applies to: reserve)"),
        ({"kind": "reserve", "repeat": 2}, "repeat does not apply to kind reserve"),
        ({"kind": "smoke", "repeat": 2, "pass_at_least": 3}, "more than repeat = 2"),
    ],
)
def test_a_key_that_does_not_apply_is_an_error(gate: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as error:
        Gate.model_validate({"id": "g", **gate})
    assert says in str(error.value)


def test_every_kind_of_gate_says_which_keys_apply_and_takes_them() -> None:
    values = {
        "repeat": 2, "pass_at_least": 1, "visible_tokens": 9, "reasoning_tokens": 0, "routed": True,
        "prompt_tokens_at_least": 7, "positions_pct": (1,), "when": "after-work", "parallel": 2, "thinking": "off",
        "images": 3, "streams": (1, 4), "requests": 8, "prompt_tokens": (100, 200), "completion_tokens": 64,
        "prefix": "shared", "warmup": 0, "burst": True, "failed_at_most": 1, "ttft_at_most_s": 2.5,
        "decode_at_least_tok_s": 10.0, "aggregate_at_least_tok_s": 20.0, "argv": ("true",), "env": ("HOME",),
        "json_expect": {"ok": True}, "fixture_sha256": {}, "free_at_least_mib": 1, "swap_at_most_mib": 0,
    }  # fmt: skip
    assert set(Gate.model_fields) == {*values, "id", "kind", "proves", "timeout_s", "accept", "needs"}
    for kind, keys in GATE_KEYS.items():
        made = Gate.model_validate({"id": "g", "kind": kind, "timeout_s": 5, **{k: values[k] for k in keys}})
        assert made.kind == kind


@pytest.mark.parametrize("gates", [(), ({"id": "a", "kind": "smoke"}, {"id": "a", "kind": "json"})])
def test_an_empty_suite_and_a_repeated_id_prove_nothing(gates: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(
        ValidationError, match=r"proves nothing|gates\[1\].id a is used twice \(also gates\[0\].id\)"
    ):
        Suite.model_validate({"schema": "anvil.suite/1", "id": "s", "gates": gates})


def workspace(
    *roles: dict[str, Any], bind: str = "127.0.0.1:9100", keys: tuple[str, ...] = ("env:K",)
) -> Workspace:
    return Workspace.model_validate({
        "schema": "anvil.workspace/1", "box": {"name": "b", "kind": "lab"},
        "gateway": {"bind": bind, "client_keys": keys}, "roles": roles,
    })  # fmt: skip


def role(name: str, alias: str, *ports: int) -> dict[str, Any]:
    slots = tuple({"name": f"{name}-{n}", "port": port} for n, port in enumerate(ports))
    return {"name": name, "aliases": (alias,), "slots": slots}


def test_two_roles_with_their_own_ports_are_fine() -> None:
    made = workspace(role("a", "m.a", 8001, 8002), role("b", "m.b", 8003, 8004))
    assert made.role("b") is not None
    assert made.role("c") is None


@pytest.mark.parametrize(
    ("roles", "bind", "says"),
    [
        (
            [role("a", "m", 1, 1)],
            "h:9",
            "roles[0].slots[1].port port 1 is used twice (also roles[0].slots[0].port)",
        ),
        ([role("a", "m", 1, 2), role("b", "m", 3, 4)], "h:9", "roles[1].aliases[0] alias m is used twice"),
        ([role("a", "m", 1, 9)], "h:9", "roles[0].slots[1].port port 9 is used twice (also gateway.bind)"),
        ([role("a", "m", 1)], "h:9", "slots needs two"),
        ([], "h:9", "at least one [[roles]]"),
        ([role("a", "m", 1, 2)], "h:0", "1 to 65535"),
        ([role("a", "m", 1, 2)], "h:70000", "1 to 65535"),
        ([role("a", "m", 1, 2)], "9100", "HOST:PORT"),
        ([role("a", "m\n", 1, 2)], "h:9", "1 to 120 letters"),
    ],
)
def test_what_must_be_unique_or_possible(roles: list[dict[str, Any]], bind: str, says: str) -> None:
    with pytest.raises(ValidationError) as error:
        workspace(*roles, bind=bind)
    assert says in str(error.value)


def suite(id_: str, *gates: dict[str, Any], **more: Any) -> Suite:
    return Suite.model_validate({"schema": "anvil.suite/1", "id": id_, "gates": gates, **more})


LOG = {"id": "log", "kind": "log-audit"}
SMOKE = {"id": "smoke", "kind": "smoke"}


def test_an_included_gate_is_made_once_and_what_only_looks_comes_last() -> None:
    text = suite("text", SMOKE, {"id": "json", "kind": "json"}, LOG)
    image = suite(
        "image", SMOKE, {"id": "json", "kind": "json", "repeat": 3}, LOG, needs={"modalities": ("image",)}
    )
    full = suite("full", {"id": "state", "kind": "container-state"}, include=("text", "image"))
    made = full.resolved({"text": text, "image": image})
    assert [g.id for g in made.gates] == ["smoke", "json", "image.json", "log", "state"]
    assert [g.needs.modalities for g in made.gates] == [(), (), ("image",), (), ()], (
        "the log is audited without image"
    )


def test_gates_whose_needs_a_recipe_does_not_promise_are_left_out_and_named() -> None:
    made = suite("s", SMOKE, {"id": "big", "kind": "smoke", "repeat": 2, "needs": {"context_tokens": 9000}})
    kept, left = made.for_recipe(membox.recipe("a"))
    assert [g.id for g in kept.gates] == ["smoke"]
    assert left == ("gate big is left out: needs context_tokens 9,000 (the recipe has 2,048)",)


@pytest.mark.parametrize(
    ("needs", "says"),
    [
        ({"output_tokens": 600}, "output_tokens 600 (the recipe has 512)"),
        ({"pinned_files": 1}, "pinned_files 1 (the recipe has 0)"),
        ({"thinking": ("on", "off")}, "thinking on or off (the recipe has none)"),
        ({"thinking": ("none",)}, ""),
        ({"without": ("video",)}, ""),
        ({"without": ("text",)}, "a recipe without text"),
    ],
)
def test_what_a_recipe_lacks_is_named(needs: dict[str, Any], says: str) -> None:
    promised = membox.recipe("a").model_copy(
        update={"envelope": Envelope(context_tokens=2048, max_output_tokens=512, concurrency=1)}
    )
    assert Needs(**needs).unmet(promised) == says
    assert Needs(gpus=0).joined(Needs(**needs)) == Needs(**needs) == Needs(**needs).joined(Needs(**needs))


@pytest.mark.parametrize(
    ("others", "says"),
    [
        ({}, "include: suite text is not in gates/ or cannot be used"),
        ({"text": suite("text", SMOKE, include=("x",))}, "suite text includes others itself; name those in full"),
    ],
)
def test_an_include_that_cannot_be_resolved_is_an_error(others: dict[str, Suite], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        suite("full", SMOKE, include=("text",)).resolved(others)


def test_an_answer_length_that_a_recipe_does_not_say_is_not_zero() -> None:
    silent = membox.recipe("a").model_copy(
        update={"envelope": Envelope(context_tokens=2048, max_output_tokens=None, concurrency=1)}
    )
    assert Needs(output_tokens=9).unmet(silent) == "output_tokens 9 (the recipe does not say)"
    assert Needs().unmet(silent) == ""


@pytest.mark.parametrize(("context", "most"), [(2048, 128), (4096, 1024), (8192, 2048)])
def test_of_the_full_suite_small_recipes_are_asked_what_they_promise(context: int, most: int) -> None:
    """A gate that a recipe cannot hold is left out by name; one that was kept would refuse the whole suite."""
    suite = load_suite(ROOT / "gates" / "full.toml")
    small = membox.recipe("a", budgets={"visible_tokens": 64, "reasoning_tokens": 0}).model_copy(
        update={"envelope": Envelope(context_tokens=context, max_output_tokens=most, concurrency=1)}
    )
    kept, left = suite.for_recipe(small)
    lanes = [g for g in kept.gates if g.kind in LANES]
    assert [lane_rules.why_not(g, small) for g in lanes] == [""] * len(lanes)
    assert all(g.prompt_tokens_at_least + 64 <= context for g in kept.gates)
    assert any("gate endurance is left out" in said for said in left) is (context < 4352)
