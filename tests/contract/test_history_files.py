"""History on a real file system: killed writers, a full disk, a second writer, clocks that are set, other people's
files."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from anvil_tui.adapters.history_files import HistoryFiles, recorder_of, segments
from anvil_tui.adapters.recordings import HistoryFolder, RecordingFile, write_recording
from anvil_tui.core.errors import AnvilError, BadFile, EffectFailed, NotFound, Refused
from anvil_tui.core.nameless import Names
from anvil_tui.core.recording import Frame, Head, head_line, joined, read_head
from anvil_tui.core.redact import redact
from anvil_tui.core.standing import CopyState, CredentialState
from anvil_tui.core.workspace import History
from anvil_tui.core.world import Event, World
from anvil_tui.core.world_codec import decode
from anvil_tui.service.recorder import Recorder
from anvil_tui.service.store import Store
from tests.real.fixtures import need_netns
from tests.support import worlds
from tests.support.wait import wait_until

KEY = "sk-recorded-secret-0123456789"


def later(seconds: float, clock_s: float = 0.0, **more: object) -> World:
    """The box so many seconds on; its wall clock may have been set by `clock_s`."""
    base = worlds.calm()
    moved = {"now_s": base.now_s + seconds, "now_utc": base.now_utc + timedelta(seconds=seconds + clock_s)}
    return replace(base, gpus=replace(base.gpus, at_s=base.now_s + seconds), **moved, **more)  # type: ignore[arg-type]


def writer(folder: Path, days: int = 7, max_mib: int = 64, floor_bytes: int = 0) -> HistoryFiles:
    """Opened. The floor is off: a test's disk may be nearly full."""
    made = HistoryFiles(
        folder / "history", "box", History(days=days, max_mib=max_mib),
        lambda: lambda text: redact(text, (KEY,)), floor_bytes=floor_bytes,
    )  # fmt: skip
    made.open()
    return made


def frames(folder: Path) -> list[Frame]:
    kept = HistoryFolder(folder / "history")
    return [f for name, _ in kept.parts() for f in kept.frames(name)]


def damage(folder: Path) -> str:
    return joined(i for _, i in HistoryFolder(folder / "history").parts()).damage


def test_what_is_recorded_is_read_back_and_nobody_else_may_look(tmp_path: Path) -> None:
    made = writer(tmp_path)
    seen = [later(5.0 * n, source_errors={"n": str(n), "key": KEY}) for n in range(4)]
    for world in seen:
        made.append(world)
    made.close()
    back = [decode(f.tree, f.at, f.s) for f in frames(tmp_path)]
    hidden = [replace(w, source_errors={"n": w.source_errors["n"], "key": "***"}) for w in seen]
    assert back == [replace(w, read_only=True, replayed=True) for w in hidden]
    assert (tmp_path / "history").stat().st_mode & 0o777 == 0o700
    for file in (tmp_path / "history").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600 and KEY.encode() not in file.read_bytes()


def test_segments_are_closed_packed_and_read_as_one_span(tmp_path: Path) -> None:
    made, ended = writer(tmp_path), replace(worlds.promoted(), ended_at="2026-09-02T12:00:00Z")
    # it comes with the key frame of the second segment, after the last frame of the first
    news = Event("2026-09-02T12:09:12.000000Z", "gateway", "gone", "bad")
    for n in range(120):
        events = (*worlds.EVENTS, news) if n >= 57 else worlds.EVENTS
        world = later(16.0 * n, operations=(worlds.qualified(), ended), events=events)
        made.append(world)
    made.close()
    names = [p.name for p in sorted((tmp_path / "history").glob("0*"))]
    assert names == ["00000001.ndjson.gz", "00000002.ndjson.gz", "00000003.ndjson"]
    whole = joined(i for _, i in HistoryFolder(tmp_path / "history").parts())
    assert [s.frames for s in whole.spans] == [120] and len(frames(tmp_path)) == 120
    assert [m.text for m in whole.moments] == ["gone"]
    assert [r.id for r in whole.ran] == ["20260902-1048-promote"], "the other had ended before"
    packed = (tmp_path / "history" / names[0]).read_bytes()
    assert json.loads(gzip.decompress(packed).splitlines()[0])["index"]["spans"]


