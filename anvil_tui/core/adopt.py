"""A recipe of an engine that runs already, whoever started it, and in words what a recipe cannot say of it. Pure.

Figures are what the engine reports. What it does not report is named as a note, never made up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from anvil_tui.core.box import MIB, Container, Engine, Gpu, GpuGrant, GpuSnapshot
from anvil_tui.core.recipe import RECIPE_SCHEMA, EngineKind
from anvil_tui.core.redact import MASK, redact, redact_argv
from anvil_tui.core.shape import changed, shape_of, write
from anvil_tui.core.text import clean

_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|SECRET|PASS|PASSWORD|PASSPHRASE|BASIC_AUTH|API_KEY|ACCESS_KEY)$", re.IGNORECASE
)
# What our own container of a serve says of GPUs, whatever the recipe says.
_GPU_ENV = ("NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
_MODEL_FLAGS: Mapping[EngineKind, tuple[str, ...]] = {
    EngineKind.VLLM: ("--model",),
    EngineKind.SGLANG: ("--model-path", "--model"),
    EngineKind.LLAMACPP: ("-m", "--model", "-hf", "-hfr", "--hf-repo"),
    EngineKind.OPENAI: ("--model", "--model-path", "-m"),
}
_PARALLEL = ("--tensor-parallel-size", "-tp", "--tp-size", "--tp")
_AT_ONCE = ("--max-num-seqs", "--max-running-requests", "-np", "--parallel")


@dataclass(frozen=True, slots=True)
class Running:
    """A container as it was made. `entrypoint` () = the image's own; `env` is what the image does not say itself.

    `image_ref` is NAME@sha256:DIGEST, "" = no registry gave its image a digest. `untold` are sentences.
    """

    container: Container
    image_ref: str
    tag: str
    entrypoint: tuple[str, ...]
    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    shm_mib: int | None
    ipc: str
    memory_limit_mib: int | None
    cpus: float | None
    stop_grace_s: int | None
    untold: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Adopted:
    """A recipe as the tables of its file, where its engine answers now, and what a person should know of it."""

    recipe: Mapping[str, Any]
    port: int
    notes: tuple[str, ...]

    @property
    def id(self) -> str:
        return str(self.recipe["id"])

    @property
    def served_name(self) -> str:
        return str(self.recipe["served_name"])


def adopt(
    running: Running,
    engine: Engine,
    port: int,
    gpus: GpuSnapshot | None,
    pids: Mapping[int, str],
    taken: Iterable[str],
) -> Adopted:
    """`pids` gives the container of each process that NVML names; `taken` are ids of recipes that exist."""
    kind, notes = EngineKind(engine.kind), list(running.untold)
    uuids, need_mib = _gpus(running.container, gpus, pids, notes)
    argv, told = _argv(running, kind, notes)
    served = engine.served[0] if engine.served else ""
    name = slug(served or running.container.name)
    context = _context(engine, notes)
    id_ = _free(f"{name}-{context // 1024}k" if context >= 1024 else name, taken)
    why_not = _why_not(running, served, engine, told)
    recipe: dict[str, Any] = {
        "schema": RECIPE_SCHEMA, "id": id_,
        "title": f"{served or name}, as container {running.container.name} ran it",
        "family": name, "engine": str(kind), "served_name": served,
        **({"served_aliases": list(engine.served[1:])} if len(engine.served) > 1 else {}),
        "exclusive": bool(uuids) and gpus is not None and len(uuids) == len(gpus.gpus),
        **({"loadable": False, "not_loadable_because": why_not} if why_not else {}),
        "rollback": "none: written from what ran; nobody has decided yet",
        "image": {k: v for k, v in (("ref", running.image_ref), ("tag", running.tag)) if v},
        "model": _model(running.container.argv, argv, kind, served, notes),
        "launch": _launch(running, argv, notes),
        "gpus": {"select": list(uuids), "tensor_parallel": _parallel(argv, uuids), "need_free_mib": need_mib},
        "envelope": _envelope(engine, argv, context, notes),
        **({"kv": {"pool_tokens": engine.capacity.tokens}} if engine.capacity and engine.capacity.tokens else {}),
    }  # fmt: skip
    if recipe["exclusive"]:
        notes.append("exclusive = true, because it was given every GPU of this box: say if it shares them")
    notes += _differences(recipe, running, port)
    return Adopted(recipe, port, tuple(clean(note, 400) for note in notes))


def slug(text: str) -> str:
    """A name that ids and roles can have.

    >>> slug("Acme/M-8B Instruct")
    'acme-m-8b-instruct'
    """
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-._")[:60] or "engine"


def _free(name: str, taken: Iterable[str]) -> str:
    used = set(taken)
    return next(n for n in (name, *(f"{name}-{i}" for i in range(2, 1000))) if n not in used)


def _context(engine: Engine, notes: list[str]) -> int:
    if engine.context_tokens and engine.context_tokens >= 128:
        return engine.context_tokens
    notes.append(
        "envelope.context_tokens: the engine does not tell its context; 128 stands there until you say it"
    )
    return 128


def _why_not(running: Running, served: str, engine: Engine, told: bool) -> str:
    """Why the recipe could not be started as it is; "" when it could."""
    if not running.image_ref:
        return (
            "its image has no digest of a registry: push it to one, or pull it by digest, and name it in image.ref"
        )
    if not served:
        said = redact(engine.reason) or "it listed no model"
        return f"the engine did not tell its served name ({said}): write served_name"
    if not told:
        return "how it is told its port is not known: put {port} into launch.argv"
    if not engine.context_tokens:
        return "the engine did not tell its context: write envelope.context_tokens"
    return ""


# the command line


def _argv(running: Running, kind: EngineKind, notes: list[str]) -> tuple[list[str], bool]:
    """The command line without secrets, with {port} and on the loopback; whether it tells the port."""
    argv = _without_secrets(running.argv, notes)
    braced = [arg for arg in argv if re.search(r"\{\w+\}", arg)]
    if braced:
        notes.append(f"launch.argv holds braces that look like a placeholder: {redact(braced[0])}")
    argv, ports = _put(argv, "--port", "{port}")
    argv, hosts = _put(argv, "--host", "127.0.0.1")
    known = kind is not EngineKind.OPENAI and not any(" " in arg and "--" in arg for arg in running.argv)
    if not ports and known:
        argv += ["--port", "{port}"]
        notes.append("launch.argv: --port added; it listened on the engine's own default port")
    if not hosts and known:
        argv += ["--host", "127.0.0.1"]
    if hosts - {"127.0.0.1"} or (not hosts and known):
        was = ", ".join(sorted(hosts)) or "the engine's own default"
        notes.append(f"launch.argv: --host is 127.0.0.1; it was {was}. Serves listen on the loopback alone")
    return argv, bool(ports) or known


def _put(argv: Sequence[str], flag: str, value: str) -> tuple[list[str], set[str]]:
    """Every value of a flag replaced, also within a shell's line; and the values that it had."""
    out, had = list(argv), set()
    for at, arg in enumerate(argv):
        if arg == flag and at + 1 < len(argv):
            had.add(argv[at + 1])
            out[at + 1] = value
        elif match := re.search(rf"(?:^|\s){flag}[= ]+(\S+)", arg):
            had.add(match[1])
            out[at] = arg[: match.start(1)] + value + arg[match.end(1) :]
    return out, had


