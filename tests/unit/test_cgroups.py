"""Which container a process is of: control groups of version 1 and 2, of both drivers, nested, other engines."""

from __future__ import annotations

import pytest

from anvil_tui.core.cgroups import container_in

ID, INNER = "ab" * 32, "cd" * 32
GROUPS = {
    "v1 cgroupfs": (f"12:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n", ID),
    "v1 without a group": ("12:memory:/user.slice\n1:name=systemd:/user.slice/user-1000.slice\n0::/\n", ""),
    "v1, its own parent": (f"4:memory:/anvil/{ID}\n", ID),
    "hybrid, v2 empty": (f"9:devices:/docker/{ID}\n0::/\n", ID),
    "v2 cgroupfs": (f"0::/docker/{ID}\n", ID),
    "v2 systemd": (f"0::/system.slice/docker-{ID}.scope\n", ID),
    "v2 systemd, its own slice": (f"0::/anvil.slice/anvil-serves.slice/docker-{ID}.scope\n", ID),
    "rootless": (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope\n", ID),
    "below its own group": (f"0::/system.slice/docker-{ID}.scope/init.scope\n", ID),
    "nested": (f"0::/docker/{ID}/docker/{INNER}\n", ID),
    "kubernetes": (f"0::/kubepods.slice/kubepods-pod1a2b.slice/cri-containerd-{ID}.scope\n", ID),
    "kubernetes in a container": (f"0::/docker/{ID}/kubelet.slice/cri-containerd-{INNER}.scope\n", ID),
    "systemd name in cgroupfs": (f"11:cpu:/system.slice/kubepods-pod1.slice:cri-containerd:{ID}\n", ID),
    "podman": (f"0::/machine.slice/libpod-{ID}.scope/container\n", ID),
    "podman's monitor": (f"0::/machine.slice/libpod-conmon-{ID}.scope\n", ""),
    "a service": ("0::/system.slice/llama.service\n", ""),
    "longer hex is no id": (f"0::/x/{ID}ff\n", ""),
    "the engine itself": ("0::/system.slice/docker.service\n", ""),
    "nothing": ("", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_the_container_of_a_process_by_its_control_group(name: str) -> None:
    text, want = GROUPS[name]
    assert container_in(text) == want
