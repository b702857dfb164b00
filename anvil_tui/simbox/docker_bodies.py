"""The JSON bodies of the Docker Engine API, in their full real shape."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from anvil_tui.simbox.daemon import API, MIN_API, VERSION, Daemon, Image, SimContainer
from anvil_tui.simbox.pace import rfc3339, stamp_ns

NEVER = "0001-01-01T00:00:00Z"
Filters = Mapping[str, list[str]]
Tests = Mapping[str, Callable[[str], bool]]


def version() -> dict[str, Any]:
    return {
        "Platform": {"Name": "simulated box"},
        "Version": VERSION,
        "ApiVersion": API,
        "MinAPIVersion": MIN_API,
        "GitCommit": "sim",
        "GoVersion": "go1.24",
        "Os": "linux",
        "Arch": "amd64",
        "KernelVersion": "6.8.0",
        "Components": [
            {"Name": "Engine", "Version": VERSION, "Details": {"ApiVersion": API, "MinAPIVersion": MIN_API}}
        ],
    }


def info(daemon: Daemon) -> dict[str, Any]:
    every = list(daemon.containers.values())
    runtimes = {"runc": {"path": "runc"}, "io.containerd.runc.v2": {"path": "runc"}}
    if daemon.gpu_driver:
        runtimes["nvidia"] = {"path": "nvidia-container-runtime"}
    return {
        "ID": "SIMU:LATE:DBOX",
        "Name": "simbox",
        "ServerVersion": VERSION,
        "OperatingSystem": "simulated box",
        "OSType": "linux",
        "Architecture": "x86_64",
        "NCPU": 32,
        "MemTotal": 137_438_953_472,
        "Containers": len(every),
        "ContainersRunning": sum(c.running for c in every),
        "ContainersPaused": 0,
        "ContainersStopped": sum(not c.running for c in every),
        "Images": len(daemon.images),
        "Driver": "overlayfs",
        "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
        "LoggingDriver": "json-file",
        "CgroupDriver": "systemd",
        "CgroupVersion": "2",
        "Runtimes": runtimes,
        "DefaultRuntime": "runc",
        "LiveRestoreEnabled": False,
        "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
        "SwapLimit": True,
        "Warnings": None,
        "Labels": [],
    }


def inspect(c: SimContainer) -> dict[str, Any]:
    words = c.words
    return {
        "Id": c.id,
        "Created": rfc3339(c.created_ns),
        "Path": words[0] if words else "",
        "Args": list(words[1:]),
        "State": _state(c),
        "Image": c.image.id,
        "ResolvConfPath": "",
        "HostnamePath": "",
        "HostsPath": "",
        "LogPath": "",
        "Name": f"/{c.name}",
        "RestartCount": c.restart_count,
        "Driver": "overlayfs",
        "Platform": "linux",
        "MountLabel": "",
        "ProcessLabel": "",
        "AppArmorProfile": "",
        "ExecIDs": None,
        "HostConfig": _host(c.host),
        "Mounts": _mounts(c),
        "Config": _config(c),
        "NetworkSettings": _network(c),
        "ImageManifestDescriptor": {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": c.image.id,
        },
    }


def _state(c: SimContainer) -> dict[str, Any]:
    return {
        "Status": c.status,
        "Running": c.running,
        "Paused": False,
        "Restarting": False,
        "OOMKilled": c.oom_killed,
        "Dead": False,
        "Pid": c.pid,
        "ExitCode": c.exit_code,
        "Error": c.error,
        "StartedAt": rfc3339(c.started_ns) if c.started_ns else NEVER,
        "FinishedAt": rfc3339(c.finished_ns) if c.finished_ns else NEVER,
    }


def _host(given: Mapping[str, Any]) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "Binds": None,
        "NetworkMode": "default",
        "PortBindings": {},
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "AutoRemove": False,
        "Privileged": False,
        "Init": None,
        "IpcMode": "private",
        "ShmSize": 67_108_864,
        "Memory": 0,
        "MemorySwap": 0,
        "NanoCpus": 0,
        "Runtime": "runc",
        "DeviceRequests": None,
        "Devices": [],
        "Mounts": None,
        "Ulimits": [],
        "OomKillDisable": None,
    }
    kept = {k: v for k, v in given.items() if v is not None or k not in defaults}
    log = kept.get("LogConfig") or {}
    return {
        **defaults,
        **kept,
        "LogConfig": {"Type": log.get("Type") or "json-file", "Config": log.get("Config") or {}},
    }


def _config(c: SimContainer) -> dict[str, Any]:
    given = c.config
    return {
        "Hostname": c.id[:12],
        "Domainname": "",
        "User": given.get("User") or "",
        "AttachStdin": False,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": bool(given.get("Tty")),
        "OpenStdin": False,
        "StdinOnce": False,
        "Env": given.get("Env") or [],
        "Cmd": given.get("Cmd"),
        "Image": given.get("Image"),
        "Volumes": given.get("Volumes"),
        "WorkingDir": given.get("WorkingDir") or "",
        "Entrypoint": given.get("Entrypoint") or (list(c.image.entrypoint) or None),
        "OnBuild": None,
        "Labels": given.get("Labels") or {},
        "ExposedPorts": given.get("ExposedPorts") or {},
        **{k: given[k] for k in ("StopTimeout", "StopSignal", "Healthcheck") if given.get(k) is not None},
    }


def _mounts(c: SimContainer) -> list[dict[str, Any]]:
    found = []
    for bind in c.host.get("Binds") or ():
        source, target, *mode = bind.split(":")
        kind = "bind" if source.startswith("/") else "volume"
        found.append(_mount(c, kind, source, target, "ro" not in (mode or [""])[0].split(",")))
    for m in c.host.get("Mounts") or ():
        kind, source, target = m.get("Type", "bind"), m.get("Source", ""), m.get("Target", "")
        found.append(_mount(c, kind, source, target, not m.get("ReadOnly")))
    return found


def _mount(c: SimContainer, kind: str, source: str, target: str, writable: bool) -> dict[str, Any]:
    """As the daemon tells it: a volume by its name, and by the folder that holds it."""
    name = {"Name": source, "Driver": "local"} if kind == "volume" else {}
    source = f"{c.volumes}/{source}/_data" if kind == "volume" else source
    mode = "" if writable else "ro"
    return {
        "Type": kind,
        **name,
        "Source": source,
        "Destination": target,
        "Mode": mode,
        "RW": writable,
        "Propagation": "rprivate",
    }


def _network(c: SimContainer) -> dict[str, Any]:
    mode = c.host.get("NetworkMode") or "default"
    name = "bridge" if mode == "default" else mode
    bindings = c.host.get("PortBindings") or {}
    return {
        "Bridge": "",
        "SandboxID": "",
        "SandboxKey": "",
        "Ports": bindings if c.running else {},
        "Networks": {
            name: {
                "IPAMConfig": None,
                "Aliases": None,
                "NetworkID": "",
                "EndpointID": "",
                "Gateway": "",
                "IPAddress": "",
                "MacAddress": "",
            }
        },
    }


def summary(c: SimContainer) -> dict[str, Any]:
    return {
        "Id": c.id,
        "Names": [f"/{c.name}"],
        "Image": c.config.get("Image"),
        "ImageID": c.image.id,
        "Command": " ".join(c.words),
        "Created": c.created_ns // 1_000_000_000,
        "Ports": _ports(c),
        "Labels": c.config.get("Labels") or {},
        "State": c.status,
        "Status": _phrase(c),
        "HostConfig": {"NetworkMode": c.host.get("NetworkMode") or "default"},
        "NetworkSettings": {"Networks": _network(c)["Networks"]},
        "Mounts": _mounts(c),
    }


def _ports(c: SimContainer) -> list[dict[str, Any]]:
    found = []
    for inner, rows in (c.host.get("PortBindings") or {}).items() if c.running else ():
        number, _, kind = inner.partition("/")
        found += [
            {
                "IP": b.get("HostIp") or "0.0.0.0",
                "PrivatePort": int(number),
                "PublicPort": int(b["HostPort"]),
                "Type": kind or "tcp",
            }
            for b in rows or ()
            if b.get("HostPort")
        ]
    return found


def _phrase(c: SimContainer) -> str:
    if c.status == "created":
        return "Created"
    seconds = (stamp_ns() - (c.started_ns if c.running else c.finished_ns)) // 1_000_000_000
    return f"Up {seconds} seconds" if c.running else f"Exited ({c.exit_code}) {seconds} seconds ago"


# filters


def wanted(c: SimContainer, filters: Filters) -> bool:
    """The daemon's filters. `name` is a substring match, as the real one."""
    labels = c.config.get("Labels") or {}
    tests: Tests = {
        "id": lambda v: c.id.startswith(v),
        "name": lambda v: re.search(v, f"/{c.name}") is not None,
        "status": lambda v: c.status == v,
        "exited": lambda v: c.status == "exited" and str(c.exit_code) == v,
        "ancestor": lambda v: v in (c.image.ref, c.image.id, c.image.repo),
    }
    for key, values in filters.items():
        if key == "label":
            if not all(_has_label(labels, v) for v in values):
                return False
        elif key in tests and not any(tests[key](v) for v in values):
            return False
    return True


