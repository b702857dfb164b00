"""Worlds for the console's tests: the seeds' box at chosen moments. Everything is fixed; nothing reads a clock."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from anvil_tui.adapters.toml_files import load_recipes
from anvil_tui.core.alarms import Alarm
from anvil_tui.core.box import MIB, Backend, Container, Engine, Gateway, Gpu, GpuGrant, GpuSnapshot, KvCapacity
from anvil_tui.core.capacity import Proven
from anvil_tui.core.errors import AnvilError, Refused
from anvil_tui.core.holding import Drift, Holding, State
from anvil_tui.core.journal import GateView, OperationView, StepView
from anvil_tui.core.plan import Intent, Plan, Step
from anvil_tui.core.progress import Trail
from anvil_tui.core.readiness import PROVEN
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.serves import derive
from anvil_tui.core.shape import shape_of, write
from anvil_tui.core.shelf import Compared, Disks, RunFiles, Verified
from anvil_tui.core.standing import Check, CredentialState
from anvil_tui.core.workspace import Workspace
from anvil_tui.core.world import BoxRecord, Event, Lease, LogView, RecipeFile, RoleRecord, ServeRecord, World
from anvil_tui.ui.seams import History, Player

NOW = datetime(2026, 9, 2, 11, 54, 9, tzinfo=UTC)
NOW_S = 5000.0
ROOT = Path(__file__).parents[2]
UUIDS = ("GPU-0d4f6a1e-7c1b-4f0e-9a35-2f6a5b0c1d2e", "GPU-9b8c7d6e-5f4a-4b3c-8d2e-1f0a9b8c7d6e")
INCUMBENT, CANDIDATE, FALLBACK = "glm53-524k-k5-xgfix", "glm53-393k-c1", "glm53-245k-c1"


def cid(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def at(seconds_ago: float) -> str:
    return (NOW - timedelta(seconds=seconds_ago)).isoformat().replace("+00:00", "Z")


def workspace(kind: str = "lab") -> Workspace:
    return Workspace.model_validate({
        "schema": "anvil.workspace/1",
        "box": {"name": "fakoli-dark", "kind": kind},
        "gpus": {"roles": {"compute-a": UUIDS[0], "compute-b": UUIDS[1]}},
        "gateway": {"client_keys": ("env:ANVIL_CLIENT_KEY",)},
        "roles": ({
            "name": "primary", "aliases": ("llm.primary",), "promotion_suite": "promotion",
            "slots": ({"name": "primary-a", "port": 9131}, {"name": "primary-b", "port": 9132}),
        },),
    })  # fmt: skip


def recipes() -> dict[str, Recipe]:
    return {f.recipe.id: f.recipe for f in recipe_files() if f.recipe}


def gpu(index: int, free_mib: int = 2543, **more: object) -> Gpu:
    total, reserved = 97_887, 1_100
    base = Gpu(
        index, UUIDS[index] if index < 2 else f"GPU-{index:08x}-0000-4000-8000-{index:012x}",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        total_bytes=total * MIB, used_bytes=(total - reserved - free_mib) * MIB, reserved_bytes=reserved * MIB,
        free_bytes=free_mib * MIB, utilization_pct=97 - 3 * (index % 4), temperature_c=61 + index % 9,
        power_w=287.0 - 4 * (index % 5), power_limit_w=300.0, processes=(),
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


def history(end_mib: int = 94_244) -> tuple[int | None, ...]:
    """A load of four minutes with a gap where the reader was down."""
    rise = [int(end_mib * min(1.0, 0.02 + i / 22)) for i in range(24)]
    return (*rise[:9], None, None, *rise[11:], *([end_mib] * 16))


def container(recipe: Recipe, status: str = "running", **more: object) -> Container:
    base = Container(
        cid(recipe.id), f"anvil-{recipe.id}", status, "sha256:" + cid(recipe.image.ref), recipe.image.ref,
        created_at=at(30_000), started_at=at(7 * 3600), restart_count=0, oom_killed=False,
        argv=recipe.filled_argv(9131), gpus=GpuGrant(UUIDS, "uuids", UUIDS, "device-request"),
        exit_code=None if status == "running" else 0,
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


def record(recipe: Recipe, slot: str, qualified: bool = True) -> ServeRecord:
    done = {"qualified_by": "20260902-1040-qualify", "qualified_at": at(4000), "qualified_suite": "promotion"}
    return ServeRecord(
        cid(recipe.id), recipe.id, recipe.digest(), "sha256:" + cid(recipe.image.ref), "primary", slot,
        9131 if slot.endswith("a") else 9132, recipe.served_name, "20260902-0958-load", recipe.exclusive,
        shape=write(shape_of(container(recipe))), **(done if qualified else {}),
    )  # fmt: skip


def engine(recipe: Recipe, **more: object) -> Engine:
    pool = recipe.kv.pool_tokens or 2_493_817
    kv = KvCapacity(pool, "engine log 11:02", per_rank_bytes=9_878_424_780)
    base = Engine(
        str(recipe.engine), "ready", served=(recipe.served_name,), context_tokens=recipe.envelope.context_tokens,
        running=1, waiting=0, kv_used=0.36, capacity=kv, progress=812_345.0, version="0.5.3rc14", metrics="on",
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


def gateway(target: str, in_flight: int = 2, held: int = 0) -> Gateway:
    slots = (Backend("primary-a", "127.0.0.1:9131", 0), Backend("primary-b", "127.0.0.1:9132", 0))
    lit = tuple(replace(b, in_flight=in_flight) if b.name == target else b for b in slots)
    return Gateway({"llm.primary": target}, lit, held, 12, True, 4242, "2.9.8")


EVENTS = (
    Event(at(4100), "qualify", "gate tools passed 20/20 in 96.4 s", "good"),
    Event(at(4010), "qualify", "gate needle passed: 206,296 prompt tokens measured, 41.2 s", "good"),
    Event(at(3900), "promote", "glm53-393k-c1 promoted: primary points at primary-b", "good"),
    Event(at(1200), "gpu", "compute-a free 2,543 MiB is below 3,072 MiB, waived 2026-09-02", "warn"),
    Event(at(35), "gateway", "llm.primary: 2 in flight", "plain"),
)
LOG = (
    "[2026-09-02 11:52:10 TP0] Load weight end. elapsed=412.31 s, type=Glm53FlashForCausalLM",
    "[2026-09-02 11:52:44 TP0] KV Cache is allocated. #tokens: 393216, K size: 4.60 GB, V size: 4.60 GB",
    "[2026-09-02 11:53:02 TP0] Capture cuda graph end. Time elapsed: 17.9 s. mem usage=0.41 GB",
    "[2026-09-02 11:53:03 TP0] WARNING nccl plugin not found, using internal network (non-fatal)",
    "[2026-09-02 11:53:58 TP0] Decode batch. #running-req: 1, #token: 141557, token usage: 0.36, gen: 99.79",
)


def trail(moved_at_s: float) -> Trail:
    return Trail(NOW_S - 1, at(7 * 3600), value=812_345.0, moved_at_s=moved_at_s, was_ready=True)


@cache
def recipe_files() -> tuple[RecipeFile, ...]:
    """Copies of the shipped recipes, so that a picture changes only when the console does."""
    return load_recipes(ROOT / "tests" / "fixtures" / "recipes")


def alien(number: int = 0, name: str = "stray") -> Container:
    """A container that no recipe of ours made, with every GPU in its hands."""
    return Container(f"{number:x}" * 64, name, "running", "", "", gpus=GpuGrant((), "all", (), "environment"))


def with_containers(world: World, *more: Container) -> World:
    have = (*(world.containers.value or ()), *more)
    return derive(replace(world, containers=Reading.known(have, NOW_S, "docker")))


def standings() -> dict[str, Holding]:
    """393K holds, the 524K was qualified under another driver, the 499K failed, all others never were."""
    states: dict[str, State] = {CANDIDATE: "holds", INCUMBENT: "drifted", "glm53-499k-c4": "failed"}
    days = {CANDIDATE: at(4000), INCUMBENT: "2026-08-31T09:00:00Z", "glm53-499k-c4": "2026-09-01T17:00:00Z"}
    moved = (Drift("driver", "577.10", "580.95.05"),)
    return {
        name: Holding(name, states[name], f"{days[name][:10]}-qualify/{cid(name)[:12]}", days[name], "promotion",
                      moved if states[name] == "drifted" else ())
        if name in states else Holding(name, "never")
        for name in recipes()
    }  # fmt: skip


@cache
def calm(read_only: bool = False, kind: str = "lab") -> World:
    """393K serves, 524K is the exact rollback, both cards full, nothing runs."""
    known = recipes()
    now, back = known[CANDIDATE], known[INCUMBENT]
    serves = {cid(now.id): record(now, "primary-b"), cid(back.id): record(back, "primary-a")}
    world = World(
        workspace(kind), read_only, NOW_S, NOW,
        gpus=Reading.known(GpuSnapshot("580.95.05", (gpu(0), gpu(1))), NOW_S - 0.4, "nvml"),
        gpu_history={UUIDS[0]: history(), UUIDS[1]: history()},
        containers=Reading.known((container(now), container(back, "exited")), NOW_S - 1, "docker"),
        engines={cid(now.id): Reading.known(engine(now), NOW_S - 1, "http")},
        trails={cid(now.id): trail(NOW_S - 1)},
        gateway=Reading.known(gateway("primary-b"), NOW_S - 1, "haproxy"),
        record=BoxRecord(7, serves, {"primary": RoleRecord("primary", cid(now.id), (cid(back.id),))}),
        recipes=recipe_files(), images={r.image.ref: "sha256:1" for r in known.values()},
        suites=("promotion", "smoke"), operations=(qualified(), promoted()), events=EVENTS,
        qualified=standings(), proven={now.digest(): (Proven(1, 304_491, 3, "1040-qualify/x", at(4000)),)},
        log=LogView(cid(now.id), LOG, 0), proofs={cid(r.id): proven() for r in (now, back)},
        credentials=(CredentialState("gateway.client_keys[0]", "env:ANVIL_CLIENT_KEY", "accepted", at=at(20)),),
    )  # fmt: skip
    return derive(world)


def freed() -> Reading[GpuSnapshot]:
    """Both cards empty: what served has ended, and its memory is back."""
    return Reading.known(GpuSnapshot("580.95.05", (gpu(0, 94_000), gpu(1, 94_000))), NOW_S - 0.4, "nvml")


def proven() -> tuple[Check, ...]:
    """Everything that the way back needs was looked at and is there."""
    return tuple(Check(name, "ok", "as recorded", at(20)) for name in PROVEN)


GATES = (
    ("reserve-idle", "reserve", 1), ("identity", "identity", 1), ("smoke", "smoke", 3), ("json", "json", 5),
    ("needle", "needle", 1), ("tool-result", "tool-result", 3), ("tools", "tools", 20),
    ("streaming-tools", "streaming-tools", 3), ("log-audit", "log-audit", 1), ("container", "container-state", 1),
)  # fmt: skip


def passed_gates(until: int = len(GATES)) -> tuple[GateView, ...]:
    took = (0.1, 0.2, 2.4, 6.1, 41.2, 9.8, 96.4, 14.0, 0.3, 0.1)
    out = []
    for i, (id_, kind, of) in enumerate(GATES):
        if i < until:
            why = "206,296 prompt tokens measured" if kind == "needle" else ""
            out.append(GateView(id_, kind, "passed", of, of, why, took[i]))
        else:
            out.append(GateView(id_, kind, of=of))
    return tuple(out)


def qualified() -> OperationView:
    step = StepView("gates", "run the gates of suite promotion", "done", at(4200), at(4001), 3600)
    return OperationView(
        "20260902-1040-qualify", "qualify", CANDIDATE, "a1b2c3d4e5f6", "primary", at(4200), at(4000), 4100,
        (step,), gates=passed_gates(), decision="forward", decision_why="every gate passed", outcome="done",
    )  # fmt: skip


STEPS = (
    ("hold", "hold llm.primary: new requests wait", 30), ("drain", "wait until primary-a is idle", 300),
    ("stop-old", "stop glm53-524k-k5-xgfix (container kept)", 90), ("free", "prove that both GPUs are free", 120),
    ("start", "start glm53-393k-c1 in primary-b", 60),
    ("ready", "ready, exact identity, one real completion", 1800),
    ("gates", "run the gates of suite promotion", 3600), ("flip", "point llm.primary at primary-b", 30),
    ("verify", "three requests through the gateway", 60), ("record", "record the new incumbent", 30),
)  # fmt: skip


def steps(done: int, running: bool = True) -> tuple[StepView, ...]:
    """`done` steps done, each 30 s after the other, and the next one running."""
    out = []
    for i, (name, title, limit) in enumerate(STEPS):
        if i < done:
            out.append(StepView(name, title, "done", at(400 - 30 * i), at(375 - 30 * i), limit))
        elif i == done and running:
            out.append(StepView(name, title, "running", at(102), None, limit))
        else:
            out.append(StepView(name, title, deadline_s=limit))
    return tuple(out)


def promoted() -> OperationView:
    return OperationView(
        "20260902-1048-promote", "promote", CANDIDATE, "0f1e2d3c4b5a", "primary", at(3999), at(3900), 4200,
        steps(len(STEPS)), gates=passed_gates(), decision="forward", decision_why="every gate passed",
        outcome="done",
    )  # fmt: skip


def promoting(alive: bool = True) -> World:
    """524K is stopped, requests are held, 393K is loaded and stands at gate tools 13/20."""
    known = recipes()
    new, old = known[CANDIDATE], known[INCUMBENT]
    gates = passed_gates(6)
    running = replace(gates[6], verdict="running", done=13)
    operation = OperationView(
        "20260902-1150-promote", "promote", new.id, "0f1e2d3c4b5a", "primary", at(420), None, 4300, steps(6),
        gates=(*gates[:6], running, *gates[7:]), last_note="gate tools 13/20, all exact so far",
    )  # fmt: skip
    serves = {cid(new.id): record(new, "primary-b", False), cid(old.id): record(old, "primary-a")}
    events = (*EVENTS[:2], Event(at(400), "promote", "llm.primary is held: 3 requests wait", "warn"))
    world = replace(
        calm(),
        containers=Reading.known((container(new), container(old, "exited")), NOW_S - 1, "docker"),
        record=BoxRecord(8, serves, {"primary": RoleRecord("primary", cid(old.id), ())}),
        gateway=Reading.known(gateway("hold", held=3), NOW_S - 1, "haproxy"),
        operations=(qualified(), operation),
        lease=Lease(operation.id, 4300, "sekou", at(420)) if alive else None,
        events=events,
    )
    return derive(world)


def degraded() -> World:
    """One card fell off the bus; the serve on it answers /health and decodes nothing."""
    world = calm()
    lost = gpu(1, state="lost", reason="GPU is lost", used_bytes=None, free_bytes=None, total_bytes=None)
    lost = replace(lost, utilization_pct=None, temperature_c=None, power_w=None, processes=None)
    return derive(replace(
        world,
        gpus=Reading.known(GpuSnapshot("580.95.05", (gpu(0), lost)), NOW_S - 0.4, "nvml"),
        gpu_history={UUIDS[0]: history(), UUIDS[1]: (*history()[:-4], None, None, None, None)},
        trails={cid(CANDIDATE): trail(NOW_S - 300)},
    ))  # fmt: skip


def stale() -> World:
    """GPU readings are 42 s old, the daemon does not answer, the engine's metrics failed."""
    world = calm()
    return derive(replace(
        world,
        gpus=replace(world.gpus, at_s=NOW_S - 42),
        containers=Reading.error("unix:///var/run/docker.sock: no answer (after 5.0 s)", NOW_S - 18, "docker",
                                 world.containers.value),
        engines={cid(CANDIDATE): Reading.error("127.0.0.1:9132: connection reset", NOW_S - 18, "http")},
    ))  # fmt: skip


