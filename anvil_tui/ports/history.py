"""What the recorder and a replay need of where history is kept."""

from __future__ import annotations

from typing import Protocol

from anvil_tui.core.recording import Frame, Index
from anvil_tui.core.world import World


class HistoryWriter(Protocol):
    """One writer of a box's history. Every call may block, and may raise AnvilError: then nothing was written."""

    def open(self) -> None:
        """Take the place of the writer. Refused while another process has it, and when history is off."""

    def append(self, world: World) -> None: ...

    def close(self) -> None:
        """What was written is complete. Without `open` before it does nothing."""


class Recording(Protocol):
    """Frames in parts that can each be read alone, in the order in which they were written."""

    @property
    def where(self) -> str:
        """What it is called in a sentence."""

    def parts(self) -> tuple[tuple[str, Index], ...]:
        """Name and index of each part, read anew. May raise AnvilError."""

    def frames(self, part: str) -> tuple[Frame, ...]:
        """Every frame that can be read. NotFound when the part is gone; other AnvilErrors name file and line."""
