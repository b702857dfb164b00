"""Values set in somebody else's file: what changes, what stays, what is refused. O-81, O-83, O-87."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from anvil_tui.core.client_files import Format, Value, patch, preview
from anvil_tui.core.config_path import parse_path
from anvil_tui.core.errors import BadFile

PI = """\
{
    "providers": {
        "cloud": { "apiKey": "KEPT", "odd":   [1,2 ,3] },
        "anvil": {
            "baseUrl": "http://127.0.0.1:9100/v1",
            "apiKey": "sk-local-0123456789abcdef",
            "models": [
                { "id": "llm.secondary", "contextWindow": 8192 },
                {
                    "id": "llm.primary",
                    "contextWindow": 524288,
                    "input": ["text"]
                }
            ]
        }
    }
}
"""
CONTEXT = "providers.anvil.models[id=llm.primary].contextWindow"


def wanted(**entries: Value) -> list[Any]:
    return [(parse_path(key), value) for key, value in entries.items()]


def of(entries: dict[str, Value]) -> list[Any]:
    return wanted(**entries)


def changed_lines(before: bytes, after: bytes) -> list[tuple[bytes, bytes]]:
    old, new = before.split(b"\n"), after.split(b"\n")
    assert len(old) == len(new)
    return [(a, b) for a, b in zip(old, new, strict=True) if a != b]


def test_one_number_of_a_json_file_changes_and_no_other_byte() -> None:
    done = patch("f", PI.encode(), "json", of({CONTEXT: 393216}))
    assert [str(d) for d in done.differences] == [f"{CONTEXT}: has 524,288, serves 393,216"]
    assert changed_lines(PI.encode(), done.data) == [
        (b'                    "contextWindow": 524288,', b'                    "contextWindow": 393216,')
    ]
    again = patch("f", done.data, "json", of({CONTEXT: 393216}))
    assert again.data == done.data and again.differences == ()


def test_a_missing_key_takes_the_shape_of_its_neighbours() -> None:
    many = patch("f", PI.encode(), "json", of({CONTEXT.replace("contextWindow", "maxTokens"): 4096}))
    text = many.data.decode()
    assert '"input": ["text"],\n                    "maxTokens": 4096\n                }' in text
    flat = patch("f", PI.encode(), "json", of({"providers.anvil.models[id=llm.secondary].maxTokens": 4096}))
    assert '{ "id": "llm.secondary", "contextWindow": 8192, "maxTokens": 4096 }' in flat.data.decode()
    assert [str(d) for d in many.differences] == [
        "providers.anvil.models[id=llm.primary].maxTokens: has nothing, serves 4,096"
    ]


def test_a_missing_alias_becomes_an_item_with_its_name() -> None:
    entries: dict[str, Value] = {
        "providers.anvil.models[id=llm.third].contextWindow": 2048,
        "providers.anvil.models[id=llm.third].maxTokens": 256,
    }
    data = json.loads(patch("f", PI.encode(), "json", of(entries)).data)
    assert data["providers"]["anvil"]["models"][2] == {
        "id": "llm.third", "contextWindow": 2048, "maxTokens": 256,
    }  # fmt: skip
    empty = json.loads(patch("f", b"{}", "json", of(entries)).data)
    assert empty["providers"]["anvil"]["models"][0]["maxTokens"] == 256


@pytest.mark.parametrize(
    ("raw", "entries", "after"),
    [
        (b"\xef\xbb\xbf{\r\n\t\"a\": 1\r\n}\r\n", {"a": 2, "b": True},
         b"\xef\xbb\xbf{\r\n\t\"a\": 2,\r\n\t\"b\": true\r\n}\r\n"),
        (b'{"a":{"b":1},"c":"x"}', {"a.b": 5, "a.d": "new"}, b'{"a":{"b":5, "d": "new"},"c":"x"}'),
        (b'{\n  "a": [\n    "text"\n  ]\n}', {"a": ["text", "image"]},
         b'{\n  "a": [\n    "text",\n    "image"\n  ]\n}'),
        (b'{\n  "a": {}\n}', {"a.b": 1}, b'{\n  "a": {\n    "b": 1\n  }\n}'),
        (b'{"llm.x": {"k": 1}}', {'"llm.x".k': 2}, b'{"llm.x": {"k": 2}}'),
        (b'{"a": "say \\"{\\"", "b": [[], {}], "c": 1e3}', {"c": 7},
         b'{"a": "say \\"{\\"", "b": [[], {}], "c": 7}'),
        (b'{"a": 1}', {"a": True}, b'{"a": true}'),
        (b'{"a": "393216"}', {"a": 393216}, b'{"a": 393216}'),
        ('{"ä": "ö"}'.encode(), {"ä": "ü"}, '{"ä": "ü"}'.encode()),
    ],
)  # fmt: skip
def test_json_layout(raw: bytes, entries: dict[str, Value], after: bytes) -> None:
    """O-81, O-83: a BOM and CRLF stay."""
    assert patch("f", raw, "json", of(entries)).data == after


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{\n  // note\n  "a": 1\n}', r"f:2: not JSON: .*comments.*make it plain JSON first"),
        ('{"a": 1,}', r"not JSON: .*a comma before a closing bracket"),
        ("{a: 1}", r"not JSON: .*keys without quotes"),
        ("{'a': 1}", r"not JSON: .*single quotes"),
        ('{"a": "http://x", "b": }', r"f:1: not JSON: Expecting value$"),
        ("", r"f:1: not JSON"),
        ('{"a": 1, "a": 2}', r"f: a: stands twice"),
        ('{"a": NaN}', r"NaN is not JSON"),
        ('{"a": 1}\r{', r"f:1: a lone carriage return"),
        ("[" * 100_000, r"f: nested too deeply|not JSON"),
        ('{"m": [{"id": "x"}, {"id": "x"}]}', r"f: m: 2 items have id = x"),
        ('{"m": {"id": "x"}}', r"f: m: must be a list, it is a table"),
        ('{"m": 5}', r"f: m: must be a list, it is 5"),
        ('[1]', r"f: must hold named values, it is a list"),
        ('{"n": ' + "9" * 5000 + '}', r"f: holds a whole number of thousands of digits"),
        ('{"m": [{"id": "x", "k": {"theirs": 1}}]}', r"f: m\[id=x\].k: is a table where one value should be"),
    ],
)  # fmt: skip
def test_json_that_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadFile, match=says):
        patch("f", text.encode(), "json", of({"m[id=x].k": 1}))


TOML = b"""\
# pool note
[pool]
port = 8001  # do not move
# alt = 9

  [pool.limits]   # indented on purpose
  c = 1
