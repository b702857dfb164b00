"""How requests go through HAProxy: by path, so that the body stays the client's; the backend's name comes back."""

from __future__ import annotations

from anvil_tui.core.box import Expected
from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.routing import Origin, Way, origin_by_header
from anvil_tui.core.workspace import GatewaySettings


class PathWays:
    """Half of a gateway reader. Alias and `@SLOT` are path segments; the engine gets the body as it was sent."""

    _settings: GatewaySettings

    def way(self, to: str, served_name: str) -> Way:
        return Way(f"http://{self._settings.bind}/{to}", served_name)

    def served_by(self, answer: ChatAnswer) -> Origin:
        return origin_by_header(answer)


class Undisturbed:
    """Half of a gateway control: what runs in a slot is no matter to HAProxy, and an install is a reload, in which
    running and waiting requests go on."""

    def expect(self, slot: str, serve: Expected, generation: int) -> None:
        return

    def would_interrupt(self) -> str:
        return ""
