"""Gates of the running or last qualification: verdict in words, progress, time and reason."""

from __future__ import annotations

from dataclasses import replace

from anvil_tui.core.drills import HOME
from anvil_tui.core.gates import Verdict
from anvil_tui.core.journal import GateView, OperationView
from anvil_tui.core.world import World
from anvil_tui.ui import glyphs
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters.cells import Cell, Panel, Row, Tone, View, cut_row, left, right, sentence
from anvil_tui.ui.presenters.freshness import empty
from anvil_tui.ui.text import bar, clip, literal

NOT_RUN, BROKEN_OFF = "not run", "broken off"
_MARKS: dict[str, tuple[str, Tone]] = {
    Verdict.PASSED: (glyphs.DONE, "good"),
    Verdict.FAILED: (glyphs.BAD, "bad"),
    Verdict.ERRORED: (glyphs.BAD, "warn"),
    Verdict.UNRUNNABLE: (glyphs.WARN, "warn"),
    Verdict.UNSUPPORTED: (glyphs.OFF, "dim"),
    Verdict.UNVERIFIED: (glyphs.ASK, "warn"),
    Verdict.CANCELLED: (glyphs.OFF, "dim"),
    "running": (glyphs.RUN, "accent"),
    "pending": (glyphs.TODO_DOT, "faint"),
    NOT_RUN: (glyphs.DASH, "faint"),
    BROKEN_OFF: (glyphs.WARN, "warn"),
}
_SETTLED = frozenset(Verdict)
_WORD = 11


def mark(verdict: str) -> tuple[str, Tone]:
    return _MARKS.get(verdict, (glyphs.ASK, "warn"))


def of_operation(world: World, view: View) -> OperationView | None:
    """The chosen operation if it ran gates, else the running one, else the newest that did."""
    with_gates = [o for o in world.operations if o.gates]
    chosen = next((o for o in with_gates if o.id == view.operation), None)
    running = next((o for o in reversed(with_gates) if o.outcome is None), None)
    return chosen or running or (with_gates[-1] if with_gates else None)


def following(world: World, view: View) -> View:
    """The cursor on the gate that runs, unless a person chose one of this run."""
    operation = of_operation(world, view)
    if operation is None or operation.outcome is not None:
        return view
    running = next((named(g) for g in operation.gates if g.verdict == "running"), "")
    chosen = "gate" in view.picked and view.gate in {named(g) for g in operation.gates}
    return view if chosen or not running else view.choosing("gate", running)


def settled(operation: OperationView) -> tuple[GateView, ...]:
    """Its gates. Nothing runs on when the operation has ended, goes back or lost its process: a gate that was at
    work is `broken off`; one that was still to come is `not run`, unless the operation can still be resumed."""
    if operation.outcome is None and operation.decision != "undo" and operation.state != "interrupted":
        return operation.gates
    comes = operation.outcome is None and operation.decision != "undo"
    return tuple(
        g if g.verdict in _SETTLED
        else replace(g, verdict=BROKEN_OFF) if g.verdict == "running"
        else g if comes else replace(g, verdict=NOT_RUN)
        for g in operation.gates
    )  # fmt: skip


def named(gate: GateView) -> str:
    """Its id; a drill runs the same gates twice, the second time of its leg home."""
    return f"{gate.id} {HOME.strip('-')}" if gate.step.endswith(HOME) else gate.id


def tally(gates: tuple[GateView, ...]) -> str:
    """`9/14`: gates with a verdict of all."""
    return f"{sum(g.verdict in _SETTLED for g in gates)}/{len(gates)}"


def panel(world: World, view: View, width: int, height: int) -> Panel:
    operation = of_operation(world, view)
    if operation is None:
        text = f"No qualification yet: {key('serve.qualify')} runs the gates of a suite on the selected serve."
        return Panel("Gates", tuple(sentence(empty(world, text), width, "dim")))
    title = f"Gates {tally(operation.gates)}  {literal(operation.kind, 16)} {literal(operation.target, 80)}"
    rows = [line(g, width) for g in settled(operation)]
    return Panel(title, tuple(rows), _verdicts(operation))


def _verdicts(operation: OperationView) -> Cell | None:
    """The count of what did not pass, in words; nothing while all is well."""
    counts: dict[str, int] = {}
    for gate in operation.gates:
        if gate.verdict in _SETTLED and gate.verdict != Verdict.PASSED:
            counts[gate.verdict] = counts.get(gate.verdict, 0) + 1
    if not counts:
        return None
    tone: Tone = "bad" if Verdict.FAILED in counts else "warn"
    return Cell(" ".join(f"{n} {verdict}" for verdict, n in counts.items()), tone)


def line(gate: GateView, width: int) -> Row:
    glyph, tone = mark(gate.verdict)
    name = max(12, min(22, width // 3))
    done = f"{gate.done}/{gate.of}" if gate.of else ""
    cells = [
        Cell(f"{glyph} ", tone),
        left(literal(named(gate)), name, "faint" if gate.verdict in ("pending", NOT_RUN) else "text"),
        Cell(" "),
        left(literal(gate.verdict), _WORD, tone),
        right(done, 7, "text"),
    ]
    spent = width - 2 - name - 1 - _WORD - 7
    if gate.verdict == "running" and gate.of and spent >= 14:
        filled, rest = bar(gate.done / gate.of, min(24, spent - 2))
        return Row(cut_row([*cells, Cell("  "), Cell(filled, "accent"), Cell(rest, "line")], width), named(gate))
    took = "" if gate.elapsed_s is None else f"{gate.elapsed_s:,.1f} s"
    cells.append(right(took, 9, "dim"))
    if gate.reason and spent > 20:
        why_tone: Tone = "dim" if gate.verdict == Verdict.PASSED else tone
        cells.append(Cell("  " + clip(literal(gate.reason), spent - 11), why_tone))
    return Row(cut_row(cells, width), named(gate))
