"""Whether the last qualification of a recipe still holds: what it rested on, against what is there now. Pure.

Unknown is not equal: what either side cannot tell makes the answer `cannot-tell`, never `holds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from anvil_tui.core.bundle import Bundle, BundleKind, Identity
from anvil_tui.core.capacity import Proven, frontier, proven_by
from anvil_tui.core.gate_kinds import LANES
from anvil_tui.core.gates import Verdict
from anvil_tui.core.heaps import Behaviour
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.times import parse_time

State = Literal["never", "failed", "holds", "drifted", "cannot-tell"]

GONE = "none of this recipe is here"
_GONE = {"container": GONE, "suite": "no longer here"}


@dataclass(frozen=True, slots=True)
class Past:
    """What is kept in memory of one bundle: whose it is, how it ended, and what its lanes proved.

    `failed`: what the serve did wrong. A run that passed nothing and failed nothing has no verdict on the serve.
    """

    id: str
    at: str
    kind: BundleKind
    passed: bool | None
    identity: Identity
    notes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    proven: tuple[Proven, ...] = ()


@dataclass(frozen=True, slots=True)
class Drift:
    """One thing that is no longer as it was when the qualification was made."""

    name: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class Holding:
    """The newest qualification of a recipe today. `untold` names what cannot be compared, and why."""

    recipe: str
    state: State
    bundle: str = ""
    at: str = ""
    suite: str = ""
    drift: tuple[Drift, ...] = ()
    untold: tuple[str, ...] = ()


def past_of(bundle: Bundle) -> Past:
    rows = [row for r in bundle.results if r.kind in LANES for row in r.rows]
    failed = tuple(
        f"{r.gate} failed: {r.reason}" for r in bundle.results if r.verdict == Verdict.FAILED and not r.accepted
    )
    proven = frontier(proven_by(rows, bundle.id, bundle.at))
    return Past(
        bundle.id, bundle.at, bundle.kind, bundle.passed, bundle.identity, bundle.notes, failed, proven
    )  # fmt: skip


def proven_for(recipe: Recipe, pasts: Iterable[Past]) -> tuple[Proven, ...]:
    """What lanes proved of exactly this recipe, over all of its bundles."""
    digest = recipe.digest()
    mine = [p for p in pasts if _bare(p.identity.recipe_digest) == digest]
    return frontier(p for past in mine for p in past.proven)


def newest(recipe_id: str, pasts: Iterable[Past]) -> Past | None:
    """The last one with a verdict on the serve: trouble of our own, or a cancel, takes nothing away."""
    mine = [p for p in pasts if p.identity.recipe == recipe_id and (p.passed is not False or p.failed)]
    return max(mine, key=lambda p: moment(p.at), default=None)


def moment(text: str) -> float:
    """A date is the beginning of its day; a text that is no time stands before every other."""
    try:
        at = parse_time(text if "T" in text or " " in text else f"{text}T00:00:00Z")
    except ValueError:
        return float("-inf")
    return at.timestamp() if at else float("-inf")


def holding(recipe: Recipe, pasts: Iterable[Past], now: Identity) -> Holding:
    past = newest(recipe.id, pasts)
    if past is None:
        return Holding(recipe.id, "never")
    found = Holding(recipe.id, "holds", past.id, past.at, past.identity.suite or "")
    drift, untold = _compared(recipe, past.identity, now)
    if past.passed is None:
        untold.insert(0, "its record holds no verdict of a suite")
    state: State = "drifted" if drift else "cannot-tell" if untold else "holds"
    if past.passed is False:
        state = "failed"
    return Holding(found.recipe, state, found.bundle, found.at, found.suite, tuple(drift), tuple(untold))


def _compared(recipe: Recipe, was: Identity, now: Identity) -> tuple[list[Drift], list[str]]:
    drift: list[Drift] = []
    untold: list[str] = []
    for name, of in _KEYS:
        then, today = of(was), of(now)
        if _implied(name, recipe, was, now):
            continue
        if then is None or today is None:
            untold.append(f"{name}: {'not in the record' if then is None else 'cannot be read now'}")
        elif then != today:
            drift.append(Drift(name, then or "none", today or _GONE.get(name, "none")))
    return drift, untold


def _implied(name: str, recipe: Recipe, was: Identity, now: Identity) -> bool:
    """What follows from something else, or does not matter to this recipe."""
    same_image = was.image_id is not None and was.image_id == now.image_id
    if name == "image":
        return same_image
    if name == "image id":
        return now.image_id is None and was.image is not None and was.image == now.image
    if name == "engine version":
        return now.engine_version is None and (same_image or (was.image is not None and was.image == now.image))
    return name in ("driver", "GPUs") and not recipe.gpus.select


def _bare(digest: str | None) -> str | None:
    return digest.removeprefix("sha256:") if digest else digest


def _uuids(i: Identity) -> str | None:
    return None if i.gpu_uuids is None else ", ".join(sorted(u.lower() for u in i.gpu_uuids))


_KEYS: tuple[tuple[str, Callable[[Identity], str | None]], ...] = (
    ("recipe", lambda i: _bare(i.recipe_digest)),
    ("revision", lambda i: i.revision),
    ("image", lambda i: i.image),
    ("image id", lambda i: i.image_id),
    ("suite", lambda i: _bare(i.suite_digest)),
    ("engine version", lambda i: i.engine_version),
    ("container", lambda i: i.container),
    ("GPUs", _uuids),
    ("driver", lambda i: i.driver),
)


# the words


def word(h: Holding) -> str:
    """For a column: state and day."""
    return h.state if h.state == "never" else f"{h.state} {h.at[5:10]}"


def words(h: Holding) -> str:
    """One sentence."""
    if h.state == "never":
        return "never qualified"
    when = f"{h.at[:10]}{', suite ' + h.suite if h.suite else ''} ({h.bundle})"
    drift = "; ".join(f"{d.name} was {short(d.was)}, is {short(d.now)}" for d in h.drift)
    if h.state == "failed":
        return f"failed {when}"
    if h.state == "drifted":
        return f"qualified {when}, drifted since: {drift}"
    if h.state == "cannot-tell":
        return f"recorded {when}; whether it holds cannot be told: {'; '.join(h.untold)}"
    return f"qualified {when} and it still holds"


def short(text: str) -> str:
    """Ids and digests by their first twelve digits."""
    bare = text.rpartition("sha256:")[2] if "sha256:" in text else text
    return bare[:12] if len(bare) >= 40 and " " not in bare else text


def behaviour(h: Holding) -> Behaviour | None:
    """What a qualification says to the screen of feasibility: only one that holds counts.

    A record without a suite is no qualification of this box; what it measured stands in the recipe itself.
    """
    if h.state == "failed":
        return Behaviour(f"suite {h.suite or 'of the record'}", "miss", words(h))
    if h.state == "never" or not h.suite:
        return None
    name = f"suite {h.suite}"
    return Behaviour(name, "pass" if h.state == "holds" else "unproven", words(h))
