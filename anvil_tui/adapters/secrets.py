"""Secrets by reference, read anew at each use, so that a rotated one is taken without a restart.

The reference is the choice: a named file wins over an environment variable of the same name, and there is no
second place that is silently tried when the named one is empty.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from anvil_tui.core.errors import Refused
from anvil_tui.core.redact import remember
from anvil_tui.core.secrets import Reference, Secret, parse_reference

MAX_BYTES = 64 * 1024


def resolve(ref: str, workspace: Path, environ: Mapping[str, str] | None = None) -> str:
    """The value that `ref` names, as `find` finds it."""
    return find(ref, workspace, environ).value


def find(ref: str, workspace: Path, environ: Mapping[str, str] | None = None) -> Secret:
    """The secret that `ref` names; file paths are relative to the workspace.

    Refused lists the places looked at. Messages hold paths and names, never a value.
    """
    env = os.environ if environ is None else environ
    try:
        parsed = parse_reference(ref)
    except ValueError as why:
        raise Refused(str(why)) from None
    secret = _from_env(parsed, env) if parsed.env else _from_file(parsed, workspace, env)
    if re.search(r"[\x00-\x1f\x7f]", secret.value):
        raise Refused(f"the secret in {secret.source} holds more than one line or a control character")
    remember(secret.value)
    return secret


def _from_env(parsed: Reference, env: Mapping[str, str]) -> Secret:
    value = env.get(parsed.env, "").strip()
    if not value:
        state = "is empty, which counts as unset" if parsed.env in env else "is not set"
        raise _missing(f"environment variable {parsed.env}: {state}")
    return Secret(value, f"environment variable {parsed.env}")


def _from_file(parsed: Reference, workspace: Path, env: Mapping[str, str]) -> Secret:
    path = (workspace / Path(parsed.file).expanduser()).absolute()
    text, mode = _read(path)
    if not parsed.key:
        if not text.strip():
            raise _missing(f"file {path}: is empty, which counts as unset")
        return Secret(text.strip(), str(path), _open_to_others(mode))
    lines = _env_lines(text)
    if not lines.get(parsed.key):
        state = "is empty, which counts as unset" if parsed.key in lines else "is not in it"
        also = "; the environment variable of that name was not tried" if env.get(parsed.key) else ""
        raise _missing(f"file {path}: {parsed.key} {state}{also}")
    value = lines[parsed.key]
    differs = "differs from the process environment" if env.get(parsed.key, value) != value else ""
    notes = [n for n in (differs, _open_to_others(mode)) if n]
    return Secret(value, f"{path}: {parsed.key}", "; ".join(notes))


def _read(path: Path) -> tuple[str, int]:
    try:
        if not path.is_file():
            raise _missing(f"file {path}: {'not a plain file' if path.exists() else 'does not exist'}")
        with path.open("rb") as file:
            raw, mode = file.read(MAX_BYTES + 1), os.fstat(file.fileno()).st_mode
    except OSError as why:
        raise _missing(f"file {path}: {why.strerror}") from why
    if len(raw) > MAX_BYTES:
        raise _missing(f"file {path}: larger than {MAX_BYTES} bytes, so no secret")
    try:
        return raw.decode("utf-8-sig"), mode
    except UnicodeDecodeError:
        raise _missing(f"file {path}: not UTF-8 text") from None


def _env_lines(text: str) -> dict[str, str]:
    """NAME=VALUE lines; `export`, comments and one pair of quotes around the value are understood."""
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*", line)
        if match:
            value = match[2]
            quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
            found[match[1]] = value[1:-1] if quoted else value
    return found


def _open_to_others(mode: int) -> str:
    return f"readable by other users (mode {mode & 0o777:04o})" if mode & 0o077 else ""


def _missing(place: str) -> Refused:
    return Refused(f"no secret found; looked in: {place}")