def alarmed(read_only: bool = False) -> World:
    """A card fell off the bus four minutes ago, and nobody has seen it; a slow card was seen by ana."""
    lost = f"GPU 1 compute-b ({UUIDS[1][:12]}) is lost: GPU is lost"
    slow = f"GPU 0 compute-a ({UUIDS[0][:12]}) is slowed down: hw-thermal"
    alarms = (
        Alarm(f"throttle:{UUIDS[0]}", "throttle", UUIDS[0], "warn", at(5000), slow, "ana", at(4800)),
        Alarm(f"gpu:{UUIDS[1]}", "gpu", UUIDS[1], "bad", at(240), lost),
        Alarm(
            "rollback:primary",
            "rollback",
            "primary",
            "warn",
            at(200),
            "rollback of primary not ready: image: gone",
        ),
    )
    return replace(degraded(), alarms=alarms, read_only=read_only, watcher=Lease("watch", 811, "anvil", at(9000)))


def interrupted() -> World:
    return promoting(alive=False)


def empty() -> World:
    """A console at start: nothing was read yet."""
    return World(workspace(), False, NOW_S, NOW)


def many_gpus(count: int = 16) -> World:
    cards = tuple(gpu(i, free_mib=1000 * i) for i in range(count))
    return derive(replace(calm(), gpus=Reading.known(GpuSnapshot("580.95.05", cards), NOW_S, "nvml")))


