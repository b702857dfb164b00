"""Journal, lease and record on a real file system, with real processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from anvil_tui.adapters import files
from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.journal_file import JournalFile, OperationFolders, parse
from anvil_tui.adapters.lease import FileLease
from anvil_tui.core.errors import BadFile, EffectFailed, Refused, Stale
from anvil_tui.core.redact import redact
from anvil_tui.core.world import BoxRecord, RoleRecord
from tests.real.fixtures import need_netns
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
    """O-89 for the journal: what was never acknowledged is no damage."""
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
    made = JournalFile(tmp_path / "j", lambda: lambda text: text.replace("hunter2", "***"))
    made.append("note", text="Bearer hunter2")
    assert "hunter2" not in (tmp_path / "j").read_text() and "***" in (tmp_path / "j").read_text()


@pytest.mark.parametrize(
    "text", ["api_key=", "start with --api-key", 'api_key: "a\\"b"', "Bearer abcdefgh12345678", '{"token']
)
def test_hiding_never_breaks_a_line(tmp_path: Path, text: str) -> None:
    made = JournalFile(tmp_path / "j", lambda: redact)
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


@pytest.mark.parametrize("raw", [b"", b'{"hash": "ab', b"[]", b"null"])
def test_a_damaged_plan_that_never_began_hides_no_other_operation(tmp_path: Path, raw: bytes) -> None:
    """O-89: every plan reads every operation, so one torn file must not stop them all."""
    folders = OperationFolders(tmp_path)
    for n in ("1", "2"):
        folders.create(f"op-{n}", {"intent": {"verb": "load"}, "title": "load b", "hash": "ab"})
    (tmp_path / "op-1" / "plan.json").write_bytes(raw)
    first, second = folders.views()
    assert (first.id, first.state, second.target, second.torn) == ("op-1", "planned", "b", "")
    assert "plan.json: is damaged" in first.why and not first.needs_person
    with pytest.raises(BadFile, match="is damaged"):
        folders.plan("op-1")


HOLD = """
import sys, time
from pathlib import Path
from anvil_tui.adapters.lease import FileLease
FileLease(Path(sys.argv[1])).take("op-1")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_live_holder_is_named_and_a_killed_one_does_not_block(tmp_path: Path) -> None:
    """O-92, apache/maka#4062: a lock left by a killed process must not need a person."""
    path = tmp_path / "lease"
    assert FileLease(path).holder() is None
    hold = [sys.executable, "-c", HOLD, str(path)]
    child = subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout and child.stdout.readline() == b"held\n"
    held = FileLease(path).holder()
    assert held and (held.operation, held.pid) == ("op-1", child.pid)
    with pytest.raises(Refused, match=rf"op-1 \(\S+@\S+, pid {child.pid}, since .*operations show op-1"):
        FileLease(path).take("op-2")
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert FileLease(path).holder() is None
    mine = FileLease(path)
    mine.take("op-2")
    mine.release()
    assert FileLease(path).holder() is None


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lease of `tmp_path`."""
    hold = [sys.executable, "-c", HOLD, str(tmp_path / "lease")]
    child = subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout and child.stdout.readline() == b"held\n"
    yield child
    child.kill()
    child.wait()


def test_a_stopped_holder_lives_and_is_named_at_once(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """O-92: B says who holds it and does not wait; only death gives a lease up, and a process that is stopped
    is not dead."""
    os.kill(holder.pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(Refused, match=rf"op-1 \(\S+@\S+, pid {holder.pid}, since .*; attach with `anvil-tui`"):
        FileLease(tmp_path / "lease").take("op-2")
    assert time.monotonic() - began < 5
    holder.kill()
    holder.wait()
    FileLease(tmp_path / "lease").take("op-2")


def test_a_pid_proves_nothing_either_way(tmp_path: Path) -> None:
    """O-92: what a dead holder wrote does not block, not even with the pid of a process that lives."""
    path = tmp_path / "lease"
    path.write_text(json.dumps({"operation": "old", "pid": os.getpid(), "user": "u", "since": "s"}))
    assert FileLease(path).holder() is None
    mine = FileLease(path)
    mine.take("op-2")
    held = FileLease(path).holder()
    assert held and (held.operation, held.pid) == ("op-2", os.getpid())
    path.write_text(json.dumps({"operation": "op-2", "pid": 999_999_999, "user": "u", "since": "s"}))
    with pytest.raises(Refused, match="pid 999999999"):
        FileLease(path).take("op-3")


def test_a_lease_whose_file_was_removed_is_another_one(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Who takes it then raises the generation, and the former holder stops by that."""
    (tmp_path / "lease").unlink()
    mine = FileLease(tmp_path / "lease")
    mine.take("op-2")
    held = FileLease(tmp_path / "lease").holder()
    assert held and held.operation == "op-2"


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
    """O-89, wherever it is cut."""
    box = BoxFile(tmp_path)
    assert box.read() == BoxRecord()
    first = BoxRecord(1, {}, {"primary": RoleRecord("primary", "c1", ("c0",))})
    box.write(first, BoxRecord())
    box.write(BoxRecord(2), first)
    assert BoxFile(tmp_path).read().generation == 2
    path = tmp_path / "box.json"
    for cut in (0, 1, 10, len(path.read_bytes()) - 1):
        path.write_bytes(path.read_bytes()[:cut])
        with pytest.raises(BadFile, match=r"box\.json: is damaged .*`anvil-tui record`"):
            BoxFile(tmp_path).read()
        assert BoxFile(tmp_path).copy() == first
        path.write_bytes((tmp_path / "box.json.last").read_bytes())
        assert BoxFile(tmp_path).read() == first


