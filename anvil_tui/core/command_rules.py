"""What a command gate may say: its arguments with placeholders, and rules for the JSON that it gives."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from anvil_tui.core.redact import redact_argv

PLACEHOLDERS = ("base_url", "routed_url", "model", "context", "out")
"""`out` is a file that the command may write its result to; the others are filled from the serve under test."""

GIVEN = "ANVIL_GATEWAY_KEY"
"""Names in `env` whose values the harness knows: the keys of the serve itself and of the gateway."""

_BRACED = re.compile(r"\{([a-z_]+)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HASH = re.compile(r"[0-9a-f]{64}")
_LIMITS = frozenset({"min", "max"})


def filled(argv: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """The arguments with the `{names}` of `values` in them replaced; `{out}` may be left for the runner."""
    return tuple(_BRACED.sub(lambda m: values.get(m[1], m[0]), arg) for arg in argv)


def named(argv: Sequence[str], placeholder: str) -> bool:
    return any(f"{{{placeholder}}}" in arg for arg in argv)


def command_problems(
    argv: Sequence[str], env: Sequence[str], rules: Mapping[str, Any], fixtures: Mapping[str, str]
) -> list[str]:
    """What is wrong with a command gate, as sentences."""
    if not argv or not argv[0].strip():
        return ["a command needs argv: a list of the program and its arguments"]
    found = [
        f"argv[{n}] holds {{{name}}}; known placeholders: {', '.join(PLACEHOLDERS)}"
        for n, arg in enumerate(argv) for name in _BRACED.findall(arg) if name not in PLACEHOLDERS
    ]  # fmt: skip
    found += [
        f"argv[{n}] holds a secret, which every user of the box could read: name a variable in env instead"
        for n, (arg, hidden) in enumerate(zip(argv, redact_argv(argv), strict=True)) if arg != hidden
    ]  # fmt: skip
    found += [f"env: {name!r} is no name of a variable" for name in env if not _NAME.fullmatch(name)]
    found += [
        f"fixture_sha256.{path}: {digest!r} is no SHA-256 (64 small hexadecimal digits)"
        for path, digest in fixtures.items() if not _HASH.fullmatch(digest)
    ]  # fmt: skip
    return found + [f"json_expect.{path}: {why}" for path, rule in rules.items() if (why := _problem(path, rule))]


def _problem(path: str, rule: Any) -> str:
    if not path.strip("."):
        return "the path is empty"
    if not isinstance(rule, Mapping):
        try:
            json.dumps(rule)
        except TypeError:
            return f"{rule} is no JSON value; write it as text"
        return ""
    if not rule or set(rule) - _LIMITS:
        return f"a table takes min and max, not {', '.join(sorted(set(rule) - _LIMITS)) or 'nothing'}"
    if not all(is_number(limit) for limit in rule.values()):
        return "min and max are numbers"
    return "min is more than max" if rule.get("min", -math.inf) > rule.get("max", math.inf) else ""


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
