"""Framing: O-49, O-50, O-51, O-52 as far as events go."""

from __future__ import annotations

import pytest

from anvil_tui.core.sse import MAX_LINE_BYTES, SseDecoder, SseTooLong


def events(*parts: bytes) -> list[tuple[str, int]]:
    decoder = SseDecoder()
    found = [e for part in parts for e in decoder.feed(part)] + decoder.end()
    return [(e.data, e.offset) for e in found]


def test_comments_and_empty_data_are_no_events() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b":\n\n: ping 10:00:15\n\nevent: ping\ndata: \n\n") == []
    assert decoder.comments == 2


def test_the_space_after_the_colon_is_optional_and_only_one_is_removed() -> None:
    assert [d for d, _ in events(b"data:A\n\ndata:  x\n\n")] == ["A", " x"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard(end: bytes) -> None:
    wire = end.join([b"data: a", b"data: b", b"", b"data: c", b"", b""])
    assert [d for d, _ in events(wire)] == ["a\nb", "c"]
    assert [d for d, _ in events(*(wire[i : i + 1] for i in range(len(wire))))] == ["a\nb", "c"]


def test_any_split_gives_the_same_events_and_offsets() -> None:
    wire = 'data: {"a":"naïve 模型"}\r\n\r\n: x\n\ndata: é\n\ndata: [DONE]\n\n'.encode()
    whole = events(wire)
    assert [d for d, _ in whole] == ['{"a":"naïve 模型"}', "é", "[DONE]"]
    assert [at for _, at in whole] == [0, wire.index("data: é".encode()), wire.index(b"data: [DONE]")]
    for i in range(1, len(wire)):
        assert events(wire[:i], wire[i:]) == whole
        assert events(wire[:i], b"", wire[i : i + 1], wire[i + 1 :]) == whole
    assert events(*(wire[i : i + 1] for i in range(len(wire)))) == whole


def test_invalid_utf8_is_replaced_and_counted() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\xffb\n\n")[0].data == "a\ufffdb"
    assert decoder.replaced == 1


def test_the_error_field_of_old_llamacpp_and_event_names() -> None:
    decoder = SseDecoder()
    first, second = decoder.feed(b'error: {"code":500}\n\nevent: sglext_ids\ndata: {}\n\n')
    assert (first.is_error, first.data) == (True, '{"code":500}')
    assert (second.is_error, second.name) == (False, "sglext_ids")


def test_a_byte_order_mark_is_skipped_and_unknown_fields_are_dropped() -> None:
    assert [d for d, _ in events(b"\xef\xbb\xbfid: 7\nretry: 10\ndata: a\n\n")] == ["a"]


def test_a_last_event_without_blank_line_is_given_at_the_end() -> None:
    assert events(b"data: a\n\ndata: b") == [("a", 0), ("b", 9)]


def test_an_endless_line_is_refused() -> None:
    decoder = SseDecoder()
    with pytest.raises(SseTooLong):
        for _ in range(MAX_LINE_BYTES // 65536 + 2):
            decoder.feed(b"x" * 65536)
