"""What the readers observe: frozen snapshots of GPUs, host, containers, engines and gateway.

A field that a source cannot tell is None and is drawn as `n/a`; 0 always means measured zero.
Bytes are bytes, times are ISO-8601 UTC text as Docker gives it, `*_s` are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MIB = 1024 * 1024

GpuState = Literal["ok", "lost", "error"]


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process NVML names on a GPU; `used_bytes` None where the driver does not attribute memory."""

    pid: int
    name: str | None = None
    used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Identity is `uuid`; `index` is a label. `processes` None = the list is not available here.

    `xids` counts the Xids that the driver told of since its reader began, `xid` is the newest of them (0 = none):
    of those that came at once one that speaks of the GPU, before those of its programs, which follow from it.
    `remap_pending`: rows are remapped at the next reset of the GPU; `remap_failed`: they cannot be any more.
    `mig` are the UUIDs of its slices while it is in MIG mode; None = it is whole, or the driver cannot tell.
    """

    index: int
    uuid: str | None
    name: str | None = None
    state: GpuState = "ok"
    reason: str = ""
    total_bytes: int | None = None
    used_bytes: int | None = None
    reserved_bytes: int | None = None
    free_bytes: int | None = None
    used_includes_reserved: bool = False
    utilization_pct: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle: tuple[str, ...] | None = None
    ecc_uncorrected: int | None = None
    pcie_tx_kib_s: int | None = None
    pcie_rx_kib_s: int | None = None
    fan_pct: int | None = None
    bus_id: str | None = None
    integrated: bool = False
    processes: tuple[GpuProcess, ...] | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    xid: int | None = None
    xids: int | None = None
    mig: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    """All GPUs of the box in one tick. `gpus` keeps a row for a GPU that was seen once and is now lost.

    `cuda` is the newest CUDA version that the driver supports.
    """

    driver: str | None
    gpus: tuple[Gpu, ...]
    cuda: str | None = None

    @property
    def complete(self) -> bool:
        return all(g.state == "ok" for g in self.gpus)


@dataclass(frozen=True, slots=True)
class Host:
    """Host memory, swap, disk of the workspace, and `/dev/shm`, in bytes; load is the 1-minute average."""

    memory_total: int | None
    memory_available: int | None
    swap_total: int | None
    swap_used: int | None
    disk_total: int | None
    disk_free: int | None
    shm_total: int | None
    shm_used: int | None
    load_1m: float | None
    cpu_count: int | None


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file of /dev/shm: size in bytes, epoch seconds of its last write, processes that map or hold it open.

    `users` None = nobody was found, but not every process may be looked at.
    """

    name: str
    bytes: int
    written_at: float
    users: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """Bytes since the group was made. `limit` None = no limit; `met` = how often the limit was reached."""

    peak: int
    limit: int | None
    met: int | None


@dataclass(frozen=True, slots=True)
class GpuGrant:
    """The GPUs a container was given, and how.

    `requested` is what its configuration names; `effective` is `none`, `uuids`, `all` or `unknown`;
    `uuids` are the full UUIDs when `effective == "uuids"`; `via` names the mechanism
    (`device-request`, `environment`, `cdi`, `device-node`, `privileged`, `none`).
    """

    requested: tuple[str, ...] = ()
    effective: Literal["none", "uuids", "all", "unknown"] = "none"
    uuids: tuple[str, ...] = ()
    via: str = "none"


_GOING = {"removing": "the daemon has not finished", "dead": "the daemon could not remove it"}


@dataclass(frozen=True, slots=True)
class Container:
    """One container as the daemon's inspect shows it; `id` is the full 64-hex id.

    `status` is the daemon's own word. `exit_code` is that of the last end, None while it runs or
    when it never ran.
    `pins` are the repo digests of its image; `image_id` is the daemon's id of the image it runs.
    `env_names` are the names of its environment variables, never their values. `mounts` are (path on its
    machine, path inside, whether read-only). `network` is the daemon's own word: `host`, `bridge`,
    `container:ID`, a name; "" = not known.
    """

    id: str
    name: str
    status: str
    image_id: str
    image_ref: str
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    exit_code: int | None = None
    oom_killed: bool | None = None
    restart_count: int | None = None
    restart_policy: str = ""
    error: str = ""
    health: str | None = None
    pid: int | None = None
    argv: tuple[str, ...] = ()
    gpus: GpuGrant = GpuGrant()
    tty: bool = False
    log_driver: str = ""
    ports: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    env_names: tuple[str, ...] = ()
    mounts: tuple[tuple[str, str, bool], ...] = ()
    network: str = ""

    @property
    def running(self) -> bool:
        return self.status in ("running", "paused")

    @property
    def going(self) -> str:
        """A sentence for a container whose removal did not end: nothing starts or stops it; "" for any other."""
        why = _GOING.get(self.status)
        return f"container {self.name} ({self.id[:12]}) is {self.status}: {why}" if why else ""


