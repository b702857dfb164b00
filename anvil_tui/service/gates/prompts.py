"""What the gates ask. Every word, value and code that an answer is judged by stands in the question."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

SMOKE_WORD = "pong"
ABSENT = "absent"
SMOKE = f"Reply with exactly the single word: {SMOKE_WORD}"

_CITIES = ("Lisbon", "Oslo", "Nairobi", "Quito", "Osaka", "Tunis", "Perth", "Lima")
_ROOMS = ("kitchen", "library", "attic", "workshop", "nursery", "cellar")
_PLACES = ("harbour", "orchard", "granary", "lighthouse", "quarry", "tannery", "foundry", "chapel")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PEOPLE = ("baker", "clerk", "pilot", "nurse", "mason", "tailor", "farmer", "printer")
_THINGS = ("lanterns", "crates", "ropes", "kettles", "ledgers", "barrels", "maps", "wheels")
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
CODE = rf"[{_LETTERS}]{{2}}-\d{{5}}"


def user(text: str) -> Message:
    return {"role": "user", "content": text}


@dataclass(frozen=True, slots=True)
class JsonCase:
    messages: tuple[Message, ...]
    expected: Mapping[str, Any]


def json_case(seed: str) -> JsonCase:
    pick = random.Random(seed)
    want = {"city": pick.choice(_CITIES), "count": pick.randrange(11, 999), "ok": pick.random() < 0.5}
    asked = f"Return only this JSON object and nothing else: {json.dumps(want)}"
    return JsonCase((user(asked),), want)


@dataclass(frozen=True, slots=True)
class ToolCase:
    """One request that needs exactly the calls `expected`: (name, arguments)."""

    messages: tuple[Message, ...]
    tools: tuple[Message, ...]
    expected: tuple[tuple[str, Mapping[str, Any]], ...]


def function_tool(name: str, description: str, **properties: Mapping[str, Any]) -> Message:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_THERMOSTAT = function_tool(
    "set_thermostat",
    "Set the thermostat of one room",
    room={"type": "string", "description": "Name of the room"},
    celsius={"type": "integer", "description": "Temperature in degrees Celsius"},
)
_WEATHER = function_tool("get_weather", "Get the weather forecast of a city", city={"type": "string"})
_ORDER = function_tool("find_order", "Look up an order and its dispatch code", order_id={"type": "string"})


@dataclass(frozen=True, slots=True)
class SchemaCase:
    """A reading in prose that only the schema turns into this object; `enums` are its allowed texts by key."""

    messages: tuple[Message, ...]
    response_format: Mapping[str, Any]
    expected: Mapping[str, Any]
    enums: Mapping[str, tuple[str, ...]]


_MODES = ("eco", "comfort", "frost")


def schema_case(seed: str) -> SchemaCase:
    """The question names neither JSON nor a form: an engine that ignores the schema gets prose back."""
    pick = random.Random(seed)
    valves = sorted(pick.sample(range(2, 10), 2))
    want = {
        "room": pick.choice(_ROOMS), "celsius": pick.randrange(15, 27), "mode": pick.choice(_MODES),
        "valves": valves,
    }  # fmt: skip
    asked = (
        f"Write down this reading: room {want['room']}, celsius {want['celsius']}, mode {want['mode']}, "
        f"valves {valves[0]} and {valves[1]}."
    )
    enums = {"room": _ROOMS, "mode": _MODES}
    properties: dict[str, Any] = {key: {"type": "string", "enum": list(enums[key])} for key in enums}
    properties |= {"celsius": {"type": "integer"}, "valves": {"type": "array", "items": {"type": "integer"}}}
    schema = {"type": "object", "properties": {key: properties[key] for key in want}, "required": list(want),
              "additionalProperties": False}  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "reading", "schema": schema, "strict": True}}
    return SchemaCase((user(asked),), form, want, enums)


@dataclass(frozen=True, slots=True)
class StopCase:
    """Counting, ended by the stop sequence: exactly the numbers `before` it are in the text."""

    messages: tuple[Message, ...]
    stop: str
    before: tuple[str, ...]


def stop_case(seed: str) -> StopCase:
    last = random.Random(seed).randrange(4, 9)
    asked = user("Count from 1 to 100, separated by commas.")
    return StopCase((asked,), str(last + 1), tuple(str(n) for n in range(1, last + 1)))


LONG_COUNT = "Count from 1 to 400, separated by commas."


COUNT_ON = (
    "The notes are only background. Count upwards from 1, one number a line, and go on until you are stopped."
)


def sum_case(seed: str) -> tuple[str, str]:
    """(question, the whole right answer); two numbers that a little thought adds up."""
    pick = random.Random(seed)
    a, b = pick.randrange(12, 49), pick.randrange(12, 49)
    return f"What is {a} + {b}? Reply with the number alone.", str(a + b)


def notes(seed: str, sentences: int) -> list[str]:
    """So many sentences of about 15 tokens that say nothing in particular, unlike those of any other seed."""
    pick = random.Random(f"notes/{seed}")
    return [
        f"On {pick.choice(_DAYS)} the {pick.choice(_PEOPLE)} in {pick.choice(_CITIES)} "
        f"counted {pick.randrange(11, 99)} {pick.choice(_THINGS)}."
        for _ in range(sentences)
    ]


def log_book(seed: str, sentences: int) -> Message:
    """A system message of any length, which the question after it does not need."""
    text = f"You run the house. Its log book {seed} says:\n\n{' '.join(notes(seed, sentences))}"
    return {"role": "system", "content": text}


def tool_case(seed: str) -> ToolCase:
    """A call with a text and a number that differ per seed, beside a tool that is not wanted."""
    pick = random.Random(seed)
    want = {"room": pick.choice(_ROOMS), "celsius": pick.randrange(15, 27)}
    asked = f'Call the tool set_thermostat with room "{want["room"]}" and celsius {want["celsius"]}.'
    return ToolCase((user(asked),), (_THERMOSTAT, _WEATHER), (("set_thermostat", want),))


@dataclass(frozen=True, slots=True)
class ResultCase:
    """A call, the result it is given, and the code that the final answer must hold."""

    call: ToolCase
    result: str
    code: str


def result_case(seed: str) -> ResultCase:
    pick = random.Random(seed)
    order = f"A-{pick.randrange(1000, 9999)}"
    made = code(pick)
    asked = f'Call the tool find_order with order_id "{order}". Then tell me the dispatch code it returns.'
    call = ToolCase((user(asked),), (_ORDER,), (("find_order", {"order_id": order}),))
    return ResultCase(call, json.dumps({"order_id": order, "dispatch_code": made}), made)


def code(pick: random.Random) -> str:
    """A code that nobody can guess: two letters and five digits."""
    return f"{pick.choice(_LETTERS)}{pick.choice(_LETTERS)}-{pick.randrange(10000, 99999)}"


def filler(pick: random.Random, sentences: int) -> list[str]:
    """Sentences of notes that hold no code."""
    return [
        f"On {pick.choice(_DAYS)} the {pick.choice(_PEOPLE)} in {pick.choice(_CITIES)} "
        f"counted {pick.randrange(11, 99)} {pick.choice(_THINGS)}."
        for _ in range(sentences)
    ]


@dataclass(frozen=True, slots=True)
class Haystack:
    """Notes of any length with one wanted code and three others that look like it.

    The seed stands at the head, so that no prefix of an earlier prompt is in the engine's cache.
    """

    seed: str
    depth_pct: int

    @property
    def code(self) -> str:
        return self._codes()[0][1]

    @property
    def others(self) -> tuple[str, ...]:
        """The codes of other places."""
        return tuple(made for _, made in self._codes()[1:])

    def _codes(self) -> list[tuple[str, str]]:
        pick = random.Random(f"codes/{self.seed}")
        return [(place, code(pick)) for place in pick.sample(_PLACES, 4)]

    def prompt(self, sentences: int) -> str:
        place = self._codes()[0][0]
        return self._text(
            sentences, f"What is the access code of the {place}? Reply with the code alone.", wanted=True
        )

    def prompt_without(self, sentences: int) -> str:
        """The same notes without the wanted code; the question agrees on the word for that."""
        place = self._codes()[0][0]
        asked = f"What is the access code of the {place}? Reply with the code alone"
        asked += f", or with the word {ABSENT} if the notes do not give it."
        return self._text(sentences, asked, wanted=False)

    def _text(self, sentences: int, asked: str, *, wanted: bool) -> str:
        pick = random.Random(f"codes at/{self.seed}")
        text = notes(self.seed, sentences)
        needle, *others = [f"The access code of the {place} is {made}." for place, made in self._codes()]
        if wanted:
            text.insert(len(text) * self.depth_pct // 100, needle)
        for other in others:
            text.insert(pick.randrange(len(text) + 1), other)
        return f"Notes {self.seed}.\n\n{' '.join(text)}\n\n{asked}"
