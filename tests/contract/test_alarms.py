"""Alarms of a box: kept in `state/` by one process, told to a real command, and printed by a real `watch`."""

from __future__ import annotations

import errno
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters import alarm_file
from anvil_tui.adapters.alarm_file import AlarmFile
from anvil_tui.adapters.files import write_atomic
from anvil_tui.adapters.lease import FileLease
from anvil_tui.adapters.notify_command import CommandNotifier
from anvil_tui.cli.console import Deeds, Service
from anvil_tui.cli.wiring import open_box, open_probes
from anvil_tui.core.alarms import Alarm, acknowledge
from anvil_tui.core.box import Gpu, GpuSnapshot
from anvil_tui.core.errors import BadFile, EffectFailed
from anvil_tui.core.reading import Reading
from anvil_tui.core.world import World
from anvil_tui.service import alarm_keeper
from anvil_tui.service.alarm_keeper import WAITING, AlarmKeeper
from anvil_tui.service.store import Store
from tests.support import worlds
from tests.support.simbox import SimProcess
from tests.support.wait import wait_until

UUID = worlds.UUIDS[1]
LOST = f"gpu:{UUID}"


class Clock:
    """Goes on only when a test says so."""

    def __init__(self) -> None:
        self.s = 0.0

    def monotonic_s(self) -> float:
        return self.s

    def utc(self) -> datetime:
        return worlds.NOW + timedelta(seconds=self.s)

    def sleep(self, seconds: float) -> None:
        self.s += seconds


class Desk:
    """A workspace's folder, and consoles of it that read nothing: a test says what is lost."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.told = folder, Clock(), folder / "told"
        self.book = AlarmFile(folder / "state" / "alarms.json")
        self.keepers: list[AlarmKeeper] = []

    def script(self, text: str) -> tuple[str, ...]:
        path = self.folder / "notify.sh"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return ("./notify.sh", "--to", "ops")

    def console(self, argv: tuple[str, ...] = (), timeout_s: float = 20, start: bool = True) -> Store:
        """A console's store, with its keeper started."""
        store = Store(World(worlds.workspace(), False), self.clock)
        notifier = CommandNotifier(self.folder, argv, timeout_s) if argv else None
        right = FileLease(self.folder / "state" / "alarms.lease")
        keeper = AlarmKeeper(store, AlarmFile(self.folder / "state" / "alarms.json"), right, notifier, "console")
        self.keepers.append(keeper)
        self.read(store)
        if start:
            keeper.start()
        return store

    def read(self, store: Store) -> None:
        """What the probes do with the file."""
        store.update(kept_alarms=self.book.read())

    def show(self, store: Store, *lost: int) -> None:
        """One reading of three cards, of which these are lost."""
        cards = tuple(
            Gpu(n, UUID if n == 1 else f"GPU-{n}", state="lost" if n in lost else "ok", reason="Xid 79")
            for n in range(3)
        )
        store.update(gpus=Reading.known(GpuSnapshot("1", cards), self.clock.s, "nvml"))

    def end_all(self, store: Store) -> None:
        """No card is lost, for longer than the time to end."""
        self.show(store)
        self.clock.s += 61
        self.show(store)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.told.read_text().splitlines()] if self.told.exists() else []

    def told_of(self, count: int) -> list[tuple[str, str]]:
        wait_until(lambda: len(self.lines()) >= count, f"{count} told")
        return [(line["event"], line["alarm"]["id"]) for line in self.lines()]

    def open(self, *ids: str) -> None:
        wait_until(lambda: [a.id for a in self.book.read()] == list(ids), f"open are {ids}")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(alarm_keeper, "RETRY_S", 0.05)
    made = Desk(tmp_path)
    yield made
    for keeper in made.keepers:
        keeper.stop()


def error_of(store: Store) -> str:
    return store.world.source_errors.get("alarms.notify", "")


# the file


def alarm(name: str = LOST, by: str = "") -> Alarm:
    kind, _, target = name.partition(":")
    return Alarm(name, kind, target, "bad", "2026-09-02T11:00:00.000000Z", "a ünïcode text", by)


