# ruff: noqa: E501 - daemon answers stand as they are written
"""What the daemon's JSON means (field cases O-08, O-17, O-23, O-25, O-26, O-101)."""

from __future__ import annotations

from typing import Any

import pytest

from anvil_tui.adapters import docker_shape as shape
from anvil_tui.adapters.docker_engine import pull_progress
from anvil_tui.core.box import GpuGrant
from anvil_tui.core.errors import EffectFailed

GPU1 = "GPU-aaaa0000-0000-0000-0000-000000000001"
GPU2 = "GPU-aaaa0000-0000-0000-0000-000000000002"


def request(**fields: Any) -> dict[str, Any]:
    return {"Driver": "", "Count": 0, "DeviceIDs": None, "Capabilities": [["gpu"]], **fields}


def grant(env: list[str] | None = None, **host: Any) -> GpuGrant:
    return shape.gpu_grant({"HostConfig": host, "Config": {"Env": env}})


def test_privileged_sees_all_whatever_was_asked() -> None:
    """O-08."""
    got = grant(
        ["NVIDIA_VISIBLE_DEVICES=all"],
        Privileged=True,
        Runtime="nvidia",
        DeviceRequests=[request(Driver="nvidia", DeviceIDs=[GPU1])],
    )
    assert got == GpuGrant((GPU1,), "all", (), "privileged")


def test_image_variable_under_the_nvidia_runtime_gives_all() -> None:
    """O-08."""
    assert grant(["NVIDIA_VISIBLE_DEVICES=all"], Runtime="nvidia", DeviceRequests=None) == GpuGrant(
        ("all",), "all", (), "environment"
    )


