"""Looks slowly at what a return to a serve needs beside its container: files, port, gates.

What follows from it is in `core/readiness.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from anvil_tui.core import shape
from anvil_tui.core.box import Container
from anvil_tui.core.bundle import suite_digest
from anvil_tui.core.errors import AnvilError, NotFound, Unreachable
from anvil_tui.core.facts import Facts
from anvil_tui.core.gates import Suite
from anvil_tui.core.plan import Intent
from anvil_tui.core.recipe import Recipe, Weights
from anvil_tui.core.standing import Check, CheckName
from anvil_tui.core.times import utc_text
from anvil_tui.core.world import ServeRecord, World
from anvil_tui.ports.surroundings import FileLook, FileReader
from anvil_tui.service.box import Box
from anvil_tui.service.gates.session import budgets, thinking_wanted

Unrunnable = Callable[[Suite, Recipe], Mapping[str, str]]
State = tuple[str, str]

PLAN_HASH_S = 1.0
"""How long one look for a plan may read weights on; what is not read then is told by its size."""
PINNED_FILE_S = 20.0
MOUNTED_FILE_MAX = 64 * 1024 * 1024
READING = "hash not read yet"
ELSEWHERE = "the box is another machine: its files and ports cannot be looked at from here"


@dataclass(frozen=True, slots=True)
class _Subject:
    """One serve that might be returned to. `standing` says why its port needs no look, "" = it does."""

    serve: ServeRecord
    recipe: Recipe
    container: Container | None
    standing: str
    suite: Suite | str
    hash_s: float
    keep: bool


class WayBack:
    """Proofs of a box's serves. `unrunnable` asks the conductor, as plans do."""

    def __init__(self, box: Box, unrunnable: Unrunnable) -> None:
        self._box, self._unrunnable = box, unrunnable

    def standing(self, world: World, hash_s: float) -> tuple[Mapping[str, tuple[Check, ...]], bool]:
        """By container id, of every incumbent and way back; and whether weights are left to be read."""
        here = {c.id: c for c in world.containers.value or ()}
        suites = {s.id: s.suite or s.error for s in self._box.suites()}
        found: dict[str, tuple[Check, ...]] = {}
        for held in world.record.roles.values():
            for container_id in (held.incumbent, *held.rollback[:1]):
                serve, container = world.record.serves.get(container_id), here.get(container_id)
                recipe = serve and world.exact_recipe(serve.recipe_digest, serve.recipe_id)
                if serve and recipe:
                    standing = _standing(serve, container, world.record.serves.get(held.incumbent), here)
                    suite = _suite(serve, recipe, suites)
                    keep = not world.read_only
                    subject = _Subject(serve, recipe, container, standing, suite, hash_s, keep)
                    found[container_id] = self._proofs(subject)
        return found, any(READING in c.why for checks in found.values() for c in checks)

    def for_plan(self, intent: Intent, facts: Facts) -> Facts:
        """The facts with fresh proofs of what a promotion leaves, a rollback or drill goes to, and an undo starts
        again after an eviction."""
        role = facts.role(intent.role)
        held = facts.record.roles.get(role.name)
        ids = (held.incumbent, *held.rollback[:1]) if held else ()
        wanted = {"promote": ids[:1], "rollback": ids[1:], "drill": ids}.get(intent.verb, ())
        if intent.evict:
            wanted += tuple(s.container_id for s in facts.running_serves() if s.role != role.name)
        suites: Mapping[str, Suite | str] = {**facts.suite_errors, **facts.suites}
        proofs, images = dict(facts.proofs), dict(facts.images)
        for container_id in wanted:
            serve = facts.record.serves.get(container_id)
            recipe, container = serve and facts.exact_recipe(serve), facts.container(serve)
            if serve and recipe:
                images[recipe.image.ref] = self._box.containers.image_id(recipe.image.ref)
                standing = _standing(serve, container, facts.incumbent(role), facts.containers)
                suite = _suite(serve, recipe, suites)
                subject = _Subject(serve, recipe, container, standing, suite, PLAN_HASH_S, keep=True)
                proofs[container_id] = self._proofs(subject)
        return replace(facts, proofs=proofs, images=images, host=self._box.host.read())

    def _proofs(self, s: _Subject) -> tuple[Check, ...]:
        at = utc_text(self._box.clock.utc())
        looks: list[tuple[CheckName, Callable[[], State]]] = [
            ("port", lambda: self._port(s)), ("gates", lambda: self._gates(s)), ("budgets", lambda: _budgets(s)),
        ]  # fmt: skip
        if (c := s.container) is not None:
            looks += [
                ("weights", lambda: self._weights(s, c)), ("configuration", lambda: self._configuration(s, c)),
            ]  # fmt: skip
        found = []
        for name, look in looks:
            try:
                state, why = look()
            except AnvilError as error:
                state, why = "unknown", str(error)
            found.append(Check(name, state, why, at))  # type: ignore[arg-type]
        return tuple(found)

    def _weights(self, s: _Subject, c: Container) -> State:
        seen = [self._checkpoint(s, c, weights) for weights in _checkpoints(s.recipe)]
        worst = next((w for state in ("missing", "unknown") for w in seen if w[0] == state), None)
        return worst or ("ok", "; ".join(why for _, why in seen))

    def _checkpoint(self, s: _Subject, c: Container, w: Weights) -> State:
        files, recorded = self._box.mounted, shape.read(s.serve.shape)
        path = w.path or _hub_path(w, c)
        if not path:
            return _unnamed(w, c)
        host = host_path(path, c)
        if host is None:
            return "ok", f"{path} is part of the image"
        look = files.look(host) if files else FileLook("unreadable", why=ELSEWHERE)
        if look.kind == "unreadable":
            look = _by_daemon(self._box, c, path, look)
        if look.kind == "absent" or look.flaws:
            return "missing", f"{path}: {'; '.join(look.flaws) or f'{host} does not exist'}"
        if look.kind in ("unreadable", "silent"):
            return "unknown", f"{path}: {look.why}"
        want = w.bytes or int(recorded.get(f"bytes:{path}", "0")) or None
        if short := _wrong_size(look, want):
            return "missing", f"{path}: {short}"
        if w.sha256 and look.files == 1 and look.kind == "file" and not look.why:
            return self._hashed(s, path, host, w.sha256, want)
        told = f"{path}: {look.bytes:,} bytes" + ("" if want else ", no size on record to compare with")
        return "ok", told + (f"; {look.why}" if look.why else "")

    def _hashed(self, s: _Subject, path: str, host: str, sha256: str, want: int | None) -> State:
        assert self._box.mounted is not None
        seen = self._box.mounted.sha256(host, s.hash_s, keep=s.keep)
        if seen.sha256:
            wrong = f"{path} is {seen.sha256[:12]}…, the recipe pins {sha256[:12]}…"
            return (
                ("ok", f"{path}: {seen.of:,} bytes, sha256 as pinned")
                if seen.sha256 == sha256
                else ("missing", wrong)
            )
        progress = f"{READING}, {100 * seen.done // max(1, seen.of)} % of {seen.of:,} bytes"
        return ("ok" if want else "unknown"), f"{path}: {'size only' if want else 'no size on record'}, {progress}"

    def _configuration(self, s: _Subject, c: Container) -> State:
        if self._box.mounted is None:
            return "unknown", ELSEWHERE
        then = shape.read(s.serve.shape)
        mounts = [self._mount(c, source, target, then.get(f"file:{target}", "")) for source, target, _ in c.mounts]
        wrong, unseen = ([why for state, why in mounts if state == kind] for kind in ("missing", "unknown"))
        if unseen and not wrong:
            return "unknown", "; ".join(unseen)
        pinned = [p for p in s.recipe.pinned_files if p[1] != s.recipe.model.path and not unseen]
        for name, path, want in pinned:
            try:
                got = self._box.containers.sha256(c.id, path, PINNED_FILE_S)
            except NotFound as why:
                wrong.append(f"{name} {path}: {why}")
                continue
            if got != want:
                wrong.append(f"{name} {path} is {got[:12]}…, the recipe pins {want[:12]}…")
        if wrong:
            return "missing", "; ".join(wrong)
        told = f"{_many(len(c.mounts), 'mount')} there, {_many(len(pinned), 'pinned file')} as recorded"
        was = then.get(f"suite:{s.suite.id}") if isinstance(s.suite, Suite) else None
        if was and isinstance(s.suite, Suite) and was != suite_line(s.suite):
            told += f"; suite {s.suite.id} has changed since it qualified this serve"
        return "ok", told

    def _mount(self, c: Container, source: str, target: str, recorded: str) -> State:
        """Whether a mount is there, and the file that was recorded, if one was."""
        files = self._box.mounted
        assert files is not None
        seen = look = files.look(source, below=False)
        if look.kind == "silent":
            return "unknown", f"{target}: {look.why}"
        if look.kind == "unreadable":
            seen = _by_daemon(self._box, c, target, look)
        if seen.kind == "absent":
            return "missing", f"{source}, mounted at {target}, does not exist"
        if not recorded:
            return "ok", ""
        if seen.kind != "file":
            return "missing", f"{target} ({source}) was a file when it was recorded"
        now = _small_hash(files, source) or self._box.containers.sha256(c.id, target, PINNED_FILE_S)[:16]
        return (
            ("ok", "")
            if now == recorded
            else ("missing", f"{target} ({source}) is not the file that was recorded")
        )

    def _port(self, s: _Subject) -> State:
        if s.standing:
            return "ok", s.standing
        if self._box.listeners is None:
            return "unknown", ELSEWHERE
        port, look = s.serve.port, self._box.listeners.look(s.serve.port)
        if look.state == "free":
            return "ok", f"port {port} is free"
        if look.state == "unknown":
            return "unknown", look.why
        return "missing", f"port {port} of {s.serve.slot} is taken by {self._who(look.pid, look.name)}"

    def _who(self, pid: int | None, name: str) -> str:
        if pid is None:
            return "a process that /proc does not show to this user"
        within = self._box.host.containers_of([pid]).get(pid)
        return f"process {pid} ({name})" + (
            f" of container {within[:12]}" if within else ", which is in no container" if within == "" else ""
        )

    def _gates(self, s: _Subject) -> State:
        if isinstance(s.suite, str):
            return "missing", s.suite
        kept, _ = s.suite.for_recipe(s.recipe)
        cannot = self._unrunnable(kept, s.recipe)
        if cannot:
            return "missing", f"suite {kept.id}: " + "; ".join(f"gate {g}: {why}" for g, why in cannot.items())
        return "ok", f"suite {kept.id}: {len(kept.gates)} gates can run"


