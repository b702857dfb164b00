"""Our GPU readings beside nvitop's and nvidia-smi's, field by field, on a machine with an NVIDIA GPU.

`python -m benchmarks.console.beside FILE` compares idle and under a load of its own (memory, and fills of it, by
the CUDA driver), then what our console and nvitop cost on a terminal, and what our commands say. It needs
nvidia-smi and the package nvitop; no Docker. Ours is read before and after the others: a figure that moves agrees
when the other's lies between both, give or take its tolerance. FILE gets a record without names of the machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.host_inspect import LinuxHost
from anvil_tui.core.box import MIB, Gpu, GpuSnapshot
from anvil_tui.core.gpu_wire import snapshot_from_json
from benchmarks.console.terminal import Ended, Terminal

HOLD_MIB, FILL_MIB = 20_480, 8_192
INTERVAL_S = 0.1
READER = (sys.executable, "-m", "anvil_tui.adapters.nvml_child", "--interval")
SMI = (
    "index", "uuid", "name", "pci.bus_id", "driver_version", "memory.total", "memory.used", "memory.free",
    "memory.reserved", "utilization.gpu", "temperature.gpu", "power.draw", "enforced.power.limit", "clocks.sm",
    "clocks.mem", "fan.speed", "ecc.errors.uncorrected.volatile.total", "clocks_event_reasons.active",
    "mig.mode.current",
)  # fmt: skip
TOLERANCE: Mapping[str, float] = {
    "used MiB": 1, "free MiB": 1, "reserved MiB": 1, "total MiB": 1, "utilisation %": 5, "temperature C": 1,
    "power W": 25, "sm clock MHz": 30, "memory clock MHz": 30,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """`ours` is the reading before and the one after the others'; None = not told. `agrees` names who does not."""

    name: str
    ours: tuple[Any, Any]
    nvitop: Any
    smi: Any
    differs: tuple[str, ...]


