"""Owners of GPUs and an eviction on a simulated box with two roles; HAProxy and the processes named are real."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.types import DeviceRequest

from anvil_tui.adapters.haproxy import install_files
from anvil_tui.adapters.host_inspect import LinuxHost
from anvil_tui.adapters.secrets import resolve
from anvil_tui.cli.wiring import open_box, open_controls, open_probes
from anvil_tui.core.plan import Intent, Plan
from anvil_tui.core.status import status_json, status_lines
from anvil_tui.core.world import World
from anvil_tui.service.box import Box
from anvil_tui.service.operation import Mode, operate, prepare
from anvil_tui.service.planning import plan
from anvil_tui.simbox.workspace import read_recipes
from tests.support.gateway import BINARIES, Rig
from tests.support.simbox import SCALE, SimProcess, free_port, until

pytestmark = pytest.mark.real

AUX, BIG = "aux-small", "big-alone"
PLAIN = "registry.example/notebook@sha256:" + "5" * 64
ROOT = Path(__file__).parents[2]
SUITE = """
schema = "anvil.suite/1"
id = "tiny"
title = "One answer"
[[gates]]
id = "smoke"
kind = "smoke"
proves = "a short question gets an answer"
"""


def recipe(id_: str, image: str, gpus: list[str], *, exclusive: bool) -> str:
    return f"""