DIFF = """--- ~/.pi/models.json
+++ ~/.pi/models.json
@@ -1,4 +1,4 @@
 {
-  "contextWindow": 524288,
+  "contextWindow": 393216,
   "name": "llm.primary"
 }"""


def plan_for(intent: Intent, world: World) -> Plan:
    """A plan in the planner's own shape, for dialogs: what it says is fixed, what it rests on is the world."""
    known, traffic = recipes(), intent.verb in ("promote", "rollback", "drain")
    serve = world.serve(intent.container_id)
    name = intent.recipe or (serve.name if serve else "")
    facts: dict[str, object] = {"role": intent.role or "primary", "generation": world.record.generation}
    if name in known:
        facts["recipe"] = {"id": name, "digest": known[name].digest()}
    now = world.record.roles.get("primary")
    if now and now.incumbent:
        facts["incumbent"] = {"id": now.incumbent, "slot": "primary-b"}
    return Plan(
        intent,
        f"{intent.verb} {name or intent.role}",
        steps=tuple(Step(n, n, title, limit) for n, title, limit in STEPS),
        undo_steps=(
            Step("undo:stop-new", "stop", "stop the candidate", 60),
            Step("undo:start-old", "start", "start the kept container", 60),
        ),
        facts=facts,
        interrupts="llm.primary: new requests are held, running ones finish first" if traffic else "nothing",
        outage="about 7 min, as long as the load took before; held requests wait 900 s" if traffic else "none",
        rollback="glm53-524k-k5-xgfix, container kept, image here: ready",
        on_failure="undone once: the kept container serves again",
        memory="both cards: free 2,543 MiB now, 96,787 MiB after the stop, 3,351 MiB after start",
        confirm_word="adaptive-mtp" if traffic else "",
        gates=tuple({"id": i, "kind": k, "of": n} for i, k, n in GATES) if traffic else (),
        details=(DIFF,) if intent.verb == "apply" else (),
    )


