"""Which terminal can be drawn on, which needs ASCII, how the bridge coalesces, what a crash file holds."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from anvil_tui.core.reading import Reading
from anvil_tui.core.world import Event, LogView
from anvil_tui.ui.bridge import Bridge, WorldChanged
from anvil_tui.ui.terminal import crash_file, needs_ascii, refusal
from tests.support import worlds


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("env", "plain"),
    [
        ({"TERM": "xterm-256color", "LANG": "en_US.UTF-8"}, False),
        ({"TERM": "xterm-256color", "LANG": "C.utf8"}, False),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm-256color", "LANG": "C"}, True),
        ({"TERM": "xterm-256color", "LC_ALL": "POSIX", "LANG": "C.UTF-8"}, True),
        ({"TERM": "xterm-256color", "LANG": "de_DE.ISO-8859-1"}, True),
        ({"TERM": "linux", "LANG": "C.UTF-8"}, True),
        ({"TERM": "linux-16color", "LANG": "C.UTF-8"}, True),
        ({"TERM": "vt100", "LANG": "C.UTF-8"}, True),
        ({"TERM": "screen", "TMUX": "/tmp/tmux-0/default,1,0"}, True),
        ({"TERM": "screen", "TMUX": "/tmp/tmux-0/default,1,0", "LANG": "C.UTF-8"}, False),
        # what Python itself sets for LANG=C is no wish of the operator
        ({"TERM": "xterm", "LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
    ],
)
def test_ascii(env: dict[str, str], plain: bool) -> None:
    assert needs_ascii(env) is plain


@pytest.mark.parametrize(
    ("term", "said"),
    [("xterm", None), ("dumb", "TERM=dumb cannot draw"), ("unknown", "TERM=unknown"), (None, "TERM=")],
)
def test_refusal_by_term(term: str | None, said: str | None) -> None:
    answer = refusal({"TERM": term} if term is not None else {}, (Tty(), Tty()))
    assert (answer is None) if said is None else (answer is not None and said in answer)


def test_refusal_without_a_terminal_names_the_other_way() -> None:
    closed = Tty()
    closed.close()
    for streams in ((io.StringIO(), Tty()), (Tty(), io.StringIO())):
        assert "anvil-tui status --json" in (refusal({"TERM": "xterm"}, streams) or "")


def test_bridge_keeps_the_newest_and_says_it_once() -> None:
    store, posted = worlds.FakeStore(worlds.calm()), list[WorldChanged]()
    backlog = [0]
    bridge = Bridge(store, posted.append, lambda: backlog[0], clock=lambda: 0.0)
    bridge.pump()
    bridge.pump()
    assert len(posted) == 1
    for world in (worlds.promoting(), worlds.degraded()):
        store.publish(world)
    bridge.pump()
    assert [m.world for m in posted[1:]] == [worlds.degraded()]
    bridge.close()
    assert store.told == []


def test_bridge_waits_while_the_terminal_is_behind_and_then_sends_the_newest() -> None:
    store, posted = worlds.FakeStore(worlds.calm()), list[WorldChanged]()
    backlog = [9]
    bridge = Bridge(store, posted.append, lambda: backlog[0], clock=lambda: 0.0)
    bridge.pump()
    assert posted == []
    store.publish(worlds.stale())
    backlog[0] = 0
    bridge.pump()
    assert [m.world for m in posted] == [worlds.stale()]


def test_figures_wait_for_a_second_and_what_happens_does_not() -> None:
    """A second's figures are one redraw; a step, a log line, a source that breaks are there at the next tick."""
    store, posted, now = worlds.FakeStore(worlds.calm()), list[WorldChanged](), [0.0]
    reads_log = [False]
    bridge = Bridge(store, posted.append, lambda: 0, lambda: now[0], lambda: reads_log[0])
    bridge.tick()
    first = worlds.calm()
    assert len(posted) == 1 and first.gpus.value is not None
    hotter = replace(store.world, gpus=replace(store.world.gpus, at_s=7.0))
    for now[0] in (0.25, 0.5, 0.75):
        store.publish(hotter)
        bridge.tick()
        assert len(posted) == 1
    now[0] = 1.0
    bridge.tick()
    assert [m.world for m in posted[1:]] == [hotter]
    store.publish(replace(hotter, log=LogView("a", ("nobody reads it",))))
    now[0] = 1.25
    bridge.tick()
    assert len(posted) == 2
    reads_log[0] = True
    news = (
        replace(hotter, log=LogView("a", ("one",))),
        replace(hotter, events=(Event("2026-01-01T00:00:00Z", "gpus", "cannot be read"),)),
        replace(hotter, gateway=Reading.error("refused", 8.0, "gateway")),
        replace(hotter, serves=()),
    )
    for world in news:
        now[0] += 0.25
        store.publish(world)
        bridge.tick()
        assert posted[-1].world is world
    now[0] += 0.25
    bridge.tick()
    assert len(posted) == 2 + len(news)


def test_crash_file_is_private_new_and_redacted(tmp_path: Path) -> None:
    try:
        raise RuntimeError("authorization: bearer abcdef0123456789")
    except RuntimeError as error:
        first, second = (crash_file(error, tmp_path / "state") for _ in range(2))
    assert first != second
    assert first.stat().st_mode & 0o777 == 0o600
    assert first.parent.stat().st_mode & 0o777 == 0o700
    assert "RuntimeError" in first.read_text()
    assert "abcdef0123456789" not in first.read_text()
