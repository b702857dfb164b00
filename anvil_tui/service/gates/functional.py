"""The functional gates: what is asked of the model and of the routes that it is served by."""

from __future__ import annotations

from collections.abc import Mapping

from anvil_tui.core.gates import GateKind
from anvil_tui.service.gates.answering import ANSWERING
from anvil_tui.service.gates.calling import CALLING
from anvil_tui.service.gates.reading import READING
from anvil_tui.service.gates.responding import RESPONDING
from anvil_tui.service.gates.session import GateWork

FUNCTIONAL: Mapping[GateKind, GateWork] = {**ANSWERING, **CALLING, **READING, **RESPONDING}