class FakeStore:
    """`publish` is what a probe does: a new World, and everybody told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: list[Callable[[], None]] = []

    def subscribe(self, subscriber: Callable[[], None], /) -> Callable[[], None]:
        self.told.append(subscriber)
        return lambda: self.told.remove(subscriber)

    def publish(self, world: World) -> None:
        self.world = world
        for tell in tuple(self.told):
            tell()


class FakeDeeds:
    """Remembers what was asked; plans from the store's newest world. `refuse` makes the next plan raise."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.intents: list[Intent] = []
        self.started: list[Plan] = []
        self.steered: list[tuple[str, ...]] = []
        self.refuse: AnvilError | None = None

    def plan(self, intent: Intent) -> Plan:
        self.intents.append(intent)
        if self.refuse:
            raise self.refuse
        return plan_for(intent, self.store.world)

    def start(self, plan: Plan) -> str:
        if self.refuse:
            raise self.refuse
        self.started.append(plan)
        return "20260902-1155-" + plan.intent.verb

    def resume(self, operation_id: str) -> None:
        self.steered.append(("resume", operation_id))

    def undo(self, operation_id: str) -> None:
        self.steered.append(("undo", operation_id))

    def cancel(self, operation_id: str, reason: str) -> None:
        if not reason:
            raise Refused("a cancel needs a reason")
        self.steered.append(("cancel", operation_id, reason))

    def pause(self, operation_id: str, on: bool) -> None:
        if self.refuse:
            raise self.refuse
        self.steered.append(("pause" if on else "go on", operation_id))

    def acknowledge(self, alarm: Alarm) -> None:
        if self.refuse:
            raise self.refuse
        self.steered.append(("acknowledge", alarm.id))


