"""Checks a bundle again with nothing but its own files: hashes, seal, results against observations. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from anvil_tui.core.bundle import (
    EVIDENCE_SCHEMA,
    MANIFEST,
    REPORTS,
    Bundle,
    FileFact,
    Manifest,
    bundle_from,
    document,
    fact_of,
    manifest_from,
    parse,
    prompts_digest,
    sealed,
    suite_digest,
)
from anvil_tui.core.errors import AnvilError, BadFile
from anvil_tui.core.gate_kinds import LANES
from anvil_tui.core.gates import Gate, GateResult, Observation, Suite, Verdict, suite_passed
from anvil_tui.core.lane_rules import judge_row
from anvil_tui.core.lanes import LaneRow, Spread
from anvil_tui.core.measure import spread
from anvil_tui.core.report import make_report
from anvil_tui.core.report_html import html
from anvil_tui.core.report_text import ledger, ledger_problems, markdown

_MEDIANS = (
    "prompt_tokens", "completion_tokens", "ttft_any_s", "ttft_visible_s", "e2e_s", "decode_tok_s",
)  # fmt: skip
_RAW_MEDIANS = ("cached_tokens", "decode_seeds_tok_s")
_CLOSE = 1e-9
_DEFAULTS = {
    k: v
    for k, v in Gate.model_construct(id="", kind="smoke").model_dump(mode="json").items()
    if k not in ("id", "kind")
}


@dataclass(frozen=True, slots=True)
class Checked:
    """`problems` are wrong; `unchecked` is what these files alone cannot prove."""

    problems: tuple[str, ...]
    unchecked: tuple[str, ...] = ()


def report_texts(files: Mapping[str, str], prefix: str, *, pages: bool) -> dict[str, str]:
    """File name -> text of the reports of a bundle, the same bytes each time; `pages` = the HTML ones too."""
    made: dict[str, str] = {}
    bundle = bundle_from(files)
    for public, stem in ((False, "report"), (True, "report-public")):
        report = make_report(files, public=public, bundle=bundle)
        made[f"{prefix}{stem}.md"] = markdown(report)
        made[f"{prefix}{stem}-claims.json"] = ledger(report, f"{stem}.md")
        if pages:
            made[f"{prefix}{stem}.html"] = html(report)
    return made


def check(files: Mapping[str, bytes], prefix: str, anchor: str | None = None) -> Checked:
    """All that can be wrong with a bundle.

    `files` are those of its folder that begin with `prefix`, and those that its manifest names. `anchor` is the
    hash of the manifest by the operation's journal, "" = the journal names none, None = there is no journal.
    """
    name = prefix + MANIFEST
    if name not in files:
        return Checked((f"{name}: is missing: the bundle is partial",))
    try:
        texts = {n: _text(n, data) for n, data in files.items()}
        head = parse(texts[name], name)
        if not isinstance(head, dict):
            raise BadFile(name, "is no object")
        if head.get("schema") != EVIDENCE_SCHEMA:
            return _check_first(files, texts, name, head)
        manifest = manifest_from(head, name)
    except BadFile as why:
        return Checked((str(why),))
    found = [] if sealed(texts[name], head) else [f"{name}: was changed after it was sealed"]
    if anchor is not None and anchor != fact_of(files[name]).sha256:
        found.append(f"{name}: is not the one that the operation's journal names ({anchor[:12] or 'none'})")
    found += _differing(files, manifest.files)
    found += _extra(files, prefix, manifest)
    unchecked = (
        [] if anchor is not None else ["no journal names this bundle: it may have been made anew as a whole"]
    )
    try:
        bundle = bundle_from({n: texts[n] for n in (*manifest.files, name) if n in texts})
        found += () if found else _reports(texts, prefix, manifest)  # of a damaged bundle they say nothing
    except AnvilError as why:
        return Checked((*found, str(why)), tuple(unchecked))
    recomputed, unproven = recompute(bundle)
    return Checked((*found, *recomputed), (*unchecked, *unproven))


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as why:
        raise BadFile(name, f"is not UTF-8 at byte {why.start}") from None


def _check_first(
    files: Mapping[str, bytes], texts: Mapping[str, str], name: str, head: Mapping[str, Any]
) -> Checked:
    """Schema 1 keeps hashes of the files and none of the manifest."""
    try:
        bundle = bundle_from({n: t for n, t in texts.items() if n in (*head.get("files", ()), name)})
    except BadFile as why:
        return Checked((str(why),))
    found = [
        f"{n}: {'is missing' if n not in files else 'its SHA-256 is not the one in ' + name}"
        for n, digest in bundle.files.items()
        if n not in files or fact_of(files[n]).sha256 != digest
    ]
    recomputed, unproven = recompute(bundle)
    return Checked((*found, *recomputed), (f"{name}: schema 1 has no seal of its own", *unproven))


def _differing(files: Mapping[str, bytes], facts: Mapping[str, FileFact]) -> Iterator[str]:
    for name, fact in facts.items():
        if name not in files:
            yield f"{name}: is missing"
            continue
        found = fact_of(files[name])
        if found.bytes < fact.bytes:
            yield f"{name}: is cut off: {found.bytes:,} of {fact.bytes:,} bytes"
        elif found != fact:
            yield f"{name}: is not the file of the manifest: {_how(found, fact)}"


def _how(found: FileFact, fact: FileFact) -> str:
    if found.bytes == fact.bytes:
        return "another SHA-256"
    return f"{found.bytes:,} bytes, {fact.bytes:,} expected"


def _extra(files: Mapping[str, bytes], prefix: str, manifest: Manifest) -> Iterator[str]:
    known = {*manifest.files, prefix + MANIFEST, *(prefix + name for name in REPORTS)}
    yield from (f"{name}: is in no manifest" for name in sorted(set(files) - known))


def _reports(texts: Mapping[str, str], prefix: str, manifest: Manifest) -> Iterator[str]:
    """Reports that lie beside the bundle are made again from it; their ledgers must point to something."""
    here = [prefix + name for name in REPORTS if prefix + name in texts]
    if not here:
        return
    bundle = {n: texts[n] for n in (*manifest.files, prefix + MANIFEST) if n in texts}
    again = report_texts(bundle, prefix, pages=True)
    for name in here:
        if texts[name] != again[name]:
            yield f"{name}: is not what the bundle's report says today; write it again with `evidence report`"
        if name.endswith("-claims.json"):
            yield from ledger_problems(texts[name], name, bundle)


# results against observations


def recompute(bundle: Bundle) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(what of the results the observations contradict, what they cannot prove)."""
    problems: list[str] = []
    unchecked: list[str] = []
    try:
        suite = _suite(bundle)
    except BadFile as why:
        return (str(why),), ()
    gates = {g.id: g for g in suite.gates} if suite else {}
    if suite and bundle.identity.suite_digest != f"sha256:{suite_digest(suite)}":
        unchecked.append(
            "suite: its digest is not that of the gates kept here: some were left out, or it was changed"
        )
    for result in bundle.results:
        if bundle.kind == "historical":
            unchecked.append(f"{result.gate}: taken from a record, its requests are not in it")
            continue
        problems += _verdict(result)
        problems += _against_suite(result, gates.get(result.gate)) if gates else ()
        if result.kind in LANES:
            problems += _passed_lane(result, gates.get(result.gate))
            wrong, unproven = _rows(result)
            problems += wrong
            unchecked += unproven
    if bundle.kind == "measured" and bundle.schema == EVIDENCE_SCHEMA:
        sent = prompts_digest(bundle.results)
        if sent != bundle.identity.prompts:
            problems.append(f"prompts: the identity says {bundle.identity.prompts}, the observations give {sent}")
    if bundle.kind == "measured" and bundle.passed != suite_passed(bundle.results):
        problems.append(
            f"passed: the manifest says {bundle.passed}, the verdicts say {suite_passed(bundle.results)}"
        )
    if gates and (absent := [g for g in gates if g not in {r.gate for r in bundle.results}]):
        problems.append(f"results: gate {absent[0]} of the suite has none")
    return tuple(problems), tuple(unchecked)


