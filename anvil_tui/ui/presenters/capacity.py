"""KV capacity: pool, context, use, and three concurrencies side by side that are never mixed."""

from __future__ import annotations

from datetime import tzinfo

from anvil_tui.core.box import Engine
from anvil_tui.core.capacity import Capacity, proven_text
from anvil_tui.core.status import serve_capacity
from anvil_tui.core.times import parse_time
from anvil_tui.core.world import Phase, Serve, World
from anvil_tui.ui.presenters.cells import (
    Cell,
    Panel,
    Row,
    Tone,
    View,
    cut_row,
    joined,
    left,
    right,
    row,
    sentence,
    spread,
    width_of,
)  # fmt: skip
from anvil_tui.ui.presenters.freshness import state_note
from anvil_tui.ui.presenters.serves import subject
from anvil_tui.ui.text import NA, bar, gib, literal, number, wrap

_LABEL = 9
_VALUE = 14


def focus(world: World, view: View) -> Serve | None:
    """The subject of the screen; a serve that was chosen and does not run has no capacity, so what runs."""
    wanted = (subject(world, view), subject(world, View()))
    return next((s for s in wanted if s and s.container.running), None)


def panel(world: World, view: View, width: int, height: int) -> Panel:
    serve = focus(world, view)
    if serve is None:
        words = "n/a: no engine runs." if world.containers.ok else "unknown: containers were not read."
        return Panel("KV capacity", tuple(sentence(words, width, "dim")))
    note = state_note(serve.engine, world.now_s)
    title = f"KV capacity  {literal(serve.name, 120)}"
    engine, known = serve.engine.value, serve_capacity(world, serve)
    rows = [
        _pool(known, serve, view.zone, width),
        _context(known, width),
        _use(engine, serve, width),
        *_three(known, width),
        *_extra(engine, width),
    ]
    return Panel(title, tuple(rows), note)


def _labelled(label: str, value: str, tail: list[Cell], width: int) -> Row:
    return spread([left(label, _LABEL, "dim"), right(value, _VALUE), Cell("  "), *tail], [], width)


def _pool(known: Capacity, serve: Serve, zone: tzinfo | None, width: int) -> Row:
    if not known.pool_source:
        declared = serve.recipe.kv.pool_tokens if serve.recipe else None
        why = f"recipe says {declared:,}" if declared else "the engine has not said"
        return _labelled("pool", NA, [Cell(why, "dim")], width)
    tail = [Cell(literal(known.pool_source, 60), "dim")]
    if at := _clock(known.pool_at, zone):
        tail.append(Cell(f" {at}", "dim"))
    return _labelled("pool", number(known.pool_tokens, "tok"), tail, width)


def _clock(at: str | None, zone: tzinfo | None) -> str:
    """Day and minute in the console's zone, whose name the header shows."""
    moment = parse_time(at)
    return "" if moment is None else f"{moment.astimezone(zone):%m-%d %H:%M}"


def _context(known: Capacity, width: int) -> Row:
    """What the engine reports; what the recipe asks for stands beside it and is never taken for resident."""
    told, asked, longest = known.context_tokens, known.recipe_context, known.longest_request
    tail: list[Cell] = []
    if told is not None and asked is not None and told != asked:
        tail = [Cell(f"recipe says {asked:,}", "bad")]
    elif longest is not None and longest != told:
        tail = [Cell(f"longest request {longest:,}", "warn" if told and longest < told else "dim")]
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
        Cell(rest, "line"),
        used,
        *over,
        Cell("  "),
        *counts,
    ]
    return spread(cells, [], width)


def _count(value: int | None) -> str:
    return NA if value is None else str(value)


def _three(known: Capacity, width: int) -> list[Row]:
    """Configured, resident, measured: in this order, each under its own word."""
    configured = NA if known.configured is None else f"C{known.configured}"
    windows = NA if known.windows is None else f"{known.windows:.2f}"
    names = [left("", _LABEL), left("configured", 11, "faint"), left("resident", 9, "faint")]
    said, tone = _measured(known)
    first, *more = wrap(said, max(8, width - _LABEL - 20))
    values = [
        left("windows", _LABEL, "dim"),
        left(configured, 11, "strong"),
        left(windows, 9, "warn" if known.windows is not None and known.windows < 1 else "strong"),
        Cell(first, tone),
    ]
    below = [row(Cell(" " * (_LABEL + 20)), Cell(text, tone)) for text in more]
    return [spread([*names, Cell("measured", "faint")], [], width), spread(values, [], width), *below]


def _measured(known: Capacity) -> tuple[str, Tone]:
    """By lanes of this very recipe, the longest prompt first; a figure of its record is marked as such."""
    if known.proven:
        return " · ".join(proven_text(p) for p in known.proven), "strong"
    if known.recorded:
        return f"{NA} (record: {literal(known.recorded, 60)})", "dim"
    return f"{NA} (never gated)", "dim"


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
    return [*out, *_flow("engine", parts, width)]


def _flow(label: str, parts: list[list[Cell]], width: int) -> list[Row]:
    """Parts one after the other; one that has no room begins the next line."""
    lines: list[list[list[Cell]]] = [[]]
    for part in parts:
        if lines[-1] and width_of(joined([*lines[-1], part])) > width - _LABEL:
            lines.append([])
        lines[-1].append(part)
    return [
        row(*cut_row([left("" if n else label, _LABEL, "dim"), *joined(line)], width))
        for n, line in enumerate(lines)
    ]
