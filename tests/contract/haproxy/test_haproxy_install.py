"""Counts, cutting, and installing a configuration, on real HAProxy."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from anvil_tui.adapters.haproxy import find_binary, install_files, run_argv
from anvil_tui.adapters.haproxy_socket import socket_dir
from anvil_tui.core.errors import BadFile, EffectFailed, Refused, Unreachable
from tests.support.gateway import BINARIES, KEY, Rig, in_flight, point_in_a_child, rig, with_port
from tests.support.wait import wait_until

pytestmark = pytest.mark.real

CUT = r"IncompleteRead|0 bytes|Connection"


# counts, drain and sever


def test_counts_while_streams_run(gateway: Rig) -> None:
    """O-75 at the gateway: running streams count, an idle keep-alive client does not, zero is a real zero."""
    gateway.point(llm_primary="a", embed="c")
    idle = gateway.client()
    assert idle.post("llm.primary").whole
    wait_until(lambda: in_flight(gateway, "a") == 0, "an idle client is not in flight")
    streams = [gateway.streaming() for _ in range(3)]
    found = gateway.reader.snapshot()
    assert [(b.name, b.in_flight, b.queued) for b in found.backends] == [
        ("a", 3, 0), ("b", 0, 0), ("c", 0, 0), ("d", 0, 0),
    ]  # fmt: skip
    assert found.backends[0].oldest_s is not None and found.backends[1].oldest_s is None
    assert [b.address for b in found.backends] == [f"127.0.0.1:{s.port}" for r in gateway.roles for s in r.slots]
    gateway.point(llm_primary="hold")
    assert in_flight(gateway, "a") == 3
    gateway.engines["a"].go.set()
    assert all(s.read().whole for s in streams)
    wait_until(lambda: in_flight(gateway, "a") == 0, "drained")


def test_count_that_cannot_be_read_is_unknown(gateway: Rig) -> None:
    """O-76: without the master nobody knows what old workers hold, and unknown is not zero."""
    (socket_dir(gateway.folder) / "master.sock").unlink()
    found = gateway.reader.snapshot()
    assert [b.in_flight for b in found.backends] == [None] * 4 and found.held is None
    with pytest.raises(Unreachable, match=r"master\.sock"):
        gateway.control.sever("a")


def test_requests_in_a_worker_left_by_a_reload_are_counted_and_cut(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    stream = gateway.streaming()
    before = gateway.reader.snapshot()
    gateway.settings = gateway.settings.model_copy(update={"hold_max_s": 31})
    assert gateway.control.install() is True
    second = gateway.streaming()
    after = gateway.reader.snapshot()
    assert after.pid != before.pid
    assert (after.backends[0].in_flight, after.held) == (2, 0)
    assert {r.id.partition("-")[0] for r in gateway.control.sever("a")} == {str(before.pid), str(after.pid)}
    for cut in (stream, second):
        with pytest.raises(Exception, match=CUT):
            cut.read()
    wait_until(lambda: in_flight(gateway, "a") == 0, "nothing is left in either worker")


def test_sever_cuts_just_those(gateway: Rig) -> None:
    gateway.point(llm_primary="a", llm_fast="b")
    cut = [gateway.streaming("llm.primary") for _ in range(2)]
    kept = gateway.streaming("llm.fast")
    assert [r.backend for r in gateway.control.sever("a")] == ["a", "a"]
    for client in cut:
        with pytest.raises(Exception, match=CUT):
            client.read()
    gateway.engines["b"].go.set()
    assert kept.read().whole
    assert gateway.control.sever("a") == ()
    gateway.engines["a"].go.set()
    assert gateway.client().post("llm.primary").by == {"a"}
    with pytest.raises(Refused, match="no slot"):
        gateway.control.sever("zzz")


def test_client_that_leaves_frees_the_engine(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    stream = gateway.streaming()
    assert stream.link.sock is not None
    stream.link.sock.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: in_flight(gateway, "a") == 0, "the gateway let go", 5)


# install


def test_install_changes_nothing_twice(gateway: Rig) -> None:
    before = gateway.reader.snapshot()
    assert gateway.control.install() is False
    assert gateway.reader.snapshot().pid == before.pid


def test_install_keeps_aliases_adds_new_as_none_and_drops_strangers(gateway: Rig) -> None:
    gateway.point(llm_primary="a", embed="c")
    primary, embed = gateway.roles
    gateway.roles = (primary.model_copy(update={"aliases": ("llm.primary", "llm.new")}), embed)
    assert gateway.control.install() is True
    found = gateway.reader.snapshot()
    assert found.aliases == {"llm.primary": "a", "llm.new": "none", "embed": "c"} and found.file_equal
    assert gateway.client().post("llm.fast").status == 404
    assert len(list(gateway.folder.glob("haproxy.cfg.*"))) == 1


def test_install_under_streams_cuts_none(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    stream = gateway.streaming()
    gateway.settings = gateway.settings.model_copy(update={"hold_max_s": 31})
    gateway.control.install()
    gateway.engines["a"].go.set()
    assert stream.read().whole


def test_install_moves_a_slot_and_reads_its_address_back(gateway: Rig) -> None:
    """The class of haproxy/haproxy#1412: after a reload the address in force is the one configured."""
    primary, embed = gateway.roles
    taken = embed.slots[1]
    gateway.roles = (with_port(primary, 0, taken.port), with_port(embed, 1, 1))
    gateway.control.install()
    gateway.point(llm_primary="a")
    assert gateway.client().post("llm.primary").by == {"d"}
    assert gateway.reader.snapshot().backends[0].address == f"127.0.0.1:{taken.port}"


