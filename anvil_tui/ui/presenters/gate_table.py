"""The gates screen: the run as a table, and the chosen gate in full with its charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anvil_tui.core.gate_kinds import GATE_KEYS, LANES, LOOKS
from anvil_tui.core.gates import GateResult, Observation, Verdict
from anvil_tui.core.journal import GateView, OperationView, usual_s
from anvil_tui.core.lane_rules import BUSY
from anvil_tui.core.plots import amount
from anvil_tui.core.shelf import RunFiles
from anvil_tui.core.times import span
from anvil_tui.core.world import World
from anvil_tui.ui import glyphs
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters import charts, gates
from anvil_tui.ui.presenters.cells import (
    BLANK,
    Cell,
    Panel,
    Row,
    Tone,
    View,
    facts,
    heading,
    joined,
    left,
    right,
    sentence,
    spread,
)  # fmt: skip
from anvil_tui.ui.text import NA, clip, literal, number, seconds_since

_NAME, _WORD, _WIDE = 22, 11, 70
_FIGURES = 2 + 1 + _WORD + 8 + 10 + 12 + 12
UNREAD = "not read yet"
_SEEN = 30
"""Observations shown of one gate; all of them stand in its bundle."""
_BUDGETS = ("visible_tokens", "reasoning_tokens", "completion_tokens")
_PLAIN = ("id", "kind", "proves", "needs", *_BUDGETS, "repeat", "pass_at_least", "thinking", "timeout_s")


def _run(view: View, operation: OperationView) -> RunFiles:
    return view.shelf.run_of(operation.id) or RunFiles(operation.id, error=UNREAD)


def _result(run: RunFiles, gate: GateView) -> GateResult | None:
    """None for a gate without a verdict: what lies there is of an earlier process."""
    return run.result(gate) if gate.verdict in set(Verdict) else None


# the table


def table(world: World, view: View, width: int, height: int) -> Panel:
    """One line a gate: verdict in words, count, measured tokens, time, usual time, reason."""
    found = gates.panel(world, view, width, height)
    operation = gates.of_operation(world, view)
    if operation is None or width < _WIDE:
        return found
    run = _run(view, operation)
    rows = [_head(width), *(_line(world, operation, run, g, width) for g in gates.settled(operation))]
    word = f"  {operation.state.upper()}" if operation.state in ("paused", "interrupted", "halted") else ""
    return Panel(found.title + word, tuple(rows), found.note)


def _name(width: int) -> int:
    return max(12, min(_NAME, width - _FIGURES))


def _head(width: int) -> Row:
    cells = [
        left("  gate", _name(width) + 2, "faint"), left(" verdict", _WORD + 1, "faint"), right("done", 8, "faint"),
        right("tokens", 10, "faint"), right("took", 12, "faint"), right("usually", 12, "faint"),
    ]  # fmt: skip
    return spread(cells, [], width)


def _line(world: World, operation: OperationView, run: RunFiles, gate: GateView, width: int) -> Row:
    glyph, tone = gates.mark(gate.verdict)
    paused = operation.state == "paused" and gate.verdict == "running"
    usual = usual_of(world, operation, gate)
    tokens = measured_tokens(gate, _result(run, gate))
    quiet = gate.verdict in ("pending", gates.NOT_RUN)
    cells = [
        Cell(f"{glyphs.WAIT if paused else glyph} ", "warn" if paused else tone),
        left(literal(gates.named(gate)), _name(width), "faint" if quiet else "text"),
        Cell(" "),
        left("paused" if paused else literal(gate.verdict), _WORD, "warn" if paused else tone),
        right(f"{gate.done}/{gate.of}" if gate.of else "", 8),
        right(tokens, 10, "text" if tokens not in (NA, glyphs.DASH) else "faint"),
        right(_took(world, gate), 12, "dim"),
        right(_time(usual) if usual is not None else "", 12, "dim"),
        Cell("  "),
    ]
    why: Tone = "dim" if gate.verdict == Verdict.PASSED else tone
    return spread(
        [*cells, Cell(clip(literal(gate.reason), max(0, width - _FIGURES - _NAME - 2)), why)],
        [],
        width,
        gates.named(gate),
    )


def usual_of(world: World, operation: OperationView, gate: GateView) -> float | None:
    return usual_s(gate, (o for o in world.operations if o.id < operation.id))


def measured_tokens(gate: GateView, result: GateResult | None) -> str:
    """The longest prompt that the engine counted; `–` for a gate that only looks, n/a for one that cannot tell."""
    rows = result.rows if result else gate.rows
    seen = [o.prompt_tokens for o in (result.observations if result else ()) if o.prompt_tokens]
    seen += [int(r.prompt_tokens.high or r.prompt_tokens.p50) for r in rows if r.prompt_tokens]
    if seen:
        return number(max(seen))
    if gate.kind in LOOKS:
        return glyphs.DASH
    return "" if gate.verdict in ("pending", "running", gates.NOT_RUN, gates.BROKEN_OFF) else NA


def _took(world: World, gate: GateView) -> str:
    if gate.elapsed_s is not None:
        return _time(gate.elapsed_s)
    since = seconds_since(gate.started_at, world.now_utc) if gate.started_at else None
    return span(since) if since is not None and gate.verdict == "running" else ""


def _time(seconds: float) -> str:
    """Below ten seconds with a tenth: many gates take less than a second."""
    return f"{seconds:.1f} s" if seconds < 9.95 else span(round(seconds))


# one gate


def detail(world: World, view: View, width: int, height: int) -> Panel:
    """What came out first, then charts and rows, then the rule and every observation; nothing is cut."""
    operation = gates.of_operation(world, view)
    gate = next((g for g in gates.settled(operation) if gates.named(g) == view.gate), None) if operation else None
    if operation is None or gate is None:
        return Panel("Gate", tuple(sentence("Choose a gate with the arrow keys.", width, "dim")))
    run = _run(view, operation)
    result = _result(run, gate)
    rows = _outcome(world, operation, gate, width)
    measured = result.rows if result else gate.rows
    if any(r.instrument and r.instrument.invalid for r in measured):
        rows += sentence(f"INVALID: {BUSY}", width, "warn")
    if measured:
        lines, deep = charts.series_of(measured)
        rows += [BLANK, *charts.charts(lines, deep, width, charts.chart_height(height))]
        rows += [
            heading(f"Rows {len(measured)}", width, "medians"),
            *charts.table(measured, width),
        ]
    elif gate.kind in LANES and gate.verdict == "running":
        rows += [BLANK, *sentence("No row is complete yet.", width, "dim")]
    rows += [BLANK, *_rule(world, gate, run, width)]
    rows += [BLANK, *_observed(gate, result, run, width)]
    whose = f"{operation.kind} {operation.id}"
    pairs = [("kind", literal(gate.kind)), ("operation", whose), ("target", literal(operation.target))]
    rows += [BLANK, *facts(pairs, width)]
    return Panel(f"Gate {literal(gates.named(gate))}", tuple(rows))


def _outcome(world: World, operation: OperationView, gate: GateView, width: int) -> list[Row]:
    glyph, tone = gates.mark(gate.verdict)
    usual = usual_of(world, operation, gate)
    took = _took(world, gate) or NA
    word = [Cell(f"{glyph} {gate.verdict}", tone)]
    if operation.state == "paused" and gate.verdict == "running":
        word = [Cell(f"{glyphs.WAIT} paused: {key('operation.resume')} lets it go on", "warn")]
    parts = [
        word,
        [Cell(f"{gate.done} of {gate.of}" if gate.of else "n/a")],
        [Cell(f"took {took}" if gate.verdict != "running" else f"running for {took}", "dim")],
        [Cell(f"usually {_time(usual)}" if usual is not None else "no earlier time of it on this recipe", "dim")],
    ]
    out = [spread(joined(parts), [], width)]
    why: Tone = "text" if gate.verdict == Verdict.PASSED else tone
    return out + (sentence(literal(gate.reason, 2000), width, why) if gate.reason else [])


def _rule(world: World, gate: GateView, run: RunFiles, width: int) -> list[Row]:
    """As it was judged by; of a run that goes on, as the suite's file says now."""
    rule, bundle = run.rule(gate), run.bundle_of(gate)
    if not rule:
        return [
            heading("Rule", width),
            *sentence(literal(run.error or "not known: the suite was not kept", 600), width, "dim"),
        ]
    suite = (bundle.suite if bundle else run.suite).get("id", "")
    source = f"suite {literal(suite)}, {'as it judged this run' if bundle else 'as its file says now'}"
    out = [heading("Rule", width, source)]
    if rule.get("proves"):
        out += sentence(literal(rule["proves"], 400), width, "text")
    return out + facts(
        [("passes with", _passes(rule)), ("asks", _asks(rule)), *_budgets(world, gate, rule)], width
    )


