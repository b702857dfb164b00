"""Runs a command in a private network namespace, where tests may start dockerd and bind any port.

`python -m tests.real.netns CMD...` (root). Loopback there is nobody else's: a Docker Engine of the machine, its
bridge and its ports are never met.
"""

from __future__ import annotations

import os
import sys

MARK = "ANVIL_TEST_NETNS"


def inside() -> bool:
    return os.environ.get(MARK) == "1"


def main(argv: list[str]) -> None:
    if os.geteuid() != 0:
        sys.exit("real parts need root: dockerd and a network namespace are started; run `make test` as root")
    os.environ[MARK] = "1"
    script = 'ip link set lo up && exec "$@"'
    os.execvp("unshare", ["unshare", "--net", "--", "sh", "-c", script, "sh", *argv])


if __name__ == "__main__":
    main(sys.argv[1:])
