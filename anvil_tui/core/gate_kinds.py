"""The catalogue of gate kinds, and which keys of a suite's `[[gates]]` apply to each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

GateKind = Literal[
    # functional
    "identity", "smoke", "json", "json-schema", "needle", "needle-absent", "tools", "streaming-tools",
    "tool-result", "responses", "stop", "length", "thinking", "overlong", "client-shape", "liveness",
    # vision
    "image", "ocr", "multi-image", "image-limit", "image-large", "vision-corpus", "video-refused",
    # lanes: many timed requests by the load generator
    "capacity", "depth-sweep", "ladder", "endurance", "prefix-cache",
    # quality, bounded
    "intelligence", "recall", "tool-use", "coding", "context-ladder", "command",
    # operational
    "log-audit", "container-state", "reserve", "shared-memory", "gpu-errors", "host-memory", "hashes",
]  # fmt: skip

COMMON = frozenset({"id", "kind", "proves", "timeout_s", "accept", "needs"})
_REQUESTS = frozenset({"repeat", "pass_at_least", "parallel", "visible_tokens", "reasoning_tokens", "routed"})
_THINKS = _REQUESTS | {"thinking"}
_LONG = _THINKS | {"prompt_tokens_at_least"}
_RULES = frozenset({"failed_at_most", "ttft_at_most_s", "decode_at_least_tok_s", "aggregate_at_least_tok_s"})
_LANE = _RULES | {"requests", "completion_tokens", "prefix", "warmup", "routed"}

GATE_KEYS: Mapping[GateKind, frozenset[str]] = {
    "identity": frozenset({"routed"}),
    "smoke": _THINKS,
    "json": _THINKS,
    "json-schema": _THINKS,
    "needle": _LONG | {"positions_pct"},
    "needle-absent": _LONG,
    "tools": _LONG,
    "streaming-tools": _LONG,
    "tool-result": _THINKS,
    "responses": _THINKS,
    "stop": _REQUESTS,
    "length": _REQUESTS,
    "thinking": _THINKS,
    "overlong": _REQUESTS,
    "client-shape": _LONG | {"completion_tokens"},
    "liveness": _REQUESTS,
    "image": _THINKS,
    "ocr": _THINKS,
    "multi-image": _THINKS | {"images"},
    "image-limit": _REQUESTS,
    "image-large": _THINKS,
    "vision-corpus": _THINKS,
    "video-refused": _REQUESTS,
    "capacity": _LANE | {"streams", "prompt_tokens", "burst"},
    "depth-sweep": _LANE | {"prompt_tokens"},
    "ladder": _LANE | {"streams", "prompt_tokens"},
    "endurance": _LANE | {"streams", "prompt_tokens"},
    "prefix-cache": (_LANE - {"prefix"}) | {"streams", "prompt_tokens"},
    "intelligence": _THINKS,
    "recall": _THINKS,
    "tool-use": _THINKS,
    "coding": _THINKS,
    "context-ladder": _THINKS | {"prompt_tokens", "positions_pct"},
    "command": frozenset({"repeat", "pass_at_least", "argv", "env", "json_expect", "fixture_sha256"}),
    "log-audit": frozenset(),
    "container-state": frozenset(),
    "reserve": frozenset({"when"}),
    "shared-memory": frozenset(),
    "gpu-errors": frozenset(),
    "host-memory": frozenset({"free_at_least_mib", "swap_at_most_mib"}),
    "hashes": frozenset(),
}
"""Keys that apply to a kind of gate, besides `COMMON`, which apply to all."""

RETRIEVALS = ("needle", "pair", "distractor", "cross-link")
"""What a context ladder asks for at each depth and position."""

LANES: frozenset[GateKind] = frozenset({"capacity", "depth-sweep", "ladder", "endurance", "prefix-cache"})
DEEP: frozenset[GateKind] = (LANES - {"depth-sweep"}) | {"context-ladder"}
"""Kinds that must name their depths; a depth sweep without them goes to the end of the recipe's context."""

VISION: frozenset[GateKind] = frozenset(
    {"image", "ocr", "multi-image", "image-limit", "image-large", "vision-corpus", "video-refused"}
)
LOOKS: frozenset[GateKind] = frozenset(
    {"log-audit", "container-state", "reserve", "shared-memory", "gpu-errors", "host-memory", "hashes"}
)
"""Kinds that only look at the serve and its box; all others send requests or run a command."""