def test_every_cut_through_the_last_frame_loses_only_that_frame(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.append(later(0))
    path = tmp_path / "history" / "00000001.ndjson"
    first = path.stat().st_size
    made.append(later(5))
    made.close()
    whole = path.read_bytes()
    for cut in (*range(first, len(whole), 11), len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert len(frames(tmp_path)) == 1 and not damage(tmp_path), cut
    again = writer(tmp_path)
    again.append(later(10))
    again.close()
    assert [f.s for f in frames(tmp_path)] == [5000.0, 5010.0] and not damage(tmp_path)


def test_a_torn_line_in_the_middle_is_told_and_all_else_is_read(tmp_path: Path) -> None:
    for begin in (0, 100):
        made = writer(tmp_path)
        for n in range(4):
            made.append(later(begin + 5.0 * n))
        made.close()
    path = tmp_path / "history" / "00000001.ndjson.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    plain = path.with_suffix("")
    head = head_line(replace(read_head(lines[0]), index=None))
    plain.write_bytes(b"".join([head, lines[1], lines[2][:40] + b"\n", *lines[3:]]))
    path.unlink()
    assert [f.s for f in frames(tmp_path)] == [5000.0, 5100.0, 5105.0, 5110.0, 5115.0]
    assert f"{plain}: line 3: this line is damaged" in damage(tmp_path)
    again = writer(tmp_path)
    again.append(later(300))
    again.close()
    assert "line 3" in damage(tmp_path) and not plain.exists(), "packed, with what is known of it"
    path.write_bytes(path.read_bytes()[:-200])
    assert [f.s for f in frames(tmp_path)][-1] == 5300.0


_CHILD = """
import sys
from pathlib import Path
from tests.contract.test_history_files import later, writer
made, n = writer(Path(sys.argv[1])), 0
while True:
    made.append(later(0.5 * n, source_errors={"n": str(n) * 3000}))
    n += 1
    if n == 20:
        print("going", flush=True)
"""


def test_a_writer_that_is_killed_leaves_what_it_wrote_and_its_place(tmp_path: Path) -> None:
    """It writes without a pause, so the kill falls where it falls: into a line, or into packing."""
    child = subprocess.Popen([sys.executable, "-c", _CHILD, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"going\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    left = frames(tmp_path)
    assert len(left) >= 20 and not damage(tmp_path)
    for frame in left:
        assert set(decode(frame.tree, frame.at, frame.s).source_errors) == {"n"}
    made = writer(tmp_path)
    made.append(later(9999))
    made.close()
    assert len(frames(tmp_path)) == len(left) + 1
    assert [s.packed for s in segments(tmp_path / "history")][-2:] == [True, False]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    first = writer(tmp_path)
    first.append(later(0))
    with pytest.raises(Refused, match=f"another process records this box already .pid {os.getpid()}"):
        writer(tmp_path)
    assert recorder_of(tmp_path / "history") == f"pid {os.getpid()}"
    first.append(later(5))
    first.close()
    assert recorder_of(tmp_path / "history") == "" == recorder_of(tmp_path / "nowhere")
    writer(tmp_path).close()
    assert len(frames(tmp_path)) == 2


@pytest.mark.parametrize("days, max_mib", [(0, 64), (7, 0)])
def test_history_that_is_off_touches_nothing(tmp_path: Path, days: int, max_mib: int) -> None:
    with pytest.raises(Refused, match="history is off"):
        writer(tmp_path, days, max_mib)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["history", "lock", "00000001.ndjson"])
def test_no_link_is_followed(tmp_path: Path, name: str) -> None:
    theirs = tmp_path / "theirs"
    if name == "history":
        theirs.mkdir()
        (tmp_path / "history").symlink_to(theirs)
    else:
        theirs.write_text("theirs")
        (tmp_path / "history").mkdir()
        (tmp_path / "history" / name).symlink_to(theirs)
    with pytest.raises(EffectFailed, match="nothing is recorded"):
        writer(tmp_path).append(later(0))
    assert list(theirs.iterdir()) == [] if theirs.is_dir() else theirs.read_text() == "theirs"


def used(folder: Path) -> int:
    return sum(p.stat().st_size for p in (folder / "history").iterdir())


def test_the_cap_in_bytes_holds_all_the_time(tmp_path: Path) -> None:
    """2 MiB for frames of 100 KiB that do not compress: only the newest stay, in order."""
    made = writer(tmp_path, max_mib=2)
    for n in range(40):
        made.append(later(400.0 * n, source_errors={"n": os.urandom(50_000).hex()}))
        assert used(tmp_path) <= 2 * 1024 * 1024
    made.close()
    kept = [f.s for f in frames(tmp_path)]
    assert kept[-1] == 5000.0 + 400 * 39 and kept == sorted(kept) and 5 < len(kept) < 40


def test_what_is_too_large_for_the_cap_is_told_with_what_would_do(tmp_path: Path) -> None:
    made = writer(tmp_path, max_mib=1)
    with pytest.raises(
        EffectFailed, match=r"one picture of this box takes \d+ KiB; .*max_mib .* must be 2 at least"
    ):
        made.append(later(0, source_errors={"n": "x" * 300_000}))
    made.append(later(5))
    made.close()
    assert [f.s for f in frames(tmp_path)] == [5005.0]


def test_days_count_from_the_end_of_a_segment_and_not_by_a_clock_that_was_set(tmp_path: Path) -> None:
    day = 86_400.0
    made = writer(tmp_path, days=2)
    for n in (0, 1, 2, 3):
        made.append(later(n * day))
    made.append(later(3 * day + 1000, clock_s=900 * day))
    assert next(f.s for f in frames(tmp_path)) == 5000.0 + 1 * day, "a jump of the clock ages nothing"
    made.append(later(4 * day))
    made.close()
    assert [round((f.s - 5000) / day, 1) for f in frames(tmp_path)] == [2.0, 3.0, 3.0, 4.0]


def test_a_clock_that_was_wrong_when_the_machine_began_removes_nothing(tmp_path: Path) -> None:
    """It is years off until the time service sets it."""
    day = 86_400.0
    made = writer(tmp_path, days=2)
    made.append(later(0))
    made.close()
    for year, kept in ((400, 3), (-400, 5)):
        made = writer(tmp_path, days=2)
        made.append(later(10, clock_s=year * day))
        made.append(later(1000))
        made.close()
        assert len(frames(tmp_path)) == kept, "the first frame is kept, and so is everything of the wrong clock"


def test_a_box_that_was_off_for_long_forgets_what_is_old_with_its_second_segment(tmp_path: Path) -> None:
    day = 86_400.0
    for second in (0.0, 30 * day):
        made = writer(tmp_path, days=2)
        made.append(later(second))
        assert len(frames(tmp_path)) == (1 if second == 0 else 3)
        made.append(later(second + 1000))
        made.close()
    assert [round((f.s - 5000) / day) for f in frames(tmp_path)] == [30, 30]


def test_a_clock_that_goes_back_is_a_new_span_and_loses_nothing(tmp_path: Path) -> None:
    made = writer(tmp_path)
    for n, set_s in ((0, 0), (5, 0), (10, -7200), (15, -7200)):
        made.append(later(n, clock_s=set_s))
    made.close()
    spans = joined(i for _, i in HistoryFolder(tmp_path / "history").parts()).spans
    assert [(s.frames, s.why) for s in spans] == [(2, ""), (2, "clock set back by 7200 s")]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    need_netns()
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=640k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_stops_history_and_nothing_else(small_disk: Path) -> None:
    """The frame that found no room is cut off again; when there is room, recording goes on by itself."""
    made, n = writer(small_disk), 0
    with pytest.raises(EffectFailed, match="nothing is recorded: no space"):
        while n < 100:
            made.append(later(5.0 * n, source_errors={"n": os.urandom(20_000).hex()}))
            n += 1
    assert 3 < n < 100 and len(frames(small_disk)) == n
    with pytest.raises(EffectFailed, match="no space"):
        made.append(later(900))
    assert len(frames(small_disk)) == n and not damage(small_disk)
    (small_disk / "history" / "00000001.ndjson").unlink()
    made.append(later(905))
    made.close()
    assert [f.s for f in frames(small_disk)] == [5905.0]


def test_the_last_room_of_a_disk_is_for_operations(small_disk: Path) -> None:
    made = writer(small_disk, floor_bytes=512 * 1024)
    made.append(later(0))
    (small_disk / "other").write_bytes(b"x" * 64 * 1024)
    with pytest.raises(EffectFailed, match="operations need that"):
        made.append(later(5))
    made.close()


# the recorder


class Wall:
    """A clock of its own; the recorder's thread waits on events, not on it."""

    def __init__(self) -> None:
        self.s = 5000.0

    def monotonic_s(self) -> float:
        self.s += 0.01
        return self.s

    def utc(self) -> datetime:
        return worlds.NOW + timedelta(seconds=self.s - 5000)

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps")


def test_the_recorder_keeps_events_at_once_and_says_when_it_cannot(tmp_path: Path) -> None:
    clock = Wall()
    store = Store(worlds.calm(), clock)
    files = HistoryFiles(tmp_path / "history", "box", History(), lambda: str, floor_bytes=0)
    recorder = Recorder(store, files, clock)
    second = Recorder(
        store, HistoryFiles(tmp_path / "history", "box", History(), lambda: str, floor_bytes=0), clock
    )
    recorder.start()
    wait_until(lambda: len(frames(tmp_path)) == 1, "the first frame")
    second.start()
    wait_until(lambda: "another process records" in second.note, "the second says why it does not record")
    store.update(source_errors={"record": "is damaged"})
    wait_until(lambda: len(frames(tmp_path)) >= 2, "an event is written at once", 4.0)
    second.stop()
    recorder.stop()
    assert recorder.note == "" and "history" not in store.world.source_errors
    last = decode((f := frames(tmp_path)[-1]).tree, f.at, f.s)
    assert last.source_errors == {"record": "is damaged"}
    assert last.events[-1].text == "is damaged"


def test_a_recorder_whose_disk_is_full_says_so_in_the_world(tmp_path: Path) -> None:
    store = Store(worlds.calm(), Wall())
    files = HistoryFiles(tmp_path / "history", "box", History(), lambda: str, floor_bytes=2**62)
    recorder = Recorder(store, files, Wall())
    recorder.start()
    wait_until(lambda: store.world.source_errors.get("history"), "the source error")
    recorder.stop()
    assert "operations need that" in recorder.note
    assert any("history: " in p and "nothing is recorded" in p for p in store.world.problems)


# a file that somebody sent


def export(tmp_path: Path) -> Path:
    made = writer(tmp_path)
    for n in range(4):
        made.append(later(5.0 * n, source_errors={"n": f"{n} their-new-key-123"}))
    made.close()
    path = tmp_path / "sent.ndjson.gz"
    hide = lambda text: redact(text, ("their-new-key-123",))  # noqa: E731
    assert write_recording(path, Head("box"), lambda: frames(tmp_path), hide, Names()) == 4
    return path


def test_an_export_stands_for_itself_and_is_hidden_again(tmp_path: Path) -> None:
    path = export(tmp_path)
    sent = RecordingFile(path)
    found = [f for name, _ in sent.parts() for f in sent.frames(name)]
    assert [decode(f.tree, f.at, f.s).source_errors["n"] for f in found] == [f"{n} ***" for n in range(4)]
    assert path.stat().st_mode & 0o777 == 0o600 and sent.head.box == "box"
    assert b"their-new-key" not in gzip.decompress(path.read_bytes())
    with pytest.raises(EffectFailed, match="File exists"):
        write_recording(path, Head("box"), lambda: found, str, Names())
    with pytest.raises(NotFound, match="nothing is recorded in that time"):
        write_recording(tmp_path / "none", Head("box"), tuple, str, Names())


def test_two_segments_put_behind_each_other_are_one_recording(tmp_path: Path) -> None:
    path = export(tmp_path)
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, *lines[1:]]))
    assert [len(RecordingFile(path).frames(name)) for name, _ in RecordingFile(path).parts()] == [4, 4]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data, lines: b"", ":1: this is no recording of anvil-tui"),
        (lambda data, lines: b"\x89PNG\r\n", ":1: this is no recording of anvil-tui"),
        (lambda data, lines: data[:-40], "cannot be unpacked"),
        (lambda data, lines: data[:40] + b"\0\0\0\0" + data[44:], "cannot be unpacked"),
        (lambda data, lines: b"".join(lines)[:-9], ":5: the file is cut off here"),
        (lambda data, lines: b"".join([*lines[:3], b"{}\n", *lines[4:]]), ":4: this line is damaged"),
        (lambda data, lines: b"".join([lines[0], *lines[2:]]), ":2: it has no key frame"),
        (lambda data, lines: lines[0], ":2: it has no key frame"),
        (
            lambda data, lines: b"".join([lines[0].replace(b"history/1", b"history/7"), *lines[1:]]),
            "newer anvil-tui",
        ),
        (
            lambda data, lines: b"".join([lines[0], lines[1].replace(b'"kind":"lab"', b'"kind":7')]),
            ":2: it holds no",
        ),
    ],
)
def test_a_file_that_cannot_be_replayed_is_told_with_its_line(tmp_path: Path, spoil: object, said: str) -> None:
    path = export(tmp_path)
    data = path.read_bytes()
    lines = gzip.decompress(data).splitlines(keepends=True)
    path.write_bytes(spoil(data, lines))  # type: ignore[operator]
    with pytest.raises(BadFile) as told:
        RecordingFile(path)
    assert str(told.value).startswith(str(path)) and said in str(told.value)


