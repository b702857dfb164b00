"""The items of the quality gates: their answers, computed here by other means, and the simulated model's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from anvil_tui.adapters.sandbox import ChildSandbox
from anvil_tui.core.answers import value_is
from anvil_tui.core.chat import ToolCall
from anvil_tui.core.gate_kinds import RETRIEVALS
from anvil_tui.service.gates import coding_items, context_curve, prompts, puzzles, stockroom
from anvil_tui.simbox.answer import answer

ROUNDS = range(1, 121)


def said(*turns: str) -> str:
    messages: list[prompts.Message] = []
    for turn in turns:
        messages.append(prompts.user(turn))
        messages.append({"role": "assistant", "content": answer(messages).content})
    return str(messages[-1]["content"])


def zeller(day: int, month: int, year: int) -> str:
    """Zeller's congruence: the weekday without a calendar library."""
    year, month = (year - 1, month + 12) if month < 3 else (year, month)
    h = (day + 13 * (month + 1) // 5 + year + year // 4 - year // 100 + year // 400) % 7
    return ("Saturday", "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday")[h]


MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def other_way(item: puzzles.Puzzle) -> str:
    """The answer by brute force out of the words of the question."""
    figures = [int(n) for n in re.findall(r"\d+", item.asked)]
    if item.family == "arithmetic":
        left, boxes = figures[0] * figures[1] - figures[2], 0
        while left >= figures[3]:
            left, boxes = left - figures[3], boxes + 1
        return str(boxes)
    if item.family == "time":
        hour, minute, legs, leg, halt, *_ = figures
        for n in range(legs):
            minute += leg + (halt if n < legs - 1 else 0)
        return f"{hour + minute // 60:02}:{minute % 60:02}"
    if item.family == "calendar":
        day, month, year = re.findall(r"(\d+) (\w+) (\d{4})", item.asked)[1]
        return zeller(int(day), MONTHS.index(month[:3]) + 1, int(year))
    if item.family == "ordering":
        pairs = re.findall(r"(\w+) came in directly before (\w+)", item.asked)
        place = {name: sum(1 for _ in _before(name, pairs)) for pair in pairs for name in pair}
        rank = ("first", "second", "third", "fourth", "fifth").index(re.findall(r"in (\w+)\?", item.asked)[0])
        return str(next(name for name, at in place.items() if at == rank))
    if item.family == "sets":
        a, b, c = (held.split(", ") for held in re.findall(r"holds ([\w, ]+)\.", item.asked))
        return ", ".join(sorted(x for x in a if x in b and x not in c))
    words = str(re.findall(r"words: ([\w, ]+)\.", item.asked)[0]).split(", ")
    return "".join(w[-1] for w in words if len(w) not in (5, 7))


def _before(name: str, pairs: list[tuple[str, str]]) -> list[str]:
    earlier = [a for a, b in pairs if b == name]
    return [*earlier, *(x for e in earlier for x in _before(e, pairs))]


def test_puzzles_are_right_differ_and_are_the_same_each_time() -> None:
    items = [puzzles.puzzle("gate", n) for n in ROUNDS]
    assert [(i.family, i.answer) for i in items] == [(i.family, other_way(i)) for i in items]
    assert len({i.family for i in items}) == 6
    assert len({i.asked for i in items}) == len(items)
    assert items == [puzzles.puzzle("gate", n) for n in ROUNDS]
    assert [i.asked for i in items] != [puzzles.puzzle("other", n).asked for n in ROUNDS]


def test_the_simulated_model_solves_the_puzzles_by_their_words() -> None:
    for n in ROUNDS:
        item = puzzles.puzzle("sim", n)
        assert value_is(said(f"{item.asked} {puzzles.END}"), item.answer) is None, item.asked


def test_recall_is_of_the_last_correction() -> None:
    for n in range(1, 41):
        talk = puzzles.conversation("gate", n)
        assert len(talk.turns) == 5
        told = " ".join(talk.turns[:4])
        asked = re.findall(r"the (\w+)", talk.turns[4])[:4]
        want = [
            re.findall(rf"{place}(?: again)?(?: is|: its code is) ([\w-]+)", told)[-1]
            for place in asked
            if place in told
        ]
        assert talk.answer == ", ".join(want)
        assert len(set(want)) == 3
        assert said(*talk.turns) == talk.answer
        assert said(*talk.turns[:1]) == "noted"


@pytest.mark.parametrize("retrieval", RETRIEVALS)
@pytest.mark.parametrize("at", [0, 5, 50, 95, 100])
def test_lookups_stand_where_they_should_and_are_found(retrieval: str, at: int) -> None:
    for n in range(6):
        item = context_curve.lookup(retrieval, f"s{n}", at)
        text = item.prompt(200)
        assert all(text.count(fact) == 1 for _, fact in item.facts)
        where = text.index(item.facts[0][1]) / len(text) * 100
        assert abs(where - at) < 12, f"{where} is not near {at}"
        for code in item.answer.split(", "):
            assert text.count(code) == 1, "the answer stands in the notes once, and not in the question"
        assert said(text) == item.answer
    codes = {context_curve.lookup(retrieval, f"s{n}", at).answer for n in range(6)}
    assert len(codes) == 6


def test_a_pair_is_wanted_in_the_order_of_the_notes() -> None:
    for at in (10, 90):
        item = context_curve.lookup("pair", "x", at)
        text = item.prompt(100)
        first, second = item.answer.split(", ")
        assert text.index(first) < text.index(second)


def test_every_coding_item_is_solved_by_a_right_answer() -> None:
    sandbox = ChildSandbox()
    for n in range(1, 17):
        item = coding_items.coding_item("gate", n)
        assert item.wrong(said(item.asked), sandbox) is None, item.asked


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(0, "c1", name, json.dumps(arguments))


def half() -> stockroom.Stockroom:
    return stockroom.stockroom("gate", 1)


def test_the_stockroom_takes_the_right_calls_and_no_others() -> None:
    room = half()
    source, target = re.findall(r"of the (\w+) must go to the (\w+)", room.asked)[0]
    held, there = room.stock[source], room.stock[target]
    assert room.unfinished() == "move_crates was never called as asked"
    assert room.call(call("count_crates", place=source)) == (json.dumps({"place": source, "crates": held}), "")
    assert room.call(call("move_crates", source=source, target=target, count=held // 2)) == (
        json.dumps({"moved": held // 2}),
        "",
    )
    assert room.unfinished() is None
    assert room.stock[source] == held - held // 2
    assert room.answer == str(there + held // 2)
    assert "no change was due" in room.call(call("move_crates", source=source, target=target, count=1))[1]


WRONG_CALLS: dict[str, tuple[Callable[[str, str, int], ToolCall], str]] = {
    "unknown tool": (lambda s, t, n: call("count", place=s), "which is no tool"),
    "unknown place": (lambda s, t, n: call("count_crates", place="moon"), "no place of the task"),
    "missing key": (lambda s, t, n: call("move_crates", source=s, target=t), "has not the keys"),
    "extra key": (lambda s, t, n: call("count_crates", place=s, why="x"), "has not the keys"),
    "text for a number": (lambda s, t, n: call("move_crates", source=s, target=t, count=str(n)), "malformed call"),
    "true for a number": (lambda s, t, n: call("move_crates", source=s, target=t, count=True), "malformed call"),
    "one too many": (lambda s, t, n: call("move_crates", source=s, target=t, count=n + 1), "was due"),
    "wrong way": (lambda s, t, n: call("move_crates", source=t, target=s, count=n), "was due"),
    "unasked": (lambda s, t, n: call("lock_place", place=s), "was due"),
    "no JSON": (lambda s, t, n: ToolCall(0, "c", "count_crates", "{place:"), "no JSON"),
    "twice encoded": (
        lambda s, t, n: ToolCall(0, "c", "count_crates", json.dumps(json.dumps({"place": s}))), "double_encoded",
    ),
    "no object": (lambda s, t, n: ToolCall(0, "c", "count_crates", "[1]"), "malformed call"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_a_wrong_call_is_named_and_changes_nothing(case: str) -> None:
    """O-60 among them: arguments that are encoded twice."""
    room = half()
    source, target = re.findall(r"of the (\w+) must go to the (\w+)", room.asked)[0]
    before = dict(room.stock)
    make, words = WRONG_CALLS[case]
    said, wrong = room.call(make(source, target, room.stock[source] // 2))
    assert words in wrong and said == ""
    assert room.stock == before and room.unfinished() is not None
