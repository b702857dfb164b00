"""`init`: a workspace out of the engines that run here, or the example where none does."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tomlkit
from pydantic import ValidationError

from anvil_tui.adapters.port_look import LocalPorts
from anvil_tui.adapters.toml_errors import problems_of
from anvil_tui.adapters.toml_files import WORKSPACE_FILE, strict, write_workspace
from anvil_tui.adapters.toml_lines import key_text
from anvil_tui.cli.wiring import bare_probes, open_bare
from anvil_tui.core.adopt import Adopted, adopt, slug
from anvil_tui.core.errors import AnvilError, EffectFailed, Refused
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.workspace import WORKSPACE_SCHEMA
from anvil_tui.core.world import Serve, World

FIRST_PORT, GATEWAY_PORT = 8001, 9100


def init(args: argparse.Namespace) -> int:
    """Never overwrites. What cannot be written of an engine is told in words, and stands in its recipe."""
    if args.read_only:
        raise Refused("--read-only: nothing is written")
    if args.bare:
        write_workspace(args.directory)
        return _say(args, (), "the example")
    bare = open_bare()
    probes = bare_probes(bare)
    try:
        world = probes.once()
    finally:
        probes.stop()
    found, unread = _adopted(world, bare.running)
    if not found:
        write_workspace(args.directory)
        return _say(args, (), "the example", [_none(world), *unread])
    contents = {f"recipes/{a.id}.toml": recipe_text(a) for a in found}
    write_workspace(args.directory, {WORKSPACE_FILE: workspace_text(world, found, _port_free), **contents})
    return _say(args, found, f"{len(found)} recipe{'s' * (len(found) > 1)} of what runs", unread)


def _adopted(world: World, running: Callable[[str], Any]) -> tuple[list[Adopted], list[str]]:
    """A recipe of each engine that was recognised, and a sentence for each that could not be read."""
    found: list[Adopted] = []
    unread = []
    snapshot = world.gpus.value if world.gpus.ok else None
    for serve in world.serves:
        seen = world.found.get(serve.container.id)
        if seen is None or seen.engine is None or seen.port is None or serve.engine.value is None:
            unread += [f"{serve.name}: {serve.why}"] if seen is not None else []
            continue
        try:
            how = running(serve.container.id)
        except AnvilError as why:
            unread.append(f"{serve.name}: {why}")
            continue
        made = adopt(how, serve.engine.value, seen.port, snapshot, world.pids, (a.id for a in found))
        found.append(_checked(made, serve))
    return found, unread


def _checked(made: Adopted, serve: Serve) -> Adopted:
    """A recipe that would not load is a defect of ours: it is said here, not at the next command."""
    try:
        Recipe.model_validate(strict(dict(made.recipe)))
    except ValidationError as why:
        key, text = problems_of(why, Recipe)[0]
        raise EffectFailed(f"{serve.name}: no recipe can be written of it: {key_text(key)}: {text}") from None
    return made


def _none(world: World) -> str:
    if not world.containers.ok:
        return f"no engine could be looked for: {world.containers.reason}"
    return f"no engine was recognised among {len(world.containers.value or ())} containers"


def recipe_text(made: Adopted) -> str:
    """The file, with every note as a comment above it."""
    lines = [f"# Written from what ran on port {made.port}. Nobody has decided on it yet."]
    lines += [f"# - {note}" for note in made.notes]
    return "\n".join(lines) + "\n" + tomlkit.dumps(made.recipe)


def workspace_text(world: World, found: Sequence[Adopted], free: Callable[[int], bool]) -> str:
    """anvil.toml: a role an engine, in one slot the port where it answers now, in the other a free one."""
    used = {a.port for a in found}

    def port(first: int) -> int:
        taken = next(p for p in range(first, 65536) if p not in used and free(p))
        used.add(taken)
        return taken

    roles: list[dict[str, Any]] = []
    for made in found:
        name = _distinct(slug(made.served_name or made.id), (r["name"] for r in roles))
        alias = _distinct(slug_alias(made.served_name or name), (a for r in roles for a in r["aliases"]))
        slots = [{"name": f"{name}-a", "port": port(FIRST_PORT)}, {"name": f"{name}-b", "port": made.port}]
        roles.append({"name": name, "aliases": [alias], "slots": slots})
    gpus = world.gpus.value.gpus if world.gpus.ok and world.gpus.value else ()
    tables: dict[str, Any] = {
        "schema": WORKSPACE_SCHEMA,
        "box": {"name": world.workspace.box.name, "kind": "lab"},
        "gpus": {"roles": {f"gpu-{g.index}": g.uuid for g in gpus if g.uuid}},
        "containers": {"url": world.workspace.containers.url},
        "gateway": {"bind": f"127.0.0.1:{port(GATEWAY_PORT)}", "client_keys": ["file:state/client.key"]},
        "roles": roles,
    }
    head = (
        "# Written from what ran. One role an engine: rename it, and give it the aliases that clients ask for.\n"
        "# Slot -b of a role is where its engine answers now. That container is no serve of this workspace:\n"
        "# whoever started it stops it, once a serve of its recipe is promoted. box.kind may be production.\n"
    )
    return head + tomlkit.dumps(tables)


def slug_alias(name: str) -> str:
    """A served name as an alias: what an alias cannot hold becomes a dash; a number behind it has room."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._:-") else "-" for c in name)[:116]


def _distinct(name: str, taken: Iterable[str]) -> str:
    used = set(taken)
    return next(n for n in (name, *(f"{name}-{i}" for i in range(2, 1000))) if n not in used)


def _port_free(port: int) -> bool:
    return LocalPorts().look(port).state == "free"


def _say(args: argparse.Namespace, found: Sequence[Adopted], what: str, unread: Iterable[str] = ()) -> int:
    """Data on stdout; what could not be told of an engine beside it."""
    left = list(unread)
    if args.json:
        rows: list[Mapping[str, Any]] = [{"recipe": a.id, "port": a.port, "notes": list(a.notes)} for a in found]
        print(json.dumps({"directory": str(args.directory), "recipes": rows, "unread": left}))
        return 0
    print(f"{args.directory}: anvil.toml, recipes/, gates/, state/ written: {what}")
    for made in found:
        print(f"\nrecipes/{made.id}.toml, undecided; it answers on 127.0.0.1:{made.port}")
        print("\n".join(f"  {note}" for note in made.notes))
    for why in left:
        print(f"not written: {why}", file=sys.stderr)
    print("\nread anvil.toml, then `anvil-tui doctor` in that directory")
    return 0