[[models]]
id = "llm.primary"   # alias
context = 524_288
[[models]]
id = "other"
"""


def test_one_value_of_a_toml_file_changes_and_no_other_byte() -> None:
    """O-87."""
    done = patch("f", TOML, "toml", of({"pool.port": 8002, "models[id=llm.primary].context": 393216}))
    assert changed_lines(TOML, done.data) == [
        (b"port = 8001  # do not move", b"port = 8002  # do not move"),
        (b"context = 524_288", b"context = 393216"),
    ]
    assert patch("f", done.data, "toml", of({"pool.port": 8002})).data == done.data


def test_toml_gains_keys_and_items_without_moving_a_line() -> None:
    done = patch("f", TOML, "toml", of({"models[id=other].context": 5, "models[id=new].context": 6}))
    data = tomllib.loads(done.data.decode())
    assert data["models"][1:] == [{"id": "other", "context": 5}, {"id": "new", "context": 6}]
    lines = iter(done.data.decode().splitlines())
    assert all(line in lines for line in TOML.decode().splitlines()), "every old line is there, in its order"


def test_toml_keeps_crlf_and_bom() -> None:
    """O-83."""
    raw = b"\xef\xbb\xbf# pool\r\n[pool]\r\nport = 8001 # keep\r\n"
    done = patch("f", raw, "toml", of({"pool.port": 8002, "pool.size": 3}))
    assert done.data == b"\xef\xbb\xbf# pool\r\n[pool]\r\nport = 8002 # keep\r\nsize = 3\r\n"


def test_toml_with_mixed_line_ends_keeps_each() -> None:
    """O-83."""
    done = patch("f", b"a = 1\r\nb = 2\nc = 3\r\n", "toml", of({"a": 9}))
    assert done.data == b"a = 9\r\nb = 2\nc = 3\r\n"


def test_toml_that_is_no_number_is_itself() -> None:
    raw = b"a = 1\nn = nan\n"
    assert patch("f", raw, "toml", of({"a": 1})).data == raw
    assert patch("f", raw, "toml", of({"a": 2})).data == b"a = 2\nn = nan\n"


@pytest.mark.parametrize(
    ("raw", "key", "says"),
    [
        (b'a = [ # why\n  "x",\n]\n', "a", "a: holds comments, which would be lost"),
        (b"[a]\nb = 1\n", "a", "a: is a table where one value should be"),
        (b"[[a]]\nb = 1\n", "a", "a: is a table where one value should be"),
    ],
)
def test_toml_that_would_be_lost_is_refused(raw: bytes, key: str, says: str) -> None:
    with pytest.raises(BadFile, match=says):
        patch("f", raw, "toml", of({key: ["text"]}))


def test_a_list_with_a_hash_in_a_text_holds_no_comment() -> None:
    assert patch("f", b"a = [\"#1\", '# 2']\n", "toml", of({"a": ["x"]})).data == b'a = ["x"]\n'


@pytest.mark.parametrize("form", ["json", "toml"])
def test_a_number_with_a_point_is_no_whole_number(form: Format) -> None:
    """A client that reads whole numbers refuses 1.0."""
    raw, after = (b'{"a": 1.0}', b'{"a": 1}') if form == "json" else (b"a = 1.0\n", b"a = 1\n")
    assert patch("f", raw, form, of({"a": 1})).data == after


def test_a_difference_draws_as_it_reads() -> None:
    """A terminal obeys what somebody else's file holds, and half a surrogate pair cannot be written down."""
    raw = b'{"a": "\\u001b[2Jx\\ud800y\\u202e"}'
    (found,) = patch("f", raw, "json", of({"a": "z"})).differences
    assert str(found) == "a: has x\ufffdy, serves z"
    shown = preview("f", b"A=1\nB=\x1b]0;x\x07\n", b"A=2\nB=\x1b]0;x\x07\n", "env")
    assert "\x1b" not in shown and "+A=2" in shown