def _suite(bundle: Bundle) -> Suite | None:
    """The suite that was kept, None = none was. BadFile for what is no suite."""
    if not bundle.suite:
        return None
    try:
        gates = [{k: v for k, v in g.items() if _DEFAULTS.get(k, ...) != v} for g in bundle.suite["gates"]]
        return Suite.model_validate_json(document({**bundle.suite, "gates": gates}))
    except (ValidationError, KeyError, TypeError, AttributeError) as why:
        raise BadFile("suite", f"is none that this version can read: {str(why).splitlines()[0]}") from None


def _passed_lane(result: GateResult, gate: Gate | None) -> Iterator[str]:
    """What must be true of every row of a lane that passed."""
    if gate is None or result.verdict is not Verdict.PASSED:
        return
    if not result.rows:
        yield f"{result.gate}: is passed without a row"
    for judged in (judge_row(gate, row, ()) for row in result.rows):
        if judged.outcome != "ok":
            yield f"{result.gate}: is passed, yet {judged.note}"


def _deciding(result: GateResult) -> list[Observation]:
    """The last observation of each repeat: before it came earlier turns and tries. n = 0 is none of a repeat."""
    last = {o.n: o for o in result.observations if o.n > 0}
    return [last[n] for n in sorted(last)]


def _verdict(result: GateResult) -> Iterator[str]:
    if result.kind in LANES:
        return
    decided = _deciding(result)
    good = sum(o.ok for o in decided)
    unfinished = result.verdict in (Verdict.ERRORED, Verdict.UNVERIFIED, Verdict.CANCELLED)
    if result.passed > good or (result.passed < good and not unfinished):
        yield f"{result.gate}: says {result.passed} passed, its observations show {good}"
    if len(decided) > result.of:
        yield f"{result.gate}: says of {result.of}, there are observations of {len(decided)}"
    if result.verdict is Verdict.PASSED and not result.passed:
        yield f"{result.gate}: is passed with nothing passed"
    shown = {o.failure for o in decided if o.failure}
    if strange := sorted(set(result.failures) - shown) if decided else []:
        yield f"{result.gate}: names the failure {strange[0]}, which no observation shows"


