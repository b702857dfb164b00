"""How a container was made, out of the daemon's JSON of it and of its image. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from anvil_tui.adapters.docker_shape import container, repo_digests
from anvil_tui.core.adopt import Running
from anvil_tui.core.box import MIB
from anvil_tui.core.redact import redact

# Docker gives a container so much when nobody says how much.
_SHM_DEFAULT = 64 * MIB
_ANONYMOUS = re.compile(r"[0-9a-f]{64}")
# Keys of HostConfig that a recipe has no word for, with what they hold when nobody set them.
_HOST_SETTINGS: tuple[tuple[str, str], ...] = (
    ("CapAdd", "added capabilities"), ("CapDrop", "dropped capabilities"), ("SecurityOpt", "security options"),
    ("Ulimits", "ulimits"), ("PidMode", "PID namespace"), ("UTSMode", "UTS namespace"),
    ("UsernsMode", "user namespace"), ("ExtraHosts", "extra hosts"), ("Dns", "DNS servers"),
    ("Sysctls", "sysctls"), ("GroupAdd", "added groups"), ("CpusetCpus", "a CPU set"),
    ("ReadonlyRootfs", "a read-only root"), ("Tmpfs", "tmpfs mounts"), ("OomScoreAdj", "an OOM score"),
    ("CpuShares", "CPU shares"), ("CpuQuota", "a CPU quota"), ("AutoRemove", "--rm"),
)  # fmt: skip


def running(attrs: Mapping[str, Any], image: Mapping[str, Any]) -> Running:
    """`attrs` is the inspect of the container, `image` of the image that it runs."""
    config, host, base = (
        _map(part) for part in (attrs.get("Config"), attrs.get("HostConfig"), image.get("Config"))
    )
    seen = container(attrs, repo_digests(image))
    own = _words(config.get("Entrypoint"))
    ipc = str(host.get("IpcMode") or "private")
    shm, memory = host.get("ShmSize"), host.get("Memory")
    nano, grace = host.get("NanoCpus"), config.get("StopTimeout")
    ref = str(config.get("Image") or "")
    mounts, lost = _mounts(attrs)
    return Running(
        container=replace(seen, mounts=mounts),
        image_ref=_pinned(ref, image),
        tag="" if "@" in ref or ref.startswith("sha256:") else ref,
        entrypoint=() if own == _words(base.get("Entrypoint")) else own,
        argv=_words(config.get("Cmd")),
        env=_given(_words(config.get("Env")), _words(base.get("Env"))),
        shm_mib=shm // MIB if isinstance(shm, int) and shm not in (0, _SHM_DEFAULT) else None,
        ipc="host" if ipc == "host" else "private",
        memory_limit_mib=memory // MIB if isinstance(memory, int) and memory >= MIB else None,
        cpus=nano / 1e9 if isinstance(nano, int) and nano > 0 else None,
        stop_grace_s=grace if isinstance(grace, int) and grace > 0 else None,
        untold=(*_untold(attrs, config, host, base), *lost),
    )


def _pinned(ref: str, image: Mapping[str, Any]) -> str:
    """The image by the digest of its own repository where there is one, else by any that names it."""
    found = repo_digests(image)
    name = ref.partition("@")[0]
    plain = name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name
    return next((d for d in found if d.partition("@")[0] == plain), found[0] if found else "")


def _given(env: tuple[str, ...], base: tuple[str, ...]) -> dict[str, str]:
    """Variables that the image does not set itself to the same."""
    known = set(base)
    pairs = (entry.partition("=") for entry in env if entry not in known)
    return {name: value for name, _, value in pairs}


def _mounts(attrs: Mapping[str, Any]) -> tuple[tuple[tuple[str, str, bool], ...], list[str]]:
    """Folders and named volumes; of others, a sentence."""
    kept, lost = [], []
    for m in map(_map, attrs.get("Mounts") or ()):
        kind, target = str(m.get("Type") or "bind"), str(m.get("Destination") or "")
        source = str((m.get("Name") if kind == "volume" else m.get("Source")) or "")
        if kind not in ("bind", "volume") or not source or (kind == "volume" and _ANONYMOUS.fullmatch(source)):
            what = "a volume without a name" if kind == "volume" else f"a mount of type {kind}"
            lost.append(f"{target} was {what}: not written")
        else:
            kept.append((source, target, m.get("RW") is False))
    return tuple(kept), lost


def _untold(
    attrs: Mapping[str, Any], config: Mapping[str, Any], host: Mapping[str, Any], base: Mapping[str, Any]
) -> Iterator[str]:
    for key, words in _HOST_SETTINGS:
        if host.get(key) not in (None, "", 0, False, [], {}):
            yield f"it ran with {words} ({_short(host[key])}): a recipe cannot say that; not written"
    if host.get("Privileged") is True:
        yield "it ran privileged: a serve of a recipe never does"
    network = str(host.get("NetworkMode") or "")
    if network != "host":
        ports = ", ".join(container(attrs).ports) or "no published port"
        yield f"it ran in network {network or 'default'} with {ports}: a serve is on the host's network"
    for key, words in (("User", "user"), ("WorkingDir", "working directory")):
        if config.get(key) and config.get(key) != base.get(key):
            yield f"it ran with {words} {_short(config[key])}: a recipe cannot say that; not written"
    ipc, runtime = str(host.get("IpcMode") or "private"), str(host.get("Runtime") or "runc")
    if ipc not in ("private", "host", "shareable"):
        yield f"it ran with IPC mode {ipc}: written as private"
    if runtime not in ("runc", "nvidia", "crun"):
        yield f"it ran with the runtime {runtime}: a recipe cannot say that; not written"
    others = [str(_map(d).get("PathOnHost")) for d in host.get("Devices") or ()]
    if strange := [d for d in others if not d.startswith("/dev/nvidia")]:
        yield f"it ran with devices {', '.join(strange)}: a recipe cannot say that; not written"


def _short(value: Any) -> str:
    text = redact(str(value))
    return text if len(text) <= 80 else f"{text[:77]}..."


def _words(value: Any) -> tuple[str, ...]:
    return tuple(str(word) for word in value) if isinstance(value, list) else ()


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