def recorded(box: Box, container: Container, recipe: Recipe) -> str:
    """The shape of a serve as it is now: what its record is compared with later."""
    lines, files = shape.shape_of(container), box.mounted
    if files is None:
        return shape.write(lines)
    for source, target, _ in container.mounts:
        look = files.look(source, below=False)
        if look.kind == "file" and look.bytes <= MOUNTED_FILE_MAX and (found := _small_hash(files, source)):
            lines[f"file:{target}"] = found
    for w in _checkpoints(recipe):
        path = w.path or _hub_path(w, container)
        host = host_path(path, container) if path else None
        look = files.look(host) if host else FileLook("absent")
        try:
            look = _by_daemon(box, container, path, look) if look.kind == "unreadable" else look
        except AnvilError:
            continue  # what nobody can tell is left out: no reason to fail a serve that is ready
        if look.kind in ("file", "folder"):
            lines[f"bytes:{path}"] = str(look.bytes)
    return shape.write(lines)


def _by_daemon(box: Box, c: Container, path: str, look: FileLook) -> FileLook:
    """What the daemon tells of a path that this user may not look at: of one file its size."""
    try:
        size = box.containers.size_of(c.id, path)
    except NotFound:
        return FileLook("absent")
    if size is None:
        return FileLook("unreadable", why=f"a folder is there, but {look.why}")
    return FileLook("file", size, 1, why=f"size only, by the daemon: {look.why}")


