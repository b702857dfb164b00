"""Who holds each GPU: the kind gpu-identity (O-07, O-08, O-09) as it meets running containers and processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anvil_tui.adapters.docker_shape import container as shaped
from anvil_tui.core.box import MIB, Container, Gpu, GpuGrant, GpuProcess, GpuSnapshot
from anvil_tui.core.journal import OperationView
from anvil_tui.core.loads import CardLoad, MeasuredLoad
from anvil_tui.core.ownership import (
    Sight,
    free_before,
    given,
    mode,
    owner_text,
    owners,
    pid_words,
    unreleased,
    unreturned_mib,
)
from anvil_tui.core.reading import Reading
from anvil_tui.core.serves import derive
from anvil_tui.core.standing import Owner
from anvil_tui.core.status import status_json, status_lines
from anvil_tui.core.world import OPERATION_LABEL, BoxRecord, Lease, RecipeFile, RoleRecord, ServeRecord, World
from tests.support.membox import recipe, workspace

A = "GPU-aaaa0000-0000-0000-0000-000000000001"
B = "GPU-bbbb0000-0000-0000-0000-000000000002"
MIG = "MIG-11112222-3333-4444-5555-666677778888"
OURS, STRANGER, GONE = "0" * 64, "f" * 64, "9" * 64
IDLE = 97_000


def card(index: int, uuid: str, free: int = IDLE, *processes: GpuProcess, **more: Any) -> Gpu:
    row = Gpu(
        index, uuid, total_bytes=97_887 * MIB, free_bytes=free * MIB, used_bytes=(IDLE - free) * MIB,
        processes=processes,
    )  # fmt: skip
    return replace(row, **more)


def record(id_: str = OURS, name: str = "a", exclusive: bool = False) -> BoxRecord:
    serve = ServeRecord(id_, name, "d", "i", "primary", "primary-a", 9131, name, "OP", exclusive=exclusive)
    return BoxRecord(1, {id_: serve})


def sees(*gpus: Gpu, containers: tuple[Container, ...] | None = (), **more: Any) -> Sight:
    reading = Reading.known(GpuSnapshot("580", gpus or (card(0, A), card(1, B))), 1.0, "nvml")
    return Sight(reading, containers, **more)


def made(id_: str = STRANGER, status: str = "running", env: tuple[str, ...] = (), **host: Any) -> Container:
    """As the engine's inspect shows it."""
    labels = {OPERATION_LABEL: "OP"} if id_ == OURS else {}
    return shaped({
        "Id": id_, "Name": f"/name-{id_[0]}",
        "State": {"Status": status, "Pid": 700 if status == "running" else 0},
        "Config": {"Env": list(env), "Labels": labels}, "HostConfig": host,
    })  # fmt: skip


def test_no_listed_process_is_no_proof_of_no_memory() -> None:
    """In a container of its own, and under some drivers, the list of processes is empty whoever holds the card."""
    given = made(DeviceRequests=asked(DeviceIDs=[A]))
    for gpu, mib in (
        (card(0, A, IDLE), 0), (card(0, A, 5_000), None), (card(0, A, 5_000, used_bytes=None), None),
        (card(0, A, 5_000, GpuProcess(9, "x", 92_000 * MIB)), 0),
    ):  # fmt: skip
        (seen,) = (o for o in owners(sees(gpu, containers=(given,), pids={9: ""})) if o.kind == "foreign")
        assert seen.mib == mib


@pytest.mark.parametrize("holds", [False, True])
def test_a_monitor_owns_nothing_until_a_process_of_its_holds_a_gpu(holds: bool) -> None:
    """An exporter is given every GPU and holds none; the name is the operator's word, the process is not."""
    exporter = made(DeviceRequests=asked(Count=-1))
    seen = sees(
        card(0, A, IDLE, *([GpuProcess(77, "python3", 900 * MIB)] if holds else [])), card(1, B, IDLE),
        containers=(exporter,), pids={77: exporter.id}, monitors=frozenset({exporter.name}),
    )  # fmt: skip
    assert [(o.gpu, o.name, o.mib) for o in owners(seen)] == ([(A, exporter.name, 900)] if holds else [])
    assert mode(seen, owners(seen)).startswith("split" if holds else "free")
    assert {o.gpu for o in owners(replace(seen, monitors=frozenset()))} == {A, B}


def asked(**fields: Any) -> list[dict[str, Any]]:
    return [{"Driver": "", "Count": 0, "DeviceIDs": None, "Capabilities": [["gpu"]], **fields}]


