"""A prefix cache as engines have one: blocks of text, each known by everything before it, oldest out first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from anvil_tui.simbox.tokens import text_of

BLOCK_CHARS = 128


class PrefixCache:
    """Holds the blocks of about `tokens` tokens."""

    def __init__(self, tokens: int) -> None:
        self._room = max(1, tokens * 5 // BLOCK_CHARS)
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def take(self, messages: Sequence[Mapping[str, Any]], prompt_tokens: int) -> int:
        """Tokens of this prompt that were there already; afterwards all of it is. The last block is not reused."""
        text = "\0".join(f"{m.get('role')}\n{text_of(m)}" for m in messages)
        chain, found, missed = 0, 0, False
        for start in range(0, len(text) - BLOCK_CHARS, BLOCK_CHARS):
            chain = hash((chain, text[start : start + BLOCK_CHARS]))
            missed = missed or chain not in self._blocks
            found += not missed
            self._blocks[chain] = None
            self._blocks.move_to_end(chain)
        while len(self._blocks) > self._room:
            self._blocks.popitem(last=False)
        return prompt_tokens * found * BLOCK_CHARS // max(1, len(text))
