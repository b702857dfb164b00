"""The gateway of anvil-serving 2.x: read its tiers and decisions, point aliases, install its configuration.

It holds no request: an alias that is quiesced answers 503. Its configuration is read when it starts, so that an
alias moves with a restart, before which every tier is quiesced and drained. What it should do stands in
`routes.json`, from which `anvil-tui gateway run` renders all that it reads.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from anvil_tui.adapters.anvil_gateway_http import Admin, Running, TierState
from anvil_tui.adapters.anvil_gateway_run import (
    Setup,
    control_socket,
    install_files,
    interrupting,
    pid_of,
    read_routes,
    restart,
    trial,
    write_routes,
)
from anvil_tui.adapters.files import folder_lock
from anvil_tui.adapters.haproxy_socket import answers
from anvil_tui.core.box import Backend, Capabilities, Expected, Gateway, Request
from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.errors import AnvilError, BadFile, EffectFailed, Refused
from anvil_tui.core.gateway_config import HOLD, NONE, check_target
from anvil_tui.core.gateway_routes import (
    CONFIG_FILE,
    RESTART,
    ROUTES_FILE,
    Routes,
    admits,
    merged,
    slot_of,
    tiers,
    written,
)
from anvil_tui.core.routing import Origin, Way, private
from anvil_tui.core.workspace import GatewaySettings, Role

CAN = Capabilities(atomic=False, holds=False, severs=False, keys=False, errors=False)
# A decision is written when the last byte has left; seen there within 20 ms.
_DECIDED_S = 2.0
_REMEMBERED = 4096
DRAIN_SLICE_S = 1.0


class AnvilGatewayReader:
    """Reads the gateway of the workspace at `directory`. `admin_key` is asked for at each use."""

    def __init__(
        self, directory: Path, settings: GatewaySettings, roles: tuple[Role, ...], admin_key: Callable[[], str]
    ) -> None:
        self._folder, self._roles = (directory / settings.dir).resolve(), roles
        self._admin = Admin(settings.bind, admin_key, settings.admin_key or "")
        self._origins: dict[str, Origin] = {}

    def snapshot(self) -> Gateway:
        """Unreachable names the endpoint, what is wrong, and what to do about it."""
        running = self._admin.running()
        slots = [s for r in self._roles for s in r.slots]
        aliases = running_targets(running, self._roles)
        routes = self._routes()
        equal = routes is not None and routes.targets == aliases
        equal = equal and on_disk(self._folder, routes or Routes(), self._roles) == running.digest
        return Gateway(
            aliases, tuple(_backend(s.name, s.port, running) for s in slots), None,
            routes.generation if routes else 0, equal, pid_of(self._folder), f"anvil-serving {running.version}",
            CAN, at=running_slots(running, self._roles),
        )  # fmt: skip

    def _routes(self) -> Routes | None:
        """What the durable file says, for the roles of now. A missing or damaged one equals nothing that runs."""
        try:
            stored = read_routes(self._folder)
            return merged(stored, self._roles) if stored else None
        except (BadFile, Refused):
            return None

    def way(self, to: str, served_name: str) -> Way:
        return Way(self._admin.url, to)

    def served_by(self, answer: ChatAnswer) -> Origin:
        request = answer.headers.get("x-anvil-request-id", "")
        if not request:
            return Origin("", "an answer that bears no request id of the gateway")
        if request not in self._origins:
            try:
                found = self._origin(request, answer.status == 200)
            except AnvilError as why:
                return Origin("", f"nobody that the gateway can name: {why}")
            while len(self._origins) >= _REMEMBERED:
                self._origins.pop(next(iter(self._origins)), None)
            self._origins[request] = found
        return self._origins[request]

    def _origin(self, request: str, good: bool) -> Origin:
        until = time.monotonic() + _DECIDED_S
        while (record := self._admin.decision(request)) is None:
            if time.monotonic() >= until:
                return Origin("", f"nobody: the gateway's decision buffer has nothing on {request}")
            time.sleep(0.02)
        tier, why = decided(record, good)
        if why:
            return Origin("", f"nobody we can be sure of: {why} ({request})")
        state = self._admin.running().tiers.get(tier)
        return Origin(slot_of(tier), model=(state.observed or "") if state else "")


def on_disk(folder: Path, routes: Routes, roles: tuple[Role, ...]) -> str | None:
    """The digest of the configuration on the disk, if it is what the routes give; None = it is something else."""
    try:
        text = (folder / CONFIG_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return written(text, str(folder), routes, roles) or None


def decided(record: Mapping[str, Any], good: bool) -> tuple[str, str]:
    """(the tier that answered, "") or ("", why that is not proven). One attempt, at the tier that was asked for,
    is an answer without fallback; an error that is an engine's own has the engine's tier, too."""
    attempts = record.get("attempts")
    if not isinstance(attempts, list) or len(attempts) != 1 or not isinstance(attempts[0], dict):
        count = len(attempts) if isinstance(attempts, list) else "no"
        return "", f"{count} attempts instead of one"
    only, asked = attempts[0], str(record.get("requested_tier") or "")
    reason = str(only.get("reason") or "")
    if only.get("tier_id") != asked or (good and record.get("served_tier") != asked):
        return "", f"asked for {asked}, tried {only.get('tier_id')}, served by {record.get('served_tier')}"
    if not good and not reason.startswith("backend_error"):
        return "", f"the gateway answered itself: {reason}"
    if not slot_of(asked):
        return "", f"tier {asked} is none of ours"
    return asked, ""


def running_targets(running: Running, roles: tuple[Role, ...]) -> dict[str, str]:
    """Alias -> slot, `hold` or `none`, as the gateway has it; a tier that is none of ours stands by its own id."""
    known = {a.lower(): a for r in roles for a in r.aliases}
    return {
        known.get(alias, alias): _target(tier)
        for tier in running.tiers.values()
        for alias in tier.aliases
        if not alias.startswith(private(""))
    }


def running_slots(running: Running, roles: tuple[Role, ...]) -> dict[str, str]:
    """Alias -> the slot of its tier, whether it admits or not."""
    aliases = {a.lower(): a for r in roles for a in r.aliases}
    return {aliases[a]: t.slot for t in running.tiers.values() for a in t.aliases if a in aliases}


def _target(tier: TierState) -> str:
    if tier.admits:
        return tier.slot or tier.id
    return NONE if tier.reason == NONE else HOLD


def _backend(slot: str, port: int, running: Running) -> Backend:
    """Counts are of every tier with that slot's port; unknown when the gateway has none."""
    here = [t for t in running.tiers.values() if t.slot == slot]
    own = running.tiers.get(private(slot))
    return Backend(
        slot, f"127.0.0.1:{port}" if here else "", sum(t.active for t in here) if here else None,
        expects=Expected(own.expects, own.context or 0) if own else None, observed=own.observed if own else None,
    )  # fmt: skip


