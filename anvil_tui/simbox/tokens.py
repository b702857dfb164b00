"""A small deterministic tokenizer: one rule for counting prompts and for cutting answers into pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

PIECE = re.compile(r"\s*(?:[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_)|\s+\Z")

MESSAGE_OVERHEAD = 4
IMAGE_TOKENS = 1024


def pieces(text: str) -> list[str]:
    """Tokens of a text; joined they are the text again.

    >>> pieces("The code is 42917.")
    ['The', ' code', ' is', ' 429', '17', '.']
    """
    return PIECE.findall(text)


def count(text: str) -> int:
    return sum(1 for _ in PIECE.finditer(text))


def count_prompt(messages: Iterable[Mapping[str, Any]], tools: object = None) -> int:
    """Prompt tokens of a chat request: texts, a few a message, a fixed number an image, tools as JSON."""
    total = 3 + (count(json.dumps(tools)) if tools else 0)
    for message in messages:
        total += MESSAGE_OVERHEAD + count(text_of(message)) + IMAGE_TOKENS * images_of(message)
        calls = message.get("tool_calls")
        total += count(json.dumps(calls)) if calls else 0
    return total


def text_of(message: Mapping[str, Any]) -> str:
    """The text of one message, whether plain or in parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            str(p.get("text", "")) for p in content if isinstance(p, dict) and p.get("type") == "text"
        )
    return ""


def images_of(message: Mapping[str, Any]) -> int:
    content = message.get("content")
    if not isinstance(content, list):
        return 0
    return sum(1 for p in content if isinstance(p, dict) and p.get("type") in ("image_url", "image"))
