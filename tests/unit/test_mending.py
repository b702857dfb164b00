"""A record of the box that cannot be read: the copy where the box agrees, a person where it does not (O-89)."""

from __future__ import annotations

import argparse
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from anvil_tui.adapters import journal_file
from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.cli.record import shown
from anvil_tui.core.errors import BadFile, EffectFailed, Refused
from anvil_tui.core.world import BoxRecord, RoleRecord, ServeRecord
from anvil_tui.service.mending import damage, mend
from tests.support.membox import World, recipe

CUT = b'{"schema":1,"owner":"pair-a","his'


@pytest.fixture
def made(tmp_path: Path) -> World:
    """`a` serves, `b` is the way back."""
    world = World(tmp_path, recipe("a"), recipe("b"), recipe("c"))
    for name in ("b", "a"):
        world.clock.sleep(5)
        assert world.do("promote", recipe=name) == "done"
    return world


def cut(world: World, raw: bytes = CUT) -> bytes:
    (world.tmp / "box.json").write_bytes(raw)
    return raw


def aside(world: World) -> list[Path]:
    return sorted(world.tmp.glob("box.json.corrupt-*"))


def nothing_but_generation(world: World) -> None:
    """A save that changes nothing that the box could show, so that the copy agrees with it."""
    assert world.do("quiesce", role="primary") == "done"
    assert world.do("readmit", role="primary") == "done"


@pytest.mark.parametrize("raw", [CUT, b"", b"null", b"[]", b"\x00" * 64, b'{"schema": "anvil.box/1"}'])
def test_a_copy_with_which_the_box_agrees_is_used_and_the_bad_file_kept(made: World, raw: bytes) -> None:
    """O-89: half a file, an empty one, zeros after a power cut, another shape."""
    nothing_but_generation(made)
    before = made.box.store.read()
    cut(made, raw)
    with pytest.raises(BadFile, match=r"box\.json: is damaged .*`anvil-tui record`"):
        made.box.store.read()
    assert not made.plan("promote", recipe="c").refusals
    [kept] = aside(made)
    now = made.box.store.read()
    assert kept.read_bytes() == raw and (now.serves, now.roles) == (before.serves, before.roles)
    assert now.generation > before.generation, "whoever held an older generation stays fenced off"
    assert made.do("promote", recipe="c") == "done" and made.incumbent() == "c"


def test_a_copy_that_is_one_operation_old_is_not_used_by_itself(made: World) -> None:
    """O-89: its last save was the promotion; with it the ladder would lead to what serves."""
    cut(made)
    for verb, target in (("load", "c"), ("promote", "c")):
        with pytest.raises(BadFile, match=r"In doubt: .*primary: the copy says that b .* serves it, .* shows a "):
            made.plan(verb, recipe=target)
    assert not aside(made) and (made.tmp / "box.json").read_bytes() == CUT
    found = damage(made.box)
    assert found is not None
    for wrong in ("", "0" * 12):
        with pytest.raises(Refused, match=found.hash):
            mend(made.box, wrong)
    assert mend(made.box, found.hash) == str(aside(made)[0])
    now = made.box.store.read()
    assert (made.incumbent(), [now.serves[i].recipe_id for i in now.roles["primary"].rollback]) == ("a", ["b"])
    assert made.do("rollback", role="primary") == "done" and made.serving() == "b"


def without_a_copy(world: World) -> None:
    (world.tmp / "box.json.last").unlink()


def with_a_cut_copy(world: World) -> None:
    (world.tmp / "box.json.last").write_bytes(CUT)


@pytest.mark.parametrize("lose", [without_a_copy, with_a_cut_copy])
def test_without_a_good_copy_the_box_is_read_and_a_person_confirms(
    made: World, lose: Callable[[World], None]
) -> None:
    """O-89: never an empty box; the labels, the arguments and the aliases tell who is who."""
    before = made.box.store.read()
    cut(made)
    lose(made)
    with pytest.raises(BadFile, match="there is no good copy of the record"):
        made.plan("load", recipe="c")
    found = damage(made.box)
    assert found is not None
    mend(made.box, found.hash)
    now = made.box.store.read()
    assert set(now.serves) == set(before.serves) and now.roles == before.roles
    assert {i: (s.slot, s.port, s.recipe_digest) for i, s in now.serves.items()} == {
        i: (s.slot, s.port, s.recipe_digest) for i, s in before.serves.items()
    }
    assert not any(s.qualified_by for s in now.serves.values()), "what nobody can prove any more is asked again"


