"""Coding items whose answers are checked without running them as programs: a query, a pattern, a diff, a document.

What is right is computed here from the values, never by asking the thing under test.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anvil_tui.core.answers import json_value_is, one_block, rows_are
from anvil_tui.core.patch import apply_diff
from anvil_tui.core.verdicts import shown
from anvil_tui.ports import Sandbox

_CITIES = ("Lisbon", "Oslo", "Nairobi", "Quito", "Osaka", "Tunis", "Perth", "Lima")
_SHOPS = ("Anchor", "Beacon", "Cedar", "Dune", "Ember", "Fjord", "Grove", "Haven", "Islet", "Juniper")
_GOODS = ("rope", "lamp", "kettle", "map", "bell", "jar")
BLOCK = "Reply with one fenced code block that holds only"


@dataclass(frozen=True, slots=True)
class CodingItem:
    """`check(code, sandbox)` says what is wrong with the code block of an answer, None = nothing."""

    family: str
    asked: str
    check: Callable[[str, Sandbox], str | None]

    def wrong(self, content: str, sandbox: Sandbox) -> str | None:
        text, why = one_block(content)
        return why if text is None else self.check(text, sandbox)


def coding_item(seed: str, n: int) -> CodingItem:
    """Item `n` (from 1) of a seed: the families take turns."""
    return (query, pattern, diff, document)[(n - 1) % 4](random.Random(f"coding/{seed}/{n}"))


_SCHEMA = """CREATE TABLE shops (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL);
CREATE TABLE sales (id INTEGER PRIMARY KEY, shop_id INTEGER NOT NULL, good TEXT NOT NULL, amount INTEGER);"""


def query(pick: random.Random) -> CodingItem:
    """Shops of one city by the sum of what they sold, those that sold nothing included as 0."""
    cities = pick.sample(_CITIES, 3)
    shops = [(n, name, pick.choice(cities)) for n, name in enumerate(pick.sample(_SHOPS, 9), 1)]
    shops[0] = (1, shops[0][1], cities[0])
    silent = 1
    sales = [
        (n, pick.choice([s[0] for s in shops if s[0] != silent]), pick.choice(_GOODS), pick.randrange(5, 90))
        for n in range(1, 41)
    ]
    good = pick.choice(_GOODS)
    sums = {s[0]: sum(x[3] for x in sales if x[1] == s[0] and x[2] != good) for s in shops}
    want = sorted(((s[1], sums[s[0]]) for s in shops if s[2] == cities[0]), key=lambda row: (-row[1], row[0]))
    script = _SCHEMA + "".join(
        f"INSERT INTO {table} VALUES {row};"
        for table, rows in (("shops", shops), ("sales", sales))
        for row in rows
    )
    asked = (
        f"Given these SQLite tables:\n\n{_SCHEMA}\n\nWrite one SELECT that gives, for every shop in {cities[0]}, "
        f"its name and the sum of the amounts of its sales of all goods except '{good}'. A shop without such "
        f"sales has the sum 0. Order by the sum, largest first, then by name. {BLOCK} the query."
    )

    def check(sql: str, sandbox: Sandbox) -> str | None:
        trial = sandbox.query(script, sql)
        return trial.wrong or rows_are(trial.value, want)

    return CodingItem("query", asked, check)


_PARTS: tuple[tuple[str, str], ...] = (
    ("capital letters", "BCDFGHJKLMNPQRSTVWXZ"),
    ("digits", "0123456789"),
    ("small letters", "abcdefghijkmnopqrstuvwxyz"),
)
_NUMBERS = ("zero", "one", "two", "three", "four", "five")


def pattern(pick: random.Random) -> CodingItem:
    """A serial number of three groups, the last of them optional."""
    groups = [(pick.randrange(2, 6), *part) for part in pick.sample(_PARTS, 3)]
    joint, tail = pick.sample(("-", "_", "/", "."), 2)
    names = {"-": "a hyphen", "_": "an underscore", "/": "a slash", ".": "a full stop"}
    made = ["".join(pick.choice(letters) for _ in range(n)) for n, _, letters in groups]
    short, whole = f"{made[0]}{joint}{made[1]}", f"{made[0]}{joint}{made[1]}{tail}{made[2]}"
    good = (short, whole)
    bad = (
        "", whole + "\n", " " + short, short + "x", f"{short}{tail}", made[0] + made[1],
        f"{made[0]}{tail}{made[1]}", f"{made[0][1:]}{joint}{made[1]}", f"{made[0]}{joint}{made[1][1:]}",
        f"{short}{tail}{made[2][1:]}", f"{short}{joint}{made[2]}", f"{made[0]}#{made[1]}", whole.swapcase(),
        f"{short}\n{short}", f"{made[1]}{joint}{made[0]}",
    )  # fmt: skip
    told = [f"{_NUMBERS[n]} {what}" for n, what, _ in groups]
    asked = (
        f"Write a regular expression for Python's re.fullmatch that fits a serial number: exactly {told[0]} "
        f"(ASCII), then {names[joint]}, then exactly {told[1]} (ASCII), and after that, optionally, {names[tail]} "
        f"with exactly {told[2]} (ASCII). Nothing else may fit. {BLOCK} the regular expression, without quotes."
    )

    def check(text: str, sandbox: Sandbox) -> str | None:
        texts = tuple(dict.fromkeys((*good, *bad)))
        trial = sandbox.matches(text.strip(), texts)
        wrong = [t for t, fits in zip(texts, trial.value, strict=False) if fits != (t in good)]
        if trial.wrong or not wrong:
            return trial.wrong or None
        return f"{shown(text)} {'does not fit' if wrong[0] in good else 'fits'} {wrong[0]!r}"

    return CodingItem("pattern", asked, check)


def diff(pick: random.Random) -> CodingItem:
    """A settings file with one value to change, one line to remove, one to add."""
    names = pick.sample(("retries", "timeout", "workers", "port", "depth", "window", "burst", "limit", "queue"), 7)
    lines = [f"{name} = {pick.randrange(10, 99)}" for name in names]
    text = "# settings\n[server]\n" + "\n".join(lines[:4]) + "\n\n[client]\n" + "\n".join(lines[4:]) + "\n"
    value, added = pick.randrange(100, 999), pick.choice(("verbose = true", "strict = false", "trace = true"))
    changed, removed, after = names[1], names[3], names[5]
    kept = [f"{changed} = {value}" if line.startswith(f"{changed} ") else line for line in text.splitlines()]
    at = kept.index(next(line for line in kept if line.startswith(f"{after} ")))
    want = "\n".join(
        line for line in (*kept[: at + 1], added, *kept[at + 1 :]) if not line.startswith(f"{removed} ")
    )
    asked = (
        f"Here is the file settings.conf:\n\n```\n{text}```\n\nChange the value of {changed} to {value}, remove "
        f"the line of {removed}, and add the line `{added}` directly after the line of {after}. Change nothing "
        f"else. {BLOCK} a unified diff against the file."
    )

    def check(made: str, sandbox: Sandbox) -> str | None:
        got, why = apply_diff(text, made)
        if got is None:
            return why
        odd = next((a for a, b in zip(got.splitlines(), want.splitlines(), strict=False) if a != b), "its length")
        return None if got == want + "\n" else f"the diff makes another file; first difference: {shown(odd)}"

    return CodingItem("diff", asked, check)


def document(pick: random.Random) -> CodingItem:
    """A list of records to be filtered, renamed, converted and sorted."""
    names = pick.sample(_SHOPS, 6)
    records: list[dict[str, Any]] = [
        {"name": n, "port": str(pick.randrange(1000, 9999)), "enabled": pick.random() < 0.6, "note": None}
        for n in names
    ]
    records[0], records[1] = {**records[0], "enabled": True}, {**records[1], "enabled": False}
    owner = pick.choice(("ops", "lab", "web"))
    kept = sorted((r for r in records if r["enabled"]), key=lambda r: str(r["name"]))
    want = {"owner": owner, "services": [{"id": r["name"].lower(), "port": int(r["port"])} for r in kept]}
    asked = (
        f"Transform this JSON document:\n\n```\n{json.dumps(records, indent=1)}\n```\n\nThe result is an object "
        f'with two keys: "owner" with the value "{owner}", and "services", a list of those records that are '
        'enabled, ordered by name. Each of its records has only the keys "id" (the name in small letters) and '
        '"port" (as a number). '
        f"{BLOCK} the resulting JSON."
    )
    return CodingItem("document", asked, lambda text, sandbox: json_value_is(text, want))
