"""A plan while it is being written: steps, the way back, refusals, and the facts they rest on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anvil_tui.core.box import MIB, GpuSnapshot
from anvil_tui.core.errors import Refused
from anvil_tui.core.facts import Facts, alias_text
from anvil_tui.core.gates import Suite
from anvil_tui.core.gpus import resolve_gpus
from anvil_tui.core.inflight import list_text, on_slot, then_text
from anvil_tui.core.plan import Intent, Plan, Step
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.screening import Ground, warnings_for
from anvil_tui.core.vram import free_mib
from anvil_tui.core.workspace import OnDrainTimeout, Role
from anvil_tui.core.world import ServeRecord


@dataclass(frozen=True, slots=True)
class Candidate:
    """The serve that a plan starts. `kept` is the existing container, None = the operation creates one."""

    recipe: Recipe
    role: Role
    slot: str
    port: int
    kept: ServeRecord | None
    running: bool

    @property
    def ref(self) -> dict[str, Any]:
        """How steps name its container: by full id, or as the one this operation made."""
        return {"container": self.kept.container_id} if self.kept else {"created": True}

    @property
    def serve_args(self) -> dict[str, Any]:
        return {
            **self.ref,
            "recipe": self.recipe.id,
            "digest": self.recipe.digest(),
            "role": self.role.name,
            "slot": self.slot,
            "port": self.port,
        }


@dataclass(slots=True)
class Draft:
    """Collects one plan. Undo steps are kept in the order in which they run."""

    intent: Intent
    facts: Facts
    unrunnable: Callable[[Suite, Recipe], Mapping[str, str]]
    title: str = ""
    interrupts: str = ""
    outage: str = ""
    rollback: str = ""
    on_failure: str = ""
    memory: str = ""
    confirm_word: str = ""
    steps: list[Step] = field(default_factory=list)
    undo: list[Step] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    gate_rows: list[Mapping[str, Any]] = field(default_factory=list)
    details: tuple[str, ...] = ()
    rests_on: dict[str, Any] = field(default_factory=dict)

    # what the plan rests on

    def target(
        self,
        *,
        role: str = "",
        recipe: Recipe | None = None,
        serve: ServeRecord | None = None,
        suite: Suite | None = None,
    ) -> None:
        """Freeze the named things into the facts that the hash covers."""
        if role:
            found = self.facts.role(role)
            self.rests_on["role"] = role
            self.rests_on["aliases"] = self.facts.aliases(found)
            self.rests_on["incumbent"] = self._container_facts(self.facts.incumbent(found))
            self.rests_on["ladder"] = list(self.ladder(found))
        if recipe:
            self.rests_on["recipe"] = {"id": recipe.id, "digest": recipe.digest()}
        if serve:
            self.rests_on["serve"] = self._container_facts(serve)
        if suite:
            self.rests_on["suite"] = suite.model_dump(mode="json", by_alias=True)

    def _container_facts(self, serve: ServeRecord | None) -> dict[str, Any] | None:
        if serve is None:
            return None
        seen = self.facts.container(serve)
        state = (
            {"name": seen.name, "status": seen.status, "image": seen.image_id, "started": seen.started_at}
            if seen
            else None
        )
        return {"id": serve.container_id, "slot": serve.slot, "seen": state}

    def ladder(self, role: Role) -> tuple[str, ...]:
        held = self.facts.record.roles.get(role.name)
        return held.rollback if held else ()

    def exact(self, serve: ServeRecord) -> Recipe:
        recipe = self.facts.exact_recipe(serve)
        if recipe is None:
            raise Refused(
                f"the recipe that made {serve.recipe_id} ({serve.recipe_digest[:12]}) is not known any more: "
                f"restore recipes/{serve.recipe_id}.toml to that content"
            )
        return recipe

    def refuse(self, why: str) -> None:
        if why not in self.refusals:
            self.refusals.append(why)

    @property
    def on_timeout(self) -> OnDrainTimeout:
        return self.intent.on_timeout or self.facts.workspace.policies.on_drain_timeout

    @property
    def then(self) -> str:
        """What happens when a drain's time is over."""
        return then_text(self.on_timeout, self._extend_s, self.facts.workspace.policies)

    @property
    def _extend_s(self) -> int:
        wanted = self.intent.extend_s or self.facts.workspace.policies.drain_extend_s
        return wanted if self.on_timeout == "extend" else 0

    # rules about room

    def gpu_uuids(self, recipe: Recipe) -> tuple[str, ...]:
        if not recipe.gpus.select:
            return ()
        snapshot = self.facts.gpus.value if self.facts.gpus.ok else None
        if snapshot is None:
            self.refuse(f"GPUs cannot be read ({self.facts.gpus.reason}): whether {recipe.id} fits is unknown")
            return ()
        try:
            return resolve_gpus(recipe.gpus.select, self.facts.workspace.gpus.roles, snapshot)
        except Refused as why:
            self.refuse(str(why))
            return ()

    def screened(self, recipe: Recipe, snapshot: GpuSnapshot, *, alone: bool) -> None:
        """What is known of the recipe's need against each card. A way back is never refused by arithmetic."""
        facts = self.facts
        ground = Ground(facts.workspace, snapshot, facts.today, facts.loads, facts.waivers)
        refusals, warnings = warnings_for(recipe, ground, alone=alone)
        if self.intent.verb in ("rollback", "drill"):
            refusals, warnings = [], refusals + warnings
        self.warnings += warnings
        for why in refusals:
            self.refuse(why)

    # steps

    def step(self, name: str, deed: str, title: str, deadline_s: float, **args: Any) -> None:
        self.steps.append(Step(name, deed, title, deadline_s, args))

    def undo_step(self, name: str, deed: str, title: str, deadline_s: float, **args: Any) -> None:
        self.undo.append(Step(f"undo:{name}", deed, title, deadline_s, args))

    def candidate(self, recipe: Recipe, role: Role, kept: ServeRecord | None, taken_slot: str) -> Candidate:
        """Where the recipe will run: in its kept container's slot, else in a slot that is not `taken_slot`."""
        if not recipe.loadable:
            self.refuse(f"{recipe.id} cannot be loaded: {recipe.not_loadable_because}")
        if kept:
            return Candidate(recipe, role, kept.slot, kept.port, kept, self.facts.running(kept))
        made = (self.facts.containers[s.container_id] for s in self.facts.all_made_from(recipe, role))
        self.warnings += [f"{c.going}; another one is made" for c in made if c.going]
        busy = {s.slot for s in self.facts.running_serves()} | {taken_slot}
        free = next((s for s in role.slots if s.name not in busy), None)
        if free is None:
            self.refuse(f"no free slot in role {role.name}: {', '.join(s.name for s in role.slots)} are in use")
            free = role.slots[0]
        return Candidate(recipe, role, free.name, free.port, None, running=False)

    def prepare(self, c: Candidate) -> None:
        """Everything that can fail without touching what serves: image, container."""
        if c.kept:
            return
        if self.facts.images.get(c.recipe.image.ref) is None:
            self.step("pull", "pull", "pull the pinned image", 3600, ref=c.recipe.image.ref)
        uuids = list(self.gpu_uuids(c.recipe))
        title = f"create the container in slot {c.slot}{self._image_words(c)}"
        self.step("create", "create", title, 120, **c.serve_args, gpus=uuids)

    def _image_words(self, c: Candidate) -> str:
        """What a new container has for image, where there was one of this recipe in this role before."""
        before = [
            s for s in self.facts.record.serves.values() if (s.recipe_id, s.role) == (c.recipe.id, c.role.name)
        ]
        then = self.facts.images.get(c.recipe.image.ref)
        if not before or then is None:
            return ""
        now = before[-1].image_id
        moved = f"would change image of {c.recipe.id}: {now[:19]} now, {then[:19]} then"
        return f"; same image {now[:19]}" if now == then else f"; {moved}"

    def start(self, c: Candidate, suffix: str = "") -> None:
        launch = c.recipe.launch
        again = f" again: same image {c.kept.image_id[:19]}" if c.kept else ""
        self.step(f"start{suffix}", "start", f"start the container{again}", 120, **c.ref, port=c.port)
        self.step(f"ready{suffix}", "ready", "wait: process, HTTP, exact identity, a real completion",
                  launch.start_deadline_s, **c.serve_args)  # fmt: skip

    def ready(self, serve: ServeRecord, name: str) -> None:
        recipe = self.exact(serve)
        args = {
            "container": serve.container_id, "recipe": recipe.id, "digest": serve.recipe_digest,
            "role": serve.role, "slot": serve.slot, "port": serve.port,
        }  # fmt: skip
        title = "wait: process, HTTP, exact identity, a real completion"
        if name.startswith("undo:"):
            self.undo.append(Step(name, "ready", title, recipe.launch.start_deadline_s, args))
        else:
            self.step(name, "ready", title, recipe.launch.start_deadline_s, **args)

    def hold(self, role: Role) -> None:
        if set(self.facts.aliases(role).values()) != {"hold"}:
            self.point(role, "hold", "hold", f"hold {alias_text(role.aliases)} at the gateway")

    def point(self, role: Role, target: str, name: str, title: str, **more: Any) -> None:
        """`alive` in `more` is the container that must run, else the aliases stay where they are."""
        self.step(name, "point", title, 30, targets=dict.fromkeys(role.aliases, target), **more)

    def drain(self, serve: ServeRecord, name: str = "drain") -> None:
        args = self.drain_args(serve)
        limit = args["timeout_s"]
        self.step(name, "drain", f"wait until {serve.slot} has nothing in flight; after {limit} s {self.then}",
                  limit + args["extend_s"] + 30, **args)  # fmt: skip
        now = on_slot(self.facts.gateway, serve.slot)
        if now and self.on_timeout.startswith("sever"):
            listed = list_text(now, self.facts.workspace.policies)
            self.warnings.append(f"in flight now, and cut if still there after {limit} s: {listed}")

    def drain_args(self, serve: ServeRecord) -> dict[str, Any]:
        """What a drain of one serve needs: where, how long, what then."""
        limit = self.intent.timeout_s or self.facts.workspace.policies.drain_timeout_s
        return {
            **self.seat_args(serve), "timeout_s": limit, "on_timeout": self.on_timeout, "extend_s": self._extend_s,
        }  # fmt: skip

    def seat_args(self, serve: ServeRecord) -> dict[str, Any]:
        """Where requests of a serve are counted: its slot at the gateway, and its engine, "" = of unknown kind."""
        recipe = self.facts.exact_recipe(serve)
        return {"slot": serve.slot, "port": serve.port, "engine": recipe.engine.value if recipe else ""}

    def stop(self, serve: ServeRecord, name: str) -> None:
        grace = self.exact(serve).launch.stop_grace_s
        self.step(name, "stop", f"stop {serve.recipe_id} ({serve.container_id[:12]}), keep its container",
                  grace + 60, container=serve.container_id, grace_s=grace)  # fmt: skip

    def free(self, need: Recipe, name: str = "free") -> None:
        """Prove that the GPUs are free for what starts next."""
        if args := self._free_args(need):
            self.step(name, "free", "prove that the GPUs are free", self._release_s, **args)

    def undo_free(self, old: ServeRecord) -> None:
        """The same for the incumbent's return; not asked while it runs, since then it holds them itself."""
        if args := self._free_args(self.exact(old)):
            self.undo_step("free", "free", "prove that the GPUs are free for the incumbent", self._release_s,
                           **args, unless_running=old.container_id)  # fmt: skip

    @property
    def _release_s(self) -> int:
        return self.facts.workspace.policies.gpu_release_timeout_s

    def _free_args(self, recipe: Recipe) -> dict[str, Any]:
        """`alone`: an exclusive serve wants no other process on its GPUs; another one wants its memory."""
        uuids = self.gpu_uuids(recipe)
        need = recipe.gpus.need_free_mib
        return {"gpus": list(uuids), "need_free_mib": need, "alone": recipe.exclusive} if uuids else {}

    def gates(self, suite: Suite, judged: Recipe, /, name: str = "gates", **ref: Any) -> None:
        suite, left_out = suite.for_recipe(judged)
        self.warnings += left_out
        if not suite.gates:
            self.refuse(f"suite {suite.id} has no gate for {judged.id}: it promises none of what they need")
        for gate, why in self.unrunnable(suite, judged).items():
            other = "; `rollback --suite` judges by another one" if self.intent.verb == "rollback" else ""
            self.refuse(f"suite {suite.id}, gate {gate} cannot be run: {why}{other}")
        self.gate_rows += [
            {"id": g.id, "kind": g.kind, "of": g.repeat, "recipe": judged.id, "step": name} for g in suite.gates
        ]
        limit = sum(g.timeout_s * g.repeat for g in suite.gates)
        routed = any(g.routed or "{routed_url}" in " ".join(g.argv) for g in suite.gates)
        self.step(name, "gates", f"run suite {suite.id}: {len(suite.gates)} gates", limit,
                  **ref, suite=suite.id, routed=routed)  # fmt: skip

    def decide(self, why: str) -> None:
        self.step("decide", "decide", "decide forward", 10, why=why)

    def verify(self, role: Role, serve: ServeRecord | Candidate, name: str = "verify") -> None:
        recipe = serve.recipe if isinstance(serve, Candidate) else self.exact(serve)
        args = {
            "aliases": list(role.aliases), "slot": serve.slot, "port": serve.port, "recipe": recipe.id,
            "digest": recipe.digest(), "requests": self.facts.workspace.policies.verify_requests,
        }  # fmt: skip
        title = "verify through the gateway: exact identity, real completions"
        if name.startswith("undo:"):
            self.undo.append(Step(name, "verify", title, 120, args))
        else:
            self.step(name, "verify", title, 120, **args)

    def record_serve(self, c: Candidate) -> None:
        self.step("record", "record", "record the serve", 30, serve=c.serve_args)

    def record_role(
        self, role: Role, *, incumbent: str | dict[str, Any], ladder: Iterable[str], **more: Any
    ) -> None:
        self.step("record", "record", f"record who holds {role.name}", 30, role=role.name,
                  incumbent=incumbent, ladder=list(ladder), **more)  # fmt: skip

    # the way back

    def undo_aliases(self, role: Role) -> None:
        before = self.facts.aliases(role)
        where = ", ".join(sorted(set(before.values())))
        self.undo_step("aliases", "point", f"aliases back to {where}", 30, targets=before)

    def undo_candidate(self, c: Candidate) -> None:
        """Stop what this operation started; remove it if this operation also made it."""
        if c.running:
            return
        grace = c.recipe.launch.stop_grace_s
        self.undo_step("stop-candidate", "stop", f"stop the candidate {c.recipe.id}, keep its log", grace + 60,
                       **c.ref, grace_s=grace, absent_ok=True)  # fmt: skip

    def undo_created(self, c: Candidate) -> None:
        if not c.kept:
            self.undo_step("remove", "remove", "remove the candidate's container", 60, created=True)

    def undo_record(self, role: Role, c: Candidate) -> None:
        """Who held the role before, and the ladder as it was; a candidate made here is forgotten."""
        old = self.facts.incumbent(role)
        args = {"role": role.name, "incumbent": old.container_id if old else "", "ladder": list(self.ladder(role))}
        self.undo_step("record", "record", f"record of {role.name} as it was", 30, **args, forget_made=not c.kept)

    def undo_start(self, old: ServeRecord) -> None:
        """The incumbent runs and proves itself; nothing is done when it never stopped."""
        self.undo_step("start-incumbent", "start", f"start {old.recipe_id} ({old.container_id[:12]}) again", 120,
                       container=old.container_id, port=old.port)  # fmt: skip
        self.ready(old, "undo:ready")

    def plan(self) -> Plan:
        word = last_segment(self.confirm_word)
        facts = {"generation": self.facts.record.generation, **self.rests_on}
        return Plan(
            self.intent, self.title, tuple(self.steps), tuple(self.undo), facts, self.interrupts, self.outage,
            self.rollback, self.on_failure, self.memory, word, tuple(self.refusals), tuple(self.warnings),
            tuple(self.gate_rows), self.details,
        )  # fmt: skip