def test_no_file_is_a_first_start_only_where_there_never_was_one(tmp_path: Path, made: World) -> None:
    """O-89: missing is another case than damaged, and lost is another one than missing."""
    fresh = World(tmp_path / "new", recipe("a"))
    assert fresh.box.store.read() == BoxRecord() and damage(fresh.box) is None
    (made.tmp / "box.json").unlink()
    with pytest.raises(BadFile, match="is gone, and there was one"):
        made.box.store.read()
    without_a_copy(made)
    (made.tmp / "box.json.corrupt-20260902T100000Z").write_bytes(CUT)
    with pytest.raises(BadFile, match="is gone, and there was one"):
        made.box.store.read()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"port": 9131', '"port": "9131"'), ('"port": 9131', '"port": true'), ('"port": 9131', '"port": 9131.0'),
        ('"generation": ', '"generation": "x", "was": '), ('"exclusive": false', '"exclusive": 0'),
        ('"incumbent": "', '"incumbent": null, "was": "'), ('"slot": ', '"slut": '),
    ],
)  # fmt: skip
def test_whole_json_of_wrong_types_is_damaged_too(tmp_path: Path, old: str, new: str) -> None:
    """O-89, O-86: true is never port 1 in a file of ours either."""
    store = BoxFile(tmp_path)
    serve = ServeRecord("c1", "a", "d", "sha256:i", "primary", "primary-a", 9131, "a", "OP")
    store.write(BoxRecord(3, {"c1": serve}, {"primary": RoleRecord("primary", "c1")}), BoxRecord())
    text = (tmp_path / "box.json").read_text()
    assert old in text and store.read().serves == {"c1": serve}
    (tmp_path / "box.json").write_text(text.replace(old, new, 1))
    with pytest.raises(BadFile, match="is damaged"):
        store.read()


def test_a_bom_is_read_and_gone_after_the_next_save(made: World) -> None:
    """O-81 for the files of the state: record, kept recipes, journal."""
    before = made.box.store.read()
    for path in (made.tmp / "box.json", *(made.tmp / "recipes").glob("*.json")):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    fresh = World(made.tmp, *made.recipes)
    assert fresh.box.store.read() == before and len(fresh.box.store.kept_recipes()) == 2
    journal = made.tmp / "operations" / made.last / "journal.ndjson"
    journal.write_bytes(b"\xef\xbb\xbf" + journal.read_bytes())
    assert made.box.operations.journal(made.last).damage() == ""
    nothing_but_generation(made)
    assert json.loads((made.tmp / "box.json").read_text())["schema"] == "anvil.box/1"


def test_a_running_operation_is_not_fenced_off_by_a_look(made: World) -> None:
    nothing_but_generation(made)
    cut(made)
    made.box.lease.take("20260902T100000000-load-aaaa")
    try:
        other = World(made.tmp, *made.recipes)
        other.docker, other.gate = made.docker, made.gate
        with pytest.raises(Refused, match="the box is being changed by operation 20260902T100000000-load-aaaa"):
            mend(made.box)
    finally:
        made.box.lease.release()
    assert not aside(made)


def test_the_command_shows_what_is_confirmed_and_does_exactly_that(
    made: World, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(plan: str = "", read_only: bool = False) -> int:
        return shown(argparse.Namespace(plan=plan, json=False, read_only=read_only), made.box)

    assert run() == 0 and "can be read: generation" in capsys.readouterr().out
    cut(made)
    assert run() == 5
    said = capsys.readouterr()
    assert "primary: a (" in said.out and "in doubt: primary: the copy says that b" in said.out
    found = damage(made.box)
    assert found is not None and f"--plan {found.hash}" in said.err
    with pytest.raises(Refused, match="read-only"):
        run(found.hash, read_only=True)
    assert run(found.hash) == 0 and "box.json.corrupt-" in capsys.readouterr().out
    assert made.incumbent() == "a"


@pytest.mark.parametrize("line", [0, 1, 2])
def test_what_could_not_be_journalled_is_not_done(made: World, monkeypatch: pytest.MonkeyPatch, line: int) -> None:
    """O-88: the disk is full at the beginning, at the first step's intent, at its note that it was done."""
    real = journal_file._write_whole
    written: list[bytes] = []

    def full(fd: int, data: bytes) -> None:
        if len(written) == line:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(data)
        real(fd, data)

    monkeypatch.setattr(journal_file, "_write_whole", full)
    before, aliases = dict(made.docker.all), dict(made.gate.live)
    with pytest.raises(EffectFailed, match=r"journal\.ndjson: journal not written: No space left"):
        made.do("load", recipe="c")
    fresh = [c.status for i, c in made.docker.all.items() if i not in before]
    assert fresh == (["created"] if line == 2 else []) and made.gate.live == aliases and made.serving() == "a"
    monkeypatch.undo()
    assert made.operate("resume" if line else "undo") == "undone"
    assert made.docker.all == before
