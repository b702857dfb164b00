"""Small questions with one exact answer each, and conversations with corrections. The seed decides every value.

Answers are computed here from the values; the words of a question hold all that is needed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise

from anvil_tui.service.gates.prompts import code

END = "Work it out as you like, then end with one last line of the form `Answer: VALUE`."

_PEOPLE = ("Ada", "Bea", "Carl", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivan", "Jule")
_THINGS = ("lamps", "kettles", "ropes", "maps", "ledgers", "wheels", "bells", "jars")
_FRUIT = ("apple", "cherry", "fig", "grape", "lemon", "mango", "olive", "peach", "plum", "quince", "melon")
_WORDS = ("amber", "basket", "candle", "desert", "engine", "forest", "garden", "hammer", "island", "jacket",
          "kitchen", "ladder", "mirror", "orchid", "pepper", "ribbon", "saddle", "tunnel", "violin")  # fmt: skip
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
PLACES = ("harbour", "orchard", "granary", "lighthouse", "quarry", "tannery", "foundry", "chapel")
_RANKS = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True, slots=True)
class Puzzle:
    """`family` names the kind of thinking, `answer` is what `core.answers.value_is` compares with."""

    family: str
    asked: str
    answer: str


def _crates(pick: random.Random) -> Puzzle:
    crates, each, box = pick.randrange(13, 40), pick.randrange(12, 30), pick.choice((7, 8, 9, 11, 12))
    broken, thing = pick.randrange(15, 60), pick.choice(_THINGS)
    asked = (
        f"A depot holds {crates} crates with {each} {thing} in each. {broken} {thing} are broken and are thrown "
        f"away. The others are packed into boxes of {box}, and only full boxes are sent. How many boxes are sent?"
    )
    return Puzzle("arithmetic", asked, str((crates * each - broken) // box))


def _ride(pick: random.Random) -> Puzzle:
    start, legs = pick.randrange(7 * 60, 12 * 60), pick.randrange(3, 6)
    leg, stop = pick.randrange(37, 95), pick.randrange(4, 19)
    end = start + legs * leg + (legs - 1) * stop
    asked = (
        f"A train leaves at {start // 60:02}:{start % 60:02}. It makes {legs} legs of {leg} minutes each, with a "
        f"halt of {stop} minutes between two legs. When does it arrive? Give the time as HH:MM, by 24 hours."
    )
    return Puzzle("time", asked, f"{end // 60 % 24:02}:{end % 60:02}")


def _order(pick: random.Random) -> Puzzle:
    people = pick.sample(_PEOPLE, 5)
    clues = [f"{a} came in directly before {b}." for a, b in pairwise(people)]
    pick.shuffle(clues)
    rank = pick.randrange(5)
    asked = f"Five people ran a race. {' '.join(clues)} Who came in {_RANKS[rank]}?"
    return Puzzle("ordering", asked, people[rank])


def _weekday(pick: random.Random) -> Puzzle:
    day = date(2024, 1, 1) + timedelta(days=pick.randrange(365 * 6))
    later = day + timedelta(days=pick.randrange(40, 200))
    asked = f"{_told(day)} is a {_DAYS[day.weekday()]}. What day of the week is {_told(later)}?"
    return Puzzle("calendar", asked, _DAYS[later.weekday()])


def _told(day: date) -> str:
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def _sets(pick: random.Random) -> Puzzle:
    while True:
        baskets = [pick.sample(_FRUIT, 6) for _ in range(3)]
        left = sorted((set(baskets[0]) & set(baskets[1])) - set(baskets[2]))
        if len(left) >= 2:
            break
    told = " ".join(f"Basket {name} holds {', '.join(held)}." for name, held in zip("ABC", baskets, strict=True))
    asked = (
        f"{told} Which kinds are both in basket A and in basket B, but not in basket C? "
        "Give them in alphabetical order, separated by commas."
    )
    return Puzzle("sets", asked, ", ".join(left))


def _letters(pick: random.Random) -> Puzzle:
    words = pick.sample(_WORDS, 5)
    kept = [w for w in words if len(w) % 2 == 0]
    if len(kept) < 2:
        return _letters(pick)
    asked = (
        f"Take these words: {', '.join(words)}. Leave out every word with an odd number of letters. "
        "Join the last letters of the others, in the order given, into one word of small letters."
    )
    return Puzzle("letters", asked, "".join(w[-1] for w in kept))


FAMILIES: tuple[Callable[[random.Random], Puzzle], ...] = (_crates, _ride, _order, _weekday, _sets, _letters)


def puzzle(seed: str, n: int) -> Puzzle:
    """Item `n` (from 1) of a seed: the families take turns."""
    return FAMILIES[(n - 1) % len(FAMILIES)](random.Random(f"puzzle/{seed}/{n}"))


@dataclass(frozen=True, slots=True)
class Conversation:
    """`turns` are said one by one, each after the answer to the last; `answer` is that to the last turn."""

    turns: tuple[str, ...]
    answer: str


def conversation(seed: str, n: int) -> Conversation:
    """Six codes in three turns, one corrected once, one twice; asked at the end for three of them."""
    pick = random.Random(f"recall/{seed}/{n}")
    once, twice, never, *others = pick.sample(PLACES, 6)
    first, codes = [once, twice, never, others[0]], {p: code(pick) for p in (once, twice, never, *others)}
    pick.shuffle(first)
    again, last, mended = code(pick), code(pick), code(pick)
    ack = "Reply with the word noted and nothing else."
    a, b = pick.randrange(11, 99), pick.randrange(11, 99)
    turns = (
        f"Remember what I tell you. {_facts(first, codes)} {ack}",
        f"Two more. {_facts(others[1:], codes)} I was wrong about the {twice}: its code is {again}. {ack}",
        f"Something else. What is {a} + {b}? Reply with the number alone.",
        f"I was wrong about the {once}: its code is {mended}. "
        f"I was wrong about the {twice} again: its code is {last}. {ack}",
    )
    asked = [(once, mended), (twice, last), (never, codes[never])]
    pick.shuffle(asked)
    names = f"the {asked[0][0]}, the {asked[1][0]} and the {asked[2][0]}"
    end = (
        f"What are the codes of {names} now? Reply with the three codes alone, in that order, separated by commas."
    )
    return Conversation((*turns, end), ", ".join(made for _, made in asked))


def _facts(places: list[str], codes: dict[str, str]) -> str:
    return " ".join(f"The code of the {place} is {codes[place]}." for place in places)
