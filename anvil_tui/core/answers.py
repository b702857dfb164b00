"""Reads the one value, list, or block of code that a question asked for out of an answer, and compares it.

A working before the last line is allowed, and the marks that models put around a value; hedging, a second
value and anything after the answer are not. Each check says what is wrong, None = nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from anvil_tui.core.tool_calls import decoded
from anvil_tui.core.verdicts import shown

_MARK = re.compile(
    r"^[ \t\r>*_#`\"'-]*(?:final )?answer[*_`\"' ]*:[*_`]*[ \t]*\n?(.*)$", re.IGNORECASE | re.MULTILINE
)
_BOXED = re.compile(r"\$*\\boxed\{(.*)\}\$*")
_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_AROUND = "*_`\"'“”‘’ \t\n"


def bare(text: str) -> str:
    """A value without emphasis, quotes and one closing mark around it."""
    text = " ".join(text.split()).strip(_AROUND)
    boxed = _BOXED.fullmatch(text.rstrip("."))
    text = boxed[1] if boxed else text
    return text.strip(_AROUND).removesuffix(".").removesuffix("!").strip(_AROUND)


def final_value(content: str) -> tuple[str | None, str]:
    """(the value, what is wrong): of the last line `Answer: VALUE`, or of a message that is one line only."""
    text = content.strip()
    marked = list(_MARK.finditer(text))
    if not marked:
        return (bare(text), "") if "\n" not in text else (None, f"no last line `Answer: VALUE` in {shown(text)}")
    values = {bare(m[1]).casefold() for m in marked}
    if len(values) > 1:
        return None, f"{len(values)} different answers: {shown(' / '.join(m[1] for m in marked))}"
    if text[marked[-1].end() :].strip(_AROUND):
        return None, f"text follows the answer: {shown(text[marked[-1].start() :])}"
    return bare(marked[-1][1]), ""


def value_is(content: str, want: str, *, case: bool = False) -> str | None:
    """Whether the answer is that value. Numbers compare as numbers; lists (commas) item by item, in order."""
    got, why = final_value(content)
    if got is None:
        return why
    wanted, given = _items(want), _items(got)
    same = len(given) == len(wanted) and all(_same(g, w, case) for g, w in zip(given, wanted, strict=True))
    return None if same else f"expected {want!r}, got {shown(got)}"


def _items(text: str) -> list[str]:
    if _GROUPED.fullmatch(text):
        return [text]
    return [bare(part) for part in re.split(r"\s*,\s*(?:and\s+)?", text.strip("[]()"))]


def _same(got: str, want: str, case: bool) -> bool:
    number = _number(want)
    if number is not None and re.fullmatch(r"-?\d+", want):
        return _number(got) == number
    return got == want if case else got.casefold() == want.casefold()


def _number(text: str) -> Decimal | None:
    plain = text.replace(",", "") if _GROUPED.fullmatch(text) else text
    try:
        value = Decimal(plain) if re.fullmatch(r"[-+]?\d+(?:\.\d+)?", plain, re.ASCII) else None
    except InvalidOperation:
        return None
    return value


def one_block(content: str) -> tuple[str | None, str]:
    """(the code, what is wrong): the only fenced block of an answer, or all of one that has no fence."""
    blocks = _FENCED.findall(content if content.endswith("\n") else content + "\n")
    if len(blocks) == 1:
        return str(blocks[0]).removesuffix("\n"), ""
    if blocks:
        return None, f"{len(blocks)} code blocks, not one: {shown(content)}"
    if "```" in content:
        return None, f"the code block is not closed: {shown(content)}"
    return content.strip("\n"), ""


def json_value_is(text: str, want: Any) -> str | None:
    """Whether a text is exactly that JSON value; the order of keys does not matter, types do."""
    try:
        value = decoded(text, strict=True)
    except ValueError as why:
        return f"no JSON ({why}): {shown(text)}"
    return unequal(value, want)


def unequal(value: Any, want: Any, at: str = "") -> str | None:
    """The first difference of two JSON values, named by its place; true is not 1, and 1 is 1.0."""
    where = at or "the value"
    if isinstance(want, dict) and isinstance(value, dict):
        if missing := sorted(want.keys() - value.keys()):
            return f"{where} lacks key {missing[0]}"
        if extra := sorted(value.keys() - want.keys()):
            return f"{where} has the unasked key {shown(extra[0])}"
        found = (unequal(value[k], want[k], f"{at}.{k}" if at else k) for k in want)
        return next((f for f in found if f), None)
    if isinstance(want, list) and isinstance(value, list):
        if len(value) != len(want):
            return f"{where} has {len(value)} items, not {len(want)}"
        found = (unequal(v, w, f"{at}[{n}]") for n, (v, w) in enumerate(zip(value, want, strict=True)))
        return next((f for f in found if f), None)
    if _scalar(value) == _scalar(want):
        return None
    return f"{where} is {shown(json.dumps(value))}, not {json.dumps(want)}"


def _scalar(value: Any) -> tuple[str, Any]:
    if isinstance(value, bool):
        return "boolean", value
    return ("number", value) if isinstance(value, int | float) else (type(value).__name__, value)


def rows_are(got: Sequence[Sequence[Any]], want: Sequence[Sequence[Any]]) -> str | None:
    """Whether a query gave exactly these rows in this order."""
    if len(got) != len(want):
        return f"{len(got)} rows, not {len(want)}"
    for n, (row, wanted) in enumerate(zip(got, want, strict=True)):
        if list(row) != list(wanted):
            return f"row {n} is {shown(str(list(row)))}, not {list(wanted)}"
    return None