def test_kept_recipes_are_exact_copies_by_digest(tmp_path: Path) -> None:
    box, made = BoxFile(tmp_path), recipe("a")
    box.keep_recipe(made)
    assert BoxFile(tmp_path).kept_recipes() == {made.digest(): made}
    path = tmp_path / "recipes" / f"{made.digest()}.json"
    path.write_text(path.read_text().replace('"2048"', "").replace("2048", "4096"))
    assert BoxFile(tmp_path).kept_recipes() == {}


def test_a_second_save_on_an_old_reading_is_refused_with_what_moved(tmp_path: Path) -> None:
    """O-91: compared by content, under one lock; after reading again both changes are there."""
    first, second = BoxFile(tmp_path), BoxFile(tmp_path)
    start = BoxRecord(7)
    first.write(start, BoxRecord())
    one, two = first.read(), second.read()
    first.write(replace(one, roles={"a": RoleRecord("a", "c2")}), one)
    saved = (tmp_path / "box.json").read_bytes()
    mine = replace(two, roles={"b": RoleRecord("b", "quiesced")})
    with pytest.raises(
        Stale, match=r"(?s)box\.json changed since it was read: it is \w{12}, you read .*\+.*\"c2\""
    ):
        second.write(mine, two)
    assert (tmp_path / "box.json").read_bytes() == saved
    again = second.read()
    second.write(replace(again, roles={**again.roles, **mine.roles}), again)
    assert set(first.read().roles) == {"a", "b"}


def test_the_comparison_is_of_content_and_not_of_time(tmp_path: Path) -> None:
    """O-91: a file that was only touched is the same, one of the same time and size may be another."""
    box, path = BoxFile(tmp_path), tmp_path / "box.json"
    box.write(BoxRecord(1), BoxRecord())
    os.utime(path, (1, 1))
    box.write(BoxRecord(2), BoxRecord(1))
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"generation": 2', b'"generation": 3'))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    with pytest.raises(Stale, match=r"(?s)-.*\"generation\": 2.*\+.*\"generation\": 3"):
        box.write(BoxRecord(4), BoxRecord(2))
    assert box.read().generation == 3


