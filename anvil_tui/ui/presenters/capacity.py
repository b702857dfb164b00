"""KV capacity: pool, context, use, and three concurrencies side by side that are never mixed."""

from __future__ import annotations

from anvil_tui.core.box import Engine, KvCapacity
from anvil_tui.core.recipe import Figure, Recipe
from anvil_tui.core.world import Phase, Serve, World
from anvil_tui.ui.presenters.cells import Cell, Panel, Row, View, joined, left, right, row, sentence, spread
from anvil_tui.ui.presenters.freshness import state_note
from anvil_tui.ui.presenters.serves import subject
from anvil_tui.ui.text import NA, bar, gib, literal, number

_LABEL = 9
_VALUE = 14
MEASURED = "measured concurrency"


def focus(world: World, view: View) -> Serve | None:
    """The subject of the screen; a serve that was chosen and does not run has no capacity, so what runs."""
    wanted = (subject(world, view), subject(world, View()))
    return next((s for s in wanted if s and s.container.running), None)


def panel(world: World, view: View, width: int, height: int) -> Panel:
    serve = focus(world, view)
    if serve is None:
        known = world.containers.ok
        words = "n/a: no engine runs." if known else "unknown: containers were not read."
        return Panel("KV capacity", tuple(sentence(words, width, "dim")))
    note = state_note(serve.engine, world.now_s)
    title = f"KV capacity  {literal(serve.name, 120)}"
    engine = serve.engine.value
    rows = [
        _pool(engine, serve, width),
        _context(engine, serve, width),
        _use(engine, serve, width),
        *_three(engine, serve, width),
        *_extra(engine, width),
    ]
    return Panel(title, tuple(rows), note)


def _labelled(label: str, value: str, tail: list[Cell], width: int) -> Row:
    return spread([left(label, _LABEL, "dim"), right(value, _VALUE), Cell("  "), *tail], [], width)


def _pool(engine: Engine | None, serve: Serve, width: int) -> Row:
    kv = engine.capacity if engine else None
    if kv is None:
        declared = serve.recipe.kv.pool_tokens if serve.recipe else None
        why = f"recipe says {declared:,}" if declared else "the engine has not said"
        return _labelled("pool", NA, [Cell(why, "dim")], width)
    return _labelled("pool", number(kv.tokens, "tok"), [Cell(literal(kv.source, 60), "dim")], width)


def _context(engine: Engine | None, serve: Serve, width: int) -> Row:
    told = engine.context_tokens if engine else None
    asked = serve.recipe.envelope.context_tokens if serve.recipe else None
    tail: list[Cell] = []
    if told is not None and asked is not None and told != asked:
        tail = [Cell(f"recipe says {asked:,}", "bad")]
    elif engine and engine.capacity and engine.capacity.per_request_tokens not in (None, told):
        tail = [Cell(f"longest request {engine.capacity.per_request_tokens:,}", "dim")]
    if told is None and asked is not None:
        tail = [Cell(f"recipe says {asked:,}", "dim")]
    return _labelled("context", number(told, "tok"), tail, width)


def _use(engine: Engine | None, serve: Serve, width: int) -> Row:
    if engine is None:
        why = literal(serve.engine.reason or "no reading", 120)
        return _labelled("in use", NA, [Cell(why, "bad" if serve.engine.state == "error" else "dim")], width)
    if serve.phase is Phase.LOADING:
        return _labelled("in use", NA, [Cell(f"loading: {literal(serve.why, 120)}", "dim")], width)
    counts = [
        Cell(f"running {_count(engine.running)}", "text"),
        Cell("  "),
        Cell(f"waiting {_count(engine.waiting)}", "text"),
    ]
    if engine.waiting:
        counts[2] = Cell(counts[2].text, "warn")
    if engine.kv_used is None:
        why = {"off": "metrics off (a setting)", "error": "metrics error"}.get(engine.metrics, "metric absent")
        return _labelled("in use", NA, [*counts, Cell(f"   {why}", "dim")], width)
    filled, rest = bar(engine.kv_used, 16)
    over = [Cell("  OVER 100", "warn")] if engine.kv_used > 1 else []
    used = right(f"{100 * engine.kv_used:.0f} %", 6)
    cells = [
        left("in use", _LABEL, "dim"),
        Cell(filled, "accent"),
        Cell(rest, "faint"),
        used,
        *over,
        Cell("  "),
        *counts,
    ]
    return spread(cells, [], width)


def _count(value: int | None) -> str:
    return NA if value is None else str(value)


def _three(engine: Engine | None, serve: Serve, width: int) -> list[Row]:
    """Configured, resident, measured: in this order, each under its own word."""
    configured = f"C{serve.recipe.envelope.concurrency}" if serve.recipe else NA
    figure = measured(serve.recipe)
    value = literal(figure.value, 60) if figure else f"{NA} (never gated)"
    names = [left("", _LABEL), left("configured", 11, "faint"), left("resident", 9, "faint")]
    values = [
        left("windows", _LABEL, "dim"),
        left(configured, 11, "strong"),
        left(_windows(engine, serve), 9, "strong"),
        Cell(value, "strong" if figure else "dim"),
    ]
    return [spread([*names, Cell("measured", "faint")], [], width), spread(values, [], width)]


def _windows(engine: Engine | None, serve: Serve) -> str:
    kv: KvCapacity | None = engine.capacity if engine else None
    context = engine.context_tokens if engine else None
    if context is None and serve.recipe:
        context = serve.recipe.envelope.context_tokens
    windows = kv.windows(context) if kv else None
    return NA if windows is None else f"{windows:.2f}"


def measured(recipe: Recipe | None) -> Figure | None:
    figures = recipe.figures if recipe else ()
    return next((f for f in figures if f.name.replace("_", " ").lower() == MEASURED), None)


def _extra(engine: Engine | None, width: int) -> list[Row]:
    if engine is None:
        return []
    out: list[Row] = []
    if engine.capacity and engine.capacity.inconsistent:
        out += sentence(f"inconsistent: {literal(engine.capacity.inconsistent)}", width, "warn")
    parts = [[Cell(f"{literal(engine.kind, 20)} {literal(engine.version or 'version n/a', 40)}", "dim")]]
    if engine.capacity and engine.capacity.per_rank_bytes is not None:
        parts.append([Cell(f"KV {gib(engine.capacity.per_rank_bytes)} a rank", "dim")])
    if engine.slots is not None:
        parts.append([Cell(f"slots {engine.slots}", "dim")])
    if engine.preempted:
        parts.append([Cell(f"preempted {engine.preempted:,.0f}", "warn")])
    out.append(row(left("engine", _LABEL, "dim"), *joined(parts)))
    return out
