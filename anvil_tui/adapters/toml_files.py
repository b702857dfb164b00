"""anvil.toml, recipes and suites as files: strict loading, and a rewrite of one value that keeps all other bytes.

Every error is a BadFile that names file, line, dotted key, what is wrong and the nearest known key, all errors
of a file at once. UTF-8, a BOM is accepted; CRLF is fine, a lone CR is not.
"""

from __future__ import annotations

import difflib
import re
import secrets
import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import tomlkit
from pydantic import ValidationError

from anvil_tui.adapters.files import BOM, folder_lock, revision, write_atomic
from anvil_tui.adapters.toml_errors import HINT, Problem, bad_file, control_characters, problems_of
from anvil_tui.adapters.toml_lines import KeyPath, find_places, key_text, parse_key
from anvil_tui.core.corpus import CORPUS_SCHEMA, Corpus
from anvil_tui.core.errors import BadFile, EffectFailed, Refused
from anvil_tui.core.gates import SUITE_SCHEMA, Suite, SuiteFile
from anvil_tui.core.recipe import RECIPE_SCHEMA, Recipe, Table
from anvil_tui.core.settings import SETTINGS_SCHEMA, Settings
from anvil_tui.core.workspace import WORKSPACE_SCHEMA, Workspace
from anvil_tui.core.world import RecipeFile

MAX_BYTES = 1024 * 1024
WORKSPACE_FILE = "anvil.toml"
_MODELS: dict[str, type[Table]] = {RECIPE_SCHEMA: Recipe, SUITE_SCHEMA: Suite, WORKSPACE_SCHEMA: Workspace}

Model = TypeVar("Model", bound=Table)
Value = str | int | float | bool | date | list[str] | list[int]


def load_workspace(directory: Path) -> Workspace:
    """The workspace whose anvil.toml lies in `directory`."""
    path = directory / WORKSPACE_FILE
    if not path.exists():
        raise BadFile(str(path), f"no such file; `anvil-tui init {directory}` makes a workspace")
    return _load(path, WORKSPACE_SCHEMA, Workspace)


def load_recipe(path: Path) -> Recipe:
    """One recipe; its id must be the file's stem."""
    return _load(path, RECIPE_SCHEMA, Recipe)


def load_suite(path: Path) -> Suite:
    """One suite with what it includes; its id must be the file's stem."""
    plain = _load(path, SUITE_SCHEMA, Suite)
    others = {name: path.with_name(f"{name}.toml") for name in plain.include}
    found = {name: _load(p, SUITE_SCHEMA, Suite) for name, p in others.items() if p.exists()}
    try:
        return plain.resolved(found)
    except ValueError as why:
        raise BadFile(str(path), str(why)) from why


def load_corpus(path: Path) -> Corpus:
    """The pictures of the vision gates and what is asked about them."""
    return _load(path, CORPUS_SCHEMA, Corpus)


def load_settings(path: Path, keys: Callable[[Settings], Iterable[tuple[str, str]]]) -> Settings:
    """A person's config.toml, whose `schema` may be left out; `keys` tells (action id, sentence) of bad keys."""

    def more(data: dict[str, Any]) -> list[Problem]:
        try:
            settings = Settings.model_validate(strict(data))
        except ValidationError:
            return []  # told by the load itself
        return [(("keys", action), why) for action, why in keys(settings)]

    return _load(path, SETTINGS_SCHEMA, Settings, more)


def load_recipes(directory: Path) -> tuple[RecipeFile, ...]:
    """Every `*.toml` of a recipes folder by name; a bad file is a row with its error. No folder, no rows."""
    paths = _toml_files(directory)
    stems = {p.stem for p in paths}
    return tuple(_recipe_row(p, stems) for p in paths)


def load_suites(directory: Path) -> tuple[SuiteFile, ...]:
    """Every `*.toml` of a gates folder by name; a bad file is a row with its error. No folder, no rows."""
    rows = []
    for path in _toml_files(directory):
        try:
            rows.append(SuiteFile(path.stem, load_suite(path), path=str(path)))
        except BadFile as why:
            rows.append(SuiteFile(path.stem, None, str(why), str(path)))
    return tuple(rows)


def read_revision(path: Path) -> str:
    """What `set_value` wants to know: the revision of the file as it is now."""
    return revision(_read(path))


