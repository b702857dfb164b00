"""Lifecycle strip, operations, details, recipes, plans, logs, help: what they say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest
from rich.cells import cell_len

from anvil_tui.adapters.toml_files import load_recipes
from anvil_tui.core.box import Container, Gateway
from anvil_tui.core.journal import StepView
from anvil_tui.core.plan import Intent
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.serves import derive
from anvil_tui.core.world import BoxRecord, LogView, RecipeFile, RoleRecord, World
from anvil_tui.ui.actions import ACTIONS, BY_VERB, REGISTRY, Action
from anvil_tui.ui.policies import Target
from anvil_tui.ui.presenters import details, gate_table, lifecycle, logs, operations, plans, recipes
from anvil_tui.ui.presenters.cells import Panel, Row, View
from anvil_tui.ui.presenters.help import HINT_LIMIT, help_rows, hints
from tests.support import worlds

VIEW = View(zone=UTC)


def line(row: Row) -> str:
    return "".join(c.text for c in row.cells)


def words(panel: Panel) -> str:
    return "\n".join([panel.title, *(line(r) for r in panel.rows)])


def strip(world: World, view: View = VIEW, width: int = 120) -> list[str]:
    def why(verb: str) -> str | None:
        return BY_VERB[verb].policy(world, Target(role="primary"))

    rows = lifecycle.strip(world, view, width, why)
    assert all(sum(cell_len(c.text) for c in r.cells) == width for r in rows)
    return [line(r).strip() for r in rows]


def candidate_world(**change: object) -> World:
    """524K serves; 393K stands beside it as the candidate."""
    new, old = worlds.recipes()[worlds.CANDIDATE], worlds.recipes()[worlds.INCUMBENT]
    candidate, incumbent = worlds.record(new, "primary-b", False), worlds.record(old, "primary-a")
    role = RoleRecord("primary", incumbent.container_id, ())
    serves = {s.container_id: s for s in (candidate, incumbent)}
    world = replace(
        worlds.calm(),
        record=BoxRecord(8, serves, {"primary": role}),
        containers=Reading.known((worlds.container(new), worlds.container(old)), worlds.NOW_S, "docker"),
        gateway=Reading.known(worlds.gateway("primary-a"), worlds.NOW_S, "haproxy"),
        operations=(),
    )
    return derive(replace(world, **change))  # type: ignore[arg-type]


class TestLifecycle:
    def test_no_candidate(self) -> None:
        """The serve holds the whole box: nothing can be loaded beside it, a promotion is the way."""
        assert strip(worlds.calm()) == ["candidate none  5 recipes can be promoted", "next      p promote"]

    def test_a_recipe_that_a_person_chose_is_the_candidate(self) -> None:
        view = replace(VIEW, recipe="glm53-245k-c1")
        assert strip(worlds.calm(), view)[0].startswith("candidate none")
        picked = replace(view, picked=frozenset({"recipe"}))
        assert strip(worlds.calm(), picked) == ["candidate glm53-245k-c1  not loaded", "next      p promote"]

    def test_a_box_with_room_loads_first(self) -> None:
        world = derive(replace(worlds.calm(), containers=Reading.known((), worlds.NOW_S, "docker")))
        quiet = replace(world, record=BoxRecord(), serves=())
        assert strip(quiet) == ["candidate none  6 recipes can be loaded", "next      l load"]

    def test_a_stopped_candidate_that_has_no_room_is_promoted(self) -> None:
        new, old = worlds.recipes()[worlds.CANDIDATE], worlds.recipes()[worlds.INCUMBENT]
        both = (worlds.container(new, "exited"), worlds.container(old))
        stages, after = strip(candidate_world(containers=Reading.known(both, worlds.NOW_S, "docker")))
        assert "load · " in stages and after == "next      p promote"

    def test_a_gateway_that_is_gone_comes_first(self) -> None:
        """Nothing that serves can be reached: `next` is not another load."""
        why = "it does not answer; start it with `anvil-tui gateway run`"
        gone: Reading[Gateway] = Reading.error(why, worlds.NOW_S, "haproxy")
        said = strip(derive(replace(worlds.calm(), gateway=gone)))[1]
        assert said == f"next      the gateway: {why}"

    def test_held_traffic_comes_before_everything_but_a_promotion(self) -> None:
        hold = Reading.known(worlds.gateway("hold"), worlds.NOW_S, "haproxy")
        held = derive(replace(worlds.calm(), gateway=hold))
        assert strip(held)[1] == "next      a readmit"
        assert strip(candidate_world(gateway=hold))[1] == "next      a readmit"
        world = candidate_world(gateway=hold)
        ready = worlds.record(worlds.recipes()[worlds.CANDIDATE], "primary-b")
        kept = {**world.record.serves, ready.container_id: ready}
        assert strip(derive(replace(world, record=replace(world.record, serves=kept))))[1] == "next      p promote"

    def test_an_incumbent_that_is_down_wants_its_rollback(self) -> None:
        new, old = worlds.recipes()[worlds.CANDIDATE], worlds.recipes()[worlds.INCUMBENT]
        dead = (worlds.container(new, "exited", exit_code=1), worlds.container(old, "exited"))
        down: Reading[tuple[Container, ...]] = Reading.known(dead, worlds.NOW_S, "docker")
        world = derive(replace(worlds.calm(), containers=down, gpus=worlds.freed()))
        assert strip(world)[1] == "next      b rollback"
        held = derive(replace(worlds.calm(), containers=down))
        assert "missing gpus: GPU 0" in strip(held)[1], "it ended, and its memory is not back"

    def test_a_planned_operation_is_not_an_interrupted_one(self) -> None:
        planned = replace(worlds.promoting().operations[1], started_at="", steps=(), last_note="", alive=False)
        first, second = strip(replace(worlds.promoting(), operations=(planned,)))
        assert "INTERRUPTED" not in first and second == "now       starting"

    def test_a_way_back_is_not_counted_out_of_what_it_has_come_to(self) -> None:
        back = tuple(StepView(f"undo:{i}", f"step {i}", "done", worlds.at(9), worlds.at(8)) for i in range(3))
        op = replace(worlds.promoting().operations[1], undo_steps=back, decision="undo")
        assert strip(replace(worlds.promoting(), operations=(op,)))[0].endswith("undo step 3")

    def test_loaded_candidate_wants_qualification(self) -> None:
        stages, after = strip(candidate_world())
        assert stages == "candidate glm53-393k-c1  load ✔ ─ qualify · ─ quiesce · ─ drain · ─ promote ·"
        assert after.startswith("next      (g qualify)")

    def test_qualified_candidate_wants_promotion(self) -> None:
        world = candidate_world()
        new = worlds.recipes()[worlds.CANDIDATE]
        kept = {**world.record.serves, worlds.cid(new.id): worlds.record(new, "primary-b")}
        stages, after = strip(derive(replace(world, record=replace(world.record, serves=kept))))
        assert "qualify ✔" in stages
        assert after == "next      p promote"

    def test_held_and_drained_are_marked(self) -> None:
        stages, _ = strip(candidate_world(gateway=Reading.known(worlds.gateway("hold"), worlds.NOW_S, "haproxy")))
        assert "quiesce ✔ ─ drain ✔" in stages

    def test_a_rollback_is_no_candidate(self) -> None:
        assert strip(worlds.calm(), replace(VIEW, serve=worlds.cid(worlds.INCUMBENT)))[0].startswith(
            "candidate none"
        )

    def test_running_operation_takes_the_strip(self) -> None:
        first, second = strip(worlds.promoting())
        assert first == "▶ promote glm53-393k-c1  step 7/10  ●●●●●●▶···"
        assert second.startswith("now       run the gates of suite promotion  gate tools 13/20, all exact so far ")
        assert second.endswith("  1 min 42 s")

    def test_interrupted_operation_names_both_ways(self) -> None:
        first, second = strip(worlds.interrupted())
        assert "promote INTERRUPTED glm53-393k-c1" in first
        assert second == "next      r resume or z undo  both put everything back"

    @pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
    def test_it_fits(self, width: int) -> None:
        for world in (worlds.calm(), worlds.promoting(), worlds.interrupted(), candidate_world(), worlds.empty()):
            strip(world, width=width)


class TestOperations:
    def test_steps_with_times_and_limits(self) -> None:
        text = words(operations.detail_panel(worlds.promoting(), VIEW, 77, 40))
        assert "Steps 6/10" in text
        assert "1 ✔ hold llm.primary: new requests wait" in text
        assert "1 min 42 s of at most 1 h 00 min" in text
        assert "decision     none yet: recovery means undo" in text
        assert "Gates 6/10" in text

    def test_failed_step_shows_its_note_and_the_way_back(self) -> None:
        world = worlds.promoting()
        failed = replace(world.operations[1].steps[6], state="failed", note="gate tools failed: 19/20")
        back = (StepView("undo:stop-new", "stop the candidate", "running", worlds.at(5), None, 60),)
        op = replace(
            world.operations[1], steps=(*world.operations[1].steps[:6], failed), undo_steps=back,
            decision="undo", decision_why="gate tools failed", residue=("container 1a0fee0aee17",),
        )  # fmt: skip
        text = words(operations.detail_panel(replace(world, operations=(op,)), VIEW, 77, 40))
        assert "gate tools failed: 19/20" in text
        assert "Way back 0/1" in text
        assert "undo: gate tools failed" in text
        assert "left behind: container 1a0fee0aee17" in text

    def test_a_step_whose_process_is_gone_counts_no_time(self) -> None:
        text = words(operations.detail_panel(worlds.interrupted(), VIEW, 77, 40))
        assert "▲ run the gates of suite promotion" in text and "broken off" in text
        assert "1 min 42 s" not in text

    def test_the_way_back_stands_first_and_breaks_off_the_way_forward(self) -> None:
        world = worlds.promoting()
        back = (StepView("undo:stop-new", "stop the candidate", "running", worlds.at(5), None, 60),)
        op = replace(world.operations[1], undo_steps=back, decision="undo", decision_why="gate tools failed")
        text = words(operations.detail_panel(replace(world, operations=(op,)), VIEW, 77, 40))
        assert text.index("Way back 0/1") < text.index("Steps 6/10")
        assert "5 s of at most 1 min 00 s" in text and text.count("broken off") == 2
        assert "not run" in text and "pending" not in text

    def test_a_long_step_with_a_time_is_wrapped_not_cut(self) -> None:
        world = worlds.promoting()
        title = "hold " + ", ".join(f"alias-{i}" for i in range(12))
        for width in range(50, 78):
            op = replace(world.operations[1], steps=(replace(world.operations[1].steps[0], title=title),))
            text = words(operations.detail_panel(replace(world, operations=(op,)), VIEW, width, 40))
            assert "alias-…" not in text and all(f"alias-{i}" in text for i in range(12)), width

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"alive": True}, "until c cancels it, with a reason"),
            ({"alive": True, "decision": "undo"}, "ends by itself"),
            ({"started_at": ""}, "is starting"),
            ({"alive": False}, "z undoes it, and r does the same"),
            ({"alive": False, "decision": "forward"}, "r resumes and finishes it"),
            ({"outcome": "halted"}, "A person must act"),
            ({"outcome": "undone"}, "Everything was put back"),
            ({"outcome": "done"}, "Nothing is left to do"),
        ],
    )
    def test_what_can_be_done_now(self, change: dict[str, object], sentence: str) -> None:
        op = replace(worlds.promoting().operations[1], **change)  # type: ignore[arg-type]
        assert sentence in operations.what_now(op)

    def test_the_open_one_is_listed_whatever_the_filter_says(self) -> None:
        view = replace(VIEW, filters=(("operations", "nothing-like-this"),))
        assert [o.kind for o in operations.shown(worlds.promoting(), view)] == ["promote"]

    def test_newest_first(self) -> None:
        panel = operations.list_panel(worlds.calm(), VIEW, 77, 20)
        assert [r.key for r in panel.rows] == ["20260902-1048-promote", "20260902-1040-qualify"]


class TestDetails:
    def test_serve_in_full(self) -> None:
        view = replace(VIEW, serve=worlds.cid(worlds.CANDIDATE))
        text = words(details.serve_panel(worlds.calm(), view, 117, 60))
        assert worlds.cid(worlds.CANDIDATE) in text
        assert worlds.recipes()[worlds.CANDIDATE].served_name in text
        assert worlds.UUIDS[0] in text
        assert "progress     ● moving" in text

    def test_a_key_in_the_command_line_is_masked(self) -> None:
        known = worlds.recipes()[worlds.CANDIDATE]
        bare = worlds.container(known, argv=("serve", "--api-key", "hunter2-hunter2"))
        world = derive(replace(worlds.calm(), containers=Reading.known((bare,), worlds.NOW_S, "docker")))
        text = words(details.serve_panel(world, replace(VIEW, serve=bare.id), 117, 60))
        assert "hunter2" not in text and "--api-key ***" in text

    def test_gone_is_said(self) -> None:
        assert "not there any more" in words(details.serve_panel(worlds.calm(), replace(VIEW, serve="x"), 77, 20))
        assert "not reported any more" in words(details.gpu_panel(worlds.calm(), replace(VIEW, gpu="x"), 77, 20))

    def test_gpu_in_full(self) -> None:
        text = words(details.gpu_panel(worlds.calm(), replace(VIEW, gpu=worlds.UUIDS[0]), 77, 40))
        assert worlds.UUIDS[0] in text
        assert "ECC errors   n/a" in text
        assert "580.95.05" in text

    def test_gate_in_full(self) -> None:
        text = words(gate_table.detail(worlds.promoting(), replace(VIEW, gate="needle"), 57, 20))
        assert "206,296 prompt tokens measured" in text and "took 41 s" in text


class TestRecipes:
    def test_list_has_decision_envelope_gpus_licence(self) -> None:
        text = words(recipes.list_panel(worlds.calm(), VIEW, 97, 30))
        assert "● historical  glm53-393k-c1" in text
        assert "393,216" in text and "C1" in text and "2 all" in text
        assert "rejected    glm53-499k-c4" in text

    def test_list_says_whether_the_last_qualification_holds(self) -> None:
        wide = words(recipes.list_panel(worlds.calm(), VIEW, 97, 30)).splitlines()
        said = {name: next(w for w in wide if name in w) for name in ("393k-c1", "524k-k5", "499k-c4", "exl3-r10")}
        assert "holds 09-02" in said["393k-c1"] and "drifted 08-31" in said["524k-k5"]
        assert "failed 09-01" in said["499k-c4"] and "never" in said["exl3-r10"]
        unread = words(recipes.list_panel(replace(worlds.calm(), qualified={}), VIEW, 57, 30))
        assert "n/a" in unread and "never" not in unread

    def test_detail_says_what_drifted(self) -> None:
        text = words(recipes.detail_panel(worlds.calm(), replace(VIEW, recipe=worlds.INCUMBENT), 97, 60))
        assert "driver was 577.10, is 580.95.05" in text.replace("\n" + " " * 13, "")

    def test_detail_has_feasibility_per_rank(self) -> None:
        """2,101 MiB were left after work, the reserve is 3,072: -971 on each card, and the waiver is named."""
        text = words(recipes.detail_panel(worlds.calm(), replace(VIEW, recipe=worlds.CANDIDATE), 117, 60))
        assert "feasibility  verified-by-waiver" in text
        assert text.count("left 2,101 MiB, beside the reserve -971 MiB") == 2
        assert "reserve      3,072 MiB a card, 0 MiB by waiver" in text
        assert "runtime and graphs: unknown" in text

    def test_a_file_that_cannot_be_used_says_why(self) -> None:
        bad = RecipeFile("recipes/x.toml", None, "recipes/x.toml:3: enigne: unknown key, do you mean engine?")
        world = replace(worlds.calm(), recipes=(bad,))
        panel = recipes.list_panel(world, VIEW, 97, 30)
        assert "enigne: unknown key" in words(panel)
        assert panel.rows[1].key == "recipes/x.toml"
        detail = recipes.detail_panel(world, replace(VIEW, recipe="recipes/x.toml"), 57, 30)
        assert "do you mean engine?" in words(detail).replace("\n", " ")

    @pytest.mark.parametrize("file", load_recipes(worlds.ROOT / "recipes"), ids=lambda f: Path(f.path).stem)
    def test_every_shipped_recipe_is_shown_whole(self, file: RecipeFile) -> None:
        recipe = file.recipe
        assert recipe is not None, file.error
        world = replace(worlds.calm(), recipes=(file,))
        panel = recipes.detail_panel(world, replace(VIEW, recipe=recipe.id), 57, 30)
        joined = words(panel).replace("\n", "").replace(" ", "")
        assert recipe.served_name in joined
        assert recipe.image.ref in joined
        for decision in recipe.decisions:
            assert decision.reason.replace(" ", "") in joined

    def test_filter_by_decision(self) -> None:
        view = replace(VIEW, filters=(("recipes", "rejected"),))
        found = [recipes.key_of(f) for f in recipes.shown(worlds.calm(), view)]
        assert found == ["glm53-1m-k5-b4096", "glm53-499k-c4"]


class TestPlans:
    def test_everything_an_operator_must_know(self) -> None:
        plan = worlds.plan_for(Intent("rollback", role="primary"), worlds.calm())
        panel = plans.panel(plan, 77)
        text = words(panel).replace("\n" + " " * 13, "")
        for fact in (worlds.cid(worlds.CANDIDATE), plan.interrupts, plan.outage, plan.rollback, plan.on_failure):
            assert fact.replace(" ", "") in text.replace(" ", "")
        assert "Steps 10" in text and "Gates 10" in text and "Way back if it fails: 2 steps" in text
        assert panel.note is not None and plan.hash in panel.note.text

    def test_a_long_step_is_wrapped_not_cut(self) -> None:
        plan = worlds.plan_for(Intent("rollback", role="primary"), worlds.calm())
        title = "hold " + ", ".join(f"alias-{i}" for i in range(12))
        plan = replace(plan, steps=(replace(plan.steps[0], title=title),))
        text = words(plans.panel(plan, 57))
        assert all(f"alias-{i}" in text for i in range(12)) and "…" not in text

    def test_refusals_come_first(self) -> None:
        plan = replace(
            worlds.plan_for(Intent("load", recipe="x"), worlds.calm()),
            refusals=("no room [/b]",),
            warnings=("hot",),
        )
        rows = [line(r) for r in plans.panel(plan, 77).rows]
        assert rows[0] == "✖ no room [/b]"
        assert any(r == "▲ hot" for r in rows)


class TestLogs:
    @pytest.mark.parametrize(
        ("text", "mark"),
        [
            ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate", ("✖", "bad")),
            ("No available memory for the cache blocks", ("✖", "bad")),
            ("No available shared memory broadcast block found in 60 seconds", ("▲", "warn")),
            ("pynvml package is deprecated", ("·", "dim")),
            ("ERROR nobody knows this one", ("?", "bad")),
            ("Traceback (most recent call last):", ("?", "bad")),
            ("WARNING plugin not found (non-fatal)", ("?", "warn")),
            ("done, 0 errors", (" ", "text")),
            ("error_rate=0.0", (" ", "text")),
            ("Load weight end.", (" ", "text")),
        ],
    )
    def test_severity_of_a_vllm_line_is_a_glyph_and_a_tone(self, text: str, mark: tuple[str, str]) -> None:
        assert logs.mark_of(text, EngineKind.VLLM) == mark

    def test_without_a_known_engine_no_signature_counts(self) -> None:
        assert logs.mark_of("No available memory for the cache blocks", None) == (" ", "text")
        assert logs.mark_of("CUDA error: fatal", None) == ("?", "bad")

    def test_the_filter_stands_before_the_name_which_may_be_cut(self) -> None:
        title = logs.title(worlds.calm(), "kv", 1)
        assert title.startswith('Log filter "kv" 1/5  glm53-393k-c1')
        assert logs.title(worlds.calm(), "", 5).startswith("Log  glm53-393k-c1")

    def test_filter_keeps_line_numbers(self) -> None:
        log = LogView("x", ("a", "b1", "c", "b2"), dropped=100)
        assert logs.matching(log, "B") == ((101, "b1"), (103, "b2"))


class TestHelp:
    def test_first_hint_survives_every_width_and_six_is_the_most(self) -> None:
        for width in (20, 40, 80):
            text = line(hints(ACTIONS, lambda a: None, width))
            assert text.startswith(" ? help")
        assert HINT_LIMIT == 6
        assert ACTIONS[HINT_LIMIT].label not in line(hints(ACTIONS, lambda a: None, 200))

    def test_closed_reads_without_colour(self) -> None:
        text = line(hints([REGISTRY["recipe.load"]], lambda a: "no", 40))
        assert "(l load)" in text

    def test_help_lists_every_action_and_every_reason(self) -> None:
        def why(action: Action) -> str | None:
            return "read-only" if action.mutates else None

        text = "\n".join(line(r) for r in help_rows(why, 97))
        assert all(a.help in text for a in ACTIONS)
        assert text.count("not now: read-only") == sum(a.mutates for a in ACTIONS)
