"""`doctor`: every part looked at once, with what to do about what is missing. Safe to paste; changes nothing."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from anvil_tui.adapters import self_look as look
from anvil_tui.adapters.haproxy_files import Paths, find_binary, rendered
from anvil_tui.adapters.port_look import LocalPorts
from anvil_tui.cli.settings import settings_of
from anvil_tui.cli.wiring import found_workspace, open_bare, open_box
from anvil_tui.core.box import MIB, GpuSnapshot
from anvil_tui.core.checkup import Finding, checkup_json, checkup_lines, colours, good, pasteable
from anvil_tui.core.credentials import copy_text, credential_text, unproven
from anvil_tui.core.discovery import NO_WORKSPACE
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.reading import Reading
from anvil_tui.core.settings import over_ssh
from anvil_tui.core.workspace import GpuSource, Workspace
from anvil_tui.ports import Clock, ContainerReader, GpuReader
from anvil_tui.service.box import Box
from anvil_tui.service.credentials import inspect
from anvil_tui.service.rotate import copies_read

LEAST_FREE_MIB = 1024
Check = Callable[[], Iterator[Finding]]


def doctor(args: argparse.Namespace) -> int:
    """0 when nothing that is needed here is missing, else 4."""
    directory = found_workspace(args)
    checks: list[tuple[str, Check]] = [("python", _python), ("settings", lambda: _settings(args))]
    if directory is None:
        bare = open_bare()
        workspace, gpus, name = bare.workspace, bare.sources.gpus, ""
        if bare.complaint:
            checks.append(("docker", lambda: iter([Finding("docker", "unknown", bare.complaint, needed=False)])))
        checks += _machine(workspace, gpus, bare.sources.containers, bare.clock, Path.cwd())
        checks.append(("workspace", lambda: iter([Finding("workspace", "ok", NO_WORKSPACE)])))
    else:
        box = open_box(directory)
        workspace, gpus, name = box.workspace, box.gpus, box.workspace.box.name
        checks += _machine(workspace, gpus, box.containers, box.clock, directory)
        checks += _workspace(box, directory)
    checks.append(("terminal", lambda: _terminal(args)))
    try:
        found = [f for part, check in checks for f in _asked(part, check)]
    finally:
        gpus.close()
    shown = [pasteable(f, str(Path.home()), _names(workspace, name)) for f in found]
    print(json.dumps(checkup_json(shown)) if args.json else "\n".join(checkup_lines(shown)))
    return 0 if good(found) else 4


def _asked(part: str, check: Check) -> list[Finding]:
    found: list[Finding] = []
    try:
        for finding in check():
            found.append(finding)
    except (AnvilError, OSError) as why:
        found.append(Finding(part, "missing", str(why)))
    return found


def _names(workspace: Workspace, name: str) -> dict[str, str]:
    """Words that give this person or a machine away. The `name` that a person gave the box stays: it is shown
    everywhere."""
    hosts = {socket.gethostname(), socket.gethostname().partition(".")[0]}
    url = workspace.containers.url
    hosts.add(urlsplit(os.environ.get("DOCKER_HOST", "")).netloc.partition(":")[0].rpartition("@")[2])
    named = [t.host for c in workspace.credentials for t in c.targets] + [c.host for c in workspace.clients]
    named += [urlsplit(url).netloc.partition(":")[0]] if url.startswith("ssh://") else []
    hosts |= {host.rpartition("@")[2] for host in named}
    users = {host.rpartition("@")[0] for host in named}
    with suppress(OSError, KeyError):  # nobody has this user id here: there is no name to hide
        users.add(getpass.getuser())
    found = dict.fromkeys(users - {"root"}, "(user)") | dict.fromkeys(hosts - {"localhost"}, "(host)")
    return {word: into for word, into in found.items() if len(word) > 1 and word != name}


def _python() -> Iterator[Finding]:
    own, wrong = look.wrong_pins()
    says = f"{look.system()}, anvil-console {own or 'from a folder, not installed'}"
    todo = "install it again with its own versions: `pip install --force-reinstall anvil-console`"
    yield Finding("python", "missing" if wrong else "ok", "; ".join((says, *wrong)), todo if wrong else "")


def _settings(args: argparse.Namespace) -> Iterator[Finding]:
    used = settings_of(args)
    there = "" if used.path.exists() else ", which does not exist: defaults hold"
    if used.notice:
        yield Finding("settings", "missing", used.notice.replace("\n", "; "), "mend it: until then defaults hold")
    else:
        yield Finding("settings", "ok", f"{used.path}{there}")


# the machine: GPUs, containers, disk


def _machine(
    workspace: Workspace, gpus: GpuReader, containers: ContainerReader, clock: Clock, directory: Path
) -> list[tuple[str, Check]]:
    return [
        ("gpus", lambda: _gpus(workspace.gpus, gpus, clock)),
        ("docker", lambda: _docker(workspace.containers.url, containers)),
        ("disk", lambda: _disk(directory)),
    ]


def _gpus(source: GpuSource, gpus: GpuReader, clock: Clock) -> Iterator[Finding]:
    reading = _first(gpus, clock, source.deadline_s + 5)
    module, library = look.module_version(), look.nvml_library(source.library_dir, os.environ)
    if source.reader:
        where = "read by gpus.reader of anvil.toml"
    else:
        where = f"NVML at {library}" if library else "NVML's library is in none of the usual folders"
    if not reading.ok or reading.value is None:
        no_role = "" if source.roles else "; no GPU role is named, so none is needed"
        says = f"none readable: {reading.reason}; {where}{no_role}"
        yield Finding("gpus", "missing", says, _gpu_todo(module, library), bool(source.roles))
        return
    seen = reading.value
    differ = bool(module and seen.driver and module != seen.driver)
    says = f"{len(seen.gpus)} GPUs, driver {seen.driver or 'n/a'}, {where}"
    if differ:
        yield Finding(
            "gpus",
            "missing",
            f"{says}; the kernel module that runs is {module}",
            "reboot, or reload the nvidia module",
        )
        return
    lost = [f"GPU {g.index} is {g.state}: {g.reason}" for g in seen.gpus if g.state != "ok"]
    yield Finding(
        "gpus", "missing" if lost else "ok", "; ".join((says, *lost)), "see the kernel log" if lost else ""
    )
    yield from _roles(source, seen)


def _gpu_todo(module: str, library: str) -> str:
    if library and not module:
        return (
            "the driver's library is here and its kernel module does not run: load it (modprobe nvidia), or reboot"
        )
    if library:
        return "`nvidia-smi` must answer first: module and library may be of two versions, then reboot"
    return (
        "install the NVIDIA driver, if this box has such GPUs; gpus.library_dir in anvil.toml names another folder"
    )


def _first(gpus: GpuReader, clock: Clock, wait_s: float) -> Reading[GpuSnapshot]:
    until = clock.monotonic_s() + wait_s
    while (reading := gpus.read()).at_s is None and clock.monotonic_s() < until:
        clock.sleep(0.05)
    return reading


def _roles(source: GpuSource, seen: GpuSnapshot) -> Iterator[Finding]:
    here = {g.uuid for g in seen.gpus}
    for role, uuid in source.roles.items():
        if uuid not in here:
            todo = "`nvidia-smi -L` lists them; write the one that is meant into gpus.roles"
            yield Finding("gpus", "missing", f"role {role}: no GPU of this box has UUID {uuid}", todo)


def _docker(url: str, containers: ContainerReader) -> Iterator[Finding]:
    path = Path(url.removeprefix("unix://")) if url.startswith("unix://") else None
    if path is not None and not path.exists():
        todo = "start the container engine, or name its socket: containers.url in anvil.toml, else DOCKER_HOST"
        yield Finding("docker", "missing", f"{path} does not exist", todo)
        return
    if path is not None and not os.access(path, os.R_OK | os.W_OK):
        todo = (
            "join the group that owns it, which gives root's rights: `usermod -aG docker YOU`, then log in again"
        )
        yield Finding("docker", "missing", f"{path}: this user may not open it", todo)
        return
    if path is None:
        yield Finding(
            "engines", "unknown",
            "the containers are on another machine, and engines and gateway are asked on this one's loopback",
            "run the console there, or forward each slot's port and the gateway's (ssh -L PORT:127.0.0.1:PORT)",
        )  # fmt: skip
    daemon = containers.daemon()
    running = sum(c.running for c in containers.list())
    yield Finding("docker", "ok", f"{url}: version {daemon.version or 'n/a'}, {running} containers run")


def _disk(directory: Path) -> Iterator[Finding]:
    for name, path in (("disk", directory), ("shm", Path("/dev/shm"))):
        free = look.free_bytes(path)
        if free is None:
            yield Finding(name, "unknown", f"{path}: its free space cannot be read", needed=False)
        elif name == "disk" and free < LEAST_FREE_MIB * MIB:
            yield Finding(
                name, "missing", f"{path}: {free // MIB:,} MiB free", "`anvil-tui storage` says what could go"
            )
        else:
            yield Finding(name, "ok", f"{path}: {free // MIB:,} MiB free")


# the workspace


def _workspace(box: Box, directory: Path) -> list[tuple[str, Check]]:
    return [
        ("files", lambda: _files(box)), ("record", lambda: _record(box, directory)),
        ("gateway", lambda: _gateway(box, directory)), ("ports", lambda: _ports(box)),
        ("secrets", lambda: _secrets(box)),
    ]  # fmt: skip


def _files(box: Box) -> Iterator[Finding]:
    recipes, suites = box.recipes(), box.suites()
    bad = [f.error for f in recipes if f.recipe is None] + [s.error for s in suites if s.suite is None]
    for why in bad:
        yield Finding(
            "files", "missing", why.splitlines()[0], "mend it; `anvil-tui recipes check` shows all of it"
        )
    if not bad:
        yield Finding("files", "ok", f"{len(recipes)} recipes and {len(suites)} suites are good")


def _record(box: Box, directory: Path) -> Iterator[Finding]:
    state = directory / "state"
    if not state.is_dir() or not os.access(state, os.W_OK):
        yield Finding(
            "record", "missing", f"{state}: not a folder that this user may write to", "give it to this user"
        )
        return
    if state.stat().st_mode & 0o077:
        yield Finding("record", "missing", f"{state}: others may read it", f"chmod 700 {state}", needed=False)
    kept = box.store.read()
    yield Finding("record", "ok", f"generation {kept.generation}, {len(kept.serves)} serves")


def _gateway(box: Box, directory: Path) -> Iterator[Finding]:
    settings, workspace = box.workspace.gateway, box.workspace
    if settings.kind == "haproxy":
        try:
            binary = find_binary(settings)
        except AnvilError as why:
            yield Finding(
                "gateway", "missing", str(why), "install HAProxy 2.8 or newer, or anvil-console[gateway]"
            )
        else:
            yield Finding(
                "gateway", "ok", f"{binary}: {look.program_version(binary, '-v') or 'its version is not told'}"
            )
        yield _installed(directory, workspace)
    try:
        told = box.gateway.snapshot()
    except AnvilError as why:
        yield Finding("gateway", "missing", f"it does not answer: {why}", "start it: `anvil-tui gateway run`")
        return
    says = f"{box.gateway_url()}: {len(told.aliases)} aliases, version {told.version or 'n/a'}"
    todo = "" if told.file_equal else "`anvil-tui gateway install` puts them together"
    differs = "" if told.file_equal else "; the running aliases differ from the file"
    yield Finding("gateway", "ok" if told.file_equal else "missing", says + differs, todo)


def _installed(directory: Path, workspace: Workspace) -> Finding:
    """Whether what HAProxy starts from is what anvil.toml says now."""
    config = Paths.of(directory, workspace.gateway).config
    todo = "`anvil-tui gateway install`"
    if not config.exists():
        return Finding("gateway", "missing", "its configuration was never installed", todo)
    if config.read_text("utf-8", "replace") != rendered(directory, workspace.gateway, workspace.roles)[0]:
        return Finding("gateway", "missing", "anvil.toml says another configuration than the installed one", todo)
    return Finding("gateway", "ok", "the installed configuration is what anvil.toml says")


def _ports(box: Box) -> Iterator[Finding]:
    """Slots whose port is another's. That a serve of ours or a container of this box has it is as it should be."""
    if box.listeners is None:
        yield Finding(
            "ports", "unknown", "the box is another machine: its ports cannot be looked at", needed=False
        )
        return
    try:
        running = {c.id for c in box.containers.list() if c.running}
    except AnvilError:
        yield Finding("ports", "unknown", "whose they are cannot be told without the containers", needed=False)
        return
    ours = {s.port for s in box.store.read().serves.values() if s.container_id in running}
    slots = [s for role in box.workspace.roles for s in role.slots]
    free = 0
    for slot in slots:
        seen = LocalPorts().look(slot.port)
        free += seen.state == "free"
        if seen.state == "taken" and slot.port not in ours:
            who = f"{seen.name} (pid {seen.pid})" if seen.pid else "somebody"
            says = f"slot {slot.name}: 127.0.0.1:{slot.port} is {who}'s, and no serve of ours"
            yield Finding("ports", "missing", says, "nothing can be loaded there until it stops", needed=False)
    yield Finding("ports", "ok", f"{len(slots)} slots, {free} free")