@pytest.mark.parametrize(
    ("env", "host", "effective", "uuids", "via"),
    [
        (None, {"DeviceRequests": [request(DeviceIDs=[GPU1, GPU2])]}, "uuids", (GPU1, GPU2), "device-request"),
        (None, {"DeviceRequests": [request(Count=-1)]}, "all", (), "device-request"),
        (None, {"DeviceRequests": [request(DeviceIDs=["all"])]}, "all", (), "device-request"),
        (None, {"DeviceRequests": [request(Count=1)]}, "unknown", (), "device-request"),
        (None, {"DeviceRequests": [request(DeviceIDs=["0"])]}, "unknown", (), "device-request"),
        (None, {"DeviceRequests": [request(DeviceIDs=["GPU-aaaa"])]}, "unknown", (), "device-request"),
        (None, {"DeviceRequests": [request(DeviceIDs=[GPU1]), request(Count=-1)]}, "all", (), "device-request"),
        (None, {"DeviceRequests": [request(Driver="cdi", Capabilities=None, DeviceIDs=["nvidia.com/gpu=all"])]},
         "all", (), "cdi"),
        (None, {"DeviceRequests": [request(Driver="cdi", Capabilities=None, DeviceIDs=[f"nvidia.com/gpu={GPU1}"])]},
         "uuids", (GPU1,), "cdi"),
        (None, {"DeviceRequests": [request(Driver="cdi", Capabilities=None, DeviceIDs=["nvidia.com/gpu=0"])]},
         "unknown", (), "cdi"),
        (None, {"DeviceRequests": [request(Driver="cdi", Capabilities=None, DeviceIDs=["vendor.com/nic=0"])]},
         "none", (), "none"),
        (None, {"Devices": [{"PathOnHost": "/dev/nvidia0"}, {"PathOnHost": "/dev/nvidiactl"}]},
         "unknown", (), "device-node"),
        (None, {"Devices": [{"PathOnHost": "/dev/nvidiactl"}, {"PathOnHost": "/dev/fuse"}]}, "none", (), "none"),
        ([f"NVIDIA_VISIBLE_DEVICES={GPU1},{GPU2}"], {"Runtime": "nvidia"}, "uuids", (GPU1, GPU2), "environment"),
        (["NVIDIA_VISIBLE_DEVICES=0"], {"Runtime": "nvidia"}, "unknown", (), "environment"),
        (["NVIDIA_VISIBLE_DEVICES=void"], {"Runtime": "nvidia"}, "none", (), "none"),
        (["NVIDIA_VISIBLE_DEVICES="], {"Runtime": "nvidia"}, "none", (), "none"),
        (["NVIDIA_VISIBLE_DEVICES"], {"Runtime": "nvidia"}, "none", (), "none"),
        ([f"NVIDIA_VISIBLE_DEVICES={GPU1},"], {"Runtime": "nvidia"}, "uuids", (GPU1,), "environment"),
        ([f"NVIDIA_VISIBLE_DEVICES=none,{GPU1}"], {"Runtime": "nvidia"}, "uuids", (GPU1,), "environment"),
        ([f"NVIDIA_VISIBLE_DEVICES={GPU1},all"], {"Runtime": "nvidia"}, "all", (), "environment"),
        ([f"NVIDIA_VISIBLE_DEVICES={GPU1},0"], {"Runtime": "nvidia"}, "unknown", (), "environment"),
        (["NVIDIA_VISIBLE_DEVICES=0:1"], {"Runtime": "nvidia"}, "unknown", (), "environment"),
        ([f"NVIDIA_VISIBLE_DEVICES=MIG-{GPU1[4:]}"], {"Runtime": "nvidia"}, "uuids", (f"MIG-{GPU1[4:]}",), "environment"),
        (["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all"], {"Runtime": "nvidia-cdi"}, "all", (), "environment"),
        (["NVIDIA_VISIBLE_DEVICES=runtime.nvidia.com/gpu=all"], {"Runtime": "nvidia"}, "all", (), "environment"),
        (["CUDA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=all"], {"Runtime": "nvidia"}, "all", (), "environment"),
        (["CUDA_VISIBLE_DEVICES=0"], {"Runtime": "nvidia"}, "none", (), "none"),
        (["CUDA_VERSION=11.0"], {"Runtime": "nvidia"}, "all", (), "environment"),
        (["CUDA_VERSION=12.8", "NVIDIA_REQUIRE_CUDA=cuda>=12.8"], {"Runtime": "nvidia"}, "none", (), "none"),
        (["CUDA_VERSION=11.0", "NVIDIA_VISIBLE_DEVICES=void"], {"Runtime": "nvidia"}, "none", (), "none"),
        (["CUDA_VERSION=11.0"], {"Runtime": "runc"}, "none", (), "none"),
        (["NVIDIA_VISIBLE_DEVICES=all"],
         {"Runtime": "nvidia", "DeviceRequests": [request(Driver="cdi", DeviceIDs=[f"nvidia.com/gpu={GPU1}"])]},
         "all", (), "environment"),
        (None, {"DeviceRequests": [request(Driver="cdi", DeviceIDs=["nvidia.com/mig=0:1"])]}, "unknown", (), "cdi"),
        (None, {"DeviceRequests": [request(Driver="cdi", DeviceIDs=["management.nvidia.com/gpu=all"])]}, "all", (), "cdi"),
        (None, {"DeviceRequests": [request(Driver="nvidia", Capabilities=None, Count=-1)]}, "all", (), "device-request"),
        (None, {"DeviceRequests": [request(Count=0)]}, "none", (), "none"),
        (None, {"DeviceRequests": [request(Capabilities=[["rdma"]], Count=-1)]}, "none", (), "none"),
        (["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=none"], {"Runtime": "nvidia"}, "none", (), "none"),
        (["NVIDIA_VISIBLE_DEVICES=all"], {"Runtime": "runc"}, "none", (), "none"),
        (["NVIDIA_VISIBLE_DEVICES=all"], {"Runtime": "nvidia", "DeviceRequests": [request(DeviceIDs=[GPU1])]},
         "uuids", (GPU1,), "device-request"),
        ([], {"Privileged": True}, "all", (), "privileged"),
        ([], {}, "none", (), "none"),
    ],
)  # fmt: skip
def test_five_ways_to_a_gpu(
    env: list[str] | None, host: dict[str, Any], effective: str, uuids: tuple[str, ...], via: str
) -> None:
    """O-08: every shape of the requests and of the variables; what only the driver can resolve is unknown."""
    got = grant(env, **host)
    assert (got.effective, got.uuids, got.via) == (effective, uuids, via)


