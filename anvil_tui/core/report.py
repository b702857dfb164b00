"""The report of a bundle: result card, headline, tables, failures, boundary, all of it made of claims. Pure.

What stands in it is looked up in the bundle's own documents; how it is written on paper is another module's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anvil_tui.core.bounds import proven
from anvil_tui.core.bundle import EVIDENCE_SCHEMA, IDENTITY, MANIFEST, OBSERVATIONS, RESULTS, Bundle, bundle_from
from anvil_tui.core.claims import (
    NOT_RECORDED,
    RATE,
    SECONDS,
    Cell,
    Claim,
    Fact,
    Report,
    Section,
    Shown,
    Table,
    claim,
    count,
    documents,
    label,
    show,
    words,
)
from anvil_tui.core.errors import Refused
from anvil_tui.core.lanes import LaneRow
from anvil_tui.core.plots import Chart, over_depth, over_streams
from anvil_tui.core.publish import published, scrubbed
from anvil_tui.core.report_close import (
    Source,
    boundary,
    caveats,
    completed,
    completed_text,
    kept_files,
    memory,
    not_published,
    seen,
    verdict,
)


def make_report(files: Mapping[str, str], *, public: bool = False) -> Report:
    """The report of the bundle in `files` (name -> text). Refused for a bundle of the first schema."""
    bundle = bundle_from(files)
    if bundle.schema != EVIDENCE_SCHEMA:
        raise Refused(f"schema {bundle.schema} keeps no identity to report on; qualify the serve again")
    source = _source(bundle, files, public)
    rowed = tuple(r for r in source.results if r["rows"].value)
    sections = (
        Section(label("Result card"), tables=(_card(source),)),
        Section(label("Headline"), tables=(_headline(source, rowed),)),
        *(_lane(source, r) for r in rowed),
        memory(source),
        Section(label("Gates"), tables=(_gates(source),)),
        Section(label("Failures and caveats"), bullets=caveats(source)),
        Section(label("Evidence boundary"), bullets=boundary(source)),
        kept_files(source),
        *([not_published(source)] if public else []),
    )
    title = "Record of " if bundle.kind == "historical" else "Qualification of "
    shown = tuple(s for s in sections if s.tables or s.bullets or s.lines)
    return Report(claim(title, show(source.identity["recipe"])), shown, public)


def _source(bundle: Bundle, files: Mapping[str, str], public: bool) -> Source:
    facts = documents(files)
    removed: tuple[Fact, ...] = ()
    if public:
        facts, removed = published(facts, historical=bundle.kind == "historical")
    part = {kind: next(facts[n] for n in sorted(facts) if n.endswith(kind))
            for kind in (IDENTITY, RESULTS, OBSERVATIONS, MANIFEST)}  # fmt: skip
    about = part[IDENTITY]
    return Source(
        bundle, files, about["identity"], about, part[RESULTS], part[OBSERVATIONS], part[MANIFEST], public, removed
    )  # fmt: skip


RECORD = "record"
"""A result of this kind holds figures that a record gives, and no verdict."""


# the card


def _card(s: Source) -> Table:
    i, m = s.identity, s.manifest
    verdicts = tuple(r["verdict"] for r in s.results if r["kind"].value != RECORD) or (s.results,)
    rows: tuple[tuple[str, Claim], ...] = (
        ("Model", claim(show(i["model"]), " at revision ", show(i["revision"]), "; served as ",
                        show(i["served_name"]))),
        ("Hardware", claim(show(i["gpus"], _cards), "; driver ", show(i["driver"]), ", CUDA ", show(i["cuda"]),
                           "; kernel ", show(i["kernel"]))),
        ("Runtime", claim(show(i["engine"]), " ", show(i["engine_version"]), "; image ", show(i["image"]),
                          "; Docker ", show(i["docker"]))),
        ("Quantization", claim(show(i["quantization"]), "; KV cache ", show(i["kv_type"]),
                               "; speculation ", show(i["speculation"]))),
        ("Recipe", claim(show(i["recipe"]), "; digest ", show(i["recipe_digest"]))),
        ("Measurement path", claim("harness ", show(i["harness"]), "; gateway ", show(i["gateway"]), "; from ",
                                   show(m["started_at"]), " to ", show(m["ended_at"]))),
        ("Contract", claim(show(i["context_tokens"], count), " context tokens, ",
                           show(i["max_output_tokens"], _at_most), ", scheduler C",
                           show(i["concurrency"], count), ", thinking ", show(i["thinking"]))),
        ("Evidence", claim("suite ", show(i["suite"]), ", digest ", show(i["suite_digest"]),
                           "; prompts ", show(i["prompts"]))),
        ("Serve", claim("container ", show(i["container"]), "; configuration ", show(i["config"]),
                        "; image id ", show(i["image_id"]), "; GPUs ", show(i["gpu_uuids"], _listed))),
        ("Result", claim(show(m["passed"], _passed), "; ", Shown(verdicts, _tally))),
    )  # fmt: skip
    return Table(("Setup", "Qualified value"), rows)


def _cards(names: Any) -> str:
    if names is None:
        return f"GPUs {NOT_RECORDED}"
    kinds = dict.fromkeys(names)
    return ", ".join(f"{names.count(kind)}x {kind}" for kind in kinds) or "no GPU"


def _at_most(tokens: Any) -> str:
    return f"output limit {NOT_RECORDED}" if tokens is None else f"{tokens:,} output tokens"


def _listed(values: Any) -> str:
    return NOT_RECORDED if values is None else ", ".join(values) or "none"


def _passed(passed: Any) -> str:
    return {True: "the suite passed", False: "the suite did not pass"}.get(
        passed, "no verdict on the whole recorded"
    )


def _tally(*verdicts: Any) -> str:
    if verdicts == ([],):
        return "no gate ran"
    return ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))


# headline


def _headline(s: Source, rowed: Sequence[Fact]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for result in rowed:
        usable = [r for r in result["rows"] if not r["instrument"]["invalid"].value]
        rows += [_decode_line(result, row) for row in _ends([r for r in usable if _decode(r).value])]
        rows += [
            _aggregate_line(result, row) for row in _widest([r for r in usable if r["aggregate_tok_s"].value])
        ]
    for result in s.results:
        if result["kind"].value == RECORD:
            rows += [_recorded(o) for o in seen(s, result)]
        elif not result["rows"].value and result["of"].value > 1:
            rows.append(
                (claim(show(result["gate"])), _share(result), claim(show(result["kind"]), "; ", verdict(result)))
            )
    return Table(("Headline measurement", "Local result", "Conditions"), tuple(rows))


def _ends(rows: list[Fact]) -> list[Fact]:
    """The shallowest and the deepest row under the smallest load."""
    least = min((r["streams"].value for r in rows), default=0)
    alone = sorted((r for r in rows if r["streams"].value == least), key=_depth_of)
    return alone if len(alone) < 2 else [alone[0], alone[-1]]


def _widest(rows: list[Fact]) -> list[Fact]:
    """The last row under the largest load of more than one stream."""
    most = max((r["streams"].value for r in rows), default=1)
    return [] if most == 1 else [r for r in rows if r["streams"].value == most][-1:]


def _depth_of(row: Fact) -> float:
    known = row["prompt_tokens"]["p50"].value or row["nominal_tokens"].value
    return float(known or 0)


def _depth(row: Fact) -> Shown:
    return Shown((row["prompt_tokens"]["p50"], row["nominal_tokens"]), _depth_text)


def _depth_text(actual: Any, nominal: Any) -> str:
    if actual is not None:
        return f"{actual:,.0f} prompt tokens"
    return f"depth {NOT_RECORDED}" if nominal is None else f"nominal {nominal:,} tokens"


def _decode(row: Fact) -> Fact:
    """The decode rate of a row; of a record that has only the seeds' (N-1)/T, that one."""
    return row["decode_tok_s"] if row["decode_tok_s"].value else row["decode_seeds_tok_s"]


