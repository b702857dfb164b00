"""`drill --copy`: a simulated box made from the operator's own workspace, its HAProxy, and one drill on it.

The box itself is only read. The copy has free loopback ports, a key and a state folder of its own; the folder goes
with it, and is kept when something went wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.cli.changing import planned_change
from anvil_tui.cli.demo import gateway, leave_on_signals, let_operations_end, simulated
from anvil_tui.cli.wiring import box_of, open_box
from anvil_tui.core.box import MIB, Container, GpuSnapshot
from anvil_tui.core.drills import COPY_SAYS, drill_lines
from anvil_tui.core.errors import AnvilError, Refused
from anvil_tui.core.gpus import resolve_gpus
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.standing import CheckName, DrillRecord
from anvil_tui.core.waivers import CheckWaiver
from anvil_tui.core.workspace import Workspace
from anvil_tui.core.world import BoxRecord, ServeRecord
from anvil_tui.service.box import Box
from anvil_tui.service.planning import first_reading
from anvil_tui.simbox.likeness import CardSheet, ServeSheet, Sheet, dump
from anvil_tui.simbox.workspace import port_numbers

TEMP_PATH_MAX = 60  # with the folder and a socket's name, a Unix socket path ends at 108 bytes
KEY_FILE = "state/secrets/client.key"
NOT_IN_A_COPY: tuple[CheckName, ...] = ("weights", "configuration")
"""Checks of files on the box that the engines of a copy do not read."""


def drill_copy(args: argparse.Namespace) -> int:
    """The drill's exit code; 3 when it is refused."""
    if args.read_only:
        raise Refused("--read-only: nothing is recorded")
    if args.plan:
        raise Refused("--plan with --copy: each copy is a new one, and so is its plan; use --yes")
    box = box_of(args)
    try:
        with _folder() as directory, contextlib.ExitStack() as ending:
            leave_on_signals(ending)
            sheet = write_copy(box, directory)
            (directory / "sheet.json").write_text(dump(sheet), encoding="utf-8")
            print(f"simulated copy in {directory}: {COPY_SAYS}", file=sys.stderr)
            like = ("--like", str(directory / "sheet.json"))
            ending.enter_context(simulated(directory, args.scale, *like))
            ending.enter_context(gateway(directory, _aliases(box)))
            ending.callback(let_operations_end, directory)
            code = _drill(args, directory)
            _file(box, BoxFile(directory / "state").drills())
            if code:
                raise _Kept(code)
    except _Kept as kept:
        return kept.code
    finally:
        box.gpus.close()
    return 0


