"""Sentences that cannot be written without their source: a claim is values of a bundle with their places. Pure.

`Fact` is one value and where it stands; `Shown` turns facts into text; a `Claim` is words around shown facts.
The words may hold no figure, so a figure on paper is always one that was looked up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anvil_tui.core.bundle import fact_of, parse
from anvil_tui.core.errors import BadFile
from anvil_tui.core.plots import Chart

NOT_RECORDED = "not recorded"
HASH, SIZE = "#sha256", "#bytes"
"""In place of a JSON pointer: the hash and the size of the whole file."""

# A digit that begins a word is a figure; `p50` and `SHA-256` are names.
_FIGURE = re.compile(r"(?<![A-Za-z0-9])(?<![A-Za-z0-9]-)\d")


@dataclass(frozen=True, slots=True)
class Fact:
    """`file` is a name in the bundle, `pointer` a JSON pointer into it, or `HASH` or `SIZE`.

    An ndjson file is the list of its lines.
    """

    file: str
    pointer: str
    value: Any

    def __getitem__(self, key: str | int) -> Fact:
        """The value under a key or index. What an older bundle does not have is None, with the place around it."""
        try:
            value = self.value[key]
        except (KeyError, IndexError, TypeError):
            return Fact(self.file, self.pointer, None)
        return Fact(self.file, f"{self.pointer}/{escaped(str(key))}", value)

    def __iter__(self) -> Iterator[Fact]:
        """The members of a list or of an object; none of anything else."""
        keys = self.value if isinstance(self.value, Mapping) else range(len(self.value or ()))
        yield from (self[key] for key in keys)


def escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


@dataclass(frozen=True, slots=True)
class Shown:
    """`facts` as text: `how` gets their values. Nothing else is on hand to write a figure from."""

    facts: tuple[Fact, ...]
    how: Callable[..., str]

    def __post_init__(self) -> None:
        if not self.facts:
            raise ValueError("nothing is shown without a fact")

    @property
    def text(self) -> str:
        return self.how(*(f.value for f in self.facts))


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence or table cell. ValueError for words that hold a figure, and for words alone."""

    parts: tuple[str | Shown, ...]

    def __post_init__(self) -> None:
        for part in self.parts:
            if isinstance(part, str) and _FIGURE.search(part):
                raise ValueError(f"{part!r} holds a figure: look it up in the bundle")
        if not self.facts:
            raise ValueError(f"{self.parts!r} has no source")

    @property
    def text(self) -> str:
        return "".join(p if isinstance(p, str) else p.text for p in self.parts)

    @property
    def facts(self) -> tuple[Fact, ...]:
        return tuple(f for p in self.parts if isinstance(p, Shown) for f in p.facts)


def claim(*parts: str | Shown) -> Claim:
    return Claim(parts)


def label(text: str) -> str:
    """A heading, or a name in a table: words that claim nothing. ValueError for a figure."""
    if _FIGURE.search(text):
        raise ValueError(f"{text!r} holds a figure: look it up in the bundle")
    return text


# what a report is made of

Cell = str | Claim


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of the first column may be names; a name holds no figure."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """`lines` are sentences of their own, `bullets` a list, `charts` what the tables above hold as pictures."""

    title: Cell
    lines: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    bullets: tuple[Claim, ...] = ()
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    title: Claim
    sections: tuple[Section, ...]
    public: bool = False


# how values are written


def words(value: Any) -> str:
    return NOT_RECORDED if value is None or value == "" else str(value)


def count(value: Any) -> str:
    """A whole number with thousands marked; a median of whole numbers too."""
    return NOT_RECORDED if value is None else f"{value:,.0f}"


def number(digits: int) -> Callable[[Any], str]:
    """At most so many decimals, none of them a closing zero; thousands marked."""

    def how(value: Any) -> str:
        if value is None:
            return NOT_RECORDED
        text = f"{value:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text

    return how


RATE, SECONDS = number(2), number(3)


def show(fact: Fact, how: Callable[..., str] = words) -> Shown:
    return Shown((fact,), how)


# the documents of a bundle


def documents(files: Mapping[str, str]) -> dict[str, Fact]:
    """File name -> its content as one fact. Of ndjson the value is the list of its lines."""
    return {name: Fact(name, "", _content(name, files[name])) for name in sorted(files)}


def _content(name: str, text: str) -> Any:
    if name.endswith(".ndjson"):
        return [parse(line, name, n) for n, line in enumerate(text.split("\n")[:-1], 1)]
    return parse(text, name)


def looked_up(files: Mapping[str, str], file: str, pointer: str, read: dict[str, Any] | None = None) -> Any:
    """What stands at a place of a ledger. BadFile when there is nothing. `read` keeps what was parsed."""
    if file not in files:
        raise BadFile(file, f"is not in the bundle, yet the ledger points to {pointer or 'it'}")
    if pointer in (HASH, SIZE):
        fact = fact_of(files[file].encode())
        return fact.sha256 if pointer == HASH else fact.bytes
    read = {} if read is None else read
    if file not in read:
        read[file] = _content(file, files[file])
    value = read[file]
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise BadFile(file, f"holds nothing at {pointer}") from None
    return value
