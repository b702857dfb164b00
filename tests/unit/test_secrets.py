"""Secrets by reference: the named place wins, empty is unset, a refusal says where it looked and never a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from anvil_tui.adapters.secrets import MAX_BYTES, find, resolve
from anvil_tui.core.errors import Refused
from anvil_tui.core.secrets import parse_reference


def put(folder: Path, name: str, text: bytes | str, mode: int = 0o600) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


def test_the_chosen_file_beats_the_variable_and_says_that_they_differ(tmp_path: Path) -> None:
    path = put(tmp_path, "router.env", "# rotated\nexport ROUTER_TOKEN='new-222'\n")
    found = find("file:router.env#ROUTER_TOKEN", tmp_path, {"ROUTER_TOKEN": "old-111"})
    assert found.value == "new-222"
    assert str(path) in found.source
    assert found.note == "differs from the process environment"
    shown = f"{found!r} {found} {found.source} {found.note}"
    assert "new-222" not in shown
    assert "old-111" not in shown


@pytest.mark.parametrize("line", ["ROUTER_TOKEN=", 'ROUTER_TOKEN=""', "ROUTER_TOKEN =  ", "OTHER=x"])
def test_empty_in_the_file_is_unset_and_the_variable_is_not_tried(tmp_path: Path, line: str) -> None:
    path = put(tmp_path, "router.env", line + "\n")
    with pytest.raises(Refused) as refused:
        find("file:router.env#ROUTER_TOKEN", tmp_path, {"ROUTER_TOKEN": "old-111"})
    assert str(path) in str(refused.value)
    assert "was not tried" in str(refused.value)
    assert "old-111" not in str(refused.value)


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    put(tmp_path, "key", "one\n")
    assert resolve("file:key", tmp_path, {}) == "one"
    put(tmp_path, "key", "two\n")
    assert resolve("file:key", tmp_path, {}) == "two"


@pytest.mark.parametrize(("env", "says"), [({}, "is not set"), ({"K": ""}, "is empty"), ({"K": " "}, "is empty")])
def test_a_variable_that_is_not_there_is_named(tmp_path: Path, env: dict[str, str], says: str) -> None:
    with pytest.raises(Refused, match=f"looked in: environment variable K: {says}"):
        find("env:K", tmp_path, env)


def test_a_variable_is_found_and_named(tmp_path: Path) -> None:
    found = find("env:K", tmp_path, {"K": "v-333"})
    assert (found.value, found.source) == ("v-333", "environment variable K")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"s3cret-a\ns3cret-b\n", "more than one line"),
        (b"s3cret\xff", "not UTF-8"),
        (b"s3cret" * MAX_BYTES, "larger than"),
    ],
)
def test_a_file_that_holds_no_single_secret_is_refused_without_its_content(
    tmp_path: Path, content: bytes, says: str
) -> None:
    put(tmp_path, "key", content)
    with pytest.raises(Refused) as refused:
        find("file:key", tmp_path, {})
    assert says in str(refused.value)
    assert str(tmp_path / "key") in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_absent_file_and_folder_are_refused_by_path(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="does not exist"):
        find("file:nothing", tmp_path, {})
    with pytest.raises(Refused, match="not a plain file"):
        find("file:.", tmp_path, {})


def test_absolute_paths_bom_and_modes(tmp_path: Path) -> None:
    path = put(tmp_path, "key", b"\xef\xbb\xbfabc\r\n", 0o644)
    found = find(f"file:{path}", tmp_path / "elsewhere", {})
    assert found.value == "abc"
    assert "0644" in found.note


@pytest.mark.parametrize("text", ["sk-verysecret", "env:", "env:1A", "file:", "FILE:x", "file:a#1b", "file:a\nb"])
def test_what_is_no_reference_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    with pytest.raises(Refused, match="never the secret") as refused:
        find(text, tmp_path, {})
    assert "verysecret" not in str(refused.value)
    with pytest.raises(ValueError, match="reference"):
        parse_reference(text)