def test_devices_that_are_named_by_mounts() -> None:
    """O-08: the runtime's other way to name them, for hosts where the variable is not trusted."""
    folder = "/var/run/nvidia-container-devices"
    attrs = {
        "HostConfig": {"Runtime": "nvidia"},
        "Config": {"Env": [f"NVIDIA_VISIBLE_DEVICES={folder}"]},
        "Mounts": [{"Destination": f"{folder}/{GPU2}"}, {"Destination": "/models"}],
    }
    assert shape.gpu_grant(attrs) == GpuGrant((GPU2,), "uuids", (GPU2,), "environment")
    assert shape.gpu_grant({**attrs, "Mounts": []}).effective == "none"


INDEX, MANIFEST, CONFIG, OTHER = (f"sha256:{pair * 32}" for pair in ("a1", "b2", "c3", "d4"))
CLASSIC = {"Id": CONFIG, "RepoDigests": [f"registry.local/eng@{INDEX}"]}
CONTAINERD = {"Id": MANIFEST, "RepoDigests": [f"registry.local/eng@{INDEX}"]}


@pytest.mark.parametrize(
    ("pin", "image", "containerd", "kind"),
    [
        (INDEX, CLASSIC, False, "index"),
        (INDEX, CONTAINERD, True, "index"),
        (MANIFEST, CONTAINERD, True, "manifest"),
        (CONFIG, CLASSIC, False, "config"),
        (MANIFEST, {**CLASSIC, "Manifests": [{"ID": MANIFEST}]}, False, "manifest"),
        (INDEX, {**CLASSIC, "Descriptor": {"digest": INDEX, "mediaType": "application/vnd.oci.image.index.v1+json"}},
         True, "index"),
        (INDEX, {**CLASSIC, "Descriptor": {"digest": INDEX, "mediaType": "application/vnd.oci.image.manifest.v1+json"}},
         True, "manifest"),
        (INDEX, {"Id": INDEX, "RepoDigests": [f"mirror.local/eng@{INDEX}"]}, True, "index"),
        (MANIFEST, {"Id": INDEX, "RepoDigests": [], "Manifests": [{"ID": MANIFEST}]}, True, "manifest"),
        (CONFIG, CONTAINERD, True, None),
        (OTHER, CLASSIC, False, None),
        (OTHER, CONTAINERD, True, None),
        (INDEX, {"Id": CONFIG, "RepoDigests": None}, False, None),
    ],
)  # fmt: skip
def test_pin_names_the_kind_it_matched(
    pin: str, image: dict[str, Any], containerd: bool, kind: str | None
) -> None:
    """O-23, moby/moby#44144; None = image_mismatch."""
    assert shape.match_pin(pin, image, containerd=containerd) == kind


def test_observed_digests_are_listed_once() -> None:
    assert shape.observed_digests(CLASSIC) == (INDEX, CONFIG)
    assert shape.observed_digests({"Id": INDEX, "RepoDigests": [f"x@{INDEX}"]}) == (INDEX,)


def test_twin_bindings_are_one_endpoint_and_outside_reach_is_marked() -> None:
    """O-26, moby/moby#42313: `*` is reachable from outside; 9000 is exposed and not published."""
    ports = {
        "8000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8001"}, {"HostIp": "::", "HostPort": "8001"}],
        "9000/tcp": None,
        "7000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "7001"}],
        "7100/tcp": [{"HostIp": "::1", "HostPort": "7101"}],
    }
    assert shape.endpoints(ports) == ("*:8001->8000/tcp", "127.0.0.1:7001->7000/tcp", "[::1]:7101->7100/tcp")


@pytest.mark.parametrize(
    ("hosts", "shown"),
    [
        (["::", "0.0.0.0"], ("*:8001->8000/tcp",)),
        (["::"], ("*:8001->8000/tcp",)),
        ([""], ("*:8001->8000/tcp",)),
        (["127.0.0.1", "::1"], ("127.0.0.1:8001->8000/tcp",)),
        (["::1", "127.0.0.1"], ("127.0.0.1:8001->8000/tcp",)),
        (["10.0.0.5", "0.0.0.0"], ("10.0.0.5:8001->8000/tcp", "*:8001->8000/tcp")),
    ],
)
def test_pairs_of_addresses(hosts: list[str], shown: tuple[str, ...]) -> None:
    """O-26: in any order, alone, and the twins of the loopback."""
    ports = {"8000/tcp": [{"HostIp": host, "HostPort": "8001"} for host in hosts], "9000/tcp": []}
    assert shape.endpoints(ports) == shown


