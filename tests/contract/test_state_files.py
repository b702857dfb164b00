"""Journal, lease and record on a real file system, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.journal_file import JournalFile, OperationFolders, parse
from anvil_tui.adapters.lease import FileLease
from anvil_tui.core.errors import BadFile, Refused
from anvil_tui.core.redact import redact
from anvil_tui.core.world import BoxRecord, RoleRecord
from tests.support.membox import recipe

BEGIN = {"op": "1", "kind": "promote", "target": "promote b", "steps": [{"name": "hold", "title": "hold"}]}


@pytest.fixture
def journal(tmp_path: Path) -> JournalFile:
    made = JournalFile(tmp_path / "journal.ndjson")
    made.append("begin", **BEGIN)
    made.append("intent", "hold", title="hold")
    return made


def test_lines_are_numbered_and_chained(journal: JournalFile, tmp_path: Path) -> None:
    journal.append("done", "hold")
    rows = [json.loads(line) for line in (tmp_path / "journal.ndjson").read_text().splitlines()]
    assert [r["seq"] for r in rows] == [1, 2, 3]
    assert rows[0]["prev"] == "" and len({r["prev"] for r in rows}) == 3
    assert (tmp_path / "journal.ndjson").stat().st_mode & 0o777 == 0o600


def test_every_cut_through_the_last_line_loses_only_that_line(journal: JournalFile, tmp_path: Path) -> None:
    path = tmp_path / "journal.ndjson"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        records, trouble = parse(path.read_bytes())
        assert ([r.kind for r in records], trouble) == (["begin"], ""), cut


def test_the_next_writer_sets_a_torn_line_aside_and_goes_on(journal: JournalFile, tmp_path: Path) -> None:
    path = tmp_path / "journal.ndjson"
    path.write_bytes(path.read_bytes()[:-9])
    JournalFile(path).append("decide", way="undo", why="power cut")
    records, trouble = parse(path.read_bytes())
    assert ([r.kind for r in records], [r.seq for r in records], trouble) == (["begin", "decide"], [1, 2], "")
    assert path.with_suffix(".torn").read_bytes().startswith(b'{"v": 1')


def test_a_line_altered_in_the_middle_is_reported(journal: JournalFile, tmp_path: Path) -> None:
    journal.append("done", "hold")
    path = tmp_path / "journal.ndjson"
    path.write_bytes(path.read_bytes().replace(b'"intent"', b'"done"', 1))
    assert parse(path.read_bytes())[1] == "line 3 does not follow line 2"
    path.write_bytes(b"{torn\n" + path.read_bytes())
    assert parse(path.read_bytes())[1] == "line 1 is damaged"


def test_secrets_do_not_reach_the_journal(tmp_path: Path) -> None:
    made = JournalFile(tmp_path / "j", lambda text: text.replace("hunter2", "***"))
    made.append("note", text="Bearer hunter2")
    assert "hunter2" not in (tmp_path / "j").read_text() and "***" in (tmp_path / "j").read_text()


@pytest.mark.parametrize(
    "text", ["api_key=", "start with --api-key", 'api_key: "a\\"b"', "Bearer abcdefgh12345678", '{"token']
)
def test_hiding_never_breaks_a_line(tmp_path: Path, text: str) -> None:
    made = JournalFile(tmp_path / "j", redact)
    made.append("note", text=text, api_key="s3cret-value", next=[text])
    records, trouble = parse((tmp_path / "j").read_bytes())
    assert (trouble, [r.kind for r in records], list(records[0].data)) == (
        "",
        ["note"],
        ["text", "api_key", "next"],
    )
    assert "s3cret-value" not in (tmp_path / "j").read_text()
    folders = OperationFolders(tmp_path, redact)
    folders.create("op", {"title": text, "key": 1})
    assert json.loads(folders.save("op", "rows.ndjson", json.dumps({"a": text, "b": text}) + "\n")).keys() == {
        "a",
        "b",
    }
    assert folders.plan("op")["key"] == 1


def test_views_list_what_never_began_and_what_is_damaged(tmp_path: Path) -> None:
    folders = OperationFolders(tmp_path)
    folders.create("20260101T000000000-promote-aaaa", {"intent": {"verb": "promote"}, "title": "promote b"})
    folders.create("20260101T000000001-load-bbbb", {"intent": {"verb": "load"}, "title": "load b"})
    folders.journal("20260101T000000001-load-bbbb").append("begin", **BEGIN)
    assert [v.state for v in folders.views()] == ["planned", "interrupted"]
    (tmp_path / "20260101T000000001-load-bbbb" / "journal.ndjson").write_bytes(b"\x00\x00\n")
    assert folders.views()[1].torn == "line 1 is damaged"


HOLD = """
import sys, time
from pathlib import Path
from anvil_tui.adapters.lease import FileLease
FileLease(Path(sys.argv[1])).take("op-1")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_live_holder_is_named_and_a_killed_one_does_not_block(tmp_path: Path) -> None:
    """apache/maka#4062: a lock left by a killed process must not need a person."""
    path = tmp_path / "lease"
    assert FileLease(path).holder() is None
    hold = [sys.executable, "-c", HOLD, str(path)]
    child = subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout and child.stdout.readline() == b"held\n"
    held = FileLease(path).holder()
    assert held and (held.operation, held.pid) == ("op-1", child.pid)
    with pytest.raises(Refused, match=f"op-1, pid {child.pid}"):
        FileLease(path).take("op-2")
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert FileLease(path).holder() is None
    mine = FileLease(path)
    mine.take("op-2")
    mine.release()
    assert FileLease(path).holder() is None