def env(value: str) -> dict[str, Any]:
    """The image's own variable, under the NVIDIA runtime."""
    return {"env": (f"NVIDIA_VISIBLE_DEVICES={value}",), "Runtime": "nvidia"}


NONE: dict[str, bool] = {}
ALL, ONE, EITHER = {A: True, B: True}, {A: True}, {A: False, B: False}
WAYS: dict[str, tuple[dict[str, Any], dict[str, bool], str]] = {
    "count all": ({"DeviceRequests": asked(Count=-1)}, ALL, "device-request"),
    "compute alone, as a Compose file may say it": (
        {"DeviceRequests": asked(Count=-1, Capabilities=[["compute", "utility"]])}, ALL, "device-request"),
    "every device of the host": ({"Devices": [{"PathOnHost": "/dev"}]}, EITHER, "device-node /dev"),
    "count of one": ({"DeviceRequests": asked(Count=1)}, EITHER, "device-request count=1"),
    "count of every GPU here": ({"DeviceRequests": asked(Count=2)}, ALL, "device-request count=2"),
    "uuid": ({"DeviceRequests": asked(DeviceIDs=[A])}, ONE, "device-request"),
    "uuid in capitals": ({"DeviceRequests": asked(DeviceIDs=[A.upper()])}, ONE, "device-request"),
    "index": ({"DeviceRequests": asked(DeviceIDs=["0"])}, EITHER, "device-request 0"),
    "short prefix": ({"DeviceRequests": asked(DeviceIDs=["GPU-aa"])}, ONE, "device-request GPU-aa"),
    "prefix of none": ({"DeviceRequests": asked(DeviceIDs=["GPU-77"])}, EITHER, "device-request GPU-77"),
    "prefix of both": ({"DeviceRequests": asked(DeviceIDs=["GPU-"])}, EITHER, "device-request GPU-"),
    "both indices": ({"DeviceRequests": asked(DeviceIDs=["0", "1"])}, ALL, "device-request 0, 1"),
    "uuid and index": ({"DeviceRequests": asked(DeviceIDs=[A, "0"])}, {A: True, B: False},
                       f"device-request {A}, 0"),
    "MIG slice": ({"DeviceRequests": asked(DeviceIDs=[MIG])}, EITHER, "device-request"),
    "two MIG slices": ({"DeviceRequests": asked(DeviceIDs=[MIG, MIG[:-1] + "9"])}, EITHER, "device-request"),
    "MIG slice of a GPU": ({"DeviceRequests": asked(DeviceIDs=[f"MIG-{A}/1/0"])}, ONE,
                           f"device-request MIG-{A}/1/0"),
    "image says all": (env("all"), ALL, "environment"),
    "environment uuid": (env(A), ONE, "environment"),
    "environment index": (env("1"), EITHER, "environment 1"),
    "environment void": (env("void"), NONE, ""),
    "environment none": (env("none"), NONE, ""),
    "image says all, another runtime": ({**env("all"), "Runtime": "runc"}, NONE, ""),
    "CDI all": ({"DeviceRequests": asked(Driver="cdi", DeviceIDs=["nvidia.com/gpu=all"])}, ALL, "cdi"),
    "CDI uuid": ({"DeviceRequests": asked(Driver="cdi", DeviceIDs=[f"nvidia.com/gpu={A}"])}, ONE, "cdi"),
    "CDI index": ({"DeviceRequests": asked(Driver="cdi", DeviceIDs=["nvidia.com/gpu=0"])}, EITHER,
                  "cdi nvidia.com/gpu=0"),
    "CDI prefix": ({"DeviceRequests": asked(Driver="cdi", DeviceIDs=["nvidia.com/gpu=GPU-aa"])}, ONE,
                   "cdi nvidia.com/gpu=GPU-aa"),
    "device node": ({"Devices": [{"PathOnHost": "/dev/nvidia0"}]}, EITHER, "device-node /dev/nvidia0"),
    "every device node": ({"Devices": [{"PathOnHost": f"/dev/nvidia{n}"} for n in (0, 1)]}, ALL,
                          "device-node /dev/nvidia0, /dev/nvidia1"),
    "privileged": ({"Privileged": True, "DeviceRequests": asked(DeviceIDs=[A])}, ALL, "privileged"),
    "nothing": ({}, NONE, ""),
}  # fmt: skip


