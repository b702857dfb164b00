"""What a row works with: a box, operations that stand still at a point, clients, and a look for what is left."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import psutil

from anvil_tui.adapters.lease import FileLease
from anvil_tui.cli.wiring import open_box
from anvil_tui.core.box import Container
from anvil_tui.core.journal import OperationView
from anvil_tui.core.world import OPERATION_LABEL
from tests.e2e.realbox import RealBox
from tests.e2e.worker import Worker
from tests.faults.matrix import Fault, Row
from tests.real.client_loop import ClientLoop
from tests.real.docker_engine import RealDocker
from tests.support.wait import wait_until

OUTCOMES = {0: "done", 1: "undone", 5: "halted"}


class Rig:
    """`now` serves, `other` may replace it. A row that ends with `other` serving exchanges the two.

    `gateway` restarts HAProxy; `suite` judges a promotion.
    """

    def __init__(
        self, box: RealBox, worker: Worker, clients: ClientLoop, pair: tuple[str, str], gateway: Gateway,
        suite: str, docker: RealDocker | None = None,
    ) -> None:  # fmt: skip
        self.box, self.worker, self.clients, self.gateway, self.suite = box, worker, clients, gateway, suite
        self._docker = docker
        self.now, self.other = pair
        self.state = box.dir / "state"
        self.outcomes: list[str] = []
        self.windows: list[tuple[float, float]] = []
        self.strangers: list[str] = []
        self.operation = ""
        self._shm = set(_shm())

    @property
    def docker(self) -> RealDocker:
        """The daemon itself, on real parts."""
        assert self._docker
        return self._docker

    # operations

    def intent(self, recipe: str = "", **more: Any) -> dict[str, Any]:
        """A promotion of `recipe` (default: `other`), or what `more` says instead."""
        return {"verb": "promote", "recipe": recipe or self.other, "role": "primary", "suite": self.suite, **more}

    def plan(self, intent: dict[str, Any]) -> str:
        made = self.worker.call("plan", workspace=str(self.box.dir), intent=intent)
        assert "operation" in made, f"the plan was refused: {made['refusals']}"
        self.operation = str(made["operation"])
        return self.operation

    def refused(self, intent: dict[str, Any]) -> str:
        """The refusals of a plan that must not be made."""
        made = self.worker.call("plan", workspace=str(self.box.dir), intent=intent)
        self.outcomes.append("refused" if "refusals" in made else "planned")
        return "; ".join(made.get("refusals", ()))

    def run(self, intent: dict[str, Any], mode: str = "start", **more: Any) -> str:
        """One operation to its end (or to the point at which it is killed); its outcome."""
        if mode == "start":
            self.plan(intent)
        ended = self.worker.call(
            "operate", workspace=str(self.box.dir), operation=self.operation, mode=mode, **more
        )
        return self._ended(ended)

    def recover(self, mode: str) -> str:
        return self.run({}, mode)

    @contextlib.contextmanager
    def at(self, point: str, intent: dict[str, Any] | None = None) -> Iterator[str]:
        """The operation stands at `point` inside the block; afterwards it goes on, and its outcome is noted."""
        operation, answer = self.plan(intent or self.intent()), dict[str, Any]()
        job = {"workspace": str(self.box.dir), "operation": operation, "mode": "start"}
        try:
            with self.worker.paused(point, answer, **job):
                yield operation
        finally:
            if answer:
                self._ended(answer)

    def _ended(self, answer: dict[str, Any]) -> str:
        said = "killed" if answer["killed"] else OUTCOMES.get(answer["exit"], f"exit {answer['exit']}")
        view = next(v for v in self.box.operations.views() if v.id == self.operation)
        if said in OUTCOMES.values():
            assert view.outcome == said, f"the process says {said}, the journal {view.outcome}"
        self.outcomes.append(said)
        return said

    @property
    def view(self) -> OperationView:
        return next(v for v in self.box.operations.views() if v.id == self.operation)

    def journal_text(self) -> str:
        return (self.state / "operations" / self.operation / "journal.ndjson").read_text()

    # containers

    def candidate(self) -> Container:
        mine = [c for c in self.box.ours() if c.labels[OPERATION_LABEL] == self.operation]
        assert len(mine) == 1, f"{len(mine)} containers of {self.operation}"
        return mine[0]

    def incumbent(self) -> Container:
        return self.box.docker.inspect(self.box.record().roles["primary"].incumbent)

    @contextlib.contextmanager
    def api(self) -> Iterator[Any]:
        """Docker Engine, past the product: another hand on the box."""
        with contextlib.closing(docker.DockerClient(base_url=self.box.workspace.containers.url, timeout=30)) as c:
            yield c

    def engine_process(self, container: Container) -> psutil.Process:
        """The engine itself; Docker's process is the init above it."""
        with self.api() as api:
            top = psutil.Process(api.api.inspect_container(container.id)["State"]["Pid"])
        return wait_until(lambda: next(iter(top.children()), None), f"{container.name} has started its engine")

    def kill_engine(self, container: Container) -> str:
        """SIGKILL to the engine's own process, and the daemon's word for it."""
        self.engine_process(container).kill()
        gone = wait_until(lambda: self._exited(container.id), f"{container.name} has exited", 20)
        return f"{gone.name} exited {gone.exit_code}"

    def _exited(self, container_id: str) -> Container | None:
        found = self.box.docker.inspect(container_id)
        return found if found.status == "exited" else None

    def stranger(self, name: str, **more: Any) -> str:
        """A container of somebody else's, named `name`; it is taken away after the row."""
        with self.api() as api:
            image = self.incumbent().image_id
            made = api.containers.create(image, entrypoint=["/usr/bin/busybox", "sleep", "600"], name=name, **more)
        self.strangers.append(str(made.id))
        return str(made.id)

    # clients

    @contextlib.contextmanager
    def cutting(self) -> Iterator[None]:
        """Client errors inside are the fault's own doing, as the row declares."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.windows.append((began, time.monotonic()))

    @contextlib.contextmanager
    def faked_clock(self) -> Iterator[Callable[[str], object]]:
        """Operations inside run in processes whose wall clock is moved by the yielded call, as by `86400` s."""
        own, offset, library = self.worker, self.box.dir / "clock", self.box.dir / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        offset.write_text("0")
        env = {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(offset)}
        with Worker(env) as self.worker:
            try:
                yield offset.write_text
            finally:
                self.worker = own

    # judging

    def judge(self, fault: Fault, row: Row) -> None:
        """Outcomes, who serves, record, gateway, and what is left behind."""
        row.outcomes, row.windows = tuple(self.outcomes), list(self.windows)
        assert row.evidence, "nothing shows that the fault was there"
        assert row.outcomes == fault.ends, f"ended {row.outcomes}, prescribed {fault.ends}"
        self.box.settled({"incumbent": self.now, "candidate": self.other}[fault.serves])
        row.serves = fault.serves
        self.clients.wait_answers(2)
        row.listed = tuple(self.view.residue) if self.operation else ()
        left = [x for x in self.residue() if not any(x.split()[1][:12] in text for text in row.listed)]
        assert not left, f"left behind and not listed: {left}"
        if fault.serves == "candidate":
            self.now, self.other = self.other, self.now

    def residue(self) -> list[str]:
        """What should not be there now; each as `kind name`."""
        known = set(self.box.record().serves) | set(self.strangers)
        found = [f"container {c.id} {c.name}" for c in self.box.docker.list() if c.id not in known]
        if FileLease(self.state / "lease").holder():
            found.append("lock lease")
        ended = {v.id for v in self.box.operations.views() if v.outcome}
        for path in self.state.rglob("*"):
            kept = path.parent.name not in ended or path.name not in ("reserve", "pause")
            if path.name.endswith(".new") or not kept:
                found.append(f"file {path.relative_to(self.state)}")
        found += [f"gpu {pid} a process that no container of this box has" for pid in self._gpu_orphans()]
        found += [f"shm {name}" for name in set(_shm()) - self._shm]
        found += [f"router {a}->{t}" for a, t in self.box.gateway().aliases.items() if t in ("hold", "none")]
        return found + [f"process {p.pid} {' '.join(p.cmdline()[:6])}" for p in _orphans()]

    def _gpu_orphans(self) -> set[int]:
        """Processes on GPUs that are no running container's."""
        if not self.box.workspace.gpus.roles:
            return set()
        box = open_box(self.box.dir)
        try:
            reading = wait_until(lambda: r if (r := box.gpus.read()).ok else None, "the GPUs are read")
        finally:
            box.gpus.close()
        with self.api() as api:
            up = {api.api.inspect_container(c.id)["State"]["Pid"] for c in self.box.docker.list() if c.running}
        assert reading.value
        return {p.pid for g in reading.value.gpus for p in g.processes or ()} - up

    def begin(self) -> None:
        """Only what serves is there."""
        self.outcomes, self.windows, self.operation = [], [], ""
        with self.api() as api:
            for id_ in self.strangers:
                with contextlib.suppress(docker.errors.NotFound):
                    api.api.remove_container(id_, force=True)
        self.strangers = []
        self.box.drop(keep=[self.box.record().roles["primary"].incumbent])

    def change(self, path: Path, edit: Callable[[str], str]) -> Callable[[], None]:
        """Rewrite a file of the workspace; the returned call puts it back."""
        before = path.read_text()
        path.write_text(edit(before))
        return lambda: (path.write_text(before), None)[1]


class Gateway:
    """The running HAProxy of one box: its process, and how to start it anew."""

    def __init__(self, start: Callable[[bool], contextlib.AbstractContextManager[int]]) -> None:
        self._start, self._stack = start, contextlib.ExitStack()
        self.pid = 0

    def up(self) -> None:
        """The first time with its files written; a restart finds what is there."""
        self.pid = self._stack.enter_context(self._start(not self.pid))

    def down(self) -> None:
        self._stack.close()

    def restart(self) -> None:
        self.down()
        self.up()


def _shm() -> list[str]:
    return [p.name for p in Path("/dev/shm").iterdir()]


def _orphans() -> list[psutil.Process]:
    """Processes of the product whose parent is gone: process 1 of the namespace has them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.ppid() == 1 and any("anvil_tui" in word for word in process.cmdline()):
                found.append(process)
    return found
