"""What one qualification leaves behind, as values: identity of everything, results, where it came from. Pure.

A bundle is files of one prefix: `identity.json`, `observations.ndjson`, `results.json` and, last, `manifest.json`,
which holds size and SHA-256 of the others and of the plan. A bundle without a manifest is partial.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from anvil_tui.core.errors import BadFile
from anvil_tui.core.gates import GateResult, Observation, Suite
from anvil_tui.core.tool_calls import no_duplicates

EVIDENCE_SCHEMA = "anvil.evidence/2"
FIRST_SCHEMA = "anvil.evidence/1"
MANIFEST, IDENTITY, OBSERVATIONS, RESULTS = "manifest.json", "identity.json", "observations.ndjson", "results.json"
REPORTS = (
    "report.md", "report-claims.json", "report-public.md", "report-public-claims.json", "report.html",
    "report-public.html",
)  # fmt: skip

BundleKind = Literal["measured", "historical"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Identity:
    """Everything that a result depends on. None = nobody could tell, which matches nothing; () = no GPU.

    Digests are `sha256:` hex. `config` is the hash of the container's full argv and environment names,
    `suite` of what the suite demands, `prompts` of the prompt set (seed and generator included).
    """

    recipe: str | None = None
    recipe_digest: str | None = None
    family: str | None = None
    model: str | None = None
    revision: str | None = None
    quantization: str | None = None
    served_name: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    image: str | None = None
    image_id: str | None = None
    container: str | None = None
    config: str | None = None
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    concurrency: int | None = None
    kv_type: str | None = None
    speculation: str | None = None
    thinking: str | None = None
    gpus: tuple[str, ...] | None = None
    gpu_uuids: tuple[str, ...] | None = None
    driver: str | None = None
    cuda: str | None = None
    kernel: str | None = None
    docker: str | None = None
    gateway: str | None = None
    harness: str | None = None
    suite: str | None = None
    suite_digest: str | None = None
    prompts: str | None = None


@dataclass(frozen=True, slots=True)
class FileFact:
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """`seal` is the SHA-256 of the manifest's own text with an empty seal. `passed` None = nobody says.

    `id` is OPERATION/SERVE or the folder's name. Times are ISO 8601 with offset, or a date.
    """

    schema: str
    id: str
    kind: BundleKind
    started_at: str
    ended_at: str
    passed: bool | None
    files: Mapping[str, FileFact]
    seal: str = ""


@dataclass(frozen=True, slots=True)
class About:
    """`identity.json`. `suite` is the whole suite as it was judged by, {} where the record has none."""

    identity: Identity
    suite: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bundle:
    """One bundle as read back. `id` is OPERATION/SERVE or the folder's name; `at` ISO 8601 with offset or a date.

    `notes` are sentences kept with it (waivers, reclassifications, what a historical record does not say).
    `files` maps names to SHA-256 hex; `suite` is what it was judged by, {} = not kept.
    """

    id: str
    kind: BundleKind
    at: str
    identity: Identity
    passed: bool | None
    results: tuple[GateResult, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    path: str = ""
    ended_at: str = ""
    schema: str = EVIDENCE_SCHEMA
    suite: Mapping[str, Any] = field(default_factory=dict)


_MANIFEST, _ABOUT = TypeAdapter(Manifest), TypeAdapter(About)
_RESULT, _OBSERVATION = TypeAdapter(GateResult), TypeAdapter(Observation)


# writing


def document(value: Any) -> str:
    """One JSON document as every bundle file is written: one line, keys in their own order, no NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"


def observations_text(results: Sequence[GateResult]) -> str:
    """One observation a line, with its gate and kind in front."""
    return "".join(
        document({"gate": r.gate, "kind": r.kind, **asdict(o)}) for r in results for o in r.observations
    )


def results_text(results: Sequence[GateResult]) -> str:
    """The results; `observations` is their number, they stand in a file of their own."""
    return document([asdict(r) | {"observations": len(r.observations)} for r in results])


def about_text(about: About) -> str:
    return document(asdict(about))


def manifest_text(manifest: Manifest) -> str:
    """The manifest, sealed over its own text."""
    facts = asdict(manifest)
    return document(facts | {"seal": _seal(facts)})


