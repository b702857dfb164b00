"""The recipe: everything that makes one serve reproducible, as typed fields.

The file form is TOML (`recipes/ID.toml`); `adapters/toml_files.py` turns a validation error into
one that names file, line, key and the nearest known key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from datetime import date
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from anvil_tui.core.quantity import Feasibility
from anvil_tui.core.redact import redact_argv
from anvil_tui.core.tables import Line as Line
from anvil_tui.core.tables import NonNegative as NonNegative
from anvil_tui.core.tables import PathText as PathText
from anvil_tui.core.tables import PinnedImage as PinnedImage
from anvil_tui.core.tables import Positive as Positive
from anvil_tui.core.tables import Sha256 as Sha256
from anvil_tui.core.tables import Slug as Slug
from anvil_tui.core.tables import Table as Table
from anvil_tui.core.tables import matching as matching

RECIPE_SCHEMA = "anvil.recipe/1"

PLACEHOLDERS = (
    "port", "served_name", "context", "total_context", "max_output", "concurrency", "tensor_parallel", "images",
    "videos", "kv_type", "model", "draft",
)  # fmt: skip
ALIASES = "{aliases}"
"""An argument of its own: becomes one argument an alias, for engines that refuse a name they were not told."""
_SECRET_NAME = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY)$", re.IGNORECASE)
_BRACED = re.compile(r"\{(\w+)\}")


def _nearest(name: str) -> str:
    found = get_close_matches(name, PLACEHOLDERS, 1)
    return f", nearest {{{found[0]}}}" if found else ""


class EngineKind(StrEnum):
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    OPENAI = "openai"


class Status(StrEnum):
    """What an operator concluded about a recipe. `current` is a record; whether it is live is a reading."""

    CURRENT = "current"
    ROLLBACK = "rollback"
    CHALLENGER = "challenger"
    FALLBACK = "fallback"
    ALTERNATE = "alternate"
    CONTROL = "control"
    REJECTED = "rejected"
    POLICY_INFEASIBLE = "policy-infeasible"
    UNVERIFIED = "unverified"
    WATCH_ONLY = "watch-only"
    HISTORICAL = "historical"


class Image(Table):
    """`ref` is pinned by digest ("" only in a record that cannot be loaded); `tag` and `source` are notes."""

    ref: PinnedImage = ""
    tag: str = ""
    source: str = ""


class Weights(Table):
    """One checkpoint. `path` is where the engine sees it; `bytes` its size on disk; `sha256` of a single file."""

    repo: str
    revision: str = ""
    path: PathText = ""
    bytes: Positive | None = None
    sha256: Sha256 | None = None
    quantization: str = ""


class Mount(Table):
    """A host path (relative to the workspace if not absolute) or a named volume, mounted at `target`."""

    source: Annotated[PathText, matching(r".+", "a path or a volume name")]
    target: Annotated[PathText, matching(r"/.*", "an absolute path inside the container")]
    read_only: bool = True


class Launch(Table):
    """How the container is started.

    `argv` follows the image's entry point (or `entrypoint`); the names of `PLACEHOLDERS` in braces are filled
    in from the typed fields, so they are written once.
    Network is the host's; engines listen on loopback only. `memory_limit_mib` contains a loader that
    would otherwise take the host down with it.
    """

    entrypoint: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    env: dict[Annotated[str, matching(r"[A-Za-z_][A-Za-z0-9_]*", "the name of a variable")], str] = {}
    mounts: tuple[Mount, ...] = ()
    shm_mib: Positive | None = None
    ipc: Literal["private", "host"] = "private"
    memory_limit_mib: Positive | None = None
    cpus: Annotated[float, Field(gt=0)] | None = None
    start_deadline_s: Positive = 600
    stop_grace_s: Positive = 30

    @model_validator(mode="after")
    def _sound(self) -> Launch:
        secrets = [
            f"env.{name} looks like a secret: recipes hold none; mount a file that holds it"
            for name, value in self.env.items()
            if _SECRET_NAME.search(name) and value
        ] + [
            f"argv[{n}] holds a secret: recipes hold none, and engines listen on loopback only; leave it out"
            for n, (arg, hidden) in enumerate(zip(self.argv, redact_argv(self.argv), strict=True))
            if arg != hidden
        ]
        typos = [
            f"argv[{n}] holds {{{name}}}{_nearest(name)}; known placeholders: {', '.join(PLACEHOLDERS)}"
            for n, arg in enumerate(self.argv)
            for name in _BRACED.findall(arg)
            if name not in PLACEHOLDERS and arg != ALIASES
        ]
        if secrets or typos:
            raise ValueError("\n".join(secrets + typos))
        return self


class Gpus(Table):
    """`select` holds GPU roles of anvil.toml, UUIDs or unique UUID prefixes; empty = the serve needs no GPU."""

    select: tuple[Line, ...] = ()
    tensor_parallel: Positive = 1
    need_free_mib: NonNegative = 0

    @model_validator(mode="after")
    def _consistent(self) -> Gpus:
        count = len(self.select)
        if len(set(self.select)) != count:
            raise ValueError("select names a GPU twice")
        if count % self.tensor_parallel or (self.tensor_parallel > 1 and not count):
            raise ValueError(
                f"select names {count} GPUs, not a multiple of tensor_parallel = {self.tensor_parallel}"
            )
        return self


class Envelope(Table):
    """What the recipe promises, per request and at once. `max_output_tokens` None = the record does not say."""

    context_tokens: Annotated[int, Field(ge=128, le=16_777_216)]
    max_output_tokens: Positive | None = None
    concurrency: Annotated[int, Field(ge=1, le=4096)]
    images: NonNegative = 0
    videos: NonNegative = 0
    modalities: tuple[Literal["text", "image", "ocr", "tools", "video", "audio"], ...] = ("text",)

    @model_validator(mode="after")
    def _fits(self) -> Envelope:
        if self.max_output_tokens and self.max_output_tokens > self.context_tokens:
            raise ValueError(
                f"max_output_tokens {self.max_output_tokens} is larger than context_tokens {self.context_tokens}"
            )
        return self


class Kv(Table):
    """KV cache type and, where known, the pool the engine reported."""

    type: str = "auto"
    pool_tokens: Positive | None = None


class Speculation(Table):
    method: str
    tokens: str = ""
    draft: Weights | None = None


class Budgets(Table):
    """Token budgets that this profile's gates run with; a rollback is judged by its own."""

    visible_tokens: Positive = 512
    reasoning_tokens: NonNegative = 0


