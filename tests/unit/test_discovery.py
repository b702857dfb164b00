"""Which containers of a box without a workspace are asked, where, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from anvil_tui.core.box import Container, GpuGrant
from anvil_tui.core.discovery import Recognised, doors, may_be_engine, told_port, without_file
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.serves import derive
from anvil_tui.core.status import status_lines
from anvil_tui.core.world import OPERATION_LABEL, Phase
from anvil_tui.service.discovery import AGAIN_S, Discovery
from tests.support.bare import discovered

PLAIN = Container("a" * 64, "web", "running", "sha256:1", "nginx:1", network="bridge", started_at="t1")
VLLM = replace(PLAIN, argv=("vllm", "serve", "m"))
GPUS = GpuGrant(effective="all", via="device-request")


@pytest.mark.parametrize(
    ("c", "ports", "why"),
    [
        (replace(PLAIN, ports=("127.0.0.1:8001->8000/tcp",)), (8001,), ""),
        (replace(PLAIN, ports=("*:8001->8000/tcp", "*:9000->9000/udp")), (8001,), ""),
        (replace(PLAIN, ports=("*:5432->5432/tcp", "*:6380->6379/tcp")), (), "it publishes no port"),
        (replace(PLAIN, ports=("192.0.2.7:80->8000/tcp",)), (), "published on 192.0.2.7 alone"),
        (PLAIN, (), "it publishes no port"),
        (replace(PLAIN, network="container:" + "b" * 64), (), "shares the network of container bbbbbbbbbbbb"),
        (replace(VLLM, network="host"), (8000,), ""),
        (replace(PLAIN, network="host", argv=("python", "-m", "sglang.launch_server")), (30000,), ""),
        (replace(PLAIN, network="host", argv=("/app/llama-server", "--port", "9"), ports=()), (9,), ""),
        (replace(PLAIN, network="host"), (), "its command line names no port"),
        (replace(PLAIN, ports=tuple(f"*:{n}->{n}/tcp" for n in range(7000, 7009))), (7000, 7001, 7002, 7003), ""),
    ],
)  # fmt: skip
def test_doors(c: Container, ports: tuple[int, ...], why: str) -> None:
    found, said = doors(c)
    assert found == ports
    assert why in said


@pytest.mark.parametrize(
    ("argv", "port"),
    [(("--port", "80"), 80), (("--port=80", "--port", "81"), 81), (("--port",), None), (("--port", "x"), None),
     (("--port", "99999"), None), ((), None)],
)  # fmt: skip
def test_told_port(argv: tuple[str, ...], port: int | None) -> None:
    assert told_port(argv) == port


def test_an_image_name_makes_no_engine() -> None:
    assert not may_be_engine(replace(PLAIN, image_ref="vllm/vllm-openai:v0.33.0"))
    assert may_be_engine(replace(PLAIN, gpus=GPUS))
    assert may_be_engine(VLLM)
    assert may_be_engine(replace(PLAIN, env_names=("LLAMA_ARG_PORT",)))


@dataclass
class _Clock:
    now_s: float = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def utc(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class _Finder:
    """Answers by port; `asked` holds every port in order."""

    answers: dict[int, Recognised]
    asked: list[int] = field(default_factory=list)

    def recognise(self, port: int) -> Recognised:
        self.asked.append(port)
        return self.answers.get(port, Recognised("silent", why=f"127.0.0.1:{port}: refused"))


ENGINE = Recognised("engine", EngineKind.VLLM)
OTHER = Recognised("other", why="127.0.0.1:8001 is no server of the OpenAI kind")


def at(port: int, c: Container = PLAIN, key: str = "a") -> Container:
    return replace(c, id=key * 64, ports=(f"127.0.0.1:{port}->8000/tcp",))


def test_who_is_recognised_is_asked_once_a_start() -> None:
    finder, clock = _Finder({8001: ENGINE}), _Clock()
    discovery = Discovery(finder, clock)
    for _ in range(3):
        found = discovery.look([at(8001)])
        clock.now_s += 1000
    assert (found["a" * 64].engine, found["a" * 64].port) == (EngineKind.VLLM, 8001)
    assert finder.asked == [8001]
    discovery.look([replace(at(8001), started_at="t2")])
    assert finder.asked == [8001, 8001]


def test_a_stranger_is_asked_once_and_is_not_shown() -> None:
    finder, clock = _Finder({8001: OTHER}), _Clock()
    discovery = Discovery(finder, clock)
    for key, port in (("a", 8001), ("b", 8002)):
        for _ in range(3):
            assert discovery.look([at(port, key=key)]) == {}
            clock.now_s += 1000
    assert finder.asked == [8001, 8002]


def test_a_silent_engine_is_asked_again_ever_more_slowly_until_it_answers() -> None:
    finder, clock = _Finder({}), _Clock()
    discovery = Discovery(finder, clock)
    assert "refused" in discovery.look([at(8001, VLLM)])["a" * 64].why
    clock.now_s += AGAIN_S - 0.1
    discovery.look([at(8001, VLLM)])
    assert len(finder.asked) == 1
    clock.now_s += 0.2
    discovery.look([at(8001, VLLM)])
    assert len(finder.asked) == 2
    clock.now_s += AGAIN_S + 0.1
    discovery.look([at(8001, VLLM)])
    assert len(finder.asked) == 2
    clock.now_s += AGAIN_S
    finder.answers[8001] = ENGINE
    assert discovery.look([at(8001, VLLM)])["a" * 64].engine is EngineKind.VLLM


def test_an_engine_without_a_door_says_so() -> None:
    found = Discovery(_Finder({}), _Clock()).look([VLLM])
    assert found["a" * 64].why == "not reachable: it publishes no port on this machine"


def test_two_containers_that_claim_one_port_of_the_host_are_not_mixed_up() -> None:
    both = [replace(VLLM, network="host", id=key * 64) for key in "ab"]
    finder = _Finder({8000: ENGINE})
    found = Discovery(finder, _Clock()).look(both)
    assert {f.engine for f in found.values()} == {None}
    assert "2 containers on the host's network claim port 8000" in found["a" * 64].why
    assert finder.asked == []


def test_a_client_on_the_hosts_network_is_not_the_engine_whose_port_it_calls() -> None:
    """`vllm bench serve --port 8001` names the port of somebody else, which that one publishes."""
    client = replace(VLLM, id="b" * 64, network="host", argv=("vllm", "bench", "serve", "--port", "8001"))
    for rows in ([at(8001), client], [client, at(8001)]):
        finder = _Finder({8001: ENGINE})
        found = Discovery(finder, _Clock()).look(rows)
        assert (found["a" * 64].port, found["b" * 64].engine) == (8001, None)
        assert found["b" * 64].why == "not reachable: another container publishes port 8001"
        assert finder.asked == [8001]


def test_an_engine_that_an_operation_made_is_what_it_says_without_its_workspace() -> None:
    world = discovered()
    made = [replace(c, labels={OPERATION_LABEL: "20260902-1150-load"}) for c in world.containers.value or ()]
    known = Reading.known(tuple(made), world.now_s, "docker")
    seen = {s.container.id: s for s in derive(replace(world, containers=known)).serves}
    plain = {s.container.id: s for s in derive(world).serves}
    for key in world.found:
        assert (seen[key].phase, seen[key].why, seen[key].position) == (
            plain[key].phase,
            plain[key].why,
            "foreign",
        )
    assert Phase.READY in {s.phase for s in seen.values()}


def test_the_workspace_of_no_file_has_no_role_and_a_proper_name() -> None:
    made = without_file("GPU_Box.lan", "unix:///run/docker.sock")
    assert (made.box.name, made.roles, made.containers.url) == ("gpu_box.lan", (), "unix:///run/docker.sock")
    assert made.policies.drain_timeout_s == 300


def test_status_without_a_workspace_names_no_verb_that_needs_one() -> None:
    """`watch` keeps alarms in a workspace."""
    assert not [line for line in status_lines(discovered()) if "anvil-tui watch" in line]
