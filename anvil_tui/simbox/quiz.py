"""What the simulated model can work out: small puzzles, facts over turns, lookups in long notes, a stockroom.

Every answer is computed from the words of the conversation; a question of another wording is not understood.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from anvil_tui.simbox.quiz_code import write
from anvil_tui.simbox.tokens import text_of

Message = Mapping[str, Any]
TAIL = 600  # a question stands at the end of long notes

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_RANKS = ("first", "second", "third", "fourth", "fifth")


def solve(messages: Sequence[Message]) -> tuple[str, str] | None:
    """(answer, name of the rule) to the last message; None when no rule fits."""
    text = text_of(messages[-1])
    for rule in (_depot, _train, _race, _weekday, _baskets, _letters):
        if len(text) <= 4 * TAIL and (found := rule(text)) is not None:
            return f"Answer: {found}", "reasoned"
    if (found := _recalled(messages)) is not None:
        return found, "recalled"
    for look in (_pair, _present, _badge):
        if (found := look(text)) is not None:
            return found, "read in the notes"
    code = write(text) if len(text) <= 10 * TAIL else None
    return None if code is None else (code, "wrote code")


def _depot(text: str) -> str | None:
    if "boxes are sent" not in text or len(figures := re.findall(r"\d+", text)) != 4:
        return None
    crates, each, broken, box = map(int, figures)
    return str((crates * each - broken) // box)


def _train(text: str) -> str | None:
    found = re.search(
        r"leaves at (\d+):(\d+)\. It makes (\d+) legs of (\d+) minutes .* halt of (\d+) minutes", text
    )
    if not found:
        return None
    hour, minute, legs, leg, halt = map(int, found.groups())
    end = 60 * hour + minute + legs * leg + (legs - 1) * halt
    return f"{end // 60 % 24:02}:{end % 60:02}"


def _race(text: str) -> str | None:
    after = dict(re.findall(r"(\w+) came in directly before (\w+)\.", text))
    asked = re.search(r"Who came in (\w+)\?", text)
    if not after or not asked or asked[1] not in _RANKS:
        return None
    runners = [next(iter(after.keys() - after.values()))]
    while runners[-1] in after:
        runners.append(after[runners[-1]])
    return str(runners[_RANKS.index(asked[1])])


def _weekday(text: str) -> str | None:
    days = re.findall(rf"(\d+) ({'|'.join(_MONTHS)}) (\d{{4}})", text)
    if "day of the week" not in text or len(days) != 2:
        return None
    day, month, year = days[1]
    return _DAYS[date(int(year), _MONTHS.index(month) + 1, int(day)).weekday()]


def _baskets(text: str) -> str | None:
    held = {name: set(kinds.split(", ")) for name, kinds in re.findall(r"Basket (\w) holds ([\w, ]+)\.", text)}
    asked = re.search(r"both in basket (\w) and in basket (\w), but not in basket (\w)", text)
    if not asked or set(asked.groups()) - held.keys():
        return None
    return ", ".join(sorted(held[asked[1]] & held[asked[2]] - held[asked[3]]))


def _letters(text: str) -> str | None:
    found = re.search(r"Take these words: ([\w, ]+)\. Leave out every word with an odd number of letters", text)
    return "".join(w[-1] for w in found[1].split(", ") if len(w) % 2 == 0) if found else None


def _recalled(messages: Sequence[Message]) -> str | None:
    asked = re.search(
        r"What are the codes of the (\w+), the (\w+) and the (\w+) now\?", text_of(messages[-1])[-TAIL:]
    )
    if not asked:
        return None
    said = " ".join(text_of(m) for m in messages if m.get("role") == "user")
    facts = re.findall(r"(?:code of|wrong about) the (\w+)(?: again)?(?: is|: its code is) ([A-Z]+-\d+)", said)
    codes = dict(facts)
    return ", ".join(codes.get(place, "unknown") for place in asked.groups())


def _pair(text: str) -> str | None:
    asked = re.search(r"marks of the two parcels that were left at the (\w+)\?", text[-TAIL:])
    return ", ".join(re.findall(rf"parcel marked (\S+) was left at the {asked[1]}\.", text)) if asked else None


def _present(text: str) -> str | None:
    asked = re.search(r"What is the (present gate code of the \w+)\?", text[-TAIL:])
    return _one(rf"The {asked[1]} is (\S+)\.", text) if asked else None


def _badge(text: str) -> str | None:
    asked = re.search(r"badge number of the keeper of the (\w+)\?", text[-TAIL:])
    keeper = _one(rf"The keeper of the {asked[1]} is (\w+)\.", text) if asked else None
    return _one(rf"The badge number of {keeper} is (\S+)\.", text) if keeper else None


def _one(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text)
    return str(found[1]) if found else None


# The stockroom: what to call next, by what has been called


Done = tuple[str, Mapping[str, Any], Mapping[str, Any]]
Step = tuple[str, dict[str, Any]] | str


def step(messages: Sequence[Message]) -> Step | None:
    """The next call as (name, arguments), the last answer as text, or None when this is no stockroom."""
    asked = next((text_of(m) for m in messages if m.get("role") == "user"), "")
    for pattern, plan in _PLANS:
        if found := re.search(pattern, asked):
            return plan(found.groups(), _done(messages))
    return None


def _done(messages: Sequence[Message]) -> list[Done]:
    results = {m.get("tool_call_id"): text_of(m) for m in messages if m.get("role") == "tool"}
    calls = [c for m in messages for c in m.get("tool_calls") or ()]
    return [
        (c["function"]["name"], json.loads(c["function"]["arguments"]), json.loads(results[c["id"]]))
        for c in calls if c.get("id") in results
    ]  # fmt: skip


def _counted(done: Sequence[Done], place: str) -> int | None:
    seen = [result["crates"] for name, given, result in done if name == "count_crates" and given["place"] == place]
    return seen[-1] if seen else None


def _after(done: Sequence[Done], name: str) -> list[Done] | None:
    """What was done after that call, None = it was not made."""
    at = [n for n, (made, _, _) in enumerate(done) if made == name]
    return list(done[at[-1] + 1 :]) if at else None


def _half(places: Sequence[str], done: Sequence[Done]) -> Step:
    source, target = places
    held, after = _counted(done, source), _after(done, "move_crates")
    if held is None:
        return "count_crates", {"place": source}
    if after is None:
        return "move_crates", {"source": source, "target": target, "count": held // 2}
    end = _counted(after, target)
    return ("count_crates", {"place": target}) if end is None else f"Answer: {end}"


def _fewest(places: Sequence[str], done: Sequence[Done]) -> Step:
    *three, target = places
    held = {place: _counted(done, place) for place in three}
    unknown = [place for place, count in held.items() if count is None]
    if unknown:
        return "count_crates", {"place": unknown[0]}
    after = _after(done, "move_crates")
    if after is None:
        count, source = min((count, place) for place, count in held.items() if count is not None)
        return "move_crates", {"source": source, "target": target, "count": count}
    if _after(done, "lock_place") is None:
        moved = next(given for name, given, _ in done if name == "move_crates")
        return "lock_place", {"place": moved["source"]}
    end = _counted(after, target)
    return ("count_crates", {"place": target}) if end is None else f"Answer: {end}"


_PLANS: tuple[tuple[str, Callable[[Sequence[str], Sequence[Done]], Step]], ...] = (
    (r"Half of the crates of the (\w+) must go to the (\w+)\.", _half),
    (r"Look at the (\w+), the (\w+) and the (\w+)\. Move all crates .* the fewest to the (\w+),", _fewest),
)  # fmt: skip