schema = "anvil.recipe/1"
id = "{id_}"
title = "{id_}"
family = "tiny"
engine = "vllm"
served_name = "{id_}"
exclusive = {str(exclusive).lower()}
rollback = "none: test"
suite = "tiny"
[image]
ref = "{image}"
[model]
repo = "tiny"
[launch]
entrypoint = ["{"sleep" if image == PLAIN else "vllm"}"]
argv = ["serve", "/m", "--served-model-name", "{{served_name}}", "--port", "{{port}}", "--max-model-len", "4096"]
start_deadline_s = 30
stop_grace_s = 5
[gpus]
select = {gpus!r}
need_free_mib = 20000
[envelope]
context_tokens = 4096
max_output_tokens = 512
concurrency = 2
"""


class Bench:
    """A workspace with roles `primary` (resident) and `aux` (evictable), its gateway, and operations in it."""

    def __init__(self, sim: SimProcess, box: Box) -> None:
        self.sim, self.box, self.last = sim, box, ""
        self.raw = docker.APIClient(sim.workspace.containers.url)

    def plan(self, verb: Any, **more: Any) -> Plan:
        return plan(self.box, Intent(verb, **more))

    def do(self, verb: Any, **more: Any) -> str:
        self.last = prepare(self.box, self.plan(verb, **more))
        return self.go("start")

    def go(self, mode: Mode) -> str:
        return operate(
            self.box, open_controls(self.box), self.last, mode, pid=1, interrupted=lambda: None,
            checkpoint=lambda at: None,
        )  # fmt: skip

    def end(self) -> Mapping[str, Any]:
        return next(r.data for r in reversed(self.box.operations.journal(self.last).records()) if r.kind == "end")

    def world(self) -> World:
        probes = open_probes(self.box, read_only=True)
        return probes.once()

    def at(self, alias: str) -> str:
        return self.box.gateway.snapshot().aliases[alias]

    def incumbent(self, role: str) -> str:
        return self.box.store.read().roles[role].incumbent

    @contextmanager
    def foreign(self, name: str, env: list[str] | None = None, **host: Any) -> Iterator[str]:
        """A container that some other tool started."""
        made: str = self.raw.create_container(
            PLAIN, ["600"], name=name, environment=env, host_config=self.raw.create_host_config(**host)
        )["Id"]
        self.raw.start(made)
        try:
            yield made
        finally:
            self.raw.remove_container(made, force=True)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("own")
    for part in ("recipes", "gates"):
        shutil.copytree(ROOT / part, folder / "from" / part)
    image = read_recipes(folder / "from")["glm53-524k-k5-xgfix"].image.ref
    (folder / "from" / "gates" / "tiny.toml").write_text(SUITE)
    for id_, ref, gpus, exclusive in (
        (AUX, image, ["compute-b"], False),
        (BIG, image, ["compute-a", "compute-b"], True),
        ("plain", PLAIN, [], False),
    ):
        (folder / "from" / "recipes" / f"{id_}.toml").write_text(recipe(id_, ref, gpus, exclusive=exclusive))
    sim = SimProcess(folder / "w", SCALE, "--from", str(folder / "from"))
    text = (sim.folder / "anvil.toml").read_text()
    text = text.replace("interval_s = 0.5", "interval_s = 0.1")
    text = text.replace("gpu_release_timeout_s = 60", "gpu_release_timeout_s = 2").replace(
        "[gateway]\n", f'[gateway]\nbinary = "{BINARIES["debian"]}"\n'
    )
    slots = ", ".join(f'{{ name = "aux-{ab}", port = {free_port()} }}' for ab in "ab")
    aux = 'name = "aux"\naliases = ["llm.aux"]\nresidency = "evictable"\npromotion_suite = "tiny"'
    (sim.folder / "anvil.toml").write_text(f"{text}\n[[roles]]\n{aux}\nslots = [{slots}]\n")
    opened = open_box(sim.folder)
    own_pids = str(Path("/proc/self/ns/pid").readlink())  # the simulated driver counts as the tests do
    box = replace(opened, host=LinuxHost(sim.folder, opened.clock, driver_pids=own_pids))
    settings, roles = box.workspace.gateway, box.workspace.roles
    rig = Rig(sim.folder, settings, roles)
    install_files(sim.folder, settings, roles, tuple(resolve(k, sim.folder) for k in settings.client_keys))
    rig.start()
    made = Bench(sim, box)
    made.raw.pull(PLAIN.partition("@")[0], tag=PLAIN.partition("@")[2])
    try:
        assert made.do("unload", container_id=sim.incumbent) == "done"
        yield made
    finally:
        rig.stop()
        made.raw.close()
        box.gpus.close()
    assert sim.end() == ""


def owners(world: World, kind: str = "foreign") -> dict[str, tuple[int, bool, str]]:
    """By name: on how many GPUs, whether certain, how."""
    names = {o.name for o in world.owners if o.kind == kind}
    return {
        n: (len(mine), all(o.certain for o in mine), mine[0].how)
        for n in names if (mine := [o for o in world.owners if o.name == n])
    }  # fmt: skip


def cdi(name: str) -> list[DeviceRequest]:
    return [DeviceRequest(driver="cdi", device_ids=[name])]


def test_a_container_is_an_owner_by_each_of_the_five_ways(bench: Bench) -> None:
    """O-07, O-08, O-09 through the engine's own answers; none of them is our serve."""
    one = bench.box.workspace.gpus.roles["compute-a"]
    gpu = [["gpu"]]
    with (
        bench.foreign("by-count", device_requests=[DeviceRequest(count=1, capabilities=gpu)]),
        bench.foreign("by-all", device_requests=[DeviceRequest(count=-1, capabilities=gpu)]),
        bench.foreign("by-uuid", device_requests=[DeviceRequest(device_ids=[one], capabilities=gpu)]),
        bench.foreign("by-index", device_requests=[DeviceRequest(device_ids=["0"], capabilities=gpu)]),
        bench.foreign("by-prefix", device_requests=[DeviceRequest(device_ids=[one[:10]], capabilities=gpu)]),
        bench.foreign("by-image", ["NVIDIA_VISIBLE_DEVICES=all"], runtime="nvidia"),
        bench.foreign("by-void", ["NVIDIA_VISIBLE_DEVICES=void"], runtime="nvidia"),
        bench.foreign("by-cdi", device_requests=cdi(f"nvidia.com/gpu={one}")),
        bench.foreign("by-node", devices=["/dev/nvidia0:/dev/nvidia0:rwm"]),
        bench.foreign("by-privilege", privileged=True),
    ):
        world = bench.world()
        assert owners(world) == {
            "by-count": (2, False, "device-request count=1"),
            "by-all": (2, True, "device-request"),
            "by-uuid": (1, True, "device-request"),
            "by-index": (2, False, "device-request 0"),
            "by-prefix": (1, True, f"device-request {one[:10]}"),
            "by-image": (2, True, "environment"),
            "by-cdi": (1, True, "cdi"),
            "by-node": (2, False, "device-node /dev/nvidia0"),
            "by-privilege": (2, True, "privileged"),
        }
        told = status_json(world)
        assert told["gpu_mode"].startswith("unresolved: GPU 0") and len(told["owners"]) == 15
        assert any("owner container by-privilege" in line for line in status_lines(world))
        assert sum("foreign container by-" in p for p in world.problems) == 9
        found = "\n".join(bench.plan("load", recipe=AUX, role="aux").refusals)
        assert "by-uuid" not in found and "by-prefix" not in found, "that card is not the recipe's"
        assert found.count("container by-") == 2 * 6, found
    assert bench.world().owners == () and status_json(bench.world())["gpu_mode"] == "free: nobody holds a GPU"


