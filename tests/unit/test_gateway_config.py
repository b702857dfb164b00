"""The gateway's files as text."""

from __future__ import annotations

import hashlib

import pytest

from anvil_tui.adapters.haproxy_socket import addresses, loads, oldest, processes, requests, seconds, total
from anvil_tui.core.errors import BadFile, Refused
from anvil_tui.core.gateway_config import (
    AliasMap,
    alias_map,
    key_digest,
    keys_in,
    keys_text,
    merged,
    parse_map,
    render,
)
from anvil_tui.core.workspace import GatewaySettings, Role, Slot

SETTINGS = GatewaySettings(client_keys=("env:KEY",), bind="127.0.0.1:9100", hold_max_s=7, max_body_kib=64)
PRIMARY = Role(
    name="primary",
    aliases=("llm.primary", "llm.fast"),
    slots=(Slot(name="a", port=9131), Slot(name="b", port=9132)),
)
EMBED = Role(name="embed", aliases=("embed",), slots=(Slot(name="c", port=9133), Slot(name="d", port=9134)))
ROLES = (PRIMARY, EMBED)


def config(settings: GatewaySettings = SETTINGS, roles: tuple[Role, ...] = ROLES) -> str:
    return render(settings, roles, "/run/x/cli.sock")[0]


def with_slot(name: str) -> Role:
    return PRIMARY.model_copy(update={"slots": (Slot(name=name, port=9131), Slot(name="b", port=9132))})


def test_every_slot_is_a_backend_at_its_port_without_health_checks() -> None:
    lines = config().splitlines()
    for name, port in (("a", 9131), ("b", 9132), ("c", 9133), ("d", 9134)):
        assert lines[lines.index(f"backend {name}") + 1] == f"  server engine 127.0.0.1:{port}"


def test_figures_of_anvil_toml_arrive() -> None:
    text = config()
    assert "  bind 127.0.0.1:9100\n" in text
    assert "lua.hold 7000 " in text
    assert f"tune.bufsize {64 * 1024 + 65536}\n" in text
    assert "stats socket /run/x/cli.sock mode 600" in text


def test_keys_are_there_as_digests_only() -> None:
    digest = hashlib.sha256(b"secret").hexdigest()
    assert key_digest("secret") == digest
    text = keys_text((digest, "0" * 64, digest))
    assert text.splitlines()[1:] == sorted(("0" * 64, digest)) and keys_in(text) == {"0" * 64, digest}
    assert "-f keys.list" in config() and digest not in config(), "a key that changes needs no reload"


def test_same_workspace_same_bytes_other_workspace_other_digest() -> None:
    one = render(SETTINGS, ROLES, "/s")
    assert render(SETTINGS, ROLES, "/s") == one
    others = [
        render(SETTINGS.model_copy(update={"hold_max_s": 8}), ROLES, "/s"),
        render(SETTINGS, (PRIMARY,), "/s"),
    ]
    assert len({one[1], *(digest for _, digest in others)}) == 3
    assert f"  description {one[1]}\n" in one[0]


@pytest.mark.parametrize("name", ["hold", "none"])
def test_reserved_slot_names(name: str) -> None:
    with pytest.raises(BadFile, match=name):
        config(roles=(with_slot(name),))


def test_reserved_alias_and_no_keys() -> None:
    with pytest.raises(BadFile, match="__gen"):
        config(roles=(PRIMARY.model_copy(update={"aliases": ("__gen",)}),))
    with pytest.raises(BadFile, match=r"gateway\.client_keys"):
        keys_text(())


def test_map_text_and_back() -> None:
    table = AliasMap({"llm.primary": "a", "embed": "hold"}, 12)
    assert table.text().splitlines()[1:] == ["embed hold", "llm.primary a", "__gen 12"]
    assert parse_map(table.text()) == table
    assert parse_map(AliasMap().text()) == AliasMap()


def test_every_cut_of_a_map_is_seen() -> None:
    text = AliasMap({"llm.primary": "a", "embed": "hold"}, 12).text()
    for length in range(len(text)):
        with pytest.raises(ValueError, match=r"cut|line \d+"):
            parse_map(text[:length])


@pytest.mark.parametrize("text", ["__gen x\n", "a b c\n__gen 1\n", "__gen 1\nllm a\n", "\x00\x00"])
def test_damaged_maps(text: str) -> None:
    with pytest.raises(ValueError, match=r"line|cut|generation"):
        parse_map(text)


def test_map_without_a_generation_is_generation_zero() -> None:
    assert alias_map([("llm", "a")]) == AliasMap({"llm": "a"}, 0)


def test_merge_keeps_adds_and_drops() -> None:
    old = AliasMap({"llm.primary": "b", "gone": "zzz", "embed": "hold"}, 4)
    assert merged(old, ROLES) == AliasMap({"llm.primary": "b", "llm.fast": "none", "embed": "hold"}, 4)
    with pytest.raises(Refused, match=r"llm\.primary cannot point at b: role primary has"):
        merged(old, (PRIMARY.model_copy(update={"slots": EMBED.slots}),))


# what HAProxy tells


def test_loads_by_backend() -> None:
    head = "# pxname,svname,qcur,qmax,scur,smax,slim,stot\n"
    text = f"{head}fe,FRONTEND,,,9,9,9,9\na,engine,0,0,2,2,,5\na,BACKEND,1,1,3,3,1,6\n"
    assert {k: (v.in_flight, v.queued, v.total) for k, v in loads(text).items()} == {"a": (3, 1, 6)}
    with pytest.raises(ValueError, match="Can't find"):
        loads("Can't find the target PID matching the prefix '@!1'")


def test_sessions() -> None:
    line = "{}: proto=tcpv4 src=127.0.0.1:5 fe=anvil:clients be={} srv=engine ts=00 epoch=0 age={} calls=3\n"
    text = line.format("0x1a", "a", "4s") + line.format("0x2b", "a", "1h2m") + line.format("0x3c", "b", "0s")
    assert oldest(text) == {"a": 3720.0, "b": 0.0}
    assert (requests(text, "a"), requests(text, "b"), requests(text, "zz")) == (["0x1a", "0x2b"], ["0x3c"], [])


def test_processes_and_failed_reloads() -> None:
    text = (
        "#<PID> <type> <reloads> <uptime> <version>\n1 master 2 [failed: 1] 0d00h00m10s 2.6\n# workers\n"
        "3 worker 1 0d 2.6\n# old workers\n2 worker 2 0d 2.6\n# programs\n"
    )
    found = processes(text)
    assert (found.reloads, found.failed, found.workers) == (2, 1, (3, 2))
    with pytest.raises(ValueError, match="process list"):
        processes("")


def test_addresses_ages_and_sums() -> None:
    head = "1\n# be_id be_name srv_id srv_name srv_addr srv_fqdn srv_port\n"
    assert addresses(head + "3 a 1 engine 127.0.0.1 - 9131\n") == {"a": "127.0.0.1:9131"}
    assert addresses("") == {}
    assert (seconds("1d1h1m1s"), seconds("0s")) == (90061.0, 0.0)
    assert (total([1, 2]), total([1, None]), total([])) == (3, None, 0)