class Reserve(Table):
    """Free MiB each GPU must keep. A waiver changes the class of a shortfall, never a measurement."""

    mib_per_gpu: NonNegative = 0
    waived_on: date | None = None
    waiver: str = ""
    waiver_scope: str = ""

    @model_validator(mode="after")
    def _dated_and_scoped(self) -> Reserve:
        parts = {"waived_on": self.waived_on, "waiver": self.waiver, "waiver_scope": self.waiver_scope}
        absent = [key for key, value in parts.items() if not value]
        if 0 < len(absent) < len(parts):
            raise ValueError(f"{absent[0]} is missing: a waiver has a date, a reason and a scope")
        return self

    def needed_mib(self, box_mib: int) -> int:
        """MiB that count on a box whose own policy is `box_mib`: a recipe may ask for more, never for less."""
        return max(self.mib_per_gpu, box_mib)


class Licence(Table):
    boundary: Literal["unrestricted", "noncommercial", "evaluation", "unreviewed"] = "unreviewed"
    note: str = ""


class Patch(Table):
    """A change made to the pinned runtime, gated by hash. `file` is the patched file inside the image."""

    name: Line
    file: PathText = ""
    sha256: Sha256 | None = None
    note: str = ""


class Decision(Table):
    status: Annotated[Status, Field(strict=False)]
    date: date
    reason: str
    evidence: str = ""
    author: str = ""


class Figure(Table):
    """One measured figure with its conditions. `n` and `spread` stay empty when the record does not say."""

    name: str
    value: str
    conditions: str = ""
    n: Positive | None = None
    spread: str = ""