def test_a_file_that_is_not_there_or_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(AnvilError, match="cannot be"):
            RecordingFile(path)


def test_a_pipe_without_a_writer_is_no_file_to_wait_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadFile, match="no regular file"):
        RecordingFile(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("bound", "most", "tail", "said"),
    [
        ("MOST_LINE", 4096, b" " * 5000, ":6: this line has more than"),
        ("MOST_LINES", 100, b"\n" * 5000, ":101: holds more than"),
        ("MOST_BYTES", 20_000, b"1234567\n" * 9999, "holds more than"),
    ],
    ids=["line", "lines", "bytes"],
)  # fmt: skip
def test_a_small_file_that_unpacks_to_a_huge_one_is_refused_at_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, tail: bytes, said: str
) -> None:
    """Lines too: a million empty ones take fifty times their bytes in memory."""
    path = export(tmp_path)
    data = gzip.decompress(path.read_bytes())
    whole = b"".join(line if len(line) < 4096 else b"{}\n" for line in data.splitlines(keepends=True))
    path.write_bytes(gzip.compress(whole + tail))
    monkeypatch.setattr(f"anvil_tui.adapters.history_files.{bound}", most)
    with pytest.raises(BadFile) as told:
        RecordingFile(path)
    assert said in str(told.value)


def test_frames_without_a_key_frame_between_them_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export(tmp_path)
    monkeypatch.setattr("anvil_tui.adapters.recordings.MOST_FRAMES", 3)
    with pytest.raises(BadFile, match=":2: more than 3 frames follow"):
        RecordingFile(path)


