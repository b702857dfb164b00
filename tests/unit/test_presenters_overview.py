"""What the overview's panels say about worlds that are calm, busy, degraded, stale or not read yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, timedelta, timezone

import pytest
from rich.cells import cell_len

from anvil_tui.core.box import GpuProcess, GpuSnapshot, KvCapacity
from anvil_tui.core.engine_log import LoadPhase
from anvil_tui.core.journal import OperationView, StepView
from anvil_tui.core.reading import Reading
from anvil_tui.core.serves import derive
from anvil_tui.core.world import Event, World
from anvil_tui.ui.presenters import capacity, gates, gpus, header, operations, serves, tiny
from anvil_tui.ui.presenters.cells import Panel, Row, View
from tests.support import worlds
from tests.support.standings import loading

VIEW = View(zone=UTC)
WORLDS: dict[str, Callable[[], World]] = {
    "calm": worlds.calm, "promoting": worlds.promoting, "degraded": worlds.degraded, "stale": worlds.stale,
    "interrupted": worlds.interrupted, "empty": worlds.empty, "many": worlds.many_gpus,
}  # fmt: skip
PANELS = {
    "gpus": gpus.panel, "kv": capacity.panel, "serves": serves.panel, "gates": gates.panel,
    "events": operations.events_panel, "tiny": tiny.panel, "operations": operations.list_panel,
}  # fmt: skip


def words(panel: Panel) -> str:
    note = f" {panel.note.text}" if panel.note else ""
    return "\n".join([panel.title + note, *(line(r) for r in panel.rows)])


def line(row: Row) -> str:
    return "".join(c.text for c in row.cells)


def said(panel: Callable[..., Panel], world: World, view: View = VIEW, width: int = 57, height: int = 11) -> str:
    return words(panel(world, view, width, height))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize("width", [20, 37, 57, 77, 117, 197])
def test_no_row_is_wider_than_its_pane(world: str, panel: str, width: int) -> None:
    built = PANELS[panel](WORLDS[world](), VIEW, width, 10)
    # below 57 a pane is cut at its edge by the strip; from 57 on nothing may be lost
    over = [line(r) for r in built.rows if width_of(r) > width] if width >= 57 else []
    assert over == []


def beside(world: World) -> World:
    """The same world with the old serve still running, as where GPUs are to spare."""
    old = worlds.container(worlds.recipes()[worlds.INCUMBENT])
    others = tuple(c for c in world.containers.value or () if c.id != old.id)
    return derive(replace(world, containers=Reading.known((*others, old), worlds.NOW_S, "docker")))


def took(seconds: float, target: str, outcome: str = "done") -> OperationView:
    """An earlier promotion whose engine took that long to get ready."""
    step = StepView("ready", "ready", "done", worlds.at(5000 + seconds), worlds.at(5000), 1800)
    return replace(worlds.promoted(), target=target, steps=(step,), outcome=outcome)  # type: ignore[arg-type]


def width_of(row: Row) -> int:
    return sum(cell_len(c.text) for c in row.cells)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("world", WORLDS)
def test_header_is_exactly_the_width(world: str, width: int) -> None:
    assert width_of(header.header(WORLDS[world](), VIEW, width)) == width


@pytest.mark.parametrize(
    ("world", "facts"),
    [
        (
            worlds.calm(),
            ["fakoli-dark LAB", "RW", "lease free", "primary ● serving glm53-393k-c1", "11:54:09 UTC"],
        ),
        (worlds.calm(read_only=True), ["READ-ONLY"]),
        (worlds.calm(kind="production"), ["PRODUCTION"]),
        (worlds.promoting(), ["lease sekou:4300", "primary ◐ HELD 6 min 15 s, 3 waiting"]),
        (worlds.degraded(), ["2 problems", "✖ lost glm53-393k-c1"]),
        (worlds.stale(), ["1 problem", "✖ lost"]),
        (worlds.empty(), ["primary ? UNKNOWN"]),
    ],
)
def test_header_answers_in_one_look(world: World, facts: list[str]) -> None:
    text = line(header.header(world, VIEW, 120))
    assert [f for f in facts if f not in text] == []


def test_header_names_the_zone() -> None:
    cest = timezone(timedelta(hours=2), "CEST")
    assert line(header.header(worlds.calm(), View(zone=cest), 120)).endswith("13:54:09 CEST ")


class TestGpus:
    def test_memory_reserve_and_waiver(self) -> None:
        text = said(gpus.panel, worlds.calm())
        assert "92.0/95.6 GiB" in text
        assert "free 2,543 MiB" in text
        assert "reserve 3,072 SHORT 529, waived 09-02" in text
        assert "compute-a  glm53-393k-c1" in text
        assert "61 °C" in text and "287/300 W" in text

    def test_the_boxs_larger_reserve_counts_as_the_gate_counts_it(self) -> None:
        calm = worlds.calm()
        policies = calm.workspace.policies.model_copy(update={"reserve_mib": 4096})
        strict = replace(calm, workspace=calm.workspace.model_copy(update={"policies": policies}))
        assert "reserve 4,096 SHORT 1,553, waived 09-02" in said(gpus.panel, strict)

    def test_the_owner_of_a_lost_card_is_not_known(self) -> None:
        world = derive(replace(worlds.degraded(), containers=Reading.known((), worlds.NOW_S, "docker")))
        lines = said(gpus.panel, world, width=77).splitlines()
        assert "owner n/a" in next(x for x in lines if "compute-b" in x)

    def test_lost_is_a_word_and_the_other_card_stays(self) -> None:
        text = said(gpus.panel, worlds.degraded())
        assert "LOST GPU is lost" in text
        assert "free 2,543 MiB" in text

    def test_stale_says_for_how_long(self) -> None:
        assert "STALE 42 s" in said(gpus.panel, worlds.stale())
        assert "STALE" not in said(gpus.panel, worlds.calm())

    @pytest.mark.parametrize(
        ("reading", "text"),
        [
            (Reading.known(GpuSnapshot("580", ()), worlds.NOW_S, "nvml"), "0 GPUs"),
            (Reading.error("NVML library not found", worlds.NOW_S, "nvml"), "unavailable: NVML library not found"),
            (Reading.unknown("not read yet", "nvml"), "unknown: not read yet"),
        ],
    )
    def test_none_missing_and_unread_are_three_texts(self, reading: Reading[GpuSnapshot], text: str) -> None:
        """O-12"""
        assert text in said(gpus.panel, replace(worlds.calm(), gpus=reading))

    def test_fields_that_a_driver_does_not_tell_are_not_zero(self) -> None:
        bare = worlds.gpu(0, used_bytes=None, total_bytes=None, free_bytes=None, power_w=None, temperature_c=None)
        world = replace(worlds.calm(), gpus=Reading.known(GpuSnapshot("580", (bare,)), worlds.NOW_S, "nvml"))
        text = said(gpus.panel, world)
        assert "memory n/a" in text and "free n/a" in text
        assert " 0 " not in text

    @pytest.mark.parametrize(
        ("why", "shown"), [(("idle",), ""), (("sw_thermal", "idle"), "throttled: sw_thermal")]
    )
    def test_a_resting_clock_is_no_throttling(self, why: tuple[str, ...], shown: str) -> None:
        card = worlds.gpu(0, throttle=why)
        world = replace(worlds.calm(), gpus=Reading.known(GpuSnapshot("580", (card,)), worlds.NOW_S, "nvml"))
        text = said(gpus.panel, world, width=97)
        assert shown in text and ("throttled" in text) == bool(shown)

    def test_sixteen_cards_are_sixteen_items(self) -> None:
        """O-13"""
        panel = gpus.panel(worlds.many_gpus(16), VIEW, 77, 8)
        assert len({r.key for r in panel.rows}) == 16

    def test_a_foreign_process_is_named(self) -> None:
        card = worlds.gpu(0, processes=(GpuProcess(4242, "blender"), GpuProcess(7, None)))
        world = derive(replace(
            worlds.calm(), gpus=Reading.known(GpuSnapshot("580", (card,)), worlds.NOW_S, "nvml"),
            containers=Reading.known((), worlds.NOW_S, "docker"),
        ))  # fmt: skip
        assert "foreign pid 4242 blender +1" in said(gpus.panel, world, width=77)

    def test_two_serves_on_one_card_are_an_alarm(self) -> None:
        world = worlds.with_containers(worlds.calm(), worlds.alien())
        assert "SHARED by 2" in said(gpus.panel, world, width=117)


class TestCapacity:
    def test_three_numbers_side_by_side(self) -> None:
        text = said(capacity.panel, worlds.calm())
        assert "pool        393,216 tok  engine log 11:02" in text and "KV 9.2 GiB a rank" in text
        assert "configured resident measured" in text
        assert "windows  C1         1.00     C1 at 304,491" in text
        ungated = said(capacity.panel, replace(worlds.calm(), proven={}))
        assert "windows  C1         1.00     n/a (never gated)" in ungated

    def test_a_pool_smaller_than_the_context_promises_no_window(self) -> None:
        """O-102: 73,472 of 131,072 tokens: 0.56 windows, and that is the longest request."""
        known = worlds.recipes()[worlds.CANDIDATE]
        kv = KvCapacity(73_472, "SGLang log: max_total_num_tokens", 73_472, at="2026-09-02T10:00:09Z")
        engine = worlds.engine(known, capacity=kv, context_tokens=131_072)
        world = replace(
            worlds.calm(), engines={worlds.cid(known.id): Reading.known(engine, worlds.NOW_S, "http")}, proven={}
        )
        text = said(capacity.panel, derive(world), width=77)
        assert "0.56" in text and "73,472 tok  SGLang log: max_total_num_tokens 09-02 10:00" in text
        assert "recipe says 393,216" in text

    def test_the_recipe_s_own_figure_is_a_record_and_no_measurement(self) -> None:
        world = replace(worlds.calm(), proven={})
        serving = next(s for s in world.serves if s.name == worlds.CANDIDATE)
        other = replace(serving, recipe=worlds.recipes()[worlds.INCUMBENT])
        world = replace(world, serves=(other,))
        assert "n/a (record: C2 at 206,630 prompt tokens each)" in said(capacity.panel, world, width=77)

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"kv_used": 1.04}, "104 %"),
            ({"kv_used": 1.04}, "104 %  OVER 100"),
            ({"kv_used": None, "metrics": "off"}, "metrics off (a setting)"),
            ({"kv_used": None, "metrics": "on"}, "metric absent"),
            ({"kv_used": 0.0}, "0 %"),
            ({"context_tokens": 4096}, "recipe says 393,216"),
            ({"capacity": None}, "recipe says 393,216"),
            ({"running": None}, "running n/a"),
            ({"preempted": 3.0}, "preempted 3"),
            (
                {"capacity": KvCapacity(9, "log", inconsistent="1.2x or 9 tokens")},
                "inconsistent: 1.2x or 9 tokens",
            ),
        ],
    )
    def test_what_an_engine_says_or_does_not(self, change: dict[str, object], text: str) -> None:
        world, known = worlds.calm(), worlds.recipes()[worlds.CANDIDATE]
        engine = worlds.engine(known, **change)
        world = derive(replace(world, engines={worlds.cid(known.id): Reading.known(engine, worlds.NOW_S, "http")}))
        assert text in said(capacity.panel, world, width=77)

    def test_an_error_is_no_zero(self) -> None:
        text = said(capacity.panel, worlds.stale(), width=77)
        assert "ERROR 127.0.0.1:9132: connection reset" in text
        assert "n/a" in text

    def test_it_shows_what_an_operation_is_at_work_on(self) -> None:
        """The stopped incumbent lies under the cursor, or still drains; the candidate is what matters now."""
        for world in (worlds.promoting(), beside(worlds.promoting())):
            view = replace(VIEW, serve=worlds.cid(worlds.INCUMBENT))
            assert capacity.panel(world, view, 57, 11).title == "KV capacity  glm53-393k-c1"
        picked = replace(view, picked=frozenset({"serve"}))
        assert capacity.panel(world, picked, 57, 11).title == "KV capacity  glm53-524k-k5-xgfix"
        assert capacity.panel(worlds.promoting(), picked, 57, 11).title == "KV capacity  glm53-393k-c1"

    def test_an_engine_that_loads_says_so(self) -> None:
        text = said(capacity.panel, loading(detail=LoadPhase("weights", 41, 96)))
        assert "loading: weights 41/96 (43 %)" in text

    def test_nothing_runs(self) -> None:
        assert "unknown: containers were not read" in said(capacity.panel, worlds.empty())
        read = replace(worlds.empty(), containers=Reading.known((), worlds.NOW_S, "docker"))
        assert "n/a: no engine runs" in said(capacity.panel, read)


class TestServes:
    def test_four_lights_and_place(self) -> None:
        text = said(serves.panel, worlds.calm(), width=77)
        assert "serving  ●    ●    ●    ●       2  incumbent" in text
        assert "rollback of primary: ready ✔" in text

    def test_a_stall_is_one_bad_light_of_four(self) -> None:
        world = worlds.calm()
        world = derive(replace(world, trails={worlds.cid(worlds.CANDIDATE): worlds.trail(worlds.NOW_S - 300)}))
        text = said(serves.panel, world)
        assert "FAILED   ●    ●    ●    ✖" in text
        assert "no token progress" in text

    def test_rollback_that_is_not_ready_says_what_is_missing(self) -> None:
        world = derive(replace(worlds.calm(), images=dict.fromkeys(worlds.calm().images)))
        assert "rollback of primary: not ready: image: the image" in said(serves.panel, world, width=97)

    def test_a_rollback_that_was_not_looked_at_yet_is_not_called_not_ready(self) -> None:
        world = derive(replace(worlds.calm(), proofs={}))
        text = said(serves.panel, world, width=97)
        assert "rollback of primary: not known: weights: not looked at yet" in text and "not ready" not in text

    def test_foreign_says_what_it_holds(self) -> None:
        text = said(serves.panel, worlds.with_containers(worlds.calm(), worlds.alien(name="stray[/x]")))
        assert "stray[/x]" in text and "was given all GPUs (environment)" in text

    def test_long_and_wide_names_leave_the_columns_alone(self) -> None:
        """O-98"""
        long = "glm53-flash-exl3-k3-dflash2-k5-fp8-tp2-524k-vision-xgfix-and-then-some-more-text"
        aliens = (worlds.alien(1, long), worlds.alien(2, "模型-超长-名字-双卡-长上下文-视觉-模型-超长-名字"))
        panel = serves.panel(worlds.with_containers(worlds.calm(), *aliens), VIEW, 77, 20)
        rows = [r for r in panel.rows if line(r).rstrip().endswith("foreign")]
        assert len(rows) == 2
        assert {width_of(r) for r in rows} == {77}
        assert all(line(r).endswith("  foreign  ") and "…" in line(r) for r in rows)

    def test_filter_shows_itself_and_never_hides_trouble(self) -> None:
        view = replace(VIEW, filters=(("serves", "zzz"),))
        panel = serves.panel(worlds.calm(), view, 57, 11)
        assert panel.title == 'Serves filter "zzz" 0/2'
        assert "esc clears it" in words(panel)
        assert "glm53-393k-c1" in said(serves.panel, worlds.degraded(), view)

    def test_an_unreadable_daemon_is_told_once_and_whole(self) -> None:
        panel = serves.panel(worlds.stale(), VIEW, 77, 11)
        text = "\n".join(line(r) for r in panel.rows)
        assert text.count("no answer (after 5.0 s)") == 1
        assert "last seen running" in text and "last seen exited" in text

    def test_unreadable_daemon_is_not_an_empty_box(self) -> None:
        world = replace(worlds.empty(), containers=Reading.error("no socket", worlds.NOW_S, "docker"))
        assert "what runs is unknown" in said(serves.panel, world)
        read = replace(worlds.empty(), containers=Reading.known((), worlds.NOW_S, "docker"))
        assert "No serve yet" in said(serves.panel, read)


class TestGates:
    def test_running_gate_shows_k_of_n(self) -> None:
        text = said(gates.panel, worlds.promoting())
        assert text.startswith("Gates 6/10  promote glm53-393k-c1")
        assert "▶ tools               running      13/20  ━━" in text
        assert "pending" in text

    @pytest.mark.parametrize(
        "verdict", ["passed", "failed", "errored", "unrunnable", "unsupported", "unverified", "cancelled"]
    )
    def test_each_verdict_is_a_word(self, verdict: str) -> None:
        world = worlds.promoting()
        done = world.operations[1]
        gate = replace(done.gates[0], verdict=verdict, reason="because")
        world = replace(world, operations=(replace(done, gates=(gate,)),))
        text = said(gates.panel, world, width=77)
        assert f" {verdict} " in text and "because" in text
        assert (f"1 {verdict}" in text) == (verdict != "passed")

    def test_a_gate_of_an_ended_operation_is_not_still_to_come(self) -> None:
        world = worlds.promoting()
        undone = replace(world.operations[1], outcome="undone", decision="undo")
        text = said(gates.panel, replace(world, operations=(undone,)), width=77)
        assert "pending" not in text and "running" not in text
        assert text.count("not run") == 3 and text.count("broken off") == 1

    def test_none_yet(self) -> None:
        assert "No qualification yet" in said(gates.panel, worlds.empty())


class TestEvents:
    def test_running_operation_stands_first_with_time_and_limit(self) -> None:
        rows = operations.events_panel(worlds.promoting(), VIEW, 117, 6).rows
        assert "step 7/10 run the gates of suite promotion" in line(rows[0])
        assert "1 min 42 s of at most 1 h 00 min" in line(rows[0])

    def test_a_load_tells_its_phase_and_the_usual_time(self) -> None:
        before = (took(200, "glm53-393k-c1 to primary"), took(260, "glm53-393k-c1 to primary"),
                  took(9, "glm53-245k-c1 to primary"))  # fmt: skip
        world = loading(*before, detail=LoadPhase("weights", 41, 96))
        rows = operations.events_panel(world, VIEW, 117, 6).rows
        assert "1 min 42 s, usually 3 min 50 s, at most 30 min 00 s" in line(rows[0])
        assert "glm53-393k-c1: weights 41/96 (43 %)" in line(rows[1])

    def test_a_usual_time_that_nobody_measured_stays_unsaid(self) -> None:
        world = loading(took(9, "glm53-245k-c1 to primary"))
        assert "usually" not in said(operations.events_panel, world, width=117)
        assert "1 min 42 s of at most 30 min 00 s" in said(operations.events_panel, world, width=117)

    def test_interrupted_says_what_can_be_done(self) -> None:
        text = said(operations.events_panel, worlds.interrupted(), width=117)
        assert "INTERRUPTED" in text and "r resume · z undo" in text

    def test_newest_event_first_and_foreign_text_literal(self) -> None:
        event = Event(worlds.at(1), "engine", "[/b] \x1b[31mboom\x1b[0m", "bad")
        world = replace(worlds.calm(), events=(*worlds.EVENTS, event))
        text = said(operations.events_panel, world, width=117).splitlines()
        assert "[/b] boom" in text[1]

    def test_a_halt_stays_until_the_next_operation(self) -> None:
        world = worlds.calm()
        halted = replace(world.operations[-1], outcome="halted", why="undo failed at stop-new")
        text = said(operations.events_panel, replace(world, operations=(halted,)), width=117)
        assert "HALTED undo failed at stop-new" in text


class TestTiny:
    def test_one_line_for_each_serve_and_gpu(self) -> None:
        panel = tiny.panel(worlds.calm(), VIEW, 37, 9)
        assert [line(r).split()[0] for r in panel.rows] == ["●", "glm53-524k-k5-xgfix", "compute-a", "compute-b"]
        assert all(r.key for r in panel.rows)

    def test_lost_is_a_word_here_too(self) -> None:
        assert "LOST" in said(tiny.panel, worlds.degraded(), width=37)
