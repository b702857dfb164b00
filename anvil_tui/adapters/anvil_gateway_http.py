"""The admin and status routes of a running anvil-serving gateway: one request a call, and what it said."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from anvil_tui.core.errors import EffectFailed, Unreachable
from anvil_tui.core.gateway_routes import slot_of

TRANSITION = "/v1/admin/transition"
# It looks at every tier's engine in turn, a second each where one hangs.
READ_S = 20.0
_BUSY_S = 0.1
KNOWN_MAJOR = "2."


@dataclass(frozen=True, slots=True)
class TierState:
    """One tier as the running gateway has it. `expects` and `context` are of its configuration; `observed` is the
    name it found at the engine's port, None = it found none."""

    id: str
    aliases: tuple[str, ...]
    admits: bool
    reason: str
    active: int
    expects: str
    context: int | None
    observed: str | None
    digest: str

    @property
    def slot(self) -> str:
        return slot_of(self.id)


@dataclass(frozen=True, slots=True)
class Running:
    """`hash` is the gateway's own of its configuration; ours is the digest of every tier."""

    version: str
    hash: str
    tiers: Mapping[str, TierState]

    @property
    def digest(self) -> str:
        """Ours, told by all tiers; "" when one has another or none: then the configuration is not ours."""
        seen = {t.digest for t in self.tiers.values()}
        return seen.pop() if len(seen) == 1 else ""


class Admin:
    """Asks the gateway at `bind`. `key` is asked for at each use; `ref` is the reference that messages name."""

    def __init__(self, bind: str, key: Callable[[], str], ref: str) -> None:
        self.url, self._key, self._ref = f"http://{bind}", key, ref
        # Plain HTTP: reading the machine's certificates would cost 30 ms. An idle connection would delay its end.
        self._client = httpx.Client(trust_env=False, verify=False, headers={"Connection": "close"})
        self._made: tuple[tuple[object, object], dict[str, dict[str, Any]]] = ((None, None), {})

    def running(self) -> Running:
        """Unreachable names the endpoint, and the credential where that is what is wrong."""
        rows = self._rows(TRANSITION, "tiers")
        status = self.ask("GET", "/v1/router/status")
        version = str(status.get("package_version", ""))
        if not version.startswith(KNOWN_MAJOR):
            raise Unreachable(self.url, f"anvil-serving {version or 'of no version'} answers; 2.x is known here")
        prints = self._prints((status.get("started_at"), status.get("config_sha256")))
        try:
            tiers = [_tier(r, prints[str(r["tier_id"])]) for r in rows]
        except (KeyError, TypeError, ValueError) as why:
            raise Unreachable(self.url, f"its tiers make no sense: {type(why).__name__} {why}") from why
        return Running(version, str(status.get("config_sha256", "")), {t.id: t for t in tiers})

    def _prints(self, process: tuple[object, object]) -> Mapping[str, Mapping[str, Any]]:
        """What each tier was configured as. It does not change while a process runs, and to ask for it costs
        another look at every engine."""
        if self._made[0] != process or None in process:
            rows = {str(r.get("id")): r for r in self._rows("/v1/models/fingerprints", "data")}
            self._made = (process, rows)
        return self._made[1]

    def _rows(self, path: str, key: str) -> list[dict[str, Any]]:
        rows = self.ask("GET", path).get(key)
        if not isinstance(rows, list):
            raise Unreachable(self.url + path, f"the answer has no list {key}")
        return [r for r in rows if isinstance(r, dict)]

    def ask(self, method: str, path: str, body: object = None, timeout_s: float = READ_S) -> dict[str, Any]:
        """The JSON object of a 200. Four may ask at a time, and each change has to wait for the one before."""
        endpoint, start = self.url + path, time.monotonic()
        bearer = {"Authorization": f"Bearer {self._key()}"}
        try:
            while True:
                answer = self._client.request(method, endpoint, json=body, timeout=timeout_s, headers=bearer)
                busy = answer.status_code == 503 and "server_busy" in answer.text
                if not busy or time.monotonic() >= start + timeout_s:
                    break
                time.sleep(_BUSY_S)
            told = answer.json() if answer.status_code == 200 else None
        except (httpx.HTTPError, ValueError) as why:
            reason = (
                f"the gateway does not answer ({why or type(why).__name__}); start it with `anvil-tui gateway run`"
            )
            raise Unreachable(endpoint, reason, time.monotonic() - start) from why
        if isinstance(told, dict):
            return told
        raise Unreachable(endpoint, self._why(answer, path), time.monotonic() - start)

    def _why(self, answer: httpx.Response, path: str) -> str:
        if answer.status_code == 401:
            return (
                f"it refuses the token of gateway.admin_key ({self._ref}); a token that was changed is taken when "
                "`anvil-tui gateway run` starts"
            )
        if answer.status_code == 404 and path == TRANSITION:
            return (
                "HTTP 404: its configuration has no [server].auth_env, so nobody can quiesce it; stop it and "
                "start it with `anvil-tui gateway run`"
            )
        return f"HTTP {answer.status_code}: {answer.text[:200]}"

    # transitions

    def quiesce(self, tier: str, reason: str) -> None:
        self._transit("quiesce", tier, reason=reason)

    def drain(self, tier: str, timeout_s: float) -> bool:
        """Whether nothing was left in flight in time."""
        done = self._transit("drain", tier, timeout_s, timeout=max(0.01, timeout_s))
        return done.get("drained") is True

    def readmit(self, tier: str) -> str:
        """ "" = it admits again; otherwise why the gateway, which looks at the engine first, does not."""
        done = self._transit("readmit", tier)
        return "" if done.get("readmitted") is True else str(done.get("reason") or "it does not say why")

    def _transit(self, action: str, tier: str, longer_s: float = 0.0, **more: object) -> dict[str, Any]:
        body = {"action": action, "tier_id": tier, "confirm": True, "dry_run": False, **more}
        told = self.ask("POST", TRANSITION, body, READ_S + longer_s)
        done = told.get("result")
        if told.get("applied") is not True or not isinstance(done, dict):
            raise EffectFailed(f"{self.url}{TRANSITION}: {action} of {tier} was answered: {str(told)[:200]}")
        return done

    # decisions

    def decision(self, request_id: str) -> dict[str, Any] | None:
        """What was decided on one request; None while the buffer does not hold it."""
        try:
            record = self.ask("GET", f"/v1/requests/{request_id}").get("record")
        except Unreachable as why:
            if "HTTP 404" in why.reason:
                return None
            raise
        return record if isinstance(record, dict) else None


def _tier(row: Mapping[str, Any], made: Mapping[str, Any]) -> TierState:
    active = row["active_requests"]
    if type(active) is not int:
        raise ValueError(f"active_requests is {active!r}")
    return TierState(
        str(row["tier_id"]), tuple(made["aliases"]), row["state"] == "admitting", str(row["reason"]), active,
        str(made["model"] or ""), made["served_configuration"].get("context_limit_tokens"),
        row.get("observed_model"), str(made["fingerprint"].get("config_fingerprint") or ""),
    )  # fmt: skip
