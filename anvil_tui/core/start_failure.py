"""Why a container never ran, from the daemon's own words (State.Error or the answer to a start)."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartCause:
    """`name` is a stable class; `hint` says where to look; `detail` the endpoint or device named, if any."""

    name: str
    hint: str = ""
    detail: str = ""


_CAUSES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), name, hint)
    for pattern, name, hint in (
        (
            r"Bind for (\S+?)(?: failed: port is already allocated|: unexpected error \(Failure EADDRINUSE\))"
            r"|failed to bind host port (?:for )?([\d.]+:\d+|\[[\da-f:.]+\]:\d+).*address already in use"
            r"|Ports are not available:.*?((?:[\d.]+|\[[\da-f:.]+\]):\d+)"
            r"|(?:listen tcp\d? ?|bind(?:ing)? )?([\d.\[\]:]+:\d+): bind: address already in use"
            r"|(?:port is already allocated|address already in use|EADDRINUSE)",
            "port_in_use",
            "another process listens there",
        ),
        (
            r"could not select device driver .*?capabilities: (\[\[.*?gpu.*?\]\])",
            "gpu_support_missing",
            "the container engine knows no NVIDIA container toolkit",
        ),
        (
            r"(?:unknown or invalid runtime name:?|Unknown runtime specified) (\S+)",
            "runtime_unknown",
            "register this runtime with the container engine",
        ),
        (
            r"unresolvable CDI devices ([^\s:]+)",
            "cdi_device_unknown",
            "the CDI specification is missing or stale (nvidia-ctk cdi generate)",
        ),
        (
            r"nvidia-container-cli: initialization error: (.+?)(?:: unknown|$)",
            "gpu_driver_missing",
            "the NVIDIA driver is not loaded on the host",
        ),
        (
            r"nvidia-container-cli: device error: (\S+?): unknown device",
            "gpu_unknown",
            "no GPU of the host has this UUID",
        ),
        (
            r"(/dev/nvidia[\w/-]*)\W.*(?:no such (?:file|device)|not a device|not found|does not exist)"
            r"|(?:does not exist|not found): (/dev/nvidia[\w/-]*)",
            "device_node_missing",
            "driver device nodes missing on the host",
        ),
        (r"bind source path does not exist: (\S+)", "mount_missing", "create this host path or correct the mount"),
        (r"container name \W*(/[\w.-]+)\W* is already in use", "name_in_use", ""),
        (r"error setting rlimit type (\d+)", "limit_refused", "the container engine may not raise this limit"),
        (
            r'exec: \\?"([^"\\]+)\\?": (?:stat .*: no such file|executable file not found|permission denied)',
            "entrypoint_missing",
            "the image has no such program",
        ),
        (r"no space left on device", "disk_full", "free space for the container engine"),
    )
)


def daemon_cause(text: str) -> StartCause:
    """The cause that the daemon's text names; `start_failed` with no hint when it is none of the known ones.

    >>> daemon_cause("Bind for 127.0.0.1:8001 failed: port is already allocated").detail
    '127.0.0.1:8001'
    """
    for pattern, name, hint in _CAUSES:
        match = pattern.search(text)
        if match:
            return StartCause(name, hint, next((group for group in match.groups() if group), ""))
    return StartCause("start_failed")