def _small_hash(files: FileReader, path: str) -> str:
    """ "" where this user may not read it, or could not in time."""
    try:
        return files.sha256(path, PINNED_FILE_S, keep=False).sha256[:16]
    except Unreachable:
        return ""


def with_suite(box: Box, text: str, suite_id: str) -> str:
    """A shape with the suite that has qualified it."""
    suite = next((s.suite for s in box.suites() if s.suite and s.suite.id == suite_id), None)
    kept = {name: value for name, value in shape.read(text).items() if not name.startswith("suite:")}
    return shape.write({**kept, **({f"suite:{suite_id}": suite_line(suite)} if suite else {})})


def suite_line(suite: Suite) -> str:
    return suite_digest(suite)[:16]


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _suite(serve: ServeRecord, recipe: Recipe, suites: Mapping[str, Suite | str]) -> Suite | str:
    """The suite that judges it, or the sentence why there is none."""
    name = serve.qualified_suite or recipe.suite
    found = suites.get(name, "no such file in gates/")
    return found if isinstance(found, Suite) else f"suite {name} cannot be used: {found}"


def _standing(
    serve: ServeRecord, container: Container | None, incumbent: ServeRecord | None, here: Mapping[str, Container]
) -> str:
    """Why nobody need bind its port: it listens there itself, or what stops before it starts does."""
    if container and container.running:
        return f"port {serve.port} is its own while it runs"
    before = here.get(incumbent.container_id) if incumbent else None
    if incumbent and before and before.running and incumbent.port == serve.port:
        return f"port {serve.port} is that of {incumbent.recipe_id}, which stops first"
    return ""