ADD = """
import sys
from dataclasses import replace
from pathlib import Path
from anvil_tui.adapters import files
from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.core.errors import Stale
from anvil_tui.core.world import RoleRecord
box, name = BoxFile(Path(sys.argv[1])), sys.argv[2]
for n in range(25):
    while True:
        now = box.read()
        try:
            box.write(replace(now, roles={**now.roles, f"{name}{n}": RoleRecord(name)}), now)
            break
        except Stale:
            continue
"""


def test_no_update_of_two_writing_processes_is_lost(tmp_path: Path) -> None:
    """O-91, all at once: each repeats what was refused."""
    writers = [subprocess.Popen([sys.executable, "-c", ADD, str(tmp_path), name]) for name in ("a", "b")]
    assert [w.wait(60) for w in writers] == [0, 0]
    assert len(BoxFile(tmp_path).read().roles) == 50


def test_a_journal_that_somebody_else_continues_is_closed_to_the_former_writer(tmp_path: Path) -> None:
    path = tmp_path / "journal.ndjson"
    former = JournalFile(path)
    former.append("begin", **BEGIN)
    JournalFile(path).append("note", text="taken over")
    with pytest.raises(Stale, match="another process writes this journal now"):
        former.append("progress", "hold", text="I was asleep")
    records, trouble = parse(path.read_bytes())
    assert ([r.kind for r in records], trouble) == (["begin", "note"], "")


def test_a_writer_that_was_stopped_in_the_middle_does_not_make_the_next_hang(
    journal: JournalFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCK_WITHIN_S", 0.1)
    with (tmp_path / "journal.ndjson").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(EffectFailed, match=r"journal\.ndjson: not saved: another process .* `fuser "):
            journal.append("note", text="x")
    journal.append("note", text="x")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """One MiB, in the mount namespace of the tests."""
    need_netns()
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096) == 4096:
            pass
    assert os.statvfs(folder).f_bavail == 0


def test_on_a_full_disk_the_reserve_carries_the_way_back(small_disk: Path) -> None:
    operations = OperationFolders(small_disk / "operations")
    operations.create("op", {"intent": {}})
    journal = operations.journal("op")
    journal.append("begin", op="op")
    fill(small_disk)
    assert operations.cancel_asked("op") is None
    journal.append("note", text="this line fits into the block of the last, a whole file would not")
    assert "is full" in (operations.cancel_asked("op") or "")
    for number in range(99):
        journal.append("note", text=f"{number} {'x' * 1000}")
    with pytest.raises(EffectFailed, match="disk is full"):
        operations.save("op", "engine.log", "a long log")
    journal.append("end", outcome="undone", why="", residue=[])
    assert [r.kind for r in journal.records()] == ["begin", *["note"] * 100, "end"] and journal.damage() == ""
    assert not (small_disk / "operations" / "op" / "reserve").exists()


def test_on_a_full_disk_the_lease_is_taken_for_the_way_back(small_disk: Path) -> None:
    lease = FileLease(small_disk / "lease")
    lease.take("the operation that was killed")
    lease.release()
    fill(small_disk)
    lease.take("its undo")
    held = FileLease(small_disk / "lease").holder()
    lease.release()
    assert held and held.operation == "its undo"


def test_a_file_system_without_locks_is_named_and_nothing_is_written(
    journal: JournalFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network mount without its lock service: two operators would not know of each other."""

    def flock(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    lease, before = FileLease(tmp_path / "lease"), journal.records()
    for ask in (lambda: lease.take("op"), lease.holder, lambda: journal.append("note", text="x")):
        with pytest.raises(
            EffectFailed, match=r"(lease|ndjson): its file system gives no lock .* disk of this machine"
        ):
            ask()
    assert journal.records() == before


def test_without_room_for_the_way_back_nothing_is_planned(small_disk: Path) -> None:
    fill(small_disk)
    (small_disk / "operations").mkdir()
    with pytest.raises(EffectFailed, match="for the way back: No space left"):
        OperationFolders(small_disk / "operations").create("op", {"intent": {}})
    assert list((small_disk / "operations").iterdir()) == []
