"""anvil.toml, recipes and suites from disk: every error has file, line, key and help; init overwrites nothing."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from anvil_tui.adapters.toml_files import (
    load_recipe,
    load_recipes,
    load_suite,
    load_suites,
    load_workspace,
    write_workspace,
)
from anvil_tui.adapters.toml_lines import find_places, key_text, parse_key
from anvil_tui.core.errors import BadFile
from tests.support.workspace import WORKSPACE, box

IMAGE = "registry.invalid/engine@sha256:" + "a" * 64
RECIPE = f"""\
schema = "anvil.recipe/1"
id = "one"
family = "f"
engine = "llamacpp"
served_name = "one"
exclusive = false
rollback = "none: first"
[image]
ref = "{IMAGE}"
[model]
repo = "r"
path = "/models/m.gguf"
[launch]
argv = ["-m", "{{model}}", "--port", "{{port}}"]
[envelope]
context_tokens = 8192
max_output_tokens = 512
concurrency = 2
"""
SUITE = 'schema = "anvil.suite/1"\nid = "s"\n[[gates]]\nid = "a"\nkind = "smoke"\n'


def recipe(folder: Path, text: str = RECIPE, name: str = "one") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def refusal(text: str, folder: Path) -> BadFile:
    box(folder, text)
    with pytest.raises(BadFile) as error:
        load_workspace(folder)
    return error.value


def test_the_good_ones_load(tmp_path: Path) -> None:
    box(tmp_path)
    assert load_workspace(tmp_path).roles[0].slots[1].port == 8002
    assert load_recipe(recipe(tmp_path)).envelope.context_tokens == 8192


# toml-parse


@pytest.mark.parametrize("text", [WORKSPACE, WORKSPACE.replace("\n", "\r\n")])
def test_bom_and_crlf_are_fine(tmp_path: Path, text: str) -> None:
    """O-81, hukkin/tomli#304."""
    box(tmp_path, b"\xef\xbb\xbf" + text.encode())
    assert load_workspace(tmp_path).box.name == "b"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ('dir = "C:\\Users\\op\\hf"', "use single quotes or double the backslashes"),
        ('dir = "\\\\srv\\share"', "use single quotes or double the backslashes"),
        ('dir = "D:\\temp\\new"', "use single quotes or double the backslashes"),
        ('dir = "models\\new"', "use single quotes or double the backslashes"),
        ('binary = "E:\\build\\found"', "use single quotes or double the backslashes"),
        ('dir = "C:/models\\temp"', "use single quotes or double the backslashes"),
        ('dir = """C:\\Users\\op"""', "use single quotes or double the backslashes"),
        ('dir = """D:\\temp"""', "use single quotes or double the backslashes"),
    ],
)
def test_a_windows_path_in_double_quotes_is_caught(tmp_path: Path, value: str, says: str) -> None:
    """O-82: what does not parse, and what parses into another string."""
    error = refusal(WORKSPACE.replace("[gateway]", f"[gateway]\n{value}"), tmp_path)
    assert error.line == 6
    assert says in str(error)


def test_the_parse_error_names_line_and_column(tmp_path: Path) -> None:
    """O-82: the backslash of `\\U` stands in column 14, where the parser stops."""
    error = refusal('cache = "C:\\Users\\op\\hf"\n', tmp_path)
    assert error.line == 1 and "(column 1" in str(error)


@pytest.mark.parametrize(
    "value",
    [r"--cache=D:\temp", r"D:\temp", r"C:/models\temp", r"C:\\ok\new", r"\\\\srv\new", r"--dir=\\\\srv\share\new"],
)
def test_a_windows_path_in_arguments_and_variables_is_caught_too(tmp_path: Path, value: str) -> None:
    """O-82, the silent variant, where any text is allowed."""
    path = recipe(tmp_path, RECIPE.replace('"-m",', f'"{value}",\n"-m",'))
    with pytest.raises(BadFile, match=r"one.toml:14: (launch.argv\[0\]|not TOML): .*single quotes"):
        load_recipe(path)
    recipe(tmp_path, RECIPE.replace("[envelope]", f'[launch.env]\nHF_HOME = "{value}"\n[envelope]'))
    with pytest.raises(BadFile, match=r"one.toml:16: (launch.env.HF_HOME|not TOML): .*single quotes"):
        load_recipe(path)


