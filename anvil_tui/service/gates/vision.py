"""Gates that show the serve pictures: what it sees, how many it takes, and that it says no to more."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anvil_tui.core.corpus import Case, CaseKind, Corpus, MediaFile, Question
from anvil_tui.core.errors import BadFile
from anvil_tui.core.gates import Gate, GateKind, Observation, Suite
from anvil_tui.core.pictures import facts_told, media_refused, pictures_counted
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.verdicts import OK, Judged, check
from anvil_tui.service.gates import prompts
from anvil_tui.service.gates.session import Finding, GateParts, GateTarget, GateWork, Session

CARDS = (
    "Each picture shows one code. Answer with all codes in the order of the pictures, separated by commas, and "
    "nothing else."
)
CLIP = "In which direction does the square move? Answer with one word."
_DATA = re.compile(r"(?:data:[\w/.+-]+;base64,)?[A-Za-z0-9+/]{160,}={0,2}")


@dataclass(frozen=True, slots=True)
class Shown:
    """What one request shows and asks."""

    case: str
    files: tuple[MediaFile, ...]
    question: Question


def image(session: Session, gate: Gate, n: int) -> Finding:
    return _one_of("image", session, gate, n)


def ocr(session: Session, gate: Gate, n: int) -> Finding:
    return _one_of("ocr", session, gate, n)


def image_large(session: Session, gate: Gate, n: int) -> Finding:
    return _one_of("large", session, gate, n)


def _one_of(kind: CaseKind, session: Session, gate: Gate, n: int) -> Finding:
    """The cases of a kind in turn; which of its questions is asked differs from run to run."""
    corpus = _corpus(session)
    cases = corpus.of_kind(kind)
    case = cases[(n - 1) % len(cases)]
    question = _pick(session, gate, n).choice(case.questions)
    return _look(session, gate, n, _shown(corpus, case, question))


def multi_image(session: Session, gate: Gate, n: int) -> Finding:
    """Cards in an order that is drawn anew for every request: nobody knows it who does not see all of them."""
    corpus = _corpus(session)
    names = _pick(session, gate, n).sample(corpus.cards, _card_count(gate, session.target.recipe, corpus))
    files = tuple(corpus.file(name) for name in names)
    question = Question(ask=CARDS, expect=tuple(f.shows for f in files), verbatim=True)
    return _look(session, gate, n, Shown("cards", files, question))


def vision_corpus(session: Session, gate: Gate, n: int) -> Finding:
    """Every case once; a round passes when all of them do. The n-th round asks each case's n-th question."""
    corpus = _corpus(session)
    made: list[tuple[Case, Finding]] = []
    for case in corpus.cases:
        if made and (session.dead or session.cancelled()):
            break
        question = case.questions[(n - 1) % len(case.questions)]
        made.append((case, _look(session, gate, n, _shown(corpus, case, question))))
    kept = tuple(o for _, finding in made for o in finding.observations)
    good = sum(finding.judged.ok for _, finding in made)
    told = f"{good} of {len(corpus.cases)} cases"
    for outcome in ("failed", "errored", "unsupported", "unverified"):
        for case, finding in made:
            if finding.judged.outcome == outcome:
                return Finding(replace(finding.judged, note=f"{told}; {case.id}: {finding.judged.note}"), kept)
    if len(made) < len(corpus.cases):
        return Finding(Judged("errored", None, f"cut short after {told}"), kept)
    return Finding(Judged("ok", None, told), kept)


def image_limit(session: Session, gate: Gate, n: int) -> Finding:
    """As many pictures as the recipe promises are taken, one more is refused, and the engine lives on."""
    corpus, limit = _corpus(session), session.target.recipe.envelope.images
    files = tuple(corpus.file(corpus.cards[i % len(corpus.cards)]) for i in range(limit + 1))
    allowed = Shown("cards", files[:limit], Question(ask=CARDS, expect=("as many as promised",)))
    finding, answer = session.ask(
        gate, n, lambda a: OK, messages=(_message(session, allowed.files, CARDS),), max_tokens=1
    )
    taken = OK if answer.error is None else finding.judged
    first = _kept(finding, replace(taken, note=f"{limit} images: {taken.note or 'accepted'}"), allowed)
    if answer.error is not None:
        return first
    second = _refused(session, gate, n, Shown("cards", files, allowed.question), "image", limit)
    return Finding(second.judged, (*first.observations, *second.observations))


