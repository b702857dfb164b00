"""Bytes between console and terminal: OSC 52 in its forms, mouse modes, suspending under a shell, resizing."""

from __future__ import annotations

import base64
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pty.conftest import READY, Start, arguments, environment
from tests.pty.terminal_process import TerminalProcess
from tests.support import worlds

ID = worlds.cid(worlds.CANDIDATE)
BARE = re.compile(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07")
IN_TMUX = re.compile(rb"\x1bPtmux;\x1b\x1b\]52;c;([A-Za-z0-9+/=]*)\x07\x1b\\")


def copied(process: TerminalProcess, keys: bytes, until: bytes) -> bytes:
    process.until(READY)
    process.press(keys)
    process.until(until)
    return bytes(process.out)


def test_outside_tmux_the_sequence_is_bare(start: Start) -> None:
    """Report 10."""
    out = copied(
        start(size=(120, 40)), b"y", b"sent to the terminal's clipboard, if it takes that: " + ID[:12].encode()
    )
    assert [base64.b64decode(x).decode() for x in BARE.findall(out)] == [ID]
    assert b"\x1bPtmux;" not in out


def test_in_tmux_it_is_wrapped_and_what_tmux_needs_is_said(start: Start) -> None:
    """Report 10."""
    out = copied(start(size=(200, 60), TMUX="/tmp/tmux-0/default,1,0"), b"y", b"allow-passthrough on")
    assert [base64.b64decode(x).decode() for x in IN_TMUX.findall(out)] == [ID]
    assert BARE.findall(IN_TMUX.sub(b"", out)) == []


@pytest.mark.parametrize("tmux", ["", "/tmp/tmux-0/default,1,0"])
def test_a_hundred_kilobytes_are_not_sent_and_lie_in_a_file(tmux: str, start: Start, tmp_path: Path) -> None:
    """Report 10: the whole log, 1000 lines of 100 bytes."""
    process = start("calm", 0, "long-log", size=(120, 40), **({"TMUX": tmux} if tmux else {}))
    process.until(READY)
    process.press(b"5")
    process.until(b"pause log")
    out = copied(process, b"y", b"not sent, 100,999 bytes are more than the 74,994 that terminals take")
    assert b"]52;" not in out
    (path,) = tmp_path.glob("copied.txt")
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert len(text) == 100_999 and text.startswith("line 0000 ") and "line 0999 " in text


@pytest.mark.parametrize("wanted", [True, False])
def test_the_mouse_is_asked_for_only_when_it_is_wanted(wanted: bool, start: Start) -> None:
    process = start("calm", 0, *(["mouse"] if wanted else []))
    process.until(READY)
    assert (b"\x1b[?1003h" in process.out) is wanted
    process.press(b"q")
    assert process.wait(3)[0] == 0
    assert process.sane()["mouse off"]


def test_without_a_shell_it_is_not_suspended(start: Start) -> None:
    """As the first process of its session, like `ssh -t HOST anvil-tui`: stopped it would stay so for ever."""
    process = start()
    process.until(READY)
    process.press(b"\x1a")
    process.until(b"suspend: no shell would take this console up again")
    process.press(b"q")
    assert process.wait(3)[0] == 0


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[TerminalProcess]:
    run = "import os; os.execvp('bash', ['bash', '--norc', '--noprofile', '-i'])"
    process = TerminalProcess(["-c", run], environment(tmp_path, PS1="READY> "), (120, 40))
    yield process
    process.end()


def test_suspended_under_a_shell_it_comes_back_whole(shell: TerminalProcess, tmp_path: Path) -> None:
    """ctrl+z gives the shell its terminal, `fg` draws every pane again without a resize."""
    shell.until(b"READY> ")
    shell.press(shlex.join([sys.executable, *arguments(tmp_path, "calm", 0)]).encode() + b"\r")
    shell.until(READY)
    shell.press(b"\x1a")
    shell.until(b"Stopped")
    assert shell.sane()["alternate screen left"] and shell.sane()["cursor shown"]
    shell.out.clear()
    shell.press(b"echo still-$((40+2))\r")
    shell.until(b"still-42")
    shell.out.clear()
    shell.press(b"fg\r")
    for pane in (READY, b"Serves", b"KV capacity", b"Operations and events", b"? help"):
        shell.until(pane)
    shell.out.clear()
    shell.press(b"q")
    shell.until(b"READY> ")
    shell.press(b"echo code-$?\r")
    shell.until(b"code-0")
    assert shell.sane()["alternate screen left"] and shell.sane()["cursor shown"]


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("HUP", 129)])
def test_ended_while_it_is_suspended(name: str, code: int, shell: TerminalProcess, tmp_path: Path) -> None:
    """O-99: the signal waits until the shell lets it go on, and the shell has a whole terminal then."""
    shell.until(b"READY> ")
    shell.press(shlex.join([sys.executable, *arguments(tmp_path, "calm", 0, "mouse")]).encode() + b"\r")
    shell.until(READY)
    shell.press(b"\x1a")
    shell.until(b"Stopped")
    shell.press(f"kill -{name} %1; fg; echo code-$?\r".encode())
    shell.until(f"code-{code}".encode())
    sane = shell.sane()  # the shell's own line editor has the rest
    assert sane["alternate screen left"] and sane["cursor shown"] and sane["mouse off"]


def test_resized_during_a_refresh_and_a_dialog(start: Start) -> None:
    process = start("promoting", 10, size=(120, 40))
    process.until(READY)
    for size, shown in (((40, 10), b"Health"), ((200, 60), b"Operations and events")):
        process.out.clear()
        process.resize(*size)
        process.until(shown)
    process.press(b"?")
    process.until(b"What every key does")
    for size in ((40, 10), (200, 60), (120, 40)):
        process.out.clear()
        process.resize(*size)
        process.until(b"Help")
    process.press(b"\r")
    for _ in range(100):  # until the dialog is gone, keys go to it
        process.press(b"q")
        process.read(0.1)
        if b"goes on without" in process.words:
            break
    assert b"goes on without" in process.words and process.alive()