def test_a_change_with_a_member_called_key_is_no_key_frame(tmp_path: Path) -> None:
    """The copies of a credential have one: an export of the moment in which one changed was refused."""
    one, other = CopyState("~/.env", "LLM_KEY", "same"), CopyState("~/.env", "LLM_KEY", "other")
    made = writer(tmp_path)
    for n, copy in enumerate(((one,), (one, other), (other,))):
        state = CredentialState("c", "env:K", "accepted", copies=copy)
        made.append(replace(later(5.0 * n), gpus=worlds.calm().gpus, credentials=(state,)))
    made.close()
    path = tmp_path / "sent"
    write_recording(path, Head("box"), lambda: frames(tmp_path), str, Names())
    assert b'"d":{"credentials"' in (data := gzip.decompress(path.read_bytes())) and b'"key":"LLM_KEY"' in data
    assert [len(RecordingFile(path).frames(name)) for name, _ in RecordingFile(path).parts()] == [3]


def test_an_export_that_fails_leaves_no_file_behind(tmp_path: Path) -> None:
    export(tmp_path)
    given = iter([frames(tmp_path), None])

    def anew() -> Iterator[Frame]:
        yield from frames(tmp_path)
        if next(given) is None:
            raise NotFound("gone")

    with pytest.raises(NotFound, match="gone"):
        write_recording(tmp_path / "half", Head("box"), anew, str, Names())
    assert not (tmp_path / "half").exists()