def _without_secrets(argv: Sequence[str], notes: list[str]) -> list[str]:
    hidden = redact_argv(argv)
    out: list[str] = []
    for arg, shown in zip(argv, hidden, strict=True):
        if arg == shown:
            out.append(arg)
            continue
        flag = "a shell's line" if " " in arg else arg.partition("=")[0] if arg.startswith("-") else "a value"
        if out and redact_argv((out[-1], "x"))[1] == MASK:
            flag = out.pop()
        notes.append(
            f"launch.argv: {flag} holds a secret and is left out. Clients use the gateway's keys: to let them "
            'keep theirs, put it into a file and add "file:PATH" to gateway.client_keys'
        )
    return out


# the parts


def _launch(running: Running, argv: list[str], notes: list[str]) -> dict[str, Any]:
    env = {}
    for name, value in sorted(running.env.items()):
        if name in _GPU_ENV:
            continue
        if (_SECRET_NAME.search(name) and value) or redact(f"{name}={value}") != f"{name}={value}":
            notes.append(
                f"launch.env: {name} holds a secret and is left out. If the engine needs it, mount a file that "
                f'holds it; if it is a key of clients, add "env:{name}" to gateway.client_keys'
            )
        else:
            env[name] = value
    made: dict[str, Any] = {
        "entrypoint": list(running.entrypoint), "argv": argv, "env": env,
        "mounts": [{"source": s, "target": t, "read_only": ro} for s, t, ro in running.container.mounts],
        "shm_mib": running.shm_mib, "ipc": running.ipc, "memory_limit_mib": running.memory_limit_mib,
        "cpus": running.cpus, "stop_grace_s": running.stop_grace_s,
    }  # fmt: skip
    return {key: value for key, value in made.items() if value not in (None, [], {}, "private")}