def _secrets(box: Box) -> Iterator[Finding]:
    states = copies_read(box, inspect(box))
    bad = [*unproven(states), *(copy_text(c) for s in states for c in s.copies if c.state != "same")]
    for why in bad:
        yield Finding("secrets", "missing", why, "`anvil-tui credentials` shows each place")
    if not bad:
        yield Finding("secrets", "ok", "; ".join(credential_text(s, box.clock.utc()) for s in states))


# the terminal


def _terminal(args: argparse.Namespace) -> Iterator[Finding]:
    from anvil_tui.ui.terminal import needs_ascii

    env, used = os.environ, settings_of(args)
    size = look.terminal_size()
    drawn = used.ascii if used.ascii is not None else needs_ascii(env)
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or "not set"
    facts = [
        f"TERM={env.get('TERM', 'not set')}", f"COLORTERM={env.get('COLORTERM', 'not set')}", colours(env),
        f"locale {locale}", "drawn with ASCII" if drawn else "drawn with Unicode",
        f"{size[0]}x{size[1]}" if size else "size not known: the output is no terminal",
        "over SSH" if over_ssh(env) else "not over SSH", f"mouse {'on' if used.mouse else 'off'}",
    ]  # fmt: skip
    dumb = env.get("TERM", "dumb") in ("dumb", "unknown", "") and sys.stdout.isatty()
    small = size is not None and (size[0] < 60 or size[1] < 16)
    todo = "export TERM=xterm-256color, or what the terminal is" if dumb else ""
    todo = todo or ("make the window 80x24 or larger: below 60x16 it is one line a serve" if small else "")
    yield Finding("terminal", "missing" if dumb else "ok", ", ".join(facts), todo)
    yield from _tmux()


def _tmux() -> Iterator[Finding]:
    options = look.tmux_options(os.environ)
    if options is None:
        return
    clipboard, through = options["set-clipboard"], options["allow-passthrough"]
    says = (
        f"{options['version'] or 'tmux'}: set-clipboard {clipboard or 'n/a'}, allow-passthrough {through or 'off'}"
    )
    copies = clipboard == "on" or through in ("on", "all")
    todo = "" if copies else "`tmux set -g set-clipboard on` lets a copy reach the terminal's clipboard"
    yield Finding("tmux", "ok" if copies else "missing", says, todo, needed=False)
