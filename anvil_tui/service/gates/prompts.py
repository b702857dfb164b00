"""What the gates ask. Every word, value and code that an answer is judged by stands in the question."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

SMOKE_WORD = "pong"
SMOKE = f"Reply with exactly the single word: {SMOKE_WORD}"

_CITIES = ("Lisbon", "Oslo", "Nairobi", "Quito", "Osaka", "Tunis", "Perth", "Lima")
_ROOMS = ("kitchen", "library", "attic", "workshop", "nursery", "cellar")
_PLACES = ("harbour", "orchard", "granary", "lighthouse", "quarry", "tannery", "foundry", "chapel")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PEOPLE = ("baker", "clerk", "pilot", "nurse", "mason", "tailor", "farmer", "printer")
_THINGS = ("lanterns", "crates", "ropes", "kettles", "ledgers", "barrels", "maps", "wheels")
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"


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

    def _codes(self) -> list[tuple[str, str]]:
        pick = random.Random(f"codes/{self.seed}")
        return [(place, code(pick)) for place in pick.sample(_PLACES, 4)]

    def prompt(self, sentences: int) -> str:
        pick = random.Random(f"notes/{self.seed}")
        notes = filler(pick, sentences)
        wanted, *others = [f"The access code of the {place} is {made}." for place, made in self._codes()]
        notes.insert(len(notes) * self.depth_pct // 100, wanted)
        for other in others:
            notes.insert(pick.randrange(len(notes) + 1), other)
        place = self._codes()[0][0]
        asked = f"What is the access code of the {place}? Reply with the code alone."
        return f"Notes {self.seed}.\n\n{' '.join(notes)}\n\n{asked}"