def test_a_segment_that_is_packed_while_it_is_read_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export, or `0`, between the list of segments and the look into them."""
    made = writer(tmp_path)
    made.append(later(0, events=(Event("2026-09-02T11:54:00Z", "gpu", "hot"),)))
    made.append(later(5))
    listed = segments(tmp_path / "history")
    assert [s.packed for s in listed] == [False]
    made.append(later(2000))
    monkeypatch.setattr("anvil_tui.adapters.recordings.segments", lambda folder: listed)
    assert [f.s for f in frames(tmp_path)] == [later(0).now_s, later(5).now_s] and damage(tmp_path) == ""
    (tmp_path / "history" / "00000001.ndjson.gz").unlink()
    assert frames(tmp_path) == [] and damage(tmp_path) == "", "what was removed is not damaged"
    made.close()


def test_a_history_that_is_not_ours_to_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another person's, 0700: root may read it, so the refusal is the kernel's own in words."""

    def refused(folder: Path) -> list[object]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("anvil_tui.adapters.recordings.segments", refused)
    with pytest.raises(NotFound, match="history: cannot be read: Permission denied"):
        HistoryFolder(tmp_path / "history").parts()


def test_a_reader_takes_no_lock(tmp_path: Path) -> None:
    """A console that only looks does not stop the one that records."""
    made = writer(tmp_path)
    made.append(later(0))
    assert len(frames(tmp_path)) == 1
    with (tmp_path / "history" / "lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    made.append(later(5))
    made.close()