def _passes(rule: Mapping[str, Any]) -> str:
    if "repeat" not in GATE_KEYS.get(rule["kind"], ()):
        return "every row inside its rules" if rule["kind"] in LANES else "its one finding"
    of = rule.get("repeat") or 1
    need = rule.get("pass_at_least") or of
    accepts = ", ".join(rule.get("accept") or ())
    return f"{need} of {of}" + (f"; {accepts} is let through" if accepts else "")


def _asks(rule: Mapping[str, Any]) -> str:
    """Keys that apply to the kind and say something."""
    keys = [k for k in rule if k in GATE_KEYS.get(rule["kind"], ()) and k not in _PLAIN]
    told = [f"{k} {_value(rule[k])}" for k in keys if rule[k] not in (None, False, 0, "", [], {})]
    return literal("; ".join(told), 1200) or "nothing more"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _budgets(world: World, gate: GateView, rule: Mapping[str, Any]) -> list[tuple[str, str]]:
    recipe = world.recipe(gate.recipe)
    applies = GATE_KEYS.get(rule["kind"], frozenset())
    told = []
    for name in (k for k in _BUDGETS if k in applies):
        own = rule.get(name)
        of_recipe = getattr(recipe.budgets, name, None) if recipe else None
        if own is not None:
            told.append(f"{name} {own:,}")
        elif of_recipe is not None:
            told.append(f"{name} {of_recipe:,} (the recipe's)")
    if rule.get("thinking"):
        told.append(f"thinking {rule['thinking']}")
    return [("budgets", "; ".join([*told, f"timeout {_value(rule.get('timeout_s', NA))} s"]))]


