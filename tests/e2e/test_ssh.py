"""The console through sshd and tmux: a laptop, a connection that is slow, stands still or breaks, and a box.

The laptop is a terminal of its own; what it runs is `ssh -tt` through a link on loopback.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.journal_file import OperationFolders
from tests.e2e.test_terminal import confirmed
from tests.support.link import Link, link
from tests.support.sshd import Sshd
from tests.support.tmux import Terminal, anvil
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e

WAY_S = 0.075
"""Each way, of a round trip of 150 ms."""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("ssh") / "box"
    argv = anvil("demo", "--serve", "--dir", str(folder), "--scale", "150")
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline().startswith("workspace")
    yield folder
    process.terminate()
    assert process.wait(60) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    made = Sshd(tmp_path_factory.mktemp("sshd"))
    made.trust()
    yield made
    made.close()


class Laptop:
    """Terminals that reach the box through one link; each `open` is a new connection in a window of its own."""

    def __init__(self, folder: Path, server: Sshd, wire: Link, box: Path) -> None:
        self.folder, self.server, self.wire, self.box = folder, server, wire, box
        self.tmux = folder / "inner"
        self.windows: list[Terminal] = []

    def open(self, command: str, columns: int = 120, lines: int = 40, term: str = "screen-256color") -> Terminal:
        window = Terminal(self.folder / f"t{len(self.windows)}")
        self.windows.append(window)
        ssh = [str(self.server.dir / "bin" / "ssh"), "-p", str(self.wire.port), "-tt", "mini"]
        window.open(["env", f"TERM={term}", *ssh, shlex.quote(command)], columns, lines)
        return window

    def console(self, *options: str) -> str:
        """The command that a person types on the box."""
        return shlex.join([*anvil_there("--workspace", str(self.box), *options)])

    def in_tmux(self, locale: str = "LANG=C.UTF-8") -> str:
        """The same in a tmux of the box: attached to when it is there already."""
        return f"{locale} tmux -S {self.tmux} -f /dev/null new-session -A -s w {shlex.quote(self.console())}"

    def consoles(self) -> list[psutil.Process]:
        """The consoles that live on the box."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if str(self.box) in line and "--workspace" in line and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        return [p for p in found if any(w.endswith("anvil-tui") for w in p.cmdline())]

    def close(self) -> None:
        for window in self.windows:
            window.vanish()
        Terminal(self.tmux).vanish()


def anvil_there(*words: str) -> list[str]:
    """As `anvil` has it, with the terminal that ssh brought along."""
    return [w for w in anvil(*words) if not w.startswith("TERM=")]


@pytest.fixture(params=[0.0])
def laptop(request: pytest.FixtureRequest, box: Path, server: Sshd) -> Iterator[Laptop]:
    with tempfile.TemporaryDirectory(prefix="av", dir="/tmp") as folder, link(server.port, request.param) as wire:
        made = Laptop(Path(folder), server, wire, box)
        yield made
        made.close()
        wait_until(lambda: not made.consoles(), "no console is left")


slow = pytest.mark.parametrize("laptop", [WAY_S], indirect=True, ids=["150 ms"])


def test_start_work_detach_and_come_back_to_a_smaller_window(laptop: Laptop) -> None:
    first = laptop.open(laptop.in_tmux())
    first.wait("● serving", "lease free")
    first.keys("2")
    first.wait("Recipes 12")
    first.keys("C-b", "d")
    first.wait("EXIT=0")
    assert len(laptop.consoles()) == 1
    second = laptop.open(laptop.in_tmux(), 80, 24)
    second.wait("Recipes 12", "? help")
    assert len(laptop.consoles()) == 1
    second.keys("q")
    second.wait("EXIT=0")


def test_in_a_tmux_without_a_locale_it_draws_with_ascii(laptop: Laptop) -> None:
    """ssh brings no locale along unless it is told to, and tmux then has `_` for every other character."""
    window = laptop.open(laptop.in_tmux(locale=""))
    shown = window.wait("+ serving", "lease free", "? help")
    assert shown.isascii() and " _ " not in shown
    window.keys("q")
    window.wait("EXIT=0")


def test_a_dropped_connection_ends_the_console_and_not_the_promotion(laptop: Laptop) -> None:
    operations = OperationFolders(laptop.box / "state" / "operations")
    had = len(operations.views())
    window = laptop.open(laptop.console())
    window.wait("● serving", "lease free")
    confirmed(window, "p", "393", "Enter")
    wait_until(lambda: len(operations.views()) > had, "the promotion is begun")
    laptop.wire.cut()
    wait_until(lambda: not laptop.consoles(), "the console has ended", 20)
    wait_until(lambda: operations.views()[-1].outcome, "the promotion ends by itself", 120)
    assert operations.views()[-1].outcome == "done"
    again = laptop.open(laptop.console())
    again.wait("● serving", "lease free", "393k")
    confirmed(again, "b")
    wait_until(lambda: len(operations.views()) > had + 1 and operations.views()[-1].outcome, "and back", 120)
    assert BoxFile(laptop.box / "state").read().roles["primary"].incumbent
    again.wait("lease free", "record done")  # while one runs, `q` asks first
    again.keys("q")
    again.wait("EXIT=0")


