"""The fault matrix: `python -m tests.faults [WORD...]` runs all rows, or those whose name or phase holds a word.

In namespaces of its own (tests.real.netns). The last line is `faults: N/N as prescribed, client_errors=N`.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.e2e.realbox import RealBox
from tests.e2e.worker import Worker
from tests.faults import daemons, elsewhere, engines, gpu, state
from tests.faults.matrix import FAULTS, Fault, Row, count_errors, table
from tests.faults.rig import Gateway, Rig
from tests.real import parts
from tests.real.client_loop import PACE_S, ClientLoop
from tests.real.docker_engine import RealDocker
from tests.real.fixtures import llama_stand
from tests.real.workspace import fast_recipe, keep_suites, make_workspace, running_gateway

MODULES = (engines, daemons, state, gpu)
PAIRS = {"full": ("tiny-a", "tiny-b"), "spare": ("tiny-c", "tiny-d")}
STATE_MIB = 24

STRICT = """schema = "anvil.suite/1"
id = "{id}"
title = "Memory of the host"

[[gates]]
id = "host-memory"
kind = "host-memory"
free_at_least_mib = {floor}
proves = "the host kept this much memory free"
"""
TOO_DEEP = """schema = "anvil.suite/1"
id = "too-deep"
title = "A prompt beyond the context"

[[gates]]
id = "needle"
kind = "needle"
prompt_tokens_at_least = 900_000
proves = "one code is found in a long text"
"""


def workspace(folder: Path, docker: RealDocker, image: str, state_mib: int) -> Path:
    """state/ on a disk of its own that a row can fill; recipes for each way in which a candidate can be bad."""
    state = folder / "state"
    state.mkdir(parents=True, mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={state_mib}m,mode=700", "tmpfs", state], check=True)
    make_workspace(folder, docker.url, image, parts.model("smol").parent)
    keep_suites(folder, "quick", "small")
    (folder / "gates" / "memory.toml").write_text(STRICT.format(id="memory", floor=1))
    (folder / "gates" / "strict.toml").write_text(STRICT.format(id="strict", floor=1 << 30))
    (folder / "gates" / "too-deep.toml").write_text(TOO_DEEP)
    for id_, more in {
        "tiny-a": {"stop_grace_s": "2"},
        "tiny-b": {"stop_grace_s": "2", "context_tokens": "1536"},
        "tiny-c": {"exclusive": "false"},
        "tiny-d": {"exclusive": "false", "context_tokens": "1536"},
        "tiny-hasty": {"start_deadline_s": "5"},
        "tiny-starved": {"memory_limit_mib": "64"},
    }.items():
        fast_recipe(folder, id_, **more)
    fast_recipe(folder, "tiny-dead", of="smol-dead")
    _edited(folder, "tiny-other-name", '"--alias", "{served_name}"', '"--alias", "somebody-else"')
    _edited(folder, "tiny-small-context", '"{total_context}"', '"512"')
    _edited(folder, "tiny-no-image", image, f"{image.partition('@')[0]}@sha256:{'0' * 64}")
    return folder


def _edited(folder: Path, id_: str, old: str, new: str) -> None:
    fast_recipe(folder, id_)
    path = folder / "recipes" / f"{id_}.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@contextlib.contextmanager
def real_rig(
    docker: RealDocker, image: str, shape: str, *, state_mib: int = STATE_MIB, pace_s: float = PACE_S
) -> Iterator[Rig]:
    """A box of real parts at the start of every row: the first of the pair serves, clients ask all the time."""
    folder = Path(tempfile.mkdtemp(prefix="w", dir=docker.folder.parent))
    workspace(folder, docker, image, state_mib)
    gateway = Gateway(lambda first: running_gateway(folder, install=first))
    gateway.up()
    box = RealBox(folder)
    try:
        with Worker() as worker:
            clients = ClientLoop(folder, 2 * 3600, pace_s)
            rig = Rig(box, worker, clients, PAIRS[shape], gateway, "quick", docker)
            assert rig.run(rig.intent(rig.now)) == "done", rig.view.why
            with clients:
                clients.wait_answers(2)
                yield rig
    finally:
        box.drop(keep=[])
        gateway.down()
        subprocess.run(["umount", "--lazy", folder / "state"], check=True)


def run_rows(rig: Rig, faults: Sequence[Fault]) -> list[Row]:
    """Rows until one leaves the box in a state that is not the start of the next."""
    rows = []
    for fault in faults:
        rig.begin()
        row = Row(fault, time.monotonic())
        rows.append(row)
        try:
            row.evidence = fault.inject(rig)
            rig.judge(fault, row)
        except Exception as why:
            row.outcomes, row.why = tuple(rig.outcomes), f"{type(why).__name__}: {why}".replace("\n", " ")
            traceback.print_exc()
        row.ended = time.monotonic()
        print(f"{row.ended - row.began:5.1f} s  {fault.name}, {fault.phase}: {row.why or 'ok'}", flush=True)
        if row.why:
            break
    return rows


def run_box(
    make: Callable[[], contextlib.AbstractContextManager[Rig]], faults: Sequence[Fault]
) -> tuple[list[Row], int]:
    """All rows of one kind of box, and client errors that belong to none. A row that leaves the box elsewhere than
    at the start of the next costs a new box."""
    rows: list[Row] = []
    stray = 0
    while left := faults[len(rows) :]:
        with make() as rig:
            done = run_rows(rig, left)
        stray += count_errors(done, rig.clients.rows())
        rows += done
    return rows, stray


def main(words: Sequence[str]) -> int:
    chosen = [f for f in FAULTS if not words or any(w in f"{f.name}, {f.phase} {f.parts}" for w in words)]
    real = {shape: [f for f in chosen if (f.parts, f.shape) == ("real", shape)] for shape in PAIRS}
    ran = []
    if any(real.values()):
        with llama_stand() as (docker, image):
            ran = [run_box(partial(real_rig, docker, image, shape), faults) for shape, faults in real.items()]
    ran.append(run_box(gpu.rig, [f for f in chosen if f.parts == "simbox"]))
    rows = [row for found, _ in ran for row in found]
    print(table(rows))
    print(elsewhere.text())
    right, errors = sum(r.right for r in rows), sum(n for _, n in ran) + sum(r.errors for r in rows)
    print(f"faults: {right}/{len(rows)} as prescribed, client_errors={errors}")
    return 0 if right == len(rows) == len(chosen) and errors == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
