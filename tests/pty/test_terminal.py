"""The console on a real pseudo-terminal: signals, hang-ups, stalls, sizes, terminals that cannot draw."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pty.conftest import READY, Start, arguments, environment
from tests.pty.terminal_process import ROOT


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_within_two_seconds_and_the_terminal_is_whole(
    number: int, code: int, start: Start
) -> None:
    """O-99"""
    process = start()
    process.until(READY)
    process.kill(number)
    assert process.wait(2)[0] == code
    assert process.sane() == dict.fromkeys(process.sane(), True)


# What lies over the panes when the end comes: each key, and the words by which it has come about.
OPEN = {
    "plan": ((b"b", b"to confirm"),), "help": ((b"?", b"What every key does"),),
    "palette": ((b":", b"Commands and things"),),
    "replay": ((b"0", b"GPU 1 is lost"), (b"\r", b"REPLAY")),
}  # fmt: skip


@pytest.mark.parametrize("end", ["SIGTERM", "SIGHUP", "crash"])
@pytest.mark.parametrize("opened", OPEN)
def test_the_terminal_is_whole_whatever_was_open(opened: str, end: str, start: Start, tmp_path: Path) -> None:
    """O-99: with the mouse taken, too."""
    process = start("calm", 4, "crash", "mouse", "past", size=(120, 40))
    process.until(READY)
    for key, words in OPEN[opened]:
        process.press(key)
        process.until(words)
    if end == "crash":
        (tmp_path / "NOW").touch()
    else:
        process.kill(getattr(signal, end))
    assert process.wait(5)[0] == {"SIGTERM": 143, "SIGHUP": 129, "crash": 1}[end]
    assert process.sane() == dict.fromkeys(process.sane(), True)
    assert len(list(tmp_path.glob("crash-*.txt"))) == (end == "crash")


def test_a_thread_that_does_not_let_go_is_not_waited_for(start: Start) -> None:
    process = start("calm", 4, "slow-exit")
    process.until(READY)
    process.kill(signal.SIGTERM)
    assert process.wait(2)[0] == 143
    assert all(process.sane().values())


def test_a_vanished_terminal_ends_it(start: Start) -> None:
    process = start()
    process.until(READY)
    process.hang_up()
    assert process.wait(2, read=False)[0] == 129


def test_a_vanished_terminal_ends_it_even_when_the_hang_up_is_ignored(start: Start) -> None:
    """Textualize/textual#6690, nohup, a supervisor that blocks SIGHUP: without a look the input thread spins."""
    process = start(ignore_hup=True)
    process.until(READY)
    process.hang_up()
    assert process.wait(2, read=False)[0] == 129


def test_a_terminal_that_stops_reading_blocks_nothing(start: Start, tmp_path: Path) -> None:
    """Nobody reads while every pane changes 50 times a second: the loop ticks on, and SIGTERM still ends it.

    Without the look at the backlog the loop stands still after some thirty writes.
    """
    process = start("calm", 50, "fast", size=(200, 60))
    process.until(READY)
    process.read(0.5)
    ticks = tmp_path / "TICKS"
    before = ticks.stat().st_size
    end = time.monotonic() + 4
    while time.monotonic() < end and process.alive():
        select_nothing()
    during = ticks.stat().st_size - before
    end = time.monotonic() + 1
    while time.monotonic() < end:
        select_nothing()
    late = ticks.stat().st_size - before - during
    # 200 and 50 on an idle machine; a blocked loop makes some thirty and then none
    assert during >= 60 and late >= 15, (during, late)
    process.kill(signal.SIGTERM)
    assert process.wait(2, read=False)[0] == 143


def test_after_a_stall_it_goes_on(start: Start) -> None:
    process = start("calm", 20, size=(120, 40))
    process.until(READY)
    process.read(0.3)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        select_nothing()
    process.read(0.5)
    process.out.clear()
    process.press(b"?")
    process.until(b"What every key does")
    process.press(b"\x1b")
    process.read(0.5)
    process.press(b"q")
    assert process.wait(2)[0] == 0


def select_nothing() -> None:
    """Let time pass without reading: the pipe stays full, and the process is looked at now and then."""
    time.sleep(0.05)


