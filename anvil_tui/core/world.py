"""The whole box as one immutable value: what was read, what is recorded, what runs.

Panes, `status` and plans are functions of a World. `reduce` is the only way it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

from anvil_tui.core.alarms import Alarm, Marks
from anvil_tui.core.box import Container, Engine, Gateway, GpuSnapshot, Host
from anvil_tui.core.capacity import Proven
from anvil_tui.core.discovery import Found
from anvil_tui.core.engine_log import LoadPhase
from anvil_tui.core.holding import Holding, Past
from anvil_tui.core.journal import OperationView
from anvil_tui.core.loads import MeasuredLoad
from anvil_tui.core.progress import Trail
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.standing import Check, ClientState, CredentialState, DrillRecord, Owner
from anvil_tui.core.waivers import CheckWaiver, Waiver
from anvil_tui.core.workspace import Workspace

OPERATION_LABEL, RECIPE_LABEL, DIGEST_LABEL = "anvil.op", "anvil.recipe", "anvil.recipe-digest"
GENERATION_LABEL = "anvil.generation"
"""Labels of every container that an operation makes: who made it, of which exact recipe, in which generation."""


class Phase(StrEnum):
    ABSENT = "absent"
    CREATED = "created"
    LOADING = "loading"
    READY = "ready"
    SERVING = "serving"
    QUIESCED = "quiesced"
    DRAINING = "draining"
    DRAINED = "drained"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Light:
    """One of the four lights; `word` says in one or two words what it stands for."""

    state: Literal["ok", "bad", "wait", "unknown"]
    word: str


@dataclass(frozen=True, slots=True)
class Lights:
    process: Light
    http: Light
    identity: Light
    progress: Light


@dataclass(frozen=True, slots=True)
class ServeRecord:
    """What the box remembers of a serve it made (`state/box.json`): exact enough to return to it.

    `shape` is one line a thing, `NAME HASH`: its container's configuration, and what it reads from outside, as
    they were when it was recorded (`core/shape.py`); "" = recorded before shapes were kept.
    """

    container_id: str
    recipe_id: str
    recipe_digest: str
    image_id: str
    role: str
    slot: str
    port: int
    served_name: str
    made_by: str
    exclusive: bool = False
    qualified_by: str = ""
    qualified_at: str = ""
    qualified_suite: str = ""
    shape: str = ""


@dataclass(frozen=True, slots=True)
class RoleRecord:
    """Who holds a role now (container id, "" = nobody) and the ladder back, newest first.

    `evicted_for` is the recipe for which its serve was stopped, "" = none was.
    """

    name: str
    incumbent: str = ""
    rollback: tuple[str, ...] = ()
    evicted_for: str = ""


@dataclass(frozen=True, slots=True)
class BoxRecord:
    """The content of `state/box.json`; `generation` grows by one with every operation."""

    generation: int = 0
    serves: Mapping[str, ServeRecord] = field(default_factory=dict)
    roles: Mapping[str, RoleRecord] = field(default_factory=dict)

    def serve_in(self, role: str) -> ServeRecord | None:
        held = self.roles.get(role)
        return self.serves.get(held.incumbent) if held else None


@dataclass(frozen=True, slots=True)
class Serve:
    """One container seen as a serve. `position` is its place in its role."""

    container: Container
    phase: Phase
    lights: Lights
    record: ServeRecord | None = None
    recipe: Recipe | None = None
    engine: Reading[Engine] = Reading.unknown("not asked yet")
    position: Literal["incumbent", "rollback", "candidate", "foreign"] = "foreign"
    in_flight: int | None = None
    why: str = ""

    @property
    def name(self) -> str:
        return self.recipe.id if self.recipe else (self.record.recipe_id if self.record else self.container.name)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the way back exists; `missing` says of what does not, or is not known, why; empty = ready."""

    target: str
    missing: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def ready(self) -> bool:
        return not self.missing

    @property
    def word(self) -> str:
        """`ready`, `not ready`, or `not known`: nothing is found wrong, and not everything could be looked at."""
        if self.ready:
            return "ready"
        in_doubt = {c.state for c in self.checks} - {"ok"} == {"unknown"}
        return "not known" if in_doubt else "not ready"