def set_value(path: Path, dotted_key: str, value: Value, expected: str | None = None) -> str:
    """Set one value, keeping comments, order and line ends: no other byte changes, but a BOM is dropped. Returns
    the sentence that says so, "" = there was none.

    `dotted_key` is written as in error messages (`roles[0].slots[1].port`). `expected` is the revision the
    operator saw: Refused with a diff when the file is another by now. BadFile when the result would not load;
    EffectFailed when it could not be saved. Compare and replace happen under one lock.
    """
    with folder_lock(path):
        raw = _read(path)
        text = _decode(path, raw)
        key = parse_key(dotted_key)
        new = _with_value(path, text, key, value)
        if expected is not None and revision(raw) != expected:
            raise Refused(_conflict(path, revision(raw), expected, text, new))
        _check_rewrite(path, text, new)
        if new.encode() != raw:
            write_atomic(path, new)
    return f"{path}: its byte order mark (BOM) was dropped" if raw.startswith(BOM) else ""


def write_workspace(directory: Path, instead: Mapping[str, str] = MappingProxyType({})) -> tuple[Path, ...]:
    """Make a workspace: anvil.toml, recipes/, gates/ with the ready-made suites, state/ with a client key.

    `instead` are texts by path that take the place of the example's, or stand beside it. Returns
    the files. BadFile, with nothing written, when any of them exists.
    """
    starter = files("anvil_tui.starter")
    contents: dict[str, str | bytes] = {
        WORKSPACE_FILE: starter.joinpath("anvil.toml").read_text(),
        "recipes/TEMPLATE.txt": starter.joinpath("recipe.toml").read_text(),
        **{
            f"{folder}/{part.name}": part.read_bytes()
            for folder in ("gates", "gates/media")
            for part in starter.joinpath(folder).iterdir()
            if part.is_file()
        },
        "state/.gitignore": "*\n",
        "state/client.key": secrets.token_urlsafe(32) + "\n",
        **instead,
    }
    there = [name for name in contents if (directory / name).exists()]
    if there:
        raise BadFile(str(directory), f"already holds {', '.join(there)}; nothing was written")
    try:
        for name in ("recipes", "gates/media", "state"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        (directory / "state").chmod(0o700)
    except OSError as why:
        raise BadFile(str(directory), f"cannot be made: {why.strerror}") from why
    for name, content in contents.items():
        write_atomic(directory / name, content)
    return tuple(directory / name for name in contents)


def _toml_files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(p for p in directory.iterdir() if p.suffix == ".toml" and not p.name.startswith("."))


def _recipe_row(path: Path, stems: set[str]) -> RecipeFile:
    def links(data: dict[str, Any]) -> list[Problem]:
        return [
            ((key,), f"no recipe {name!r} in {path.parent}/{_near(name, stems)}")
            for key in ("rollback", "control")
            if isinstance(name := data.get(key), str)
            and name
            and not name.startswith("none:")
            and name not in stems
        ]

    try:
        return RecipeFile(str(path), _load(path, RECIPE_SCHEMA, Recipe, links))
    except BadFile as why:
        return RecipeFile(str(path), None, str(why))


def _near(name: str, known: set[str]) -> str:
    found = difflib.get_close_matches(name, sorted(known), 1)
    return f"; nearest: {found[0]}" if found else ""


def _load(
    path: Path, schema: str, model: type[Model], more: Callable[[dict[str, Any]], list[Problem]] = lambda data: []
) -> Model:
    """Validate one file; `more` adds problems that only its neighbours show."""
    text = _decode(path, _read(path))
    data = _parse(path, text)
    places = find_places(text)
    if model is Settings:
        dotted = {
            (k[0], f"{k[1]}.{k[2]}", *k[3:]): at for k, at in places.items() if k[0] == "keys" and len(k) > 2
        }
        places = {**dotted, **places}
    if data.get("schema", schema if model is Settings else None) != schema:
        has = f"not {data['schema']!r}" if "schema" in data else "and is missing"
        raise bad_file(str(path), places, [(("schema",), f'must be "{schema}", {has}')])
    problems = list(control_characters(data))
    loaded = None
    try:
        loaded = model.model_validate(strict(data))
    except ValidationError as why:
        seen = {key for key, _ in problems}
        problems += [p for p in problems_of(why, model) if p[0] not in seen]
    problems += _id_problems(path, data, model) + more(data)
    if problems or loaded is None:
        raise bad_file(str(path), places, problems)
    return loaded


def _id_problems(path: Path, data: dict[str, Any], model: type[Table]) -> list[Problem]:
    name = data.get("id")
    if model is Workspace or not isinstance(name, str) or name == path.stem:
        return []
    other = path.with_name(f"{name}.toml")
    twice = f"; {other} has the same id" if other.is_file() else ""
    return [(("id",), f"must be the file's name: {name!r} does not belong in {path.name}{twice}")]


def strict(data: Any) -> Any:
    """Arrays as tuples, which strict validation wants."""
    if isinstance(data, dict):
        return {key: strict(value) for key, value in data.items()}
    return tuple(strict(v) for v in data) if isinstance(data, list) else data


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise BadFile(str(path), "not a plain file" if path.exists() else "no such file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as why:
        raise BadFile(str(path), f"cannot be read: {why.strerror}") from why
    if len(raw) > MAX_BYTES:
        raise BadFile(str(path), f"larger than {MAX_BYTES} bytes")
    return raw


def _decode(path: Path, raw: bytes) -> str:
    body = raw.removeprefix(BOM)
    try:
        text = body.decode()
    except UnicodeDecodeError as why:
        line = body.count(b"\n", 0, why.start) + 1
        raise BadFile(str(path), f"not UTF-8: byte 0x{body[why.start]:02x}", line=line) from None
    lone = re.search(r"\r(?!\n)", text)
    if lone:
        line = text.count("\n", 0, lone.start()) + 1
        raise BadFile(str(path), "a lone carriage return (CR); end lines with LF or CRLF", line=line)
    return text


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as why:
        raise _parse_error(path, text, str(why)) from None
    except RecursionError:
        raise BadFile(str(path), "nested too deeply") from None


def _parse_error(path: Path, text: str, message: str) -> BadFile:
    at = re.search(r" \((?:at line (\d+), column (\d+)|at end of document)\)$", message)
    said = message[: at.start()] if at else message
    lines = text.split("\n")
    line = int(at[1]) if at and at[1] else max(1, len(text.rstrip().split("\n")))
    column = f" (column {at[2]})" if at and at[2] else ""
    windows = re.search(r'"[^"\']*\\[^"\']*', lines[line - 1])
    hint = f"; a backslash in double quotes begins an escape: {HINT}" if windows else ""
    return BadFile(str(path), f"not TOML: {said}{column}{hint}", line=line)


def _with_value(path: Path, text: str, key: KeyPath, value: Value) -> str:
    """The text with one value replaced in place, or added to its table."""
    _parse(path, text)
    place = find_places(text).get(key)
    written = _written(value)
    if place and place.end:
        return text[: place.start] + written + text[place.end :]
    if place or not key or isinstance(key[-1], int):
        raise BadFile(str(path), "is a table or does not exist, so it cannot be given a value", key=key_text(key))
    return _added(path, text, key, value)


def _added(path: Path, text: str, key: KeyPath, value: Value) -> str:
    document = tomlkit.parse(text)
    table: Any = document
    try:
        for part in key[:-1]:
            table = table[part]
        table[key[-1]] = _item(value)
    except (KeyError, IndexError, TypeError):
        raise BadFile(str(path), "its table does not exist in this file", key=key_text(key)) from None
    new = tomlkit.dumps(document)
    if "\r\n" in text:
        new = re.sub(r"(?<!\r)\n", "\r\n", new)
    moves = difflib.SequenceMatcher(None, text.splitlines(), new.splitlines(), autojunk=False).get_opcodes()
    if any(tag not in ("equal", "insert") for tag, *_ in moves):
        raise EffectFailed(f"{path}: not saved: adding {key_text(key)} would change other lines; add it by hand")
    return new


def _item(value: Value) -> Any:
    """Paths with backslashes are written as literal strings."""
    if isinstance(value, str) and "\\" in value and not re.search(r"['\x00-\x1f\x7f]", value):
        return tomlkit.string(value, literal=True)
    return tomlkit.item(value)


def _written(value: Value) -> str:
    return str(_item(value).as_string())


def _check_rewrite(path: Path, old: str, new: str) -> None:
    """A file that loaded must still load; one that did not may be mended step by step."""
    schema = _parse(path, new).get("schema")
    model = _MODELS.get(schema) if isinstance(schema, str) else None
    if model is None:
        return
    try:
        model.model_validate(strict(_parse(path, new)))
    except ValidationError as why:
        problems = problems_of(why, model)
        before = _problem_keys(_parse(path, old), model)
        fresh = [p for p in problems if p[0] not in before]
        if fresh:
            raise bad_file(str(path), find_places(new), fresh) from None


def _problem_keys(data: dict[str, Any], model: type[Table]) -> set[KeyPath]:
    try:
        model.model_validate(strict(data))
    except ValidationError as why:
        return {key for key, _ in problems_of(why, model)}
    return set()


def _conflict(path: Path, now: str, expected: str, text: str, new: str) -> str:
    diff = difflib.unified_diff(
        text.splitlines(), new.splitlines(), f"{path} (now)", f"{path} (with your change)", "", "", 1, ""
    )
    return (
        f"{path} changed since it was read: it is {now[:12]}, you read {expected[:12]}; nothing was written. "
        "Read it again and repeat. Your change to what is there now:\n" + "\n".join(diff)
    )
