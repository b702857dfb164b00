"""The demo's workspace: anvil.toml for the simulated box, recipes, gates, and the record of what serves."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anvil_tui.core.box import Container, GpuGrant
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.shape import shape_of, write
from anvil_tui.core.world import DIGEST_LABEL, OPERATION_LABEL, RECIPE_LABEL, BoxRecord, RoleRecord, ServeRecord
from anvil_tui.simbox.daemon import SimContainer
from anvil_tui.simbox.docker_bodies import inspect

BOX, ROLE = "fakoli-dark", "primary"
ALIASES = ("llm.primary", "llm.secondary", "llm.auxiliary", "llm.voice", "vision.general", "vision.ocr")
GPU_ROLES = ("compute-a", "compute-b")
INCUMBENT, ROLLBACK, CANDIDATE = "glm53-524k-k5-xgfix", "glm53-1m-k5", "glm53-393k-c1"
# the container that the 2026-09-02 record restored exactly
INCUMBENT_ID = "45a009b848afcbb8c6b979178f2b493c6f15327a964e93190affcd60811b2ac0"
WEIGHTS_FILE = "model.safetensors"
KEY_FILE = "state/secrets/client.key"
PREFERRED_PORTS = (8001, 8002, 9100)
OPERATION = "simbox-start"
QUALIFIED_AT = "2026-08-31T12:00:00Z"


class NoWorkspace(Exception):
    """The workspace cannot be written; the message says why."""


@dataclass(frozen=True, slots=True)
class Ports:
    slot_a: int
    slot_b: int
    gateway: int


def free_ports() -> Ports:
    """The seeds' ports where they are free on loopback, else any."""
    return Ports(*port_numbers(PREFERRED_PORTS))


def port_numbers(preferred: Sequence[int]) -> list[int]:
    """For each the same where it is free on loopback, else any (0 = any), all different."""
    taken: list[socket.socket] = []
    try:
        for wanted in preferred:
            taken.append(_bound(wanted) or _bound(0) or _refuse())
        return [s.getsockname()[1] for s in taken]
    finally:
        for held in taken:
            held.close()


def _bound(port: int) -> socket.socket | None:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        return None
    return held


def _refuse() -> socket.socket:
    raise NoWorkspace("no free port on 127.0.0.1")


def write_workspace(
    directory: Path, source: Path, sockets: tuple[Path, Path], uuids: Sequence[str], ports: Ports
) -> None:
    """anvil.toml, recipes, gates and the client key. An existing anvil.toml is left as it is: refused."""
    if (directory / "anvil.toml").exists():
        raise NoWorkspace(f"{directory}/anvil.toml exists; a simulated box needs an empty folder")
    for part in ("recipes", "gates"):
        if not (source / part).is_dir():
            raise NoWorkspace(f"{source / part} is missing; name a folder with recipes/ and gates/ by --from")
        shutil.copytree(source / part, directory / part, dirs_exist_ok=True)
    key = directory / KEY_FILE
    for folder in (directory / "state", key.parent):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
    (directory / "anvil.toml").write_text(_toml(sockets, uuids, ports), encoding="utf-8")


def _toml(sockets: tuple[Path, Path], uuids: Sequence[str], ports: Ports) -> str:
    docker, control = sockets
    reader = [sys.executable, "-m", "anvil_tui.simbox", "gpus", "--socket", str(control)]
    roles = "\n".join(f'{role} = "{uuid}"' for role, uuid in zip(GPU_ROLES, uuids, strict=True))
    return f"""# A simulated box: everything below is read by the same adapters as on a real one.
schema = "anvil.workspace/1"

[box]
name = "{BOX}"
kind = "lab"

[gpus]
reader = {json.dumps(reader)}
interval_s = 0.5

[gpus.roles]
{roles}

[containers]
url = "unix://{docker}"

[gateway]
bind = "127.0.0.1:{ports.gateway}"
client_keys = ["file:{KEY_FILE}"]

[policies]
drain_timeout_s = 60
gpu_release_timeout_s = 60
reserve_mib = 0

[[roles]]
name = "{ROLE}"
aliases = {json.dumps(ALIASES)}
slots = [
  {{ name = "slot-a", port = {ports.slot_a} }},
  {{ name = "slot-b", port = {ports.slot_b} }},
]
"""