class Reader:
    """Our reader program, at a cadence; `newest` waits for a line that came after the call."""

    def __init__(self, interval_s: float) -> None:
        self._child = subprocess.Popen([*READER, str(interval_s)], stdout=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._pump, daemon=True).start()

    def _pump(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.put(line)

    def newest(self) -> GpuSnapshot:
        while not self._lines.empty():
            self._lines.get()
        self._lines.get(timeout=20)  # may have been taken before the call
        value = snapshot_from_json(json.loads(self._lines.get(timeout=20)))
        if not isinstance(value, GpuSnapshot):
            raise SystemExit(f"our reader: {value}")
        return value

    def end(self) -> None:
        self._child.kill()
        self._child.wait()


def ours_of(gpu: Gpu, driver: str | None) -> dict[str, Any]:
    return {
        "index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "bus": gpu.bus_id, "driver": driver,
        "total MiB": mib(gpu.total_bytes), "used MiB": mib(gpu.used_bytes), "free MiB": mib(gpu.free_bytes),
        "reserved MiB": mib(gpu.reserved_bytes),
        "utilisation %": gpu.utilization_pct, "temperature C": gpu.temperature_c, "power W": gpu.power_w,
        "power limit W": gpu.power_limit_w, "sm clock MHz": gpu.sm_clock_mhz,
        "memory clock MHz": gpu.memory_clock_mhz, "fan %": gpu.fan_pct, "ecc uncorrected": gpu.ecc_uncorrected,
        "remap pending": gpu.remap_pending, "remap failed": gpu.remap_failed, "mig": gpu.mig is not None,
        "xid": gpu.xid,
        "throttle": None if gpu.throttle is None else sorted(gpu.throttle),
        "processes": None if gpu.processes is None else sorted([p.pid, mib(p.used_bytes)] for p in gpu.processes),
    }  # fmt: skip


def nvitop_of(index: int) -> dict[str, Any]:
    from nvitop import Device  # type: ignore[import-not-found]

    d = Device(index)
    return {
        "index": d.index, "uuid": d.uuid(), "name": d.name(), "bus": d.bus_id(), "driver": Device.driver_version(),
        "total MiB": mib(d.memory_total()), "used MiB": mib(d.memory_used()), "free MiB": mib(d.memory_free()),
        "utilisation %": told(d.gpu_utilization()), "temperature C": told(d.temperature()),
        "power W": watt(d.power_usage()), "power limit W": watt(d.power_limit()), "fan %": told(d.fan_speed()),
        "sm clock MHz": told(d.sm_clock()), "memory clock MHz": told(d.memory_clock()),
        "ecc uncorrected": told(d.total_volatile_uncorrected_ecc_errors()),
        "processes": sorted([p.pid, mib(p.gpu_memory())] for p in d.processes().values()),
    }  # fmt: skip


def told(value: Any) -> Any:
    """nvitop has an N/A of its own."""
    return None if value is None or str(value) == "N/A" else value


def mib(size: Any) -> int | None:
    return None if told(size) is None else int(size) // MIB


def watt(milliwatt: Any) -> float | None:
    return None if told(milliwatt) is None else int(milliwatt) / 1000


THROTTLE = {
    0x1: "idle", 0x2: "app-clocks", 0x4: "sw-power-cap", 0x8: "hw-slowdown", 0x10: "sync-boost",
    0x20: "sw-thermal", 0x40: "hw-thermal", 0x80: "hw-power-brake", 0x100: "display",
}  # fmt: skip


def smi_of(index: int) -> dict[str, Any]:
    rows = query("--query-gpu=" + ",".join(SMI), index)
    said = dict(zip(SMI, rows[0], strict=True))

    def number(key: str) -> float | None:
        return float(said[key]) if said[key][:1].isdigit() else None

    mask = int(said["clocks_event_reasons.active"], 16)
    apps = query("--query-compute-apps=pid,used_gpu_memory", index)
    remaps = query("--query-remapped-rows=remapped_rows.pending,remapped_rows.failure", index)[0]
    return {
        "index": int(said["index"]), "uuid": said["uuid"], "name": said["name"], "bus": said["pci.bus_id"],
        "driver": said["driver_version"], "total MiB": number("memory.total"), "used MiB": number("memory.used"),
        "free MiB": number("memory.free"), "reserved MiB": number("memory.reserved"),
        "utilisation %": number("utilization.gpu"), "temperature C": number("temperature.gpu"),
        "power W": number("power.draw"), "power limit W": number("enforced.power.limit"),
        "sm clock MHz": number("clocks.sm"), "memory clock MHz": number("clocks.mem"),
        "fan %": number("fan.speed"),
        "ecc uncorrected": number("ecc.errors.uncorrected.volatile.total"),
        "remap pending": remaps[0] in ("1", "Yes"), "remap failed": remaps[1] in ("1", "Yes"),
        "mig": said["mig.mode.current"] == "Enabled",
        "throttle": sorted(word for bit, word in THROTTLE.items() if mask & bit),
        "processes": sorted([int(pid), int(mib) if mib.isdigit() else None] for pid, mib in apps),
    }  # fmt: skip


def query(what: str, index: int) -> list[list[str]]:
    argv = ["nvidia-smi", what, "--format=csv,noheader,nounits", "-i", str(index)]
    text = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]


def compared(
    before: Mapping[str, Any], after: Mapping[str, Any], peers: Mapping[str, Mapping[str, Any]]
) -> list[Field]:
    fields = []
    for name in before:
        said = {peer: values.get(name, "not told") for peer, values in peers.items()}
        wrong = [
            peer for peer, value in said.items()
            if value != "not told" and not agree(name, before[name], after[name], value)
        ]  # fmt: skip
        fields.append(Field(name, (before[name], after[name]), said["nvitop"], said["nvidia-smi"], tuple(wrong)))
    return fields


def agree(name: str, before: Any, after: Any, other: Any) -> bool:
    """Between our two readings, give or take the tolerance; what is no figure is the same."""
    if name == "bus":
        return str(before).lower() == str(other).lower()
    numbers = [v for v in (before, after, other) if isinstance(v, int | float)]
    if len(numbers) < 3:
        return bool(other in (before, after))
    give = TOLERANCE.get(name, 0)
    return bool(min(before, after) - give <= other <= max(before, after) + give)


