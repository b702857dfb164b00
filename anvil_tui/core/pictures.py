"""What an answer about pictures proves: the facts it tells, whether pictures were counted, what was refused.

Facts are looked for however they are laid out: as a table, a list, JSON or prose. Layout is taken away, values are
not: a fact must stand as a whole word or number ("12" is not in "112" nor in "12.5"), in the order asked, and no
other value of its kind may be told beside it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.gates import FailureClass
from anvil_tui.core.verdicts import Judged, delivered, failed, shown

_ALIKE = str.maketrans({"‘": "'", "’": "'", "‐": "-", "‑": "-", "‒": "-", "–": "-", "−": "-", "—": " - "})
_MARKUP = (
    (re.compile(r"</?[a-z][^<>]*>", re.I), " "),  # HTML
    (re.compile(r"\\(?=[^\w\s])"), ""),  # escapes of Markdown
    (re.compile(r"[*_`|\"“”„«»{}\[\]]"), " "),  # emphasis, cells, quotes, JSON
)
_FENCE = re.compile(r"(?:```|~~~)\w*")
_NUMBERED = re.compile(r"(\d+)[.)]\s+(?=\S)")
_LEAD = re.compile(r"(?:#{1,6}|>|[-•])\s+")  # headings, quotes, bullets
_VALUE = re.compile(
    r"(?<![\w-])-?\w+(?:(?:(?<=\d)[.,:/](?=\d)|-(?=\w))\w+)*%?"  # 12  -12  12.50  1,234  12:30  12%  QX-7041
)
_AMOUNT, _CODE = re.compile(r"-?\d+[.,]\d\d"), re.compile(r"[A-Za-z]+-\d+")
_NAMES = {
    "image": re.compile(r"\bimages?\b|multi-?modal|content\S*type", re.I),
    "video": re.compile(r"\bvideos?\b|multi-?modal|content\S*type", re.I),
}
_REFUSES = re.compile(
    r"at most|exceed|too many|limit|maximum|not (?:supported|allowed|a multi)|unsupported|does not support",
    re.I,
)
_DENIES = re.compile(r"\b(?:not|never|neither|nor|cannot|unable|unsure)\b|n't\b", re.I)


def facts_told(
    content: str, expect: Sequence[str], among: Sequence[str] = (), *, verbatim: bool = False
) -> str | None:
    """None when the answer tells exactly these facts; else what is missing or wrong."""
    fold = (lambda text: text) if verbatim else str.casefold
    text, wanted = fold(_plain(content)), [fold(_plain(fact)) for fact in expect]
    at = 0
    for fact, as_given in zip(wanted, expect, strict=True):
        found = _whole(fact).search(text, at)
        if found is None:
            where = " after the facts before it" if at else ""
            return f"{as_given!r} is not told{where}: {shown(content)}"
        at = found.end()
    options = [fold(word) for word in among]
    told, right = _values(text, wanted, options), _values(" ; ".join(wanted), wanted, options)
    if told != right:
        return f"it tells {', '.join(told)}, not {', '.join(right)}: {shown(content)}"
    denial = _DENIES.search(text)
    if denial and not any(_DENIES.search(fact) for fact in wanted):
        return f"the answer denies or doubts ({denial[0]}): {shown(content)}"
    return None


def _plain(text: str) -> str:
    """Without layout: what is left are words, numbers and their punctuation, a single space apart."""
    lines = [line.strip() for line in unicodedata.normalize("NFKC", text).translate(_ALIKE).splitlines()]
    lines = [_LEAD.sub("", line, count=1) if _LEAD.match(line) else line for line in lines if not _is_rule(line)]
    heads = [_NUMBERED.match(line) for line in lines]
    numbers = [int(head[1]) for head in heads if head]
    if len(numbers) > 1 and numbers == list(range(1, len(numbers) + 1)):
        lines = [line[head.end() :] if head else line for line, head in zip(lines, heads, strict=True)]
    plain = "\n".join(lines)
    for pattern, instead in _MARKUP:
        plain = pattern.sub(instead, plain)
    return " ".join(plain.split())


def _is_rule(line: str) -> bool:
    """A fence, or the line between the head of a table and its rows."""
    return bool(_FENCE.fullmatch(line)) or ("--" in line and not line.strip("|+:- \t"))


def _whole(fact: str) -> re.Pattern[str]:
    """The fact with nothing glued to it that would make it another word or number."""
    head = r"(?<![\w-])(?<!\d[.,:/])" if re.match(r"\w", fact) else ""
    tail = r"(?![\w%]|-\w|[.,:/]\d)" if re.search(r"\w$", fact) else ""
    return re.compile(head + re.escape(fact) + tail)


def _values(text: str, wanted: Sequence[str], options: Sequence[str]) -> list[str]:
    """All of a text that competes with the facts: words of the options, and values shaped like the facts'.

    Facts that are all amounts (3.40) compete with amounts, codes (QX-7041) with codes, others with every number.
    """
    numbers = [v for fact in wanted for v in _numbers(fact)]
    shape = next((s for s in (_AMOUNT, _CODE) if numbers and all(s.fullmatch(v) for v in numbers)), None)
    told = []
    for found in _VALUE.finditer(text):
        word = found[0]
        if word in options or (numbers and _is_number(word) and (shape is None or shape.fullmatch(word))):
            told.append(word)
    return told


def _numbers(text: str) -> list[str]:
    return [found[0] for found in _VALUE.finditer(text) if _is_number(found[0])]


def _is_number(word: str) -> bool:
    return any(c.isdigit() for c in word)


def pictures_counted(judged: Judged, with_pictures: int | None, text_alone: int | None) -> Judged:
    """The verdict on an answer, with what the engine's own counts of the prompt say of its pictures.

    An engine that drops a picture counts the tokens of the text alone: then a right answer proves nothing.
    """
    if with_pictures is None or text_alone is None:
        if not judged.ok:
            return judged
        return Judged(
            "unverified", None, "the engine reports no usage, so it is not proven that it took the picture"
        )
    if with_pictures > text_alone:
        note = f"{with_pictures:,} prompt tokens, {text_alone:,} of them text"
    else:
        note = f"{with_pictures:,} prompt tokens with the picture and {text_alone:,} without it: was it dropped?"
        if judged.ok:
            return Judged("unverified", None, f"the answer is right, but the engine counts {note}")
    return replace(judged, note="; ".join(part for part in (judged.note, note) if part))


def media_refused(answer: ChatAnswer, medium: Literal["image", "video"], sent: int, allowed: int) -> Judged:
    """Whether a request with too many pictures or videos was refused by an error that says so."""
    if answer.error is None:
        counted = "no usage" if answer.prompt_tokens is None else f"{answer.prompt_tokens:,} prompt tokens"
        were = f"{sent} {medium}{' was' if sent == 1 else 's were'} accepted ({counted})"
        note = (
            f"{were}, the recipe promises at most {allowed}: give the engine that limit, or correct the envelope"
        )
        return failed(FailureClass.CHECK, note)
    told = delivered(answer, 1)
    if answer.error != "http" or answer.status is None:
        return told
    if told.failure is FailureClass.CONTEXT:
        return Judged("unverified", None, f"refused for its length, so its {medium}s were not judged: {told.note}")
    clear = _NAMES[medium].search(answer.error_message) and _REFUSES.search(answer.error_message)
    if clear and (answer.status in (400, 422, 501) or told.outcome == "unsupported"):
        return Judged("ok", None, f"refused: {told.note}")
    if answer.status in (400, 422):
        return Judged(
            "unverified", None, f"refused, but the error does not say that {medium}s were why: {told.note}"
        )
    return told
