"""Pointing aliases at slots: whole, durable, and safe against being killed half-way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from anvil_tui.adapters.haproxy import HaproxyControl, install_files
from anvil_tui.core.errors import BadFile, EffectFailed, Refused, Unreachable
from tests.support.gateway import KEY, Answer, Rig, point_in_a_child, with_port

pytestmark = pytest.mark.real


def test_flips_under_load_lose_and_mix_nothing(gateway: Rig) -> None:
    gateway.point(llm_primary="a", llm_fast="a")
    stop, answers = threading.Event(), list[tuple[str, Answer]]()

    def clients() -> None:
        client, at = gateway.client(), 0
        while not stop.is_set():
            at += 1
            alias = ("llm.primary", "llm.fast")[at % 2]
            answers.append((alias, client.post(alias)))

    threads = [threading.Thread(target=clients) for _ in range(4)]
    for thread in threads:
        thread.start()
    for at in range(300):
        slot = "ab"[at % 2]
        gateway.point(llm_primary=slot, llm_fast=slot)
    stop.set()
    for thread in threads:
        thread.join()
    bad = [a for _, a in answers if not (a.whole and a.by == {a.headers["x-anvil-backend"]})]
    assert not bad
    assert len(answers) > 300 and {next(iter(a.by)) for _, a in answers} == {"a", "b"}
    assert gateway.reader.snapshot().file_equal


def test_keep_alive_client_follows_the_map(gateway: Rig) -> None:
    client, served = gateway.client(), []
    for slot in "abab":
        gateway.point(llm_primary=slot)
        served.append(client.post("llm.primary").by)
    assert served == [{"a"}, {"b"}, {"a"}, {"b"}]
    assert client.link.sock is not None


def test_point_is_read_back_and_touches_only_its_aliases(gateway: Rig) -> None:
    gateway.point(embed="c")
    gateway.generation = 7
    gateway.point(llm_primary="a", llm_fast="hold")
    found = gateway.reader.snapshot()
    assert found.aliases == {"llm.primary": "a", "llm.fast": "hold", "embed": "c"}
    assert (found.generation, found.file_equal) == (7, True)
    assert gateway.map_file.read_text().splitlines()[1:] == [
        "embed c", "llm.fast hold", "llm.primary a", "__gen 7",
    ]  # fmt: skip


def test_point_again_changes_nothing_and_still_passes_the_checkpoint(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    before, passed = gateway.map_file.stat().st_ino, list[str]()
    gateway.control.point({"llm.primary": "a"}, 1, passed.append)
    assert gateway.map_file.stat().st_ino == before
    assert passed == ["gateway:between"]


def test_stale_generation_is_refused(gateway: Rig) -> None:
    gateway.generation = 5
    gateway.point(llm_primary="a")
    with pytest.raises(Refused, match="generation 5, this operation is 4"):
        gateway.control.point({"llm.primary": "b"}, 4, lambda at: None)
    found = gateway.reader.snapshot()
    assert (found.aliases["llm.primary"], found.generation, found.file_equal) == ("a", 5, True)


@pytest.mark.parametrize(
    "targets", [{"nope": "a"}, {"llm.primary": "zzz"}, {"llm.primary": "c"}, {"llm.primary": "b", "embed": "x"}]
)
def test_unknown_alias_or_target_is_refused_whole(gateway: Rig, targets: dict[str, str]) -> None:
    gateway.point(llm_primary="a")
    with pytest.raises(Refused):
        gateway.control.point(targets, 1, lambda at: None)
    assert gateway.reader.snapshot().aliases["llm.primary"] == "a"


def test_slot_the_running_gateway_has_elsewhere_is_refused(gateway: Rig) -> None:
    primary, *others = gateway.roles
    moved = with_port(primary, 1, others[0].slots[0].port)
    control = HaproxyControl(gateway.directory, gateway.settings, (moved, *others), lambda: (KEY,))
    with pytest.raises(Refused, match="gateway install"):
        control.point({"llm.primary": "b"}, 1, lambda at: None)


def test_killed_between_file_and_process_then_pointed_again(gateway: Rig) -> None:
    gateway.point(llm_primary="a", llm_fast="a")
    assert point_in_a_child(gateway, "kill").returncode == -signal.SIGKILL
    torn = gateway.reader.snapshot()
    assert (torn.file_equal, torn.aliases["llm.primary"], torn.generation) == (False, "a", 1)
    assert "llm.primary b\n" in gateway.map_file.read_text()
    assert gateway.client().post("llm.primary").by == {"a"}
    gateway.control.point({"llm.primary": "b", "llm.fast": "b"}, 2, lambda at: None)
    whole = gateway.reader.snapshot()
    assert (whole.file_equal, whole.aliases["llm.primary"], whole.generation) == (True, "b", 2)


def test_killed_between_then_restarted_comes_up_on_the_file(gateway: Rig) -> None:
    gateway.point(llm_primary="a", llm_fast="a")
    assert point_in_a_child(gateway, "kill").returncode == -signal.SIGKILL
    gateway.stop(signal.SIGKILL)
    gateway.start()
    found = gateway.reader.snapshot()
    assert (found.file_equal, found.aliases["llm.fast"], found.generation) == (True, "b", 2)
    gateway.control.point({"llm.primary": "b", "llm.fast": "b"}, 2, lambda at: None)


def test_gateway_restarted_between_the_two_halves(gateway: Rig) -> None:
    gateway.point(llm_primary="a")

    again = threading.Thread(target=gateway.start)

    def restart(at: str) -> None:
        gateway.stop(signal.SIGKILL)
        again.start()

    gateway.control.point({"llm.primary": "b"}, 2, restart)
    again.join()
    assert gateway.reader.snapshot().file_equal
    assert gateway.client().post("llm.primary").by == {"b"}


def test_failed_point_leads_back_to_the_incumbent(gateway: Rig) -> None:
    """O-78, the routing side: after a failed switch the alias is put back and proven, not left between."""
    gateway.point(llm_primary="a", llm_fast="a")

    def fails(at: str) -> None:
        raise EffectFailed("the operation ends here")

    with pytest.raises(EffectFailed, match="ends here"):
        gateway.control.point({"llm.primary": "b", "llm.fast": "b"}, 2, fails)
    gateway.control.point({"llm.primary": "a", "llm.fast": "a"}, 2, lambda at: None)
    found = gateway.reader.snapshot()
    assert (found.file_equal, found.aliases["llm.primary"], found.aliases["llm.fast"]) == (True, "a", "a")
    assert gateway.client().post("llm.fast").by == {"a"}


def test_restart_comes_up_on_the_file(gateway: Rig) -> None:
    gateway.point(llm_primary="b", embed="hold")
    before = gateway.reader.snapshot()
    gateway.stop()
    gateway.start()
    after = gateway.reader.snapshot()
    assert (after.aliases, after.generation, after.file_equal) == (before.aliases, before.generation, True)
    assert after.pid != before.pid


def test_disk_full_leaves_file_and_process_as_they_were(gateway: Rig) -> None:
    """O-88 for the alias map."""
    gateway.point(llm_primary="a", llm_fast="a")
    before = gateway.map_file.read_bytes()
    done = point_in_a_child(gateway, "full")
    assert done.returncode == 1 and "not saved" in done.stderr
    assert gateway.map_file.read_bytes() == before
    assert [p.name for p in gateway.folder.iterdir() if p.name.endswith(".new")] == []
    assert gateway.reader.snapshot().file_equal


@pytest.mark.parametrize("keep", [0, 40, -1])
def test_damaged_map_is_set_aside_and_the_process_is_the_copy(gateway: Rig, keep: int) -> None:
    """O-89 for the alias map: never read as a short or empty map."""
    gateway.point(llm_primary="a", embed="c")
    cut = gateway.map_file.read_bytes()[:keep]
    gateway.map_file.write_bytes(cut)
    assert gateway.reader.snapshot().file_equal is False
    gateway.point(llm_fast="b")
    found = gateway.reader.snapshot()
    assert found.aliases == {"llm.primary": "a", "llm.fast": "b", "embed": "c"} and found.file_equal
    [aside] = gateway.folder.glob("alias.map.corrupt-*")
    assert aside.read_bytes() == cut


def test_damaged_map_without_a_process_is_an_error(gateway: Rig) -> None:
    gateway.stop()
    gateway.map_file.write_text("llm.primary a\nllm.fa")
    acts: list[Callable[[], bool]] = [
        lambda: install_files(gateway.directory, gateway.settings, gateway.roles, (KEY,)),
        gateway.control.install,
    ]
    for act in acts:
        with pytest.raises(BadFile, match=r"alias\.map: damaged"):
            act()
    assert gateway.map_file.read_text() == "llm.primary a\nllm.fa"


def test_not_running_is_unreachable_and_nothing_is_written(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    gateway.stop()
    before = gateway.map_file.read_bytes()
    for act in (
        gateway.reader.snapshot,
        lambda: gateway.point(llm_primary="b"),
        lambda: gateway.control.sever("a"),
    ):
        with pytest.raises(Unreachable, match=r"cli\.sock.*anvil-tui gateway run"):
            act()
    assert gateway.map_file.read_bytes() == before
