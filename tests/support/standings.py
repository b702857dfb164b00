"""Worlds of what stands beside a serve: drills, ways back, owners, clients, credentials, requests, disks."""

from __future__ import annotations

from dataclasses import replace

from anvil_tui.core.box import Capabilities, Request
from anvil_tui.core.clients import Client
from anvil_tui.core.engine_log import LoadPhase
from anvil_tui.core.journal import WAITS, OperationView, StepView
from anvil_tui.core.reading import Reading
from anvil_tui.core.serves import derive
from anvil_tui.core.shelf import Disks
from anvil_tui.core.standing import Check, ClientState, CopyState, CredentialState, DrillPhase, DrillRecord
from anvil_tui.core.workspace import NamedCredential
from anvil_tui.core.world import Lease, RoleRecord, World
from tests.support import worlds

DRILL = "20260902T115000000-drill-5dd6"
_OUT = (
    ("prove", f"prove that {worlds.INCUMBENT} can start"), ("hold", "hold llm.primary at the gateway"),
    ("drain", "wait until primary-b has nothing in flight; after 300 s everything is put back"),
    ("start", "start the container again"), ("verify", "verify through the gateway"),
)  # fmt: skip
STEPS = (
    ("facts", "take the facts of the start"), *_OUT,
    *((f"{name}-home", title.replace(worlds.INCUMBENT, worlds.CANDIDATE)) for name, title in _OUT),
    ("compare", "compare the end with the start, fact by fact"),
)  # fmt: skip


def drilling(done: int, *, waits: bool = False, note: str = "") -> World:
    """A drill with `done` of its twelve steps behind it; the next one runs, or waits for a person."""
    steps = tuple(
        StepView(name, title, "done" if i < done else "pending", worlds.at(200 - 10 * i) if i < done else None,
                 worlds.at(195 - 10 * i) if i < done else None, 300)
        for i, (name, title) in enumerate(STEPS)
    )  # fmt: skip
    if not waits:
        now = replace(steps[done], state="running", started_at=worlds.at(12))
        steps = (*steps[:done], now, *steps[done + 1 :])
    operation = OperationView(
        DRILL, "drill", f"primary to {worlds.INCUMBENT} and home", "0f1e2d3c4b5a", "primary", worlds.at(210), None,
        4300, steps, last_note=f"{WAITS}{STEPS[done][1]}" if waits else note, paused=waits,
    )  # fmt: skip
    lease = Lease(DRILL, 4300, "sekou", worlds.at(210), "gpu-desk")
    return derive(replace(worlds.calm(), operations=(worlds.qualified(), operation), lease=lease))


def drill(**change: object) -> DrillRecord:
    phases = (
        DrillPhase("away", "hold", 0.2), DrillPhase("away", "start", 0.4), DrillPhase("away", "ready", 37.7),
        DrillPhase("away", "verify", 2.7),
        DrillPhase("home", "start", 0.4), DrillPhase("home", "ready", 35.6), DrillPhase("home", "verify", 3.0),
    )  # fmt: skip
    made = DrillRecord(
        DRILL, "primary", worlds.at(86_400 * 3), "box", worlds.cid(worlds.CANDIDATE), worlds.cid(worlds.INCUMBENT),
        "restored", 41.0, phases, home_s=39.0, incumbent_name=worlds.CANDIDATE, way_back_name=worlds.INCUMBENT,
    )  # fmt: skip
    return replace(made, **change)  # type: ignore[arg-type]


def drilled() -> World:
    """The drill has ended: the end differs from the start in one fact."""
    view = drilling(3)
    ended = replace(
        view.operations[-1], outcome="done", ended_at=worlds.at(5), decision="forward",
        steps=tuple(StepView(n, t, "done", worlds.at(100), worlds.at(99), 300) for n, t in STEPS),
    )  # fmt: skip
    record = drill(outcome="differs", differences=("image was sha256:1, is sha256:2",), at=worlds.at(5))
    return derive(replace(view, operations=(worlds.qualified(), ended), lease=None, drills=(record,)))


def not_ready() -> World:
    """The weights of the way back are not whole, and its port is somebody's."""
    back = worlds.cid(worlds.INCUMBENT)
    bad = {
        "weights": Check("weights", "missing", "/models/glm: 12 of 41 files, 31.2 GB of 104.0 GB", worlds.at(20)),
        "port": Check("port", "missing", "port 9131 is held by pid 4711 (python3)", worlds.at(20)),
    }
    checks = tuple(bad.get(c.name, c) for c in worlds.proven())
    return derive(replace(worlds.calm(), proofs={**worlds.calm().proofs, back: checks}, drills=(drill(),)))


def busy(*, holds: bool = True, held: bool = False) -> World:
    """Four requests in progress: one is stalled, one has not begun its answer."""
    now = worlds.gateway("hold" if held else "primary-b", in_flight=4)
    backends = tuple(replace(b, in_flight=4, oldest_s=312.0) if b.name == "primary-b" else b for b in now.backends)
    requests = (
        Request("0x55d0a1", "primary-b", 312.0, 18_200, 61.0),
        Request("0x55d0b2", "primary-b", 12.0, 120_000, 0.1),
        Request("0x55d0c3", "primary-b", 4.0, 900, 0.2),
        Request("0x55d0d4", "primary-b", 2.0, None, None),
    )
    lit = replace(now, backends=backends, requests=requests, can=Capabilities(holds=holds))
    return derive(replace(worlds.calm(), gateway=Reading.known(lit, worlds.NOW_S - 1, "haproxy")))


