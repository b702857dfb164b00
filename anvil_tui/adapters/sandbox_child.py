"""The child of the sandbox: one JSON task on stdin, one JSON answer on stdout. Standard library only.

Limits are set before any foreign text is looked at: CPU seconds, memory, no files, no processes.
"""

from __future__ import annotations

import contextlib
import json
import re
import resource
import sqlite3
import sys
from typing import Any

CPU_S = 2
MEMORY_BYTES = 512 * 1024 * 1024
STEPS = 5_000_000
EVERY = 10_000
MAX_ROWS = 1000
MAX_TEXT = 100_000
MAX_SAID = 1_000_000
_ALLOWED = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # systems without a limit of address space say so
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def query(script: str, sql: str) -> dict[str, Any]:
    """{"value": rows} or {"wrong": why}."""
    base = sqlite3.connect(":memory:", isolation_level=None)
    base.executescript(f"PRAGMA temp_store = MEMORY; {script}")
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += EVERY
        return steps > STEPS

    base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT)
    base.set_progress_handler(count, EVERY)
    base.set_authorizer(lambda action, *names: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
    try:
        cursor = base.execute(sql.strip().removesuffix(";"))
        rows = cursor.fetchmany(MAX_ROWS + 1)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as why:
        long = f"it takes more than {STEPS:,} steps" if steps > STEPS else str(why)
        return {"wrong": f"the query is refused: {long}"}
    if cursor.description is None:
        return {"wrong": "the query is refused: it selects nothing"}
    if len(rows) > MAX_ROWS:
        return {"wrong": f"the query gives more than {MAX_ROWS:,} rows"}
    if any(isinstance(v, bytes) for row in rows for v in row):
        return {"wrong": "the query gives binary values"}
    return {"value": rows}


def matches(pattern: str, texts: list[str]) -> dict[str, Any]:
    """{"value": [bool, ...]} or {"wrong": why}."""
    try:
        made = re.compile(pattern)
    except (re.error, ValueError, RecursionError, OverflowError) as why:
        return {"wrong": f"no regular expression: {why}"}
    return {"value": [made.fullmatch(text) is not None for text in texts]}


def main() -> None:
    task = json.load(sys.stdin)
    limit()
    try:
        said = json.dumps(query(*task["query"]) if "query" in task else matches(*task["matches"]))
        if len(said) > MAX_SAID:
            said = json.dumps({"wrong": f"the query gives more than {MAX_SAID:,} bytes"})
    except MemoryError:
        said = json.dumps({"wrong": "it takes too much memory"})
    print(said, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