def _decode_line(result: Fact, row: Fact) -> tuple[Cell, ...]:
    rate, late = _decode(row), row["ttft_any_s"]["p50"]
    conditions = claim(
        show(result["gate"]), ": ", show(row["label"]), "; C", show(row["streams"], count), ", p50 of ",
        show(rate["n"], count), "; TTFT any ", show(late, SECONDS), *((" s",) if late.value is not None else ()),
        "" if row["decode_tok_s"].value else "; decode by (N-1)/T",
    )  # fmt: skip
    return claim("Decode at ", _depth(row)), claim(show(rate["p50"], RATE), " tok/s"), conditions


def _aggregate_line(result: Fact, row: Fact) -> tuple[Cell, ...]:
    rate = claim(show(row["aggregate_tok_s"], RATE), " output tok/s")
    return (
        claim("Aggregate at C", show(row["streams"], count)),
        rate,
        claim(show(result["gate"]), ": ", show(row["label"]), "; ", completed(row)),
    )


def _recorded(seen: Fact) -> tuple[Cell, ...]:
    raw = seen["raw"]
    return claim(show(raw["name"])), claim(show(raw["figure"])), claim(show(raw["conditions"]))


def _share(result: Fact) -> Claim:
    return claim(Shown((result["passed"], result["of"]), proven))


# gates