def test_readers_of_the_lease_never_make_a_writer_fail(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    FileLease(path).take("first")
    reader = "import sys\nfrom pathlib import Path\nfrom anvil_tui.adapters.lease import FileLease\n"
    reader += "l = FileLease(Path(sys.argv[1]))\nprint('on', flush=True)\nfor _ in range(20000): l.holder()\n"
    lease = FileLease(tmp_path / "other")
    lease.take("warm")
    lease.release()
    child = subprocess.Popen([sys.executable, "-c", reader, str(tmp_path / "other")], stdout=subprocess.PIPE)
    assert child.stdout and child.stdout.readline() == b"on\n"
    taken = 0
    while child.poll() is None and taken < 50:
        lease.take("again")
        lease.release()
        taken += 1
    child.terminate()
    child.wait()
    assert taken > 0


def test_the_record_survives_and_a_damaged_one_is_never_an_empty_box(tmp_path: Path) -> None:
    box = BoxFile(tmp_path)
    assert box.read() == BoxRecord()
    first = BoxRecord(1, {}, {"primary": RoleRecord("primary", "c1", ("c0",))})
    box.write(first)
    box.write(BoxRecord(2))
    assert BoxFile(tmp_path).read().generation == 2
    path = tmp_path / "box.json"
    for cut in (0, 1, 10, len(path.read_bytes()) - 1):
        path.write_bytes(path.read_bytes()[:cut])
        with pytest.raises(BadFile, match=r"box\.json\.last"):
            BoxFile(tmp_path).read()
        path.write_bytes((tmp_path / "box.json.last").read_bytes())
        assert BoxFile(tmp_path).read() == first


def test_kept_recipes_are_exact_copies_by_digest(tmp_path: Path) -> None:
    box, made = BoxFile(tmp_path), recipe("a")
    box.keep_recipe(made)
    assert BoxFile(tmp_path).kept_recipes() == {made.digest(): made}
    path = tmp_path / "recipes" / f"{made.digest()}.json"
    path.write_text(path.read_text().replace('"2048"', "").replace("2048", "4096"))
    assert BoxFile(tmp_path).kept_recipes() == {}
