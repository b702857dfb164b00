"""Runs a command in network, mount and process namespaces of its own, where tests start dockerd and bind any port.

`python -m tests.real.netns CMD...` (root). Loopback there is nobody else's, so a Docker Engine of the machine, its
bridge and its ports are never met, and /dev/shm is empty: what is left in it afterwards is ours. Temporary files
are in a memory of their own: many of these at once would wait for one disk. When CMD ends, or this is ended with
SIGKILL, the kernel ends every process and mount, and with them every file, that it left behind.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

MARK = "ANVIL_REAL_NETNS"
COMMAND = "python -m tests.real.netns python -m pytest"
FOLDER = Path("/run/av")  # short: a Unix socket's path has 107 characters at most
SPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc")


def inside() -> bool:
    return os.environ.get(MARK) == "1"


def main(argv: list[str]) -> int:
    if argv[:1] == ["--init"]:
        return _init(argv[1:])
    if not argv:
        sys.exit(f"usage: {COMMAND} tests/real")
    if os.geteuid() != 0:
        sys.exit("real parts need root: dockerd and namespaces are started; run this as root")
    os.environ[MARK] = "1"
    os.execvp("unshare", ["unshare", *SPACES, "--", sys.executable, "-m", "tests.real.netns", "--init", *argv])


def _init(argv: list[str]) -> int:
    """Process 1 of the namespace: passes signals on to the command, and reaps what others leave, until it ends."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    for place in ("/dev/shm", str(FOLDER)):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", place], check=True)
    own = FOLDER / secrets.token_hex(3)  # sockets that lie in /tmp are named by the hash of a workspace's path
    own.mkdir()
    os.environ["TMPDIR"] = str(own)
    child = subprocess.Popen(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: child.send_signal(got))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the command too
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
