"""Who is let in, which slot answers, and what a hold does, through real HAProxy."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest

from anvil_tui.adapters.haproxy_socket import socket_dir
from anvil_tui.core.box import Gateway
from tests.support.gateway import KEY, Rig, in_flight, rig
from tests.support.wait import wait_until

pytestmark = pytest.mark.real


# finding the model


def test_alias_by_body_path_and_header(gateway: Rig) -> None:
    gateway.point(llm_primary="a", llm_fast="b")
    client = gateway.client()
    by_body, by_header = client.post("llm.primary"), client.post("zzz", x_model_alias="llm.fast")
    by_path = client.post("zzz", "/llm.primary/v1/chat/completions?x=1")
    assert [(a.status, a.by, a.headers["x-anvil-backend"]) for a in (by_body, by_header, by_path)] == [
        (200, {"a"}, "a"), (200, {"b"}, "b"), (200, {"a"}, "a"),
    ]  # fmt: skip
    assert [path for path, _ in gateway.engines["a"].seen] == ["/v1/chat/completions", "/v1/chat/completions?x=1"]


def test_the_engine_sees_no_client_credential(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    assert gateway.client().post("m", x_model_alias="llm.primary").whole
    [(_, headers)] = gateway.engines["a"].seen
    assert "authorization" not in headers and "x-model-alias" not in headers


def test_private_alias_reaches_its_slot_whatever_the_public_map_says(gateway: Rig) -> None:
    gateway.point(llm_primary="hold", llm_fast="a")
    client = gateway.client()
    assert client.post("m", x_model_alias="@b").by == {"b"}
    assert client.post("m", "/@b/v1/chat/completions").by == {"b"}
    assert client.post("m", "/%40b/v1/chat/completions").by == {"b"}
    assert gateway.client("wrong").post("m", "/@b/v1/chat/completions").status == 401
    assert client.post("m", "/@zzz/v1/chat/completions").status == 404


def test_model_last_in_a_body_of_nearly_four_mebibytes(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    body = json.dumps({"messages": ["x" * 3_900_000], "model": "llm.primary"})
    client = gateway.client()
    head = {"Authorization": f"Bearer {KEY}"}
    client.link.request("POST", "/v1/chat/completions", body, head)
    assert client.read().by == {"a"}


def test_model_beyond_the_buffer_names_the_two_other_ways(binary: str | None, tmp_path: Path) -> None:
    with rig(tmp_path, binary, max_body_kib=64) as gateway:
        gateway.point(llm_primary="a")
        head = {"Authorization": f"Bearer {KEY}"}
        late = json.dumps({"messages": ["x" * 400_000], "model": "llm.primary"})
        client = gateway.client()
        client.link.request("POST", "/v1/chat/completions", late, head)
        answer = client.read()
        assert answer.status == 400
        for word in ("x-model-alias", "/ALIAS/v1/", "64 KiB"):
            assert word in str(answer.error["message"])
        for way in ({"x-model-alias": "llm.primary"}, {}):
            other, path = gateway.client(), "/v1/x" if way else "/llm.primary/v1/x"
            other.link.request("POST", path, late, head | way)
            assert other.read().whole


def test_a_stream_passes_chunk_by_chunk(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    stream = gateway.streaming()
    answer = stream.link.getresponse()
    assert answer.readline().startswith(b"data: ")  # the engine waits until told to go on
    gateway.engines["a"].go.set()
    assert answer.read().count(b"data: ") == 3


@pytest.mark.parametrize("name", ["nope", '"<\\é\n', "__gen", "hold", "none", "a", "", "x" * 5000])
def test_unknown_model_is_404_that_names_the_known(gateway: Rig, name: str) -> None:
    answer = gateway.client().post(name)
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert "llm.primary, llm.fast, embed" in str(answer.error["message"])


def test_requests_that_are_no_model_call(gateway: Rig) -> None:
    client = gateway.client()
    assert (client.post().status, client.post().error["code"]) == (400, "model_missing")
    assert client.post("llm.primary", "/metrics").status == 404
    client.link.request("GET", "/v1/models", headers={"Authorization": f"Bearer {KEY}"})
    listed = json.loads(client.read().text)
    assert [m["id"] for m in listed["data"]] == ["llm.primary", "llm.fast", "embed"]


@pytest.mark.parametrize("key", [None, "", "wrong", KEY + " ", KEY.upper()])
def test_only_known_clients(gateway: Rig, key: str | None) -> None:
    gateway.point(llm_primary="a")
    answer = gateway.client(key).post("llm.primary")
    known = key is not None and key.strip() == KEY  # white space at the end of a header is no part of it
    assert answer.status == (200 if known else 401)
    if not known:
        assert (answer.error["code"], answer.headers["www-authenticate"]) == ("invalid_api_key", "Bearer")


def test_no_key_in_any_file_and_nobody_else_reads_them(gateway: Rig) -> None:
    files = [p for p in gateway.folder.rglob("*") if p.is_file()]
    assert {"haproxy.cfg", "hold.lua", "alias.map"} <= {p.name for p in files}
    assert all(KEY not in p.read_text() for p in files)
    assert {stat.S_IMODE(p.stat().st_mode) for p in files} == {0o600}
    assert stat.S_IMODE(gateway.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in socket_dir(gateway.folder).glob("*.sock")} == {0o600}


def test_engine_that_echoes_the_alias_does_not_prove_who_served(gateway: Rig) -> None:
    """O-79: the model field says what was asked; the gateway's own header says who answered."""
    gateway.point(llm_primary="b")
    answer = gateway.client().post("llm.primary")
    assert '"model": "llm.primary"' in answer.text
    assert answer.headers["x-anvil-backend"] == "b"
    assert (len(gateway.engines["a"].seen), len(gateway.engines["b"].seen)) == (0, 1)


