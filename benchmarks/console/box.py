"""The box that every console is shown: a simulated one with serves on each GPU, moving figures and growing logs.

`python -m benchmarks.console.box --dir DIR --gpus N --serves N --library DIR [--still]` writes a workspace whose
GPU reader is our own, over the NVML library in `--library`, prints READY, and takes a line on stdin at a time:
`log N` = so many log lines a second from the serve whose log somebody follows, else from the first.

Engines answer HTTP and Docker its API as in `anvil_tui/simbox`; only their load is ours: the counters of a busy
engine, written each second, for requests to so many would take the processor from the consoles that are measured.
Each container's process is a real one (`sleep`), so that readers of /proc find what NVML names.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

import tomlkit

from anvil_tui.core.recipe import Recipe
from anvil_tui.core.world import BoxRecord, RoleRecord, ServeRecord
from anvil_tui.simbox import traffic, workspace
from anvil_tui.simbox.box import SimBox
from anvil_tui.simbox.daemon import Image, SimContainer
from anvil_tui.simbox.gpus import RESERVED_MIB, Card
from anvil_tui.simbox.logbook import STDERR, LogBook, LogQuery
from anvil_tui.simbox.run import ready

ROOT = Path(__file__).parents[2]
TOTAL_MIB, SHARE = 143_771, 0.2
LOG_S = 0.1
OTHER_LINES_S = 1.0
IDLERS = 100  # processes of the machine that have nothing to do with GPUs, for consoles that list all of them
IMAGE = "registry.example/{kind}@sha256:" + "ab" * 32
ARGV = {
    "vllm": ["vllm", "serve", "{model}", "--served-model-name", "{served_name}", "{aliases}", "--port", "{port}",
             "--max-model-len", "{context}", "--max-num-seqs", "{concurrency}",
             "--gpu-memory-utilization", str(SHARE)],
    "sglang": ["python3", "-m", "sglang.launch_server", "--model-path", "{model}", "--served-model-name",
               "{served_name}", "--port", "{port}", "--context-length", "{context}", "--max-running-requests",
               "{concurrency}", "--mem-fraction-static", str(SHARE), "--enable-metrics"],
    "llamacpp": ["llama-server", "-m", "{model}", "--port", "{port}", "-c", "{total_context}", "-np",
                 "{concurrency}", "--metrics", "--alias", "{served_name}"],
}  # fmt: skip
KINDS = ("vllm", "sglang", "vllm", "llamacpp")


@dataclass(frozen=True, slots=True)
class Plan:
    directory: Path
    gpus: int
    serves: int
    library: Path
    still: bool = False


def uuid(gpu: int) -> str:
    """As stub_nvml.c names it."""
    return f"GPU-00000000-0000-4000-8000-{gpu:012d}"


def recipe(number: int, gpu: int) -> Recipe:
    kind = KINDS[number % len(KINDS)]
    name = f"{kind}-{number:02d}"
    return Recipe.model_validate_json(json.dumps({
        "schema": "anvil.recipe/1", "id": name, "title": f"Serve {number}", "family": "bench", "engine": kind,
        "served_name": name, "exclusive": False, "rollback": "none: a benchmark's serve", "suite": "smoke",
        "image": {"ref": IMAGE.format(kind=kind)},
        "model": {"repo": f"owner/{name}", "path": f"/models/{name}", "bytes": 64 << 20},
        "launch": {"argv": ARGV[kind], "mounts": [{"source": "models", "target": "/models"}]},
        "gpus": {"select": [f"gpu-{gpu}"]},
        "envelope": {"context_tokens": 32768, "max_output_tokens": 4096, "concurrency": 32},
    }))  # fmt: skip


def role_name(number: int) -> str:
    return workspace.ROLE if number == 0 else f"role-{number:02d}"


def aliases_of(number: int) -> tuple[str, ...]:
    """The first role has the aliases that the simulated client asks for."""
    return workspace.ALIASES if number == 0 else (f"llm.role-{number:02d}",)


def toml(plan: Plan, box: SimBox, ports: list[int]) -> str:
    gpu_roles = "\n".join(f'gpu-{n} = "{uuid(n)}"' for n in range(plan.gpus))
    roles = "".join(
        f'\n[[roles]]\nname = "{role_name(n)}"\naliases = {json.dumps(aliases_of(n))}\nslots = [\n'
        f'  {{ name = "{role_name(n)}-a", port = {ports[2 * n]} }},\n'
        f'  {{ name = "{role_name(n)}-b", port = {ports[2 * n + 1]} }},\n]\n'
        for n in range(plan.serves)
    )
    return f"""schema = "anvil.workspace/1"

