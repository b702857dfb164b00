"""A box without a workspace as discovery shows it: two engines of three containers, two cards."""

from __future__ import annotations

from dataclasses import replace

from anvil_tui.core.box import Container, Engine, GpuGrant, GpuSnapshot, KvCapacity
from anvil_tui.core.discovery import NO_WORKSPACE, Found, without_file
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.serves import derive
from anvil_tui.core.world import LogView, World
from tests.support import worlds

VLLM, LLAMA, DEAF = (worlds.cid(name) for name in ("vllm-main", "their-llama", "deaf"))


def discovered() -> World:
    """vLLM on one card, llama.cpp that still loads on no card, and one that no loopback port leads to."""
    card = GpuGrant(worlds.UUIDS[:1], "uuids", worlds.UUIDS[:1], "device-request")
    rows = (
        Container(VLLM, "vllm-main", "running", "sha256:1", "vllm/vllm-openai:v0.33.0", gpus=card,
                  started_at=worlds.at(7200), argv=("vllm", "serve", "acme/m-8b"), ports=("*:8000->8000/tcp",)),
        Container(LLAMA, "their-llama", "running", "sha256:2", "llama:1", started_at=worlds.at(20),
                  argv=("/app/llama-server", "--port", "8081"), network="host"),
        Container(DEAF, "deaf", "running", "sha256:3", "sglang:1", started_at=worlds.at(900),
                  argv=("python3", "-m", "sglang.launch_server"), network="bridge"),
        Container(worlds.cid("db"), "db", "running", "sha256:4", "postgres:17"),
    )  # fmt: skip
    vllm = Engine("vllm", "ready", served=("acme/m-8b",), context_tokens=32768, running=6, waiting=2,
                  kv_used=0.37, capacity=KvCapacity(412_656, "vllm /metrics"), progress=55_310.0,
                  version="0.33.0", metrics="on")  # fmt: skip
    cards = GpuSnapshot("580.95.05", (worlds.gpu(0), worlds.gpu(1, 90_000)))
    llama = Engine("llamacpp", "starting", "HTTP 503: Loading model")
    world = World(
        without_file("rack-7", "unix:///var/run/docker.sock"), True, worlds.NOW_S, worlds.NOW,
        gpus=Reading.known(cards, worlds.NOW_S - 0.4, "nvml"),
        containers=Reading.known(rows, worlds.NOW_S - 1, "docker"),
        engines={VLLM: Reading.known(vllm, worlds.NOW_S - 1, "vllm"),
                 LLAMA: Reading.known(llama, worlds.NOW_S - 1, "llamacpp")},
        trails={VLLM: replace(worlds.trail(worlds.NOW_S - 1), value=55_310.0)},
        gateway=Reading.unknown(NO_WORKSPACE, "gateway"),
        found={VLLM: Found(EngineKind.VLLM, 8000), LLAMA: Found(EngineKind.LLAMACPP, 8081),
               DEAF: Found(why="not reachable: it publishes no port on this machine")},
        log=LogView(VLLM, ("INFO 09-02 11:53:58 Engine 000: Avg generation throughput: 310.2 tokens/s",)),
    )  # fmt: skip
    return derive(world)
