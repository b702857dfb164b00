"""A small good anvil.toml, and how to put one into a folder."""

from __future__ import annotations

from pathlib import Path

WORKSPACE = """\
schema = "anvil.workspace/1"
[box]
name = "b"  # shown
kind = "lab"
[gateway]
client_keys = ["env:KEY"]
[[roles]]
name = "primary"
aliases = ["llm.primary"]
[[roles.slots]]
name = "a"
port = 8001  # do not move
# port = 9

  [[roles.slots]]   # indented on purpose
  name = "b"
  port = 8002
"""


def box(folder: Path, text: str | bytes = WORKSPACE) -> Path:
    path = folder / "anvil.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path
