"""Asks the containers of a box without a workspace who they are: once a start, and again while one is silent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from anvil_tui.core.box import Container
from anvil_tui.core.discovery import Found, askable, may_be_engine
from anvil_tui.ports import Clock, EngineFinder

DISCOVER_S = 2.0
AGAIN_S, AGAIN_MAX_S = 4.0, 60.0
"""A silent engine is asked again after this long; the pause doubles up to a minute."""
_AT_ONCE = 8


@dataclass(slots=True)
class _Asked:
    """What one start of a container told, and when it is asked again (None = never)."""

    started_at: str | None
    found: Found
    again_s: float | None
    pause_s: float


class Discovery:
    """Remembers by container and start. What is no engine by its own answer is not asked again."""

    def __init__(self, finder: EngineFinder, clock: Clock) -> None:
        self._finder, self._clock = finder, clock
        self._asked: dict[str, _Asked] = {}

    def look(self, containers: Iterable[Container]) -> Mapping[str, Found]:
        """By container id, who was recognised, and of who may be an engine, why not. Others are left out."""
        who = askable(containers)
        self._asked = {key: asked for key, asked in self._asked.items() if key in who}
        due = [(c, ports) for c, ports, _ in who.values() if ports and self._due(c)]
        if due:
            with ThreadPoolExecutor(min(_AT_ONCE, len(due)), "discover") as pool:
                for (c, _), found in zip(due, pool.map(lambda row: self._ask(row[1]), due), strict=True):
                    self._keep(c, found)
        made = {}
        for key, (c, ports, why) in who.items():
            found = self._asked[key].found if ports else Found(why=f"not reachable: {why}")
            if found.engine is not None or may_be_engine(c):
                made[key] = found
        return made

    def _due(self, c: Container) -> bool:
        asked = self._asked.get(c.id)
        if asked is None or asked.started_at != c.started_at:
            return True
        return asked.again_s is not None and self._clock.monotonic_s() >= asked.again_s

    def _ask(self, ports: tuple[int, ...]) -> Found:
        """The first port at which an engine answers; else silence, which may end, before a stranger's answer."""
        told = []
        for port in ports:
            seen = self._finder.recognise(port)
            if seen.engine is not None:
                return Found(seen.engine, port)
            told.append(seen)
        silent = [t for t in told if t.state == "silent"]
        return Found(why="; ".join(t.why for t in silent or told), silent=bool(silent))

    def _keep(self, c: Container, found: Found) -> None:
        """Silence of what can be no engine is not broken a second time."""
        before = self._asked.get(c.id)
        fresh = before is None or before.started_at != c.started_at
        pause_s = AGAIN_S if before is None or fresh else min(before.pause_s * 2, AGAIN_MAX_S)
        again = found.silent and may_be_engine(c)
        until = self._clock.monotonic_s() + pause_s if again else None
        self._asked[c.id] = _Asked(c.started_at, found, until, pause_s)