def _checkpoints(recipe: Recipe) -> tuple[Weights, ...]:
    draft = recipe.speculation.draft if recipe.speculation else None
    return (recipe.model, draft) if draft else (recipe.model,)


def host_path(path: str, container: Container) -> str | None:
    """Where a path of the container lies on its machine; None = in its image."""
    inside = PurePosixPath(path)
    over = [m for m in container.mounts if inside.is_relative_to(m[1])]
    if not over:
        return None
    source, target, _ = max(over, key=lambda m: len(m[1]))
    return str(PurePosixPath(source) / inside.relative_to(target))


def _hub_path(w: Weights, container: Container) -> str:
    """The snapshot in a mounted Hugging Face cache, for a recipe that names repository and revision alone."""
    cache = next((t for _, t, _ in container.mounts if "huggingface" in t), None)
    if cache is None or not w.revision:
        return ""
    below = "" if cache.rstrip("/").endswith("/hub") else "hub/"
    return f"{cache.rstrip('/')}/{below}models--{w.repo.replace('/', '--')}/snapshots/{w.revision}"


def _unnamed(w: Weights, container: Container) -> State:
    if not container.mounts:
        return "ok", f"{w.repo}: nothing is mounted, so it is part of the image"
    return "unknown", f"{w.repo}: the recipe names no path to its weights (model.path)"


def _wrong_size(look: FileLook, want: int | None) -> str:
    """A file has exactly its size; a folder may have grown by what the engine put there, and never shrinks."""
    if look.bytes == 0:
        return "it is empty"
    if want is None or look.bytes == want or (look.kind == "folder" and look.bytes > want):
        return ""
    return f"{look.bytes:,} bytes, {want:,} are recorded"


def _budgets(s: _Subject) -> State:
    """Room for what each gate asks for; reasoning that is on needs tokens of its own, or every probe starves."""
    if isinstance(s.suite, str):
        return "unknown", s.suite
    kept, _ = s.suite.for_recipe(s.recipe)
    context, own = s.recipe.envelope.context_tokens, s.recipe.budgets
    for gate in (g for g in kept.gates if g.generates):
        visible, reasoning = budgets(gate, s.recipe)
        if (need := gate.prompt_tokens_at_least + visible + reasoning) > context:
            return "missing", f"gate {gate.id} needs {need:,} tokens, the context is {context:,}"
        thinking = thinking_wanted(gate, s.recipe)
        if thinking not in ("none", "off") and not reasoning:
            return "unknown", f"gate {gate.id}: thinking is {thinking} and no tokens are set aside for it"
    return "ok", f"{own.visible_tokens:,} visible and {own.reasoning_tokens:,} reasoning tokens"