def test_a_mount_with_a_windows_path_is_never_made(tmp_path: Path) -> None:
    """O-82: the recipe is refused, so there is nothing that could be mounted."""
    mounts = RECIPE.replace("[envelope]", '[[launch.mounts]]\nsource = "models\\temp"\ntarget = "/m"\n[envelope]')
    with pytest.raises(
        BadFile, match=r"one.toml:16: launch.mounts\[0\].source: .*control characters.*single quotes"
    ):
        load_recipe(recipe(tmp_path, mounts))


def test_literal_and_doubled_backslashes_are_paths(tmp_path: Path) -> None:
    """O-82."""
    box(tmp_path, WORKSPACE.replace("[gateway]", "[gateway]\ndir = 'C:\\Users\\op'\nbinary = \"C:\\\\new\""))
    made = load_workspace(tmp_path).gateway
    assert (made.dir, made.binary) == ("C:\\Users\\op", "C:\\new")


def test_ordinary_escapes_in_arguments_are_left_alone(tmp_path: Path) -> None:
    texts = ["a\nb", "say: a\nb", '{"a": 1,\n"b": 2}', "http://x/y\n", "{% if a: %}\n{% endif %}", "k: v\n"]
    written = ", ".join(json.dumps(t) for t in texts)
    made = load_recipe(recipe(tmp_path, RECIPE.replace('"-m",', f'"--stop", {written}, "-m",')))
    assert list(made.launch.argv[1:7]) == texts


@pytest.mark.parametrize(
    ("raw", "line", "says"),
    [
        (b"# ok\na = 1 # x\r y\n", 2, "lone carriage return"),
        (b"a = 1\rb = 2\r", 1, "lone carriage return"),
        (b"a = 1\nb = '\xff'\n", 2, "not UTF-8: byte 0xff"),
        (b"a = 1\nb = \n", 2, "not TOML"),
        (b"a = 1\na = 2\n", 2, "not TOML"),
        (b"a = [1,\n2\n", 2, "not TOML"),
        (b"[a]\n[a]\n", 2, "not TOML"),
        (b"", 1, "schema"),
        (b'schema = "anvil.workspace/2"\nx = 1\n', 1, "must be \"anvil.workspace/1\", not 'anvil.workspace/2'"),
    ],
)
def test_what_is_no_file_of_ours_names_its_line(tmp_path: Path, raw: bytes, line: int, says: str) -> None:
    """O-83 among them: a lone CR, also as the only line end there is."""
    path = box(tmp_path, raw)
    with pytest.raises(BadFile) as error:
        load_workspace(tmp_path)
    assert (error.value.line, error.value.path) == (line, str(path))
    assert says in str(error.value)
    assert path.read_bytes() == raw


def test_absent_huge_and_odd_files(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="anvil-tui init"):
        load_workspace(tmp_path)
    (tmp_path / "d.toml").mkdir()
    os.mkfifo(tmp_path / "p.toml")
    (tmp_path / "h.toml").write_bytes(b"#" * (1024 * 1024 + 1))
    (tmp_path / "n.toml").write_text("a = " + "[" * 5000 + "]" * 5000)
    errors = {Path(r.path).stem: r.error for r in load_recipes(tmp_path)}
    assert "not a plain file" in errors["d"]
    assert "not a plain file" in errors["p"]
    assert "larger than 1048576" in errors["h"]
    assert "nested" in errors["n"]