@pytest.mark.parametrize("whose", [OURS, STRANGER])
@pytest.mark.parametrize("status", ["running", "exited"])
@pytest.mark.parametrize("way", WAYS)
def test_five_ways_to_a_gpu_running_and_exited_ours_and_foreign(way: str, status: str, whose: str) -> None:
    """O-07, O-08, O-09: an index is never taken for a UUID, a prefix only when it is of one GPU alone."""
    host, want, how = WAYS[way]
    found = owners(sees(containers=(made(whose, status, **host),)))
    kind = "ours" if whose == OURS else "foreign"
    if status == "exited":
        want = {}
    assert {o.gpu: o.certain for o in found} == want
    assert {(o.kind, o.id, o.how) for o in found} == ({(kind, whose, how)} if want else set())


@pytest.mark.parametrize("name", [MIG, MIG.lower(), f"nvidia.com/mig={MIG}", f"nvidia.com/gpu={MIG}"])
def test_a_slice_that_the_driver_lists_is_of_its_gpu(name: str) -> None:
    """O-09: two slices of one GPU are one GPU; one that no GPU lists may be of any."""
    request = asked(DeviceIDs=[name, MIG[:-1] + "9"], **({"Driver": "cdi"} if "=" in name else {}))
    other = MIG[:-1] + "9"
    request[0]["DeviceIDs"][1] = name.replace(MIG, other).replace(MIG.lower(), other)
    container = made(DeviceRequests=request)
    cut = card(1, B, mig=(MIG, other))
    assert {o.gpu: o.certain for o in owners(sees(card(0, A), cut, containers=(container,)))} == {B: True}
    whole = owners(sees(card(0, A), card(1, B), containers=(container,)))
    assert {o.gpu: o.certain for o in whole} == EITHER


@pytest.mark.parametrize("status", ["running", "paused", "restarting", "removing", "unknown"])
def test_whatever_is_not_known_to_have_ended_holds(status: str) -> None:
    assert len(owners(sees(containers=(made(status=status, Privileged=True),)))) == 2


@pytest.mark.parametrize("status", ["created", "exited", "dead"])
def test_what_never_ran_or_ended_holds_nothing(status: str) -> None:
    assert owners(sees(containers=(made(status=status, Privileged=True),))) == ()


def test_a_container_whose_inspect_failed_may_hold_every_gpu() -> None:
    row = Container(STRANGER, "x", "unknown", "", "", gpus=GpuGrant(effective="unknown"))
    assert {o.gpu: o.certain for o in owners(sees(containers=(row,)))} == EITHER


def test_its_processes_show_which_gpu_a_count_or_an_index_meant() -> None:
    """A container with one GPU whose worker NVML names on B has B, and the MiB that NVML attributes to it."""
    seen = sees(
        card(0, A), card(1, B, 76_000, GpuProcess(41, "python", 21_000 * MIB)),
        containers=(made(DeviceRequests=asked(Count=1)),), pids={41: STRANGER},
    )  # fmt: skip
    assert owners(seen) == (Owner(B, "foreign", STRANGER, "name-f", "device-request count=1", 21_000),)
    two = replace(seen, containers=(made(DeviceRequests=asked(DeviceIDs=["0", "1"])),))
    assert {o.gpu: o.mib for o in owners(two)} == {A: 0, B: 21_000}


def test_a_process_of_a_container_is_the_containers_and_a_bare_one_is_itself() -> None:
    seen = sees(
        card(0, A, 60_000, *(GpuProcess(p, "w", 1_000 * MIB) for p in (700, 41, 42, 43, 44, 45))), card(1, B),
        containers=(made(DeviceRequests=asked(DeviceIDs=[A])), made("e" * 64, "exited")),
        pids={41: STRANGER, 42: "", 43: "e" * 64, 44: "c" * 64},
    )  # fmt: skip
    container, *bare = owners(seen)
    assert (container.id, container.mib) == (STRANGER, None), "pid 45 may be its own: its memory is not known"
    assert [(o.id, o.how, o.certain) for o in bare] == [
        ("42", "in no container", True),
        ("43", f"left by container {'e' * 12}", True),
        ("44", f"in container {'c' * 12}, which the engine does not list", True),
        ("45", "in which container is n/a", False),
    ]
    known = replace(seen, pids={**seen.pids, 45: STRANGER})
    assert owners(known)[0].mib == 3_000, "its first process (700) by the engine, 41 and 45 by their groups"
    assert pid_words(known)[45] == f"in container name-f ({'f' * 12})"