def test_what_is_kept_is_read_again_by_another_process(tmp_path: Path) -> None:
    book = AlarmFile(tmp_path / "state" / "alarms.json")
    assert book.read() == ()
    book.change(lambda kept: (*kept, alarm(), alarm("kv:x")))
    acked = acknowledge(alarm(), "ana", datetime(2026, 9, 2, 12, tzinfo=UTC))
    book.change(acked)
    found = AlarmFile(tmp_path / "state" / "alarms.json").read()
    assert {(a.id, a.acked_by, a.acked_at[:16]) for a in found} == {
        (LOST, "ana", "2026-09-02T12:00"), ("kv:x", "", ""),
    }  # fmt: skip
    assert (tmp_path / "state" / "alarms.json").stat().st_mode & 0o777 == 0o600


ROW = '"id": "gpu:x", "kind": "gpu", "target": "x", "severity": "bad", "text": "t"'
DAMAGED = (
    "", "{", "[]", '{"schema": "anvil.alarms/2"}', '{"schema": "anvil.alarms/1", "alarms": [{"id": 1}]}',
    f'{{"schema": "anvil.alarms/1", "alarms": [{{{ROW}, "since": "noon"}}]}}',
    f'{{"schema": "anvil.alarms/1", "alarms": [{{{ROW}, "since": "2026-09-02T11:00:00Z", "acked_at": "noon"}}]}}',
)  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_named_and_written_anew(desk: Desk, text: str) -> None:
    path = desk.folder / "state" / "alarms.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    with pytest.raises(BadFile, match=r"alarms\.json"):
        desk.book.read()
    store = Store(World(worlds.workspace(), False), desk.clock)
    keeper = AlarmKeeper(store, desk.book, FileLease(desk.folder / "state" / "lock"), None, "x")
    desk.keepers.append(keeper)
    keeper.start()
    wait_until(lambda: "alarms" not in store.world.source_errors and store.world.kept_alarms == (), "mended")
    desk.show(store, 1)
    desk.open(LOST)


def test_a_state_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(EffectFailed, match="state"):
        AlarmFile(tmp_path / "state" / "alarms.json").change(lambda kept: (alarm(),))


# the command


def test_the_command_gets_what_was_raised_and_what_ended(desk: Desk) -> None:
    argv = desk.script('[ "$1 $2" = "--to ops" ] || exit 9\ncat >> told\nenv > environment')
    store = desk.console(argv)
    desk.show(store, 1)
    assert desk.told_of(1) == [("raised", LOST)]
    (line,) = desk.lines()
    assert (line["schema"], line["box"]) == ("anvil.alarm/1", {"name": "fakoli-dark", "kind": "lab"})
    assert line["alarm"]["text"].startswith(f"GPU 1 compute-b ({UUID[:12]}) is lost")
    desk.end_all(store)
    assert desk.told_of(2)[1] == ("ended", LOST)
    desk.open()
    assert error_of(store) == ""


