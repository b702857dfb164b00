"""The simulated model understands instructions in general, and counts the tokens that it makes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anvil_tui.service.gates import prompts
from anvil_tui.simbox import tokens
from anvil_tui.simbox.answer import answer, reason
from anvil_tui.simbox.profile import between, kind_of, read_profile

SEEDS = [f"seed-{n}" for n in range(40)]


def said(text: str, **more: Any) -> str:
    return answer([prompts.user(text)], **more).content


def calls(messages: Any, tools: Any, choice: Any = None) -> list[tuple[str, Any]]:
    return [(c.name, json.loads(c.arguments)) for c in answer(messages, tools, choice).calls]


@pytest.mark.parametrize("seed", SEEDS)
def test_it_solves_what_the_gates_ask(seed: str) -> None:
    case = prompts.json_case(seed)
    assert json.loads(answer(case.messages).content) == case.expected
    tool = prompts.tool_case(seed)
    assert calls(tool.messages, tool.tools) == list(tool.expected)
    result = prompts.result_case(seed)
    assert calls(result.call.messages, result.call.tools) == list(result.call.expected)
    final = answer([*result.call.messages, {"role": "assistant"}, {"role": "tool", "content": result.result}])
    assert result.code in final.content and not final.calls
    hay = prompts.Haystack(seed, 50)
    assert said(hay.prompt(300)) == hay.code


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (prompts.SMOKE, "pong"),
        ('Say exactly "green door" and stop.', "green door"),
        ("Answer with only the word yes", "yes"),
        ("What is 17 + 25?", "42"),
        ("What is 6 times 7?", "42"),
        ("The vault code is ZX-40417. The gate is open.\nWhat is the vault code?", "ZX-40417"),
        ('Give JSON with the keys "city" set to "Lisbon" and "count" set to 7.', '{"city": "Lisbon", "count": 7}'),
    ],
)
def test_plain_instructions(asked: str, wanted: str) -> None:
    assert said(asked) == wanted


def test_what_no_rule_fits_is_said_so() -> None:
    found = answer([prompts.user("Write a sonnet")])
    assert found.rule == "no rule" and "simulated engine" in found.content


def test_tools_offered_but_not_wanted_are_left_alone() -> None:
    tool = prompts.tool_case("x")
    assert calls([prompts.user("Say hello")], tool.tools) == []
    assert calls(tool.messages, tool.tools, "none") == []
    named = {"type": "function", "function": {"name": "get_weather"}}
    assert [name for name, _ in calls([prompts.user("Say hello")], tool.tools, named)] == ["get_weather"]


def test_schema_values_by_name_enum_and_kind() -> None:
    schema = {
        "type": "object",
        "required": ["room", "level", "on", "mode"],
        "properties": {"room": {"type": "string"}, "level": {"type": "integer"}, "on": {"type": "boolean"},
                       "mode": {"enum": ["eco", "boost"]}},
    }  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    got = json.loads(said('Set room to "attic", level 4, on = true, in boost mode', response_format=form))
    assert got == {"room": "attic", "level": 4, "on": True, "mode": "boost"}


def test_pieces_are_the_text_and_the_count() -> None:
    for text in ("", "a", "  two  words ", "Zürich 42917, ok?\n\n", "snake_case-ZEBRA", "日本語のテキスト"):
        cut = tokens.pieces(text)
        assert len(cut) == tokens.count(text) and "".join(cut) == (text if text.strip() else "".join(cut))
    assert tokens.count(reason(answer([prompts.user("hi")]), 300)) >= 300


def test_kind_by_flags_before_names() -> None:
    assert kind_of(["x", "--max-model-len", "1"], "repo/sglang@sha256:0") == "vllm"
    assert kind_of(["python3", "--mem-fraction-static", "0.9"], "anything") == "sglang"
    assert kind_of(["-m", "/models/a.gguf"], "local/engine") == "llamacpp"
    assert kind_of(["sleep", "9"], "busybox") == "none"


def test_profile_reads_words_and_takes_the_figures_on_record() -> None:
    words = [
        "vllm",
        "serve",
        "/m",
        "--served-model-name=a",
        "--port=9",
        "--max-model-len",
        "4096",
        "--api-key",
        "k",
    ]
    seen = read_profile("img", words, {}, 2)
    assert (seen.served, seen.port, seen.context, seen.api_keys, seen.model) == (("a",), 9, 4096, ("k",), "/m")
    name = "glm53-flash-exl3-k3-dflash2-k5-fp8-tp2-524k-vision-xgfix"
    known = read_profile("img", [*words[:3], "--served-model-name", name, "--max-model-len", "524288"], {}, 2)
    assert known.kv_tokens == 2_493_817 and known.decode_rate(3000) == 83.08
    assert between(((0.0, 10.0), (100.0, 20.0)), 500) == 20.0