def _gates(s: Source) -> Table:
    """What a gate proves stands there where the suite was kept and says so."""
    proves = {g["id"].value: g["proves"] for g in s.about["suite"]["gates"] if g["proves"].value}
    head = ("Gate", "Kind", "Verdict", "Passed", "Reason", *(("Proves",) if proves else ()))
    rows: list[tuple[Cell, ...]] = []
    for r in s.results:
        if r["kind"].value != RECORD:
            told = proves.get(r["gate"].value)
            row = (
                claim(show(r["gate"])),
                claim(show(r["kind"])),
                claim(verdict(r)),
                _share(r),
                claim(show(r["reason"])),
            )
            rows.append((*row, *((claim(show(told)) if told else "",) if proves else ())))
    return Table(head, tuple(rows))


# lanes

Column = tuple[str, Callable[[Fact], Sequence[Fact]], Callable[..., str]]


def _spread_column(title: str, key: str, how: Callable[[Any], str]) -> Column:
    def text(middle: Any, low: Any, high: Any) -> str:
        if middle is None or low is None or high is None:
            return how(middle)
        return f"{how(middle)} ({how(low)} to {how(high)})"

    return title, lambda row: (row[key]["p50"], row[key]["low"], row[key]["high"]), text


_COLUMNS: tuple[Column, ...] = (
    ("Row", lambda row: (row["label"],), words),
    ("Streams", lambda row: (row["streams"],), lambda n: f"C{n}"),
    ("Nominal tokens", lambda row: (row["nominal_tokens"],), count),
    _spread_column("Prompt tokens p50", "prompt_tokens", count),
    _spread_column("TTFT any p50, s", "ttft_any_s", SECONDS),
    _spread_column("TTFT visible p50, s", "ttft_visible_s", SECONDS),
    _spread_column("Decode p50, tok/s", "decode_tok_s", RATE),
    _spread_column("Decode (N-1)/T p50, tok/s", "decode_seeds_tok_s", RATE),
    _spread_column("Effective prefill p50, tok/s", "prefill_tok_s", RATE),
    _spread_column("E2E p50, s", "e2e_s", SECONDS),
    ("Aggregate, tok/s", lambda row: (row["aggregate_tok_s"],), RATE),
    ("Requests", lambda row: completed(row).facts, completed_text),
    ("Times", lambda row: (row["instrument"]["invalid"],), lambda why: "must not be used" if why else "usable"),
    ("Prefix cache", lambda row: (row["cache"],), words),
    ("Output", lambda row: (row["output"],), words),
)


def _lane(s: Source, result: Fact) -> Section:
    """Columns that no row has a value for are left out; what is missing is told under the caveats."""
    rows = list(result["rows"])
    unknown = (None, "", "unknown")
    kept = [c for c in _COLUMNS if any(c[1](row)[0].value not in unknown for row in rows)]
    body = tuple(tuple(claim(Shown(tuple(pick(row)), how)) for _, pick, how in kept) for row in rows)
    origin = Shown(tuple(r["source"] for r in rows), lambda *all_: "; ".join(dict.fromkeys(all_)))
    source = claim("Kind ", show(result["kind"]), "; source: ", origin, ".")
    made = next(r.rows for r in s.bundle.results if r.gate == result["gate"].value)
    drawn = [replace(row, label=scrubbed(row.label)) for row in made] if s.public else made
    return Section(
        claim("Rows of gate ", show(result["gate"])), (source,), (Table(tuple(label(c[0]) for c in kept), body),),
        charts=_charts(drawn),
    )  # fmt: skip


def _charts(rows: Sequence[LaneRow]) -> tuple[Chart, ...]:
    """Decode and TTFT over depth where depths differ, over concurrency where loads do; one line a fixed other."""
    rows = [_drawable(r) for r in rows]
    by = ""
    if all(r.decode_tok_s is None for r in rows):
        by, rows = ", by (N-1)/T", [replace(r, decode_tok_s=r.decode_seeds_tok_s) for r in rows]
    depths = {r.prompt_tokens.p50 for r in rows if r.prompt_tokens}
    charts: list[Chart] = []
    if len(depths) > 1:
        charts += [over_depth(_arms(rows, "depth", by), "decode"), over_depth(_arms(rows, "depth"), "ttft")]
    if len({r.streams for r in rows}) > 1:
        charts += [
            over_streams(_arms(rows, "streams", by), "decode"),
            over_streams(_arms(rows, "streams"), "ttft"),
        ]
    return tuple(c for c in charts if any(p.y is not None for a in c.series for p in a.points))


def _drawable(row: LaneRow) -> LaneRow:
    """Times that must not be used are not drawn."""
    spoilt = row.instrument is not None and row.instrument.invalid
    return replace(row, decode_tok_s=None, ttft_any_s=None) if spoilt else row


def _arms(rows: Sequence[LaneRow], over: str, by: str = "") -> dict[str, list[LaneRow]]:
    arms: dict[str, list[LaneRow]] = {}
    for row in rows:
        name = f"C{row.streams}" if over == "depth" else _depth_text(None, row.nominal_tokens)
        arms.setdefault(name + by, []).append(row)
    return arms
