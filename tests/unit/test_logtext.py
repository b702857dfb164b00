"""Log bytes to lines (field cases O-28 to O-33)."""

from __future__ import annotations

import pytest

from anvil_tui.core.engine_log import capacity
from anvil_tui.core.logtext import DAEMON, LINE_LIMIT, LogDecoder, TextLine
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.text import clean

TS = b"2026-09-02T10:00:00.000000001Z "
TS2 = b"2026-09-02T10:00:00.000000002Z "


def frame(stream: int, payload: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


def decode(*chunks: bytes, tty: bool = False, stamped: bool = False) -> list[TextLine]:
    decoder = LogDecoder(tty=tty, stamped=stamped)
    return [line for chunk in chunks for line in decoder.feed(chunk)] + decoder.finish()


def texts(lines: list[TextLine]) -> list[tuple[str, str]]:
    return [(line.stream, line.text) for line in lines]


FRAMED = bytes.fromhex("010000000000000672656164790a02000000000000057761726e0a")


@pytest.mark.parametrize("split", range(len(FRAMED) + 1))
def test_frames_at_every_split(split: int) -> None:
    """O-28."""
    assert texts(decode(FRAMED[:split], FRAMED[split:])) == [("stdout", "ready"), ("stderr", "warn")]


@pytest.mark.parametrize("first", [0, 1, 2, 3, 4, 27, 91, 255])
@pytest.mark.parametrize("tty", [False, True])
def test_whether_it_is_framed_is_never_guessed(first: int, tty: bool) -> None:
    """O-28: the same bytes, as inspect says; no byte of a terminal's stream is cut away."""
    raw = bytes([first, 0, 0, 0, 0, 0, 0, 4]) + b"abc\n"
    [line] = decode(raw, tty=tty)
    assert line.text == (raw[:-1].decode("utf-8", "replace") if tty else "abc")
    assert line.stream == ("tty" if tty else {0: "stdin", 1: "stdout", 3: DAEMON}.get(first, "stderr"))


@pytest.mark.parametrize("stop", range(9, 19))
def test_a_stream_that_ends_inside_a_frame_keeps_what_came(stop: int) -> None:
    """O-28: the connection broke; nothing is made up and nothing is thrown."""
    assert texts(decode(FRAMED[:stop]))[0][1] == "ready"[: stop - 8]


def test_odd_characters_pass_through_as_they_are() -> None:
    """O-31: NUL, escapes, lone continuation bytes, overlong forms and halves of pairs; the screen cleans them."""
    raw = b"a\0b\x1b[31mc\x1b]0;t\x07d\x80e\xc0\xafg\xed\xa0\x80h\n"
    [line] = decode(frame(1, raw))
    assert line.text.startswith("a\0b\x1b[31mc") and line.text.count("\ufffd") == 6
    assert clean(line.text).startswith("abc") and "\x1b" not in clean(line.text)


@pytest.mark.parametrize("parts", [1, 2, 5, 63])
@pytest.mark.parametrize("tail", [0, 1, 16383])
def test_lines_of_exact_and_uneven_parts(parts: int, tail: int) -> None:
    """O-29: each part of 16 KiB has a stamp of its own; a text that looks like one is kept."""
    inner = b"2026-01-01T00:00:00Z of the engine "
    whole = inner + b"x" * (16384 * parts - len(inner))
    pieces = [whole[i : i + 16384] for i in range(0, len(whole), 16384)]
    stream = b"".join(frame(1, TS + piece) for piece in pieces) + frame(1, TS2 + b"y" * tail + b"\n")
    lines = decode(*(stream[i : i + 5000] for i in range(0, len(stream), 5000)), stamped=True)
    assert [(line.text, line.at) for line in lines] == [(whole.decode() + "y" * tail, TS.decode().strip())]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\r\n"])
@pytest.mark.parametrize("cut", range(1, 24))
def test_progress_at_every_split(cut: int, end: str) -> None:
    """O-33: framed as well as on a terminal, however the bytes come."""
    raw = b" 0% a\r 50% b\r100% c" + end.encode()
    chunks = (raw[:cut], raw[cut:])
    assert [line.text for line in decode(*chunks, tty=True)] == ["100% c"]
    assert [line.text for line in decode(*(frame(1, c) for c in chunks))] == ["100% c"]


def test_frames_byte_by_byte() -> None:
    assert texts(decode(*(FRAMED[i : i + 1] for i in range(len(FRAMED))))) == [
        ("stdout", "ready"),
        ("stderr", "warn"),
    ]


def test_tty_is_raw() -> None:
    """O-28."""
    lines = decode(bytes.fromhex("1b5b33326d494e464f1b5b306d2072656164790d0a"), tty=True)
    assert [(line.stream, clean(line.text)) for line in lines] == [("tty", "INFO ready")]


def test_tty_bytes_that_look_like_a_frame_are_text() -> None:
    """O-28."""
    [line] = decode(bytes.fromhex("01000000000000036162630a"), tty=True)
    assert line.text == "\x01\0\0\0\0\0\0\x03abc"
    assert clean(line.text) == "abc"


LONG = frame(1, TS + b"A" * 16384) + frame(2, TS + b"other\n") + frame(1, TS2 + b"BBBB\n")


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_long_line_is_joined_per_stream_without_inner_stamps(size: int) -> None:
    """O-29."""
    lines = decode(*(LONG[i : i + size] for i in range(0, len(LONG), size)), stamped=True)
    by_stream = {line.stream: line for line in lines}
    assert len(lines) == 2
    assert by_stream["stdout"].text == "A" * 16384 + "BBBB"
    assert by_stream["stdout"].at == TS.decode().strip()
    assert by_stream["stderr"].text == "other"


def test_long_tty_line_loses_the_stamps_of_its_parts() -> None:
    """O-29."""
    raw = TS + b"A" * 16384 + TS2 + b"B" * 16384 + TS2 + b"CC\r\n" + TS2 + b"next\r\n"
    lines = decode(raw[:20000], raw[20000:], tty=True, stamped=True)
    assert [line.text for line in lines] == ["A" * 16384 + "B" * 16384 + "CC", "next"]
    assert [line.at for line in lines] == [TS.decode().strip(), TS2.decode().strip()]


def test_a_line_is_capped_visibly_and_the_next_is_whole() -> None:
    """O-29."""
    huge = b"x" * (LINE_LIMIT + 5)
    first, second = decode(frame(1, huge), frame(1, b"\nnext\n"))
    assert first.text.startswith("x" * 100)
    assert first.text.endswith(" … [5 bytes cut]")
    assert second.text == "next"


def test_endless_progress_is_not_cut() -> None:
    bar = b"\rstep 12345 of 99999"
    decoder = LogDecoder(tty=True, stamped=False)
    for _ in range(4 * LINE_LIMIT // (1000 * len(bar))):
        decoder.feed(bar * 1000)
    assert decoder.live() == "step 12345 of 99999"
    assert [line.text for line in decoder.feed(b"\n")] == ["step 12345 of 99999"]


def test_invalid_utf8_keeps_line_and_follow() -> None:
    """O-31."""
    lines = decode(b"loading caf\xe9 weights\nnext \xfe line\nGPU KV cache size: 1,310,720 tokens\n", tty=True)
    assert [line.text for line in lines[:2]] == ["loading caf\ufffd weights", "next \ufffd line"]
    found = capacity(EngineKind.VLLM, [line.text for line in lines])
    assert found is not None
    assert found.tokens == 1_310_720


def test_split_character_is_one_character() -> None:
    """O-32."""
    assert [line.text for line in decode(b"caf\xc3", b"\xa9 pr\xc3\xaat\n", tty=True)] == ["café prêt"]
    assert [line.text for line in decode(b"caf\xc3", tty=True)] == ["caf\ufffd"]


def test_streams_have_their_own_state() -> None:
    """O-32."""
    lines = decode(frame(1, b"caf\xc3") + frame(2, b"\xa9!\n") + frame(1, b"\xa9\n"))
    assert texts(lines) == [("stderr", "\ufffd!"), ("stdout", "café")]


PROGRESS = (
    b"INFO start\nLoading shards:   0%|          | 0/4\rLoading shards:  50%|#####     | 2/4\r"
    b"Loading shards: 100%|##########| 4/4\nINFO done\n"
)


def test_progress_leaves_its_last_state() -> None:
    """O-33."""
    assert [line.text for line in decode(PROGRESS, tty=True)] == [
        "INFO start",
        "Loading shards: 100%|##########| 4/4",
        "INFO done",
    ]


def test_progress_is_live_before_its_line_end() -> None:
    """O-33."""
    second = PROGRESS.index(b"\r", PROGRESS.index(b"\r") + 1) + 1
    decoder = LogDecoder(tty=True, stamped=False)
    assert [line.text for line in decoder.feed(PROGRESS[:second])] == ["INFO start"]
    assert decoder.live() == "Loading shards:  50%|#####     | 2/4"
    decoder.feed(PROGRESS[second:])
    assert decoder.live() == ""


def test_live_line_is_shown_without_its_stamp() -> None:
    decoder = LogDecoder(tty=True, stamped=True)
    decoder.feed(TS + b"12%")
    assert decoder.live() == "12%"


def test_crlf_is_a_line_end_and_not_progress() -> None:
    """O-33."""
    assert [line.text for line in decode(b"a\r\nb\r\r\n", tty=True)] == ["a", "b"]


def test_empty_and_unstamped_lines() -> None:
    lines = decode(frame(1, TS + b"\n") + frame(1, b"no stamp here at all, but a long line\n"), stamped=True)
    assert [(line.text, line.at) for line in lines] == [
        ("", TS.decode().strip()),
        ("no stamp here at all, but a long line", None),
    ]