@dataclass(frozen=True, slots=True)
class Lease:
    """Who holds the box's write right."""

    operation: str
    pid: int
    user: str
    since: str
    host: str = ""

    @property
    def who(self) -> str:
        """`USER@HOST, pid N, since T`."""
        at = f"@{self.host}" if self.host else ""
        return f"{self.user}{at}, pid {self.pid}, since {self.since}"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the operations-and-events pane."""

    at: str
    source: str
    text: str
    tone: Literal["plain", "good", "warn", "bad"] = "plain"


@dataclass(frozen=True, slots=True)
class RecipeFile:
    """A recipe file of the workspace: the recipe, or the sentence why it cannot be used."""

    path: str
    recipe: Recipe | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class LogView:
    """The log of one serve: newest last, bounded; `dropped` lines fell off the front."""

    container_id: str
    lines: tuple[str, ...] = ()
    dropped: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """Everything the console knows at one moment. `now_s` is monotonic, `now_utc` the wall clock.

    By container id: `trails` holds what was learnt of each engine over several readings, `loads` where a load
    is in its log. `stored` holds the exact recipes of recorded serves by digest; `images` the local image id
    of a pinned reference (None = not here); `source_errors` why a file of the state could not be read.
    `qualified` is the newest qualification of each recipe (absent = evidence not read yet); `proven`, by recipe
    digest, what its lanes measured; `loads_kept` what earlier loads took. `pasts` are the bundles that can be
    read, `broken_bundles` says of the others, by id, why not. `proofs`, by container id, are the slow checks of a
    return to it; `pids` gives the container of each process that NVML names ("" = of none). By role, `rollbacks`
    is the way back, `returns` the incumbent's, which will be the way back of the next promotion. `replayed` worlds
    come from a recording: their clocks are the recording's, and no deed can start from them. `found`, by container
    id, is what discovery tells of engines that no workspace names; it is filled where there is no workspace alone.
    `alarm_marks` are seconds towards an alarm or its end; `kept_alarms` is what `state/` has of alarms (None = not
    read yet), `watcher` the one process that writes it and notifies.
    """

    workspace: Workspace
    read_only: bool
    now_s: float = 0.0
    now_utc: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    gpus: Reading[GpuSnapshot] = Reading.unknown("not read yet", "nvml")
    gpu_history: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    host: Reading[Host] = Reading.unknown("not read yet", "host")
    containers: Reading[tuple[Container, ...]] = Reading.unknown("not read yet", "docker")
    engines: Mapping[str, Reading[Engine]] = field(default_factory=dict)
    trails: Mapping[str, Trail] = field(default_factory=dict)
    loads: Mapping[str, LoadPhase] = field(default_factory=dict)
    gateway: Reading[Gateway] = Reading.unknown("not read yet", "gateway")
    record: BoxRecord = BoxRecord()
    recipes: tuple[RecipeFile, ...] = ()
    stored: Mapping[str, Recipe] = field(default_factory=dict)
    images: Mapping[str, str | None] = field(default_factory=dict)
    source_errors: Mapping[str, str] = field(default_factory=dict)
    suites: tuple[str, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    check_waivers: tuple[CheckWaiver, ...] = ()
    loads_kept: tuple[MeasuredLoad, ...] = ()
    qualified: Mapping[str, Holding] = field(default_factory=dict)
    proven: Mapping[str, tuple[Proven, ...]] = field(default_factory=dict)
    pasts: tuple[Past, ...] = ()
    broken_bundles: Mapping[str, str] = field(default_factory=dict)
    operations: tuple[OperationView, ...] = ()
    proofs: Mapping[str, tuple[Check, ...]] = field(default_factory=dict)
    drills: tuple[DrillRecord, ...] = ()
    owners: tuple[Owner, ...] = ()
    clients: tuple[ClientState, ...] = ()
    credentials: tuple[CredentialState, ...] = ()
    pids: Mapping[int, str] = field(default_factory=dict)
    lease: Lease | None = None
    serves: tuple[Serve, ...] = ()
    rollbacks: Mapping[str, Readiness] = field(default_factory=dict)
    returns: Mapping[str, Readiness] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    log: LogView | None = None
    problems: tuple[str, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    alarm_marks: Marks = field(default_factory=dict)
    kept_alarms: tuple[Alarm, ...] | None = None
    watcher: Lease | None = None
    replayed: bool = False
    found: Mapping[str, Found] = field(default_factory=dict)

    def recipe(self, recipe_id: str) -> Recipe | None:
        return next((f.recipe for f in self.recipes if f.recipe and f.recipe.id == recipe_id), None)

    def exact_recipe(self, digest: str, recipe_id: str) -> Recipe | None:
        """The recipe as it was when a serve was made, wherever it is still known."""
        if digest in self.stored:
            return self.stored[digest]
        now = self.recipe(recipe_id)
        return now if now and now.digest() == digest else None

    def serve(self, container_id: str) -> Serve | None:
        return next((s for s in self.serves if s.container.id == container_id), None)

    @property
    def operation(self) -> OperationView | None:
        """The operation that runs or waits for a person, else the newest."""
        open_ones = [o for o in self.operations if o.outcome is None]
        return open_ones[-1] if open_ones else (self.operations[-1] if self.operations else None)


Change = Mapping[str, object]


def reduce(world: World, change: Change) -> World:
    """The next world: named fields replaced. Derived fields are set by `core.serves.derive` in the store."""
    return replace(world, **change)  # type: ignore[arg-type]