class Recipe(Table):
    """One TOML file in `recipes/`; the file stem is the id.

    `rollback` names the recipe to return to, or is `none: REASON`. `exclusive` means one serve holds the
    whole box's serving capacity: the incumbent must stop before this one starts. `loadable = false` marks a
    record without everything needed to start, and says why; it shows and compares, and `load` refuses it.
    """

    schema_: Literal["anvil.recipe/1"] = Field(alias="schema")
    id: Slug
    title: str = ""
    family: Slug
    engine: Annotated[EngineKind, Field(strict=False)]
    served_name: Annotated[str, matching(r"[^\x00-\x1f\x7f]{0,200}", "one line of at most 200 characters")] = ""
    served_aliases: tuple[Line, ...] = ()
    exclusive: bool
    loadable: bool = True
    not_loadable_because: str = ""
    rollback: str
    control: str = ""
    suite: Slug = "smoke"
    thinking: Literal["none", "on", "off", "low", "medium", "high"] = "none"
    image: Image = Image()
    model: Weights
    launch: Launch = Launch()
    gpus: Gpus = Gpus()
    envelope: Envelope
    kv: Kv = Kv()
    speculation: Speculation | None = None
    budgets: Budgets = Budgets()
    reserve: Reserve = Reserve()
    licence: Licence = Licence()
    feasibility: Feasibility = Feasibility()
    patches: tuple[Patch, ...] = ()
    decisions: tuple[Decision, ...] = ()
    figures: tuple[Figure, ...] = ()

    @field_validator("rollback")
    @classmethod
    def _rollback_named(cls, value: str) -> str:
        if value == "none" or not re.fullmatch(r"none: .{3,}|[a-z0-9][a-z0-9._-]*", value):
            raise ValueError('must be a recipe id, or "none: REASON"')
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        problems = []
        if not self.loadable and not self.not_loadable_because:
            problems.append("not_loadable_because is required when loadable = false")
        if self.loadable:
            problems += [f"{key} is required unless loadable = false" for key in self._absent()]
            if self.launch.argv and not any("{port}" in arg for arg in self.launch.argv):
                problems.append("launch.argv must hold {port}: the slot decides the port")
        problems += [
            f"{key} names this recipe itself" for key in ("rollback", "control") if getattr(self, key) == self.id
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _absent(self) -> list[str]:
        needed = {
            "served_name": self.served_name, "image.ref": self.image.ref, "launch.argv": self.launch.argv,
            "envelope.max_output_tokens": self.envelope.max_output_tokens,
        }  # fmt: skip
        return [key for key, value in needed.items() if not value]

    @property
    def decision(self) -> Decision | None:
        """The newest decision; of one day's, the last in the file."""
        return max(reversed(self.decisions), key=lambda d: d.date, default=None)

    @property
    def pinned_files(self) -> tuple[tuple[str, str, str], ...]:
        """(name, file inside the container, wanted SHA-256) of everything that the recipe pins by hash."""
        pinned = [(p.name, p.file, p.sha256) for p in self.patches if p.file and p.sha256]
        if self.model.sha256 and self.model.path:
            pinned.append(("weights", self.model.path, self.model.sha256))
        return tuple(pinned)

    def digest(self) -> str:
        """Hash of what makes the serve: decisions, figures, feasibility and notes do not change it, nor does a new
        field with a default."""
        notes = {"decisions", "figures", "title", "licence", "reserve", "feasibility"}
        facts = self.model_dump(mode="json", exclude=notes, exclude_defaults=True)
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def filled_argv(self, port: int, aliases: Iterable[str] = ()) -> tuple[str, ...]:
        """argv with the typed fields in place of their `{names}`. `total_context` is context times concurrency,
        for engines that divide one figure among their slots; `{aliases}` are `served_aliases` and the role's."""
        limits, draft = self.envelope, self.speculation.draft if self.speculation else None
        values = (
            port, self.served_name, limits.context_tokens, limits.context_tokens * limits.concurrency,
            limits.max_output_tokens, limits.concurrency, self.gpus.tensor_parallel, limits.images, limits.videos,
            self.kv.type, self.model.path, draft.path if draft else "",
        )  # fmt: skip
        names = dict(zip(PLACEHOLDERS, values, strict=True))
        also = dict.fromkeys((*self.served_aliases, *aliases))
        filled = ((*also,) if arg == ALIASES else (_BRACED.sub(lambda m: str(names[m[1]]), arg),)
                  for arg in self.launch.argv)  # fmt: skip
        return tuple(arg for args in filled for arg in args)