def value_of(argv: Sequence[str], names: Iterable[str]) -> str:
    """The last value of a flag under any of its names, "" = it is not there."""
    wanted, found = set(names), ""
    for at, arg in enumerate(argv):
        name, eq, value = arg.partition("=")
        if name in wanted:
            found = value if eq else (argv[at + 1] if at + 1 < len(argv) else "")
    return found


def _model(
    whole: Sequence[str], argv: Sequence[str], kind: EngineKind, served: str, notes: list[str]
) -> dict[str, Any]:
    """`whole` is the entry point and the command line: `vllm serve MODEL` may be split between them."""
    told = value_of(argv, _MODEL_FLAGS[kind])
    if not told and kind is EngineKind.VLLM:
        after = [b for a, b in pairwise(whole) if a == "serve" and not b.startswith("-")]
        told = after[0] if after else ""
    if not told:
        notes.append("model.repo: its command line names no model; the served name stands there")
    made = {"repo": told or served or "unknown", "revision": value_of(argv, ("--revision",))}
    made |= {"path": told} if told.startswith("/") else {}
    made |= {"quantization": value_of(argv, ("--quantization", "-q"))}
    return {key: value for key, value in made.items() if value}


def _parallel(argv: Sequence[str], uuids: Sequence[str]) -> int:
    told = value_of(argv, _PARALLEL)
    ranks = int(told) if told.isdigit() and int(told) > 0 else 1
    return ranks if uuids and len(uuids) % ranks == 0 else 1


def _envelope(engine: Engine, argv: Sequence[str], context: int, notes: list[str]) -> dict[str, Any]:
    told = value_of(argv, _AT_ONCE)
    windows = int(w) if engine.capacity and (w := engine.capacity.windows(engine.context_tokens)) else 0
    if engine.slots:
        at_once, source = engine.slots, "slots that the engine reports"
    elif told.isdigit() and 0 < int(told) <= 4096:
        at_once, source = int(told), "its command line; whether the KV pool holds so many was not measured"
    elif windows:
        at_once, source = windows, "whole contexts that its KV pool holds"
    else:
        at_once, source = 1, "nothing tells how many requests it takes at once"
    notes.append(f"envelope.concurrency {at_once}: {source}")
    notes.append("envelope.max_output_tokens is the whole context: the engine sets no lower limit, you may")
    return {"context_tokens": context, "max_output_tokens": context, "concurrency": min(at_once, 4096)}


