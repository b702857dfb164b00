"""What the daemon's JSON means: containers, GPU grants, published ports, image digests. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from anvil_tui.core.box import Container, GpuGrant
from anvil_tui.core.redact import redact, redact_argv
from anvil_tui.core.text import clean
from anvil_tui.core.times import parse_time

FULL_GPU_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NVIDIA_CDI = re.compile(r"(?:[\w.-]*\.)?nvidia\.com/(?:gpu|mig[\w.-]*)=(.+)")
# Minor devices of GPUs and MIG, and the folder of all devices; /dev/nvidiactl and /dev/nvidia-uvm reach no GPU.
_GPU_NODE = re.compile(r"/dev/?|/dev/(?:nvidia\d+|nvidia-caps(?:/.*)?)")
# Any of them selects the daemon's NVIDIA driver for a device request that names none.
_NVIDIA_CAPABILITIES = frozenset(
    {"gpu", "nvidia", "compute", "compat32", "graphics", "utility", "video", "display"}
)
_NO_GPU_VALUES = frozenset({"", "none", "void"})
# A value of NVIDIA_VISIBLE_DEVICES: the devices are the names of what is mounted into this folder.
_VOLUME_DEVICES = "/var/run/nvidia-container-devices"

PinKind = Literal["index", "manifest", "config"]


def container(attrs: Mapping[str, Any], pins: tuple[str, ...] = ()) -> Container:
    """A container as its inspect shows it."""
    state, config, host = (_map(attrs.get(key)) for key in ("State", "Config", "HostConfig"))
    status = str(state.get("Status") or "unknown")
    ended = status in ("exited", "dead", "restarting")
    return Container(
        id=str(attrs.get("Id") or ""),
        name=str(attrs.get("Name") or "").removeprefix("/"),
        status=status,
        image_id=str(attrs.get("Image") or ""),
        image_ref=str(config.get("Image") or ""),
        labels=_texts(config.get("Labels")),
        created_at=moment(attrs.get("Created")),
        started_at=moment(state.get("StartedAt")),
        finished_at=moment(state.get("FinishedAt")),
        exit_code=_int(state.get("ExitCode")) if ended else None,
        oom_killed=state.get("OOMKilled") if isinstance(state.get("OOMKilled"), bool) else None,
        restart_count=_int(attrs.get("RestartCount")),
        restart_policy=str(_map(host.get("RestartPolicy")).get("Name") or "no"),
        error=redact(str(state.get("Error") or "")),
        health=_health(state),
        pid=_int(state.get("Pid")) or None,
        argv=redact_argv((str(attrs.get("Path") or ""), *(str(arg) for arg in attrs.get("Args") or ()))),
        gpus=gpu_grant(attrs),
        tty=config.get("Tty") is True,
        log_driver=str(_map(host.get("LogConfig")).get("Type") or ""),
        ports=endpoints(_map(_map(attrs.get("NetworkSettings")).get("Ports"))),
        pins=pins,
        env_names=tuple(str(entry).partition("=")[0] for entry in config.get("Env") or ()),
        mounts=tuple(
            (str(m.get("Source") or m.get("Name") or ""), str(m.get("Destination") or ""), m.get("RW") is False)
            for m in map(_map, attrs.get("Mounts") or ())
        ),
        network=str(host.get("NetworkMode") or ""),
    )


def row(attrs: Mapping[str, Any], error: str) -> Container:
    """A container whose inspect failed: what the list says, its state unknown, the daemon's words beside it."""
    names = attrs.get("Names") or [""]
    return Container(
        id=str(attrs.get("Id") or ""),
        name=str(names[0]).removeprefix("/"),
        status="unknown",
        image_id=str(attrs.get("ImageID") or ""),
        image_ref=str(attrs.get("Image") or ""),
        labels=_texts(attrs.get("Labels")),
        gpus=GpuGrant(effective="unknown"),
        error=error,
    )


def moment(text: Any) -> str | None:
    """The daemon's time as it wrote it; None for never and for what is no time."""
    try:
        return str(text) if text and parse_time(str(text)) is not None else None
    except ValueError:
        return None


def _health(state: Mapping[str, Any]) -> str | None:
    status = _map(state.get("Health")).get("Status")
    return None if status in (None, "", "none") else str(status)


def endpoints(ports: Mapping[str, Any]) -> tuple[str, ...]:
    """`HOST:PORT->CONTAINER/PROTO`, one for each published port; the IPv4 and IPv6 twins of "everywhere" are
    one endpoint, written `*` (reachable from outside), those of the loopback are `127.0.0.1`. Exposed but
    unpublished ports are left out.
    """
    found: dict[str, None] = {}
    for inside, bindings in ports.items():
        for binding in map(_map, bindings or ()):
            where = str(binding.get("HostIp") or "")
            where = "*" if where in ("", "0.0.0.0", "::") else f"[{where}]" if ":" in where else where
            found[f"{where}:{binding.get('HostPort')}->{inside}"] = None
    return tuple(e for e in found if not e.startswith("[::1]") or e.replace("[::1]", "127.0.0.1", 1) not in found)


