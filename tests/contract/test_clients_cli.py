"""`clients` and `storage` as an operator calls them, on a simulated box whose gateway does not run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.simbox import SimProcess

CLIENT = """
[[clients]]
name = "pi"
file = "models.json"
format = "json"
role = "primary"
aliases = ["llm.primary"]
[clients.entries]
"models[id={alias}].contextWindow" = "{context_tokens}"
"""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimProcess]:
    made = SimProcess(tmp_path_factory.mktemp("clients"))
    toml = made.folder / "anvil.toml"
    toml.write_text(toml.read_text() + CLIENT)
    (made.folder / "models.json").write_text('{"token": "planted-1", "models": [\n{"id": "llm.primary"}\n]}\n')
    yield made
    made.end()


def test_what_a_client_believes_against_what_the_engine_says(run: Any) -> None:
    (found,) = json.loads(run("clients", "--json"))
    assert found["state"] == "drift"
    assert found["differences"] == ["models[id=llm.primary].contextWindow: has nothing, serves 524,288"]
    shown = run("clients", "preview", "pi")
    assert '+{"id": "llm.primary", "contextWindow": 524288}' in shown and "planted" not in shown
    assert "no client 'x' in anvil.toml (have: pi)" in run("clients", "list", "x", want=2)
    assert "needs a client" in run("clients", "preview", want=2)


def test_storage_needs_no_gateway_and_names_who_refers(run: Any) -> None:
    told = json.loads(run("storage", "--json"))
    sizes = [i["bytes"] for i in told["images"]]
    assert told["image_bytes"] == sum(sizes) and len(sizes) == 3
    held = "\n".join(h for i in told["images"] for h in i["held_by"])
    assert "the incumbent of primary, glm53-524k-k5-xgfix" in held and "rollback 1 of primary, glm53-1m-k5" in held
    assert all(i["held_by"] for i in told["images"])
    assert "needed by rollback 1 of primary" in run("storage")
    assert told["revisions"] == [] and told["why"] == []