# toml-validate


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "says"),
    [
        ("kind =", "knd =", 4, "box.knd", "nearest known key: kind"),
        ("client_keys", "cleint_keys", 6, "gateway.cleint_keys", "nearest known key: client_keys"),
        ("[box]", "hold_max_s = 9\n[box]", 2, "hold_max_s", "belongs to [gateway]"),
        ("[gateway]", "[gateway]\nport = 1", 6, "gateway.port", "belongs to [[roles.slots]]"),
        (
            "[gateway]",
            "[gateway]\non_drain_timout = 1",
            6,
            "gateway.on_drain_timout",
            "on_drain_timeout in [policies]",
        ),
        ("[gateway]", "[gatway]", 5, "gatway", "nearest known key: gateway"),
        ("[gateway]", "[gateway]\nzzzzzz = 1", 6, "gateway.zzzzzz", "known here: kind, bind"),
        ("port = 8001", 'port = "8001"', 12, "roles[0].slots[0].port", "must be an integer, not a string"),
        ("port = 8001", "port = true", 12, "roles[0].slots[0].port", "must be an integer, not a boolean"),
        ("port = 8001", "port = 8001.0", 12, "roles[0].slots[0].port", "must be an integer, not a float"),
        ("port = 8001", "port = 70000", 12, "roles[0].slots[0].port", "65535, not 70000"),
        ("port = 8001", "port = -8001", 12, "roles[0].slots[0].port", "greater than or equal to 1, not -8001"),
        ("port = 8001", "port = nan", 12, "roles[0].slots[0].port", "must be an integer, not a float"),
        ("port = 8001", "port = [8001]", 12, "roles[0].slots[0].port", "must be an integer, not an array"),
        ("port = 8001", "port = 2026-09-02", 12, "roles[0].slots[0].port", "must be an integer, not a date"),
        ("[box]", "[slots]\nport = 1\n[box]", 2, "slots", "belongs to [[roles]]"),
        (
            "[box]",
            "[gateway.policies]\ndrain_timeout_s = 3\n[box]",
            2,
            "gateway.policies",
            "belongs to the top level",
        ),
        ("[gateway]", "[gateway]\nHold-Max-S = 1", 6, "gateway.Hold-Max-S", "nearest known key: hold_max_s"),
        ("[box]", 'base_url = "http://127.0.0.1:8899"\n[box]', 2, "base_url", "unknown key"),
        ("port = 8001", "port = 0", 12, "roles[0].slots[0].port", "greater than or equal to 1, not 0"),
        ('aliases = ["llm.primary"]', 'aliases = "llm.primary"', 9, "roles[0].aliases", "an array, not a string"),
        (
            "[gateway]",
            "[policies]\nrequire_qualified = 1\n[gateway]",
            6,
            "policies.require_qualified",
            "true or false",
        ),
        ("[gateway]", "[gpus]\ninterval_s = inf\n[gateway]", 6, "gpus.interval_s", "finite"),
        ("[gateway]", "[gpus.roles]\nA = 'GPU-1'\n[gateway]", 6, "gpus.roles.A", "lower-case"),
        ("[gateway]", "[gpus.roles]\na = 'Tesla'\n[gateway]", 6, "gpus.roles.a", "a GPU UUID"),
        ('kind = "lab"', 'kind = "produktion"', 4, "box.kind", "nearest: 'production'"),
        ('kind = "lab"\n', "", 2, "box.kind", "is required and missing"),
        ('"env:KEY"', '"sk-hunter2"', 6, "gateway.client_keys[0]", "never the secret"),
        ("port = 8002", "port = 8001", 17, "roles[0].slots[1].port", "used twice"),
        ('["llm.primary"]', "[]", 9, "roles[0].aliases", "at least one name"),
    ],
)
def test_an_error_names_line_key_and_help(
    tmp_path: Path, old: str, new: str, line: int, key: str, says: str
) -> None:
    """O-84 (nearest key), O-85 (right table), O-86 (found and wanted type)."""
    assert WORKSPACE.count(old) == 1
    error = refusal(WORKSPACE.replace(old, new), tmp_path)
    found = f"anvil.toml:{line}: {key}: "
    assert any(found in row and says in row for row in str(error).splitlines()), str(error)
    assert "hunter2" not in str(error)


def test_all_errors_of_a_file_come_at_once_in_line_order(tmp_path: Path) -> None:
    text = WORKSPACE.replace('kind = "lab"', "kind = 1").replace("8001", "true").replace("8002", '"x"')
    error = refusal(text, tmp_path)
    rows = str(error).splitlines()
    assert [row.split(":")[1] for row in rows] == ["4", "12", "17"]
    assert (error.line, error.key) == (4, "box.kind")


