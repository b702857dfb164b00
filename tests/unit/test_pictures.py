"""Answers about pictures: layout never decides, a wrong value never passes; fixtures are what the script makes."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from anvil_tui.adapters.toml_files import load_corpus
from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.gates import FailureClass
from anvil_tui.core.pictures import facts_told, media_refused, pictures_counted
from anvil_tui.core.verdicts import OK, Judged, failed
from anvil_tui.simbox import vision
from anvil_tui.simbox.dialects.llamacpp import LlamaCpp
from anvil_tui.simbox.profile import read_profile
from tests.support import media

SHIPPED = Path(__file__).parents[2] / "gates" / "media"

RECEIPT = ("Apples", "3.40", "Olive oil", "11.90", "TOTAL", "15.30")
TABLE = """| Item | Price |
|:-----|------:|
| Apples | 3.40 |
| Olive oil | 11.90 |
| **Total** | **15.30** |"""
LAYOUTS = {
    "table": TABLE,
    "fenced table": f"Here is the receipt:\n```markdown\n{TABLE}\n```",
    "bullets": "- Apples: $3.40\n- Olive oil: $11.90\n- Total: $15.30",
    "numbered": "1. Apples – 3.40\n2. Olive oil – 11.90\n3. **TOTAL** – 15.30",
    "prose": "The receipt lists apples at 3.40, and olive oil at 11.90, for a total of 15.30.",
    "prose with other numbers": "There are 2 items: apples (3.40) and olive oil (11.90). The total is 15.30.",
    "json": '{"rows": [{"item": "Apples", "price": 3.40}, {"item": "Olive oil", "price": 11.90}], "total": 15.30}',
    "html": "<table><tr><td>Apples</td><td>3.40</td></tr><tr><td>Olive oil</td><td>11.90</td></tr>"
    "<tr><td>Total</td><td>15.30</td></tr></table>",
    "wide": "Apples ........ 3.40\nOlive oil ..... 11.90\n===============\nTOTAL ........ 15.30",
    "non-breaking": "Apples\u00a03.40\nOlive\u00a0oil\u00a011.90\nTotal\u00a015.30",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_right_receipt_passes_in_every_layout(layout: str) -> None:
    assert facts_told(LAYOUTS[layout], RECEIPT) is None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("3.40", "3.48"),
        ("3.40", "13.40"),
        ("3.40", "-3.40"),
        ("11.90", "11.9"),
        ("15.30", "15.303"),
        ("live", "lives"),
    ],
)
def test_a_wrong_receipt_fails_in_every_layout(layout: str, right: str, wrong: str) -> None:
    assert facts_told(LAYOUTS[layout].replace(right, wrong), RECEIPT)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_amounts_that_changed_places_fail_in_every_layout(layout: str) -> None:
    swapped = LAYOUTS[layout].replace("3.40", "x").replace("11.90", "3.40").replace("x", "11.90")
    assert facts_told(swapped, RECEIPT)


def test_a_right_amount_beside_a_wrong_one_is_no_answer() -> None:
    assert facts_told("Apples 3.40 or 3.80, olive oil 11.90, total 15.30", RECEIPT)
    assert facts_told("Apples 3.40, olive oil 11.90, bread 2.15, total 15.30", RECEIPT)
    assert facts_told("Apples, olive oil, total: 3.40, 11.90, 15.30", RECEIPT), "not item by item"


DRESSES = (
    "12", " 12.\n", "**12**", "`12`", "```\n12\n```", "```12```", "There are 12.", "Count:12", "(12)",
    "12 red circles", '{"count": 12}', "The answer is **12**!", "１２", "\\boxed{12}",
)  # fmt: skip
OTHERS = (
    "", "2", "112", "120", "12.5", "1.12", "12,5", "-12", "12%", "x12", "12th", "12-13", "12/13", "12:30", "1 2",
    "twelve", "11 or 12", "12, perhaps 13", "not 12", "It isn't 12", "I cannot say; 12", "No. 3: 12",
)  # fmt: skip


@pytest.mark.parametrize("said", DRESSES)
def test_a_number_in_any_dress(said: str) -> None:
    assert facts_told(said, ("12",)) is None


@pytest.mark.parametrize("said", OTHERS)
def test_no_other_number_passes_for_it(said: str) -> None:
    assert facts_told(said, ("12",))


SHAPES = ("circle", "square", "triangle", "star")


@pytest.mark.parametrize("said", ["star", "Star.", "**STAR**", "The answer is: star", "It is a star!", '"star"'])
def test_a_word_of_the_options(said: str) -> None:
    assert facts_told(said, ("star",), SHAPES) is None


@pytest.mark.parametrize(
    "said",
    [
        "circle", "starfish", "superstar", "non-star", "star-like", "stars", "a star or a circle",
        "not a circle but a star", "It is not a star", "circle, square, triangle, star",
    ],
)  # fmt: skip
def test_no_other_word_passes_for_it(said: str) -> None:
    assert facts_told(said, ("star",), SHAPES)


def test_order_counts() -> None:
    colours = ("green", "purple", "red")
    assert facts_told("From green to purple.", ("green", "purple"), colours) is None
    assert facts_told("From purple to green.", ("green", "purple"), colours)
    cards = ("K-47", "M-36")
    for said in (
        "K-47, M-36",
        "1. K-47\n2. M-36",
        "Picture 1: K-47\nPicture 2: M-36",
        "| 1 | K-47 |\n|---|---|\n| 2 | M-36 |",
    ):
        assert facts_told(said, cards, verbatim=True) is None
    for said in ("M-36, K-47", "K-47", "K-47, M-36, P-93", "K-47, M-360", "k-47, m-36", "K-47 M-36 K-47"):
        assert facts_told(said, cards, verbatim=True)


@pytest.mark.parametrize("line", media.LINES.values())
def test_printed_lines_are_compared_to_the_letter(line: str) -> None:
    for said in (line, f'"{line}"', f"```\n{line}\n```", f"The line reads: **{line}**", f"> {line}"):
        assert facts_told(said, (line,), verbatim=True) is None, said
    changed = [line.swapcase(), line[1:], line[:-1], line.replace("7", "1"), line + " 9", line.replace(" ", "", 1)]
    changed += [line[:n] + "#" + line[n + 1 :] for n in range(0, len(line), 3)]
    for said in changed:
        if said != line:
            assert facts_told(said, (line,), verbatim=True), said


def test_degenerate_answers_take_no_time() -> None:
    for said in ("\n" * 40_000, "-" * 40_000 + "x", "| " * 20_000, "<a " * 15_000, "1." * 20_000, "a-" * 20_000):
        assert facts_told(said, ("12",))


# counts of tokens


def test_a_right_answer_without_a_counted_picture_is_not_proven() -> None:
    assert pictures_counted(OK, 1100, 76) == Judged("ok", None, "1,100 prompt tokens, 76 of them text")
    for counts in ((76, 76), (70, 76)):
        seen = pictures_counted(OK, *counts)
        assert (seen.outcome, "dropped" in seen.note) == ("unverified", True)
    for unknown in ((None, 76), (1100, None)):
        assert pictures_counted(OK, *unknown).outcome == "unverified"


def test_a_wrong_answer_stays_wrong_and_names_the_dropped_picture() -> None:
    wrong = failed(FailureClass.CHECK, "'12' is not told")
    assert "dropped" in pictures_counted(wrong, 76, 76).note
    assert pictures_counted(wrong, 76, 76).outcome == pictures_counted(wrong, None, None).outcome == "failed"
    assert pictures_counted(wrong, 1100, 76).note == "'12' is not told; 1,100 prompt tokens, 76 of them text"


# refusals


def refusal(status: int, message: str, **more: object) -> ChatAnswer:
    return ChatAnswer(status, error="http", error_message=message, **more)  # type: ignore[arg-type]


VLLM = "At most 2 image(s) may be provided in one prompt. Set `--limit-mm-per-prompt` to increase this limit."
LLAMA = "video input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
REFUSALS = (
    (refusal(400, VLLM), "image", "ok"),
    (refusal(400, "BadRequestError: Image count 3 exceeds limit 2 per request."), "image", "ok"),
    (refusal(400, "BadRequestError: tiny is not a multimodal model"), "image", "ok"),
    (refusal(400, "BadRequestError: At most 0 video(s) may be provided in one prompt."), "video", "ok"),
    (refusal(500, LLAMA), "video", "ok"),
    (refusal(400, "unsupported content[].type"), "video", "ok"),
    (refusal(400, "BadRequestError: Video count 1 exceeds limit 0 per request."), "image", "unverified"),
    (refusal(400, "BadRequestError: cannot identify image file"), "image", "unverified"),
    (refusal(400, "BadRequestError: Failed to load video"), "video", "unverified"),
    (refusal(400, "the request exceeds the available context size", overflow=(9000, 4096)), "image", "unverified"),
    (refusal(401, "Unauthorized"), "image", "errored"),
    (refusal(500, "InternalServerError: image index out of range"), "image", "failed"),
    (refusal(503, "not JSON, so probably a proxy"), "image", "errored"),
    (ChatAnswer(None, error="timeout", error_message="no answer"), "image", "errored"),
    (ChatAnswer(200, content="I see three.", finish_reason="stop", prompt_tokens=3100), "image", "failed"),
    (ChatAnswer(200, content="", finish_reason="length"), "video", "failed"),
)


@pytest.mark.parametrize(("answer", "medium", "outcome"), REFUSALS)
def test_only_a_refusal_that_names_the_medium_counts(answer: ChatAnswer, medium: str, outcome: str) -> None:
    seen = media_refused(answer, medium, 3, 2)  # type: ignore[arg-type]
    assert seen.outcome == outcome, seen.note
    if answer.error is None:
        assert f"3 {medium}s were accepted" in seen.note


# the pictures themselves


def pixels(data: bytes) -> tuple[tuple[int, int], bytes, object]:
    picture = Image.open(io.BytesIO(data))
    return picture.size, picture.convert("RGB").tobytes(), picture.info.get(media.CHUNK)


def test_the_shipped_pictures_are_what_the_script_makes() -> None:
    made, corpus = media.make()
    assert {p.name for p in SHIPPED.iterdir()} == {*made, "corpus.toml"}
    for name, data in made.items():
        shipped = (SHIPPED / name).read_bytes()
        same = shipped == data or (name.endswith(".png") and pixels(shipped) == pixels(data))
        assert same, f"{name} differs: run python -m tests.support.media"
    hashes = {f["name"]: (f["bytes"], f["sha256"]) for f in corpus["files"]}
    assert {f.name: (f.bytes, f.sha256) for f in load_corpus(SHIPPED / "corpus.toml").files} == hashes
    assert sum(p.stat().st_size for p in SHIPPED.iterdir()) < 400_000


def test_every_expectation_accepts_itself_and_no_other_of_its_case() -> None:
    corpus = load_corpus(SHIPPED / "corpus.toml")
    assert len(corpus.cases) >= 6 and len(corpus.cards) == 16
    for case in corpus.cases:
        for asked in case.questions:
            right = ", ".join(asked.expect)
            assert facts_told(right, asked.expect, asked.among, verbatim=asked.verbatim) is None, asked.ask
            for other in case.questions:
                if other.expect != asked.expect:
                    why = facts_told(", ".join(other.expect), asked.expect, asked.among, verbatim=asked.verbatim)
                    assert why, (asked.ask, other.expect)


# the simulated model


def url(name: str) -> dict[str, object]:
    data = base64.b64encode((SHIPPED / name).read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def shown(text: str, *names: str) -> dict[str, object]:
    return {"role": "user", "content": [*map(url, names), {"type": "text", "text": text}]}


def test_the_simulated_model_tells_only_of_pictures_that_reached_it() -> None:
    corpus = load_corpus(SHIPPED / "corpus.toml")
    case = next(c for c in corpus.cases if c.id == "difference")
    asked = case.questions[0]
    assert vision.told(shown(asked.ask, *case.files)) == "star"
    assert "does not look at pixels" in str(vision.told(shown(asked.ask, case.files[0])))
    assert "does not look at pixels" in str(vision.told(shown("What is this?", *case.files)))
    assert vision.told(shown(asked.ask)) is None
    assert vision.told(shown("?", "card-02.png", "card-01.png")) == "M-36, K-47"
    both = [shown("?", "card-02.png", "card-01.png")]
    assert vision.told(vision.without(both, True)[0]) == "M-36"
    assert vision.told(vision.without(both, False)[0]) is None
    assert (
        vision.over(both, {"image": 1}) == ("image", 2, 1) and vision.over(both, {"image": 2, "video": 0}) is None
    )


# the simulated engines' limits


def test_limits_of_media_are_read_from_the_command_line() -> None:
    def media_of(*words: str) -> object:
        return dict(read_profile("", ("serve", *words), {}, 0).media)

    vllm = ("--max-model-len", "4096", "--limit-mm-per-prompt")
    assert media_of(*vllm, '{"image":16,"video":0}') == {"image": 16, "video": 0}
    assert media_of(*vllm, '{"video":{"count":1,"num_frames":32}}') == {"video": 1}
    assert media_of(*vllm[:2]) == {}
    assert media_of("-c", "4096", "--port", "1", "-m", "x.gguf") == {"image": 0, "video": 0}
    assert media_of("-c", "4096", "--port", "1", "-m", "x.gguf", "--mmproj", "y.gguf") == {"video": 0}
    assert (
        "--limit-mm-per-prompt: Value image=16" in read_profile("", ("serve", *vllm, "image=16"), {}, 0).bad_start
    )


@pytest.mark.parametrize(
    ("more", "medium", "status", "said"),
    [
        ((), "image", 500, "image input is not supported - hint: if this is unexpected, you may need to provide"),
        ((), "video", 500, "video input is not supported - hint: if this is unexpected, you may need to provide"),
        (("--mmproj", "y.gguf"), "video", 400, "Failed to load image or audio file"),
    ],
)
def test_a_llama_shaped_engine_refuses_as_the_real_one(
    more: tuple[str, ...], medium: str, status: int, said: str
) -> None:
    """What llama-server b11669 answers is asserted in tests/real/test_gates_vision.py."""
    profile = read_profile("", ("-c", "4096", "--port", "1", "-m", "x.gguf", *more), {}, 0)
    engine: Any = SimpleNamespace(profile=profile)
    reply = LlamaCpp().media_refused(engine, medium, 1, 0)
    assert (reply.status, said in json.loads(reply.body)["error"]["message"]) == (status, True)