def test_a_process_that_nobody_else_can_explain_is_certain_whosever_it_is() -> None:
    (only,) = owners(sees(card(0, A, 60_000, GpuProcess(9))))
    assert (only.kind, only.certain, owner_text(only)) == (
        "process", True, "pid 9 name n/a n/a MiB in which container is n/a",
    )  # fmt: skip


def test_without_a_process_list_memory_is_attributed_to_nobody() -> None:
    """Syllo/nvtop#318: WSL2 lists no process; that is not "no process"."""
    seen = sees(
        card(0, A, 60_000, processes=None), card(1, B, processes=None),
        containers=(made(DeviceRequests=asked(DeviceIDs=[A])),),
    )  # fmt: skip
    (only,) = owners(seen)
    assert (only.gpu, only.mib) == (A, None)
    assert mode(seen, owners(seen)).endswith("processes outside containers cannot be seen here")


def test_while_the_engine_is_silent_a_process_of_a_recorded_serve_is_still_ours() -> None:
    seen = sees(card(0, A, 60_000, GpuProcess(41)), containers=None, record=record(), pids={41: OURS})
    assert [(o.kind, o.name) for o in owners(seen)] == [("ours", "a")]
    assert mode(seen, owners(seen)) == "unresolved: containers cannot be read"


def test_grants_are_told_also_while_no_gpu_can_be_read() -> None:
    blind = Sight(
        Reading.error("code 18", 1.0, "nvml"),
        (made(DeviceRequests=asked(DeviceIDs=[A])), made(OURS, Privileged=True)),
    )
    assert [(o.gpu, o.kind) for o in owners(blind)] == [(A, "foreign"), ("", "ours")]
    assert mode(blind, ()) == "unresolved: GPUs cannot be read: code 18"


# O-22 and O-10: what is gone, and what did not come back

WORKERS = tuple(GpuProcess(pid, "VLLM::Worker", 11_020 * MIB) for pid in (41207, 41208))


def vanished(free: int, before: int | None, *processes: GpuProcess, **more: Any) -> Sight:
    known = {} if before is None else {"d": {A: before}}
    return sees(
        card(0, A, free, *processes, **more), card(1, B), record=record(GONE), gone={GONE: (A,)}, before=known
    )


@pytest.mark.parametrize(
    ("free", "before", "missing"),
    [
        (74_900, 97_000, 22_100),
        (96_744, 97_000, None),
        (96_743, 97_000, 257),
        (74_900, None, 22_100),
        (IDLE, None, None),
    ],
)
def test_a_vanished_serve_owns_its_gpu_until_free_memory_is_back(
    free: int, before: int | None, missing: int | None
) -> None:
    """O-22, gpustack/gpustack#6279: against the MiB before its load, 256 of them tolerance; else an idle card."""
    found = [(o.id, o.gpu, o.mib) for o in owners(vanished(free, before))]
    assert found == ([] if missing is None else [(GONE, A, missing)])


def test_memory_that_listed_processes_hold_is_theirs() -> None:
    """O-10: of 22,100 MiB that are missing two processes have 22,040; the rest is within what always moves."""
    seen = replace(vanished(74_900, 97_000, *WORKERS), pids={41207: "", 41208: ""})
    assert [(o.kind, o.id) for o in owners(seen)] == [("process", "41207"), ("process", "41208")]
    one = replace(vanished(74_900, 97_000, *WORKERS[:1]), pids={41207: ""})
    assert [(o.kind, o.mib) for o in owners(one)] == [("process", 11_020), ("ours", 22_100)]


def test_memory_that_somebody_else_holds_is_not_a_vanished_serves() -> None:
    seen = replace(vanished(74_900, 97_000), containers=(made(DeviceRequests=asked(DeviceIDs=[A])),))
    assert [o.kind for o in owners(seen)] == ["foreign"]


@pytest.mark.parametrize(
    ("row", "missing"),
    [
        (card(0, A, used_bytes=615 * MIB, used_includes_reserved=True), 0),
        (card(0, A, used_bytes=615 * MIB), 615),
        (card(0, A, used_bytes=None), 0),
        (card(0, A, used_bytes=None, processes=None), None),
    ],
)
def test_what_an_idle_card_uses_is_nobodys(row: Gpu, missing: int | None) -> None:
    """An idle H200 shows 615 MiB where the driver's own share is counted in, 0 where it is not."""
    assert unreturned_mib(row, None) == missing


