"""How a request reaches a slot through the gateway, and what says which slot answered it.

The `model` of an answer is no proof: gateways and engines echo what was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from anvil_tui.core.chat import ChatAnswer


@dataclass(frozen=True, slots=True)
class Way:
    """Where to send requests (`base_url`/v1/...) and the `model` to put into their bodies."""

    base_url: str
    model: str


@dataclass(frozen=True, slots=True)
class Origin:
    """The slot that answered, by the gateway's own account; "" = not proven, and `why` says what was missing.

    `model` is the name that the gateway itself found on the slot's model list, None = it does not look.
    """

    slot: str
    why: str = ""
    model: str | None = None

    def unlike(self, slot: str, served_name: str) -> str | None:
        """Why this is no proof that the serve of that name in `slot` answered."""
        if self.slot != slot:
            return f"answered by {self.slot or self.why}, not {slot}"
        if self.model not in (None, served_name):
            return f"the gateway finds {self.model or 'no model'} in {slot}, not {served_name}"
        return None


def origin_by_header(answer: ChatAnswer) -> Origin:
    """Of a gateway that puts the slot's name on every answer."""
    slot = answer.headers.get("x-anvil-backend", "")
    return Origin(slot, "" if slot else "a backend that does not say its name")


def private(slot: str) -> str:
    """The name under which a slot is reached whatever the aliases say. No alias may hold an `@`."""
    return f"@{slot}"
