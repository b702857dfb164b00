"""What an answer proves of the protocol: where it stops, what it refuses, whether it thought, and its schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.gates import FailureClass, Thinking
from anvil_tui.core.tool_calls import decoded
from anvil_tui.core.verdicts import Judged, delivered, failed, leaked_reasoning, shown, strict_json

_TAG = re.compile(r"</?(?:\w+:)?think(?:ing)?>|\[/?THINK\]", re.I)
_CUT = (FailureClass.REASONING_BUDGET, FailureClass.VISIBLE_BUDGET, FailureClass.BUDGET_AFTER_VISIBLE)


def schema_json(content: str, expected: Mapping[str, Any], enums: Mapping[str, Sequence[str]]) -> str | None:
    """Whether the whole message holds to the schema of `expected` and has exactly its values.

    `schema_violated`: the engine did not constrain the answer (it may have ignored the schema). `wrong_value`: it
    did, and the model wrote another value. `enums` are the texts that the schema allows for a key.
    """
    why = strict_json(content, expected)
    if why is None:
        return None
    try:
        value = decoded(content)
    except ValueError:
        return f"schema_violated: {why}"
    held = _like(value, expected) and all(value[k] in allowed for k, allowed in enums.items())
    return f"{'wrong_value' if held else 'schema_violated'}: {why}"


def _like(value: Any, pattern: Any) -> bool:
    """Same keys and types; true is no number, 3.0 no integer. Items of a list are all like the pattern's first."""
    if isinstance(value, Mapping) and isinstance(pattern, Mapping):
        return value.keys() == pattern.keys() and all(_like(v, pattern[k]) for k, v in value.items())
    if isinstance(value, list) and isinstance(pattern, list):
        return all(_like(v, pattern[0]) for v in value)
    return type(value) is type(pattern)


def stopped_before(answer: ChatAnswer, limit: int, stop: str, before: Sequence[str]) -> Judged:
    """Whether the text was ended by the stop sequence, exactly before it: the numbers in it are `before`."""
    if answer.error is None and answer.finish_reason == "stop" and not answer.content.strip() and answer.reasoning:
        return Judged("unverified", None, f"the stop sequence {stop!r} ended the reasoning, before any answer")
    told = delivered(answer, limit)
    if not told.ok:
        return told
    if stop in answer.content:
        return failed(FailureClass.CHECK, f"the stop sequence {stop!r} is in the text: {shown(answer.content)}")
    if re.findall(r"\d+", answer.content) != list(before):
        return failed(FailureClass.CHECK, f"expected {before[0]} to {before[-1]}, got {shown(answer.content)}")
    return told


def cut_at(answer: ChatAnswer, limit: int) -> Judged:
    """Whether an answer that is longer than its limit was cut there, and says so."""
    told = delivered(answer, limit)
    if told.ok:
        note = f"finish reason is {answer.finish_reason}, not length, after {answer.completion_tokens} tokens"
        return failed(FailureClass.FINISH_REASON, f"{note}: {shown(answer.content)}")
    if told.failure not in _CUT:
        return told
    if answer.completion_tokens is None:
        return Judged("unverified", None, "cut by length, but no usage tells how many tokens were made")
    if answer.completion_tokens > limit:
        return failed(FailureClass.CHECK, f"{answer.completion_tokens} completion tokens with a limit of {limit}")
    if answer.completion_tokens < limit:
        note = f"cut by length after {answer.completion_tokens} completion tokens, the limit was {limit}"
        return failed(FailureClass.CHECK, f"{note}: what else limits answers?")
    return Judged("ok", None, f"{told.failure}: {told.note}")


def refused_overlong(answer: ChatAnswer, context: int, made: int) -> Judged:
    """Whether a prompt of about `made` tokens, above the context, was refused by an error that tells why."""
    if answer.error is None:
        counted = "no usage" if answer.prompt_tokens is None else f"{answer.prompt_tokens:,} prompt tokens"
        note = (
            f"about {made:,} tokens were sent to a context of {context:,} and answered ({counted}): cut silently?"
        )
        return failed(FailureClass.CHECK, note)
    told = delivered(answer, 1)
    if answer.error != "http" or answer.error_code == "payload_too_large":
        return told
    if told.failure is FailureClass.CONTEXT:
        numbers = "" if answer.overflow else "; it does not tell both numbers of tokens"
        return Judged("ok", None, f"HTTP {answer.status}: {told.note}{numbers}")
    if answer.status in (400, 422):
        return failed(FailureClass.CHECK, f"refused, but not for its length: {told.note}")
    return told


def thought_as(wanted: Thinking, answer: ChatAnswer) -> Judged:
    """Whether one good answer proves that thinking was as asked: nowhere, in its own channel, or measured."""
    if tag := _TAG.search(answer.content):
        note = leaked_reasoning(answer.content) or f"{tag[0]} in the answer: {shown(answer.content)}"
        return failed(FailureClass.REASONING_LEAK, note)
    spent, came = answer.reasoning_tokens, f"{len(answer.reasoning)} characters of reasoning"
    if wanted == "off":
        if answer.reasoning or spent:
            counted = "unknown" if spent is None else spent
            return failed(FailureClass.CHECK, f"thinking is off, yet {came} came; reasoning tokens: {counted}")
        return Judged("ok", None, "no reasoning, no tags")
    if wanted == "on":
        note = f"{came} in their own channel"
        return Judged("ok", None, note) if answer.reasoning else failed(
            FailureClass.CHECK, "thinking is on, yet no reasoning channel came"
        )  # fmt: skip
    if not spent:
        told = "no reasoning tokens" if spent is None else "0 reasoning tokens"
        note = f"effort {wanted} was accepted, but usage tells {told} ({came}): not proven"
        return Judged("unverified", None, note)
    return Judged("ok", None, f"effort {wanted}: {spent} reasoning tokens")


def client_shape(answer: ChatAnswer, least: int, forced: bool) -> Judged:
    """Whether a long answer came whole: at least so many completion tokens, as a stream with its usage."""
    if answer.error:
        return delivered(answer, least)
    if not answer.token_times_s:
        return failed(FailureClass.STREAM, "a stream was asked for, the answer came as one message")
    made, finish = answer.completion_tokens, answer.finish_reason
    if made is None:
        return Judged("unverified", None, "the engine reports no usage, so the length of the answer is not proven")
    note = f"{made:,} completion tokens, finish reason {finish or 'not given'}"
    if finish not in ("length", "stop"):
        return failed(FailureClass.FINISH_REASON, note)
    if made >= least:
        return Judged("ok", None, note)
    if forced:
        return failed(FailureClass.CHECK, f"{note}: fewer than the {least:,} that were forced")
    return Judged("unverified", None, f"{note}: the model ended before {least:,}, which nothing forces here")
