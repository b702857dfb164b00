"""A box of real parts for whole operations: Docker Engine, llama.cpp, HAProxy, and clients that never stop."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anvil_tui.adapters.box_file import BoxFile, write_record
from anvil_tui.adapters.docker_engine import DockerControl, DockerReader
from anvil_tui.adapters.haproxy import HaproxyReader
from anvil_tui.adapters.journal_file import OperationFolders
from anvil_tui.adapters.toml_files import load_workspace
from anvil_tui.core.box import Container, Gateway
from anvil_tui.core.journal import OperationView
from anvil_tui.core.world import OPERATION_LABEL, RECIPE_LABEL, BoxRecord


class RealBox:
    """Looks at the box with its own readers, and acts only through the product's command line or processes."""

    verb_s = 600

    def __init__(self, directory: Path) -> None:
        self.dir, self.workspace = directory, load_workspace(directory)
        self.docker = DockerReader(self.workspace.containers.url)
        self.record_file = BoxFile(directory / "state")
        self.operations = OperationFolders(directory / "state" / "operations")

    def anvil(self, *argv: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "anvil_tui", "--workspace", str(self.dir), *argv]
        return subprocess.run(command, capture_output=True, text=True, timeout=self.verb_s, check=False)

    def do(self, *argv: str, code: int = 0) -> Any:
        """One headless verb with --json; its exit code must be `code`."""
        ran = self.anvil(*argv, "--json")
        assert ran.returncode == code, f"{argv} exited {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return json.loads(ran.stdout) if ran.stdout.strip() else None

    def ours(self) -> list[Container]:
        return [c for c in self.docker.list() if OPERATION_LABEL in c.labels]

    def running(self) -> list[str]:
        """Recipe ids of our running containers."""
        return sorted(c.labels[RECIPE_LABEL] for c in self.ours() if c.running)

    def gateway(self) -> Gateway:
        return HaproxyReader(self.dir, self.workspace.gateway, self.workspace.roles).snapshot()

    def record(self) -> BoxRecord:
        return BoxFile(self.dir / "state").read()

    def incumbent(self) -> str:
        serve = self.record().serve_in("primary")
        return serve.recipe_id if serve else ""

    def slot_recipe(self) -> str:
        """The recipe that the public aliases reach through the running gateway."""
        targets = set(self.gateway().aliases[a] for a in self.workspace.roles[0].aliases)
        assert len(targets) == 1, targets
        slot = targets.pop()
        by_slot = {s.slot: s.recipe_id for s in self.record().serves.values() if self._up(s.container_id)}
        return by_slot.get(slot, slot)

    def _up(self, container_id: str) -> bool:
        return any(c.id == container_id and c.running for c in self.ours())

    def last(self) -> OperationView:
        return self.operations.views()[-1]

    def settled(self, recipe: str) -> None:
        """One engine runs and serves, the file equals the process, and the record says the same."""
        now = self.gateway()
        assert (self.running(), self.slot_recipe(), self.incumbent()) == ([recipe], recipe, recipe)
        assert now.file_equal

    def drop(self, keep: Sequence[str]) -> None:
        """Test set-up only: take away every container of ours but `keep`, and what the record knows of them."""
        control = DockerControl(self.workspace.containers.url)
        for c in self.ours():
            if c.id not in keep:
                control.stop(c.id, 1)
                control.remove(c.id)
        now = self.record()
        serves = {k: v for k, v in now.serves.items() if k in keep}
        roles = {
            k: type(v)(v.name, v.incumbent, tuple(x for x in v.rollback if x in keep))
            for k, v in now.roles.items()
        }
        write_record(self.dir / "state" / "box.json", BoxRecord(now.generation, serves, roles))
        control.close()