def _has_label(labels: Mapping[str, str], text: str) -> bool:
    key, equals, value = text.partition("=")
    return key in labels and (not equals or labels[key] == value)


def event_wanted(event: Mapping[str, Any], filters: Filters) -> bool:
    attributes = event["Actor"]["Attributes"]
    tests: Tests = {
        "type": lambda v: v == event["Type"],
        "event": lambda v: v == event["Action"],
        "container": lambda v: event["id"].startswith(v) or attributes.get("name") == v,
        "label": lambda v: _has_label(attributes, v),
    }
    return all(any(tests[k](v) for v in values) for k, values in filters.items() if k in tests)


# images


def image(i: Image) -> dict[str, Any]:
    return {
        "Id": i.id,
        "RepoTags": [],
        "RepoDigests": [i.ref],
        "Parent": "",
        "Comment": "",
        "Created": NEVER,
        "Config": {"Entrypoint": list(i.entrypoint) or None, "Env": [], "Cmd": None, "Labels": {}},
        "Architecture": "amd64",
        "Os": "linux",
        "Size": i.size,
        "RootFS": {"Type": "layers", "Layers": []},
        "Metadata": {"LastTagTime": datetime(1, 1, 1, tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")},
        "Descriptor": {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": i.id, "size": 1609},
    }


def image_summary(i: Image) -> dict[str, Any]:
    return {
        "Id": i.id,
        "ParentId": "",
        "RepoTags": [],
        "RepoDigests": [i.ref],
        "Created": 0,
        "Size": i.size,
        "SharedSize": -1,
        "Labels": {},
        "Containers": -1,
    }
