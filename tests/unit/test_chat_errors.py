"""Refusals of engines and proxies: O-70, O-71, O-72 and their kin."""

# ruff: noqa: E501
from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from anvil_tui.core.chat_errors import ServerError, http_error, retry_after_s


def refused(body: Any, status: int = 400) -> ServerError:
    return http_error(status, "application/json", json.dumps(body).encode(), 100)


def flat(message: str) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}


OVERFLOWS: list[tuple[dict[str, Any], tuple[int, int]]] = [
    (flat("This model's maximum context length is 32768 tokens. However, you requested 40100 tokens (39000 in the messages, 1100 in the completion)."), (40100, 32768)),
    ({"error": {"code": 400, "message": "request (5200 tokens) exceeds the available context size (4096 tokens), try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 5201, "n_ctx": 4096}}, (5201, 4096)),
    ({"error": {"code": 400, "message": "request (5200 tokens) exceeds the available context size (4096 tokens), try increasing it"}}, (5200, 4096)),
    (flat("Input length (300100 tokens) exceeds the maximum allowed length (262144 tokens). Use a shorter input or enable --allow-auto-truncate."), (300100, 262144)),
    ({"error": {"message": "The input (12000 tokens) is longer than the model's context length (8192 tokens).", "type": "BadRequestError", "code": 400}}, (12000, 8192)),
    (flat("Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of 33000 tokens: 32000 tokens from the input messages and 1000 tokens for the completion."), (33000, 32768)),
]  # fmt: skip


@pytest.mark.parametrize(("body", "tokens"), OVERFLOWS)
def test_context_overflow_is_recognised_with_its_numbers(body: dict[str, Any], tokens: tuple[int, int]) -> None:
    got = refused(body)
    assert (got.code, got.overflow) == ("context_overflow", tokens)


def test_vllm_counts_characters_of_a_prompt_that_is_far_too_long() -> None:
    """Both texts as vLLM 0.32.0 sends them: a floor of tokens where it stopped counting, or characters alone."""
    start = "This model's maximum context length is 4096 tokens. However, your prompt contains"
    least = refused(
        flat(f"{start} at least 4097 input tokens, which exceeds this limit even without any output tokens.")
    )
    assert (least.code, least.overflow) == ("context_overflow", (4097, 4096))
    letters = refused(
        flat(f"{start} 90000 characters (more than 73728 characters, the upper bound for 4096 input tokens).")
    )
    assert (letters.code, letters.overflow) == ("context_overflow", None)


def test_other_refusals_keep_the_servers_own_words() -> None:
    assert refused({"error": "Unauthorized"}, 401) == ServerError("Unauthorized", "unauthorized")
    key = refused({"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}}, 401)
    assert (key.code, key.message) == ("unauthorized", "authentication_error: Invalid API Key")
    model = refused(flat("The model `x` does not exist.") | {"type": "NotFoundError", "code": 404}, 404)
    assert (model.code, model.overflow) == ("404", None)
    assert refused({"detail": "Not Found"}, 404).message == "Not Found"
    assert "surprise" in refused({"surprise": 1}, 500).message
    assert refused([1], 500).message == "[1]"


def test_a_proxys_page_is_no_json_and_no_overflow() -> None:
    page = b"<html><head><title>413 Request Entity Too Large</title></head><body><hr><center>openresty</center></body></html>"
    got = http_error(413, "text/html", page, 1_048_700)
    assert (got.code, got.overflow) == ("payload_too_large", None)
    assert (
        got.message
        == "not JSON, so probably a proxy: 413 Request Entity Too Large openresty (we had sent 1048700 bytes)"
    )
    long = http_error(502, "text/html", b"<p>" + b"x" * 5000, 1)
    assert long.code == "502"
    assert len(long.message) < 300
    assert "empty body" in http_error(503, "", b"", 1).message
    assert http_error(500, "", b"\xff\xfe", 1).code == "500"


def test_retry_after() -> None:
    now = datetime(2026, 9, 2, 10, 0, 0, tzinfo=UTC)
    given = [
        "30",
        "Wed, 02 Sep 2026 10:00:30 GMT",
        "Wed, 02 Sep 2026 09:59:00 GMT",
        "soon",
        None,
        "",
        "-5",
        "999999",
    ]
    assert [retry_after_s(v, now) for v in given] == [30.0, 30.0, 0.0, None, None, None, None, 120.0]