def test_the_command_has_a_built_environment(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANVIL_CLIENT_KEY", "never-to-be-seen")
    store = desk.console(desk.script("env > environment; cat >> told"))
    desk.show(store, 1)
    desk.told_of(1)
    names = {line.partition("=")[0] for line in (desk.folder / "environment").read_text().splitlines()}
    assert "PATH" in names and "ANVIL_CLIENT_KEY" not in names


BAD = {
    "exit 1": ("echo the pager is away >&2; exit 1", "ended with 1: the pager is away"),
    "killed": ("kill -9 $$", "ended with -9"),
    "hangs": ("trap '' TERM; exec sleep 60", "took longer than 1 s"),
    "ends output, not itself": ("exec >&- 2>&-; sleep 60", "took longer than 1 s"),
    "endless output": ("yes", "took longer than 1 s"),
    "reads nothing": ("exit 3", "ended with 3"),
}


@pytest.mark.parametrize("text", [t for t, _ in BAD.values()], ids=BAD)
def test_a_command_that_fails_is_a_source_error_and_blocks_nobody(desk: Desk, text: str) -> None:
    store = desk.console(desk.script(text), timeout_s=1)
    desk.show(store, 1)
    words = next(w for t, w in BAD.values() if t == text)
    why = wait_until(lambda: error_of(store), "an error")
    assert words in str(why) and len(str(why)) < 400
    assert "./notify.sh" in str(why)


def test_alarms_are_kept_while_the_command_takes_its_time(desk: Desk) -> None:
    store = desk.console(desk.script("while [ ! -e go ]; do sleep 0.05; done; cat >> told"))
    desk.show(store, 1)
    desk.open(LOST)
    desk.show(store, 1, 2)
    desk.open(LOST, "gpu:GPU-2")
    assert desk.lines() == []
    (desk.folder / "go").touch()
    assert desk.told_of(2) == [("raised", LOST), ("raised", "gpu:GPU-2")]


def test_a_program_that_is_not_there_is_named_and_a_success_clears_it(desk: Desk) -> None:
    store = desk.console(("./notify.sh",))
    desk.show(store, 1)
    assert "./notify.sh" in str(wait_until(lambda: error_of(store), "an error"))
    desk.script("cat >> told")
    desk.show(store, 1, 2)
    wait_until(lambda: desk.lines() and not error_of(store), "told, and no error")


def test_what_waits_is_bounded_and_what_was_lost_is_said(tmp_path: Path) -> None:
    gate, said, sent = threading.Event(), list[str](), list[int]()

    class Slow:
        def send(self, told: Any, cancelled: Callable[[], bool]) -> str:
            gate.wait(10)
            sent.append(told["n"])
            return ""

    caller = alarm_keeper.Caller(Slow(), said.append)
    caller.start()
    for n in range(WAITING + 5):
        caller.put({"n": n})
    gate.set()
    wait_until(lambda: sent and sent[-1] == WAITING + 4, "the newest is told")
    caller.stop()
    assert len(sent) <= WAITING + 1 and sent == sorted(sent)
    assert "were not told" in said[-1]


def test_a_folder_of_temporary_files_that_is_full_ends_no_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next alarm is told when there is room again."""
    said, folder = list[str](), tmp_path / "told"
    caller = alarm_keeper.Caller(CommandNotifier(tmp_path, ("sh", "-c", "cat >> told"), 20), said.append)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    caller.start()
    caller.put({"n": 1})
    wait_until(lambda: said, "an error is said")
    monkeypatch.setattr(tempfile, "tempdir", None)
    caller.put({"n": 2})
    wait_until(lambda: folder.exists() and folder.read_text() == '{"n": 2}\n', "the next one is told")
    caller.stop()
    assert str(tmp_path / "none") in said[0] and said[-1] == ""


def test_a_full_disk_keeps_nobody_from_being_told_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    full = threading.Event()

    def write(path: Path, text: str) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        write_atomic(path, text)

    monkeypatch.setattr(alarm_file, "write_atomic", write)
    store = desk.console(desk.script("cat >> told"))
    full.set()
    desk.show(store, 1)
    assert desk.told_of(1) == [("raised", LOST)]
    wait_until(lambda: "No space left" in store.world.source_errors.get("alarms", ""), "and it is said")
    for _ in range(3):
        desk.read(store)
        desk.show(store, 1)
    desk.show(store, 1, 2)
    assert desk.told_of(2) == [("raised", LOST), ("raised", "gpu:GPU-2")]
    full.clear()
    desk.show(store, 1, 2)
    desk.open(LOST, "gpu:GPU-2")
    desk.end_all(store)
    assert sorted(desk.told_of(4)[2:]) == [("ended", "gpu:GPU-2"), ("ended", LOST)]
    wait_until(lambda: "alarms" not in store.world.source_errors, "no error any more")


def test_a_warning_that_turns_bad_is_told_again(desk: Desk) -> None:
    store = desk.console(desk.script("cat >> told"))
    for xid, count in ((0, 0), (31, 1), (31, 2), (79, 3), (45, 4)):
        card = Gpu(1, UUID, xid=xid, xids=count)
        store.update(gpus=Reading.known(GpuSnapshot("1", (card,)), desk.clock.s, "nvml"))
        grades = [count - 1] if count else []
        wait_until(lambda want=grades: [a.grade for a in desk.book.read()] == want, f"Xid {xid} is kept")  # type: ignore[misc]
    desk.told_of(2)
    assert [line["alarm"]["severity"] for line in desk.lines()] == ["warn", "bad"]
    assert {line["alarm"]["since"] for line in desk.lines()} == {desk.book.read()[0].since}


def test_a_user_id_without_a_name_keeps_alarms_and_tells_of_them(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of `docker run --user 4242`."""

    def nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    store = desk.console(desk.script("cat >> told"))
    desk.show(store, 1)
    assert desk.told_of(1) == [("raised", LOST)]
    holder = FileLease(desk.folder / "state" / "alarms.lease").holder()
    assert holder is not None and holder.user == f"uid {os.getuid()}"
    assert "alarms" not in store.world.source_errors


# two processes of one box


def test_only_one_of_two_tells_and_the_other_takes_over_what_was_open(desk: Desk) -> None:
    argv = desk.script("cat >> told")
    first, second = desk.console(argv), desk.console(argv)
    for store in (first, second):
        desk.show(store, 1)
    assert desk.told_of(1) == [("raised", LOST)]
    desk.keepers[0].stop()
    desk.show(second, 1, 2)
    assert desk.told_of(2) == [("raised", LOST), ("raised", "gpu:GPU-2")]
    for store in (second,):
        desk.end_all(store)
    assert sorted(desk.told_of(4)[2:]) == [("ended", "gpu:GPU-2"), ("ended", LOST)]


def test_a_watcher_that_was_started_again_calls_nobody_twice(desk: Desk) -> None:
    argv = desk.script("cat >> told")
    store = desk.console(argv)
    desk.show(store, 1)
    since = wait_until(desk.book.read, "kept")[0].since
    desk.told_of(1)
    desk.keepers[0].stop()
    desk.clock.s += 30
    again = desk.console(argv)
    desk.show(again, 1)
    desk.show(again, 1, 2)
    assert desk.told_of(2) == [("raised", LOST), ("raised", "gpu:GPU-2")]
    assert desk.book.read()[0].since == since


def test_an_acknowledgement_is_seen_by_every_console_and_ends_with_its_alarm(desk: Desk) -> None:
    argv = desk.script("cat >> told")
    here, there = desk.console(argv), desk.console()
    for store in (here, there):
        desk.show(store, 1)
    desk.open(LOST)
    desk.clock.s += 5
    desk.book.change(acknowledge(here.world.alarms[0], "ana", desk.clock.utc()))
    for store in (here, there):
        desk.read(store)
        assert [a.acked_by for a in store.world.alarms] == ["ana"]
    desk.clock.s += 1
    desk.show(here, 1, 2)
    desk.open(LOST, "gpu:GPU-2")
    assert [a.acked_by for a in desk.book.read()] == ["ana", ""], "the keeper does not forget who"
    for store in (here, there):
        desk.end_all(store)
    desk.open()
    desk.read(there)
    desk.show(there, 1)
    assert [a.acked_by for a in there.world.alarms] == [""], "what comes back is new"


def test_an_acknowledged_alarm_that_grows_worse_is_told_again(desk: Desk) -> None:
    store = desk.console(desk.script("cat >> told"))

    def errors(count: int) -> None:
        card = Gpu(1, UUID, ecc_uncorrected=count)
        store.update(gpus=Reading.known(GpuSnapshot("1", (card,)), desk.clock.s, "nvml"))

    errors(1)
    desk.told_of(1)
    desk.book.change(acknowledge(store.world.alarms[0], "ana", desk.clock.utc()))
    desk.read(store)
    desk.clock.s += 61
    errors(2)
    assert desk.told_of(2) == [("raised", f"ecc:{UUID}")] * 2
    wait_until(lambda: desk.book.read()[0].acked_by == "", "open again")


# the real thing


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimProcess]:
    made = SimProcess(tmp_path_factory.mktemp("watched"))
    toml = made.folder / "anvil.toml"
    hook = made.folder / "notify.sh"
    hook.write_text(f"#!/bin/sh\ncat >> {made.folder}/told\n")
    hook.chmod(0o755)
    toml.write_text(toml.read_text() + '\n[alarms]\nhold_s = 1\nclear_s = 1\nnotify = ["./notify.sh"]\n')
    yield made
    made.end()


