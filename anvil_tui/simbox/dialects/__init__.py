"""How each engine speaks: its routes, shapes, logs, metrics and manners."""

from __future__ import annotations

from collections.abc import Mapping

from anvil_tui.simbox.dialects.base import Dialect
from anvil_tui.simbox.dialects.llamacpp import LlamaCpp
from anvil_tui.simbox.dialects.sglang import Sglang
from anvil_tui.simbox.dialects.vllm import Vllm

DIALECTS: Mapping[str, type[Dialect]] = {"vllm": Vllm, "sglang": Sglang, "llamacpp": LlamaCpp}
