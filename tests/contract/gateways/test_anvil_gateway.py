"""The anvil-serving gateway: what it can tell that HAProxy cannot, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import httpx
import pytest

from anvil_tui.cli.main import main
from anvil_tui.core.box import Expected
from anvil_tui.core.errors import BadFile, EffectFailed, Refused, Unreachable
from tests.support.fronts import ADMIN, CLIENT, Front, front
from tests.support.wait import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def alone(keys: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with front(tmp_path_factory.mktemp("anvil"), "anvil-serving", drain_timeout_s=1) as running:
        yield running


@pytest.fixture
def gateway(alone: Front) -> Front:
    for slot, up in alone.ups.items():
        up.go.clear()
        up.served = [f"model-{slot}", "llm.primary"]
    alone.home()
    return alone


def admin(gateway: Front, path: str, body: object = None, key: str = ADMIN) -> httpx.Response:
    url = f"http://{gateway.workspace.gateway.bind}{path}"
    method = "GET" if body is None else "POST"
    return httpx.request(method, url, json=body, headers={"Authorization": f"Bearer {key}"}, trust_env=False)


def behind_our_back(gateway: Front, action: str, tier: str) -> None:
    body = {"action": action, "tier_id": tier, "confirm": True, "dry_run": False, "reason": "somebody"}
    assert admin(gateway, "/v1/admin/transition", body).json()["applied"]


def test_an_alias_admits_only_what_the_gateway_itself_finds(gateway: Front) -> None:
    """O-80: the expected name has to stand on the model card; that an alias stands there is not enough."""
    gateway.point(llm_primary="hold")
    gateway.ups["a"].served = ["somebody-else", "llm.primary"]
    with pytest.raises(
        EffectFailed, match="identity_mismatch; it expects model-a, the engine there says somebody"
    ):
        gateway.point(llm_primary="a")
    seen = gateway.seen()
    assert (seen.aliases["llm.primary"], seen.file_equal) == ("hold", False)
    gateway.ups["a"].served = ["model-a"]
    gateway.point(llm_primary="a")
    assert (gateway.seen().file_equal, gateway.ask("llm.primary").by) == (True, "a")


def test_an_engine_that_turned_into_another_gets_no_request(gateway: Front) -> None:
    """O-79, O-80: whoever sits at the port afterwards is found out by its model list, not by what it echoes."""
    assert gateway.ask("llm.primary").by == "a"
    gateway.ups["a"].served = ["somebody-else"]
    told = wait_until(
        lambda: t if (t := gateway.ask("llm.primary")).status == 503 else None, "the gateway looked again"
    )
    origin = gateway.reader.served_by(told.answer)
    assert (origin.slot, "answered itself: unavailable" in origin.why) == ("", True)
    backend = gateway.seen().backend("a")
    assert backend and (backend.expects, backend.observed) == (Expected("model-a", 4096), "somebody-else")


def test_somebody_elses_quiesce_is_seen_and_put_right(gateway: Front) -> None:
    behind_our_back(gateway, "quiesce", "llm.primary@a")
    seen = gateway.seen()
    assert (seen.aliases["llm.primary"], seen.file_equal) == ("hold", False)
    assert gateway.control.install()
    assert (gateway.seen().file_equal, gateway.ask("llm.primary").by) == (True, "a")


def test_somebody_elses_readmit_is_seen_and_put_right(gateway: Front) -> None:
    gateway.point(llm_primary="hold")
    behind_our_back(gateway, "readmit", "llm.primary@a")
    assert (gateway.seen().aliases["llm.primary"], gateway.seen().file_equal) == ("a", False)
    assert gateway.control.install()
    assert (gateway.seen().aliases["llm.primary"], gateway.ask("llm.primary").status) == ("hold", 503)


def test_a_drain_that_is_not_over_in_time_cuts_nothing_and_moves_nothing(gateway: Front) -> None:
    before = gateway.seen()
    with gateway.stream("other") as stream:
        assert stream.begun.wait(20)
        with pytest.raises(
            EffectFailed, match=r"drain_timeout: other@c has requests in flight after 1 s.*nothing was"
        ):
            gateway.point(llm_primary="b")
        after = gateway.seen()
        assert (after.aliases, after.pid, after.file_equal) == (before.aliases, before.pid, True)
        assert gateway.ask("llm.primary").by == "a"
        gateway.ups["c"].go.set()
        assert stream.end().by == "c"


def test_what_a_slot_serves_is_told_by_a_restart_that_keeps_what_is_on_hold(gateway: Front) -> None:
    gateway.point(llm_primary="hold", other="none")
    gateway.ups["b"].served = ["another", "llm.primary"]
    assert gateway.ask("@b").status in (200, 503)
    gateway.control.expect("b", Expected("another", 2048), gateway.generation)
    seen = gateway.seen()
    backend = seen.backend("b")
    assert backend and (backend.expects, backend.observed) == (Expected("another", 2048), "another")
    assert (seen.aliases, seen.file_equal) == ({"llm.primary": "hold", "llm.fast": "a", "other": "none"}, True)
    assert gateway.ask("@b").by == "b"
    gateway.control.expect("b", Expected("another", 2048), gateway.generation)
    assert gateway.seen().pid == seen.pid


def test_a_client_can_neither_quiesce_nor_read_decisions(gateway: Front) -> None:
    body = {"action": "quiesce", "tier_id": "llm.primary@a", "confirm": True, "dry_run": False}
    assert admin(gateway, "/v1/admin/transition", body, key=CLIENT).status_code == 401
    assert admin(gateway, "/v1/decisions", key=CLIENT).status_code == 401
    assert gateway.ask("llm.primary").by == "a"


def test_a_wrong_admin_token_names_endpoint_and_credential(gateway: Front) -> None:
    with (
        mock.patch.dict(os.environ, {"ADMIN_KEY": "another-admin-key"}),
        pytest.raises(Unreachable, match=r"/v1/admin/transition: it refuses .*admin_key \(env:ADMIN_KEY\)") as why,
    ):
        gateway.seen()
    assert "another-admin-key" not in str(why.value)


def test_no_secret_stands_in_a_file_or_an_argument(gateway: Front) -> None:
    files = [p.read_bytes() for p in gateway.folder.rglob("*") if p.is_file()]
    assert len(files) >= 5
    pid = gateway.seen().pid
    said = [Path(f"/proc/{pid}/cmdline").read_bytes(), (gateway.directory / "gateway.log").read_bytes()]
    assert not [b for b in (*files, *said) if CLIENT.encode() in b or ADMIN.encode() in b]
    environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
    named = {line.partition("=")[0] for line in environment} - {"PATH", "LANG", "LC_ALL", "TZ"}
    assert named - {""} == {
        "ANVIL_SERVING_HOME",
        "HOME",
        "PYTHONUNBUFFERED",
        "ANVIL_MAX_CONCURRENCY",
        "ANVIL_ROUTER_TOKEN",
        "ANVIL_CLIENT_1",
    }


def test_the_configuration_says_every_tier_and_refuses_a_damaged_file(gateway: Front) -> None:
    made = tomllib.loads((gateway.folder / "router.toml").read_text())
    assert made["router"]["model_routes"] == {
        "llm.primary": "llm.primary@a", "llm.fast": "llm.fast@a", "@a": "@a", "@b": "@b",
        "other": "other@c", "@c": "@c", "@d": "@d",
    }  # fmt: skip
    ports = {t["id"]: t["base_url"] for t in made["router"]["tiers"]}
    assert ports["llm.primary@a"] == ports["@a"] == f"http://127.0.0.1:{gateway.ups['a'].port}/v1"
    routes = gateway.folder / "routes.json"
    whole = routes.read_text()
    try:
        routes.write_text(whole[:40])
        assert not gateway.seen().file_equal
        with pytest.raises(BadFile, match=r"routes\.json: damaged"):
            gateway.point(llm_primary="hold")
        assert gateway.ask("llm.primary").by == "a"
    finally:
        routes.write_text(whole)


def listens(gateway: Front) -> bool:
    try:
        return admin(gateway, "/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def cli(gateway: Front, *args: str) -> int:
    return main(["--workspace", str(gateway.directory), *args])


def test_an_install_that_interrupts_says_so_first_and_takes_a_new_alias(
    gateway: Front, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = gateway.directory / "anvil.toml"
    before, pid = toml.read_text(), gateway.seen().pid
    try:
        toml.write_text(before.replace('"llm.fast"]', '"llm.fast", "llm.new"]'))
        assert (cli(gateway, "gateway", "install"), gateway.seen().pid) == (3, pid)
        assert re.search(
            r"restarts, for every alias \(llm.fast, llm.primary, other\): 503 while 0 req", capsys.readouterr().err
        )
        done = cli(gateway, "gateway", "install", "--yes")
        assert (done, capsys.readouterr().out) == (0, "installed and read back\n")
        assert "llm.new" in (gateway.folder / "routes.json").read_text()
        assert (gateway.ask("llm.new").status, gateway.ask("llm.primary").by) == (503, "a")
    finally:
        toml.write_text(before)
        gateway.control.install()


def test_a_configuration_that_the_gateway_refuses_changes_nothing(gateway: Front) -> None:
    before = gateway.seen()
    with pytest.raises(
        Refused, match=r"anvil-serving refuses the new router\.toml; the old one stays.*context_limit must be"
    ):
        gateway.control.expect("b", Expected("model-b", -1), gateway.generation)
    assert gateway.seen() == before


def test_without_an_admin_route_it_says_what_is_missing(alone: Front, capsys: pytest.CaptureFixture[str]) -> None:
    """Restarted behind our back by somebody else: without kept admissions, then without an admin route."""
    config = alone.folder / "router.toml"
    alone.home()
    alone.point(llm_primary="hold")
    assert (cli(alone, "gateway", "run"), "runs already" in capsys.readouterr().err) == (3, True)
    with alone.stream("other") as stream:
        assert stream.begun.wait(20) and alone.process
        alone.process.terminate()
        wait_until(lambda: not listens(alone), "it answers no new connection")
        alone.ups["c"].go.set()
        assert stream.end().by == "c"
    alone.stop()
    host, _, port = alone.workspace.gateway.bind.rpartition(":")
    whole = config.read_text()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(alone.folder),
        "ANVIL_ROUTER_TOKEN": ADMIN,
        "ANVIL_CLIENT_1": CLIENT,
    }
    program = str(Path(sys.executable).parent / "anvil-serving")

    def run(text: str) -> subprocess.Popen[bytes]:
        config.write_text(text)
        argv = [program, "router", "run", "--config", str(config), "--host", host, "--port", port]
        log = (alone.directory / "stranger.log").open("ab")
        return subprocess.Popen(argv, stdout=log, stderr=log, env=env, cwd="/")

    forgetful = re.sub(r"(?m)^admission_state_path.*\n", "", whole)
    for text in (forgetful, re.sub(r"(?m)^(auth_env = \"ANVIL_ROUTER|authorization_).*\n", "", whole)):
        stranger = run(text)
        try:
            wait_until(lambda: listens(alone), "the stranger's gateway answers")
            if text is forgetful:
                seen = alone.seen()
                assert (seen.aliases["llm.primary"], seen.file_equal, seen.pid) == ("a", False, None)
                with pytest.raises(Unreachable, match="no `anvil-tui gateway run` of this workspace answers"):
                    alone.point(llm_primary="b")
            else:
                with pytest.raises(Unreachable, match=r"HTTP 404: its configuration has no \[server\]\.auth_env"):
                    alone.seen()
        finally:
            stranger.send_signal(signal.SIGTERM)
            stranger.wait(30)
    alone.start()
    assert (alone.seen().aliases["llm.primary"], alone.seen().file_equal) == ("hold", True)
    assert json.loads((alone.folder / "admission.json").read_text())["tiers"] == {
        "llm.primary@a": {"state": "quiesced", "reason": "hold"}
    }
