# ruff: noqa: E501 - engine and daemon lines stand as they are written
"""Why a container never ran (field cases O-25, O-101; engine facts §7.1)."""

from __future__ import annotations

import pytest

from anvil_tui.core.start_failure import daemon_cause


@pytest.mark.parametrize(
    ("text", "name", "detail"),
    [
        (
            "driver failed programming external connectivity on endpoint serve-a: Bind for 127.0.0.1:8001 failed: port "
            "is already allocated",
            "port_in_use",
            "127.0.0.1:8001",
        ),
        ("listen tcp4 127.0.0.1:18092: bind: address already in use", "port_in_use", "127.0.0.1:18092"),
        (
            "driver failed programming external connectivity on endpoint a (1f): failed to bind host port for "
            "127.0.0.1:8001:172.17.0.2:8000/tcp: address already in use",
            "port_in_use",
            "127.0.0.1:8001",
        ),
        (
            "failed to set up container networking: driver failed programming external connectivity on endpoint a (1f): "
            "failed to bind host port 0.0.0.0:8001/tcp: address already in use",
            "port_in_use",
            "0.0.0.0:8001",
        ),
        (
            "Ports are not available: exposing port TCP 127.0.0.1:8001 -> 127.0.0.1:0: listen tcp 127.0.0.1:8001: bind: "
            "Only one usage of each socket address is normally permitted.",
            "port_in_use",
            "127.0.0.1:8001",
        ),
        ("Bind for 0.0.0.0:80: unexpected error (Failure EADDRINUSE)", "port_in_use", "0.0.0.0:80"),
        ("Bind for :::8001 failed: port is already allocated", "port_in_use", ":::8001"),
        ("listen tcp6 [::1]:8001: bind: address already in use", "port_in_use", "[::1]:8001"),
        ('could not select device driver "" with capabilities: [[gpu]]', "gpu_support_missing", "[[gpu]]"),
        ('could not select device driver "nvidia" with capabilities: [[gpu]]', "gpu_support_missing", "[[gpu]]"),
        ("unknown or invalid runtime name: nvidia", "runtime_unknown", "nvidia"),
        ("Unknown runtime specified nvidia", "runtime_unknown", "nvidia"),
        (
            "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=7",
            "cdi_device_unknown",
            "nvidia.com/gpu=7",
        ),
        (
            "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
            "gpu_driver_missing",
            "nvml error: driver not loaded",
        ),
        ("nvidia-container-cli: device error: GPU-12: unknown device: unknown", "gpu_unknown", "GPU-12"),
        (
            'error gathering device information while adding custom device "/dev/nvidia-uvm-tools": no such file or '
            "directory",
            "device_node_missing",
            "/dev/nvidia-uvm-tools",
        ),
        (
            'invalid mount config for type "bind": bind source path does not exist: /srv/models',
            "mount_missing",
            "/srv/models",
        ),
        ('Conflict. The container name "/rp-a" is already in use by container "ab"', "name_in_use", "/rp-a"),
        ("error setting rlimit type 8: operation not permitted", "limit_refused", "8"),
        (
            'exec: "/usr/bin/none": stat /usr/bin/none: no such file or directory: unknown',
            "entrypoint_missing",
            "/usr/bin/none",
        ),
        ("write /var/lib/x: no space left on device", "disk_full", ""),
        ("something new", "start_failed", ""),
    ],
)
def test_daemon_texts(text: str, name: str, detail: str) -> None:
    """O-25, moby/moby#36591, docker/for-mac#1114, and O-101, NVIDIA/nvidia-docker#526."""
    cause = daemon_cause(text)
    assert (cause.name, cause.detail) == (name, detail)


@pytest.mark.parametrize(
    "text",
    [
        'error gathering device information while adding custom device "/dev/nvidia-uvm-tools": no such file or directory',
        'error gathering device information while adding custom device "/dev/nvidia0": not a device node',
        "nvidia-container-cli: mount error: stat failed: /dev/nvidia-caps/nvidia-cap1: no such file or directory",
        'failed to inject CDI devices: failed to stat CDI host device "/dev/nvidia1": no such file or directory',
        "open /dev/nvidiactl: no such device or address",
        "lstat /dev/nvidia-modeset: no such device",
        "error mounting: device does not exist: /dev/nvidia-uvm",
        'invalid mount config for type "bind": bind source path does not exist: /dev/nvidia3',
    ],
)
def test_missing_device_nodes_are_no_fault_of_the_recipe(text: str) -> None:
    """O-101: whatever the words of the daemon or the runtime, as long as they name /dev/nvidia*."""
    cause = daemon_cause(text)
    assert (cause.name, cause.hint) == ("device_node_missing", "driver device nodes missing on the host")
    assert cause.detail.startswith("/dev/nvidia")


def test_a_node_that_is_there_and_refused_is_not_called_missing() -> None:
    assert daemon_cause("open /dev/nvidia0: operation not permitted").name == "start_failed"
