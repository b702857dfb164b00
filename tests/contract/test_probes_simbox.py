"""The probes with the real adapters against a simulated box: what the console would say, faults included."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.docker_engine import DockerReader
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.adapters.gpu_reader import ChildGpuReader
from anvil_tui.adapters.haproxy_way import PathWays
from anvil_tui.adapters.host import PsutilHost
from anvil_tui.adapters.journal_file import OperationFolders
from anvil_tui.adapters.lease import FileLease
from anvil_tui.adapters.toml_files import load_recipes, load_workspace
from anvil_tui.core.box import Backend, Gateway
from anvil_tui.core.readiness import PROVEN
from anvil_tui.core.vram import gpus_free
from anvil_tui.core.world import Phase, Serve, World
from anvil_tui.service.probes import Probes, Sources
from anvil_tui.service.store import Store

INCUMBENT, ROLLBACK = "glm53-524k-k5-xgfix", "glm53-1m-k5"


class FixedGateway(PathWays):
    """Aliases at the incumbent's slot; HAProxy itself has its own tests."""

    def __init__(self, aliases: dict[str, str], backends: tuple[Backend, ...]) -> None:
        self._gateway = Gateway(aliases, backends, 0, 1, True)

    def snapshot(self) -> Gateway:
        return self._gateway


class Sim:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        argv = (sys.executable, "-m", "anvil_tui.simbox", "run", "--dir", str(folder))
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None and self.process.stdout.readline().strip() == "READY"
        self.workspace = load_workspace(folder)
        reader = self.workspace.gpus.reader
        self.control = reader[reader.index("--socket") + 1]
        self.probes = self._probes()

    def _probes(self) -> Probes:
        clock, state = SystemClock(), self.folder / "state"
        box = BoxFile(state)
        (role,) = self.workspace.roles
        held = box.read().serve_in(role.name)
        assert held is not None
        backends = tuple(Backend(s.name, f"127.0.0.1:{s.port}", 0) for s in role.slots)
        sources = Sources(
            gpus=ChildGpuReader(self.workspace.gpus.reader, 2.0, clock),
            host=PsutilHost(self.folder, clock),
            containers=DockerReader(self.workspace.containers.url, 5),
            engines=HttpEngineReader(clock),
            gateway=FixedGateway(dict.fromkeys(role.aliases, held.slot), backends),
            record=box.read,
            stored=box.kept_recipes,
            operations=OperationFolders(state / "operations").views,
            lease=FileLease(state / "lease").holder,
            recipes=lambda: load_recipes(self.folder / "recipes"),
        )
        return Probes(Store(World(self.workspace, True), clock), sources, clock)

    def fault(self, name: str, *pairs: str) -> None:
        argv = (sys.executable, "-m", "anvil_tui.simbox", "fault", "--socket", self.control, name, *pairs)
        subprocess.run(argv, check=True, timeout=20, stdout=subprocess.DEVNULL)

    def until(self, wanted: Callable[[World], bool], seconds: float = 15.0) -> World:
        end = time.monotonic() + seconds
        while not wanted(world := self.probes.once()):
            assert time.monotonic() < end, f"not in {seconds} s: {world.problems}"
            time.sleep(0.05)
        return world

    def end(self) -> None:
        self.probes.stop()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Sim]:
    made = Sim(tmp_path)
    yield made
    made.end()


def named(world: World, name: str) -> Serve:
    return next(s for s in world.serves if s.name == name)


def failing(world: World) -> dict[str, str]:
    return {c.name: c.state for c in world.rollbacks["primary"].checks if c.state != "ok"}


def test_the_box_of_the_records(sim: Sim) -> None:
    world = sim.probes.once()
    serve = named(world, INCUMBENT)
    lights = serve.lights
    assert (serve.phase, serve.position, serve.in_flight) == (Phase.SERVING, "incumbent", 0)
    assert [x.state for x in (lights.process, lights.http, lights.identity, lights.progress)] == ["ok"] * 4
    engine = serve.engine.value
    assert engine is not None and engine.capacity is not None and engine.capacity.tokens == 2_493_817
    windows = engine.capacity.windows(engine.context_tokens)
    assert windows is not None and round(windows, 2) == 4.76 and "log" in engine.capacity.source
    assert named(world, ROLLBACK).phase is Phase.STOPPED
    assert failing(world) == dict.fromkeys(("credential", *PROVEN, "home"), "unknown")  # not looked at here
    assert world.problems == () and world.gpus.value is not None and len(world.gpus.value.gpus) == 2
    uuids = [g.uuid or "" for g in world.gpus.value.gpus]
    assert set(serve.container.gpus.uuids) == set(uuids)
    reasons = gpus_free(world.gpus.value, uuids, 90_000)
    assert len(reasons) == 4 and "VLLM::Worker" in reasons[0] and "not released" in reasons[1]


def test_a_lost_gpu_marks_its_serve_although_it_answers(sim: Sim) -> None:
    """O-04."""
    sim.probes.once()
    sim.fault("gpu_lost", "engine=stays")
    world = sim.until(lambda w: named(w, INCUMBENT).phase is Phase.LOST)
    serve = named(world, INCUMBENT)
    assert serve.why.startswith("gpu_lost") and serve.lights.http.state == "ok"
    assert failing(world)["gpus"] == "missing"
    sim.fault("clear")
    sim.until(lambda w: named(w, INCUMBENT).phase is Phase.SERVING)


def test_a_driver_fault_is_an_error_with_its_hint_and_the_rest_works(sim: Sim) -> None:
    """O-05."""
    sim.probes.once()
    sim.fault("gpu_driver_fault")
    world = sim.until(lambda w: w.gpus.state == "error")
    assert "18" in world.gpus.reason and named(world, INCUMBENT).phase is Phase.SERVING


def test_a_reader_that_hangs_is_killed(sim: Sim) -> None:
    """O-06."""
    sim.probes.once()
    sim.fault("gpu_reader_hangs")
    world = sim.until(lambda w: w.gpus.state == "error")
    assert "no GPU reading for 2 s" in world.gpus.reason and world.gpus.value is not None


def test_a_daemon_that_is_down_loses_sight_of_serves(sim: Sim) -> None:
    sim.probes.once()
    sim.fault("docker_down")
    world = sim.until(lambda w: w.containers.state == "error")
    assert {s.phase for s in world.serves} == {Phase.LOST} and world.containers.value
    sim.fault("clear")
    sim.until(lambda w: named(w, INCUMBENT).phase is Phase.SERVING)


def test_a_container_that_vanishes_is_missing(sim: Sim) -> None:
    sim.probes.once()
    sim.fault("removed")
    world = sim.until(lambda w: named(w, INCUMBENT).phase is Phase.ABSENT)
    assert named(world, INCUMBENT).why.startswith("missing")


def test_an_engine_that_dies_of_its_memory_limit(sim: Sim) -> None:
    sim.probes.once()
    sim.fault("engine_dies", "exit_code=137", "oom=true")
    world = sim.until(lambda w: named(w, INCUMBENT).phase is Phase.FAILED)
    assert named(world, INCUMBENT).why.startswith("OOM-killed")


def test_another_model_under_the_port_is_no_ready_serve(sim: Sim) -> None:
    sim.probes.once()
    sim.fault("wrong_identity", "name=someone-else")
    world = sim.until(lambda w: named(w, INCUMBENT).phase is Phase.FAILED)
    assert "identity_mismatch" in named(world, INCUMBENT).why