def test_bad_configuration_is_refused_and_the_old_one_serves(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    files = {p.name: p.read_bytes() for p in gateway.folder.iterdir() if p.is_file()}
    before = gateway.reader.snapshot().pid
    gateway.settings = gateway.settings.model_copy(update={"bind": "127.0.0.1:99999"})
    with pytest.raises(Refused, match=r"(?s)HAProxy refuses.*haproxy\.cfg.*99999"):
        gateway.control.install()
    gateway.settings = gateway.settings.model_copy(update={"bind": f"127.0.0.1:{port_of(files)}"})
    assert {p.name: p.read_bytes() for p in gateway.folder.iterdir() if p.is_file()} == files
    assert gateway.reader.snapshot().pid == before
    assert gateway.client().post("llm.primary").by == {"a"}


def port_of(files: dict[str, bytes]) -> str:
    text = files["haproxy.cfg"].decode()
    return text.partition("  bind 127.0.0.1:")[2].partition("\n")[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.9"])
def test_address_that_cannot_be_had_is_refused_before_any_reload(gateway: Rig, host: str) -> None:
    """In use, or of no interface here. A reload that fails on it would turn clients away for two seconds."""
    gateway.point(llm_primary="a")
    old, good, before = (
        (gateway.folder / "haproxy.cfg").read_bytes(),
        gateway.settings,
        gateway.reader.snapshot().pid,
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gateway.settings = good.model_copy(update={"bind": f"{host}:{taken.getsockname()[1]}"})
        with pytest.raises(
            Refused, match=rf"gateway\.bind {host}:\d+ of anvil\.toml cannot be had: .*nothing was"
        ):
            gateway.control.install()
    gateway.settings = good
    assert (gateway.folder / "haproxy.cfg").read_bytes() == old and gateway.reader.snapshot().pid == before
    assert gateway.client().post("llm.primary").by == {"a"}


def test_reload_that_fails_puts_the_last_configuration_back(gateway: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker does not bind: a port that was taken since shows only when the new worker starts."""
    monkeypatch.setattr("anvil_tui.adapters.haproxy.check_address", lambda *_: None)
    gateway.point(llm_primary="a")
    old, good = (gateway.folder / "haproxy.cfg").read_bytes(), gateway.settings
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gateway.settings = good.model_copy(update={"bind": f"127.0.0.1:{taken.getsockname()[1]}"})
        with pytest.raises(EffectFailed, match="did not reload"):
            gateway.control.install()
    gateway.settings = good
    assert (gateway.folder / "haproxy.cfg").read_bytes() == old
    assert gateway.client().post("llm.primary").by == {"a"}
    found = gateway.reader.snapshot()
    assert found.file_equal and found.backends[0].in_flight == 0
    gateway.settings = good.model_copy(update={"hold_max_s": 29})
    assert gateway.control.install() is True


def test_install_is_refused_while_requests_are_held(gateway: Rig) -> None:
    gateway.point(llm_primary="hold")
    gateway.settings = gateway.settings.model_copy(update={"hold_max_s": 31})
    with pytest.raises(Refused, match=r"llm\.primary is on hold"):
        gateway.control.install()
    gateway.settings = gateway.settings.model_copy(update={"hold_max_s": 30})
    assert gateway.control.install() is False


def test_install_ends_a_difference_of_file_and_process(gateway: Rig) -> None:
    gateway.point(llm_primary="a", llm_fast="a")
    assert point_in_a_child(gateway, "kill").returncode == -signal.SIGKILL
    assert gateway.control.install() is True
    found = gateway.reader.snapshot()
    assert found.file_equal and found.aliases["llm.primary"] == "b"


def test_slot_in_use_cannot_be_dropped(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    primary, embed = gateway.roles
    spare = primary.slots[0].model_copy(update={"name": "e"})
    gateway.roles = (primary.model_copy(update={"slots": (spare, primary.slots[1])}), embed)
    with pytest.raises(Refused, match=r"llm\.primary cannot point at a"):
        gateway.control.install()


def test_second_gateway_on_the_port_does_not_start(gateway: Rig) -> None:
    """Two that share a port would answer from two maps."""
    gateway.point(llm_primary="a")
    with pytest.raises(Refused, match="runs already"):
        run_argv(gateway.directory, gateway.settings)
    other = gateway.directory / "other"
    install_files(other, gateway.settings, gateway.roles, (KEY,))
    argv = run_argv(other, gateway.settings)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    shutil.rmtree(socket_dir(other / gateway.settings.dir))
    assert done.returncode != 0 and "bind" in done.stderr
    assert gateway.client().post("llm.primary").by == {"a"}


def test_path_too_long_for_a_socket(binary: str | None, tmp_path: Path) -> None:
    deep = tmp_path / ("deep folder " * 12)
    deep.mkdir()
    with rig(deep, binary) as gateway:
        place = socket_dir(gateway.folder)
        gateway.point(llm_primary="a")
        assert gateway.client().post("llm.primary").whole
        assert stat.S_IMODE(place.stat().st_mode) == 0o700 and place.parent == Path("/tmp")
        place.chmod(0o755)
        with pytest.raises(BadFile, match="0700"):
            install_files(gateway.directory, gateway.settings, gateway.roles, (KEY,))


def test_no_program_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with rig(tmp_path, BINARIES["index"]) as gateway:
        nowhere = gateway.settings.model_copy(update={"binary": str(tmp_path / "nothing")})
        with pytest.raises(Refused, match=r"gateway\.binary"):
            find_binary(nowhere)
        assert os.access(find_binary(nowhere.model_copy(update={"binary": ""})), os.X_OK)


# client keys


def test_a_key_comes_and_goes_without_a_reload_and_is_there_after_a_restart(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    pid = gateway.reader.snapshot().pid
    assert gateway.client("second").post("llm.primary").status == 401
    for _ in range(2):
        gateway.control.accept_key("second")
    assert gateway.client("second").post("llm.primary").whole and gateway.client().post("llm.primary").whole
    gateway.stop()
    gateway.start()
    assert gateway.client("second").post("llm.primary").whole and gateway.client().post("llm.primary").whole
    assert gateway.reader.snapshot().pid != pid
    before = gateway.reader.snapshot().pid
    for _ in range(2):
        gateway.control.expel_key(KEY)
    refused = gateway.client().post("llm.primary")
    assert refused.status == 401 and refused.error["code"] == "invalid_api_key"
    assert gateway.client("second").post("llm.primary").whole
    with pytest.raises(BadFile, match="names no client key"):
        gateway.control.expel_key("second")
    assert gateway.control.install() is True and gateway.reader.snapshot().pid == before
    assert (
        gateway.client("second").post("llm.primary").status == 401 and gateway.client().post("llm.primary").whole
    )


def test_files_of_a_rotation_that_has_not_ended_keep_both_keys(gateway: Rig) -> None:
    gateway.control.accept_key("second")
    arguments = (gateway.directory, gateway.settings, gateway.roles, (KEY,))
    assert install_files(*arguments, keep_keys=True) is False
    assert install_files(*arguments) is True
    assert install_files(*arguments) is False


def test_a_running_gateway_without_a_list_of_keys_says_what_to_do(gateway: Rig) -> None:
    config = gateway.folder / "haproxy.cfg"
    config.write_text(config.read_text().replace("-f keys.list", f"-m str {'0' * 64}"))
    gateway.stop()
    gateway.start()
    with pytest.raises(EffectFailed, match="no list of keys: run `anvil-tui gateway install`"):
        gateway.control.accept_key("second")
