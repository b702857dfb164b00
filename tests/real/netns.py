"""Runs a command in network, mount and process namespaces of its own, where tests start dockerd and bind any port.

`python -m tests.real.netns CMD...` (root). Loopback there is nobody else's, so a Docker Engine of the machine, its
bridge and its ports are never met, and /dev/shm is empty: what is left in it afterwards is ours. When CMD ends,
the kernel ends every process and mount it left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

MARK = "ANVIL_REAL_NETNS"
COMMAND = "python -m tests.real.netns python -m pytest"
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
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm"], check=True)
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