@dataclass(frozen=True, slots=True)
class Daemon:
    """The container engine itself: its own version and the kernel it runs on."""

    version: str | None = None
    kernel: str | None = None


@dataclass(frozen=True, slots=True)
class KvCapacity:
    """KV pool of one engine, in tokens, with where and when it was learnt.

    `tokens` is the total over data-parallel ranks. `per_request_tokens` is the longest one request may
    use where the engine says so apart. `inconsistent` is a sentence when the engine's own figures disagree.
    `at` is when the engine said so (UTC, ISO 8601).
    """

    tokens: int | None
    source: str
    per_request_tokens: int | None = None
    per_rank_bytes: int | None = None
    reported_windows: float | None = None
    inconsistent: str = ""
    at: str | None = None

    def windows(self, context_tokens: int | None) -> float | None:
        """Complete configured windows the pool holds: tokens / context. None when either is unknown.

        >>> round(KvCapacity(2_493_817, "log").windows(524_288), 2)
        4.76
        """
        if not self.tokens or not context_tokens or self.inconsistent:
            return None
        return self.tokens / context_tokens


HttpLight = Literal["refused", "starting", "ready", "error", "unknown"]


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine as it answers over HTTP (identity, metrics) and in its log (capacity).

    `kv_used` is a fraction; it may exceed 1 when the engine says so. `progress` is a counter of
    tokens or iterations that only grows while the engine works, `prompt` one of prompt tokens that were read;
    None where the engine has none.
    `gpu_layers` is (on GPUs, all) as the start-up log tells it.
    `metrics` says `on`, `off` (a setting, not an outage) or `error`.
    """

    kind: str
    http: HttpLight
    reason: str = ""
    served: tuple[str, ...] = ()
    context_tokens: int | None = None
    running: int | None = None
    waiting: int | None = None
    kv_used: float | None = None
    capacity: KvCapacity | None = None
    progress: float | None = None
    prompt: float | None = None
    preempted: float | None = None
    slots: int | None = None
    version: str | None = None
    gpu_layers: tuple[int, int] | None = None
    metrics: Literal["on", "off", "error", "unknown"] = "unknown"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a gateway was told of a slot's serve: the exact name and the context that it promises."""

    model: str
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Backend:
    """One gateway backend (a slot): its fixed address, requests in progress and queued, None = cannot tell.

    `expects` None = the gateway takes whatever runs there. `observed` is the name that the gateway itself found
    there, None = it found none or does not look.
    """

    name: str
    address: str
    in_flight: int | None
    queued: int | None = None
    oldest_s: float | None = None
    expects: Expected | None = None
    observed: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One request in progress on a backend, as the gateway sees it. Bytes are those sent to the client so far.

    `idle_s` is how long nothing was sent; None = the gateway cannot tell.
    """

    id: str
    backend: str
    age_s: float
    bytes_out: int | None = None
    idle_s: float | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a gateway can do. Without `holds` clients get 503 while a role is quiesced; without `counts` what is
    in flight is unknown; without `atomic` moving an alias restarts the gateway, which interrupts every alias;
    without `severs` running requests cannot be cut; without `durable` a restart forgets; without `strong_reads`
    one reading proves nothing; without `keys` one client key is taken at a time; without `errors` an engine's
    refusal arrives without its words."""

    atomic: bool = True
    durable: bool = True
    counts: bool = True
    holds: bool = True
    severs: bool = True
    strong_reads: bool = True
    keys: bool = True
    errors: bool = True


@dataclass(frozen=True, slots=True)
class Gateway:
    """The gateway's live routing. `aliases` maps alias -> backend name or `hold`.

    `file_equal` is False when the durable alias file and the running process disagree. `requests` None = the
    gateway cannot list them. `at`, of a gateway whose aliases keep a slot while on hold: alias -> that slot.
    """

    aliases: Mapping[str, str]
    backends: tuple[Backend, ...]
    held: int | None
    generation: int
    file_equal: bool
    pid: int | None = None
    version: str | None = None
    can: Capabilities = Capabilities()
    requests: tuple[Request, ...] | None = None
    at: Mapping[str, str] = field(default_factory=dict)

    def backend(self, name: str) -> Backend | None:
        return next((b for b in self.backends if b.name == name), None)
