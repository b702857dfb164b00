"""Model caches on a real file system: what a revision takes, what is its own, and the removal of exactly that."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from anvil_tui.adapters.hf_cache import HubCaches
from anvil_tui.core.errors import EffectFailed, NotFound
from anvil_tui.core.storage import Revision

OLD, NEW = "a" * 40, "b" * 40
SIZES = {"config-old": 100, "config-new": 110, "shard-shared": 5000, "shard-old": 3000, "shard-new": 3300}
FILES = {
    OLD: {
        "config.json": "config-old",
        "model-1.safetensors": "shard-shared",
        "sub/model-2.safetensors": "shard-old",
    },
    NEW: {
        "config.json": "config-new",
        "model-1.safetensors": "shard-shared",
        "sub/model-2.safetensors": "shard-new",
    },
}


def blob(repository: Path, name: str, size: int) -> Path:
    path = repository / "blobs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(name[:1].encode() * size)
    return path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two revisions of one model that share one blob; `main` means the newer."""
    made = tmp_path / "hub" / "models--org--model"
    for name, size in SIZES.items():
        blob(made, name, size)
    for revision, files in FILES.items():
        for name, source in files.items():
            link = made / "snapshots" / revision / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(made / "blobs" / source, link.parent))
    refs = made / "refs"
    refs.mkdir()
    (refs / "main").write_text(NEW)
    (refs / "old").write_text(OLD)
    return made


def read(tmp_path: Path) -> dict[str, Revision]:
    return {r.revision: r for r in HubCaches().revisions([str(tmp_path)])}


def test_shared_blobs_count_once_and_are_nobodys_own(repository: Path, tmp_path: Path) -> None:
    found = read(tmp_path)
    assert {r: (f.bytes, f.own_bytes, f.files, f.refs) for r, f in found.items()} == {
        OLD: (100 + 5000 + 3000, 100 + 3000, 3, ("old",)),
        NEW: (110 + 5000 + 3300, 110 + 3300, 3, ("main",)),
    }
    assert {f.repo for f in found.values()} == {"org/model"} and found[OLD].flaws == found[OLD].against == ()
    around = HubCaches().revisions([found[OLD].path, str(repository), str(tmp_path / "hub"), "/none"])
    assert [r.revision for r in around] == [OLD, NEW], "one repository, however it is reached"


def test_exactly_one_revision_goes(repository: Path, tmp_path: Path) -> None:
    caches = HubCaches()
    target = read(tmp_path)[OLD]
    before = caches.repository_bytes(target.path)
    caches.remove(target.path)
    left = read(tmp_path)
    assert list(left) == [NEW] and left[NEW].bytes == 110 + 5000 + 3300 and left[NEW].flaws == ()
    assert {p.name for p in (repository / "blobs").iterdir()} == {"config-new", "shard-shared", "shard-new"}
    assert [p.name for p in (repository / "refs").iterdir()] == ["main"]
    assert before - caches.repository_bytes(left[NEW].path) >= target.own_bytes
    caches.remove(target.path)
    assert list(read(tmp_path)) == [NEW], "a second removal removes nothing more"
    caches.remove(left[NEW].path)
    assert read(tmp_path) == {} and list((repository / "blobs").iterdir()) == []


def test_an_interrupted_removal_is_finished_by_a_repeat(repository: Path, tmp_path: Path) -> None:
    """The snapshot is out of sight and a blob of it is gone already."""
    hidden = repository / "snapshots" / f".anvil-removing-{OLD}"
    (repository / "snapshots" / OLD).rename(hidden)
    (repository / "blobs" / "shard-old").unlink()
    found = read(tmp_path)[OLD]
    assert found.own_bytes == 100 and found.flaws
    HubCaches().remove(found.path)
    assert not hidden.exists()
    assert {p.name for p in (repository / "blobs").iterdir()} == {"config-new", "shard-shared", "shard-new"}


def test_hard_links_and_copies_are_counted_by_file_not_by_name(repository: Path, tmp_path: Path) -> None:
    """A cache without symlinks: one blob as a hard link, one file as a copy; one blob linked from elsewhere."""
    snapshot = repository / "snapshots" / OLD
    hard = snapshot / "sub" / "model-2.safetensors"
    hard.unlink()
    hard.hardlink_to(repository / "blobs" / "shard-old")
    (snapshot / "copy.bin").write_bytes(b"c" * 70)
    found = read(tmp_path)[OLD]
    assert (found.bytes, found.own_bytes) == (100 + 5000 + 3000 + 70, 100 + 3000 + 70)
    outside = tmp_path / "mine.safetensors"
    outside.hardlink_to(repository / "blobs" / "shard-old")
    assert read(tmp_path)[OLD].own_bytes == 100 + 70, "somebody else's name keeps it"
    HubCaches().remove(found.path)
    assert outside.read_bytes() == b"s" * 3000 and (repository / "blobs" / "shard-old").exists()
    assert not (repository / "blobs" / "config-old").exists()


def test_what_leads_outside_is_not_touched(repository: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious.bin"
    precious.write_bytes(b"p" * 10)
    (repository / "snapshots" / OLD / "escape.bin").symlink_to(precious)
    [why] = read(tmp_path)[OLD].against
    assert "escape.bin leads to" in why and "outside the repository" in why
    with pytest.raises(EffectFailed, match="nothing was removed"):
        HubCaches().remove(read(tmp_path)[OLD].path)
    assert precious.exists() and (repository / "blobs" / "shard-old").exists()


@pytest.mark.parametrize("made", ["snapshot", "snapshots", "repository"])
def test_a_link_in_place_of_a_folder_is_refused(repository: Path, tmp_path: Path, made: str) -> None:
    real = tmp_path / "elsewhere"
    path = {"snapshot": repository / "snapshots" / OLD, "snapshots": repository / "snapshots",
            "repository": repository}[made]  # fmt: skip
    shutil.move(path, real)
    path.symlink_to(real)
    with pytest.raises(NotFound, match="not the snapshot of a revision"):
        HubCaches().remove(str(repository / "snapshots" / OLD))
    assert real.exists() and any(real.rglob("*"))


@pytest.mark.parametrize("path", ["/", "/etc", "models--x/snapshots/y", "/tmp/models--a--b/snapshots/none"])
def test_what_is_no_snapshot_is_refused(path: str) -> None:
    with pytest.raises(NotFound):
        HubCaches().remove(path)


def test_a_download_under_way_keeps_every_revision(repository: Path, tmp_path: Path) -> None:
    blob(repository, "0123.incomplete", 5)
    assert all("a download that has not ended" in " ".join(f.against) for f in read(tmp_path).values())
    with pytest.raises(EffectFailed, match="has not ended"):
        HubCaches().remove(read(tmp_path)[OLD].path)


def test_a_process_that_reads_a_file_is_named(repository: Path, tmp_path: Path) -> None:
    with (repository / "blobs" / "shard-old").open("rb"):
        found = read(tmp_path)
        assert os.getpid() in found[OLD].users and os.getpid() not in found[NEW].users
    assert os.getpid() not in read(tmp_path)[OLD].users


def test_a_revision_that_is_not_whole_says_what_is_missing(repository: Path, tmp_path: Path) -> None:
    (repository / "blobs" / "shard-new").unlink()
    assert any("broken link" in flaw for flaw in read(tmp_path)[NEW].flaws)
