"""History as the console asks for it: what is kept, a replay of it, and a file of the last minutes."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from anvil_tui import __version__
from anvil_tui.adapters.history_files import boot, recorder_of
from anvil_tui.adapters.recordings import HistoryFolder, RecordingFile, write_recording
from anvil_tui.cli.wiring import hider, history_folder
from anvil_tui.core.errors import BadFile, NotFound, Refused
from anvil_tui.core.nameless import Names
from anvil_tui.core.recording import Frame, Head, Kept, joined
from anvil_tui.core.shelf import Compared, Disks, RunFiles, Verified
from anvil_tui.core.workspace import Workspace
from anvil_tui.core.world import World
from anvil_tui.core.world_codec import encode
from anvil_tui.service.recorder import Recorder
from anvil_tui.service.replay import Player, cut

EXPORTED = timedelta(minutes=15)
NOT_RECORDED = "not recorded: a replay shows what the console showed; files of evidence and disks are read live"


class NotThere:
    """Evidence where there is none to be read; `why` says so."""

    def __init__(self, why: str) -> None:
        self._why = why

    def run(self, operation: str) -> RunFiles:
        raise NotFound(self._why)

    def compare(self, arms: Mapping[str, str]) -> Compared:
        raise NotFound(self._why)

    def verify(self, names: Iterable[str]) -> Mapping[str, Verified]:
        raise NotFound(self._why)


class Past:
    """The history of one box."""

    def __init__(self, directory: Path, workspace: Workspace, recorder: Recorder | None = None) -> None:
        self._directory, self._workspace, self._recorder = directory, workspace, recorder
        self.folder = HistoryFolder(history_folder(directory))

    def kept(self) -> Kept:
        whole = joined(index for _, index in self.folder.parts())
        return Kept(self.folder.where, whole, self.folder.bytes(), self._note())

    def _note(self) -> str:
        if self._recorder is not None:
            return self._recorder.note
        who = recorder_of(history_folder(self._directory))
        return f"recorded by {who}" if who else "nobody records now"

    def replay(self, at: str) -> Replayed:
        player = Player(self.folder)
        player.open(at)
        return Replayed(player, self)

    def export(self, world: World) -> str:
        """The 15 minutes before this world, and it, as one file; its path."""
        frames = list(cut(self.folder, world.now_utc - EXPORTED, world.now_utc))
        if not world.replayed:
            hide = hider(self._directory, self._workspace)()
            frames.append(Frame(world.now_utc, world.now_s, boot(), encode(world, hide)))
        folder = self._directory / "state" / "exports"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{self._workspace.box.name}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.ndjson.gz"
        self.write(path, lambda: frames)
        return str(path)

    def write(self, path: Path, frames: Callable[[], Iterable[Frame]]) -> int:
        """`frames` gives them anew each time that it is called."""
        head = Head(self._workspace.box.name, made_by=f"anvil-tui {__version__}")
        names = Names(_persons(), (socket.gethostname(),))
        return write_recording(path, head, frames, hider(self._directory, self._workspace)(), names)


def _persons() -> tuple[str, ...]:
    with suppress(OSError, KeyError):  # nobody has this user id here: there is no name to hide
        return (getpass.getuser(),)
    return ()


def expanded(path: Path) -> Path:
    """With `~` and `~NAME` filled in."""
    try:
        return path.expanduser()
    except RuntimeError as why:
        raise BadFile(str(path), f"cannot be found: {why}") from why


class FilePast:
    """A file that somebody sent."""

    def __init__(self, path: Path) -> None:
        path = Path(os.path.realpath(expanded(path)))
        self.file, self._bytes = RecordingFile(path), path.stat().st_size

    def kept(self) -> Kept:
        whole = joined(index for _, index in self.file.parts())
        return Kept(self.file.where, whole, self._bytes)

    def replay(self, at: str) -> Replayed:
        player = Player(self.file)
        player.open(at)
        return Replayed(player, self)

    def export(self, world: World) -> str:
        raise Refused(f"this is a file already: {self.file.where}")


class Replayed:
    """A console's service whose worlds were recorded: it reads no box, and there is nothing to change one with."""

    deeds = None

    def __init__(self, player: Player, history: Past | FilePast) -> None:
        self.store = self.player = player
        self.history = history
        self.evidence = NotThere(NOT_RECORDED)

    def disks(self) -> Disks:
        raise NotFound(NOT_RECORDED)

    def begin(self) -> None:
        """It stands at its first frame already."""

    def follow(self, container_id: str | None) -> None:
        """The log is the one that was followed then."""

    def end(self) -> None:
        self.player.close()
