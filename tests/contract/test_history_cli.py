"""`history` and `replay` as commands: lists, cuts, and what is said of a file that cannot be shown."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from anvil_tui.adapters.history_files import HistoryFiles
from anvil_tui.adapters.recordings import HistoryFolder, RecordingFile
from anvil_tui.adapters.toml_files import load_workspace
from anvil_tui.cli.main import main
from anvil_tui.cli.wiring import client_keys, hider
from anvil_tui.core.workspace import History
from anvil_tui.core.world import Event, Lease, World
from anvil_tui.core.world_codec import decode
from tests.support import worlds
from tests.support.simbox import SimProcess
from tests.support.wait import wait_until
from tests.support.workspace import box

Run = Callable[..., str]
KEY = "sk-key-of-the-clients-0123456789"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose box was recorded an hour ago and three times of late; what was said holds a client key."""
    monkeypatch.setenv("KEY", KEY)
    box(tmp_path)
    hiding = hider(tmp_path, load_workspace(tmp_path))
    files = HistoryFiles(tmp_path / "state" / "history", "box", History(), hiding, floor_bytes=0)
    files.open()
    now = datetime.now(UTC)
    for ago in (3600, 20, 10, 0):
        at = now - timedelta(seconds=ago)
        told = {"gateway": f"401 for {KEY}"}
        files.append(replace(worlds.calm(), now_s=9000.0 - ago, now_utc=at, source_errors=told))
    files.close()
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*words: object, want: int = 0) -> str:
        code = main([str(w) for w in words])
        told = capsys.readouterr()
        assert code == want, told.err
        return told.out if not code else told.err

    return command


def test_history_lists_spans_with_their_gaps(folder: Path, run: Run) -> None:
    told = run("--workspace", folder, "history").splitlines()
    assert len(told) == 4
    assert told[0].endswith("1 frames") and told[1] == "  not recorded for 3580 s" and told[2].endswith("3 frames")
    assert told[3].endswith("state/history; nobody records now") and "MiB in " in told[3]
    listed = json.loads(run("--workspace", folder, "history", "--json"))
    assert [s["frames"] for s in listed["spans"]] == [1, 3] and listed["schema"] == "anvil.history-list/1"


def test_a_cut_is_a_file_of_its_own_without_a_secret(folder: Path, run: Run) -> None:
    out = folder / "sent.ndjson.gz"
    told = json.loads(
        run("--workspace", folder, "history", "export", out, "--from", "2h", "--to", "15s", "--json")
    )
    assert told["frames"] == 2 and out.stat().st_mode & 0o777 == 0o600
    assert KEY.encode() not in gzip.decompress(out.read_bytes())
    assert sum(len(RecordingFile(out).frames(n)) for n, _ in RecordingFile(out).parts()) == 2
    assert "File exists" in run("--workspace", folder, "history", "export", out, want=1)
    seen = run("replay", out, "--json")
    assert [s["frames"] for s in json.loads(seen)["spans"]] == [1, 1]


def test_a_cut_names_nobody_and_no_machine(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs the export and where, too: neither holds anything in this recording."""
    monkeypatch.setattr("getpass.getuser", lambda: "carol")
    monkeypatch.setattr("socket.gethostname", lambda: "forge.example.com")
    files = HistoryFiles(folder / "state" / "history", "box", History(), lambda: str, floor_bytes=0)
    files.open()
    said = ("acknowledged by alice on forge", "/" + "Users/bob/x and carol from 192.168.7.20")
    events = tuple(Event("2026-09-02T10:00:00Z", "alarm", text) for text in said)
    lease = Lease("op", 7, "alice", "2026-09-02T10:00:00Z", "forge")
    files.append(replace(worlds.calm(), now_s=9001.0, now_utc=datetime.now(UTC), lease=lease, events=events))
    files.close()
    run("--workspace", folder, "history", "export", folder / "sent", "--from", "2h")
    sent = gzip.decompress((folder / "sent").read_bytes())
    assert not [word for word in (b"alice", b"bob", b"carol", b"forge", b"192.168") if word in sent]
    shown = json.loads(run("replay", folder / "sent", "--json"))
    assert [s["frames"] for s in shown["spans"]] == [1, 4]


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("export",), "FILE is missing", 2),
        (("export", "{}/x", "--from", "noon"), "'noon' is no time like 14:05", 2),
        (("export", "{}/x", "--from", "30m", "--to", "20m"), "nothing is recorded in that time", 2),
        (("export", "{}/no/such/x",), "No such file", 1),
    ],
)  # fmt: skip
def test_what_cannot_be_exported_is_told(
    folder: Path, run: Run, words: tuple[str, ...], said: str, code: int
) -> None:
    told = run("--workspace", folder, "history", *(w.replace("{}", str(folder)) for w in words), want=code)
    assert said in told and not (folder / "x").exists()


def test_replay_needs_no_workspace_and_names_file_and_line(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = folder / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    monkeypatch.delenv("ANVIL_TUI_WORKSPACE", raising=False)
    out = folder / "sent"
    run("--workspace", folder, "history", "export", out)
    lines = gzip.decompress(out.read_bytes()).splitlines(keepends=True)
    out.write_bytes(b"".join([*lines[:2], b"{}\n"]))
    assert f"{out}:3: this line is damaged" in run("replay", out, want=2)
    assert "cannot be read: No such file" in run("replay", folder / "none", want=2)
    assert "it is no regular file" in run("replay", "/dev/null", want=2)
    assert "cannot be found: Could not determine home" in run("replay", "~nobody-has-this-name/x", want=2)
    (empty / "loop").symlink_to("loop")
    assert "cannot be read: Too many levels of symbolic links" in run("replay", empty / "loop", want=2)


def test_a_file_is_shown_through_a_link(folder: Path, run: Run) -> None:
    """What somebody names themselves is followed; only the store follows no link."""
    out, link = folder / "sent", folder / "link"
    run("--workspace", folder, "history", "export", out)
    link.symlink_to(out)
    assert json.loads(run("replay", link, "--json"))["spans"]


def test_a_watch_on_a_box_records_what_a_replay_shows(tmp_path: Path, run: Run) -> None:
    """Real probes, a real process that is ended, and no secret of the workspace in what it leaves."""
    box = SimProcess(tmp_path / "box")
    try:
        argv = [sys.executable, "-m", "anvil_tui", "--workspace", str(box.folder), "watch", "--json"]
        watch = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        kept = HistoryFolder(box.folder / "state" / "history")

        def worlds_kept() -> list[World]:
            return [decode(f.tree, f.at, f.s) for name, _ in kept.parts() for f in kept.frames(name)]

        def answers() -> bool:
            return any(s.engine.ok for w in worlds_kept() for s in w.serves)

        wait_until(answers, "a frame with the serve and its engine")
        watch.send_signal(signal.SIGTERM)
        assert watch.wait(20) == 0
    finally:
        box.end()
    last = worlds_kept()[-1]
    assert last.replayed and last.gpus.ok and (last.gpus.age_s(last.now_s) or 0) < 10
    assert json.loads(run("--workspace", box.folder, "history", "--json"))["damage"] == ""
    secrets = [k.encode() for k in client_keys(box.workspace, box.folder)()]
    assert secrets
    for path in (box.folder / "state" / "history").iterdir():
        assert not any(secret in path.read_bytes() for secret in secrets)
