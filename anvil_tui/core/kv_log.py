"""KV capacity from start-up logs, for every form the engines have printed. Pure.

The last start in the log wins; tensor-parallel ranks repeat one figure and are never summed, data-parallel
ranks each have their own and are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from anvil_tui.core.box import MIB, KvCapacity
from anvil_tui.core.recipe import EngineKind

GIB = 1024 * MIB
# Printed concurrency has two decimals and the token count is rounded to blocks; more than this is a contradiction.
_TOLERANCE = 0.05

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_VLLM_START = re.compile(r"vLLM API server version|Initializing an? (?:V1 )?LLM engine")
_VLLM_DP = re.compile(r"\(EngineCore_DP(\d+) pid=")
_VLLM_SIZE = re.compile(r"\b[A-Z]+(?: \+ host)? KV cache size: ([\d,]+) tokens")
_VLLM_CONC = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: (\d+(?:\.\d+)?)x")
_VLLM_AVAIL = re.compile(r"Available KV cache memory: (-?\d+(?:\.\d+)?) GiB")
# Of the device, whatever a build calls it; those of the host are no part of the pool.
_VLLM_BLOCKS = re.compile(r"# (?!CPU)[A-Za-z]+ blocks: (\d+)")
_VLLM_BLOCK_SIZE = re.compile(r"'?block_size'?[=:] ?(\d+)")
_SG_START = re.compile(r"server_args=ServerArgs\(")
_SG_PREFIX = re.compile(r"^\[(?:\d{4}-\d\d-\d\d )?[\d:.,]+((?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+)*)\] ")
_SG_MAX = re.compile(r"max_total_num_tokens=(\d+), .*?max_running_requests=(\d+), context_len=(\d+)")
_SG_KV = re.compile(
    r"([\w .:-]*?)KV [Cc]ache (?:is )?(allocated|VA upper bound)\.(?: dtype: [^,]+,)? #tokens: (\d+), "
    r"(?:K size: ([\d.]+) GB, V size: ([\d.]+) GB|KV size: ([\d.]+) GB)"
)
_LC_START = re.compile(r"\bloading model '|main: loading model")
_LC_CTX = re.compile(r"\bn_ctx(_per_seq|_seq)? += (\d+)\s*$")
_LC_SEQS = re.compile(r"\bn_seq_max += (\d+)\s*$")
_LC_SLOTS = re.compile(r"n_slots = (\d+)(?:, n_ctx_slot = (\d+))?")
_LC_SLOT = re.compile(r"new slot.*?n_ctx(?:_slot)? = (\d+)")
_LC_UNIFIED = re.compile(r"kv_unified += '?(true|false)'?")
_LC_SIZE = re.compile(r"size = +([\d.]+) MiB \( *\d+ cells, +\d+ layers, +\d+(?:/\d+)? seqs\)")


def capacity(kind: EngineKind, lines: Iterable[str], *, block_size: int | None = None) -> KvCapacity | None:
    """What the newest start in `lines` says about the KV pool; None when it says nothing.

    `block_size` (tokens) is only for old vLLM builds that print blocks and whose log does not name the size.
    """
    bare = (_ANSI.sub("", line).replace("\r", "") for line in lines)
    if kind is EngineKind.VLLM:
        return _vllm(bare, block_size)
    if kind is EngineKind.SGLANG:
        return _sglang(bare)
    return _llamacpp(bare) if kind is EngineKind.LLAMACPP else None


@dataclass(slots=True)
class _Vllm:
    """What the current start has said, by data-parallel engine."""

    tokens: dict[int, int] = field(default_factory=dict)
    windows: dict[int, tuple[int, float]] = field(default_factory=dict)
    blocks: dict[int, int] = field(default_factory=dict)
    available: list[float] = field(default_factory=list)
    block_size: int | None = None


def _vllm(lines: Iterable[str], block_size: int | None) -> KvCapacity | None:
    now = _Vllm()
    for line in lines:
        if _VLLM_START.search(line) and (now.tokens or now.blocks):
            now = _Vllm()
        engine = int(m[1]) if (m := _VLLM_DP.search(line)) else 0
        if m := _VLLM_SIZE.search(line):
            now.tokens[engine] = _number(m[1])
        if m := _VLLM_CONC.search(line):
            now.windows[engine] = _number(m[1]), float(m[2])
        if m := _VLLM_BLOCKS.search(line):
            now.blocks[engine] = int(m[1])
        if m := _VLLM_AVAIL.search(line):
            now.available.append(float(m[1]))
        if m := _VLLM_BLOCK_SIZE.search(line):
            now.block_size = int(m[1])
    return _vllm_capacity(now, block_size)


def _vllm_capacity(now: _Vllm, block_size: int | None) -> KvCapacity | None:
    window = next(iter(now.windows.values()), (None, None))[0]
    size = now.block_size or block_size
    pools = now.tokens or {engine: blocks * size for engine, blocks in now.blocks.items() if size}
    if now.tokens:
        source = "vLLM log: KV cache size"
    elif now.blocks:
        source = "vLLM log: GPU blocks" if size else "vLLM log: GPU blocks, block size unknown"
    else:
        return None
    return KvCapacity(
        sum(pools.values()) if pools else None,
        source,
        per_request_tokens=window,
        per_rank_bytes=int(min(now.available) * GIB) if now.available else None,
        reported_windows=sum(x for _, x in now.windows.values()) if now.windows else None,
        inconsistent=_contradiction(pools, now.windows),
    )


def _contradiction(pools: Mapping[int, int], said: Mapping[int, tuple[int, float]]) -> str:
    """Hybrid models: the token line is derived wrongly while the concurrency line is right, or the reverse."""
    for engine, (window, windows) in said.items():
        tokens = pools.get(engine)
        if tokens and abs(tokens / window - windows) > _TOLERANCE * max(windows, 0.01):
            return (
                f"{tokens} tokens are {tokens / window:.2f} windows of {window}, "
                f"the engine reports {windows:.2f} ({round(windows * window)} tokens)"
            )
    return ""


@dataclass(slots=True)
class _Sglang:
    summary: dict[str, tuple[int, int]] = field(default_factory=dict)
    pool: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)


def _sglang(lines: Iterable[str]) -> KvCapacity | None:
    now = _Sglang()
    for line in lines:
        if _SG_START.search(line):
            now = _Sglang()
        prefix = _SG_PREFIX.search(line)
        ranks = prefix[1].split() if prefix else []
        engine = next((rank for rank in ranks if rank.startswith("DP")), "DP0")
        if m := _SG_MAX.search(line):
            now.summary[engine] = int(m[1]), int(m[3])
        elif (m := _SG_KV.search(line)) and m[2] == "allocated" and "draft" not in m[1].lower():
            # The target's pool is made first; a later one without a label may be a draft model's.
            now.pool.setdefault(engine, int(m[3]))
            now.bytes.setdefault(engine, int(sum(float(part) for part in m.groups()[3:] if part) * GIB))
    size = min(now.bytes.values(), default=None)
    if now.summary:
        tokens = sum(pool for pool, _ in now.summary.values())
        longest = min(min(pool, context) for pool, context in now.summary.values())
        return KvCapacity(tokens, "SGLang log: max_total_num_tokens", longest, size)
    if now.pool:
        return KvCapacity(sum(now.pool.values()), "SGLang log: KV Cache is allocated", None, size)
    return None


@dataclass(slots=True)
class _Llama:
    total: int | None = None
    slots: int | None = None
    per_slot: int | None = None
    unified: bool | None = None
    mib: float = 0.0


def _llamacpp(lines: Iterable[str]) -> KvCapacity | None:
    now = _Llama()
    for line in lines:
        if _LC_START.search(line):
            now = _Llama()
        if m := _LC_SLOT.search(line):
            now.per_slot = int(m[1])
        elif m := _LC_CTX.search(line):
            if m[1]:
                now.per_slot = int(m[2])
            else:
                now.total = int(m[2])
        if m := _LC_SEQS.search(line):
            now.slots = int(m[1])
        if m := _LC_SLOTS.search(line):
            now.slots, now.per_slot = int(m[1]), int(m[2]) if m[2] else now.per_slot
        if m := _LC_UNIFIED.search(line):
            now.unified = m[1] == "true"
        if m := _LC_SIZE.search(line):
            now.mib += float(m[1])  # a sliding-window model has two caches: their sizes add up, cells do not
    return _llama_capacity(now)


def _llama_capacity(now: _Llama) -> KvCapacity | None:
    """One pool of `total` tokens, cut into equal slots unless it is unified."""
    total, per_slot = now.total, now.per_slot
    if total is None and per_slot is not None:
        total = per_slot if now.unified else per_slot * now.slots if now.slots else None
    if total is not None and per_slot is None:
        per_slot = total if now.unified else total // now.slots if now.slots else None
    if total is None and per_slot is None:
        return None
    size = int(now.mib * MIB) if now.mib else None
    return KvCapacity(total, "llama.cpp log", per_slot, size)


def with_log(told: KvCapacity | None, log: KvCapacity | None) -> KvCapacity | None:
    """What the engine tells over HTTP, and what only its log tells: of the same pool the bytes of a rank, and that
    its own figures contradict.
    """
    if told is None or log is None:
        return told or log
    if log.inconsistent and not told.inconsistent:
        told = replace(
            told, inconsistent=log.inconsistent, reported_windows=log.reported_windows,
            per_request_tokens=told.per_request_tokens or log.per_request_tokens,
        )  # fmt: skip
    if told.per_rank_bytes is not None or told.tokens != log.tokens:
        return told
    return replace(told, per_rank_bytes=log.per_rank_bytes)


def running_limit(lines: Iterable[str]) -> int | None:
    """The most requests SGLang will run at once, from its summary line of the newest start."""
    found = [m for line in lines if (m := _SG_MAX.search(line))]
    return int(found[-1][2]) if found else None


def _number(text: str) -> int:
    return int(text.replace(",", ""))
