"""Makes the pictures of the vision gates: `python -m tests.support.media [FOLDER]`.

Each PNG also holds a text chunk `anvil-facts`, by which the simulated model, which sees no pixels, answers. A real
engine decodes pixels only.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

FOLDER = Path(__file__).parents[2] / "anvil_tui" / "starter" / "gates" / "media"
CHUNK = "anvil-facts"

SHAPES = ("circle", "square", "triangle", "star")
COLOURS = {"red": "#d02020", "blue": "#2040d0", "green": "#108030", "yellow": "#f0c000", "purple": "#802090"}
WORD = "Answer with one word: "
ALONE = " Answer with the number alone, in digits."

CARDS = (
    "K-47", "M-36", "P-93", "R-64", "T-79", "V-43", "W-97", "X-34",
    "H-76", "J-49", "L-63", "N-94", "C-37", "D-74", "F-69", "Y-46",
)  # fmt: skip
RECEIPT = (("Apples", "3.40"), ("Bread", "2.15"), ("Olive oil", "11.90"), ("Coffee", "7.35"), ("Rice", "4.05"))
LINES = {
    "A": "Zephyr quay 7, berth Q-4081: 3 crates (net 12.5 kg)!",
    "B": "Call McNeil & Sons at 06:45; bring key 19b/2.",
    "C": "Ref: xK7-Pq93-vT; paid 1,084.60 EUR on 2031-04-17",
}
CHART = (("Mon", 30), ("Tue", 50), ("Wed", 10), ("Thu", 40), ("Fri", 20))
LEDGER_ROWS, LEDGER_COLUMNS = 30, 4


Ask = tuple[str, tuple[str, ...], tuple[str, ...], bool]
"""(question, facts of the right answer, options, whether capitals count)."""


@dataclass(frozen=True)
class Made:
    id: str
    kind: str
    pictures: tuple[Image.Image, ...]
    asks: tuple[Ask, ...]


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def sheet(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    picture = Image.new("RGB", (width, height), "white")
    return picture, ImageDraw.Draw(picture)


def draw_shape(pen: ImageDraw.ImageDraw, shape: str, x: float, y: float, r: float, colour: str) -> None:
    if shape == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif shape == "square":
        pen.rectangle((x - r, y - r, x + r, y + r), fill=colour)
    else:
        corners = 3 if shape == "triangle" else 10
        radii = [r if n % 2 == 0 or corners == 3 else 0.42 * r for n in range(corners)]
        turns = [2 * math.pi * n / corners - math.pi / 2 for n in range(corners)]
        pen.polygon(
            [(x + q * math.cos(t), y + q * math.sin(t)) for q, t in zip(radii, turns, strict=True)], colour
        )


def shapes() -> Made:
    picture, pen = sheet(720, 480)
    wanted = (
        [("circle", "red")] * 5 + [("square", "blue")] * 3 + [("triangle", "green")] * 7 + [("star", "yellow")] * 2
    )
    random.Random("shapes").shuffle(wanted)
    for n, (shape, colour) in enumerate(wanted):
        draw_shape(pen, shape, 70 + 115 * (n % 6), 80 + 150 * (n // 6), 42, COLOURS[colour])
    counts = (("red circles", "5"), ("blue squares", "3"), ("green triangles", "7"), ("yellow stars", "2"))
    asks: list[Ask] = [(f"How many {what} are in the picture?{ALONE}", (n,), (), False) for what, n in counts]
    colours = ("red", "blue", "green", "yellow")
    asks.append((f"Which colour are the squares? {WORD}{', '.join(colours)}.", ("blue",), colours, False))
    return Made("shapes", "image", (picture,), tuple(asks))


def relation() -> Made:
    picture, pen = sheet(480, 480)
    for n, shape in enumerate(("circle", "star", "square", "triangle")):
        draw_shape(pen, shape, 130 + 220 * (n % 2), 130 + 220 * (n // 2), 70, COLOURS["purple"])
    choice = f"{WORD}{', '.join(SHAPES)}."
    asks = (
        (f"Which shape is directly to the right of the circle? {choice}", ("star",), SHAPES, False),
        (f"Which shape is directly above the square? {choice}", ("circle",), SHAPES, False),
        (f"Which shape is directly below the star? {choice}", ("triangle",), SHAPES, False),
        (f"Which shape is directly to the left of the triangle? {choice}", ("square",), SHAPES, False),
    )
    return Made("relation", "image", (picture,), asks)


def chart() -> Made:
    picture, pen = sheet(720, 480)
    for value in range(0, 70, 10):
        y = 420 - 6 * value
        pen.line((80, y, 700, y), fill="#b0b0b0", width=2)
        pen.text((66, y), str(value), fill="black", font=font(22), anchor="rm")
    for n, (day, value) in enumerate(CHART):
        x = 110 + 120 * n
        pen.rectangle((x, 420 - 6 * value, x + 70, 420), fill=COLOURS["blue"])
        pen.text((x + 35, 445), day, fill="black", font=font(24), anchor="mm")
    days = tuple(day for day, _ in CHART)
    asks: list[Ask] = [
        (f"What is the value of the bar {day}?{ALONE}", (str(value),), (), False) for day, value in CHART
    ]
    asks.append((f"Which bar is the highest? {WORD}{', '.join(days)}.", ("Tue",), days, False))
    asks.append((f"Which bar is the lowest? {WORD}{', '.join(days)}.", ("Wed",), days, False))
    return Made("chart", "image", (picture,), tuple(asks))


def caption() -> Made:
    picture, pen = sheet(480, 420)
    draw_shape(pen, "triangle", 240, 200, 130, COLOURS["blue"])
    pen.text((240, 370), "A red circle", fill="black", font=font(40), anchor="mm")
    colours = ("red", "blue", "green", "yellow")
    asks = (
        (f"Which shape is drawn above the caption? {WORD}{', '.join(SHAPES)}.", ("triangle",), SHAPES, False),
        (f"Which colour is the shape above the caption? {WORD}{', '.join(colours)}.", ("blue",), colours, False),
    )  # fmt: skip
    return Made("caption", "image", (picture,), asks)


def verbatim() -> Made:
    picture, pen = sheet(900, 300)
    for n, (mark, text) in enumerate(LINES.items()):
        pen.text((30, 60 + 90 * n), f"[{mark}]", fill=COLOURS["red"], font=font(30), anchor="lm")
        pen.text((100, 60 + 90 * n), text, fill="black", font=font(30), anchor="lm")
    asked = (
        "Write the text of the line marked [{}] exactly as it is printed, without its mark and without comment."
    )
    return Made("verbatim", "ocr", (picture,), tuple((asked.format(m), (t,), (), True) for m, t in LINES.items()))


def receipt() -> Made:
    picture, pen = sheet(520, 520)
    total = f"{sum(float(price) for _, price in RECEIPT):.2f}"
    pen.text((260, 50), "CORNER MARKET", fill="black", font=font(34), anchor="mm")
    rows = (*RECEIPT, ("TOTAL", total))
    for n, (item, price) in enumerate(rows):
        y = 120 + 60 * n + (20 if item == "TOTAL" else 0)
        pen.text((50, y), item, fill="black", font=font(28), anchor="lm")
        pen.text((470, y), price, fill="black", font=font(28), anchor="rm")
    pen.line((40, 410, 480, 410), fill="black", width=2)
    facts = tuple(part for row in rows for part in row)
    asks = (
        (
            "List each item of the receipt with its price, from top to bottom, and the total last.",
            facts,
            (),
            False,
        ),
        ("What is the total of the receipt? Answer with the amount alone.", (total,), (), False),
    )
    return Made("receipt", "ocr", (picture,), asks)


def difference() -> Made:
    before = [("circle", "red"), ("star", "green"), ("square", "blue"), ("triangle", "yellow")]
    after = [("circle", "red"), ("star", "purple"), ("square", "blue"), ("triangle", "yellow")]
    pictures = []
    for row in (before, after):
        picture, pen = sheet(640, 200)
        for n, (shape, colour) in enumerate(row):
            draw_shape(pen, shape, 90 + 155 * n, 100, 60, COLOURS[colour])
        pictures.append(picture)
    colours = tuple(COLOURS)
    which = f"Which shape has another colour in the second picture than in the first? {WORD}{', '.join(SHAPES)}."
    change = (
        "One shape changed its colour from the first picture to the second. Answer with two words: its colour in "
        "the first picture, then its colour in the second."
    )
    asks = ((which, ("star",), SHAPES, False), (change, ("green", "purple"), colours, False))
    return Made("difference", "compare", tuple(pictures), asks)


def ledger() -> Made:
    picture, pen = sheet(3000, 1500)
    pick, rows = random.Random("ledger"), []
    for n in range(LEDGER_ROWS * LEDGER_COLUMNS):
        made = "".join(pick.choices("CDFHJKLMNPRTVWX", k=2)) + "-" + "".join(pick.choices("34679", k=5))
        rows.append((n + 101, made))
        x, y = 90 + 740 * (n // LEDGER_ROWS), 60 + 47 * (n % LEDGER_ROWS)
        pen.text((x, y), f"Row {n + 101}", fill="black", font=font(26), anchor="lm")
        pen.text((x + 300, y), made, fill="black", font=font(26), anchor="lm")
    asked = "Which code stands beside Row {}? Answer with the code alone."
    chosen = sorted(pick.sample(rows, 12))
    return Made("ledger", "large", (picture,), tuple((asked.format(n), (c,), (), True) for n, c in chosen))


def card(code: str) -> Image.Image:
    picture, pen = sheet(224, 160)
    pen.rectangle((8, 8, 215, 151), outline="black", width=4)
    pen.text((112, 80), code, fill="black", font=font(64), anchor="mm")
    return picture


def clip() -> bytes:
    """An AVI of four PNG frames (MPNG), a white square that moves over black: FFmpeg, PyAV and OpenCV read it."""
    side, frames = 64, []
    for n in range(4):
        frame, pen = sheet(side, side)
        pen.rectangle((0, 0, side, side), fill="black")
        pen.rectangle((12 * n, 20, 12 * n + 16, 36), fill="white")
        out = io.BytesIO()
        frame.save(out, "PNG")
        frames.append(out.getvalue())
    most, count = max(map(len, frames)), len(frames)
    head = struct.pack("<14I", 500_000, 2 * most, 0, 0x10, count, 0, 1, most, side, side, 0, 0, 0, 0)
    stream = struct.pack("<4s4s3I7I4H", b"vids", b"MPNG", 0, 0, 0, 1, 2, 0, count, most, 0, 0, 0, 0, side, side)
    form = struct.pack("<IiiHH4sIiiII", 40, side, side, 1, 24, b"MPNG", 3 * side * side, 0, 0, 0, 0)
    track = _listed(b"strl", _chunk(b"strh", stream) + _chunk(b"strf", form))
    index, at = b"", 4
    for data in frames:
        index += struct.pack("<4s3I", b"00dc", 0x10, at, len(data))
        at += 8 + len(data) + len(data) % 2
    body = _listed(b"hdrl", _chunk(b"avih", head) + track)
    body += _listed(b"movi", b"".join(_chunk(b"00dc", data) for data in frames)) + _chunk(b"idx1", index)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"AVI " + body


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def _listed(name: bytes, data: bytes) -> bytes:
    return _chunk(b"LIST", name + data)


CASES: tuple[Callable[[], Made], ...] = (shapes, relation, chart, caption, verbatim, receipt, difference, ledger)


def png(picture: Image.Image, facts: dict[str, Any]) -> bytes:
    """Few colours, so that a large picture stays a small file."""
    note = PngInfo()
    note.add_text(CHUNK, json.dumps(facts))
    out = io.BytesIO()
    picture.quantize(16, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        out, "PNG", bits=4, optimize=True, pnginfo=note
    )
    return out.getvalue()


def make() -> tuple[dict[str, bytes], dict[str, Any]]:
    """(files by name, the corpus as corpus.toml holds it)."""
    files: dict[str, bytes] = {}
    cases = []
    for made in (case() for case in CASES):
        names = [f"{made.id}-{n}.png" if len(made.pictures) > 1 else f"{made.id}.png"
                 for n in range(1, len(made.pictures) + 1)]  # fmt: skip
        answers = {ask: " ".join(facts) for ask, facts, _, _ in made.asks}
        for name, picture in zip(names, made.pictures, strict=True):
            files[name] = png(picture, {"id": name, "needs": names, "answers": answers})
        questions = [
            {"ask": ask, "expect": list(facts)}
            | ({"among": list(among)} if among else {})
            | ({"verbatim": True} if exact else {})
            for ask, facts, among, exact in made.asks
        ]
        cases.append({"id": made.id, "kind": made.kind, "files": names, "questions": questions})
    cards = {f"card-{n:02d}.png": code for n, code in enumerate(CARDS, 1)}
    files |= {name: png(card(code), {"id": name, "shows": code}) for name, code in cards.items()}
    files["clip.avi"] = clip()
    listed = [
        {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        | ({"shows": cards[name]} if name in cards else {})
        for name, data in files.items()
    ]
    corpus = {
        "schema": "anvil.media/1",
        "video": "clip.avi",
        "cards": list(cards),
        "files": listed,
        "cases": cases,
    }
    return files, corpus


def toml(corpus: dict[str, Any]) -> str:
    lines = ["# Made by `python -m tests.support.media`; a file whose hash differs is not shown to any serve."]
    lines += [f"{key} = {_value(corpus[key])}" for key in ("schema", "video", "cards")]
    for row in corpus["files"]:
        lines += ["", "[[files]]", *(f"{key} = {_value(value)}" for key, value in row.items())]
    for case in corpus["cases"]:
        lines += ["", "[[cases]]", *(f"{key} = {_value(case[key])}" for key in ("id", "kind", "files"))]
        for question in case["questions"]:
            lines += ["", "[[cases.questions]]", *(f"{key} = {_value(value)}" for key, value in question.items())]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def main(folder: Path) -> None:
    files, corpus = make()
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / "corpus.toml").write_text(toml(corpus), encoding="utf-8")
    print(f"{folder}: {len(files)} files, {sum(map(len, files.values())):,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
