"""A recipe of what runs: figures from the engine, GPUs whichever way they were given, no secret."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.docker_adopt import running
from anvil_tui.adapters.toml_files import load_workspace
from anvil_tui.cli.adopting import workspace_text
from anvil_tui.core.adopt import Adopted, adopt
from anvil_tui.core.box import MIB, Container, Engine, Gpu, GpuGrant, GpuProcess, GpuSnapshot, KvCapacity
from anvil_tui.core.recipe import Recipe
from tests.support.bare import discovered

UUIDS = tuple(f"GPU-{n}{n}{n}{n}{n}{n}{n}{n}-0000-0000-0000-000000000000" for n in range(4))
ID = "c" * 64
IMAGE: dict[str, Any] = {
    "Id": "sha256:" + "1" * 64, "RepoDigests": ["vllm/vllm-openai@sha256:" + "2" * 64],
    "Config": {"Entrypoint": ["vllm", "serve"], "Cmd": None, "Env": ["PATH=/bin", "CUDA_VERSION=12"]},
}  # fmt: skip
ENGINE = Engine(
    "vllm", "ready", served=("acme/m-8b", "m"), context_tokens=32768, capacity=KvCapacity(412_656, "log"),
)  # fmt: skip


def attrs(*cmd: str, env: tuple[str, ...] = (), host: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Inspect of a container of `IMAGE`, on the host's network unless `host` says otherwise."""
    return {
        "Id": ID, "Name": "/theirs", "Image": IMAGE["Id"], "Path": "vllm", "Args": ["serve", *cmd],
        "State": {"Status": "running"},
        "Config": {"Image": "vllm/vllm-openai:v0.33.0", "Entrypoint": ["vllm", "serve"], "Cmd": list(cmd),
                   "Env": ["PATH=/bin", "CUDA_VERSION=12", *env]},
        "HostConfig": {"NetworkMode": "host", "ShmSize": 64 * MIB, **(host or {})}, **more,
    }  # fmt: skip


def box(n: int = 2, on: tuple[int, ...] = (), mib: int | None = 9000) -> GpuSnapshot:
    used = None if mib is None else mib * MIB
    rows = (
        Gpu(i, UUIDS[i], processes=(GpuProcess(70 + i, used_bytes=used),) if i in on else ()) for i in range(n)
    )
    return GpuSnapshot("580", tuple(rows))


def made(
    inspect: dict[str, Any], engine: Engine = ENGINE, gpus: GpuSnapshot | None = None, port: int = 8000
) -> Adopted:
    pids = {70 + i: ID for i in range(4)}
    return adopt(running(inspect, IMAGE), engine, port, gpus or box(), pids, ())


def said(a: Adopted) -> str:
    return "\n".join(a.notes)


def test_every_recipe_is_one_that_loads() -> None:
    a = made(attrs("acme/m-8b", "--port", "8000", "--max-num-seqs", "64", "--revision", "abc"))
    recipe = Recipe.model_validate_json(json.dumps(a.recipe))
    assert recipe.loadable
    assert recipe.decision is None
    assert recipe.image.ref == "vllm/vllm-openai@sha256:" + "2" * 64
    assert (recipe.model.repo, recipe.model.revision) == ("acme/m-8b", "abc")
    assert (recipe.served_name, recipe.served_aliases) == ("acme/m-8b", ("m",))
    assert recipe.id == "acme-m-8b-32k"
    assert recipe.envelope.context_tokens == recipe.envelope.max_output_tokens == 32768
    assert recipe.envelope.concurrency == 64
    assert recipe.kv.pool_tokens == 412_656
    assert recipe.filled_argv(8000)[:3] == ("acme/m-8b", "--port", "8000")
    assert recipe.launch.env == {}


@pytest.mark.parametrize(
    ("argv", "want"),
    [
        (("m", "--port=81", "--host=0.0.0.0"), ["m", "--port={port}", "--host=127.0.0.1"]),
        (("m",), ["m", "--port", "{port}", "--host", "127.0.0.1"]),
        (("m", "--port", "81", "--host", "127.0.0.1"), ["m", "--port", "{port}", "--host", "127.0.0.1"]),
        (("m", "--port", "81", "--api-key", "k1", "k2", "-x", "y"),
         ["m", "--port", "{port}", "-x", "y", "--host", "127.0.0.1"]),
        (("m", "--api-key=k1", "--port", "81"), ["m", "--port", "{port}", "--host", "127.0.0.1"]),
    ],
)  # fmt: skip
def test_the_command_line_gets_the_slots_port_and_keeps_no_secret(argv: tuple[str, ...], want: list[str]) -> None:
    a = made(attrs(*argv))
    assert a.recipe["launch"]["argv"] == want
    assert ("holds a secret" in said(a)) is any("api-key" in arg for arg in argv)
    assert "k1" not in said(a)


