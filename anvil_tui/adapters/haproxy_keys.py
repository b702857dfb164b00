"""The client keys that HAProxy takes, as digests: the durable list first, then the running one, no reload."""

from __future__ import annotations

from anvil_tui.adapters import haproxy_socket as sock
from anvil_tui.adapters.files import folder_lock, write_atomic
from anvil_tui.adapters.haproxy_files import Paths, stored_keys
from anvil_tui.core.errors import EffectFailed
from anvil_tui.core.gateway_config import KEYS_FILE, keys_in, keys_text


class KeyList:
    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def change(self, add: frozenset[str] = frozenset(), drop: frozenset[str] = frozenset()) -> None:
        """Unreachable, with nothing written, when the gateway does not run; BadFile when no key would be left."""
        self._running()
        with folder_lock(self._paths.keys):
            wanted = (stored_keys(self._paths) | add) - drop
            self.store(wanted)
            self.follow()

    def store(self, wanted: frozenset[str]) -> bool:
        """Write the durable list; whether it was another one."""
        if stored_keys(self._paths) == wanted:
            return False
        write_atomic(self._paths.keys, keys_text(wanted))
        return True

    def follow(self) -> bool:
        """Make the running list as the durable one, keys added before any goes; whether it was another one."""
        wanted, before = stored_keys(self._paths), self._running()
        for digest in sorted(wanted - before):
            sock.command(self._paths.cli, f"add acl {KEYS_FILE} {digest}")
        for digest in sorted(before - wanted):
            sock.command(self._paths.cli, f"del acl {KEYS_FILE} {digest}")
        if self._running() != wanted:
            raise EffectFailed(f"{self._paths.cli}: the running list of keys is not that of {self._paths.keys}")
        return before != wanted

    def _running(self) -> frozenset[str]:
        told = sock.ask(self._paths.cli, f"show acl {KEYS_FILE}")
        if told.startswith("Unknown ACL"):
            raise EffectFailed(
                f"{self._paths.cli}: the running gateway has no list of keys: run `anvil-tui gateway install`"
            )
        rows = (line.split() for line in told.splitlines() if line.startswith("0x"))
        return keys_in("\n".join(row[1] for row in rows if len(row) == 2))