def test_bad_toml_names_its_line() -> None:
    with pytest.raises(BadFile, match=r"f:2: not TOML"):
        patch("f", b"a = 1\nb = \n", "toml", of({"a": 2}))


@pytest.mark.parametrize(
    ("raw", "entries", "after"),
    [
        (b"# k\nexport A=1 \nB = 'two'\n", {"A": "9", "B": "x y"}, b"# k\nexport A=9 \nB = 'x y'\n"),
        (b'A="q"\r\n', {"A": "r", "C": "s p"}, b"A=\"r\"\r\nC='s p'\r\n"),
        (b"A=1", {"B": "2"}, b"A=1\nB=2\n"),
        (b"", {"B": "2"}, b"B=2\n"),
        (b"A=\nB=x\n", {"A": "v"}, b"A=v\nB=x\n"),
        (b"A=5\n", {"A": 5, "B": True, "C": 393216}, b"A=5\nB=true\nC=393216\n"),
    ],
)
def test_env_layout(raw: bytes, entries: dict[str, Value], after: bytes) -> None:
    assert patch("f", raw, "env", of(entries)).data == after


@pytest.mark.parametrize(
    ("raw", "key", "value", "says"),
    [
        (b"A=1\nA=2\n", "A", "3", "A: stands twice"),
        (b"A='x'\n", "A", "it's", "cannot be written between the quotes"),
        (b'A="x"\n', "A", "$HOME", "cannot be written between the quotes"),
        (b"A=1\n", "A", "a\nb", "one line"),
        (b"A=1\n", "A.b", "x", "must hold named values|plain names"),
    ],
)
def test_env_that_is_refused(raw: bytes, key: str, value: str, says: str) -> None:
    with pytest.raises(BadFile, match=says):
        patch("f", raw, "env", of({key: value}))


PLANTED = "pl4nted-very-private"


@pytest.mark.parametrize(
    ("form", "raw", "key"),
    [
        ("json", f'{{"a": 1, "apiKey": "{PLANTED}", "gateway": {{"auth": {{"x": ["{PLANTED}"]}}}}}}', "a"),
        ("json", '{\n"token": "pl4nted\\u002dvery-private",\n"a": 1\n}', "a"),
        ("toml", f'a = 1\ntoken = "{PLANTED}"\n[headers]\nX-Mine = "{PLANTED}"\n', "a"),
        ("env", f"API_KEY={PLANTED}\na=1\n", "a"),
        ("env", f"DB_PASS={PLANTED}\na=1\nSLACK=https://hooks.invalid/{PLANTED}\n", "a"),
        ("json", f'{{\n"args": ["--token",\n"{PLANTED}"],\n"a": 1\n}}', "a"),
        ("toml", f'webhook = "https://hooks.invalid/{PLANTED}"\na = 1\n[db]\npwd = "{PLANTED}"\n', "a"),
    ],
)
def test_a_preview_shows_the_change_and_no_secret(form: Format, raw: str, key: str) -> None:
    value: Value = "2" if form == "env" else 2
    shown = preview("f", raw.encode(), patch("f", raw.encode(), form, of({key: value})).data, form)
    assert "very-private" not in shown and "***" in shown
    assert any(line.startswith("+") and "2" in line for line in shown.splitlines()[2:])


@pytest.mark.parametrize("has", ['"x"', '["x"]', '["x", "y", "z"]'])
@pytest.mark.parametrize("value", ["n", ["n", "m"]])
def test_texts_and_lists_of_another_length_can_be_previewed(has: str, value: Value) -> None:
    raw = f'{{"a": {has}}}'.encode()
    shown = preview("f", raw, patch("f", raw, "json", of({"a": value})).data, "json")
    assert shown.splitlines()[3:] == [f'-{{"a": {has}}}', f'+{{"a": {json.dumps(value)}}}']


def test_a_changed_secret_is_seen_to_change_but_not_shown() -> None:
    raw = f"API_KEY={PLANTED}\nother=1\n".encode()
    done = patch("f", raw, "env", of({"API_KEY": "second-private"}))
    shown = preview("f", raw, done.data, "env")
    assert "private" not in shown and "+API_KEY='*** (changed)'" in shown
    assert [str(d) for d in done.differences] == ["API_KEY: has ***, serves ***"]


@pytest.mark.parametrize("text", ["", "a..b", "[id=x]", "a[id=x]", "a[3].b", "a b[=].c", 'a."b'])
def test_a_bad_key_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"key path|begin and end"):
        parse_path(text)