def test_nothing_remote_is_asked_unless_it_is_written(tmp_path: Path) -> None:
    """O-85: no endpoint outside this machine stands in any default."""
    box(tmp_path)
    said = json.dumps(load_workspace(tmp_path).model_dump(mode="json", exclude={"box", "roles"}))
    hosts = re.findall(r"\w+://[^\"]*|\b\d+\.\d+\.\d+\.\d+", said)
    assert hosts and all(h.startswith(("unix://", "127.0.0.1")) for h in hosts)


def test_flags_of_the_engine_belong_into_its_arguments(tmp_path: Path) -> None:
    """O-84: the case's two keys, each with its line and where such a thing goes."""
    flags = RECIPE.replace("[launch]", "[launch]\ngpu_memory_utilisation = 0.95\nmax_modl_len = 393216")
    with pytest.raises(BadFile) as error:
        load_recipe(recipe(tmp_path, flags))
    rows = str(error.value).splitlines()
    assert [r.split(": ")[0].rsplit(":", 1)[1] for r in rows] == ["14", "15"]
    assert all("unknown key" in r and "flags of the engine go into argv" in r for r in rows)


def test_underscored_numbers_and_free_tables_pass(tmp_path: Path) -> None:
    """O-86, O-84: arguments and variables are where unknown names pass."""
    made = load_recipe(
        recipe(tmp_path, RECIPE.replace("8192", "393_216") + '[launch.env]\nANY_NAME_AT_ALL = "1"\n')
    )
    assert made.envelope.context_tokens == 393216
    assert made.launch.env == {"ANY_NAME_AT_ALL": "1"}


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "says"),
    [
        (IMAGE, "engine:latest", 9, "image.ref", "pinned by digest"),
        ('rollback = "none: first"\n', "", 1, "rollback", "is required and missing"),
        ("exclusive = false", "exclusive = 0", 6, "exclusive", "true or false, not an integer"),
        (
            "max_output_tokens = 512",
            "max_output_tokens = 9000",
            17,
            "envelope.max_output_tokens",
            "9000 is larger",
        ),
        ("context_tokens = 8192", "context_tokens = 64", 16, "envelope.context_tokens", "128, not 64"),
        ("{port}", "{prt}", 14, "launch.argv[3]", "nearest {port}"),
        ('"{port}"', '"8001"', 14, "launch.argv", "the slot decides the port"),
        ('repo = "r"', 'repo = "r"\nconcurency = 2', 12, "model.concurency", "concurrency in [envelope]"),
        ("[launch]", '[launch]\nsuite = "x"', 14, "launch.suite", "the top level, above the first [table]"),
        ('id = "one"', 'id = "two"', 2, "id", "'two' does not belong in one.toml"),
    ],
)
def test_recipe_errors(tmp_path: Path, old: str, new: str, line: int, key: str, says: str) -> None:
    assert RECIPE.count(old) == 1
    with pytest.raises(BadFile) as error:
        load_recipe(recipe(tmp_path, RECIPE.replace(old, new)))
    found = f"one.toml:{line}: {key}: "
    assert any(found in row and says in row for row in str(error.value).splitlines()), str(error.value)


def test_a_bad_recipe_is_a_row_and_the_others_load(tmp_path: Path) -> None:
    recipe(tmp_path)
    recipe(tmp_path, RECIPE.replace('"one"', '"two"').replace('"none: first"', '"one"'), "two")
    recipe(tmp_path, RECIPE, "copy")
    recipe(tmp_path, RECIPE.replace('"one"', '"lost"').replace('"none: first"', '"onee"'), "lost")
    recipe(tmp_path, RECIPE.replace('id = "one"', 'id = "ctl"\ncontrol = "nope"'), "ctl")
    recipe(tmp_path, "not toml", "junk")
    (tmp_path / ".hidden.toml").write_text("x")
    (tmp_path / "README.md").write_text("x")
    rows = {Path(r.path).stem: r for r in load_recipes(tmp_path)}
    assert list(rows) == ["copy", "ctl", "junk", "lost", "one", "two"]
    assert rows["one"].recipe is not None
    assert rows["two"].recipe is not None
    assert str(tmp_path / "copy.toml") in rows["copy"].error
    assert str(tmp_path / "one.toml") in rows["copy"].error
    assert "lost.toml:7: rollback: no recipe 'onee'" in rows["lost"].error
    assert "nearest: one" in rows["lost"].error
    assert "ctl.toml:3: control: no recipe 'nope'" in rows["ctl"].error
    assert "junk.toml:1: not TOML" in rows["junk"].error
    assert load_recipes(tmp_path / "absent") == ()


