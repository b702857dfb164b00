"""The pictures that gates show a serve, what they ask about them, and what a right answer tells.

The file form is `gates/media/corpus.toml`, beside the pictures; it is made by a script and never by hand.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from anvil_tui.core.recipe import Line, Positive, Sha256, Slug, Table

CORPUS_SCHEMA = "anvil.media/1"

CaseKind = Literal["image", "ocr", "compare", "large"]


class MediaFile(Table):
    """One file beside corpus.toml. `shows` is the code on a card; only cards have one."""

    name: Slug
    bytes: Positive
    sha256: Sha256
    shows: str = ""

    @property
    def mime(self) -> str:
        return "video/x-msvideo" if self.name.endswith(".avi") else "image/png"


class Question(Table):
    """`expect` are the facts of a right answer, in order. Of the words of `among` no others may be told.

    `verbatim`: capitals count.
    """

    ask: str
    expect: Annotated[tuple[Line, ...], Field(min_length=1)]
    among: tuple[Line, ...] = ()
    verbatim: bool = False


class Case(Table):
    """Pictures that are shown together, in this order, and questions of which one is asked at a time."""

    id: Slug
    kind: CaseKind
    files: Annotated[tuple[Slug, ...], Field(min_length=1)]
    questions: Annotated[tuple[Question, ...], Field(min_length=1)]


class Corpus(Table):
    """`cards` are pictures of one code each; `video` is a short clip."""

    schema_: Literal["anvil.media/1"] = Field(alias="schema")
    files: tuple[MediaFile, ...]
    cases: Annotated[tuple[Case, ...], Field(min_length=1)]
    cards: Annotated[tuple[Slug, ...], Field(min_length=1)]
    video: Slug

    @model_validator(mode="after")
    def _whole(self) -> Corpus:
        known = {f.name: f for f in self.files}
        asked = [(f"cases[{n}].files", name) for n, c in enumerate(self.cases) for name in c.files]
        asked += [("cards", name) for name in self.cards] + [("video", self.video)]
        problems = [f"{key} names {name}, which files does not list" for key, name in asked if name not in known]
        problems += [
            f"cards names {c}, which shows nothing" for c in self.cards if c in known and not known[c].shows
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def file(self, name: str) -> MediaFile:
        return next(f for f in self.files if f.name == name)

    def of_kind(self, kind: CaseKind) -> tuple[Case, ...]:
        return tuple(c for c in self.cases if c.kind == kind)