def test_a_shells_line_is_moved_too() -> None:
    inspect = attrs("-c", "exec vllm serve m --host 0.0.0.0 --port 8000 --max-model-len 4096")
    a = made(inspect)
    assert a.recipe["launch"]["argv"][1] == (
        "exec vllm serve m --host 127.0.0.1 --port {port} --max-model-len 4096"
    )


def test_a_shells_line_with_a_secret_makes_no_recipe_that_could_be_started() -> None:
    a = made(attrs("-c", "exec vllm serve m --port 8000 --api-key k1 k2"))
    assert a.recipe["launch"]["argv"] == ["-c"]
    assert a.recipe["loadable"] is False
    assert "put {port} into launch.argv" in a.recipe["not_loadable_because"]
    assert "launch.argv: a shell's line holds a secret and is left out" in said(a)
    assert "default port" not in said(a), "which nobody knows"


@pytest.mark.parametrize("name", ["DB_PASS", "KEY_PASSPHRASE", "NGINX_BASIC_AUTH", "DB_PASSWORD", "HF_TOKEN"])
def test_no_variable_that_is_called_a_secret_is_written(name: str) -> None:
    a = made(attrs("m", env=(f"{name}=plain words",)))
    assert "env" not in a.recipe["launch"]
    assert f"{name} holds a secret" in said(a)


def test_variables_that_the_image_does_not_set_are_kept_but_for_secrets() -> None:
    a = made(
        attrs(
            "m",
            env=(
                "HF_TOKEN=hf_" + "z" * 30,
                "VLLM_API_KEY=s3cret-key",
                "VLLM_USE_V1=1",
                "NVIDIA_VISIBLE_DEVICES=0",
            ),
        )
    )
    assert a.recipe["launch"]["env"] == {"VLLM_USE_V1": "1"}
    assert "HF_TOKEN holds a secret" in said(a)
    assert 'add "env:VLLM_API_KEY" to gateway.client_keys' in said(a)
    assert "s3cret" not in said(a)
    assert "differs in env: without HF_TOKEN, VLLM_API_KEY" in said(a)


REQUEST = {"Driver": "nvidia", "Capabilities": [["gpu"]]}
WAYS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "device request, UUID": ({"DeviceRequests": [{**REQUEST, "DeviceIDs": [UUIDS[1]]}]}, UUIDS[1:2]),
    "device request, index": ({"DeviceRequests": [{**REQUEST, "DeviceIDs": ["1"]}]}, UUIDS[1:2]),
    "device request, count": ({"DeviceRequests": [{**REQUEST, "Count": 2}]}, UUIDS[:2]),
    "device request, all": ({"DeviceRequests": [{**REQUEST, "Count": -1}]}, UUIDS),
    "CDI": ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=2"]}]}, UUIDS[2:3]),
    "environment": ({"Runtime": "nvidia"}, UUIDS[3:4]),
    "device node": ({"Devices": [{"PathOnHost": "/dev/nvidia2"}, {"PathOnHost": "/dev/nvidiactl"}]}, UUIDS[2:3]),
    "privileged": ({"Privileged": True}, UUIDS),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_gpus_become_uuids_whichever_way_they_were_given(way: str) -> None:
    host, want = WAYS[way]
    env = ("NVIDIA_VISIBLE_DEVICES=3",) if way == "environment" else ()
    a = made(attrs("m", env=env, host=host), gpus=box(4))
    assert tuple(a.recipe["gpus"]["select"]) == want
    assert a.recipe["exclusive"] is (want == UUIDS)
    certain = way == "device request, UUID"
    assert ("check the list" in said(a)) is not certain


def test_where_its_processes_are_counts_more_than_all() -> None:
    a = made(attrs("m", "-tp", "2", host={"DeviceRequests": [{**REQUEST, "Count": -1}]}), gpus=box(4, on=(1, 2)))
    assert a.recipe["gpus"] == {"select": list(UUIDS[1:3]), "tensor_parallel": 2, "need_free_mib": 9000}
    assert "its processes are on the GPUs written here" in said(a)


def test_without_a_process_list_nothing_is_said_of_memory() -> None:
    a = made(
        attrs("m", host={"DeviceRequests": [{**REQUEST, "DeviceIDs": [UUIDS[0]]}]}), gpus=box(2, on=(0,), mib=None)
    )
    assert a.recipe["gpus"]["need_free_mib"] == 0
    assert "NVML does not tell what it has" in said(a)


@pytest.mark.parametrize(
    ("engine", "cmd", "want"),
    [
        (replace(ENGINE, slots=4), (), (4, "slots that the engine reports")),
        (ENGINE, ("--max-num-seqs", "9"), (9, "its command line")),
        (ENGINE, (), (12, "whole contexts that its KV pool holds")),
        (replace(ENGINE, capacity=None), (), (1, "nothing tells")),
    ],
)  # fmt: skip
def test_concurrency_has_its_source(engine: Engine, cmd: tuple[str, ...], want: tuple[int, str]) -> None:
    a = made(attrs("m", *cmd), engine)
    assert a.recipe["envelope"]["concurrency"] == want[0]
    assert f"envelope.concurrency {want[0]}: {want[1]}" in said(a)