def test_suites(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SUITE)
    (tmp_path / "t.toml").write_text(SUITE.replace('"s"', '"t"') + "positions_pct = [3]\n")
    (tmp_path / "u.toml").write_text(SUITE.replace('"s"', '"u"') + '[[gates]]\nid = "a"\nkind = "jsn"\n')
    (tmp_path / "v.toml").write_text(SUITE.replace('"s"', '"v"') + '[[gates]]\nid = "a"\nkind = "json"\n')
    rows = {r.id: r for r in load_suites(tmp_path)}
    assert rows["s"].suite == load_suite(tmp_path / "s.toml")
    assert "t.toml:6: gates[0].positions_pct: does not apply to kind smoke" in rows["t"].error
    assert "u.toml:8: gates[1].kind: must be" in rows["u"].error
    assert "nearest: 'json'" in rows["u"].error
    assert "v.toml:7: gates[1].id: a is used twice" in rows["v"].error


# key places


def test_places_of_everything_toml_can_write() -> None:
    text = (
        "# c\na = 1\n\"q.x\" = '''\n[no]\n''' # hi\n[b.c]\nd = [ 1, # x\n  2,\n  {e = \"f\", g.h = [1]},\n]\n"
        '[[r]]\nn = 1\n[[r.s]]\np = "]\\"x"\n[[r.s]]\np = 1.5\n[r.t]\nz = 1979-05-27 07:32:00\n'
        "[[r]]\n[[r.s]]\np = 'y#'\n"
    )
    lines = {key_text(k): p.line for k, p in find_places(text).items()}
    want = {
        "a": 2, '"q.x"': 3, "b.c": 6, "b.c.d": 7, "b.c.d[0]": 7, "b.c.d[1]": 8, "b.c.d[2].g.h[0]": 9, "r[0]": 11,
        "r[0].n": 12, "r[0].s[0].p": 14, "r[0].s[1].p": 16, "r[0].t.z": 18, "r[1]": 19, "r[1].s[0].p": 21,
    }  # fmt: skip
    assert {k: lines[k] for k in want} == want
    for path in find_places(text):
        assert parse_key(key_text(path)) == path


# a new workspace


def test_init_makes_a_workspace_that_loads_and_is_private(tmp_path: Path) -> None:
    target = tmp_path / "new" / "box"
    written = write_workspace(target)
    assert load_workspace(target).roles[0].promotion_suite == "promotion"
    suites = load_suites(target / "gates")
    assert {s.error for s in suites} == {""}
    assert {
        "smoke",
        "functional",
        "vision",
        "capacity",
        "performance",
        "endurance",
        "promotion",
        "routed",
        "full",
    } <= {s.id for s in suites}
    assert load_recipes(target / "recipes") == ()
    assert (target / "state").stat().st_mode & 0o777 == 0o700
    key = target / "state" / "client.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_text().strip()) >= 32
    template = (target / "recipes" / "TEMPLATE.txt").read_text()
    (target / "recipes" / "my-model-8k.toml").write_text(template)
    assert [r.error for r in load_recipes(target / "recipes")] == [""]
    before = {p: p.read_bytes() for p in written}
    with pytest.raises(BadFile, match=r"already holds anvil.toml.*nothing was written"):
        write_workspace(target)
    assert {p: p.read_bytes() for p in written} == before


def test_init_overwrites_nothing_of_a_folder_in_use(tmp_path: Path) -> None:
    (tmp_path / "gates").mkdir()
    (tmp_path / "gates" / "smoke.toml").write_text("mine")
    with pytest.raises(BadFile, match=r"gates/smoke\.toml"):
        write_workspace(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gates"]
    assert (tmp_path / "gates" / "smoke.toml").read_text() == "mine"