def test_engine_down_is_503_at_once(gateway: Rig) -> None:
    """O-77: retryable, never 500, and it does not claim that an engine answered."""
    gateway.point(llm_primary="a")
    gateway.engines["a"].close()
    answer = gateway.client().post("llm.primary")
    assert (answer.status, answer.error["type"], answer.error["code"]) == (
        503, "service_unavailable", "engine_down",
    )  # fmt: skip
    assert int(answer.headers["retry-after"]) > 0 and "x-anvil-backend" not in answer.headers
    assert '"a"' not in answer.text and "slot a " in answer.text


def test_alias_without_an_engine_says_so(gateway: Rig) -> None:
    answer = gateway.client().post("llm.primary")
    assert (answer.status, answer.error["code"]) == (503, "nothing_serves")
    assert "llm.primary" in str(answer.error["message"]) and "retry-after" in answer.headers


def test_refusal_of_a_large_body_arrives(gateway: Rig) -> None:
    """Answered before the body was read, the answer is lost in a reset connection."""
    body = json.dumps({"messages": ["x" * 3_900_000], "model": "llm.primary"})
    for _ in range(8):
        client = gateway.client()
        head = {"Authorization": f"Bearer {KEY}", "x-model-alias": "llm.primary"}
        client.link.request("POST", "/v1/chat/completions", body, head)
        assert client.read().error["code"] == "nothing_serves"


# hold


def test_held_requests_are_all_served_by_the_new_slot(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    gateway.point(llm_primary="hold", llm_fast="hold")
    waiting = [gateway.client() for _ in range(12)]
    for client in waiting:
        client.send("llm.primary")
    wait_until(lambda: gateway.reader.snapshot().held == 12, "twelve are held")
    assert not gateway.engines["a"].seen and not gateway.engines["b"].seen
    gateway.point(llm_primary="b", llm_fast="b")
    answers = [client.read() for client in waiting]
    assert all(a.whole and a.by == {"b"} and a.headers["x-anvil-backend"] == "b" for a in answers)
    assert gateway.reader.snapshot().held == 0


def test_hold_limit_is_503_with_retry_after(binary: str | None, tmp_path: Path) -> None:
    """O-77 at the gateway: what could not be held any longer is retryable, and is no engine's 500."""
    with rig(tmp_path, binary, hold_max_s=1) as gateway:
        gateway.point(llm_primary="hold")
        began = time.monotonic()
        answer = gateway.client().post("llm.primary")
        assert 0.9 < time.monotonic() - began < 5
        assert (answer.status, answer.error["type"], answer.error["code"]) == (
            503, "service_unavailable", "model_on_hold",
        )  # fmt: skip
        assert int(answer.headers["retry-after"]) > 0
        assert gateway.reader.snapshot().held == 0


def test_a_held_client_that_leaves_disturbs_nobody(gateway: Rig) -> None:
    """2.6 notices at once; 2.8 may notice only at release, and then the engine is let go by itself."""
    gateway.point(llm_primary="hold")
    leaver, stayer = gateway.client(), gateway.client()
    leaver.send("llm.primary", x_wait="1")
    stayer.send("llm.primary")
    found = wait_until(lambda: held(gateway, 2), "two are held")
    leaver.link.close()
    if str(found.version).startswith("2.6"):
        wait_until(lambda: held(gateway, 1), "one has left", 5)
    gateway.point(llm_primary="a")
    assert stayer.read().by == {"a"}
    wait_until(lambda: held(gateway, 0), "nobody is held", 5)
    wait_until(lambda: in_flight(gateway, "a") == 0, "nothing is left in flight", 5)


def held(gateway: Rig, count: int) -> Gateway | None:
    found = gateway.reader.snapshot()
    return found if found.held == count else None
