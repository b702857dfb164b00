"""What two recipes differ in, field by field, and what is highlighted of it."""

from __future__ import annotations

from dataclasses import replace

from anvil_tui.core.recipe import Recipe
from anvil_tui.ui.presenters import recipe_diff, recipes
from anvil_tui.ui.presenters.cells import Panel, View
from tests.support import worlds


def recipe(name: str = worlds.CANDIDATE) -> Recipe:
    return worlds.recipes()[name]


def text(panel: Panel) -> list[str]:
    return ["".join(c.text for c in r.cells).rstrip() for r in panel.rows]


def changed(**launch: object) -> Recipe:
    a = recipe()
    return a.model_copy(update={"launch": a.launch.model_copy(update=launch)})


def test_a_recipe_does_not_differ_from_itself() -> None:
    panel = recipe_diff.panel(worlds.calm(), recipe(), recipe(), 60)
    assert panel.title.startswith("0 of ")
    assert "Every field that says how they run is the same." in text(panel)


def test_one_changed_flag_is_one_field_and_its_value_is_highlighted() -> None:
    a = changed(argv=("serve", "--tp", "2", "--kv-cache-dtype=fp8_e4m3", "--x"))
    b = changed(argv=("serve", "--tp", "4", "--kv-cache-dtype=fp8_e5m2", "--x", "--y"))
    panel = recipe_diff.panel(worlds.calm(), a, b, 60)
    assert panel.title.startswith("3 of ")
    told = text(panel)
    at = told.index("launch.argv --tp")
    assert told[at + 1 : at + 3] == ["  A 2", "  B 4"]
    at = told.index("launch.argv --y")
    assert told[at + 1 : at + 3] == ["  A – not set", "  B given"]
    dtype = next(r for r in panel.rows if any("fp8_" in c.text for c in r.cells))
    assert [(c.text, c.tone) for c in dtype.cells[1:]] == [("fp8_", "text"), ("e4m3", "mark")]


def test_a_switch_is_a_word_and_an_empty_text_is_not_set() -> None:
    a = recipe()
    b = a.model_copy(update={"exclusive": not a.exclusive, "control": "" if a.control else "other"})
    told = text(recipe_diff.panel(worlds.calm(), a, b, 60))
    at = told.index("exclusive")
    assert {told[at + 1], told[at + 2]} == {"  A yes", "  B no"}
    assert any(line.endswith("– not set") for line in told[told.index("control") :][:3])


def test_what_stands_before_a_flag_and_a_flag_that_comes_twice() -> None:
    found = recipe_diff.fields(changed(argv=("serve", "m", "--lora", "a", "--lora", "b c")))
    told = {k.removeprefix("launch."): v for k, v in found.items() if k.startswith("launch.argv")}
    assert told == {"argv": "serve m", "argv --lora": "a", "argv --lora (2)": "b c"}


def test_a_key_in_a_flag_is_not_shown() -> None:
    found = recipe_diff.fields(changed(argv=("serve", "--api-key", "0123456789abcdef")))
    assert found["launch.argv --api-key"] == "***"


def test_shipped_recipes_differ_where_their_files_do() -> None:
    a, b = recipe(worlds.CANDIDATE), recipe(worlds.INCUMBENT)
    told = text(recipe_diff.panel(worlds.calm(), a, b, 60))
    at = told.index("envelope.context_tokens")
    assert told[at + 1 : at + 3] == [f"  A {a.envelope.context_tokens:,}", f"  B {b.envelope.context_tokens:,}"]
    assert any(line.startswith("feasibility here") for line in told)


def test_nothing_is_cut_and_brackets_are_text() -> None:
    long = "[/x] " + "y" * 300
    panel = recipe_diff.panel(worlds.calm(), changed(argv=("--a", long)), changed(argv=("--a", "z")), 40)
    assert max(len(t) for t in text(panel)) <= 40
    assert sum(t.count("y") for t in text(panel)[text(panel).index("launch.argv --a") :]) >= 300


def test_marks_are_two_and_the_older_gives_way() -> None:
    view = View()
    for name in ("a", "b", "c"):
        view = recipes.marking(replace(view, recipe=name))
    assert view.marked == ("b", "c")
    assert recipes.marking(view).marked == ("b",)


def test_the_list_shows_the_letters_and_the_pane_beside_it_the_difference() -> None:
    view = View(recipe=worlds.FALLBACK, marked=(worlds.CANDIDATE, worlds.INCUMBENT))
    rows = {r.key: "".join(c.text for c in r.cells) for r in recipes.list_panel(worlds.calm(), view, 97, 20).rows}
    assert f"A {worlds.CANDIDATE}" in rows[worlds.CANDIDATE] and f"B {worlds.INCUMBENT}" in rows[worlds.INCUMBENT]
    assert "fields differ" in recipes.beside_panel(worlds.calm(), view, 60, 20).title
    one = replace(view, marked=(worlds.CANDIDATE, "gone"))
    assert recipes.beside_panel(worlds.calm(), one, 60, 20).title == worlds.FALLBACK