class Watch:
    """A real `watch`; `rows` is what it printed so far."""

    def __init__(self, folder: Path, *words: str, flags: tuple[str, ...] = ()) -> None:
        argv = [sys.executable, "-m", "anvil_tui", "--workspace", str(folder), *flags, "watch", *words]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.printed: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed.append(line.rstrip("\n"))

    def alarms(self) -> set[tuple[str, str]]:
        rows = [json.loads(line) for line in tuple(self.printed)]
        return {(r["event"], r["alarm"]["kind"]) for r in rows if r["type"] == "alarm"}

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        assert self.process.stderr is not None
        self.process.send_signal(number)
        code = self.process.wait(15)
        self._reader.join(5)
        return code, self.process.stderr.read()


@contextmanager
def watching(folder: Path, *words: str, flags: tuple[str, ...] = ()) -> Iterator[Watch]:
    made = Watch(folder, *words, flags=flags)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait(10)


@contextmanager
def asking(port: int, count: int) -> Iterator[None]:
    """So many requests that nobody reads the answers of."""
    body = json.dumps({"model": worlds.recipes()[worlds.INCUMBENT].served_name, "stream": True, "max_tokens": 4000,
                       "messages": [{"role": "user", "content": "tell"}]})  # fmt: skip
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"  # noqa: E501
    links = []
    for _ in range(count):
        link = socket.create_connection(("127.0.0.1", port), 5)
        link.sendall((head + body).encode())
        links.append(link)
    try:
        yield
    finally:
        for link in links:
            link.close()