class _Kept(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Removed at the end, kept after a failure. Sockets lie in it, so a long TMPDIR gives way to /tmp."""
    usual = len(tempfile.gettempdir()) <= TEMP_PATH_MAX
    made = Path(tempfile.mkdtemp(prefix="anvil-copy-", dir=None if usual else "/tmp")).resolve()
    try:
        yield made
    except BaseException:
        print(f"the copy's folder is kept: {made}", file=sys.stderr)
        raise
    shutil.rmtree(made)


def _drill(args: argparse.Namespace, directory: Path) -> int:
    copy = open_box(directory)
    try:
        return planned_change(args, copy)
    finally:
        copy.gpus.close()


def _file(box: Box, made: tuple[DrillRecord, ...]) -> None:
    """The copy's record among the box's own; whoever changes the box now does not wait for it."""
    for drill in made:
        record = replace(drill, place="copy")
        box.lease.take("drill-copy")
        try:
            box.store.keep_drill(record)
        finally:
            box.lease.release()
        print("\n".join(drill_lines(record)), file=sys.stderr)


# the copy


def write_copy(box: Box, directory: Path) -> Sheet:
    """anvil.toml, recipes, gates, key and waivers of the copy; the sheet by which the simulated box is made."""
    source = Path(box.directory)
    for part in ("recipes", "gates"):
        if (source / part).is_dir():
            shutil.copytree(source / part, directory / part)
    _leave_out_commands(directory / "gates")
    key = directory / KEY_FILE
    key.parent.mkdir(mode=0o700, parents=True)
    key.write_text(secrets.token_urlsafe(32) + "\n", encoding="utf-8")
    key.chmod(0o600)
    workspace = box.workspace
    toml = _toml(workspace, directory, _ports(workspace))
    (directory / "anvil.toml").write_text(tomlkit.dumps(toml), encoding="utf-8")
    slots = {s["name"]: s["port"] for r in toml["roles"] for s in r["slots"]}
    store = BoxFile(directory / "state")
    sheet = _sheet(box, slots)
    for recipe in _kept(box, sheet.record).values():
        store.keep_recipe(recipe)
        for check in NOT_IN_A_COPY:
            at = box.clock.utc().isoformat(timespec="seconds")
            store.waive_check(CheckWaiver(at, recipe.id, check, "the engines of a simulated copy read no files"))
    return sheet


def _leave_out_commands(gates: Path) -> None:
    """A `command` gate is a program of the operator's own: it may know the way to the real box."""
    for path in sorted(gates.glob("*.toml")):
        try:
            suite = tomlkit.parse(path.read_text(encoding="utf-8-sig"))
            every = [dict(gate) for gate in suite.get("gates", [])]
        except (tomlkit.exceptions.TOMLKitError, ValueError, TypeError):
            path.unlink()
            print(f"left out of the copy: {path.name}, which cannot be read", file=sys.stderr)
            continue
        kept = [gate for gate in every if gate.get("kind") != "command"]
        if len(kept) < len(every):
            suite["gates"] = kept
            path.write_text(tomlkit.dumps(suite), encoding="utf-8")
            print(f"left out of the copy: {len(every) - len(kept)} command gates of {path.name}", file=sys.stderr)


def _ports(w: Workspace) -> Iterator[int]:
    """Enough free loopback ports, none of them the box's own."""
    own = {slot.port for r in w.roles for slot in r.slots} | {int(w.gateway.bind.rpartition(":")[2])}
    return (port for port in port_numbers([0] * 2 * len(own)) if port not in own)


def _toml(w: Workspace, directory: Path, ports: Iterator[int]) -> dict[str, Any]:
    """What a drill needs of anvil.toml, and nothing that leads out of the copy: no socket, key, client or path."""
    reader = [sys.executable, "-m", "anvil_tui.simbox", "gpus", "--socket", str(directory / "control.sock")]
    roles = [r.model_dump(mode="json") for r in w.roles]
    for slot in (s for role in roles for s in role["slots"]):
        slot["port"] = next(ports)
    return {
        "schema": "anvil.workspace/1",
        "box": w.box.model_dump(),
        "gpus": {"reader": reader, "interval_s": 0.2, "roles": dict(w.gpus.roles)},
        "containers": {"url": f"unix://{directory / 'docker.sock'}"},
        "gateway": {
            "bind": f"127.0.0.1:{next(ports)}", "client_keys": [f"file:{KEY_FILE}"],
            "binary": w.gateway.binary if w.gateway.kind == "haproxy" else "",
            "hold_max_s": w.gateway.hold_max_s, "max_body_kib": w.gateway.max_body_kib,
        },
        "policies": w.policies.model_dump(exclude={"gateway_must"}),
        "roles": roles,
    }  # fmt: skip


def _kept(box: Box, record: BoxRecord) -> dict[str, Recipe]:
    """The exact recipes of the recorded serves; Refused names one that is not known any more."""
    known = {r.digest(): r for f in box.recipes() if (r := f.recipe)} | dict(box.store.kept_recipes())
    lost = [s for s in record.serves.values() if s.recipe_digest not in known]
    if lost:
        raise Refused(
            f"the recipe that made {lost[0].recipe_id} ({lost[0].recipe_digest[:12]}) is not known any more"
        )
    return {s.recipe_digest: known[s.recipe_digest] for s in record.serves.values()}


def _sheet(box: Box, ports: dict[str, int]) -> Sheet:
    record = box.store.read()
    here = {c.id: c for c in box.containers.list()}
    recipes = _kept(box, record)
    needed = any(r.gpus.select for r in recipes.values())
    snapshot = first_reading(box).value if needed else None
    serves = {k: replace(s, port=ports.get(s.slot, s.port)) for k, s in record.serves.items()}
    refs = {r.image.ref for r in recipes.values()}
    return Sheet(
        cards=_cards(box.workspace, recipes.values(), snapshot) if needed else (),
        serves=tuple(_serve(box.workspace, here[k], s, recipes[s.recipe_digest], snapshot)
                     for k, s in serves.items() if k in here),
        record=replace(record, serves=serves),
        aliases={r.name: r.aliases for r in box.workspace.roles},
        images=tuple(ref for ref in refs if box.containers.image_id(ref) is not None),
    )  # fmt: skip


def _cards(w: Workspace, recipes: Iterable[Recipe], snapshot: GpuSnapshot | None) -> tuple[CardSheet, ...]:
    """As they were read; when they cannot be, those that anvil.toml and recipes name, of unknown size."""
    if snapshot is None:
        print("the GPUs cannot be read: the copy has those that are named, of a simulated size", file=sys.stderr)
        named = (name for r in recipes for name in r.gpus.select if name.lower().startswith("gpu-"))
        return tuple(CardSheet(uuid, None, None) for uuid in dict.fromkeys((*w.gpus.roles.values(), *named)))
    return tuple(
        CardSheet(g.uuid, g.name, g.total_bytes and g.total_bytes // MIB, g.reason if g.state != "ok" else "")
        for g in snapshot.gpus
        if g.uuid
    )


def _serve(w: Workspace, c: Container, s: ServeRecord, recipe: Recipe, snapshot: GpuSnapshot | None) -> ServeSheet:
    gpus = c.gpus.uuids
    if snapshot is not None:
        with contextlib.suppress(Refused):  # a card that is gone: the copy is told what the container was given
            gpus = resolve_gpus(recipe.gpus.select, w.gpus.roles, snapshot)
    return ServeSheet(c.id, c.name, c.running, c.exit_code if c.status != "created" else None, gpus)


def _aliases(box: Box) -> dict[str, str]:
    """Where the aliases of the roles are now; a gateway that cannot be read leaves them at the incumbents."""
    try:
        now = box.gateway.snapshot().aliases
    except AnvilError as why:
        raise Refused(f"where the aliases are cannot be read, so there is nothing to copy: {why}") from why
    return {a: now[a] for role in box.workspace.roles for a in role.aliases if a in now}
