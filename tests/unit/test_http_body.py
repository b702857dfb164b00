"""HTTP messages cut anywhere: the body is the same, and its end is known."""

from __future__ import annotations

import pytest

from anvil_tui.core.http_body import EndMarker, Framing, Head

BODY = b"hello 0\r\n\r\n0\r\n\r\n"
SENT = b"5;name=x\r\nhello\r\n00B\r\n" + BODY[5:] + b"\r\n0\r\nTrailer: x\r\n\r\n"


@pytest.mark.parametrize("size", range(1, len(SENT) + 1))
def test_transfer_chunks_in_pieces_of_any_size(size: int) -> None:
    """The body holds what looks like the end."""
    framing, got = Framing(True, 3), b""
    for at in range(0, len(SENT), size):
        assert not framing.done
        got += framing.feed(SENT[at : at + size])
    assert (got, framing.done) == (BODY, True)


@pytest.mark.parametrize("line", [b"zz\r\n", b"-5\r\n", b"\r\n", b"0x5\r\n", b"5_0\r\n"])
def test_a_size_that_is_none(line: bytes) -> None:
    with pytest.raises(ValueError, match="a transfer chunk of size"):
        Framing(True, None).feed(line)


def test_an_endless_size_line() -> None:
    with pytest.raises(ValueError, match="without a size"):
        Framing(True, None).feed(b"1" * 70_000)


def test_a_length_and_the_close() -> None:
    framing = Framing(False, 5)
    assert (framing.feed(b"hel"), framing.done, framing.length) == (b"hel", False, 2)
    assert (framing.feed(b"lo, more"), framing.done, framing.length) == (b"lo", True, 0)
    assert Framing(False, 0).done
    close = Framing(False, None)
    assert (close.feed(b"x"), close.done) == (b"x", False)


@pytest.mark.parametrize("size", range(1, 30))
@pytest.mark.parametrize(
    ("stream", "found"),
    [
        (b'data: {"a":1}\n\ndata: [DONE]\n\n', True),
        (b"data:[DONE]\n\n", True),
        (b'data: {"a":1}\r\n\r\ndata: [DONE]\r\n\r\n', True),
        (b'data: {"a":"\\ndata: [DONE]"}\n\n', False),
        (b'data: {"a":"data: [DONE]"}\n\n', False),
        (b": [DONE]\n\n", False),
    ],
)
def test_the_end_marker_is_a_line(stream: bytes, found: bool, size: int) -> None:
    marker = EndMarker()
    assert any([marker.seen(stream[at : at + size]) for at in range(0, len(stream), size)]) == found


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_head_after_an_interim_answer(size: int) -> None:
    whole, head, rest = b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"5\r\nhello", Head(), b""
    for at in range(0, len(whole), size):
        part = whole[at : at + size]
        rest += part if head.framing else head.feed(part)
    assert (head.status, head.raw, rest) == (200, HEAD[:-4], b"5\r\nhello")
    assert head.framing is not None and head.framing.chunked
    assert head.marker is not None and head.keep


@pytest.mark.parametrize(
    ("fields", "status", "length", "keep"),
    [
        (b"Content-Length: 7", 200, 7, True),
        (b"content-length: 7\r\nConnection: Close", 200, 7, False),
        (b"X: y", 204, 0, True),
        (b"X: y", 200, None, True),
    ],
)
def test_what_a_head_says(fields: bytes, status: int, length: int | None, keep: bool) -> None:
    head = Head()
    head.feed(b"HTTP/1.1 %d X\r\n%s\r\n\r\n" % (status, fields))
    assert head.framing is not None
    assert (head.framing.length, head.keep, head.marker) == (length, keep, None)


@pytest.mark.parametrize(
    "first", [b"220 ready\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 OK\r\n\r\n", b"HTTP/1.1 " + b"x" * 70_000]
)
def test_what_is_not_http(first: bytes) -> None:
    with pytest.raises(ValueError, match=r"the answer begins with|longer than"):
        Head().feed(first)
