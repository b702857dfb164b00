"""The gate of the Responses route: makes repeat `n`, whole and streamed."""

from __future__ import annotations

from collections.abc import Mapping

from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.gates import FailureClass, Gate, GateKind
from anvil_tui.core.verdicts import Judged, delivered, failed
from anvil_tui.service.gates import prompts
from anvil_tui.service.gates.answering import pong
from anvil_tui.service.gates.session import Finding, GateWork, Session, budgets

_BROKEN = ("event_name_differs", "sequence_out_of_order", "text_differs_from_deltas")


def route_absent(answer: ChatAnswer) -> bool:
    """Whether the server does not have the route. A 404 that speaks of a model is about the name that was sent."""
    if answer.error != "http":
        return False
    return answer.status in (405, 501) or (answer.status == 404 and "model" not in answer.error_message.lower())


def responses(session: Session, gate: Gate, n: int) -> Finding:
    """Status completed, exactly the text, and in a stream events that agree with the whole response."""
    limit = sum(budgets(gate, session.target.recipe))

    def judge(answer: ChatAnswer) -> Judged:
        if route_absent(answer):
            return Judged("unsupported", None, f"no Responses route: HTTP {answer.status}: {answer.error_message}")
        told = delivered(answer, limit)
        if told.ok and (odd := [note for note in answer.notes if note in _BROKEN]):
            return failed(FailureClass.STREAM, f"the events of the stream disagree: {', '.join(odd)}")
        return pong(answer) if told.ok else told

    messages = (prompts.user(prompts.SMOKE),)
    return session.ask_both(gate, n, judge, partial=True, route="responses", messages=messages)


RESPONDING: Mapping[GateKind, GateWork] = {"responses": GateWork(responses)}
