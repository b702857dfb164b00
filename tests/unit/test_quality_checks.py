"""Checks of the quality and command gates: right answers in many forms, and wrong ones that look right."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from anvil_tui.core.answers import final_value, json_value_is, one_block, rows_are, value_is
from anvil_tui.core.bounds import proven
from anvil_tui.core.chat import ToolCall
from anvil_tui.core.chat_errors import http_error
from anvil_tui.core.chat_stream import StreamAssembler
from anvil_tui.core.command_rules import filled
from anvil_tui.core.expect import judge_result, last_json, told, value_at
from anvil_tui.core.gates import Gate
from anvil_tui.core.patch import apply_diff
from anvil_tui.core.protocol import schema_json
from anvil_tui.core.sse import SseEvent
from anvil_tui.core.verdicts import exact_calls, strict_json

RIGHT = [
    ("55", "55"), (" 55.\n", "55"), ("**55**", "55"), ("`55`", "55"), ("55.0", "55"), ("Answer: 55", "55"),
    ("answer: 55.", "55"), ("**Answer:** 55", "55"), ("**Answer: 55**", "55"), ("Final answer: 55", "55"),
    ("39 * 18 = 702\n702 - 35 = 667\n\nAnswer: 55", "55"), ("Answer:\n55", "55"), ("Answer: $\\boxed{55}$", "55"),
    ("I get 55.\n> Answer: 55\n", "55"), ("Answer: 55\nAnswer: 55", "55"), ("Answer: 1,234,567", "1234567"),
    ("Answer: -7", "-7"), ("wednesday", "Wednesday"), ("Answer: *Wednesday*.", "Wednesday"), ("15:24", "15:24"),
    ("fig, plum", "fig, plum"), ("Answer: Fig,plum", "fig, plum"), ("Answer: [fig, plum]", "fig, plum"),
    ("Answer: fig, lemon, and plum", "fig, lemon, plum"), ('"ab"', "ab"), ("AB-1, CD-2", "AB-1, CD-2"),
]  # fmt: skip
WRONG = [
    ("", "55"), ("56", "55"), ("Answer: 155", "55"), ("Answer: 55 or 56", "55"), ("Answer: not 55", "55"),
    ("Answer: 55\nAnswer: 56", "55"), ("Answer: 55\nNo, wait: it is 56.", "55"), ("The result\nis 55", "55"),
    ("Answer: 5.5", "55"), ("Answer: 55%", "55"), ("Answer: 5 5", "55"), ("Answer: ٥٥", "55"),
    ("Answer: VALUE", "55"),
    ("Answer: plum, fig", "fig, plum"), ("Answer: fig", "fig, plum"), ("Answer: fig, plum, pear", "fig, plum"),
    ("15:42", "15:24"), ("3:24", "15:24"), ("Answer: Wednesday?", "Wednesday"), ("Answer: 1,2345", "12345"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "want"), RIGHT)
def test_a_right_value_passes_in_the_forms_that_models_use(content: str, want: str) -> None:
    assert value_is(content, want) is None


@pytest.mark.parametrize(("content", "want"), WRONG)
def test_a_wrong_value_does_not_pass(content: str, want: str) -> None:
    assert value_is(content, want)


def test_codes_are_compared_with_their_capitals() -> None:
    assert value_is("ab-1", "AB-1", case=True) and value_is("ab-1", "AB-1") is None


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("```sql\nSELECT 1\n```", "SELECT 1"),
        ("Here it is:\n\n```\nSELECT 1\n```\nIt selects one.", "SELECT 1"),
        ("SELECT 1", "SELECT 1"),
        ("```\n a\n\n b\n```\n", " a\n\n b"),
        ("```a```", None),
        ("```\na\n```\nor\n```\nb\n```", None),
        ("```\na", None),
    ],
)
def test_one_block_of_code(content: str, code: str | None) -> None:
    assert one_block(content)[0] == code


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "b": [true, null]}', ""), ('{"b": [true, null], "a": 1.0}', ""), ('{"a": 1}', "lacks key b"),
        ('{"a": 1, "b": [true, null], "c": 0}', "unasked key"), ('{"a": true, "b": [true, null]}', "a is 'true'"),
        ('{"a": "1", "b": [true, null]}', "a is"), ('{"a": 1, "b": [null, true]}', "b[0] is"),
        ('{"a": 1, "b": [true]}', "1 items"), ('{"a": 1, "a": 1, "b": []}', "named twice"), ("{a: 1}", "no JSON"),
        ("[]", "the value is"),
    ],
)  # fmt: skip
def test_json_is_compared_with_its_types(text: str, words: str) -> None:
    why = json_value_is(text, {"a": 1, "b": [True, None]})
    assert (why or "") == "" if not words else words in (why or "")


def test_rows_count_order_and_values() -> None:
    want = [("Ada", 3), ("Bea", 0)]
    assert rows_are([["Ada", 3.0], ["Bea", 0]], want) is None
    assert "1 rows, not 2" in (rows_are(want[:1], want) or "")
    assert "row 0" in (rows_are(want[::-1], want) or "")
    assert "row 1" in (rows_are([("Ada", 3), ("Bea", None)], want) or "")


TEXT = "# a\nx = 1\ny = 2\n\nz = 3\nx = 1\n"


@pytest.mark.parametrize(
    ("diff", "want"),
    [
        ("--- a/f\n+++ b/f\n@@ -2,2 +2,2 @@\n x = 1\n-y = 2\n+y = 5\n", "# a\nx = 1\ny = 5\n\nz = 3\nx = 1\n"),
        ("@@ -99,9 +1 @@\n-y = 2\n", "# a\nx = 1\n\nz = 3\nx = 1\n"),
        ("@@ @@\n y = 2\n+w = 0\n\n z = 3\n", "# a\nx = 1\ny = 2\nw = 0\n\nz = 3\nx = 1\n"),
        ("@@ -1 +1 @@\n-# a\n+# b\n@@ -5 +5 @@\n-z = 3\n+z = 4\n", "# b\nx = 1\ny = 2\n\nz = 4\nx = 1\n"),
        ("@@ -2 +2 @@\n-x = 1\n+x = 9\n", None),
        ("@@ -3 +3 @@\n-y = 3\n+y = 5\n", None),
        ("@@ -3 +3 @@\n+only = new\n", None),
        ("y = 5", None),
        ("", None),
        ("@@ -5 +5 @@\n-z = 3\n+z = 4\n@@ -3 +3 @@\n-y = 2\n+y = 5\n", None),
    ],
)
def test_a_diff_applies_to_its_lines_or_not_at_all(diff: str, want: str | None) -> None:
    got, why = apply_diff(TEXT, diff)
    assert got == want and bool(why) == (want is None)


@pytest.mark.parametrize(
    ("right", "asked", "told_so"),
    [(20, 20, "20/20, ≥ 86.1 % at 95 %"), (60, 60, "60/60, ≥ 95.1 % at 95 %"), (48, 48, "48/48, ≥ 93.9 % at 95 %"),
     (1, 1, "1/1"), (0, 5, "0/5"), (3, 3, "3/3, ≥ 36.8 % at 95 %")],
)  # fmt: skip
def test_k_of_k_is_a_lower_bound(right: int, asked: int, told_so: str) -> None:
    """For k of k the bound is 0.05 ** (1 / k); the figures are those on record, and 0.05 ** (1 / 3)."""
    assert proven(right, asked) == told_so


RESULT = {
    "results": {"mmlu.pro": {"acc,none": 0.9, "n": 100}},
    "runs": [{"ok": True}, {"ok": False}],
    "nan": float("nan"),
}


@pytest.mark.parametrize(
    ("rules", "outcome", "words"),
    [
        ({"results.mmlu.pro.acc,none": {"min": 0.9}}, "ok", ""),
        ({"results.mmlu.pro.acc,none": {"min": 0.91}}, "failed", "less than 0.91"),
        ({"results.mmlu.pro.n": {"min": 50, "max": 99}}, "failed", "more than 99"),
        ({"runs.0.ok": True}, "ok", ""),
        ({"runs.1.ok": True}, "failed", "is 'false', not true"),
        ({"runs.0.ok": 1}, "failed", "not 1"),
        ({"runs.2.ok": True}, "errored", "no runs.2.ok"),
        ({"results.gsm8k": 1}, "errored", "no results.gsm8k"),
        ({"nan": {"min": 0}}, "failed", "no number"),
        ({"runs.0.ok": {"min": 0}}, "failed", "no number"),
    ],
)  # fmt: skip
def test_a_result_is_judged_by_the_rule_that_stood_before(rules: Any, outcome: str, words: str) -> None:
    judged = judge_result(RESULT, rules)
    assert judged.outcome == outcome and words in judged.note


def test_a_result_is_found_and_told() -> None:
    assert last_json('{"a": 1}\n{"a": 2}\n{broken\nbye\n') == {"a": 2}
    with pytest.raises(ValueError, match="no line"):
        last_json("1\ntrue\n")
    assert value_at(RESULT, "runs.1.ok") is False
    assert told({"a": {"b": 1}}, {"a.b": {"min": 0}}) == "a.b = 1"
    assert filled(("--url={base_url}/v1", "{out}"), {"base_url": "http://h:1"}) == ("--url=http://h:1/v1", "{out}")


COMMAND: dict[str, Any] = {"id": "g", "kind": "command", "argv": ("true",)}
LADDER: dict[str, Any] = {"id": "g", "kind": "context-ladder", "prompt_tokens": (100,), "positions_pct": (10, 90)}


@pytest.mark.parametrize(
    ("gate", "says"),
    [
        ({**COMMAND, "argv": ()}, "needs argv"),
        ({**COMMAND, "argv": ("x", "{modle}")}, "argv[1] holds {modle}; known placeholders: base_url,"),
        ({**COMMAND, "argv": ("x", "--api-key", "abcdef123")}, "argv[2] holds a secret"),
        ({**COMMAND, "argv": ("x", "http://me:pass@h/")}, "argv[1] holds a secret"),
        ({**COMMAND, "env": ("A-B",)}, "'A-B' is no name"),
        ({**COMMAND, "env": ("KEY=value",)}, "no name of a variable"),
        ({**COMMAND, "fixture_sha256": {"f": "12"}}, "fixture_sha256.f"),
        ({**COMMAND, "json_expect": {"a": {"least": 1}}}, "json_expect.a: a table takes min and max, not least"),
        ({**COMMAND, "json_expect": {"a": {}}}, "not nothing"),
        ({**COMMAND, "json_expect": {"a": {"min": 2, "max": 1}}}, "min is more than max"),
        ({**COMMAND, "json_expect": {"a": {"min": "2"}}}, "min and max are numbers"),
        ({**COMMAND, "json_expect": {"": 1}}, "the path is empty"),
        ({**LADDER, "prompt_tokens": ()}, "needs prompt_tokens"),
        ({**LADDER, "pass_at_least": 9}, "more than questions at each depth = 8"),
    ],
)
def test_a_gate_that_cannot_be_meant_is_refused_by_its_key(gate: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as error:
        Gate.model_validate(gate)
    assert says in str(error.value)


def test_a_ladder_is_one_piece_of_work_whose_rule_counts_at_each_depth() -> None:
    made = Gate.model_validate({**LADDER, "repeat": 3, "pass_at_least": 20})
    assert (made.repeats, made.most) == (False, 4 * 2 * 3)
    assert json.loads(made.model_dump_json())["pass_at_least"] == 20


def test_an_answer_of_blank_lines_is_read_at_once() -> None:
    """A model that loops on line ends: reading 20,000 of them took 25 seconds, and nothing else ran."""
    got, why = final_value("Let me see." + "\n" * 20_000 + "Answer: 7")
    assert (got, why) == ("7", "")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 5000 + "]" * 5000])
def test_brackets_without_end_are_no_json_and_end_no_run(text: str) -> None:
    """A model that loops on one bracket, and a command that prints them."""
    assert "not_json" in (strict_json(text, {"a": 1}) or "")
    assert json_value_is(text, 1)
    assert (schema_json(text, {"a": 1}, {}) or "").startswith("schema_violated")
    assert "no JSON" in (exact_calls((ToolCall(0, "c", "f", text),), (("f", {}),)) or "")
    with pytest.raises(ValueError, match="no line"):
        last_json(text)
    assert http_error(500, "application/json", text.encode(), 1).message.startswith("not JSON")
    made = StreamAssembler()
    made.event(SseEvent(text, 0), 1.0)
    assert made.end("eof", 1.0).error == "malformed"