class AnvilGatewayControl:
    """Changes the gateway. `setup` resolves anvil.toml's secrets at each use."""

    def __init__(self, setup: Callable[[], Setup], drain_s: float) -> None:
        self._setup, self._drain_s = setup, drain_s

    def point(self, targets: Mapping[str, str], generation: int, checkpoint: Callable[[str], None]) -> None:
        """Refused for an alias or target that is not configured and for a generation older than the one found;
        Unreachable, with nothing written, when the gateway does not run."""
        setup = self._setup()
        for alias, target in targets.items():
            check_target(setup.roles, alias, target)
        self._change(setup, lambda old: old.pointed(targets, generation), generation, checkpoint, set(targets))

    def expect(self, slot: str, serve: Expected, generation: int) -> None:
        setup = self._setup()
        if all(s.name != slot for r in setup.roles for s in r.slots):
            raise Refused(f"{slot} is no slot of anvil.toml")
        self._change(setup, lambda old: old.expecting(slot, serve, generation), generation, _nothing, set())

    def sever(self, backend: str, ids: Collection[str] | None = None) -> tuple[Request, ...]:
        raise Refused("anvil-serving cannot cut single requests: let them finish, or stop the engine")

    def accept_key(self, key: str) -> None:
        raise Refused(
            "anvil-serving reads its client keys when it starts: change the secret, then run "
            "`anvil-tui gateway install`"
        )

    def expel_key(self, key: str) -> None:
        self.accept_key(key)

    def would_interrupt(self) -> str:
        setup = self._setup()
        if pid_of(setup.folder) is None:
            return ""
        running = self._admin(setup).running()
        routes = merged(read_routes(setup.folder) or Routes(), setup.roles)
        return "" if setup.rendered(routes)[1] == running.digest else interrupted(running, self._drain_s)

    def install(self) -> bool:
        """True also when files were as wanted and only the running gateway had to follow them."""
        setup = self._setup()
        if not answers(control_socket(setup.folder)):
            return install_files(setup)
        if pid_of(setup.folder) is None:  # an earlier restart failed: nothing runs that could be interrupted
            install_files(setup)
            restart(setup.folder, ())
            return True
        before = self._admin(setup).running()
        stored = read_routes(setup.folder)
        generation = stored.generation if stored else 0
        self._change(setup, lambda old: old, generation, _nothing, set(), afresh=True)
        after = self._admin(setup).running()
        return _shape(before) != _shape(after) or stored != read_routes(setup.folder)

    # how a change is made

    @staticmethod
    def _admin(setup: Setup) -> Admin:
        return Admin(setup.settings.bind, lambda: setup.admin_key, setup.settings.admin_key or "")

    def _change(
        self, setup: Setup, make: Callable[[Routes], Routes], generation: int, checkpoint: Callable[[str], None],
        involved: set[str], afresh: bool = False,
    ) -> None:  # fmt: skip
        """`afresh`: secrets that were changed are a reason to restart, too."""
        admin = self._admin(setup)
        running = admin.running()
        with folder_lock(setup.folder / ROUTES_FILE):
            old = merged(read_routes(setup.folder) or Routes(), setup.roles)
            if generation < old.generation:
                raise Refused(
                    f"the routes are of generation {old.generation}, this operation is {generation}: it is stale"
                )
            wanted = make(old)
            has = on_disk(setup.folder, wanted, setup.roles)
            if (setup.rendered(wanted)[1] if afresh else has) == has == running.digest:
                write_routes(setup.folder, wanted)
                checkpoint("gateway:between")
            else:
                self._restart(setup, admin, running, old, wanted, checkpoint)
            self._settle(setup, admin, wanted, involved)

    def _restart(
        self, setup: Setup, admin: Admin, running: Running, old: Routes, wanted: Routes,
        checkpoint: Callable[[str], None],
    ) -> None:  # fmt: skip
        """Nothing is touched before the gateway has taken the configuration in a trial, and nothing is cut. What
        does not come up, or comes up as something else, is put back."""
        trial(setup, wanted)
        fresh = tuple(t.id for t in tiers(wanted, setup.roles) if t.alias and t.id not in running.tiers)
        with interrupting(setup.folder):
            self._empty(admin, running)
            write_routes(setup.folder, wanted)
            checkpoint("gateway:between")
            try:
                restart(setup.folder, fresh)
                self._came_up(admin, setup.rendered(wanted)[1])
            except AnvilError:
                write_routes(setup.folder, old)
                self._put_back(setup, admin, running.digest)
                raise

    @staticmethod
    def _came_up(admin: Admin, digest: str) -> None:
        if (found := admin.running().digest) != digest:
            raise EffectFailed(
                f"{admin.url} runs configuration {found or 'of nobody we know'}, not the one just rendered: does "
                "`anvil-tui gateway run` see the same anvil.toml and the same secrets?"
            )

    @staticmethod
    def _put_back(setup: Setup, admin: Admin, digest: str) -> None:
        """Nothing to do where the old one never ended; where it cannot be had back, its supervisor goes on
        trying."""
        with contextlib.suppress(AnvilError):
            if pid_of(setup.folder) is None or admin.running().digest != digest:
                restart(setup.folder, ())

    def _empty(self, admin: Admin, running: Running) -> None:
        """Quiesce every tier, then wait until nothing is in flight. What is not over in time is let go on, and
        nothing was cut. In slices: while the gateway drains it readmits nothing."""
        until = time.monotonic() + self._drain_s
        for tier in (t.id for t in running.tiers.values() if t.admits):
            admin.quiesce(tier, RESTART)
        for tier in running.tiers:
            while not admin.drain(tier, min(DRAIN_SLICE_S, until - time.monotonic())):
                if time.monotonic() >= until:
                    raise EffectFailed(
                        f"drain_timeout: {tier} has requests in flight after {self._drain_s:.0f} s; the gateway "
                        "was not restarted and nothing was cut"
                    )

    def _settle(self, setup: Setup, admin: Admin, wanted: Routes, involved: set[str]) -> None:
        """Each tier admits or not as the routes say; an alias that should admit does so only after the gateway has
        found the expected model itself. EffectFailed for an alias in `involved` that it has not."""
        running = admin.running()
        for tier in tiers(wanted, setup.roles):
            now = running.tiers.get(tier.id)
            if now is None:
                raise EffectFailed(f"{admin.url} has no tier {tier.id} after it was installed")
            if not admits(wanted, tier):
                if now.admits or now.reason != wanted.targets[tier.alias]:
                    admin.quiesce(tier.id, wanted.targets[tier.alias])
            elif not now.admits and (why := admin.readmit(tier.id)) and tier.alias in involved:
                found = admin.running().tiers[tier.id]
                raise EffectFailed(
                    f"{admin.url} does not admit {tier.alias} to {tier.slot.name}: {why}; it expects "
                    f"{found.expects}, the engine there says {found.observed or 'nothing'}"
                )
        found_targets = running_targets(admin.running(), setup.roles)
        if wrong := [a for a in involved if found_targets.get(a) != wanted.targets[a]]:
            raise EffectFailed(f"{admin.url}: {wrong[0]} is {found_targets.get(wrong[0])} after it was pointed")


def interrupted(running: Running, drain_s: float) -> str:
    """What a restart interrupts, for whom and how long."""
    admitted = sorted(a for t in running.tiers.values() if t.admits for a in t.aliases if not a.startswith("@"))
    flight = sum(t.active for t in running.tiers.values())
    who = ", ".join(admitted) or "no alias admits now"
    return (
        f"the gateway restarts, for every alias ({who}): 503 while {flight} requests in flight finish, at most "
        f"{drain_s:.0f} s, then connections are refused for about a second; nothing is cut"
    )


def _shape(running: Running) -> tuple[object, ...]:
    return running.digest, tuple((t.id, t.admits, t.reason) for t in running.tiers.values())


def _nothing(at: str) -> None:
    """No kill point between the halves of this change."""
