"""The authenticated read that proves a client key: the gateway's own list of models, which needs no engine."""

from __future__ import annotations

from anvil_tui.adapters.http_get import Getter
from anvil_tui.core.credentials import Proof
from anvil_tui.ports import Clock

TIMEOUT_S = 5.0


class GatewayKeyProof:
    """Asks the gateway at `base_url`. Called with a key; never raises."""

    def __init__(self, base_url: str, clock: Clock) -> None:
        self._getter = Getter(base_url, clock)

    def __call__(self, key: str) -> Proof:
        got = self._getter.get("/v1/models", api_key=key, timeout_s=TIMEOUT_S)
        if got.ok:
            return Proof("accepted")
        return Proof("refused" if got.status in (401, 403) else "unproven", got.said())