def video_refused(session: Session, gate: Gate, n: int) -> Finding:
    """The recipe promises no video, so a request with one is refused."""
    corpus = _corpus(session)
    clip = Shown("clip", (corpus.file(corpus.video),), Question(ask=CLIP, expect=("a refusal",)))
    return _refused(session, gate, n, clip, "video", 0)


def _refused(session: Session, gate: Gate, n: int, shown: Shown, medium: Any, allowed: int) -> Finding:
    message = _message(session, shown.files, shown.question.ask)
    finding, answer = session.ask(gate, n, lambda a: OK, messages=(message,), max_tokens=1)
    judged = finding.judged if session.dead else media_refused(answer, medium, len(shown.files), allowed)
    first = _kept(finding, judged, shown)
    if not judged.ok:
        return first
    after, _ = session.ask(gate, n, lambda a: OK, messages=(prompts.user(prompts.SMOKE),))
    kept = (*first.observations, *after.observations)
    if after.judged.ok:
        return Finding(first.judged, kept)
    return Finding(replace(after.judged, note=f"after the refusal: {after.judged.note}"), kept)


def _look(session: Session, gate: Gate, n: int, shown: Shown) -> Finding:
    """One question about pictures, and what the same text costs without them."""
    asked = shown.question

    def judge(answer: Any) -> Judged:
        return check(facts_told(answer.content, asked.expect, asked.among, verbatim=asked.verbatim))

    finding, answer = session.ask(gate, n, judge, messages=(_message(session, shown.files, asked.ask),))
    if answer.error is not None:
        return _kept(finding, finding.judged, shown)
    probes, alone = _text_alone(session, gate, asked.ask)
    made = _kept(finding, pictures_counted(finding.judged, answer.prompt_tokens, alone), shown)
    return Finding(made.judged, (*probes, *made.observations))


def _text_alone(session: Session, gate: Gate, text: str) -> tuple[tuple[Observation, ...], int | None]:
    """(the probe, if one had to be made; the engine's count of the prompt without any picture)."""
    key = f"text alone/{text}"
    with session.lock:
        if key not in session.memory:
            finding, answer = session.ask(
                gate, 0, lambda a: OK, messages=(_message(session, (), text),), max_tokens=1
            )
            counted = answer.prompt_tokens
            if counted is not None:
                session.memory[key] = counted
            return tuple(
                replace(o, ok=counted is not None, note="text alone", raw={**o.raw, "purpose": "calibration"})
                for o in finding.observations
            ), counted
        return (), int(session.memory[key])


def _message(session: Session, files: Iterable[MediaFile], text: str) -> prompts.Message:
    """Pictures first, then the text, as parts of one message."""
    media = session.parts.media
    assert media is not None  # why_not has refused a session without media
    parts: list[dict[str, Any]] = []
    for file in files:
        kind = "video_url" if file.mime.startswith("video/") else "image_url"
        data = base64.b64encode(media.read(file)).decode()
        parts.append({"type": kind, kind: {"url": f"data:{file.mime};base64,{data}"}})
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def _kept(finding: Finding, judged: Judged, shown: Shown) -> Finding:
    """The finding under another verdict, its observations with the names and hashes of what was shown.

    Engines may echo a request in their error: of the data itself nothing is kept.
    """
    judged = replace(judged, note=_DATA.sub("(data)", judged.note))
    media = [{"file": f.name, "sha256": f.sha256} for f in shown.files]
    about = {
        "case": shown.case,
        "asked": shown.question.ask,
        "expected": list(shown.question.expect),
        "media": media,
    }
    observations = tuple(
        replace(
            o, ok=judged.ok, failure=judged.failure, note=judged.note, excerpt=_DATA.sub("(data)", o.excerpt),
            raw={**o.raw, **about, "outcome": judged.outcome},
        )
        for o in finding.observations
    )  # fmt: skip
    return Finding(judged, observations)


