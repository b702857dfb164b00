"""The matrix: what one row is, how it is judged, and how the whole is printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.rig import Rig

Inject = Callable[["Rig"], str]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in one phase. `ends` are the prescribed outcomes, in order; `serves` is who serves at the end.

    `parts`: `real` = Docker Engine, llama.cpp, HAProxy; `simbox` = the simulated GPU box behind a real HAProxy.
    `shape`: `full` = candidate and incumbent each want the whole box, `spare` = there is room for both.
    `cut` says why client errors inside the row's own window are the fault itself, "" = there may be none.
    """

    name: str
    phase: str
    ends: tuple[str, ...]
    inject: Inject
    source: str
    serves: str = "incumbent"
    parts: str = "real"
    shape: str = "full"
    cut: str = ""


FAULTS: list[Fault] = []


def fault(
    name: str, phase: str, *ends: str, source: str, serves: str = "incumbent", parts: str = "real",
    shape: str = "full", cut: str = "",
) -> Callable[[Inject], Inject]:  # fmt: skip
    """Puts a function into the matrix. It injects the fault, lets the operation end, and returns the evidence that
    the fault was there; without evidence the row does not count."""

    def put(inject: Inject) -> Inject:
        FAULTS.append(Fault(name, phase, ends, inject, source, serves, parts, shape, cut))
        return inject

    return put


@dataclass(slots=True)
class Row:
    """What was observed. `windows` are spans, by the monotonic clock, in which the fault itself cuts requests."""

    fault: Fault
    began: float
    ended: float = 0.0
    outcomes: tuple[str, ...] = ()
    serves: str = ""
    listed: tuple[str, ...] = ()
    evidence: str = ""
    why: str = ""
    windows: list[tuple[float, float]] = field(default_factory=list)
    errors: int = 0
    cut: int = 0

    @property
    def right(self) -> bool:
        return not self.why and self.errors == 0


def count_errors(rows: Sequence[Row], answers: Sequence[dict[str, object]]) -> int:
    """Gives each client error to the row that announced the cut, else to the one in which it was asked.

    A request may outlive its row. Those that belong to none are counted and returned.
    """
    stray = 0
    for answer in answers:
        if not answer["error"]:
            continue
        began = float(str(answer["at"]))
        ended = began + float(str(answer["ms"])) / 1000
        cut = next((r for r in rows if r.fault.cut and _overlaps(r.windows, began, ended)), None)
        row = cut or next((r for r in rows if r.began <= began < r.ended), None)
        if row is None:
            stray += 1
        elif cut:
            row.cut += 1
        else:
            row.errors += 1
            row.why = row.why or f"a client got: {str(answer['error'])[:120]}"
    return stray


def _overlaps(windows: Sequence[tuple[float, float]], began: float, ended: float) -> bool:
    return any(began <= last and ended >= first for first, last in windows)


def table(rows: Sequence[Row]) -> str:
    head = (
        f"{'fault':46} {'phase':14} {'parts':6} {'outcome':18} {'serves':9} {'errors':>6} {'cut':>4} "
        f"{'s':>5} right; left and listed; evidence"
    )
    return "\n".join([head, *(_line(r) for r in rows)])


def _line(r: Row) -> str:
    verdict = "yes" if r.right else f"NO: {r.why}"
    listed = f"; listed: {'; '.join(r.listed)}" if r.listed else ""
    return (
        f"{r.fault.name:46} {r.fault.phase:14} {r.fault.parts:6} {' > '.join(r.outcomes):18} {r.serves:9} "
        f"{r.errors:6} {r.cut:4} {r.ended - r.began:5.1f} {verdict}{listed}; {r.evidence}"
    )