def test_watch_prints_the_faults_of_a_box_tells_of_them_and_ends_at_sigterm(box: SimProcess, run: Any) -> None:
    port = box.record.serves[box.incumbent].port
    box.fault("engine_wedged")  # so that requests stay and wait: sixteen run at once
    box.fault("kv_usage", value=0.99)
    with watching(box.folder, "--json") as watch, asking(port, 20):
        wanted = {("raised", "kv"), ("raised", "unreachable")}
        wait_until(lambda: wanted <= watch.alarms(), "kv, and the gateway that is not there", 30)
        box.fault("engine_dead")
        box.fault("gpu_lost", gpu=1, engine="stays")
        wanted = {("raised", "wedged"), ("raised", "gpu")}
        wait_until(lambda: wanted <= watch.alarms(), "a dead core behind an API that answers, and a GPU", 30)
        box.clear()
        wait_until(lambda: ("ended", "gpu") in watch.alarms(), "the GPU is back", 30)
        listed = json.loads(run("alarms", "--json"))
        assert listed["watcher"]["pid"] == watch.process.pid
        assert "unreachable:gateway" in [a["id"] for a in listed["alarms"]]
        assert json.loads(run("alarms", "ack", "unreachable", "--json"))["acked_by"]
        wait_until(lambda: ("acknowledged", "unreachable") in watch.alarms(), "the acknowledgement")
        assert watch.end() == (0, "")
    first = json.loads(watch.printed[0])
    assert (first["type"], first["schema"], first["box"]) == ("watch", "anvil.watch/1", box.workspace.box.name)
    assert list((box.folder / "state" / "history").glob("*.ndjson*")), "it records, as a console does"
    told = [json.loads(line) for line in (box.folder / "told").read_text().splitlines()]
    kinds = [(t["event"], t["alarm"]["kind"]) for t in told]
    assert {("raised", "gpu"), ("ended", "gpu"), ("raised", "kv")} <= set(kinds)
    assert kinds.count(("raised", "gpu")) == 1


