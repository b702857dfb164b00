"""Which container a process is of, by its control groups (`/proc/PID/cgroup`). Pure."""

from __future__ import annotations

import re

# Control-group directories of containers: the bare id (cgroupfs driver: Docker, Kubernetes), or a systemd scope
# `docker-ID.scope`, `cri-containerd-ID.scope`, `crio-ID.scope`, `libpod-ID.scope`, also as `SLICE:PREFIX:ID`.
_OF_A_CONTAINER = re.compile(r"(?:[A-Za-z0-9_.-]+[-:])*([0-9a-f]{64})(?:\.scope)?")


def container_in(text: str) -> str:
    """The full id of the outermost container that a process is in, by the text of its cgroup file; "" = in none.

    A container inside a container is shown as the outer one, which is what the engine of this box lists. The
    monitor of a container (`libpod-conmon-ID.scope`) runs beside it, not in it.

    >>> container_in("0::/system.slice/docker-" + "ab" * 32 + ".scope")[:4]
    'abab'
    """
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        for part in path.split("/"):
            found = _OF_A_CONTAINER.fullmatch(part)
            if found and "conmon" not in part:
                return found[1]
    return ""