@pytest.mark.parametrize(
    ("engine", "image", "why"),
    [
        (ENGINE, {**IMAGE, "RepoDigests": []}, "no digest of a registry"),
        (replace(ENGINE, served=(), reason="HTTP 401"), IMAGE, "did not tell its served name (HTTP 401)"),
        (replace(ENGINE, kind="openai"), IMAGE, "how it is told its port is not known"),
        (replace(ENGINE, context_tokens=None), IMAGE, "did not tell its context"),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_says_why(engine: Engine, image: dict[str, Any], why: str) -> None:
    a = adopt(running(attrs("m"), image), engine, 8000, box(), {}, ())
    assert a.recipe["loadable"] is False
    assert why in a.recipe["not_loadable_because"]


def test_what_a_recipe_cannot_say_is_told_in_words() -> None:
    host = {
        "NetworkMode": "bridge", "Privileged": True, "CapAdd": ["SYS_PTRACE"], "Ulimits": [{"Name": "memlock"}],
        "RestartPolicy": {"Name": "always"}, "IpcMode": "container:x",
        "Devices": [{"PathOnHost": "/dev/infiniband"}],
    }  # fmt: skip
    mounts = [
        {"Type": "bind", "Source": "/srv/m", "Destination": "/m", "RW": False},
        {"Type": "volume", "Name": "hf", "Source": "/v/hf/_data", "Destination": "/hf", "RW": True},
        {"Type": "volume", "Name": "a" * 64, "Source": "/v/x", "Destination": "/anon", "RW": True},
        {"Type": "tmpfs", "Destination": "/t"},
    ]
    a = made(
        attrs(
            "m",
            host=host,
            Mounts=mounts,
            NetworkSettings={"Ports": {"8000/tcp": [{"HostIp": "", "HostPort": "81"}]}},
        )
    )
    for words in ("SYS_PTRACE", "memlock", "privileged", "network bridge with *:81->8000/tcp",
                  "IPC mode container:x", "/dev/infiniband", "/anon was a volume without a name",
                  "/t was a mount of type tmpfs",
                  "restart policy no in place of always"):  # fmt: skip
        assert words in said(a), words
    assert a.recipe["launch"]["mounts"] == [
        {"source": "/srv/m", "target": "/m", "read_only": True},
        {"source": "hf", "target": "/hf", "read_only": False},
    ]  # fmt: skip


def test_shared_memory_ipc_and_limits_are_kept() -> None:
    host = {"ShmSize": 16 * 1024 * MIB, "IpcMode": "host", "Memory": 2048 * MIB, "NanoCpus": 1_500_000_000}
    launch = made(attrs("m", host=host)).recipe["launch"]
    assert (launch["shm_mib"], launch["ipc"], launch["memory_limit_mib"], launch["cpus"]) == (
        16384,
        "host",
        2048,
        1.5,
    )


def test_gpus_that_cannot_be_read_are_said_and_not_guessed() -> None:
    c = Container(ID, "theirs", "running", "i", "i", gpus=GpuGrant(("all",), "all", via="device-request"))
    a = adopt(replace(running(attrs("m"), IMAGE), container=c), ENGINE, 8000, None, {}, ())
    assert a.recipe["gpus"]["select"] == []
    assert "none can be read here" in said(a)
    assert ("gpus.select is empty" in said(a)) == (not c.gpus.uuids)
    given = replace(c, gpus=replace(c.gpus, uuids=("GPU-1",)))
    told = said(adopt(replace(running(attrs("m"), IMAGE), container=given), ENGINE, 8000, None, {}, ()))
    assert "is empty" not in told and "none can be read here" in told


@pytest.mark.parametrize("served", ["模型/一", "-x", "x y", "a" * 200, ":"])
def test_the_workspace_of_any_two_served_names_loads(served: str, tmp_path: Path) -> None:
    engine = replace(ENGINE, served=(served,))
    found = [made(attrs("m"), engine), made(attrs("m"), engine, port=9000)]
    (tmp_path / "anvil.toml").write_text(workspace_text(discovered(), found, lambda port: True))
    roles = load_workspace(tmp_path).roles
    assert len({r.name for r in roles}) == len({r.aliases for r in roles}) == 2
    assert [r.slots[1].port for r in roles] == [8000, 9000]


def test_two_recipes_of_one_model_have_two_names() -> None:
    a = adopt(running(attrs("m"), IMAGE), ENGINE, 8000, box(), {}, ("acme-m-8b-32k",))
    assert a.id == "acme-m-8b-32k-2"
