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
    cause = daemon_cause(text)
    assert (cause.name, cause.detail) == (name, detail)


def test_missing_device_nodes_are_no_fault_of_the_recipe() -> None:
    text = (
        'error gathering device information while adding custom device "/dev/nvidia0": no such file or directory'
    )
    assert daemon_cause(text).hint == "driver device nodes missing on the host"
