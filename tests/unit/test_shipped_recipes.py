"""The shipped workspace loads, and the profiles say what their records say (figures typed in again here)."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from anvil_tui.adapters.toml_files import (
    load_recipe,
    load_recipes,
    load_suite,
    load_suites,
    load_workspace,
    write_workspace,
)
from anvil_tui.core.recipe import Recipe

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "tests" / "real" / "recipes"
XGRAMMAR = "4909e318ba1348a179824e210f90c268d6fc68e8b4e514af4782e26e6a1e5939"
PURTELL = "001a45bd71bcf908a8c07459570bdb8c5e0a205d085f29ac7f3201529fa3eb75"
ORMANDJ = "0c0637959c3931829f05154087bbefd2c50003fb9b2010200ce0ec82f4d71a53"
R7 = "0f1cdcc8891f1cc3a444121eb61d366289a1cbba285f0892dcbb24bc94961692"


def shipped(name: str) -> Recipe:
    return load_recipe(ROOT / "recipes" / f"{name}.toml")


def filled(folder: Path, name: str) -> Recipe:
    """A template of the real tests, with an image and a folder as their set-up fills them in."""
    for path in TEMPLATES.glob("*.toml"):
        image = "127.0.0.1:5000/anvil/llama@sha256:" + "0" * 64
        text = path.read_text().replace("@IMAGE@", image).replace("@MODELS@", "/srv/models")
        assert not re.search(r"@[A-Z]+@", text)
        (folder / path.name).write_text(text)
    rows = {Path(r.path).stem: r for r in load_recipes(folder)}
    recipe = rows[name].recipe
    assert recipe is not None, rows[name].error
    assert recipe.rollback in rows
    return recipe


def test_every_shipped_file_loads() -> None:
    recipes = load_recipes(ROOT / "recipes")
    suites = load_suites(ROOT / "gates")
    assert [r.error for r in recipes if r.error] == []
    assert [s.error for s in suites if s.error] == []
    known = {s.id for s in suites}
    assert {r.recipe.suite for r in recipes if r.recipe} <= known
    assert {role.promotion_suite for role in load_workspace(ROOT).roles} <= known


@pytest.mark.parametrize(
    ("name", "digest", "context", "output", "concurrency", "pool", "status", "rollback", "loadable"),
    [
        ("glm53-524k-k5-xgfix", XGRAMMAR, 524_288, 8_192, 16, 2_493_817, "historical", "glm53-1m-k5", True),
        ("glm53-524k-nospec", XGRAMMAR, 524_288, 8_192, 16, None, "control", "none:", True),
        ("glm53-1m-k5", PURTELL, 1_048_576, 8_192, 16, 2_917_371, "historical", "none:", True),
        ("glm53-1m-k3", PURTELL, 1_048_576, 8_192, 16, None, "historical", "none:", True),
        ("glm53-1m-k5-b4096", PURTELL, 1_048_576, 8_192, 16, None, "rejected", "none:", False),
        ("glm53-393k-c1", ORMANDJ, 393_216, 4_096, 1, 393_216, "historical", "glm53-524k-k5-xgfix", True),
        ("glm53-245k-c1", ORMANDJ, 245_760, 4_096, 1, 245_760, "fallback", "glm53-524k-k5-xgfix", True),
        ("glm53-499k-c4", ORMANDJ, 499_712, 4_096, 4, None, "rejected", "none:", False),
        ("glm53-499k-c1", ORMANDJ, 499_712, 4_096, 1, None, "unverified", "none:", False),
        ("glm53-exl3-r7", R7, 327_680, 65_536, 4, None, "historical", "none:", False),
        ("glm53-exl3-r9", "", 327_680, None, 4, None, "rollback", "none:", False),
        ("glm53-exl3-r10", "", 327_680, None, 4, None, "current", "glm53-exl3-r9", False),
    ],
)  # fmt: skip
def test_a_profile_says_what_its_record_says(
    name: str, digest: str, context: int, output: int | None, concurrency: int, pool: int | None, status: str,
    rollback: str, loadable: bool,
) -> None:  # fmt: skip
    recipe = shipped(name)
    envelope = recipe.envelope
    assert recipe.image.ref.rpartition("@sha256:")[2] == digest
    assert (envelope.context_tokens, envelope.max_output_tokens, envelope.concurrency) == (
        context,
        output,
        concurrency,
    )
    assert recipe.kv.pool_tokens == pool
    assert recipe.decision is not None
    assert recipe.decision.status == status
    assert recipe.rollback.startswith(rollback)
    assert recipe.loadable is loadable
    assert recipe.exclusive
    assert (recipe.gpus.select, recipe.gpus.tensor_parallel) == (("compute-a", "compute-b"), 2)


def test_draft_licence_budgets_and_waiver_are_where_the_records_have_them() -> None:
    recipes = {r.recipe.id: r.recipe for r in load_recipes(ROOT / "recipes") if r.recipe}
    with_draft = {i for i, r in recipes.items() if r.speculation and r.speculation.draft}
    assert with_draft == {i for i, r in recipes.items() if r.licence.boundary == "noncommercial"}
    assert with_draft == {"glm53-524k-k5-xgfix", "glm53-1m-k5", "glm53-1m-k3", "glm53-1m-k5-b4096"}
    one_m = recipes["glm53-1m-k5"].budgets
    assert (one_m.visible_tokens, one_m.reasoning_tokens) == (512, 4096)
    waived = [
        (i, str(r.reserve.waived_on), r.reserve.mib_per_gpu) for i, r in recipes.items() if r.reserve.waived_on
    ]
    assert waived == [("glm53-393k-c1", "2026-09-02", 3072)]
    windows = {
        i: round(r.kv.pool_tokens / r.envelope.context_tokens, 2) for i, r in recipes.items() if r.kv.pool_tokens
    }
    assert windows == {
        "glm53-524k-k5-xgfix": 4.76, "glm53-1m-k5": 2.78, "glm53-393k-c1": 1.0, "glm53-245k-c1": 1.0,
    }  # fmt: skip
    assert not [p for r in recipes.values() for p in r.patches if p.sha256], (
        "no record prints a hash of these patches"
    )


def test_the_matched_arms_differ_in_identity_and_speculation_alone() -> None:
    k5, control = shipped("glm53-524k-k5-xgfix"), shipped("glm53-524k-nospec")
    assert k5.control == control.id
    argv, plain = list(k5.launch.argv), list(control.launch.argv)
    at = argv.index("--speculative-config")
    assert argv[:at] + argv[at + 2 :] == plain
    for part in ("image", "model", "envelope", "patches"):
        assert getattr(k5, part) == getattr(control, part), part
    assert k5.launch.env == control.launch.env


@pytest.mark.parametrize("name", [p.stem for p in sorted((ROOT / "recipes").glob("*.toml"))])
def test_arguments_are_complete_and_listen_on_loopback(name: str) -> None:
    recipe = shipped(name)
    if not recipe.loadable:
        assert recipe.not_loadable_because
        return
    argv = recipe.filled_argv(8001)
    pairs = dict(pairwise(argv))
    assert pairs["--host"] == "127.0.0.1"
    assert pairs["--port"] == "8001"
    assert pairs["--served-model-name"] == recipe.served_name
    assert str(recipe.envelope.context_tokens) in argv
    assert not [a for a in argv if re.search(r"\{\w+\}", a)]


@pytest.mark.parametrize("name", ["smol-4k", "smol-8k", "smol-x4k", "smol-x8k", "smol-broken", "smol-dead"])
def test_the_small_templates_load_once_filled_in(tmp_path: Path, name: str) -> None:
    recipe = filled(tmp_path, name)
    argv = recipe.filled_argv(9131)
    pairs = dict(pairwise(argv))
    assert int(pairs["-c"]) == recipe.envelope.context_tokens * int(pairs["-np"]), "llama-server divides -c by -np"
    assert pairs["-t"] == "1"
    assert recipe.exclusive is name.startswith("smol-x")
    assert recipe.gpus.select == ()


def test_the_suites_of_the_repository_are_those_that_init_writes(tmp_path: Path) -> None:
    write_workspace(tmp_path)
    ours = {p.relative_to(ROOT / "gates"): p.read_bytes() for p in (ROOT / "gates").rglob("*") if p.is_file()}
    new = {
        p.relative_to(tmp_path / "gates"): p.read_bytes() for p in (tmp_path / "gates").rglob("*") if p.is_file()
    }
    assert new == ours


def test_promotion_leaves_out_what_a_recipe_does_not_promise(tmp_path: Path) -> None:
    suite = load_suite(ROOT / "gates" / "promotion.toml")
    kept, left = suite.for_recipe(shipped("glm53-524k-k5-xgfix"))
    assert (kept, left) == (suite, ())
    small = filled(tmp_path, "smol-4k")
    kept, left = suite.for_recipe(small)
    assert [g.id for g in kept.gates] == [
        "identity",
        "smoke",
        "json",
        "needle-short",
        "log-audit",
        "container-state",
    ]
    assert "gate reserve-idle is left out: needs gpus 1 (the recipe has 0)" in left
    assert "gate tools is left out: needs tools (the recipe has text)" in left
