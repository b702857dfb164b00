"""The closing sections of a report: free memory, what failed or is unknown, what is not proven, files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anvil_tui.core.bundle import IDENTITY, MANIFEST, OBSERVATIONS, RESULTS, Bundle
from anvil_tui.core.claims import (
    HASH,
    SIZE,
    Cell,
    Claim,
    Fact,
    Section,
    Shown,
    Table,
    claim,
    count,
    label,
    looked_up,
    show,
)

FAILED = "failed requests"
"""Among what a row misses: its record does not say how many requests failed."""


@dataclass(frozen=True, slots=True)
class Source:
    """The documents of one bundle as the builder meets them. `removed` is what a public report does not have."""

    bundle: Bundle
    files: Mapping[str, str]
    identity: Fact
    about: Fact
    results: Fact
    observations: Fact
    manifest: Fact
    public: bool
    removed: Mapping[str, Mapping[str, int]]


def seen(s: Source, result: Fact) -> list[Fact]:
    """The observations of one gate."""
    return [o for o in s.observations if o["gate"].value == result["gate"].value]


def completed(row: Fact) -> Shown:
    return Shown((row["requests"], row["failed"], row["missing"]), completed_text)


def completed_text(asked: Any, bad: Any, missing: Any) -> str:
    """`5/5 completed`; a record that does not say what failed has no such figure."""
    return f"{asked} made" if FAILED in (missing or ()) else f"{asked - bad}/{asked} completed"


def verdict(result: Fact) -> Shown:
    return Shown(
        (result["verdict"], result["accepted"]), lambda v, ok: f"{v}, accepted by its rule" if ok else str(v)
    )


# free memory


def memory(s: Source) -> Section:
    """Free MiB a card as the reserve gates read it; the order of cards is the order of the reading."""
    rows: list[tuple[Cell, ...]] = []
    for o in (o for o in s.observations if o["kind"].value == "reserve"):
        moments = (("free_mib", claim(show(o["raw"]["when"]))), ("least_free_mib", label("least seen")))
        for key, moment in moments:
            cards = tuple(o["raw"][key])
            if cards:
                rows.append(
                    (claim(show(o["gate"])), moment, claim(Shown(cards, _cards), " MiB"),
                     claim(show(o["raw"]["reserve_mib"], count), " MiB"))
                )  # fmt: skip
    table = Table(("Gate", "Moment", "Free on each card", "Reserve"), tuple(rows))
    return Section(label("Free memory"), tables=(table,) if rows else ())


def _cards(*free: Any) -> str:
    return " / ".join(count(f) for f in free)


# failures and caveats


def caveats(s: Source) -> tuple[Claim, ...]:
    found = [_not_passed(r) for r in s.results if r["verdict"].value != "passed"]
    for result in s.results:
        rows = list(result["rows"])
        common = set(rows[0]["missing"].value or ()) if len(rows) > 1 else set()
        common &= set.intersection(*(set(row["missing"].value or ()) for row in rows)) if rows else set()
        if common:
            shared = tuple(f for f in rows[0]["missing"] if f.value in common)
            found.append(
                claim("Gate ", show(result["gate"]), ", all rows: not recorded: ", Shown(shared, _joined), ".")
            )
        found += [c for row in rows for c in _row_caveats(result, row, common)]
    found += [claim(show(note)) for note in s.about["notes"]]
    blank = tuple(f for f in s.identity if f.value in (None, ""))
    if blank:
        found.append(claim("Not recorded of the setup: ", Shown(blank, lambda *_: _keys(blank)), "."))
    return tuple(found)


def _keys(facts: tuple[Fact, ...]) -> str:
    return ", ".join(f.pointer.rsplit("/", 1)[-1] for f in facts)


def _not_passed(result: Fact) -> Claim:
    classes = Shown(tuple(result["failures"]) or (result["failures"],), _classes)
    return claim("Gate ", show(result["gate"]), ": ", verdict(result), classes, "; ", show(result["reason"]))


def _classes(*classes: Any) -> str:
    known = [c for c in classes if isinstance(c, str)]
    return f" ({', '.join(known)})" if known else ""


def _joined(*texts: Any) -> str:
    return ", ".join(texts)


def _row_caveats(result: Fact, row: Fact, common: set[str]) -> list[Claim]:
    named = ("Gate ", show(result["gate"]), ", row ", show(row["label"]))
    found = []
    if row["failed"].value:
        found.append(
            claim(*named, ": ", show(row["failed"], count), " of ", show(row["requests"], count), " failed.")
        )
    if row["instrument"]["invalid"].value:
        found.append(claim(*named, ": its times must not be used: ", show(row["instrument"]["invalid"]), "."))
    found += [claim(*named, ": ", show(note), ".") for note in row["notes"]]
    absent = tuple(f for f in row["missing"] if f.value not in common)
    if absent:
        found.append(claim(*named, ": not recorded: ", Shown(absent, _joined), "."))
    return found


# the boundary


def boundary(s: Source) -> tuple[Claim, ...]:
    i = s.identity
    found = [
        claim(
            "This evidence covers recipe digest ", show(i["recipe_digest"]), " in image ", show(i["image"]),
            ", model revision ", show(i["revision"]), ", judged by suite digest ", show(i["suite_digest"]),
            ". Another revision, image, GPU product, KV type, context or speculation is another qualification.",
        ),
        _load(s),
    ]  # fmt: skip
    if deepest := _deepest(s):
        found.append(claim("The longest prompt that the record counts has ", show(deepest, count), " tokens of ",
                           show(i["context_tokens"], count), " configured."))  # fmt: skip
    if s.manifest["passed"].value is False:
        found.append(
            claim("It qualifies nothing: ", show(s.manifest["passed"], lambda _: "the suite did not pass"), ".")
        )
    return tuple(found)


def _load(s: Source) -> Claim:
    ceiling = ("The scheduler is configured for C", show(s.identity["concurrency"], count), "; ")
    rows = [row for r in s.results for row in r["rows"]]
    whole = [row for row in rows if not row["failed"].value and FAILED not in (row["missing"].value or ())]
    if not whole:
        return claim(*ceiling, "no load was measured, so this is a ceiling and no capacity.")
    most = max(whole, key=lambda row: (row["streams"].value, _tokens(row)))
    return claim(
        *ceiling, "the largest load measured without a failure is C", show(most["streams"], count), " at ",
        Shown((most["prompt_tokens"]["p50"], most["nominal_tokens"]), _depth), ".",
    )  # fmt: skip


def _tokens(row: Fact) -> float:
    return float(row["prompt_tokens"]["p50"].value or row["nominal_tokens"].value or 0)


def _depth(actual: Any, nominal: Any) -> str:
    if actual is not None:
        return f"{actual:,.0f} prompt tokens a request, counted by the engine"
    return "a depth that is not recorded" if nominal is None else f"nominal {nominal:,} tokens a request"


def _deepest(s: Source) -> Fact | None:
    rows = [row["prompt_tokens"] for r in s.results for row in r["rows"]]
    of_each = [n if (n := o.get("prompt_tokens")) is not None else -1 for o in s.observations.value]
    most = [s.observations[of_each.index(max(of_each))]["prompt_tokens"]] if of_each else []
    known = [f for f in (*(r["high"] for r in rows), *(r["p50"] for r in rows), *most) if f.value is not None]
    return max(known, key=lambda f: f.value, default=None)


# the files


def kept_files(s: Source) -> Section:
    """Every file of the private source with its size and hash, the manifest included."""
    m = s.manifest
    names = dict(m["files"].value)
    rows: list[tuple[Cell, ...]] = [
        (claim(Shown((m["files"][n],), lambda _, n=n: n)), claim(show(m["files"][n]["bytes"], count)),
         claim(show(m["files"][n]["sha256"])))
        for n in names
    ]  # fmt: skip
    size, digest = (Fact(m.file, at, looked_up(s.files, m.file, at)) for at in (SIZE, HASH))
    rows.append((claim(Shown((digest,), lambda _: m.file)), claim(show(size, count)), claim(show(digest))))
    about = claim("Bundle ", show(m["id"]), ", ", show(m["schema"]), ", ", show(m["kind"]), ".")
    return Section(label("Evidence files"), (about,), (Table(("File", "Bytes", "SHA-256"), tuple(rows)),))


def not_published(s: Source) -> Section:
    """Which fields of the private source are not here, and how often; each points to its whole file."""
    rows: list[tuple[Cell, ...]] = []
    for name, fields in s.removed.items():
        private = Fact(name, "", None)
        short = next(k for k in (IDENTITY, RESULTS, OBSERVATIONS, MANIFEST) if name.endswith(k))
        rows += [
            (
                claim(Shown((private,), lambda _, at=f"{short}: {at}": at)),
                claim(Shown((private,), lambda _, n=n: count(n))),
            )
            for at, n in fields.items()
        ]
    whole = sum(sum(fields.values()) for fields in s.removed.values())
    about = claim(
        "Made for publication from the private bundle whose files stand above. Values removed: ",
        Shown(tuple(Fact(name, "", None) for name in s.removed), lambda *_: count(whole)),
        ". Endpoints, cards, paths, reasons in free text, prompts and what models wrote are not in it; of the "
        "container it has the short name in the names of files.",
    )
    table = Table(("Field", "Values"), tuple(rows))
    return Section(label("Removed from this public copy"), (about,), (table,) if rows else ())
