"""What a gate run leaves behind: identity of everything, every observation, results, a manifest with hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from anvil_tui import __version__
from anvil_tui.core.box import Container, Engine, GpuSnapshot
from anvil_tui.core.bundle import (
    EVIDENCE_SCHEMA,
    IDENTITY,
    MANIFEST,
    OBSERVATIONS,
    RESULTS,
    About,
    Identity,
    Manifest,
    about_text,
    document,
    fact_of,
    manifest_text,
    observations_text,
    prompts_digest,
    results_text,
    suite_digest,
)
from anvil_tui.core.errors import AnvilError, BadFile, EffectFailed
from anvil_tui.core.gates import GateResult, Suite, suite_passed
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.verify import Checked, check, report_texts
from anvil_tui.core.waivers import waivers_for
from anvil_tui.ports.operations import BundleAt, BundleStore, OperationStore
from anvil_tui.service.box import Box
from anvil_tui.service.bundles import bundle_texts
from anvil_tui.service.gates.session import GateTarget
from anvil_tui.service.planning import first_reading

PLAN = "plan.json"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Basis:
    """What the results of one run rest on."""

    suite: Suite
    target: GateTarget
    identity: Identity
    started_at: str
    waivers: tuple[str, ...] = ()


def basis_of(box: Box, suite: Suite, target: GateTarget) -> Basis:
    """Everything as it is before the first gate; a source that does not answer leaves its fields unknown.

    The digest is that of the whole suite: what of it is left out follows from the recipe, which has its own.
    """
    recipe = target.recipe
    container = _asked(lambda: box.containers.inspect(target.container_id))
    engine = box.engines.read(recipe.engine, target.port)
    daemon = _asked(box.containers.daemon)
    gateway = _asked(box.gateway.snapshot)
    reading = first_reading(box) if recipe.gpus.select else box.gpus.read()
    gpus = reading.value if reading.ok else None
    names, uuids = _gpus(container, gpus)
    speculation = f"{recipe.speculation.method} {recipe.speculation.tokens}" if recipe.speculation else "none"
    identity = Identity(
        recipe=recipe.id, recipe_digest=f"sha256:{recipe.digest()}", family=recipe.family, model=recipe.model.repo,
        revision=recipe.model.revision or None, quantization=recipe.model.quantization or None,
        served_name=recipe.served_name, engine=str(recipe.engine), engine_version=engine.version,
        image=_image(box, recipe, container), image_id=container.image_id if container else None,
        container=target.container_id, config=_config(container), context_tokens=_context(recipe, engine),
        max_output_tokens=recipe.envelope.max_output_tokens, concurrency=recipe.envelope.concurrency,
        kv_type=recipe.kv.type, speculation=speculation.strip(), thinking=recipe.thinking, gpus=names,
        gpu_uuids=uuids, driver=gpus.driver if gpus else None, cuda=gpus.cuda if gpus else None,
        kernel=daemon.kernel if daemon else None, docker=daemon.version if daemon else None,
        gateway=gateway.version if gateway else None, harness=f"anvil-tui {__version__}", suite=suite.id,
        suite_digest=f"sha256:{suite_digest(suite)}",
    )  # fmt: skip
    now = box.clock.utc()
    waivers = waivers_for(recipe, uuids or (), box.store.waivers(), now.date(), box.workspace.policies.reserve_mib)
    return Basis(suite.for_recipe(recipe)[0], target, identity, now.isoformat(timespec="milliseconds"), waivers)


def _asked(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except AnvilError:
        return None


def _context(recipe: Recipe, engine: Engine) -> int:
    """As the engine reports it, else as the recipe promises it; they were compared when the serve became ready."""
    return engine.context_tokens or recipe.envelope.context_tokens


def _image(box: Box, recipe: Recipe, container: Container | None) -> str | None:
    """The recipe's pin when it names the very image that the container runs; else a pin of that image."""
    if container is None:
        return None
    if _asked(lambda: box.containers.image_id(recipe.image.ref)) == container.image_id:
        return recipe.image.ref
    return container.pins[0] if container.pins else None


def _config(container: Container | None) -> str | None:
    if container is None:
        return None
    text = document({"argv": container.argv, "environment": sorted(container.env_names)})
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _gpus(
    container: Container | None, snapshot: GpuSnapshot | None
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """(names, UUIDs) of the GPUs that the container holds; () = none, None = unknown."""
    grant = container.gpus if container else None
    if grant is None or grant.effective == "unknown":
        return None, None
    if grant.effective == "none":
        return (), ()
    if snapshot is None:
        return None, grant.uuids if grant.effective == "uuids" else None
    mine = [g for g in snapshot.gpus if grant.effective == "all" or g.uuid in grant.uuids]
    names = tuple(g.name for g in mine if g.name)
    uuids = tuple(g.uuid for g in mine if g.uuid)
    return (names if len(names) == len(mine) else None), (uuids if len(uuids) == len(mine) else None)


def write_evidence(
    store: OperationStore,
    operation: str,
    basis: Basis,
    results: Sequence[GateResult],
    ended_at: str,
    notes: Sequence[str] = (),
) -> tuple[str, str]:
    """Keeps `SERVE-{identity.json,observations.ndjson,results.json,manifest.json}` with the operation.

    SERVE is the short container id: one operation may judge two serves. The manifest comes last, so that
    a bundle with a manifest is complete. Returns the manifest's name and the SHA-256 of its text.
    """
    serve = basis.target.container_id[:12]
    identity = replace(basis.identity, prompts=prompts_digest(results))
    about = About(identity, basis.suite.model_dump(mode="json", by_alias=True), (*basis.waivers, *notes))
    texts = {IDENTITY: about_text(about), OBSERVATIONS: observations_text(results), RESULTS: results_text(results)}
    kept = {f"{serve}-{name}": store.save(operation, f"{serve}-{name}", text) for name, text in texts.items()}
    plan = store.read_kept(operation, PLAN)
    kept |= {PLAN: plan} if plan is not None else {}
    manifest = Manifest(
        EVIDENCE_SCHEMA, f"{operation}/{serve}", "measured", basis.started_at, ended_at, suite_passed(results),
        {name: fact_of(text.encode()) for name, text in kept.items()},
    )  # fmt: skip
    name = f"{serve}-{MANIFEST}"
    return name, fact_of(store.save(operation, name, manifest_text(manifest)).encode()).sha256


# bundles that are there


def check_bundle(store: BundleStore, at: BundleAt) -> Checked:
    """Everything that can be checked offline, the operation's journal included where it lies beside."""
    try:
        anchors = store.anchors(at)
    except BadFile as why:
        return Checked((str(why),))
    return check(store.read(at), at.prefix, None if anchors is None else anchors.get(at.prefix + MANIFEST, ""))


def report_bundle(store: BundleStore, at: BundleAt, *, pages: bool) -> tuple[str, ...]:
    """Writes the reports beside the bundle and returns their paths. EffectFailed when the bundle is not sound."""
    texts = bundle_texts(store, at)
    anchors = store.anchors(at)
    named = None if anchors is None else anchors.get(at.prefix + MANIFEST, "")
    sound = check({name: text.encode() for name, text in texts.items()}, at.prefix, named)
    if sound.problems:
        raise EffectFailed(
            f"bundle {at.id} is not sound, so nothing is reported of it: {'; '.join(sound.problems)}"
        )
    return tuple(store.write(at, name, text) for name, text in report_texts(texts, at.prefix, pages=pages).items())
