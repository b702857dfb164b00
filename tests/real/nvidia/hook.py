"""Stand-in for NVIDIA's container hook: an engine that finds it on its PATH when it starts takes GPU requests.

Run as `HOOK prestart` with the OCI state on standard input, in the host's namespaces, before the container's root
is entered. ANVIL_FAKE_GPUS names a folder with libnvidia-ml.so.1 and gpus.conf. Writes what was asked to hook.log,
refuses an unknown GPU as the real one does, and mounts the library and a state file with only the visible GPUs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

LIBRARY = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
STATE = "etc/fake-nvml.conf"


def main() -> None:
    folder, state = Path(os.environ["ANVIL_FAKE_GPUS"]), json.load(sys.stdin)
    bundle = Path(state["bundle"])
    config = json.loads((bundle / "config.json").read_text())
    wanted = _environment(config).get("NVIDIA_VISIBLE_DEVICES", "void")
    with (folder / "hook.log").open("a") as log:
        log.write(json.dumps({"id": state["id"], "visible": wanted}) + "\n")
    if wanted in ("", "void", "none"):
        return
    lines = (folder / "gpus.conf").read_text().splitlines()
    seen = folder / f"{state['id'][:12]}.conf"
    seen.write_text("\n".join(_visible(lines, wanted)) + "\n")
    root = bundle / config["root"]["path"]
    for source, target in ((folder / "libnvidia-ml.so.1", LIBRARY), (seen, STATE)):
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        (root / target).touch()
        mount = ["nsenter", "-t", str(state["pid"]), "-m", "mount", "--bind", str(source), str(root / target)]
        subprocess.run(mount, check=True)


def _environment(config: dict[str, Any]) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in config["process"].get("env", []))


def _visible(lines: list[str], wanted: str) -> list[str]:
    """The state file of the chosen GPUs, renumbered from 0 in their own order, as the driver does."""
    uuids = {int(m[1]): m[2] for line in lines if (m := re.match(r"(\d+)\.uuid=(.*)", line))}
    chosen = set()
    for name in uuids.values() if wanted == "all" else wanted.split(","):
        hit = [i for i, uuid in uuids.items() if name in (uuid, str(i))]
        if not hit:
            sys.exit(f"nvidia-container-cli: device error: {name}: unknown device: unknown")
        chosen.update(hit)
    new = {old: at for at, old in enumerate(sorted(chosen))}
    kept = []
    for line in lines:
        found = re.match(r"(\d+)(\..*)", line)
        if found is None:
            kept.append(line)
        elif int(found[1]) in new:
            kept.append(f"{new[int(found[1])]}{found[2]}")
    return kept


if __name__ == "__main__":
    main()
