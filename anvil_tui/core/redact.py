"""Secrets out of text that is shown, copied, exported or stored.

Two nets: values that the console itself knows, wherever they occur; and shapes that give a secret away
(authorization headers, key flags, key fields in dumps). Token counts and digests are no secrets.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

MASK = "***"
# A known value shorter than this would blank out ordinary words.
_SHORTEST = 4
_SHORTEST_HALF = 8

# Repeats are bounded, so that a hostile line costs time in proportion to its length.
_WORD = r"[A-Za-z0-9]{1,32}"
_KEY = (
    rf"(?:{_WORD}[_-]){{0,4}}(?:api[_-]?keys?|secret(?:[_-]?(?:access[_-]?)?key)?|secrets|[a-z]{{0,8}}passw(?:or)?d"
    r"|private[_-]?key|account[_-]?key|(?:hf|hub|auth|access|refresh|bearer|github|session|router|gateway|admin)"
    r"[_-]?token)"
)
_BARE = r"(?!None\b|null\b|true\b|false\b|True\b|False\b|\*\*\*)[^\s'\",;&\]\[(){}<>\\]+"
_QUOTED = r"(\\?['\"])(?!\*\*\*)(?:(?!\3).)+\3"

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)(authorization['\"]?\s*[:=,]\s*['\"]?(?:bearer|basic|token)\s+)[^\s'\",;]+"), rf"\1{MASK}"),
    (re.compile(r"(?i)\b(bearer\s+)(?=[^\s'\"]*[0-9._~+/=-])[A-Za-z0-9._~+/=-]{6,}"), rf"\1{MASK}"),
    (
        re.compile(r"(?i)((?:^|[\s'\"])(?:set-)?cookie['\"]?\s*[:,]\s*['\"]?[^\s=;'\"]{1,64}=)[^\s;'\"]+"),
        rf"\1{MASK}",
    ),
    (re.compile(r"(://[^\s/:@]{0,256}:)[^\s/@]+(?=@)"), rf"\1{MASK}"),
    (re.compile(r"(\bhttps?://)[^\s/:@]{1,512}(?=@)"), rf"\1{MASK}"),
    (re.compile(r"\b([A-Z][A-Z0-9_]{0,40}_(?:TOKEN|KEY)=)(?!\*\*\*|\d{1,9}\b)[^\s'\",;\\]+"), rf"\1{MASK}"),
    (re.compile(r"(?i)([\"']token\\?[\"']\s*:\s*\\?[\"'])[A-Za-z0-9._~+/=-]{16,}"), rf"\1{MASK}"),
    (re.compile(r"(-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----)[A-Za-z0-9+/=\s\\:,]+"), rf"\1{MASK}"),
    (re.compile(r"(?i)([?&](?:key|token|sig|signature)=)[^\s&'\"]+"), rf"\1{MASK}"),
    (re.compile(r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,})"), MASK),
    (
        re.compile(
            r"\b(?:github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|nvapi-[A-Za-z0-9_-]{20,}"
            r"|xox[abeprs]-[A-Za-z0-9-]{10,}|A[KS]IA[A-Z0-9]{16}\b|AIza[A-Za-z0-9_-]{30,})"
        ),
        MASK,
    ),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]*"), MASK),
)
# Every shape above and below holds one of these; most lines hold none, and looking is fifty times cheaper.
_HINTS = (
    "key",
    "token",
    "secret",
    "passw",
    "bearer",
    "authorization",
    "@",
    "sig",
    "hf_",
    "sk-",
    "eyj",
    "github_pat_",
    "glpat-",
    "nvapi-",
    "xox",
    "akia",
    "asia",
    "aiza",
    "cookie",
    *(f"gh{c}_" for c in "pousr"),
)
_FLAG = re.compile(rf"(?i)(--{_KEY}(?:=|['\"]?\s*,?\s+['\"]?|['\"],['\"]))({_BARE})")
_FIELD = re.compile(rf"(?i)(\\?['\"]?\b{_KEY}\\?['\"]?\s*[:=]\s*)(?:({_BARE})|{_QUOTED})")
_LIST = re.compile(rf"(?i)(\\?['\"]?\b{_KEY}\\?['\"]?\s*[:=]\s*[\[(])([^\])]{{0,2000}})([\])])")
_ITEM = re.compile(r"(['\"])(?:(?!\1).)*\1")


_RESOLVED: set[str] = set()


def remember(secret: str) -> None:
    """A value that this process has resolved: from now on every text that is redacted here hides it."""
    _RESOLVED.add(secret)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` with every secret replaced by `***`. `secrets` are known values beside those that were resolved; they
    are found as they are, quoted for a URL, as JSON writes them, and in Base64."""
    for secret in sorted({*secrets, *_RESOLVED}, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            for form in _forms(secret):
                text = text.replace(form, MASK)
            text = _without_halves(text, secret)
    low = text.lower().replace("tokens", "")  # counts of tokens fill engine logs
    if not any(hint in low for hint in _HINTS):
        return text
    text = _LIST.sub(lambda m: m[1] + _ITEM.sub(rf"\g<1>{MASK}\g<1>", m[2]) + m[3], text)
    text = _FLAG.sub(rf"\g<1>{MASK}", text)
    text = _FIELD.sub(_field, text)
    for pattern, into in _RULES:
        text = pattern.sub(into, text)
    return text


@lru_cache(maxsize=64)
def _forms(secret: str) -> tuple[str, ...]:
    encoded = b64encode(secret.encode()).decode()
    return tuple(dict.fromkeys((secret, quote(secret, safe=""), json.dumps(secret)[1:-1], encoded)))


def _without_halves(text: str, secret: str) -> str:
    """A bounded excerpt may have cut a secret in two: half of it or more, from either end, is masked as well."""
    half = max(_SHORTEST_HALF, (len(secret) + 1) // 2)
    for n in range(len(secret) - 1, half - 1, -1):
        if secret[:half] not in text and secret[-half:] not in text:
            break
        text = text.replace(secret[:n], MASK).replace(secret[-n:], MASK)
    return text


def _field(match: re.Match[str]) -> str:
    quote_mark = match[3] or ""
    return f"{match[1]}{quote_mark}{MASK}{quote_mark}"


def redact_argv(argv: Iterable[str], secrets: Iterable[str] = ()) -> tuple[str, ...]:
    """An argument vector with the values of key flags masked: `--api-key K1 K2`, `--api-key=K`."""
    known, out, hiding = tuple(secrets), [], False
    for arg in argv:
        if arg.startswith("-"):
            hiding = re.fullmatch(rf"(?i)--?{_KEY}", arg) is not None
            out.append(redact(arg, known))
        else:
            out.append(MASK if hiding else redact(arg, known))
    return tuple(out)


def redact_values(value: Any, hide: Callable[[str], str]) -> Any:
    """A JSON-able value with every text in it hidden; a text under a key that names a secret is masked whole.

    Hiding in the written document instead could eat a quote or a key, and a journal line would be lost.
    """
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {k: _under(str(k), v, hide) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [redact_values(v, hide) for v in value]
    return value


def _under(key: str, value: Any, hide: Callable[[str], str]) -> Any:
    """A whole text under `api_key` and the like has no shape of its own that would give it away."""
    if isinstance(value, str) and value and hide(f"{key}=probe") != f"{key}=probe":
        return MASK
    return redact_values(value, hide)