def _against_suite(result: GateResult, gate: Gate | None) -> Iterator[str]:
    if gate is None:
        yield f"{result.gate}: is not in the suite that the bundle was judged by"
        return
    need = gate.pass_at_least or (gate.repeat if result.of > 1 else result.of)
    if (result.verdict is Verdict.PASSED) != (result.passed >= need):
        yield f"{result.gate}: is {result.verdict} with {result.passed} passed, its rule asks for {need}"
    if result.accepted != (result.verdict in gate.accept):
        accepts = ", ".join(gate.accept) or "nothing"
        yield f"{result.gate}: accepted is {result.accepted}, its rule accepts {accepts}"


def _rows(result: GateResult) -> tuple[list[str], list[str]]:
    """Rows whose requests name them (`raw.row` is the row's label) are computed again."""
    named: dict[str, list[Observation]] = {}
    for o in result.observations:
        if o.raw.get("purpose") == "request":
            named.setdefault(str(o.raw.get("row")), []).append(o)
    problems = [
        f"{result.gate} row {row.label}: {text}"
        for row in result.rows
        if row.label in named
        for text in _row(row, named[row.label])
    ]
    absent = [row.label for row in result.rows if row.label not in named]
    unproven = [f"{result.gate}: no request names row {', '.join(absent)}"] if absent else []
    return problems, unproven


def _row(row: LaneRow, seen: Sequence[Observation]) -> Iterator[str]:
    good = [o for o in seen if o.ok]
    bad = len(seen) - len(good)
    if (len(seen), bad) != (row.requests, row.failed):
        yield f"says {row.failed} of {row.requests} failed, its requests show {bad} of {len(seen)}"
    for key in (*_MEDIANS, *_RAW_MEDIANS):
        again = spread(o.raw.get(key) if key in _RAW_MEDIANS else getattr(o, key) for o in good)
        said = getattr(row, key)
        if not _alike(again, said):
            yield f"{key} says {said}, its observations give {again}"


def _alike(a: Spread | None, b: Spread | None) -> bool:
    if a is None or b is None:
        return a is b
    pairs = [(a.n, b.n), (a.low, b.low), (a.p50, b.p50), (a.high, b.high), (a.p5, b.p5), (a.p95, b.p95)]
    return all(x == y or (x is not None and y is not None and abs(x - y) <= _CLOSE * abs(x)) for x, y in pairs)
