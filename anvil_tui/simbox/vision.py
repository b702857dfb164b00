"""Pictures at a simulated engine: how many it takes, and what its model makes of them.

The model sees no pixels and says so. A PNG may hold a text chunk `anvil-facts` (the fixtures of the vision gates
do); what stands there it tells, and nothing of a picture that did not reach it.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anvil_tui.simbox.tokens import text_of

Message = Mapping[str, Any]

CHUNK = b"anvil-facts\0"
SIGNATURE = b"\x89PNG\r\n\x1a\n"
MEDIA = {"image_url": "image", "image": "image", "video_url": "video", "video": "video"}


def over(messages: Sequence[Message], limits: Mapping[str, int]) -> tuple[str, int, int] | None:
    """(medium, how many were sent, how many are allowed) of the first medium above its limit."""
    sent = [medium for message in messages for _, medium in _media(message)]
    for medium, limit in limits.items():
        if sent.count(medium) > limit:
            return medium, sent.count(medium), limit
    return None


def without(messages: Sequence[Message], last_only: bool) -> list[Message]:
    """The messages as an engine has them that drops pictures on the way: all, or only the last of a message."""
    made = []
    for message in messages:
        places = [n for n, medium in _media(message) if medium == "image"]
        gone = set(places[-1:] if last_only else places)
        content = [part for n, part in enumerate(message["content"]) if n not in gone] if gone else None
        made.append({**message, "content": content} if gone else message)
    return made


def told(message: Message) -> str | None:
    """What the model says of the pictures of a message; None when there are none."""
    urls = [message["content"][n].get("image_url", {}).get("url", "") for n, m in _media(message) if m == "image"]
    if not urls:
        return None
    seen = [_facts(url) for url in urls]
    here = {facts.get("id") for facts in seen}
    question = text_of(message)
    for facts in seen:
        answer = facts.get("answers", {}).get(question)
        if answer and here.issuperset(facts["needs"]):
            return str(answer)
    if all("shows" in facts for facts in seen):
        return ", ".join(facts["shows"] for facts in seen)
    return f"{len(urls)} image(s) arrived; a simulated engine does not look at pixels."


def _media(message: Message) -> Iterator[tuple[int, str]]:
    """(place in the content, medium) of every part that is no text."""
    content = message.get("content")
    for n, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, dict) and part.get("type") in MEDIA:
            yield n, MEDIA[part["type"]]


def _facts(url: str) -> Mapping[str, Any]:
    """The `anvil-facts` of a PNG in a data URL; empty when there are none."""
    try:
        data = base64.b64decode(url.partition(";base64,")[2], validate=True)
    except binascii.Error:
        return {}
    at = len(SIGNATURE)
    while data.startswith(SIGNATURE) and at + 12 <= len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        if kind == b"tEXt" and body.startswith(CHUNK):
            found: Mapping[str, Any] = json.loads(body[len(CHUNK) :])
            return found
        at += 12 + size
    return {}
