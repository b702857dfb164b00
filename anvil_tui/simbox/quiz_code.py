"""The code that the simulated model can write: a query, a pattern, a diff, a document, from their descriptions."""

from __future__ import annotations

import difflib
import json
import re

_NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5}
_CLASSES = {"capital letters": "[A-Z]", "small letters": "[a-z]", "digits": "[0-9]"}
_MARKS = {"a hyphen": "-", "an underscore": "_", "a slash": "/", "a full stop": r"\."}


def write(text: str) -> str | None:
    """One fenced block, or None when the description is none of these."""
    for rule in (_query, _pattern, _diff, _document):
        if (made := rule(text)) is not None:
            return f"```\n{made}\n```"
    return None


def _query(text: str) -> str | None:
    found = re.search(r"for every shop in (\w+), .* of its sales of all goods except '(\w+)'", text)
    if not found:
        return None
    return (
        "SELECT shops.name, COALESCE(SUM(sales.amount), 0) AS total FROM shops LEFT JOIN sales "
        f"ON sales.shop_id = shops.id AND sales.good <> '{found[2]}' WHERE shops.city = '{found[1]}' "
        "GROUP BY shops.id ORDER BY total DESC, shops.name"
    )


def _pattern(text: str) -> str | None:
    group = rf"exactly ({'|'.join(_NUMBERS)}) ({'|'.join(_CLASSES)}) \(ASCII\)"
    groups = [f"{_CLASSES[kind]}{{{_NUMBERS[n]}}}" for n, kind in re.findall(group, text)]
    marks = [_MARKS[m] for m in re.findall("|".join(_MARKS), text)]
    if "re.fullmatch" not in text or len(groups) != 3 or len(marks) != 2:
        return None
    return f"{groups[0]}{marks[0]}{groups[1]}(?:{marks[1]}{groups[2]})?"


def _diff(text: str) -> str | None:
    found = re.search(
        r"```\n(.*?)```\s+Change the value of (\w+) to (\d+), remove the line of (\w+), "
        r"and add the line `([^`]+)` directly after the line of (\w+)\.", text, re.DOTALL,
    )  # fmt: skip
    if not found:
        return None
    old, changed, value, removed, added, after = found.groups()
    new: list[str] = []
    for line in old.splitlines():
        name = line.split(" ")[0]
        new += [f"{changed} = {value}"] if name == changed else [] if name == removed else [line]
        new += [added] if name == after else []
    return "\n".join(difflib.unified_diff(old.splitlines(), new, "settings.conf", "settings.conf", lineterm=""))


def _document(text: str) -> str | None:
    found = re.search(
        r"Transform this JSON document:\s+```\n(.*?)\n```.*\"owner\" with the value \"(\w+)\"", text, re.S
    )
    if not found:
        return None
    kept = sorted((r for r in json.loads(found[1]) if r["enabled"]), key=lambda r: str(r["name"]))
    services = [{"id": r["name"].lower(), "port": int(r["port"])} for r in kept]
    return json.dumps({"owner": found[2], "services": services})