def last_segment(name: str) -> str:
    """What a person types to confirm: the end of a served name, whole parts, at least four characters of it."""
    parts = re.split(r"([/-])", name)
    word = parts.pop()
    while len(word) < 4 and parts:
        word = parts.pop(-2) + parts.pop() + word if len(parts) > 1 else parts.pop() + word
    return word


def too_small(snapshot: GpuSnapshot, uuids: tuple[str, ...], need_mib: int) -> list[str]:
    """The named GPUs whose whole memory is less than one rank needs; n/a is not too small."""
    rows = (g for g in snapshot.gpus if g.uuid in uuids and g.total_bytes is not None)
    return [
        f"GPU {g.index} has {(g.total_bytes or 0) // MIB:,} MiB in all, {need_mib:,} are needed free"
        for g in rows
        if (g.total_bytes or 0) // MIB < need_mib
    ]


def memory_text(snapshot: GpuSnapshot, uuids: tuple[str, ...]) -> str:
    """Free memory of the named GPUs now, n/a where the driver cannot tell."""
    rows = (g for g in snapshot.gpus if g.uuid in uuids)
    return "; ".join(
        f"GPU {g.index}: {'n/a' if (mib := free_mib(g)) is None else f'{mib:,} MiB'} free now" for g in rows
    )
