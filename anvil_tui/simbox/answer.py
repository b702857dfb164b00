"""The simulated model: a small deterministic responder, and honest about being one.

It reads the request and applies the first rule that fits: continue after a tool result, call the tool that is
asked for, tell what a picture says of itself, give the JSON that is asked for, repeat the exact text, add, look
the answer up in the prompt.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anvil_tui.simbox import extract, quiz, vision
from anvil_tui.simbox.tokens import count, text_of

INSTRUCTION_CHARS = 3000  # instructions stand at the head or the tail of a long prompt
COUNTED = 2000  # where counting without an end ends
STOP = frozenset(
    re.findall(
        r"\w+",
        "the and for you are was what which who where when how that this with from into your reply answer only "
        "exactly just please tell give find name say respond text above below anywhere somewhere document "
        "nothing else one line words word its there has have does did can is of in on to a an it at by as be",
    )
)
CODE = re.compile(r"\b(?=[\w-]*\d)[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*\b|\b[A-Z]{2,}(?:-[A-Z0-9]+)+\b")
ADD = re.compile(r"(-?\d+)\s*(\+|-|\*|x|×|plus|minus|times)\s*(-?\d+)")
QUOTES = "\"'`“”‘’"

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """`rule` names what fitted; `calls` replace `content` when there are any."""

    content: str
    rule: str
    calls: tuple[Call, ...] = ()
    reasoning: str = ""


def answer(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] = (),
    choice: Any = None,
    response_format: Mapping[str, Any] | None = None,
) -> Answer:
    """What the simulated model says. The same request always gets the same answer."""
    last = messages[-1] if messages else {}
    worked = _worked(messages, tools) if messages else None
    if worked is not None:
        return worked
    if last.get("role") == "tool":
        return _after_tool(messages)
    prompt = text_of(last)
    near = (
        prompt
        if len(prompt) <= 2 * INSTRUCTION_CHARS
        else f"{prompt[:INSTRUCTION_CHARS]}\n{prompt[-INSTRUCTION_CHARS:]}"
    )
    call = _tool(tools, choice, near)
    if call is not None:
        return Answer("", "tool", (call,))
    seen = vision.told(last)
    if seen is not None:
        return Answer(seen, "image")
    found = _json(near, response_format) or _count(near) or _exact(near) or _sum(near)
    if found is None:
        found = _lookup("\n".join(text_of(m) for m in messages)) or _honest()
    return found


def _worked(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Answer | None:
    """What needs more than one look at the words: puzzles, recall, code, work with tools over several steps."""
    if not tools:
        solved = quiz.solve(messages)
        return None if solved is None else Answer(*solved)
    step = quiz.step(messages)
    if step is None or isinstance(step, str):
        return None if step is None else Answer(step, "worked with tools")
    return Answer("", "worked with tools", (Call(step[0], json.dumps(step[1])),))


def reason(given: Answer, at_least: int) -> str:
    """A reasoning text about the answer, of at least so many tokens."""
    text = f"The request fits the rule '{given.rule}'. I check what it asks for, then give that and nothing else."
    step = 0
    while count(text) < at_least:
        step += 1
        text += f" Check {step}: the answer keeps the form that was asked for."
    return text


def _tool(tools: Sequence[Mapping[str, Any]], choice: Any, prompt: str) -> Call | None:
    functions = [t.get("function", {}) for t in tools if t.get("type", "function") == "function"]
    if not functions or choice == "none":
        return None
    if isinstance(choice, Mapping):
        wanted = choice.get("function", {}).get("name")
        chosen = next((f for f in functions if f.get("name") == wanted), None)
    else:
        chosen = max(functions, key=lambda f: _fit(f, prompt))
        if choice != "required" and not _fit(chosen, prompt):
            chosen = None
    if chosen is None:
        return None
    arguments = extract.values(chosen.get("parameters") or {}, prompt)
    return Call(str(chosen.get("name")), json.dumps(arguments))


def _fit(function: Mapping[str, Any], prompt: str) -> int:
    """How well a tool fits a request: its name counts most, then the words of name and description."""
    name = str(function.get("name", ""))
    if re.search(rf"\b{re.escape(name)}\b", prompt):
        return 100
    words = _keywords(f"{name.replace('_', ' ')} {function.get('description', '')}")
    return len(words & _keywords(prompt))


def _after_tool(messages: Sequence[Message]) -> Answer:
    """Says what the tool results hold, every value as it was given."""
    results = []
    for message in reversed(messages):
        if message.get("role") != "tool":
            break
        results.append(_flat(text_of(message)))
    return Answer(f"The tool result is {'; '.join(reversed(results))}.", "tool result")


def _flat(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, dict):
        return ", ".join(f"{k} {v if isinstance(v, str) else json.dumps(v)}" for k, v in value.items())
    return text


def _json(prompt: str, response_format: Mapping[str, Any] | None) -> Answer | None:
    form = (response_format or {}).get("type", "text")
    if form == "text" and not re.search(r"\bjson\b", prompt, re.IGNORECASE):
        return None
    literals = [v for v in extract.literals(prompt) if not (isinstance(v, dict) and "properties" in v)]
    if literals and isinstance(literals[0], dict):
        return Answer(json.dumps(literals[0]), "json given")
    if form == "json_schema":
        schema = (response_format or {}).get("json_schema", {}).get("schema", {})
        return Answer(json.dumps(extract.values(schema, prompt)), "json schema")
    pairs = extract.pairs(prompt)
    return Answer(json.dumps(pairs), "json described") if pairs or form != "text" else None


_EXACT = (
    re.compile(
        r"\b(?:exactly|only|just|verbatim|repeat|say|with|text)\b[^\"“`\n]{0,60}[\"“`]([^\"”`\n]+)[\"”`]", re.I
    ),
    re.compile(r"\b(?:exactly|only|just|verbatim|repeat|word)\b[^:\n]{0,80}:\s*([^\n]+?)\s*$", re.I | re.M),
    re.compile(r"(?<!\bor )\bwith (?:exactly |only |just )?(?:the |one )?(?:single )?word ([\w-]+)", re.I),
    re.compile(r"\b(?:reply|respond|answer)(?: with)? (?:exactly|only|just) ([A-Z][A-Z0-9_-]+)\b"),
)


def _exact(prompt: str) -> Answer | None:
    for pattern in _EXACT:
        found = pattern.search(prompt)
        if found:
            return Answer(found[1].strip().strip(QUOTES), "exact text")
    return None


def _count(prompt: str) -> Answer | None:
    found = re.search(r"\bcount (?:upwards )?from (\d+)(?: to (\d+))?", prompt, re.IGNORECASE)
    if not found:
        return None
    first = int(found[1])
    numbers = range(first, min(int(found[2] or first + COUNTED), first + COUNTED) + 1)
    return Answer((", " if "comma" in prompt else "\n").join(map(str, numbers)), "count")


def _sum(prompt: str) -> Answer | None:
    found = ADD.search(prompt)
    if not found or not re.search(r"\?|calculate|compute|what|add|sum|result", prompt, re.IGNORECASE):
        return None
    a, b, sign = int(found[1]), int(found[3]), found[2]
    value = a + b if sign in ("+", "plus") else a - b if sign in ("-", "minus") else a * b
    return Answer(str(value), "arithmetic")


def _lookup(text: str) -> Answer | None:
    """The sentence of the text that shares the rarest words with the question, and the value it names."""
    sentences = [s for s in re.split(r"(?<=[.!?])\s+|\n+", text) if s.strip()]
    if len(sentences) < 2:
        return None
    question, body = _question(sentences)
    subject, otherwise = (
        re.search(r"of the (\w+)\?", question),
        re.search(r"\bor with the word (\w+) if", question),
    )
    if subject and otherwise and not any(re.search(rf"\b{subject[1]}\b", s) for s in body):
        return Answer(otherwise[1], "not in the prompt")
    wanted = _keywords(question)
    sets = [wanted & _keywords(s) for s in body]
    seen = Counter(word for words in sets for word in words)
    if not seen:
        return None
    weight = {word: math.log(1 + len(body) / n) for word, n in seen.items()}
    scores = [
        sum(weight[w] for w in words) + (0.5 if CODE.search(s) else 0.0)
        for words, s in zip(sets, body, strict=True)
    ]
    best = body[max(range(len(body)), key=scores.__getitem__)]
    return Answer(_value(best), "found in the prompt")


def _question(sentences: list[str]) -> tuple[str, list[str]]:
    """The sentences that ask (at the end, or at the head when the end does not ask) and the rest."""
    asks = re.compile(r"\?|\b(?:what|which|reply|answer|find|return|tell|repeat|give)\b", re.IGNORECASE)
    tail = next(
        (i for i in range(len(sentences) - 1, max(-1, len(sentences) - 4), -1) if asks.search(sentences[i])), None
    )
    if tail is None:
        return sentences[0], sentences[1:]
    first = tail
    while first > 1 and tail - first < 2 and asks.search(sentences[first - 1]):
        first -= 1
    return " ".join(sentences[first:]), sentences[:first]


def _value(sentence: str) -> str:
    codes = CODE.findall(sentence)
    if codes:
        return str(max(codes, key=lambda c: (c.count("-"), len(c))))
    tail = str(re.split(r"\b(?:is|are|was|equals)\b|[:=]", sentence)[-1])
    return tail.strip().strip(QUOTES + ".!")


def _keywords(text: str) -> set[str]:
    return {w for w in re.findall(r"[a-z]{3,}", text.lower()) if w not in STOP}


def _honest() -> Answer:
    return Answer(
        "This is a simulated engine: a short list of rules, not a model. None of them fits this request.",
        "no rule",
    )