def read_recipes(directory: Path) -> dict[str, Recipe]:
    """Recipes of a folder, by id; they are ours, so a bad one is an error at once."""
    found = {}
    for path in sorted((directory / "recipes").glob("*.toml")):
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        found[path.stem] = Recipe.model_validate_json(json.dumps(raw, default=str))
    return found


def stock_volumes(root: Path, recipes: Iterable[Recipe]) -> None:
    """The weights that recipes mount from volumes: files of the size on record that take no room."""
    for recipe in recipes:
        draft = recipe.speculation.draft if recipe.speculation else None
        for weights in (recipe.model, draft):
            mount = next((m for m in recipe.launch.mounts if weights and _below(weights.path, m.target)), None)
            if weights is None or mount is None or "/" in mount.source:
                continue
            folder = root / mount.source / "_data" / Path(weights.path).relative_to(mount.target)
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / WEIGHTS_FILE).open("wb") as file:
                file.truncate(weights.bytes or 1_000_000_000)


def _below(path: str, target: str) -> bool:
    return Path(path).is_relative_to(target)


def shape(c: SimContainer) -> str:
    """What a load of this container would have recorded of it (`core/shape.py`)."""
    requests = c.host.get("DeviceRequests") or ()
    gpus = tuple(name for request in requests for name in request["DeviceIDs"])
    seen = Container(
        c.id, c.name, c.status, c.image.id, c.image.ref, dict(c.config.get("Labels") or {}), argv=c.words,
        restart_policy="no", gpus=GpuGrant(gpus, "uuids", gpus, "device-request") if gpus else GpuGrant(),
        env_names=tuple(c.env),
        mounts=tuple((m["Source"], m["Destination"], not m["RW"]) for m in inspect(c)["Mounts"]),
    )  # fmt: skip
    return write(shape_of(seen))


def create_body(
    recipe: Recipe,
    port: int,
    uuids: Mapping[str, str],
    aliases: Sequence[str] = ALIASES,
    operation: str = OPERATION,
) -> dict[str, Any]:
    """The create request that a load of this recipe would have sent."""
    launch = recipe.launch
    gpus = [uuids.get(name, name) for name in recipe.gpus.select]
    requests = [{"Driver": "nvidia", "Count": 0, "DeviceIDs": gpus, "Capabilities": [["gpu"]], "Options": {}}]
    return {
        "Image": recipe.image.ref,
        "Cmd": list(recipe.filled_argv(port, aliases)),
        "Entrypoint": list(launch.entrypoint) or None,
        "Env": [f"{k}={v}" for k, v in launch.env.items()],
        "StopTimeout": launch.stop_grace_s,
        "Labels": {
            OPERATION_LABEL: operation,
            RECIPE_LABEL: recipe.id,
            DIGEST_LABEL: recipe.digest(),
            "anvil.generation": "1",
        },
        "HostConfig": {
            "NetworkMode": "host",
            "IpcMode": launch.ipc,
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "DeviceRequests": requests if gpus else [],
            "Init": True,
            "Mounts": [
                {
                    "Type": "volume" if "/" not in m.source else "bind",
                    "Source": m.source,
                    "Target": m.target,
                    "ReadOnly": m.read_only,
                }
                for m in launch.mounts
            ],
        },
    }


def write_record(directory: Path, serves: Sequence[ServeRecord], recipes: Sequence[Recipe]) -> None:
    """state/box.json: the first serve is the incumbent, the others the ladder back; the recipes as they were."""
    ladder = tuple(s.container_id for s in serves[1:])
    role = RoleRecord(ROLE, serves[0].container_id, ladder)
    record = BoxRecord(1, {s.container_id: s for s in serves}, {ROLE: role})
    kept = directory / "state" / "recipes"
    kept.mkdir(mode=0o700, exist_ok=True)
    for recipe in recipes:
        (kept / f"{recipe.digest()}.json").write_text(
            recipe.model_dump_json(by_alias=True, indent=1), encoding="utf-8"
        )
    save_record(directory, record)


def save_record(directory: Path, record: BoxRecord) -> None:
    body = {"schema": "anvil.box/1", **asdict(record)}
    (directory / "state" / "box.json").write_text(json.dumps(body, indent=1), encoding="utf-8")