def beside(reader: Reader, rounds: int = 5) -> dict[str, Any]:
    """The last round's fields of each GPU, and in how many rounds each field differed."""
    counts: dict[str, int] = {}
    rows: list[list[Field]] = []
    for _ in range(rounds):
        before = reader.newest()
        peers = [{"nvitop": nvitop_of(n), "nvidia-smi": smi_of(n)} for n in range(len(before.gpus))]
        after = reader.newest()
        rows = [
            compared(ours_of(a, before.driver), ours_of(b, after.driver), p)
            for a, b, p in zip(before.gpus, after.gpus, peers, strict=True)
        ]
        for field in (f for gpu in rows for f in gpu if f.differs):
            for who in field.differs:
                counts[f"{field.name}: {who}"] = counts.get(f"{field.name}: {who}", 0) + 1
    return {"rounds": rounds, "differed": counts, "gpus": [[asdict(f) for f in gpu] for gpu in rows]}


def load() -> None:
    """Holds memory and fills it over and over, by the CUDA driver alone, until stdin closes."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def must(code: int) -> None:
        if code:
            raise SystemExit(f"CUDA driver: error {code}")

    context, held, filled = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    must(cuda.cuInit(0))
    must(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
    must(cuda.cuMemAlloc_v2(ctypes.byref(held), ctypes.c_size_t((HOLD_MIB - FILL_MIB) * MIB)))
    must(cuda.cuMemAlloc_v2(ctypes.byref(filled), ctypes.c_size_t(FILL_MIB * MIB)))
    print("HOLDING", flush=True)
    gone = threading.Event()

    def until_closed() -> None:
        sys.stdin.read()
        gone.set()

    threading.Thread(target=until_closed, daemon=True).start()
    value = 0
    while not gone.is_set():
        value += 1
        for _ in range(16):
            must(cuda.cuMemsetD32_v2(filled, ctypes.c_uint(value), ctypes.c_size_t(FILL_MIB * MIB // 4)))
        must(cuda.cuCtxSynchronize())


@contextlib.contextmanager
def loaded() -> Iterator[int]:
    """The pid of the process that loads GPU 0, after it has worked for three seconds."""
    argv = [sys.executable, "-m", "benchmarks.console.beside", "--load"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        if child.stdout.readline().strip() != "HOLDING":
            raise SystemExit("the load did not start")
        time.sleep(3)
        yield child.pid
        child.stdin.close()
        child.wait(20)


def terminals(folder: Path, rounds: int = 3) -> dict[str, Any]:
    """CPU, bytes, memory and first paint of both, in turn, at one reading a second."""
    empty = folder / "empty"
    env = {
        **os.environ,
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "LANG": "C.UTF-8",
        "HOME": str(folder),
    }
    tools = {
        "anvil-tui": (["-m", "anvil_tui", "--workspace", str(folder)], rb"anvil ", rb"/140\.4 GiB"),
        "anvil-tui, no workspace": (["-m", "anvil_tui"], rb"anvil ", rb"/140\.4 GiB"),
        "nvitop": (["-m", "nvitop", "--monitor", "full", "--interval", "1"], b"NVITOP", rb"/ 140\.4GiB"),
    }  # fmt: skip
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in tools}
    for _ in range(rounds):
        for name, (argv, paints, reads) in tools.items():
            try:
                with Terminal([sys.executable, *argv], env, empty) as terminal:
                    row: dict[str, Any] = {"paint_ms": terminal.until(paints), "reads_ms": terminal.until(reads)}
                    terminal.drain(6)
                    found[name].append(row | asdict(terminal.cost(8)))
            except Ended as why:
                found[name].append({"failed": str(why)})
    return {name: {"rounds": rows, **middle(rows)} for name, rows in found.items()}


def middle(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    good = [r for r in rows if "failed" not in r]
    return {k: round(median(r[k] for r in good), 2) for k in good[0]} if good else {}


def commands(folder: Path) -> dict[str, Any]:
    """What our commands say there and how long they take; one that this version has not is told so."""
    found: dict[str, Any] = {}
    empty = folder / "empty"
    for name, more in (
        ("status", ["--workspace", str(folder), "status"]), ("status, no workspace", ["status"]),
        ("doctor, no workspace", ["doctor"]),
    ):  # fmt: skip
        took = []
        for _ in range(5):
            began = time.perf_counter()
            ran = subprocess.run(
                [sys.executable, "-m", "anvil_tui", *more], capture_output=True, text=True, cwd=empty, timeout=120
            )
            took.append(round(1000 * (time.perf_counter() - began)))
        found[name] = {"ms": took, "rc": ran.returncode, "out": ran.stdout[-6000:], "err": ran.stderr[-1000:]}
    return found


def cost_of_a_tick() -> dict[str, Any]:
    """Milliseconds that one snapshot takes, and CPU of the reader at one a second."""
    from anvil_tui.adapters.nvml import Sampler
    from benchmarks.console.terminal import cpu_s, tree

    sampler, took = Sampler(), []
    sampler.sample()
    for _ in range(30):
        began = time.perf_counter()
        sampler.sample()
        took.append(1000 * (time.perf_counter() - began))
    child = subprocess.Popen([*READER, "1.0"], stdout=subprocess.DEVNULL)
    time.sleep(4)
    used, began = cpu_s(tree(child.pid)), time.perf_counter()
    time.sleep(15)
    share = 100 * (cpu_s(tree(child.pid)) - used) / (time.perf_counter() - began)
    child.kill()
    child.wait()
    figures = [round(f(took), 2) for f in (min, median, max)]
    return {"sample_ms": figures, "reader_cpu_pct": round(share, 2)}


def kernel() -> dict[str, Any]:
    """What can be read of the kernel log, where Xids are told."""
    host = LinuxHost(Path.cwd(), SystemClock())
    mark, lines = host.kernel_mark(), host.kernel_lines(0)
    xids = [text[:200] for text in lines.value or () if "Xid" in text]
    return {"mark": str(mark.state), "reason": mark.reason, "records": mark.value, "xids": xids}


def main(argv: Sequence[str]) -> int:
    if list(argv) == ["--load"]:
        load()
        return 0
    record: dict[str, Any] = {"python": platform.python_version(), "cores": os.cpu_count(), "kernel": kernel()}
    with tempfile.TemporaryDirectory(prefix="beside-") as temporary:
        folder = Path(temporary)
        (folder / "anvil.toml").write_text(WORKSPACE)
        (folder / "key").write_text("a-key-of-this-run-only\n")
        for part in ("recipes", "gates", "empty"):
            (folder / part).mkdir()
        reader = Reader(INTERVAL_S)
        try:
            record["idle"] = beside(reader)
            with loaded() as pid:
                record["load"] = {"pid": pid, "hold_mib": HOLD_MIB}
                record["loaded"] = beside(reader)
                record["terminals"] = terminals(folder)
        finally:
            reader.end()
        record["tick"] = cost_of_a_tick()
        record["commands"] = commands(folder)
    Path(argv[0]).write_text(json.dumps(record, indent=1, default=str))
    for state in ("idle", "loaded"):
        print(f"{state}: differed {record[state]['differed'] or 'nowhere'}")
        for gpu in record[state]["gpus"]:
            for field in gpu:
                print("  {name:18} ours {ours}  nvitop {nvitop}  smi {smi}  {differs}".format_map(field))
    for name, rows in record["terminals"].items():
        failed = [r["failed"] for r in rows["rounds"] if "failed" in r]
        print(name, {k: v for k, v in rows.items() if k != "rounds"}, *failed)
    print(record["tick"], record["kernel"])
    return 0


WORKSPACE = """schema = "anvil.workspace/1"
[box]
name = "beside"
kind = "lab"
[containers]
url = "unix:///nonexistent/docker.sock"
[gateway]
bind = "127.0.0.1:9100"
client_keys = ["file:key"]
[[roles]]
name = "primary"
aliases = ["llm.primary"]
slots = [{ name = "slot-a", port = 8001 }, { name = "slot-b", port = 8002 }]
"""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
