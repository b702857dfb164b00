"""The recipe's own rules: what is filled in, what is one decision, what changes the digest."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from anvil_tui.core.recipe import Recipe

IMAGE = "registry.invalid/engine@sha256:" + "a" * 64


def fields(**more: Any) -> dict[str, Any]:
    return {
        "schema": "anvil.recipe/1", "id": "a", "family": "f", "engine": "llamacpp", "served_name": "a-8k",
        "exclusive": False, "rollback": "none: first", "image": {"ref": IMAGE},
        "model": {"repo": "r", "path": "/m.gguf"}, "launch": {"argv": ("--port", "{port}")},
        "envelope": {"context_tokens": 8192, "max_output_tokens": 512, "concurrency": 2}, **more,
    }  # fmt: skip


def recipe(**more: Any) -> Recipe:
    return Recipe.model_validate(fields(**more))


def test_argv_is_filled_from_the_typed_fields() -> None:
    made = recipe(
        launch={
            "argv": (
                "-m", "{model}", "--port", "{port}", "-c", "{total_context}", "--ctx={context}",
                "-np", "{concurrency}", "--alias", "{served_name}",
                '{"image":{images}}', "{tensor_parallel}", "{max_output}", "{draft}",
            )
        },
        envelope={"context_tokens": 8192, "max_output_tokens": 512, "concurrency": 2, "images": 3},
        gpus={"select": ("x", "y"), "tensor_parallel": 2},
        speculation={"method": "m", "draft": {"repo": "d", "path": "/d"}},
    )  # fmt: skip
    assert made.filled_argv(8001) == (
        "-m", "/m.gguf", "--port", "8001", "-c", "16384", "--ctx=8192", "-np", "2",
        "--alias", "a-8k", '{"image":3}', "2", "512", "/d",
    )  # fmt: skip


def test_a_served_name_that_looks_like_a_placeholder_is_not_filled_again() -> None:
    made = recipe(served_name="{port}", launch={"argv": ("{served_name}", "{port}")})
    assert made.filled_argv(1) == ("{port}", "1")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"launch": {"argv": ("{port}", "{prt}")}}, "nearest {port}"),
        ({"launch": {"argv": ("--port", "8001")}}, "must hold {port}"),
        ({"launch": {}}, "launch.argv is required"),
        ({"served_name": ""}, "served_name is required"),
        ({"image": {}}, "image.ref is required"),
        ({"image": {"ref": "engine:latest"}}, "pinned by digest"),
        ({"image": {"ref": "engine@sha256:" + "A" * 64}}, "pinned by digest"),
        ({"image": {"ref": "engine@sha256:" + "a" * 63}}, "pinned by digest"),
        ({"loadable": False}, "not_loadable_because is required"),
        ({"rollback": "a"}, "rollback names this recipe itself"),
        ({"control": "a"}, "control names this recipe itself"),
        ({"rollback": "none"}, "none: REASON"),
        ({"rollback": ""}, "none: REASON"),
        ({"gpus": {"select": ("x", "y", "z"), "tensor_parallel": 2}}, "3 GPUs, not a multiple"),
        ({"gpus": {"tensor_parallel": 2}}, "0 GPUs, not a multiple"),
        ({"gpus": {"select": ("x", "x")}}, "names a GPU twice"),
        ({"launch": {"argv": ("{port}",), "env": {"HF_TOKEN": "x"}}}, "looks like a secret"),
        ({"launch": {"argv": ("{port}",), "env": {"A B": "x"}}}, "name of a variable"),
        ({"launch": {"argv": ("{port}",), "api_key": "env:ENGINE_KEY"}}, "launch.api_key\n  Extra inputs"),
        ({"envelope": {"context_tokens": 127, "max_output_tokens": 1, "concurrency": 1}}, "128"),
        ({"envelope": {"context_tokens": 1024, "max_output_tokens": 2048, "concurrency": 1}}, "larger than"),
        ({"envelope": {"context_tokens": 1024, "max_output_tokens": 8, "concurrency": 0}}, "greater than"),
        ({"reserve": {"waived_on": date(2026, 9, 2)}}, "a date, a reason and a scope"),
        ({"reserve": {"waiver": "w", "waiver_scope": "s"}}, "a date, a reason and a scope"),
    ],
)
def test_what_cannot_be_a_recipe(more: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as error:
        recipe(**more)
    assert says in str(error.value)


def test_a_record_may_lack_what_a_load_needs_and_says_why() -> None:
    made = recipe(
        loadable=False, not_loadable_because="no digest on record", image={}, launch={}, served_name="",
        envelope={"context_tokens": 1024, "concurrency": 1},
    )  # fmt: skip
    assert made.envelope.max_output_tokens is None
    assert made.image.ref == ""


def test_the_reserve_that_counts_is_the_larger_of_the_recipe_and_the_box() -> None:
    own = recipe(reserve={"mib_per_gpu": 3072}).reserve
    assert (own.needed_mib(0), own.needed_mib(1024), own.needed_mib(4096)) == (3072, 3072, 4096)
    assert recipe().reserve.needed_mib(512) == 512


def test_the_newest_decision_is_the_last_of_its_day() -> None:
    def decided(status: str, day: int) -> dict[str, Any]:
        return {"status": status, "date": date(2026, 9, day), "reason": "r"}

    made = recipe(decisions=(decided("policy-infeasible", 2), decided("current", 2), decided("watch-only", 1)))
    assert made.decision is not None
    assert made.decision.status == "current"
    assert recipe().decision is None


def test_the_digest_follows_what_makes_the_serve_and_nothing_else() -> None:
    base = recipe().digest()
    assert recipe(title="another", figures=({"name": "n", "value": "v"},)).digest() == base
    assert recipe(kv={"type": "auto"}).digest() == base, "a default written out is the same serve"
    assert recipe(budgets={"visible_tokens": 600}).digest() != base
    assert recipe(launch={"argv": ("--port", "{port}", "-v")}).digest() != base
    again = Recipe.model_validate_json(recipe().model_dump_json(by_alias=True))
    assert again.digest() == base
