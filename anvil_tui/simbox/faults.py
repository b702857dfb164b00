"""Faults on command: one table, each fault a small function. Adapters see what the real thing would show."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anvil_tui.core.gpu_wire import GpuFault
from anvil_tui.simbox.daemon import SimContainer
from anvil_tui.simbox.engine import Engine

if TYPE_CHECKING:
    from anvil_tui.simbox.box import SimBox

Args = Mapping[str, str]
Do = Callable[["SimBox", Args], Awaitable[str]]


class BadFault(Exception):
    """No such fault, or a key it needs is missing or wrong."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`keys` name what it takes (`*` in front: required); `undo` takes it back, None = one shot."""

    help: str
    do: Do
    keys: tuple[str, ...] = ()
    undo: Do | None = None


async def put(box: SimBox, name: str, args: Args) -> str:
    """Switch one fault on, or do it once. Returns what happened, as a sentence."""
    fault = _known(name)
    allowed = {k.lstrip("*") for k in fault.keys}
    unknown = sorted(set(args) - allowed)
    missing = [k[1:] for k in fault.keys if k.startswith("*") and k[1:] not in args]
    if unknown or missing:
        raise BadFault(
            f"fault {name}: takes {', '.join(fault.keys) or 'no keys'}; "
            f"{'unknown ' + ', '.join(unknown) if unknown else 'missing ' + ', '.join(missing)}"
        )
    said = await fault.do(box, args)
    if fault.undo is not None:
        box.active[name] = dict(args)
    return said


async def clear(box: SimBox, name: str = "") -> str:
    """Take back one fault, or all that are on."""
    names = [name] if name else list(box.active)
    for each in names:
        fault, args = _known(each), box.active.pop(each, {})
        if fault.undo is not None:
            await fault.undo(box, args)
    return f"cleared {', '.join(names) or 'nothing'}"


def _known(name: str) -> Fault:
    if name not in FAULTS:
        raise BadFault(f"no fault {name!r}; there are: {', '.join(sorted(FAULTS))}")
    return FAULTS[name]


# whom it hits


def _container(box: SimBox, args: Args) -> SimContainer:
    """The named container, or the only one that runs."""
    if "container" in args:
        return box.daemon.find(args["container"])
    up = [c for c in box.daemon.containers.values() if c.running]
    if len(up) != 1:
        raise BadFault(f"{len(up)} containers run; name one with container=ID or NAME")
    return up[0]


def _engine(box: SimBox, args: Args) -> Engine:
    found = _container(box, args).engine
    if found is None:
        raise BadFault("this container runs no engine now")
    return found


def _port(args: Args) -> int:
    try:
        return int(args["port"])
    except ValueError:
        raise BadFault(f"port: {args['port']!r} is no number") from None


# switches on an engine


def _switch(help_text: str, name: str, *keys: str) -> Fault:
    """A fault that is a switch the engine looks at: on the named or only engine, else on the next to start."""

    async def on(box: SimBox, args: Args) -> str:
        value = {k: v for k, v in args.items() if k not in ("container", "next")}
        if args.get("next") or not any(c.engine for c in box.daemon.containers.values()):
            box.daemon.next_engine[name] = value
            return f"{name}: the next engine that starts has it"
        engine = _engine(box, args)
        engine.faults[name] = value
        return f"{name}: on for {engine.served[0]}"

    async def off(box: SimBox, args: Args) -> str:
        box.daemon.next_engine.pop(name, None)
        for container in box.daemon.containers.values():
            if container.engine is not None:
                container.engine.faults.pop(name, None)
        return f"{name}: off"

    return Fault(help_text, on, (*keys, "container", "next"), off)


async def _wedge(box: SimBox, args: Args) -> str:
    engine = _engine(box, args)
    engine.unwedged.clear()
    engine.busy()
    return f"{engine.served[0]} makes no more tokens; /health stays as the real engine's does"


async def _unwedge(box: SimBox, args: Args) -> str:
    for container in box.daemon.containers.values():
        if container.engine is not None:
            container.engine.unwedged.set()
            container.engine.busy()
    return "tokens move again"


async def _dies(box: SimBox, args: Args) -> str:
    container = _container(box, args)
    oom = args.get("oom", "0") in ("1", "true")
    code = int(args.get("exit_code", "137" if oom else "1"))
    text = args.get(
        "text", "" if oom or code == 137 else "RuntimeError: CUDA error: an illegal memory access was encountered"
    )
    if container.engine is None:
        raise BadFault("this container runs no engine now")
    container.oom_killed = oom
    container.engine.die(code, [text] if text else ())
    await container.ended.wait()
    return f"{container.id[:12]} exited {code}{', OOM-killed' if oom else ''}"


# the daemon


