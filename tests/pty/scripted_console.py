"""The console on a scripted world, as a program: WORLD HZ CRASH_DIR [crash] [slow-exit] [fast] [mouse] [long-log]
[past].

Each tick of the console's loop adds one byte to the file TICKS in CRASH_DIR; `fast` makes 50 ticks a second.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from anvil_tui.core.reading import Reading
from anvil_tui.ui import app as console_app
from anvil_tui.ui import bridge
from anvil_tui.ui.bridge import Bridge
from anvil_tui.ui.seams import ConsoleOptions
from tests.support import tapes, worlds


def publish(service: worlds.FakeService, hz: float) -> None:
    """A new world at each beat: temperatures, clock and log move."""
    first = service.store.world
    cards = first.gpus.value.gpus if first.gpus.value else ()
    beat = 0
    while True:
        time.sleep(1 / hz)
        beat += 1
        moved = tuple(
            replace(g, temperature_c=50 + (g.index + beat) % 40, power_w=float(beat % 300)) for g in cards
        )
        snapshot = replace(first.gpus.value, gpus=moved) if first.gpus.value else None
        now = first.now_s + beat / hz
        log = first.log and replace(first.log, lines=tuple(f"line {beat} {i} " + "x" * 90 for i in range(40)))
        gpus = Reading.known(snapshot, now, "nvml") if snapshot else first.gpus
        service.store.publish(replace(first, now_s=first.now_s, gpus=gpus, log=log))


def main() -> int:
    world, hz, folder, *more = sys.argv[1:]
    service = worlds.FakeService(getattr(worlds, world)())
    ticks = (Path(folder) / "TICKS").open("ab", buffering=0)
    tick = Bridge.tick

    def counted(self: Bridge) -> None:
        ticks.write(b".")
        tick(self)
        if "crash" in more and (Path(folder) / "NOW").exists():
            local = "-".join(("only", "in", "a", "local"))
            raise RuntimeError("the pump broke" if local else "")

    Bridge.tick = counted  # type: ignore[method-assign]
    if "fast" in more:
        console_app.TICK_S = 0.02  # type: ignore[attr-defined]
        bridge.CALM_S = 0.0
    if float(hz):
        threading.Thread(target=publish, args=(service, float(hz)), daemon=True).start()
    if "long-log" in more:
        first = service.store.world
        lines = tuple(f"line {i:04} " + "x" * 90 for i in range(1000))
        service.store.publish(replace(first, log=first.log and replace(first.log, lines=lines)))
    if "past" in more:
        service.history = tapes.FakePast(tapes.hour())
    code = console_app.run(service, ConsoleOptions(Path(folder), utc=True, mouse="mouse" in more))
    if "slow-exit" in more:
        time.sleep(30)
    return code


if __name__ == "__main__":
    sys.exit(main())
