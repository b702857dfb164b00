"""The sandbox against what a model might write: it answers, refuses, or is ended; nothing of ours is reached."""

from __future__ import annotations

import sys

import pytest

from anvil_tui.adapters import sandbox_child
from anvil_tui.adapters.sandbox import ChildSandbox
from anvil_tui.core.errors import EffectFailed

SCRIPT = "CREATE TABLE t (x INTEGER, y TEXT); INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, 'c');"
ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) "


def test_a_query_gives_its_rows_in_order() -> None:
    trial = ChildSandbox().query(SCRIPT, "SELECT x, x * 1.5, y FROM t ORDER BY x DESC;\n")
    assert (trial.value, trial.wrong) == (((3, 4.5, "c"), (2, 3.0, None), (1, 1.5, "a")), "")
    assert ChildSandbox().query(SCRIPT, "SELECT x FROM t WHERE x > 9").value == ()


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DELETE FROM t", "not authorized"),
        ("DROP TABLE t", "not authorized"),
        ("ATTACH '/tmp/anvil-sandbox-escape' AS o", "not authorized"),
        ("PRAGMA writable_schema = 1", "not authorized"),
        ("VACUUM INTO 'anvil-sandbox-escape'", "refused"),
        ("SELECT load_extension('x')", "not authorized"),
        ("SELECT readfile('/etc/passwd')", "no such function"),
        ("SELECT 1; DELETE FROM t", "one statement"),
        ("SELEC x", "syntax error"),
        ("", "selects nothing"),
        ("-- only a comment", "selects nothing"),
        ("SELECT z FROM t", "no such column"),
        ("SELECT zeroblob(500000000)", "too big"),
        ("SELECT x'00'", "binary"),
        ("SELECT 'a\x00b'", "refused"),
        (ENDLESS + "SELECT max(n) FROM c", "more than 5,000,000 steps"),
        (ENDLESS + "SELECT n FROM c", "more than 1,000 rows"),
        (ENDLESS + "SELECT hex(zeroblob(40000)) || n FROM c LIMIT 1000", "more than 1,000,000 bytes"),
    ],
)
def test_a_query_that_is_no_select_or_has_no_end_is_wrong(sql: str, words: str) -> None:
    trial = ChildSandbox().query(SCRIPT, sql)
    assert trial.value == () and words in trial.wrong


def test_a_pattern_is_tried_on_every_text() -> None:
    trial = ChildSandbox().matches(r"[A-Z]{2}-\d+(?:\.x)?", ("AB-1", "ab-1", "AB-1.x", "AB-1\n", ""))
    assert (trial.value, trial.wrong) == ((True, False, True, False, False), "")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "no regular expression"),
        ("(" * 5000 + ")" * 5000, "no regular expression"),
        ("(a+)+$", "more than 2 s"),
    ],
)
def test_a_pattern_that_is_none_or_has_no_end_is_wrong(pattern: str, words: str) -> None:
    trial = ChildSandbox().matches(pattern, ("a" * 60 + "b",))
    assert trial.value == () and words in trial.wrong


def test_a_sandbox_that_cannot_work_is_our_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_child, "__file__", "/no/such/child.py")
    with pytest.raises(EffectFailed, match="the sandbox broke"):
        ChildSandbox().matches("a", ("a",))
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(EffectFailed, match="cannot be started"):
        ChildSandbox().matches("a", ("a",))
