"""The report of a bundle: result card, headline, tables, failures, boundary, all of it made of claims. Pure.

What stands in it is looked up in the bundle's own documents; how it is written on paper is another module's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
)
from anvil_tui.core.errors import Refused
from anvil_tui.core.publish import published
from anvil_tui.core.report_close import (
    Source,
    boundary,
    caveats,
    completed,
    kept_files,
    memory,
    not_published,
    seen,
    verdict,
)
from anvil_tui.core.report_lanes import depth, lane, state, way


def make_report(files: Mapping[str, str], *, public: bool = False, bundle: Bundle | None = None) -> Report:
    """The report of the bundle in `files` (name -> text; `bundle` = it was read already). Refused for schema 1."""
    bundle = bundle or bundle_from(files)
    if bundle.schema != EVIDENCE_SCHEMA:
        raise Refused(f"schema {bundle.schema} keeps no identity to report on; qualify the serve again")
    source = _source(bundle, files, public)
    rowed = tuple(r for r in source.results if r["rows"].value)
    sections = (
        Section(label("Result card"), tables=(_card(source),)),
        Section(label("Headline"), tables=(_headline(source, rowed),)),
        *(lane(source, r) for r in rowed),
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
    removed: Mapping[str, Mapping[str, int]] = {}
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
    told = Shown((m["passed"], m["kind"]), _passed)
    rows: tuple[tuple[str, Claim], ...] = (
        ("Result", claim(told, "; ", Shown(verdicts, _tally))),
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
    )  # fmt: skip
    return Table(("Setup", "Qualified value" if m["passed"].value else "Value"), rows)


def _cards(names: Any) -> str:
    if names is None:
        return f"GPUs {NOT_RECORDED}"
    kinds = dict.fromkeys(names)
    return ", ".join(f"{names.count(kind)}x {kind}" for kind in kinds) or "no GPU"


def _at_most(tokens: Any) -> str:
    return f"output limit {NOT_RECORDED}" if tokens is None else f"{tokens:,} output tokens"


def _listed(values: Any) -> str:
    return NOT_RECORDED if values is None else ", ".join(values) or "none"


def _passed(passed: Any, kind: Any) -> str:
    who = "the record says that it" if kind == "historical" else "the suite"
    return {True: f"{who} passed", False: f"{who} did not pass"}.get(passed, "no verdict on the whole recorded")


def _tally(*verdicts: Any) -> str:
    if verdicts == ([],):
        return "no gate ran"
    return ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))


# headline


def _headline(s: Source, rowed: Sequence[Fact]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for result in rowed:
        usable = [r for r in result["rows"] if not r["instrument"]["invalid"].value]
        where = way(s, result)
        rows += [_decode_line(where, row) for row in _ends([r for r in usable if _decode(r).value])]
        rows += [_aggregate_line(where, row) for row in _widest([r for r in usable if r["aggregate_tok_s"].value])]
    for result in s.results:
        if result["kind"].value == RECORD:
            rows += [_recorded(o) for o in seen(s, result)]
        elif not result["rows"].value and result["of"].value > 1:
            rows.append(
                (claim(show(result["gate"])), _share(result), claim(show(result["kind"]), "; ", verdict(result)))
            )
    return Table(("Headline measurement", "Local result", "Conditions"), tuple(rows))


def _ends(rows: list[Fact]) -> list[Fact]:
    """The shallowest and the deepest rows under the smallest load; of repeats all, so that none is picked."""
    least = min((r["streams"].value for r in rows), default=0)
    alone = sorted((r for r in rows if r["streams"].value == least), key=_depth_of)
    return [r for r in alone if _depth_of(r) in (_depth_of(alone[0]), _depth_of(alone[-1]))]


def _widest(rows: list[Fact]) -> list[Fact]:
    """The rows under the largest load of more than one stream."""
    most = max((r["streams"].value for r in rows), default=1)
    return [] if most == 1 else [r for r in rows if r["streams"].value == most]


def _depth_of(row: Fact) -> float:
    return float(row["nominal_tokens"].value or row["prompt_tokens"]["p50"].value or 0)


def _decode(row: Fact) -> Fact:
    """The decode rate of a row; of a record that has only the seeds' (N-1)/T, that one."""
    return row["decode_tok_s"] if row["decode_tok_s"].value else row["decode_seeds_tok_s"]


def _decode_line(where: Sequence[str | Shown], row: Fact) -> tuple[Cell, ...]:
    rate, late = _decode(row), row["ttft_any_s"]["p50"]
    conditions = claim(
        *where, show(row["label"]), "; C", show(row["streams"], count), ", p50 of ", show(rate["n"], count),
        "; TTFT any ", show(late, SECONDS), *((" s",) if late.value is not None else ()), *state(row),
        "" if row["decode_tok_s"].value else "; decode by (N-1)/T",
    )  # fmt: skip
    return claim("Decode at ", depth(row)), claim(show(rate["p50"], RATE), " tok/s"), conditions


def _aggregate_line(where: Sequence[str | Shown], row: Fact) -> tuple[Cell, ...]:
    rate = claim(show(row["aggregate_tok_s"], RATE), " output tok/s")
    conditions = claim(*where, show(row["label"]), "; ", completed(row), *state(row))
    return claim("Aggregate at C", show(row["streams"], count)), rate, conditions


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