def _pending(help_text: str, name: str) -> Fault:
    """The daemon's next such call is refused with `text`."""

    async def on(box: SimBox, args: Args) -> str:
        box.daemon.pending[name] = dict(args)
        return f"{name}: the next call is refused"

    async def off(box: SimBox, args: Args) -> str:
        box.daemon.pending.pop(name, None)
        return f"{name}: off"

    return Fault(help_text, on, ("text", "status"), off)


async def _docker_down(box: SimBox, args: Args) -> str:
    await box.docker_down()
    if "seconds" in args:
        box.later(float(args["seconds"]), lambda: _docker_up(box, args))
    return "the daemon's socket is closed; containers go on"


async def _docker_up(box: SimBox, args: Args) -> str:
    await box.docker_up()
    box.active.pop("docker_down", None)
    return "the daemon answers again"


async def _no_gpu_driver(box: SimBox, args: Args) -> str:
    box.daemon.gpu_driver = False
    return "starts with GPU requests are refused: could not select device driver"


async def _gpu_driver(box: SimBox, args: Args) -> str:
    box.daemon.gpu_driver = True
    return "GPU requests are taken again"


async def _port_taken(box: SimBox, args: Args) -> str:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind(("127.0.0.1", _port(args)))
        held.listen(1)
    except OSError as why:
        held.close()
        raise BadFault(f"port {args['port']} is taken already: {why.strerror}") from why
    box.held_ports.append(held)
    return f"127.0.0.1:{args['port']} is somebody else's now"


async def _ports_free(box: SimBox, args: Args) -> str:
    for held in box.held_ports:
        held.close()
    box.held_ports.clear()
    return "ports given back"


async def _replaced(box: SimBox, args: Args) -> str:
    """Another hand removed the container and started one with the same name: same name, new id."""
    old = _container(box, args)
    body = {**old.config, "HostConfig": old.host}
    await box.daemon.remove(old, force=True)
    new = box.daemon.create(old.name, body)
    await asyncio.sleep(0)
    box.daemon.start(new)
    return f"{old.name}: {old.id[:12]} is gone, {new.id[:12]} has its name"


async def _removed(box: SimBox, args: Args) -> str:
    old = _container(box, args)
    await box.daemon.remove(old, force=True)
    return f"{old.id[:12]} was removed behind the console"


async def _image_gone(box: SimBox, args: Args) -> str:
    """As `docker image rm --force` leaves it: the container stays, its image cannot be found any more."""
    ref = _container(box, args).image.ref
    box.daemon.images.pop(ref, None)
    return f"{ref} was removed behind the console"


async def _image_back(box: SimBox, args: Args) -> str:
    image = _container(box, args).image
    box.daemon.images[image.ref] = image
    return f"{image.ref} is here again"


# GPUs


async def _gpu_lost(box: SimBox, args: Args) -> str:
    card = box.board.card(args.get("gpu", "0"))
    if card is None:
        raise BadFault(f"no GPU {args.get('gpu')!r}")
    card.lost = "GPU is lost (Xid 79: fallen off the bus)"
    if args.get("engine") != "stays":
        for holder in {h.holder for h in card.holdings if h.ended_at is None}:
            victim = box.daemon.containers.get(holder)
            if victim is not None and victim.engine is not None:
                victim.engine.die(1, ["RuntimeError: CUDA error: unspecified launch failure"])
    return f"GPU {card.index} {card.uuid} is lost"


async def _gpu_back(box: SimBox, args: Args) -> str:
    for card in box.board.cards:
        card.lost = ""
    return "all GPUs answer"


async def _gpu_driver_fault(box: SimBox, args: Args) -> str:
    box.board.fault = GpuFault("error", 18, "Driver/library version mismatch", "reboot after the driver update")
    return "NVML fails as a whole"


async def _gpu_driver_well(box: SimBox, args: Args) -> str:
    box.board.fault = None
    return "NVML answers"


async def _gpu_silent(box: SimBox, args: Args) -> str:
    box.board.silent = True
    return "the GPU reader prints nothing more, as with a hung driver"


async def _gpu_speaks(box: SimBox, args: Args) -> str:
    box.board.silent = False
    return "the GPU reader prints again"


async def _vram_kept(box: SimBox, args: Args) -> str:
    box.board.keep_memory = True
    return "memory of the next engine that ends is not released; an orphan process holds it"


async def _vram_back(box: SimBox, args: Args) -> str:
    box.board.keep_memory = False
    box.board.drop_stuck()
    return "orphans are gone, memory comes back"


SQUATTER = "squatter"


