"""Whether a loopback port is free, by the only proof there is: binding it; and who has it, by /proc."""

from __future__ import annotations

import errno
import socket

import psutil

from anvil_tui.ports.surroundings import PortLook


class LocalPorts:
    """`PortReader` of this machine."""

    def look(self, port: int) -> PortLook:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As engines do: a port whose last connections are in TIME_WAIT is free. A listener still refuses it.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as why:
                if why.errno != errno.EADDRINUSE:
                    return PortLook("unknown", why=f"127.0.0.1:{port} cannot be bound: {why.strerror}")
                return _holder(port)
        return PortLook("free")


def _holder(port: int) -> PortLook:
    try:
        listening = [
            c.pid for c in psutil.net_connections("tcp")
            if c.laddr and c.laddr.port == port and c.status == psutil.CONN_LISTEN
        ]  # fmt: skip
        pid = next((p for p in listening if p is not None), None)
        return PortLook("taken", pid, psutil.Process(pid).name() if pid is not None else "")
    except (psutil.Error, OSError) as why:
        return PortLook("taken", why=str(why))