def _corpus(session: Session) -> Corpus:
    media = session.parts.media
    assert media is not None  # why_not has refused a session without media
    return media.corpus()


def _shown(corpus: Corpus, case: Case, question: Question) -> Shown:
    return Shown(case.id, tuple(corpus.file(name) for name in case.files), question)


def _pick(session: Session, gate: Gate, n: int) -> random.Random:
    return random.Random(f"{session.salt}/{gate.id}/{n}")


def _card_count(gate: Gate, recipe: Recipe, corpus: Corpus) -> int:
    return gate.images or min(recipe.envelope.images, len(corpus.cards))


# what can be said before anything is sent

More = Callable[[Gate, Recipe, Corpus], str]


def _why_not(
    modalities: tuple[str, ...],
    names: Callable[[Corpus], Iterable[str]],
    more: More = lambda gate, recipe, corpus: "",
) -> Callable[[Suite, Gate, GateTarget, GateParts], str]:
    def why_not(suite: Suite, gate: Gate, target: GateTarget, parts: GateParts) -> str:
        envelope = target.recipe.envelope
        if lacking := [m for m in modalities if m not in envelope.modalities]:
            have = ", ".join(envelope.modalities)
            return f"the recipe does not promise {' and '.join(lacking)} (envelope.modalities: {have})"
        if modalities and not envelope.images:
            return "the recipe promises no image: envelope.images is 0"
        if parts.media is None:
            return "there is no folder of pictures to show"
        try:
            corpus = parts.media.corpus()
            if why := more(gate, target.recipe, corpus):
                return why
            for name in names(corpus):
                parts.media.read(corpus.file(name))
        except BadFile as bad:
            return str(bad)
        return ""

    return why_not


def _of(kind: CaseKind) -> tuple[Callable[[Corpus], Iterable[str]], More]:
    """The files of the cases of a kind, and the sentence when there are none or one shows too much."""

    def more(gate: Gate, recipe: Recipe, corpus: Corpus) -> str:
        cases = corpus.of_kind(kind)
        return _too_many(cases, recipe) if cases else f"gates/media/corpus.toml holds no case of kind {kind}"

    return (lambda corpus: (name for case in corpus.of_kind(kind) for name in case.files)), more


def _too_many(cases: Iterable[Case], recipe: Recipe) -> str:
    limit = recipe.envelope.images
    over = next((c for c in cases if len(c.files) > limit), None)
    return f"case {over.id} shows {len(over.files)} images, the recipe promises {limit}" if over else ""


def _too_few(gate: Gate, recipe: Recipe, corpus: Corpus) -> str:
    count, limit = _card_count(gate, recipe, corpus), recipe.envelope.images
    if count > limit:
        return f"images = {count}, the recipe promises {limit}"
    if count > len(corpus.cards):
        return f"images = {count}, gates/media/corpus.toml holds {len(corpus.cards)} cards"
    return "one image is no comparison: the recipe promises 1" if count < 2 else ""


def _has_video(gate: Gate, recipe: Recipe, corpus: Corpus) -> str:
    promised = recipe.envelope.videos or "video" in recipe.envelope.modalities
    return "the recipe promises video, so none need be refused" if promised else ""


VISION: Mapping[GateKind, GateWork] = {
    "image": GateWork(image, _why_not(("image",), *_of("image"))),
    "ocr": GateWork(ocr, _why_not(("ocr",), *_of("ocr"))),
    "image-large": GateWork(image_large, _why_not(("ocr",), *_of("large"))),
    "multi-image": GateWork(multi_image, _why_not(("image",), lambda c: c.cards, _too_few)),
    "image-limit": GateWork(image_limit, _why_not(("image",), lambda c: c.cards)),
    "vision-corpus": GateWork(
        vision_corpus,
        _why_not(
            ("image", "ocr"),
            lambda c: (name for case in c.cases for name in case.files),
            lambda gate, recipe, corpus: _too_many(corpus.cases, recipe),
        ),
    ),
    "video-refused": GateWork(video_refused, _why_not((), lambda c: (c.video,), _has_video)),
}