def _gpus(
    c: Container, snapshot: GpuSnapshot | None, pids: Mapping[int, str], notes: list[str]
) -> tuple[tuple[str, ...], int]:
    """The full UUIDs that the container was given, and the most MiB that it has on one of them."""
    if c.gpus.effective == "none":
        return (), 0
    if snapshot is None:
        what = "was not compared with the box's" if c.gpus.uuids else "is empty"
        notes.append(f"gpus.select {what}: it was given GPUs ({grant_text(c.gpus)}), and none can be read here")
        return c.gpus.uuids, 0
    on = {g.uuid: _mib_of(g, c.id, pids) for g in snapshot.gpus if g.uuid}
    seen = tuple(uuid for uuid, mib in on.items() if mib is not None)
    granted = _granted(c.gpus, snapshot)
    uuids = granted
    if c.gpus.effective != "uuids" and seen:
        uuids = seen
        if seen != granted:
            notes.append(
                f"gpus.select: it was given {grant_text(c.gpus)}; its processes are on the GPUs written here"
            )
    elif c.gpus.effective != "uuids":
        notes.append(
            f"gpus.select: it was given {grant_text(c.gpus)}, and NVML names no process of it: check the list"
        )
    need = max((on.get(u) or 0 for u in uuids), default=0)
    notes += [] if need else ["gpus.need_free_mib is 0: NVML does not tell what it has on a GPU"]
    return uuids, need


def grant_text(grant: GpuGrant) -> str:
    names = ", ".join(grant.requested) or grant.effective
    return f"{names} ({grant.via})"


def _granted(grant: GpuGrant, snapshot: GpuSnapshot) -> tuple[str, ...]:
    """Every way as UUIDs: UUIDs themselves, all, a count (the first ones), an index in NVML's order, a node."""
    here = [g.uuid for g in snapshot.gpus if g.uuid]
    if grant.effective == "uuids":
        return grant.uuids
    if grant.effective == "all":
        return tuple(here)
    found: list[str] = []
    for name in grant.requested:
        plain = name.rpartition("=")[2] if name.startswith("count=") or "=" in name else name
        if name.startswith("count=") and plain.isdigit():
            found += here[: int(plain)]
        elif plain.isdigit():
            found += [g.uuid for g in snapshot.gpus if g.index == int(plain) and g.uuid]
        elif node := re.fullmatch(r"/dev/nvidia(\d+)", name):
            found += [g.uuid for g in snapshot.gpus if g.index == int(node[1]) and g.uuid]
        else:
            found += [u for u in here if u.lower().startswith(plain.lower())]
    return tuple(dict.fromkeys(found))


def _mib_of(gpu: Gpu, container_id: str, pids: Mapping[int, str]) -> int | None:
    """MiB of the container's processes on a GPU, 0 = of unknown size; None = none of them is there."""
    mine = [p for p in gpu.processes or () if pids.get(p.pid) == container_id]
    return sum(p.used_bytes or 0 for p in mine) // MIB if mine else None


# the round trip


def _differences(recipe: Mapping[str, Any], running: Running, port: int) -> Iterator[str]:
    """How the container that this recipe makes differs from the one that runs, by the lines of its shape."""
    c, launch = running.container, recipe["launch"]
    uuids = tuple(recipe["gpus"]["select"])
    argv = tuple(str(arg).replace("{port}", str(port)) for arg in launch["argv"])
    given = len(c.argv) - len(running.argv)
    ours = {*_GPU_ENV[: 1 + (len(uuids) > 1)]}
    left_out = set(running.env) - set(launch.get("env", {})) - set(_GPU_ENV)
    made = replace(
        c, argv=redact_argv((*c.argv[:given], *argv)), labels={}, restart_policy="no",
        env_names=tuple((set(c.env_names) - left_out) | ours),
        gpus=GpuGrant(uuids, "uuids", uuids, "device-request") if uuids else GpuGrant(),
    )  # fmt: skip
    words = {
        "argv": "its command line differs, as said above",
        "env": _env_words(left_out, ours - set(c.env_names)),
        "gpus": f"GPUs are given by UUID; it was given {grant_text(c.gpus)}",
        "labels": "it carries our labels in place of its own",
        "restart": f"restart policy no in place of {c.restart_policy}: the daemon never starts a serve by itself",
    }
    for name in changed(write(shape_of(made)), c):
        if name != "labels" or c.labels:
            yield f"a container of this recipe differs in {name}: {words.get(name, 'see above')}"


def _env_words(left_out: set[str], added: set[str]) -> str:
    parts = [f"without {', '.join(sorted(left_out))}" if left_out else "",
             f"with {', '.join(sorted(added))}, which name its GPUs" if added else ""]  # fmt: skip
    return "; ".join(p for p in parts if p)
