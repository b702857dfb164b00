"""Secrets in engine logs and dumps (field case O-74)."""

from __future__ import annotations

import contextlib
import io
import time
from base64 import b64encode
from pathlib import Path

import pytest

from anvil_tui.adapters.secrets import find
from anvil_tui.cli.traces import told
from anvil_tui.core.errors import Unreachable
from anvil_tui.core.redact import redact, redact_argv
from anvil_tui.ui.terminal import crash_file


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "non-default args: {'model': '/models/m', 'api_key': ['sk-local-12345'], 'hf_token': 'hf_AbCdEfGhIj"
            "KlMnOpQrStUvWxYz012345'}",
            "non-default args: {'model': '/models/m', 'api_key': ['***'], 'hf_token': '***'}",
        ),
        ("DEBUG headers: Authorization: Bearer abc.def.ghi", "DEBUG headers: Authorization: Bearer ***"),
        ("{'authorization': 'Bearer s3cretvalue'}", "{'authorization': 'Bearer ***'}"),
        ("sent Bearer abc-123-def to it", "sent Bearer *** to it"),
        (
            "server_args=ServerArgs(model_path='/m', api_key='k1secret', admin_api_key=None, port=30000)",
            "server_args=ServerArgs(model_path='/m', api_key='***', admin_api_key=None, port=30000)",
        ),
        (
            '{"api_key": "abcd1234", "max_total_num_tokens": 612345}',
            '{"api_key": "***", "max_total_num_tokens": 612345}',
        ),
        (r"{\"api_key\":\"abcd1234\"}", r"{\"api_key\":\"***\"}"),
        ("vllm serve m --api-key k1secret --port 8000", "vllm serve m --api-key *** --port 8000"),
        ("vllm serve m --api-key=k1secret --port 8000", "vllm serve m --api-key=*** --port 8000"),
        ("['--admin-api-key', 'k1secret', '--port', '1']", "['--admin-api-key', '***', '--port', '1']"),
        ('["--api-key","k1secret"]', '["--api-key","***"]'),
        ("VLLM_API_KEY=k1secret HF_TOKEN=zzz CUDA=1", "VLLM_API_KEY=*** HF_TOKEN=*** CUDA=1"),
        ("GET https://user:pa55@host/x?token=abc&n=1", "GET https://user:***@host/x?token=***&n=1"),
        ("loaded sk-abcdefghijklmnop1234", "loaded ***"),
        ("password: hunter2", "password: ***"),
        ("id AKIAIOSFODNN7EXAMPLE here", "id *** here"),
        ("aws_secret_access_key = wJalr/K7MDENG/bPx", "aws_secret_access_key = ***"),
        ('{"SecretAccessKey": "wJalr/K7MDENG"}', '{"SecretAccessKey": "***"}'),
        ("git clone github_pat_11ABCDEFG0abcdefghij_KLMN x", "git clone *** x"),
        ("glpat-abcdefghijklmnopqrst nvapi-abcdefghijklmnopqrst1 xoxb-1234567890-abc", "*** *** ***"),
        ("x-api-key: plainvalue99", "x-api-key: ***"),
        ("got eyJhbGciOiJI.eyJzdWIiOiIx.dozjgNryP4J3", "got ***"),
        ("('authorization', 'Bearer abcdef')", "('authorization', 'Bearer ***')"),
        ("Cookie: sid=abc123; Path=/", "Cookie: sid=***; Path=/"),
        ("redis://:hunter2@h:6379/0 https://only-a-token@h/x", "redis://:***@h:6379/0 https://***@h/x"),
        ("PGPASSWORD=hunter2 ROUTER_TOKEN=abc OTHER_KEY=def", "PGPASSWORD=*** ROUTER_TOKEN=*** OTHER_KEY=***"),
        ('{"token": "abcdefghij0123456789"}', '{"token": "***"}'),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END",
            "-----BEGIN OPENSSH PRIVATE KEY-----***-----END",
        ),
    ],
)
def test_shapes(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "GPU KV cache size: 1,310,720 tokens",
        "max_tokens=1234, prompt_tokens: 99, max_total_num_tokens=612345",
        "image local/eng@sha256:" + "ab" * 32,
        "api_key=None, 'hf_token': None",
        "401 Bearer authentication required",
        "No API key is set",
        "'bos_token': '<s>', eos_token_id=2",
        "listening on http://127.0.0.1:8000/v1",
        '{"token": " the", "logprob": -0.1}',
        "MAX_NEW_TOKEN=4096 user@host:/path ssh://root@box git@host:x/y",
        "pad_token: '<pad>', token budget 512, 'token_ids': [1, 2]",
    ],
)
def test_counts_digests_and_sentences_stay(text: str) -> None:
    assert redact(text) == text


def test_known_values_go_wherever_they_stand() -> None:
    secrets = ("rt/9+x=long", "ro")
    text = "error at http://h/?k=rt%2F9%2Bx%3Dlong and xrt/9+x=longx; a round trip"
    assert redact(text, secrets) == "error at http://h/?k=*** and x***x; a round trip"


def test_masking_twice_is_masking_once() -> None:
    text = "Authorization: Bearer abc.def; --api-key k1 'api_key': ['a', 'b']"
    assert redact(redact(text)) == redact(text)


def test_argv() -> None:
    argv = ("serve", "m", "--api-key", "k1", "k2", "--port", "8000", "--hf-token=zz", "-m", "/x")
    masked = ("serve", "m", "--api-key", "***", "***", "--port", "8000", "--hf-token=***", "-m", "/x")
    assert redact_argv(argv) == masked


def test_hostile_text_takes_linear_time() -> None:
    """Measured: 0.25 s for the slowest piece."""
    pieces = (
        "a-",
        "a_",
        "key=[",
        "key='",
        "api_key=",
        "--api-key ",
        "eyJ-",
        "bearer ",
        "://a:",
        "authorization: ",
        "@",
        "-----BEGIN PRIVATE KEY-----",
        "cookie: a=",
        "https://a",
        "A_TOKEN=",
        "a_",
    )
    for piece in pieces:
        started = time.perf_counter()
        redact("api_key " + piece * 20_000)
        assert time.perf_counter() - started < 3, piece


def test_a_secret_that_an_excerpt_has_cut_in_two_is_masked_on_both_sides() -> None:
    key = "".join(("abcd", "EFGH", "ijkl", "MNOP", "4567"))
    assert redact(f"the key is {key[:14]}…", [key]) == "the key is ***…"
    assert redact(f"{key[6:]} was the key", [key]) == "*** was the key"
    assert redact(f"{key[:4]} {key[:9]} {key[-5:]}", [key]) == f"{key[:4]} {key[:9]} {key[-5:]}", (
        "less is no secret"
    )
    assert redact("a token of 12", ["token"]) == "a *** of 12"


def test_what_was_resolved_is_hidden_everywhere_from_then_on(tmp_path: Path) -> None:
    """In a crash file, in a trace, and in the words of every expected error; also as JSON and Base64 write it."""
    key = "resolved-key/with+signs=42"
    (tmp_path / "key").write_text(key)
    assert find("file:key", tmp_path, {}).value == key
    error = RuntimeError(f"the engine echoed {key} and {b64encode(key.encode()).decode()}")
    assert key not in crash_file(error, tmp_path / "crash").read_text()
    assert (
        str(Unreachable("http://h", f"said {key}; api_key=other"))
        == "http://h: said ***; api_key=*** (after 0.0 s)"
    )
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        told(RuntimeError, error, None)
    assert said.getvalue() == "RuntimeError: the engine echoed *** and ***\n"