def test_read_only_watch_prints_lines_for_people_tells_nobody_and_keeps_nothing(box: SimProcess) -> None:
    box.clear()
    book, told = AlarmFile(box.folder / "state" / "alarms.json"), box.folder / "told"
    before = (book.read(), told.exists() and told.read_text())
    with watching(box.folder, flags=("--read-only",)) as watch:
        wait_until(lambda: any("ready" in line for line in watch.printed), "the serve", 30)
        box.fault("gpu_lost", gpu=0, engine="stays")
        wait_until(lambda: any("ALARM: raised: bad gpu: GPU 0" in line for line in watch.printed), "a line", 30)
        box.clear()
        assert watch.end(signal.SIGINT) == (0, "")
    assert watch.printed[0] == f"watching {box.workspace.box.name} ({box.workspace.box.kind}), read-only"
    assert all(" UTC " in line for line in watch.printed[1:])
    assert (book.read(), told.exists() and told.read_text()) == before


def test_watch_ends_although_nobody_reads_what_it_prints(box: SimProcess) -> None:
    """The pipe is full: SIGTERM breaks off the write."""
    argv = [sys.executable, "-c", FULL, "--workspace", str(box.folder), "--read-only", "watch", "--json"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == b"full\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.communicate()


FULL = r"""
import os, sys, threading, time
os.set_blocking(1, False)
try:
    while True:
        os.write(1, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(1, True)
main_thread = threading.get_ident()
def prints():
    return sys._current_frames()[main_thread].f_code.co_name == "_print"
def tell():
    while not all((time.sleep(0.02), prints())[1] for _ in range(10)):
        pass
    os.write(2, b"full\n")
threading.Thread(target=tell, daemon=True).start()
from anvil_tui.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_console_acknowledges_for_every_console_and_a_read_only_one_keeps_nothing(box: SimProcess) -> None:
    opened = open_box(box.folder)
    book = AlarmFile(box.folder / "state" / "alarms.json")
    book.change(lambda kept: (alarm(),))
    here, there = (open_probes(opened, read_only=only) for only in (False, True))
    try:
        for probes in (here, there):
            probes.store.update(kept_alarms=book.read())
        Deeds(opened, here.store).acknowledge(here.store.world.alarms[0])
        assert here.store.world.alarms[0].acked_by, "seen at once where the key was pressed"
        there.store.update(kept_alarms=book.read())
        assert there.store.world.alarms[0].acked_by == here.store.world.alarms[0].acked_by
        assert Service(opened, there, None).deeds is None
        assert FileLease(box.folder / "state" / "alarms.lease").holder() is None
    finally:
        opened.gpus.close()
        book.change(lambda kept: ())


def test_alarms_on_the_command_line(box: SimProcess, run: Any) -> None:
    book = AlarmFile(box.folder / "state" / "alarms.json")
    book.change(lambda kept: (alarm(), replace(alarm("gpu:GPU-2"), since="2026-09-02T12:00:00.000000Z")))
    out = run("alarms", "list")
    assert out.index("gpu:GPU-2") < out.index(LOST), "the newest first"
    assert "read-only" in run("--read-only", "alarms", "ack", LOST, want=3)
    assert f"more than one alarm; there are: gpu:GPU-2, {LOST}" in run("alarms", "ack", "gpu", want=2)
    assert "kv:x is no alarm" in run("alarms", "ack", "kv:x", want=2)
    done = json.loads(run("alarms", "ack", LOST, "--json"))
    assert (done["id"], bool(done["acked_by"]), bool(done["acked_at"])) == (LOST, True, True)
    assert [a.id for a in book.read() if a.acked_by] == [LOST]
    told = json.loads(run("status", "--json"))
    assert told["watcher"] is None and {LOST, "gpu:GPU-2"} <= {a["id"] for a in told["alarms"]}
    book.change(lambda kept: ())
    assert "no alarm is open" in run("alarms")
