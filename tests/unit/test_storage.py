"""Who refers to an image or a cached revision, and the operation that removes what nobody refers to."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.box import Container
from anvil_tui.core.errors import NotFound, Refused
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.removal import ground_of
from anvil_tui.core.storage import (
    Revision,
    StoredImage,
    image_holders,
    revision_holders,
    storage_json,
)
from anvil_tui.core.world import OPERATION_LABEL
from anvil_tui.service.planning import gather
from anvil_tui.service.storage import survey
from tests.support.membox import IMAGE, World, recipe

USED_ID, FREE_ID, TWICE_ID = ("sha256:" + c * 64 for c in "bcd")
FREE_PIN, TWICE = "reg/old@sha256:" + "1" * 64, ("one/x@sha256:" + "2" * 64, "two/x@sha256:" + "2" * 64)
REV = "a" * 40


@pytest.fixture
def world(tmp_path: Path) -> World:
    """`a` serves from the only image in use; `b` was never started."""
    made = World(tmp_path, recipe("a"), recipe("b"))
    made.images.all = {
        USED_ID: StoredImage(USED_ID, (IMAGE,), (), 1000),
        FREE_ID: StoredImage(FREE_ID, (FREE_PIN,), ("reg/old:latest",), 700),
        TWICE_ID: StoredImage(TWICE_ID, TWICE, (), 50),
    }
    assert made.do("promote", recipe="a") == "done"
    return made


def holders(world: World, image: str = USED_ID) -> list[str]:
    return image_holders(world.images.all[image], ground_of(gather(world.box)))


def done(world: World, step: str) -> dict[str, Any]:
    records = world.box.operations.journal(world.last).records()
    return dict(next(r.data for r in records if r.kind == "done" and r.step == step))


# images


def test_everything_that_refers_to_an_image_is_named(world: World) -> None:
    assert world.do("promote", recipe="b") == "done"
    said = "\n".join(holders(world))
    for part in (
        "the incumbent of primary, b",
        "rollback 1 of primary, a",
        "recipe a",
        "recipe b",
        "container anvil-a",
    ):
        assert part in said
    assert holders(world, FREE_ID) == []


def test_a_way_back_keeps_an_image_when_its_recipe_and_container_are_gone(world: World) -> None:
    assert world.do("promote", recipe="b") == "done"
    world.recipes = [r for r in world.recipes if r.id == "c"]
    world.docker.all.clear()
    assert [h.split(" (")[0] for h in holders(world)] == [
        "rollback 1 of primary, a",
        "the incumbent of primary, b",
    ]
    refusals = world.plan("remove", target=USED_ID).refusals
    assert any("is needed by rollback 1 of primary, a" in why for why in refusals)


def test_a_stranger_s_stopped_container_and_a_broken_recipe_keep_it(world: World) -> None:
    world.docker.all["e" * 64] = Container("e" * 64, "theirs", "exited", FREE_ID, "x")
    assert holders(world, FREE_ID) == [f"container theirs ({'e' * 12}, exited)"]
    world.docker.all.clear()
    real = world.box.recipes
    broken = dataclasses.replace(real()[0], path="recipes/bad.toml", recipe=None, error="line 3")
    world.box = dataclasses.replace(world.box, recipes=lambda: (*real(), broken))
    assert holders(world, FREE_ID) == ["recipe bad cannot be read, so what it refers to is not known"]


def test_an_image_of_which_another_was_made_stays(world: World) -> None:
    world.images.all[TWICE_ID] = dataclasses.replace(world.images.all[TWICE_ID], parent=FREE_ID)
    [why] = world.plan("remove", target=FREE_ID).refusals
    assert why.endswith(f"is needed by image {TWICE_ID[:19]} ({', '.join(TWICE)}), made from it")


def test_an_image_goes_by_its_id_with_sizes_before_and_after(world: World) -> None:
    made = world.plan("remove", target=FREE_ID)
    assert [s.name for s in made.steps] == ["size-before", "prove", "decide", "remove", "size-after"]
    assert made.undo_steps == () and made.rollback.startswith(
        "none: afterwards only a new pull of reg/old@sha256:1"
    )
    assert made.confirm_word and made.confirm_word in FREE_ID
    assert world.do("remove", target=FREE_ID) == "done"
    assert set(world.images.all) == {USED_ID, TWICE_ID}
    assert (done(world, "size-before")["bytes"], done(world, "size-after")["bytes"]) == (1750, 1050)


def test_one_of_two_names_is_taken_off_and_the_image_stays(world: World) -> None:
    made = world.plan("remove", target=TWICE[0])
    assert made.title.startswith(f"remove the name {TWICE[0]}; the image") and "nothing is freed" in made.rollback
    assert world.do("remove", target=TWICE[0]) == "done"
    assert world.images.all[TWICE_ID].names == (TWICE[1],)
    assert (done(world, "size-before")["bytes"], done(world, "size-after")["bytes"]) == (1750, 1750)
    assert world.plan("remove", target=TWICE[1]).title.startswith("remove image sha256:dddd"), "its last name now"


@pytest.mark.parametrize(
    ("target", "kind", "says"),
    [
        ("reg/old:latest", Refused, "is a tag, which may mean another image tomorrow: remove " + FREE_ID),
        (FREE_ID[:19], NotFound, "give all 64 digits of an id"),
        ("nope", NotFound, "nothing stored is named 'nope': see `storage`"),
        ("", NotFound, "nothing stored"),
    ],
)
def test_only_an_exact_name_is_taken(world: World, target: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says.split("(")[0][:60]):
        world.plan("remove", target=target)


def test_what_is_used_meanwhile_is_not_removed(world: World) -> None:
    """Between the plan and its start, and between its start and the act."""
    made = world.plan("remove", target=FREE_ID)
    user = Container("e" * 64, "theirs", "created", FREE_ID, "x")
    world.docker.all[user.id] = user
    assert "is needed by container theirs" in world.plan("remove", target=FREE_ID).refusals[0]
    del world.docker.all[user.id]
    assert world.plan("remove", target=FREE_ID).hash == made.hash

    world.hooks["size-before:after"] = lambda: world.docker.all.update({user.id: user})
    assert world.do("remove", target=FREE_ID) == "undone" and FREE_ID in world.images.all
    del world.docker.all[user.id]
    world.hooks["decide:after"] = lambda: world.docker.all.update({user.id: user})
    assert world.do("remove", target=FREE_ID) == "halted" and FREE_ID in world.images.all
    [end] = [r for r in world.box.operations.journal(world.last).records() if r.kind == "end"]
    assert "is needed now by container theirs" in end.data["why"]


def test_every_kill_point_of_a_removal_ends_whole(world: World) -> None:
    kept = dict(world.images.all)
    assert world.do("remove", target=FREE_ID) == "done"
    for point in list(world.points):
        world.images.all = dict(kept)
        assert world.do("remove", target=FREE_ID, kill_at=point) in ("killed", "done")
        assert world.operate("resume") in ("done", "undone")
        assert (FREE_ID not in world.images.all) is (world.decision() == "forward"), point


# model caches


def revision(**more: Any) -> Revision:
    fields: dict[str, Any] = {
        "path": f"/c/hub/models--org--m/snapshots/{REV}", "repo": "org/m", "revision": REV, "bytes": 9,
        "own_bytes": 5, "files": 1,
    }  # fmt: skip
    return Revision(**(fields | more))


def needs(**model: Any) -> Recipe:
    launch = {"argv": ("--port", "{port}"), "mounts": model.pop("mounts", ())}
    draft = model.pop("draft", None)
    more: dict[str, Any] = {"speculation": {"method": "m", "draft": draft}} if draft else {}
    return recipe("n", model={"repo": "r", "path": "/m", **model}, launch=launch, **more)


@pytest.mark.parametrize(
    ("made", "held"),
    [
        (needs(repo="org/m", revision=REV), True),
        (needs(repo="Org/M", revision=REV[:12]), True),
        (needs(repo="org/m"), True),
        (needs(repo="org/m", revision="main"), True),
        (needs(repo="org/m", revision="20240815"), True),
        (needs(repo="org/m", revision="b" * 40), False),
        (needs(repo="other/m", revision=REV), False),
        (needs(draft={"repo": "org/m", "revision": REV}), True),
        (needs(path=f"/hf/hub/models--org--m/snapshots/{REV}", mounts=({"source": "/c", "target": "/hf"},)), True),
        (
            needs(
                path=f"/hf/hub/models--org--m/snapshots/{'b' * 40}", mounts=({"source": "/c", "target": "/hf"},)
            ),
            False,
        ),
        (needs(path="/r/blobs/0f", mounts=({"source": "/c/hub/models--org--m", "target": "/r"},)), True),
        (needs(path="/m", mounts=({"source": f"/c/hub/models--org--m/snapshots/{REV}", "target": "/m"},)), True),
    ],
)
def test_which_recipes_refer_to_a_revision(tmp_path: Path, made: Recipe, held: bool) -> None:
    world = World(tmp_path, made)
    found = revision_holders(revision(), ground_of(gather(world.box)))
    assert found == (["recipe n"] if held else [])


def test_what_else_refers_to_a_revision(world: World) -> None:
    theirs = Container("e" * 64, "theirs", "exited", "x", "x", mounts=(("/c", "/models", True),))
    world.docker.all[theirs.id] = theirs
    found = revision(users=(77,), against=("a download that has not ended (x.incomplete)",))
    assert revision_holders(found, ground_of(gather(world.box))) == [
        "a download that has not ended (x.incomplete)",
        f"container theirs ({'e' * 12}, exited), on no record, which mounts /c",
        "process 77, which has a file of it open",
    ]


def cached(world: World, *revisions: str) -> Path:
    made = world.tmp / "hub" / "models--org--m"
    (made / "blobs").mkdir(parents=True)
    for name in revisions:
        (made / "blobs" / name[:4]).write_bytes(b"x" * 1000)
        (made / "snapshots" / name).mkdir(parents=True)
        (made / "snapshots" / name / "w.bin").symlink_to(f"../../blobs/{name[:4]}")
    settings = world.box.workspace.model_copy(
        update={"storage": world.box.workspace.storage.model_copy(update={"caches": (str(world.tmp / "hub"),)})}
    )
    world.box = dataclasses.replace(world.box, workspace=settings)
    return made


def test_a_revision_goes_with_sizes_before_and_after(world: World) -> None:
    made = cached(world, REV, "b" * 40)
    assert world.do("remove", target=f"org/m@{REV}") == "done"
    assert [p.name for p in (made / "snapshots").iterdir()] == ["b" * 40]
    assert done(world, "size-before")["bytes"] - done(world, "size-after")["bytes"] >= 1000
    with pytest.raises(NotFound):
        world.plan("remove", target=f"org/m@{REV}")


def test_a_mount_by_another_path_to_the_same_folder_refers_too(world: World) -> None:
    """Neither a link to the cache nor a container that an interrupted operation left is overlooked."""
    made = cached(world, REV)
    (world.tmp / "link").symlink_to(world.tmp / "hub")
    mount = {"source": str(world.tmp / "link"), "target": "/hf"}
    world.recipes.append(needs(path=f"/hf/models--org--m/snapshots/{REV}/w.bin", mounts=(mount,)))
    assert world.plan("remove", target=f"org/m@{REV}").refusals[0].endswith("is needed by recipe n")
    world.recipes.pop()
    mounts = ((str(world.tmp / "link"), "/hf", True),)
    left = Container("e" * 64, "left", "exited", "x", "x", {OPERATION_LABEL: "op"}, mounts=mounts)
    world.docker.all[left.id] = left
    assert "container left" in world.plan("remove", target=str(made / "snapshots" / REV)).refusals[0]


def test_weights_behind_a_link_of_their_own_refer_too(world: World) -> None:
    """A folder that is mounted whole, and in it a link that says which revision is served: that one, no other."""
    made = cached(world, REV, "b" * 40)
    (world.tmp / "current").symlink_to(f"hub/models--org--m/snapshots/{REV}")
    (world.tmp / "w.bin").symlink_to("current/w.bin")
    mount = {"source": str(world.tmp), "target": "/srv"}
    for path in ("/srv/current", "/srv/current/w.bin", "/srv/w.bin"):
        world.recipes[2:] = [needs(path=path, mounts=(mount,))]
        refusals = world.plan("remove", target=f"org/m@{REV}").refusals
        assert [r.endswith("is needed by recipe n") for r in refusals] == [True], path
        assert world.plan("remove", target=str(made / "snapshots" / ("b" * 40))).refusals == (), path


@pytest.mark.parametrize("mounted", ["snapshots/{0}", "snapshots/{0}/w.bin", "blobs", "blobs/aaaa", ""])
def test_a_stopped_stranger_that_mounts_a_part_of_it_refers_too(world: World, mounted: str) -> None:
    made = cached(world, REV)
    source = str(made / mounted.format(REV))
    world.docker.all["e" * 64] = Container("e" * 64, "theirs", "exited", "x", "x", mounts=((source, "/m", True),))
    (refusal,) = world.plan("remove", target=f"org/m@{REV}").refusals
    assert refusal.endswith(f"on no record, which mounts {source}")


def test_a_container_that_cannot_be_inspected_may_mount_anything(world: World) -> None:
    cached(world, REV)
    world.docker.all["e" * 64] = Container("e" * 64, "dark", "unknown", "x", "x", error="input/output error")
    (refusal,) = world.plan("remove", target=f"org/m@{REV}").refusals
    assert "container dark" in refusal and "not known what it mounts: input/output error" in refusal


@pytest.mark.parametrize("name", ["reg/old:nightly", "docker.io/reg/old", "mirror/old"])
def test_a_recipe_means_an_image_by_the_digest_whatever_the_name(world: World, name: str) -> None:
    world.recipes.append(recipe("n", image={"ref": f"{name}@{FREE_PIN.partition('@')[2]}"}))
    assert world.plan("remove", target=FREE_ID).refusals[0].endswith("is needed by recipe n")


def test_a_file_that_is_opened_meanwhile_keeps_the_revision(world: World) -> None:
    made = cached(world, REV)
    target = str(made / "snapshots" / REV)
    with (made / "blobs" / REV[:4]).open("rb"):
        assert "which has a file of it open" in world.plan("remove", target=target).refusals[0]
    assert world.plan("remove", target=target).refusals == ()


def test_storage_tells_what_could_not_be_read_from_what_is_not_there(world: World) -> None:
    cached(world, REV)
    told = storage_json(*survey(world.box))
    assert [(r["name"], r["held_by"]) for r in told["revisions"]] == [(f"org/m@{REV}", [])]
    assert {i["id"]: bool(i["held_by"]) for i in told["images"]} == {
        USED_ID: True,
        FREE_ID: False,
        TWICE_ID: False,
    }
    world.box = dataclasses.replace(world.box, caches=None)
    told = storage_json(*survey(world.box))
    assert told["revisions"] is None and "another machine" in told["why"][0]