def test_a_storm_of_sizes(start: Start) -> None:
    process = start("promoting", 4)
    process.until(READY)
    for i in range(60):
        process.resize(20 + i * 3, 3 + i)
        process.read(0.01)
    process.resize(120, 40)
    process.out.clear()
    process.until(b"Operations and events")
    process.press(b"q")
    process.until(b"[ Quit ]")
    process.press(b"\t")
    process.read(0.3)
    process.press(b"\r")
    assert process.wait(3)[0] == 0
    assert all(process.sane().values())


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (40, 12)])
def test_sixteen_gpus(size: tuple[int, int], start: Start) -> None:
    """O-13: drawn at each size, little CPU at one world a second, `q` ends it within a second."""
    process = start("many_gpus", 1, size=size)
    process.until(b"compute-a")
    process.read(1)
    before, began = process.cpu_s(), time.monotonic()
    process.read(4)
    share = (process.cpu_s() - before) / (time.monotonic() - began)
    assert share < 0.2, f"{share:.1%} of a core"
    process.press(b"q")
    code, took = process.wait(2)
    assert (code, took < 1) == (0, True)


@pytest.mark.parametrize("size", [(20, 5), (10, 3), (1, 1)])
def test_a_terminal_too_small_is_no_exception(size: tuple[int, int], start: Start) -> None:
    process = start(size=size)
    process.read(1.5)
    assert process.alive()
    process.press(b"q")
    assert process.wait(2)[0] == 0


@pytest.mark.parametrize(
    "env",
    [{"LANG": "C", "TERM": "linux"}, {"LC_ALL": "POSIX", "TERM": "vt100"}, {"LC_ALL": "POSIX", "TERM": "xterm"}],
)
def test_without_unicode_only_ascii_is_written(env: dict[str, str], start: Start) -> None:
    """O-97"""
    process = start("promoting", 4, size=(120, 40), **env)
    process.until(READY)
    process.until(b"run the gates of suite promotion")
    process.press(b"?")
    process.until(b"What every key does")
    odd = re.sub(rb"[\x20-\x7e\r\n\t\x08\x0e\x0f]", b"", process.words)
    assert odd == b""
    assert b"#" in process.words


def test_no_color_writes_no_colour(start: Start) -> None:
    process = start("degraded", 4, size=(120, 40), NO_COLOR="1", COLORTERM="truecolor")
    process.until(b"LOST")
    process.press(b"b?")
    process.read(1)
    codes = {c for s in re.findall(rb"\x1b\[([0-9;]*)m", bytes(process.out)) for c in s.split(b";")}
    assert not [
        c for c in codes if c.isdigit() and (30 <= int(c) <= 38 or 40 <= int(c) <= 48 or 90 <= int(c) <= 107)
    ]


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_is_refused_in_a_sentence(term: str, start: Start) -> None:
    process = start(TERM=term)
    assert process.wait(5)[0] == 2
    assert b"\x1b" not in process.out
    assert b"cannot draw; use `anvil-tui status --json`" in process.out
    assert process.out.count(b"\n") == 1


@pytest.mark.parametrize("streams", ["all", "stdin", "stderr"])
def test_no_terminal_is_refused_and_no_escape_byte_reaches_a_file(streams: str, tmp_path: Path) -> None:
    """O-108"""
    out, err = tmp_path / "out", tmp_path / "err"
    master, slave = os.openpty()
    try:
        with out.open("wb") as to_out, err.open("wb") as to_err, Path("/dev/null").open("rb") as null:
            began = time.monotonic()
            done = subprocess.run(
                [sys.executable, *arguments(tmp_path)],
                cwd=ROOT,
                env=environment(tmp_path),
                stdin=slave if streams == "stderr" else null,
                stdout=to_out if streams == "all" else slave,
                stderr=slave if streams == "stdin" else to_err,
                timeout=10,
                check=False,
            )
            took = time.monotonic() - began
        os.set_blocking(master, False)
        shown = b"" if streams == "all" else read_all(master)
    finally:
        os.close(master)
        os.close(slave)
    written = out.read_bytes() + err.read_bytes() + shown
    assert done.returncode == 2
    assert b"\x1b" not in written
    assert written.strip() == b"anvil-tui: input or output is not a terminal; use `anvil-tui status --json`"
    assert took < 3


def read_all(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except BlockingIOError:
        return b""


def test_a_crash_restores_the_terminal_and_names_its_trace(start: Start, tmp_path: Path) -> None:
    """O-99: no local variable on the screen or in the file."""
    process = start("calm", 4, "crash")
    process.until(READY)
    (tmp_path / "NOW").touch()
    assert process.wait(5)[0] == 1
    assert all(process.sane().values())
    (trace,) = tmp_path.glob("crash-*.txt")
    assert trace.name.encode() in process.words
    assert trace.stat().st_mode & 0o777 == 0o600
    assert "the pump broke" in trace.read_text()
    assert "only-in-a-local" not in trace.read_text()
    assert b"only-in-a-local" not in process.out and b"Traceback" not in process.out