def left(seen: Sight, need: int = 0) -> list[str]:
    return unreleased(seen, OURS, [A], need, "d")


def test_memory_that_workers_kept_after_the_container_is_named_with_them() -> None:
    """O-10, vllm-project/vllm-omni#2317: 22,100 MiB are missing, 22,040 of them attributed to two pids."""
    seen = sees(card(0, A, 74_900, *WORKERS), card(1, B), pids={41207: "", 41208: ""}, before={"d": {A: 97_000}})
    held, missing = left(seen)
    for pid in (41207, 41208):
        assert f"pid {pid} VLLM::Worker 11020 MiB in no container" in held
    assert "22100 MiB not released" in missing and "22040 MiB attributed" in missing


@pytest.mark.parametrize(
    ("row", "before", "words"),
    [
        (card(0, A, IDLE), {}, ""),
        (card(0, A, 96_800), {A: 97_000}, ""),
        (card(0, A, 96_700), {A: 97_000}, "300 MiB not released"),
        (card(0, A, 90_000, processes=None), {A: 97_000}, "no process list here"),
        (card(0, A, IDLE, processes=None), {}, ""),
        (card(0, A, IDLE, state="lost", reason="Xid 79"), {}, "is lost: Xid 79"),
        (card(0, A, free_bytes=None), {A: 97_000}, "not provable"),
    ],
)
def test_release_is_a_proof_or_a_sentence(row: Gpu, before: dict[str, int], words: str) -> None:
    """O-10: where the load was measured the memory before it is the mark, else the recipe's own need."""
    found = left(sees(row, card(1, B), before={"d": before} if before else {}), need=84_906)
    assert (found == []) if not words else (words in found[0])


def test_beside_another_serve_only_processes_tell() -> None:
    other = made("b" * 64, DeviceRequests=asked(DeviceIDs=[A]))
    beside = sees(card(0, A, 50_000, GpuProcess(700, "x", 40_000 * MIB)), card(1, B), containers=(other,),
                  before={"d": {A: 97_000}})  # fmt: skip
    assert left(beside) == []
    dirty = replace(
        beside, pids={41207: OURS},
        gpus=Reading.known(GpuSnapshot("1", (card(0, A, 50_000, *WORKERS[:1]),)), 1.0, "nvml"),
    )  # fmt: skip
    assert "pid 41207 VLLM::Worker 11,020 MiB" in left(dirty)[0]
    assert left(replace(beside, gpus=Reading.error("code 18", 1.0, "nvml"))) == ["GPUs cannot be read: code 18"]


def test_a_stranger_that_was_there_before_the_stop_is_not_what_a_serve_left() -> None:
    """Somebody's own process goes on; of a worker that outlived its container the release still waits."""
    mine, theirs = WORKERS[0], GpuProcess(9, "jupyter", 2_000 * MIB)
    seen = sees(card(0, A, 90_000, theirs), card(1, B), pids={9: "", 41207: ""}, before={"d": {A: 97_000}})
    assert unreleased(seen, OURS, [A], 0, "d", others=[9]) == []
    assert "pid 9 jupyter" in unreleased(seen, OURS, [A], 0, "d")[0]
    both = replace(seen, gpus=Reading.known(GpuSnapshot("1", (card(0, A, 80_000, theirs, mine),)), 1.0, "nvml"))
    (why,) = unreleased(both, OURS, [A], 0, "d", others=[9])
    assert "pid 41207" in why and "pid 9" not in why


def test_the_newest_load_tells_what_was_free_before_it() -> None:
    loads = [
        MeasuredLoad(f"OP{n}", "t", "a", "d", "s", 1, 1, cards=(CardLoad(A, before=mib * MIB), CardLoad(B)))
        for n, mib in enumerate((90_000, 97_000))
    ]
    assert free_before(loads) == {"d": {A: 97_000}}


# the box's mode in words


def test_modes() -> None:
    a, b = (Owner(u, "ours", i, n, "device-request", 5) for u, i, n in ((A, OURS, "a"), (B, "b" * 64, "b")))
    seen = sees()
    assert mode(seen, ()) == "free: nobody holds a GPU"
    assert mode(seen, (a, b)) == "split by UUID: GPU 0 a; GPU 1 b"
    alone = sees(record=record(exclusive=True))
    assert mode(alone, (a,)) == "exclusive: a"
    assert mode(alone, (a, b)) == "unresolved: a is exclusive, and there is b"
    assert mode(seen, (a, replace(b, certain=False))).startswith(f"unresolved: GPU 1 ({B[:12]}): b (bbbbbbbbbbbb)")