[box]
name = "bench-{plan.gpus}"
kind = "lab"

[gpus]
library_dir = "{plan.library}"
interval_s = 1.0

[gpus.roles]
{gpu_roles}

[containers]
url = "unix://{box.docker_path}"

[gateway]
bind = "127.0.0.1:{ports[-1]}"
client_keys = ["file:{workspace.KEY_FILE}"]
{roles}"""


class Followed(LogBook):
    """Knows how many follow it."""

    followers = 0

    async def follow(self, query: LogQuery) -> AsyncGenerator[bytes, None]:
        self.followers += 1
        try:
            async for frame in super().follow(query):
                yield frame
        finally:
            self.followers -= 1


class Bench:
    """The box of one plan. `start` furnishes it, `live` moves it until cancelled."""

    def __init__(self, plan: Plan, box: SimBox) -> None:
        self.plan, self.box = plan, box
        self.lines_s = 0.0
        self.serves: list[SimContainer] = []
        self.pids: list[subprocess.Popen[bytes]] = []

    async def start(self) -> None:
        plan, box = self.plan, self.box
        ports = workspace.port_numbers([0] * (2 * plan.serves + 1))
        recipes = [recipe(n, n % plan.gpus) for n in range(plan.serves)]
        self._write(recipes, ports)
        box.board.cards = [Card(n, uuid(n), name="NVIDIA H200", total_mib=TOTAL_MIB) for n in range(plan.gpus)]
        for each in recipes:
            image = Image(each.image.ref)
            box.daemon.catalogue[image.ref] = box.daemon.images[image.ref] = image
        workspace.stock_volumes(Path(box.daemon.volumes), recipes)
        await box.open()
        gpus = {f"gpu-{n}": uuid(n) for n in range(plan.gpus)}
        records = []
        for n, each in enumerate(recipes):
            body = workspace.create_body(each, ports[2 * n], gpus, aliases_of(n))
            made = box.daemon.create(f"anvil-{each.id}", body)
            made.logs = Followed()
            await ready(box, made)
            self.serves.append(made)
            records.append(self._record(n, each, made, ports[2 * n]))
        self._processes()
        roles = {r.role: RoleRecord(r.role, r.container_id, ()) for r in records}
        workspace.save_record(plan.directory, BoxRecord(1, {r.container_id: r for r in records}, roles))

    def _write(self, recipes: list[Recipe], ports: list[int]) -> None:
        directory = self.plan.directory
        key = directory / workspace.KEY_FILE
        shutil.copytree(ROOT / "gates", directory / "gates")
        for folder in ("recipes", "state", "state/recipes", "state/secrets"):
            (directory / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        key.write_text("a-key-of-the-benchmark-box-only\n")
        key.chmod(0o600)
        (directory / "anvil.toml").write_text(toml(self.plan, self.box, ports), encoding="utf-8")
        for each in recipes:
            text = each.model_dump_json(by_alias=True, indent=1)
            (directory / "state/recipes" / f"{each.digest()}.json").write_text(text, encoding="utf-8")
            rows = each.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            (directory / "recipes" / f"{each.id}.toml").write_text(tomlkit.dumps(rows), encoding="utf-8")

    def _record(self, number: int, each: Recipe, made: SimContainer, port: int) -> ServeRecord:
        name = role_name(number)
        return ServeRecord(
            container_id=made.id, recipe_id=each.id, recipe_digest=each.digest(), image_id=made.image.id,
            role=name, slot=f"{name}-a", port=port, served_name=each.served_name, made_by=workspace.OPERATION,
            exclusive=False, qualified_by=workspace.OPERATION, qualified_at=workspace.QUALIFIED_AT,
            qualified_suite="smoke", shape=workspace.shape(made),
        )  # fmt: skip

    def _processes(self) -> None:
        """A process for each container, named to the NVML library with its memory, and the machine's idle ones."""
        rows, held = [], round(SHARE * (TOTAL_MIB - RESERVED_MIB))
        for n, container in enumerate(self.serves):
            self.pids.append(subprocess.Popen(["sleep", "infinity"]))
            container.pid = self.pids[-1].pid
            rows.append(f"{n % self.plan.gpus} {container.pid} {held}")
        self.pids += [subprocess.Popen(["sleep", "infinity"]) for _ in range(IDLERS)]
        (self.plan.library / "pids").write_text("\n".join(rows) + "\n")

    async def live(self) -> None:
        if self.plan.still:
            await asyncio.Event().wait()
        await asyncio.gather(self._counters(), self._logs(), traffic.run(self.box, self.plan.directory))

    async def _counters(self) -> None:
        """What a busy engine's counters do; the first serve has real requests instead."""
        second = 0
        while True:
            second += 1
            for n, container in enumerate(self.serves[1:], 1):
                if container.engine is None:
                    continue
                stats, profile = container.engine.stats, container.engine.profile
                busy = 0.5 + 0.5 * math.sin(second / 7 + n)
                stats.running, stats.waiting = round(busy * 24), round(max(0.0, busy - 0.9) * 60)
                stats.kv_tokens = round(busy * 0.8 * profile.kv_tokens)
                stats.prompt += round(2000 * busy)
                stats.generation += round(900 * busy)
                stats.requests += round(3 * busy)
                stats.last_rate = 900 * busy
            await asyncio.sleep(1.0)

    async def _logs(self) -> None:
        due, owed, others = time.monotonic(), 0.0, 0.0
        number = 0
        while True:
            owed, others = owed + self.lines_s * LOG_S, others + OTHER_LINES_S * LOG_S
            while owed >= 1:
                owed, number = owed - 1, number + 1
                self._loud().logs.write(line(number), STDERR)
            if others >= 1:
                others -= 1
                for n, container in enumerate(self.serves):
                    container.logs.write(line(1000 * number + n), STDERR)
            due = max(due + LOG_S, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    def _loud(self) -> SimContainer:
        return next((c for c in self.serves if isinstance(c.logs, Followed) and c.logs.followers), self.serves[0])

    def end(self) -> None:
        for process in self.pids:
            process.kill()
            process.wait()


def line(number: int) -> str:
    """As an engine logs, no two alike."""
    if number % 3:
        return f'INFO:     127.0.0.1:{40000 + number % 9000} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
    at = time.strftime("%m-%d %H:%M:%S")
    return (
        f"(APIServer pid=1) INFO {at} [loggers.py:248] Engine 000: Avg prompt throughput: {number * 37 % 9000}.0 "
        f"tokens/s, Avg generation throughput: {number * 13 % 2000}.4 tokens/s, Running: {number % 32} reqs, "
        f"Waiting: {number % 5} reqs, GPU KV cache usage: {number * 7 % 1000 / 10}%"
    )


async def commands(bench: Bench) -> None:
    """Until stdin closes."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(0), "rb")
    )
    while words := (await reader.readline()).split():
        if words[0] == b"log":
            bench.lines_s = float(words[1])
        else:
            raise SystemExit(f"{words[0].decode()!r} is no command; there is: log LINES_A_SECOND")


async def run(plan: Plan) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-volumes-") as volumes:
        box = SimBox(plan.directory, 40.0, 1)
        box.daemon.volumes = volumes
        bench = Bench(plan, box)
        try:
            await bench.start()
            print("READY", flush=True)
            moving = asyncio.ensure_future(bench.live())
            await commands(bench)
            moving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await moving
        finally:
            bench.end()
            await box.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--serves", type=int, required=True)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--still", action="store_true")
    given: Mapping[str, object] = vars(parser.parse_args())
    plan = Plan(given["dir"], given["gpus"], given["serves"], given["library"], given["still"])  # type: ignore[arg-type]
    asyncio.run(run(plan))
    return 0


if __name__ == "__main__":
    sys.exit(main())