def wired() -> World:
    """Two client keys in files, one with a stale copy, and three clients of which one is converged."""
    calm = not_ready()
    gateway = calm.workspace.gateway.model_copy(update={"client_keys": ("file:state/a.key", "file:state/b.key")})
    named = (
        NamedCredential(name="agents", ref="file:state/a.key"),
        NamedCredential(name="batch", ref="file:state/b.key"),
    )
    clients = tuple(_client(name, host) for name, host in (("pi", ""), ("hermes", ""), ("laptop", "me@laptop")))
    workspace = calm.workspace.model_copy(update={"gateway": gateway, "credentials": named, "clients": clients})
    return derive(replace(
        calm, workspace=workspace,
        credentials=(
            CredentialState(
                "agents", "file:state/a.key", "accepted", "state/a.key", "ab12cd34ef56", at=worlds.at(20),
                copies=(CopyState("~/.pi/auth.json", "key", "other", "ff00ff00ff00"),),
            ),
            CredentialState("batch", "file:state/b.key", "refused", "state/b.key", "0011223344aa", why="401",
                            at=worlds.at(20)),
        ),
        clients=(
            ClientState("pi", "~/.pi/models.json", "drift", ("contextWindow: has 524,288, serves 393,216",),
                        at=worlds.at(30)),
            ClientState("hermes", "~/hermes.toml", "converged", at=worlds.at(30)),
            ClientState("laptop", "me@laptop:/etc/x.json", "unreachable", why="ssh: no route", at=worlds.at(30)),
        ),
    ))  # fmt: skip


def _client(name: str, host: str) -> Client:
    file = "/etc/x.json" if host else f"~/.{name}/models.json"
    return Client(name=name, file=file, host=host, format="json", role="primary", entries={"model": "{model}"})


def evicted() -> World:
    """Nothing serves the role: its serve made room for another recipe."""
    calm = worlds.calm()
    held = RoleRecord("primary", "", (worlds.cid(worlds.CANDIDATE),), worlds.FALLBACK)
    stopped = tuple(replace(c, status="exited", exit_code=0) for c in calm.containers.value or ())
    return derive(replace(
        calm, record=replace(calm.record, roles={"primary": held}),
        containers=replace(calm.containers, value=stopped), gpus=worlds.freed(),
        gateway=Reading.known(worlds.gateway("none"), worlds.NOW_S - 1, "haproxy"),
    ))  # fmt: skip


IMAGE = "sha256:" + "4909e318" * 8
REVISION = "/models/hub/models--org--glm/snapshots/" + "c0ffee00" * 5


def disks() -> Disks:
    """One image that the incumbent needs, one revision that nobody does, one stopped container."""
    image = {
        "id": IMAGE, "pins": ["ghcr.io/org/engine@" + IMAGE], "tags": ["engine:1"], "bytes": 9_400_000_000,
        "held_by": [f"the incumbent of primary, {worlds.CANDIDATE} (1a0fee0aee17)", f"recipe {worlds.CANDIDATE}"],
    }  # fmt: skip
    revision = {
        "name": "org/glm@" + "c0ffee00" * 5, "path": REVISION, "bytes": 104_000_000_000,
        "own_bytes": 61_500_000_000, "files": 41, "refs": ["main"], "flaws": ["1 blob is missing"], "held_by": [],
    }  # fmt: skip
    return Disks(worlds.at(3), {
        "image_bytes": 9_400_000_000, "images": [image], "revisions": [revision],
        "containers": [{"id": "d" * 64, "name": "anvil-old", "status": "exited"}],
        "why": ["/srv/cache: permission denied"],
    })  # fmt: skip


def loading(*earlier: OperationView, detail: LoadPhase | None = None) -> World:
    """The promotion at its step `ready`: the candidate's engine starts. `earlier` operations are on record."""
    world = worlds.promoting()
    new = worlds.recipes()[worlds.CANDIDATE]
    engine = worlds.engine(new, http="refused", served=(), metrics="off", running=None, waiting=None)
    operation = replace(world.operations[1], steps=worlds.steps(5), last_note="http refused")
    return derive(replace(
        world, operations=(*earlier, operation), loads={} if detail is None else {worlds.cid(new.id): detail},
        engines={worlds.cid(new.id): Reading.known(engine, worlds.NOW_S, "http")},
        containers=Reading.known((worlds.container(new, started_at=worlds.at(100)),), worlds.NOW_S, "docker"),
        trails={},
    ))  # fmt: skip


def broken() -> World:
    """No source answers, and none ever did: the driver, the daemon, the gateway."""
    return derive(replace(
        worlds.calm(), gpu_history={}, engines={}, trails={}, log=None,
        gpus=Reading.error("NVML Shared Library Not Found", worlds.NOW_S - 2, "nvml"),
        containers=Reading.error("unix:///var/run/docker.sock: permission denied", worlds.NOW_S - 2, "docker"),
        gateway=Reading.error("127.0.0.1:8404: connection refused", worlds.NOW_S - 2, "haproxy"),
    ))  # fmt: skip
