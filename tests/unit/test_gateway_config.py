"""The gateway's files as text."""

from __future__ import annotations

import hashlib

import pytest

from anvil_tui.adapters.haproxy_socket import Session, addresses, loads, processes, seconds, sessions, total
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


# As HAProxy 2.6 tells it, the lines between left out.
SESSION = """{address}: [30/Nov/2026:00:25:23.837048] id={number} proto={proto} source={source}
  flags=0x84a, conn_retries=0, conn_exp=<NEVER> conn_et=0x000 srv_conn=0x55f370b63ff0, pend_pos=(nil) waiting=0
  frontend=anvil:clients (id=2 mode=http), listener=? (id=1) addr=127.0.0.1:40449
  backend={backend} (id=3 mode=http) addr=127.0.0.1:47700
  server={server} (id=1) addr=127.0.0.1:46799
  task=0x55f372563420 (state=0x00 nice=0 calls=3 rate=0 exp=1s tmask=0x1 age={age})
  txn=0x55f372563600 flags=0x0 meth=3 status=200 req.st=MSG_DONE rsp.st=MSG_DATA req.f=0x0d rsp.f=0x0e
  req=0x55f372563050 (f=0x48c48080 an=0x8000 pipe=0 tofwd=0 total=201)
      an_exp=<NEVER> rex=<NEVER> wex=<NEVER>
      buf=0x55f372563058 data=(nil) o=0 p=0 i=0 size=0
  res=0x55f3725630b0 (f=0x88040000 an=0x4000000 pipe=0 tofwd=-1 total=240)
      an_exp=<NEVER> rex=3h59m wex=<NEVER>
      buf=0x55f3725630b8 data=(nil) o=30 p=0 i=10 size=0
"""
PLAIN = {
    "address": "0x1a", "number": 18, "proto": "tcpv4", "source": "127.0.0.1:41262", "backend": "a",
    "server": "engine", "age": "4s",
}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({}, Session("0x1a", 18, "a", True, 4.0, 200)),
        ({"proto": "tcpv6", "source": "::1:50222", "age": "1h2m"}, Session("0x1a", 18, "a", True, 3720.0, 200)),
        ({"server": "<NONE>", "age": "?"}, Session("0x1a", 18, "a", False, 0.0, 200)),
        ({"backend": "<NONE>", "server": "<NONE>"}, Session("0x1a", 18, "<NONE>", False, 4.0, 200)),
        ({"proto": "unix_stream", "source": "unix:1"}, Session("0x1a", 18, "a", True, 4.0, 200)),
    ],
    ids=["plain", "IPv6", "queued", "held or idle", "socket"],
)
def test_sessions(told: dict[str, object], found: Session) -> None:
    text = SESSION.format(**(PLAIN | told))
    assert sessions(text) == (found,)
    assert sessions(SESSION.format(**(PLAIN | {"address": "0x2b"})) + text)[1:] == (found,)


@pytest.mark.parametrize("lost", ["backend=", "server=", "task=", "res=", " i=", "id="])
def test_a_session_that_is_not_understood_is_not_left_out(lost: str) -> None:
    """Neither is it read together with the lines of the next one."""
    whole = SESSION.format(**PLAIN)
    with pytest.raises(ValueError, match="not a session: '0x2b"):
        sessions(whole + SESSION.format(**(PLAIN | {"address": "0x2b"})).replace(lost, "other=") + whole)
    with pytest.raises(ValueError, match="not a session list"):
        sessions("Can't find the target PID matching the prefix '@!1'")


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