def test_a_bare_process_is_named_by_pid_and_its_control_group(bench: Bench) -> None:
    """The process is real, in no container; the simulated card says that it holds memory."""
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            bench.sim.fault("gpu_process", gpu=1, pid=child.pid, mib=2048, name="jupyter")
            until(lambda: bench.world().owners, "the card tells its process")
            (only,) = bench.world().owners
            assert (only.kind, only.id, only.mib, only.how) == (
                "process", str(child.pid), 2048, "in no container",
            )  # fmt: skip
            (why,) = bench.plan("load", recipe=AUX, role="aux").refusals
            assert f"is held by pid {child.pid} jupyter 2,048 MiB in no container; {AUX} needs it" in why
        finally:
            child.kill()
            bench.sim.clear()
    until(lambda: not bench.world().owners, "the process is gone")


def test_an_evicting_promotion_and_the_way_back_of_what_it_evicted(bench: Bench) -> None:
    assert bench.do("promote", recipe=AUX, role="aux", suite="tiny") == "done"
    aux = bench.incumbent("aux")
    uuid = bench.box.workspace.gpus.roles["compute-b"]
    until(
        lambda: [(o.gpu, o.kind, o.id) for o in bench.world().owners] == [(uuid, "ours", aux)], "aux owns a card"
    )
    created = bench.raw.inspect_container(aux)["HostConfig"]["DeviceRequests"]
    assert [(r["DeviceIDs"], r["Count"]) for r in created] == [([uuid], 0)], "O-07: the UUID, and no count"
    promote: dict[str, Any] = {"recipe": BIG, "role": "primary", "suite": "tiny"}
    (why,) = bench.plan("promote", **promote).refusals
    assert AUX in why and "needs the whole box" in why and f"`promote {BIG} --evict`" in why
    bench.sim.fault("load_fails", next=1)
    assert bench.do("promote", **promote, evict=True) == "undone"
    assert (bench.at("llm.aux"), bench.incumbent("aux")) == ("aux-a", aux)
    assert bench.raw.inspect_container(aux)["State"]["Running"]
    assert bench.do("promote", **promote, evict=True) == "done"
    held = bench.box.store.read().roles["aux"]
    assert (bench.at("llm.aux"), held.incumbent, held.rollback, held.evicted_for) == ("none", "", (aux,), BIG)
    assert not bench.raw.inspect_container(aux)["State"]["Running"]
    world = bench.world()
    assert status_json(world)["gpu_mode"] == f"exclusive: {BIG}"
    assert any("its serve was evicted for big-alone" in p for p in world.problems)
    assert bench.do("unload", container_id=bench.incumbent("primary")) == "done"
    assert bench.do("rollback", role="aux", suite="tiny") == "done"
    assert (bench.at("llm.aux"), bench.incumbent("aux")) == ("aux-a", aux)


def test_an_unload_whose_memory_stays_is_not_done_until_it_is_back(bench: Bench) -> None:
    """O-10 on the way from engine to card: the orphan is named; the same operation is done once it is gone."""
    aux = bench.incumbent("aux")
    bench.sim.fault("vram_not_released")
    assert bench.do("unload", container_id=aux) == "halted"
    why = bench.end()["why"]
    assert "vram_not_released: GPU 1 (" in why and "held by pid 5" in why and "MiB" in why, why
    assert "has no good end" in "".join(bench.plan("load", recipe=AUX, role="aux").refusals)
    bench.sim.clear()
    assert bench.go("resume") == "done"
    until(lambda: not bench.world().owners, "nobody holds a card")


def test_a_serve_removed_behind_the_console_leaves_its_card_owned_until_the_memory_is_back(bench: Bench) -> None:
    """O-22: `missing` at once; who holds the card is told for as long as the card shows it."""
    assert bench.do("rollback", role="aux", suite="tiny") == "done"
    aux = bench.incumbent("aux")
    bench.sim.fault("vram_not_released")
    bench.sim.fault("removed", container=aux)
    world = bench.world()
    assert [s.phase for s in world.serves if s.container.id == aux] == ["absent"]
    (left,) = world.owners
    assert (left.kind, left.gpu) == ("process", bench.box.workspace.gpus.roles["compute-b"])
    assert left.mib and left.mib > 4_000
    (why,) = (r for r in bench.plan("load", recipe=AUX, role="aux").refusals if "pid" in r)
    assert f"is held by pid {left.id} " in why
    bench.sim.clear()
    until(lambda: not bench.world().owners, "its memory is back")
