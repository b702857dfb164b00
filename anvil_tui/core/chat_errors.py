"""What an engine or a proxy in front of it says when it refuses: one shape for all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from anvil_tui.core.tool_calls import decoded

KEPT_MESSAGE = 2048
KEPT_HTML = 200
RETRY_AFTER_CAP_S = 120.0

_ASKED, _ALLOWED = r"(?P<asked>\d+)", r"(?P<allowed>\d+)"
_OVERFLOW = tuple(
    re.compile(pattern.replace("ASKED", _ASKED).replace("ALLOWED", _ALLOWED), re.S | re.I)
    for pattern in (
        r"maximum context length is ALLOWED tokens.*?requested (?:about )?ASKED tokens",
        r"maximum context length is ALLOWED tokens.*?(?:prompt|request) (?:contains|has) (?:at least )?ASKED\b"
        r"(?! characters)",
        r"passed ASKED input tokens.*?context length is only ALLOWED",
        r"request \(ASKED tokens\) exceeds the available context size \(ALLOWED tokens",
        r"input length \(ASKED tokens\) exceeds .*?\(ALLOWED tokens\)",
        r"input \(ASKED tokens\) is longer than .*?context length \(ALLOWED tokens\)",
        r"requested token count exceeds .*?context length of ALLOWED tokens.*?total of ASKED",
    )
)
_TOO_LONG = re.compile(r"maximum context length is \d+ tokens", re.I)
_BY_STATUS = {401: "unauthorized", 403: "unauthorized", 413: "payload_too_large"}


@dataclass(frozen=True, slots=True)
class ServerError:
    """`code` as in ChatAnswer.error_code; `kind` is the server's own type word; `overflow` is (asked, allowed)."""

    message: str
    code: str
    kind: str = ""
    overflow: tuple[int, int] | None = None


def error_object(value: Any) -> Mapping[str, Any] | str | None:
    """The error inside a decoded body or chunk, nested or flat; None when there is none.

    `error: null` beside choices is no error.
    """
    if not isinstance(value, Mapping):
        return None
    if value.get("error"):
        inner = value["error"]
        return inner if isinstance(inner, Mapping) else str(inner)
    if value.get("object") == "error":
        return value
    detail = value.get("detail")
    return str(detail) if detail and "choices" not in value else None


def server_error(found: Mapping[str, Any] | str, status: int | None = None) -> ServerError:
    """An error object of any of the engines, read into one shape."""
    if isinstance(found, str):
        found = {"message": found}
    message = str(found.get("message") or json.dumps(dict(found), default=str))[:KEPT_MESSAGE]
    kind, code = str(found.get("type") or ""), found.get("code")
    overflow = context_overflow(found, message)
    known = (
        "context_overflow"
        if overflow or kind == "exceed_context_size_error" or _TOO_LONG.search(message)
        else _BY_STATUS.get(status or 0, "")
    )
    own = str(code) if code is not None else kind
    text = f"{kind}: {message}" if kind else message
    return ServerError(text, known or own or str(status or ""), kind, overflow)


def context_overflow(found: Mapping[str, Any], message: str) -> tuple[int, int] | None:
    """(asked, allowed) tokens when the error says that the request does not fit; fields win over text."""
    asked, allowed = found.get("n_prompt_tokens"), found.get("n_ctx")
    if isinstance(asked, int) and isinstance(allowed, int):
        return asked, allowed
    for pattern in _OVERFLOW:
        if hit := pattern.search(message):
            return int(hit["asked"]), int(hit["allowed"])
    return None


def http_error(status: int, content_type: str, body: bytes, sent_bytes: int) -> ServerError:
    """An answer with a status other than 200. A body that is not JSON came from a proxy or a bare server."""
    text = body.decode(errors="replace")
    try:
        value = decoded(text)
    except ValueError:
        return _not_json(status, content_type, text, sent_bytes)
    found = error_object(value)
    if found is None:
        found = json.dumps(value)[:KEPT_MESSAGE]
    return server_error(found, status)


def _not_json(status: int, content_type: str, text: str, sent_bytes: int) -> ServerError:
    kept = " ".join(text.split())[:KEPT_HTML]
    if "html" in content_type or kept.lower().startswith(("<html", "<!doctype")):
        kept = " ".join(re.sub(r"<[^>]*>", " ", kept).split())
    said = f": {kept}" if kept else " with an empty body"
    message = f"not JSON, so probably a proxy{said} (we had sent {sent_bytes} bytes)"
    return ServerError(message, _BY_STATUS.get(status, str(status)))


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """Seconds to wait, from Retry-After as seconds or as an HTTP date; 0 for a date in the past.

    None when absent or unreadable. Capped at `RETRY_AFTER_CAP_S`.
    """
    if value is None:
        return None
    text = value.strip()
    if re.fullmatch(r"\d{1,9}", text):
        return min(float(text), RETRY_AFTER_CAP_S)
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return min(max(0.0, (when - now).total_seconds()), RETRY_AFTER_CAP_S)