def _seal(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(document({**facts, "seal": ""}).encode()).hexdigest()


def fact_of(data: bytes) -> FileFact:
    return FileFact(hashlib.sha256(data).hexdigest(), len(data))


def prompts_digest(results: Sequence[GateResult]) -> str | None:
    """The digest over those of all rows; None when nothing says which prompts were sent."""
    rows = ((r.gate, o.raw) for r in results for o in r.observations if o.raw.get("purpose") == "row")
    sets = [(gate, raw["row"], raw["prompts"]) for gate, raw in rows if "row" in raw and "prompts" in raw]
    return f"sha256:{hashlib.sha256(document(sets).encode()).hexdigest()}" if sets else None


def suite_digest(suite: Suite) -> str:
    """Hash of what the suite demands; its title and what its gates say they prove do not change it, nor does a new
    key with a default."""
    notes: Any = {"title": True, "gates": {"__all__": {"proves"}}}
    facts = suite.model_dump(mode="json", exclude=notes, exclude_defaults=True)
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


# reading


def manifest_name(names: Mapping[str, Any]) -> str:
    """The one manifest among the files of a bundle; BadFile when there is none or more than one."""
    found = [name for name in names if name.endswith(MANIFEST)]
    if len(found) != 1:
        have = ", ".join(sorted(names)) or "no files"
        raise BadFile(MANIFEST, f"{len(found)} manifests among {have}; without one a bundle is partial")
    return found[0]


def bundle_from(files: Mapping[str, str], bundle_id: str = "", path: str = "", *, seen: bool = True) -> Bundle:
    """The bundle in its files (name -> text), of schema 2 or 1. Hashes are `core.verify`'s business.

    `seen` False leaves the observations unread: a list of five hundred bundles then takes a second.

    BadFile names file, line and key of what is missing, unknown, of a wrong type or contradictory.
    """
    name = manifest_name(files)
    head = parse(files[name], name)
    schema = head.get("schema") if isinstance(head, dict) else None
    if schema == FIRST_SCHEMA:
        return _first(files, name, head, bundle_id, path, seen)
    if schema != EVIDENCE_SCHEMA:
        raise BadFile(name, f"must be {EVIDENCE_SCHEMA} or {FIRST_SCHEMA}, not {schema!r}", key="schema")
    manifest = manifest_from(head, name)
    prefix = name.removesuffix(MANIFEST)
    about_name = prefix + IDENTITY
    about = decoded(_ABOUT, parse(_text(files, about_name), about_name), about_name)
    return Bundle(
        manifest.id, manifest.kind, manifest.started_at, about.identity, manifest.passed,
        _results(files, prefix, seen), {n: fact.sha256 for n, fact in manifest.files.items()}, about.notes, path,
        manifest.ended_at, suite=about.suite,
    )  # fmt: skip


def manifest_from(value: Any, name: str) -> Manifest:
    return decoded(_MANIFEST, value, name)


def sealed(text: str, facts: Mapping[str, Any]) -> bool:
    """Whether a manifest's text is, byte for byte, what it was sealed as; `facts` is the parsed text."""
    return facts.get("seal") == _seal(facts) and document(facts) == text


def _first(
    files: Mapping[str, str], name: str, head: dict[str, Any], bundle_id: str, path: str, seen: bool
) -> Bundle:
    """Schema 1: identity is the recipe, the suite and the container; times stand in the operation's id only."""
    wanted = ("harness", "suite", "suite_sha256", "passed", "recipe", "recipe_sha256", "container", "files")
    if absent := [key for key in wanted if key not in head]:
        raise BadFile(name, "is required and missing", key=absent[0])
    identity = Identity(
        recipe=head["recipe"], recipe_digest=f"sha256:{head['recipe_sha256']}", container=head["container"],
        harness=head["harness"], suite=head["suite"], suite_digest=f"sha256:{head['suite_sha256']}",
    )  # fmt: skip
    at = re.match(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z", bundle_id)
    return Bundle(
        bundle_id, "measured", "{}-{}-{}T{}:{}:{}Z".format(*at.groups()) if at else "", identity, head["passed"],
        _results(files, name.removesuffix(MANIFEST), seen), dict(head["files"]), path=path, schema=FIRST_SCHEMA,
    )  # fmt: skip


def _results(files: Mapping[str, str], prefix: str, read: bool) -> tuple[GateResult, ...]:
    name, seen_name = prefix + RESULTS, prefix + OBSERVATIONS
    rows = parse(_text(files, name), name)
    if not isinstance(rows, list):
        raise BadFile(name, "must be a list of results")
    text = _text(files, seen_name)
    seen = _observations(text, seen_name) if read else None
    known = [row.get("gate") if isinstance(row, dict) else None for row in rows]
    if twice := [n for n, gate in enumerate(known) if gate in known[:n]]:
        raise BadFile(name, f"{known[twice[0]]!r} is named twice", key=f"{twice[0]}.gate")
    if strange := sorted(set(seen or ()) - set(known)):
        raise BadFile(seen_name, f"gate {strange[0]} has observations and no result in {name}")
    return tuple(_result(row, n, name, seen) for n, row in enumerate(rows))


def _result(row: Any, n: int, name: str, seen: Mapping[str, tuple[Observation, ...]] | None) -> GateResult:
    if not isinstance(row, dict) or not isinstance(count := row.get("observations"), int):
        raise BadFile(name, "must be the number of observations", key=f"{n}.observations")
    result = decoded(_RESULT, {k: v for k, v in row.items() if k != "observations"}, name, str(n))
    if seen is None:
        return result
    mine = seen.get(result.gate, ())
    if count != len(mine):
        raise BadFile(name, f"says {count}, there are {len(mine)} of {result.gate}", key=f"{n}.observations")
    return replace(result, observations=mine)


def _observations(text: str, name: str) -> dict[str, tuple[Observation, ...]]:
    found: dict[str, list[Observation]] = {}
    for n, line in enumerate(text.split("\n")[:-1], 1):
        row = parse(line, name, n)
        if not isinstance(row, dict) or not isinstance(gate := row.get("gate"), str):
            raise BadFile(name, "must name its gate", line=n, key="gate")
        facts = {k: v for k, v in row.items() if k not in ("gate", "kind")}
        found.setdefault(gate, []).append(decoded(_OBSERVATION, facts, name, line=n))
    if text and not text.endswith("\n"):
        raise BadFile(name, "its last line is cut off", line=text.count("\n") + 1)
    return {gate: tuple(seen) for gate, seen in found.items()}


def _text(files: Mapping[str, str], name: str) -> str:
    if name not in files:
        raise BadFile(name, "is missing from the bundle")
    return files[name]


def parse(text: str, name: str, line: int | None = None) -> Any:
    """JSON without doubled keys, NaN and infinities; BadFile names file and line."""
    try:
        return json.loads(text, object_pairs_hook=no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as why:
        raise BadFile(name, f"is no JSON document: {why}", line=line) from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def decoded(adapter: TypeAdapter[T], value: Any, name: str, at: str = "", line: int | None = None) -> T:
    """A JSON value as a dataclass: strict types, no unknown key. A key with a default may be absent."""
    try:
        made = adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as why:
        first = why.errors(include_url=False)[0]
        key = ".".join([at, *map(str, first["loc"])]).strip(".")
        raise BadFile(name, first["msg"], line=line, key=key or None) from None
    if odd := _unknown(value, adapter.dump_python(made, mode="json"), at):
        raise BadFile(name, "unknown key, or not a value of its type", line=line, key=odd)
    return made


def _unknown(given: Any, made: Any, at: str) -> str:
    """The first key of `given` that did not come back as it was; "" = all did."""
    if isinstance(given, dict) and isinstance(made, dict):
        pairs = [(k, v, made.get(k, _ABSENT)) for k, v in given.items()]
    elif isinstance(given, list) and isinstance(made, list) and len(given) == len(made):
        pairs = [(str(n), v, made[n]) for n, v in enumerate(given)]
    else:
        return "" if given == made else at or "."
    found = (_unknown(v, m, f"{at}.{k}".strip(".")) for k, v, m in pairs)
    return next((key for key in found if key), "")


_ABSENT = object()