def test_twins_with_ports_of_their_own_are_two_endpoints() -> None:
    ports = {"8000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8001"}, {"HostIp": "::", "HostPort": "8002"}]}
    assert shape.endpoints(ports) == ("*:8001->8000/tcp", "*:8002->8000/tcp")


def test_never_started_is_no_exit() -> None:
    """O-25: `created`, not `exited 128`."""
    made = shape.container(
        {"Id": "5a", "State": {"Status": "created", "ExitCode": 128, "StartedAt": "0001-01-01T00:00:00Z"}}
    )
    assert (made.status, made.exit_code, made.started_at) == ("created", None, None)


def test_exit_before_the_first_line_keeps_the_daemons_words() -> None:
    """O-101: in full; it never started, whatever year the daemon writes for that."""
    text = 'error gathering device information while adding custom device "/dev/nvidia-uvm-tools": no such file or directory'
    dead = shape.container(
        {
            "Id": "c7",
            "Name": "/chat-a",
            "State": {
                "Status": "exited",
                "ExitCode": 128,
                "OOMKilled": False,
                "StartedAt": "0001-01-01T00:00:00Z",
                "FinishedAt": "2026-09-02T10:00:01.5Z",
                "Error": text,
            },
        }
    )
    assert (dead.name, dead.exit_code, dead.oom_killed, dead.error) == ("chat-a", 128, False, text)
    assert (dead.started_at, dead.finished_at) == (None, "2026-09-02T10:00:01.5Z")


@pytest.mark.parametrize("status", ["removing", "dead", "restarting", "paused"])
def test_states_are_shown_as_themselves(status: str) -> None:
    """O-16, O-17."""
    found = shape.container({"Id": "x", "RestartCount": 4, "State": {"Status": status, "ExitCode": 1}})
    assert (found.status, found.restart_count) == (status, 4)
    assert found.exit_code == (1 if status in ("dead", "restarting") else None)


def test_nonsense_is_unknown_and_not_a_crash() -> None:
    found = shape.container({"Id": "x", "State": "running", "Config": None, "HostConfig": [], "Args": None})
    assert (found.status, found.oom_killed, found.restart_count) == ("unknown", None, None)


def test_a_row_without_inspect_is_unknown_also_in_its_gpus() -> None:
    found = shape.row({"Id": "b2", "Names": ["/b"], "ImageID": "sha256:1", "Labels": {"a": "1"}}, "server error")
    assert (found.name, found.status, found.error, found.labels) == ("b", "unknown", "server error", {"a": "1"})
    assert found.gpus.effective == "unknown"


def test_pull_progress_is_one_line_for_each_change() -> None:
    mib = 1024 * 1024

    def loading(layer: str, have: int) -> dict[str, Any]:
        return {"id": layer, "status": "Downloading", "progressDetail": {"current": have * mib, "total": 50 * mib}}

    events = [
        {"status": "Pulling from eng", "id": "a1"},
        {"status": "Pulling fs layer", "id": "l1", "progressDetail": {}},
        loading("l1", 25),
        loading("l1", 25),
        loading("l2", 0),
        {"id": "l1", "status": "Pull complete"},
        {"id": "l2", "status": "Pull complete"},
        {"status": "Digest: sha256:a1"},
    ]
    assert list(pull_progress(iter(events), "pull x")) == [
        "Pulling from eng",
        "Pulling fs layer",
        "50 % of 50 MiB, 0 of 1 layers",
        "25 % of 100 MiB, 0 of 2 layers",
        "50 % of 100 MiB, 1 of 2 layers",
        "100 % of 100 MiB, 2 of 2 layers",
    ]


def test_pull_error_inside_the_stream_is_a_failure() -> None:
    with pytest.raises(EffectFailed, match="pull x: no space left on device"):
        list(pull_progress(iter([{"error": "no space left on device"}]), "pull x"))


def test_of_the_environment_only_the_names_are_kept() -> None:
    found = shape.container({"Id": "x", "Config": {"Env": ["A=1", "API_KEY=abc=def", "BARE"]}})
    assert found.env_names == ("A", "API_KEY", "BARE")
    assert "abc" not in repr(found)
