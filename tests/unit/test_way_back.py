"""A way back as the box shows it: files, ports and gates, to the plan, to a waiver, to the journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.errors import NotFound, Unreachable
from anvil_tui.core.gates import Suite, SuiteFile
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.shape import read, write
from anvil_tui.core.standing import CheckName
from anvil_tui.core.waivers import CheckWaiver
from anvil_tui.ports.surroundings import FileLook, HashLook
from anvil_tui.service.operation import prepare
from tests.support.membox import SMALL, recipe
from tests.support.membox import World as Box

MOUNTED: dict[str, Any] = {
    "launch": {"argv": ("--port", "{port}", "--alias", "{served_name}"), "start_deadline_s": 5,
               "mounts": ({"source": "/srv/models", "target": "/models"},
                          {"source": "/srv/chat.jinja", "target": "/chat.jinja"})},
}  # fmt: skip
SHA = "ab" * 32


def weighed(**model: Any) -> dict[str, Any]:
    return {**MOUNTED, "model": {"repo": "r", "path": "/models/m.gguf", **model}}


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """`a` serves from a mounted file of 1,000 bytes; `b` may follow it."""
    return serving(tmp_path, recipe("a", **weighed(sha256=SHA)))


def serving(tmp: Path, a: Recipe) -> Box:
    world = Box(tmp, a, recipe("b"))
    world.files.looks = {
        "/srv/models": FileLook("folder", 1000, 1), "/srv/models/m.gguf": FileLook("file", 1000, 1),
        "/srv/chat.jinja": FileLook("file", 10, 1),
    }  # fmt: skip
    world.files.hashes = {"/srv/models/m.gguf": HashLook(SHA, 1000, 1000), "/srv/chat.jinja": HashLook("cd" * 32)}
    assert world.do("promote", recipe="a") == "done"
    assert not world.plan("promote", recipe="b").refusals
    return world


def states(world: Box) -> dict[str, str]:
    found: dict[str, str] = world.plan("promote", recipe="b").facts["way_back"]["checks"]
    return found


def refusals(world: Box) -> tuple[str, ...]:
    return world.plan("promote", recipe="b").refusals


def of_file(size: int, **more: Any) -> Callable[[Box], None]:
    def change(world: Box) -> None:
        world.files.looks["/srv/models/m.gguf"] = FileLook("file", size, 1, **more)

    return change


def look(path: str, seen: FileLook) -> Callable[[Box], None]:
    return lambda world: world.files.looks.update({path: seen})


def hashed(path: str, sha256: str, done: int = 0) -> Callable[[Box], None]:
    return lambda world: world.files.hashes.update({path: HashLook(sha256, done, 1000)})


def gate_down(world: Box) -> None:
    world.unrunnable_gates["a"] = {"smoke": "no media"}


BROKEN: list[tuple[CheckName, str, str, Callable[[Box], None]]] = [
    ("weights", "missing", "999 bytes, 1,000 are recorded", of_file(999)),
    ("weights", "missing", "it is empty", of_file(0)),
    ("weights", "missing", "half a download", of_file(1000, flaws=("x.incomplete is half a download",))),
    ("weights", "missing", "does not exist", look("/srv/models/m.gguf", FileLook("absent"))),
    ("weights", "missing", "the recipe pins abab", hashed("/srv/models/m.gguf", "ef" * 32)),
    ("weights", "missing", "does not exist", look("/srv/models/m.gguf", FileLook("unreadable", why="denied"))),
    ("configuration", "missing", "/srv/chat.jinja, mounted at", look("/srv/chat.jinja", FileLook("absent"))),
    ("configuration", "missing", "not the file that was recorded", hashed("/srv/chat.jinja", "ee" * 32)),
    ("gates", "missing", "gate smoke: no media", gate_down),
]  # fmt: skip


@pytest.mark.parametrize(("name", "state", "words", "damage"), BROKEN, ids=[f"{b[0]}-{b[2]}" for b in BROKEN])
def test_a_promotion_refuses_naming_exactly_the_check_that_fails(
    box: Box, name: str, state: str, words: str, damage: Callable[[Box], None]
) -> None:
    damage(box)
    assert len(refusals(box)) == 1 and f"to a: {name}: " in refusals(box)[0] and words in refusals(box)[0]
    assert {n for n, s in states(box).items() if s != "ok"} == {name} and states(box)[name] == state


def test_weights_of_which_the_hash_is_not_read_yet_are_told_by_their_size(box: Box) -> None:
    hashed("/srv/models/m.gguf", "", done=420)(box)
    assert not refusals(box) and states(box)["weights"] == "ok"


def test_a_hash_that_is_not_read_yet_is_all_there_is_without_a_size(tmp_path: Path) -> None:
    world = serving(tmp_path, recipe("a", **weighed(sha256=SHA)))
    reshape(world, lambda shape: write({n: v for n, v in read(shape).items() if not n.startswith("bytes:")}))
    assert states(world)["weights"] == "ok"
    hashed("/srv/models/m.gguf", "", done=420)(world)
    assert "hash not read yet, 42 % of 1,000 bytes" in refusals(world)[0] and states(world)["weights"] == "unknown"


def reshape(world: Box, change: Callable[[str], str]) -> None:
    """What an older version would have recorded."""
    was = world.box.store.read()
    serves = {k: replace(s, shape=change(s.shape)) for k, s in was.serves.items()}
    world.box.store.write(replace(was, serves=serves), was)


def test_a_folder_may_grow_and_never_shrink(tmp_path: Path) -> None:
    world = Box(tmp_path, recipe("a", **weighed(path="/models/snapshot", bytes=1000)), recipe("b"))
    folder = "/srv/models/snapshot"
    world.files.looks = {"/srv/models": FileLook("folder", 1000, 1), "/srv/chat.jinja": FileLook("file", 10, 1)}
    world.files.hashes = {"/srv/chat.jinja": HashLook("cd" * 32)}
    for size, state in ((1000, "ok"), (1001, "ok"), (999, "missing")):
        world.files.looks[folder] = FileLook("folder", size, 3)
        if size == 1000:
            assert world.do("promote", recipe="a") == "done"
        assert states(world)["weights"] == state


CACHE = "/srv/hf/hub/models--o--m/snapshots/abc"


@pytest.mark.parametrize("readable", [True, False])
def test_weights_without_a_path_of_their_own_and_hidden_ones_are_compared_too(
    tmp_path: Path, readable: bool
) -> None:
    """A snapshot of a mounted cache, by repository and revision; a file of another user, by the daemon."""
    mount = {"source": "/srv/hf", "target": "/cache/huggingface"}
    model = (
        {"repo": "o/m", "revision": "abc"} if readable else {"repo": "o/m", "path": f"{mount['target']}/m.gguf"}
    )
    launch = {**MOUNTED["launch"], "mounts": (mount,)}
    world = Box(tmp_path, recipe("a", launch=launch, model=model), recipe("b"))
    for size, state in ((1000, "ok"), (999, "missing")):
        whole = FileLook("folder", size, 3) if readable else FileLook("unreadable", why="permission denied")
        world.files.looks = {"/srv/hf": FileLook("folder", 1, 1), CACHE: whole, "/srv/hf/m.gguf": whole}
        world.docker.size_of = lambda container_id, path, size=size: size  # type: ignore[method-assign,misc]
        if state == "ok":
            assert world.do("promote", recipe="a") == "done"
        assert states(world)["weights"] == state


@pytest.mark.parametrize(
    ("size", "state", "words"), [(1000, "ok", ""), (999, "missing", "999 bytes"), (None, "unknown", "a folder")]
)
def test_what_this_user_may_not_look_at_the_daemon_tells_by_size(
    box: Box, size: int | None, state: str, words: str
) -> None:
    look("/srv/models/m.gguf", FileLook("unreadable", why="permission denied"))(box)
    box.docker.size_of = lambda container_id, path: size  # type: ignore[method-assign]
    assert states(box)["weights"] == state
    assert not words or words in refusals(box)[0]


def unreadable(world: Box) -> None:
    def sha256(path: str, budget_s: float, *, keep: bool) -> HashLook:
        raise Unreachable(path, "Permission denied")

    world.files.sha256 = sha256  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("seen", "by_daemon", "state"),
    [
        (FileLook("unreadable", why="permission denied"), ("cd" * 32, 10), "ok"),
        (FileLook("unreadable", why="permission denied"), ("ee" * 32, 10), "missing"),
        (FileLook("unreadable", why="permission denied"), ("", None), "missing"),
        (FileLook("unreadable", why="permission denied"), None, "missing"),
        (FileLook("silent", why="does not answer"), ("cd" * 32, 10), "unknown"),
        (FileLook("folder", 0, 0), ("cd" * 32, 10), "missing"),
    ],
)
def test_a_mounted_file_that_cannot_be_looked_at_is_never_taken_for_the_recorded_one(
    box: Box, seen: FileLook, by_daemon: tuple[str, int | None] | None, state: str
) -> None:
    """The daemon is asked instead, but not sent to a file system that hangs."""
    look("/srv/chat.jinja", seen)(box)
    unreadable(box)
    if by_daemon:
        box.docker.hashes["/chat.jinja"] = by_daemon[0]
        box.docker.size_of = lambda container_id, path: by_daemon[1]  # type: ignore[method-assign]
    assert states(box)["configuration"] == state


@pytest.mark.parametrize("seen", [FileLook("special"), FileLook("file", 10, 1)])
def test_a_mount_that_cannot_be_hashed_hinders_no_load(tmp_path: Path, seen: FileLook) -> None:
    """A socket, or a key that this user may not read: left out of what is recorded."""
    world = Box(tmp_path, recipe("a", **weighed()), recipe("b"))
    world.files.looks = {"/srv/models": FileLook("folder", 9, 1), "/srv/models/m.gguf": FileLook("file", 9, 1)}
    world.files.looks["/srv/chat.jinja"] = seen
    unreadable(world)
    assert world.do("promote", recipe="a") == "done"
    (serve,) = world.box.store.read().serves.values()
    assert "file:/chat.jinja" not in read(serve.shape) and states(world)["configuration"] == "ok"


@pytest.mark.parametrize(("pinned", "state"), [(SHA, "ok"), ("cd" * 32, "missing"), (None, "missing")])
def test_patched_files_are_hashed_inside_the_container(tmp_path: Path, pinned: str | None, state: str) -> None:
    patch = {"name": "template", "file": "/opt/t.jinja", "sha256": SHA}
    world = Box(tmp_path, recipe("a", patches=(patch,)), recipe("b"))
    world.docker.hashes = {"/opt/t.jinja": pinned} if pinned else {}
    assert world.do("promote", recipe="a") == "done"
    assert states(world)["configuration"] == state


def test_a_stranger_on_the_port_of_the_way_back_is_named_by_process(box: Box) -> None:
    assert box.do("promote", recipe="b") == "done"
    box.strangers[9131], box.pids[4711] = 4711, ""
    (said,) = box.plan("rollback").refusals
    assert (
        "no way back to a: port: port 9131 of primary-a is taken by process 4711 (nginx), which is in no" in said
    )
    box.pids[4711] = "c" * 64
    assert "of container cccccccccccc" in box.plan("rollback").refusals[0]


def test_a_rollback_in_an_emergency_is_not_refused_for_what_does_not_matter_to_it(tmp_path: Path) -> None:
    """No drill, no shape on record, an incumbent whose suite cannot run: warnings at most."""
    world = Box(tmp_path, recipe("a"), recipe("b"), drill_max_age_days=1)
    assert world.do("promote", recipe="a") == "done"
    (said,) = refusals(world)
    assert "to a: drill: never drilled" in said
    world.box.store.waive_check(CheckWaiver("2026-09-01", "a", "drill", "a new box"))
    assert world.do("promote", recipe="b") == "done"
    reshape(world, lambda shape: "")
    world.unrunnable_gates["b"] = {"smoke": "no media"}
    made = world.plan("rollback")
    assert not made.refusals and any(
        "container: container" in w and "without its conf" in w for w in made.warnings
    )
    assert world.do("rollback") == "done"
    kept = world.box.store.read().serve_in("primary")
    assert kept and kept.recipe_id == "a" and kept.shape


def no_image(world: Box) -> None:
    world.docker.image_id = lambda ref: None  # type: ignore[method-assign]


def port_unknown(world: Box) -> None:
    world.box = replace(world.box, listeners=None)


def other_policy(world: Box) -> None:
    (back,) = world.box.store.read().roles["primary"].rollback
    world.docker.all[back] = replace(world.docker.all[back], restart_policy="unless-stopped")


@pytest.mark.parametrize(("damage", "warned"), [(no_image, "image"), (port_unknown, "port"), (other_policy, "")])
def test_what_the_start_itself_proves_is_a_warning_of_a_rollback(
    box: Box, damage: Callable[[Box], None], warned: str
) -> None:
    assert box.do("promote", recipe="b") == "done"
    damage(box)
    made = box.plan("rollback")
    assert not made.refusals and [w for w in made.warnings if w.startswith(f"way back a: {warned}: ")] == (
        list(made.warnings) if warned else []
    )
    assert box.do("rollback") == "done" and box.serving() == "a"


def test_a_plan_is_not_moved_by_a_hash_that_was_read_on_meanwhile(tmp_path: Path) -> None:
    world = serving(tmp_path, recipe("a", **weighed(sha256=SHA)))
    assert world.do("promote", recipe="b") == "done"
    reshape(world, lambda shape: write({n: v for n, v in read(shape).items() if not n.startswith("bytes:")}))
    hashed("/srv/models/m.gguf", "", done=420)(world)
    world.last = prepare(world.box, world.plan("rollback"))
    hashed("/srv/models/m.gguf", SHA, done=1000)(world)
    assert world.operate("start") == "done" and world.serving() == "a"


def test_a_waived_check_may_say_something_else_by_the_time_it_runs(box: Box) -> None:
    reshape(box, lambda shape: write({n: v for n, v in read(shape).items() if not n.startswith("bytes:")}))
    box.box.store.waive_check(CheckWaiver("2026-09-01T10:00:00+00:00", "a", "weights", "read tomorrow"))
    plans = []
    for done in (420, 430):
        hashed("/srv/models/m.gguf", "", done=done)(box)
        plans.append(box.plan("promote", recipe="b"))
    assert plans[0].hash == plans[1].hash and plans[0].warnings != plans[1].warnings


def test_a_rollback_is_judged_by_another_suite_when_its_own_cannot_run(tmp_path: Path) -> None:
    """A fixture or a program of a gate is gone, or the file of the suite: the way back must not hang on it."""
    world = Box(tmp_path, recipe("a"), recipe("b"))
    assert [world.do("promote", recipe=name) for name in "ab"] == ["done"] * 2
    least = SuiteFile("least", SMALL.model_copy(update={"id": "least"}))
    small = SuiteFile("small", SMALL)
    unrunnable = world.unrunnable

    def only_small(suite: Suite, target: Any) -> dict[str, str]:
        return unrunnable(suite, target) | ({"smoke": "photo.png is not there"} if suite.id == "small" else {})

    world.unrunnable = only_small  # type: ignore[method-assign]
    world.box = replace(world.box, suites=lambda: (small, least))
    (said,) = world.plan("rollback").refusals
    assert said.endswith("photo.png is not there; `rollback --suite` judges by another one")
    world.box = replace(world.box, suites=lambda: (least,))
    with pytest.raises(NotFound, match=r"no usable suite 'small' .*have: least"):
        world.plan("rollback")
    assert world.do("rollback", suite="least") == "done" and world.serving() == "a"


def test_a_rollback_judged_by_a_lesser_suite_than_its_recipe_names_says_so(tmp_path: Path) -> None:
    """Promoted by a quick look, the return to it is judged by no more."""
    world = Box(tmp_path, recipe("a"), recipe("b"))
    suites = (SuiteFile("small", SMALL), SuiteFile("least", SMALL.model_copy(update={"id": "least"})))
    world.box = replace(world.box, suites=lambda: suites)
    assert world.do("promote", recipe="a", suite="least") == "done"
    assert world.do("promote", recipe="b") == "done"
    told = [w for w in world.plan("rollback").warnings if "suite" in w]
    assert len(told) == 1 and "judged by suite least" in told[0] and "--role primary --suite small" in told[0]
    assert not [w for w in world.plan("rollback", suite="least").warnings if "suite" in w]


def test_a_rung_whose_container_is_gone_is_taken_off_the_ladder(tmp_path: Path) -> None:
    """Removed behind the console: a rollback to the rung below it is two commands away, and no waiver is offered
    that would not help."""
    world = Box(tmp_path, recipe("a"), recipe("b"), recipe("c"))
    assert [world.do("promote", recipe=name) for name in "abc"] == ["done"] * 3
    gone, below = world.box.store.read().roles["primary"].rollback
    assert "is the way back of role primary: it is kept" in world.plan("unload", container_id=gone).refusals[0]
    world.docker.all.pop(gone)
    said = world.plan("rollback").refusals[-1]
    assert f"`unload {gone[:12]}` takes it off the ladder, and `rollback` returns to a ({below[:12]})" in said
    assert world.do("unload", container_id=gone) == "done"
    record = world.box.store.read()
    assert gone not in record.serves and record.roles["primary"].rollback == (below,)
    assert world.do("rollback") == "done" and world.serving() == "a"


def test_a_waiver_lets_it_go_on_with_a_warning_and_stands_in_the_journal(box: Box) -> None:
    of_file(999)(box)
    box.box.store.waive_check(CheckWaiver("2026-09-01T10:00:00+00:00", "a", "weights", "disk is being replaced"))
    made = box.plan("promote", recipe="b")
    told = "/models/m.gguf: 999 bytes, 1,000 are recorded; waived 2026-09-01: disk is being replaced"
    assert not made.refusals and f"way back a: weights: {told}" in made.warnings
    assert box.do("promote", recipe="b") == "done"
    begin = box.box.operations.journal(box.last).records()[0]
    checks = begin.data["facts"]["way_back"]["checks"]
    assert checks["weights"] == "waived 2026-09-01: disk is being replaced"
    others = ("image", "container", "configuration", "port", "gpus", "gates", "budgets")
    assert {n: s for n, s in checks.items() if n != "weights"} == dict.fromkeys(others, "ok")


def test_a_check_that_fails_between_plan_and_start_is_refused_under_the_lease(box: Box) -> None:
    box.last = prepare(box.box, box.plan("promote", recipe="b"))
    of_file(999)(box)
    assert box.operate("start") == "undone"
    end = box.box.operations.journal(box.last).records()[-1]
    assert "weights: /models/m.gguf: 999 bytes" in end.data["why"] and box.serving() == "a"


def test_an_old_record_is_unknown_until_a_qualification_records_its_shape(box: Box) -> None:
    reshape(box, lambda shape: "")
    assert "is not proven: container: " in refusals(box)[0] and states(box)["container"] == "unknown"
    (serve,) = box.box.store.read().serves
    assert box.do("qualify", container_id=serve) == "done"
    assert states(box)["container"] == "ok"


def test_reasoning_without_tokens_of_its_own_is_no_known_budget(tmp_path: Path) -> None:
    for thinking, tokens, state in (("low", 0, "unknown"), ("low", 512, "ok"), ("off", 0, "ok")):
        made = recipe("a", thinking=thinking, budgets={"visible_tokens": 512, "reasoning_tokens": tokens})
        folder = tmp_path / f"{thinking}{tokens}"
        folder.mkdir()
        world = Box(folder, made, recipe("b"))
        assert world.do("promote", recipe="a") == "done"
        assert states(world)["budgets"] == state