def test_a_link_that_stands_still_costs_no_processor_and_loses_nothing(laptop: Laptop) -> None:
    """Half open, as when a laptop sleeps: nobody is told. Later the picture is of then, not of before."""
    window = laptop.open(laptop.console())
    window.wait("● serving")
    (console,) = laptop.consoles()
    laptop.wire.still(True)
    cpu = console.cpu_percent(None)
    wait_until(lambda: (laptop.box / "state").exists(), "the box goes on")
    window.keys("2")
    cpu = console.cpu_percent(3.0)
    assert cpu < 60, cpu
    laptop.wire.still(False)
    window.wait("Recipes 12")
    window.keys("q")
    window.wait("EXIT=0")


@slow
def test_keys_typed_ahead_of_a_dialog_confirm_nothing(laptop: Laptop) -> None:
    """What was typed before the dialog could be seen was meant for something else, however slow the line is."""
    operations = OperationFolders(laptop.box / "state" / "operations")
    had = len(operations.views())
    window = laptop.open(laptop.console())
    window.wait("● serving", "lease free")
    window.send("b\tadaptive-mtp\rb\tadaptive-mtp\r")
    window.wait("to confirm", "[ Cancel ]")
    window.keys("Escape")
    wait_until(lambda: "to confirm" not in window.screen(), "the dialog is closed", 20)
    assert len(operations.views()) == had
    window.keys("q")
    window.wait("EXIT=0")


@slow
def test_a_paste_with_line_ends_confirms_nothing(laptop: Laptop) -> None:
    operations = OperationFolders(laptop.box / "state" / "operations")
    had = len(operations.views())
    window = laptop.open(laptop.console())
    window.wait("● serving", "lease free")
    window.keys("b")
    word = window.wait("to confirm", "[ Cancel ]").split("then type ")[1].split(" to confirm")[0]
    window.keys("Tab")
    window.paste(f"{word}\n{word}\n")
    window.wait(f"│   {word} ")
    window.wait("to confirm", "[ Cancel ]")
    assert len(operations.views()) == had
    window.keys("Escape")
    wait_until(lambda: "to confirm" not in window.screen(), "the dialog is closed", 20)
    window.keys("q")
    window.wait("EXIT=0")


@pytest.mark.parametrize(("columns", "lines"), [(60, 16), (40, 12)])
def test_in_a_small_window_there_is_a_line_of_health_for_each_serve(
    laptop: Laptop, columns: int, lines: int
) -> None:
    window = laptop.open(laptop.console(), columns, lines)
    shown = window.wait("524k", "serving")
    serves = [line for line in shown.splitlines() if "glm53-" in line]
    assert len(serves) >= 2 and all(len(line) <= columns for line in shown.splitlines())
    window.resize(120, 40)
    window.wait("● serving", "lease free", "GPUs")
    window.keys("q")
    window.wait("EXIT=0")


@pytest.mark.parametrize("term", ["xterm", "tmux-256color", "xterm-kitty", "linux", "vt100"])
def test_it_draws_on_every_kind_of_terminal_without_asking_for_the_mouse(laptop: Laptop, term: str) -> None:
    """Over SSH the mouse stays the terminal's, so that a person can select text; on the bare consoles ASCII."""
    window = laptop.open(laptop.console(), term=term)
    raw = laptop.folder / "raw"
    window.record(raw)
    shown = window.wait("serving", "? help")
    window.keys("q")
    window.wait("EXIT=0")
    told = raw.read_bytes()
    assert told and not [mode for mode in (b"?1000h", b"?1002h", b"?1003h") if mode in told]
    assert shown.isascii() is (term in ("linux", "vt100"))


def test_a_terminal_that_cannot_draw_is_told_what_can(laptop: Laptop) -> None:
    window = laptop.open(laptop.console(), term="dumb")
    window.wait("TERM=dumb cannot draw", "status --json", "EXIT=2")


def test_the_terminal_is_whole_after_the_console_was_ended_there(laptop: Laptop) -> None:
    """O-99: by a signal on the box; the shell of the same connection goes on."""
    window = laptop.open(f"{laptop.console()}; stty -a | tr ' ;' '\\n\\n' | grep -xE '.?(icanon|echo)'; cat")
    window.wait("● serving")
    (console,) = laptop.consoles()
    os.kill(console.pid, signal.SIGTERM)
    shown = window.wait("icanon", "echo")
    assert "-icanon" not in shown and "-echo" not in shown
    window.keys("ok", "Enter")
    assert window.wait("ok\nok").count("ok") == 2