async def _squat(box: SimBox, args: Args) -> str:
    """`pid` may be that of a real process: then its control group tells that it is in no container."""
    card = box.board.card(args.get("gpu", "0"))
    if card is None or not args["pid"].isdigit() or not args.get("mib", "1024").isdigit():
        raise BadFault("gpu_process: gpu names a GPU, pid and mib are numbers")
    box.board.claim(SQUATTER, int(args["pid"]), args.get("name", "python"), [card])
    box.board.hold(SQUATTER, float(args.get("mib", "1024")))
    return f"process {args['pid']} holds memory of GPU {card.index}"


async def _squatter_gone(box: SimBox, args: Args) -> str:
    box.board.drop(SQUATTER)
    return "the process is gone, its memory is back"


FAULTS: Mapping[str, Fault] = {
    # life
    "engine_dies": Fault("the engine exits at once", _dies, ("container", "exit_code", "oom", "text")),
    "engine_wedged": Fault("health stays, no tokens move", _wedge, ("container",), _unwedge),
    "engine_dead": _switch("the engine core is gone, the API process answers 503", "engine_dead"),
    "slow_load": _switch("loading takes FACTOR times as long", "slow_load", "*factor"),
    "load_fails": _switch("the engine exits while loading", "load_fails", "exit_code", "text"),
    "slow_drain": _switch("every request takes SECONDS longer to finish", "slow_drain", "*seconds"),
    # identity and access
    "wrong_identity": _switch("another served name, another context", "wrong_identity", "name", "context"),
    "unauthorized": _switch("guarded paths answer 401", "unauthorized"),
    # figures
    "metrics": _switch("metrics are off, error, or bad (NaN, empty value)", "metrics", "*mode"),
    "kv_usage": _switch("the KV gauge says VALUE, also above 1", "kv_usage", "*value"),
    "kv_inconsistent": _switch(
        "the start-up log's windows disagree with its tokens", "kv_inconsistent", "*windows"
    ),
    # answers
    "json_wrong": _switch("JSON answers: value, fenced, prose or broken", "json_wrong", "mode"),
    "tools_wrong": _switch("tool calls: value, double, text or name", "tools_wrong", "mode"),
    "image_dropped": _switch(
        "pictures are lost: all, only the last, or uncounted in usage", "image_dropped", "mode"
    ),
    "image_wrong": _switch("what a picture shows is misread", "image_wrong"),
    "media_unlimited": _switch("limits of images and videos are not enforced", "media_unlimited"),
    "needle_wrong": _switch("retrieval gives another value", "needle_wrong"),
    "stupid": _switch("what must be worked out or looked up comes out wrong", "stupid", "from", "to"),
    "reasoning_leak": _switch("reasoning and its end tag come as content", "reasoning_leak"),
    "no_answer": _switch("nothing visible is answered", "no_answer"),
    "stream_cut": _switch("streams break off", "stream_cut"),
    "stream_error": _switch("an error object inside a 200 stream", "stream_error"),
    "schema_ignored": _switch("response_format is not applied", "schema_ignored"),
    "stop_ignored": _switch("stop sequences are not applied", "stop_ignored"),
    "limit_ignored": _switch("token limits are not applied", "limit_ignored"),
    "truncates": _switch("a prompt that is too long is cut silently", "truncates"),
    "thinking_wrong": _switch("the thinking control does nothing: always or never", "thinking_wrong", "*mode"),
    "no_responses": _switch("there is no Responses route", "no_responses"),
    "fsm_error": _switch("structured requests log the grammar engine's error", "fsm_error"),
    # the daemon
    "start_fails": _pending("the next start is refused", "start_fails"),
    "create_fails": _pending("the next create is refused", "create_fails"),
    "stop_fails": _pending("the next stop is refused", "stop_fails"),
    "pull_fails": _pending("the next pull is refused", "pull_fails"),
    "docker_down": Fault("the daemon's socket is closed", _docker_down, ("seconds",), _docker_up),
    "no_gpu_driver": Fault("the daemon knows no NVIDIA runtime", _no_gpu_driver, (), _gpu_driver),
    "port_taken": Fault("somebody else listens on a port", _port_taken, ("*port",), _ports_free),
    "replaced": Fault("same name, new container", _replaced, ("container",)),
    "removed": Fault("a container vanishes", _removed, ("container",)),
    "image_gone": Fault("the image of a container vanishes", _image_gone, ("container",), _image_back),
    # GPUs
    "gpu_lost": Fault("a GPU falls off the bus", _gpu_lost, ("gpu", "engine"), _gpu_back),
    "gpu_driver_fault": Fault("NVML fails (code 18)", _gpu_driver_fault, (), _gpu_driver_well),
    "gpu_reader_hangs": Fault("the reader program prints nothing", _gpu_silent, (), _gpu_speaks),
    "gpu_process": Fault(
        "a process of no container holds memory", _squat, ("gpu", "*pid", "mib", "name"), _squatter_gone
    ),
    "vram_not_released": Fault("memory stays after the process ended", _vram_kept, (), _vram_back),
}
