"""What is looked at slowly and stands beside the live readings: the way back's checks, drills, owners of GPUs,
clients' catalogs, credentials. Plain values; who reads them and what follows from them is elsewhere.

Times are UTC, ISO 8601; "" = not looked at yet. Unknown is a state of its own and never passes for good or bad.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

CheckName = Literal[
    "record", "image", "container", "weights", "configuration", "port", "gpus", "credential", "gates", "budgets",
    "drill", "home",
]  # fmt: skip


NEVER_WAIVED: Mapping[CheckName, str] = {
    "record": "without its exact recipe nothing can be started again",
    "credential": "without it nothing could be verified through the gateway",
}
WAIVABLE: tuple[CheckName, ...] = tuple(n for n in get_args(CheckName) if n not in NEVER_WAIVED)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a return to a serve needs. `why` says what is wrong or not known, or what was seen."""

    name: CheckName
    state: Literal["ok", "missing", "unknown", "waived"]
    why: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class DrillPhase:
    """`leg` is `away` (to the way back) or `home`; seconds by the monotonic clock of the operation."""

    leg: Literal["away", "home"]
    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class DrillRecord:
    """One drill of a role (`state/drills.ndjson`): what was left, where it went, how long, what differs since.

    `incumbent` and `way_back` are full container ids, `*_name` their recipes. `place` is this box or a simulated
    copy of it. `restore_s` is from the first step of the leg away to the way back answering, `home_s` the same of
    the leg home; None = that leg was not completed, or its serve ran already. `restored` = the end is the start,
    fact by fact; `differs` = the incumbent serves again, and `differences` says what is not as it was.
    `expected` are differences that a drill makes by itself, `unread` are facts that could not be read before or
    after. Later `rechecks` of the same operation are records of their own with `recheck` set.
    """

    operation: str
    role: str
    at: str
    place: Literal["box", "copy"]
    incumbent: str
    way_back: str
    outcome: Literal["restored", "differs", "undone", "halted"]
    restore_s: float | None = None
    phases: tuple[DrillPhase, ...] = ()
    differences: tuple[str, ...] = ()
    recheck: bool = False
    home_s: float | None = None
    expected: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    why: str = ""
    incumbent_name: str = ""
    way_back_name: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """Somebody who holds, or was given, one GPU. `id` is a full container id or a pid; `how` the mechanism.

    `gpu` is its UUID, "" while no GPU can be read. `mib` is what NVML attributes to it, None = not attributed
    here. Not `certain` = it may hold this GPU; which one it has is not known.
    """

    gpu: str
    kind: Literal["ours", "foreign", "process"]
    id: str
    name: str
    how: str
    mib: int | None = None
    certain: bool = True


@dataclass(frozen=True, slots=True)
class ClientState:
    """One client's catalog against what serves. `differences` are `KEY: has X, serves Y`.

    `no-credential` and `unreachable` are not converged, and say so.
    """

    name: str
    where: str
    state: Literal["converged", "drift", "no-credential", "unreachable", "unreadable", "unknown"]
    differences: tuple[str, ...] = ()
    why: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class CopyState:
    """One copy of a credential in a file of a client. `other` = it holds another value: stale, or a stranger's."""

    where: str
    key: str
    state: Literal["same", "other", "absent", "unreadable"]
    fingerprint: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class CredentialState:
    """One credential by name: its reference, where it was found, and whether an authenticated read took it.

    `fingerprint` is the first 12 hex digits of the SHA-256 of the value, "" = not found. Never a value.
    """

    name: str
    ref: str
    state: Literal["accepted", "refused", "absent", "unproven", "unknown"]
    source: str = ""
    fingerprint: str = ""
    note: str = ""
    why: str = ""
    at: str = ""
    copies: tuple[CopyState, ...] = ()