def test_a_grant_of_uuids_that_are_not_here_is_kept() -> None:
    """A card that fell off the bus has no row with its UUID any more."""
    assert given(GpuGrant((B,), "uuids", (B,)), (A,)) == {B: True}


# what a person is told


def told(*gpus: Gpu, **more: Any) -> World:
    """A box whose recipe `x` needs GPU A; `a` is on record."""
    needs = recipe("x", gpus={"select": (A,), "need_free_mib": 1_000})
    return derive(World(
        workspace(), False, gpus=Reading.known(GpuSnapshot("580", gpus), 1.0, "nvml"),
        recipes=(RecipeFile("x", needs),), **{"containers": Reading.known((), 1.0, "docker"), **more},
    ))  # fmt: skip


def said(world: World) -> list[str]:
    return [p for p in world.problems if p.startswith(("GPU", "memory", "foreign"))]


def test_who_should_not_be_there_is_a_problem_on_a_gpu_that_a_recipe_needs() -> None:
    squat = GpuProcess(9, "jupyter", 2_000 * MIB)
    assert said(told(card(0, A, 95_000, squat), card(1, B), pids={9: ""})) == [
        f"GPU 0 ({A[:12]}): pid 9 jupyter 2,000 MiB in no container; x needs this GPU"
    ]
    assert said(told(card(0, A), card(1, B, 95_000, squat), pids={9: ""})) == [], "nobody here needs that one"
    container = made(DeviceRequests=asked(DeviceIDs=[A]))
    assert said(told(card(0, A), containers=Reading.known((container,), 1.0, "docker"))) == [
        f"foreign container name-f ({'f' * 12}): was given {A} (device-request)"
    ]


def test_two_owners_of_which_one_is_exclusive_are_a_problem() -> None:
    both = tuple(made(i, DeviceRequests=asked(DeviceIDs=[A])) for i in (OURS, STRANGER))
    world = told(card(0, A), record=record(exclusive=True), containers=Reading.known(both, 1.0, "docker"))
    assert f"GPU 0 ({A[:12]}): a is exclusive, and it is also held by container name-f" in "\n".join(said(world))


def test_memory_of_nobody_is_a_problem_unless_processes_cannot_be_seen_or_an_operation_works() -> None:
    """Syllo/nvtop#318: on WSL2 the desktop holds memory, and no process is ever listed."""
    rows = (card(0, A, 90_000), card(1, B, 80_000))
    assert said(told(*rows)) == [
        f"memory in use that nobody owns: GPU 0 ({A[:12]}) 7,000 MiB, GPU 1 ({B[:12]}) 17,000 MiB"
    ]
    assert said(told(*(replace(r, processes=None) for r in rows))) == []
    busy = OperationView("OP", "load", "x", started_at="2026-09-02T10:00:00Z")
    lease = Lease("OP", 1, "u", "2026-09-02T10:00:00Z")
    assert said(told(*rows, operations=(busy,), lease=lease)) == []


def test_a_vanished_serve_and_an_evicted_role_are_problems() -> None:
    needs = recipe("a", gpus={"select": (A,)})
    serves = record(GONE).serves[GONE]
    kept = replace(serves, recipe_digest=needs.digest())
    box = BoxRecord(1, {GONE: kept}, {"primary": RoleRecord("primary", "", (GONE,), evicted_for="big")})
    world = told(card(0, A, 74_900), record=box, stored={needs.digest(): needs})
    assert any("its container is gone, its memory is not back, 22,100 MiB, not certain" in p for p in said(world))
    assert any("its serve was evicted for big; `rollback --role primary`" in p for p in world.problems)


def test_status_tells_mode_owners_and_the_container_of_each_process() -> None:
    container = made(DeviceRequests=asked(DeviceIDs=[A]))
    world = told(
        card(0, A, 60_000, GpuProcess(700, "python", 37_000 * MIB)),
        containers=Reading.known((container,), 1.0, "docker"),
    )
    lines = [line.strip() for line in status_lines(world)]
    assert "owned: split by UUID: GPU 0 name-f" in lines
    assert f"owner container name-f ({'f' * 12}), device-request, 37,000 MiB" in lines
    assert f"pid 700 python 37000 MiB in container name-f ({'f' * 12})" in lines
    assert [(o["gpu"], o["mib"], o["certain"]) for o in status_json(world)["owners"]] == [(A, 37_000, True)]