class FakeEvidence:
    """Gives the runs and the comparison that a test put here; remembers what was asked."""

    def __init__(self) -> None:
        self.runs: dict[str, RunFiles] = {}
        self.compared: Compared | AnvilError = Compared(error="no comparison in this test")
        self.checked: dict[str, Verified] = {}
        self.asked: list[tuple[str, object]] = []

    def run(self, operation: str) -> RunFiles:
        self.asked.append(("run", operation))
        return self.runs.get(operation, RunFiles(operation))

    def compare(self, arms: Mapping[str, str]) -> Compared:
        self.asked.append(("compare", dict(arms)))
        if isinstance(self.compared, AnvilError):
            raise self.compared
        return self.compared

    def verify(self, names: Iterable[str]) -> Mapping[str, Verified]:
        wanted = tuple(names)
        self.asked.append(("verify", wanted))
        return {name: self.checked[name] for name in wanted}


class FakeService:
    def __init__(self, world: World, evidence: FakeEvidence | None = None) -> None:
        self.store = FakeStore(world)
        self.deeds = None if world.read_only else FakeDeeds(self.store)
        self.evidence = evidence or FakeEvidence()
        self.followed: list[str | None] = []
        self.history: History | None = None
        self.player: Player | None = None
        self.on_disk: Disks | AnvilError = Disks(at(3), {"images": [], "revisions": [], "why": []})
        self.looked = 0
        self.begun = 0

    def disks(self) -> Disks:
        self.looked += 1
        if isinstance(self.on_disk, AnvilError):
            raise self.on_disk
        return self.on_disk

    def begin(self) -> None:
        self.begun += 1

    def follow(self, container_id: str | None) -> None:
        self.followed.append(container_id)
