from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Ports of loopback that were free a moment ago, all different."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(p.getsockname()[1]) for p in probes]
    finally:
        for probe in probes:
            probe.close()