def gpu_grant(attrs: Mapping[str, Any]) -> GpuGrant:
    """The GPUs a container was given, over all five ways; the widest way wins.

    An index, a count or a device node names a GPU that only the driver can identify: effective `unknown`.
    """
    host = _map(attrs.get("HostConfig"))
    variable = _environment(host, _map(attrs.get("Config")), attrs.get("Mounts") or ())
    ways = [*_device_requests(host), *variable, *_device_nodes(host)]
    requested = tuple(dict.fromkeys(name for _, names in ways for name in names))
    if host.get("Privileged") is True:
        return GpuGrant(requested, "all", via="privileged")
    if not ways:
        return GpuGrant()
    graded = [(_effective(names), via) for via, names in ways]
    for grade in ("all", "unknown"):
        for effective, via in graded:
            if effective == grade:
                return GpuGrant(requested, effective, via=via)
    uuids = tuple(m[0] for name in requested if (m := FULL_GPU_UUID.search(name)))
    return GpuGrant(requested, "uuids", uuids, ways[0][0])


def _device_requests(host: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    found = []
    for request in host.get("DeviceRequests") or ():
        ids = [str(name) for name in request.get("DeviceIDs") or ()]
        driver, count = str(request.get("Driver") or ""), _int(request.get("Count")) or 0
        if driver == "cdi" or any("=" in name for name in ids):
            names = [name for name in ids if _NVIDIA_CDI.fullmatch(name)]
            found += [("cdi", names)] if names else []
        elif driver.startswith("nvidia") or _wants_gpu(request.get("Capabilities")):
            names = ids or (["all"] if count < 0 else [f"count={count}"] if count else [])
            found += [("device-request", names)] if names else []
    return found


def _wants_gpu(capabilities: Any) -> bool:
    return any(not _NVIDIA_CAPABILITIES.isdisjoint(group or ()) for group in capabilities or ())


def _environment(
    host: Mapping[str, Any], config: Mapping[str, Any], mounts: Sequence[Any]
) -> list[tuple[str, list[str]]]:
    """NVIDIA_VISIBLE_DEVICES counts under an NVIDIA runtime, and only where no device request replaced it; one by
    CDI does not. Where it is absent, an image of the old kind (CUDA_VERSION alone) is given every GPU. Devices may
    also be named by what is mounted into one folder.
    """
    if "nvidia" not in str(host.get("Runtime") or "") or any(
        via == "device-request" for via, _ in _device_requests(host)
    ):
        return []
    said = dict(str(entry).partition("=")[::2] for entry in config.get("Env") or ())
    old = "CUDA_VERSION" in said and "NVIDIA_REQUIRE_CUDA" not in said
    value = said.get("NVIDIA_VISIBLE_DEVICES", "all" if old else "")
    names = [name for part in value.split(",") if (name := part.strip()) not in _NO_GPU_VALUES]
    if names == [_VOLUME_DEVICES]:
        inside = (str(_map(mount).get("Destination") or "") for mount in mounts)
        names = [path.rpartition("/")[2] for path in inside if path.startswith(f"{_VOLUME_DEVICES}/")]
    return [("environment", names)] if names else []


def _device_nodes(host: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    paths = [str(_map(device).get("PathOnHost") or "") for device in host.get("Devices") or ()]
    nodes = [path for path in paths if _GPU_NODE.fullmatch(path)]
    return [("device-node", nodes)] if nodes else []


def _effective(names: Sequence[str]) -> Literal["all", "uuids", "unknown"]:
    bare = [match[1] if (match := _NVIDIA_CDI.fullmatch(name)) else name for name in names]
    if "all" in bare:
        return "all"
    return "uuids" if all(FULL_GPU_UUID.fullmatch(name) for name in bare) else "unknown"


def repo_digests(image: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(name) for name in image.get("RepoDigests") or () if "@sha256:" in str(name))


def observed_digests(image: Mapping[str, Any]) -> tuple[str, ...]:
    """Every digest that names this image, most general first."""
    found = [name.partition("@")[2] for name in repo_digests(image)]
    found.append(str(_map(image.get("Descriptor")).get("digest") or ""))
    found += [str(_map(entry).get("ID") or "") for entry in image.get("Manifests") or ()]
    found.append(str(image.get("Id") or ""))
    return tuple(dict.fromkeys(digest for digest in found if digest))


def match_pin(digest: str, image: Mapping[str, Any], *, containerd: bool) -> PinKind | None:
    """Which kind of digest of `image` a pin names; None when it names none of them.

    A registry digest is the index unless the daemon describes it as a plain manifest; an image id is a
    manifest digest in the containerd store and a config digest in the classic one.
    """
    descriptor = _map(image.get("Descriptor"))
    if digest in {name.partition("@")[2] for name in repo_digests(image)}:
        plain = descriptor.get("digest") == digest and "manifest.v" in str(descriptor.get("mediaType"))
        return "manifest" if plain else "index"
    if digest == descriptor.get("digest") or digest in {
        _map(entry).get("ID") for entry in image.get("Manifests") or ()
    }:
        return "manifest"
    if digest == image.get("Id"):
        return "manifest" if containerd else "config"
    return None


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in _map(value).items()}


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def short(container_id: str) -> str:
    """An id as people read it in messages."""
    return clean(container_id, 64)[:12]
