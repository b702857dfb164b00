"""Gates with charts, comparisons, evidence: what the console says of what was measured, and what it does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest
from rich.cells import cell_len

from anvil_tui.core.capacity import Proven
from anvil_tui.core.compare import compare, rows_compared
from anvil_tui.core.gates import Observation
from anvil_tui.core.lane_rules import BUSY
from anvil_tui.core.matching import Arm
from anvil_tui.core.shelf import Compared, RunFiles, Shelf, Verified
from anvil_tui.core.verify import Checked
from anvil_tui.core.world import World
from anvil_tui.ui import glyphs
from anvil_tui.ui.presenters import (
    capacity,
    charts,
    evidence,
    gate_table,
    header,
    lifecycle,
    operations,
)
from anvil_tui.ui.presenters import (
    compare as comparing,
)
from anvil_tui.ui.presenters.cells import Panel, Row, View
from tests.support import measured, worlds

VIEW = View(zone=UTC)


def line(row: Row) -> str:
    return "".join(c.text for c in row.cells)


def words(panel: Panel) -> str:
    return "\n".join([panel.title, *(line(r) for r in panel.rows)])


def flat(panel: Panel) -> str:
    """Without line breaks and columns."""
    return " ".join(words(panel).split())


def with_run(gate: str, **more: str) -> View:
    return replace(VIEW, gate=gate, shelf=Shelf(run=measured.run_files(**more)))


def row_of(panel: Panel, gate: str) -> str:
    return " ".join(line(next(r for r in panel.rows if r.key == gate)).split())


class TestTable:
    def test_one_line_says_verdict_count_tokens_time_usual_and_reason(self) -> None:
        table = gate_table.table(measured.measured(), with_run("depth"), 117, 12)
        assert row_of(table, "depth") == "✔ depth passed 1/1 262,149 6 min 53 s 6 min 38 s 5 rows, to 262,144"
        assert row_of(table, "ladder") == "✖ ladder failed 0/1 4,100 44 s 41 s C4: 1 of 8 requests failed"
        assert row_of(table, "smoke").startswith("✔ smoke passed 3/3 31 2.4 s 2.2 s")

    def test_a_running_lane_counts_its_time_and_its_deepest_row(self) -> None:
        table = gate_table.table(measured.measuring(3), VIEW, 117, 12)
        assert row_of(table, "depth") == "▶ depth running 15/25 65,541 2 min 10 s 6 min 38 s"
        assert row_of(table, "ladder") == "· ladder pending 41 s"

    def test_unknown_tokens_are_neither_zero_nor_nothing_to_count(self) -> None:
        """O-88: n/a for a gate that ended and cannot tell, a dash for one that sends nothing."""
        world = worlds.promoting()
        table = gate_table.table(world, VIEW, 117, 12)
        assert " n/a " in row_of(table, "smoke") + " "
        assert f"passed 1/1 {glyphs.DASH} 0.1 s" in row_of(table, "reserve-idle")

    def test_paused_is_a_word_of_its_own(self) -> None:
        table = gate_table.table(measured.measuring(3, paused=True), VIEW, 117, 12)
        assert "PAUSED" in table.title
        assert row_of(table, "depth").startswith("◐ depth paused 15/25")

    @pytest.mark.parametrize("width", [37, 57, 69, 70, 77, 117, 197])
    def test_it_fits(self, width: int) -> None:
        for world in (measured.measuring(), measured.measured(), worlds.calm(), worlds.empty()):
            for panel in (
                gate_table.table(world, with_run("depth"), width, 12),
                gate_table.detail(world, with_run("ladder"), width, 24),
                comparing.list_panel(measured.shelf_of_bundles(), VIEW, width, 10),
                comparing.panel(world, replace(VIEW, shelf=Shelf(compared=measured.compared())), width, 20),
            ):
                wide = [line(r) for r in panel.rows if cell_len(line(r)) > width]
                assert wide == [], wide[:1]


class TestGate:
    def test_charts_stand_there_while_the_lane_runs(self) -> None:
        text = words(gate_table.detail(measured.measuring(3), replace(VIEW, gate="depth"), 117, 24))
        assert "decode, tok/s a stream" in text and "TTFT any, s (log)" in text
        assert "4,099" in text and "16.4K" in text and "65.5K" in text
        assert text.count("●") == 3 + 3 + 2, "three points in each chart, and one in each legend"
        assert "Rows 3" in text

    def test_one_row_is_no_line(self) -> None:
        text = flat(gate_table.detail(measured.measuring(1), replace(VIEW, gate="depth"), 117, 24))
        assert "A chart needs rows at two places" in text and "Rows 1" in text

    def test_no_row_yet_is_said(self) -> None:
        text = flat(gate_table.detail(measured.measuring(0), replace(VIEW, gate="depth"), 117, 24))
        assert "No row is complete yet." in text and "Rows" not in text

    def test_a_row_has_every_figure_with_its_unit(self) -> None:
        text = flat(gate_table.detail(measured.measured(), with_run("depth"), 117, 24))
        assert "131,075 C1 cold 5/5 17 s 17 s 71 t/s 49.7 t/s forced 0.3 / 1.2 ms" in text

    def test_invalid_times_and_notes_are_told_with_their_row(self) -> None:
        """O-60: a row measured by a client that was late is not shown as if it were good."""
        text = flat(gate_table.detail(measured.measured(), with_run("ladder"), 117, 24))
        assert text.count("INVALID, its times must not be used: event-loop lag p99 7.1 ms") == 3
        assert BUSY in text and "No chart: rows whose times must not be used are not drawn." in text
        assert "a request waited in the engine's queue" in text
        assert "4,096 C4 cache n/a 7/8 1.6 s n/a" in text, "unknown cache, one failed, no visible TTFT"

    def test_streams_are_the_axis_when_only_they_vary(self) -> None:
        lines, deep = charts.series_of([measured.ladder_row(n) for n in (1, 2, 4)])
        assert (list(lines), deep) == (["4,096 tokens"], False)
        mixed = [measured.depth_row(n, streams=s) for n in range(2) for s in (1, 4)]
        assert [list(charts.series_of(mixed)[0]), charts.series_of(mixed)[1]] == [["C1", "C4"], True]

    def test_shared_and_unique_prompts_are_two_lines(self) -> None:
        rows = [measured.depth_row(n, cache=c) for n in range(2) for c in ("cold", "shared")]
        assert list(charts.series_of(rows)[0]) == ["C1 cold", "C1 shared"]

    def test_the_rule_is_the_one_it_was_judged_by(self) -> None:
        text = flat(gate_table.detail(measured.measured(), with_run("depth"), 117, 24))
        assert "Rule suite performance, as it judged this run" in text
        assert "decode_at_least_tok_s 40" in text and "timeout 1,800 s" in text
        smoke = flat(gate_table.detail(measured.measured(), with_run("smoke"), 117, 24))
        assert "passes with 3 of 3" in smoke and "visible_tokens 2,048 (the recipe's)" in smoke

    def test_of_a_run_that_goes_on_it_is_what_the_file_says_now(self) -> None:
        run = RunFiles(measured.OPERATION, suite={"id": "performance", "gates": list(measured.GATES)})
        view = replace(VIEW, gate="depth", shelf=Shelf(run=run))
        text = flat(gate_table.detail(measured.measuring(), view, 117, 24))
        assert "as its file says now" in text and "They are read when the gate has ended." in text
        unread = flat(gate_table.detail(measured.measuring(), replace(VIEW, gate="depth"), 117, 24))
        assert "Rule not read yet" in unread
        none = replace(VIEW, gate="depth", shelf=Shelf(run=RunFiles(measured.OPERATION)))
        kept = flat(gate_table.detail(measured.measuring(), none, 117, 24))
        assert "not known: the suite was not kept" in kept

    def test_what_an_earlier_process_left_is_not_taken_for_a_gate_that_runs(self) -> None:
        text = flat(gate_table.detail(measured.measuring(2), with_run("depth"), 117, 24))
        assert "Rows 2" in text and "262.1K" not in text

    def test_what_the_model_said_is_drawn_as_it_is_and_harmless(self) -> None:
        """O-95: excerpts are foreign text."""
        excerpt = "[bold]no[/bold]\x1b[2J\u202e gone \x07"
        text = words(gate_table.detail(measured.measured(), with_run("smoke", excerpt=excerpt), 117, 24))
        assert "[bold]no[/bold]" in text
        assert not any(ch in text for ch in "\x1b\x07\u202e")
        assert text.index("✖   2") < text.index("✔   1"), "what failed stands first"
        assert "failure classes: check_failed" in text

    def test_many_observations_are_counted_not_drawn(self) -> None:
        run = measured.run_files()
        bundle = run.bundles[0]
        many = tuple(Observation(n, True, prompt_tokens=5) for n in range(1, 200))
        smoke = replace(bundle.results[0], observations=many)
        run = replace(run, bundles=(replace(bundle, results=(smoke, *bundle.results[1:])),))
        text = flat(
            gate_table.detail(measured.measured(), replace(VIEW, gate="smoke", shelf=Shelf(run=run)), 117, 24)
        )
        assert "Observations 199" in text and "and 169 more in the bundle" in text


class TestPaused:
    def test_header_strip_and_operations_say_so(self) -> None:
        world = measured.measuring(paused=True)
        assert "lease sekou:4300 PAUSED" in line(header.header(world, VIEW, 120))
        first, second = lifecycle.strip(world, VIEW, 120, lambda verb: None)
        assert "qualify PAUSED" in line(first) and "r resume or c cancel" in line(second)
        assert "PAUSED: its gates wait, the lease is held" in words(operations.events_panel(world, VIEW, 117, 10))
        text = words(operations.detail_panel(world, replace(VIEW, operation=measured.OPERATION), 77, 40))
        assert "◐ PAUSED" in text and "r lets them go on" in text and "broken off" not in text
        assert "PAUSED" not in line(header.header(measured.measuring(), VIEW, 120))
        assert "lease PAUSED" in line(header.header(world, VIEW, 80)), "its holder's name gives way first"


@pytest.mark.parametrize("width", [57, 77])
def test_every_measured_concurrency_stands_in_the_kv_pane(width: int) -> None:
    """Configured, resident, measured, each with what it was measured at; what does not fit goes on below."""
    made = tuple(
        Proven(n, tokens, 5, "b", "2026-09-02") for n, tokens in ((1, 304_491), (2, 131_072), (4, 65_536))
    )
    digest = worlds.recipes()[worlds.CANDIDATE].digest()
    panel = capacity.panel(replace(worlds.calm(), proven={digest: made}), VIEW, width, 8)
    text = flat(panel)
    assert "windows C1 1.00 C1 at 304,491" in text
    assert "C2 at 131,072" in text and "C4 at 65,536" in text and glyphs.CUT not in text
    assert all(cell_len(line(r)) <= width for r in panel.rows)


def compared(view: Compared, width: int = 117) -> str:
    return flat(comparing.panel(worlds.calm(), replace(VIEW, shelf=Shelf(compared=view)), width, 30))


class TestCompare:
    def test_the_list_is_newest_first_and_a_damaged_bundle_is_a_row(self) -> None:
        view = replace(VIEW, shelf=Shelf(arms={measured.BUNDLE: "B"}))
        panel = comparing.list_panel(measured.shelf_of_bundles(), view, 117, 10)
        lines = [" ".join(line(r).split()) for r in panel.rows]
        assert lines[0].startswith("B 2026-09-02 11:50 glm53-393k-c1 performance")
        assert lines[1].startswith("2026-09-01 10:00")
        assert lines[2].endswith("no verdict record"), "a historical record says that it is one"
        assert lines[3].startswith("✖ 20260902-0900-qualify/cccccccccccc results.json: line 1 is no JSON document")

    def test_a_filter_narrows_it(self) -> None:
        view = replace(VIEW, filters=(("bundles", "524k"),))
        panel = comparing.list_panel(measured.shelf_of_bundles(), view, 117, 10)
        assert panel.title == 'Bundles filter "524k" 2/4'

    def test_a_difference_comes_with_all_that_it_rests_on(self) -> None:
        text = compared(measured.compared())
        assert "✔ matched · varies image · primary metric decode, band 3 %" in text
        assert "varies image: A x@sha256:0, B x@sha256:1 (the variable under test)" in text
        assert "warning measured on different days, 2026-09-01 to 2026-09-02" in text
        assert "↑ better decode" not in text, "the title names the primary metric once"
        assert "↑ better depth C1 4,096 unique +25.0 % [+25.0, +25.0]" in text
        assert "A 83.2 (81.5 to 84.9), B 104 (102 to 106) tok/s; n 5, runs 1+1, band 3 %, A/A not measured" in text
        assert "between-run variance not measured" in text
        assert "? undecided ttft depth C1 4,096 unique +0.0 %" in text
        assert "depth, both arms" in text and "● A ○ B" in text

    def test_unmatched_arms_show_why_and_no_difference(self) -> None:
        """O-64: nothing is told of arms that were measured under other conditions."""
        text = compared(measured.compared(harness="anvil-tui 2"))
        assert "✖ refused" in text and "REFUSED harness: A anvil-tui 1, B anvil-tui 2 (must be the same)" in text
        assert "+25.0" not in text and "better" not in text and "both arms" not in text

    def test_what_one_arm_alone_is_refused_for_says_nothing_of_the_other(self) -> None:
        old, new = measured.arms()
        rows = new.results[0].rows
        late = replace(rows[0], instrument=replace(measured.GOOD, invalid="looked 7.1 ms late"))
        bad = replace(new, results=(replace(new.results[0], rows=(late, *rows[1:])),))
        a, b = Arm("A", (old,)), Arm("B", (bad,))
        text = compared(Compared(found := compare(a, b), rows_compared([found], [a, b])))
        assert "REFUSED depth C1 4,096 unique, instrument: B invalid (arm B: looked 7.1 ms late)" in text
        assert "better depth C1 16,384 unique" in text, "the other lanes are compared"
        assert "better depth C1 4,096 unique" not in text

    def test_what_else_differs_takes_the_verdict_from_the_variable(self) -> None:
        text = compared(measured.compared(driver="590"))
        assert "▲ confounded" in text and "driver differ too" in text
        assert "confounds driver: A 580, B 590" in text

    def test_three_runs_an_arm_show_the_noise_floor(self) -> None:
        old, new = measured.arms()
        runs = {
            name: tuple(replace(b, id=f"{name}{n}", at=f"2026-09-02T1{n}:{k}0:00+00:00") for n in range(3))
            for k, (name, b) in enumerate((("A", old), ("B", new)))
        }
        a, b = Arm("A", runs["A"]), Arm("B", runs["B"])
        text = compared(Compared(found := compare(a, b), rows_compared([found], [a, b])))
        assert "runs 3+3" in text and "A/A within 0.0 %" in text and "arm B 3 runs: B0, B1, B2" in text

    def test_before_there_is_one_it_says_what_to_do_or_what_went_wrong(self) -> None:
        assert "Put at least one bundle in arm A and one in arm B" in flat(
            comparing.panel(worlds.calm(), VIEW, 117, 9)
        )
        waits = replace(VIEW, shelf=Shelf(arms={"a": "A", "b": "B"}, comparing=True))
        assert "Reading, checking and comparing" in flat(comparing.panel(worlds.calm(), waits, 117, 9))
        assert "✖ evidence/x: y cannot be compared" in compared(Compared(error="evidence/x: y cannot be compared"))

    def test_arms_turn_and_forget_what_was_compared_before(self) -> None:
        shelf = Shelf(compared=measured.compared()).cycled("x")
        assert (shelf.arms, shelf.compared, shelf.comparing) == ({"x": "A"}, None, False)
        both = shelf.cycled("y").cycled("y")
        assert (both.arms, both.comparing) == ({"x": "A", "y": "B"}, True)
        assert both.cycled("y").arms == {"x": "A"}


class TestEvidence:
    def text(self, world: World, shelf: Shelf) -> str:
        view = replace(VIEW, operation=measured.OPERATION, shelf=shelf)
        return flat(operations.detail_panel(world, view, 77, 60))

    def test_files_and_whether_they_were_checked(self) -> None:
        run = measured.run_files()
        text = self.text(measured.measured(), Shelf(run=run))
        assert f"bundle {measured.BUNDLE} not passed" in text and "not checked here: v checks it" in text
        assert f"{measured.SERVE}-results.json sha256 0123456789abcdef" in text
        good = Verified("2026-09-02T11:54:00+00:00", Checked((), ("no journal names this bundle",)))
        text = self.text(measured.measured(), Shelf(run=run, verified={measured.BUNDLE: good}))
        assert "✔ sound, checked 11:54:00" in text and "not proven: no journal names this bundle" in text
        bad = Verified(good.at, Checked(("results.json: is cut off",)))
        text = self.text(measured.measured(), Shelf(run=run, verified={measured.BUNDLE: bad}))
        assert "✖ NOT SOUND, checked 11:54:00: results.json: is cut off" in text

    def test_none_unread_and_damaged_are_three_things(self) -> None:
        assert "Evidence not read yet" in self.text(measured.measured(), Shelf())
        assert "it left no bundle" in self.text(measured.measured(), Shelf(run=RunFiles(measured.OPERATION)))
        broken = RunFiles(measured.OPERATION, broken={"o/s": "results.json: line 1 is no JSON document"})
        assert "✖ o/s cannot be read: results.json" in self.text(measured.measured(), Shelf(run=broken))
        running = Shelf(run=RunFiles(measured.OPERATION))
        assert "its bundle is written when its gates have ended" in self.text(measured.measuring(), running)
        assert evidence.rows(replace(worlds.promoted(), gates=()), VIEW, 77) == []