def _observed(gate: GateView, result: GateResult | None, run: RunFiles, width: int) -> list[Row]:
    """What went wrong first."""
    if result is None:
        none = gate.verdict in (gates.NOT_RUN, gates.BROKEN_OFF)
        why = run.error or ("None: it did not end." if none else "They are read when the gate has ended.")
        return [
            heading("Observations", width),
            *sentence(literal(why, 600), width, "bad" if run.error and run.error != UNREAD else "dim"),
        ]
    seen = sorted(result.observations, key=lambda o: o.ok)
    out = [heading(f"Observations {len(seen)}", width, "failed ones first")]
    if result.failures:
        out += sentence(f"failure classes: {', '.join(result.failures)}", width, "bad")
    for o in seen[:_SEEN]:
        out += _observation(o, width)
    if len(seen) > _SEEN:
        out += sentence(f"and {len(seen) - _SEEN} more in the bundle", width, "dim")
    return out if seen else [*out, *sentence("none", width, "dim")]


def _observation(o: Observation, width: int) -> list[Row]:
    glyph, tone = gates.mark(Verdict.PASSED if o.ok else Verdict.FAILED)
    figures = _figures(o)
    out = [spread([Cell(f"{glyph} ", tone), right(str(o.n), 3, "faint"), Cell("  "), *joined(figures)], [], width)]
    if o.failure or o.note:
        told = f"{o.failure}: {o.note}" if o.failure else o.note
        out += sentence(literal(told, 800), width, "text" if o.ok else "bad", indent=7)
    if o.excerpt:
        out += sentence(f"| {literal(o.excerpt, 600)}", width, "dim", indent=7, most=4)
    return out


def _figures(o: Observation) -> Sequence[Sequence[Cell]]:
    """Only what was measured: a request without tokens was no request."""
    told = [
        (o.prompt_tokens, "prompt {:,}"), (o.completion_tokens, "completion {:,}"),
    ]  # fmt: skip
    parts = [[Cell(form.format(value), "dim")] for value, form in told if value is not None]
    times = (("TTFT any", o.ttft_any_s), ("visible", o.ttft_visible_s), ("E2E", o.e2e_s))
    parts += [[Cell(f"{name} {amount(value)} s", "dim")] for name, value in times if value is not None]
    if o.decode_tok_s is not None:
        parts.append([Cell(f"decode {amount(o.decode_tok_s)} tok/s", "dim")])
    return parts or [[Cell("no request", "faint")]]
