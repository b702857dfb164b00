"""`paths`: every file, folder and socket that this product reads or writes here, and which layer named each."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from platformdirs import user_state_path

from anvil_tui.adapters.haproxy_files import Paths
from anvil_tui.adapters.toml_files import WORKSPACE_FILE, load_workspace
from anvil_tui.cli.settings import Used, settings_of
from anvil_tui.cli.wiring import chosen_dir, found_workspace, local_docker
from anvil_tui.core.discovery import NO_WORKSPACE
from anvil_tui.core.secrets import parse_reference
from anvil_tui.core.tables import Layer, Table
from anvil_tui.core.workspace import Workspace

# A folder with more files than this is not added up.
_MOST_FILES = 20_000
_STATE = (
    ("record", "box.json"), ("exact recipes", "recipes"), ("operations", "operations"), ("lease", "lease"),
    ("waivers", "waivers.ndjson"), ("waived checks", "check-waivers.ndjson"), ("loads", "loads.ndjson"),
    ("drills", "drills.ndjson"), ("alarms", "alarms.json"), ("clients' files", "clients"),
    ("hashes", "hashes.json"), ("history", "history"), ("exports", "exports"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """`bytes` of all files below; None = it does not exist, is no file or folder, or holds too much to add up."""

    name: str
    path: str
    layer: Layer
    exists: bool | None = None
    bytes: int | None = None


def paths(args: argparse.Namespace) -> int:
    directory, layer = chosen_dir(args)
    used = settings_of(args)
    rows = [_place("settings", used.path, used.path_layer)]
    if found_workspace(args) is None:
        url, _ = local_docker(os.environ.get("DOCKER_HOST", ""))
        named: Layer = "env" if os.environ.get("DOCKER_HOST", "") == url else "default"
        rows += [_url("docker", url, named), _place("crashes", user_state_path("anvil-tui"), "default")]
    else:
        rows += _workspace(directory, layer)
    if args.json:
        told = {"places": [asdict(r) for r in rows], "settings": _settings(used), "notice": used.notice}
        print(json.dumps(told, default=str))
        return 0
    if found_workspace(args) is None:
        print(NO_WORKSPACE)
    print("\n".join(_line(r) for r in rows))
    print("\n".join(f"{name:16} {row['layer']:8} {row['value']}" for name, row in _settings(used).items()))
    if used.notice:
        print(used.notice)
    return 0


def _settings(used: Used) -> dict[str, dict[str, object]]:
    chosen: dict[str, dict[str, object]] = {
        n: {"value": c.value, "layer": c.layer} for n, c in used.chosen.items()
    }
    return chosen | {f"keys.{action}": {"value": keys, "layer": "file"} for action, keys in used.keys.items()}


def _workspace(directory: Path, layer: Layer) -> Iterator[Place]:
    workspace, state = load_workspace(directory), directory / "state"
    yield _place("workspace", directory / WORKSPACE_FILE, layer)
    yield from (_place(name, directory / name, layer) for name in ("recipes", "gates", "evidence"))
    yield from (_place(name, state / file, layer) for name, file in _STATE)
    yield from _gateway(directory, workspace)
    yield _url("docker", workspace.containers.url, _named(workspace.containers, "url"))
    if workspace.gpus.library_dir:
        yield _place("nvml", Path(workspace.gpus.library_dir), "file")
    refs = [*workspace.gateway.client_keys, *filter(None, (workspace.gateway.admin_key,))]
    own = [parse_reference(ref).file for ref in refs]
    copies = [t.file for c in workspace.credentials for t in c.targets if not t.host]
    catalogs = [c.file for c in workspace.clients if not c.host]
    for name, files in (("key", own), ("copy of a key", copies), ("client", catalogs),
                        ("model cache", workspace.storage.caches)):  # fmt: skip
        yield from (_place(name, directory / Path(file).expanduser(), "file") for file in files if file)
    yield _place("crashes", state, layer)


def _gateway(directory: Path, workspace: Workspace) -> Iterator[Place]:
    settings = workspace.gateway
    yield Place("clients call", f"http://{settings.bind}", _named(settings, "bind"))
    named = _named(settings, "dir")
    if settings.kind != "haproxy":
        yield _place("gateway", (directory / settings.dir).resolve(), named)
        return
    ours = Paths.of(directory, settings)
    for name, path in (("gateway", ours.config), ("alias map", ours.aliases), ("key digests", ours.keys),
                       ("gateway socket", ours.cli), ("master socket", ours.master)):  # fmt: skip
        yield _place(name, path, named)


def _named(table: Table, key: str) -> Layer:
    return "file" if key in table.model_fields_set else "default"


def _url(name: str, url: str, layer: Layer) -> Place:
    if not url.startswith("unix://"):
        return Place(name, url, layer)
    return _place(name, Path(url.removeprefix("unix://")), layer)


def _place(name: str, path: Path, layer: Layer) -> Place:
    exists = os.path.lexists(path)
    return Place(name, str(path), layer, exists, _bytes(path) if exists else None)


def _bytes(path: Path) -> int | None:
    """Sum of the files, links not followed; None for a socket, for too many, and where one may not look."""
    try:
        if path.is_file():
            return path.stat().st_size
        if not path.is_dir():
            return None
        total = files = 0
        for folder, _, names in os.walk(path, onerror=_raise):
            files += len(names)
            if files > _MOST_FILES:
                return None
            total += sum(os.lstat(Path(folder, name)).st_size for name in names)
        return total
    except OSError:
        return None


def _raise(why: OSError) -> None:
    raise why


def _line(p: Place) -> str:
    size = "" if p.exists is None else "absent" if not p.exists else "-" if p.bytes is None else f"{p.bytes:,} B"
    return f"{p.name:16} {p.layer:8} {size:>15} {p.path}"
